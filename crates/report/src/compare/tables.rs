//! Tables and sentences of a comparison, for pages and terminals: which numbers stand where, and what do
//! they mean?

use std::collections::BTreeMap;

use fullrank_engine::compare::{
    ComparedModel, Comparison, Difference, FEWEST_PAIRS, Metric, Pair, SettingDifference, Spread,
};
use fullrank_graph::Split;

use crate::numbers::{cell, count, counted};

/// Columns of [`model_rows`].
pub const MODELS_HEADER: [&str; 8] =
    ["", "d", "K", "parameters", "seeds", "epochs", "updates", "minutes"];

/// Columns of [`difference_rows`].
pub const DIFFERENCES_HEADER: [&str; 7] =
    ["", "b − a", "± pairs", "95 % over queries", "95 % over relations", "p", "p, Holm"];

/// Metrics that stand in one table.
pub const METRIC_TABLES: [&[Metric]; 2] = [
    &[Metric::Mrr, Metric::HitsAt1, Metric::HitsAt3, Metric::HitsAt10],
    &[Metric::Mr, Metric::Amri, Metric::NllFiltered, Metric::Nll],
];

/// What a metric is called.
pub fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Mrr => "MRR",
        Metric::Mr => "MR",
        Metric::HitsAt1 => "Hits@1",
        Metric::HitsAt3 => "Hits@3",
        Metric::HitsAt10 => "Hits@10",
        Metric::Amri => "AMRI",
        Metric::NllFiltered => "NLL filtered",
        Metric::Nll => "NLL",
    }
}

/// Digits of a metric that are shown.
fn digits(metric: Metric) -> usize {
    match metric {
        Metric::Mr => 1,
        Metric::NllFiltered | Metric::Nll => 3,
        _ => 4,
    }
}

/// Mean and standard deviation, as far as there is one and it is not zero.
fn spread(spread: Spread, digits: usize) -> String {
    let Spread { mean, deviation } = spread;
    match deviation {
        Some(deviation) if deviation > 0.0 => format!("{mean:.digits$} ± {deviation:.digits$}"),
        _ => format!("{mean:.digits$}"),
    }
}

/// The same of whole numbers: without digits where they are all the same.
fn spread_of_counts(found: Spread) -> String {
    match found.deviation {
        Some(deviation) if deviation > 0.0 => {
            format!("{} ± {deviation:.0}", count(found.mean.round() as usize))
        }
        _ => count(found.mean as usize),
    }
}

/// What the models are, a row each.
pub fn model_rows(comparison: &Comparison) -> Vec<Vec<String>> {
    let row = |model: &ComparedModel| {
        vec![
            model.name.clone(),
            count(model.dim),
            model.components.map_or_else(|| "–".to_owned(), count),
            count(model.parameters),
            count(model.seeds.len()),
            spread_of_counts(model.epochs),
            spread_of_counts(model.updates),
            model.minutes.map_or_else(|| "–".to_owned(), |minutes| spread(minutes, 2)),
        ]
    };
    comparison.models.iter().map(row).collect()
}

/// Splits that metrics are shown of, each with what it is called.
pub const SPLITS: [(&str, Split); 2] = [("Test", Split::Test), ("Validation", Split::Valid)];

/// Some metrics of every model on test or validation; no rows if no model has any there.
pub fn metric_rows(comparison: &Comparison, metrics: &[Metric], split: Split) -> Vec<Vec<String>> {
    let of_split = |model: &ComparedModel| -> BTreeMap<Metric, Spread> {
        if split == Split::Test { model.test.clone() } else { model.valid.clone() }
    };
    let row = |model: &ComparedModel| {
        let found = of_split(model);
        let value = |metric: &Metric| {
            let found = found.get(metric);
            found.map_or_else(|| "–".to_owned(), |found| spread(*found, digits(*metric)))
        };
        std::iter::once(model.name.clone()).chain(metrics.iter().map(value)).collect()
    };
    let is_known = comparison.models.iter().any(|model| !of_split(model).is_empty());
    comparison.models.iter().filter(|_| is_known).map(row).collect()
}

/// The header of [`metric_rows`].
pub fn metrics_header(metrics: &[Metric]) -> Vec<&'static str> {
    std::iter::once("").chain(metrics.iter().map(|metric| metric_name(*metric))).collect()
}

/// What a pair is called: `distmult d = 32: softmax → mixture K = 4`.
pub fn pair_name(pair: &Pair) -> String {
    let (place, a, b) = pair_parts(pair);
    format!("{place}: {a} → {b}")
}

/// Where a pair is compared, and what with what.
pub(crate) fn pair_parts(pair: &Pair) -> (String, &str, &str) {
    match (pair.n_models, pair.a.split_once(", "), pair.b.split_once(", ")) {
        (1, Some((place, a)), Some((_, b))) => (place.to_owned(), a, b),
        (n, ..) => (format!("over {} models", count(n)), &pair.a, &pair.b),
    }
}

