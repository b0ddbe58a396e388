//! The forward pass of softmax losses: normalisers, and what the backward pass finds.

use rayon::prelude::*;

use super::answer_logits::AnswerLogits;
use super::bound::Bound;
use super::partial::{ObjectSums, Partial};
use super::workspace::{Scratch, Workspace};
use crate::log_sum::LogSum;
use crate::loss::inputs::{Inputs, Shortcuts, SoftmaxOptions};
use crate::loss::plan::{ChunkPlan, FirstTile};
use crate::loss::saved_tiles::{SavedTile, SavedTiles};
use crate::loss::sparse::Thinning;
use crate::pool::Loan;
use crate::simd;
use crate::tiles::amx::Packing;
use crate::tiles::{Tile, TiledLogits};

/// What the forward pass leaves to the backward pass over the same objects.
#[derive(Debug)]
pub struct Saved {
    pub(super) shortcuts: Shortcuts,
    /// A set for each chunk. The first backward pass uses it up, and a later forward pass may have taken
    /// it; then tiles are made again.
    pub(super) tiles: Option<Loan<Vec<SavedTiles>>>,
}

/// The forward pass over the objects at hand.
///
/// # Panics
/// If there is no such loss for the score and the number of components.
pub fn forward(
    inputs: &Inputs,
    options: SoftmaxOptions,
    workspace: &Workspace,
) -> (Partial, Saved) {
    options.check(inputs);
    let shape = &inputs.logits.shape;
    let SoftmaxOptions { smoothing, shortcuts } = options;
    let answers = AnswerLogits::of(inputs);
    let mut tiles = workspace.saved.take();
    let rows = workspace.contexts.with(|contexts| {
        let precision = shortcuts.precision;
        let pass = Forward {
            logits: TiledLogits::new(&inputs.logits, precision, Packing::Logits, contexts),
            thinning: shortcuts.thinning,
            bounds: shortcuts.thinning.map_or_else(Vec::new, |_| answers.bounds(inputs)),
            saved_bytes: workspace.saved_bytes / shape.n_chunks().max(1),
        };
        pass.run(workspace, &mut tiles)
    });
    let partial = Partial {
        rows,
        n_answers: answers.count(),
        answer_logits: answers.logits,
        objects: ObjectSums::of(inputs, smoothing),
    };
    (partial, Saved { shortcuts, tiles: Some(workspace.saved.leave(tiles)) })
}

/// The forward pass.
struct Forward<'a> {
    logits: TiledLogits<'a>,
    thinning: Option<Thinning>,
    /// What Γ_k·exp(−L_k) is at most, row by row; empty without thinning.
    bounds: Vec<Bound>,
    /// Bytes that the tiles of one chunk may take.
    saved_bytes: usize,
}

impl Forward<'_> {
    /// Over all chunks; gives Σ exp z of each row.
    fn run(&self, workspace: &Workspace, saved: &mut Vec<SavedTiles>) -> Vec<LogSum> {
        let shape = &self.logits.inputs.shape;
        saved.resize_with(shape.n_chunks().max(saved.len()), SavedTiles::default);
        workspace.chunks.with(|chunks| {
            let chunks = chunks.of(shape);
            chunks.par_iter_mut().zip(saved.par_iter_mut()).enumerate().for_each(
                |(number, (chunk, saved))| self.run_chunk(number, &mut chunk.scratch, saved),
            );
            let sum = |row: usize| {
                let sums = chunks.iter().map(|chunk| chunk.scratch.rows[row]);
                sums.fold(LogSum::EMPTY, LogSum::merge)
            };
            (0..shape.rows()).into_par_iter().map(sum).collect()
        })
    }

    fn run_chunk(&self, number: usize, scratch: &mut Scratch, saved: &mut SavedTiles) {
        let shape = &self.logits.inputs.shape;
        scratch.clear(shape);
        saved.clear();
        let mut tiles = shape.tiles(number);
        let Some(first) = tiles.next() else { return };
        self.dense_tile(&first, scratch, saved);
        saved.plan = self.plan(&first, scratch, saved);
        match saved.plan {
            ChunkPlan::Dense => tiles.for_each(|tile| self.dense_tile(&tile, scratch, saved)),
            ChunkPlan::Sparse(thinning) => {
                tiles.for_each(|tile| self.sparse_tile(thinning, &tile, scratch, saved));
            }
        }
    }

    /// How the backward pass will make gradients of a chunk, as far as is known now.
    fn plan(&self, first: &Tile, scratch: &mut Scratch, saved: &mut SavedTiles) -> ChunkPlan {
        let values = match saved.tiles[0] {
            SavedTile::Dense(start) => saved.dense.at(start, first),
            SavedTile::Sparse | SavedTile::None => scratch.tile.first(first.size()),
        };
        let is_on_amx = self.logits.is_on_amx();
        let tile = FirstTile { values, width: first.objects.len(), is_on_amx };
        ChunkPlan::of(self.thinning, &tile, |thinning, i| {
            let row = first.rows.start + i;
            self.bounds[row].factor(thinning, saved.maxima[i], scratch.rows[row])
        })
    }

    /// A tile all of which is saved, if there is room.
    fn dense_tile(&self, tile: &Tile, scratch: &mut Scratch, saved: &mut SavedTiles) {
        let values = match saved.reserve_dense(tile, self.saved_bytes) {
            SavedTile::Dense(start) => saved.dense.at(start, tile),
            SavedTile::Sparse | SavedTile::None => scratch.tile.first(tile.size()),
        };
        self.logits.fill(tile, &mut scratch.packed, values);
        let of_rows = values.chunks_exact_mut(tile.objects.len());
        for (sum, values) in scratch.rows[tile.rows.clone()].iter_mut().zip(of_rows) {
            saved.maxima.push(exponentiate(values, sum));
            saved.entries.push_none();
        }
    }

    /// A tile a few entries of which are saved, if there is room.
    fn sparse_tile(
        &self,
        thinning: Thinning,
        tile: &Tile,
        scratch: &mut Scratch,
        saved: &mut SavedTiles,
    ) {
        let is_saved = saved.reserve_sparse(tile, self.saved_bytes) == SavedTile::Sparse;
        let values = scratch.tile.first(tile.size());
        self.logits.fill(tile, &mut scratch.packed, values);
        let of_rows = values.chunks_exact_mut(tile.objects.len());
        for (row, values) in tile.rows.clone().zip(of_rows) {
            let maximum = exponentiate(values, &mut scratch.rows[row]);
            saved.maxima.push(maximum);
            if is_saved {
                let factor = self.bounds[row].factor(thinning, maximum, scratch.rows[row]);
                let start = thinning.start(row, &self.logits.inputs.shape, tile);
                saved.entries.push_taken(values, factor, start);
            } else {
                saved.entries.push_none();
            }
        }
    }
}

/// Makes exp(z − maximum) of a row of logits, adds them to its sum, and gives the maximum.
fn exponentiate(values: &mut [f32], sum: &mut LogSum) -> f32 {
    let maximum = simd::maximum(values);
    let of_tile = simd::exp_and_sum(values, maximum);
    *sum = sum.merge(LogSum { maximum, sum: f64::from(of_tile) });
    maximum
}
