//! SIMD loops: which loops over a row must run at the speed of the machine?
//!
//! Each is written once, in lanes the compiler turns into vector instructions, and compiled three
//! times: for the baseline of the target, which is the scalar twin that tests run on every machine,
//! for AVX2 with FMA, and for AVX-512, chosen at run time.
//! The baseline of x86 differs from the others in the last bits, so a run repeats bit for bit on one
//! instruction set.

use crate::adagrad::AdagradStep;
use crate::adam::AdamStep;

/// Sums of exponentials below are made in log space: well above what the floor under a few of them
/// adds up to.
pub const TINY: f32 = 1e-30;

/// Floats per step of every loop below: two AVX2 registers, or one of AVX-512.
pub(crate) const LANES: usize = 16;

/// Compiles `$body` for all instruction sets and gives the caller the widest that the machine has.
macro_rules! dispatched {
    ($(#[$doc:meta])* $vis:vis $name:ident, $body:ident, ($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        $(#[$doc])*
        $vis fn $name($($arg: $ty),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn with_avx512($($arg: $ty),*) $(-> $out)? {
                    $body::<true>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn with_avx2($($arg: $ty),*) $(-> $out)? {
                    $body::<true>($($arg),*)
                }
                if $crate::simd::instructions::has_avx512() {
                    // SAFETY: the features it was compiled for were found just now.
                    return unsafe { with_avx512($($arg),*) };
                }
                if $crate::simd::instructions::has_avx2() {
                    // SAFETY: the two features it was compiled for were found just now.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            $body::<false>($($arg),*)
        }
    };
}
pub(crate) use dispatched;

// After the macro, which they use.
pub mod batch_norm;
pub(crate) mod instructions;
pub mod select;
pub mod sigmoid;

dispatched!(
    /// The largest value of a row that is a number; −∞ if none is.
    pub maximum, maximum_body, (row: &[f32]) -> f32
);
dispatched!(
    /// Replaces each x by exp(x − `shift`) and gives their sum.
    pub exp_and_sum, exp_and_sum_body, (row: &mut [f32], shift: f32) -> f32
);
dispatched!(
    /// The sum of exp(x − `shift`), leaving the row as it is.
    pub sum_of_exp, sum_of_exp_body, (row: &[f32], shift: f32) -> f32
);
dispatched!(
    /// Replaces each x by `factor`·exp(x − `shift`) − `less`.
    pub scaled_exp, scaled_exp_body, (row: &mut [f32], shift: f32, factor: f32, less: f32)
);
dispatched!(
    /// Replaces each x by `factor`·x − `less`.
    pub scale, scale_body, (row: &mut [f32], factor: f32, less: f32)
);
dispatched!(
    /// Multiplies by `factors`, value by value.
    pub multiply, multiply_body, (row: &mut [f32], factors: &[f32])
);
dispatched!(
    /// Adds `row` to `sum`, value by value.
    pub add, add_body, (sum: &mut [f32], row: &[f32])
);
dispatched!(
    /// Adds `factor`·`row` to `sum`, value by value.
    pub add_scaled, add_scaled_body, (sum: &mut [f32], factor: f32, row: &[f32])
);
dispatched!(
    /// Adds `factor`·a·b to `sum`, value by value.
    pub add_product, add_product_body, (sum: &mut [f32], factor: f32, a: &[f32], b: &[f32])
);
dispatched!(
    /// Adds `factor`·a·b to `sum`, complex number by complex number; a row has the real parts of
    /// all, then the imaginary parts.
    pub add_complex_product, add_complex_product_body,
    (sum: &mut [f32], factor: f32, a: &[f32], b: &[f32])
);
dispatched!(
    /// The same with the conjugate of a.
    pub add_conjugate_product, add_conjugate_product_body,
    (sum: &mut [f32], factor: f32, a: &[f32], b: &[f32])
);
dispatched!(
    /// How many values are larger than `than`, and how many are equal to it.
    pub count_above, count_above_body, (row: &[f32], than: f32) -> (u32, u32)
);
dispatched!(
    /// Σ a·b.
    pub dot, dot_body, (a: &[f32], b: &[f32]) -> f32
);
dispatched!(
    /// Σ a·b of every row a of `left` with every row b of `right`, all `dim` wide, row after row of
    /// `left`. For a few of these: a product of matrices would first copy all of `right`.
    pub dots, dots_body, (out: &mut [f32], left: &[f32], right: &[f32], dim: usize)
);
dispatched!(
    /// One step of Adam on a parameter, from its gradient and its two moments.
    pub adam, adam_body,
    (step: AdamStep, parameter: &mut [f32], grad: &[f32], first: &mut [f32], second: &mut [f32])
);
dispatched!(
    /// A step of Adagrad for values, the sums of squares of their gradients, and a gradient.
    pub adagrad, adagrad_body,
    (step: AdagradStep, parameter: &mut [f32], sum: &mut [f32], grad: &[f32])
);
dispatched!(
    /// log Σ_k factor_k·row_k, value by value, of rows of exponentials, one per factor; false if a sum
    /// is not above [`TINY`].
    pub log_mixture, log_mixture_body, (out: &mut [f32], rows: &[f32], factors: &[f32]) -> bool
);
dispatched!(
    /// log Σ_k exp((row_k − shift_k) + more_k), value by value; `rows` has one row per pair of these.
    pub log_sum_exp, log_sum_exp_body, (out: &mut [f32], rows: &[f32], shifts: &[(f32, f32)])
);

#[inline(always)]
pub(crate) fn multiply_add<const FMA: bool>(a: f32, b: f32, c: f32) -> f32 {
    // Without the instruction, mul_add is a call into the C library for every value; aarch64 always
    // has it.
    if FMA || cfg!(target_arch = "aarch64") { a.mul_add(b, c) } else { a * b + c }
}

/// exp(x) for x ≤ 88, to about one unit in the last place; below −87 it stays at exp(−87) ≈ 1.6e-38,
/// which no sum of ours can tell from zero.
///
/// The method of Cephes: exp(x) = 2^n · exp(r) with n = round(x / ln 2), |r| ≤ ln 2 / 2.
#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    /// Adding and taking away 1.5·2^23 rounds to an integer, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // Written so that NaN passes through: a broken weight must reach the loss.
    let x = if x < -87.0 { -87.0 } else { x };
    let rounded = multiply_add::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = multiply_add::<FMA>(n, -LN_2_LOW, multiply_add::<FMA>(n, -LN_2_HIGH, x));
    let mut p = 1.987_569_2e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 5e-1] {
        p = multiply_add::<FMA>(p, r, c);
    }
    let fraction = multiply_add::<FMA>(p, r * r, r) + 1.0;
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
    fraction * power
}

/// The natural logarithm of a normal positive number, to about one unit in the last place; NaN stays.
///
/// The method of Cephes: x = 2^e · m with m in [√½, √2), ln x = e·ln 2 + ln m.
#[inline(always)]
fn ln<const FMA: bool>(x: f32) -> f32 {
    const SQRT_HALF_BITS: u32 = 0x3f35_04f3;
    let bits = x.to_bits().wrapping_sub(SQRT_HALF_BITS);
    let e = ((bits as i32) >> 23) as f32;
    let m = f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF_BITS)) - 1.0;
    let mut p = 7.037_683_6e-2;
    for c in [
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        3.333_333e-1,
    ] {
        p = multiply_add::<FMA>(p, m, c);
    }
    let square = m * m;
    let tail = multiply_add::<FMA>(e, -2.121_944_4e-4, p * m * square);
    let y = multiply_add::<FMA>(-0.5, square, tail) + m;
    let result = multiply_add::<FMA>(e, 0.693_359_4, y);
    if x.is_nan() { x } else { result }
}

