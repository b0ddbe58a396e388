//! Cells: our figure for each of the paper's, made by what the other commands call.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Context;
use fullrank_bounds::{Analysis, Side as BoundsSide};
use fullrank_engine::bench::{GraphSize, StepBench, StepWork};
use fullrank_engine::evaluate::{Scorer, Signs, classify, fit_threshold};
use fullrank_engine::metrics::Metrics;
use fullrank_engine::spectrum::spectrum;
use fullrank_engine::{Config, Device, Error, Run, Trainer, forecast};
use fullrank_graph::generate::{GenerateConfig, generate};
use fullrank_graph::statistics::{both_degrees, forward_degrees};
use fullrank_graph::{Graph, Query, Split};

use super::column::{Column, Source};
use super::paper::{Dataset, Side};
use super::places::{Place, size};
use super::runs::{Training, test_metrics, with_bar};
use crate::memory::check_memory;

/// Our side of a cell.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Ours {
    /// One figure for each run, and the same with ties counted half where ties matter.
    Figures { values: Vec<f64>, realistic: Option<Vec<f64>> },
    /// Why there is none.
    Absent(String),
}

impl Ours {
    fn of(value: f64) -> Self {
        Self::Figures { values: vec![value], realistic: None }
    }

    /// The mean over all runs.
    pub(super) fn mean(&self) -> Option<f64> {
        match self {
            Self::Figures { values, .. } => Some(values.iter().sum::<f64>() / values.len() as f64),
            Self::Absent(_) => None,
        }
    }
}

/// What makes the cells of one model, or of one graph.
pub(super) struct Maker<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) place: Option<&'a Place>,
    pub(super) stop: &'a AtomicBool,
}

/// What a run came to.
struct Outcome {
    /// Of test; where candidates are given, ranks are among these.
    metrics: Metrics,
    /// Of 30 epochs.
    hours: f64,
    matrix_rank: Option<usize>,
    signs: Option<Signs>,
}

