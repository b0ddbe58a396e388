//! What do a context and an object score, and how does the gradient of a score go back to them?
//!
//! Everything that scores goes through here: a tile of logits is a block of contexts against a
//! block of objects, and one pair is a tile of one. Which tiles there are, and what is made of
//! their logits, is left to the operations.

use burn::tensor::Tensor;

use super::distance::{self, Distance};
use super::mixtape::Mixtape;
use super::mlp::Mlp;
use super::pointwise::Pointwise;
use super::product::{Matrix, Onto, multiply};
use super::simd;

/// A score of two vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairScore {
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
pub(crate) struct Side<'a> {
    pub(crate) vectors: Matrix<'a>,
    pub(crate) grad: &'a mut [f32],
    pub(crate) onto: Onto,
}

/// What a score has learned, and where its gradient is added.
pub(crate) struct Learned<'a> {
    pub(crate) weights: &'a [f32],
    pub(crate) grad: &'a mut [f32],
}

impl PairScore {
    /// The score of one pair.
    pub(super) fn pair(self, weights: &[f32], context: &[f32], object: &[f32]) -> f32 {
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
    pub(super) fn n_room_and_weights(self) -> (usize, usize) {
        match self {
            Self::Through(mlp) => (mlp.n_room(), mlp.n_weights()),
            Self::Dot | Self::Minus(_) | Self::Over(_) | Self::Mixed(_) => (0, 0),
        }
    }

    /// The logits of a tile, `[rows of contexts, rows of objects]`.
    pub(super) fn logits(
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
    pub(super) fn pull_back(
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

    /// Scores of all pairs in plain tensor operations, `[B, D]` and `[N, D]` → `[B, N]`.
    pub(super) fn reference(
        self,
        weights: Option<Tensor<1>>,
        context: Tensor<2>,
        objects: Tensor<2>,
    ) -> Tensor<2> {
        let ([rows, dim], width) = (context.dims(), objects.dims()[0]);
        match self {
            Self::Dot => context.matmul(objects.transpose()),
            Self::Minus(_) | Self::Through(_) => {
                let context = context.reshape([rows, 1, dim]).repeat_dim(1, width);
                let objects = objects.reshape([1, width, dim]).repeat_dim(0, rows);
                let pairs = [rows * width, dim];
                let scores = self.of_rows(weights, context.reshape(pairs), objects.reshape(pairs));
                scores.reshape([rows, width])
            }
            Self::Over(function) => {
                function.reference(weights, context.matmul(objects.transpose()))
            }
            Self::Mixed(mixtape) => mixtape.reference(context, objects),
        }
    }

    /// Scores of the rows of one tensor with those of another, in plain tensor operations: twice
    /// `[A, D]` → `[A]`.
    pub(crate) fn of_rows(
        self,
        weights: Option<Tensor<1>>,
        context: Tensor<2>,
        objects: Tensor<2>,
    ) -> Tensor<1> {
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
            Self::Over(function) => function.reference(weights, (context * objects).sum_dim(1)),
            Self::Mixed(mixtape) => mixtape.of_rows(context, objects),
            Self::Through(mlp) => mlp.of_rows(weights, context, objects),
        };
        scores.reshape([n])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    pub(crate) const ALL: [PairScore; 10] = [
        PairScore::Dot,
        PairScore::Minus(Distance::L1),
        PairScore::Minus(Distance::L2),
        PairScore::Minus(Distance::Modulus),
        PairScore::Over(Pointwise::Sigsoftmax),
        PairScore::Over(Pointwise::Monotone),
        PairScore::Mixed(Mixtape { components: 2, dim: 3, gate_dim: 2 }),
        PairScore::Mixed(Mixtape { components: 5, dim: 4, gate_dim: 3 }),
        PairScore::Through(Mlp { widths: [5, 0, 0, 0] }),
        PairScore::Through(Mlp { widths: [6, 4, 3, 0] }),
    ];

    impl PairScore {
        /// Some numbers that such a score could have learned.
        pub(crate) fn some_weights(self) -> Vec<f32> {
            match self {
                // Pieces are 0.4 wide, so that products of small vectors are in several.
                Self::Over(Pointwise::Monotone) => {
                    draw(100, 6).iter().map(|x| 1.0 + 0.8 * x).collect()
                }
                Self::Through(mlp) => draw(mlp.n_weights(), 7),
                _ => Vec::new(),
            }
        }

        /// How wide contexts and objects are; `dim` where there is a choice.
        pub(crate) fn widths(self, dim: usize) -> (usize, usize) {
            match self {
                Self::Mixed(mixtape) => (mixtape.context_dim(), mixtape.object_dim()),
                Self::Through(mlp) => (mlp.widths[0], mlp.widths[0]),
                _ => (dim, dim),
            }
        }
    }

    /// The score of one pair by its formula.
    pub(crate) fn formula(
        score: PairScore,
        weights: &[f64],
        context: &[f64],
        object: &[f64],
    ) -> f64 {
        let pairs = context.iter().zip(object).map(|(c, o)| (*c, *o));
        let differences: Vec<f64> = pairs.clone().map(|(c, o)| c - o).collect();
        let half = differences.len() / 2;
        let dot = || pairs.clone().map(|(c, o)| c * o).sum::<f64>();
        match score {
            PairScore::Dot => dot(),
            PairScore::Minus(Distance::L1) => -differences.iter().map(|d| d.abs()).sum::<f64>(),
            PairScore::Minus(Distance::L2) => {
                -differences.iter().map(|d| d * d).sum::<f64>().sqrt()
            }
            PairScore::Minus(Distance::Modulus) => {
                -(0..half).map(|i| differences[i].hypot(differences[half + i])).sum::<f64>()
            }
            PairScore::Over(Pointwise::Sigsoftmax) => dot() - (-dot()).exp().ln_1p(),
            PairScore::Over(Pointwise::Monotone) => {
                // From zero to the product, piece by piece.
                let (z, width) = (dot(), 40.0 / weights.len() as f64);
                let way = |piece: usize| {
                    let from = -20.0 + piece as f64 * width;
                    z.max(0.0).clamp(from, from + width) - z.min(0.0).clamp(from, from + width)
                };
                let rise = |(piece, slope): (usize, &f64)| slope * way(piece);
                weights.iter().enumerate().map(rise).sum::<f64>() * z.signum()
            }
            PairScore::Mixed(Mixtape { components, dim, gate_dim }) => {
                let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
                let (vectors, rest) = context.split_at(components * dim);
                let (gates, shifts) = rest.split_at((components - 1) * gate_dim);
                let (vector, rest) = object.split_at(dim);
                let (object_gate, object_shifts) = rest.split_at(gate_dim);
                let gate = |j: usize| {
                    let own = dot(&gates[j * gate_dim..][..gate_dim], object_gate);
                    1.0 / (1.0 + (-own - shifts[j] - object_shifts[j]).exp())
                };
                let weight = |leaf: usize| {
                    let (mut node, mut weight) = (components - 1 + leaf, 1.0);
                    while node > 0 {
                        let parent = (node - 1) / 2;
                        let is_left = node == 2 * parent + 1;
                        weight *= if is_left { gate(parent) } else { 1.0 - gate(parent) };
                        node = parent;
                    }
                    weight
                };
                let component = |k: usize| weight(k) * dot(&vectors[k * dim..][..dim], vector);
                (0..components).map(component).sum()
            }
            PairScore::Through(mlp) => {
                let mut values: Vec<f64> = pairs.map(|(c, o)| c + o).collect();
                let mut rest = weights;
                for (inputs, outputs) in mlp.shapes() {
                    let (matrix, after) = rest.split_at(inputs * outputs);
                    let (bias, after) = after.split_at(outputs);
                    let output = |(j, bias): (usize, &f64)| {
                        let terms = values.iter().zip(matrix.chunks_exact(outputs));
                        bias + terms.map(|(x, row)| x.max(0.0) * row[j]).sum::<f64>()
                    };
                    values = bias.iter().enumerate().map(output).collect();
                    rest = after;
                }
                values[0]
            }
        }
    }

    /// The derivatives of a score by all of `at`, at a place without kinks.
    fn slopes(at: &[f64], score: impl Fn(&[f64]) -> f64) -> Vec<f64> {
        const STEP: f64 = 1e-5;
        let slope = |i: usize| {
            let moved = |by: f64| {
                let mut at = at.to_vec();
                at[i] += by;
                score(&at)
            };
            (moved(STEP) - moved(-STEP)) / (2.0 * STEP)
        };
        (0..at.len()).map(slope).collect()
    }

    /// The derivatives of a distance by its first vector; zero where they agree.
    fn slopes_of_distance(distance: Distance, a: &[f64], b: &[f64]) -> Vec<f64> {
        let over = |x: f64, by: f64| if by == 0.0 { 0.0 } else { x / by };
        let difference = |i: usize| a[i] - b[i];
        let norm = (0..a.len()).map(|i| difference(i) * difference(i)).sum::<f64>().sqrt();
        let slope = |i: usize| match distance {
            Distance::L1 => over(difference(i), difference(i).abs()),
            Distance::L2 => over(difference(i), norm),
            Distance::Modulus => {
                let other = (i + a.len() / 2) % a.len();
                over(difference(i), difference(i).hypot(difference(other)))
            }
        };
        (0..a.len()).map(slope).collect()
    }

    /// The derivatives of a score by context, object and weights.
    fn gradient(
        score: PairScore,
        weights: &[f64],
        context: &[f64],
        object: &[f64],
    ) -> [Vec<f64>; 3] {
        if let PairScore::Minus(distance) = score {
            let by_context = slopes_of_distance(distance, context, object);
            let by_context: Vec<f64> = by_context.iter().map(|slope| -slope).collect();
            let by_object = by_context.iter().map(|slope| -slope).collect();
            return [by_context, by_object, Vec::new()];
        }
        [
            slopes(context, |context| formula(score, weights, context, object)),
            slopes(object, |object| formula(score, weights, context, object)),
            slopes(weights, |weights| formula(score, weights, context, object)),
        ]
    }

    fn wide(values: &[f32]) -> Vec<f64> {
        values.iter().map(|x| f64::from(*x)).collect()
    }

    pub(crate) fn draw(n: usize, seed: u64) -> Vec<f32> {
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
            let (context_dim, object_dim) = score.widths(dim);
            let (context, objects) = (draw(rows * context_dim, 1), draw(width * object_dim, 2));
            let weights = score.some_weights();
            let mut replaced = vec![7.0; rows * width];
            let mut added = vec![7.0; rows * width];
            let sides =
                (Matrix::rows_of(&context, context_dim), Matrix::rows_of(&objects, object_dim));
            score.logits(&weights, &mut replaced, Onto::Replace, sides.0, sides.1);
            score.logits(&weights, &mut added, Onto::Add, sides.0, sides.1);
            for (place, logit) in replaced.iter().enumerate() {
                let context = &context[place / width * context_dim..][..context_dim];
                let object = &objects[place % width * object_dim..][..object_dim];
                let expected = formula(score, &wide(&weights), &wide(context), &wide(object));
                // Rounding of sums of up to 200 terms of order one.
                let pair = score.pair(&weights, context, object);
                for found in [*logit, added[place] - 7.0, pair] {
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
            let (context_dim, object_dim) = score.widths(dim);
            let (mut context, objects) = (draw(rows * context_dim, 3), draw(width * object_dim, 4));
            if let PairScore::Minus(_) = score {
                // The first context is the first object, and half of the last is.
                context[..dim].copy_from_slice(&objects[..dim]);
                let last = context.len() - dim / 2;
                context[last..].copy_from_slice(&objects[dim - dim / 2..dim]);
            }
            let grad_logits = draw(rows * width, 5);
            let weights = score.some_weights();
            let mut grad_context = vec![0.25; rows * context_dim];
            let mut grad_objects = vec![f32::NAN; width * object_dim];
            let mut grad_weights = vec![0.5; weights.len()];
            score.pull_back(
                Learned { weights: &weights, grad: &mut grad_weights },
                &mut grad_logits.clone(),
                Side {
                    vectors: Matrix::rows_of(&context, context_dim),
                    grad: &mut grad_context,
                    onto: Onto::Add,
                },
                Side {
                    vectors: Matrix::rows_of(&objects, object_dim),
                    grad: &mut grad_objects,
                    onto: Onto::Replace,
                },
            );
            let mut expected_context = vec![0.25; rows * context_dim];
            let mut expected_objects = vec![0.0; width * object_dim];
            let mut expected_weights = vec![0.5; weights.len()];
            let (context, objects, weights) = (wide(&context), wide(&objects), wide(&weights));
            for (place, grad) in grad_logits.iter().enumerate() {
                let (r, o) = (place / width * context_dim, place % width * object_dim);
                let sides = (&context[r..][..context_dim], &objects[o..][..object_dim]);
                let by = gradient(score, &weights, sides.0, sides.1);
                let expected = [
                    &mut expected_context[r..][..context_dim],
                    &mut expected_objects[o..][..object_dim],
                    &mut expected_weights,
                ];
                for (sums, by) in expected.into_iter().zip(&by) {
                    sums.iter_mut().zip(by).for_each(|(sum, by)| *sum += f64::from(*grad) * by);
                }
            }
            let found = grad_context.iter().chain(&grad_objects).chain(&grad_weights);
            let expected =
                expected_context.iter().chain(&expected_objects).chain(&expected_weights);
            for (found, expected) in found.zip(expected) {
                let off = (f64::from(*found) - expected).abs();
                assert!(off < 3e-5 * (1.0 + expected.abs()), "{score:?}: {found}, {expected}");
            }
        }
    }
}
