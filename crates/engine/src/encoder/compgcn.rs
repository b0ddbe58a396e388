//! CompGCN: entities are what their neighbours and relations tell them (Vashishth et al. 2020).

use std::sync::Arc;

use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig};
use burn::tensor::{Tensor, TensorData};

use super::graph_convolution::MessageConfig;
use super::{
    Bilinear, Encode, Encoded, EncoderFacts, EncoderSettings, Pairs, Pass, Queries, RelationScores,
    Table, matrix, table,
};
use crate::ops::{Compose, Message, Messages, gather_rows, sum_messages};
use crate::part::{Build, Edges, Formula};
use crate::random::{Noise, Weights};
use crate::settings::{Range, choices, settings};

choices! {
    /// What a message along an edge is made of: sender x and relation z, in CompGCN.
    pub(crate) Composition {
        /// x ∘ z.
        DistMult = "distmult",
        /// x − z.
        Subtraction = "subtraction",
        /// The circular correlation: value k is Σ_i x_i·z_(i+k).
        Correlation = "correlation",
    }
}

settings! {
    /// Settings of CompGCN.
    pub(crate) struct CompGcnConfig {
        /// How CompGCN makes a message of sender and relation.
        composition: Composition = Composition::DistMult, Range::Any;
        + messages: MessageConfig;
    }
}

impl EncoderSettings for CompGcnConfig {
    fn query_dropout(&self) -> f64 {
        self.messages.query_dropout()
    }
}

/// x'_v = tanh(norm(⅓·Σ_dir W_dir·Σ φ(x_u, z_r) / √(n_u·n_v))), z' = W_rel·z, h = x'_s ∘ z'_r.
///
/// The inner sum is over the edges (u, r, v) to v of one direction: the facts, their inverses, and
/// a loop of every entity to itself with a relation and weight 1 of its own. n_u and n_v are how
/// many edges of the direction leave u and reach v; φ is `composition` (eq. 2 to 5).
/// As W_dir is the same for all edges of a direction, sums are multiplied by it, not messages.
///
/// The authors' code counts, for both ends, the edges of one end only, and so drops every message
/// from an entity without edges there. That is not in the paper, and not here.
#[derive(Module, Debug)]
pub(crate) struct CompGcn {
    /// x of the first layer.
    entity: Table,
    /// z of the first layer.
    relation: Table,
    layers: Vec<Layer>,
    /// Facts, inverses, loops.
    #[module(skip)]
    directions: [Arc<Messages>; 3],
    #[module(skip)]
    composition: Composition,
    dropout: f64,
}

/// A step along all edges.
#[derive(Module, Debug)]
struct Layer {
    /// The relation of the loops, one row.
    loop_relation: Table,
    /// W_dir.
    facts: Table,
    inverses: Table,
    loops: Table,
    /// W_rel.
    relation: Table,
    norm: BatchNorm,
}

