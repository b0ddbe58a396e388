//! KGE-MoS: P(o|s,r) = Σ_k π_k(h) softmax(f_k(h)·Eᵀ), the mixture of softmaxes of Yang et al. 2018
//! over a knowledge graph's entities ("On the Theoretical Limitations of Embedding-based Link
//! Prediction", ICML 2026). With sigmoids in the place of the softmaxes it is the mixture of the same
//! paper's appendix on sign reconstruction: P(y_o = 1|s,r) = Σ_k π_k(h) σ(f_k(h)·e_o).

use burn::module::{Module, Param};
use burn::nn::BatchNorm;
use burn::tensor::{Tensor, activation};

use super::Components;
use crate::config::Activation;
use crate::encoder::{batch_norm, drop, normalise};
use crate::ops::{Products, component_products};
use crate::random::{Noise, Weights};

/// Sizes and choices of a mixture.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MixtureConfig {
    pub(crate) dim: usize,
    pub(crate) components: usize,
    pub(crate) layers: usize,
    pub(crate) activation: Activation,
    pub(crate) dropout: f64,
    /// How projections are made in training.
    pub(crate) products: Products,
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
    #[module(skip)]
    products: Products,
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
        let MixtureConfig { dim, components, layers, activation, dropout, products } = *config;
        let bound = (6.0 / (2 * dim) as f64).sqrt();
        let gate = Param::from_tensor(weights.xavier(dim, components));
        let projections = (0..layers)
            .map(|_| Projection {
                weight: Param::from_tensor(weights.uniform([components, dim, dim], bound)),
                norm: batch_norm(components * dim, weights),
            })
            .collect();
        Self { gate, projections, components, activation, dropout, products }
    }

    pub(crate) fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
        let [queries, dim] = query.dims();
        let log_prior = activation::log_softmax(query.clone().matmul(self.gate.val()), 1);
        let products = if noise.is_some() { self.products } else { Products::Whole };
        // [B, D] at first, the same for every component, then [B, K·D].
        let mut values = query;
        for projection in &self.projections {
            values = component_products(values, projection.weight.val(), products);
            values = self.activate(&projection.norm, values, noise);
        }
        Components { context: values.reshape([queries * self.components, dim]), log_prior }
    }

    /// Normalisation, activation, dropout.
    fn activate(&self, norm: &BatchNorm, values: Tensor<2>, noise: Option<&Noise>) -> Tensor<2> {
        let fused = |values: Tensor<2>, negative_slope| {
            let len = values.shape().num_elements();
            let noise = noise.filter(|_| self.dropout > 0.0);
            normalise(
                norm,
                values,
                negative_slope,
                noise.map(|noise| noise.mask(len, self.dropout)),
            )
        };
        let curved = |curve: fn(Tensor<2>) -> Tensor<2>, values| {
            drop(curve(normalise(norm, values, 1.0, None)), self.dropout, noise)
        };
        match self.activation {
            Activation::LeakyRelu => fused(values, 0.01),
            Activation::Relu => fused(values, 0.0),
            Activation::Identity => fused(values, 1.0),
            Activation::Gelu => curved(activation::gelu, values),
            Activation::Tanh => curved(activation::tanh, values),
        }
    }
}
