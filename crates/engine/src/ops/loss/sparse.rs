//! Which entries of a gradient are multiplied, where most of them are next to nothing?
//!
//! Once a model has learned a little, nearly all objects have next to no part in the gradient of a
//! query. An entry above ε is taken as it is; of those below, each is taken with probability
//! entry/ε, at ε. So every gradient made of them is right on average, and a few entries in a hundred
//! are enough. What answers add is always taken.
//!
//! Which are taken is decided by a number for every entry (`simd::select`) that depends on nothing
//! but seed, row and object: an entry that is not taken at some size is not at any smaller one.

use std::ops::Range;

use super::tiles::{ChunkGrads, Inputs, Tile};
use crate::ops::simd::add_scaled;
use crate::ops::simd::select::{Room, add_rows, expected, is_chosen, select};

/// The share of a chunk's entries up to which sparse products are faster than dense ones.
pub(super) const FEW: f32 = 0.25;
/// The same where dense products are made on a unit for bf16.
const FEW_BESIDE_UNIT: f32 = 0.05;
/// Every so many rows are looked at to tell whether entries are few.
const LOOKED_AT: usize = 16;

/// Below which size entries are left to chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Thinning {
    /// ε, in units of an answer's weight.
    pub(crate) below: f32,
    /// What chance depends on.
    pub(crate) seed: u64,
}

impl Thinning {
    /// Where the numbers of a row start in a tile.
    pub(super) fn start(self, row: usize, tile: &Tile) -> u32 {
        // The finaliser of SplitMix64, a permutation in which every bit depends on every other.
        let mut x = self.seed ^ ((row as u64) << 32 | tile.objects.start as u64);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 32) as u32
    }
}

/// Whether few entries of a tile are taken, on average; `factors` make sizes of its values.
///
/// On average, because what is taken must not depend on what happens to be taken.
pub(super) fn are_few(
    inputs: &Inputs,
    tile: &Tile,
    values: &[f32],
    factors: impl Fn(usize) -> f32,
) -> bool {
    let rows = values.chunks_exact(tile.objects.len()).enumerate().step_by(LOOKED_AT);
    let (mut taken, mut all) = (0.0, 0);
    for (i, values) in rows {
        taken += expected(values, factors(i));
        all += values.len();
    }
    let few = if inputs.packed.is_some() { FEW_BESIDE_UNIT } else { FEW };
    taken <= few * all as f32
}

/// Entries of rows, one row after the other.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    /// Longer than what is in use, as is the next.
    columns: Vec<u16>,
    values: Vec<f32>,
    /// Where the entries of each row end.
    ends: Vec<u32>,
    len: usize,
}

impl Entries {
    /// What an entry takes.
    pub(super) const BYTES: usize = size_of::<u16>() + size_of::<f32>();

    pub(super) fn clear(&mut self) {
        self.ends.clear();
        self.len = 0;
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn n_bytes(&self) -> usize {
        self.len * Self::BYTES
    }

    fn row(&self, row: usize) -> (&[u16], &[f32]) {
        let start = row.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        let range = start..self.ends[row] as usize;
        (&self.columns[range.clone()], &self.values[range])
    }

    fn make_room(&mut self, more: usize) {
        if self.columns.len() < self.len + more {
            // By a quarter at a time: what is never used was not forecast either.
            let len = (self.len + more).max(self.columns.len() * 5 / 4);
            self.columns.resize(len, 0);
            self.values.resize(len, 0.0);
        }
    }

    /// Adds a row of nothing.
    pub(super) fn push_none(&mut self) {
        self.ends.push(self.len as u32);
    }

    /// Adds a row: what is taken of `values`.
    pub(super) fn push_taken(&mut self, values: &[f32], factor: f32, start: u32) {
        self.make_room(values.len());
        let room =
            Room { columns: &mut self.columns[self.len..], values: &mut self.values[self.len..] };
        self.len += select(values, factor, start, room);
        self.ends.push(self.len as u32);
    }
}

/// The entries of one tile, by row and by object.
#[derive(Debug, Default)]
pub(crate) struct TileEntries {
    by_row: Entries,
    by_object: Entries,
}

/// What makes gradients of the entries of a row.
pub(super) struct OfRow {
    /// Makes sizes, in units of ε, of values.
    pub(super) factor: f32,
    /// Where its numbers start.
    pub(super) start: u32,
    /// The gradient of ε.
    pub(super) unit: f32,
}

impl TileEntries {
    pub(super) fn clear(&mut self) {
        self.by_row.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.by_row.len()
    }