/// Adds the lanes pairwise, always in the same order.
#[inline(always)]
pub(crate) fn total(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn maximum_body<const FMA: bool>(row: &[f32]) -> f32 {
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for block in blocks {
        for i in 0..LANES {
            lanes[i] = if block[i] > lanes[i] { block[i] } else { lanes[i] };
        }
    }
    let largest = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
    rest.iter().copied().fold(largest, f32::max)
}

#[inline(always)]
fn exp_and_sum_body<const FMA: bool>(row: &mut [f32], shift: f32) -> f32 {
    let (blocks, rest) = row.as_chunks_mut::<LANES>();
    let mut lanes = [0.0; LANES];
    for block in blocks {
        for i in 0..LANES {
            block[i] = exp::<FMA>(block[i] - shift);
            lanes[i] += block[i];
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *x = exp::<FMA>(*x - shift);
        *lane += *x;
    }
    total(lanes)
}

#[inline(always)]
fn sum_of_exp_body<const FMA: bool>(row: &[f32], shift: f32) -> f32 {
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for block in blocks {
        for i in 0..LANES {
            lanes[i] += exp::<FMA>(block[i] - shift);
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += exp::<FMA>(*x - shift);
    }
    total(lanes)
}

#[inline(always)]
fn scaled_exp_body<const FMA: bool>(row: &mut [f32], shift: f32, factor: f32, less: f32) {
    for x in row {
        *x = multiply_add::<FMA>(factor, exp::<FMA>(*x - shift), -less);
    }
}

#[inline(always)]
fn scale_body<const FMA: bool>(row: &mut [f32], factor: f32, less: f32) {
    for x in row {
        *x = multiply_add::<FMA>(factor, *x, -less);
    }
}

#[inline(always)]
fn multiply_body<const FMA: bool>(row: &mut [f32], factors: &[f32]) {
    for (x, factor) in row.iter_mut().zip(factors) {
        *x *= factor;
    }
}

#[inline(always)]
fn add_body<const FMA: bool>(sum: &mut [f32], row: &[f32]) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum += x;
    }
}

#[inline(always)]
fn add_scaled_body<const FMA: bool>(sum: &mut [f32], factor: f32, row: &[f32]) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum = multiply_add::<FMA>(factor, *x, *sum);
    }
}

