//! Losses over all objects: what does a batch lose?
//!
//! Those of softmaxes and their mixtures, and those of sigmoids and theirs, with sparse weighted
//! answers. A plain softmax or sigmoid is a mixture of one component.
//! How they are computed is the business of [`fullrank_kernels::loss`].

mod reference;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use fullrank_kernels::loss::{Grads, Inputs as LossInputs, sigmoid, softmax};
use fullrank_kernels::pair_score::PairScore;
use fullrank_kernels::tiles::LogitInputs;

use super::adaptor::{self, Input, InputGrads, Inputs, Operation, flex_tensor};
pub(crate) use fullrank_kernels::loss::{
    BatchAnswers, Shortcuts, SoftmaxOptions, Thinning, Work, Workspace,
};
pub(crate) use fullrank_kernels::tiles::Shape;

/// What probabilities are made of: the logits z_k = score(context_k, objects) + bias of each
/// component, and the gates π they are mixed with.
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

impl Logits {
    fn into_inputs(self) -> [Input; N_INPUTS] {
        let Self { context, log_prior, objects, bias, weights, .. } = self;
        [context.into(), log_prior.into(), objects.into(), bias.into(), weights.into()]
    }
}

/// −Σ y·log P over the answers of a batch, `[1]`.
///
/// On other devices than the CPU there are no shortcuts, and autodiff keeps the B × K × E matrix.
pub(crate) fn cross_entropy(
    input: Logits,
    answers: Arc<BatchAnswers>,
    options: SoftmaxOptions,
    workspace: &Arc<Workspace>,
) -> Tensor<1> {
    if !adaptor::is_supported(&input.context) {
        return reference::softmax(input, &answers, options.smoothing);
    }
    let batch = Batch { score: input.score, answers, workspace: Arc::clone(workspace) };
    adaptor::apply(Softmax { batch, options }, input.into_inputs())
}

/// −Σ (y·log P + (1 − y)·log(1 − P)) over all queries and objects of a batch, `[1]`, where y is the
/// weight of an answer and 0 for all other objects.
///
/// The prior need not be normalised. On other devices than the CPU there are no shortcuts, and
/// autodiff keeps the B × K × E matrix.
pub(crate) fn binary_cross_entropy(
    input: Logits,
    answers: Arc<BatchAnswers>,
    shortcuts: Shortcuts,
    workspace: &Arc<Workspace>,
) -> Tensor<1> {
    if !adaptor::is_supported(&input.context) {
        return reference::sigmoid(input, &answers);
    }
    let batch = Batch { score: input.score, answers, workspace: Arc::clone(workspace) };
    adaptor::apply(Sigmoid { batch, shortcuts }, input.into_inputs())
}

/// Places of the tensors among the inputs.
const N_INPUTS: usize = 5;
const CONTEXT: usize = 0;
const LOG_PRIOR: usize = 1;
const OBJECTS: usize = 2;
const BIAS: usize = 3;
const WEIGHTS: usize = 4;

/// What a loss takes besides tensors.
#[derive(Debug, Clone)]
struct Batch {
    score: PairScore,
    answers: Arc<BatchAnswers>,
    workspace: Arc<Workspace>,
}

/// The values of the tensors.
struct Values<'a> {
    shape: Shape,
    context: Cow<'a, [f32]>,
    log_prior: Cow<'a, [f32]>,
    objects: Cow<'a, [f32]>,
    bias: Option<Cow<'a, [f32]>>,
    weights: Option<Cow<'a, [f32]>>,
}

impl<'a> Values<'a> {
    fn of(inputs: &'a Inputs<N_INPUTS>) -> Self {
        let [_, context_dim] = inputs.dims(CONTEXT);
        let [queries, components] = inputs.dims(LOG_PRIOR);
        let [entities, object_dim] = inputs.dims(OBJECTS);
        Self {
            shape: Shape { queries, components, context_dim, object_dim, objects: 0..entities },
            context: inputs.values(CONTEXT),
            log_prior: inputs.values(LOG_PRIOR),
            objects: inputs.values(OBJECTS),
            bias: inputs.optional(BIAS),
            weights: inputs.optional(WEIGHTS),
        }
    }
}

