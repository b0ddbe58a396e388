//! What does a batch lose if every object is asked for itself, and which way is down?
//!
//! There is nothing to normalise over all objects: a tile (`tiles.rs`) can be made, turned into its
//! gradient and multiplied into the gradients of contexts and objects in one pass, three products in
//! all. So gradients are made with the loss, and the backward pass only scales them.
//!
//! For a query with answer weights y_o, z_k = f_k(h)·Eᵀ and π = softmax(log_prior):
//! - P_o = Σ_k π_k σ(z_{k,o}), and as Σ_k π_k = 1, 1 − P_o = Σ_k π_k σ(−z_{k,o});
//! - loss = −Σ_o (y_o log P_o + (1 − y_o) log(1 − P_o));
//! - with γ⁺_k = π_k σ(z_k) / P and γ⁻_k = π_k σ(−z_k) / (1 − P),
//!   ∂loss/∂z_k = (1 − y) γ⁻_k σ(z_k) − y γ⁺_k σ(−z_k), which is σ(z) − y for one component;
//! - ∂loss/∂log_prior_k = Σ_o (π_k − (1 − y_o) γ⁻_{k,o} − y_o γ⁺_{k,o}).
//!
//! The prior is normalised here again, which changes nothing of a log-softmax but makes every entry a
//! free input: its gradient is a sum of small differences. Without, it would be a sum of −γ over all
//! objects, and the log-softmax before it would have to take one number in the thousands from another.
//!
//! Where most entries are next to nothing, only a few of them are multiplied (`sparse.rs`).
//!
//! Tiles are filled as if every object were wrong; what an answer adds to that is linear in its
//! weight. They are few, and computed in f64.

#[cfg(test)]
mod tests;

use std::ops::Range;

use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{Tensor, TensorData};

use super::sparse::{OfRow, Thinning, are_few, pull_back_one};
use super::tiles::{
    AnswerAt, AnswersByTile, Buffers, ChunkGrads, Grads, Inputs, Tile, Work, Workspace,
};
use super::units::Contexts;
use super::{BatchAnswers, Logits, Shortcuts};
use crate::ops::simd::sigmoid::{Lanes, Prior, mixed_sigmoid, sigmoid};

/// Loss of a batch, a sum over queries and objects, and its gradients.
pub(super) fn pass(
    inputs: &Inputs,
    shortcuts: Shortcuts,
    workspace: &mut Workspace,
) -> (f64, Grads) {
    let packed = workspace.pack(inputs, shortcuts, Contexts::pack_all);
    let inputs = &Inputs { packed: packed.as_deref(), ..*inputs };
    let thinning = shortcuts.thinning;
    let by_tile = AnswersByTile::of(inputs);
    let pass = Pass { inputs, priors: &Priors::of(inputs), by_tile: &by_tile, thinning };
    let (mut grads, sums) =
        workspace.gradients(inputs, |number, buffers, grads| pass.run(number, buffers, grads));
    sums.iter().for_each(|sums| workspace.count(sums.work));
    let mut log_prior = vec![0.0_f64; inputs.shape.rows()];
    for sums in &sums {
        log_prior.iter_mut().zip(&sums.grad_log_prior).for_each(|(sum, x)| *sum += x);
    }
    grads.log_prior = log_prior.iter().map(|x| *x as f32).collect();
    (sums.iter().map(|sums| sums.loss).sum(), grads)
}

/// The weights of all components, normalised.
struct Priors {
    log: Vec<f32>,
    share: Vec<f32>,
}

impl Priors {
    fn of(inputs: &Inputs) -> Self {
        let mut log = Vec::with_capacity(inputs.log_prior.len());
        for row in inputs.log_prior.chunks_exact(inputs.shape.components) {
            let total = log_sum(row.iter().map(|x| f64::from(*x)));
            log.extend(row.iter().map(|x| (f64::from(*x) - total) as f32));
        }
        let share = log.iter().map(|x| x.exp()).collect();
        Self { log, share }
    }

    fn of_rows(&self, rows: Range<usize>) -> Prior<'_> {
        Prior { log: &self.log[rows.clone()], share: &self.share[rows] }
    }
}

/// What a chunk of objects adds, besides gradients of vectors.
struct Sums {
    loss: f64,
    grad_log_prior: Vec<f64>,
    work: Work,
}

/// What an answer adds to the gradient of its logits, in a tile.
struct Pull {
    /// The place of its first component's logit.
    at: usize,
    by: Vec<f32>,
}

/// The pass over all tiles.
struct Pass<'a> {
    inputs: &'a Inputs<'a>,
    priors: &'a Priors,
    by_tile: &'a AnswersByTile<'a>,
    thinning: Option<Thinning>,
}

