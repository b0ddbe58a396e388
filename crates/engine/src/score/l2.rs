//! Minus the Euclidean distance: −√Σ (h − e)².

use burn::module::Module;

use super::{NoScoreSettings, Score};
use crate::ops::{Distance, PairScore};
use crate::part::{Build, Formula, Limit};
use crate::random::Weights;

/// −√Σ (h − e)².
#[derive(Module, Debug)]
pub(crate) struct L2 {}

impl Score for L2 {
    type Settings = NoScoreSettings;
    const FORMULA: Formula = Formula::new("−√Σ (h − e_o)²", "0", Limit::Entities);
    const IS_DISTANCE: bool = true;

    fn pair_score(_: &Self::Settings) -> PairScore {
        PairScore::Minus(Distance::L2)
    }

    fn new(_: &Build<Self::Settings>, _: &mut Weights) -> Self {
        Self {}
    }
}