    /// Adds a row: what is taken of `values`, as gradients.
    pub(super) fn push_values(&mut self, values: &[f32], of_row: &OfRow) {
        let first = self.by_row.len;
        self.by_row.push_taken(values, of_row.factor, of_row.start);
        for value in &mut self.by_row.values[first..self.by_row.len] {
            *value = (*value * of_row.factor).max(1.0) * of_row.unit;
        }
    }

    /// Adds a row: what is taken of a row of `entries`, as gradients.
    pub(super) fn push_entries(&mut self, entries: &Entries, row: usize, of_row: &OfRow) {
        let (columns, values) = entries.row(row);
        let into = &mut self.by_row;
        into.make_room(columns.len());
        for (column, value) in columns.iter().zip(values) {
            let size = value * of_row.factor;
            // Written in any case, and overwritten by the next if it is not taken: no branch.
            into.columns[into.len] = *column;
            into.values[into.len] = size.max(1.0) * of_row.unit;
            into.len += usize::from(is_chosen(size, of_row.start, *column));
        }
        into.ends.push(into.len as u32);
    }

    /// From the gradient of the logits to those of contexts and objects, for the dot product.
    pub(super) fn pull_back(&mut self, inputs: &Inputs, tile: &Tile, grads: &mut ChunkGrads) {
        let dim = inputs.shape.object_dim;
        let vectors = |rows: &Range<usize>| rows.start * dim..rows.end * dim;
        let objects = &inputs.objects[vectors(&tile.objects)];
        let context = &inputs.context[vectors(&tile.rows)];
        let within = tile.objects.start - inputs.shape.chunk(tile.chunk).start;
        self.sort_by_object(tile.objects.len());
        for (i, row) in tile.rows.clone().enumerate() {
            let (columns, values) = self.by_row.row(i);
            let sum = &mut grads.context[row * dim..][..dim];
            add_rows(sum, tile.number == 0, columns, values, objects);
        }
        for object in 0..tile.objects.len() {
            let (rows, values) = self.by_object.row(object);
            let sum = &mut grads.objects[(within + object) * dim..][..dim];
            add_rows(sum, tile.rows.start == 0, rows, values, context);
            grads.bias[within + object] += values.iter().sum::<f32>();
        }
    }

    /// Counts, then deals: entries of an object stay in the order of their rows.
    fn sort_by_object(&mut self, n_objects: usize) {
        let Self { by_row, by_object } = self;
        by_object.clear();
        by_object.make_room(by_row.len);
        by_object.len = by_row.len;
        by_object.ends.resize(n_objects, 0);
        for column in &by_row.columns[..by_row.len] {
            by_object.ends[usize::from(*column)] += 1;
        }
        let mut total = 0;
        for end in &mut by_object.ends {
            // For now where the object's entries start: each moves it on, in the end to their end.
            (*end, total) = (total, total + *end);
        }
        for row in 0..by_row.ends.len() {
            let (columns, values) = by_row.row(row);
            for (column, value) in columns.iter().zip(values) {
                let at = &mut by_object.ends[usize::from(*column)];
                by_object.columns[*at as usize] = row as u16;
                by_object.values[*at as usize] = *value;
                *at += 1;
            }
        }
    }
}

/// The same for one entry, of a row and an object of the chunk.
pub(super) fn pull_back_one(
    inputs: &Inputs,
    (chunk, row, object): (usize, usize, usize),
    grad: f32,
    grads: &mut ChunkGrads,
) {
    let dim = inputs.shape.object_dim;
    let within = object - inputs.shape.chunk(chunk).start;
    add_scaled(
        &mut grads.context[row * dim..][..dim],
        grad,
        &inputs.objects[object * dim..][..dim],
    );
    add_scaled(
        &mut grads.objects[within * dim..][..dim],
        grad,
        &inputs.context[row * dim..][..dim],
    );
    grads.bias[within] += grad;
}
