//! Relation matmul: how is each row multiplied by the matrix of its relation, without a copy of the
//! matrix per row?
//!
//! Rows of one relation are put together, so that a batch takes as many products as it has
//! relations. The gradient of a matrix is one product as well.

use rayon::prelude::*;

use crate::product::{Matrix, Onto, multiply};

/// Which rows belong to which matrix.
#[derive(Debug)]
pub struct RowsByMatrix {
    /// Numbers of rows, matrix after matrix.
    order: Vec<usize>,
    /// Each matrix that has rows, and how many rows of `order` are its own.
    counts: Vec<(usize, usize)>,
}

impl RowsByMatrix {
    /// From the number of each row's matrix.
    pub fn new(matrix_of: &[u32]) -> Self {
        let mut order: Vec<usize> = (0..matrix_of.len()).collect();
        order.sort_by_key(|row| matrix_of[*row]);
        let mut counts: Vec<(usize, usize)> = Vec::new();
        for row in &order {
            let matrix = matrix_of[*row] as usize;
            match counts.last_mut() {
                Some((last, count)) if *last == matrix => *count += 1,
                _ => counts.push((matrix, 1)),
            }
        }
        Self { order, counts }
    }

    /// Each row times its matrix; a row of `matrices` is one matrix, `[D, F]` row after row.
    pub fn multiply(&self, rows: Matrix, matrices: Matrix) -> Vec<f32> {
        let (dim, out_dim) = (rows.columns, matrices.columns / rows.columns);
        let sorted = self.sorted(rows);
        let mut out = vec![0.0; rows.rows * out_dim];
        self.cut(&sorted, dim).into_par_iter().zip(self.cut_mut(&mut out, out_dim)).for_each(
            |((matrix, rows), out)| {
                let matrix = Matrix::rows_of(matrices.row(matrix), out_dim);
                multiply(out, Onto::Replace, Matrix::rows_of(rows, dim), matrix);
            },
        );
        self.unsorted(&out, out_dim)
    }

    /// From the gradient of these products to that of the rows.
    pub fn grad_rows(&self, grad: Matrix, matrices: Matrix) -> Vec<f32> {
        let (dim, out_dim) = (matrices.columns / grad.columns, grad.columns);
        let sorted = self.sorted(grad);
        let mut grad_rows = vec![0.0; grad.rows * dim];
        self.cut(&sorted, out_dim).into_par_iter().zip(self.cut_mut(&mut grad_rows, dim)).for_each(
            |((matrix, grad), out)| {
                let matrix = Matrix::rows_of(matrices.row(matrix), out_dim).transposed();
                multiply(out, Onto::Replace, Matrix::rows_of(grad, out_dim), matrix);
            },
        );
        self.unsorted(&grad_rows, dim)
    }

    /// From the gradient of these products to that of `n_matrices` matrices.
    pub fn grad_matrices(&self, grad: Matrix, rows: Matrix, n_matrices: usize) -> Vec<f32> {
        let (dim, out_dim) = (rows.columns, grad.columns);
        let (sorted_grad, sorted_rows) = (self.sorted(grad), self.sorted(rows));
        let (grad_of, rows_of) = (self.cut(&sorted_grad, out_dim), self.cut(&sorted_rows, dim));
        let mut grad_matrices = vec![0.0; n_matrices * dim * out_dim];
        let mut by_matrix: Vec<_> =
            grad_matrices.chunks_exact_mut(dim * out_dim).map(Some).collect();
        let own: Vec<&mut [f32]> =
            self.counts.iter().filter_map(|(matrix, _)| by_matrix[*matrix].take()).collect();
        own.into_par_iter().zip(&grad_of).zip(&rows_of).for_each(
            |((out, (_, grad)), (_, rows))| {
                let rows = Matrix::rows_of(rows, dim).transposed();
                multiply(out, Onto::Replace, rows, Matrix::rows_of(grad, out_dim));
            },
        );
        grad_matrices
    }

    /// Rows in the order of their matrices.
    fn sorted(&self, rows: Matrix) -> Vec<f32> {
        self.order.iter().flat_map(|row| rows.row(*row)).copied().collect()
    }

    /// Rows back in their own order.
    fn unsorted(&self, sorted: &[f32], width: usize) -> Vec<f32> {
        let mut rows = vec![0.0; sorted.len()];
        for (row, values) in self.order.iter().zip(sorted.chunks_exact(width)) {
            rows[row * width..][..width].copy_from_slice(values);
        }
        rows
    }

    /// Cuts sorted rows into those of each matrix, beside its number.
    fn cut<'a>(&self, mut sorted: &'a [f32], width: usize) -> Vec<(usize, &'a [f32])> {
        let mut rows_of = Vec::with_capacity(self.counts.len());
        for (matrix, count) in &self.counts {
            let (own, rest) = sorted.split_at(count * width);
            sorted = rest;
            rows_of.push((*matrix, own));
        }
        rows_of
    }

    fn cut_mut<'a>(&self, mut sorted: &'a mut [f32], width: usize) -> Vec<&'a mut [f32]> {
        let mut rows_of = Vec::with_capacity(self.counts.len());
        for (_, count) in &self.counts {
            let (own, rest) = sorted.split_at_mut(count * width);
            sorted = rest;
            rows_of.push(own);
        }
        rows_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;

    #[test]
    fn products_and_gradients_equal_plain_loops() {
        let (dim, out_dim, matrix_of) = (3, 2, [4_u32, 0, 4, 1, 0, 4]);
        let (rows, matrices) = (draw(6 * dim, 1), draw(5 * dim * out_dim, 2));
        let grad = draw(6 * out_dim, 3);
        let by_matrix = RowsByMatrix::new(&matrix_of);
        let [rows_in, grad_in] = [Matrix::rows_of(&rows, dim), Matrix::rows_of(&grad, out_dim)];
        let matrices_in = Matrix::rows_of(&matrices, dim * out_dim);
        let mut expected = [vec![0.0; 6 * out_dim], vec![0.0; rows.len()], vec![0.0; 30]];
        for (row, matrix) in matrix_of.iter().enumerate() {
            for (i, f) in (0..dim).flat_map(|i| (0..out_dim).map(move |f| (i, f))) {
                let entry = *matrix as usize * dim * out_dim + i * out_dim + f;
                expected[0][row * out_dim + f] += rows[row * dim + i] * matrices[entry];
                expected[1][row * dim + i] += grad[row * out_dim + f] * matrices[entry];
                expected[2][entry] += grad[row * out_dim + f] * rows[row * dim + i];
            }
        }
        let found = [
            by_matrix.multiply(rows_in, matrices_in),
            by_matrix.grad_rows(grad_in, matrices_in),
            by_matrix.grad_matrices(grad_in, rows_in, 5),
        ];
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            // Sums of three products of numbers under one.
            assert!((found - expected).abs() < 1e-6, "{found}, {expected}");
        }
    }
}
