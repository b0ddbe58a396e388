//! Batched matmul: how is every component's vector multiplied by a matrix of its own?
//!
//! The vectors of a query's components lie side by side, and stay there: products read and write
//! them in place, where tensor operations would swap axes and copy before and after each.

use rayon::prelude::*;

use crate::product::{Matrix, Onto, Operand, Precision, multiply_into};
use crate::split_bf16::{self, PackedLeft, PackedRight};

/// Queries per task.
const ROWS: usize = 128;
/// Rows of a matrix's gradient per task.
const MATRIX_ROWS: usize = 64;

/// Sizes of a batch of products.
#[derive(Debug, Clone, Copy)]
pub struct BatchedMatmul {
    components: usize,
    dim: usize,
    out_dim: usize,
    /// Of the vectors of a query: `dim` if all components share one.
    width: usize,
    precision: Precision,
}

impl BatchedMatmul {
    /// For matrices `[components, dim, out_dim]` and rows of `width` values: as many vectors as there
    /// are components, or one for all of them.
    pub fn new([components, dim, out_dim]: [usize; 3], width: usize, precision: Precision) -> Self {
        assert!(
            width == dim || width == components * dim,
            "{components} components of {dim} in rows of {width}"
        );
        Self { components, dim, out_dim, width, precision }
    }

    /// Every vector times the matrix of its component: a row of `components · out_dim` per query.
    pub fn multiply(self, vectors: &[f32], matrices: &[f32]) -> Vec<f32> {
        let Self { components, out_dim, width, .. } = self;
        let stride = components * out_dim;
        let matrices = (0..components).map(|k| self.matrix(matrices, k).into());
        let factors = Factors::new(self.precision, matrices, stride);
        let mut out = vec![0.0; vectors.len() / width * stride];
        out.par_chunks_mut(ROWS * stride).zip(vectors.par_chunks(ROWS * width)).for_each(
            |(out, vectors)| {
                for k in 0..components {
                    let vectors = self.vectors(vectors, k).into();
                    factors.multiply(k, &mut out[k * out_dim..], Onto::Replace, vectors);
                }
            },
        );
        out
    }

    /// From the gradient of these products to that of the vectors.
    pub fn grad_vectors(self, grad: &[f32], matrices: &[f32]) -> Vec<f32> {
        let Self { components, out_dim, width, .. } = self;
        let transposed = (0..components).map(|k| self.matrix(matrices, k).transposed());
        let factors = Factors::new(self.precision, transposed, width);
        let stride = components * out_dim;
        let mut out = vec![0.0; grad.len() / stride * width];
        out.par_chunks_mut(ROWS * width).zip(grad.par_chunks(ROWS * stride)).for_each(
            |(out, grad)| {
                for k in 0..components {
                    let start = self.start(k);
                    let onto = if start == 0 && k > 0 { Onto::Add } else { Onto::Replace };
                    factors.multiply(k, &mut out[start..], onto, self.products(grad, k).into());
                }
            },
        );
        out
    }

    /// From the gradient of these products to that of the matrices.
    pub fn grad_matrices(self, grad: &[f32], vectors: &[f32]) -> Vec<f32> {
        let Self { components, dim, out_dim, width, .. } = self;
        let grads = (0..components).map(|k| self.products(grad, k).into());
        let factors = Factors::new(self.precision, grads, out_dim);
        let mut out = vec![0.0; components * dim * out_dim];
        out.par_chunks_exact_mut(dim * out_dim).enumerate().for_each(|(k, out)| {
            let tasks = out.par_chunks_mut(MATRIX_ROWS * out_dim).enumerate();
            tasks.for_each(|(task, out)| {
                let start = self.start(k) + task * MATRIX_ROWS;
                let vectors = columns_of(vectors, width, start, out.len() / out_dim);
                factors.multiply(k, out, Onto::Replace, vectors.transposed());
            });
        });
        out
    }

    /// Where a component's vector starts in a row.
    fn start(self, component: usize) -> usize {
        if self.width == self.dim { 0 } else { component * self.dim }
    }

