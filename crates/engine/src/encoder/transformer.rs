//! A transformer over the two tokens [subject; relation] (Vaswani et al. 2017; as a decoder of links,
//! Galkin et al. 2020, whose qualifiers we have none of).

use burn::module::Module;
use burn::nn::{LayerNorm, LayerNormConfig, Linear};
use burn::tensor::{Tensor, activation};

use super::{
    Encode, Encoded, EncoderFacts, EncoderSettings, Pass, Queries, QueryDropout, Table, rows, table,
};
use crate::layers::{drop, linear, n_linear};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};
use crate::settings::{Range, settings};

/// Subject and relation.
const TOKENS: usize = 2;
/// Width of the feed-forward layers by that of the tokens.
const WIDENING: usize = 2;

settings! {
    /// Settings of the transformer.
    pub(crate) struct TransformerConfig {
        /// Layers of the transformer.
        attention_layers: usize = 2, Range::Between(1, 100);
        /// Attention heads of each layer of the transformer, which share `dim` evenly.
        heads: usize = 4, Range::Between(1, 1000);
        /// Fraction of values set to zero in what each layer of the transformer adds.
        attention_dropout: f64 = 0.1, Range::Fraction;
        + query: QueryDropout;
    }
}

impl EncoderSettings for TransformerConfig {
    fn query_dropout(&self) -> f64 {
        self.query.dropout
    }
}

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
    type Settings = TransformerConfig;
    const FACTS: EncoderFacts = EncoderFacts::new(Formula::linear(
        "W·mean(transformer([s; r]))·o",
        "(E + 2R + 2)·d + about (8·layers + 1)·d²",
    ));

    fn refuse(own: &TransformerConfig, dim: usize) -> Option<String> {
        let heads = own.heads;
        let what = || {
            format!(
                "the {heads} heads of the transformer share it; expected a multiple of {heads}, found {dim}"
            )
        };
        (!dim.is_multiple_of(heads)).then(what)
    }

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        let (dim, layers) = (build.dim(), build.own.attention_layers);
        let feed = n_linear(dim, WIDENING * dim) + n_linear(WIDENING * dim, dim);
        let norms = 4 * dim;
        (build.entities() + build.relations() + TOKENS) * dim
            + layers * (4 * n_linear(dim, dim) + feed + norms)
            + n_linear(dim, dim)
    }

    fn n_batch_values(build: &Build<Self::Settings>, batch: usize) -> usize {
        /// Tensors of the size of the tokens that a layer keeps for the backward pass, the wider
        /// ones counted by their width; found by measuring.
        const KEPT: usize = 20;
        batch * TOKENS * build.dim() * KEPT * build.own.attention_layers
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let (own, dim) = (build.own, build.dim());
        let entity = table(build.entities(), dim, weights);
        let relation = table(build.relations(), dim, weights);
        // Zero, for tokens of different tables are told apart without them.
        let positions = Table::from_tensor(Tensor::zeros([TOKENS, dim], &weights.device));
        let layers = (0..own.attention_layers).map(|_| Layer::new(dim, own.heads, weights));
        let layers = layers.collect();
        let readout = linear(dim, dim, weights);
        Self { entity, relation, positions, layers, readout, dropout: own.attention_dropout }
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
        Encoded { query, factors: vec![subject, relation] }
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
