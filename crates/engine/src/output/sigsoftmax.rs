//! Sigsoftmax: P(o|s,r) ∝ exp(z)·σ(z) with z = h·Eᵀ (Kanai et al. 2018, "Sigsoftmax: Reanalysis of the
//! Softmax Bottleneck"). The function itself is in `ops`.

use burn::module::Module;

use super::{MadeOf, NoOutputSettings, OutputFacts, OutputLayer};
use crate::ops::{PairScore, Pointwise};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::Weights;
use crate::settings::With;

/// h itself; nothing to learn beyond the encoder.
#[derive(Module, Debug)]
pub(crate) struct Sigsoftmax {}

impl OutputLayer for Sigsoftmax {
    type Settings = NoOutputSettings;
    const FACTS: OutputFacts = OutputFacts {
        made_of: MadeOf::DotOrCosine,
        ..OutputFacts::new(
            Formula::new("softmax(z + log σ(z))", "0", Limit::Entities),
            ProbabilityKind::Categorical,
        )
    };

    fn called(_: &NoOutputSettings) -> String {
        "a sigsoftmax".into()
    }

    fn pair_score(_: &NoOutputSettings, _: &With, _: PairScore) -> PairScore {
        PairScore::Over(Pointwise::Sigsoftmax)
    }

    fn new(_: &Build<NoOutputSettings>, _: &mut Weights) -> Self {
        Self {}
    }
}
