//! Which loops over a row treat every column in its own way?

use super::multiply_add;

dispatched!(
    /// Adds x − origin and its square to two sums, column by column.
    add_moments, add_moments_body,
    (row: &[f32], origin: &[f32], sum: &mut [f32], squares: &mut [f32])
);
dispatched!(
    /// a(slope·x + start), where a multiplies negative values by `negative_slope`.
    activate, activate_body,
    (out: &mut [f32], row: &[f32], line: (&[f32], &[f32]), negative_slope: f32)
);
dispatched!(
    /// Multiplies a gradient by the slope of a at slope·x + start.
    deactivate, deactivate_body,
    (grad: &mut [f32], row: &[f32], line: (&[f32], &[f32]), negative_slope: f32)
);
dispatched!(
    /// Adds g and g·(x − mean) to two sums, column by column; `centred` has rows x and mean.
    add_products, add_products_body,
    (grad: &[f32], centred: (&[f32], &[f32]), sum: &mut [f32], product: &mut [f32])
);
dispatched!(
    /// Replaces g by slope·(g − less − (x − mean)·by_value), where `parts` has less and by_value.
    pull_back, pull_back_body,
    (grad: &mut [f32], centred: (&[f32], &[f32]), parts: (&[f32], &[f32]), slope: &[f32])
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
    (slope, start): (&[f32], &[f32]),
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
    (slope, start): (&[f32], &[f32]),
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
    (row, mean): (&[f32], &[f32]),
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
    (row, mean): (&[f32], &[f32]),
    (less, by_value): (&[f32], &[f32]),
    slope: &[f32],
) {
    let columns = row.iter().zip(mean).zip(less.iter().zip(by_value)).zip(slope);
    for (grad, (((x, mean), (less, by_value)), slope)) in grad.iter_mut().zip(columns) {
        *grad = slope * multiply_add::<FMA>(mean - x, *by_value, *grad - less);
    }
}
