//! A transformer over the two tokens [subject; relation] (Vaswani et al. 2017; as a decoder of links,
//! Galkin et al. 2020, whose qualifiers we have none of).

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::{Tensor, activation};

use super::layers::{drop, linear, n_linear};
use super::{Encode, Encoded, EncoderConfig, Formula, Pass, Queries, Table, rows, table};
use crate::config::Config;
use crate::random::{Noise, Weights};

/// Subject and relation.
const TOKENS: usize = 2;
/// Width of the feed-forward layers by that of the tokens.
const WIDENING: usize = 2;

/// h = mean(tokens)·W + b, with the tokens after the last layer, which were [s; r] + positions
/// before the first.
#[derive(Module, Debug)]
pub(crate) struct Transformer {
    entity: Table,
    relation: Table,
    positions: Table,
    layers: Vec<Layer>,
    readout: Linear,
    dropout: f64,
}

/// x ← norm(x + attend(x)); x ← norm(x + max(x·U + a, 0)·V + c). Dropout is on what is added, and
/// between U and V.
#[derive(Module, Debug)]
struct Layer {
    attention: Attention,
    attention_norm: LayerNorm,
    widen: Linear,
    narrow: Linear,
    feed_norm: LayerNorm,
}

/// Every token takes from all tokens, softmax(Q·Kᵀ/√width)·V, in each of several heads that have
/// their own part of Q, K and V.
#[derive(Module, Debug)]
struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
}

impl Encode for Transformer {
    const FORMULA: Formula = Formula::linear(
        "W·mean(transformer([s; r]))·o",
        "(E + 2R + 2)·d + about (8·layers + 1)·d²",
    );
    fn fault(settings: &Config) -> Option<String> {
        let Config { dim, heads, .. } = *settings;
        let what = || {
            format!(
                "the {heads} heads of the transformer share it; expected a multiple of {heads}, found {dim}"
            )
        };
        (!dim.is_multiple_of(heads)).then(what)
    }

    fn n_parameters(config: &EncoderConfig) -> usize {
        let (dim, layers) = (config.dim(), config.settings.attention_layers);
        let feed = n_linear(dim, WIDENING * dim) + n_linear(WIDENING * dim, dim);
        let norms = 4 * dim;
        (config.entities() + config.relations() + TOKENS) * dim
            + layers * (4 * n_linear(dim, dim) + feed + norms)
            + n_linear(dim, dim)
    }

    fn n_batch_values(config: &EncoderConfig, batch: usize) -> usize {
        /// Tensors of the size of the tokens that a layer keeps for the backward pass, the wider
        /// ones counted by their width; found by measuring.
        const KEPT: usize = 20;
        batch * TOKENS * config.dim() * KEPT * config.settings.attention_layers
    }

    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self {
        let (settings, dim) = (config.settings, config.dim());
        let entity = table(config.entities(), dim, weights);
        let relation = table(config.relations(), dim, weights);
        // Zero, for tokens of different tables are told apart without them.
        let positions = Table::from_tensor(Tensor::zeros([TOKENS, dim], &weights.device));
        let layers =
            (0..settings.attention_layers).map(|_| Layer::new(dim, settings.heads, weights));
        let layers = layers.collect();
        let readout = linear(dim, dim, weights);
        Self { entity, relation, positions, layers, readout, dropout: settings.attention_dropout }
    }

    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        let [n_queries, dim] = subject.dims();
        let tokens = Tensor::cat(vec![subject.clone(), relation.clone()], 1);
        let positions = self.positions.val().reshape([1, TOKENS, dim]);
        let mut tokens = tokens.reshape([n_queries, TOKENS, dim]) + positions;
        for layer in &self.layers {
            tokens = layer.forward(tokens, self.dropout, pass.noise);
        }
        let mean = tokens.mean_dim(1).reshape([n_queries, dim]);
        let query = self.readout.forward(mean);
        Encoded { query, factors: [subject, relation].map(Self::magnitudes).into() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}

impl Layer {
    fn new(dim: usize, heads: usize, weights: &mut Weights) -> Self {
        let mut square = || linear(dim, dim, weights);
        let (query, key, value, output) = (square(), square(), square(), square());
        let norm = |weights: &Weights| LayerNormConfig::new(dim).init(&weights.device);
        Self {
            attention: Attention { query, key, value, output, heads },
            attention_norm: norm(weights),
            widen: linear(dim, WIDENING * dim, weights),
            narrow: linear(WIDENING * dim, dim, weights),
            feed_norm: norm(weights),
        }
    }

    /// `[B, T, D]` → the same shape.
    fn forward(&self, tokens: Tensor<3>, dropout: f64, noise: Option<&Noise>) -> Tensor<3> {
        let attended = drop(self.attention.forward(tokens.clone()), dropout, noise);
        let tokens = self.attention_norm.forward(tokens + attended);
        let wide = activation::relu(self.widen.forward(tokens.clone()));
        let fed = self.narrow.forward(drop(wide, dropout, noise));
        self.feed_norm.forward(tokens + drop(fed, dropout, noise))
    }
}

impl Attention {
    /// `[B, T, D]` → the same shape.
    fn forward(&self, tokens: Tensor<3>) -> Tensor<3> {
        let [n_queries, n_tokens, dim] = tokens.dims();
        let width = dim / self.heads;
        // [B, heads, T, width]: products are over the tokens of one query, within one head.
        let by_head = |linear: &Linear| {
            let values = linear.forward(tokens.clone());
            values.reshape([n_queries, n_tokens, self.heads, width]).swap_dims(1, 2)
        };
        let likeness = by_head(&self.query).matmul(by_head(&self.key).transpose());
        let shares = activation::softmax(likeness.div_scalar((width as f64).sqrt()), 3);
        let taken = shares.matmul(by_head(&self.value)).swap_dims(1, 2);
        self.output.forward(taken.reshape([n_queries, n_tokens, dim]))
    }
}
