//! How do scores become probabilities, and probabilities a loss?
//!
//! Every output layer turns a query vector h into components: vectors f_k(h), each scored against
//! all objects, and the weights π_k they are mixed with. Scores become probabilities by a softmax over
//! all objects or by a sigmoid for each; a plain softmax or sigmoid is a single component.
//! Some score in a way of their own: a function goes over all scores (sigsoftmax, monotone), they are
//! mixed before they are normalised (mixtape), or objects have vectors that are not learned (fourier).
//! Losses against drawn objects are in `sampled`, those against all of them are operations.

mod fourier;
mod mixtape;
mod mixture;
mod monotone;
mod negatives;
mod sampled;
#[cfg(test)]
mod tests;

use burn::module::Module;
use burn::tensor::Tensor;
use serde::Serialize;

use crate::config::{Config, OutputKind};
use crate::models::{Formula, Limit};
use crate::ops::{PairScore, Pointwise, Products, Shortcuts, Thinning};
use crate::random::{Noise, Purpose, Weights};
use fourier::Fourier;
use mixtape::Mixtape;
use mixture::{Mixture, MixtureConfig};
use monotone::Monotone;
pub(crate) use negatives::Negatives;
pub(crate) use sampled::{Sampled, logistic_loss, margin_loss, sampled_softmax};

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
            Self::Softmax
            | Self::Mixture
            | Self::Margin
            | Self::Sigsoftmax
            | Self::Monotone
            | Self::Mixtape => Meaning::Share,
            Self::Sigmoid | Self::MixtureOfSigmoids | Self::Fourier => Meaning::Holds,
        }
    }

    /// Whether several components are mixed.
    pub fn is_mixture(self) -> bool {
        matches!(self, Self::Mixture | Self::MixtureOfSigmoids)
    }
}

/// What makes the components of an output layer.
#[expect(clippy::large_enum_variant, reason = "a model has one, and it is never in a list")]
#[derive(Module, Debug)]
pub(crate) enum Output {
    /// h itself; nothing to learn beyond the encoder.
    Single(Single),
    Mixture(Mixture),
    Monotone(Monotone),
    Mixtape(Mixtape),
    Fourier(Fourier),
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
            Self::Sigsoftmax => Formula::new("softmax(z + log σ(z))", "0", Limit::Entities),
            Self::Monotone => {
                let text = "softmax(φ(z)), φ increasing, of straight pieces";
                Formula::new(text, "2·pieces", Limit::Entities)
            }
            Self::Mixtape => Formula::new(
                "softmax(Σ_k π_k(h, o)·z_k)",
                "K·d² + (K − 1)·(d·(g + 1) + E) + g·E",
                Limit::Entities,
            ),
            Self::Fourier => Formula::new(
                "σ(F_o·(V·h + b)), F sines and cosines",
                "(2f + 1)·(d + 1)",
                Limit::DimPlusOne,
            ),
        }
    }
}

/// From so many entities on products take most of a step, and shortcuts pay.
const MANY_ENTITIES: usize = 8192;

impl Config {
    /// What is computed of a context and an object, as score and output layer have them.
    pub(crate) fn pair_score(&self) -> PairScore {
        match self.output {
            OutputKind::Sigsoftmax => PairScore::Over(Pointwise::Sigsoftmax),
            OutputKind::Monotone => PairScore::Over(Pointwise::Monotone),
            OutputKind::Mixtape => PairScore::Mixed(self.mixtape()),
            OutputKind::Softmax
            | OutputKind::Mixture
            | OutputKind::Margin
            | OutputKind::Sigmoid
            | OutputKind::MixtureOfSigmoids
            | OutputKind::Fourier => self.score().of_pairs(&self.hidden),
        }
    }

    /// Whether the backward pass may leave small entries of the gradient to chance.
    pub(crate) fn is_thinned(&self) -> bool {
        !self.exact
            && self.pair_score() == PairScore::Dot
            && self.negatives.is_none()
            && self.smoothing == 0.0
    }

    /// What the loss of the update that has this noise need not do with all care.
    pub(crate) fn shortcuts(&self, entities: usize, noise: &Noise) -> Shortcuts {
        let is_thinned = self.is_thinned() && entities >= MANY_ENTITIES;
        let thinning = is_thinned.then(|| Thinning {
            below: self.sparse_below as f32,
            seed: noise.number(Purpose::Thinning),
        });
        Shortcuts { thinning, products: self.products(entities) }
    }

