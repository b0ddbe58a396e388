//! Tiles of a block of queries: logits against all objects at hand, and what normalising needs.

use std::ops::Range;

use rayon::prelude::*;

use super::mixing::Mixing;
use super::{Inputs, Probability};
use crate::log_sum::LogSum;
use crate::pair_score::PairScore;
use crate::product::{Matrix, Onto, Precision};
use crate::split_bf16::{self, PackedLeft, PackedRight};
use crate::{pieces, simd};

/// Objects of one tile: its logits are normalised while they are in cache.
pub(super) const TILE: usize = 512;
/// Rows (queries × components) up to which objects are read once and not copied first.
const FEW_ROWS: usize = 8;

/// Contexts and gates of some queries.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) context: &'a [f32],
    pub(super) log_prior: &'a [f32],
}

impl<'a> Block<'a> {
    pub(super) fn all(inputs: &'a Inputs) -> Self {
        Self { context: inputs.logits.context, log_prior: inputs.log_prior }
    }

    pub(super) fn n_rows(self) -> usize {
        self.log_prior.len()
    }
}

/// Objects, and how they are scored.
pub(super) struct Scored<'a> {
    pub(super) inputs: &'a Inputs<'a>,
    /// The objects of every tile, packed for AMX; empty if products are made in f32.
    packed: Vec<PackedRight>,
}

/// What a block of rows makes of all objects, tile after tile, the rows of a tile one after the other.
#[derive(Default)]
pub(super) struct Tiles {
    /// Logits, or exp(z − largest) of those that are mixed.
    pub(super) values: Vec<f32>,
    /// Of every row of every tile.
    pub(super) sums: Vec<TileSum>,
    /// The log-probabilities of one query.
    row: Vec<f32>,
    /// The contexts, packed for AMX.
    contexts: PackedLeft,
}

/// Σ exp z over a row of a tile.
#[derive(Clone, Copy, Default)]
pub(super) struct TileSum {
    /// The largest z.
    pub(super) maximum: f32,
    /// Σ exp(z − maximum).
    sum: f32,
}

impl Tiles {
    fn make_room(&mut self, rows: usize, n_objects: usize) {
        self.values.resize(rows * n_objects, 0.0);
        self.sums.resize(rows * n_objects.div_ceil(TILE), TileSum::default());
    }

    /// Σ exp z of a row over all tiles.
    pub(super) fn sum_of_row(&self, row: usize, n_rows: usize) -> LogSum {
        let sums = || self.sums[row.min(self.sums.len())..].iter().step_by(n_rows);
        let maximum = sums().fold(f32::NEG_INFINITY, |maximum, sum| maximum.max(sum.maximum));
        let of_tile = |sum: &TileSum| f64::from(sum.sum) * f64::from(sum.maximum - maximum).exp();
        LogSum { maximum, sum: sums().map(of_tile).sum::<f64>() }
    }
}

impl<'a> Scored<'a> {
    pub(super) fn new(inputs: &'a Inputs<'a>, precision: Precision) -> Self {
        let mut scored = Self { inputs, packed: Vec::new() };
        if precision == Precision::SplitBf16 {
            assert_eq!(inputs.logits.score, PairScore::Dot, "split bf16 of another score");
            let tiles: Vec<_> = pieces(0..scored.n_objects(), TILE).collect();
            let pack = |objects| PackedRight::of(scored.vectors(&objects).transposed());
            scored.packed = tiles.into_par_iter().map(pack).collect();
        }
        scored
    }

    /// All of a block, by one thread; `map` gets the place and the row of each query.
    pub(super) fn map_block<T>(
        &self,
        block: Block,
        tiles: &mut Tiles,
        map: impl Fn(usize, &[f32]) -> T,
    ) -> Vec<T> {
        self.fill(block, tiles);
        let mut row = std::mem::take(&mut tiles.row);
        row.resize(self.n_objects(), 0.0);
        let n_rows = block.n_rows();
        let sums: Vec<_> = match self.inputs.probability {
            Probability::Softmax => (0..n_rows).map(|row| tiles.sum_of_row(row, n_rows)).collect(),
            Probability::Sigmoid => vec![LogSum::EMPTY; n_rows],
        };
        let of_query = |query: usize| {
            let mixing = Mixing::of(self, tiles, block, query, &sums);
            row.chunks_mut(TILE).enumerate().for_each(|(tile, out)| mixing.fill(tile, out));
            map(query, &row)
        };
        let mapped = (0..n_rows / self.inputs.logits.shape.components).map(of_query).collect();
        tiles.row = row;
        mapped
    }

