//! Sigmoid losses, fused: what does a batch lose if every object is asked for itself?
//!
//! There is nothing to normalise over all objects: a tile (`tiles`) can be made, turned into its
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
//! Where most entries are next to nothing, only a few of them are multiplied (`sparse`).
//!
//! Tiles are filled as if every object were wrong; what an answer adds to that is linear in its
//! weight. They are few, and computed in f64.
//!
//! Objects may be cut into ranges: the [`Partial`] losses and gradients of all are merged.

mod answer;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::answers::{AnswerAt, AnswersByTile};
use super::inputs::{Grads, Inputs, Shortcuts};
use super::plan::{ChunkPlan, FirstTile};
use super::sparse::{Entry, RowThinning, Thinning, TileEntries};
use super::work::Work;
use crate::aligned::AlignedBuf;
use crate::pool::Pool;
use crate::simd::sigmoid::{Lanes, Prior, mixed_sigmoid, sigmoid};
use crate::tiles::amx::{PackedContexts, PackedTile, Packing};
use crate::tiles::chunks::{ChunkWork, Chunks};
use crate::tiles::{ChunkGrads, LogitGrads, Shape, Tile, TiledLogits};
use answer::{LogOdds, log_sum};

/// Buffers that one training step leaves to the next.
#[derive(Debug, Default)]
pub struct Workspace {
    chunks: Pool<Chunks<Scratch>>,
    contexts: Pool<PackedContexts>,
}

/// What a chunk works in.
#[derive(Debug, Default)]
struct Scratch {
    /// The tile at work.
    tile: AlignedBuf,
    /// What is packed of the tile at work, where AMX multiplies it.
    packed: PackedTile,
    /// The entries of the tile at work that are multiplied, where they are few.
    entries: TileEntries,
    /// What mixing needs.
    lanes: Vec<Lanes>,
}

/// Loss and gradients by some objects.
#[derive(Debug)]
pub struct Partial {
    /// A sum over queries and objects.
    pub loss: f64,
    /// The gradient by the prior, `[B, K]`.
    pub grad_log_prior: Vec<f64>,
    /// Gradients by what logits are made of.
    pub grads: LogitGrads,
    /// What was computed.
    pub work: Work,
}

impl Partial {
    /// Loss and gradients by these objects and by those of the range that comes `next`.
    #[must_use]
    pub fn merge(mut self, next: Self) -> Self {
        self.loss += next.loss;
        for (sum, next) in self.grad_log_prior.iter_mut().zip(next.grad_log_prior) {
            *sum += next;
        }
        Self { grads: self.grads.merge(next.grads), work: self.work.merge(next.work), ..self }
    }

    /// The gradients, when those of all objects have been merged.
    pub fn into_grads(self) -> Grads {
        let log_prior = self.grad_log_prior.iter().map(|x| *x as f32).collect();
        Grads { log_prior, logits: self.grads }
    }
}

/// Loss and gradients of a batch by the objects at hand.
///
/// # Panics
/// If shortcuts are not for the score.
pub fn pass(inputs: &Inputs, shortcuts: Shortcuts, workspace: &Workspace) -> Partial {
    shortcuts.check(inputs.logits.score);
    let (shape, precision) = (&inputs.logits.shape, shortcuts.precision);
    let packing = Packing::LogitsAndGradients;
    let (grads, sums) = workspace.contexts.with(|contexts| {
        let pass = Pass {
            inputs,
            logits: TiledLogits::new(&inputs.logits, precision, packing, contexts),
            priors: Priors::of(inputs),
            by_tile: AnswersByTile::of(shape, inputs.answers),
            thinning: shortcuts.thinning,
        };
        workspace.chunks.with(|chunks| {
            let given = vec![(); shape.n_chunks()];
            chunks.gradients(&inputs.logits, given, |chunk, ()| pass.run(chunk))
        })
    });
    let mut grad_log_prior = vec![0.0_f64; shape.rows()];
    for sums in &sums {
        grad_log_prior.iter_mut().zip(&sums.grad_log_prior).for_each(|(sum, x)| *sum += x);
    }
    let work = sums.iter().fold(Work::default(), |work, sums| work.merge(sums.work));
    Partial { loss: sums.iter().map(|sums| sums.loss).sum(), grad_log_prior, grads, work }
}

