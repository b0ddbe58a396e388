//! Mixture of sigmoids: P(y_o = 1|s,r) = Σ_k π_k(h) σ(f_k(h)·e_o + b) ("On the Theoretical Limitations
//! of Embedding-based Link Prediction", ICML 2026, appendix on sign reconstruction).

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::offset::{self, Offset};
use super::projections::{self, Gate, Projecting, Projection, ProjectionConfig};
use super::sigmoid::DistanceMargin;
use super::sparse::SparseConfig;
use super::{Components, LossTerms, OutputFacts, OutputLayer};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Weights};
use crate::settings::{Refusal, With, settings};

settings! {
    /// Settings of a mixture of sigmoids.
    pub(crate) struct MixtureOfSigmoidsConfig {
        + projection: ProjectionConfig;
        + distance: DistanceMargin;
        + sparse: SparseConfig;
    }
}

/// ω, the layers of all f_k, and b.
#[derive(Module, Debug)]
pub(crate) struct MixtureOfSigmoids {
    gate: Gate,
    projections: Vec<Projection>,
    offset: Offset,
    #[module(skip)]
    projecting: Projecting,
}

impl OutputLayer for MixtureOfSigmoids {
    type Settings = MixtureOfSigmoidsConfig;
    const FACTS: OutputFacts = OutputFacts {
        is_mixture: true,
        needs_all_objects: "a mixture of sigmoids is made for all objects",
        ..OutputFacts::new(
            Formula::new(
                "Σ_k π_k(h)·σ(z_k,o + b)",
                "K·d + layers·K·(d² + 2d) + 1",
                Limit::Entities,
            ),
            ProbabilityKind::Bernoulli,
        )
    };

    fn called(own: &MixtureOfSigmoidsConfig) -> String {
        format!("a mixture of {} sigmoids", own.projection.components)
    }

    fn refusals(own: &MixtureOfSigmoidsConfig, with: &With) -> Vec<Refusal> {
        own.projection.refusals("mixture-of-sigmoids", "sigmoid", with)
    }

    /// A mixture of one is a projection, and no mixture.
    fn limit(own: &MixtureOfSigmoidsConfig, with: &With) -> Limit {
        if own.projection.components == 1 { offset::limit(with) } else { Limit::Entities }
    }

    fn n_components(own: &MixtureOfSigmoidsConfig) -> usize {
        own.projection.components
    }

    fn shift(own: &MixtureOfSigmoidsConfig, with: &With) -> f64 {
        own.distance.shift(with)
    }

    fn loss_terms(own: &MixtureOfSigmoidsConfig) -> LossTerms {
        LossTerms {
            smoothing: 0.0,
            sparse_below: Some(own.sparse.sparse_below),
            entropy_weight: own.projection.entropy_weight,
        }
    }

    fn n_parameters(build: &Build<MixtureOfSigmoidsConfig>) -> usize {
        build.own.projection.n_parameters(build.dim()) + offset::n_parameters(&build.with)
    }

    fn normalises_batch(own: &MixtureOfSigmoidsConfig) -> bool {
        own.projection.normalises_batch()
    }

    fn n_kept_contexts(own: &MixtureOfSigmoidsConfig) -> usize {
        own.projection.n_kept_contexts()
    }

    fn new(build: &Build<MixtureOfSigmoidsConfig>, weights: &mut Weights) -> Self {
        let (gate, projections, projecting) =
            projections::new(&build.own.projection, build, weights);
        Self { gate, projections, offset: offset::new(build, weights), projecting }
    }

    fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
        let log_prior = self.projecting.log_prior(&self.gate, query.clone());
        let context = self.projecting.project(&self.projections, query, noise);
        let log_gate = self.gate.as_ref().map(|_| log_prior.clone());
        Components { context, log_gate, log_prior }
    }

    fn offset(&self) -> Option<Tensor<1>> {
        self.offset.as_ref().map(Param::val)
    }
}
