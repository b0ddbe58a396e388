//! Sigmoids: which loops turn logits into sigmoids?
//!
//! Only −|z| is exponentiated, which cannot overflow: with e = exp(−|z|), the larger of σ(z) and
//! σ(−z) is 1 / (1 + e) and the smaller e / (1 + e). Logarithms of what is nearly one are made of
//! what is missing to one, so that neither a sum of many small losses nor a rank among many
//! certain objects is lost in rounding.

use super::{LANES, exp, ln, multiply_add, total};

/// Some objects' values of one component.
pub type Lanes = [f32; LANES];

/// π of one query's components; they sum to one.
#[derive(Clone, Copy)]
pub struct Prior<'a> {
    /// log π.
    pub log: &'a [f32],
    /// π.
    pub gates: &'a [f32],
}

dispatched!(
    /// Replaces each z by σ(z), and gives Σ −log σ(−z).
    pub sigmoid, sigmoid_body, (row: &mut [f32]) -> f32
);
dispatched!(
    /// log σ(z), value by value.
    pub log_sigmoid, log_sigmoid_body, (out: &mut [f32], row: &[f32])
);
dispatched!(
    /// Replaces each z_k by γ_k·σ(z_k), adds Σ_o (π_k − γ_k) to `grad_log_prior`, and gives
    /// Σ_o −log(1 − P), where 1 − P = Σ_k π_k σ(−z_k) and γ_k = π_k σ(−z_k) / (1 − P).
    ///
    /// `rows` has one row per component.
    pub mixed_sigmoid, mixed_sigmoid_body,
    (rows: &mut [f32], prior: Prior<'_>, grad_log_prior: &mut [f64], scratch: &mut Vec<Lanes>) -> f32
);
dispatched!(
    /// log Σ_k π_k σ(z_k), value by value; `rows` has one row per component.
    pub log_mixed_sigmoid, log_mixed_sigmoid_body,
    (out: &mut [f32], rows: &[f32], prior: Prior<'_>, scratch: &mut Vec<Lanes>)
);

/// log(1 + x) for −½ ≤ x ≤ 1, to about one unit in the last place also where x is tiny.
///
/// log(1 + x) = 2·artanh(s) with s = x / (2 + x), |s| ≤ ⅓; the first term left out is below 1e-8.
#[inline(always)]
fn ln_1p<const FMA: bool>(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let square = s * s;
    let mut p = 2.0 / 13.0;
    for c in [2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0] {
        p = multiply_add::<FMA>(p, square, c);
    }
    multiply_add::<FMA>(p * square, s, 2.0 * s)
}

#[inline(always)]
fn positive_part(z: f32) -> f32 {
    if z > 0.0 { z } else { 0.0 }
}

/// σ(z), and −log σ(−z).
#[inline(always)]
fn sigmoid_and_loss<const FMA: bool>(z: f32) -> (f32, f32) {
    let e = exp::<FMA>(-z.abs());
    let larger = 1.0 / (1.0 + e);
    let sigmoid = if z > 0.0 { larger } else { e * larger };
    (sigmoid, positive_part(z) + ln_1p::<FMA>(e))
}

#[inline(always)]
fn sigmoid_body<const FMA: bool>(row: &mut [f32]) -> f32 {
    let (blocks, rest) = row.as_chunks_mut::<LANES>();
    let mut lanes = [0.0; LANES];
    for block in blocks {
        for i in 0..LANES {
            let (sigmoid, loss) = sigmoid_and_loss::<FMA>(block[i]);
            block[i] = sigmoid;
            lanes[i] += loss;
        }
    }
    for (lane, z) in lanes.iter_mut().zip(rest) {
        let (sigmoid, loss) = sigmoid_and_loss::<FMA>(*z);
        *z = sigmoid;
        *lane += loss;
    }
    total(lanes)
}

#[inline(always)]
fn log_sigmoid_body<const FMA: bool>(out: &mut [f32], row: &[f32]) {
    for (out, z) in out.iter_mut().zip(row) {
        *out = -sigmoid_and_loss::<FMA>(-z).1;
    }
}

#[inline(always)]
fn mixed_sigmoid_body<const FMA: bool>(
    rows: &mut [f32],
    prior: Prior<'_>,
    grad_log_prior: &mut [f64],
    scratch: &mut Vec<Lanes>,
) -> f32 {
    let components = prior.log.len();
    let width = rows.len() / components;
    scratch.clear();
    scratch.resize(3 * components, [0.0; LANES]);
    let (logits, others) = scratch.split_at_mut(components);
    let (parts, excess) = others.split_at_mut(components);
    let moderate = are_moderate(rows, prior);
    let mut losses = [0.0; LANES];
    for start in (0..width).step_by(LANES) {
        let n = LANES.min(width - start);
        for (k, z) in logits.iter_mut().enumerate() {
            *z = block(&rows[k * width + start..][..n]);
        }
        let loss = mix_block::<FMA>(moderate, logits, parts, prior);
        losses.iter_mut().zip(loss).for_each(|(sum, loss)| *sum += loss);
        for (k, grad) in logits.iter().enumerate() {
            let row = &mut rows[k * width + start..][..n];
            match row.first_chunk_mut() {
                Some(row) => *row = *grad,
                None => row.copy_from_slice(&grad[..n]),
            }
            for (sum, part) in excess[k].iter_mut().zip(&parts[k]) {
                *sum += prior.gates[k] - part;
            }
        }
    }
    for (grad, excess) in grad_log_prior.iter_mut().zip(excess) {
        *grad += f64::from(total(*excess));
    }
    total(losses)
}

#[inline(always)]
fn log_mixed_sigmoid_body<const FMA: bool>(
    out: &mut [f32],
    rows: &[f32],
    prior: Prior<'_>,
    scratch: &mut Vec<Lanes>,
) {
    let components = prior.log.len();
    let width = out.len();
    scratch.clear();
    scratch.resize(2 * components, [0.0; LANES]);
    let (logits, parts) = scratch.split_at_mut(components);
    let moderate = are_moderate(rows, prior);
    for start in (0..width).step_by(LANES) {
        let n = LANES.min(width - start);
        for (k, z) in logits.iter_mut().enumerate() {
            // P is what the loss takes the logarithm of, with all signs turned.
            *z = block(&rows[k * width + start..][..n]).map(|z| -z);
        }
        let loss = mix_block::<FMA>(moderate, logits, parts, prior);
        for (out, loss) in out[start..start + n].iter_mut().zip(&loss) {
            *out = -loss;
        }
    }
}

/// Values of some objects; those of objects that are not there lose nothing and pull nowhere.
#[inline(always)]
fn block(values: &[f32]) -> Lanes {
    match values.first_chunk() {
        Some(block) => *block,
        None => std::array::from_fn(|i| values.get(i).copied().unwrap_or(-60.0)),
    }
}

/// Whether π_k σ(−z_k) and π_k σ(z_k) are normal numbers: they then need no logarithms.
#[inline(always)]
fn are_moderate(rows: &[f32], prior: Prior<'_>) -> bool {
    // σ(−60) is 9e-27; NaN is not below, and goes the careful way.
    rows.iter().fold(true, |all, z| all & (z.abs() < 60.0))
        && prior.gates.iter().all(|gate| *gate > 1e-10)
}

/// −log(1 − P) of each lane; leaves γ_k·σ(z_k) in the place of z_k, and γ_k in `parts`.
#[inline(always)]
fn mix_block<const FMA: bool>(
    moderate: bool,
    logits: &mut [Lanes],
    parts: &mut [Lanes],
    prior: Prior<'_>,
) -> Lanes {
    if moderate {
        mix_lanes::<FMA, true>(logits, parts, prior)
    } else {
        mix_lanes::<FMA, false>(logits, parts, prior)
    }
}

#[inline(always)]
fn mix_lanes<const FMA: bool, const MODERATE: bool>(
    logits: &mut [Lanes],
    parts: &mut [Lanes],
    prior: Prior<'_>,
) -> Lanes {
    let mut top = [if MODERATE { 0.0 } else { f32::NEG_INFINITY }; LANES];
    if !MODERATE {
        for (z, log_prior) in logits.iter().zip(prior.log) {
            for i in 0..LANES {
                let x = log_prior - positive_part(z[i]);
                top[i] = if x > top[i] { x } else { top[i] };
            }
        }
    }
    // 1 − P = exp(top)·sum, where without a top the sum is a normal number, and with one at least ½:
    // some component has 1 / (1 + e) in it.
    let (mut sum, mut holds) = ([0.0; LANES], [0.0; LANES]);
    for (k, (z, part)) in logits.iter_mut().zip(parts.iter_mut()).enumerate() {
        let (log_prior, gate) = (prior.log[k], prior.gates[k]);
        for i in 0..LANES {
            let e = exp::<FMA>(-z[i].abs());
            let larger = 1.0 / (1.0 + e);
            let sigmoid = if z[i] > 0.0 { larger } else { e * larger };
            part[i] = if MODERATE {
                gate * if z[i] > 0.0 { e * larger } else { larger }
            } else {
                exp::<FMA>(log_prior - positive_part(z[i]) - top[i]) * larger
            };
            sum[i] += part[i];
            holds[i] = multiply_add::<FMA>(gate, sigmoid, holds[i]);
            z[i] = part[i] * sigmoid;
        }
    }
    let mut loss = [0.0; LANES];
    for i in 0..LANES {
        let far = -(top[i] + ln::<FMA>(sum[i]));
        loss[i] = if holds[i] < 0.5 { -ln_1p::<FMA>(-holds[i]) } else { far };
        sum[i] = 1.0 / sum[i];
    }
    for (z, part) in logits.iter_mut().zip(parts) {
        for i in 0..LANES {
            z[i] *= sum[i];
            part[i] *= sum[i];
        }
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::instructions::on_each;

    fn close(found: f32, expected: f64) -> bool {
        (f64::from(found) - expected).abs() <= 3e-7 * (1e-30 + expected.abs())
    }

    #[test]
    fn sigmoids_and_their_logarithms_are_right_to_the_last_digits() {
        on_each(|| {
            // Below −87 our exp no longer falls.
            for i in -860..=860 {
                let z = i as f32 * 0.1;
                let exact = 1.0 / (1.0 + (-f64::from(z)).exp());
                let log = -(-f64::from(z)).exp().ln_1p();
                let mut row = [z];
                let loss = sigmoid(&mut row);
                assert!(close(row[0], exact), "σ({z}) = {} and {exact}", row[0]);
                assert!(close(loss, f64::from(z).exp().ln_1p()), "{z}: {loss}");
                let mut out = [0.0];
                log_sigmoid(&mut out, &[z]);
                assert!(close(out[0], log), "log σ({z}) = {} and {log}", out[0]);
            }
        });
    }

    #[test]
    fn mixed_sigmoids_equal_their_formula_at_every_length() {
        on_each(|| {
            // Gates that sum to one without rounding.
            let log = [0.25_f32, 0.5, 0.25].map(f32::ln);
            let prior = Prior { log: &log, gates: &[0.25, 0.5, 0.25] };
            // Moderate values, and some beyond.
            for (n, scale) in [1, 15, 16, 17, 50].into_iter().flat_map(|n| [(n, 20.0), (n, 75.0)]) {
                let rows: Vec<f32> =
                    (0..3 * n).map(|i| (i as f32 * 0.7).sin() * scale - 5.0).collect();
                let sigma = |k: usize, o: usize, sign: f64| {
                    1.0 / (1.0 + (-sign * f64::from(rows[k * n + o])).exp())
                };
                let mix = |o: usize, sign: f64| -> f64 {
                    (0..3).map(|k| f64::from(prior.gates[k]) * sigma(k, o, sign)).sum()
                };
                let mut scratch = Vec::new();
                let mut out = vec![0.0; n];
                log_mixed_sigmoid(&mut out, &rows, prior, &mut scratch);
                let (mut grads, mut grad_log_prior) = (rows.clone(), [0.0; 3]);
                let loss = mixed_sigmoid(&mut grads, prior, &mut grad_log_prior, &mut scratch);
                let expected: f64 = (0..n).map(|o| -mix(o, -1.0).ln()).sum();
                assert!((f64::from(loss) - expected).abs() < 1e-6 * expected, "{loss} {expected}");
                for k in 0..3 {
                    let gate = f64::from(prior.gates[k]);
                    let gamma = |o: usize| gate * sigma(k, o, -1.0) / mix(o, -1.0);
                    let expected: f64 = (0..n).map(|o| gate - gamma(o)).sum();
                    assert!((grad_log_prior[k] - expected).abs() < 1e-5, "{expected}");
                    for o in 0..n {
                        let (found, expected) = (grads[k * n + o], gamma(o) * sigma(k, o, 1.0));
                        // A logit of 25 is known to 2e-6, and so is its exponential.
                        let rounding = 2e-7 * f64::from(scale) * expected;
                        assert!((f64::from(found) - expected).abs() < rounding, "{expected}");
                    }
                }
                for (o, found) in out.iter().enumerate() {
                    let expected = mix(o, 1.0).ln();
                    // Of what is nearly one, the formula itself knows 16 digits.
                    let rounding = 4e-6 * expected.abs() + 1e-15;
                    assert!((f64::from(*found) - expected).abs() < rounding, "{found} {expected}");
                }
            }
        });
    }

    #[test]
    fn a_broken_logit_reaches_the_loss_and_a_tiny_gate_does_not_break_it() {
        on_each(|| {
            let loss_of = |rows: &mut [f32], gates: &[f32; 2]| {
                let log = gates.map(f32::ln);
                let mut grad_log_prior = [0.0; 2];
                let prior = Prior { log: &log, gates };
                mixed_sigmoid(rows, prior, &mut grad_log_prior, &mut Vec::new())
            };
            let mut rows: Vec<f32> = (0..40).map(|i| i as f32 * 0.1).collect();
            rows[23] = f32::NAN;
            assert!(loss_of(&mut rows, &[0.5, 0.5]).is_nan());
            // Next to all the weight is on the second component.
            let mut rows: Vec<f32> = (0..40).map(|i| i as f32 * 0.1).collect();
            let expected: f64 = rows[20..].iter().map(|z| f64::from(*z).exp().ln_1p()).sum();
            let found = f64::from(loss_of(&mut rows, &[1e-12, 1.0]));
            assert!((found - expected).abs() < 1e-5 * expected, "{found} {expected}");
            assert!(rows.iter().all(|grad| grad.is_finite()));
        });
    }

    #[test]
    fn certain_objects_are_told_apart() {
        on_each(|| {
            let log = [0.5_f32.ln(); 2];
            let prior = Prior { log: &log, gates: &[0.5; 2] };
            let mut out = [0.0; 2];
            log_mixed_sigmoid(&mut out, &[20.0, 21.0, 20.0, 21.0], prior, &mut Vec::new());
            assert!(out[0] < out[1] && out[1] < 0.0, "{out:?}");
            log_sigmoid(&mut out, &[80.0, 81.0]);
            assert!(out[0] < out[1] && out[1] < 0.0, "{out:?}");
        });
    }
}