impl Maker<'_> {
    /// The cells of a model with these trainings.
    pub(super) fn of_model(
        &self,
        columns: &[Column],
        config: &Config,
        trainings: &[Training],
    ) -> anyhow::Result<Vec<Ours>> {
        let is_made_from =
            |sources: &[Source]| columns.iter().any(|column| sources.contains(&column.source()));
        let mut outcomes = Err("needs no run".to_owned());
        if is_made_from(&[Source::Runs, Source::Spectrum, Source::Signs]) {
            outcomes = self.outcomes(columns, trainings)?;
        }
        let step = match is_made_from(&[Source::Step]) {
            true => Some(unless_too_large(self.step_seconds(config))?),
            false => None,
        };
        let forward = match is_made_from(&[Source::Forward]) {
            true => Some(unless_too_large(self.forward_seconds(config))?),
            false => None,
        };
        let milliseconds = |seconds: &Option<Result<f64, String>>| match seconds {
            Some(Ok(seconds)) => Ours::of(1e3 * seconds),
            Some(Err(reason)) => Ours::Absent(reason.clone()),
            None => Ours::Absent(String::new()),
        };
        let cell = |column: &Column| match column.source() {
            Source::Size => {
                let size = size(self.dataset, self.place);
                Ours::of(StepWork::of(config, size).parameters as f64)
            }
            Source::Step => milliseconds(&step),
            Source::Forward => milliseconds(&forward),
            Source::Runs | Source::Spectrum | Source::Signs => of_outcomes(*column, &outcomes),
            Source::Graph | Source::Table => Ours::Absent(String::new()),
        };
        Ok(columns.iter().map(cell).collect())
    }

    /// The cells of one side of the graph.
    pub(super) fn of_graph(&self, columns: &[Column], side: Side) -> Vec<Ours> {
        let Some(Place { graph, .. }) = self.place else {
            return columns.iter().map(|_| self.no_graph()).collect();
        };
        let (degrees, of_bounds) = match side {
            Side::Forward => (forward_degrees(graph), BoundsSide::Forward),
            Side::Both => (both_degrees(graph), BoundsSide::Both),
        };
        let is_of_blocks = |column: &Column| {
            matches!(column, Column::MeanBlocks | Column::MaxBlocks | Column::BlocksDimension)
        };
        let blocks = columns
            .iter()
            .any(is_of_blocks)
            .then(|| Analysis::of(graph, of_bounds, None, &mut || ()).rcm);
        let value = |column: &Column| {
            Some(match column {
                Column::Entities => graph.entities().len() as f64,
                Column::Relations => graph.relations().len() as f64,
                Column::Triples => graph.n_triples() as f64,
                Column::MeanAnswers => degrees.mean,
                Column::MedianAnswers => degrees.median,
                Column::MaxAnswers => degrees.max as f64,
                Column::WorstCase => (2 * degrees.max + 1) as f64,
                Column::MeanBlocks => blocks?.blocks_mean,
                Column::MaxBlocks => blocks?.blocks_max as f64,
                Column::BlocksDimension => blocks?.dimension as f64,
                _ => return None,
            })
        };
        let cell = |column| value(column).map_or(Ours::Absent(String::new()), Ours::of);
        columns.iter().map(cell).collect()
    }

    fn no_graph(&self) -> Ours {
        Ours::Absent(format!("{} is not here", self.dataset.name))
    }

    /// Trains what is missing and looks at what came of all; a reason where that cannot be.
    fn outcomes(
        &self,
        columns: &[Column],
        trainings: &[Training],
    ) -> anyhow::Result<Result<Vec<Outcome>, String>> {
        let Some(place) = self.place else {
            return Ok(Err(format!("{} is not here", self.dataset.name)));
        };
        let mut outcomes = Vec::new();
        for training in trainings {
            let run = training.finished(place, self.stop);
            let outcome = run.and_then(|run| self.outcome(columns, place, &run));
            match unless_too_large(outcome)? {
                Ok(Some(outcome)) => outcomes.push(outcome),
                Ok(None) => return Ok(Err("there are no test triples".to_owned())),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(Ok(outcomes))
    }

    fn outcome(
        &self,
        columns: &[Column],
        place: &Place,
        run: &Run,
    ) -> anyhow::Result<Option<Outcome>> {
        let (graph, model) = (&place.graph, &run.model);
        let Some(metrics) = test_metrics(run) else { return Ok(None) };
        let is_among = |source| columns.iter().any(|column| column.source() == source);
        let matrix_rank = match is_among(Source::Spectrum) {
            true => {
                let found = with_bar("scoring", self.stop, |progress| {
                    spectrum(graph, Split::Test, model, progress)
                })?;
                // The second of three tolerances is the usual one.
                found.and_then(|found| found.ranks.get(1).map(|at| at.matrix_rank))
            }
            false => None,
        };
        let signs = match is_among(Source::Signs) {
            true => with_bar("telling signs", self.stop, |progress| {
                let threshold = fit_threshold(graph, model, progress)?;
                classify(graph, Split::Test, model, threshold, progress)
            })?,
            false => None,
        };
        let hours = 30.0 * run.trained.seconds / run.trained.epochs.max(1) as f64 / 3600.0;
        Ok(Some(Outcome { metrics, hours, matrix_rank, signs }))
    }

    /// A step of training on random data, as `bench step` has it.
    fn step_seconds(&self, config: &Config) -> anyhow::Result<f64> {
        let GraphSize { entities, relations, .. } = size(self.dataset, self.place);
        check_memory(StepBench::forecast(config, entities, 2 * relations))?;
        let mut bench = StepBench::new(config, entities, 2 * relations, 1);
        bench.step();
        Ok(fastest(|| bench.step()))
    }

    /// The log-probabilities of a batch of queries, as a trained model gives them.
    fn forward_seconds(&self, config: &Config) -> anyhow::Result<f64> {
        let graph = match self.place {
            Some(place) => Arc::clone(&place.graph),
            None => Arc::new(stand_in(self.dataset)?),
        };
        check_memory(forecast(config, &graph))?;
        let answers = graph.answers();
        let n_queries = config.training().batch.min(answers.n_queries());
        let queries: Vec<Query> = (0..n_queries).map(|number| answers.query(number)).collect();
        let trainer = Trainer::new(Arc::clone(&graph), config.clone(), Device::default())?;
        let model = trainer.into_model();
        Ok(fastest(|| model.map_rows(&queries, |_, row| row[0])))
    }
}

/// A reason instead of an error where a model does not fit into memory.
fn unless_too_large<T>(made: anyhow::Result<T>) -> anyhow::Result<Result<T, String>> {
    match made {
        Ok(made) => Ok(Ok(made)),
        Err(error) => match error.downcast_ref() {
            Some(memory @ Error::Memory { .. }) => Ok(Err(memory.to_string())),
            _ => Err(error),
        },
    }
}

/// Random facts of a graph's size, where the graph is not there.
fn stand_in(dataset: &Dataset) -> anyhow::Result<Graph> {
    let config = GenerateConfig {
        entities: dataset.entities as u32,
        relations: dataset.relations as u32,
        mean_degree: dataset.splits.iter().sum::<usize>() as f64 / dataset.entities as f64,
        ..GenerateConfig::default()
    };
    generate(config).context("a graph of this size")
}

fn of_outcomes(column: Column, outcomes: &Result<Vec<Outcome>, String>) -> Ours {
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(reason) => return Ours::Absent(reason.clone()),
    };
    let value = |outcome: &Outcome| match column {
        Column::Nll => outcome.metrics.nll_filtered,
        Column::Hours => Some(outcome.hours),
        Column::MatrixRank => outcome.matrix_rank.map(|matrix_rank| matrix_rank as f64),
        Column::Auroc => outcome.signs.map(|signs| signs.auroc),
        Column::AveragePrecision => outcome.signs.map(|signs| signs.average_precision),
        Column::F1 => outcome.signs?.decided.map(|decided| decided.f1),
        // The paper's are optimistic.
        _ => column.of_ranks(&outcome.metrics.optimistic),
    };
    let realistic = outcomes.iter().map(|outcome| column.of_ranks(&outcome.metrics.realistic));
    match outcomes.iter().map(value).collect() {
        Some(values) => Ours::Figures { values, realistic: realistic.collect() },
        None => Ours::Absent("such a model does not have it".to_owned()),
    }
}

/// Seconds of the fastest of three: what else runs only makes them slower.
fn fastest<T>(mut work: impl FnMut() -> T) -> f64 {
    let times = [(); 3].map(|()| {
        let start = Instant::now();
        // So that it is not left out as of no use.
        std::hint::black_box(work());
        start.elapsed().as_secs_f64()
    });
    times.into_iter().fold(f64::INFINITY, f64::min)
}
