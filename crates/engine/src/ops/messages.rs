//! How are the messages along all edges of a graph summed at their receivers?
//!
//! A message is made of its sender's row and its relation's row, and only the sums are wanted: rows
//! are read, composed and added in one pass, and there is never a row per edge.
//! Whatever matrix messages are multiplied by is left to the caller, who multiplies the sums.

mod grouped;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, IndexingUpdateOp, Int, Tensor, TensorData};

use super::{flex_tensor, gather, simd, values};
use grouped::Rows;
pub(crate) use grouped::{Message, Messages};

/// How a message is made of its sender's row x and its relation's row z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compose {
    /// x ∘ z.
    Product,
    /// x − z.
    Difference,
    /// conj(x) ∘ z, complex: the real parts of all numbers first, then the imaginary ones.
    Conjugate,
    /// z_1·x, z_2·x, … one after the other: as many copies of x as z has values.
    Outer,
}

/// Σ factor · compose(x_sender, z_relation) over the messages to each entity: `[E, D]` and
/// `[R, F]` → `[E, D]`, or `[E, F·D]` for [`Compose::Outer`].
pub(crate) fn sum_messages(
    senders: Tensor<2>,
    relations: Tensor<2>,
    messages: &Arc<Messages>,
    compose: Compose,
) -> Tensor<2> {
    match senders.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if senders.dtype() == DType::F32 => {
            let (senders, relations) = (senders.into_dispatch(), relations.into_dispatch());
            let messages = Arc::clone(messages);
            Tensor::from_dispatch(Dispatch::sum_messages(senders, relations, messages, compose))
        }
        _ => reference(senders, relations, messages, compose),
    }
}

fn reference(
    senders: Tensor<2>,
    relations: Tensor<2>,
    messages: &Messages,
    compose: Compose,
) -> Tensor<2> {
    let device = senders.device();
    let list: Vec<Message> = messages.iter().collect();
    let ids = |id: fn(&Message) -> u32| -> Vec<u32> { list.iter().map(id).collect() };
    let n = list.len();
    let [entities, dim] = senders.dims();
    let out_dim = compose.out_dim(dim, relations.dims()[1]);
    let x = gather::reference(senders, &ids(|message| message.sender));
    let z = gather::reference(relations, &ids(|message| message.relation));
    let rows = match compose {
        Compose::Product => x * z,
        Compose::Difference => x - z,
        Compose::Conjugate => {
            let half = dim / 2;
            let halves = |rows: Tensor<2>| {
                (rows.clone().slice([0..n, 0..half]), rows.slice([0..n, half..dim]))
            };
            let ((x_re, x_im), (z_re, z_im)) = (halves(x), halves(z));
            let re = x_re.clone() * z_re.clone() + x_im.clone() * z_im.clone();
            Tensor::cat(vec![re, x_re * z_im - x_im * z_re], 1)
        }
        Compose::Outer => {
            let z = z.reshape([n as i32, -1, 1]);
            (z * x.reshape([n, 1, dim])).reshape([n, out_dim])
        }
    };
    let factors: Vec<f32> = list.iter().map(|message| message.factor).collect();
    let factors = Tensor::<2>::from_data(TensorData::new(factors, [n, 1]), &device);
    let receivers: Vec<i64> = list.iter().map(|message| i64::from(message.receiver)).collect();
    let receivers = Tensor::<1, Int>::from_data(TensorData::new(receivers, [n]), &device);
    let zeros = Tensor::zeros([entities, out_dim], &device);
    zeros.select_assign(0, receivers, rows * factors, IndexingUpdateOp::Add)
}

/// A message and its two gradients, each added to a row.
impl Compose {
    fn out_dim(self, dim: usize, relation_dim: usize) -> usize {
        if self == Self::Outer { dim * relation_dim } else { dim }
    }

    fn add_message(self, sum: &mut [f32], factor: f32, sender: &[f32], relation: &[f32]) {
        match self {
            Self::Product => simd::add_product(sum, factor, sender, relation),
            Self::Difference => {
                simd::add_scaled(sum, factor, sender);
                simd::add_scaled(sum, -factor, relation);
            }
            Self::Conjugate => simd::add_conjugate_product(sum, factor, sender, relation),
            Self::Outer => {
                for (sum, z) in sum.chunks_exact_mut(sender.len()).zip(relation) {
                    simd::add_scaled(sum, factor * z, sender);
                }
            }
        }
    }

