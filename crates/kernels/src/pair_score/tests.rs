use super::samples::{ALL, draw, formula};
use super::*;
use crate::simd::instructions::on_each;

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
fn gradient(score: PairScore, weights: &[f64], context: &[f64], object: &[f64]) -> [Vec<f64>; 3] {
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

/// Sizes around every edge of rows, objects and coordinates that are worked on together.
const SIZES: [(usize, usize, usize); 6] =
    [(1, 1, 2), (3, 5, 6), (9, 40, 16), (4, 16, 34), (70, 33, 18), (5, 17, 200)];

#[test]
fn tiles_and_pairs_equal_their_formula() {
    on_each(|| {
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
    });
}

/// A tile, and the gradient of its logits.
struct Sample {
    score: PairScore,
    /// Of contexts and objects.
    dims: (usize, usize),
    context: Vec<f32>,
    objects: Vec<f32>,
    weights: Vec<f32>,
    grad_logits: Vec<f32>,
}

impl Sample {
    fn new(score: PairScore, (rows, width, dim): (usize, usize, usize)) -> Self {
        let dims = score.widths(dim);
        let (mut context, objects) = (draw(rows * dims.0, 3), draw(width * dims.1, 4));
        if let PairScore::Minus(_) = score {
            // The first context is the first object, and half of the last is.
            context[..dim].copy_from_slice(&objects[..dim]);
            let last = context.len() - dim / 2;
            context[last..].copy_from_slice(&objects[dim - dim / 2..dim]);
        }
        let (weights, grad_logits) = (score.some_weights(), draw(rows * width, 5));
        Self { score, dims, context, objects, weights, grad_logits }
    }

    /// Gradients of contexts, objects and weights, added to a quarter, nothing and a half.
    fn pull_back(&self) -> [Vec<f32>; 3] {
        let mut grads = [
            vec![0.25; self.context.len()],
            vec![f32::NAN; self.objects.len()],
            vec![0.5; self.weights.len()],
        ];
        let [context, objects, weights] = &mut grads;
        let side =
            |values, dim, grad, onto| Side { vectors: Matrix::rows_of(values, dim), grad, onto };
        self.score.pull_back(
            Learned { weights: &self.weights, grad: weights },
            &mut self.grad_logits.clone(),
            side(&self.context, self.dims.0, context, Onto::Add),
            side(&self.objects, self.dims.1, objects, Onto::Replace),
        );
        grads
    }

    /// The same by the formula.
    fn expected(&self) -> [Vec<f64>; 3] {
        let [context, objects, weights] =
            [&self.context, &self.objects, &self.weights].map(|values| wide(values));
        let mut grads =
            [vec![0.25; context.len()], vec![0.0; objects.len()], vec![0.5; weights.len()]];
        let ((context_dim, object_dim), width) = (self.dims, objects.len() / self.dims.1);
        for (place, grad) in self.grad_logits.iter().enumerate() {
            let (r, o) = (place / width * context_dim, place % width * object_dim);
            let (context, object) = (&context[r..][..context_dim], &objects[o..][..object_dim]);
            let by = gradient(self.score, &weights, context, object);
            let [by_context, by_object, by_weights] = &mut grads;
            let sums = [&mut by_context[r..][..context_dim], &mut by_object[o..], by_weights];
            for (sums, by) in sums.into_iter().zip(&by) {
                sums.iter_mut().zip(by).for_each(|(sum, by)| *sum += f64::from(*grad) * by);
            }
        }
        grads
    }
}

#[test]
fn gradients_of_a_tile_equal_their_formula_also_at_distance_zero() {
    for (score, size) in ALL.into_iter().flat_map(|score| SIZES.map(|size| (score, size))) {
        let sample = Sample::new(score, size);
        let expected = sample.expected();
        on_each(|| {
            let found = sample.pull_back();
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                let off = (f64::from(*found) - expected).abs();
                assert!(off < 3e-5 * (1.0 + expected.abs()), "{score:?}: {found}, {expected}");
            }
        });
    }
}
