//! Softmax: P(o|s,r) = softmax(h·Eᵀ).

use burn::module::Module;

use super::{LossTerms, OutputFacts, OutputLayer, SampledLoss};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::Weights;
use crate::settings::{Needs, Range, Refusal, With, settings};

settings! {
    /// Settings of a softmax.
    pub(crate) struct SoftmaxConfig {
        /// Fraction of an answer's weight spread over all objects; for the softmax only.
        smoothing: f64 = 0.0, Range::Fraction;
        /// Entries of the gradient of all scores that are left to chance, in units of an answer's weight:
        /// what is smaller than this is taken at this size, as often as its own size says. Right on
        /// average, and much faster once a model has learned a little; from 8,192 entities on.
        sparse_below: f64 = 1.0 / 1024.0, Range::Positive, needs SPARSE;
    }
}

const SPARSE: Needs<SoftmaxConfig> = Needs {
    text: "score = \"dot\" or \"cosine\", without negatives, smoothing or exact",
    deciding: &["score", "negatives", "smoothing", "exact"],
    are_met: |own, with| own.smoothing == 0.0 && super::sparse::may_be_sparse(with),
};

/// h itself; nothing to learn beyond the encoder.
#[derive(Module, Debug)]
pub(crate) struct Softmax {}

impl OutputLayer for Softmax {
    type Settings = SoftmaxConfig;
    const FACTS: OutputFacts = OutputFacts::new(
        Formula::new("softmax(z)", "0", Limit::DimPlusOne),
        ProbabilityKind::Categorical,
    );

    fn called(_: &SoftmaxConfig) -> String {
        "a softmax".into()
    }

    fn refusals(own: &SoftmaxConfig, with: &With) -> Vec<Refusal> {
        if own.smoothing == 0.0 {
            return Vec::new();
        }
        let (score, smoothing) = (with.score, own.smoothing);
        let mean = match score.is_distance {
            true => "the distance to a mean is not the mean of distances",
            false => "the score of a mean is not the mean of scores",
        };
        let of_nonlinear = (!score.is_linear).then(|| {
            let name = score.name;
            let what = format!(
                "goes by the mean of all object vectors, and {mean}; expected 0 with score = \"{name}\", \
                 found {smoothing}"
            );
            Refusal::new("smoothing", what)
        });
        let of_few = with.training.negatives.is_some().then(|| {
            let what = format!(
                "spreads weight over all objects, of which only some are scored; expected 0 with \
                 negatives, found {smoothing}"
            );
            Refusal::new("smoothing", what)
        });
        of_nonlinear.into_iter().chain(of_few).collect()
    }

    fn loss_terms(own: &SoftmaxConfig) -> LossTerms {
        let sparse_below = (own.smoothing == 0.0).then_some(own.sparse_below);
        LossTerms { smoothing: own.smoothing, sparse_below, entropy_weight: 0.0 }
    }

    fn sampled_loss(_: &SoftmaxConfig) -> Option<SampledLoss> {
        Some(SampledLoss::Softmax)
    }

    fn new(_: &Build<SoftmaxConfig>, _: &mut Weights) -> Self {
        Self {}
    }
}
