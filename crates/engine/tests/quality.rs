//! A floor of quality: do the defaults still learn?

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

#[path = "../../graph/tests/published/mod.rs"]
mod published;

use std::sync::Arc;

use fullrank_engine::{Device, RawConfig, Trainer, silent};
use fullrank_graph::generate::{GenerateConfig, generate};
use fullrank_graph::{Graph, LoadOptions, Split, load};

/// Test MRR of a training with some settings, all else as advised for the graph.
fn test_mrr(graph: Graph, settings: &str) -> f64 {
    let graph = Arc::new(graph);
    let given = RawConfig::parse(settings).unwrap();
    let config = given.advised(&graph).unwrap().settings.check().unwrap();
    let mut trainer = Trainer::new(graph, config, Device::Cpu).unwrap();
    trainer.train(&mut silent()).unwrap();
    let metrics = trainer.into_model().evaluate(Split::Test, &mut silent()).unwrap();
    metrics.unwrap().realistic.mrr
}

#[test]
fn umls_is_learned_with_the_defaults() {
    let Some(folder) = published::folder("UMLS") else { return };
    let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
    // .89 on two machines.
    let mrr = test_mrr(graph, "");
    assert!(mrr >= 0.85, "{mrr}");
}

/// A graph that is always there: 300 entities with planted structure, and more answers to a query than a
/// softmax can tell apart.
#[test]
fn a_generated_graph_is_learned_and_a_mixture_learns_more() {
    let config = GenerateConfig { entities: 300, ..GenerateConfig::default() };
    let mrr = |output: &str| {
        let graph = generate(config.clone()).unwrap();
        test_mrr(graph, &format!("output = \"{output}\"\nepochs = 10"))
    };
    // .219 and .381 by `fullrank generate g --entities 300` and `train g --output … --epochs 10`.
    let (softmax, mixture) = (mrr("softmax"), mrr("mixture"));
    assert!(softmax >= 0.20 && mixture >= 0.35, "{softmax} {mixture}");
}
