//! Messages: how are those along all edges of a graph summed at their receivers?

#[cfg(test)]
mod tests;

use std::sync::Arc;

use burn::backend::flex::FlexTensor;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
pub(crate) use fullrank_kernels::messages::{Compose, Message, Messages};
use fullrank_kernels::product::Matrix;

use super::adaptor::{self, InputGrads, Inputs, Operation, flex_tensor};
use super::gather;

/// Σ factor · compose(x_sender, z_relation) over the messages to each entity: `[E, D]` and
/// `[R, F]` → `[E, D]`, or `[E, F·D]` for [`Compose::Outer`].
pub(crate) fn sum_messages(
    senders: Tensor<2>,
    relations: Tensor<2>,
    messages: &Arc<Messages>,
    compose: Compose,
) -> Tensor<2> {
    if !adaptor::is_supported(&senders) {
        return reference(senders, relations, messages, compose);
    }
    let operation = SumMessages { messages: Arc::clone(messages), compose };
    adaptor::apply(operation, [senders.into(), relations.into()])
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

/// Of senders and relations.
#[derive(Debug, Clone)]
struct SumMessages {
    messages: Arc<Messages>,
    compose: Compose,
}

impl Operation<2> for SumMessages {
    type Saved = ();

    fn forward(&self, inputs: &Inputs<2>) -> (FlexTensor, ()) {
        let ([entities, dim], [_, relation_dim]) = (inputs.dims(0), inputs.dims(1));
        let (senders, relations) = (inputs.values(0), inputs.values(1));
        let sums = self.messages.sums(
            self.compose,
            Matrix::rows_of(&senders, dim),
            Matrix::rows_of(&relations, relation_dim),
        );
        (flex_tensor(sums, [entities, self.compose.out_dim(dim, relation_dim)]), ())
    }

    fn backward(self, inputs: &Inputs<2>, (): (), grad: &[f32], grads: &mut InputGrads<2>) {
        let ([_, dim], [_, relation_dim]) = (inputs.dims(0), inputs.dims(1));
        let Self { messages, compose } = self;
        let grad = Matrix::rows_of(grad, compose.out_dim(dim, relation_dim));
        if grads.wants(0) {
            let relations = inputs.values(1);
            let relations = Matrix::rows_of(&relations, relation_dim);
            grads.set(0, messages.grad_senders(compose, grad, relations, dim));
        }
        if grads.wants(1) {
            let senders = inputs.values(0);
            let senders = Matrix::rows_of(&senders, dim);
            grads.set(1, messages.grad_relations(compose, grad, senders, relation_dim));
        }
    }
}
