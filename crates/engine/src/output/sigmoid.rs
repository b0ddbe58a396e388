//! Sigmoid: P(y_o = 1|s,r) = σ(h·e_o + b), for every object by itself, with one b for all.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::offset::{self, Offset};
use super::sparse::SparseConfig;
use super::{LossTerms, OutputFacts, OutputLayer, SampledLoss};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::Weights;
use crate::settings::{Needs, Range, With, settings};

settings! {
    /// Settings of a sigmoid.
    pub(crate) struct SigmoidConfig {
        /// How much negative samples count the more the better they score: weights are the softmax of
        /// this times their scores, and 0 weighs all the same (Sun 2019).
        adversarial: f64 = 0.0, Range::NotNegative, needs NEGATIVES;
        + distance: DistanceMargin;
        + sparse: SparseConfig;
    }
}

const NEGATIVES: Needs<SigmoidConfig> = Needs {
    text: "negatives",
    deciding: &["negatives"],
    are_met: |_, with| with.training.negatives.is_some(),
};

settings! {
    /// Settings of sigmoids of distances.
    pub(crate) struct DistanceMargin {
        /// How much better than a negative sample an answer is to score; for sigmoids of distances, the
        /// distance at which a triple is as likely as not.
        margin: f64 = 1.0, Range::NotNegative, needs DISTANCE;
    }
}

const DISTANCE: Needs<DistanceMargin> = Needs {
    text: "a distance as score",
    deciding: &["score"],
    are_met: |_, with| with.score.is_distance,
};

impl DistanceMargin {
    /// What is added to every score: distances are never below zero.
    pub(super) fn shift(&self, with: &With) -> f64 {
        if with.score.is_distance { self.margin } else { 0.0 }
    }
}

/// h itself; nothing to learn beyond the encoder but b.
#[derive(Module, Debug)]
pub(crate) struct Sigmoid {
    offset: Offset,
}

impl OutputLayer for Sigmoid {
    type Settings = SigmoidConfig;
    // Which triples hold is decided by the scores themselves.
    const FACTS: OutputFacts = OutputFacts::new(
        Formula::new("σ(z_o + b)", "1", Limit::DimPlusOne),
        ProbabilityKind::Bernoulli,
    );

    fn called(_: &SigmoidConfig) -> String {
        "sigmoids".into()
    }

    fn limit(_: &SigmoidConfig, with: &With) -> Limit {
        offset::limit(with)
    }

    fn shift(own: &SigmoidConfig, with: &With) -> f64 {
        own.distance.shift(with)
    }

    fn loss_terms(own: &SigmoidConfig) -> LossTerms {
        LossTerms { sparse_below: Some(own.sparse.sparse_below), ..LossTerms::default() }
    }

    fn sampled_loss(own: &SigmoidConfig) -> Option<SampledLoss> {
        Some(SampledLoss::Logistic { adversarial: own.adversarial })
    }

    fn n_parameters(build: &Build<SigmoidConfig>) -> usize {
        offset::n_parameters(&build.with)
    }

    fn new(build: &Build<SigmoidConfig>, weights: &mut Weights) -> Self {
        Self { offset: offset::new(build, weights) }
    }

    fn offset(&self) -> Option<Tensor<1>> {
        self.offset.as_ref().map(Param::val)
    }
}
