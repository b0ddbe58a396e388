//! What does a batch lose under softmaxes and their mixtures, and which way is down?
//!
//! Tiles (`tiles.rs`) are gone through twice, for the normalisers and for the gradients.
//! For a query with answer weights y_o and z_k the scores of f_k(h) and all objects:
//! - L_k = log Σ_o exp z_{k,o}, from running maxima and sums over the tiles;
//! - at the answers only: log P(o) = log Σ_k exp(log π_k + z_{k,o} − L_k), the responsibilities
//!   γ_{k,o} (the terms of that sum over the sum), Γ_k = Σ_o y_o γ_{k,o};
//! - loss = −Σ_o y_o log P(o), ∂loss/∂z_{k,j} = Γ_k softmax_k(j) − y_j γ_{k,j} and
//!   ∂loss/∂log π_k = −Γ_k.
//!
//! Tiles that fit the workspace's budget are kept from the forward to the backward pass, as
//! exp(z − tile maximum), which saves one of four products and half of the exponentials.

mod answers;
#[cfg(test)]
mod tests;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use rayon::prelude::*;

use super::tiles::{
    AnswersByTile, Buffers, Chunk, ChunkGrads, Grads, Inputs, Shape, Tile, Workspace,
};
use super::{BatchAnswers, Logits};
use crate::ops::score::PairScore;
use crate::ops::simd;
use answers::mix_answers;

/// What the backward pass needs of the forward pass, besides the inputs.
#[derive(Debug)]
pub(super) struct Saved {
    /// L, `[B·K]`.
    normaliser: Vec<f32>,
    /// Γ, `[B·K]`.
    share: Vec<f32>,
    /// y·γ of each answer and component.
    pull: Vec<f32>,
    smoothing: f32,
    /// Which forward pass left its tiles in the workspace.
    pass: u64,
}

/// Loss of a batch (a sum over its answers), and what the backward pass needs.
pub(super) fn forward(inputs: &Inputs, smoothing: f32, workspace: &mut Workspace) -> (f64, Saved) {
    let shape = inputs.shape;
    assert!(smoothing == 0.0 || shape.components == 1, "smoothing of a mixture");
    assert!(smoothing == 0.0 || inputs.score == PairScore::Dot, "smoothing of other scores");
    workspace.pass += 1;
    workspace.chunks.resize_with(shape.n_chunks(), Chunk::default);
    let kept_floats = workspace.kept_bytes / size_of::<f32>() / shape.n_chunks();
    workspace.chunks.par_iter_mut().enumerate().for_each(|(number, chunk)| {
        sum_chunk(inputs, number, &mut chunk.buffers, kept_floats);
    });
    let normaliser: Vec<f32> =
        (0..shape.rows()).into_par_iter().map(|row| normaliser(&workspace.chunks, row)).collect();
    let (loss, share, pull) = mix_answers(inputs, smoothing, &normaliser);
    (loss, Saved { smoothing, normaliser, share, pull, pass: workspace.pass })
}

/// Gradients of `scale` times the loss.
pub(super) fn backward(
    inputs: &Inputs,
    saved: &Saved,
    scale: f32,
    workspace: &mut Workspace,
) -> Grads {
    let kept_floats = if saved.pass == workspace.pass {
        workspace.kept_bytes / size_of::<f32>() / inputs.shape.n_chunks()
    } else {
        // Another forward pass has used the workspace since: compute everything again.
        0
    };
    let by_tile = AnswersByTile::of(inputs);
    let pass = Backward { inputs, saved, scale, by_tile: &by_tile };
    let (mut grads, _) = workspace
        .gradients(inputs, |number, buffers, grads| pass.run(number, buffers, kept_floats, grads));
    // Kept tiles have become gradients: a second backward pass must make its own.
    workspace.pass += 1;
    grads.log_prior = saved.share.iter().map(|share| -scale * share).collect();
    grads
}

/// Where a tile is kept: the start of its values and of its maxima.
type Kept = Option<(usize, usize)>;

/// A chunk's tiles, with what is kept of them: the first that fit.
fn tiles(shape: Shape, number: usize, kept_floats: usize) -> impl Iterator<Item = (Tile, Kept)> {
    let (mut values, mut maxima) = (0, 0);
    shape.tiles(number).map(move |tile| {
        if values + tile.size() > kept_floats {
            return (tile, None);
        }
        let kept = (values, maxima);
        values += tile.size();
        maxima += tile.rows.len();
        (tile, Some(kept))
    })
}

fn sum_chunk(inputs: &Inputs, number: usize, buffers: &mut Buffers, kept_floats: usize) {
    let shape = inputs.shape;
    make_room(buffers, shape, number, kept_floats);
    buffers.maximum.clear();
    buffers.maximum.resize(shape.rows(), f32::NEG_INFINITY);
    buffers.sum.clear();
    buffers.sum.resize(shape.rows(), 0.0);
    let Buffers { tile: scratch, kept, kept_maximum, maximum, sum } = buffers;
    for (tile, place) in tiles(shape, number, kept_floats) {
        let (logits, mut tile_maxima) = match place {
            Some((values, maxima)) => (
                &mut kept[values..][..tile.size()],
                Some(&mut kept_maximum[maxima..][..tile.rows.len()]),
            ),
            None => (&mut scratch[..tile.size()], None),
        };
        inputs.logits(&tile, logits);
        let logits = logits.chunks_exact_mut(tile.objects.len());
        for (i, (row, logits)) in tile.rows.zip(logits).enumerate() {
            let top = simd::maximum(logits);
            let tile_sum = match &mut tile_maxima {
                Some(maxima) => {
                    maxima[i] = top;
                    simd::exp_and_sum(logits, top)
                }
                None => simd::sum_of_exp(logits, top),
            };
            add_to_sum((&mut maximum[row], &mut sum[row]), (top, f64::from(tile_sum)));
        }
    }
}

