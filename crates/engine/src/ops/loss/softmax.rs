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
//! What the backward pass finds of the tiles is in `kept`. Where most entries of Γ_k softmax_k are
//! next to nothing, only a few of them are multiplied (`sparse`).

mod answers;
mod kept;
#[cfg(test)]
mod tests;

use burn::tensor::activation::log_softmax;
use burn::tensor::{Int, Tensor, TensorData};
use rayon::prelude::*;

use super::sparse::{self, OfRow, Thinning, pull_back_one};
use super::tiles::{
    AnswersByTile, Buffers, Chunk, ChunkGrads, Grads, Inputs, Tile, Work, Workspace,
};
use super::units::{Contexts, TilePacks};
use super::{BatchAnswers, Logits, Shortcuts};
use crate::ops::score::PairScore;
use crate::ops::simd;
use answers::Answered;
pub(super) use kept::Kept;
use kept::Place;

/// What differs between softmax losses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Share of an answer's weight spread over all objects; for one component and the dot product.
    pub(crate) smoothing: f32,
    pub(crate) shortcuts: Shortcuts,
}

/// What the backward pass needs of the forward pass, besides the inputs.
#[derive(Debug)]
pub(super) struct Saved {
    /// L, `[B·K]`.
    normaliser: Vec<f32>,
    /// Γ, `[B·K]`.
    share: Vec<f32>,
    /// y·γ of each answer and component.
    pull: Vec<f32>,
    options: Options,
    /// Which forward pass left its tiles in the workspace.
    pass: u64,
}

/// Loss of a batch (a sum over its answers), and what the backward pass needs.
pub(super) fn forward(
    inputs: &Inputs,
    options: Options,
    workspace: &mut Workspace,
) -> (f64, Saved) {
    let shape = inputs.shape;
    let Options { smoothing, shortcuts } = options;
    assert!(smoothing == 0.0 || shape.components == 1, "smoothing of a mixture");
    let is_dot = inputs.score == PairScore::Dot;
    assert!(is_dot || smoothing == 0.0, "smoothing of other scores");
    let packed = workspace.pack(inputs, shortcuts, Contexts::pack);
    let inputs = &Inputs { packed: packed.as_deref(), ..*inputs };
    workspace.pass += 1;
    workspace.chunks.resize_with(shape.n_chunks(), Chunk::default);
    let answered = Answered::of(inputs);
    let pass = Forward {
        inputs,
        thinning: shortcuts.thinning.map(|thinning| (thinning, answered.bounds(inputs))),
        kept_bytes: workspace.kept_bytes / shape.n_chunks(),
    };
    workspace.chunks.par_iter_mut().enumerate().for_each(|(number, chunk)| {
        pass.run(number, &mut chunk.buffers);
    });
    let normaliser: Vec<f32> =
        (0..shape.rows()).into_par_iter().map(|row| normaliser(&workspace.chunks, row)).collect();
    let (loss, share, pull) = answered.mix(inputs, smoothing, &normaliser);
    (loss, Saved { options, normaliser, share, pull, pass: workspace.pass })
}

/// Gradients of `scale` times the loss.
pub(super) fn backward(
    inputs: &Inputs,
    saved: &Saved,
    scale: f32,
    workspace: &mut Workspace,
) -> Grads {
    // Unless another pass has used the workspace since.
    let finds_kept = saved.pass == workspace.pass;
    let are_few = |chunk: &Chunk| chunk.buffers.kept.are_few;
    let needs_slices = !(finds_kept && workspace.chunks.iter().all(are_few));
    let pack = if needs_slices { Contexts::pack_all } else { Contexts::pack };
    let packed = workspace.pack(inputs, saved.options.shortcuts, pack);
    let inputs = &Inputs { packed: packed.as_deref(), ..*inputs };
    let by_tile = AnswersByTile::of(inputs);
    let pass = Backward { inputs, saved, scale, by_tile: &by_tile, finds_kept };
    let (mut grads, work) =
        workspace.gradients(inputs, |number, buffers, grads| pass.run(number, buffers, grads));
    // Kept tiles have become gradients: a second backward pass must make its own.
    workspace.pass += 1;
    work.into_iter().for_each(|work| workspace.count(work));
    grads.log_prior = saved.share.iter().map(|share| -scale * share).collect();
    grads
}

