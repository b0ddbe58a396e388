//! Pairwise scores: how are all contexts scored against the same few objects?
//!
//! Rows are cut into a fixed number of parts, which threads share. Each makes its own gradient of
//! the objects, and these are added in order, so that bits do not depend on the number of threads.

use rayon::prelude::*;

use crate::pair_score::{Learned, PairScore, Side};
use crate::product::{Matrix, Onto};
use crate::simd;

/// Parts that rows are cut into.
const PARTS: usize = 16;

/// Gradients of everything that scores are made of.
#[derive(Debug)]
pub struct Grads {
    /// As contexts are.
    pub context: Vec<f32>,
    /// As objects are.
    pub objects: Vec<f32>,
    /// As what the score has learned is.
    pub weights: Vec<f32>,
}

/// Bytes that the backward pass takes for `objects` of such a width, beyond what it is given and gives.
pub fn pairwise_bytes(score: PairScore, objects: usize, object_dim: usize) -> usize {
    let (scratch, weights) = score.n_scratch_and_weights();
    let at_work = rayon::current_num_threads().min(PARTS);
    (PARTS * (objects * object_dim + weights) + at_work * scratch) * size_of::<f32>()
}

/// Scores of all contexts with all objects, row after row; both matrices are without gaps.
pub fn scores(score: PairScore, weights: &[f32], context: Matrix, objects: Matrix) -> Vec<f32> {
    let (rows, width, dim) = (context.rows, objects.rows, context.columns);
    let mut scores = vec![0.0; rows * width];
    let part = rows.div_ceil(PARTS);
    scores.par_chunks_mut(part * width).zip(context.values.par_chunks(part * dim)).for_each(
        |(scores, context)| {
            let context = Matrix::rows_of(context, dim);
            score.logits(weights, scores, Onto::Replace, context, objects);
        },
    );
    scores
}

/// From the gradient of these scores to those of everything that they are made of.
pub fn pull_back(
    score: PairScore,
    weights: &[f32],
    context: Matrix,
    objects: Matrix,
    grad_scores: &[f32],
) -> Grads {
    let (part, dim) = (context.rows.div_ceil(PARTS), context.columns);
    let mut grad_context = vec![0.0; context.values.len()];
    let by_part: Vec<(Vec<f32>, Vec<f32>)> = grad_context
        .par_chunks_mut(part * dim)
        .zip(context.values.par_chunks(part * dim))
        .zip(grad_scores.par_chunks(part * objects.rows))
        .map(|((grad_context, context), grad_scores)| {
            let mut grad_objects = vec![0.0; objects.values.len()];
            let mut grad_weights = vec![0.0; weights.len()];
            let side = |vectors, grad| Side { vectors, grad, onto: Onto::Replace };
            score.pull_back(
                Learned { weights, grad: &mut grad_weights },
                &mut grad_scores.to_vec(),
                side(Matrix::rows_of(context, dim), grad_context),
                side(objects, &mut grad_objects),
            );
            (grad_objects, grad_weights)
        })
        .collect();
    let mut grads = Grads {
        context: grad_context,
        objects: vec![0.0; objects.values.len()],
        weights: vec![0.0; weights.len()],
    };
    for (objects, weights) in &by_part {
        simd::add(&mut grads.objects, objects);
        simd::add(&mut grads.weights, weights);
    }
    grads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::{ALL, draw};

    #[test]
    fn parts_add_up_to_one_tile_at_any_number_of_threads() {
        let (rows, width) = (37, 21);
        for score in ALL {
            let (context_dim, object_dim) = score.widths(6);
            let (context, objects) = (draw(rows * context_dim, 1), draw(width * object_dim, 2));
            let weights = score.some_weights();
            let grad_scores = draw(rows * width, 3);
            let [context, objects] =
                [Matrix::rows_of(&context, context_dim), Matrix::rows_of(&objects, object_dim)];
            let on = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| {
                    let grads = pull_back(score, &weights, context, objects, &grad_scores);
                    let scores = scores(score, &weights, context, objects);
                    [scores, grads.context, grads.objects, grads.weights]
                })
            };
            let found = on(1);
            assert!(on(3) == found, "{score:?}");

            let mut expected = found.each_ref().map(|values| vec![0.0; values.len()]);
            let [scores, grad_context, grad_objects, grad_weights] = &mut expected;
            score.logits(&weights, scores, Onto::Replace, context, objects);
            let side = |vectors, grad| Side { vectors, grad, onto: Onto::Replace };
            score.pull_back(
                Learned { weights: &weights, grad: grad_weights },
                &mut grad_scores.clone(),
                side(context, grad_context),
                side(objects, grad_objects),
            );
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                // The order of sums of some thirty terms differs.
                let off = (found - expected).abs();
                assert!(off < 1e-4 * (1.0 + expected.abs()), "{score:?}: {found}, {expected}");
            }
        }
    }
}
