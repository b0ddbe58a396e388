//! The trainer: how does a network learn a graph?
//!
//! The loop, the order of its items, the learning rate, early stopping, all in memory. Everything
//! random comes from the seed and the number of the update, so that a training interrupted anywhere
//! and resumed ends with the same bits.
//! Files are the business of `run`; progress leaves through a callback.

mod forecast;
pub(crate) mod items;
mod schedule;
#[cfg(test)]
pub(crate) mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use fullrank_graph::{Graph, Split};
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::device::Device;
use crate::error::Error;
use crate::evaluate::{GivenCandidates, rank_sample};
use crate::learner::{Learner, NotFinite, UpdateAt};
use crate::metrics::{Metrics, metrics};
use crate::model::Model;
use crate::network::Network;
use crate::progress::{Best, End, EpochRecord, Event, Progress, Signal, Trained};
use crate::random::{Weights, shuffled};
pub(crate) use forecast::step_bytes;
pub use forecast::{advised_batch, forecast};
use items::{ItemList, draw_negatives};
use schedule::{end_epoch, learning_rate_at};

/// How far a training is, besides weights and moments.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Position {
    /// Updates made.
    pub(crate) updates: u64,
    /// Epochs finished.
    pub(crate) epoch: usize,
    /// Updates made of the epoch that is not.
    pub(crate) batch: usize,
    /// Cross-entropy and answer weight of those.
    pub(crate) loss_sum: f64,
    pub(crate) weight_sum: f64,
    /// What validation was best, and when.
    pub(crate) best: Option<Best>,
    /// Epochs since.
    pub(crate) stale_epochs: usize,
    /// What the plateau schedule has made of the learning rate.
    pub(crate) plateau_factor: f64,
    /// Why there is nothing more to do.
    pub(crate) end: Option<End>,
    /// Time for updates and validation so far.
    #[serde(default)]
    pub(crate) seconds: f64,
}

impl Position {
    /// What the training has come to so far; nothing before its first epoch is over.
    pub(crate) fn so_far(&self) -> Option<Trained> {
        let Self { best, end, updates, epoch, seconds, .. } = *self;
        let end = end.unwrap_or(End::Stopped);
        Some(Trained { best: best?, updates, epochs: epoch, end, seconds })
    }
}

/// What one update came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Update {
    /// Epochs finished before it.
    pub epoch: usize,
    /// Updates of this epoch, of `batches`.
    pub batch: usize,
    /// Updates of a whole epoch.
    pub batches: usize,
    /// What the batch lost, divided by its number of queries.
    pub loss: f64,
    /// Mean loss of the epoch so far, per unit of answer weight.
    pub mean_loss: f64,
}

/// A training, in memory.
///
/// [`train`](Trainer::train) goes through to the end; [`epoch`](Trainer::epoch) and
/// [`update`](Trainer::update) are its steps, for who wants to look or stop in between.
#[derive(Debug)]
pub struct Trainer {
    graph: Arc<Graph>,
    config: Config,
    items: ItemList,
    learner: Learner,
    position: Position,
    /// The items of the epoch at work, in the order of their batches.
    order: Option<Vec<u32>>,
    /// The network of the best epoch, where it is kept in memory.
    best: Option<Network>,
    learning_rate: f64,
    candidates: Arc<GivenCandidates>,
}

impl Trainer {
    /// A new training.
    ///
    /// # Errors
    /// When the graph has nothing to learn from, or the config does not fit it.
    pub fn new(graph: Arc<Graph>, config: Config, device: Device) -> Result<Self, Error> {
        config.check_fit(&graph)?;
        let weights = Weights::new(config.training.seed, device.burn().autodiff());
        let network = Network::new(&config, &config.domain(&graph), weights);
        let learner = Learner::new(network, &config, graph.entities().len());
        let position = Position { plateau_factor: 1.0, ..Position::default() };
        Self::at(graph, config, State { learner, position })
    }

    /// A training that goes on from a state.
    pub(crate) fn at(graph: Arc<Graph>, config: Config, state: State) -> Result<Self, Error> {
        let State { learner, position } = state;
        let items = ItemList::of(&graph, &config)?;
        let batches = n_batches(items.len(), config.training.batch);
        let learning_rate = learning_rate_at(&config.training, &position, batches);
        let (order, best, candidates) = (None, None, Arc::default());
        Ok(Self { graph, config, items, learner, position, order, best, learning_rate, candidates })
    }

