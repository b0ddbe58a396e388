//! Matrix products: how does a kernel multiply two pieces of a matrix?
//!
//! A checked face for `gemm`, which works on pointers and strides. One thread: our kernels are
//! parallel above it, over tiles, so that the order of every sum is fixed.

use std::time::Instant;

use gemm::Parallelism;

use crate::split_bf16::{self, PackedLeft, PackedRight};

/// A matrix that lies in a slice, row after row.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    /// Holds the matrix, and may go on after it.
    pub values: &'a [f32],
    /// How many rows it has.
    pub rows: usize,
    /// How many values a row has.
    pub columns: usize,
    /// Distance between the starts of two rows.
    pub stride: usize,
}

impl<'a> Matrix<'a> {
    /// The rows of `values`, `columns` wide and without gaps.
    pub fn rows_of(values: &'a [f32], columns: usize) -> Self {
        Self { values, rows: values.len() / columns, columns, stride: columns }
    }

    pub(crate) fn row(&self, number: usize) -> &'a [f32] {
        &self.values[number * self.stride..][..self.columns]
    }

    /// The transposed matrix as a factor; nothing is moved.
    pub fn transposed(self) -> Operand<'a> {
        Operand { matrix: self, transposed: true }
    }
}

/// A factor of a product, as it stands or transposed.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    pub(crate) matrix: Matrix<'a>,
    pub(crate) transposed: bool,
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
pub enum Onto {
    /// They are overwritten.
    Replace,
    /// The product is added to them.
    Add,
}

/// How a product of two numbers is made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Precision {
    /// Of f32.
    #[default]
    F32,
    /// Of two bf16 for each number, on a matrix unit: see [`split_bf16`].
    SplitBf16,
}

impl Precision {
    /// The fastest that this machine can make.
    pub fn fastest() -> Self {
        if split_bf16::is_available() { Self::SplitBf16 } else { Self::F32 }
    }
}

/// Floating-point operations a second of products of tiles, on all threads at once: what a kernel
/// made of nothing else would reach. The best of some rounds, each a few milliseconds.
pub fn peak(dim: usize, precision: Precision) -> f64 {
    const TILE: usize = 512;
    const ROUNDS: usize = 40;
    let contexts: Vec<f32> = (0..TILE * dim).map(|i| (i % 17) as f32).collect();
    let factor = Matrix::rows_of(&contexts, dim);
    let packed = (precision == Precision::SplitBf16)
        .then(|| (PackedLeft::of(factor), PackedRight::of(factor.transposed())));
    let of_one = || {
        let mut out = vec![0.0; TILE * TILE];
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let start = Instant::now();
            match &packed {
                Some((left, right)) => {
                    split_bf16::multiply(&mut out, TILE, Onto::Replace, left, right);
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
pub fn multiply<'a>(
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
pub fn multiply_into<'a>(
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

/// out − left · right in f64, on all threads: everything row after row, `right` and `out` as wide as
/// `width`.
///
/// Sums are made in no fixed order. Where all numbers are whole and no sum reaches 2^53, nothing is
/// rounded, and the result is the same all the same.
pub fn subtract_product_f64(out: &mut [f64], left: &[f64], right: &[f64], width: usize) {
    if out.is_empty() || right.is_empty() {
        return;
    }
    let (n_rows, inner) = (out.len() / width, right.len() / width);
    assert_eq!(out.len(), n_rows * width, "{n_rows} rows of {width}");
    assert_eq!(right.len(), inner * width, "{inner} rows of {width}");
    assert_eq!(left.len(), n_rows * inner, "factors for {n_rows} by {inner} rows");
    let row = width as isize;
    // SAFETY: the three slices hold matrices of these shapes without gaps, as asserted above; `out`
    // is borrowed mutably, so it overlaps neither factor.
    unsafe {
        gemm::gemm(
            n_rows,
            width,
            inner,
            out.as_mut_ptr(),
            1,
            row,
            true,
            left.as_ptr(),
            1,
            inner as isize,
            right.as_ptr(),
            1,
            row,
            1.0,
            -1.0,
            false,
            false,
            false,
            Parallelism::Rayon(0),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;

    /// Sizes around the edges of blocks of registers.
    const SIZES: [[usize; 3]; 5] = [[1, 1, 1], [3, 5, 2], [16, 16, 16], [17, 33, 9], [70, 90, 40]];

    #[test]
    fn products_equal_plain_sums_as_they_stand_and_transposed() {
        for [m, k, n] in SIZES {
            let (a, b, before) = (draw(m * k, 1), draw(k * n, 2), draw(m * n, 3));
            let turned = |values: &[f32], columns: usize| -> Vec<f32> {
                let rows = values.len() / columns;
                (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
            };
            let (a_turned, b_turned) = (turned(&a, k), turned(&b, n));
            let left = [Matrix::rows_of(&a, k).into(), Matrix::rows_of(&a_turned, m).transposed()];
            let right = [Matrix::rows_of(&b, n).into(), Matrix::rows_of(&b_turned, k).transposed()];
            for (left, right) in left.into_iter().flat_map(|left| right.map(|right| (left, right)))
            {
                for onto in [Onto::Replace, Onto::Add] {
                    let mut out = before.clone();
                    multiply(&mut out, onto, left, right);
                    for (i, found) in out.iter().enumerate() {
                        let term = |j: usize| f64::from(a[i / n * k + j] * b[j * n + i % n]);
                        let start = if onto == Onto::Add { f64::from(before[i]) } else { 0.0 };
                        let expected = start + (0..k).map(term).sum::<f64>();
                        // Rounding of sums of up to 90 terms under one.
                        assert!((f64::from(*found) - expected).abs() < 1e-5, "{m}×{k}×{n}");
                    }
                }
            }
        }
    }

    #[test]
    fn whole_numbers_in_f64_are_subtracted_without_rounding() {
        for [m, k, n] in SIZES {
            let whole = |len, seed| -> Vec<f64> {
                draw(len, seed).into_iter().map(|x| f64::from(x * 2_097_152.0).round()).collect()
            };
            let (left, right, before) = (whole(m * k, 4), whole(k * n, 5), whole(m * n, 6));
            let mut out = before.clone();
            subtract_product_f64(&mut out, &left, &right, n);
            for (i, found) in out.iter().enumerate() {
                let term = |j: usize| left[i / n * k + j] as i64 * right[j * n + i % n] as i64;
                assert_eq!(*found as i64, before[i] as i64 - (0..k).map(term).sum::<i64>());
            }
        }
        subtract_product_f64(&mut [], &[], &[], 0);
    }
}
