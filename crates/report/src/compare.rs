//! The page of a comparison: which model is better, by how much, where, and how sure is that?

mod tables;

use fullrank_engine::compare::{
    ComparedModel, Comparison, DegreeGain, Metric, Outcome, Pair, Spread,
};
use fullrank_engine::evaluate::Calibration;
use fullrank_engine::{EpochRecord, metrics::Metrics};

use crate::numbers::{cell, count};
use crate::page::{Guide, Mark, Page, Plot, Scale, Series};
use tables::pair_parts;
pub use tables::{
    DIFFERENCES_HEADER, METRIC_TABLES, MODELS_HEADER, SPLITS, dataset_line, difference_rows,
    metric_name, metric_rows, metrics_header, model_rows, pair_facts, pair_name, remarks,
};

/// What the page is made of.
#[derive(Debug)]
pub struct ComparePage<'a> {
    /// Runs side by side.
    pub comparison: &'a Comparison,
    /// What their data are called, if that is known.
    pub data: Option<&'a str>,
    /// The command that would compare the same again.
    pub command: &'a str,
    /// The version of the program.
    pub version: &'a str,
}

/// Pairs of the same encoder and dimension, in one picture.
struct Place<'a> {
    name: String,
    pairs: Vec<&'a Pair>,
}

impl ComparePage<'_> {
    /// The page.
    pub fn to_html(&self) -> String {
        let mut page = Page::default();
        let comparison = self.comparison;
        page.heading("Which models?");
        page.table(&MODELS_HEADER, &model_rows(comparison));
        page.remark(
            "Runs that differ in their seed alone are one model; ± is the standard deviation over its \
             seeds. Minutes are those of training and validation, on machines that may differ.",
        );
        quality(&mut page, comparison);
        sizes(&mut page, comparison);
        differences(&mut page, comparison);
        curves(&mut page, comparison);
        let places = places(&comparison.pairs);
        by_degree(&mut page, &places);
        by_relation(&mut page, &places);
        calibration(&mut page, comparison);
        page.heading("Do it again");
        page.code(self.command);
        page.remark(&format!("fullrank {}", self.version));
        let data = self.data.map_or(String::new(), |data| format!(" on {data}"));
        let (models, runs) = (comparison.models.len(), comparison.runs.len());
        let title = format!("{} models{data}, {} runs", count(models), count(runs));
        page.finish(&title, &dataset_line(comparison))
    }
}

fn names(comparison: &Comparison) -> Vec<&str> {
    comparison.models.iter().map(|model| model.name.as_str()).collect()
}

fn quality(page: &mut Page, comparison: &Comparison) {
    page.heading("How good are they?");
    for (name, split) in SPLITS {
        let tables =
            METRIC_TABLES.map(|metrics| (metrics, metric_rows(comparison, metrics, split)));
        if tables.iter().all(|(_, rows)| !rows.is_empty()) {
            page.subheading(name);
            for (metrics, rows) in tables {
                page.table(&metrics_header(metrics), &rows);
            }
        }
    }
    page.remark(
        "Filtered ranks in both directions: MRR is the mean of 1 / rank, Hits@k the share of ranks up to k, \
         MR the mean rank, AMRI the adjusted mean rank index (1 is perfect, 0 is chance). NLL is the mean of \
         −log P of the answers; filtered, with the query's training answers taken out of the distribution.",
    );
}

