//! Mixture of contexts: P(o|s,r) = softmax((Σ_k π_k(h) f_k(h))·Eᵀ), the control of Yang et al. 2018,
//! "Breaking the Softmax Bottleneck: A High-Rank RNN Language Model", section 3.1.
//!
//! It has the parameters of a mixture of softmaxes and mixes before the one softmax, so it is as limited
//! as a plain one: whatever a mixture gains on it is due to mixing probabilities.

use burn::module::Module;
use burn::tensor::Tensor;

use super::mixture::MixtureConfig;
use super::projections::{self, Gate, Projecting, Projection};
use super::{Components, LossTerms, OutputFacts, OutputLayer, SampledLoss};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Weights};
use crate::settings::{Refusal, With};

/// ω and the layers of all f_k.
#[derive(Module, Debug)]
pub(crate) struct MixtureOfContexts {
    gate: Gate,
    projections: Vec<Projection>,
    #[module(skip)]
    projecting: Projecting,
}

impl OutputLayer for MixtureOfContexts {
    type Settings = MixtureConfig;
    const FACTS: OutputFacts = OutputFacts::new(
        Formula::new("softmax(Σ_k π_k(h)·z_k)", "K·d + layers·K·(d² + 2d)", Limit::DimPlusOne),
        ProbabilityKind::Categorical,
    );

    fn called(own: &MixtureConfig) -> String {
        format!("a softmax over a mixture of {} contexts", own.projection.components)
    }

    fn refusals(own: &MixtureConfig, with: &With) -> Vec<Refusal> {
        own.projection.refusals("mixture-of-contexts", "softmax", with)
    }

    fn loss_terms(own: &MixtureConfig) -> LossTerms {
        LossTerms {
            smoothing: 0.0,
            sparse_below: Some(own.sparse.sparse_below),
            entropy_weight: own.projection.entropy_weight,
        }
    }

    fn sampled_loss(_: &MixtureConfig) -> Option<SampledLoss> {
        Some(SampledLoss::Softmax)
    }

    fn n_parameters(build: &Build<MixtureConfig>) -> usize {
        build.own.projection.n_parameters(build.dim())
    }

    /// Those of all f_k, though only their sum is scored.
    fn normalises_batch(own: &MixtureConfig) -> bool {
        own.projection.normalises_batch()
    }

    fn n_kept_contexts(own: &MixtureConfig) -> usize {
        own.projection.components * own.projection.n_kept_contexts()
    }

    fn new(build: &Build<MixtureConfig>, weights: &mut Weights) -> Self {
        let (gate, projections, projecting) =
            projections::new(&build.own.projection, build, weights);
        Self { gate, projections, projecting }
    }

    fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
        let log_prior = self.projecting.log_prior(&self.gate, query.clone());
        let contexts = self.projecting.project(&self.projections, query, noise);
        let [queries, components] = log_prior.dims();
        let weights = log_prior.clone().exp().reshape([queries, components, 1]);
        let contexts = contexts.reshape([queries as i32, components as i32, -1]);
        let context = (contexts * weights).sum_dim(1).squeeze_dim(1);
        let log_gate = self.gate.as_ref().map(|_| log_prior);
        Components { log_gate, ..Components::single(context) }
    }
}
