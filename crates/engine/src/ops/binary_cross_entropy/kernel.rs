//! How are loss and gradients of sigmoids computed without the B × K × E matrix of logits?
//!
//! In chunks and tiles as those of the softmax (`cross_entropy/kernel.rs`), and with the same bits at
//! any number of threads. But there is nothing to normalise: a tile can be made, turned into its
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
//! Tiles are filled as if every object were wrong; what an answer adds to that is linear in its
//! weight. They are few, and computed in f64.

use std::ops::Range;

use rayon::prelude::*;

use crate::ops::cross_entropy::kernel::{
    AnswersByTile, Chunk, Grads, Inputs, Workspace, pieces, rows_of, sum_grad_context,
};
use crate::ops::product::Onto;
use crate::ops::score::Side;
use crate::ops::simd;
use crate::ops::simd::sigmoid::{Lanes, Prior, mixed_sigmoid, sigmoid};

/// What a pass is to make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Loss,
    LossAndGrads,
}

/// Loss of a batch, a sum over queries and objects, and its gradients if they are wanted.
pub(super) fn pass(
    inputs: &Inputs,
    wanted: Wanted,
    workspace: &mut Workspace,
) -> (f64, Option<Grads>) {
    let shape = inputs.shape;
    let priors = Priors::of(inputs);
    let by_tile = AnswersByTile::of(inputs);
    let mut objects = vec![0.0; shape.entities * shape.dim];
    let mut bias = vec![0.0; shape.entities];
    workspace.chunks.resize_with(shape.n_chunks(), Chunk::default);
    let sums: Vec<Sums> = workspace
        .chunks
        .par_iter_mut()
        .zip(objects.par_chunks_mut(shape.chunk_len() * shape.dim))
        .zip(bias.par_chunks_mut(shape.chunk_len()))
        .enumerate()
        .map(|(number, ((chunk, objects), bias))| {
            let pass = ChunkPass { inputs, wanted, priors: &priors, by_tile: &by_tile, number };
            pass.run(chunk, objects, bias)
        })
        .collect();
    let loss = sums.iter().map(|sums| sums.loss).sum();
    if wanted == Wanted::Loss {
        return (loss, None);
    }
    let mut log_prior = vec![0.0_f64; shape.rows()];
    for sums in &sums {
        log_prior.iter_mut().zip(&sums.grad_log_prior).for_each(|(sum, x)| *sum += x);
    }
    let grads = Grads {
        context: sum_grad_context(&workspace.chunks, shape),
        log_prior: log_prior.iter().map(|x| *x as f32).collect(),
        objects,
        bias: inputs.bias.map(|_| bias),
    };
    (loss, Some(grads))
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
}

/// A block of rows against some objects.
struct Tile {
    rows: Range<usize>,
    objects: Range<usize>,
}

/// What an answer adds to the gradient of its logits, in a tile.
struct Pull {
    /// The place of its first component's logit.
    at: usize,
    by: Vec<f32>,
}

/// The pass over one chunk of objects.
struct ChunkPass<'a> {
    inputs: &'a Inputs<'a>,
    wanted: Wanted,
    priors: &'a Priors,
    by_tile: &'a AnswersByTile,
    number: usize,
}

