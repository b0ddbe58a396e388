//! ConcatMLP: score = MLP([h; e]), relu between its layers ("On the Theoretical Limitations of
//! Embedding-based Link Prediction", ICML 2026, appendix on ConcatMLP, where h = [s; r]).
//!
//! The first layer is linear, W·[h; e] + b_1 = (W_q·h + b_1) + W_o·e, so that each part of it is made
//! once for all pairs it is in. What follows has to be done for each pair, and is left to `ops`.

use burn::module::{Module, Param};
use burn::nn::Linear;
use burn::tensor::Tensor;

use crate::config::Config;
use crate::encoder::{linear, n_linear};
use crate::ops::Mlp;
use crate::random::Weights;

/// The layers of an MLP, the first one in two parts.
#[derive(Module, Debug)]
pub(crate) struct MlpScore {
    /// W_q and b_1, `[C, H]` and `[H]`.
    query: Linear,
    /// W_o, `[D, H]`.
    object: Linear,
    /// All after the first; the last gives one number.
    layers: Vec<Linear>,
}

impl MlpScore {
    pub(crate) fn new(config: &Config, weights: &mut Weights) -> Self {
        let [query_dim, dim, width] = Self::first(config);
        // Fans of the first layer as a whole.
        let bound = (6.0 / (query_dim + dim + width) as f64).sqrt();
        let [query, object] = [query_dim, dim].map(|inputs| Linear {
            weight: Param::from_tensor(weights.uniform([inputs, width], bound)),
            bias: None,
        });
        let bias = Param::from_tensor(Tensor::zeros([width], &weights.device));
        let mlp = Mlp::new(&config.hidden);
        let layers = mlp.shapes().map(|(inputs, outputs)| linear(inputs, outputs, weights));
        Self { query: Linear { bias: Some(bias), ..query }, object, layers: layers.collect() }
    }

    /// Learned numbers.
    pub(crate) fn n_parameters(config: &Config) -> usize {
        let [query_dim, dim, width] = Self::first(config);
        n_linear(query_dim + dim, width) + Mlp::new(&config.hidden).n_weights()
    }

    /// Widths of queries, of objects, and of the first layer.
    fn first(config: &Config) -> [usize; 3] {
        [config.encoder.query_dim(config), config.dim, config.hidden[0]]
    }

    /// `[…, C]` → `[…, H]`.
    pub(crate) fn queries(&self, vectors: Tensor<2>) -> Tensor<2> {
        self.query.forward(vectors)
    }

    /// `[…, D]` → `[…, H]`.
    pub(crate) fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        self.object.forward(vectors)
    }

    /// What `ops` takes: all layers after the first, matrix and bias of each, one after the other.
    pub(crate) fn weights(&self) -> Tensor<1> {
        let flat = |layer: &Linear| {
            let bias = layer.bias.as_ref().expect("made with one").val();
            [layer.weight.val().reshape([-1]), bias]
        };
        Tensor::cat(self.layers.iter().flat_map(flat).collect(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoder::EncoderKind;
    use crate::ops::{PairScore, pairwise_scores};
    use burn::tensor::{Device, Distribution, Tolerance, activation};

    #[test]
    fn it_is_the_mlp_of_both_vectors_side_by_side() {
        let device = Device::flex();
        for encoder in [EncoderKind::DistMult, EncoderKind::ConcatMlp] {
            let config = Config { encoder, dim: 3, hidden: vec![7, 5], ..Config::default() };
            let mut score = MlpScore::new(&config, &mut Weights::new(1, device.clone()));
            // At the start it is zero, which would hide it.
            let bias = Tensor::random([7], Distribution::Default, &device);
            score.query.bias = Some(Param::from_tensor(bias.clone()));
            let random = |columns| {
                Tensor::<2>::random([4, columns], Distribution::Uniform(-1.0, 1.0), &device)
            };
            let (query, object) = (random(encoder.query_dim(&config)), random(3));
            let (context, objects) = (score.queries(query.clone()), score.objects(object.clone()));
            let pair_score = PairScore::Through(Mlp::new(&config.hidden));
            let found = pairwise_scores(pair_score, Some(score.weights()), context, objects);

            let weight = vec![score.query.weight.val(), score.object.weight.val()];
            let first = Linear {
                weight: Param::from_tensor(Tensor::cat(weight, 0)),
                bias: Some(Param::from_tensor(bias)),
            };
            for (i, found) in found.iter_dim(0).enumerate() {
                let query = query.clone().slice(i..i + 1).repeat_dim(0, 4);
                let mut values = first.forward(Tensor::cat(vec![query, object.clone()], 1));
                for layer in &score.layers {
                    values = layer.forward(activation::relu(values));
                }
                let (found, expected) = (found.into_data(), values.transpose().into_data());
                // Rounding of sums of some ten terms of order one.
                found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            }
        }
    }
}