#[inline(always)]
fn add_product_body<const FMA: bool>(sum: &mut [f32], factor: f32, a: &[f32], b: &[f32]) {
    for (sum, (a, b)) in sum.iter_mut().zip(a.iter().zip(b)) {
        *sum = multiply_add::<FMA>(factor * a, *b, *sum);
    }
}

#[inline(always)]
fn add_complex_product_body<const FMA: bool>(sum: &mut [f32], factor: f32, a: &[f32], b: &[f32]) {
    add_complex::<FMA>(sum, factor, factor, a, b);
}

#[inline(always)]
fn add_conjugate_product_body<const FMA: bool>(sum: &mut [f32], factor: f32, a: &[f32], b: &[f32]) {
    add_complex::<FMA>(sum, factor, -factor, a, b);
}

/// Adds (f·Re a + i·g·Im a)·b.
#[inline(always)]
fn add_complex<const FMA: bool>(sum: &mut [f32], f: f32, g: f32, a: &[f32], b: &[f32]) {
    let half = sum.len() / 2;
    let (sum_re, sum_im) = sum.split_at_mut(half);
    let ((a_re, a_im), (b_re, b_im)) = (a.split_at(half), b.split_at(half));
    let sums = sum_re.iter_mut().zip(sum_im);
    let (a, b) = (a_re.iter().zip(a_im), b_re.iter().zip(b_im));
    for ((sum_re, sum_im), ((a_re, a_im), (b_re, b_im))) in sums.zip(a.zip(b)) {
        let (a_re, a_im) = (f * a_re, g * a_im);
        *sum_re = multiply_add::<FMA>(a_re, *b_re, multiply_add::<FMA>(-a_im, *b_im, *sum_re));
        *sum_im = multiply_add::<FMA>(a_re, *b_im, multiply_add::<FMA>(a_im, *b_re, *sum_im));
    }
}