    /// How training multiplies contexts and objects, in updates and in validation.
    pub(crate) fn products(&self, entities: usize) -> Products {
        let may_be_halves = !self.exact && self.pair_score() == PairScore::Dot;
        if may_be_halves && entities >= MANY_ENTITIES {
            Products::fastest()
        } else {
            Products::Whole
        }
    }

    fn mixtape(&self) -> crate::ops::Mixtape {
        let Self { components, dim, gate_dim, .. } = *self;
        crate::ops::Mixtape { components, dim, gate_dim }
    }

    /// Width of contexts and of objects, as they are scored.
    pub(crate) fn scored_dims(&self) -> (usize, usize) {
        match self.output {
            OutputKind::Mixtape => (self.mixtape().context_dim(), self.mixtape().object_dim()),
            OutputKind::Fourier => (2 * self.frequencies() + 1, 2 * self.frequencies() + 1),
            _ => (self.score().dim(self), self.score().dim(self)),
        }
    }

    /// Numbers that the output layer makes of the objects for a batch, and their gradients.
    pub(crate) fn n_output_batch_values(&self, entities: usize) -> usize {
        match self.output {
            OutputKind::Mixtape | OutputKind::Fourier => 2 * entities * self.scored_dims().1,
            _ => 0,
        }
    }

    /// Learned numbers of the output layer.
    pub(crate) fn n_output_parameters(&self, entities: usize) -> usize {
        match self.output {
            OutputKind::Softmax
            | OutputKind::Margin
            | OutputKind::Sigmoid
            | OutputKind::Sigsoftmax => 0,
            OutputKind::Mixture | OutputKind::MixtureOfSigmoids => {
                let gate = self.dim * self.components;
                // A matrix, and scale and shift of the normalisation.
                let layer = self.components * (self.dim * self.dim + 2 * self.dim);
                gate + self.layers * layer
            }
            OutputKind::Monotone => 2 * self.pieces,
            OutputKind::Mixtape => Mixtape::n_parameters(self.mixtape(), entities),
            OutputKind::Fourier => (2 * self.frequencies() + 1) * (self.dim + 1),
        }
    }
}

impl Output {
    pub(crate) fn new(config: &Config, entities: usize, weights: &mut Weights) -> Self {
        match config.output {
            OutputKind::Softmax
            | OutputKind::Margin
            | OutputKind::Sigmoid
            | OutputKind::Sigsoftmax => Self::Single(Single {}),
            OutputKind::Mixture | OutputKind::MixtureOfSigmoids => {
                let config = MixtureConfig {
                    dim: config.dim,
                    components: config.components,
                    layers: config.layers,
                    activation: config.activation,
                    dropout: config.projection_dropout,
                    products: config.products(entities),
                };
                Self::Mixture(Mixture::new(&config, weights))
            }
            OutputKind::Monotone => Self::Monotone(Monotone::new(config.pieces, weights)),
            OutputKind::Mixtape => Self::Mixtape(Mixtape::new(config.mixtape(), entities, weights)),
            OutputKind::Fourier => {
                let sizes = (config.dim, config.frequencies());
                Self::Fourier(Fourier::new(sizes, entities, weights))
            }
        }
    }

    pub(crate) fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
        let single = |context: Tensor<2>| {
            let log_prior = Tensor::zeros([context.dims()[0], 1], &context.device());
            Components { context, log_prior }
        };
        match self {
            Self::Single(_) | Self::Monotone(_) => single(query),
            Self::Mixture(mixture) => mixture.forward(query, noise),
            Self::Mixtape(mixtape) => single(mixtape.queries(query)),
            Self::Fourier(fourier) => single(fourier.queries(query)),
        }
    }

    /// The table of objects as it is scored, `[E, …]`.
    pub(crate) fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Single(_) | Self::Monotone(_) | Self::Mixture(_) => vectors,
            Self::Mixtape(mixtape) => mixtape.objects(vectors),
            Self::Fourier(fourier) => fourier.objects(),
        }
    }

    /// What the function over all scores has learned, if there is one.
    pub(crate) fn weights(&self) -> Option<Tensor<1>> {
        match self {
            Self::Monotone(monotone) => Some(monotone.slopes()),
            Self::Single(_) | Self::Mixture(_) | Self::Mixtape(_) | Self::Fourier(_) => None,
        }
    }
}

/// Mean entropy of the prior over a batch, `[1]`: log K if all components are used alike.
pub(crate) fn mean_entropy(log_prior: Tensor<2>) -> Tensor<1> {
    let queries = log_prior.dims()[0] as f64;
    (log_prior.clone().exp() * log_prior).sum().mul_scalar(-1.0 / queries)
}
