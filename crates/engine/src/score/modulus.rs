//! Minus the sum of moduli: −Σ |h − e| over complex numbers (Sun et al. 2019).

use burn::module::Module;

use super::{NoScoreSettings, Score};
use crate::ops::{Distance, PairScore};
use crate::part::{Build, Formula, Limit};
use crate::random::Weights;

/// −Σ |h − e|, real parts in the left half of every vector and imaginary parts in the right.
#[derive(Module, Debug)]
pub(crate) struct Modulus {}

impl Score for Modulus {
    type Settings = NoScoreSettings;
    const FORMULA: Formula = Formula::new("−Σ |h − e_o|, complex numbers", "0", Limit::Entities);
    const IS_DISTANCE: bool = true;
    const HALVES: bool = true;

    fn pair_score(_: &Self::Settings) -> PairScore {
        PairScore::Minus(Distance::Modulus)
    }

    fn new(_: &Build<Self::Settings>, _: &mut Weights) -> Self {
        Self {}
    }
}
