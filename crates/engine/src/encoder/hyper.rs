//! HypER: score = f(vec(s ∗ F_r)·W)·o, where a hypernetwork makes the filters F_r of the relation
//! vector (Balažević et al. 2019, "Hypernetwork Knowledge Graph Embeddings", eq. 2).

use burn::module::Module;
use burn::nn::{BatchNorm, Linear};
use burn::tensor::Tensor;

use super::layers::{Channels, Readout, batch_norm, drop, linear, n_linear, windows};
use super::{Encode, Encoded, EncoderConfig, Formula, Pass, Queries, Table, rows, table};
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
    channels: Channels,
    readout: Readout,
    n_channels: usize,
    input_dropout: f64,
}

/// Values that the convolution makes of a query.
fn n_features(settings: &Config) -> usize {
    settings.channels * (settings.dim - FILTER + 1)
}

impl Encode for HypEr {
    const FORMULA: Formula =
        Formula::linear("f(vec(s ∗ F(r))·W)·o", "E·d + 2R·d_r + filters + features·d");
    const DROPOUT_ON_QUERY: bool = false;
    const BATCH_NORM: bool = true;

    fn fault(settings: &Config) -> Option<String> {
        let dim = settings.dim;
        let what = || format!("filters of hyper see {FILTER} values; expected more, found {dim}");
        (dim <= FILTER).then(what)
    }

    fn n_parameters(config: &EncoderConfig) -> usize {
        let channels = config.settings.channels;
        let subject_norm = 2;
        config.entities() * config.dim()
            + config.relations() * config.relation_dim()
            + n_linear(config.relation_dim(), channels * FILTER)
            + subject_norm
            + Channels::n_parameters(channels)
            + Readout::n_parameters(n_features(config.settings), config.dim())
    }

    fn n_batch_values(config: &EncoderConfig, batch: usize) -> usize {
        let windows = FILTER * (config.dim() - FILTER + 1);
        // Channels before and after they are normalised, and the gradients of both; windows turn
        // on their side for theirs.
        batch * 4 * (windows + n_features(config.settings))
    }

    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self {
        let (settings, dim) = (config.settings, config.dim());
        Self {
            entity: table(config.entities(), dim, weights),
            relation: table(config.relations(), config.relation_dim(), weights),
            filters: linear(config.relation_dim(), settings.channels * FILTER, weights),
            subject_norm: batch_norm(1, weights),
            channels: Channels::new(settings.channels, 1.0, settings.feature_dropout, weights),
            readout: Readout::new(n_features(settings), dim, settings.hidden_dropout, weights),
            n_channels: settings.channels,
            input_dropout: settings.input_dropout,
        }
    }

    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        let [n_queries, dim] = subject.dims();
        let input = self.subject_norm.forward(subject.clone().reshape([n_queries, 1, 1, dim]));
        let input = drop(input, self.input_dropout, pass.noise);
        let filters = self.filters.forward(relation.clone());
        let filters = filters.reshape([n_queries, self.n_channels, FILTER]);
        let channels = filters.matmul(windows(input, [1, FILTER]));
        let channels = self.channels.forward(channels, pass.noise);
        let query = self.readout.forward(channels, pass.noise);
        Encoded { query, factors: [subject, relation].map(Self::magnitudes).into() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