    /// One component's vectors, of a number of queries.
    fn vectors(self, rows: &[f32], component: usize) -> Matrix<'_> {
        columns_of(rows, self.width, self.start(component), self.dim)
    }

    /// One component's products, of a number of queries.
    fn products(self, rows: &[f32], component: usize) -> Matrix<'_> {
        let Self { components, out_dim, .. } = self;
        columns_of(rows, components * out_dim, component * out_dim, out_dim)
    }

    fn matrix(self, matrices: &[f32], component: usize) -> Matrix<'_> {
        let len = self.dim * self.out_dim;
        Matrix::rows_of(&matrices[component * len..][..len], self.out_dim)
    }
}

/// Some neighbouring columns of rows that are `stride` wide.
fn columns_of(rows: &[f32], stride: usize, start: usize, columns: usize) -> Matrix<'_> {
    Matrix { values: &rows[start..], rows: rows.len() / stride, columns, stride }
}

/// The right factors of all components, and how far apart rows of the products are written.
struct Factors<'a> {
    by_component: ByComponent<'a>,
    stride: usize,
}

enum ByComponent<'a> {
    F32(Vec<Operand<'a>>),
    SplitBf16(Vec<PackedRight>),
}

impl<'a> Factors<'a> {
    fn new(
        precision: Precision,
        factors: impl Iterator<Item = Operand<'a>>,
        stride: usize,
    ) -> Self {
        let factors: Vec<Operand> = factors.collect();
        let by_component = match precision {
            Precision::F32 => ByComponent::F32(factors),
            Precision::SplitBf16 => {
                ByComponent::SplitBf16(factors.into_par_iter().map(PackedRight::of).collect())
            }
        };
        Self { by_component, stride }
    }

    /// left · factor of a component, written to the start of `out`.
    fn multiply(&self, component: usize, out: &mut [f32], onto: Onto, left: Operand) {
        match &self.by_component {
            ByComponent::F32(factors) => {
                multiply_into(out, self.stride, onto, left, factors[component]);
            }
            ByComponent::SplitBf16(factors) => {
                let left = PackedLeft::of(left);
                split_bf16::multiply(out, self.stride, onto, &left, &factors[component]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;

    /// Products and both gradients, as plain loops.
    fn plain(
        [queries, components, dim, out_dim, width]: [usize; 5],
        [vectors, matrices, grad]: [&[f32]; 3],
    ) -> [Vec<f64>; 3] {
        let mut sums = [vec![0.0; grad.len()], vec![0.0; vectors.len()], vec![0.0; matrices.len()]];
        for (query, k) in (0..queries).flat_map(|query| (0..components).map(move |k| (query, k))) {
            let start = query * width + if width == dim { 0 } else { k * dim };
            for (i, f) in (0..dim).flat_map(|i| (0..out_dim).map(move |f| (i, f))) {
                let (vector, entry) = (start + i, (k * dim + i) * out_dim + f);
                let product = (query * components + k) * out_dim + f;
                let [x, m, g] = [vectors[vector], matrices[entry], grad[product]].map(f64::from);
                sums[0][product] += x * m;
                sums[1][vector] += g * m;
                sums[2][entry] += g * x;
            }
        }
        sums
    }

    #[test]
    fn products_in_place_equal_plain_loops() {
        // Shared or each its own; more queries and rows of a matrix than a task.
        for sizes in [[200, 3, 70, 5, 70], [130, 4, 70, 9, 280], [7, 1, 6, 6, 6]] {
            let [queries, components, dim, out_dim, width] = sizes;
            let vectors = draw(queries * width, 1);
            let matrices = draw(components * dim * out_dim, 2);
            let grad = draw(queries * components * out_dim, 3);
            let expected = plain(sizes, [&vectors, &matrices, &grad]);
            // Of sums of up to 200 products of numbers under one: each is off by 2⁻¹⁶ of itself.
            for (precision, most) in [(Precision::F32, 1e-4), (Precision::SplitBf16, 5e-3)] {
                let sizes = [components, dim, out_dim];
                let batched = BatchedMatmul::new(sizes, width, precision);
                let found = [
                    batched.multiply(&vectors, &matrices),
                    batched.grad_vectors(&grad, &matrices),
                    batched.grad_matrices(&grad, &vectors),
                ];
                for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                    let off = (f64::from(*found) - expected).abs();
                    assert!(off < most, "{sizes:?}, {precision:?}: {found}, {expected}");
                }
            }
        }
    }
}
