//! HypER: score = f(vec(s ∗ F_r)·W)·o, where a hypernetwork makes the filters F_r of the relation
//! vector (Balažević et al. 2019, "Hypernetwork Knowledge Graph Embeddings", eq. 2).

use burn::module::Module;
use burn::nn::{BatchNorm, Linear};
use burn::tensor::Tensor;

use super::{
    Encode, Encoded, EncoderFacts, EncoderSettings, Pass, Queries, RelationDim, Table, rows, table,
};
use crate::layers::{Channels, FilterConfig, Readout, batch_norm, drop, linear, n_linear, windows};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};
use crate::settings::settings;

/// Values of the subject vector that a filter sees at once.
const FILTER: usize = 9;

settings! {
    /// Settings of HypER.
    pub(crate) struct HypErConfig {
        + relation: RelationDim;
        + filters: FilterConfig;
    }
}

impl EncoderSettings for HypErConfig {
    fn query_dropout(&self) -> f64 {
        0.0
    }
}

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

impl HypErConfig {
    /// Values that the convolution makes of a query.
    fn n_features(&self, dim: usize) -> usize {
        self.filters.channels * (dim - FILTER + 1)
    }
}

impl Encode for HypEr {
    type Settings = HypErConfig;
    const FACTS: EncoderFacts = EncoderFacts {
        normalises_batch: true,
        ..EncoderFacts::new(Formula::linear(
            "f(vec(s ∗ F(r))·W)·o",
            "E·d + 2R·d_r + filters + features·d",
        ))
    };

    fn refuse(_: &HypErConfig, dim: usize) -> Option<String> {
        let what = || format!("filters of hyper see {FILTER} values; expected more, found {dim}");
        (dim <= FILTER).then(what)
    }

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        let (own, dim) = (build.own, build.dim());
        let (channels, relation_dim) = (own.filters.channels, own.relation.relation_dim(dim));
        let subject_norm = 2;
        build.entities() * dim
            + build.relations() * relation_dim
            + n_linear(relation_dim, channels * FILTER)
            + subject_norm
            + Channels::n_parameters(channels)
            + Readout::n_parameters(own.n_features(dim), dim)
    }

    fn n_batch_values(build: &Build<Self::Settings>, batch: usize) -> usize {
        let windows = FILTER * (build.dim() - FILTER + 1);
        // Channels before and after they are normalised, and the gradients of both; windows turn
        // on their side for theirs.
        batch * 4 * (windows + build.own.n_features(build.dim()))
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let (own, dim) = (build.own, build.dim());
        let (channels, relation_dim) = (own.filters.channels, own.relation.relation_dim(dim));
        Self {
            entity: table(build.entities(), dim, weights),
            relation: table(build.relations(), relation_dim, weights),
            filters: linear(relation_dim, channels * FILTER, weights),
            subject_norm: batch_norm(1, weights),
            channels: Channels::new(channels, 1.0, own.filters.feature_dropout, weights),
            readout: Readout::new(own.n_features(dim), dim, own.filters.hidden_dropout, weights),
            n_channels: channels,
            input_dropout: own.filters.input_dropout,
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
        Encoded { query, factors: vec![subject, relation] }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
