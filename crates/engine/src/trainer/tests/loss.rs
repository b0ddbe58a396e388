//! What a batch loses.

use std::sync::Arc;

use super::*;
use crate::batch::Batch;
use crate::network::Loss;
use crate::ops::Workspace;
use crate::parameters::tensors;
use crate::random::Noise;

fn loss(network: &Network, batch: &Batch, config: &Config) -> Loss {
    let workspace = Arc::new(Workspace::new(0));
    network.loss(batch, config, &Noise::new(0, 0), &workspace)
}

#[test]
fn a_batch_loss_is_divided_by_its_number_of_queries() {
    let graph = rings();
    let config = config("dim = 8\ndropout = 0");
    let items = ItemList::of(&graph, &config).unwrap();
    let network = network(&config, &graph);
    for n in [3, 7] {
        let batch = items.batch(&graph, &(0..n).collect::<Vec<u32>>());
        let Loss { total, cross_entropy } = loss(&network, &batch, &config);
        let (total, sum) = (total.into_scalar::<f32>(), cross_entropy.into_scalar::<f32>());
        assert!((total - sum / n as f32).abs() < 1e-6);
    }
}

#[test]
fn penalties_equal_their_formulas() {
    let graph = graph(["a r b; a r c", "", ""]);
    let config = config("dim = 4\ndropout = 0\nn3 = 0.5\nl2 = 0.25");
    let network = network(&config, &graph);
    let batch = ItemList::of(&graph, &config).unwrap().batch(&graph, &[0]);
    let Loss { total, cross_entropy } = loss(&network, &batch, &config);
    let found = total.into_scalar::<f32>() - cross_entropy.into_scalar::<f32>();
    let all = tensors(&network);
    let table = |name: &str| {
        let tensor = all.iter().find(|tensor| tensor.name == name).unwrap();
        tensor.values.to_data().try_to_vec::<f32>().unwrap()
    };
    let (entity, relation) = (table("encoder.entity"), table("encoder.relation"));
    let norm =
        |row: &[f32]| -> f32 { row.iter().map(|x| 0.5 * x.abs().powi(3) + 0.25 * x * x).sum() };
    // Both triples have subject a and relation r; b and c are their objects.
    let expected = 2.0 * norm(&entity[..4]) + 2.0 * norm(&relation[..4]) + norm(&entity[4..12]);
    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
}

/// A loss of one batch, with the negatives that its config asks for.
fn loss_of(text: &str, numbers: &[u32]) -> f32 {
    let (graph, config) = (rings(), config(&format!("dim = 8\ndropout = 0\n{text}")));
    let network = network(&config, &graph);
    let mut batch = ItemList::of(&graph, &config).unwrap().batch(&graph, numbers);
    batch.negatives = draw_negatives(&graph, &batch.queries, &config, 0);
    loss(&network, &batch, &config).total.into_scalar()
}

#[test]
fn a_sampled_softmax_with_all_entities_is_the_full_one() {
    let numbers: Vec<u32> = (0..30).collect();
    for score in ["dot", "cosine", "l1", "l2", "modulus", "mlp"] {
        let text = format!("score = \"{score}\"\nbias = true");
        let full = loss_of(&text, &numbers);
        // More than the twenty there are.
        let sampled = loss_of(&format!("{text}\nnegatives = 25"), &numbers);
        assert!((full - sampled).abs() < 2e-6 * full, "{score}: {full} {sampled}");
        let few = loss_of(&format!("{text}\nnegatives = 10"), &numbers);
        // An estimate: at the start all scores are much the same.
        assert!(few != full && (few - full).abs() < 0.1 * full, "{score}: {full} {few}");
    }
}
