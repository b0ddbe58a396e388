//! Relation matmul: how is each row multiplied by the matrix of its relation?

use std::sync::Arc;

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use fullrank_kernels::product::Matrix;
use fullrank_kernels::relation_matmul::RowsByMatrix;

use super::adaptor::{self, InputGrads, Inputs, Operation, flex_tensor};
use super::gather;

/// out_b = rows_b · matrices_{matrix of b}: `[B, D]` and `[R, D·F]` → `[B, F]`.
pub(crate) fn relation_matmul(
    rows: Tensor<2>,
    matrices: Tensor<2>,
    matrix_of: &[u32],
) -> Tensor<2> {
    if !adaptor::is_supported(&rows) {
        return reference(rows, matrices, matrix_of);
    }
    let rows_by_matrix = Arc::new(RowsByMatrix::new(matrix_of));
    adaptor::apply(RelationMatmul { rows_by_matrix }, [rows.into(), matrices.into()])
}

/// out_b = matrices_{matrix of b} · rows_b: `[B, F]` and `[R, D·F]` → `[B, D]`.
pub(crate) fn transposed_relation_matmul(
    rows: Tensor<2>,
    matrices: Tensor<2>,
    matrix_of: &[u32],
) -> Tensor<2> {
    if !adaptor::is_supported(&rows) {
        return transposed_reference(rows, matrices, matrix_of);
    }
    let rows_by_matrix = Arc::new(RowsByMatrix::new(matrix_of));
    adaptor::apply(TransposedRelationMatmul { rows_by_matrix }, [rows.into(), matrices.into()])
}

fn reference(rows: Tensor<2>, matrices: Tensor<2>, matrix_of: &[u32]) -> Tensor<2> {
    let [n, dim] = rows.dims();
    let out_dim = matrices.dims()[1] / dim;
    let matrices = gather::reference(matrices, matrix_of).reshape([n, dim, out_dim]);
    rows.reshape([n, 1, dim]).matmul(matrices).reshape([n, out_dim])
}

fn transposed_reference(rows: Tensor<2>, matrices: Tensor<2>, matrix_of: &[u32]) -> Tensor<2> {
    let [n, out_dim] = rows.dims();
    let dim = matrices.dims()[1] / out_dim;
    let matrices = gather::reference(matrices, matrix_of).reshape([n, dim, out_dim]);
    matrices.matmul(rows.reshape([n, out_dim, 1])).reshape([n, dim])
}

/// Of rows and matrices.
#[derive(Debug, Clone)]
struct RelationMatmul {
    rows_by_matrix: Arc<RowsByMatrix>,
}

impl Operation<2> for RelationMatmul {
    type Saved = ();

    fn forward(&self, inputs: &Inputs<2>) -> (FlexTensor, ()) {
        let ([n, dim], [_, matrix_len]) = (inputs.dims(0), inputs.dims(1));
        let (rows, matrices) = (inputs.values(0), inputs.values(1));
        let matrices = Matrix::rows_of(&matrices, matrix_len);
        let out = self.rows_by_matrix.multiply(Matrix::rows_of(&rows, dim), matrices);
        (flex_tensor(out, [n, matrix_len / dim]), ())
    }

    fn backward(self, inputs: &Inputs<2>, (): (), grad: &[f32], grads: &mut InputGrads<2>) {
        let ([_, dim], [n_matrices, matrix_len]) = (inputs.dims(0), inputs.dims(1));
        let (rows, matrices) = (inputs.values(0), inputs.values(1));
        let grad = Matrix::rows_of(grad, matrix_len / dim);
        if grads.wants(0) {
            let matrices = Matrix::rows_of(&matrices, matrix_len);
            grads.set(0, self.rows_by_matrix.grad_rows(grad, matrices));
        }
        if grads.wants(1) {
            let rows = Matrix::rows_of(&rows, dim);
            grads.set(1, self.rows_by_matrix.grad_matrices(grad, rows, n_matrices));
        }
    }
}

/// Of rows and matrices: what [`RelationMatmul`] does to gradients of its rows, and the other way
/// round.
#[derive(Debug, Clone)]
struct TransposedRelationMatmul {
    rows_by_matrix: Arc<RowsByMatrix>,
}

impl Operation<2> for TransposedRelationMatmul {
    type Saved = ();

    fn forward(&self, inputs: &Inputs<2>) -> (FlexTensor, ()) {
        let ([n, out_dim], [_, matrix_len]) = (inputs.dims(0), inputs.dims(1));
        let (rows, matrices) = (inputs.values(0), inputs.values(1));
        let matrices = Matrix::rows_of(&matrices, matrix_len);
        let out = self.rows_by_matrix.grad_rows(Matrix::rows_of(&rows, out_dim), matrices);
        (flex_tensor(out, [n, matrix_len / out_dim]), ())
    }

    fn backward(self, inputs: &Inputs<2>, (): (), grad: &[f32], grads: &mut InputGrads<2>) {
        let ([_, out_dim], [n_matrices, matrix_len]) = (inputs.dims(0), inputs.dims(1));
        let (rows, matrices) = (inputs.values(0), inputs.values(1));
        let grad = Matrix::rows_of(grad, matrix_len / out_dim);
        if grads.wants(0) {
            let matrices = Matrix::rows_of(&matrices, matrix_len);
            grads.set(0, self.rows_by_matrix.multiply(grad, matrices));
        }
        if grads.wants(1) {
            let rows = Matrix::rows_of(&rows, out_dim);
            grads.set(1, self.rows_by_matrix.grad_matrices(rows, grad, n_matrices));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn fused_equals_a_copy_of_the_matrix_per_row() {
        check(3, relation_matmul, reference);
    }

    #[test]
    fn a_transposed_product_equals_one_with_a_copy_of_the_matrix_per_row() {
        check(2, transposed_relation_matmul, transposed_reference);
    }

    type Product = fn(Tensor<2>, Tensor<2>, &[u32]) -> Tensor<2>;

    /// Of rows that are `dim` wide, and matrices of 3 by 2.
    fn check(dim: usize, fused: Product, plain: Product) {
        let device = Device::flex().autodiff();
        let rows = Tensor::<2>::random([6, dim], Distribution::Default, &device).require_grad();
        let matrices = Tensor::<2>::random([5, 6], Distribution::Default, &device).require_grad();
        let matrix_of: Arc<[u32]> = [4, 0, 4, 1, 0, 4].into();
        let run = |product: Product| {
            let out = product(rows.clone(), matrices.clone(), &matrix_of);
            let grads = out.clone().square().sum().backward();
            [out, rows.grad(&grads).unwrap(), matrices.grad(&grads).unwrap()]
                .map(|tensor| tensor.into_data())
        };
        for (fused, plain) in run(fused).iter().zip(&run(plain)) {
            fused.assert_approx_eq::<f32>(plain, Tolerance::relative(1e-5));
        }
    }
}
