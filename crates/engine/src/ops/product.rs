//! How does a kernel multiply two pieces of a matrix?
//!
//! A checked face for `gemm`, which works on pointers and strides. One thread: our kernels are
//! parallel above it, over tiles, so that the order of every sum is fixed.

use std::time::Instant;

use gemm::Parallelism;

use super::bf16;
use super::loss::Products;

/// A matrix that lies in a slice, row after row.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    pub(crate) values: &'a [f32],
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Distance between the starts of two rows.
    pub(crate) stride: usize,
}

impl<'a> Matrix<'a> {
    /// The rows of `values`, `columns` wide and without gaps.
    pub(crate) fn rows_of(values: &'a [f32], columns: usize) -> Self {
        Self { values, rows: values.len() / columns, columns, stride: columns }
    }

    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(dead_code, reason = "read where there is a unit")
    )]
    pub(super) fn row(&self, number: usize) -> &'a [f32] {
        &self.values[number * self.stride..][..self.columns]
    }

    pub(crate) fn transposed(self) -> Operand<'a> {
        Operand { matrix: self, transposed: true }
    }
}

/// A factor of a product, as it stands or transposed.
#[derive(Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(super) matrix: Matrix<'a>,
    pub(super) transposed: bool,
}

impl<'a> From<Matrix<'a>> for Operand<'a> {
    fn from(matrix: Matrix<'a>) -> Self {
        Self { matrix, transposed: false }
    }
}

impl Operand<'_> {
    fn shape(&self) -> (usize, usize) {
        let Matrix { rows, columns, .. } = self.matrix;
        if self.transposed { (columns, rows) } else { (rows, columns) }
    }

    /// Steps in memory from one column, and from one row, to the next.
    fn strides(&self) -> (isize, isize) {
        let stride = self.matrix.stride as isize;
        if self.transposed { (stride, 1) } else { (1, stride) }
    }
}

/// What happens to the values that stand where a product goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Onto {
    /// They are overwritten.
    Replace,
    /// The product is added to them.
    Add,
}

/// Floating-point operations a second of products of tiles, on all threads at once: what a kernel
/// made of nothing else would reach. The best of some rounds, each a few milliseconds.
pub(crate) fn peak(dim: usize, products: Products) -> f64 {
    const TILE: usize = 512;
    const ROUNDS: usize = 40;
    let contexts: Vec<f32> = (0..TILE * dim).map(|i| (i % 17) as f32).collect();
    let factor = Matrix::rows_of(&contexts, dim);
    let halves = (products == Products::Halves)
        .then(|| (bf16::Left::of(factor), bf16::Right::of(factor.transposed())));
    let of_one = || {
        let mut out = vec![0.0; TILE * TILE];
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            match &halves {
                Some((left, right)) => {
                    bf16::multiply(&mut out, TILE, Onto::Replace, left, right);
                }
                None => multiply(&mut out, Onto::Replace, factor, factor.transposed()),
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        2.0 * (TILE * TILE * dim) as f64 / best
    };
    rayon::broadcast(|_| of_one()).into_iter().sum()
}

/// left · right, written to `out` row after row without gaps.
pub(crate) fn multiply<'a>(
    out: &mut [f32],
    onto: Onto,
    left: impl Into<Operand<'a>>,
    right: impl Into<Operand<'a>>,
) {
    let (left, right) = (left.into(), right.into());
    let (m, n) = (left.shape().0, right.shape().1);
    assert_eq!(out.len(), m * n, "room for {} values for a product of {m}×{n}", out.len());
    multiply_into(out, n, onto, left, right);
}

/// left · right, written to the start of `out` row after row, `stride` apart.
pub(crate) fn multiply_into<'a>(
    out: &mut [f32],
    stride: usize,
    onto: Onto,
    left: impl Into<Operand<'a>>,
    right: impl Into<Operand<'a>>,
) {
    let (left, right) = (left.into(), right.into());
    let ((m, inner), (right_rows, n)) = (left.shape(), right.shape());
    assert_eq!(inner, right_rows, "product of {m}×{inner} and {right_rows}×{n}");
    assert!(stride >= n, "rows of {n} values {stride} apart");
    let extents = [left.matrix, right.matrix]
        .map(|Matrix { values, rows, columns, stride }| (values.len(), rows, columns, stride));
    for (len, rows, columns, stride) in extents.into_iter().chain([(out.len(), m, n, stride)]) {
        let last = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
        assert!(len >= last, "{rows}×{columns} at stride {stride} in {len}");
    }
    let ((left_cs, left_rs), (right_cs, right_rs)) = (left.strides(), right.strides());
    // SAFETY: shapes agree and both factors and the result lie inside their slices, as asserted
    // above; `out` is borrowed mutably, so it overlaps neither factor.
    unsafe {
        gemm::gemm(
            m,
            n,
            inner,
            out.as_mut_ptr(),
            1,
            stride as isize,
            onto == Onto::Add,
            left.matrix.values.as_ptr(),
            left_cs,
            left_rs,
            right.matrix.values.as_ptr(),
            right_cs,
            right_rs,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
