//! Log-probabilities: how likely is every object, for a block of queries?
//!
//! Tile by tile for a block of queries, whose logits are exponentiated and summed while they are in
//! cache; when all sums are there, tiles are normalised and mixed to rows, and a row is used while it
//! is in cache, too. Nothing is differentiated here: losses have their own kernels.
//!
//! Objects may be cut into ranges: a [`Part`] has the logits of its own and their sums; when the sums
//! of all parts have been merged, each gives the log-probabilities of its objects.

mod mixing;
mod scored;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use crate::log_sum::LogSum;
use crate::pool::Pool;
use crate::product::Precision;
use crate::tiles::LogitInputs;
use mixing::Mixing;
use scored::{Block, Scored, TILE, Tiles};

/// What makes probabilities of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probability {
    /// Those of all objects sum to one, for any number of components.
    Softmax,
    /// Each object has its own.
    Sigmoid,
}

/// What log-probabilities are computed from.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// What the logits of all components are made of.
    pub logits: LogitInputs<'a>,
    /// log π of the gates that components are mixed with, `[B, K]`; they sum to one.
    pub log_prior: &'a [f32],
    /// What makes probabilities of them.
    pub probability: Probability,
}

/// What `map` makes of each query's place in the batch and its row, the log-probabilities of every
/// object; in the order of the queries. The objects at hand are all.
pub fn map<T: Send>(
    inputs: &Inputs,
    precision: Precision,
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    let shape = &inputs.logits.shape;
    let block_len = block_len(inputs);
    if shape.queries <= block_len {
        // Packing objects would take longer than multiplying them.
        let part = Part::of(inputs);
        let rows = part.log_probs(&part.sums());
        let rows = rows.par_chunks_exact(shape.n_objects().max(1)).enumerate();
        return rows.map(|(query, row)| map(query, row)).collect();
    }
    let scored = Scored::new(inputs, precision);
    // As many as threads: what rayon would make for each, it makes for every part of the work.
    let pool = Pool::<Tiles>::default();
    let rows = block_len * shape.components;
    let contexts = inputs.logits.context.par_chunks(rows * shape.context_dim);
    let blocks = contexts.zip(inputs.log_prior.par_chunks(rows)).enumerate();
    let mapped: Vec<Vec<T>> = blocks
        .map(|(number, (context, log_prior))| {
            let block = Block { context, log_prior };
            let first = number * block_len;
            pool.with(|tiles| scored.map_block(block, tiles, |query, row| map(first + query, row)))
        })
        .collect();
    mapped.into_iter().flatten().collect()
}

/// Queries of one block.
fn block_len(inputs: &Inputs) -> usize {
    /// Rows of one block, at most.
    const ROWS: usize = 128;
    /// Floats of one thread's logits, at most, unless a single query has more; fewer rows where
    /// objects are many.
    const FLOATS: usize = 16 * 1024 * 1024;
    let shape = &inputs.logits.shape;
    (ROWS.min(FLOATS / shape.n_objects().max(1)) / shape.components).max(1)
}

/// A block of queries against some objects: logits, which are not normalised yet.
pub struct Part<'a> {
    scored: Scored<'a>,
    tiles: Tiles,
}

impl<'a> Part<'a> {
    /// Of all queries at hand, by all threads. All of their logits are in memory, so there should be
    /// no more than a few hundred.
    pub fn of(inputs: &'a Inputs<'a>) -> Self {
        let scored = Scored::new(inputs, Precision::F32);
        let tiles = scored.fill_by_all_threads(Block::all(inputs));
        Self { scored, tiles }
    }

    /// Σ exp z over these objects for each row, a component of a query; to be merged with those of
    /// all other parts, row by row. Nothing needs to be summed for sigmoids, whose sums are empty.
    pub fn sums(&self) -> Vec<LogSum> {
        let n_rows = self.scored.inputs.log_prior.len();
        match self.scored.inputs.probability {
            Probability::Softmax => {
                (0..n_rows).map(|row| self.tiles.sum_of_row(row, n_rows)).collect()
            }
            Probability::Sigmoid => vec![LogSum::EMPTY; n_rows],
        }
    }

    /// The log-probabilities of these objects, row after row, `[B, n]`; `sums` are of all objects.
    pub fn log_probs(&self, sums: &[LogSum]) -> Vec<f32> {
        let inputs = self.scored.inputs;
        let (queries, n_objects) = (inputs.logits.shape.queries, inputs.logits.shape.n_objects());
        let block = Block::all(inputs);
        let mut out = vec![0.0; queries * n_objects];
        for (query, out) in out.chunks_exact_mut(n_objects.max(1)).enumerate() {
            let mixing = Mixing::of(&self.scored, &self.tiles, block, query, sums);
            out.par_chunks_mut(TILE).enumerate().for_each(|(tile, out)| mixing.fill(tile, out));
        }
        out
    }
}
