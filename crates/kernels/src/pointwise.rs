//! Nonlinear logits: which functions can go over the dot products of a tile before they are normalised?
//!
//! A softmax of φ(h·e) is no longer limited by the width of h, if φ is not linear.
//! - Sigsoftmax: φ(z) = z + log σ(z) (Kanai et al. 2018).
//! - Monotone: piecewise linear between −20 and 20 with learned positive slopes, and straight on
//!   beyond (PLIF of Ganea et al. 2019); φ(0) = 0.

use crate::pair_score::Learned;
use crate::simd;

/// Half the range in which slopes differ.
pub const REACH: f32 = 20.0;

/// A function of each dot product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pointwise {
    /// z + log σ(z).
    Sigsoftmax,
    /// Learned: the slopes of its pieces, all positive, their number even.
    Monotone,
}

impl Pointwise {
    /// Replaces every z by φ(z).
    pub(crate) fn apply(self, weights: &[f32], values: &mut [f32]) {
        match self {
            Self::Sigsoftmax => {
                let mut logs = [0.0; 256];
                for values in values.chunks_mut(logs.len()) {
                    let logs = &mut logs[..values.len()];
                    simd::sigmoid::log_sigmoid(logs, values);
                    simd::add(values, logs);
                }
            }
            Self::Monotone => {
                let pieces = Pieces::of(weights);
                values.iter_mut().for_each(|z| *z = pieces.value(*z));
            }
        }
    }

    /// From the gradient of φ(z) to that of z, in place, and to that of what is learned; `values`
    /// are z, and are used up.
    pub(crate) fn pull_back(self, learned: Learned, values: &mut [f32], grads: &mut [f32]) {
        match self {
            Self::Sigsoftmax => {
                simd::sigmoid::sigmoid(values);
                grads.iter_mut().zip(values).for_each(|(grad, sigma)| *grad *= 2.0 - *sigma);
            }
            Self::Monotone => Pieces::of(learned.weights).pull_back(learned.grad, values, grads),
        }
    }
}

/// A piecewise linear function.
struct Pieces<'a> {
    slopes: &'a [f32],
    /// Values at the left ends of the pieces.
    starts: Vec<f32>,
    width: f32,
}

impl<'a> Pieces<'a> {
    fn of(slopes: &'a [f32]) -> Self {
        let width = 2.0 * REACH / slopes.len() as f32;
        // In f64: near zero, the sum of all pieces from −20 on is what remains of large numbers.
        let below: f64 = slopes[..slopes.len() / 2].iter().map(|slope| f64::from(*slope)).sum();
        let mut at = -below * f64::from(width);
        let start = |slope: &f32| {
            let start = at as f32;
            at += f64::from(*slope) * f64::from(width);
            start
        };
        Self { slopes, starts: slopes.iter().map(start).collect(), width }
    }

    /// The piece that z is in, and how many of its widths z is from its left end.
    fn find(&self, z: f32) -> (usize, f32) {
        // What is no number comes to the first piece, and stays no number.
        let piece = ((z + REACH) / self.width).max(0.0) as usize;
        let piece = piece.min(self.slopes.len() - 1);
        (piece, (z - (piece as f32 * self.width - REACH)) / self.width)
    }

    fn value(&self, z: f32) -> f32 {
        let (piece, way) = self.find(z);
        self.starts[piece] + way * self.width * self.slopes[piece]
    }

    fn pull_back(&self, grad_slopes: &mut [f32], values: &[f32], grads: &mut [f32]) {
        let n = self.slopes.len();
        // Of each piece: the gradient of its values, and the same times the way into it.
        let (mut sums, mut ways) = (vec![0.0_f64; n], vec![0.0_f64; n]);
        for (z, grad) in values.iter().zip(grads) {
            let (piece, way) = self.find(*z);
            sums[piece] += f64::from(*grad);
            ways[piece] += f64::from(*grad * way);
            *grad *= self.slopes[piece];
        }
        // A slope moves its own piece, and all that are further from zero on its side.
        let mut add = |piece: usize, moved: f64| {
            grad_slopes[piece] += (f64::from(self.width) * (ways[piece] + moved)) as f32;
        };
        let mut above = 0.0;
        for piece in (n / 2..n).rev() {
            add(piece, above);
            above += sums[piece];
        }
        let mut below = 0.0;
        for (piece, sum) in sums[..n / 2].iter().enumerate() {
            below += sum;
            add(piece, -below);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigsoftmax_adds_the_logarithm_of_the_sigmoid() {
        let mut values = [0.0, 3.0, -3.0];
        Pointwise::Sigsoftmax.apply(&[], &mut values);
        // log σ(3) = −0.04858735, log σ(−3) = −3.04858735.
        for (found, expected) in values.iter().zip([-2_f32.ln(), 2.951_412_7, -6.048_587_3]) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }

    #[test]
    fn a_monotone_function_follows_its_slopes_from_zero() {
        // Pieces from −20, −10, 0 and 10.
        let slopes = [4.0, 2.0, 1.0, 0.5];
        let mut values = [0.0, 5.0, 10.0, 12.0, 40.0, -5.0, -10.0, -12.0, -30.0];
        Pointwise::Monotone.apply(&slopes, &mut values);
        assert_eq!(values, [0.0, 5.0, 10.0, 11.0, 25.0, -10.0, -20.0, -28.0, -100.0]);
    }

    #[test]
    fn equal_slopes_of_one_change_nothing() {
        let slopes = [1.0; 80];
        for z in [-33.3_f32, -1.25, 0.1, 19.9, 71.0] {
            let mut value = [z];
            Pointwise::Monotone.apply(&slopes, &mut value);
            assert!((value[0] - z).abs() < 1e-5 * z.abs(), "{z}");
        }
    }
}
