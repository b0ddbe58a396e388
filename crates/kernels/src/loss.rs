//! Losses over all objects, fused: what does a batch lose, and which way is down?
//!
//! Those of softmaxes and their mixtures ([`softmax`]), and those of sigmoids and theirs ([`sigmoid`]),
//! with sparse weighted answers. A plain softmax or sigmoid is a mixture of one component.
//!
//! Which tensors the values are of, and what becomes of the gradients, is left to the engine.

mod answers;
mod inputs;
mod plan;
#[cfg(any(test, feature = "samples"))]
pub mod samples;
mod saved_tiles;
pub mod sigmoid;
pub mod softmax;
mod sparse;
#[cfg(test)]
mod tests;
mod work;

pub use answers::BatchAnswers;
pub use inputs::{Grads, Inputs, Shortcuts, SoftmaxOptions};
pub use sparse::Thinning;
pub use work::Work;

use std::sync::{Mutex, PoisonError};

use crate::pair_score::PairScore;
use crate::product::Precision;
use crate::tiles::Shape;
use crate::tiles::amx::{PackedContexts, PackedTile};

/// Buffers that one training step leaves to the next, and a count of what was computed.
#[derive(Debug)]
pub struct Workspace {
    /// Of softmaxes and their mixtures.
    pub softmax: softmax::Workspace,
    /// Of sigmoids and their mixtures.
    pub sigmoid: sigmoid::Workspace,
    work: Mutex<Work>,
}

impl Workspace {
    /// One that saves tiles of logits up to `saved_bytes`; the rest is computed twice.
    pub fn new(saved_bytes: usize) -> Self {
        Self {
            softmax: softmax::Workspace::new(saved_bytes),
            sigmoid: sigmoid::Workspace::default(),
            work: Mutex::default(),
        }
    }

    /// Counts what was computed.
    pub fn count(&self, work: Work) {
        self.with_work(|sum| *sum = sum.merge(work));
    }

    /// What was computed since it was last asked for.
    pub fn take_work(&self) -> Work {
        self.with_work(std::mem::take)
    }

    fn with_work<T>(&self, change: impl FnOnce(&mut Work) -> T) -> T {
        change(&mut self.work.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Bytes that a step of this size takes beyond its inputs and gradients.
    pub fn forecast(shape: &Shape, score: PairScore, saved_bytes: usize) -> usize {
        let tiles = (shape.rows() * shape.n_objects() * size_of::<f32>()).min(saved_bytes);
        let (scratch, weights) = score.n_scratch_and_weights();
        // A tile, and entries of another by row and by object; the gradient of the rows, and for
        // each of them its sum, a maximum and the end of its entries in every tile.
        let of_row = shape.context_dim + 3 + 2 * shape.tiles_per_chunk();
        let per_chunk = 2 * shape.tile_size() + shape.rows() * of_row + weights;
        let at_work = rayon::current_num_threads().min(shape.n_chunks());
        let packed = match score {
            PairScore::Dot if Precision::fastest() == Precision::SplitBf16 => {
                PackedContexts::n_bytes(shape) + shape.n_chunks() * PackedTile::n_bytes(shape)
            }
            _ => 0,
        };
        tiles + packed + (shape.n_chunks() * per_chunk + at_work * scratch) * size_of::<f32>()
    }
}
