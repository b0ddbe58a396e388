//! What number does a pair of query vector and object vector get?
//!
//! | | score of h and e |
//! |---|---|
//! | `dot` | h·e |
//! | `cosine` | a · h·e / (‖h‖ ‖e‖), with a learned scale a |
//! | `l1` | −Σ \|h − e\| |
//! | `l2` | −√Σ (h − e)² |
//! | `mlp` | v·relu(… relu(W·[h; e] + b_1) …) + b, a multi-layer perceptron |
//! | `modulus` | −Σ \|h − e\| over complex numbers, real parts in the left half (Sun et al. 2019) |
//!
//! The cosine is a dot product of vectors made for it, here, and so is the first layer of an MLP; all
//! else is computed in tiles by `ops`. What is made of scores is the business of the output layer.

mod mlp;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::config::{Config, choices};
use crate::models::{Formula, Limit};
use crate::ops::{Distance, Mlp, PairScore};
use crate::random::Weights;
use mlp::MlpScore;

choices! {
    /// What a query vector and an object vector score.
    ScoreKind {
        /// Their dot product.
        Dot = "dot",
        /// Their cosine, times a learned scale.
        Cosine = "cosine",
        /// Minus their L1 distance.
        L1 = "l1",
        /// Minus their Euclidean distance.
        L2 = "l2",
        /// Minus the sum of the moduli of their differences as complex numbers.
        Modulus = "modulus",
        /// What a multi-layer perceptron makes of both.
        Mlp = "mlp",
    }
}

impl ScoreKind {
    /// Whether it is linear in the object vector, up to its length.
    pub fn is_linear(self) -> bool {
        matches!(self, Self::Dot | Self::Cosine)
    }

    /// Whether it is a distance, which is never below zero.
    pub fn is_distance(self) -> bool {
        matches!(self, Self::L1 | Self::L2 | Self::Modulus)
    }

    /// Whether `dim` is split in two halves and must be even.
    pub fn halves(self) -> bool {
        self == Self::Modulus
    }

    /// What is computed of the vectors that [`Score`] gives; `hidden` is for an MLP.
    pub(crate) fn of_pairs(self, hidden: &[usize]) -> PairScore {
        match self {
            Self::Dot | Self::Cosine => PairScore::Dot,
            Self::L1 => PairScore::Minus(Distance::L1),
            Self::L2 => PairScore::Minus(Distance::L2),
            Self::Modulus => PairScore::Minus(Distance::Modulus),
            Self::Mlp => PairScore::Through(Mlp::new(hidden)),
        }
    }

    /// What it computes, as people write it.
    pub(crate) fn formula(self) -> Formula {
        match self {
            Self::Dot => Formula::linear("h·e_o; with `bias`, + b_o for E parameters more", "0"),
            Self::Cosine => Formula::linear("a·h·e_o / (‖h‖ ‖e_o‖)", "1"),
            Self::L1 => Formula::new("−Σ |h − e_o|", "0", Limit::Entities),
            Self::L2 => Formula::new("−√Σ (h − e_o)²", "0", Limit::Entities),
            Self::Modulus => Formula::new("−Σ |h − e_o|, complex numbers", "0", Limit::Entities),
            Self::Mlp => Formula::new("MLP([h; e_o])", "about (2d + H₂)·H₁", Limit::Entities),
        }
    }

    /// Learned numbers.
    pub(crate) fn n_parameters(self, config: &Config) -> usize {
        match self {
            Self::Dot | Self::L1 | Self::L2 | Self::Modulus => 0,
            Self::Cosine => 1,
            Self::Mlp => MlpScore::n_parameters(config),
        }
    }

    /// Width of contexts and of objects, as the tiles take them.
    pub(crate) fn dim(self, config: &Config) -> usize {
        if self == Self::Mlp { config.hidden[0] } else { config.dim }
    }

    /// Numbers that its first layer makes of the objects and of a batch of queries, and their
    /// gradients.
    pub(crate) fn n_batch_values(self, config: &Config, entities: usize, batch: usize) -> usize {
        let objects = config.negatives.map_or(entities, |negatives| negatives.min(entities));
        if self == Self::Mlp { 2 * (objects + batch) * self.dim(config) } else { 0 }
    }
}

/// A score of any kind.
#[derive(Module, Debug)]
pub(crate) struct Score {
    /// log a of the cosine, `[1]`: positive whatever is learned.
    log_scale: Option<Param<Tensor<1>>>,
    mlp: Option<MlpScore>,
}

impl Score {
    /// a at the start. Cosines of unrelated vectors are about 0 and those of a perfect answer 1;
    /// with e^10 the answer is as likely as 22,000 others together.
    const SCALE: f64 = 10.0;

    pub(crate) fn new(config: &Config, weights: &mut Weights) -> Self {
        let kind = config.score();
        let log_scale = || Param::from_tensor(Tensor::full([1], Self::SCALE.ln(), &weights.device));
        let log_scale = (kind == ScoreKind::Cosine).then(log_scale);
        Self { log_scale, mlp: (kind == ScoreKind::Mlp).then(|| MlpScore::new(config, weights)) }
    }

    /// Query vectors as the tiles take them.
    pub(crate) fn queries(&self, vectors: Tensor<2>) -> Tensor<2> {
        match (&self.log_scale, &self.mlp) {
            (Some(log_scale), _) => of_length_one(vectors) * log_scale.val().exp().unsqueeze(),
            (_, Some(mlp)) => mlp.queries(vectors),
            (None, None) => vectors,
        }
    }

    /// Object vectors as the tiles take them.
    pub(crate) fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        match (&self.log_scale, &self.mlp) {
            (Some(_), _) => of_length_one(vectors),
            (_, Some(mlp)) => mlp.objects(vectors),
            (None, None) => vectors,
        }
    }

    /// What the tiles take besides, if there is anything.
    pub(crate) fn weights(&self) -> Option<Tensor<1>> {
        self.mlp.as_ref().map(MlpScore::weights)
    }
}

/// Rows divided by their lengths; rows of zeros stay.
fn of_length_one(rows: Tensor<2>) -> Tensor<2> {
    /// Under the root, whose slope at zero is infinite.
    const FLOOR: f64 = 1e-20;
    let lengths = rows.clone().square().sum_dim(1).add_scalar(FLOOR).sqrt();
    rows / lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::pairwise_scores;
    use burn::tensor::Device;

    #[test]
    fn a_cosine_is_that_of_the_angle_whatever_the_lengths() {
        let config = Config { score: Some(ScoreKind::Cosine), ..Config::default() };
        let device = Device::flex();
        let score = Score::new(&config, &mut Weights::zeros(device.clone()));
        let rows = |values: [[f32; 2]; 3]| Tensor::<2>::from_floats(values, &device);
        let queries = score.queries(rows([[3.0, 0.0], [1e-4, 1e-4], [0.0, 0.0]]));
        let objects = score.objects(rows([[0.5, 0.0], [0.0, 7.0], [-2.0, -2.0]]));
        let found = pairwise_scores(config.pair_score(), None, queries, objects);
        let diagonal = 0.5_f32.sqrt();
        let expected = [1.0, 0.0, -diagonal, diagonal, diagonal, -1.0, 0.0, 0.0, 0.0];
        for (found, cosine) in found.into_data().iter::<f32>().zip(expected) {
            assert!((found - 10.0 * cosine).abs() < 1e-5, "{found} {cosine}");
        }
    }
}