    fn fill(&self, block: Block, tiles: &mut Tiles) {
        let n_rows = block.n_rows();
        tiles.make_room(n_rows, self.n_objects());
        if !self.packed.is_empty() {
            let dim = self.inputs.logits.shape.context_dim;
            tiles.contexts.pack(Matrix::rows_of(block.context, dim));
        }
        let slots = tiles.values.chunks_mut(n_rows * TILE).zip(tiles.sums.chunks_mut(n_rows));
        let objects = pieces(0..self.n_objects(), TILE);
        for (tile, (objects, (values, sums))) in objects.zip(slots).enumerate() {
            match self.packed.get(tile) {
                Some(vectors) => {
                    let onto = self.start_with_bias(&objects, values);
                    split_bf16::multiply(values, objects.len(), onto, &tiles.contexts, vectors);
                }
                None => self.logits(block.context, objects.clone(), values),
            }
            self.sum_tile(objects.len(), values, sums);
        }
    }

    /// The same where there is no other block, by all threads, which share its tiles.
    pub(super) fn fill_by_all_threads(&self, block: Block) -> Tiles {
        let (n_rows, n_objects) = (block.n_rows(), self.n_objects());
        let mut tiles = Tiles::default();
        tiles.make_room(n_rows, n_objects);
        // No queries have no tiles, but chunks of no floats are not allowed.
        let values = tiles.values.par_chunks_mut((n_rows * TILE).max(1));
        let slots = values.zip(tiles.sums.par_chunks_mut(n_rows.max(1)));
        slots.enumerate().for_each(|(tile, (values, sums))| {
            let objects = tile * TILE..((tile + 1) * TILE).min(n_objects);
            self.logits(block.context, objects.clone(), values);
            self.sum_tile(objects.len(), values, sums);
        });
        tiles
    }

    /// What normalising needs of the logits of a tile.
    fn sum_tile(&self, width: usize, values: &mut [f32], sums: &mut [TileSum]) {
        if self.inputs.probability == Probability::Sigmoid {
            return;
        }
        for (values, sum) in values.chunks_exact_mut(width).zip(sums) {
            let maximum = simd::maximum(values);
            let of_exps = match self.inputs.logits.shape.components {
                1 => simd::sum_of_exp(values, maximum),
                _ => simd::exp_and_sum(values, maximum),
            };
            *sum = TileSum { maximum, sum: of_exps };
        }
    }

    /// The logits of some contexts and objects, row after row.
    pub(super) fn logits(&self, context: &[f32], objects: Range<usize>, out: &mut [f32]) {
        let inputs = &self.inputs.logits;
        let dim = inputs.shape.context_dim;
        if inputs.score == PairScore::Dot && context.len() <= FEW_ROWS * dim {
            simd::dots(out, context, self.vectors(&objects).values, dim);
            if let Some(bias) = inputs.bias {
                let rows = out.chunks_exact_mut(objects.len());
                rows.for_each(|row| simd::add(row, &bias[objects.clone()]));
            }
            return;
        }
        let onto = self.start_with_bias(&objects, out);
        let context = Matrix::rows_of(context, dim);
        inputs.score.logits(inputs.weights, out, onto, context, self.vectors(&objects));
    }

    /// Writes the bias of some objects to all rows of `out`, if there is one, and tells what products
    /// are to do with what stands there.
    fn start_with_bias(&self, objects: &Range<usize>, out: &mut [f32]) -> Onto {
        let Some(bias) = self.inputs.logits.bias else { return Onto::Replace };
        let rows = out.chunks_exact_mut(objects.len());
        rows.for_each(|row| row.copy_from_slice(&bias[objects.clone()]));
        Onto::Add
    }

    fn vectors(&self, objects: &Range<usize>) -> Matrix<'a> {
        let dim = self.inputs.logits.shape.object_dim;
        let values = &self.inputs.logits.objects[objects.start * dim..objects.end * dim];
        Matrix::rows_of(values, dim)
    }

    pub(super) fn n_objects(&self) -> usize {
        self.inputs.logits.shape.n_objects()
    }
}
