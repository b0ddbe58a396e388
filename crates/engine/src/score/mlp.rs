//! ConcatMLP: score = MLP([h; e]), relu between its layers ("On the Theoretical Limitations of
//! Embedding-based Link Prediction", ICML 2026, appendix on ConcatMLP, where h = [s; r]).
//!
//! The first layer is linear, W·[h; e] + b_1 = (W_q·h + b_1) + W_o·e, so that each part of it is made
//! once for all pairs it is in. What follows has to be done for each pair, and is left to `ops`.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;

use super::Score;
use crate::layers::{linear, n_linear};
use crate::ops::{Mlp as PairMlp, PairScore};
use crate::part::{Build, Formula, Limit};
use crate::random::Weights;
use crate::settings::{Range, settings};

settings! {
    /// Settings of an MLP over query and object.
    pub(crate) struct MlpConfig {
        /// Widths of the hidden layers of the score `mlp`, as a list, first to last.
        hidden: Vec<usize> = vec![512, 256], Range::Each(PairMlp::MAX_HIDDEN, 1, 100_000);
    }
}

/// v·relu(… relu(W·[h; e] + b_1) …) + b.
#[derive(Module, Debug)]
pub(crate) struct Mlp {
    mlp: Layers,
}

/// The layers of an MLP, the first one in two parts.
#[derive(Module, Debug)]
struct Layers {
    /// W_q and b_1, `[C, H]` and `[H]`.
    query: Linear,
    /// W_o, `[D, H]`.
    object: Linear,
    /// All after the first; the last gives one number.
    layers: Vec<Linear>,
}

impl Score for Mlp {
    type Settings = MlpConfig;
    const FORMULA: Formula = Formula::new("MLP([h; e_o])", "about (2d + H₂)·H₁", Limit::Entities);

    fn pair_score(own: &MlpConfig) -> PairScore {
        PairScore::Through(PairMlp::new(&own.hidden))
    }

    fn width(own: &MlpConfig, _: usize) -> usize {
        own.hidden[0]
    }

    fn n_parameters(build: &Build<MlpConfig>) -> usize {
        let hidden = &build.own.hidden;
        n_linear(build.with.query_dim + build.dim(), hidden[0]) + PairMlp::new(hidden).n_weights()
    }

    /// Of the first layer.
    fn n_batch_values(build: &Build<MlpConfig>, batch: usize) -> usize {
        let entities = build.entities();
        let objects = build.with.training.negatives.map_or(entities, |drawn| drawn.min(entities));
        2 * (objects + batch) * build.own.hidden[0]
    }

    fn new(build: &Build<MlpConfig>, weights: &mut Weights) -> Self {
        let (query_dim, dim, width) = (build.with.query_dim, build.dim(), build.own.hidden[0]);
        // Fans of the first layer as a whole.
        let bound = (6.0 / (query_dim + dim + width) as f64).sqrt();
        let [query, object] = [query_dim, dim].map(|inputs| Linear {
            weight: Param::from_tensor(weights.uniform([inputs, width], bound)),
            bias: None,
        });
        let bias = Param::from_tensor(Tensor::zeros([width], &weights.device));
        let mlp = PairMlp::new(&build.own.hidden);
        let layers = mlp.shapes().map(|(inputs, outputs)| linear(inputs, outputs, weights));
        let query = Linear { bias: Some(bias), ..query };
        Self { mlp: Layers { query, object, layers: layers.collect() } }
    }

    /// `[…, C]` → `[…, H]`.
    fn queries(&self, vectors: Tensor<2>) -> Tensor<2> {
        self.mlp.query.forward(vectors)
    }

    /// `[…, D]` → `[…, H]`.
    fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        self.mlp.object.forward(vectors)
    }

    /// All layers after the first, matrix and bias of each, one after the other.
    fn weights(&self) -> Option<Tensor<1>> {
        let flat = |layer: &Linear| {
            let bias = layer.bias.as_ref().expect("made with one").val();
            [layer.weight.val().reshape([-1]), bias]
        };
        Some(Tensor::cat(self.mlp.layers.iter().flat_map(flat).collect(), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::ops::pairwise_scores;
    use crate::part::Domain;
    use burn::tensor::{Device, Distribution, Tolerance, activation};

    #[test]
    fn it_is_the_mlp_of_both_vectors_side_by_side() {
        let device = Device::flex();
        for text in ["score = \"mlp\"", "encoder = \"concatmlp\""] {
            let config = Config::parse(&format!("{text}\ndim = 3\nhidden = [7, 5]")).unwrap();
            let domain = Domain::without_edges(4, 2);
            let own = MlpConfig { hidden: vec![7, 5] };
            let build = Build { own: &own, with: config.with(), domain: &domain };
            let mut score = Mlp::new(&build, &mut Weights::new(1, device.clone()));
            // At the start it is zero, which would hide it.
            let bias = Tensor::random([7], Distribution::Default, &device);
            score.mlp.query.bias = Some(Param::from_tensor(bias.clone()));
            let random = |columns| {
                Tensor::<2>::random([4, columns], Distribution::Uniform(-1.0, 1.0), &device)
            };
            let (query, object) = (random(config.with().query_dim), random(3));
            let (context, objects) = (score.queries(query.clone()), score.objects(object.clone()));
            let found = pairwise_scores(config.pair_score(), score.weights(), context, objects);

            let weight = vec![score.mlp.query.weight.val(), score.mlp.object.weight.val()];
            let first = Linear {
                weight: Param::from_tensor(Tensor::cat(weight, 0)),
                bias: Some(Param::from_tensor(bias)),
            };
            for (i, found) in found.iter_dim(0).enumerate() {
                let query = query.clone().slice(i..i + 1).repeat_dim(0, 4);
                let mut values = first.forward(Tensor::cat(vec![query, object.clone()], 1));
                for layer in &score.mlp.layers {
                    values = layer.forward(activation::relu(values));
                }
                let (found, expected) = (found.into_data(), values.transpose().into_data());
                // Rounding of sums of some ten terms of order one.
                found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            }
        }
    }
}
