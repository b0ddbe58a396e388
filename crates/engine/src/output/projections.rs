//! Projections of a mixture: how does a query vector become K contexts, and their weights?
//!
//! π = softmax(h·ω); f_k is an MLP whose every layer is linear, batch normalisation, activation,
//! dropout. The linear layers have no bias: normalisation would take it away again.
//! What is mixed with them is the business of each mixture.

use burn::module::{Module, Param};
use burn::nn::BatchNorm;
use burn::tensor::{Tensor, activation};

use crate::layers::{batch_norm, drop, normalise};
use crate::ops::{Precision, batched_matmul};
use crate::part::{Build, training_precision};
use crate::random::{Noise, Weights};
use crate::settings::{Needs, Range, Refusal, With, choices, settings};

choices! {
    /// The nonlinearity of the mixture's projections.
    pub(crate) Activation {
        /// max(x, 0.01·x).
        LeakyRelu = "leaky_relu",
        /// max(x, 0).
        Relu = "relu",
        /// x·Φ(x).
        Gelu = "gelu",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// Nothing.
        Identity = "identity",
    }
}

choices! {
    /// What the weights of a mixture's components are made of.
    pub(crate) GateKind {
        /// The query vector: π = softmax(h·ω).
        Learned = "learned",
        /// Nothing: π = 1/K. A control, which tells what a gate that knows the query adds.
        Uniform = "uniform",
    }
}

settings! {
    /// Settings of all mixtures with projections.
    pub(crate) struct ProjectionConfig {
        /// How many are mixed: softmaxes, sigmoids, contexts, or the scores of a mixtape.
        components: usize = 4, Range::Between(1, 1000);
        /// Layers of each component's projection.
        layers: usize = 2, Range::Between(0, 100);
        /// Nonlinearity after each layer of a projection.
        activation: Activation = Activation::LeakyRelu, Range::Any, needs LAYERS;
        /// Fraction of values set to zero after each layer of a projection.
        projection_dropout: f64 = 0.1, Range::Fraction, needs LAYERS;
        /// What the weights of the components are made of.
        gate: GateKind = GateKind::Learned, Range::Any, needs SEVERAL;
        /// Reward for using all components: loss − entropy_weight · mean entropy of the prior.
        entropy_weight: f64 = 1e-3, Range::NotNegative, needs LEARNED_GATE;
    }
}

const LAYERS: Needs<ProjectionConfig> =
    Needs { text: "layers", deciding: &["layers"], are_met: |own, _| own.layers > 0 };
const SEVERAL: Needs<ProjectionConfig> = Needs {
    text: "several components",
    deciding: &["components"],
    are_met: |own, _| own.components > 1,
};

const LEARNED_GATE: Needs<ProjectionConfig> = Needs {
    text: "several components and gate = \"learned\"",
    deciding: &["components", "gate"],
    are_met: |own, _| own.components > 1 && own.gate == GateKind::Learned,
};

