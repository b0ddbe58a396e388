//! Noise of sparse gradients: how much does chance add, and how much time does it save?
//!
//! The same batches of a trained model are differentiated with all entries of the logits' gradient
//! and with those that chance leaves, below several sizes (`sparse_below`). What differs is the noise
//! it adds; what exact gradients of different batches differ by is the noise that is there anyway.

use std::sync::Arc;
use std::time::Instant;

use burn::optim::GradientsParams;

use super::trainable;
use crate::batch::Batch;
use crate::config::Config;
use crate::error::Error;
use crate::model::Model;
use crate::network::Network;
use crate::ops::Workspace;
use crate::parameters::gradients;
use crate::random::{Noise, shuffled};
use crate::trainer::items::ItemList;

/// What exact gradients are like, and sparse ones beside them.
#[derive(Debug, Clone, PartialEq)]
pub struct GradientNoise {
    /// Queries, or items, in each batch.
    pub batch: usize,
    /// Variance between exact gradients of different batches, summed over all learned numbers.
    pub between_batches: f64,
    /// Seconds for an exact one, forward and backward; batch by batch, as in the next.
    pub exact_seconds: Vec<f64>,
    /// For each of the sizes that were asked for.
    pub sparse: Vec<SparseNoise>,
}

/// Sparse gradients below one size.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseNoise {
    /// Entries below this, in units of an answer's weight, were left to chance.
    pub below: f64,
    /// Variance between sparse and exact gradients of the same batch.
    pub of_chance: f64,
    /// Share of the entries that were multiplied.
    pub density: f64,
    /// Seconds for one.
    pub seconds: Vec<f64>,
}

/// Measures so many batches of a model's training items, at least two; of half the items each where
/// there are fewer.
///
/// # Errors
/// When there is nothing to learn from.
pub fn gradient_noise(
    model: &Model,
    batches: usize,
    below: &[f64],
) -> Result<GradientNoise, Error> {
    let (graph, config) = (model.graph(), model.config());
    let items = ItemList::of(graph, config)?;
    let size = config.training.batch.min(items.len() / 2).max(1);
    let order = shuffled((0..items.len() as u32).collect(), config.training.seed, 0);
    let bench = Bench::new(model);
    let mut exact = Sums::default();
    let mut exact_seconds = Vec::new();
    let nothing = |below: &f64| SparseNoise {
        below: *below,
        of_chance: 0.0,
        density: 0.0,
        seconds: Vec::new(),
    };
    let mut sparse: Vec<SparseNoise> = below.iter().map(nothing).collect();
    // The first one makes room, and is not timed.
    let first = order.chunks_exact(size).next().map(|numbers| items.batch(graph, numbers));
    first.iter().for_each(|batch| drop(bench.gradient(batch, 0, None)));
    for (update, numbers) in (0..).zip(order.chunks_exact(size)).take(batches) {
        let batch = items.batch(graph, numbers);
        let (gradient, seconds, _) = bench.gradient(&batch, update, None);
        exact.add(&gradient);
        exact_seconds.push(seconds);
        for noise in &mut sparse {
            let (found, seconds, density) = bench.gradient(&batch, update, Some(noise.below));
            noise.of_chance += distance(&found, &gradient);
            noise.density += density;
            noise.seconds.push(seconds);
        }
    }
    let count = exact_seconds.len() as f64;
    for noise in &mut sparse {
        noise.of_chance /= count;
        noise.density /= count;
    }
    Ok(GradientNoise { batch: size, between_batches: exact.variance(), exact_seconds, sparse })
}

/// A model's network, ready to be differentiated.
struct Bench<'a> {
    config: &'a Config,
    network: Network,
    workspace: Arc<Workspace>,
}

impl<'a> Bench<'a> {
    fn new(model: &'a Model) -> Self {
        let config = model.config();
        let saved_bytes = config.training.memory_budget << 20;
        Self {
            config,
            network: trainable(model, config),
            workspace: Arc::new(Workspace::new(saved_bytes)),
        }
    }

    /// A gradient, its seconds and its density; without `below`, an exact one.
    fn gradient(&self, batch: &Batch, update: u64, below: Option<f64>) -> (Vec<f32>, f64, f64) {
        let mut config = self.config.clone();
        config.training.exact = below.is_none();
        if let Some(below) = below {
            // Nothing for output layers that make all of their gradient, which then is no sparser.
            let _ = config.set("sparse_below", &below.into());
        }
        let noise = Noise::new(config.training.seed, update);
        let start = Instant::now();
        let loss = self.network.loss(batch, &config, &noise, &self.workspace).total;
        let found = GradientsParams::from_grads(loss.backward(), &self.network);
        let seconds = start.elapsed().as_secs_f64();
        let density = super::take_work(&self.workspace).density().unwrap_or(1.0);
        (gradients(&self.network, &found), seconds, density)
    }
}

/// Sums over gradients, for their variance.
#[derive(Default)]
struct Sums {
    count: f64,
    sum: Vec<f64>,
    squares: f64,
}

impl Sums {
    fn add(&mut self, gradient: &[f32]) {
        self.count += 1.0;
        self.sum.resize(gradient.len(), 0.0);
        for (sum, x) in self.sum.iter_mut().zip(gradient) {
            *sum += f64::from(*x);
            self.squares += f64::from(*x).powi(2);
        }
    }

    fn variance(&self) -> f64 {
        let squared_mean = self.sum.iter().map(|sum| (sum / self.count).powi(2)).sum::<f64>();
        (self.squares / self.count - squared_mean) * self.count / (self.count - 1.0)
    }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum()
}
