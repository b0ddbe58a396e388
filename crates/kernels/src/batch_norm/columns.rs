//! Channels of a single value for each query: neighbouring values are of different channels.

use rayon::prelude::*;

use super::{Grads, Lines, Statistics, Treatment, Values, by_row};
use crate::simd::batch_norm::{Centred, Line, PullBack};
use crate::simd::{self, batch_norm as loops};

pub(super) fn statistics(values: &[f32], [rows, columns, _]: [usize; 3]) -> Statistics {
    // Sums of differences from some value of the column: squares of what is far from zero would
    // leave nothing of a small variance.
    let origin = &values[..columns];
    let [sums, squares] = column_sums(rows, columns, |row, [sum, squares]| {
        loops::add_moments(&values[row * columns..][..columns], origin, sum, squares);
    });
    let mean = |sum: f64| sum / rows as f64;
    let variance = |(sum, squares): (&f64, &f64)| {
        // Rounding may take it below zero if all values are the same.
        (mean(*squares) - mean(*sum).powi(2)).max(0.0) as f32
    };
    Statistics {
        mean: sums.iter().zip(origin).map(|(sum, x)| (f64::from(*x) + mean(*sum)) as f32).collect(),
        variance: sums.iter().zip(&squares).map(variance).collect(),
    }
}

pub(super) fn forward(
    Values { values: source, shape: [_, columns, _], .. }: Values,
    Lines { slope, start }: &Lines,
    treatment: &Treatment,
) -> Vec<f32> {
    let mut out = vec![0.0; source.len()];
    by_row(&mut out, columns, |row, out| {
        let at = row * columns;
        let line = Line { slope, start };
        loops::activate(out, &source[at..][..columns], line, treatment.negative_slope);
        if let Some(mask) = &treatment.dropout_mask {
            simd::multiply(out, &mask[at..][..columns]);
        }
    });
    out
}

pub(super) fn backward(
    Values { values: source, shape: [rows, columns, _], .. }: Values,
    Lines { slope, start }: &Lines,
    treatment: &Treatment,
    grad: &[f32],
) -> Grads {
    let mut grad = grad.to_vec();
    let statistics = &treatment.statistics;
    let row_of = |row: usize| &source[row * columns..][..columns];
    by_row(&mut grad, columns, |row, grad| {
        if let Some(mask) = &treatment.dropout_mask {
            simd::multiply(grad, &mask[row * columns..][..columns]);
        }
        loops::deactivate(grad, row_of(row), Line { slope, start }, treatment.negative_slope);
    });
    // Σ g and Σ g·(x − mean), which make the gradients of shift and scale.
    let [sums, products] = column_sums(rows, columns, |row, [sum, product]| {
        let grad = &grad[row * columns..][..columns];
        let centred = Centred { values: row_of(row), mean: &statistics.mean };
        loops::add_products(grad, centred, sum, product);
    });
    let inverse: Vec<f32> =
        (0..columns).map(|column| statistics.inverse_standard_deviation(column)).collect();
    let of_scale: Vec<f32> =
        products.iter().zip(&inverse).map(|(sum, inverse)| *sum as f32 * inverse).collect();
    // slope·(g − Σg/B − x̂·Σ(g·x̂)/B), which is linear in x as well.
    let count = rows as f32;
    let less: Vec<f32> = sums.iter().map(|sum| *sum as f32 / count).collect();
    let by_value: Vec<f32> =
        of_scale.iter().zip(&inverse).map(|(sum, inverse)| sum * inverse / count).collect();
    by_row(&mut grad, columns, |row, grad| {
        let centred = Centred { values: row_of(row), mean: &statistics.mean };
        loops::pull_back(grad, centred, PullBack { less: &less, by_value: &by_value, slope });
    });
    let of_shift = sums.iter().map(|sum| *sum as f32).collect();
    Grads { values: grad, gamma: of_scale, beta: of_shift }
}

/// Two sums for each column, to which `add` adds a row: in f32 over the rows of a task, in f64 over
/// tasks, in order.
fn column_sums(
    rows: usize,
    columns: usize,
    add: impl Fn(usize, [&mut [f32]; 2]) + Sync,
) -> [Vec<f64>; 2] {
    /// Rows per task; part of what decides the bits, so it never changes.
    const ROWS: usize = 32;
    let of_task = |task: usize| {
        let [mut first, mut second] = [vec![0.0; columns], vec![0.0; columns]];
        for row in task * ROWS..((task + 1) * ROWS).min(rows) {
            add(row, [&mut first, &mut second]);
        }
        [first, second]
    };
    let tasks: Vec<_> = (0..rows.div_ceil(ROWS)).into_par_iter().map(of_task).collect();
    let mut all = [vec![0.0; columns], vec![0.0; columns]];
    for sums in tasks {
        for (all, sums) in all.iter_mut().zip(sums) {
            all.iter_mut().zip(sums).for_each(|(all, sum)| *all += f64::from(sum));
        }
    }
    all
}
