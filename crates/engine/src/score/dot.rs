//! The dot product: h·e.

use burn::module::Module;

use super::{NoScoreSettings, Score};
use crate::ops::PairScore;
use crate::part::{Build, Formula};
use crate::random::Weights;

/// h·e.
#[derive(Module, Debug)]
pub(crate) struct Dot {}

impl Score for Dot {
    type Settings = NoScoreSettings;
    const FORMULA: Formula =
        Formula::linear("h·e_o; with `bias`, + b_o for E parameters more", "0");
    const IS_LINEAR: bool = true;

    fn pair_score(_: &Self::Settings) -> PairScore {
        PairScore::Dot
    }

    fn new(_: &Build<Self::Settings>, _: &mut Weights) -> Self {
        Self {}
    }
}