    /// Has validation answers ranked against given candidates, where there are some, instead of all
    /// entities.
    pub fn rank_among(&mut self, candidates: Arc<GivenCandidates>) {
        self.candidates = candidates;
    }

    /// What it is trained with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What it is trained on.
    pub fn graph(&self) -> &Arc<Graph> {
        &self.graph
    }

    /// Whether there is nothing more to do: all epochs were made, or none improved for long enough.
    pub fn is_over(&self) -> bool {
        self.position.end.is_some()
    }

    /// One update by the next batch. An epoch that is over is closed first, without validation; see
    /// [`epoch`](Trainer::epoch).
    ///
    /// # Errors
    /// When the loss or the gradient is not finite.
    pub fn update(&mut self) -> Result<Update, Error> {
        let batches = self.n_batches();
        if self.position.batch == batches {
            self.close_epoch(None);
        }
        let Position { epoch, batch: number, updates, .. } = self.position;
        let (items, size) = (&self.items, self.config.training.batch);
        let seed = self.config.training.seed;
        let order = self
            .order
            .get_or_insert_with(|| shuffled((0..items.len() as u32).collect(), seed, epoch as u64));
        let mut batch = items.batch(&self.graph, &order[places_of(items.len(), size, number)]);
        batch.negatives = draw_negatives(&self.graph, &batch.queries, &self.config, updates);
        let weights = batch.answers.weights.iter().map(|w| f64::from(*w)).sum::<f64>();
        self.learning_rate = learning_rate_at(&self.config.training, &self.position, batches);
        let at = UpdateAt { number: updates, learning_rate: self.learning_rate };
        let loss = self.learner.update(&self.config, batch, at);
        let loss = loss.map_err(|error| self.not_finite(error))?;
        let position = &mut self.position;
        position.updates += 1;
        position.batch += 1;
        position.loss_sum += loss.cross_entropy;
        position.weight_sum += weights;
        let mean_loss = position.loss_sum / position.weight_sum;
        Ok(Update { epoch, batch: position.batch, batches, loss: loss.total, mean_loss })
    }

    /// How well the network as it is answers the validation split; nothing if there is none.
    ///
    /// # Errors
    /// When a score is not a number, or when `progress` says stop.
    pub fn validate(&self, progress: &mut Progress) -> Result<Option<Metrics>, Error> {
        let mut scorer = self.learner.asked().scoring();
        scorer.precision = self.config.precision(self.graph.entities().len());
        let (graph, split) = (&*self.graph, Split::Valid);
        let ranks = match self.config.training.valid_sample {
            Some(queries) if self.candidates.of(split).is_none() => {
                rank_sample(graph, split, queries, &scorer, progress)?
            }
            _ => self.candidates.rank(graph, split, &scorer, progress)?,
        };
        Ok(metrics(&ranks))
    }

    /// What is left of an epoch: its updates, then its validation, which decides about the learning
    /// rate and the end.
    ///
    /// # Errors
    /// When a loss is not finite, or when `progress` says stop, in which case the same call goes on
    /// where it was.
    pub fn epoch(&mut self, progress: &mut Progress) -> Result<EpochRecord, Error> {
        self.epoch_with(progress, &mut |_| Ok(()))
    }