/// The forward pass.
struct Forward<'a> {
    inputs: &'a Inputs<'a>,
    /// With what Γ_k·exp(−L_k) is at most, row by row.
    thinning: Option<(Thinning, Vec<Bound>)>,
    kept_bytes: usize,
}

/// Limits of a row that are known before all objects are.
#[derive(Debug, Clone, Copy)]
struct Bound {
    /// Σ_o y_o, which Γ_k cannot exceed.
    weight: f32,
    /// The largest z of an answer, below which L_k cannot be.
    normaliser: f32,
}

impl Forward<'_> {
    /// Over one chunk of objects.
    fn run(&self, number: usize, buffers: &mut Buffers) {
        let shape = self.inputs.shape;
        let Buffers { tile: scratch, packs, kept, maximum, sum, .. } = buffers;
        packs.clear();
        let scratch = scratch.make_room(shape.block_len() * shape.tile_len());
        maximum.clear();
        maximum.resize(shape.rows(), f32::NEG_INFINITY);
        sum.clear();
        sum.resize(shape.rows(), 0.0);
        kept.clear();
        for tile in shape.tiles(number) {
            let place = kept.place(&tile, self.kept_bytes);
            let Kept { values, n_whole, entries, maxima, are_few, .. } = kept;
            let values = match place {
                Place::Whole(start) => &mut values.make_room(*n_whole)[start..][..tile.size()],
                Place::Entries | Place::Nowhere => &mut scratch[..tile.size()],
            };
            self.inputs.logits(&tile, packs, values);
            let first = maxima.len();
            for (row, values) in tile.rows.clone().zip(values.chunks_exact_mut(tile.objects.len()))
            {
                let top = simd::maximum(values);
                let tile_sum = simd::exp_and_sum(values, top);
                add_to_sum((&mut maximum[row], &mut sum[row]), (top, f64::from(tile_sum)));
                maxima.push(top);
                match (&self.thinning, place) {
                    (Some((thinning, bounds)), Place::Entries) => {
                        let factor = bounds[row].factor(*thinning, top, (maximum[row], sum[row]));
                        entries.push_taken(values, factor, thinning.start(row, &tile));
                    }
                    _ => entries.push_none(),
                }
            }
            if let (Some((thinning, bounds)), 0) = (&self.thinning, first) {
                *are_few = sparse::are_few(self.inputs, &tile, values, |i| {
                    let row = tile.rows.start + i;
                    bounds[row].factor(*thinning, maxima[i], (maximum[row], sum[row]))
                });
            }
        }
    }
}

impl Bound {
    /// What makes sizes, in units of ε, of exp(z − `top`), no smaller than they are in the end;
    /// `so_far` is Σ exp z over some objects, as a maximum and a sum.
    fn factor(self, thinning: Thinning, top: f32, so_far: (f32, f64)) -> f32 {
        /// For rounding: a little more than can be lost between here and the end.
        const SLACK: f64 = 1.0001;
        let so_far = so_far.1 * f64::from(so_far.0 - top).exp();
        let least = so_far.max(f64::from(self.normaliser - top).exp());
        (SLACK * f64::from(self.weight) / f64::from(thinning.below) / least) as f32
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
    /// Whether the forward pass left something.
    finds_kept: bool,
}

impl Backward<'_> {
    /// Over one chunk of objects.
    fn run(&self, number: usize, buffers: &mut Buffers, grads: &mut ChunkGrads) -> Work {
        let shape = self.inputs.shape;
        let Buffers { tile: scratch, packs, kept, entries, factors, .. } = buffers;
        packs.clear();
        let scratch = scratch.make_room(shape.block_len() * shape.tile_len());
        let mut few = kept.are_few && self.finds_kept;
        let mut work = Work::default();
        for (i, tile) in shape.tiles(number).enumerate() {
            let place = if self.finds_kept { kept.places[i] } else { Place::Nowhere };
            let first_row = Kept::first_row(shape, &tile);
            let is_kept = place != Place::Nowhere;
            self.find_factors(&tile, is_kept.then(|| &kept.maxima[first_row..]), factors);
            work.logits += tile.size() as u64;
            if place == Place::Entries {
                entries.clear();
                self.for_rows(&tile, factors, |i, of_row| {
                    entries.push_entries(&kept.entries, first_row + i, of_row);
                });
            } else {
                let values = match place {
                    Place::Whole(start) => {
                        &mut kept.values.make_room(kept.n_whole)[start..][..tile.size()]
                    }
                    _ => {
                        let values = &mut scratch[..tile.size()];
                        work.again += tile.size() as u64;
                        self.exponentials(&tile, packs, values);
                        values
                    }
                };
                if let (Some(thinning), 0, false) = (self.saved.options.shortcuts.thinning, i, few)
                {
                    few = sparse::are_few(self.inputs, &tile, values, |i| {
                        factors[i] / thinning.below
                    });
                }
                if !few {
                    work.multiplied += tile.size() as u64;
                    self.make_gradients(&tile, values, factors);
                    self.inputs.pull_back(&tile, packs, values, grads);
                    continue;
                }
                entries.clear();
                let width = tile.objects.len();
                self.for_rows(&tile, factors, |i, of_row| {
                    entries.push_values(&values[i * width..][..width], of_row);
                });
            }
            work.multiplied += entries.len() as u64;
            entries.pull_back(self.inputs, &tile, grads);
            self.subtract_answers_alone(&tile, grads);
        }
        work
    }

