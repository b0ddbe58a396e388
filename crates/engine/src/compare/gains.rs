//! Gains: by how much is one model better, at which queries and relations, and how sure is that?

use fullrank_graph::{Graph, Split};
use serde::Serialize;

use super::bootstrap::{Clusters, Interval};
use super::metric::Metric;
use super::models::ComparedModel;
use super::outcome::{Outcome, TestAnswers, mean_gain};
use super::pairs::{Difference, Pair, Plan, correct};
use crate::error::Error;
use crate::progress::{Event, Progress};

/// How much more of a metric b has than a.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Over pairs of runs and over answers.
    pub mean: f64,
    /// By bootstrap over the queries, where one was made.
    #[serde(flatten)]
    pub interval: Option<Interval>,
}

/// What is gained at queries that have so many known answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DegreeGain {
    /// The fewest known answers.
    pub from: usize,
    /// The most.
    pub to: usize,
    /// Test queries.
    pub queries: usize,
    /// Their test answers.
    pub answers: usize,
    /// In mean reciprocal rank.
    pub mrr: Gain,
    /// In filtered NLL, of which less is better; nothing where a model has none.
    pub nll_filtered: Option<Gain>,
}

/// What is gained at a relation, both directions together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RelationGain {
    /// Its name.
    pub relation: String,
    /// Its test answers.
    pub answers: usize,
    /// In mean reciprocal rank.
    pub mrr: Gain,
    /// In filtered NLL, of which less is better; nothing where a model has none.
    pub nll_filtered: Option<Gain>,
}

/// Bootstraps that are made one after the other, and whom they tell.
pub(super) struct Bootstraps<'a, 'b> {
    pub(super) n_resamples: usize,
    pub(super) progress: &'a mut Progress<'b>,
    n_done: usize,
    n_all: usize,
}

/// What the sums of some clusters are of.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Column {
    plan: usize,
    metric: Metric,
}

/// Everything that is gained, summed up by query.
pub(super) struct Gains<'a> {
    graph: &'a Graph,
    queries: &'a [u32],
    columns: Vec<Column>,
    by_query: Clusters,
    degrees: Vec<DegreePart>,
}

/// About a tenth of the queries, by their number of known answers.
#[derive(Debug, PartialEq)]
struct DegreePart {
    /// The fewest known answers.
    from: usize,
    /// The most.
    to: usize,
    /// Places of the queries.
    places: Vec<usize>,
}

/// A part of the answers, and what is gained there.
struct Part {
    answers: usize,
    gains: Vec<(Column, Gain)>,
}

impl<'a, 'b> Bootstraps<'a, 'b> {
    pub(super) fn new(n_resamples: usize, progress: &'a mut Progress<'b>) -> Self {
        Self { n_resamples, progress, n_done: 0, n_all: 0 }
    }

    fn intervals(&mut self, clusters: &Clusters) -> Result<Vec<Interval>, Error> {
        let Self { n_resamples, n_done, n_all, .. } = *self;
        let progress = &mut *self.progress;
        let found = clusters.intervals(n_resamples, &mut |event| match event {
            Event::Resampling { done, total } => {
                progress(Event::Resampling { done: n_done * total + done, total: n_all * total })
            }
            other => progress(other),
        });
        self.n_done += 1;
        found
    }
}

impl<'a> Gains<'a> {
    pub(super) fn of(graph: &'a Graph, plans: &[Plan], runs: &'a [Outcome]) -> Self {
        let TestAnswers { queries, counts, .. } = &runs[0].answers;
        let (mut columns, mut sums) = (Vec::new(), Vec::new());
        for (place, plan) in plans.iter().enumerate().filter(|(_, plan)| !plan.runs.is_empty()) {
            let answers = |run: usize| &runs[run].answers;
            let pairs: Vec<_> = plan.runs.iter().map(|(a, b)| (answers(*a), answers(*b))).collect();
            for metric in Metric::ALL {
                if let Some(gain) = mean_gain(&pairs, metric) {
                    columns.push(Column { plan: place, metric });
                    sums.push(gain);
                }
            }
        }
        let by_query = Clusters { sizes: counts.clone(), sums };
        let known = |query: &u32| graph.answers().up_to(*query as usize, Split::Test).len();
        let degrees = tenths(&queries.iter().map(known).collect::<Vec<_>>());
        Self { graph, queries, columns, by_query, degrees }
    }