/// MRR and NLL against parameters.
fn sizes(page: &mut Page, comparison: &Comparison) {
    page.heading("What do parameters buy?");
    page.marks(&names(comparison));
    let plot = |metric: Metric| {
        let mark = |model: &ComparedModel| {
            let Spread { mean, deviation } = *model.test.get(&metric)?;
            let deviation = deviation.filter(|deviation| *deviation > 0.0);
            let ends = deviation.map(|deviation| (mean - deviation, mean + deviation)).unzip();
            Some(Mark(model.parameters as f64, mean, ends.0, ends.1))
        };
        let series = comparison.models.iter().enumerate().map(|(color, model)| Series {
            name: model.name.clone(),
            color,
            points: mark(model).into_iter().collect(),
        });
        Plot::Marks {
            x: "parameters",
            y: metric_name(metric),
            scale: Scale::Linear,
            guide: Guide::None,
            joined: false,
            series: series.filter(|series: &Series<Mark>| !series.points.is_empty()).collect(),
        }
    };
    let charts = [
        (Metric::Mrr, "test MRR against parameters; more is better"),
        (Metric::NllFiltered, "test NLL, filtered, against parameters; less is better"),
    ];
    let has = |metric: Metric| comparison.models.iter().any(|it| it.test.contains_key(&metric));
    let charts = charts.into_iter().filter(|(metric, _)| has(*metric));
    page.charts(charts.map(|(metric, caption)| (caption.to_owned(), plot(metric))).collect());
    page.remark(
        "A line through a mark is as long as the standard deviation over seeds, up and down; models with \
         the same number of parameters stand side by side.",
    );
}

fn differences(page: &mut Page, comparison: &Comparison) {
    page.heading("Is one better than another?");
    for remark in remarks(comparison) {
        page.paragraph(&remark);
    }
    let has_any = |metric: Metric| comparison.differences.iter().any(|it| it.metric == metric);
    let metrics = [
        (Metric::Mrr, "difference in MRR; right of zero b is better"),
        (Metric::NllFiltered, "difference in filtered NLL; left of zero b is better"),
    ];
    for (metric, caption) in metrics.into_iter().filter(|(metric, _)| has_any(*metric)) {
        page.charts(vec![(
            format!("{caption}; thick, 95 % over queries, thin, over relations"),
            intervals(comparison, metric),
        )]);
    }
    for pair in &comparison.pairs {
        page.subheading(&pair_name(pair));
        page.remark(&pair_facts(pair));
        if pair.n_pairs > 0 {
            page.table(&DIFFERENCES_HEADER, &difference_rows(comparison, pair));
        }
    }
}

fn intervals(comparison: &Comparison, metric: Metric) -> Plot {
    let row = |pair: &Pair| {
        let is_it = |found: &&_| {
            let found: &fullrank_engine::compare::Difference = found;
            found.metric == metric && found.a == pair.a && found.b == pair.b
        };
        let found = comparison.differences.iter().find(is_it)?;
        Some(crate::page::IntervalRow {
            name: pair_name(pair),
            mean: found.mean,
            inner: [found.low, found.high],
            outer: found.low_by_relation.zip(found.high_by_relation).map(<[f64; 2]>::from),
        })
    };
    Plot::Intervals {
        x: metric_name(metric),
        rows: comparison.pairs.iter().filter_map(row).collect(),
    }
}

/// The curves of all runs in one picture.
fn curves(page: &mut Page, comparison: &Comparison) {
    let of_valid = |value: fn(&Metrics) -> Option<f64>| -> Vec<Series<Mark>> {
        let point = |record: &EpochRecord| {
            let value = value(record.valid.as_ref()?)?;
            Some(Mark(record.updates as f64, value, None, None))
        };
        let series = comparison.runs.iter().map(|run: &Outcome| Series {
            name: format!("{}, seed {}", comparison.models[run.model].name, run.seed),
            color: run.model,
            points: run.records.iter().filter_map(point).collect(),
        });
        series.filter(|series| !series.points.is_empty()).collect()
    };
    let charts = [
        ("validation MRR of every run", "MRR", of_valid(|valid| Some(valid.realistic.mrr))),
        (
            "validation NLL, filtered, of every run",
            "NLL filtered",
            of_valid(|valid| valid.nll_filtered),
        ),
    ];
    let charts: Vec<(String, Plot)> = charts
        .into_iter()
        .filter(|(_, _, series)| !series.is_empty())
        .map(|(caption, y, series)| {
            let plot = Plot::Marks {
                x: "updates",
                y,
                scale: Scale::Linear,
                guide: Guide::None,
                joined: true,
                series,
            };
            (caption.to_owned(), plot)
        })
        .collect();
    if !charts.is_empty() {
        page.heading("How did they learn?");
        page.marks(&names(comparison));
        page.charts(charts);
    }
}

