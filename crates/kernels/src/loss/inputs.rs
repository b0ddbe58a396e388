//! Inputs of a loss, and what it may leave to chance.

use super::answers::BatchAnswers;
use super::sparse::Thinning;
use crate::pair_score::PairScore;
use crate::product::Precision;
use crate::tiles::{LogitGrads, LogitInputs, scale};

/// What a loss is computed from.
#[derive(Debug, Clone)]
pub struct Inputs<'a> {
    /// What the logits of all components are made of.
    pub logits: LogitInputs<'a>,
    /// log π of the gates that components are mixed with, `[B, K]`.
    pub log_prior: &'a [f32],
    /// All answers of the batch, also those whose objects are in another part.
    pub answers: &'a BatchAnswers,
}

/// Gradients of a loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Grads {
    /// `[B, K]`.
    pub log_prior: Vec<f32>,
    /// Of what logits are made of.
    pub logits: LogitGrads,
}

impl Grads {
    /// Those of `factor` times the loss.
    pub fn scale(&mut self, factor: f32) {
        scale(&mut self.log_prior, factor);
        self.logits.scale(factor);
    }
}

/// Approximations allowed in training, for speed; by default none. For the dot product only.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Shortcuts {
    /// Which entries of the gradient are left to chance.
    pub thinning: Option<Thinning>,
    /// How products are made.
    pub precision: Precision,
}

impl Shortcuts {
    /// # Panics
    /// If there are any for another score than the dot product.
    pub(super) fn check(self, score: PairScore) {
        assert!(score == PairScore::Dot || self == Self::default(), "shortcuts for {score:?}");
    }
}

/// What differs between softmax losses.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SoftmaxOptions {
    /// How much of an answer's weight is spread over all objects; for one component and the dot
    /// product.
    pub smoothing: f32,
    /// Approximations allowed in training.
    pub shortcuts: Shortcuts,
}

impl SoftmaxOptions {
    /// # Panics
    /// If there is no such loss.
    pub(super) fn check(self, inputs: &Inputs) {
        let LogitInputs { score, ref shape, .. } = inputs.logits;
        self.shortcuts.check(score);
        let is_plain = score == PairScore::Dot && shape.components == 1;
        let components = shape.components;
        assert!(is_plain || self.smoothing == 0.0, "smoothing of {components} × {score:?}");
    }
}
