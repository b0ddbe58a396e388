//! Batch norm: how are the channels of a batch normalised, activated and dropped in few passes over
//! their values?
//!
//! A convolution makes thousands of values of a query, and every layer of a mixture's projections a
//! value for each component and dimension. As a chain of tensor operations each would be written
//! about eight times on the way forward and as often on the way back, by one thread.
//!
//! (Ioffe and Szegedy 2015, algorithm 1; then a leaky ReLU; then dropout.)

mod channels;
mod columns;

use rayon::prelude::*;

/// Mean and biased variance of each channel, `[C]`.
#[derive(Debug, Clone)]
pub struct Statistics {
    /// Of each channel.
    pub mean: Vec<f32>,
    /// Of each channel, the sum of squares divided by their number.
    pub variance: Vec<f32>,
}

impl Statistics {
    /// Under the root of a variance (as in PyTorch).
    pub const EPSILON: f32 = 1e-5;

    /// Of each channel of `[B, C, P]`.
    pub fn of(values: &[f32], shape: [usize; 3]) -> Self {
        match shape {
            [_, _, 1] => columns::statistics(values, shape),
            _ => channels::statistics(values, shape),
        }
    }

    fn inverse_standard_deviation(&self, channel: usize) -> f32 {
        (self.variance[channel] + Self::EPSILON).sqrt().recip()
    }
}

/// What happens to channels besides scale and shift.
#[derive(Debug)]
pub struct Treatment {
    /// Where a gradient is asked for, these are of the values themselves, and it passes through them.
    pub statistics: Statistics,
    /// What negative values are multiplied by: 1 leaves them, 0 makes zeros of them.
    pub negative_slope: f32,
    /// What each channel of each query is multiplied by in the end, `[B·C]`.
    pub dropout_mask: Option<Vec<f32>>,
}

/// Values `[B, C, P]`, and the learned scale and shift of their channels, `[C]`.
#[derive(Debug, Clone, Copy)]
pub struct Values<'a> {
    /// Row after row.
    pub values: &'a [f32],
    /// B, C and P.
    pub shape: [usize; 3],
    /// Scale of each channel.
    pub gamma: &'a [f32],
    /// Shift of each channel.
    pub beta: &'a [f32],
}

/// Gradients of one pass.
#[derive(Debug)]
pub struct Grads {
    /// Of the values.
    pub values: Vec<f32>,
    /// Of the scale of each channel.
    pub gamma: Vec<f32>,
    /// Of the shift of each channel.
    pub beta: Vec<f32>,
}

/// a((x − mean)/√(variance + ε)·gamma + beta)·mask, where a leaves positive values as they are.
pub fn forward(input: Values, treatment: &Treatment) -> Vec<f32> {
    let lines = Lines::of(input.gamma, input.beta, &treatment.statistics);
    match input.shape {
        [_, _, 1] => columns::forward(input, &lines, treatment),
        _ => channels::forward(input, &lines, treatment),
    }
}

/// From the gradient of the output, as large as the values, to those of the input.
pub fn backward(input: Values, treatment: &Treatment, grad: &[f32]) -> Grads {
    let lines = Lines::of(input.gamma, input.beta, &treatment.statistics);
    match input.shape {
        [_, _, 1] => columns::backward(input, &lines, treatment, grad),
        _ => channels::backward(input, &lines, treatment, grad),
    }
}

/// Normalisation, scale and shift of every channel together: slope·x + start.
struct Lines {
    slope: Vec<f32>,
    start: Vec<f32>,
}

impl Lines {
    fn of(gamma: &[f32], beta: &[f32], statistics: &Statistics) -> Self {
        let line = |channel: usize| {
            let slope = gamma[channel] * statistics.inverse_standard_deviation(channel);
            (slope, beta[channel] - statistics.mean[channel] * slope)
        };
        let (slope, start) = (0..gamma.len()).map(line).unzip();
        Self { slope, start }
    }
}

