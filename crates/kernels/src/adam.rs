//! Adam: how does one step pass over a table once instead of a dozen times?

use rayon::prelude::*;

use crate::simd;

/// Floats per task: large enough that handing it out costs nothing.
const PIECE: usize = 64 * 1024;

/// One step of Adam (Kingma and Ba 2015, algorithm 1), its bias corrections already worked out.
#[derive(Debug, Clone, Copy)]
pub struct AdamStep {
    /// Decay of the mean of gradients.
    pub beta_1: f32,
    /// Decay of the mean of their squares.
    pub beta_2: f32,
    /// lr / (1 − beta_1^t).
    pub rate: f32,
    /// 1 / √(1 − beta_2^t).
    pub second_factor: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// What every gradient is multiplied by: below 1 where it is clipped.
    pub grad_factor: f32,
}

/// A parameter and the running means of its gradient and of its square, all updated in place.
#[derive(Debug)]
pub struct Learned<'a> {
    /// What is learned.
    pub parameter: &'a mut [f32],
    /// Running mean of the gradient.
    pub first: &'a mut [f32],
    /// Running mean of its square.
    pub second: &'a mut [f32],
}

/// One step for every value.
pub fn update(step: AdamStep, learned: Learned, grad: &[f32]) {
    let Learned { parameter, first, second } = learned;
    parameter
        .par_chunks_mut(PIECE)
        .zip(grad.par_chunks(PIECE))
        .zip(first.par_chunks_mut(PIECE).zip(second.par_chunks_mut(PIECE)))
        .for_each(|((parameter, grad), (first, second))| {
            simd::adam(step, parameter, grad, first, second);
        });
}

/// One step for the rows of a table that `ids` names; `grad` has one row for each of them.
pub fn update_rows(step: AdamStep, table: Learned, grad: &[f32], ids: &[u32]) {
    let columns = grad.len() / ids.len();
    for (id, grad) in ids.iter().zip(grad.chunks_exact(columns)) {
        let row = *id as usize * columns..(*id as usize + 1) * columns;
        let parameter = &mut table.parameter[row.clone()];
        simd::adam(step, parameter, grad, &mut table.first[row.clone()], &mut table.second[row]);
    }
}

/// The Euclidean norm of all values, added up in a fixed order.
pub fn norm(values: &[f32]) -> f64 {
    let pieces: Vec<f64> =
        values.par_chunks(PIECE).map(|piece| f64::from(simd::dot(piece, piece))).collect();
    pieces.into_iter().sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;

    const STEP: AdamStep = AdamStep {
        beta_1: 0.9,
        beta_2: 0.999,
        rate: 0.02,
        second_factor: 3.0,
        epsilon: 1e-8,
        grad_factor: 0.5,
    };

    /// Parameter and both moments of 10 rows of 10.
    fn state() -> [Vec<f32>; 3] {
        let second = draw(100, 3).into_iter().map(f32::abs).collect();
        [draw(100, 1), draw(100, 2), second]
    }

    fn learned([parameter, first, second]: &mut [Vec<f32>; 3]) -> Learned<'_> {
        Learned { parameter, first, second }
    }

    #[test]
    fn a_step_follows_its_formula() {
        let (mut found, grad) = (state(), draw(100, 4));
        update(STEP, learned(&mut found), &grad);
        let [parameter, first, second] = state();
        for (i, grad) in grad.iter().enumerate() {
            let grad = 0.5 * f64::from(*grad);
            let first = 0.9 * f64::from(first[i]) + 0.1 * grad;
            let second = 0.999 * f64::from(second[i]) + 0.001 * grad * grad;
            let expected = f64::from(parameter[i]) - 0.02 * first / (3.0 * second.sqrt() + 1e-8);
            // Rounding of f32, where a small second moment magnifies that of the first.
            for (found, expected) in
                [(found[0][i], expected), (found[1][i], first), (found[2][i], second)]
            {
                assert!((f64::from(found) - expected).abs() < 1e-5, "{i}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn a_step_of_some_rows_is_that_of_all_there_and_nothing_elsewhere() {
        let (ids, grad) = ([0, 3, 9], draw(30, 4));
        let mut some = state();
        update_rows(STEP, learned(&mut some), &grad, &ids);
        let (mut all, mut dense) = (state(), vec![0.0; 100]);
        for (id, grad) in ids.iter().zip(grad.chunks(10)) {
            dense[*id as usize * 10..][..10].copy_from_slice(grad);
        }
        update(STEP, learned(&mut all), &dense);
        let before = state();
        for row in 0..10 {
            let place = row * 10..row * 10 + 10;
            let expected = if ids.contains(&(row as u32)) { &all } else { &before };
            for (found, expected) in some.iter().zip(expected) {
                assert_eq!(found[place.clone()], expected[place.clone()], "row {row}");
            }
        }
    }

    #[test]
    fn a_norm_is_that_of_all_values() {
        assert!((norm(&vec![2.0; 300_000]) - 2.0 * 300_000_f64.sqrt()).abs() < 1e-3);
    }
}