    /// What the models of all plans differ by, in every metric that they have.
    pub(super) fn differences(
        &self,
        plans: &[Plan],
        runs: &[Outcome],
        bootstraps: &mut Bootstraps,
    ) -> Result<Vec<Difference>, Error> {
        if self.columns.is_empty() {
            return Ok(Vec::new());
        }
        bootstraps.n_all = 2 + self.degrees.len();
        let (_, by_relation) = self.by_relation();
        let of_queries = bootstraps.intervals(&self.by_query)?;
        let of_relations = bootstraps.intervals(&by_relation)?;
        // A single one is drawn every time.
        let several = by_relation.sizes.len() > 1;
        let means = self.by_query.means();
        let difference = |(place, column): (usize, &Column)| {
            let by_relation = several.then(|| of_relations[place]);
            let plan = &plans[column.plan];
            plan.difference(column.metric, runs, means[place], (of_queries[place], by_relation))
        };
        let mut all: Vec<Difference> = self.columns.iter().enumerate().map(difference).collect();
        correct(&mut all);
        Ok(all)
    }

    /// Which models are compared, and where one is better.
    pub(super) fn pairs(
        &self,
        plans: &[Plan],
        models: &[ComparedModel],
        runs: &[Outcome],
        bootstraps: &mut Bootstraps,
    ) -> Result<Vec<Pair>, Error> {
        let degrees = self.degree_parts(bootstraps)?;
        let relations = self.relation_parts();
        let by_degree = |plan: usize| {
            let gain = |(degrees, part): (&DegreePart, &Part)| {
                Some(DegreeGain {
                    from: degrees.from,
                    to: degrees.to,
                    queries: degrees.places.len(),
                    answers: part.answers,
                    mrr: part.gain(plan, Metric::Mrr)?,
                    nll_filtered: part.gain(plan, Metric::NllFiltered),
                })
            };
            self.degrees.iter().zip(&degrees).filter_map(gain).collect()
        };
        let by_relation = |plan: usize| {
            let gain = |(relation, part): &(String, Part)| {
                Some(RelationGain {
                    relation: relation.clone(),
                    answers: part.answers,
                    mrr: part.gain(plan, Metric::Mrr)?,
                    nll_filtered: part.gain(plan, Metric::NllFiltered),
                })
            };
            relations.iter().filter_map(gain).collect()
        };
        let pair = |(place, plan): (usize, &Plan)| Pair {
            a: plan.a.clone(),
            b: plan.b.clone(),
            n_models: plan.models.len(),
            n_pairs: plan.runs.len(),
            settings: plan.settings(models, runs),
            by_degree: by_degree(place),
            by_relation: by_relation(place),
        };
        Ok(plans.iter().enumerate().map(pair).collect())
    }

    /// The relations of the queries, and what is gained at each.
    fn by_relation(&self) -> (Vec<u32>, Clusters) {
        let n_relations = self.graph.relations().len() as u32;
        let relation = |query: &u32| self.graph.answers().relation(*query as usize).0 % n_relations;
        let of_queries: Vec<u32> = self.queries.iter().map(relation).collect();
        let mut relations = of_queries.clone();
        relations.sort_unstable();
        relations.dedup();
        let place = |relation: &u32| relations.partition_point(|other| other < relation);
        let groups: Vec<usize> = of_queries.iter().map(place).collect();
        let merged = self.by_query.merged(&groups, relations.len());
        (relations, merged)
    }