/// The gates of all components, normalised.
struct Priors {
    log: Vec<f32>,
    gates: Vec<f32>,
}

impl Priors {
    fn of(inputs: &Inputs) -> Self {
        let mut log = Vec::with_capacity(inputs.log_prior.len());
        for row in inputs.log_prior.chunks_exact(inputs.logits.shape.components) {
            let total = log_sum(row.iter().map(|x| f64::from(*x)));
            log.extend(row.iter().map(|x| (f64::from(*x) - total) as f32));
        }
        let gates = log.iter().map(|x| x.exp()).collect();
        Self { log, gates }
    }

    fn of_rows(&self, rows: Range<usize>) -> Prior<'_> {
        Prior { log: &self.log[rows.clone()], gates: &self.gates[rows] }
    }
}

/// What a chunk of objects adds, besides gradients of vectors.
struct Sums {
    loss: f64,
    grad_log_prior: Vec<f64>,
    work: Work,
}

/// What an answer adds to the gradient of its logits, in a tile.
struct AnswerGrad {
    at: AnswerAt,
    /// Component by component.
    grad_logits: Vec<f32>,
}

/// The pass over all tiles.
struct Pass<'a> {
    inputs: &'a Inputs<'a>,
    logits: TiledLogits<'a>,
    priors: Priors,
    by_tile: AnswersByTile<'a>,
    thinning: Option<Thinning>,
}

/// One chunk of it at work.
struct ChunkPass<'a> {
    pass: &'a Pass<'a>,
    scratch: &'a mut Scratch,
    grads: ChunkGrads<'a>,
    sums: Sums,
}

impl Pass<'_> {
    fn run(&self, chunk: ChunkWork<Scratch>) -> Sums {
        let ChunkWork { number, scratch, grads } = chunk;
        let shape = &self.inputs.logits.shape;
        scratch.packed.clear();
        let grad_log_prior = vec![0.0; shape.rows()];
        let sums = Sums { loss: 0.0, grad_log_prior, work: Work::default() };
        let mut tiles = shape.tiles(number);
        let mut chunk = ChunkPass { pass: self, scratch, grads, sums };
        let Some(first) = tiles.next() else { return chunk.sums };
        let answers = chunk.load(&first);
        match chunk.plan(&first) {
            ChunkPlan::Dense => {
                chunk.add_dense(&first, &answers);
                for tile in tiles {
                    let answers = chunk.load(&tile);
                    chunk.add_dense(&tile, &answers);
                }
            }
            ChunkPlan::Sparse(thinning) => {
                chunk.add_sparse(thinning, &first, &answers);
                for tile in tiles {
                    let answers = chunk.load(&tile);
                    chunk.add_sparse(thinning, &tile, &answers);
                }
            }
        }
        chunk.sums
    }
}