impl Encode for CompGcn {
    type Settings = CompGcnConfig;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::VECTORS,
        reads_edges: true,
        ..EncoderFacts::new(Formula::linear(
            "Σ s′·r′·o′, vectors made of neighbours and relations",
            "(E + 2R)·d₀ + about 4·d₀·d",
        ))
    };

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        // Four matrices, the loops' relation, and scale and shift of the normalisation.
        let layer = |(width, out): (usize, usize)| 4 * width * out + width + 2 * out;
        let tables = (build.entities() + build.relations()) * build.own.messages.initial_dim;
        tables + build.own.messages.layer_widths(build.dim()).map(layer).sum::<usize>()
    }

    fn n_batch_values(build: &Build<Self::Settings>, _: usize) -> usize {
        // The loops are edges, too.
        let edges = Messages::n_words(build.domain.edges.len() + build.entities());
        // Three sums, two masks, what normalisation keeps, and what is made of it; then a mask.
        // Measured on FB15k-237 with one and two layers: within 5 %.
        let layer = |(width, out): (usize, usize)| 3 * width + 6 * out;
        let widths = build.own.messages.layer_widths(build.dim());
        let row = widths.map(layer).sum::<usize>() + build.dim();
        edges + build.entities() * row
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let messages = &build.own.messages;
        Self {
            entity: table(build.entities(), messages.initial_dim, weights),
            relation: table(build.relations(), messages.initial_dim, weights),
            layers: messages
                .layer_widths(build.dim())
                .map(|widths| Layer::new(widths, weights))
                .collect(),
            directions: directions(build),
            composition: build.own.composition,
            dropout: messages.message_dropout,
        }
    }

    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
        let subject = gather_rows(pass.objects.clone(), Arc::clone(&queries.subjects));
        let relation = self.relations_after(self.layers.len());
        let relation = gather_rows(relation, Arc::clone(&queries.relations));
        Encoded { query: subject.clone() * relation.clone(), factors: vec![subject, relation] }
    }

    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        let relations = self.relations_after(self.layers.len());
        gather_rows(relations, pairs.relations) * pairs.objects
    }

    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let contexts = pairs.subjects * pairs.objects;
        RelationScores { contexts, relations: self.relations_after(self.layers.len()) }
    }

    fn objects(&self, noise: Option<&Noise>) -> Tensor<2> {
        let mut entities = self.entity.val();
        for (depth, layer) in self.layers.iter().enumerate() {
            entities = self.step(layer, entities, self.relations_after(depth), noise);
        }
        match noise {
            Some(noise) => noise.drop(entities, self.dropout),
            None => entities,
        }
    }
}

impl CompGcn {
    /// z after so many layers.
    fn relations_after(&self, n_layers: usize) -> Tensor<2> {
        let layers = self.layers[..n_layers].iter();
        layers.fold(self.relation.val(), |relations, layer| relations.matmul(layer.relation.val()))
    }

    /// x of the next layer.
    fn step(
        &self,
        layer: &Layer,
        entities: Tensor<2>,
        relations: Tensor<2>,
        noise: Option<&Noise>,
    ) -> Tensor<2> {
        let composer = Composer::new(self.composition, &entities);
        let entities = composer.enter(entities);
        let relations = composer.enter(relations);
        let loop_relation = composer.enter(layer.loop_relation.val());
        let sum = |messages: &Arc<Messages>, relations: Tensor<2>, weight: &Table| {
            let sums = sum_messages(entities.clone(), relations, messages, composer.compose);
            sums.matmul(composer.leave(weight.val()))
        };
        let drop = |sums: Tensor<2>| match noise {
            Some(noise) => noise.drop(sums, self.dropout),
            None => sums,
        };
        let [facts, inverses, loops] = &self.directions;
        let total = drop(sum(facts, relations.clone(), &layer.facts))
            + drop(sum(inverses, relations, &layer.inverses))
            + sum(loops, loop_relation, &layer.loops);
        layer.norm.forward(total).tanh()
    }
}

impl Layer {
    fn new((width, out): (usize, usize), weights: &mut Weights) -> Self {
        Self {
            loop_relation: matrix(1, width, weights),
            facts: matrix(width, out, weights),
            inverses: matrix(width, out, weights),
            loops: matrix(width, out, weights),
            relation: matrix(width, out, weights),
            norm: BatchNormConfig::new(out)
                .with_epsilon(1e-5)
                .with_momentum(0.1)
                .init(&weights.device),
        }
    }
}