    /// An epoch after whose updates, as often as the config says, `checkpoint` is called.
    pub(crate) fn epoch_with(
        &mut self,
        progress: &mut Progress,
        checkpoint: &mut dyn FnMut(&Self) -> Result<(), Error>,
    ) -> Result<EpochRecord, Error> {
        let start = Instant::now();
        let before = self.position.seconds;
        let (batches, first_batch) = (self.n_batches(), self.position.batch);
        while self.position.batch < batches {
            let Update { epoch, batch, batches, mean_loss: loss, .. } = self.update()?;
            self.position.seconds = before + start.elapsed().as_secs_f64();
            if progress(Event::Update { epoch, batch, batches, loss }) == Signal::Stop {
                return Err(Error::Interrupted);
            }
            let every = self.config.training.checkpoint_every;
            if every.is_some_and(|n| self.position.updates.is_multiple_of(n as u64)) {
                checkpoint(self)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let valid = self.validate(progress)?;
        self.position.seconds = before + start.elapsed().as_secs_f64();
        let size = self.config.training.batch;
        let n_items = self.items.len() - places_of(self.items.len(), size, first_batch).start;
        let mut record = self.close_epoch(valid);
        record.seconds = seconds;
        record.valid_seconds = self.position.seconds - before - seconds;
        record.items_per_second = n_items as f64 / seconds;
        Ok(record)
    }

    /// Trains to the end, and keeps the network of the best epoch.
    ///
    /// # Errors
    /// When a loss is not finite, or when `progress` says stop, in which case the same call goes on
    /// where it was.
    ///
    /// # Panics
    /// If the training was over before and had no best epoch, which cannot be.
    pub fn train(&mut self, progress: &mut Progress) -> Result<Trained, Error> {
        while !self.is_over() {
            let record = self.epoch(progress)?;
            if record.best {
                self.best = Some(self.learner.asked());
            }
            if progress(Event::Epoch(&record)) == Signal::Stop && !self.is_over() {
                return Err(Error::Interrupted);
            }
        }
        Ok(self.trained().expect("a training that is over has a best epoch"))
    }

    /// What the training has come to; nothing before it is over.
    pub fn trained(&self) -> Option<Trained> {
        self.position.so_far().filter(|_| self.is_over())
    }

    /// The model of the best epoch, as far as [`train`](Trainer::train) kept it, or as it is.
    pub fn into_model(self) -> Model {
        let Self { graph, config, learner, best, position, candidates, .. } = self;
        let Position { epoch, updates, seconds, .. } = position;
        let as_it_is = Best { epoch, valid_mrr: None };
        let trained = match best {
            Some(_) => position.so_far(),
            None => None,
        };
        let stopped =
            Trained { best: as_it_is, updates, epochs: epoch, end: End::Stopped, seconds };
        let network = best.unwrap_or_else(|| learner.asked());
        let mut model = Model::new(graph, config, network, trained.unwrap_or(stopped));
        model.rank_among(candidates);
        model
    }

    pub(crate) fn learner(&self) -> &Learner {
        &self.learner
    }

    pub(crate) fn position(&self) -> &Position {
        &self.position
    }

    fn n_batches(&self) -> usize {
        n_batches(self.items.len(), self.config.training.batch)
    }

    /// Takes an epoch into account; times are left to the caller.
    fn close_epoch(&mut self, valid: Option<Metrics>) -> EpochRecord {
        let epoch = self.position.epoch + 1;
        let best = end_epoch(&mut self.position, &self.config.training, valid.as_ref());
        let loss = self.position.loss_sum / self.position.weight_sum;
        (self.position.loss_sum, self.position.weight_sum) = (0.0, 0.0);
        self.order = None;
        EpochRecord {
            epoch,
            updates: self.position.updates,
            loss,
            learning_rate: self.learning_rate,
            valid,
            best,
            seconds: 0.0,
            valid_seconds: 0.0,
            items_per_second: 0.0,
            density: self.learner.take_work().density(),
        }
    }

    fn not_finite(&self, error: NotFinite) -> Error {
        let NotFinite { quantity, value, parameter, grad_norm } = error;
        Error::NotFinite {
            quantity,
            value,
            epoch: self.position.epoch + 1,
            batch: self.position.batch + 1,
            parameter,
            grad_norm,
            learning_rate: self.config.training.learning_rate,
        }
    }
}

/// Where a training begins, or goes on.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) learner: Learner,
    pub(crate) position: Position,
}

/// Batches of an epoch of so many items, of at most `size` each.
///
/// All are as large as one another, to one item: an update counts the same whatever its batch, and
/// normalisation would learn as much of two items left over as of all others. None is of a single
/// item, which it could learn nothing from: of three items, batches of two make one of three.
fn n_batches(n_items: usize, size: usize) -> usize {
    let most = if size == 1 { n_items } else { (n_items / 2).max(1) };
    n_items.div_ceil(size).min(most)
}

/// The items of a batch, by their places in the order of the epoch.
fn places_of(n_items: usize, size: usize, number: usize) -> Range<usize> {
    let batches = n_batches(n_items, size);
    number * n_items / batches..(number + 1) * n_items / batches
}
