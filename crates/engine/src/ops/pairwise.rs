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
use super::score::{Learned, PairScore, Side};
use super::{flex_tensor, simd, values};

/// Parts that rows are cut into. Each makes its own gradient of the objects, and these are added
/// in order, so that bits do not depend on the number of threads.
const PARTS: usize = 16;

/// Scores of all pairs, `[B, C]` and `[N, D]` → `[B, N]`; `weights` are what the score has learned.
pub(crate) fn pairwise_scores(
    score: PairScore,
    weights: Option<Tensor<1>>,
    context: Tensor<2>,
    objects: Tensor<2>,
) -> Tensor<2> {
    match context.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if context.dtype() == DType::F32 => {
            let call = Call { score, has_weights: weights.is_some() };
            // An operation takes a fixed number of tensors; one float stands for "none".
            let weights = weights.unwrap_or_else(|| Tensor::zeros([1], &context.device()));
            Tensor::from_dispatch(Dispatch::pairwise_scores(
                context.into_dispatch(),
                objects.into_dispatch(),
                weights.into_dispatch(),
                call,
            ))
        }
        _ => score.reference(weights, context, objects),
    }
}

/// Bytes that the backward pass takes for `objects` of such a width, beyond what it is given and gives.
pub(crate) fn pairwise_bytes(score: PairScore, objects: usize, object_dim: usize) -> usize {
    let (room, weights) = score.n_room_and_weights();
    let at_work = rayon::current_num_threads().min(PARTS);
    (PARTS * (objects * object_dim + weights) + at_work * room) * size_of::<f32>()
}

/// What the operation takes besides tensors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    score: PairScore,
    has_weights: bool,
}

impl Call {
    fn weights<'a>(&self, weights: &'a [f32]) -> &'a [f32] {
        if self.has_weights { weights } else { &[] }
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait PairwiseScoresBackend: Backend {
    /// See [`pairwise_scores`].
    fn pairwise_scores(
        context: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: Call,
    ) -> FloatTensor<Self>;
}

impl PairwiseScoresBackend for Flex {
    fn pairwise_scores(
        context: FlexTensor,
        objects: FlexTensor,
        weights: FlexTensor,
        call: Call,
    ) -> FlexTensor {
        Tensors { context, objects, weights }.forward(call)
    }
}

#[derive(Debug)]
struct PairwiseScoresBackward;

#[derive(Debug, Clone)]
struct Tensors {
    context: FlexTensor,
    objects: FlexTensor,
    weights: FlexTensor,
}

/// Gradients of everything scores are made of.
struct Grads {
    context: Vec<f32>,
    objects: Vec<f32>,
    weights: Vec<f32>,
}

impl Tensors {
    fn forward(&self, call: Call) -> FlexTensor {
        let ([rows, context_dim], [width, object_dim]) =
            (self.context.shape().dims(), self.objects.shape().dims());
        let [context, objects, weights] = [&self.context, &self.objects, &self.weights].map(values);
        let mut scores = vec![0.0; rows * width];
        let part = rows.div_ceil(PARTS);
        scores.par_chunks_mut(part * width).zip(context.par_chunks(part * context_dim)).for_each(
            |(scores, context)| {
                let context = Matrix::rows_of(context, context_dim);
                let objects = Matrix::rows_of(&objects, object_dim);
                call.score.logits(call.weights(&weights), scores, Onto::Replace, context, objects);
            },
        );
        flex_tensor(scores, [rows, width])
    }