    fn add_grad_sender(self, sum: &mut [f32], factor: f32, grad: &[f32], relation: &[f32]) {
        match self {
            Self::Product => simd::add_product(sum, factor, grad, relation),
            Self::Difference => simd::add_scaled(sum, factor, grad),
            Self::Conjugate => simd::add_conjugate_product(sum, factor, grad, relation),
            Self::Outer => {
                for (grad, z) in grad.chunks_exact(sum.len()).zip(relation) {
                    simd::add_scaled(sum, factor * z, grad);
                }
            }
        }
    }

    fn add_grad_relation(self, sum: &mut [f32], factor: f32, grad: &[f32], sender: &[f32]) {
        match self {
            Self::Product => simd::add_product(sum, factor, grad, sender),
            Self::Difference => simd::add_scaled(sum, -factor, grad),
            Self::Conjugate => simd::add_complex_product(sum, factor, grad, sender),
            Self::Outer => {
                for (sum, grad) in sum.iter_mut().zip(grad.chunks_exact(sender.len())) {
                    *sum += factor * simd::dot(grad, sender);
                }
            }
        }
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait SumMessagesBackend: Backend {
    /// See [`sum_messages`].
    fn sum_messages(
        senders: FloatTensor<Self>,
        relations: FloatTensor<Self>,
        messages: Arc<Messages>,
        compose: Compose,
    ) -> FloatTensor<Self>;
}

impl SumMessagesBackend for Flex {
    fn sum_messages(
        senders: FlexTensor,
        relations: FlexTensor,
        messages: Arc<Messages>,
        compose: Compose,
    ) -> FlexTensor {
        let [entities, dim] = senders.shape().dims();
        let relation_dim = relations.shape()[1];
        let out_dim = compose.out_dim(dim, relation_dim);
        let (senders, relations) = (values(&senders), values(&relations));
        let rows = (Rows::new(&senders, dim), Rows::new(&relations, relation_dim));
        let add = |sum: &mut [f32], factor: f32, sender: &[f32], relation: &[f32]| {
            compose.add_message(sum, factor, sender, relation);
        };
        flex_tensor(messages.by_receiver().sums(rows, out_dim, add), [entities, out_dim])
    }
}

#[derive(Debug)]
struct SumMessagesBackward;

#[derive(Debug, Clone)]
struct State {
    senders: FlexTensor,
    relations: FlexTensor,
    messages: Arc<Messages>,
    compose: Compose,
}

impl Backward<Flex, 2> for SumMessagesBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad_out = grads.consume::<Flex>(&ops.node);
        let State { senders, relations, messages, compose } = ops.state;
        let [entities, dim] = senders.shape().dims();
        let [n_relations, relation_dim] = relations.shape().dims();
        let grad_out = values(&grad_out);
        let grad_rows = Rows::new(&grad_out, compose.out_dim(dim, relation_dim));
        let [senders_node, relations_node] = ops.parents;
        if let Some(node) = senders_node {
            let relations = values(&relations);
            let rows = (grad_rows, Rows::new(&relations, relation_dim));
            let add = |sum: &mut [f32], factor: f32, grad: &[f32], relation: &[f32]| {
                compose.add_grad_sender(sum, factor, grad, relation);
            };
            let grad = messages.by_sender().sums(rows, dim, add);
            grads.register::<Flex>(node.id, flex_tensor(grad, [entities, dim]));
        }
        if let Some(node) = relations_node {
            let senders = values(&senders);
            let rows = (grad_rows, Rows::new(&senders, dim));
            let add = |sum: &mut [f32], factor: f32, grad: &[f32], sender: &[f32]| {
                compose.add_grad_relation(sum, factor, grad, sender);
            };
            let grad = messages.by_relation().sums(rows, relation_dim, add);
            grads.register::<Flex>(node.id, flex_tensor(grad, [n_relations, relation_dim]));
        }
    }
}

impl<C: CheckpointStrategy> SumMessagesBackend for Autodiff<Flex, C> {
    fn sum_messages(
        senders: FloatTensor<Self>,
        relations: FloatTensor<Self>,
        messages: Arc<Messages>,
        compose: Compose,
    ) -> FloatTensor<Self> {
        let ((senders, senders_node), (relations, relations_node)) =
            (senders.into_parts(), relations.into_parts());
        let sums =
            Flex::sum_messages(senders.clone(), relations.clone(), Arc::clone(&messages), compose);
        let nodes = [senders_node, relations_node];
        match SumMessagesBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                prep.finish(State { senders, relations, messages, compose }, sums)
            }
            OpsKind::UnTracked(prep) => prep.finish(sums),
        }
    }
}
