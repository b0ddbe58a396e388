//! Forecasts: how much memory will a training take, and which batch suits a graph?

use fullrank_graph::{Graph, Split};

use super::items::ItemList;
use crate::config::Config;
use crate::encoder::Bilinear;
use crate::error::Error;
use crate::network::Network;
use crate::ops::{Shape, Workspace, pairwise_bytes};
use crate::part::Domain;
use crate::probability::ProbabilityKind;

/// The smallest batch that is advised.
const LEAST: usize = 4;
/// The same where a part normalises over a batch, whose mean and variance are too uncertain in fewer
/// items.
const LEAST_NORMALISED: usize = 8;

/// The batch that suits a graph: that of the config, or smaller ones where an epoch would have too
/// few updates to learn from.
///
/// With batches of 1,000, an epoch of a small graph is a handful of updates, and validation seems to
/// stand still before anything is learned: DistMult reaches a test MRR of .06 on UMLS with the
/// defaults, and .89 with batches of 15.
///
/// # Errors
/// When there is nothing to learn from.
pub fn advised_batch(graph: &Graph, config: &Config) -> Result<usize, Error> {
    const UPDATES: usize = 100;
    let least = if config.normalises_batch() { LEAST_NORMALISED } else { LEAST };
    let n_items = ItemList::of(graph, config)?.len();
    Ok((n_items / UPDATES).max(least).min(config.training.batch))
}

/// Bytes that a training will take at its peak, the graph left out.
pub fn forecast(config: &Config, graph: &Graph) -> u64 {
    let n_facts = 2 * graph.triples(Split::Train).len();
    // No batch is larger than all items.
    let batch = config.training.batch.min(n_facts);
    let n_items = ItemList::of(graph, config).map_or(1, |items| items.len());
    let n_answers = (batch * n_facts).div_ceil(n_items);
    let penalties = size_of::<f32>() * penalty_values(config, n_answers);
    step_bytes(config, &config.domain(graph), batch) + penalties as u64
}

/// Numbers that penalties make of so many answers, and their gradients.
fn penalty_values(config: &Config, n_answers: usize) -> usize {
    let (training, dim) = (&config.training, config.model.dim);
    let is_matrix = config.encoder.facts().bilinear == Bilinear::MATRICES;
    let relations = match training.relation_weight > 0.0 {
        // What a matrix is scored with, its gradient, and that of the product it was made of.
        true if is_matrix => 3 * dim * dim,
        true => 8 * dim,
        false => 0,
    };
    let norms = [training.n3, training.l2, training.dura];
    let n_norms = norms.iter().filter(|weight| **weight > 0.0).count();
    n_answers * (relations + 12 * dim * n_norms)
}

/// Bytes of one training step: parameters, gradients, what the optimizer remembers, averaged weights,
/// and what the kernel needs.
pub(crate) fn step_bytes(config: &Config, domain: &Domain, batch: usize) -> u64 {
    let parameters = Network::n_parameters(config, domain);
    let components = config.output.n_components();
    let [context_dim, object_dim] = config.scored_dims();
    let (entities, dim) = (domain.entities, config.model.dim);
    let shape = Shape { queries: batch, components, context_dim, object_dim, objects: 0..entities };
    // Sigmoids make their gradients with the loss and keep no logits.
    let saved_bytes = match config.probability() {
        ProbabilityKind::Categorical => config.training.memory_budget << 20,
        ProbabilityKind::Bernoulli => 0,
    };
    let workspace = match config.training.negatives {
        Some(negatives) => {
            let drawn = negatives.min(entities);
            // Scores, what is added to them, weights, exponentials, and the gradients of these.
            let scores = 10 * size_of::<f32>() * batch * drawn;
            scores + pairwise_bytes(config.pair_score(), drawn, object_dim)
        }
        None => Workspace::forecast(&shape, config.pair_score(), saved_bytes),
    };
    let activations = config.output.n_kept_contexts() * batch * components * dim
        + Network::n_batch_values(config, domain, batch);
    let training = &config.training;
    let moments = training.optimizer.moment_names().len();
    let tables = 2 + moments + usize::from(training.average.is_some());
    let mut numbers = tables * parameters + activations;
    if config.updates_rows(entities) {
        // Gradients of rows are as small as their batch, and so are the rows it works on.
        let rows = 2 * batch + config.training.negatives.unwrap_or(0);
        numbers = numbers - entities * dim + 2 * rows.min(entities) * dim;
    }
    (size_of::<f32>() * numbers + workspace) as u64
}