/// The messages of facts, inverses and loops, with a third of their weights: the three directions
/// are averaged.
fn directions(build: &Build<CompGcnConfig>) -> [Arc<Messages>; 3] {
    const THIRD: f32 = 1.0 / 3.0;
    let (entities, relations) = (build.entities(), build.relations());
    let Edges { subjects, relations: relation_of, objects } = &build.domain.edges;
    let along = |edges: std::ops::Range<usize>| {
        let (sent, received) =
            (counts(&subjects[edges.clone()], entities), counts(&objects[edges.clone()], entities));
        let message = |edge: usize| {
            let (sender, receiver) = (subjects[edge], objects[edge]);
            let product = sent[sender as usize] * received[receiver as usize];
            let factor = THIRD / product.sqrt();
            Message { sender, relation: relation_of[edge], receiver, factor }
        };
        Arc::new(Messages::new(entities, relations, edges.map(message).collect()))
    };
    let own = |entity| Message { sender: entity, relation: 0, receiver: entity, factor: THIRD };
    let loops = Messages::new(entities, 1, (0..entities as u32).map(own).collect());
    let n = build.domain.edges.len();
    [along(0..n / 2), along(n / 2..n), Arc::new(loops)]
}

/// How often each of `n` ids stands in a list.
fn counts(ids: &[u32], n: usize) -> Vec<f32> {
    let mut counts = vec![0.0; n];
    for id in ids {
        counts[*id as usize] += 1.0;
    }
    counts
}

/// φ, with what comes before and after it.
///
/// A correlation is a product of Fourier transforms, and a transform is linear: rows are
/// transformed before messages are made, and the sums of all messages are transformed back.
struct Composer {
    compose: Compose,
    /// The transform as a matrix and the way back, for the correlation.
    transform: Option<(Tensor<2>, Tensor<2>)>,
}

impl Composer {
    /// For rows like these.
    fn new(composition: Composition, rows: &Tensor<2>) -> Self {
        let (compose, is_transformed) = match composition {
            Composition::DistMult => (Compose::Product, false),
            Composition::Subtraction => (Compose::Difference, false),
            Composition::Correlation => (Compose::Conjugate, true),
        };
        let width = rows.dims()[1];
        let matrix = |values: Vec<f32>, shape| {
            Tensor::from_data(TensorData::new(values, shape), &rows.device())
        };
        let transform = is_transformed.then(|| {
            let n = 2 * n_frequencies(width);
            let (forward, back) = fourier(width);
            (matrix(forward, [width, n]), matrix(back, [n, width]))
        });
        Self { compose, transform }
    }

    /// Rows as messages are made of them.
    fn enter(&self, rows: Tensor<2>) -> Tensor<2> {
        match &self.transform {
            Some((forward, _)) => rows.matmul(forward.clone()),
            None => rows,
        }
    }

    /// The matrix for sums of messages, from the one for sums as φ would give them.
    fn leave(&self, weight: Tensor<2>) -> Tensor<2> {
        match &self.transform {
            Some((_, back)) => back.clone().matmul(weight),
            None => weight,
        }
    }
}

/// Frequencies of real rows of a width; the others are the conjugates of these.
fn n_frequencies(width: usize) -> usize {
    width / 2 + 1
}

/// The discrete Fourier transform of real rows, `[width, 2·n_frequencies]` with the real parts
/// first, and its inverse.
fn fourier(width: usize) -> (Vec<f32>, Vec<f32>) {
    let n = n_frequencies(width);
    // Reduced first, so that the angle of a wide row is as exact as that of a narrow one.
    let angle =
        |i: usize, k: usize| (i * k % width) as f64 * (std::f64::consts::TAU / width as f64);
    let cell = |i: usize, column: usize| match column < n {
        true => angle(i, column).cos(),
        false => -angle(i, column - n).sin(),
    };
    // A frequency that is its own conjugate counts once.
    let times = |k: usize| if k == 0 || 2 * k == width { 1.0 } else { 2.0 };
    let forward = (0..width).flat_map(|i| (0..2 * n).map(move |column| cell(i, column) as f32));
    let back = (0..2 * n).flat_map(|column| {
        let share = times(column % n) / width as f64;
        (0..width).map(move |i| (share * cell(i, column)) as f32)
    });
    (forward.collect(), back.collect())
}
