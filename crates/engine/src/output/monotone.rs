//! Monotone: P(o|s,r) = softmax(φ(h·Eᵀ)), φ increasing and learned: piecewise linear with positive
//! slopes, the PLIF of Ganea et al. 2019, "Breaking the Softmax Bottleneck via Learnable Monotonic
//! Pointwise Non-linearities". The function itself is in `ops`.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};

use super::{MadeOf, OutputFacts, OutputLayer};
use crate::ops::{PairScore, Pointwise};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::Weights;
use crate::settings::{Range, With, settings};

settings! {
    /// Settings of a learned increasing function.
    pub(crate) struct MonotoneConfig {
        /// Straight pieces of the learned function on each side of zero, between −20 and 20.
        pieces: usize = 40, Range::Between(1, 10_000);
    }
}

/// φ; h itself is scored.
#[derive(Module, Debug)]
pub(crate) struct Monotone {
    /// What slopes are made of, so that they are positive whatever is learned, `[2·pieces]`.
    raw_slopes: Param<Tensor<1>>,
}

impl OutputLayer for Monotone {
    type Settings = MonotoneConfig;
    const FACTS: OutputFacts = OutputFacts {
        made_of: MadeOf::DotOrCosine,
        ..OutputFacts::new(
            Formula::new(
                "softmax(φ(z)), φ increasing, of straight pieces",
                "2·pieces",
                Limit::Entities,
            ),
            ProbabilityKind::Categorical,
        )
    };

    fn called(_: &MonotoneConfig) -> String {
        "a softmax of a learned function".into()
    }

    fn pair_score(_: &MonotoneConfig, _: &With, _: PairScore) -> PairScore {
        PairScore::Over(Pointwise::Monotone)
    }

    fn n_parameters(build: &Build<MonotoneConfig>) -> usize {
        2 * build.own.pieces
    }

    /// The identity at first.
    fn new(build: &Build<MonotoneConfig>, weights: &mut Weights) -> Self {
        // log(1 + exp x) = 1.
        let raw = (1.0_f64.exp() - 1.0).ln();
        let raw_slopes = Tensor::full([2 * build.own.pieces], raw, &weights.device);
        Self { raw_slopes: Param::from_tensor(raw_slopes) }
    }

    fn weights(&self) -> Option<Tensor<1>> {
        Some(activation::softplus(self.raw_slopes.val(), 1.0))
    }
}
