//! How does a model learn a graph?
//!
//! The loop, the order of its items, the learning rate, early stopping. Everything random comes
//! from the seed and the number of the update, so that a training interrupted anywhere and resumed
//! ends with the same bits.
//! Files are the business of `run`; progress leaves through a callback.

pub(crate) mod items;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use fullrank_graph::{Graph, Split};
use serde::{Deserialize, Serialize};

use crate::config::{Config, Fault, OutputKind, Schedule};
use crate::encoder::Domain;
use crate::error::Error;
use crate::evaluate::{Metrics, metrics, rank_answers};
use crate::model::{Loss, Model};
use crate::ops::{Shape, Workspace, pairwise_bytes};
use crate::output::Meaning;
use crate::parameters::{Adam, norms, tensors};
use crate::random::{Noise, Weights, shuffled};
use crate::rows::narrow;
use crate::run::TrainingFolder;
use items::{ItemList, draw_negatives};

/// What a callback answers: go on, or save and stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Go on.
    Continue,
    /// Stop as soon as nothing is lost by it.
    Stop,
}

/// What a training tells while it runs.
#[derive(Debug)]
pub enum Event<'a> {
    /// One update was made.
    Update {
        /// Epochs finished.
        epoch: usize,
        /// Updates of this epoch, of `batches`.
        batch: usize,
        /// Updates of a whole epoch.
        batches: usize,
        /// Mean loss of the epoch so far, per unit of answer weight.
        loss: f64,
    },
    /// Held-out queries are being ranked.
    Evaluating {
        /// Queries ranked.
        done: usize,
        /// Queries in all.
        total: usize,
    },
    /// An epoch is over.
    Epoch(&'a EpochRecord),
}

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Updates since the start.
    pub updates: u64,
    /// Mean cross-entropy (of sigmoids, that of all objects), or shortfall of the margin, per unit of
    /// answer weight, as it was during the epoch.
    pub loss: f64,
    /// Of the last update.
    pub learning_rate: f64,
    /// Of validation; nothing if there is none.
    pub valid: Option<Metrics>,
    /// Whether validation MRR was never better.
    pub best: bool,
    /// Time for updates, of the part since the last start.
    pub seconds: f64,
    /// Time for validation.
    pub valid_seconds: f64,
    /// Items (queries or triples) per second of updates.
    pub items_per_second: f64,
    /// Share of the entries of the logits' gradient that were multiplied, of the part since the last
    /// start; nothing for losses that are not over all objects.
    #[serde(default)]
    pub density: Option<f64>,
}

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
}

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// From 1.
    pub epoch: usize,
    /// Its validation MRR; nothing without validation, where the last epoch is the best.
    pub valid_mrr: Option<f64>,
}

/// Why a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All epochs were made.
    Epochs,
    /// Validation MRR did not improve for `patience` epochs.
    Patience,
}

/// A model in training.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) model: Model,
    pub(crate) adam: Adam,
    pub(crate) position: Position,
}

impl State {
    /// The start of a training.
    pub(crate) fn new(config: &Config, graph: &Graph) -> Self {
        Self {
            model: new_model(config, graph, Weights::new(config.seed, device().autodiff())),
            adam: Adam::default(),
            position: Position { plateau_factor: 1.0, ..Position::default() },
        }
    }
}

/// A finished training.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// The epoch whose weights were kept.
    pub best: Best,
    /// Updates made.
    pub updates: u64,
    /// Epochs made.
    pub epochs: usize,
    /// Why it ended.
    pub end: End,
}

