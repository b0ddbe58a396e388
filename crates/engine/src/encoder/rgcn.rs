//! R-GCN: every relation has its own matrix for what neighbours tell (Schlichtkrull et al. 2018).

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Tensor, activation};

use super::graph_convolution::MessageConfig;
use super::{
    Bilinear, Encode, Encoded, EncoderFacts, EncoderSettings, Pairs, Pass, Queries, RelationScores,
    Table, matrix, rows, table,
};
use crate::ops::{Compose, Message, Messages, gather_rows, sum_messages};
use crate::part::{Build, Edges, Formula};
use crate::random::{Noise, Weights};
use crate::settings::{Range, settings};

settings! {
    /// Settings of R-GCN.
    pub(crate) struct RgcnConfig {
        /// Matrices of which R-GCN mixes those of all relations.
        bases: usize = 2, Range::Between(1, 1000);
        + messages: MessageConfig;
    }
}

impl EncoderSettings for RgcnConfig {
    fn query_dropout(&self) -> f64 {
        self.messages.query_dropout()
    }
}

/// x'_v = Σ_r Σ_u W_r·x_u / n_rv + W_0·x_v (eq. 2) with W_r = Σ_b a_rb·V_b (eq. 3), ReLU between
/// layers, h = x'_s ∘ r.
///
/// The sum is over the edges (u, r, v) to v, inverses included, of which n_rv have relation r.
/// Σ_b V_b·(Σ a_rb·x_u / n_rv): every basis sums first and is multiplied once.
/// Where the authors drop whole edges in training, values of the sums are dropped here.
#[derive(Module, Debug)]
pub(crate) struct Rgcn {
    /// x of the first layer.
    entity: Table,
    /// Of the decoder, a DistMult.
    relation: Table,
    layers: Vec<Layer>,
    #[module(skip)]
    messages: Arc<Messages>,
    dropout: f64,
}

/// A step along all edges.
#[derive(Module, Debug)]
struct Layer {
    /// a, a row per relation.
    coefficients: Table,
    /// V, one below the other.
    bases: Table,
    /// W_0.
    own: Table,
}

impl Encode for Rgcn {
    type Settings = RgcnConfig;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::VECTORS,
        reads_edges: true,
        ..EncoderFacts::new(Formula::linear(
            "Σ s′·r·o′, entity vectors made of neighbours",
            "E·d₀ + 2R·(d + bases) + (bases + 1)·d₀·d",
        ))
    };

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        let (own, dim) = (build.own, build.dim());
        let n_bases = own.bases;
        let layer = |(width, out): (usize, usize)| {
            (n_bases + 1) * width * out + build.relations() * n_bases
        };
        build.entities() * own.messages.initial_dim
            + build.relations() * dim
            + own.messages.layer_widths(dim).map(layer).sum::<usize>()
    }

    fn n_batch_values(build: &Build<Self::Settings>, _: usize) -> usize {
        // The sums of every basis and their gradients, a mask, and what is made of it; then a mask.
        // Measured on FB15k-237 with one and two layers: within 10 %.
        let layer = |(width, out): (usize, usize)| 2 * build.own.bases * width + 3 * out;
        let widths = build.own.messages.layer_widths(build.dim());
        let row = widths.map(layer).sum::<usize>() + build.dim();
        Messages::n_words(build.domain.edges.len()) + build.entities() * row
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let (own, dim) = (build.own, build.dim());
        let entity = table(build.entities(), own.messages.initial_dim, weights);
        let relation = table(build.relations(), dim, weights);
        let mut layer = |(width, out): (usize, usize)| {
            // Each basis is a matrix of its own, with its own fans.
            let bound = (6.0 / (width + out) as f64).sqrt();
            Layer {
                coefficients: matrix(build.relations(), own.bases, weights),
                bases: Table::from_tensor(weights.uniform([own.bases * width, out], bound)),
                own: matrix(width, out, weights),
            }
        };
        let layers = own.messages.layer_widths(dim).map(&mut layer).collect();
        let messages = messages(build);
        Self { entity, relation, layers, messages, dropout: own.messages.message_dropout }
    }

    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
        let subject = gather_rows(pass.objects.clone(), Arc::clone(&queries.subjects));
        let relation = rows(&self.relation, &queries.relations);
        Encoded { query: subject.clone() * relation.clone(), factors: vec![subject, relation] }
    }

    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        rows(&self.relation, &pairs.relations) * pairs.objects
    }

    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let contexts = pairs.subjects * pairs.objects;
        RelationScores { contexts, relations: self.relation.val() }
    }

    fn objects(&self, noise: Option<&Noise>) -> Tensor<2> {
        let drop = |values: Tensor<2>| match noise {
            Some(noise) => noise.drop(values, self.dropout),
            None => values,
        };
        let mut entities = self.entity.val();
        for (depth, layer) in self.layers.iter().enumerate() {
            if depth > 0 {
                entities = activation::relu(entities);
            }
            let coefficients = layer.coefficients.val();
            let sums = sum_messages(entities.clone(), coefficients, &self.messages, Compose::Outer);
            let told = drop(sums.matmul(layer.bases.val()));
            entities = told + entities.matmul(layer.own.val());
        }
        drop(entities)
    }
}

/// A message along every edge, weighing 1 / n_rv.
fn messages(build: &Build<RgcnConfig>) -> Arc<Messages> {
    let Edges { subjects, relations, objects } = &build.domain.edges;
    let mut arrivals: Vec<(u32, u32)> =
        objects.iter().copied().zip(relations.iter().copied()).collect();
    arrivals.sort_unstable();
    let message = |edge: usize| {
        let arrival = (objects[edge], relations[edge]);
        let from = arrivals.partition_point(|other| *other < arrival);
        let n = arrivals[from..].partition_point(|other| *other == arrival);
        let (sender, relation, receiver) = (subjects[edge], relations[edge], objects[edge]);
        Message { sender, relation, receiver, factor: 1.0 / n as f32 }
    };
    let messages = (0..subjects.len()).map(message).collect();
    Arc::new(Messages::new(build.entities(), build.relations(), messages))
}
