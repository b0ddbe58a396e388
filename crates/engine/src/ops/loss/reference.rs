//! Losses in plain tensor operations, query block by query block: the reference in tests, and what
//! other devices than the CPU run.
//!
//! Logits are in memory for one block at a time where nothing is differentiated. Autodiff keeps those
//! of all blocks until the backward pass, several times B × K × E floats: enough for small graphs, and
//! for a device to begin with.

use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{Int, Tensor, TensorData};

use super::{BatchAnswers, Logits};
use crate::ops::pair_score::pair_scores;

/// That of a softmax or of a mixture of them.
pub(super) fn softmax(input: Logits, answers: &BatchAnswers, smoothing: f32) -> Tensor<1> {
    /// Queries whose logits for all objects are in memory at once.
    const BLOCK: usize = 64;
    let Logits { context, log_prior, objects, bias, score, weights } = input;
    let device = context.device();
    let [queries, components] = log_prior.dims();
    let (entities, dim) = (objects.dims()[0], context.dims()[1]);
    let mut loss = Tensor::zeros([1], &device);
    for start in (0..queries).step_by(BLOCK) {
        let end = (start + BLOCK).min(queries);
        let block = end - start;
        let from = answers.queries.partition_point(|query| (*query as usize) < start);
        let to = answers.queries.partition_point(|query| (*query as usize) < end);
        if from == to {
            continue;
        }
        let rows = context.clone().slice([start * components..end * components, 0..dim]);
        let mut logits = pair_scores(score, weights.clone(), rows, objects.clone());
        if let Some(bias) = &bias {
            logits = logits + bias.clone().unsqueeze();
        }
        let parts = log_softmax(logits, 1).reshape([block, components, entities]);
        let priors = log_prior.clone().slice([start..end, 0..components]);
        let mixed = parts + priors.reshape([block, components, 1]);
        let top = mixed.clone().max_dim(1).detach();
        let log_probs =
            ((mixed - top.clone()).exp().sum_dim(1).log() + top).reshape([block, entities]);
        let at: Vec<i64> = (from..to)
            .map(|i| ((answers.query(i) - start) * entities) as i64 + i64::from(answers.objects[i]))
            .collect();
        let at = Tensor::<1, Int>::from_data(TensorData::new(at, [to - from]), &device);
        let chosen = log_probs.clone().reshape([block * entities]).select(0, at);
        let weights = Tensor::<1>::from_data(
            TensorData::new(answers.weights[from..to].to_vec(), [to - from]),
            &device,
        );
        loss = loss - (chosen * weights).sum().mul_scalar(1.0 - smoothing);
        if smoothing > 0.0 {
            let mut totals = vec![0.0_f32; block];
            for i in from..to {
                totals[answers.query(i) - start] += answers.weights[i];
            }
            let totals = Tensor::<2>::from_data(TensorData::new(totals, [block, 1]), &device);
            loss = loss - (log_probs.mean_dim(1) * totals).sum().mul_scalar(smoothing);
        }
    }
    loss
}

/// That of a sigmoid or of a mixture of them.
pub(super) fn sigmoid(input: Logits, answers: &BatchAnswers) -> Tensor<1> {
    /// Queries whose logits for all objects are in memory at once.
    const BLOCK: usize = 64;
    let Logits { context, log_prior, objects, bias, score, weights } = input;
    let device = context.device();
    let [queries, components] = log_prior.dims();
    let (entities, dim) = (objects.dims()[0], context.dims()[1]);
    let log_prior = log_softmax(log_prior, 1);
    let mut loss = Tensor::zeros([1], &device);
    for start in (0..queries).step_by(BLOCK) {
        let end = (start + BLOCK).min(queries);
        let block = end - start;
        let rows = context.clone().slice([start * components..end * components, 0..dim]);
        let mut logits = pair_scores(score, weights.clone(), rows, objects.clone());
        if let Some(bias) = &bias {
            logits = logits + bias.clone().unsqueeze();
        }
        let logits = logits.reshape([block, components, entities]);
        let priors = log_prior.clone().slice([start..end, 0..components]);
        let priors = priors.reshape([block, components, 1]);
        let yes = log_mix(log_sigmoid(logits.clone()) + priors.clone());
        let no = log_mix(log_sigmoid(logits.neg()) + priors);
        let mut targets = vec![0.0_f32; block * entities];
        let from = answers.queries.partition_point(|query| (*query as usize) < start);
        let to = answers.queries.partition_point(|query| (*query as usize) < end);
        for i in from..to {
            let at = (answers.query(i) - start) * entities + answers.objects[i] as usize;
            targets[at] += answers.weights[i];
        }
        let targets = Tensor::<2>::from_data(TensorData::new(targets, [block, entities]), &device);
        loss = loss - (no.clone() + targets * (yes - no)).sum();
    }
    loss
}

/// log Σ_k exp x_k: `[B, K, E]` → `[B, E]`.
fn log_mix(parts: Tensor<3>) -> Tensor<2> {
    let [queries, _, entities] = parts.dims();
    let top = parts.clone().max_dim(1).detach();
    ((parts - top.clone()).exp().sum_dim(1).log() + top).reshape([queries, entities])
}