    /// What is gained at each relation, that with the most answers first.
    fn relation_parts(&self) -> Vec<(String, Part)> {
        let (relations, clusters) = self.by_relation();
        let part = |(place, relation): (usize, &u32)| {
            let own = clusters.only(&[place]);
            let gain = |mean: f64| Gain { mean, interval: None };
            let gains = self.columns.iter().copied().zip(own.means().into_iter().map(gain));
            let name = self.graph.relations().name(*relation).to_owned();
            (name, Part { answers: own.sizes[0] as usize, gains: gains.collect() })
        };
        let mut parts: Vec<(String, Part)> = relations.iter().enumerate().map(part).collect();
        parts.sort_by(|(a, of_a), (b, of_b)| of_b.answers.cmp(&of_a.answers).then(a.cmp(b)));
        parts
    }

    /// What is gained by the number of known answers, in the metrics that are shown so.
    fn degree_parts(&self, bootstraps: &mut Bootstraps) -> Result<Vec<Part>, Error> {
        let is_shown = |column: &Column| matches!(column.metric, Metric::Mrr | Metric::NllFiltered);
        let shown = (0..self.columns.len()).filter(|place| is_shown(&self.columns[*place]));
        let shown: Vec<usize> = shown.collect();
        let sums = shown.iter().map(|place| self.by_query.sums[*place].clone()).collect();
        let all = Clusters { sizes: self.by_query.sizes.clone(), sums };
        let mut parts = Vec::new();
        for degrees in &self.degrees {
            let own = all.only(&degrees.places);
            let intervals = bootstraps.intervals(&own)?;
            let gain = |((place, mean), interval): ((&usize, f64), Interval)| {
                (self.columns[*place], Gain { mean, interval: Some(interval) })
            };
            let gains = shown.iter().zip(own.means()).zip(intervals).map(gain).collect();
            parts.push(Part { answers: own.sizes.iter().sum::<f64>() as usize, gains });
        }
        Ok(parts)
    }
}

impl Part {
    fn gain(&self, plan: usize, metric: Metric) -> Option<Gain> {
        let column = Column { plan, metric };
        self.gains.iter().find(|(other, _)| *other == column).map(|(_, gain)| *gain)
    }
}

/// Queries by their numbers of known answers, a tenth of them in each part or a little more: those with
/// the same number are in the same part, so there may be fewer than ten.
fn tenths(degrees: &[usize]) -> Vec<DegreePart> {
    const PARTS: usize = 10;
    let mut sorted = degrees.to_vec();
    sorted.sort_unstable();
    let mut ends: Vec<usize> =
        (1..=PARTS).map(|part| sorted[(sorted.len() * part).div_ceil(PARTS) - 1]).collect();
    ends.dedup();
    let mut start = 0;
    let part = |end: &usize| {
        let own = start..=*end;
        start = end + 1;
        let places = (0..degrees.len()).filter(|place| own.contains(&degrees[*place]));
        let places: Vec<usize> = places.collect();
        let from = places.iter().map(|place| degrees[*place]).min();
        DegreePart { from: from.expect("the end of a part is in it"), to: *end, places }
    };
    ends.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenths_keep_equal_degrees_together() {
        let parts = |degrees: &[usize]| -> Vec<(usize, usize, usize)> {
            let all = tenths(degrees);
            all.iter().map(|part| (part.from, part.to, part.places.len())).collect()
        };
        let twenty: Vec<usize> = (1..=20).collect();
        let expected: Vec<_> = (0..10).map(|i| (2 * i + 1, 2 * i + 2, 2)).collect();
        assert_eq!(parts(&twenty), expected);
        // Half of them have one answer, a tenth each has two, five, five, six and nine.
        let half = [1, 1, 1, 1, 1, 9, 2, 5, 6, 5];
        assert_eq!(parts(&half), [(1, 1, 5), (2, 2, 1), (5, 5, 2), (6, 6, 1), (9, 9, 1)]);
        assert_eq!(parts(&[7]), [(7, 7, 1)]);
    }
}
