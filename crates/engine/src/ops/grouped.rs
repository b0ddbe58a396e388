//! How is each row multiplied by the matrix of its group, without a copy of the matrix per row?
//!
//! Rows of one group are put together, so that a batch of B rows takes as many products as it has
//! groups. The gradient of a matrix is one product as well.

use std::sync::Arc;

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

use super::product::{Matrix, Onto, multiply};
use super::{flex_tensor, gather, values};

/// out_b = rows_b · matrices_{group of b}: `[B, D]` and `[G, D·F]` → `[B, F]`.
pub(crate) fn grouped_product(
    rows: Tensor<2>,
    matrices: Tensor<2>,
    group_of: &Arc<[u32]>,
) -> Tensor<2> {
    match rows.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if rows.dtype() == DType::F32 => {
            let groups = Arc::new(Groups::of(group_of));
            let (rows, matrices) = (rows.into_dispatch(), matrices.into_dispatch());
            Tensor::from_dispatch(Dispatch::grouped_product(rows, matrices, groups))
        }
        _ => reference(rows, matrices, group_of),
    }
}

fn reference(rows: Tensor<2>, matrices: Tensor<2>, group_of: &[u32]) -> Tensor<2> {
    let [n, dim] = rows.dims();
    let out_dim = matrices.dims()[1] / dim;
    let matrices = gather::reference(matrices, group_of).reshape([n, dim, out_dim]);
    rows.reshape([n, 1, dim]).matmul(matrices).reshape([n, out_dim])
}

/// Which rows belong to which matrix.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Numbers of rows, group after group.
    order: Vec<usize>,
    /// Each group and how many rows of `order` are its own.
    groups: Vec<(usize, usize)>,
}

impl Groups {
    fn of(group_of: &[u32]) -> Self {
        let mut order: Vec<usize> = (0..group_of.len()).collect();
        order.sort_by_key(|row| group_of[*row]);
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for row in &order {
            let group = group_of[*row] as usize;
            match groups.last_mut() {
                Some((last, len)) if *last == group => *len += 1,
                _ => groups.push((group, 1)),
            }
        }
        Self { order, groups }
    }

    /// Rows in the order of their groups.
    fn sorted(&self, rows: &[f32], width: usize) -> Vec<f32> {
        self.order.iter().flat_map(|row| &rows[row * width..][..width]).copied().collect()
    }

    /// Rows back in their own order.
    fn unsorted(&self, sorted: &[f32], width: usize) -> Vec<f32> {
        let mut rows = vec![0.0; sorted.len()];
        for (row, values) in self.order.iter().zip(sorted.chunks_exact(width)) {
            rows[row * width..][..width].copy_from_slice(values);
        }
        rows
    }

    /// Cuts sorted rows into those of each group, beside the group.
    fn cut<'a>(&self, mut sorted: &'a [f32], width: usize) -> Vec<(usize, &'a [f32])> {
        let cut = |(group, len): &(usize, usize)| {
            let (own, rest) = sorted.split_at(len * width);
            sorted = rest;
            (*group, own)
        };
        self.groups.iter().map(cut).collect()
    }

    fn cut_mut<'a>(&self, mut sorted: &'a mut [f32], width: usize) -> Vec<&'a mut [f32]> {
        let cut = |(_, len): &(usize, usize)| {
            let (own, rest) = std::mem::take(&mut sorted).split_at_mut(len * width);
            sorted = rest;
            own
        };
        self.groups.iter().map(cut).collect()
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait GroupedProductBackend: Backend {
    /// See [`grouped_product`].
    fn grouped_product(
        rows: FloatTensor<Self>,
        matrices: FloatTensor<Self>,
        groups: Arc<Groups>,
    ) -> FloatTensor<Self>;
}

impl GroupedProductBackend for Flex {
    fn grouped_product(rows: FlexTensor, matrices: FlexTensor, groups: Arc<Groups>) -> FlexTensor {
        let [n, dim] = rows.shape().dims();
        let matrix_len = matrices.shape()[1];
        let out_dim = matrix_len / dim;
        let matrices = values(&matrices);
        let sorted = groups.sorted(&values(&rows), dim);
        let mut out = vec![0.0; n * out_dim];
        groups.cut(&sorted, dim).into_par_iter().zip(groups.cut_mut(&mut out, out_dim)).for_each(
            |((group, rows), out)| {
                let matrix = &matrices[group * matrix_len..][..matrix_len];
                let matrix = Matrix::rows_of(matrix, out_dim);
                multiply(out, Onto::Replace, Matrix::rows_of(rows, dim), matrix);
            },
        );
        flex_tensor(groups.unsorted(&out, out_dim), [n, out_dim])
    }
}

