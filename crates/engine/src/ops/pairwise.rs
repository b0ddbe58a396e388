//! How are all queries of a batch scored against the same few objects?
//!
//! For drawn negatives: their scores are few enough to be in memory all at once, and what is made
//! of them is left to plain tensor operations.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, Tensor};
use rayon::prelude::*;

use super::product::{Matrix, Onto};
use super::score::{PairScore, Side};
use super::{flex_tensor, simd, values};

/// Parts that rows are cut into. Each makes its own gradient of the objects, and these are added
/// in order, so that bits do not depend on the number of threads.
const PARTS: usize = 16;

/// Scores of all pairs, `[B, D]` and `[N, D]` → `[B, N]`.
pub(crate) fn pairwise_scores(
    score: PairScore,
    context: Tensor<2>,
    objects: Tensor<2>,
) -> Tensor<2> {
    match context.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if context.dtype() == DType::F32 => {
            let (context, objects) = (context.into_dispatch(), objects.into_dispatch());
            Tensor::from_dispatch(Dispatch::pairwise_scores(context, objects, score))
        }
        _ => score.reference(context, objects),
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait PairwiseScoresBackend: Backend {
    /// See [`pairwise_scores`].
    fn pairwise_scores(
        context: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        score: PairScore,
    ) -> FloatTensor<Self>;
}

impl PairwiseScoresBackend for Flex {
    fn pairwise_scores(context: FlexTensor, objects: FlexTensor, score: PairScore) -> FlexTensor {
        let [rows, dim] = context.shape().dims();
        let width = objects.shape()[0];
        let (context, objects) = (values(&context), values(&objects));
        let mut scores = vec![0.0; rows * width];
        let part = rows.div_ceil(PARTS);
        scores.par_chunks_mut(part * width).zip(context.par_chunks(part * dim)).for_each(
            |(scores, context)| {
                let (context, objects) =
                    (Matrix::rows_of(context, dim), Matrix::rows_of(&objects, dim));
                score.logits(scores, Onto::Replace, context, objects);
            },
        );
        flex_tensor(scores, [rows, width])
    }
}

#[derive(Debug)]
struct PairwiseScoresBackward;

#[derive(Debug, Clone)]
struct State {
    context: FlexTensor,
    objects: FlexTensor,
    score: PairScore,
}

impl Backward<Flex, 2> for PairwiseScoresBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad_scores = grads.consume::<Flex>(&ops.node);
        let State { context, objects, score } = ops.state;
        let [rows, dim] = context.shape().dims();
        let width = objects.shape()[0];
        let [context_node, objects_node] = ops.parents;
        let (grad_context, grad_objects) =
            pull_back(score, &values(&grad_scores), (&values(&context), &values(&objects)), dim);
        if let Some(node) = context_node {
            grads.register::<Flex>(node.id, flex_tensor(grad_context, [rows, dim]));
        }
        if let Some(node) = objects_node {
            grads.register::<Flex>(node.id, flex_tensor(grad_objects, [width, dim]));
        }
    }
}

fn pull_back(
    score: PairScore,
    grad_scores: &[f32],
    (context, objects): (&[f32], &[f32]),
    dim: usize,
) -> (Vec<f32>, Vec<f32>) {
    let width = objects.len() / dim;
    let part = (context.len() / dim).div_ceil(PARTS);
    let mut grad_context = vec![0.0; context.len()];
    let by_part: Vec<Vec<f32>> = grad_context
        .par_chunks_mut(part * dim)
        .zip(context.par_chunks(part * dim))
        .zip(grad_scores.par_chunks(part * width))
        .map(|((grad_context, context), grad_scores)| {
            let mut grad_objects = vec![0.0; objects.len()];
            let side = |vectors, grad| Side {
                vectors: Matrix::rows_of(vectors, dim),
                grad,
                onto: Onto::Replace,
            };
            score.pull_back(
                &mut grad_scores.to_vec(),
                side(context, grad_context),
                side(objects, &mut grad_objects),
            );
            grad_objects
        })
        .collect();
    let mut grad_objects = vec![0.0; objects.len()];
    by_part.iter().for_each(|part| simd::add(&mut grad_objects, part));
    (grad_context, grad_objects)
}

impl<C: CheckpointStrategy> PairwiseScoresBackend for Autodiff<Flex, C> {
    fn pairwise_scores(
        context: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        score: PairScore,
    ) -> FloatTensor<Self> {
        let ((context, context_node), (objects, objects_node)) =
            (context.into_parts(), objects.into_parts());
        let scores = Flex::pairwise_scores(context.clone(), objects.clone(), score);
        let nodes = [context_node, objects_node];
        match PairwiseScoresBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { context, objects, score }, scores),
            OpsKind::UnTracked(prep) => prep.finish(scores),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::score::tests::ALL;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn fused_equals_plain_tensor_operations_at_any_number_of_threads() {
        let device = Device::flex().autodiff();
        let random = |shape| {
            Tensor::<2>::random(shape, Distribution::Uniform(-1.0, 1.0), &device).require_grad()
        };
        let (context, objects) = (random([37, 6]), random([21, 6]));
        let run = |scores: &dyn Fn() -> Tensor<2>| {
            let scores = scores();
            let grads = scores.clone().square().sum().backward();
            [scores, context.grad(&grads).unwrap(), objects.grad(&grads).unwrap()]
                .map(|tensor| tensor.into_data())
        };
        for score in ALL {
            let on = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| run(&|| pairwise_scores(score, context.clone(), objects.clone())))
            };
            let fused = on(1);
            assert!(on(2) == fused, "{score:?}");
            let plain = run(&|| score.reference(context.clone(), objects.clone()));
            for (fused, plain) in fused.iter().zip(&plain) {
                // Gradients are sums of some thirty terms of about one, which may cancel.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 1e-5));
            }
        }
    }
}
