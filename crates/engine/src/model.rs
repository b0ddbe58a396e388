//! Models: a trained network and the graph it was trained on.
//!
//! What a model knows of itself: its config, its graph, its tensors, the temperature that suits it, and
//! how well it answers held-out queries. It is made by a [`Trainer`](crate::Trainer) or opened from a
//! run folder, and asked by a [`Predictor`](crate::Predictor).

use std::sync::Arc;

use fullrank_graph::{Graph, Query, Split};
use safetensors::tensor::{Dtype, TensorView};

use crate::config::Config;
use crate::error::Error;
use crate::evaluate::{
    Baselines, Calibration, GivenCandidates, Scorer, calibrate, fit_temperature,
};
use crate::metrics::{AnswerRank, Metrics, metrics};
use crate::network::{Network, Scoring};
use crate::parameters::{Named, count, tensors};
use crate::part::TableRows;
use crate::probability::ProbabilityKind;
use crate::progress::{Progress, Trained};

/// A trained model and the graph it was trained on.
#[derive(Debug)]
pub struct Model {
    graph: Arc<Graph>,
    config: Config,
    scoring: Scoring,
    n_parameters: usize,
    trained: Trained,
    pub(crate) temperature: Option<f64>,
    pub(crate) candidates: Arc<GivenCandidates>,
}

/// A table of learned numbers, for other programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// As in `model.safetensors`.
    pub name: String,
    /// Rows first.
    pub shape: Vec<usize>,
    /// Row after row.
    pub values: Vec<f32>,
    /// What its rows belong to.
    pub rows: TableRows,
}

/// What a model comes to on one held-out split.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitResult {
    /// The split.
    pub split: Split,
    /// Where each of its answers stands.
    pub ranks: Vec<AnswerRank>,
    /// Where each stands by popularity alone, in the same order.
    pub popularity_ranks: Vec<AnswerRank>,
    /// Averages of the model's ranks.
    pub metrics: Metrics,
    /// What they are to be above.
    pub baselines: Baselines,
}

/// What a training has come to, in the end.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Every held-out split that has triples.
    pub splits: Vec<SplitResult>,
    /// On the last of these splits, as trained and then at the temperature that was fitted.
    pub calibration: Vec<Calibration>,
}

impl SplitResult {
    /// What the ranks of a split come to; nothing if it has no triples.
    fn new(
        graph: &Graph,
        split: Split,
        ranks: Vec<AnswerRank>,
        popularity_ranks: Vec<AnswerRank>,
    ) -> Option<Self> {
        Some(Self {
            split,
            metrics: metrics(&ranks)?,
            baselines: Baselines::of(graph, &popularity_ranks)?,
            ranks,
            popularity_ranks,
        })
    }
}

impl Finished {
    /// The result on a split; nothing if it has no triples.
    pub fn of(&self, split: Split) -> Option<&SplitResult> {
        self.splits.iter().find(|result| result.split == split)
    }
}

impl Model {
    pub(crate) fn new(
        graph: Arc<Graph>,
        config: Config,
        network: Network,
        trained: Trained,
    ) -> Self {
        let n_parameters = count(&network);
        let scoring = network.scoring();
        let candidates = Arc::default();
        Self { graph, config, scoring, n_parameters, trained, temperature: None, candidates }
    }

    /// What it was trained with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it was trained on.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Learned numbers.
    pub fn n_parameters(&self) -> usize {
        self.n_parameters
    }

    /// What its training came to.
    pub fn trained(&self) -> Trained {
        self.trained
    }

    /// What to divide log-probabilities by, if it was fitted on validation.
    pub fn temperature(&self) -> Option<f64> {
        self.temperature
    }

    /// Everything the model has learned, and its running statistics.
    pub fn tables(&self) -> Vec<Table> {
        let known: Vec<(String, TableRows)> = self.config.tables().collect();
        let rows = |name: &str| {
            let found = known.iter().find(|(known, _)| known == name);
            found.map_or(TableRows::Other, |(_, rows)| *rows)
        };
        let table = |tensor: Named| Table {
            rows: rows(&tensor.name),
            name: tensor.name,
            shape: tensor.shape,
            values: tensor.values.into_data().try_into_vec().expect("models are f32"),
        };
        tensors(self.network()).into_iter().map(table).collect()
    }

    /// Has held-out answers ranked against given candidates, where there are some, instead of all
    /// entities.
    pub fn rank_among(&mut self, candidates: Arc<GivenCandidates>) {
        self.candidates = candidates;
    }

    /// How well the model answers a split; nothing if that has no triples.
    ///
    /// # Errors
    /// When a score is not a number, or when `progress` says stop.
    pub fn evaluate(
        &self,
        split: Split,
        progress: &mut Progress,
    ) -> Result<Option<Metrics>, Error> {
        Ok(metrics(&self.candidates.rank(&self.graph, split, self, progress)?))
    }

    /// Where the answers of a split stand, by the model and by popularity, and what that comes to;
    /// nothing if the split has no triples.
    ///
    /// # Errors
    /// When a score is not a number, or when `progress` says stop.
    pub fn rank(
        &self,
        split: Split,
        progress: &mut Progress,
    ) -> Result<Option<SplitResult>, Error> {
        let (graph, given) = (&self.graph, &self.candidates);
        let ranks = given.rank(graph, split, self, progress)?;
        let popularity_ranks = given.rank_by_popularity(graph, split, progress)?;
        Ok(SplitResult::new(graph, split, ranks, popularity_ranks))
    }

    /// What is done when a training is over: held-out answers are ranked, by the model and by
    /// popularity, a temperature is fitted on validation if there is none, and probabilities are
    /// compared with what came true.
    ///
    /// # Errors
    /// When a score is not a number, or when `progress` says stop.
    pub fn finish(&mut self, progress: &mut Progress) -> Result<Finished, Error> {
        let mut splits = Vec::new();
        for split in [Split::Valid, Split::Test] {
            splits.extend(self.rank(split, progress)?);
        }
        if self.temperature.is_none() {
            self.temperature = fit_temperature(&self.graph, Split::Valid, self, progress)?;
        }
        let mut calibration = Vec::new();
        if let Some(last) = splits.last() {
            for temperature in [1.0].into_iter().chain(self.temperature) {
                calibration.push(calibrate(&self.graph, last.split, self, temperature, progress)?);
            }
        }
        Ok(Finished { splits, calibration })
    }

    pub(crate) fn network(&self) -> &Network {
        &self.scoring.network
    }
}

impl Scorer for Model {
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        self.scoring.map_rows(queries, map)
    }

    fn probability(&self) -> ProbabilityKind {
        self.config.probability()
    }
}

/// Tables as one file in the safetensors format.
///
/// # Panics
/// If a table has not as many values as its shape says.
pub fn to_safetensors(tables: &[Table]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = tables
        .iter()
        .map(|table| table.values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let views = tables.iter().zip(&bytes).map(|(table, bytes)| {
        let view = TensorView::new(Dtype::F32, table.shape.clone(), bytes);
        (&table.name, view.expect("a table has as many values as its shape says"))
    });
    safetensors::serialize(views, None).expect("names are strings")
}
