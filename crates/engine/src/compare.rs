//! Comparing runs: is one model better than another, and could that be chance?
//!
//! Runs that differ in their seeds alone are one model. Two models with the same encoder and dimension
//! are compared, seed by seed; where several encoders or dimensions have the same two output layers, these
//! are compared over all of them too. Of each metric there are
//! - the mean difference over seeds and test answers;
//! - intervals of it, by bootstrap over the queries, and over the relations: had other questions been
//!   asked. They say nothing of how trainings differ;
//! - the exact Wilcoxon signed-rank test over pairs of runs, model by model and seed by seed: had other
//!   trainings been made.
//!
//! Here are numbers alone; tables and pages are the business of the report.

mod bootstrap;
mod gains;
mod metric;
mod models;
mod outcome;
mod pairs;
mod same_graph;
#[cfg(test)]
mod tests;
mod wilcoxon;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullrank_graph::{Graph, Split};
use serde::Serialize;

use crate::device::Device;
use crate::error::Error;
use crate::progress::{Event, Progress, Signal};
use crate::run::Run;
pub use bootstrap::{Clusters, Interval};
use gains::{Bootstraps, Gains};
pub use gains::{DegreeGain, Gain, RelationGain};
pub use metric::Metric;
pub use models::{ComparedModel, SettingDifference, Spread};
pub use outcome::Outcome;
pub use pairs::{Difference, Pair};
pub use wilcoxon::{FEWEST_PAIRS, SignedRank, holm, signed_rank};

/// Runs side by side.
#[derive(Debug, Clone, Serialize)]
pub struct Comparison {
    /// What all of them were trained on.
    pub dataset: Dataset,
    /// As they were given.
    pub runs: Vec<Outcome>,
    /// Runs that differ in their seeds alone, together.
    pub models: Vec<ComparedModel>,
    /// Which models are compared.
    pub pairs: Vec<Pair>,
    /// What they differ by on test, pair after pair.
    pub differences: Vec<Difference>,
    /// Resamples behind every interval.
    pub n_resamples: usize,
    /// Tests that [`Difference::p_holm`] counts: those that could have found something.
    pub n_tests: usize,
}

/// The graph of some runs, and what is asked of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dataset {
    /// Its entities.
    pub entities: usize,
    /// Its relations.
    pub relations: usize,
    /// Triples of train, valid and test.
    pub triples: [usize; 3],
    /// Distinct queries of test, both directions.
    pub test_queries: usize,
    /// Answers of these.
    pub test_answers: usize,
    /// Relations that these are over.
    pub test_relations: usize,
    /// The relation with the most test answers, and its share of them.
    pub largest_relation: (String, f64),
}

/// Compares runs by their folders. They are ranked one after the other, so that there is one model in
/// memory at a time.
///
/// # Errors
/// When a folder is no run or is damaged; when runs are of different graphs or splits, or the same
/// training twice; when there are no test triples; when a score is not a number; or when `progress` says
/// stop.
///
/// # Panics
/// If there are no folders or no resamples.
pub fn compare(
    folders: &[PathBuf],
    n_resamples: usize,
    device: Device,
    progress: &mut Progress,
) -> Result<Comparison, Error> {
    let graph = check(folders, device)?;
    let mut runs = Vec::new();
    for (done, folder) in folders.iter().enumerate() {
        if progress(Event::Run { folder, done, total: folders.len() }) == Signal::Stop {
            return Err(Error::Interrupted);
        }
        let run = Run::open(folder, device)?;
        runs.push(Outcome::of(folder, &run, &graph, progress)?);
    }
    Comparison::of(&graph, runs, n_resamples, progress)
}

/// The graph that all runs have, found before the first of them is ranked.
fn check(folders: &[PathBuf], device: Device) -> Result<Arc<Graph>, Error> {
    let mut graph: Option<Arc<Graph>> = None;
    let mut known: Vec<(&Path, crate::config::Config)> = Vec::new();
    for folder in folders {
        let run = Run::open(folder, device)?;
        let own = run.model.graph();
        let first = graph.get_or_insert_with(|| Arc::clone(own));
        outcome::renumbering(folder, own, first)?;
        let config = run.model.config();
        if let Some((other, _)) = known.iter().find(|(_, other)| other == config) {
            return Err(Error::SameTraining { path: folder.clone(), other: other.to_path_buf() });
        }
        known.push((folder, config.clone()));
    }
    let graph = graph.expect("there is at least one run");
    if graph.triples(Split::Test).is_empty() {
        return Err(Error::NoTestTriples { path: folders[0].clone() });
    }
    Ok(graph)
}

impl Comparison {
    fn of(
        graph: &Graph,
        mut runs: Vec<Outcome>,
        n_resamples: usize,
        progress: &mut Progress,
    ) -> Result<Self, Error> {
        let models = models::models(&mut runs);
        let plans = pairs::plan(&models, &runs);
        let queries = &runs[0].answers.queries;
        assert!(
            runs.iter().all(|run| run.answers.queries == *queries),
            "all have the same answers"
        );
        let gains = Gains::of(graph, &plans, &runs);
        let mut bootstraps = Bootstraps::new(n_resamples, progress);
        let differences = gains.differences(&plans, &runs, &mut bootstraps)?;
        let n_tests = differences.iter().filter(|difference| difference.p_holm.is_some()).count();
        let pairs = gains.pairs(&plans, &models, &runs, &mut bootstraps)?;
        let dataset = Dataset::of(graph, &runs[0]);
        Ok(Self { dataset, runs, models, pairs, differences, n_resamples, n_tests })
    }
}

impl Dataset {
    fn of(graph: &Graph, run: &Outcome) -> Self {
        let n_relations = graph.relations().len();
        let mut answers = vec![0.0; n_relations];
        for (query, count) in run.answers.queries.iter().zip(&run.answers.counts) {
            answers[graph.answers().relation(*query as usize).0 as usize % n_relations] += count;
        }
        let test_answers: f64 = answers.iter().sum();
        let largest = (0..n_relations).max_by(|a, b| answers[*a].total_cmp(&answers[*b]));
        let largest = largest.expect("there are test triples");
        Self {
            entities: graph.entities().len(),
            relations: n_relations,
            triples: Split::ALL.map(|split| graph.triples(split).len()),
            test_queries: run.answers.queries.len(),
            test_answers: test_answers as usize,
            test_relations: answers.iter().filter(|count| **count > 0.0).count(),
            largest_relation: (
                graph.relations().name(largest as u32).to_owned(),
                answers[largest] / test_answers,
            ),
        }
    }
}