/// What the models of a pair differ by, a row per metric.
pub fn difference_rows(comparison: &Comparison, pair: &Pair) -> Vec<Vec<String>> {
    let is_of_pair = |found: &&Difference| found.a == pair.a && found.b == pair.b;
    let row = |found: &Difference| {
        let digits = digits(found.metric);
        let interval = |low: Option<f64>, high: Option<f64>| match low.zip(high) {
            Some((low, high)) => format!("{low:+.digits$} to {high:+.digits$}"),
            None => "–".to_owned(),
        };
        vec![
            metric_name(found.metric).to_owned(),
            format!("{:+.digits$}", found.mean),
            cell(found.deviation, digits),
            interval(Some(found.low), Some(found.high)),
            interval(found.low_by_relation, found.high_by_relation),
            chance(found.p) + if found.too_few_pairs { " *" } else { "" },
            found.p_holm.map_or_else(|| "–".to_owned(), chance),
        ]
    };
    comparison.differences.iter().filter(is_of_pair).map(row).collect()
}

/// A p with three digits, or a power of ten.
fn chance(p: f64) -> String {
    if p >= 0.001 { format!("{p:.3}") } else { format!("{p:.0e}") }
}

/// How many runs a pair is made of, and what else these differ in.
pub fn pair_facts(pair: &Pair) -> String {
    let runs = match pair.n_pairs {
        0 => return "They have no seed in common, so nothing is compared.".to_owned(),
        1 => "1 pair of runs".to_owned(),
        n => format!("{} pairs of runs", count(n)),
    };
    let mut facts = vec![format!("{runs} with the same seed")];
    let settings = |of: &dyn Fn(&SettingDifference) -> Option<String>| {
        let found: Vec<String> = pair
            .settings
            .iter()
            .filter_map(|setting| Some(format!("{} {}", setting.name, of(setting)?)))
            .collect();
        Some(found.join(", ")).filter(|found| !found.is_empty())
    };
    let changed =
        settings(&|setting| Some(format!("{} → {}", setting.a.as_ref()?, setting.b.as_ref()?)));
    let alone = |own: &Option<String>, other: &Option<String>| match other {
        None => own.clone(),
        Some(_) => None,
    };
    let only_a = settings(&|setting| alone(&setting.a, &setting.b));
    let only_b = settings(&|setting| alone(&setting.b, &setting.a));
    facts.extend(changed.map(|changed| format!("besides, {changed}")));
    facts.extend(only_a.map(|settings| format!("a alone has {settings}")));
    facts.extend(only_b.map(|settings| format!("b alone has {settings}")));
    facts.join("; ") + "."
}

/// How the differences were made, and what they do not say.
pub fn remarks(comparison: &Comparison) -> Vec<String> {
    let Comparison { dataset, differences, n_resamples, n_tests, .. } = comparison;
    if differences.is_empty() {
        return vec![
            "Two models are compared if they have the same encoder, the same dimension and a seed in \
             common; no two of these have."
                .to_owned(),
        ];
    }
    let (relation, share) = &dataset.largest_relation;
    let mut remarks = vec![format!(
        "Differences are b − a on test, averaged over pairs of runs with the same seed, then over answers. \
         For NLL and MR less is better, for all others more. An interval has the middle 95 % of {} \
         resamples: of the {}, or of the {}, whose answers stay together. The largest relation, {relation}, has \
         {:.0} % of the answers, and where few relations have most of them the second interval is rough.",
        count(*n_resamples),
        counted(dataset.test_queries, "test query"),
        counted(dataset.test_relations, "relation"),
        100.0 * share,
    )];
    let fewest = differences.iter().map(|found| found.n_pairs).min().unwrap_or(0);
    remarks.push(match fewest {
        1 => "Intervals say how much the choice of test triples matters, not how much a training differs from \
              one with another seed. Where there is one pair of runs, nothing tells that: train with several \
              seeds."
            .to_owned(),
        _ => "Intervals say how much the choice of test triples matters, not how much a training differs from \
              one with another seed; that is in the deviation over pairs, and in p."
            .to_owned(),
    });
    let mut tests = format!(
        "p is that of the exact two-sided Wilcoxon signed-rank test over pairs of runs, zeros left out. Of n \
         pairs the smallest p is 2/2ⁿ, so .05 takes {FEWEST_PAIRS}"
    );
    tests.push_str(match differences.iter().any(|found| found.too_few_pairs) {
        true => "; with * there are too few, and no difference could be found so.",
        false => ".",
    });
    remarks.push(tests);
    if *n_tests > 0 {
        remarks.push(format!(
            "{} made at once. If there were nothing to be found, {:.1} of so many would have p below .05 all \
             the same; p by Holm holds for all of them together. Whoever looks at one of them alone should have \
             chosen it before.",
            match n_tests {
                1 => "1 test was".to_owned(),
                n => format!("{} tests were", count(*n)),
            },
            0.05 * *n_tests as f64,
        ));
    }
    remarks
}

