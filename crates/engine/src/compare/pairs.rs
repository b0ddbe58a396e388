//! Pairs: which models are compared with which, and what do they differ by?

use serde::Serialize;

use super::bootstrap::Interval;
use super::gains::{DegreeGain, RelationGain};
use super::metric::Metric;
use super::models::{ComparedModel, SettingDifference, Spread, differences};
use super::outcome::Outcome;
use super::wilcoxon::{SignedRank, holm, signed_rank};

/// Two models that are compared, b against a.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// The name of a model, or an output layer that several models have.
    pub a: String,
    /// The same of what is compared with it.
    pub b: String,
    /// Models on each side: more than one where output layers are compared over several encoders or
    /// dimensions.
    pub n_models: usize,
    /// Pairs of runs, each with the same encoder, dimension and seed; with none of them nothing is
    /// compared.
    pub n_pairs: usize,
    /// What else the models differ in, besides output layer, K and score.
    pub settings: Vec<SettingDifference>,
    /// By the number of known answers of the query, in ten parts.
    pub by_degree: Vec<DegreeGain>,
    /// By relation, both directions together, that with the most test answers first.
    pub by_relation: Vec<RelationGain>,
}

/// What two models differ by in a metric on test.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Difference {
    /// The metric.
    pub metric: Metric,
    /// As in [`Pair::a`].
    pub a: String,
    /// As in [`Pair::b`].
    pub b: String,
    /// Of b − a, over pairs of runs and over answers.
    pub mean: f64,
    /// Its standard deviation over pairs of runs; nothing for a single one.
    pub deviation: Option<f64>,
    /// 95 % of the means of resampled queries lie above 2.5 % …
    pub low: f64,
    /// … and below 97.5 %.
    pub high: f64,
    /// The same of resampled relations; nothing if there is only one.
    pub low_by_relation: Option<f64>,
    /// The upper end.
    pub high_by_relation: Option<f64>,
    /// Two-sided, by the exact Wilcoxon signed-rank test over pairs of runs.
    pub p: f64,
    /// The same if all tests are taken together (Holm 1979); nothing where p could not be below .05.
    pub p_holm: Option<f64>,
    /// Pairs of runs.
    pub n_pairs: usize,
    /// Whether p would be above .05 whatever the runs came to.
    pub too_few_pairs: bool,
}

/// Two models to be compared, or the same two output layers of several.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    pub(super) a: String,
    pub(super) b: String,
    /// Places of models with the same encoder and dimension.
    pub(super) models: Vec<(usize, usize)>,
    /// Places of their runs with the same seed.
    pub(super) runs: Vec<(usize, usize)>,
}

/// Every two models with the same encoder and dimension, and output layers that several of these have.
pub(super) fn plan(models: &[ComparedModel], runs: &[Outcome]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for (a, first) in models.iter().enumerate() {
        for (b, second) in models.iter().enumerate().skip(a + 1) {
            if first.is_beside(second) {
                plans.push(Plan {
                    a: first.name.clone(),
                    b: second.name.clone(),
                    models: vec![(a, b)],
                    runs: with_same_seed(first, second, runs),
                });
            }
        }
    }
    let over_several = over_several(&plans, models);
    plans.extend(over_several);
    plans
}

fn with_same_seed(
    first: &ComparedModel,
    second: &ComparedModel,
    runs: &[Outcome],
) -> Vec<(usize, usize)> {
    let partner = |place: &usize| {
        let seed = runs[*place].seed;
        let other = second.runs.iter().find(|other| runs[**other].seed == seed)?;
        Some((*place, *other))
    };
    first.runs.iter().filter_map(partner).collect()
}

/// The same two output layers, where several encoders or dimensions have them, each once.
fn over_several(plans: &[Plan], models: &[ComparedModel]) -> Vec<Plan> {
    let mut all: Vec<Plan> = Vec::new();
    for plan in plans.iter().filter(|plan| !plan.runs.is_empty()) {
        let [(a, b)] = plan.models[..] else { continue };
        let layers = (&models[a].layer, &models[b].layer);
        match all.iter_mut().find(|other| (&other.a, &other.b) == layers) {
            Some(other) => {
                other.models.extend(&plan.models);
                other.runs.extend(&plan.runs);
            }
            None => {
                all.push(Plan { a: layers.0.clone(), b: layers.1.clone(), ..plan.clone() });
            }
        }
    }
    // Two models of an encoder with the same layer differ in something else, which is not what these
    // are about.
    let is_one_each = |plan: &Plan| {
        let are_apart = |(place, (a, _)): (usize, &(usize, usize))| {
            plan.models[..place].iter().all(|(other, _)| !models[*a].is_beside(&models[*other]))
        };
        plan.models.iter().enumerate().all(are_apart)
    };
    all.retain(|plan| plan.models.len() > 1 && is_one_each(plan));
    all
}

impl Plan {
    /// What else its models differ in, each once.
    pub(super) fn settings(
        &self,
        models: &[ComparedModel],
        runs: &[Outcome],
    ) -> Vec<SettingDifference> {
        let of = |model: usize| -> Vec<&Outcome> {
            models[model].runs.iter().map(|place| &runs[*place]).collect()
        };
        let all = self.models.iter().flat_map(|(a, b)| differences(&of(*a), &of(*b)));
        let is_of_layer = |name: &str| ["output", "components", "score"].contains(&name);
        let mut found: Vec<SettingDifference> = Vec::new();
        for difference in all.filter(|difference| !is_of_layer(&difference.name)) {
            if !found.contains(&difference) {
                found.push(difference);
            }
        }
        found
    }

    /// What its runs differ by in a metric, whose mean and its intervals are known. Its p is not yet that
    /// of several tests.
    pub(super) fn difference(
        &self,
        metric: Metric,
        runs: &[Outcome],
        mean: f64,
        (by_query, by_relation): (Interval, Option<Interval>),
    ) -> Difference {
        let value = |place: usize| metric.of(&runs[place].test);
        let of_pair = |(a, b): &(usize, usize)| Some(value(*b)? - value(*a)?);
        let values: Vec<f64> = self.runs.iter().filter_map(of_pair).collect();
        let test: SignedRank = signed_rank(&values);
        Difference {
            metric,
            a: self.a.clone(),
            b: self.b.clone(),
            mean,
            deviation: Spread::of(&values).deviation,
            low: by_query.low,
            high: by_query.high,
            low_by_relation: by_relation.map(|interval| interval.low),
            high_by_relation: by_relation.map(|interval| interval.high),
            p: test.p,
            p_holm: None,
            n_pairs: values.len(),
            too_few_pairs: test.has_too_few(),
        }
    }
}

/// Adds what p comes to when all tests are taken together. One that cannot find anything is none.
pub(super) fn correct(differences: &mut [Difference]) {
    let mut tests: Vec<&mut Difference> =
        differences.iter_mut().filter(|difference| !difference.too_few_pairs).collect();
    let p: Vec<f64> = tests.iter().map(|difference| difference.p).collect();
    for (difference, p) in tests.iter_mut().zip(holm(&p)) {
        difference.p_holm = Some(p);
    }
}