impl ChunkPass<'_> {
    fn run(&self, chunk: &mut Chunk, grad_objects: &mut [f32], grad_bias: &mut [f32]) -> Sums {
        let shape = self.inputs.shape;
        let chunk_objects = shape.chunk(self.number);
        let first_object = chunk_objects.start;
        let Chunk { tile: values, grad_context, .. } = chunk;
        values.resize(values.len().max(shape.block_len() * shape.tile_len()), 0.0);
        grad_context.resize(shape.rows() * shape.dim, 0.0);
        let mut sums = Sums { loss: 0.0, grad_log_prior: vec![0.0; shape.rows()] };
        let mut room = Vec::new();
        for (t, objects) in pieces(chunk_objects, shape.tile_len()).enumerate() {
            for rows in shape.blocks() {
                let tile = Tile { rows, objects: objects.clone() };
                let width = objects.len();
                let values = &mut values[..tile.rows.len() * width];
                self.make_logits(&tile, values);
                let pulls = self.answers(&tile, t, values, &mut sums);
                self.wrong_objects(&tile, values, &mut sums, &mut room);
                if self.wanted == Wanted::Loss {
                    continue;
                }
                for Pull { at, by } in pulls {
                    by.iter().enumerate().for_each(|(k, pull)| values[at + k * width] += pull);
                }
                let within = objects.start - first_object;
                if self.inputs.bias.is_some() {
                    for row in values.chunks_exact(width) {
                        simd::add(&mut grad_bias[within..][..width], row);
                    }
                }
                let grad_objects = &mut grad_objects[within * shape.dim..][..width * shape.dim];
                self.pull_back(&tile, t, values, grad_context, grad_objects);
            }
        }
        sums
    }

    /// The logits of a tile.
    fn make_logits(&self, tile: &Tile, logits: &mut [f32]) {
        let dim = self.inputs.shape.dim;
        let mut onto = Onto::Replace;
        if let Some(bias) = self.inputs.bias {
            for row in logits.chunks_exact_mut(tile.objects.len()) {
                row.copy_from_slice(&bias[tile.objects.clone()]);
            }
            onto = Onto::Add;
        }
        let context = rows_of(self.inputs.context, &tile.rows, dim);
        let objects = rows_of(self.inputs.objects, &tile.objects, dim);
        self.inputs.score.logits(logits, onto, context, objects);
    }

    /// From the gradient of a tile's logits to those of its contexts and objects.
    fn pull_back(
        &self,
        tile: &Tile,
        t: usize,
        grad_logits: &mut [f32],
        grad_context: &mut [f32],
        grad_objects: &mut [f32],
    ) {
        let dim = self.inputs.shape.dim;
        let context = Side {
            vectors: rows_of(self.inputs.context, &tile.rows, dim),
            grad: &mut grad_context[tile.rows.start * dim..tile.rows.end * dim],
            onto: if t == 0 { Onto::Replace } else { Onto::Add },
        };
        let objects = Side {
            vectors: rows_of(self.inputs.objects, &tile.objects, dim),
            grad: grad_objects,
            onto: if tile.rows.start == 0 { Onto::Replace } else { Onto::Add },
        };
        self.inputs.score.pull_back(grad_logits, context, objects);
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
    fn answers(&self, tile: &Tile, t: usize, logits: &[f32], sums: &mut Sums) -> Vec<Pull> {
        let components = self.inputs.shape.components;
        let answers = self.inputs.answers;
        let width = tile.objects.len();
        let numbers = self.by_tile.in_tile(self.number, t);
        let row_of = |number: &u32| answers.query(*number as usize) * components;
        let start = numbers.partition_point(|number| row_of(number) < tile.rows.start);
        let within = numbers[start..].iter().take_while(|number| row_of(number) < tile.rows.end);
        let pull = |number: &u32| {
            let (row, weight) = (row_of(number), f64::from(answers.weights[*number as usize]));
            let object = answers.objects[*number as usize] as usize - tile.objects.start;
            let at = (row - tile.rows.start) * width + object;
            let logits: Vec<f64> =
                (0..components).map(|k| f64::from(logits[at + k * width])).collect();
            let log_prior = &self.priors.log[row..row + components];
            let answer = Answer::of(&logits, log_prior);
            sums.loss -= weight * answer.log_odds;
            for (k, x) in answer.grad_log_prior.iter().enumerate() {
                sums.grad_log_prior[row + k] -= weight * x;
            }
            let by = answer.grad_logits.iter().map(|x| (-weight * x) as f32).collect();
            Pull { at, by }
        };
        within.map(pull).collect()
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