#[inline(always)]
fn count_above_body<const FMA: bool>(row: &[f32], than: f32) -> (u32, u32) {
    let (mut above, mut equal) = (0, 0);
    for x in row {
        above += u32::from(*x > than);
        equal += u32::from(*x == than);
    }
    (above, equal)
}

#[inline(always)]
fn dot_body<const FMA: bool>(a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] = multiply_add::<FMA>(a[i], b[i], lanes[i]);
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane = multiply_add::<FMA>(*a, *b, *lane);
    }
    total(lanes)
}

#[inline(always)]
fn dots_body<const FMA: bool>(out: &mut [f32], left: &[f32], right: &[f32], dim: usize) {
    let width = right.len() / dim;
    for (i, b) in right.chunks_exact(dim).enumerate() {
        // While b is in cache.
        for (a, out) in left.chunks_exact(dim).zip(out.chunks_exact_mut(width)) {
            out[i] = dot_body::<FMA>(a, b);
        }
    }
}

#[inline(always)]
fn adam_body<const FMA: bool>(
    step: AdamStep,
    parameter: &mut [f32],
    grad: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    let moments = first.iter_mut().zip(second);
    for ((parameter, grad), (first, second)) in parameter.iter_mut().zip(grad).zip(moments) {
        let grad = step.grad_factor * grad;
        *first = multiply_add::<FMA>(step.beta_1, *first, (1.0 - step.beta_1) * grad);
        *second = multiply_add::<FMA>(step.beta_2, *second, (1.0 - step.beta_2) * grad * grad);
        let root = multiply_add::<FMA>(second.sqrt(), step.second_factor, step.epsilon);
        *parameter -= step.rate * *first / root;
    }
}

#[inline(always)]
fn adagrad_body<const FMA: bool>(
    step: AdagradStep,
    parameter: &mut [f32],
    sum: &mut [f32],
    grad: &[f32],
) {
    for ((parameter, sum), grad) in parameter.iter_mut().zip(sum).zip(grad) {
        let grad = step.grad_factor * grad;
        *sum = multiply_add::<FMA>(grad, grad, *sum);
        *parameter -= step.rate * grad / (sum.sqrt() + step.epsilon);
    }
}

#[inline(always)]
fn log_mixture_body<const FMA: bool>(out: &mut [f32], rows: &[f32], factors: &[f32]) -> bool {
    let n = out.len();
    let mut are_large = true;
    for start in (0..n).step_by(LANES) {
        let width = LANES.min(n - start);
        let mut sum = [0.0; LANES];
        for (row, factor) in rows.chunks_exact(n).zip(factors) {
            for (sum, x) in sum.iter_mut().zip(&row[start..start + width]) {
                *sum = multiply_add::<FMA>(*factor, *x, *sum);
            }
        }
        for (out, sum) in out[start..start + width].iter_mut().zip(&sum) {
            // NaN is not above it either, and a sum in log space keeps it.
            are_large &= *sum > TINY;
            *out = ln::<FMA>(*sum);
        }
    }
    are_large
}

#[inline(always)]
fn log_sum_exp_body<const FMA: bool>(out: &mut [f32], rows: &[f32], shifts: &[(f32, f32)]) {
    let n = out.len();
    for start in (0..n).step_by(LANES) {
        let width = LANES.min(n - start);
        let mut top = [f32::NEG_INFINITY; LANES];
        for (row, (shift, more)) in rows.chunks_exact(n).zip(shifts) {
            for (top, x) in top.iter_mut().zip(&row[start..start + width]) {
                let x = (x - shift) + more;
                *top = if x > *top { x } else { *top };
            }
        }
        let mut sum = [0.0; LANES];
        for (row, (shift, more)) in rows.chunks_exact(n).zip(shifts) {
            for ((sum, top), x) in sum.iter_mut().zip(&top).zip(&row[start..start + width]) {
                *sum += exp::<FMA>((x - shift) + more - top);
            }
        }
        for ((out, sum), top) in out[start..start + width].iter_mut().zip(&sum).zip(&top) {
            *out = top + ln::<FMA>(*sum);
        }
    }
}

#[cfg(test)]
mod tests;
