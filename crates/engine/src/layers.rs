//! Layers: which ones do neural encoders, scores and output layers share?
//!
//! Linear layers, windows of a convolution, normalisation of channels, and the end of a
//! convolutional encoder. Every weight and every dropped value is drawn by our own generators, not
//! by burn's, so that a run repeats.

use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear};
use burn::tensor::Tensor;

use crate::ops::{self, Statistics, Treatment};
use crate::random::{Noise, Weights};
use crate::settings::{Range, Refusal, settings};

settings! {
    /// Settings of encoders with a convolution.
    pub(crate) struct FilterConfig {
        /// Channels that a convolution makes.
        channels: usize = 32, Range::Between(1, 10_000);
        /// Fraction of values set to zero before a convolution.
        input_dropout: f64 = 0.2, Range::Fraction;
        /// Fraction of channels set to zero after a convolution.
        feature_dropout: f64 = 0.3, Range::Fraction;
        /// Fraction of values set to zero in the query vector of a convolutional encoder, before it is
        /// normalised.
        hidden_dropout: f64 = 0.3, Range::Fraction;
    }
}

/// The refusal of batches of one item by a part that normalises over a batch.
pub(crate) fn single_items(part: &str) -> Refusal {
    let what =
        format!("batch normalisation needs several items; expected at least 2 for {part}, found 1");
    Refusal::new("batch", what)
}

/// x·W + b, with b zero at the start.
pub(crate) fn linear(inputs: usize, outputs: usize, weights: &mut Weights) -> Linear {
    let bias = Param::from_tensor(Tensor::zeros([outputs], &weights.device));
    Linear { bias: Some(bias), ..linear_without_bias(inputs, outputs, weights) }
}

/// x·W: what batch normalisation follows, which would take a bias away again.
pub(crate) fn linear_without_bias(inputs: usize, outputs: usize, weights: &mut Weights) -> Linear {
    Linear { weight: Param::from_tensor(weights.xavier(inputs, outputs)), bias: None }
}

/// Learned numbers of [`linear`].
pub(crate) fn n_linear(inputs: usize, outputs: usize) -> usize {
    (inputs + 1) * outputs
}

/// Over the columns of `[B, features]`, or the channels of `[B, features, …]`.
pub(crate) fn batch_norm(features: usize, weights: &Weights) -> BatchNorm {
    BatchNormConfig::new(features).init(&weights.device)
}

/// Drops values in training, and does nothing in evaluation.
pub(crate) fn drop<const D: usize>(
    values: Tensor<D>,
    rate: f64,
    noise: Option<&Noise>,
) -> Tensor<D> {
    match noise {
        Some(noise) => noise.drop(values, rate),
        None => values,
    }
}

/// What follows a convolution: batch normalisation of channels, `negative_slope` under values below
/// zero, and dropout of whole channels, as neighbours are so alike that a single value dropped would
/// still be known from them (Tompson et al. 2015).
#[derive(Module, Debug)]
pub(crate) struct Channels {
    norm: BatchNorm,
    negative_slope: f64,
    dropout: f64,
}

impl Channels {
    /// `negative_slope` is zero for max(x, 0), and one for x.
    pub(crate) fn new(
        channels: usize,
        negative_slope: f64,
        dropout: f64,
        weights: &Weights,
    ) -> Self {
        Self { norm: batch_norm(channels, weights), negative_slope, dropout }
    }

    /// Scale and shift of the normalisation.
    pub(crate) fn n_parameters(channels: usize) -> usize {
        2 * channels
    }

    /// `[B, C, P]` → the same shape.
    pub(crate) fn forward(&self, values: Tensor<3>, noise: Option<&Noise>) -> Tensor<3> {
        let [queries, channels, _] = values.dims();
        let mask = noise.map(|noise| noise.mask(queries * channels, self.dropout));
        normalise_channels(&self.norm, values, self.negative_slope as f32, mask)
    }
}

/// Batch normalisation of columns, then `negative_slope` under values below zero, then dropout by
/// `dropout_mask`.
pub(crate) fn normalise(
    norm: &BatchNorm,
    values: Tensor<2>,
    negative_slope: f32,
    dropout_mask: Option<Vec<f32>>,
) -> Tensor<2> {
    let [queries, columns] = values.dims();
    let channels = values.reshape([queries, columns, 1]);
    normalise_channels(norm, channels, negative_slope, dropout_mask).reshape([queries, columns])
}

