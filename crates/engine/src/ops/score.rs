//! What do a context and an object score, and how does the gradient of a score go back to them?
//!
//! Everything that scores goes through here: a tile of logits is a block of contexts against a
//! block of objects, and one pair is a tile of one. Which tiles there are, and what is made of
//! their logits, is left to the operations.

use burn::tensor::Tensor;

use super::distance::{self, Distance};
use super::product::{Matrix, Onto, multiply};
use super::simd;

/// A score of two vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairScore {
    /// Their dot product.
    Dot,
    /// Minus their distance.
    Minus(Distance),
}

/// One side of a tile, contexts or objects: its vectors, and where their gradient goes.
pub(crate) struct Side<'a> {
    pub(crate) vectors: Matrix<'a>,
    pub(crate) grad: &'a mut [f32],
    pub(crate) onto: Onto,
}

impl PairScore {
    /// The score of one pair.
    pub(super) fn pair(self, context: &[f32], object: &[f32]) -> f32 {
        match self {
            Self::Dot => simd::dot(context, object),
            Self::Minus(distance) => -distance::of_pair(distance, context, object),
        }
    }

    /// The logits of a tile, `[rows of contexts, rows of objects]`.
    pub(super) fn logits(self, out: &mut [f32], onto: Onto, context: Matrix, objects: Matrix) {
        match self {
            Self::Dot => multiply(out, onto, context, objects.transposed()),
            Self::Minus(distance) => distance::subtract(distance, out, onto, context, objects),
        }
    }

    /// From the gradient of a tile's logits, which is used up, to those of its two sides.
    pub(super) fn pull_back(self, grad_logits: &mut [f32], context: Side, objects: Side) {
        match self {
            Self::Dot => {
                let grad_logits = Matrix::rows_of(grad_logits, objects.vectors.rows);
                multiply(context.grad, context.onto, grad_logits, objects.vectors);
                multiply(objects.grad, objects.onto, grad_logits.transposed(), context.vectors);
            }
            Self::Minus(distance) => distance::pull_back(distance, grad_logits, context, objects),
        }
    }

    /// Scores of all pairs in plain tensor operations, `[B, D]` and `[N, D]` → `[B, N]`.
    pub(super) fn reference(self, context: Tensor<2>, objects: Tensor<2>) -> Tensor<2> {
        let ([rows, dim], width) = (context.dims(), objects.dims()[0]);
        match self {
            Self::Dot => context.matmul(objects.transpose()),
            Self::Minus(_) => {
                let context = context.reshape([rows, 1, dim]).repeat_dim(1, width);
                let objects = objects.reshape([1, width, dim]).repeat_dim(0, rows);
                let pairs = [rows * width, dim];
                self.of_rows(context.reshape(pairs), objects.reshape(pairs)).reshape([rows, width])
            }
        }
    }

