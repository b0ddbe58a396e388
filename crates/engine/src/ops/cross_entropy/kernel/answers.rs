//! What do the answers of a batch add to loss and gradients?
//!
//! They are few, so their logits are made pair by pair; the objects of all others are met in
//! tiles only.

use rayon::prelude::*;

use super::{Inputs, Shape};
use crate::ops::simd;

/// Loss, Γ, and y·γ of each answer and component.
pub(super) fn mix_answers(inputs: &Inputs, normaliser: &[f32]) -> (f64, Vec<f32>, Vec<f32>) {
    let Shape { queries, components, dim, entities } = inputs.shape;
    let answers = inputs.answers;
    let mut pull = vec![0.0; answers.len() * components];
    let log_probs: Vec<f64> = pull
        .par_chunks_exact_mut(components)
        .enumerate()
        .with_min_len(64)
        .map(|(number, pull)| {
            let (query, object) = (answers.query(number), answers.objects[number] as usize);
            let vector = &inputs.objects[object * dim..][..dim];
            let bias = inputs.bias.map_or(0.0, |bias| bias[object]);
            for (k, pull) in pull.iter_mut().enumerate() {
                let row = query * components + k;
                let logit = inputs.score.pair(&inputs.context[row * dim..][..dim], vector) + bias;
                *pull = inputs.log_prior[row] + (logit - normaliser[row]);
            }
            let top = pull.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // One component may give an answer 1e-50: the sum is made in log space.
            let log_prob =
                f64::from(top) + pull.iter().map(|x| f64::from(x - top).exp()).sum::<f64>().ln();
            for pull in pull.iter_mut() {
                *pull = answers.weights[number] * (f64::from(*pull) - log_prob).exp() as f32;
            }
            log_prob
        })
        .collect();

    let mut share = vec![0.0; queries * components];
    let mut loss = 0.0;
    for number in 0..answers.len() {
        loss -= f64::from(answers.weights[number]) * log_probs[number];
        let row = answers.query(number) * components;
        for k in 0..components {
            share[row + k] += pull[number * components + k];
        }
    }
    if inputs.smoothing > 0.0 {
        let extra = smoothing_loss(inputs, normaliser, &share, loss, entities);
        loss += f64::from(inputs.smoothing) * extra;
        pull.iter_mut().for_each(|pull| *pull *= 1.0 - inputs.smoothing);
    }
    (loss, share, pull)
}

/// What the loss grows by, per unit of smoothing: Σ_o y_o z_o − W·mean(z), where W = Σ_o y_o.
///
/// Smoothing moves weight from the answers to all objects alike, so their mean vector is enough:
/// the mean of dot products is that with the mean. Of distances it is not.
fn smoothing_loss(
    inputs: &Inputs,
    normaliser: &[f32],
    share: &[f32],
    loss: f64,
    entities: usize,
) -> f64 {
    let dim = inputs.shape.dim;
    let mut mean = vec![0.0_f64; dim];
    for vector in inputs.objects.chunks_exact(dim) {
        mean.iter_mut().zip(vector).for_each(|(mean, x)| *mean += f64::from(*x));
    }
    let mean: Vec<f32> = mean.iter().map(|sum| (sum / entities as f64) as f32).collect();
    let mean_bias = inputs
        .bias
        .map_or(0.0, |bias| bias.iter().map(|x| f64::from(*x)).sum::<f64>() / entities as f64);
    let mut extra = -loss;
    for (row, weight) in share.iter().enumerate() {
        let mean_logit =
            f64::from(simd::dot(&inputs.context[row * dim..][..dim], &mean)) + mean_bias;
        extra += f64::from(*weight) * (f64::from(normaliser[row]) - mean_logit);
    }
    extra
}

/// A batch's answers in the order in which tiles meet them.
pub(crate) struct AnswersByTile {
    /// Numbers of answers, by tile of objects, then by query.
    order: Vec<u32>,
    /// Where each tile's answers start in `order`.
    starts: Vec<u32>,
    tiles_per_chunk: usize,
}

impl AnswersByTile {
    pub(crate) fn of(inputs: &Inputs) -> Self {
        let shape = inputs.shape;
        let tiles_per_chunk = shape.chunk_len().div_ceil(shape.tile_len());
        let tile_of = |number: u32| {
            let object = inputs.answers.objects[number as usize] as usize;
            let (chunk, within) = (object / shape.chunk_len(), object % shape.chunk_len());
            chunk * tiles_per_chunk + within / shape.tile_len()
        };
        let mut order: Vec<u32> = (0..inputs.answers.len() as u32).collect();
        // Stable: within a tile answers stay in the order of their queries.
        order.sort_by_key(|number| tile_of(*number));
        let mut starts = vec![0; shape.n_chunks() * tiles_per_chunk + 1];
        for number in &order {
            starts[tile_of(*number) + 1] += 1;
        }
        for tile in 1..starts.len() {
            starts[tile] += starts[tile - 1];
        }
        Self { order, starts, tiles_per_chunk }
    }

    pub(crate) fn in_tile(&self, chunk: usize, tile: usize) -> &[u32] {
        let tile = chunk * self.tiles_per_chunk + tile;
        &self.order[self.starts[tile] as usize..self.starts[tile + 1] as usize]
    }
}
