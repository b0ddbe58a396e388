//! What does a batch lose, and which way is down?
//!
//! The losses of output layers over all objects, with sparse weighted answers, as one operation:
//! those of softmaxes and their mixtures, and those of sigmoids and theirs. A plain softmax or
//! sigmoid is a mixture of one component.

mod sigmoid;
mod softmax;
mod sparse;
#[cfg(test)]
mod tests;
mod tiles;
mod units;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

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

use super::score::PairScore;
use super::{bf16, flex_tensor, simd, values};
pub(crate) use softmax::Options as SoftmaxOptions;
pub(crate) use sparse::Thinning;
use tiles::{Grads, Inputs};
pub(crate) use tiles::{Shape, Work, Workspace};

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

    fn query(&self, number: usize) -> usize {
        self.queries[number] as usize
    }
}

/// What probabilities are made of: the logits z_k = score(context_k, objects) + bias of each
/// component, and the weights π they are mixed with.
#[derive(Debug, Clone)]
pub(crate) struct Logits {
    /// `[B·K, C]`, the components of a query one after the other.
    pub(crate) context: Tensor<2>,
    /// log π, `[B, K]`.
    pub(crate) log_prior: Tensor<2>,
    /// `[E, D]`.
    pub(crate) objects: Tensor<2>,
    /// `[E]`.
    pub(crate) bias: Option<Tensor<1>>,
    pub(crate) score: PairScore,
    /// What the score has learned, if it learns.
    pub(crate) weights: Option<Tensor<1>>,
}

/// What a loss may do with less than all care, for speed; by default nothing. For the dot product
/// only, and for the CPU: other devices take no notice.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Shortcuts {
    /// Which entries of the gradient are left to chance.
    pub(crate) thinning: Option<Thinning>,
    pub(crate) products: Products,
}

/// How a product of two numbers is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Products {
    /// Of f32.
    #[default]
    Whole,
    /// Of bf16, two for each number, on a unit that is made for these.
    Halves,
}

impl Products {
    /// The fastest that this machine can make.
    pub(crate) fn fastest() -> Self {
        if bf16::is_available() { Self::Halves } else { Self::Whole }
    }
}

/// −Σ y·log P over the answers of a batch, `[1]`.
pub(crate) fn cross_entropy(
    input: Logits,
    answers: Arc<BatchAnswers>,
    options: SoftmaxOptions,
    workspace: &Arc<Mutex<Workspace>>,
) -> Tensor<1> {
    loss(Kind::Softmax(options), input, answers, workspace)
}

/// −Σ (y·log P + (1 − y)·log(1 − P)) over all queries and objects of a batch, `[1]`, where y is the
/// weight of an answer and 0 for all other objects.
///
/// The prior need not be normalised.
pub(crate) fn binary_cross_entropy(
    input: Logits,
    answers: Arc<BatchAnswers>,
    shortcuts: Shortcuts,
    workspace: &Arc<Mutex<Workspace>>,
) -> Tensor<1> {
    loss(Kind::Sigmoid(shortcuts), input, answers, workspace)
}

/// What makes probabilities of logits.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Softmax(SoftmaxOptions),
    Sigmoid(Shortcuts),
}

/// Fused on the CPU in f32, plain tensor operations on every other device.
fn loss(
    kind: Kind,
    input: Logits,
    answers: Arc<BatchAnswers>,
    workspace: &Arc<Mutex<Workspace>>,
) -> Tensor<1> {
    match input.context.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if input.context.dtype() == DType::F32 => {
            let call = Call {
                kind,
                score: input.score,
                answers,
                has_bias: input.bias.is_some(),
                has_weights: input.weights.is_some(),
                workspace: Arc::clone(workspace),
            };
            // An operation takes a fixed number of tensors; one float stands for "none".
            let none = || Tensor::zeros([1], &input.objects.device());
            let [bias, weights] = [input.bias, input.weights].map(|t| t.unwrap_or_else(none));
            Tensor::from_dispatch(Dispatch::loss(
                input.context.into_dispatch(),
                input.log_prior.into_dispatch(),
                input.objects.into_dispatch(),
                bias.into_dispatch(),
                weights.into_dispatch(),
                call,
            ))
        }
        _ => match kind {
            Kind::Softmax(options) => softmax::reference(input, &answers, options.smoothing),
            Kind::Sigmoid(_) => sigmoid::reference(input, &answers),
        },
    }
}

/// What the operation takes besides tensors.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    kind: Kind,
    score: PairScore,
    answers: Arc<BatchAnswers>,
    has_bias: bool,
    has_weights: bool,
    workspace: Arc<Mutex<Workspace>>,
}

impl Call {
    fn inputs<'a>(&'a self, tensors: &'a Slices, shape: Shape) -> Inputs<'a> {
        Inputs {
            shape,
            score: self.score,
            context: &tensors.context,
            log_prior: &tensors.log_prior,
            objects: &tensors.objects,
            bias: self.has_bias.then_some(&tensors.bias),
            weights: if self.has_weights { &tensors.weights } else { &[] },
            answers: &self.answers,
            packed: None,
        }
    }