    /// Scores of the rows of one tensor with those of another, in plain tensor operations: twice
    /// `[A, D]` → `[A]`.
    pub(crate) fn of_rows(self, context: Tensor<2>, objects: Tensor<2>) -> Tensor<1> {
        /// Under a root, whose slope at zero is infinite; with it, the gradient there is zero.
        const FLOOR: f64 = 1e-30;
        let [n, dim] = context.dims();
        let scores = match self {
            Self::Dot => (context * objects).sum_dim(1),
            Self::Minus(Distance::L1) => -(context - objects).abs().sum_dim(1),
            Self::Minus(Distance::L2) => {
                -(context - objects).square().sum_dim(1).add_scalar(FLOOR).sqrt()
            }
            Self::Minus(Distance::Modulus) => {
                let squares = (context - objects).square().reshape([n, 2, dim / 2]).sum_dim(1);
                -squares.add_scalar(FLOOR).sqrt().reshape([n, dim / 2]).sum_dim(1)
            }
        };
        scores.reshape([n])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    pub(crate) const ALL: [PairScore; 4] = [
        PairScore::Dot,
        PairScore::Minus(Distance::L1),
        PairScore::Minus(Distance::L2),
        PairScore::Minus(Distance::Modulus),
    ];

    /// The score of one pair by its formula.
    pub(crate) fn formula(score: PairScore, context: &[f64], object: &[f64]) -> f64 {
        let pairs = context.iter().zip(object).map(|(c, o)| (*c, *o));
        let differences: Vec<f64> = pairs.clone().map(|(c, o)| c - o).collect();
        let half = differences.len() / 2;
        match score {
            PairScore::Dot => pairs.map(|(c, o)| c * o).sum(),
            PairScore::Minus(Distance::L1) => -differences.iter().map(|d| d.abs()).sum::<f64>(),
            PairScore::Minus(Distance::L2) => {
                -differences.iter().map(|d| d * d).sum::<f64>().sqrt()
            }
            PairScore::Minus(Distance::Modulus) => {
                -(0..half).map(|i| differences[i].hypot(differences[half + i])).sum::<f64>()
            }
        }
    }

    /// Its gradient by the context; by the object it is the same with the two exchanged.
    fn gradient(score: PairScore, context: &[f32], object: &[f32]) -> Vec<f64> {
        let (context, object) = (wide(context), wide(object));
        let difference = |i: usize| context[i] - object[i];
        let over = |x: f64, y: f64| if y == 0.0 { 0.0 } else { x / y };
        let dim = context.len();
        let norm = (0..dim).map(|i| difference(i) * difference(i)).sum::<f64>().sqrt();
        let derivative = |i: usize| match score {
            PairScore::Dot => object[i],
            PairScore::Minus(Distance::L1) => -over(difference(i), difference(i).abs()),
            PairScore::Minus(Distance::L2) => -over(difference(i), norm),
            PairScore::Minus(Distance::Modulus) => {
                let other = (i + dim / 2) % dim;
                -over(difference(i), difference(i).hypot(difference(other)))
            }
        };
        (0..dim).map(derivative).collect()
    }

    fn wide(values: &[f32]) -> Vec<f64> {
        values.iter().map(|x| f64::from(*x)).collect()
    }

    fn draw(n: usize, seed: u64) -> Vec<f32> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..n).map(|_| rng.random_range(-1.0..1.0)).collect()
    }

    /// Sizes around every edge of rows, objects and coordinates that are worked on together.
    const SIZES: [(usize, usize, usize); 5] =
        [(1, 1, 2), (3, 5, 6), (9, 40, 16), (4, 16, 34), (70, 33, 200)];

    #[test]
    fn tiles_and_pairs_equal_their_formula() {
        for (score, (rows, width, dim)) in ALL.into_iter().flat_map(|s| SIZES.map(|size| (s, size)))
        {
            let (context, objects) = (draw(rows * dim, 1), draw(width * dim, 2));
            let mut replaced = vec![7.0; rows * width];
            let mut added = vec![7.0; rows * width];
            let sides = (Matrix::rows_of(&context, dim), Matrix::rows_of(&objects, dim));
            score.logits(&mut replaced, Onto::Replace, sides.0, sides.1);
            score.logits(&mut added, Onto::Add, sides.0, sides.1);
            for (place, logit) in replaced.iter().enumerate() {
                let context = &context[place / width * dim..][..dim];
                let object = &objects[place % width * dim..][..dim];
                let expected = formula(score, &wide(context), &wide(object));
                // Rounding of sums of up to 200 terms of order one.
                for found in [*logit, added[place] - 7.0, score.pair(context, object)] {
                    let off = (f64::from(found) - expected).abs();
                    assert!(off < 2e-5 * (1.0 + expected.abs()), "{score:?}: {found}, {expected}");
                }
            }
        }
    }

    #[test]
    fn gradients_of_a_tile_equal_their_formula_also_at_distance_zero() {
        for (score, (rows, width, dim)) in ALL.into_iter().flat_map(|s| SIZES.map(|size| (s, size)))
        {
            let (mut context, objects) = (draw(rows * dim, 3), draw(width * dim, 4));
            // The first context is the first object, and half of the last is.
            context[..dim].copy_from_slice(&objects[..dim]);
            let last = context.len() - dim / 2;
            context[last..].copy_from_slice(&objects[dim - dim / 2..dim]);
            let weights = draw(rows * width, 5);
            let mut grad_context = vec![0.25; rows * dim];
            let mut grad_objects = vec![f32::NAN; width * dim];
            score.pull_back(
                &mut weights.clone(),
                Side {
                    vectors: Matrix::rows_of(&context, dim),
                    grad: &mut grad_context,
                    onto: Onto::Add,
                },
                Side {
                    vectors: Matrix::rows_of(&objects, dim),
                    grad: &mut grad_objects,
                    onto: Onto::Replace,
                },
            );
            let mut expected_context = vec![0.25; rows * dim];
            let mut expected_objects = vec![0.0; width * dim];
            for (place, weight) in weights.iter().enumerate() {
                let (r, o) = (place / width * dim, place % width * dim);
                let (context, object) = (&context[r..][..dim], &objects[o..][..dim]);
                let by_context = gradient(score, context, object);
                let by_object = gradient(score, object, context);
                for i in 0..dim {
                    expected_context[r + i] += f64::from(*weight) * by_context[i];
                    expected_objects[o + i] += f64::from(*weight) * by_object[i];
                }
            }
            let found = grad_context.iter().chain(&grad_objects);
            for (found, expected) in found.zip(expected_context.iter().chain(&expected_objects)) {
                let off = (f64::from(*found) - expected).abs();
                assert!(off < 2e-5 * (1.0 + expected.abs()), "{score:?}: {found}, {expected}");
            }
        }
    }
}
