//! Adagrad: how does one step pass over a table once, and over what did not change not at all?

use rayon::prelude::*;

use crate::simd;

/// Floats per task: large enough that handing it out costs nothing.
const PIECE: usize = 64 * 1024;

/// One step of Adagrad (Duchi et al. 2011, the diagonal form of figure 1).
#[derive(Debug, Clone, Copy)]
pub struct AdagradStep {
    /// The learning rate.
    pub rate: f32,
    /// Added to the root of the sum of squares.
    pub epsilon: f32,
    /// What every gradient is multiplied by: below 1 where it is clipped.
    pub grad_factor: f32,
}

/// One step for every value: `sum` gathers the squares of the gradient, and the parameter goes down
/// by rate · gradient / (√sum + ε). Where the gradient is zero nothing changes.
pub fn update(step: AdagradStep, parameter: &mut [f32], sum: &mut [f32], grad: &[f32]) {
    parameter
        .par_chunks_mut(PIECE)
        .zip(sum.par_chunks_mut(PIECE))
        .zip(grad.par_chunks(PIECE))
        .for_each(|((parameter, sum), grad)| update_piece(step, parameter, sum, grad));
}

/// One step for the rows of a table that `ids` names; `grad` has one row for each of them.
pub fn update_rows(
    step: AdagradStep,
    table: &mut [f32],
    sum: &mut [f32],
    grad: &[f32],
    ids: &[u32],
) {
    let columns = grad.len() / ids.len();
    for (id, grad) in ids.iter().zip(grad.chunks_exact(columns)) {
        let row = *id as usize * columns..(*id as usize + 1) * columns;
        simd::adagrad(step, &mut table[row.clone()], &mut sum[row], grad);
    }
}

/// Leaves blocks out whose gradient is zero throughout: a small batch gives most rows of a table none.
fn update_piece(step: AdagradStep, parameter: &mut [f32], sum: &mut [f32], grad: &[f32]) {
    /// Floats that are looked at together: four cache lines, and less than most rows.
    const BLOCK: usize = 64;
    for start in (0..grad.len()).step_by(BLOCK) {
        let block = start..(start + BLOCK).min(grad.len());
        let grad = &grad[block.clone()];
        // The bits of all values together; only zeros have none but the sign. NaN is not zero.
        if grad.iter().fold(0, |bits, x| bits | x.to_bits()) << 1 != 0 {
            simd::adagrad(step, &mut parameter[block.clone()], &mut sum[block], grad);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;

    const STEP: AdagradStep = AdagradStep { rate: 0.1, epsilon: 1e-10, grad_factor: 0.5 };

    /// Parameter and sum of squares of 40 rows of 10.
    fn state() -> [Vec<f32>; 2] {
        [draw(400, 1), draw(400, 2).into_iter().map(f32::abs).collect()]
    }

    #[test]
    fn a_step_follows_its_formula_and_leaves_alone_what_has_no_gradient() {
        let [mut parameter, mut sum] = state();
        let mut grad = draw(400, 3);
        // Whole blocks and parts of others.
        grad[60..250].fill(0.0);
        grad[100] = -0.0;
        update(STEP, &mut parameter, &mut sum, &grad);
        let [old_parameter, old_sum] = state();
        for i in 0..400 {
            let grad = 0.5 * f64::from(grad[i]);
            let expected_sum = f64::from(old_sum[i]) + grad * grad;
            let expected = f64::from(old_parameter[i]) - 0.1 * grad / (expected_sum.sqrt() + 1e-10);
            assert!((f64::from(sum[i]) - expected_sum).abs() < 1e-6, "{i}");
            assert!((f64::from(parameter[i]) - expected).abs() < 1e-6, "{i}");
            if grad == 0.0 {
                assert_eq!((parameter[i], sum[i]), (old_parameter[i], old_sum[i]), "{i}");
            }
        }
    }

    #[test]
    fn a_first_gradient_of_zero_divides_nothing_by_nothing() {
        // A block that is not left out, as one of its values has a gradient.
        let (mut parameter, mut sum) = (vec![1.0; 4], vec![0.0; 4]);
        update(STEP, &mut parameter, &mut sum, &[0.0, 2.0, 0.0, 0.0]);
        assert_eq!(parameter, [1.0, 0.9, 1.0, 1.0]);
        assert_eq!(sum, [0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_gradient_that_is_not_a_number_is_not_left_out() {
        let (mut parameter, mut sum) = (vec![1.0; 80], vec![0.0; 80]);
        let mut grad = vec![0.0; 80];
        grad[70] = f32::NAN;
        update(STEP, &mut parameter, &mut sum, &grad);
        assert!(parameter[70].is_nan() && parameter.iter().filter(|x| x.is_nan()).count() == 1);
    }

    #[test]
    fn a_step_of_some_rows_is_that_of_all_there_and_nothing_elsewhere() {
        let (ids, grad) = ([0, 3, 39], draw(30, 4));
        let [mut parameter, mut sum] = state();
        update_rows(STEP, &mut parameter, &mut sum, &grad, &ids);
        let [mut all, mut all_sum] = state();
        let mut dense = vec![0.0; 400];
        for (id, grad) in ids.iter().zip(grad.chunks(10)) {
            dense[*id as usize * 10..][..10].copy_from_slice(grad);
        }
        update(STEP, &mut all, &mut all_sum, &dense);
        assert_eq!((parameter, sum), (all, all_sum));
    }
}
