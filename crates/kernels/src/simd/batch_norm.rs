//! Batch norm: which loops over a row treat every column in its own way?

use super::multiply_add;

/// slope·x + start, of each column.
#[derive(Debug, Clone, Copy)]
pub struct Line<'a> {
    /// What a value is multiplied by.
    pub slope: &'a [f32],
    /// What is added then.
    pub start: &'a [f32],
}

/// x − mean, of each column.
#[derive(Debug, Clone, Copy)]
pub struct Centred<'a> {
    /// A row x.
    pub values: &'a [f32],
    /// The mean of each column.
    pub mean: &'a [f32],
}

/// What a gradient of each column is made of: slope·(g − less − (x − mean)·by_value).
#[derive(Debug, Clone, Copy)]
pub struct PullBack<'a> {
    /// Taken off.
    pub less: &'a [f32],
    /// Taken off as often as x is above the mean.
    pub by_value: &'a [f32],
    /// What the rest is multiplied by.
    pub slope: &'a [f32],
}

dispatched!(
    /// Adds x − origin and its square to two sums, column by column.
    pub add_moments, add_moments_body,
    (row: &[f32], origin: &[f32], sum: &mut [f32], squares: &mut [f32])
);
dispatched!(
    /// a(slope·x + start), where a multiplies negative values by `negative_slope`.
    pub activate, activate_body,
    (out: &mut [f32], row: &[f32], line: Line<'_>, negative_slope: f32)
);
dispatched!(
    /// Multiplies a gradient by the slope of a at slope·x + start.
    pub deactivate, deactivate_body,
    (grad: &mut [f32], row: &[f32], line: Line<'_>, negative_slope: f32)
);
dispatched!(
    /// Adds g and g·(x − mean) to two sums, column by column.
    pub add_products, add_products_body,
    (grad: &[f32], centred: Centred<'_>, sum: &mut [f32], product: &mut [f32])
);
dispatched!(
    /// Replaces g by what [`PullBack`] says.
    pub pull_back, pull_back_body,
    (grad: &mut [f32], centred: Centred<'_>, parts: PullBack<'_>)
);

#[inline(always)]
fn add_moments_body<const FMA: bool>(
    row: &[f32],
    origin: &[f32],
    sum: &mut [f32],
    squares: &mut [f32],
) {
    let sums = sum.iter_mut().zip(squares);
    for ((x, origin), (sum, squares)) in row.iter().zip(origin).zip(sums) {
        let x = x - origin;
        *sum += x;
        *squares = multiply_add::<FMA>(x, x, *squares);
    }
}

#[inline(always)]
fn activate_body<const FMA: bool>(
    out: &mut [f32],
    row: &[f32],
    Line { slope, start }: Line<'_>,
    negative_slope: f32,
) {
    for ((out, x), (slope, start)) in out.iter_mut().zip(row).zip(slope.iter().zip(start)) {
        let y = multiply_add::<FMA>(*slope, *x, *start);
        // NaN is multiplied, and stays.
        *out = if y > 0.0 { y } else { negative_slope * y };
    }
}

#[inline(always)]
fn deactivate_body<const FMA: bool>(
    grad: &mut [f32],
    row: &[f32],
    Line { slope, start }: Line<'_>,
    negative_slope: f32,
) {
    for ((grad, x), (slope, start)) in grad.iter_mut().zip(row).zip(slope.iter().zip(start)) {
        let y = multiply_add::<FMA>(*slope, *x, *start);
        *grad *= if y > 0.0 { 1.0 } else { negative_slope };
    }
}

#[inline(always)]
fn add_products_body<const FMA: bool>(
    grad: &[f32],
    Centred { values: row, mean }: Centred<'_>,
    sum: &mut [f32],
    product: &mut [f32],
) {
    let sums = sum.iter_mut().zip(product);
    for ((grad, (x, mean)), (sum, product)) in grad.iter().zip(row.iter().zip(mean)).zip(sums) {
        *sum += grad;
        *product = multiply_add::<FMA>(*grad, x - mean, *product);
    }
}

#[inline(always)]
fn pull_back_body<const FMA: bool>(
    grad: &mut [f32],
    Centred { values: row, mean }: Centred<'_>,
    PullBack { less, by_value, slope }: PullBack<'_>,
) {
    let columns = row.iter().zip(mean).zip(less.iter().zip(by_value)).zip(slope);
    for (grad, (((x, mean), (less, by_value)), slope)) in grad.iter_mut().zip(columns) {
        *grad = slope * multiply_add::<FMA>(mean - x, *by_value, *grad - less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;
    use crate::simd::instructions::on_each;

    fn assert_close(found: &[f32], expected: impl Iterator<Item = f64>) {
        for (found, expected) in found.iter().zip(expected) {
            // A few operations on numbers under ten.
            assert!((f64::from(*found) - expected).abs() < 1e-5, "{found}, {expected}");
        }
    }

    #[test]
    fn every_loop_follows_its_formula_at_every_length() {
        for n in [1, 15, 16, 17, 100] {
            let [x, y, z, slope, start] = [1, 2, 3, 4, 5].map(|seed| draw(n, seed));
            let wide = |values: &[f32], i: usize| f64::from(values[i]);
            let line = Line { slope: &slope, start: &start };
            let centred = Centred { values: &x, mean: &y };
            on_each(|| {
                let (mut sum, mut squares) = (z.clone(), z.clone());
                add_moments(&x, &y, &mut sum, &mut squares);
                let moved = |i| wide(&x, i) - wide(&y, i);
                assert_close(&sum, (0..n).map(|i| wide(&z, i) + moved(i)));
                assert_close(&squares, (0..n).map(|i| wide(&z, i) + moved(i).powi(2)));

                let mut out = vec![0.0; n];
                activate(&mut out, &x, line, 0.1);
                let height = |i| wide(&slope, i) * wide(&x, i) + wide(&start, i);
                let factor = |i| if height(i) > 0.0 { 1.0 } else { 0.1 };
                assert_close(&out, (0..n).map(|i| height(i) * factor(i)));
                let mut grad = z.clone();
                deactivate(&mut grad, &x, line, 0.1);
                assert_close(&grad, (0..n).map(|i| wide(&z, i) * factor(i)));

                let (mut sum, mut product) = (y.clone(), y.clone());
                add_products(&z, centred, &mut sum, &mut product);
                assert_close(&sum, (0..n).map(|i| wide(&y, i) + wide(&z, i)));
                let with_product = |i| wide(&y, i) + wide(&z, i) * moved(i);
                assert_close(&product, (0..n).map(with_product));

                let mut grad = z.clone();
                let parts = PullBack { less: &start, by_value: &y, slope: &slope };
                pull_back(&mut grad, centred, parts);
                let rest = |i| wide(&z, i) - wide(&start, i) - moved(i) * wide(&y, i);
                assert_close(&grad, (0..n).map(|i| wide(&slope, i) * rest(i)));
            });
        }
    }
}