#[derive(Debug)]
struct GroupedProductBackward;

#[derive(Debug, Clone)]
struct State {
    rows: FlexTensor,
    matrices: FlexTensor,
    groups: Arc<Groups>,
}

impl Backward<Flex, 2> for GroupedProductBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad_out = grads.consume::<Flex>(&ops.node);
        let State { rows, matrices, groups } = ops.state;
        let [n, dim] = rows.shape().dims();
        let [n_matrices, matrix_len] = matrices.shape().dims();
        let out_dim = matrix_len / dim;
        let sorted_grad = groups.sorted(&values(&grad_out), out_dim);
        let grad_of = groups.cut(&sorted_grad, out_dim);
        let [rows_node, matrices_node] = ops.parents;
        if let Some(node) = rows_node {
            let matrices = values(&matrices);
            let mut grad_rows = vec![0.0; n * dim];
            grad_of.par_iter().zip(groups.cut_mut(&mut grad_rows, dim)).for_each(
                |((group, grad), out)| {
                    let matrix = &matrices[group * matrix_len..][..matrix_len];
                    let matrix = Matrix::rows_of(matrix, out_dim).transposed();
                    multiply(out, Onto::Replace, Matrix::rows_of(grad, out_dim), matrix);
                },
            );
            let grad_rows = groups.unsorted(&grad_rows, dim);
            grads.register::<Flex>(node.id, flex_tensor(grad_rows, [n, dim]));
        }
        if let Some(node) = matrices_node {
            let sorted_rows = groups.sorted(&values(&rows), dim);
            let rows_of = groups.cut(&sorted_rows, dim);
            let mut grad_matrices = vec![0.0; n_matrices * matrix_len];
            let mut grad_by_group: Vec<_> =
                grad_matrices.chunks_exact_mut(matrix_len).map(Some).collect();
            let own: Vec<&mut [f32]> =
                grad_of.iter().filter_map(|(group, _)| grad_by_group[*group].take()).collect();
            own.into_par_iter().zip(&grad_of).zip(&rows_of).for_each(
                |((out, (_, grad)), (_, rows))| {
                    let rows = Matrix::rows_of(rows, dim).transposed();
                    multiply(out, Onto::Replace, rows, Matrix::rows_of(grad, out_dim));
                },
            );
            let grad_matrices = flex_tensor(grad_matrices, [n_matrices, matrix_len]);
            grads.register::<Flex>(node.id, grad_matrices);
        }
    }
}

impl<C: CheckpointStrategy> GroupedProductBackend for Autodiff<Flex, C> {
    fn grouped_product(
        rows: FloatTensor<Self>,
        matrices: FloatTensor<Self>,
        groups: Arc<Groups>,
    ) -> FloatTensor<Self> {
        let ((rows, rows_node), (matrices, matrices_node)) =
            (rows.into_parts(), matrices.into_parts());
        let out = Flex::grouped_product(rows.clone(), matrices.clone(), Arc::clone(&groups));
        let nodes = [rows_node, matrices_node];
        match GroupedProductBackward.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { rows, matrices, groups }, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn fused_equals_a_copy_of_the_matrix_per_row() {
        let device = Device::flex().autodiff();
        let rows = Tensor::<2>::random([6, 3], Distribution::Default, &device).require_grad();
        let matrices = Tensor::<2>::random([5, 6], Distribution::Default, &device).require_grad();
        let groups: Arc<[u32]> = [4, 0, 4, 1, 0, 4].into();
        let run = |product: &dyn Fn() -> Tensor<2>| {
            let out = product();
            let grads = out.clone().square().sum().backward();
            [out, rows.grad(&grads).unwrap(), matrices.grad(&grads).unwrap()]
                .map(|tensor| tensor.into_data())
        };
        let fused = run(&|| grouped_product(rows.clone(), matrices.clone(), &groups));
        let plain = run(&|| reference(rows.clone(), matrices.clone(), &groups));
        for (fused, plain) in fused.iter().zip(&plain) {
            fused.assert_approx_eq::<f32>(plain, Tolerance::relative(1e-5));
        }
    }
}
