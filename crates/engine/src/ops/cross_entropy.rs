//! What does a batch lose, and which way is down?
//!
//! Cross-entropy of softmax and mixture output layers over all objects, with sparse weighted
//! answers, as one operation. A plain softmax is a mixture of one component.

pub(super) mod kernel;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Int, Tensor, TensorData};

pub(crate) use kernel::Shape;
pub(crate) use kernel::Workspace;
use kernel::{Inputs, Saved};

use super::score::PairScore;
use super::{flex_tensor, values};

/// The answers of a batch of queries: which objects are true, and how much each counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct BatchAnswers {
    /// Number of the query in the batch, ascending.
    pub(crate) queries: Vec<u32>,
    /// The answer.
    pub(crate) objects: Vec<u32>,
    /// Its weight.
    pub(crate) weights: Vec<f32>,
}

impl BatchAnswers {
    /// Number of answers of all queries together.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn query(&self, number: usize) -> usize {
        self.queries[number] as usize
    }
}

/// What is normalised over all objects: the logits z_k = score(context_k, objects) + bias of each
/// component, mixed with weights π.
#[derive(Debug, Clone)]
pub(crate) struct Normalised {
    /// `[B·K, D]`, the components of a query one after the other.
    pub(crate) context: Tensor<2>,
    /// log π, `[B, K]`.
    pub(crate) log_prior: Tensor<2>,
    /// `[E, D]`.
    pub(crate) objects: Tensor<2>,
    /// `[E]`.
    pub(crate) bias: Option<Tensor<1>>,
    pub(crate) score: PairScore,
}

/// −Σ y·log P over the answers of a batch, `[1]`.
///
/// Fused on the CPU in f32, plain tensor operations on every other device.
/// `smoothing` is for one component and the dot product only.
pub(crate) fn cross_entropy(
    input: Normalised,
    answers: Arc<BatchAnswers>,
    smoothing: f32,
    workspace: &Arc<Mutex<Workspace>>,
) -> Tensor<1> {
    match input.context.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if input.context.dtype() == DType::F32 => {
            let call = Call {
                score: input.score,
                answers,
                smoothing,
                has_bias: input.bias.is_some(),
                workspace: Arc::clone(workspace),
            };
            // An operation takes a fixed number of tensors; one float stands for "no bias".
            let bias = input.bias.unwrap_or_else(|| Tensor::zeros([1], &input.objects.device()));
            Tensor::from_dispatch(Dispatch::cross_entropy(
                input.context.into_dispatch(),
                input.log_prior.into_dispatch(),
                input.objects.into_dispatch(),
                bias.into_dispatch(),
                call,
            ))
        }
        _ => reference(input, &answers, smoothing),
    }
}

/// The same in plain tensor operations, query block by query block.
fn reference(input: Normalised, answers: &BatchAnswers, smoothing: f32) -> Tensor<1> {
    /// Queries whose logits for all objects are in memory at once.
    const BLOCK: usize = 64;
    let Normalised { context, log_prior, objects, bias, score } = input;
    let device = context.device();
    let [queries, components] = log_prior.dims();
    let [entities, dim] = objects.dims();
    let mut loss = Tensor::zeros([1], &device);
    for start in (0..queries).step_by(BLOCK) {
        let end = (start + BLOCK).min(queries);
        let block = end - start;
        let from = answers.queries.partition_point(|query| (*query as usize) < start);
        let to = answers.queries.partition_point(|query| (*query as usize) < end);
        if from == to {
            continue;
        }
        let rows = context.clone().slice([start * components..end * components, 0..dim]);
        let mut logits = score.reference(rows, objects.clone());
        if let Some(bias) = &bias {
            logits = logits + bias.clone().unsqueeze();
        }
        let parts = log_softmax(logits, 1).reshape([block, components, entities]);
        let priors = log_prior.clone().slice([start..end, 0..components]);
        let mixed = parts + priors.reshape([block, components, 1]);
        let top = mixed.clone().max_dim(1).detach();
        let log_probs =
            ((mixed - top.clone()).exp().sum_dim(1).log() + top).reshape([block, entities]);
        let at: Vec<i64> = (from..to)
            .map(|i| ((answers.query(i) - start) * entities) as i64 + i64::from(answers.objects[i]))
            .collect();
        let at = Tensor::<1, Int>::from_data(TensorData::new(at, [to - from]), &device);
        let chosen = log_probs.clone().reshape([block * entities]).select(0, at);
        let weights = Tensor::<1>::from_data(
            TensorData::new(answers.weights[from..to].to_vec(), [to - from]),
            &device,
        );
        loss = loss - (chosen * weights).sum().mul_scalar(1.0 - smoothing);
        if smoothing > 0.0 {
            let mut totals = vec![0.0_f32; block];
            for i in from..to {
                totals[answers.query(i) - start] += answers.weights[i];
            }
            let totals = Tensor::<2>::from_data(TensorData::new(totals, [block, 1]), &device);
            loss = loss - (log_probs.mean_dim(1) * totals).sum().mul_scalar(smoothing);
        }
    }
    loss
}