impl Pass<'_> {
    /// Over one chunk of objects.
    fn run(&self, number: usize, buffers: &mut Buffers, grads: &mut ChunkGrads) -> Sums {
        let shape = self.inputs.shape;
        let Buffers { tile: values, packs, entries, .. } = buffers;
        packs.clear();
        let values = values.make_room(shape.block_len() * shape.tile_len());
        let grad_log_prior = vec![0.0; shape.rows()];
        let mut sums = Sums { loss: 0.0, grad_log_prior, work: Work::default() };
        let mut room = Vec::new();
        let mut few = None;
        for (i, tile) in shape.tiles(number).enumerate() {
            let width = tile.objects.len();
            let values = &mut values[..tile.size()];
            self.inputs.logits(&tile, packs, values);
            let pulls = self.answers(&tile, values, &mut sums);
            self.wrong_objects(&tile, values, &mut sums, &mut room);
            sums.work.logits += tile.size() as u64;
            if i == 0 {
                let is_few = |thinning: &Thinning| {
                    are_few(self.inputs, &tile, values, |_| 1.0 / thinning.below)
                };
                few = self.thinning.filter(is_few);
            }
            let Some(thinning) = few else {
                for Pull { at, by } in pulls {
                    by.iter().enumerate().for_each(|(k, pull)| values[at + k * width] += pull);
                }
                sums.work.multiplied += tile.size() as u64;
                self.inputs.pull_back(&tile, packs, values, grads);
                continue;
            };
            entries.clear();
            for (row, values) in tile.rows.clone().zip(values.chunks_exact(width)) {
                entries.push_values(
                    values,
                    &OfRow {
                        factor: 1.0 / thinning.below,
                        start: thinning.start(row, &tile),
                        unit: thinning.below,
                    },
                );
            }
            sums.work.multiplied += entries.len() as u64;
            entries.pull_back(self.inputs, &tile, grads);
            for Pull { at, by } in pulls {
                let (row, object) = (tile.rows.start + at / width, tile.objects.start + at % width);
                for (k, pull) in by.iter().enumerate() {
                    pull_back_one(self.inputs, (number, row + k, object), *pull, grads);
                }
            }
        }
        sums
    }

    /// Turns logits into gradients as if no object were an answer.
    fn wrong_objects(
        &self,
        tile: &Tile,
        values: &mut [f32],
        sums: &mut Sums,
        room: &mut Vec<Lanes>,
    ) {
        let components = self.inputs.shape.components;
        for (i, values) in values.chunks_exact_mut(components * tile.objects.len()).enumerate() {
            let start = tile.rows.start + i * components;
            let rows = start..start + components;
            sums.loss += f64::from(match components {
                1 => sigmoid(values),
                _ => {
                    let prior = self.priors.of_rows(rows.clone());
                    mixed_sigmoid(values, prior, &mut sums.grad_log_prior[rows], room)
                }
            });
        }
    }

    /// What the answers in a tile add to what they would be as wrong objects.
    fn answers(&self, tile: &Tile, logits: &[f32], sums: &mut Sums) -> Vec<Pull> {
        let components = self.inputs.shape.components;
        let pull = |AnswerAt { number, row, place }| {
            let weight = f64::from(self.inputs.answers.weights[number]);
            let of_row = |k| f64::from(logits[place + k * tile.objects.len()]);
            let logits: Vec<f64> = (0..components).map(of_row).collect();
            let log_prior = &self.priors.log[row..row + components];
            let answer = Answer::of(&logits, log_prior);
            sums.loss -= weight * answer.log_odds;
            for (k, x) in answer.grad_log_prior.iter().enumerate() {
                sums.grad_log_prior[row + k] -= weight * x;
            }
            let by = answer.grad_logits.iter().map(|x| (-weight * x) as f32).collect();
            Pull { at: place, by }
        };
        self.by_tile.within(tile).map(pull).collect()
    }
}

/// log P − log(1 − P) of an answer, and its gradients.
struct Answer {
    log_odds: f64,
    grad_logits: Vec<f64>,
    grad_log_prior: Vec<f64>,
}

impl Answer {
    fn of(logits: &[f64], log_prior: &[f32]) -> Self {
        let parts = |sign: f64| {
            let part = |(z, log_prior): (&f64, &f32)| f64::from(*log_prior) + log_sigma(sign * z);
            logits.iter().zip(log_prior).map(part).collect::<Vec<f64>>()
        };
        let (yes, no) = (parts(1.0), parts(-1.0));
        let [log_yes, log_no] = [&yes, &no].map(|parts| log_sum(parts.iter().copied()));
        let gammas = yes.iter().zip(&no).map(|(y, n)| ((y - log_yes).exp(), (n - log_no).exp()));
        let (grad_logits, grad_log_prior) = gammas
            .zip(logits)
            .map(|((yes, no), z)| (yes * log_sigma(-z).exp() + no * log_sigma(*z).exp(), yes - no))
            .unzip();
        Self { log_odds: log_yes - log_no, grad_logits, grad_log_prior }
    }
}

/// log σ(z).
fn log_sigma(z: f64) -> f64 {
    z.min(0.0) - (-z.abs()).exp().ln_1p()
}

/// log Σ exp x.
fn log_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = values.clone().fold(f64::NEG_INFINITY, f64::max);
    top + values.map(|x| (x - top).exp()).sum::<f64>().ln()
}

/// The same in plain tensor operations, query block by query block.
pub(super) fn reference(input: Logits, answers: &BatchAnswers) -> Tensor<1> {
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
        let mut logits = score.reference(weights.clone(), rows, objects.clone());
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