/// Pairs that go into one picture, in their order.
fn places(pairs: &[Pair]) -> Vec<Place<'_>> {
    let mut places: Vec<Place> = Vec::new();
    for pair in pairs.iter().filter(|pair| pair.n_pairs > 0) {
        let name = pair_parts(pair).0;
        match places.iter_mut().find(|place| place.name == name) {
            Some(place) => place.pairs.push(pair),
            None => places.push(Place { name, pairs: vec![pair] }),
        }
    }
    places
}

impl Place<'_> {
    /// What its colours stand for.
    fn names(&self) -> Vec<String> {
        let name = |pair: &&Pair| {
            let (_, a, b) = pair_parts(pair);
            format!("{a} → {b}")
        };
        self.pairs.iter().map(name).collect()
    }

    /// A heading, and what the colours stand for.
    fn begin(&self, page: &mut Page) {
        page.subheading(&self.name);
        page.marks(&self.names().iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// A picture of what each pair gains, with its caption; nothing where no pair has it.
    fn plot(
        &self,
        (x, y, caption): (&'static str, &'static str, &str),
        joined: bool,
        marks: impl Fn(&Pair) -> Vec<Mark>,
    ) -> Option<(String, Plot)> {
        let series = self.pairs.iter().zip(self.names()).enumerate();
        let series =
            series.map(|(color, (pair, name))| Series { name, color, points: marks(pair) });
        let series: Vec<_> = series.filter(|series| !series.points.is_empty()).collect();
        if series.is_empty() {
            return None;
        }
        let plot = Plot::Marks { x, y, scale: Scale::Log, guide: Guide::Zero, joined, series };
        Some((caption.to_owned(), plot))
    }
}

/// Names of upright axes of gains, and what is good there.
const MRR_GAIN: (&str, &str) = ("MRR, b − a", "above zero b is better");
const NLL_GAIN: (&str, &str) = ("NLL filtered, b − a", "below zero b is better");

fn by_degree(page: &mut Page, places: &[Place]) {
    if places.is_empty() {
        return;
    }
    page.heading("Where is something gained: few answers or many?");
    page.paragraph(
        "Test queries by the number of their known answers, a tenth of them in each mark (queries with the same \
         number are in the same one, so there may be fewer marks); where a mark stands for several numbers, it is \
         at their geometric mean. Lines through marks are 95 % intervals over queries.",
    );
    let middle = |gain: &DegreeGain| (gain.from as f64 * gain.to as f64).sqrt();
    let mark = |gain: &DegreeGain, value: fullrank_engine::compare::Gain| {
        let ends = value.interval.map(|interval| (interval.low, interval.high)).unzip();
        Mark(middle(gain), value.mean, ends.0, ends.1)
    };
    for place in places {
        place.begin(page);
        let mrr = |pair: &Pair| pair.by_degree.iter().map(|gain| mark(gain, gain.mrr)).collect();
        let nll = |pair: &Pair| {
            let gains = pair.by_degree.iter();
            gains.filter_map(|gain| Some(mark(gain, gain.nll_filtered?))).collect()
        };
        let x = "known answers of the query, logarithmic";
        let with_x = |(y, caption)| (x, y, caption);
        let charts =
            [place.plot(with_x(MRR_GAIN), true, mrr), place.plot(with_x(NLL_GAIN), true, nll)];
        page.charts(charts.into_iter().flatten().collect());
    }
}

fn by_relation(page: &mut Page, places: &[Place]) {
    /// Relations in the table.
    const MOST: usize = 10;
    if places.is_empty() {
        return;
    }
    page.heading("Where is something gained: at which relations?");
    page.paragraph(
        "Every mark is a relation, both directions together. One with few answers is far from zero by chance; one \
         with many decides the whole.",
    );
    for place in places {
        place.begin(page);
        let mrr = |pair: &Pair| -> Vec<Mark> {
            let gains = pair.by_relation.iter();
            gains.map(|gain| Mark(gain.answers as f64, gain.mrr.mean, None, None)).collect()
        };
        let nll = |pair: &Pair| -> Vec<Mark> {
            let gains = pair.by_relation.iter();
            let mark = |answers: usize, value: f64| Mark(answers as f64, value, None, None);
            gains.filter_map(|gain| Some(mark(gain.answers, gain.nll_filtered?.mean))).collect()
        };
        let x = "test answers of the relation, logarithmic";
        let with_x = |(y, caption)| (x, y, caption);
        let charts =
            [place.plot(with_x(MRR_GAIN), false, mrr), place.plot(with_x(NLL_GAIN), false, nll)];
        page.charts(charts.into_iter().flatten().collect());
        let names: Vec<String> = place.names().iter().map(|name| format!("MRR, {name}")).collect();
        let header: Vec<&str> =
            ["relation", "answers"].into_iter().chain(names.iter().map(String::as_str)).collect();
        // The same relations in the same order for every pair.
        let rows = place.pairs[0].by_relation.iter().take(MOST).enumerate();
        let row = |(row, gain): (usize, &fullrank_engine::compare::RelationGain)| {
            let value = |pair: &&Pair| format!("{:+.4}", pair.by_relation[row].mrr.mean);
            let first = [gain.relation.clone(), count(gain.answers)].into_iter();
            first.chain(place.pairs.iter().map(value)).collect()
        };
        page.table(&header, &rows.map(row).collect::<Vec<_>>());
    }
}

fn calibration(page: &mut Page, comparison: &Comparison) {
    let of_model = |model: &ComparedModel| -> Vec<&Outcome> {
        model.runs.iter().map(|place| &comparison.runs[*place]).collect()
    };
    page.heading("Can their probabilities be trusted?");
    page.paragraph(
        "For the most likely answer to each test query, answers from training left out: how probable a model \
         said it was, as trained, against how often it came true, all seeds together. On the dashed line the \
         two agree.",
    );
    page.marks(&names(comparison));
    let series = comparison.models.iter().enumerate().map(|(color, model)| Series {
        name: model.name.clone(),
        color,
        points: reliability(&of_model(model)),
    });
    let plot = Plot::Marks {
        x: "probability of the top answer",
        y: "share that came true",
        scale: Scale::Linear,
        guide: Guide::Diagonal,
        joined: true,
        series: series.filter(|series| !series.points.is_empty()).collect(),
    };
    page.charts(vec![("reliability of the top answer".to_owned(), plot)]);
    let row = |model: &ComparedModel| {
        let runs = of_model(model);
        let mean = |value: &dyn Fn(&Calibration) -> f64, place: usize| {
            let values: Option<Vec<f64>> =
                runs.iter().map(|run| run.calibration.get(place).map(value)).collect();
            cell(values.map(|values| Spread::of(&values).mean), 4)
        };
        let top = |calibration: &Calibration| calibration.top_answer.ece;
        let pairs = |calibration: &Calibration| calibration.pairs.ece;
        let temperature = |calibration: &Calibration| calibration.temperature;
        vec![
            model.name.clone(),
            mean(&top, 0),
            mean(&pairs, 0),
            mean(&temperature, 1),
            mean(&top, 1),
            mean(&pairs, 1),
        ]
    };
    let header =
        ["", "top answer", "all pairs", "temperature", "top answer at it", "all pairs at it"];
    page.table(&header, &comparison.models.iter().map(row).collect::<Vec<_>>());
    page.remark(
        "Expected calibration errors, means over seeds: of the top answer they lie between 0 and 1, of all pairs of \
         query and entity between 0 and 2. The temperature is the one fitted on validation.",
    );
}

/// What several runs said of their top answers and what came true, bin by bin.
fn reliability(runs: &[&Outcome]) -> Vec<Mark> {
    /// Of the width of a bin.
    const BINS: f64 = 15.0;
    let mut bins = std::collections::BTreeMap::<usize, [f64; 3]>::new();
    let first = runs.iter().filter_map(|run| run.calibration.first());
    for bin in first.flat_map(|calibration| &calibration.top_answer.bins) {
        let sums = bins.entry((bin.predicted * BINS).min(BINS - 1.0) as usize).or_default();
        sums[0] += bin.count;
        sums[1] += bin.predicted * bin.count;
        sums[2] += bin.observed * bin.count;
    }
    let mark = |[count, predicted, observed]: &[f64; 3]| {
        Mark(predicted / count, observed / count, None, None)
    };
    bins.values().map(mark).collect()
}
