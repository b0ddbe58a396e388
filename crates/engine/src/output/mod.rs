//! How do scores become probabilities, and probabilities a loss?
//!
//! Every output layer turns a query vector h into components: vectors f_k(h), each scored against
//! all objects and normalised, and the weights π_k they are mixed with. A softmax is a single one.

mod mixture;

use burn::module::Module;
use burn::tensor::Tensor;

use crate::config::{Config, OutputKind};
use crate::models::{Formula, Limit};
use crate::random::{Noise, Weights};
use mixture::{Mixture, MixtureConfig};

/// What is scored against the objects, and how it is mixed.
#[derive(Debug)]
pub(crate) struct Components {
    /// f_k(h), `[B·K, D]`, the components of a query one after the other.
    pub(crate) context: Tensor<2>,
    /// log π, `[B, K]`.
    pub(crate) log_prior: Tensor<2>,
}

/// An output layer of any kind.
#[derive(Module, Debug)]
pub(crate) enum Output {
    /// P(o|s,r) = softmax(h·Eᵀ); nothing to learn beyond the encoder.
    Softmax(Softmax),
    Mixture(Mixture),
}

/// P(o|s,r) = softmax(h·Eᵀ).
#[derive(Module, Debug)]
pub(crate) struct Softmax {}

impl OutputKind {
    /// What it computes, as people write it.
    pub(crate) fn formula(self) -> Formula {
        match self {
            Self::Softmax => Formula::new("softmax(z)", "0", Limit::DimPlusOne),
            Self::Mixture => Formula::new(
                "Σ_k π_k(h)·softmax(f_k(h)·Eᵀ)",
                "K·d + layers·K·(d² + 2d)",
                Limit::Entities,
            ),
        }
    }
}

impl Output {
    pub(crate) fn new(config: &Config, weights: &mut Weights) -> Self {
        match config.output {
            OutputKind::Softmax => Self::Softmax(Softmax {}),
            OutputKind::Mixture => {
                let config = MixtureConfig {
                    dim: config.dim,
                    components: config.components,
                    layers: config.layers,
                    activation: config.activation,
                    dropout: config.projection_dropout,
                };
                Self::Mixture(Mixture::new(&config, weights))
            }
        }
    }

    pub(crate) fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
        match self {
            Self::Softmax(_) => {
                let log_prior = Tensor::zeros([query.dims()[0], 1], &query.device());
                Components { context: query, log_prior }
            }
            Self::Mixture(mixture) => mixture.forward(query, noise),
        }
    }
}

/// Mean entropy of the prior over a batch, `[1]`: log K if all components are used alike.
pub(crate) fn mean_entropy(log_prior: Tensor<2>) -> Tensor<1> {
    let queries = log_prior.dims()[0] as f64;
    (log_prior.clone().exp() * log_prior).sum().mul_scalar(-1.0 / queries)
}
