//! Minus the L1 distance: −Σ |h − e|.

use burn::module::Module;

use super::{NoScoreSettings, Score};
use crate::ops::{Distance, PairScore};
use crate::part::{Build, Formula, Limit};
use crate::random::Weights;

/// −Σ |h − e|.
#[derive(Module, Debug)]
pub(crate) struct L1 {}

impl Score for L1 {
    type Settings = NoScoreSettings;
    const FORMULA: Formula = Formula::new("−Σ |h − e_o|", "0", Limit::Entities);
    const IS_DISTANCE: bool = true;

    fn pair_score(_: &Self::Settings) -> PairScore {
        PairScore::Minus(Distance::L1)
    }

    fn new(_: &Build<Self::Settings>, _: &mut Weights) -> Self {
        Self {}
    }
}