    fn backward(&self, call: Call, grad_scores: &[f32]) -> Grads {
        let ([rows, context_dim], [width, object_dim]) =
            (self.context.shape().dims(), self.objects.shape().dims());
        let [context, objects, weights] = [&self.context, &self.objects, &self.weights].map(values);
        let weights = call.weights(&weights);
        let part = rows.div_ceil(PARTS);
        let mut grad_context = vec![0.0; context.len()];
        let by_part: Vec<(Vec<f32>, Vec<f32>)> = grad_context
            .par_chunks_mut(part * context_dim)
            .zip(context.par_chunks(part * context_dim))
            .zip(grad_scores.par_chunks(part * width))
            .map(|((grad_context, context), grad_scores)| {
                let mut grad_objects = vec![0.0; objects.len()];
                let mut grad_weights = vec![0.0; weights.len()];
                let side = |vectors, dim, grad| Side {
                    vectors: Matrix::rows_of(vectors, dim),
                    grad,
                    onto: Onto::Replace,
                };
                call.score.pull_back(
                    Learned { weights, grad: &mut grad_weights },
                    &mut grad_scores.to_vec(),
                    side(context, context_dim, grad_context),
                    side(&objects, object_dim, &mut grad_objects),
                );
                (grad_objects, grad_weights)
            })
            .collect();
        let mut grads = Grads {
            context: grad_context,
            objects: vec![0.0; objects.len()],
            weights: vec![0.0; weights.len()],
        };
        for (objects, weights) in &by_part {
            simd::add(&mut grads.objects, objects);
            simd::add(&mut grads.weights, weights);
        }
        grads
    }
}

impl Backward<Flex, 3> for PairwiseScoresBackward {
    type State = (Tensors, Call);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad_scores = grads.consume::<Flex>(&ops.node);
        let (tensors, call) = ops.state;
        let made = tensors.backward(call, &values(&grad_scores));
        let [context, objects, weights] = ops.parents;
        if let Some(node) = context {
            let grad = flex_tensor(made.context, tensors.context.shape().dims::<2>());
            grads.register::<Flex>(node.id, grad);
        }
        if let Some(node) = objects {
            let grad = flex_tensor(made.objects, tensors.objects.shape().dims::<2>());
            grads.register::<Flex>(node.id, grad);
        }
        if let (Some(node), true) = (weights, call.has_weights) {
            let len = made.weights.len();
            grads.register::<Flex>(node.id, flex_tensor(made.weights, [len]));
        }
    }
}

impl<C: CheckpointStrategy> PairwiseScoresBackend for Autodiff<Flex, C> {
    fn pairwise_scores(
        context: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: Call,
    ) -> FloatTensor<Self> {
        let (context, context_node) = context.into_parts();
        let (objects, objects_node) = objects.into_parts();
        let (weights, weights_node) = weights.into_parts();
        let tensors = Tensors { context, objects, weights };
        let scores = tensors.forward(call);
        let nodes = [context_node, objects_node, weights_node];
        match PairwiseScoresBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((tensors, call), scores),
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
        for score in ALL {
            let (context_dim, object_dim) = score.widths(6);
            let (context, objects) = (random([37, context_dim]), random([21, object_dim]));
            let weights = score.some_weights();
            let weights = (!weights.is_empty())
                .then(|| Tensor::<1>::from_floats(weights.as_slice(), &device).require_grad());
            let run = |scores: &dyn Fn() -> Tensor<2>| {
                let scores = scores();
                let grads = scores.clone().square().sum().backward();
                let of_weights = weights.as_ref().map(|weights| weights.grad(&grads).unwrap());
                [Some(scores), context.grad(&grads), objects.grad(&grads)]
                    .into_iter()
                    .flatten()
                    .map(|tensor| tensor.into_data())
                    .chain(of_weights.map(|tensor| tensor.into_data()))
                    .collect::<Vec<_>>()
            };
            let on = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let scores =
                    || pairwise_scores(score, weights.clone(), context.clone(), objects.clone());
                pool.install(|| run(&scores))
            };
            let fused = on(1);
            assert!(on(2) == fused, "{score:?}");
            let plain = run(&|| score.reference(weights.clone(), context.clone(), objects.clone()));
            assert_eq!(fused.len(), plain.len());
            for (fused, plain) in fused.iter().zip(&plain) {
                // Gradients are sums of some thirty terms of about one, which may cancel.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 1e-5));
            }
        }
    }
}
