//! Which layers do neural encoders share?
//!
//! Linear layers, normalisation of channels, and the end of a convolutional encoder.
//! Every weight and every dropped value is drawn by our own generators, not by burn's, so that a
//! run repeats.

use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear};
use burn::tensor::{Tensor, activation};

use crate::random::{Noise, Weights};

/// x·W + b, with b zero at the start.
pub(super) fn linear(inputs: usize, outputs: usize, weights: &mut Weights) -> Linear {
    let bias = Param::from_tensor(Tensor::zeros([outputs], &weights.device));
    Linear { bias: Some(bias), ..linear_without_bias(inputs, outputs, weights) }
}

/// x·W: what batch normalisation follows, which would take a bias away again.
pub(super) fn linear_without_bias(inputs: usize, outputs: usize, weights: &mut Weights) -> Linear {
    Linear { weight: Param::from_tensor(weights.xavier(inputs, outputs)), bias: None }
}

/// Learned numbers of [`linear`].
pub(super) fn n_linear(inputs: usize, outputs: usize) -> usize {
    (inputs + 1) * outputs
}

/// Over the columns of `[B, features]`, or the channels of `[B, features, …]`.
pub(super) fn batch_norm(features: usize, weights: &Weights) -> BatchNorm {
    BatchNormConfig::new(features).init(&weights.device)
}

/// Drops values in training, and does nothing in evaluation.
pub(super) fn drop<const D: usize>(
    values: Tensor<D>,
    rate: f64,
    noise: Option<&Noise>,
) -> Tensor<D> {
    match noise {
        Some(noise) => noise.drop(values, rate),
        None => values,
    }
}

/// Drops whole channels of `[B, C, P]` in training: neighbours are so alike that a single value
/// dropped would still be known from them (Tompson et al. 2015).
pub(super) fn drop_channels(values: Tensor<3>, rate: f64, noise: Option<&Noise>) -> Tensor<3> {
    let [queries, channels, _] = values.dims();
    match noise {
        Some(noise) if rate > 0.0 => {
            let ones = Tensor::<3>::ones([queries, channels, 1], &values.device());
            values * noise.drop(ones, rate)
        }
        _ => values,
    }
}

/// The end of a convolutional encoder: all values of a query → h, by a linear layer, dropout,
/// batch normalisation and max(x, 0).
#[derive(Module, Debug)]
pub(super) struct Readout {
    linear: Linear,
    norm: BatchNorm,
    dropout: f64,
}

impl Readout {
    pub(super) fn new(inputs: usize, dim: usize, dropout: f64, weights: &mut Weights) -> Self {
        let linear = linear_without_bias(inputs, dim, weights);
        Self { linear, norm: batch_norm(dim, weights), dropout }
    }

    /// A matrix, and scale and shift of the normalisation.
    pub(super) fn n_parameters(inputs: usize, dim: usize) -> usize {
        (inputs + 2) * dim
    }

    /// `[B, C, P]` → `[B, D]`.
    pub(super) fn forward(&self, values: Tensor<3>, noise: Option<&Noise>) -> Tensor<2> {
        let hidden = self.linear.forward(values.flatten::<2>(1, 2));
        activation::relu(self.norm.forward(drop(hidden, self.dropout, noise)))
    }
}
