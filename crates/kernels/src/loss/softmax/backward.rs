//! The backward pass of softmax losses: from responsibilities to gradients.

use super::forward::Saved;
use super::partial::Finished;
use super::workspace::{Scratch, Workspace};
use crate::aligned::AlignedBuf;
use crate::loss::answers::AnswersByTile;
use crate::loss::inputs::{Inputs, Shortcuts};
use crate::loss::plan::{ChunkPlan, FirstTile};
use crate::loss::saved_tiles::{SavedTile, SavedTiles};
use crate::loss::sparse::{Entry, RowThinning, Thinning};
use crate::loss::work::Work;
use crate::pool::Loan;
use crate::simd;
use crate::tiles::amx::Packing;
use crate::tiles::chunks::ChunkWork;
use crate::tiles::{ChunkGrads, LogitGrads, Tile, TiledLogits};

/// Gradients of `scale` times the loss by what the logits of the objects at hand are made of, and what
/// was computed in both passes; `saved` is of the forward pass over them. That by the prior is
/// [`Finished::grad_log_prior`].
pub fn backward(
    inputs: &Inputs,
    saved: &mut Saved,
    finished: &Finished,
    scale: f32,
    workspace: &Workspace,
) -> (LogitGrads, Work) {
    let shape = &inputs.logits.shape;
    let mut tiles = saved.tiles.take().and_then(Loan::take);
    let given: Vec<_> = match &mut tiles {
        Some(tiles) => tiles[..shape.n_chunks()].iter_mut().map(Some).collect(),
        None => (0..shape.n_chunks()).map(|_| None).collect(),
    };
    let is_sparse = |saved: &Option<&mut SavedTiles>| {
        saved.as_ref().is_some_and(|saved| saved.plan != ChunkPlan::Dense)
    };
    let packing = match given.iter().all(is_sparse) {
        true => Packing::Logits,
        false => Packing::LogitsAndGradients,
    };
    let shortcuts = saved.shortcuts;
    let (grads, work) = workspace.contexts.with(|contexts| {
        let logits = TiledLogits::new(&inputs.logits, shortcuts.precision, packing, contexts);
        let by_tile = &AnswersByTile::of(shape, inputs.answers);
        let pass = Backward { logits, shortcuts, finished, scale, by_tile };
        workspace.chunks.with(|chunks| {
            chunks.gradients(&inputs.logits, given, |chunk, saved| pass.run(chunk, saved))
        })
    });
    if let Some(tiles) = tiles {
        // For the next forward pass: nobody comes back for what has become gradients.
        workspace.saved.leave(tiles);
    }
    (grads, work.into_iter().fold(Work::default(), Work::merge))
}

/// The backward pass.
struct Backward<'a> {
    logits: TiledLogits<'a>,
    shortcuts: Shortcuts,
    finished: &'a Finished,
    scale: f32,
    by_tile: &'a AnswersByTile<'a>,
}

/// A tile, and what was saved of it.
struct TileAt {
    tile: Tile,
    saved: SavedTile,
}

/// One chunk of the backward pass at work.
struct ChunkBackward<'a> {
    pass: &'a Backward<'a>,
    scratch: &'a mut Scratch,
    saved: Option<&'a mut SavedTiles>,
    grads: ChunkGrads<'a>,
    work: Work,
}

impl Backward<'_> {
    fn run(&self, chunk: ChunkWork<Scratch>, saved: Option<&mut SavedTiles>) -> Work {
        let ChunkWork { number, scratch, grads } = chunk;
        scratch.packed.clear();
        let of_tiles = saved.as_ref().map_or_else(Vec::new, |saved| saved.tiles.clone());
        let of_tiles = of_tiles.into_iter().chain(std::iter::repeat(SavedTile::None));
        let tiles = self.logits.inputs.shape.tiles(number);
        let mut tiles = tiles.zip(of_tiles).map(|(tile, saved)| TileAt { tile, saved });
        let mut chunk = ChunkBackward { pass: self, scratch, saved, grads, work: Work::default() };
        let Some(first) = tiles.next() else { return chunk.work };
        chunk.load(&first);
        match chunk.plan(&first) {
            ChunkPlan::Dense => {
                chunk.add_dense(&first);
                for at in tiles {
                    chunk.load(&at);
                    chunk.add_dense(&at);
                }
            }
            ChunkPlan::Sparse(thinning) => {
                chunk.add_sparse(thinning, &first);
                for at in tiles {
                    chunk.load(&at);
                    chunk.add_sparse(thinning, &at);
                }
            }
        }
        chunk.work
    }

    /// Turns a tile's values into the gradient of its logits; `factors` make Γ_k softmax_k of them, row
    /// by row.
    fn make_gradients(&self, tile: &Tile, values: &mut [f32], factors: &[f32]) {
        let Finished { responsibilities, smoothing_each, .. } = self.finished;
        let width = tile.objects.len();
        let rows = values.chunks_exact_mut(width);
        for ((row, values), factor) in tile.rows.clone().zip(rows).zip(factors) {
            // What smoothing takes off the gradient of every logit of a row.
            let smoothed = self.scale * responsibilities[row] * smoothing_each;
            simd::scale(values, self.scale * factor, smoothed);
        }
        for answer in self.by_tile.within(tile) {
            for (k, responsibility) in self.of_answer(answer.number).iter().enumerate() {
                values[answer.place + k * width] -= self.scale * responsibility;
            }
        }
    }

    /// y·γ of an answer, component by component.
    fn of_answer(&self, answer: usize) -> &[f32] {
        let components = self.logits.inputs.shape.components;
        &self.finished.answer_responsibilities[answer * components..][..components]
    }
}

