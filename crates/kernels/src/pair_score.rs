//! Pair scores: what do a context and an object score, and how does the gradient of a score go back
//! to them?
//!
//! Everything that scores goes through here: a tile of logits is a block of contexts against a
//! block of objects, and one pair is a tile of one. Which tiles there are, and what is made of
//! their logits, is left to the operations.

use crate::distance::{self, Distance};
use crate::mixtape::Mixtape;
use crate::mlp::Mlp;
use crate::pointwise::Pointwise;
use crate::product::{Matrix, Onto, multiply};
use crate::simd;

/// A score of two vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairScore {
    /// Their dot product.
    Dot,
    /// Minus their distance.
    Minus(Distance),
    /// A function of their dot product.
    Over(Pointwise),
    /// Dot products with several vectors, mixed.
    Mixed(Mixtape),
    /// What the layers of an MLP make of their sum.
    Through(Mlp),
}

/// One side of a tile, contexts or objects: its vectors, and where their gradient goes.
pub struct Side<'a> {
    /// Its vectors, one per row.
    pub vectors: Matrix<'a>,
    /// Their gradient, shaped as they are.
    pub grad: &'a mut [f32],
    /// What happens to the values that stand in `grad`.
    pub onto: Onto,
}

/// What a score has learned, and where its gradient is added.
pub struct Learned<'a> {
    /// What it has learned; empty for most scores.
    pub weights: &'a [f32],
    /// Its gradient, which is added to.
    pub grad: &'a mut [f32],
}

impl PairScore {
    /// The score of one pair.
    pub fn pair(self, weights: &[f32], context: &[f32], object: &[f32]) -> f32 {
        match self {
            Self::Dot => simd::dot(context, object),
            Self::Minus(distance) => -distance::of_pair(distance, context, object),
            Self::Over(function) => {
                let mut score = [simd::dot(context, object)];
                function.apply(weights, &mut score);
                score[0]
            }
            Self::Mixed(mixtape) => mixtape.of_pair(context, object),
            Self::Through(mlp) => mlp.of_pair(weights, context, object),
        }
    }

    /// Floats that a thread needs beside a tile, and those that are learned, where they are many.
    pub fn n_scratch_and_weights(self) -> (usize, usize) {
        match self {
            Self::Through(mlp) => (mlp.n_scratch(), mlp.n_weights()),
            Self::Dot | Self::Minus(_) | Self::Over(_) | Self::Mixed(_) => (0, 0),
        }
    }

    /// The logits of a tile, `[rows of contexts, rows of objects]`.
    pub fn logits(
        self,
        weights: &[f32],
        out: &mut [f32],
        onto: Onto,
        context: Matrix,
        objects: Matrix,
    ) {
        match self {
            Self::Dot => multiply(out, onto, context, objects.transposed()),
            Self::Minus(distance) => distance::subtract(distance, out, onto, context, objects),
            Self::Over(function) => {
                let bias = (onto == Onto::Add).then(|| out.to_vec());
                multiply(out, Onto::Replace, context, objects.transposed());
                function.apply(weights, out);
                if let Some(bias) = bias {
                    simd::add(out, &bias);
                }
            }
            Self::Mixed(mixtape) => mixtape.logits(out, onto, context, objects),
            Self::Through(mlp) => mlp.logits(weights, out, onto, context, objects),
        }
    }

    /// From the gradient of a tile's logits, which is used up, to those of its two sides.
    pub fn pull_back(
        self,
        learned: Learned,
        grad_logits: &mut [f32],
        context: Side,
        objects: Side,
    ) {
        match self {
            Self::Dot => {
                let grad_logits = Matrix::rows_of(grad_logits, objects.vectors.rows);
                multiply(context.grad, context.onto, grad_logits, objects.vectors);
                multiply(objects.grad, objects.onto, grad_logits.transposed(), context.vectors);
            }
            Self::Minus(distance) => distance::pull_back(distance, grad_logits, context, objects),
            Self::Over(function) => {
                let mut products = vec![0.0; grad_logits.len()];
                let (left, right) = (context.vectors, objects.vectors.transposed());
                multiply(&mut products, Onto::Replace, left, right);
                function.pull_back(learned, &mut products, grad_logits);
                let none = Learned { weights: &[], grad: &mut [] };
                Self::Dot.pull_back(none, grad_logits, context, objects);
            }
            Self::Mixed(mixtape) => mixtape.pull_back(grad_logits, context, objects),
            Self::Through(mlp) => mlp.pull_back(learned, grad_logits, context, objects),
        }
    }
}

#[cfg(any(test, feature = "samples"))]
pub mod samples;
#[cfg(test)]
mod tests;