impl ProjectionConfig {
    /// What no mixture goes with; one of a single component is the plain layer called `plain`.
    pub(super) fn refusals(&self, output: &str, plain: &str, with: &With) -> Vec<Refusal> {
        let is_single = self.normalises_batch() && with.training.batch == 1;
        let are_equal = self.layers == 0 && self.components > 1;
        let is_mlp = !with.score.is_linear && !with.score.is_distance;
        let equal = || {
            format!(
                "without a projection all components are equal and the mixture is a plain {plain}; \
                 expected at least 1 with more than one component, found 0"
            )
        };
        let score = with.score.name;
        let nonlinear = || {
            format!(
                "an MLP is not linear in the object vector, so there is no bottleneck for a mixture to \
                 break; expected softmax, sigmoid or margin with score = \"{score}\", found {output}"
            )
        };
        [
            is_single.then(|| crate::layers::single_items("a mixture with layers")),
            are_equal.then(|| Refusal::new("layers", equal())),
            is_mlp.then(|| Refusal::new("output", nonlinear())),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Every layer does.
    pub(super) fn normalises_batch(&self) -> bool {
        self.layers > 0
    }

    /// Every layer keeps about six tensors of its size for the backward pass.
    pub(super) fn n_kept_contexts(&self) -> usize {
        6 * (self.layers + 1)
    }

    /// Learned numbers of gate and projections.
    pub(super) fn n_parameters(&self, dim: usize) -> usize {
        let gate = match self.gate {
            GateKind::Learned => dim * self.components,
            GateKind::Uniform => 0,
        };
        // A matrix, and scale and shift of the normalisation.
        let layer = self.components * (dim * dim + 2 * dim);
        gate + self.layers * layer
    }
}

/// The same layer of all components: K products in one.
#[derive(Module, Debug)]
pub(super) struct Projection {
    /// `[K, D, D]`.
    weight: Param<Tensor<3>>,
    /// Over the K·D values of all components.
    norm: BatchNorm,
}

/// ω, `[D, K]`, where it is learned.
pub(super) type Gate = Option<Param<Tensor<2>>>;

/// What projecting takes besides what is learned.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Projecting {
    config: ProjectionConfig,
    /// How products are made in training.
    precision: Precision,
}

/// Gate and projections of a new mixture.
pub(super) fn new<S>(
    config: &ProjectionConfig,
    build: &Build<S>,
    weights: &mut Weights,
) -> (Gate, Vec<Projection>, Projecting) {
    let (dim, components) = (build.dim(), config.components);
    let bound = (6.0 / (2 * dim) as f64).sqrt();
    let gate = match config.gate {
        GateKind::Learned => Some(Param::from_tensor(weights.xavier(dim, components))),
        GateKind::Uniform => None,
    };
    let projections = (0..config.layers)
        .map(|_| Projection {
            weight: Param::from_tensor(weights.uniform([components, dim, dim], bound)),
            norm: batch_norm(components * dim, weights),
        })
        .collect();
    let is_exact = build.with.training.exact || !build.with.score.is_linear;
    let precision = training_precision(is_exact, build.entities());
    (gate, projections, Projecting { config: config.clone(), precision })
}

impl Projecting {
    /// log π, `[B, K]`.
    pub(super) fn log_prior(&self, gate: &Gate, query: Tensor<2>) -> Tensor<2> {
        let components = self.config.components;
        match gate {
            Some(gate) => activation::log_softmax(query.matmul(gate.val()), 1),
            None => {
                let shape = [query.dims()[0], components];
                Tensor::full(shape, -(components as f64).ln(), &query.device())
            }
        }
    }

    /// f_k(h), `[B·K, D]`, the components of a query one after the other.
    pub(super) fn project(
        &self,
        projections: &[Projection],
        query: Tensor<2>,
        noise: Option<&Noise>,
    ) -> Tensor<2> {
        let [queries, dim] = query.dims();
        let precision = if noise.is_some() { self.precision } else { Precision::F32 };
        // [B, D] at first, the same for every component, then [B, K·D].
        let mut values = query;
        for projection in projections {
            values = batched_matmul(values, projection.weight.val(), precision);
            values = self.activate(&projection.norm, values, noise);
        }
        values.reshape([queries * self.config.components, dim])
    }

    /// Normalisation, activation, dropout.
    fn activate(&self, norm: &BatchNorm, values: Tensor<2>, noise: Option<&Noise>) -> Tensor<2> {
        let dropout = self.config.projection_dropout;
        let fused = |values: Tensor<2>, negative_slope| {
            let len = values.shape().num_elements();
            let noise = noise.filter(|_| dropout > 0.0);
            let mask = noise.map(|noise| noise.mask(len, dropout));
            normalise(norm, values, negative_slope, mask)
        };
        let curved = |curve: fn(Tensor<2>) -> Tensor<2>, values| {
            drop(curve(normalise(norm, values, 1.0, None)), dropout, noise)
        };
        match self.config.activation {
            Activation::LeakyRelu => fused(values, 0.01),
            Activation::Relu => fused(values, 0.0),
            Activation::Identity => fused(values, 1.0),
            Activation::Gelu => curved(activation::gelu, values),
            Activation::Tanh => curved(activation::tanh, values),
        }
    }
}