/// What the operation takes besides tensors.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(super) score: PairScore,
    pub(super) answers: Arc<BatchAnswers>,
    pub(super) smoothing: f32,
    pub(super) has_bias: bool,
    pub(super) workspace: Arc<Mutex<Workspace>>,
}

impl Call {
    pub(super) fn inputs<'a>(&'a self, tensors: &'a Slices, shape: Shape) -> Inputs<'a> {
        Inputs {
            shape,
            score: self.score,
            context: &tensors.context,
            log_prior: &tensors.log_prior,
            objects: &tensors.objects,
            bias: self.has_bias.then_some(&tensors.bias),
            answers: &self.answers,
            smoothing: self.smoothing,
        }
    }

    pub(super) fn with_workspace<T>(&self, work: impl FnOnce(&mut Workspace) -> T) -> T {
        // What a panicking thread left behind is overwritten by the next pass.
        work(&mut self.workspace.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The values of a call's tensors.
pub(super) struct Slices<'a> {
    context: std::borrow::Cow<'a, [f32]>,
    log_prior: std::borrow::Cow<'a, [f32]>,
    objects: std::borrow::Cow<'a, [f32]>,
    bias: std::borrow::Cow<'a, [f32]>,
}

/// The tensors of a call.
#[derive(Debug, Clone)]
pub(super) struct Tensors {
    pub(super) context: FlexTensor,
    pub(super) log_prior: FlexTensor,
    pub(super) objects: FlexTensor,
    pub(super) bias: FlexTensor,
}

impl Tensors {
    pub(super) fn shape(&self) -> Shape {
        let (prior, objects) = (self.log_prior.shape(), self.objects.shape());
        Shape { queries: prior[0], components: prior[1], dim: objects[1], entities: objects[0] }
    }

    pub(super) fn slices(&self) -> Slices<'_> {
        Slices {
            context: values(&self.context),
            log_prior: values(&self.log_prior),
            objects: values(&self.objects),
            bias: values(&self.bias),
        }
    }

    fn forward(&self, call: &Call) -> (FlexTensor, Saved) {
        let slices = self.slices();
        let inputs = call.inputs(&slices, self.shape());
        let (loss, saved) = call.with_workspace(|workspace| kernel::forward(&inputs, workspace));
        (flex_tensor(vec![loss as f32], [1]), saved)
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait CrossEntropyBackend: Backend {
    /// See [`cross_entropy`].
    fn cross_entropy(
        context: FloatTensor<Self>,
        log_prior: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        call: Call,
    ) -> FloatTensor<Self>;
}

impl CrossEntropyBackend for Flex {
    fn cross_entropy(
        context: FlexTensor,
        log_prior: FlexTensor,
        objects: FlexTensor,
        bias: FlexTensor,
        call: Call,
    ) -> FlexTensor {
        Tensors { context, log_prior, objects, bias }.forward(&call).0
    }
}

#[derive(Debug)]
struct CrossEntropyBackward;

#[derive(Debug, Clone)]
struct State {
    tensors: Tensors,
    call: Call,
    saved: Arc<Saved>,
}

impl Backward<Flex, 4> for CrossEntropyBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let scale = values(&grads.consume::<Flex>(&ops.node))[0];
        let State { tensors, call, saved } = &ops.state;
        let shape = tensors.shape();
        let slices = tensors.slices();
        let inputs = call.inputs(&slices, shape);
        let made =
            call.with_workspace(|workspace| kernel::backward(&inputs, saved, scale, workspace));
        let Shape { queries, components, dim, entities } = shape;
        let [context, log_prior, objects, bias] = ops.parents;
        if let Some(node) = context {
            let grad = flex_tensor(made.context, [queries * components, dim]);
            grads.register::<Flex>(node.id, grad);
        }
        if let Some(node) = log_prior {
            grads.register::<Flex>(node.id, flex_tensor(made.log_prior, [queries, components]));
        }
        if let Some(node) = objects {
            grads.register::<Flex>(node.id, flex_tensor(made.objects, [entities, dim]));
        }
        if let (Some(node), Some(grad)) = (bias, made.bias) {
            grads.register::<Flex>(node.id, flex_tensor(grad, [entities]));
        }
    }
}

impl<C: CheckpointStrategy> CrossEntropyBackend for Autodiff<Flex, C> {
    fn cross_entropy(
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
        match CrossEntropyBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let (loss, saved) = tensors.forward(&call);
                prep.finish(State { tensors, call, saved: Arc::new(saved) }, loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(tensors.forward(&call).0),
        }
    }
}