/// The graph in a line.
pub fn dataset_line(comparison: &Comparison) -> String {
    let dataset = &comparison.dataset;
    let [train, valid, test] = dataset.triples.map(count);
    format!(
        "{}, {}, {train} / {valid} / {test} triples (train / valid / test)",
        counted(dataset.entities, "entity"),
        counted(dataset.relations, "relation"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use fullrank_engine::compare::Dataset;

    fn pair(n_models: usize, n_pairs: usize) -> Pair {
        let setting = |name: &str, a: Option<&str>, b: Option<&str>| SettingDifference {
            name: name.to_owned(),
            a: a.map(str::to_owned),
            b: b.map(str::to_owned),
        };
        let (place, settings) = match n_models {
            1 => (
                "cp d = 8, ",
                vec![
                    setting("layers", None, Some("2")),
                    setting("clip", Some("1.0"), None),
                    setting("batch", Some("10"), Some("20")),
                ],
            ),
            _ => ("", vec![]),
        };
        Pair {
            a: format!("{place}softmax"),
            b: format!("{place}mixture K = 4"),
            n_models,
            n_pairs,
            settings,
            by_degree: vec![],
            by_relation: vec![],
        }
    }

    fn difference(n_pairs: usize) -> Difference {
        Difference {
            metric: Metric::Mrr,
            a: "softmax".to_owned(),
            b: "mixture K = 4".to_owned(),
            mean: 0.01234,
            deviation: (n_pairs > 1).then_some(0.001),
            low: -0.002,
            high: 0.03,
            low_by_relation: None,
            high_by_relation: None,
            p: 2.0 / 2_f64.powi(n_pairs as i32),
            p_holm: (n_pairs >= 6).then_some(0.0625),
            n_pairs,
            too_few_pairs: n_pairs < 6,
        }
    }

    fn comparison(n_pairs: usize) -> Comparison {
        let dataset = Dataset {
            entities: 10,
            relations: 2,
            triples: [20, 2, 1000],
            test_queries: 1500,
            test_answers: 2000,
            test_relations: 2,
            largest_relation: ("knows".to_owned(), 0.7),
        };
        Comparison {
            dataset,
            runs: vec![],
            models: vec![],
            pairs: vec![pair(2, n_pairs)],
            differences: vec![difference(n_pairs)],
            n_resamples: 10_000,
            n_tests: usize::from(n_pairs >= 6),
        }
    }

    #[test]
    fn a_pair_is_called_by_what_it_has_in_common_and_what_not() {
        assert_eq!(pair_name(&pair(1, 3)), "cp d = 8: softmax → mixture K = 4");
        assert_eq!(pair_name(&pair(2, 6)), "over 2 models: softmax → mixture K = 4");
        assert_eq!(
            pair_facts(&pair(1, 3)),
            "3 pairs of runs with the same seed; besides, batch 10 → 20; a alone has clip 1.0; b alone has \
             layers 2."
        );
        assert_eq!(pair_facts(&pair(2, 1)), "1 pair of runs with the same seed.");
        assert!(pair_facts(&pair(1, 0)).contains("no seed in common"));
    }

    #[test]
    fn too_few_pairs_are_marked_and_explained() {
        let found = comparison(3);
        assert_eq!(
            difference_rows(&found, &found.pairs[0]),
            [["MRR", "+0.0123", "0.0010", "-0.0020 to +0.0300", "–", "0.250 *", "–"]]
        );
        let remarks = remarks(&found).join(" ");
        for part in [
            "10,000 resamples: of the 1,500 test queries, or of the 2 relations",
            "The largest relation, knows, has 70 % of the answers",
            "that is in the deviation over pairs, and in p.",
            "so .05 takes 6; with * there are too few",
        ] {
            assert!(remarks.contains(part), "{part} in {remarks}");
        }
        assert!(!remarks.contains("at once"));
    }

    #[test]
    fn tests_that_can_find_something_are_counted() {
        let found = comparison(6);
        assert_eq!(difference_rows(&found, &found.pairs[0])[0][5..], ["0.031", "0.062"]);
        let six = remarks(&found).join(" ");
        assert!(six.contains("so .05 takes 6. 1 test was made at once."), "{six}");
        let one = remarks(&comparison(1)).join(" ");
        assert!(one.contains("Where there is one pair of runs, nothing tells that"), "{one}");
    }

    #[test]
    fn spreads_have_a_deviation_where_there_is_one() {
        let found = |mean, deviation| Spread { mean, deviation };
        assert_eq!(spread(found(0.5, Some(0.01)), 2), "0.50 ± 0.01");
        assert_eq!(spread(found(0.5, None), 2), "0.50");
        assert_eq!(spread_of_counts(found(1200.0, Some(0.0))), "1,200");
        assert_eq!(spread_of_counts(found(1200.4, Some(10.4))), "1,200 ± 10");
    }
}
