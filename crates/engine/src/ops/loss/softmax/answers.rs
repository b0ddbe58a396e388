//! What do the answers of a batch add to loss and gradients?
//!
//! They are few, so their logits are made pair by pair; the objects of all others are met in
//! tiles only.

use rayon::prelude::*;

use super::super::tiles::{Inputs, Shape};
use super::Bound;
use crate::ops::simd;

/// The logits of all answers.
pub(super) struct Answered {
    /// Component by component of answer after answer.
    logits: Vec<f32>,
}

impl Answered {
    pub(super) fn of(inputs: &Inputs) -> Self {
        let components = inputs.shape.components;
        let answers = inputs.answers;
        let mut logits = vec![0.0; answers.len() * components];
        let of_answers = logits.par_chunks_exact_mut(components).enumerate().with_min_len(64);
        of_answers.for_each(|(number, logits)| {
            let (query, object) = (answers.query(number), answers.objects[number] as usize);
            for (k, logit) in logits.iter_mut().enumerate() {
                *logit = inputs.logit(query * components + k, object);
            }
        });
        Self { logits }
    }

    /// What they say of each row's normaliser and share.
    pub(super) fn bounds(&self, inputs: &Inputs) -> Vec<Bound> {
        let components = inputs.shape.components;
        let none = Bound { weight: 0.0, normaliser: f32::NEG_INFINITY };
        let mut bounds = vec![none; inputs.shape.rows()];
        for (number, logits) in self.logits.chunks_exact(components).enumerate() {
            let row = inputs.answers.query(number) * components;
            for (bound, logit) in bounds[row..row + components].iter_mut().zip(logits) {
                bound.weight += inputs.answers.weights[number];
                // The largest is a bound as well; an object may be an answer twice.
                bound.normaliser = bound.normaliser.max(*logit);
            }
        }
        bounds
    }

    /// Loss, Γ, and y·γ of each answer and component.
    pub(super) fn mix(
        self,
        inputs: &Inputs,
        smoothing: f32,
        normaliser: &[f32],
    ) -> (f64, Vec<f32>, Vec<f32>) {
        let Shape { queries, components, .. } = inputs.shape;
        let answers = inputs.answers;
        let mut pull = self.logits;
        let log_probs: Vec<f64> = pull
            .par_chunks_exact_mut(components)
            .enumerate()
            .with_min_len(64)
            .map(|(number, pull)| {
                let row = answers.query(number) * components;
                for (k, pull) in pull.iter_mut().enumerate() {
                    *pull = inputs.log_prior[row + k] + (*pull - normaliser[row + k]);
                }
                let top = pull.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                // One component may give an answer 1e-50: the sum is made in log space.
                let log_prob = f64::from(top)
                    + pull.iter().map(|x| f64::from(x - top).exp()).sum::<f64>().ln();
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
        if smoothing > 0.0 {
            loss += f64::from(smoothing) * smoothing_loss(inputs, normaliser, &share, loss);
            pull.iter_mut().for_each(|pull| *pull *= 1.0 - smoothing);
        }
        (loss, share, pull)
    }
}

/// What the loss grows by, per unit of smoothing: Σ_o y_o z_o − W·mean(z), where W = Σ_o y_o.
///
/// Smoothing moves weight from the answers to all objects alike, so their mean vector is enough:
/// the mean of dot products is that with the mean. Of distances it is not.
fn smoothing_loss(inputs: &Inputs, normaliser: &[f32], share: &[f32], loss: f64) -> f64 {
    let Shape { object_dim: dim, entities, .. } = inputs.shape;
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