fn normalise_channels(
    norm: &BatchNorm,
    values: Tensor<3>,
    negative_slope: f32,
    dropout_mask: Option<Vec<f32>>,
) -> Tensor<3> {
    let statistics = statistics(norm, &values);
    let treatment = Treatment { statistics, negative_slope, dropout_mask };
    ops::batch_norm(values, norm.gamma.val(), norm.beta.val(), treatment)
}

/// What a normalisation takes off and divides by: mean and variance of the batch in training, of all
/// batches so far otherwise.
///
/// Of the batch the biased variance, which makes its values one in size; of all batches the mean of
/// unbiased ones, as in PyTorch: a batch of n values spreads less than what they were drawn from, by
/// (n − 1)/n (Ioffe and Szegedy 2015, algorithm 2).
fn statistics(norm: &BatchNorm, values: &Tensor<3>) -> Statistics {
    let BatchNorm { running_mean, running_var, momentum, .. } = norm;
    let floats = |tensor: Tensor<1>| {
        tensor.into_data().try_into_vec::<f32>().expect("models are made of f32")
    };
    let device = values.device();
    if !device.is_autodiff() {
        let [mean, variance] = [running_mean, running_var].map(|state| floats(state.value()));
        return Statistics { mean, variance };
    }
    let statistics = ops::statistics(values);
    let [queries, _, places] = values.dims();
    let n = (queries * places) as f64;
    // A single value says nothing of how far others are.
    let unbiased = if n > 1.0 { n / (n - 1.0) } else { 1.0 };
    let Statistics { mean, variance } = &statistics;
    for (state, new, factor) in [(running_mean, mean, 1.0), (running_var, variance, unbiased)] {
        let new = Tensor::<1>::from_floats(new.as_slice(), &device).mul_scalar(momentum * factor);
        state.update(state.value_sync().mul_scalar(1.0 - momentum).add(new).detach());
    }
    statistics
}

/// What a kernel sees at each place, so that a product convolves without padding:
/// `[B, C, H, W]` → `[B, kernel·C, places]`, the channels of each value of the kernel together.
pub(crate) fn windows(image: Tensor<4>, [height, width]: [usize; 2]) -> Tensor<3> {
    let [queries, channels, image_height, image_width] = image.dims();
    let (rows, columns) = (image_height - height + 1, image_width - width + 1);
    let shifted = |by: usize| {
        let (y, x) = (by / width, by % width);
        let shifted = image.clone().slice([0..queries, 0..channels, y..y + rows, x..x + columns]);
        shifted.reshape([queries, channels, rows * columns])
    };
    Tensor::cat((0..height * width).map(shifted).collect(), 1)
}

/// The end of a convolutional encoder: all values of a query → h, by a linear layer, dropout,
/// batch normalisation and max(x, 0).
#[derive(Module, Debug)]
pub(crate) struct Readout {
    linear: Linear,
    norm: BatchNorm,
    dropout: f64,
}

impl Readout {
    pub(crate) fn new(inputs: usize, dim: usize, dropout: f64, weights: &mut Weights) -> Self {
        let linear = linear_without_bias(inputs, dim, weights);
        Self { linear, norm: batch_norm(dim, weights), dropout }
    }

    /// A matrix, and scale and shift of the normalisation.
    pub(crate) fn n_parameters(inputs: usize, dim: usize) -> usize {
        (inputs + 2) * dim
    }

    /// `[B, C, P]` → `[B, D]`.
    pub(crate) fn forward(&self, values: Tensor<3>, noise: Option<&Noise>) -> Tensor<2> {
        let hidden = self.linear.forward(values.flatten::<2>(1, 2));
        normalise(&self.norm, drop(hidden, self.dropout, noise), 0.0, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;

    #[test]
    fn running_statistics_are_those_of_pytorch() {
        let device = Device::Cpu.burn().autodiff();
        let norm = batch_norm(2, &Weights::zeros(device.clone()));
        let values = [[1.0, 0.5], [2.0, 0.5], [3.0, 0.5], [6.0, 2.5]];
        normalise(&norm, Tensor::from_floats(values, &device), 1.0, None);
        let found = |state: &burn::module::RunningState<Tensor<1>>| {
            state.value_sync().into_data().try_into_vec::<f32>().unwrap()
        };
        // Means 3 and 1, sums of squares 14 and 3 over n − 1 = 3; a tenth of the new, nine of the old,
        // which were 0 and 1.
        let close = |found: Vec<f32>, expected: [f32; 2]| {
            found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6)
        };
        assert!(close(found(&norm.running_mean), [0.3, 0.1]));
        assert!(close(found(&norm.running_var), [0.9 + 14.0 / 30.0, 0.9 + 3.0 / 30.0]));
    }
}
