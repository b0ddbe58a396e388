//! What does a batch lose if every object is asked for itself?
//!
//! Binary cross-entropy of sigmoids and mixtures of sigmoids over all objects, with sparse answers,
//! as one operation. A plain sigmoid is a mixture of one component.

mod kernel;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, DispatchDevice, Flex, backend_extension};
use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{DType, Tensor, TensorData};
use rayon::prelude::*;

use super::cross_entropy::kernel::{Grads, Workspace};
use super::cross_entropy::{BatchAnswers, Call, Normalised, Shape, Tensors};
use super::{flex_tensor, simd, values};
use kernel::Wanted;

/// −Σ (y·log P + (1 − y)·log(1 − P)) over all queries and objects of a batch, `[1]`, where y is the
/// weight of an answer and 0 for all other objects.
///
/// Fused on the CPU in f32, plain tensor operations on every other device. The prior need not be
/// normalised.
pub(crate) fn binary_cross_entropy(
    input: Normalised,
    answers: Arc<BatchAnswers>,
    workspace: &Arc<Mutex<Workspace>>,
) -> Tensor<1> {
    match input.context.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if input.context.dtype() == DType::F32 => {
            let call = Call {
                score: input.score,
                answers,
                smoothing: 0.0,
                has_bias: input.bias.is_some(),
                workspace: Arc::clone(workspace),
            };
            // An operation takes a fixed number of tensors; one float stands for "no bias".
            let bias = input.bias.unwrap_or_else(|| Tensor::zeros([1], &input.objects.device()));
            Tensor::from_dispatch(Dispatch::binary_cross_entropy(
                input.context.into_dispatch(),
                input.log_prior.into_dispatch(),
                input.objects.into_dispatch(),
                bias.into_dispatch(),
                call,
            ))
        }
        _ => reference(input, &answers),
    }
}

/// The same in plain tensor operations, query block by query block.
fn reference(input: Normalised, answers: &BatchAnswers) -> Tensor<1> {
    /// Queries whose logits for all objects are in memory at once.
    const BLOCK: usize = 64;
    let Normalised { context, log_prior, objects, bias, score } = input;
    let device = context.device();
    let [queries, components] = log_prior.dims();
    let [entities, dim] = objects.dims();
    let log_prior = log_softmax(log_prior, 1);
    let mut loss = Tensor::zeros([1], &device);
    for start in (0..queries).step_by(BLOCK) {
        let end = (start + BLOCK).min(queries);
        let block = end - start;
        let rows = context.clone().slice([start * components..end * components, 0..dim]);
        let mut logits = score.reference(rows, objects.clone());
        if let Some(bias) = &bias {
            logits = logits + bias.clone().unsqueeze();
        }
        let logits = logits.reshape([block, components, entities]);
        let priors = log_prior.clone().slice([start..end, 0..components]);
        let priors = priors.reshape([block, components, 1]);
        let yes = log_mix(log_sigmoid(logits.clone()) + priors.clone());
        let no = log_mix(log_sigmoid(logits.neg()) + priors);
        let mut targets = vec![0.0_f32; block * entities];
        let from = answers.queries.partition_point(|query| (*query as usize) < start);
        let to = answers.queries.partition_point(|query| (*query as usize) < end);
        for i in from..to {
            let at = (answers.query(i) - start) * entities + answers.objects[i] as usize;
            targets[at] += answers.weights[i];
        }
        let targets = Tensor::<2>::from_data(TensorData::new(targets, [block, entities]), &device);
        loss = loss - (no.clone() + targets * (yes - no)).sum();
    }
    loss
}

/// log Σ_k exp x_k: `[B, K, E]` → `[B, E]`.
fn log_mix(parts: Tensor<3>) -> Tensor<2> {
    let [queries, _, entities] = parts.dims();
    let top = parts.clone().max_dim(1).detach();
    ((parts - top.clone()).exp().sum_dim(1).log() + top).reshape([queries, entities])
}

impl Tensors {
    fn binary_pass(&self, call: &Call, wanted: Wanted) -> (FlexTensor, Option<Grads>) {
        let slices = self.slices();
        let inputs = call.inputs(&slices, self.shape());
        let (loss, grads) =
            call.with_workspace(|workspace| kernel::pass(&inputs, wanted, workspace));
        (flex_tensor(vec![loss as f32], [1]), grads)
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait BinaryCrossEntropyBackend: Backend {
    /// See [`binary_cross_entropy`].
    fn binary_cross_entropy(
        context: FloatTensor<Self>,
        log_prior: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        call: Call,
    ) -> FloatTensor<Self>;
}

impl BinaryCrossEntropyBackend for Flex {
    fn binary_cross_entropy(
        context: FlexTensor,
        log_prior: FlexTensor,
        objects: FlexTensor,
        bias: FlexTensor,
        call: Call,
    ) -> FlexTensor {
        let tensors = Tensors { context, log_prior, objects, bias };
        tensors.binary_pass(&call, Wanted::Loss).0
    }
}

#[derive(Debug)]
struct BinaryCrossEntropyBackward;

/// Gradients of the loss, made together with it.
#[derive(Debug, Clone)]
struct State {
    shape: Shape,
    grads: Grads,
}

impl Backward<Flex, 4> for BinaryCrossEntropyBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let scale = values(&grads.consume::<Flex>(&ops.node))[0];
        let State { shape: Shape { queries, components, dim, entities }, grads: made } = ops.state;
        let [context, log_prior, objects, bias] = ops.parents;
        if let Some(node) = context {
            let grad = flex_tensor(scaled(made.context, scale), [queries * components, dim]);
            grads.register::<Flex>(node.id, grad);
        }
        if let Some(node) = log_prior {
            let grad = flex_tensor(scaled(made.log_prior, scale), [queries, components]);
            grads.register::<Flex>(node.id, grad);
        }
        if let Some(node) = objects {
            let grad = flex_tensor(scaled(made.objects, scale), [entities, dim]);
            grads.register::<Flex>(node.id, grad);
        }
        if let (Some(node), Some(grad)) = (bias, made.bias) {
            grads.register::<Flex>(node.id, flex_tensor(scaled(grad, scale), [entities]));
        }
    }
}

fn scaled(mut values: Vec<f32>, factor: f32) -> Vec<f32> {
    /// Floats that one thread scales at a time.
    const PIECE: usize = 16 * 1024;
    values.par_chunks_mut(PIECE).for_each(|piece| simd::scale(piece, factor, 0.0));
    values
}

impl<C: CheckpointStrategy> BinaryCrossEntropyBackend for Autodiff<Flex, C> {
    fn binary_cross_entropy(
        context: FloatTensor<Self>,
        log_prior: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        call: Call,
    ) -> FloatTensor<Self> {
        let (context, context_node) = context.into_parts();
        let (log_prior, log_prior_node) = log_prior.into_parts();
        let (objects, objects_node) = objects.into_parts();
        let (bias, bias_node) = bias.into_parts();
        let nodes = [context_node, log_prior_node, objects_node, bias_node];
        let tensors = Tensors { context, log_prior, objects, bias };
        match BinaryCrossEntropyBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (loss, grads) = tensors.binary_pass(&call, Wanted::LossAndGrads);
                let grads = grads.expect("they were wanted");
                prep.finish(State { shape: tensors.shape(), grads }, loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(tensors.binary_pass(&call, Wanted::Loss).0),
        }
    }
}
