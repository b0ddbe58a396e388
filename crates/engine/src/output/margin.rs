//! Margin: raw scores, of which those of answers are to be above those of negative samples (Bordes et
//! al. 2013, eq. 1).

use burn::module::Module;

use super::{OutputFacts, OutputLayer, SampledLoss};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::Weights;
use crate::settings::{Range, Refusal, With, settings};

settings! {
    /// Settings of a ranking loss with a margin.
    pub(crate) struct MarginConfig {
        /// How much better than a negative sample an answer is to score; for sigmoids of distances, the
        /// distance at which a triple is as likely as not.
        margin: f64 = 1.0, Range::NotNegative;
        /// How much negative samples count the more the better they score: weights are the softmax of
        /// this times their scores, and 0 weighs all the same (Sun 2019).
        adversarial: f64 = 0.0, Range::NotNegative;
    }
}

/// h itself. When the model is asked, scores become a softmax, for which nothing was trained.
#[derive(Module, Debug)]
pub(crate) struct Margin {}

impl OutputLayer for Margin {
    type Settings = MarginConfig;
    const FACTS: OutputFacts = OutputFacts {
        trains_probabilities: false,
        ..OutputFacts::new(
            Formula::new("softmax(z), trained with a margin", "0", Limit::DimPlusOne),
            ProbabilityKind::Categorical,
        )
    };

    fn called(_: &MarginConfig) -> String {
        "a margin".into()
    }

    fn refusals(_: &MarginConfig, with: &With) -> Vec<Refusal> {
        let what = "a margin is kept from negative samples; expected a number with output = \
                    \"margin\", found none";
        let is_alone = with.training.negatives.is_none();
        is_alone.then(|| Refusal::new("negatives", what)).into_iter().collect()
    }

    fn sampled_loss(own: &MarginConfig) -> Option<SampledLoss> {
        let MarginConfig { margin, adversarial } = *own;
        Some(SampledLoss::Margin { margin, adversarial })
    }

    fn new(_: &Build<MarginConfig>, _: &mut Weights) -> Self {
        Self {}
    }
}
