//! Sparse gradients: which entries are multiplied, where most of them are next to nothing?
//!
//! Once a model has learned a little, nearly all objects have next to no part in the gradient of a
//! query. An entry above ε is taken as it is; of those below, each is taken with probability
//! entry/ε, at ε. So every gradient made of them is right on average, and a few entries in a hundred
//! are enough: the unbiased sparsification of Wangni et al. (2018), here of the gradient of logits,
//! where Cut Cross-Entropy (Wijmans et al. 2024) leaves out what is below a threshold. What answers
//! add is always taken.
//!
//! Which are taken is decided by a number for every entry ([`select`]) that depends on nothing but
//! seed, row and object: an entry that is not taken at some size is not at any smaller one.

use std::ops::Range;

use crate::product::Onto;
use crate::simd::add_scaled;
use crate::simd::select::{Chosen, ChosenRows, add_rows, is_chosen, select};
use crate::tiles::{ChunkGrads, LogitInputs, Shape, Tile};

/// The part of a chunk's entries up to which sparse products are faster than dense ones.
pub(super) const FEW: f32 = 0.25;
/// The same where dense products are made by AMX.
pub(super) const FEW_BESIDE_AMX: f32 = 0.05;

/// Below which size entries are left to chance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thinning {
    /// ε, in units of an answer's weight.
    pub below: f32,
    /// What chance depends on.
    pub seed: u64,
}

impl Thinning {
    /// Where the numbers of a row start in a tile. They go on from the id of its first object, so
    /// another cut of all objects into parts is another draw.
    pub(super) fn start(self, row: usize, shape: &Shape, tile: &Tile) -> u32 {
        let first_id = shape.objects.start + tile.objects.start;
        // The finaliser of SplitMix64, a permutation in which every bit depends on every other.
        let mut x = self.seed ^ ((row as u64) << 32 | first_id as u64);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 32) as u32
    }
}

/// Entries of rows, one row after the other.
#[derive(Debug, Default)]
pub(super) struct Entries {
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
            Chosen { columns: &mut self.columns[self.len..], values: &mut self.values[self.len..] };
        self.len += select(values, factor, start, room);
        self.ends.push(self.len as u32);
    }
}

/// The entries of one tile, by row and by object.
#[derive(Debug, Default)]
pub(super) struct TileEntries {
    by_row: Entries,
    by_object: Entries,
}

/// What makes gradients of the entries of a row.
pub(super) struct RowThinning {
    /// Makes sizes, in units of ε, of values.
    pub(super) factor: f32,
    /// Where its numbers start.
    pub(super) start: u32,
    pub(super) grad_of_epsilon: f32,
}

impl TileEntries {
    pub(super) fn clear(&mut self) {
        self.by_row.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.by_row.len()
    }

    /// Adds a row: what is taken of `values`, as gradients.
    pub(super) fn push_values(&mut self, values: &[f32], thinning: &RowThinning) {
        let first = self.by_row.len;
        self.by_row.push_taken(values, thinning.factor, thinning.start);
        for value in &mut self.by_row.values[first..self.by_row.len] {
            *value = (*value * thinning.factor).max(1.0) * thinning.grad_of_epsilon;
        }
    }

    /// Adds a row: what is taken of a row of `entries`, as gradients.
    pub(super) fn push_entries(&mut self, entries: &Entries, row: usize, thinning: &RowThinning) {
        let (columns, values) = entries.row(row);
        let into = &mut self.by_row;
        into.make_room(columns.len());
        for (column, value) in columns.iter().zip(values) {
            let size = value * thinning.factor;
            // Written in any case, and overwritten by the next if it is not taken: no branch.
            into.columns[into.len] = *column;
            into.values[into.len] = size.max(1.0) * thinning.grad_of_epsilon;
            into.len += usize::from(is_chosen(size, thinning.start, *column));
        }
        into.ends.push(into.len as u32);
    }

    /// From the gradient of the logits to those of contexts and objects, for the dot product.
    pub(super) fn pull_back(&mut self, inputs: &LogitInputs, tile: &Tile, grads: &mut ChunkGrads) {
        let dim = inputs.shape.object_dim;
        let vectors = |rows: &Range<usize>| rows.start * dim..rows.end * dim;
        let objects = &inputs.objects[vectors(&tile.objects)];
        let context = &inputs.context[vectors(&tile.rows)];
        let within = tile.objects.start - grads.range.start;
        self.sort_by_object(tile.objects.len());
        for (i, row) in tile.rows.clone().enumerate() {
            let (columns, values) = self.by_row.row(i);
            let sum = &mut grads.context[row * dim..][..dim];
            let onto = if tile.number == 0 { Onto::Replace } else { Onto::Add };
            add_rows(sum, onto, ChosenRows { rows: columns, factors: values, table: objects });
        }
        for object in 0..tile.objects.len() {
            let (rows, values) = self.by_object.row(object);
            let sum = &mut grads.objects[(within + object) * dim..][..dim];
            let onto = if tile.rows.start == 0 { Onto::Replace } else { Onto::Add };
            add_rows(sum, onto, ChosenRows { rows, factors: values, table: context });
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

/// One entry of the gradient of logits.
pub(super) struct Entry {
    pub(super) row: usize,
    /// By its place among the objects that are scored.
    pub(super) object: usize,
    pub(super) grad: f32,
}

impl Entry {
    /// From the gradient of one logit, of an object of the chunk, to those of its context and object,
    /// for the dot product.
    pub(super) fn pull_back(&self, inputs: &LogitInputs, grads: &mut ChunkGrads) {
        let Self { row, object, grad } = *self;
        let dim = inputs.shape.object_dim;
        let within = object - grads.range.start;
        add_scaled(&mut grads.context[row * dim..][..dim], grad, inputs.vector_of(object));
        add_scaled(&mut grads.objects[within * dim..][..dim], grad, inputs.context_of(row));
        grads.bias[within] += grad;
    }
}
