//! Outcomes: what did one run come to, as far as it is compared?
//!
//! All of it but the weights, so that many runs are in memory at once.

use std::path::{Path, PathBuf};

use fullrank_graph::{Graph, Split};
use serde::Serialize;

use super::metric::Metric;
use super::same_graph::Renumbering;
use crate::config::Config;
use crate::error::Error;
use crate::evaluate::{Calibration, calibrate, rank_answers};
use crate::metrics::{AnswerRank, Metrics, metrics};
use crate::progress::{EpochRecord, Progress, Trained};
use crate::run::{Provenance, Run, epochs};

/// What one run came to.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Its folder.
    pub run: PathBuf,
    /// The place of its model in [`Comparison::models`](super::Comparison::models).
    pub model: usize,
    /// Of its random numbers.
    pub seed: u64,
    /// Whether its training is over.
    pub is_finished: bool,
    /// Learned numbers.
    pub parameters: usize,
    /// Epochs made.
    pub epochs: usize,
    /// The epoch whose weights were kept.
    pub best_epoch: usize,
    /// Updates made.
    pub updates: u64,
    /// Time for updates and validation; nothing in runs of versions that did not measure it.
    pub minutes: Option<f64>,
    /// On validation, if that has triples.
    pub valid: Option<Metrics>,
    /// On test.
    pub test: Metrics,
    /// On test, as trained and then at the temperature that was fitted.
    pub calibration: Vec<Calibration>,
    /// What every epoch came to.
    #[serde(skip)]
    pub records: Vec<EpochRecord>,
    /// Who began or resumed it.
    #[serde(skip)]
    pub sessions: Vec<Provenance>,
    #[serde(skip)]
    pub(super) config: Config,
    #[serde(skip)]
    pub(super) answers: TestAnswers,
}

/// The test answers of a run, those of each query together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TestAnswers {
    /// As numbered in [`fullrank_graph::Answers`], ascending.
    pub(super) queries: Vec<u32>,
    /// How many answers each of them has.
    pub(super) counts: Vec<f64>,
    /// Of each metric of [`Metric::ALL`], the sum over each query's answers, where it is one.
    sums: Vec<Option<Vec<f64>>>,
}

impl Outcome {
    /// That of a run, whose graph is the one that is given, perhaps with other ids.
    ///
    /// # Errors
    /// When the graphs differ, when there are no test triples, when a score is not a number, or when
    /// `progress` says stop.
    pub(super) fn of(
        folder: &Path,
        run: &Run,
        graph: &Graph,
        progress: &mut Progress,
    ) -> Result<Self, Error> {
        let Trained { best, updates, epochs: n_epochs, seconds, .. } = run.trained;
        let valid = match run.splits.iter().find(|found| found.split == Split::Valid.to_string()) {
            Some(found) => Some(found.model),
            None => run.model.evaluate(Split::Valid, progress)?,
        };
        let mut ranks = test_ranks(run, progress)?;
        let test = metrics(&ranks).ok_or_else(|| Error::NoTestTriples { path: folder.into() })?;
        if let Some(renumbering) = renumbering(folder, run.model.graph(), graph)? {
            renumbering.apply(run.model.graph(), graph, &mut ranks);
        }
        Ok(Self {
            run: folder.into(),
            model: 0,
            seed: run.model.config().training().seed,
            is_finished: run.is_finished,
            parameters: run.model.n_parameters(),
            epochs: n_epochs,
            best_epoch: best.epoch,
            updates,
            minutes: (seconds > 0.0).then_some(seconds / 60.0),
            valid,
            test,
            calibration: calibration(run, progress)?,
            records: epochs(folder)?,
            sessions: run.sessions.clone(),
            config: run.model.config().clone(),
            answers: TestAnswers::of(ranks),
        })
    }
}

/// From the graph of a run to the one that all are to have.
pub(super) fn renumbering(
    folder: &Path,
    from: &Graph,
    to: &Graph,
) -> Result<Option<Renumbering>, Error> {
    Renumbering::between(from, to)
        .map_err(|differences| Error::OtherGraph { path: folder.into(), differences })
}

/// Where each test answer of a run stands.
fn test_ranks(run: &Run, progress: &mut Progress) -> Result<Vec<AnswerRank>, Error> {
    rank_answers(run.model.graph(), Split::Test, &run.model, progress)
}

/// What the run has kept of its probabilities on test; that of versions that kept nothing is made anew.
fn calibration(run: &Run, progress: &mut Progress) -> Result<Vec<Calibration>, Error> {
    if !run.calibration.is_empty() {
        return Ok(run.calibration.clone());
    }
    let temperatures = [1.0].into_iter().chain(run.model.temperature());
    let mut at =
        |temperature| calibrate(run.model.graph(), Split::Test, &run.model, temperature, progress);
    temperatures.map(&mut at).collect()
}

impl TestAnswers {
    pub(super) fn of(mut ranks: Vec<AnswerRank>) -> Self {
        ranks.sort_by_key(|rank| (rank.query, rank.object));
        let by_query: Vec<&[AnswerRank]> = ranks.chunk_by(|a, b| a.query == b.query).collect();
        let sums_of = |metric: &Metric| -> Option<Vec<f64>> {
            let sum = |answers: &&[AnswerRank]| {
                answers.iter().map(|answer| metric.of_answer(answer)).sum::<Option<f64>>()
            };
            by_query.iter().map(sum).collect()
        };
        Self {
            queries: by_query.iter().map(|answers| answers[0].query).collect(),
            counts: by_query.iter().map(|answers| answers.len() as f64).collect(),
            sums: Metric::ALL.iter().map(sums_of).collect(),
        }
    }

    /// Sums of a metric, where the model has it and it is a mean over answers.
    pub(super) fn sums(&self, metric: Metric) -> Option<&[f64]> {
        self.sums[metric as usize].as_deref()
    }
}

/// How much more of a metric the second of each pair has, on average over pairs: the sum over each query's
/// answers. Nothing where one of them does not have the metric.
pub(super) fn mean_gain(
    pairs: &[(&TestAnswers, &TestAnswers)],
    metric: Metric,
) -> Option<Vec<f64>> {
    let mut sums = vec![0.0; pairs[0].0.queries.len()];
    for (a, b) in pairs {
        for ((sum, a), b) in sums.iter_mut().zip(a.sums(metric)?).zip(b.sums(metric)?) {
            *sum += (b - a) / pairs.len() as f64;
        }
    }
    Some(sums)
}