/// Fills rows of `width` values, many at a time.
fn by_row(out: &mut [f32], width: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
    /// Values per task.
    const VALUES: usize = 16_384;
    let rows = (VALUES / width).max(1);
    out.par_chunks_mut(rows * width).enumerate().for_each(|(task, out)| {
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            fill(task * rows + i, row);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of both kinds: more values than a task has, more columns or places than lanes.
    const SHAPES: [[usize; 3]; 2] = [[450, 37, 1], [19, 50, 21]];

    /// Neither small nor even, and far from zero.
    fn uneven(n: usize) -> Vec<f32> {
        (0..n).map(|i| ((i * 7919) % 211) as f32 / 100.0 + 0.5).collect()
    }

    #[test]
    fn statistics_equal_plain_sums_however_far_from_zero() {
        for (shape, shift) in SHAPES.iter().flat_map(|shape| [(*shape, 0.0), (*shape, 1000.0)]) {
            let all: Vec<f32> =
                uneven(shape.iter().product()).into_iter().map(|x| x + shift).collect();
            let found = Statistics::of(&all, shape);
            let [queries, channels, places] = shape;
            for channel in 0..channels {
                let own: Vec<f64> = (0..queries)
                    .flat_map(|query| &all[(query * channels + channel) * places..][..places])
                    .map(|x| f64::from(*x))
                    .collect();
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                let variance =
                    own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
                // Rounding of f32.
                let close = |found: f32, x: f64| (f64::from(found) - x).abs() < 1e-6 * x.max(1.0);
                assert!(close(found.mean[channel], mean));
                assert!(close(found.variance[channel], variance));
            }
        }
    }

    /// The output, in f64 and by its formula.
    fn formula(all: &[f64], shape: [usize; 3], negative_slope: f64, mask: &[f32]) -> Vec<f64> {
        let [queries, channels, places] = shape;
        let (values, rest) = all.split_at(queries * channels * places);
        let (gamma, beta) = rest.split_at(channels);
        let mut out = vec![0.0; values.len()];
        for channel in 0..channels {
            let own: Vec<usize> =
                (0..values.len()).filter(|i| i / places % channels == channel).collect();
            let mean_of = |f: &dyn Fn(f64) -> f64| {
                own.iter().map(|i| f(values[*i])).sum::<f64>() / own.len() as f64
            };
            let mean = mean_of(&|x| x);
            let variance = mean_of(&|x| (x - mean).powi(2));
            let epsilon = f64::from(Statistics::EPSILON);
            for i in own {
                let normalised = (values[i] - mean) / (variance + epsilon).sqrt();
                let scaled = normalised * gamma[channel] + beta[channel];
                let active = if scaled > 0.0 { scaled } else { negative_slope * scaled };
                out[i] = active * f64::from(mask[i / places]);
            }
        }
        out
    }

    #[test]
    fn output_and_gradients_equal_the_formula_and_its_slopes() {
        // As one list: values, then scale, then shift.
        let start = [0.3_f32, -0.8, 1.1, 0.9, -0.2, 0.5, -1.1, 0.4, 1.3, 0.8, 0.1, 0.2];
        let weights = [0.3_f32, -1.0, 0.8, 0.5, 0.2, -0.7, 0.9, -0.4];
        for shape in [[4, 2, 1], [2, 2, 2]] {
            let mask = [1.0, 2.0, 1.0, 1.0, 0.0, 1.0, 1.5, 1.0][..shape[0] * 2].to_vec();
            let (values, rest) = start.split_at(8);
            let (gamma, beta) = rest.split_at(2);
            let input = Values { values, shape, gamma, beta };
            let treatment = Treatment {
                statistics: Statistics::of(values, shape),
                negative_slope: 0.1,
                dropout_mask: Some(mask.clone()),
            };
            let wide = start.map(f64::from);
            let expected = formula(&wide, shape, 0.1, &mask);
            for (found, expected) in forward(input, &treatment).iter().zip(&expected) {
                assert!((f64::from(*found) - expected).abs() < 1e-6, "{found}, {expected}");
            }
            let loss = |all: &[f64]| -> f64 {
                let out = formula(all, shape, 0.1, &mask);
                out.iter().zip(weights).map(|(out, weight)| out * f64::from(weight)).sum()
            };
            let grads = backward(input, &treatment, &weights);
            let found = [grads.values, grads.gamma, grads.beta].concat();
            for (i, found) in found.iter().enumerate() {
                let moved = |by: f64| {
                    let mut all = wide;
                    all[i] += by;
                    loss(&all)
                };
                let slope = (moved(1e-5) - moved(-1e-5)) / 2e-5;
                // Rounding of f32.
                let off = (f64::from(*found) - slope).abs();
                assert!(off < 1e-5, "{shape:?}, {i}: {found}, {slope}");
            }
        }
    }
}
