//! P(o|s,r) = softmax(φ(h·Eᵀ)), φ increasing and learned: piecewise linear with positive slopes, the
//! PLIF of Ganea et al. 2019, "Breaking the Softmax Bottleneck via Learnable Monotonic Pointwise
//! Non-linearities". The function itself is in `ops`.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};

use crate::random::Weights;

#[derive(Module, Debug)]
pub(crate) struct Monotone {
    /// What slopes are made of, so that they are positive whatever is learned, `[2·pieces]`.
    raw_slopes: Param<Tensor<1>>,
}

impl Monotone {
    /// With `pieces` on each side of zero; the identity at first.
    pub(crate) fn new(pieces: usize, weights: &Weights) -> Self {
        // log(1 + exp x) = 1.
        let raw = (1.0_f64.exp() - 1.0).ln();
        let raw_slopes = Param::from_tensor(Tensor::full([2 * pieces], raw, &weights.device));
        Self { raw_slopes }
    }

    pub(crate) fn slopes(&self) -> Tensor<1> {
        activation::softplus(self.raw_slopes.val(), 1.0)
    }
}