/// Σ exp as a pair (maximum, Σ exp(z − maximum)): adds one to another.
fn add_to_sum((maximum, sum): (&mut f32, &mut f64), (other_maximum, other_sum): (f32, f64)) {
    if other_maximum > *maximum {
        *sum = *sum * f64::from(*maximum - other_maximum).exp() + other_sum;
        *maximum = other_maximum;
    } else {
        *sum += other_sum * f64::from(other_maximum - *maximum).exp();
    }
}

fn make_room(buffers: &mut Buffers, shape: Shape, number: usize, kept_floats: usize) {
    let (mut scratch, mut kept, mut maxima) = (0, 0, 0);
    for (tile, place) in tiles(shape, number, kept_floats) {
        match place {
            Some((values, start)) => {
                (kept, maxima) = (values + tile.size(), start + tile.rows.len());
            }
            None => scratch = scratch.max(tile.size()),
        }
    }
    let Buffers { tile, kept: kept_tiles, kept_maximum, .. } = buffers;
    for (buffer, len) in [(tile, scratch), (kept_tiles, kept), (kept_maximum, maxima)] {
        if buffer.len() < len {
            buffer.resize(len, 0.0);
        }
    }
}

fn normaliser(chunks: &[Chunk], row: usize) -> f32 {
    let (mut maximum, mut sum) = (f32::NEG_INFINITY, 0.0);
    for Chunk { buffers, .. } in chunks {
        add_to_sum((&mut maximum, &mut sum), (buffers.maximum[row], buffers.sum[row]));
    }
    (f64::from(maximum) + sum.ln()) as f32
}

/// The backward pass.
struct Backward<'a> {
    inputs: &'a Inputs<'a>,
    saved: &'a Saved,
    scale: f32,
    by_tile: &'a AnswersByTile<'a>,
}

impl Backward<'_> {
    /// Over one chunk of objects.
    fn run(
        &self,
        number: usize,
        buffers: &mut Buffers,
        kept_floats: usize,
        grads: &mut ChunkGrads,
    ) {
        let shape = self.inputs.shape;
        make_room(buffers, shape, number, kept_floats);
        let Buffers { tile: scratch, kept, kept_maximum, .. } = buffers;
        for (tile, place) in tiles(shape, number, kept_floats) {
            let grad_logits = match place {
                Some((values, maxima)) => {
                    let grad_logits = &mut kept[values..][..tile.size()];
                    self.scale_kept(&tile, &kept_maximum[maxima..], grad_logits);
                    grad_logits
                }
                None => {
                    let logits = &mut scratch[..tile.size()];
                    self.recompute(&tile, logits);
                    logits
                }
            };
            self.subtract_answers(&tile, grad_logits);
            self.inputs.pull_back(&tile, grad_logits, grads);
        }
    }

    fn scale_kept(&self, tile: &Tile, maxima: &[f32], kept: &mut [f32]) {
        let rows = kept.chunks_exact_mut(tile.objects.len());
        for ((row, values), maximum) in tile.rows.clone().zip(rows).zip(maxima) {
            let shift = maximum - self.saved.normaliser[row];
            let factor = self.scale * self.saved.share[row] * shift.exp();
            simd::scale(values, factor, self.smoothed(row));
        }
    }

    fn recompute(&self, tile: &Tile, logits: &mut [f32]) {
        self.inputs.logits(tile, logits);
        let rows = logits.chunks_exact_mut(tile.objects.len());
        for (row, values) in tile.rows.clone().zip(rows) {
            let factor = self.scale * self.saved.share[row];
            simd::scaled_exp(values, self.saved.normaliser[row], factor, self.smoothed(row));
        }
    }

    /// What smoothing takes off the gradient of every logit of a row.
    fn smoothed(&self, row: usize) -> f32 {
        let each = self.saved.smoothing / self.inputs.shape.entities as f32;
        self.scale * self.saved.share[row] * each
    }

    fn subtract_answers(&self, tile: &Tile, grad_logits: &mut [f32]) {
        let components = self.inputs.shape.components;
        for answer in self.by_tile.within(tile) {
            let pulls = &self.saved.pull[answer.number * components..][..components];
            for (k, pull) in pulls.iter().enumerate() {
                grad_logits[answer.place + k * tile.objects.len()] -= self.scale * pull;
            }
        }
    }
}

/// The same in plain tensor operations, query block by query block.
pub(super) fn reference(input: Logits, answers: &BatchAnswers, smoothing: f32) -> Tensor<1> {
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
        let mut logits = score.reference(weights.clone(), rows, objects.clone());
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
