//! Mixture of softmaxes: P(o|s,r) = Σ_k π_k(h) softmax(f_k(h)·Eᵀ), that of Yang et al. 2018 over a
//! knowledge graph's entities, KGE-MoS ("On the Theoretical Limitations of Embedding-based Link
//! Prediction", ICML 2026).

use burn::module::Module;
use burn::tensor::Tensor;

use super::projections::{self, Gate, Projecting, Projection, ProjectionConfig};
use super::sparse::SparseConfig;
use super::{Components, LossTerms, OutputFacts, OutputLayer};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Weights};
use crate::settings::{Refusal, With, settings};

settings! {
    /// Settings of a mixture of softmaxes.
    pub(crate) struct MixtureConfig {
        + projection: ProjectionConfig;
        + sparse: SparseConfig;
    }
}

/// ω and the layers of all f_k.
#[derive(Module, Debug)]
pub(crate) struct Mixture {
    gate: Gate,
    projections: Vec<Projection>,
    #[module(skip)]
    projecting: Projecting,
}

impl OutputLayer for Mixture {
    type Settings = MixtureConfig;
    const FACTS: OutputFacts = OutputFacts {
        is_mixture: true,
        needs_all_objects: "each component of a mixture is normalised over all objects",
        ..OutputFacts::new(
            Formula::new("Σ_k π_k(h)·softmax(z_k)", "K·d + layers·K·(d² + 2d)", Limit::Entities),
            ProbabilityKind::Categorical,
        )
    };

    fn called(own: &MixtureConfig) -> String {
        format!("a mixture of {} softmaxes", own.projection.components)
    }

    fn refusals(own: &MixtureConfig, with: &With) -> Vec<Refusal> {
        own.projection.refusals("mixture", "softmax", with)
    }

    /// A mixture of one is a projection, and no mixture.
    fn limit(own: &MixtureConfig, _: &With) -> Limit {
        if own.projection.components == 1 { Limit::DimPlusOne } else { Limit::Entities }
    }

    fn n_components(own: &MixtureConfig) -> usize {
        own.projection.components
    }

    fn loss_terms(own: &MixtureConfig) -> LossTerms {
        LossTerms {
            smoothing: 0.0,
            sparse_below: Some(own.sparse.sparse_below),
            entropy_weight: own.projection.entropy_weight,
        }
    }

    fn n_parameters(build: &Build<MixtureConfig>) -> usize {
        build.own.projection.n_parameters(build.dim())
    }

    fn normalises_batch(own: &MixtureConfig) -> bool {
        own.projection.normalises_batch()
    }

    fn n_kept_contexts(own: &MixtureConfig) -> usize {
        own.projection.n_kept_contexts()
    }

    fn new(build: &Build<MixtureConfig>, weights: &mut Weights) -> Self {
        let (gate, projections, projecting) =
            projections::new(&build.own.projection, build, weights);
        Self { gate, projections, projecting }
    }

    fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
        let log_prior = self.projecting.log_prior(&self.gate, query.clone());
        let context = self.projecting.project(&self.projections, query, noise);
        let log_gate = self.gate.as_ref().map(|_| log_prior.clone());
        Components { context, log_gate, log_prior }
    }
}