/// Trains, or goes on training, in a run folder until the end.
///
/// # Errors
/// When a loss is not finite, when a file cannot be written, or when `progress` says stop, in
/// which case everything is saved first.
pub fn train(
    graph: &Graph,
    config: &Config,
    folder: &mut TrainingFolder,
    progress: &mut dyn FnMut(Event) -> Signal,
) -> Result<Trained, Error> {
    if let Some(trained) = folder.trained() {
        return Ok(trained);
    }
    let mut state = folder.start(config, graph)?;
    let items = ItemList::of(graph, config)?;
    let batches = n_batches(items.len(), config.batch);
    let workspace = Arc::new(Mutex::new(Workspace::new(config.memory_budget << 20)));

    while state.position.end.is_none() {
        let start = Instant::now();
        let epoch = state.position.epoch;
        let first_batch = state.position.batch;
        let mut learning_rate = learning_rate_at(config, &state.position, batches);
        let order = shuffled((0..items.len() as u32).collect(), config.seed, epoch as u64);
        for numbers in batches_of(&order, config.batch).skip(first_batch) {
            let update = state.position.updates;
            let mut batch = items.batch(graph, numbers);
            batch.negatives = draw_negatives(graph, &batch.queries, config, update);
            let n_entities = graph.entities().len();
            let (model, whole) = narrow(state.model, &mut batch, config, n_entities);
            state.model = model;
            let noise = Noise::new(config.seed, update);
            let Loss { total, cross_entropy } =
                state.model.loss(&batch, config, &noise, &workspace);
            let loss = f64::from(total.clone().into_scalar::<f32>());
            let cross_entropy = f64::from(cross_entropy.into_scalar::<f32>());
            let grads = GradientsParams::from_grads(total.backward(), &state.model);
            if !loss.is_finite() {
                return Err(not_finite(("loss", loss), &state, &grads, config));
            }
            let grad_factor = match config.clip {
                Some(clip) => clip_factor(&state, &grads, clip, config)?,
                None => 1.0,
            };
            learning_rate = learning_rate_at(config, &state.position, batches);
            state.model = state.adam.step(state.model, grads, whole, learning_rate, grad_factor);

            let position = &mut state.position;
            position.updates += 1;
            position.batch += 1;
            position.loss_sum += cross_entropy;
            position.weight_sum += batch.answers.weights.iter().map(|w| f64::from(*w)).sum::<f64>();
            let loss = position.loss_sum / position.weight_sum;
            let signal = progress(Event::Update { epoch, batch: position.batch, batches, loss });
            if signal == Signal::Stop {
                folder.save(&state, None)?;
                return Err(Error::Interrupted);
            }
            if config.checkpoint_every.is_some_and(|n| position.updates.is_multiple_of(n as u64)) {
                folder.save(&state, None)?;
            }
        }
        let seconds = start.elapsed().as_secs_f64();

        let start = Instant::now();
        let valid = validate(graph, &state.model, config, progress);
        if let Err(Error::Interrupted) = valid {
            // Before the epoch was over: resuming will validate it again.
            folder.save(&state, None)?;
        }
        let valid = valid?;
        let is_best = end_epoch(&mut state.position, config, valid.as_ref());
        let record = EpochRecord {
            epoch: epoch + 1,
            updates: state.position.updates,
            loss: state.position.loss_sum / state.position.weight_sum,
            learning_rate,
            valid,
            best: is_best,
            seconds,
            valid_seconds: start.elapsed().as_secs_f64(),
            items_per_second: ((batches - first_batch) * config.batch).min(items.len()) as f64
                / seconds,
            density: workspace.lock().unwrap_or_else(PoisonError::into_inner).take_work().density(),
        };
        (state.position.loss_sum, state.position.weight_sum) = (0.0, 0.0);
        folder.save(&state, Some(&record))?;
        if progress(Event::Epoch(&record)) == Signal::Stop && state.position.end.is_none() {
            return Err(Error::Interrupted);
        }
    }
    folder.finish(&state)
}

/// Batches of an epoch.
///
/// The last one may be shorter, but not of a single item, which normalisation could learn nothing
/// from: that joins the batch before.
fn n_batches(n_items: usize, size: usize) -> usize {
    let batches = n_items.div_ceil(size);
    if batches > 1 && n_items % size == 1 { batches - 1 } else { batches }
}