impl ChunkPass<'_> {
    /// Makes the gradient of a tile's logits as if no object were an answer, adds its loss, and gives
    /// what answers add to that gradient.
    fn load(&mut self, tile: &Tile) -> Vec<AnswerGrad> {
        let Self { pass, scratch, sums, .. } = self;
        let values = scratch.tile.first(tile.size());
        pass.logits.fill(tile, &mut scratch.packed, values);
        let answers = pass.answers(tile, values, sums);
        pass.wrong_objects(tile, values, sums, &mut scratch.lanes);
        sums.work.logits += tile.size() as u64;
        answers
    }

    fn plan(&mut self, first: &Tile) -> ChunkPlan {
        let tile = FirstTile {
            values: self.scratch.tile.first(first.size()),
            width: first.objects.len(),
            is_on_amx: self.pass.logits.is_on_amx(),
        };
        ChunkPlan::of(self.pass.thinning, &tile, |thinning, _| 1.0 / thinning.below)
    }

    /// Adds the gradients of a tile that has been loaded, all of whose entries are multiplied.
    fn add_dense(&mut self, tile: &Tile, answers: &[AnswerGrad]) {
        let Self { pass, scratch, grads, sums } = self;
        let values = scratch.tile.first(tile.size());
        for AnswerGrad { at, grad_logits } in answers {
            for (k, grad) in grad_logits.iter().enumerate() {
                values[at.place + k * tile.objects.len()] += grad;
            }
        }
        sums.work.multiplied += tile.size() as u64;
        pass.logits.pull_back(tile, &mut scratch.packed, values, grads);
    }

    /// Adds the gradients of a tile that has been loaded, a few of whose entries are multiplied.
    fn add_sparse(&mut self, thinning: Thinning, tile: &Tile, answers: &[AnswerGrad]) {
        let Self { pass, scratch, grads, sums } = self;
        let inputs = pass.logits.inputs;
        let Scratch { tile: values, entries, .. } = &mut **scratch;
        entries.clear();
        let rows = values.first(tile.size()).chunks_exact(tile.objects.len());
        for (row, values) in tile.rows.clone().zip(rows) {
            let thinned = RowThinning {
                factor: 1.0 / thinning.below,
                start: thinning.start(row, &inputs.shape, tile),
                grad_of_epsilon: thinning.below,
            };
            entries.push_values(values, &thinned);
        }
        sums.work.multiplied += entries.len() as u64;
        entries.pull_back(inputs, tile, grads);
        for AnswerGrad { at, grad_logits } in answers {
            for (k, grad) in grad_logits.iter().enumerate() {
                let entry = Entry { row: at.row + k, object: at.object, grad: *grad };
                entry.pull_back(inputs, grads);
            }
        }
    }
}

impl Pass<'_> {
    fn shape(&self) -> &Shape {
        &self.inputs.logits.shape
    }

    /// Turns logits into gradients as if no object were an answer.
    fn wrong_objects(
        &self,
        tile: &Tile,
        values: &mut [f32],
        sums: &mut Sums,
        lanes: &mut Vec<Lanes>,
    ) {
        let components = self.shape().components;
        for (i, values) in values.chunks_exact_mut(components * tile.objects.len()).enumerate() {
            let start = tile.rows.start + i * components;
            let rows = start..start + components;
            sums.loss += f64::from(match components {
                1 => sigmoid(values),
                _ => {
                    let prior = self.priors.of_rows(rows.clone());
                    mixed_sigmoid(values, prior, &mut sums.grad_log_prior[rows], lanes)
                }
            });
        }
    }

    /// What the answers in a tile add to what they would be as wrong objects.
    fn answers(&self, tile: &Tile, logits: &[f32], sums: &mut Sums) -> Vec<AnswerGrad> {
        let components = self.shape().components;
        let answer = |at: AnswerAt| {
            let weight = f64::from(self.inputs.answers.weights[at.number]);
            let of_row = |k| f64::from(logits[at.place + k * tile.objects.len()]);
            let logits: Vec<f64> = (0..components).map(of_row).collect();
            let log_odds = LogOdds::of(&logits, &self.priors.log[at.row..at.row + components]);
            sums.loss -= weight * log_odds.value;
            for (k, x) in log_odds.grad_log_prior.iter().enumerate() {
                sums.grad_log_prior[at.row + k] -= weight * x;
            }
            let grad_logits = log_odds.grad_logits.iter().map(|x| (-weight * x) as f32).collect();
            AnswerGrad { at, grad_logits }
        };
        self.by_tile.within(tile).map(answer).collect()
    }
}