    /// What makes Γ_k softmax_k of a tile's values, row by row: of exp(z − maximum), or without
    /// maxima of exp(z − L).
    fn find_factors(&self, tile: &Tile, maxima: Option<&[f32]>, factors: &mut Vec<f32>) {
        let factor = |(i, row): (usize, usize)| {
            let shift = maxima.map_or(1.0, |maxima| (maxima[i] - self.saved.normaliser[row]).exp());
            self.saved.share[row] * shift
        };
        factors.clear();
        factors.extend(tile.rows.clone().enumerate().map(factor));
    }

    /// exp(z − L) of a tile.
    fn exponentials(&self, tile: &Tile, packs: &mut TilePacks, values: &mut [f32]) {
        self.inputs.logits(tile, packs, values);
        let rows = values.chunks_exact_mut(tile.objects.len());
        for (row, values) in tile.rows.clone().zip(rows) {
            simd::scaled_exp(values, self.saved.normaliser[row], 1.0, 0.0);
        }
    }

    /// Calls `push` with what makes gradients of the entries of each row.
    fn for_rows(&self, tile: &Tile, factors: &[f32], mut push: impl FnMut(usize, &OfRow)) {
        let thinning =
            self.saved.options.shortcuts.thinning.expect("entries are few only with thinning");
        for (i, (row, factor)) in tile.rows.clone().zip(factors).enumerate() {
            let of_row = OfRow {
                factor: factor / thinning.below,
                start: thinning.start(row, tile),
                unit: self.scale * thinning.below,
            };
            push(i, &of_row);
        }
    }

    /// Turns a tile's values into the gradient of its logits.
    fn make_gradients(&self, tile: &Tile, values: &mut [f32], factors: &[f32]) {
        let each = self.saved.options.smoothing / self.inputs.shape.entities as f32;
        let rows = values.chunks_exact_mut(tile.objects.len());
        for ((row, values), factor) in tile.rows.clone().zip(rows).zip(factors) {
            // What smoothing takes off the gradient of every logit of a row.
            let smoothed = self.scale * self.saved.share[row] * each;
            simd::scale(values, self.scale * factor, smoothed);
        }
        self.subtract_answers(tile, values);
    }

    fn subtract_answers(&self, tile: &Tile, grad_logits: &mut [f32]) {
        for answer in self.by_tile.within(tile) {
            for (k, pull) in self.pulls(answer.number).iter().enumerate() {
                grad_logits[answer.place + k * tile.objects.len()] -= self.scale * pull;
            }
        }
    }

    fn subtract_answers_alone(&self, tile: &Tile, grads: &mut ChunkGrads) {
        for answer in self.by_tile.within(tile) {
            let object = tile.objects.start + answer.place % tile.objects.len();
            for (k, pull) in self.pulls(answer.number).iter().enumerate() {
                let at = (tile.chunk, answer.row + k, object);
                pull_back_one(self.inputs, at, -self.scale * pull, grads);
            }
        }
    }

    /// y·γ of an answer, component by component.
    fn pulls(&self, answer: usize) -> &[f32] {
        let components = self.inputs.shape.components;
        &self.saved.pull[answer * components..][..components]
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
