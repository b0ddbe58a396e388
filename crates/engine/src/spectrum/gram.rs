//! Gram matrices: how are the products and eigenvalues of large matrices made?
//!
//! A face for `faer`, all of it in f64. Rows come as f32, whose products are exact there.

use faer::linalg::matmul::matmul;
use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::{Accum, Mat, MatRef, Par, Side};

/// XᵀX for the rows X added so far; only the lower half is kept up to date.
#[derive(Debug)]
pub(super) struct Gram(Mat<f64>);

impl Gram {
    pub(super) fn zero(side: usize) -> Self {
        Self(Mat::zeros(side, side))
    }

    pub(super) fn side(&self) -> usize {
        self.0.nrows()
    }

    /// Adds rows as wide as the matrix, one after the other.
    pub(super) fn add(&mut self, rows: &[f32]) {
        let rows = wide(rows);
        self.add_product(MatRef::from_row_major_slice(
            &rows,
            rows.len() / self.side(),
            self.side(),
        ));
    }

    /// Adds rows times a basis.
    pub(super) fn add_projected(&mut self, rows: &[f32], basis: &Mat<f64>) {
        let n_columns = basis.nrows();
        let rows = wide(rows);
        let rows = MatRef::from_row_major_slice(&rows, rows.len() / n_columns, n_columns);
        let mut projected = Mat::<f64>::zeros(rows.nrows(), self.side());
        matmul(projected.as_mut(), Accum::Replace, rows, basis.as_ref(), 1.0, threads());
        self.add_product(projected.as_ref());
    }

    fn add_product(&mut self, rows: MatRef<f64>) {
        let (whole, half) = (BlockStructure::Rectangular, BlockStructure::TriangularLower);
        let turned = rows.transpose();
        triangular::matmul(
            self.0.as_mut(),
            half,
            Accum::Add,
            turned,
            whole,
            rows,
            whole,
            1.0,
            threads(),
        );
    }

    /// Roots of the eigenvalues, largest first.
    pub(super) fn singular_values(&self) -> Vec<f64> {
        let eigenvalues = self.0.self_adjoint_eigenvalues(Side::Lower);
        let eigenvalues = eigenvalues.expect("finite symmetric matrices have eigenvalues");
        // In exact arithmetic none is negative.
        let mut values: Vec<f64> = eigenvalues.iter().map(|value| value.max(0.0).sqrt()).collect();
        values.sort_by(|a, b| b.total_cmp(a));
        values
    }
}

/// Random sums of rows: ΩᵀX for the rows X added so far.
#[derive(Debug)]
pub(super) struct Sketch(Mat<f64>);

impl Sketch {
    pub(super) fn zero(width: usize, n_columns: usize) -> Self {
        Self(Mat::zeros(width, n_columns))
    }

    /// Adds rows, each with as many factors as the sketch has sums.
    pub(super) fn add(&mut self, factors: &[f64], rows: &[f32]) {
        let (width, n_columns) = (self.0.nrows(), self.0.ncols());
        let rows = wide(rows);
        let n_rows = rows.len() / n_columns;
        let rows = MatRef::from_row_major_slice(&rows, n_rows, n_columns);
        let factors = MatRef::from_row_major_slice(factors, n_rows, width);
        matmul(self.0.as_mut(), Accum::Add, factors.transpose(), rows, 1.0, threads());
    }

    /// An orthonormal basis of the sums, one a column.
    pub(super) fn basis(self) -> Mat<f64> {
        self.0.transpose().qr().compute_thin_Q()
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|value| f64::from(*value)).collect()
}

/// As many as the current pool has.
fn threads() -> Par {
    Par::rayon(0)
}
