//! R-GCN: every relation has its own matrix for what neighbours tell (Schlichtkrull et al. 2018).

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{Tensor, activation};

use super::{Edges, Encode, Encoded, EncoderConfig, Formula, Pass, Queries, Table, rows, table};
use crate::ops::{Compose, Message, Messages, gather_rows, sum_messages};
use crate::random::{Noise, Weights};

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
    const FORMULA: Formula = Formula::linear(
        "Σ s′·r·o′, entity vectors made of neighbours",
        "E·d₀ + 2R·(d + bases) + (bases + 1)·d₀·d",
    );
    const READS_EDGES: bool = true;

    fn n_parameters(config: &EncoderConfig) -> usize {
        let n_bases = config.settings.bases;
        let layer = |(width, out): (usize, usize)| {
            (n_bases + 1) * width * out + config.relations() * n_bases
        };
        config.entities() * config.settings.initial_dim
            + config.relations() * config.dim()
            + config.layer_widths().map(layer).sum::<usize>()
    }

    fn n_batch_values(config: &EncoderConfig, _: usize) -> usize {
        // The sums of every basis and their gradients, a mask, and what is made of it; then a mask.
        // Measured on FB15k-237 with one and two layers: within 10 %.
        let layer = |(width, out): (usize, usize)| 2 * config.settings.bases * width + 3 * out;
        let row = config.layer_widths().map(layer).sum::<usize>() + config.dim();
        Messages::n_words(config.domain.edges.len()) + config.entities() * row
    }

    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self {
        let settings = config.settings;
        let entity = table(config.entities(), settings.initial_dim, weights);
        let relation = table(config.relations(), settings.dim, weights);
        let mut layer = |(width, out): (usize, usize)| {
            // Each basis is a matrix of its own, with its own fans.
            let bound = (6.0 / (width + out) as f64).sqrt();
            Layer {
                coefficients: table(config.relations(), settings.bases, weights),
                bases: Table::from_tensor(weights.uniform([settings.bases * width, out], bound)),
                own: table(width, out, weights),
            }
        };
        let layers = config.layer_widths().map(&mut layer).collect();
        let messages = messages(config);
        Self { entity, relation, layers, messages, dropout: settings.message_dropout }
    }

    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
        let subject = gather_rows(pass.objects.clone(), Arc::clone(&queries.subjects));
        let relation = rows(&self.relation, &queries.relations);
        Encoded {
            query: subject.clone() * relation.clone(),
            factors: vec![Self::magnitudes(subject), Self::magnitudes(relation)],
        }
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
fn messages(config: &EncoderConfig) -> Arc<Messages> {
    let Edges { subjects, relations, objects } = &config.domain.edges;
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
    Arc::new(Messages::new(config.entities(), config.relations(), messages))
}
