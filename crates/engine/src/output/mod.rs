//! How do scores become probabilities, and probabilities a loss?
//!
//! Every output layer turns a query vector h into components: vectors f_k(h), each scored against
//! all objects, and the weights π_k they are mixed with. Scores become probabilities by a softmax over
//! all objects or by a sigmoid for each; a plain softmax or sigmoid is a single component.
//! Losses against drawn objects are in `sampled`, those against all of them are operations.

mod mixture;
mod negatives;
mod sampled;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::Serialize;

use crate::config::{Config, OutputKind};
use crate::models::{Formula, Limit};
use crate::random::{Noise, Weights};
use mixture::{Mixture, MixtureConfig};
pub(crate) use negatives::Negatives;
pub(crate) use sampled::{Sampled, margin_loss, sampled_softmax};

/// What is scored against the objects, and how it is mixed.
#[derive(Debug)]
pub(crate) struct Components {
    /// f_k(h), `[B·K, D]`, the components of a query one after the other.
    pub(crate) context: Tensor<2>,
    /// log π, `[B, K]`.
    pub(crate) log_prior: Tensor<2>,
}

/// What a probability of a model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// The share of this object among the answers of the query: those of all objects sum to one.
    Share,
    /// That the triple holds, whatever else does.
    Holds,
}

impl OutputKind {
    /// What its probabilities say.
    pub fn meaning(self) -> Meaning {
        match self {
            // A margin gives none; when asked, scores become a softmax all the same.
            Self::Softmax | Self::Mixture | Self::Margin => Meaning::Share,
            Self::Sigmoid | Self::MixtureOfSigmoids => Meaning::Holds,
        }
    }

    /// Whether several components are mixed.
    pub fn is_mixture(self) -> bool {
        matches!(self, Self::Mixture | Self::MixtureOfSigmoids)
    }
}

/// What makes the components of an output layer.
#[derive(Module, Debug)]
pub(crate) enum Output {
    /// h itself; nothing to learn beyond the encoder.
    Single(Single),
    Mixture(Mixture),
}

/// P(o|s,r) = softmax(h·Eᵀ), or σ(h·e_o).
#[derive(Module, Debug)]
pub(crate) struct Single {}

impl OutputKind {
    /// What it computes of scores z, those of f_k(h) being z_k, as people write it.
    pub(crate) fn formula(self) -> Formula {
        const MIXED: &str = "K·d + layers·K·(d² + 2d)";
        match self {
            Self::Softmax => Formula::new("softmax(z)", "0", Limit::DimPlusOne),
            Self::Mixture => Formula::new("Σ_k π_k(h)·softmax(z_k)", MIXED, Limit::Entities),
            Self::Margin => {
                Formula::new("softmax(z), trained with a margin", "0", Limit::DimPlusOne)
            }
            // Which triples hold is decided by the scores themselves.
            Self::Sigmoid => Formula::linear("σ(z_o)", "0"),
            Self::MixtureOfSigmoids => Formula::new("Σ_k π_k(h)·σ(z_k,o)", MIXED, Limit::Entities),
        }
    }
}

impl Output {
    pub(crate) fn new(config: &Config, weights: &mut Weights) -> Self {
        match config.output {
            OutputKind::Softmax | OutputKind::Margin | OutputKind::Sigmoid => {
                Self::Single(Single {})
            }
            OutputKind::Mixture | OutputKind::MixtureOfSigmoids => {
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
            Self::Single(_) => {
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
