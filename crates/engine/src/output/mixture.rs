//! KGE-MoS: P(o|s,r) = Σ_k π_k(h) softmax(f_k(h)·Eᵀ), the mixture of softmaxes of Yang et al. 2018
//! over a knowledge graph's entities ("On the Theoretical Limitations of Embedding-based Link
//! Prediction", ICML 2026). With sigmoids in the place of the softmaxes it is the mixture of the same
//! paper's appendix on sign reconstruction: P(y_o = 1|s,r) = Σ_k π_k(h) σ(f_k(h)·e_o).

use burn::module::{Module, Param};
use burn::nn::{BatchNorm, BatchNormConfig};
use burn::tensor::{Tensor, activation};

use super::Components;
use crate::config::Activation;
use crate::random::{Noise, Weights};

/// Sizes and choices of a mixture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MixtureConfig {
    pub(crate) dim: usize,
    pub(crate) components: usize,
    pub(crate) layers: usize,
    pub(crate) activation: Activation,
    pub(crate) dropout: f64,
}

/// π = softmax(h·ω); f_k is an MLP whose every layer is linear, batch normalisation, activation,
/// dropout. The linear layers have no bias: normalisation would take it away again.
#[derive(Module, Debug)]
pub(crate) struct Mixture {
    /// ω, `[D, K]`.
    gate: Param<Tensor<2>>,
    projections: Vec<Projection>,
    components: usize,
    #[module(skip)]
    activation: Activation,
    dropout: f64,
}

/// The same layer of all components: K products in one.
#[derive(Module, Debug)]
struct Projection {
    /// `[K, D, D]`.
    weight: Param<Tensor<3>>,
    /// Over the K·D values of all components.
    norm: BatchNorm,
}

impl Mixture {
    pub(crate) fn new(config: &MixtureConfig, weights: &mut Weights) -> Self {
        let MixtureConfig { dim, components, layers, activation, dropout } = *config;
        let bound = (6.0 / (2 * dim) as f64).sqrt();
        let gate = Param::from_tensor(weights.xavier(dim, components));
        let projections = (0..layers)
            .map(|_| Projection {
                weight: Param::from_tensor(weights.uniform([components, dim, dim], bound)),
                norm: BatchNormConfig::new(components * dim)
                    .with_epsilon(1e-5)
                    .with_momentum(0.1)
                    .init(&weights.device),
            })
            .collect();
        Self { gate, projections, components, activation, dropout }
    }

    pub(crate) fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
        let [queries, dim] = query.dims();
        let log_prior = activation::log_softmax(query.clone().matmul(self.gate.val()), 1);
        // [K, B, D]: every component starts from the same query vector.
        let mut values = query.reshape([1, queries, dim]).repeat_dim(0, self.components);
        for projection in &self.projections {
            values = values.matmul(projection.weight.val());
            let all = values.swap_dims(0, 1).reshape([queries, self.components * dim]);
            let mut all = self.activate(projection.norm.forward(all));
            if let Some(noise) = noise {
                all = noise.drop(all, self.dropout);
            }
            values = all.reshape([queries, self.components, dim]).swap_dims(0, 1);
        }
        let context = values.swap_dims(0, 1).reshape([queries * self.components, dim]);
        Components { context, log_prior }
    }

    fn activate(&self, values: Tensor<2>) -> Tensor<2> {
        match self.activation {
            Activation::LeakyRelu => activation::leaky_relu(values, 0.01),
            Activation::Relu => activation::relu(values),
            Activation::Gelu => activation::gelu(values),
            Activation::Tanh => activation::tanh(values),
            Activation::Identity => values,
        }
    }
}