impl ChunkBackward<'_> {
    /// Finds exp(z − maximum) of a tile and, as factors, what makes Γ_k softmax_k of that, row by row;
    /// of a tile that is not saved, makes exp(z − L) of its logits, whose factors are Γ_k.
    fn load(&mut self, at: &TileAt) {
        let TileAt { tile, saved } = at;
        let Self { pass, scratch, work, .. } = self;
        let finished = pass.finished;
        work.logits += tile.size() as u64;
        scratch.factors.clear();
        let responsibilities = &finished.responsibilities[tile.rows.clone()];
        let normalisers = &finished.normalisers[tile.rows.clone()];
        if *saved != SavedTile::None {
            let maxima = self.saved.as_ref().map_or(&[][..], |saved| {
                &saved.maxima[SavedTiles::first_row(&pass.logits.inputs.shape, tile)..]
            });
            let rows = responsibilities.iter().zip(maxima.iter().zip(normalisers));
            scratch.factors.extend(rows.map(|(responsibility, (maximum, normaliser))| {
                responsibility * (maximum - normaliser).exp()
            }));
            return;
        }
        scratch.factors.extend(responsibilities);
        work.again += tile.size() as u64;
        let values = scratch.tile.first(tile.size());
        pass.logits.fill(tile, &mut scratch.packed, values);
        for (values, normaliser) in values.chunks_exact_mut(tile.objects.len()).zip(normalisers) {
            simd::scaled_exp(values, *normaliser, 1.0, 0.0);
        }
    }

    /// How gradients are made of the chunk. What the forward pass has found stands: it may have saved
    /// nothing but a few entries.
    fn plan(&mut self, first: &TileAt) -> ChunkPlan {
        if let Some(SavedTiles { plan: plan @ ChunkPlan::Sparse(_), .. }) = self.saved {
            return *plan;
        }
        let Self { pass, scratch, saved, .. } = self;
        let tile = FirstTile {
            values: values(first, &mut scratch.tile, saved),
            width: first.tile.objects.len(),
            is_on_amx: pass.logits.is_on_amx(),
        };
        ChunkPlan::of(pass.shortcuts.thinning, &tile, |thinning, i| {
            scratch.factors[i] / thinning.below
        })
    }

    /// Adds the gradients of a tile that has been loaded, all of whose entries are multiplied.
    fn add_dense(&mut self, at: &TileAt) {
        let Self { pass, scratch, saved, grads, work } = self;
        let Scratch { tile, packed, factors, .. } = &mut **scratch;
        let values = values(at, tile, saved);
        work.multiplied += values.len() as u64;
        pass.make_gradients(&at.tile, values, factors);
        pass.logits.pull_back(&at.tile, packed, values, grads);
    }

    /// Adds the gradients of a tile that has been loaded, a few of whose entries are multiplied.
    fn add_sparse(&mut self, thinning: Thinning, at: &TileAt) {
        let Self { pass, scratch, saved, grads, work } = self;
        let (inputs, tile) = (pass.logits.inputs, &at.tile);
        let Scratch { tile: unsaved, entries, factors, .. } = &mut **scratch;
        entries.clear();
        let thinned = tile.rows.clone().zip(factors.iter()).map(|(row, factor)| RowThinning {
            factor: factor / thinning.below,
            start: thinning.start(row, &inputs.shape, tile),
            grad_of_epsilon: pass.scale * thinning.below,
        });
        match (at.saved, saved) {
            (SavedTile::Sparse, Some(saved)) => {
                let first_row = SavedTiles::first_row(&inputs.shape, tile);
                for (row, thinned) in (first_row..).zip(thinned) {
                    entries.push_entries(&saved.entries, row, &thinned);
                }
            }
            (_, saved) => {
                let values = values(at, unsaved, saved);
                for (values, thinned) in values.chunks_exact(tile.objects.len()).zip(thinned) {
                    entries.push_values(values, &thinned);
                }
            }
        }
        work.multiplied += entries.len() as u64;
        entries.pull_back(inputs, tile, grads);
        for answer in pass.by_tile.within(tile) {
            for (k, responsibility) in pass.of_answer(answer.number).iter().enumerate() {
                let (row, grad) = (answer.row + k, -pass.scale * responsibility);
                Entry { row, object: answer.object, grad }.pull_back(inputs, grads);
            }
        }
    }
}

/// The values of a tile that has been loaded.
fn values<'s>(
    at: &TileAt,
    unsaved: &'s mut AlignedBuf,
    saved: &'s mut Option<&mut SavedTiles>,
) -> &'s mut [f32] {
    match (at.saved, saved) {
        (SavedTile::Dense(start), Some(saved)) => saved.dense.at(start, &at.tile),
        _ => unsaved.first(at.tile.size()),
    }
}