fn batches_of(order: &[u32], size: usize) -> impl Iterator<Item = &[u32]> {
    let last = n_batches(order.len(), size) - 1;
    (0..=last).map(move |batch| {
        let end = if batch == last { order.len() } else { (batch + 1) * size };
        &order[batch * size..end]
    })
}

/// What gradients are multiplied by so that all together are no longer than `clip`.
fn clip_factor(
    state: &State,
    grads: &GradientsParams,
    clip: f64,
    config: &Config,
) -> Result<f64, Error> {
    let squares = norms(&state.model, grads).into_iter().map(|(_, norm)| norm * norm);
    let norm = squares.sum::<f64>().sqrt();
    if !norm.is_finite() {
        return Err(not_finite(("the gradient's norm", norm), state, grads, config));
    }
    Ok(if norm > clip { clip / norm } else { 1.0 })
}

/// The device that models live on.
pub(crate) fn device() -> Device {
    Device::flex()
}

/// A model for a graph.
pub(crate) fn new_model(config: &Config, graph: &Graph, weights: Weights) -> Model {
    Model::new(config, &Domain::of(graph, config), weights)
}

/// The batch that suits a graph: that of the config, or smaller ones where an epoch would have too
/// few updates to learn from.
///
/// With batches of 1,000, an epoch of a small graph is a handful of updates, and validation seems to
/// stand still before anything is learned: DistMult reaches a test MRR of .06 on UMLS with the
/// defaults, and .89 with batches of 15.
///
/// # Errors
/// When there is nothing to learn from.
pub fn advised_batch(graph: &Graph, config: &Config) -> Result<usize, Error> {
    const UPDATES: usize = 100;
    const LEAST: usize = 4;
    let n_items = ItemList::of(graph, config)?.len();
    Ok((n_items / UPDATES).max(LEAST).min(config.batch))
}

/// The most frequencies that a Fourier layer can have over a graph: above half of the objects, waves
/// look like slower ones there.
pub fn max_frequencies(graph: &Graph) -> usize {
    (graph.entities().len() / 2).max(1)
}

/// What of a config does not fit the graph.
pub(crate) fn check_fit(config: &Config, graph: &Graph) -> Result<(), Error> {
    let (found, most) = (config.frequencies(), max_frequencies(graph));
    if config.output != OutputKind::Fourier || found <= most {
        return Ok(());
    }
    let given = if config.frequencies.is_none() { ", which is half of `dim`" } else { "" };
    let entities = graph.entities().len();
    let what = format!(
        "above half of the objects, waves look like slower ones; expected at most {most} for \
         {entities} entities, found {found}{given}"
    );
    Err(Error::Config { faults: vec![Fault { name: "frequencies".into(), origin: None, what }] })
}

/// Bytes that a training will take at its peak, the graph left out.
pub fn forecast(config: &Config, graph: &Graph) -> u64 {
    // No batch is larger than all items.
    let batch = config.batch.min(2 * graph.triples(Split::Train).len());
    step_bytes(config, &Domain::of(graph, config), batch)
}

/// Bytes of one training step: parameters, two moments, gradients, and what the kernel needs.
pub(crate) fn step_bytes(config: &Config, domain: &Domain, batch: usize) -> u64 {
    let parameters = Model::n_parameters(config, domain);
    let components = config.n_components();
    let (context_dim, object_dim) = config.scored_dims();
    let entities = domain.entities;
    let shape = Shape { queries: batch, components, context_dim, object_dim, entities };
    // Sigmoids make their gradients with the loss and keep no logits.
    let kept_bytes = match config.output.meaning() {
        Meaning::Share => config.memory_budget << 20,
        Meaning::Holds => 0,
    };
    let workspace = match config.negatives {
        Some(negatives) => {
            let drawn = negatives.min(entities);
            // Scores, what is added to them, weights, exponentials, and the gradients of these.
            let scores = 10 * size_of::<f32>() * batch * drawn;
            scores + pairwise_bytes(config.pair_score(), drawn, object_dim)
        }
        None => Workspace::forecast(shape, config.pair_score(), kept_bytes),
    };
    // Every layer of a projection keeps about six tensors of its size for the backward pass.
    let activations = 6 * (config.layers + 1) * batch * components * config.dim
        + Model::n_batch_values(config, domain, batch);
    let mut numbers = 4 * parameters + activations;
    if config.updates_rows(entities) {
        // Gradients of rows are as small as their batch, and so are the rows it works on.
        let rows = 2 * batch + config.negatives.unwrap_or(0);
        numbers = numbers - entities * config.dim + 2 * rows.min(entities) * config.dim;
    }
    (size_of::<f32>() * numbers + workspace) as u64
}

