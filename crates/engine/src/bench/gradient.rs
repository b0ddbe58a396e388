//! How much noise does chance add to a gradient, beside the noise of drawing a batch?
//!
//! The same batches of a trained model are differentiated twice, with all entries of the logits'
//! gradient and with those that chance leaves (`sparse_below`). What differs is the noise it adds;
//! what exact gradients of different batches differ by is the noise that is there anyway.

use std::sync::{Arc, Mutex};

use burn::optim::GradientsParams;

use crate::config::Config;
use crate::error::Error;
use crate::model::Batch;
use crate::ops::Workspace;
use crate::parameters::gradients;
use crate::random::{Noise, Weights, shuffled};
use crate::run::Run;
use crate::train::items::ItemList;
use crate::train::{device, new_model};

use super::with_weights_of;

/// Variances of a gradient, summed over all learned numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradientNoise {
    /// Batches that were drawn.
    pub batches: usize,
    /// Queries, or items, in each.
    pub batch: usize,
    /// Between exact gradients of different batches.
    pub between_batches: f64,
    /// Between sparse and exact gradients of the same batch.
    pub of_chance: f64,
    /// Share of the entries that were multiplied.
    pub density: f64,
}

/// Measures both on so many batches of a run's training items, at least two; of half the items each
/// where there are fewer.
///
/// # Errors
/// When there is nothing to learn from.
pub fn gradient_noise(run: &Run, config: &Config, batches: usize) -> Result<GradientNoise, Error> {
    let graph = &run.graph;
    let items = ItemList::of(graph, config)?;
    let size = config.batch.min(items.len() / 2).max(1);
    let order = shuffled((0..items.len() as u32).collect(), config.seed, 0);
    let model = new_model(config, graph, Weights::zeros(device().autodiff()));
    let model = with_weights_of(run, model);
    let workspace = Arc::new(Mutex::new(Workspace::new(config.memory_budget << 20)));
    let gradient = |batch: &Batch, update: u64, exact: bool| {
        let config = Config { exact, ..config.clone() };
        let loss = model.loss(batch, &config, &Noise::new(config.seed, update), &workspace).total;
        gradients(&model, &GradientsParams::from_grads(loss.backward(), &model))
    };
    let mut sum: Vec<f64> = Vec::new();
    let (mut squares, mut of_chance, mut n, mut density) = (0.0, 0.0, 0, 0.0);
    for (update, numbers) in (0..).zip(order.chunks_exact(size)).take(batches) {
        let batch = items.batch(graph, numbers);
        let exact = gradient(&batch, update, true);
        super::take_work(&workspace);
        let sparse = gradient(&batch, update, false);
        density += super::take_work(&workspace).density().unwrap_or(1.0);
        sum.resize(exact.len(), 0.0);
        for ((sum, exact), sparse) in sum.iter_mut().zip(&exact).zip(&sparse) {
            let exact = f64::from(*exact);
            *sum += exact;
            squares += exact * exact;
            of_chance += (f64::from(*sparse) - exact).powi(2);
        }
        n += 1;
    }
    let count = n as f64;
    let squared_mean = sum.iter().map(|sum| (sum / count).powi(2)).sum::<f64>();
    Ok(GradientNoise {
        batches: n,
        batch: size,
        between_batches: (squares / count - squared_mean) * count / (count - 1.0),
        of_chance: of_chance / count,
        density: density / count,
    })
}
