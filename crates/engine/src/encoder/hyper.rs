//! HypER: score = f(vec(s ∗ F_r)·W)·o, where a hypernetwork makes the filters F_r of the relation
//! vector (Balažević et al. 2019, "Hypernetwork Knowledge Graph Embeddings", eq. 2).

use burn::module::Module;
use burn::nn::{BatchNorm, Linear};
use burn::tensor::Tensor;

use super::layers::{Readout, batch_norm, drop, drop_channels, linear, n_linear};
use super::{Encode, Encoded, EncoderConfig, Pass, Queries, Table, rows, table};
use crate::config::Config;
use crate::random::{Noise, Weights};

/// Values of the subject vector that a filter sees at once.
const FILTER: usize = 9;

/// h = f(vec(s ∗ F_r)·W) with F_r = r·H + b, reshaped to a filter per channel, ∗ a convolution
/// without padding and f batch normalisation and max(x, 0). s is normalised as well, and so is every
/// channel. Dropout is where the authors' code has it: on s, on whole channels, and after W.
#[derive(Module, Debug)]
pub(crate) struct HypEr {
    entity: Table,
    relation: Table,
    /// H and b, to `[channels, 9]`, one channel after the other.
    filters: Linear,
    subject_norm: BatchNorm,
    channel_norm: BatchNorm,
    readout: Readout,
    channels: usize,
    input_dropout: f64,
    feature_dropout: f64,
}

/// Values that the convolution makes of a query.
fn n_features(settings: &Config) -> usize {
    settings.channels * (settings.dim - FILTER + 1)
}

impl Encode for HypEr {
    const DROPOUT_ON_QUERY: bool = false;
    const BATCH_NORM: bool = true;

    fn fault(settings: &Config) -> Option<String> {
        let dim = settings.dim;
        let what = || format!("filters of hyper see {FILTER} values; expected more, found {dim}");
        (dim <= FILTER).then(what)
    }

    fn n_parameters(config: &EncoderConfig) -> usize {
        let channels = config.settings.channels;
        let normalisations = 2 + 2 * channels;
        config.entities() * config.dim()
            + config.relations() * config.relation_dim()
            + n_linear(config.relation_dim(), channels * FILTER)
            + normalisations
            + Readout::n_parameters(n_features(config.settings), config.dim())
    }

    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self {
        let (settings, dim) = (config.settings, config.dim());
        Self {
            entity: table(config.entities(), dim, weights),
            relation: table(config.relations(), config.relation_dim(), weights),
            filters: linear(config.relation_dim(), settings.channels * FILTER, weights),
            subject_norm: batch_norm(1, weights),
            channel_norm: batch_norm(settings.channels, weights),
            readout: Readout::new(n_features(settings), dim, settings.hidden_dropout, weights),
            channels: settings.channels,
            input_dropout: settings.input_dropout,
            feature_dropout: settings.feature_dropout,
        }
    }

    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        let [n_queries, dim] = subject.dims();
        let input = self.subject_norm.forward(subject.clone().reshape([n_queries, 1, dim]));
        let input = drop(input, self.input_dropout, pass.noise);
        let filters = self.filters.forward(relation.clone());
        let filters = filters.reshape([n_queries, self.channels, FILTER]);
        let channels = self.channel_norm.forward(filters.matmul(windows(input)));
        let channels = drop_channels(channels, self.feature_dropout, pass.noise);
        let query = self.readout.forward(channels, pass.noise);
        Encoded { query, factors: [subject, relation].map(Self::magnitudes).into() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}

/// What a filter sees at each place: `[B, 1, D]` → `[B, 9, D − 8]`, so that a product convolves.
fn windows(input: Tensor<3>) -> Tensor<3> {
    let [n_queries, _, dim] = input.dims();
    let places = dim - FILTER + 1;
    let shifted = |by| input.clone().slice([0..n_queries, 0..1, by..by + places]);
    Tensor::cat((0..FILTER).map(shifted).collect(), 1)
}