fn validate(
    graph: &Graph,
    model: &Model,
    config: &Config,
    progress: &mut dyn FnMut(Event) -> Signal,
) -> Result<Option<Metrics>, Error> {
    let mut scorer = model.valid().scoring();
    scorer.products = config.products(graph.entities().len());
    let ranks = rank_answers(graph, Split::Valid, &scorer, &mut |done, total| {
        progress(Event::Evaluating { done, total })
    })?;
    Ok(metrics(&ranks))
}

/// Takes an epoch into account, and tells whether it was the best.
fn end_epoch(position: &mut Position, config: &Config, valid: Option<&Metrics>) -> bool {
    position.epoch += 1;
    position.batch = 0;
    let valid_mrr = valid.map(|valid| valid.realistic.mrr);
    let best_mrr = position.best.and_then(|best| best.valid_mrr);
    // Without validation every epoch counts as better than the one before.
    let is_best = valid_mrr.is_none_or(|mrr| best_mrr.is_none_or(|best| mrr > best));
    if is_best {
        position.best = Some(Best { epoch: position.epoch, valid_mrr });
        position.stale_epochs = 0;
    } else {
        position.stale_epochs += 1;
        if position.stale_epochs.is_multiple_of(PLATEAU_EPOCHS) {
            position.plateau_factor *= 0.5;
        }
    }
    position.end = if position.epoch >= config.epochs {
        Some(End::Epochs)
    } else if position.stale_epochs >= config.patience {
        Some(End::Patience)
    } else {
        None
    };
    is_best
}

/// Epochs without improvement after which the plateau schedule halves the learning rate.
const PLATEAU_EPOCHS: usize = 3;

fn learning_rate_at(config: &Config, position: &Position, batches: usize) -> f64 {
    let updates = position.updates as f64;
    let warmup = match config.warmup {
        0 => 1.0,
        warmup => ((updates + 1.0) / warmup as f64).min(1.0),
    };
    let schedule = match config.schedule {
        Schedule::Constant => 1.0,
        Schedule::Plateau => position.plateau_factor,
        Schedule::Cosine => {
            let progress = updates / (config.epochs * batches) as f64;
            0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
        }
    };
    config.learning_rate * warmup * schedule
}

/// Where a quantity that is not finite came from: a parameter that is broken, or the one with the
/// largest gradient.
fn not_finite(
    (quantity, value): (&'static str, f64),
    state: &State,
    grads: &GradientsParams,
    config: &Config,
) -> Error {
    let is_broken = |values: Vec<f32>| values.iter().any(|x| !x.is_finite());
    let broken = tensors(&state.model)
        .into_iter()
        .find(|tensor| is_broken(tensor.values.to_data().try_to_vec::<f32>().unwrap_or_default()));
    let norms = norms(&state.model, grads);
    let worst = norms.into_iter().max_by(|a, b| {
        // A norm that is no number is worse than any that is.
        let key = |norm: f64| if norm.is_nan() { f64::INFINITY } else { norm };
        key(a.1).total_cmp(&key(b.1))
    });
    let (parameter, grad_norm) = worst.unwrap_or_default();
    Error::NotFinite {
        quantity,
        value,
        epoch: state.position.epoch + 1,
        batch: state.position.batch + 1,
        parameter: broken.map_or(parameter, |tensor| tensor.name),
        grad_norm,
        learning_rate: config.learning_rate,
    }
}
