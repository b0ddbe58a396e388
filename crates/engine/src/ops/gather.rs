//! How are rows of a table read so that their gradient does not cost a pass over the table?
//!
//! burn's `select` makes a table of zeros for every gather and adds it to the gradient that is
//! there. The entity table of a linear model already has a dense gradient when its gathers are
//! differentiated, for the loss comes first in the backward pass: rows are added to that in place.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, Int, Tensor, TensorData};

use super::{flex_tensor, simd, values};

/// Rows `ids` of a table, `[R, D]` → `[B, D]`.
pub(crate) fn gather_rows(table: Tensor<2>, ids: Arc<[u32]>) -> Tensor<2> {
    match table.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if table.dtype() == DType::F32 => {
            Tensor::from_dispatch(Dispatch::gather_rows(table.into_dispatch(), ids))
        }
        _ => reference(table, &ids),
    }
}

pub(super) fn reference(table: Tensor<2>, ids: &[u32]) -> Tensor<2> {
    let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    let n = ids.len();
    let device = table.device();
    table.select(0, Tensor::<1, Int>::from_data(TensorData::new(ids, [n]), &device))
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait GatherRowsBackend: Backend {
    /// See [`gather_rows`].
    fn gather_rows(table: FloatTensor<Self>, ids: Arc<[u32]>) -> FloatTensor<Self>;
}

impl GatherRowsBackend for Flex {
    fn gather_rows(table: FlexTensor, ids: Arc<[u32]>) -> FlexTensor {
        let dim = table.shape()[1];
        let table = values(&table);
        let mut rows = Vec::with_capacity(ids.len() * dim);
        for id in ids.iter() {
            rows.extend_from_slice(&table[*id as usize * dim..][..dim]);
        }
        flex_tensor(rows, [ids.len(), dim])
    }
}

#[derive(Debug)]
struct GatherRowsBackward;

#[derive(Debug, Clone)]
struct State {
    /// Kept as autodiff knows it: the table's gradient so far is found by it.
    table: FloatTensor<Autodiff<Flex>>,
    ids: Arc<[u32]>,
}

impl Backward<Flex, 1> for GatherRowsBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad_rows = grads.consume::<Flex>(&ops.node);
        let [Some(node)] = ops.parents else { return };
        let State { table, ids } = ops.state;
        let [rows, dim] = table.primitive().shape().dims();
        let mut grad_table = match grads.remove::<Flex>(&table) {
            Some(grad) => grad.to_contiguous(),
            None => flex_tensor(vec![0.0; rows * dim], [rows, dim]),
        };
        let sums = grad_table.storage_mut::<f32>();
        for (id, row) in ids.iter().zip(values(&grad_rows).chunks_exact(dim)) {
            simd::add(&mut sums[*id as usize * dim..][..dim], row);
        }
        grads.register::<Flex>(node.id, grad_table);
    }
}

impl<C: CheckpointStrategy> GatherRowsBackend for Autodiff<Flex, C> {
    fn gather_rows(table: FloatTensor<Self>, ids: Arc<[u32]>) -> FloatTensor<Self> {
        let rows = Flex::gather_rows(table.primitive().clone(), Arc::clone(&ids));
        match GatherRowsBackward.prepare::<C>([table.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { table, ids }, rows),
            OpsKind::UnTracked(prep) => prep.finish(rows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution};

    #[test]
    fn repeated_rows_and_a_gradient_that_is_there_add_up() {
        let device = Device::flex().autodiff();
        let table = Tensor::<2>::random([7, 5], Distribution::Default, &device).require_grad();
        let other = Tensor::<2>::random([4, 5], Distribution::Default, &device);
        let ids: Arc<[u32]> = [6, 0, 6, 3].into();
        // The rows are learned themselves, or made of what is.
        for make in [|learned: Tensor<2>| learned, |learned: Tensor<2>| learned.tanh()] {
            let grad = |gather: &dyn Fn(Tensor<2>) -> Tensor<2>| {
                let made = make(table.clone());
                let rows = gather(made.clone());
                // The second use of the table gives it a dense gradient, as a loss does.
                let loss = (rows * other.clone()).matmul(made.transpose()).sum();
                table.grad(&loss.backward()).unwrap().into_data()
            };
            let fused = grad(&|table| gather_rows(table, Arc::clone(&ids)));
            let plain = grad(&|table| reference(table, &ids));
            fused.assert_approx_eq::<f32>(&plain, burn::tensor::Tolerance::relative(1e-6));
        }
    }
}