impl Batch {
    fn inputs<'a>(&'a self, values: &'a Values) -> LossInputs<'a> {
        LossInputs {
            logits: LogitInputs {
                shape: values.shape.clone(),
                score: self.score,
                context: &values.context,
                objects: &values.objects,
                bias: values.bias.as_deref(),
                weights: values.weights.as_deref().unwrap_or_default(),
            },
            log_prior: &values.log_prior,
            answers: &self.answers,
        }
    }
}

/// The loss of a softmax or of a mixture of them.
#[derive(Debug, Clone)]
struct Softmax {
    batch: Batch,
    options: SoftmaxOptions,
}

/// What the backward pass of a softmax takes from the forward pass.
#[derive(Debug, Clone)]
struct SavedSoftmax {
    finished: Arc<softmax::Finished>,
    /// Tiles, which the first backward pass uses up.
    saved: Arc<Mutex<softmax::Saved>>,
}

impl Operation<N_INPUTS> for Softmax {
    type Saved = SavedSoftmax;

    fn forward(&self, inputs: &Inputs<N_INPUTS>) -> (FlexTensor, SavedSoftmax) {
        let Self { batch, options } = self;
        let values = Values::of(inputs);
        let inputs = batch.inputs(&values);
        let (partial, saved) = softmax::forward(&inputs, *options, &batch.workspace.softmax);
        let finished = softmax::finish(partial, &inputs, options.smoothing);
        let loss = flex_tensor(vec![finished.loss as f32], [1]);
        (loss, SavedSoftmax { finished: finished.into(), saved: Arc::new(Mutex::new(saved)) })
    }

    fn backward(
        self,
        inputs: &Inputs<N_INPUTS>,
        SavedSoftmax { finished, saved }: SavedSoftmax,
        grad: &[f32],
        grads: &mut InputGrads<N_INPUTS>,
    ) {
        let workspace = &self.batch.workspace;
        let values = Values::of(inputs);
        let inputs = self.batch.inputs(&values);
        // A backward pass that panicked has taken the tiles; they are made again.
        let mut saved = saved.lock().unwrap_or_else(PoisonError::into_inner);
        let (logits, work) =
            softmax::backward(&inputs, &mut saved, &finished, grad[0], &workspace.softmax);
        workspace.count(work);
        set(grads, Grads { log_prior: finished.grad_log_prior(grad[0]), logits });
    }
}

/// The loss of a sigmoid or of a mixture of them.
#[derive(Debug, Clone)]
struct Sigmoid {
    batch: Batch,
    shortcuts: Shortcuts,
}

impl Operation<N_INPUTS> for Sigmoid {
    /// Gradients that were made with the loss.
    type Saved = Grads;

    fn forward(&self, inputs: &Inputs<N_INPUTS>) -> (FlexTensor, Grads) {
        let Self { batch, shortcuts } = self;
        let values = Values::of(inputs);
        let inputs = batch.inputs(&values);
        let partial = sigmoid::pass(&inputs, *shortcuts, &batch.workspace.sigmoid);
        batch.workspace.count(partial.work);
        (flex_tensor(vec![partial.loss as f32], [1]), partial.into_grads())
    }

    fn backward(
        self,
        _: &Inputs<N_INPUTS>,
        mut saved: Grads,
        grad: &[f32],
        grads: &mut InputGrads<N_INPUTS>,
    ) {
        saved.scale(grad[0]);
        set(grads, saved);
    }
}

fn set(grads: &mut InputGrads<N_INPUTS>, made: Grads) {
    grads.set(CONTEXT, made.logits.context);
    grads.set(LOG_PRIOR, made.log_prior);
    grads.set(OBJECTS, made.logits.objects);
    if let Some(bias) = made.logits.bias {
        grads.set(BIAS, bias);
    }
    grads.set(WEIGHTS, made.logits.weights);
}
