//! Mixing: how do the components of one query become log-probabilities?

use super::Probability;
use super::scored::{Block, Scored, TILE, TileSum, Tiles};
use crate::log_sum::LogSum;
use crate::simd;
use crate::simd::sigmoid::{Prior, log_mixed_sigmoid, log_sigmoid};

/// The components of one query.
pub(super) struct Mixing<'a> {
    scored: &'a Scored<'a>,
    tiles: &'a Tiles,
    block: Block<'a>,
    /// The first of its rows in the block.
    first: usize,
    log_prior: &'a [f32],
    gates: Vec<f32>,
    normalisers: Vec<Normaliser>,
}

/// L of one component.
struct Normaliser {
    maximum: f32,
    /// What is to be added to the maximum. Apart, because the sum of both would have the digits of a
    /// logit, however large.
    log_sum: f32,
}

impl<'a> Mixing<'a> {
    /// Of a query of a block; `sums` are of all rows of the block and over all objects.
    pub(super) fn of(
        scored: &'a Scored,
        tiles: &'a Tiles,
        block: Block<'a>,
        query: usize,
        sums: &[LogSum],
    ) -> Self {
        let components = scored.inputs.logits.shape.components;
        let first = query * components;
        let log_prior = &block.log_prior[first..first + components];
        let normaliser =
            |sum: &LogSum| Normaliser { maximum: sum.maximum, log_sum: sum.sum.ln() as f32 };
        let normalisers = sums[first..first + components].iter().map(normaliser).collect();
        let gates = log_prior.iter().map(|x| x.exp()).collect();
        Self { scored, tiles, block, first, log_prior, gates, normalisers }
    }

    /// The log-probabilities of a tile's objects.
    pub(super) fn fill(&self, tile: usize, out: &mut [f32]) {
        let width = out.len();
        let start = self.block.n_rows() * tile * TILE + self.first * width;
        let values = &self.tiles.values[start..][..self.log_prior.len() * width];
        match (self.scored.inputs.probability, &self.normalisers[..]) {
            (Probability::Sigmoid, [_]) => log_sigmoid(out, values),
            (Probability::Sigmoid, _) => {
                let prior = Prior { log: self.log_prior, gates: &self.gates };
                log_mixed_sigmoid(out, values, prior, &mut Vec::new());
            }
            (Probability::Softmax, [Normaliser { maximum, log_sum }]) => {
                let more = self.log_prior[0] - log_sum;
                let pairs = out.iter_mut().zip(values);
                pairs.for_each(|(out, logit)| *out = (logit - maximum) + more);
            }
            (Probability::Softmax, _) => self.mix(tile, values, out),
        }
    }

    /// log Σ_k π_k exp(z_k − L_k), of exponentials.
    fn mix(&self, tile: usize, exps: &[f32], out: &mut [f32]) {
        let components = self.log_prior.len();
        let sums = &self.tiles.sums[tile * self.block.n_rows() + self.first..][..components];
        let factor = |((sum, normaliser), log_prior): ((&TileSum, &Normaliser), &f32)| {
            ((sum.maximum - normaliser.maximum) + (log_prior - normaliser.log_sum)).exp()
        };
        let parts = sums.iter().zip(&self.normalisers).zip(self.log_prior);
        let factors: Vec<f32> = parts.map(factor).collect();
        if simd::log_mixture(out, exps, &factors) {
            return;
        }
        // Some are so small that exponentials do not tell them apart: these from the logits again,
        // and only these, as logits made by another product differ in their last digits.
        let dim = self.scored.inputs.logits.shape.context_dim;
        let context = &self.block.context[self.first * dim..][..components * dim];
        let objects = tile * TILE..tile * TILE + out.len();
        let mut logits = vec![0.0; exps.len()];
        self.scored.logits(context, objects, &mut logits);
        let shifts: Vec<(f32, f32)> = (self.normalisers.iter().zip(self.log_prior))
            .map(|(normaliser, log_prior)| (normaliser.maximum, log_prior - normaliser.log_sum))
            .collect();
        let mut again = vec![0.0; out.len()];
        simd::log_sum_exp(&mut again, &logits, &shifts);
        for (out, again) in out.iter_mut().zip(again) {
            // NaN is not above it either.
            *out = if *out > simd::TINY.ln() { *out } else { again };
        }
    }
}