    fn with_workspace<T>(&self, work: impl FnOnce(&mut Workspace) -> T) -> T {
        // What a panicking thread left behind is overwritten by the next pass.
        work(&mut self.workspace.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The values of a call's tensors.
struct Slices<'a> {
    context: Cow<'a, [f32]>,
    log_prior: Cow<'a, [f32]>,
    objects: Cow<'a, [f32]>,
    bias: Cow<'a, [f32]>,
    weights: Cow<'a, [f32]>,
}

/// The tensors of a call.
#[derive(Debug, Clone)]
struct Tensors {
    context: FlexTensor,
    log_prior: FlexTensor,
    objects: FlexTensor,
    bias: FlexTensor,
    weights: FlexTensor,
}

/// What the backward pass takes from the forward pass.
#[derive(Debug, Clone)]
enum Saved {
    Softmax(Arc<softmax::Saved>),
    /// Gradients that were made with the loss.
    Sigmoid(Grads),
}

impl Tensors {
    fn shape(&self) -> Shape {
        let (prior, objects) = (self.log_prior.shape(), self.objects.shape());
        Shape {
            queries: prior[0],
            components: prior[1],
            context_dim: self.context.shape()[1],
            object_dim: objects[1],
            entities: objects[0],
        }
    }

    fn slices(&self) -> Slices<'_> {
        Slices {
            context: values(&self.context),
            log_prior: values(&self.log_prior),
            objects: values(&self.objects),
            bias: values(&self.bias),
            weights: values(&self.weights),
        }
    }

    fn forward(&self, call: &Call) -> (FlexTensor, Saved) {
        let slices = self.slices();
        let inputs = call.inputs(&slices, self.shape());
        let (loss, saved) = call.with_workspace(|workspace| match call.kind {
            Kind::Softmax(options) => {
                let (loss, saved) = softmax::forward(&inputs, options, workspace);
                (loss, Saved::Softmax(Arc::new(saved)))
            }
            Kind::Sigmoid(shortcuts) => {
                let (loss, grads) = sigmoid::pass(&inputs, shortcuts, workspace);
                (loss, Saved::Sigmoid(grads))
            }
        });
        (flex_tensor(vec![loss as f32], [1]), saved)
    }

    /// Gradients of `scale` times the loss.
    fn backward(&self, call: &Call, saved: Saved, scale: f32) -> Grads {
        match saved {
            Saved::Softmax(saved) => {
                let slices = self.slices();
                let inputs = call.inputs(&slices, self.shape());
                call.with_workspace(|workspace| {
                    softmax::backward(&inputs, &saved, scale, workspace)
                })
            }
            Saved::Sigmoid(grads) => Grads {
                context: scaled(grads.context, scale),
                log_prior: scaled(grads.log_prior, scale),
                objects: scaled(grads.objects, scale),
                bias: grads.bias.map(|bias| scaled(bias, scale)),
                weights: scaled(grads.weights, scale),
            },
        }
    }
}

fn scaled(mut values: Vec<f32>, factor: f32) -> Vec<f32> {
    /// Floats that one thread scales at a time.
    const PIECE: usize = 16 * 1024;
    values.par_chunks_mut(PIECE).for_each(|piece| simd::scale(piece, factor, 0.0));
    values
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait LossBackend: Backend {
    /// See [`cross_entropy`] and [`binary_cross_entropy`].
    fn loss(
        context: FloatTensor<Self>,
        log_prior: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: Call,
    ) -> FloatTensor<Self>;
}

impl LossBackend for Flex {
    fn loss(
        context: FlexTensor,
        log_prior: FlexTensor,
        objects: FlexTensor,
        bias: FlexTensor,
        weights: FlexTensor,
        call: Call,
    ) -> FlexTensor {
        Tensors { context, log_prior, objects, bias, weights }.forward(&call).0
    }
}

#[derive(Debug)]
struct LossBackward;

#[derive(Debug, Clone)]
struct State {
    tensors: Tensors,
    call: Call,
    saved: Saved,
}

impl Backward<Flex, 5> for LossBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 5>, grads: &mut Gradients, _: &mut Checkpointer) {
        let scale = values(&grads.consume::<Flex>(&ops.node))[0];
        let State { tensors, call, saved } = ops.state;
        let made = tensors.backward(&call, saved, scale);
        let Shape { queries, components, context_dim, object_dim, entities } = tensors.shape();
        let [context, log_prior, objects, bias, weights] = ops.parents;
        if let Some(node) = context {
            let grad = flex_tensor(made.context, [queries * components, context_dim]);
            grads.register::<Flex>(node.id, grad);
        }
        if let Some(node) = log_prior {
            grads.register::<Flex>(node.id, flex_tensor(made.log_prior, [queries, components]));
        }
        if let Some(node) = objects {
            grads.register::<Flex>(node.id, flex_tensor(made.objects, [entities, object_dim]));
        }
        if let (Some(node), Some(grad)) = (bias, made.bias) {
            grads.register::<Flex>(node.id, flex_tensor(grad, [entities]));
        }
        if let (Some(node), true) = (weights, call.has_weights) {
            let len = made.weights.len();
            grads.register::<Flex>(node.id, flex_tensor(made.weights, [len]));
        }
    }
}

impl<C: CheckpointStrategy> LossBackend for Autodiff<Flex, C> {
    fn loss(
        context: FloatTensor<Self>,
        log_prior: FloatTensor<Self>,
        objects: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        call: Call,
    ) -> FloatTensor<Self> {
        let (context, context_node) = context.into_parts();
        let (log_prior, log_prior_node) = log_prior.into_parts();
        let (objects, objects_node) = objects.into_parts();
        let (bias, bias_node) = bias.into_parts();
        let (weights, weights_node) = weights.into_parts();
        let nodes = [context_node, log_prior_node, objects_node, bias_node, weights_node];
        let tensors = Tensors { context, log_prior, objects, bias, weights };
        let (loss, saved) = tensors.forward(&call);
        match LossBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { tensors, call, saved }, loss),
            OpsKind::UnTracked(prep) => prep.finish(loss),
        }
    }
}
