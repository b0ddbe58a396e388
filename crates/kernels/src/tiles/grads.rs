//! Gradients of what logits are made of: of a chunk of objects, and of all that are scored.

use std::ops::Range;

use rayon::prelude::*;

use crate::simd;

/// Gradients by contexts, objects, biases and what a score has learned.
#[derive(Debug, Clone, PartialEq)]
pub struct LogitGrads {
    /// `[B·K, C]`.
    pub context: Vec<f32>,
    /// Of the objects that were scored, `[n, D]`.
    pub objects: Vec<f32>,
    /// `[n]`, where objects have a bias.
    pub bias: Option<Vec<f32>>,
    /// Of what the score has learned; empty for most.
    pub weights: Vec<f32>,
}

impl LogitGrads {
    /// Those of these objects and of the range of objects that comes `next`.
    #[must_use]
    pub fn merge(mut self, next: Self) -> Self {
        simd::add(&mut self.context, &next.context);
        simd::add(&mut self.weights, &next.weights);
        self.objects.extend(next.objects);
        self.bias = self.bias.zip(next.bias).map(|(bias, next)| [bias, next].concat());
        self
    }

    /// Those of `factor` times the loss.
    pub fn scale(&mut self, factor: f32) {
        let Self { context, objects, bias, weights } = self;
        for values in [context, objects, weights].into_iter().chain(bias) {
            scale(values, factor);
        }
    }
}

/// Multiplies all values by `factor`.
pub(crate) fn scale(values: &mut [f32], factor: f32) {
    /// Floats that one thread scales at a time.
    const PIECE: usize = 16 * 1024;
    values.par_chunks_mut(PIECE).for_each(|piece| simd::scale(piece, factor, 0.0));
}

/// Where the gradients of a chunk's tiles go.
pub(crate) struct ChunkGrads<'a> {
    /// The objects of the chunk, counted from the first that is scored.
    pub(crate) range: Range<usize>,
    /// Of all rows, by this chunk alone.
    pub(crate) context: &'a mut [f32],
    /// Of what the score has learned, by this chunk alone.
    pub(crate) weights: &'a mut [f32],
    /// Of the objects of the chunk.
    pub(crate) objects: &'a mut [f32],
    /// Of the biases of the chunk's objects.
    pub(crate) bias: &'a mut [f32],
}
