//! Do the published benchmark graphs come out as published?
//!
//! They are not part of the project: `published` says where they are looked for.

mod published;

use fullrank_graph::split::{CutOptions, Splitter};
use fullrank_graph::statistics::{self, Degrees};
use fullrank_graph::{Graph, LoadOptions, Split, load};
use published::folder;

struct Expected {
    entities: usize,
    relations: usize,
    splits: [usize; 3],
    /// Mean to two digits, median, max.
    forward: (f64, f64, usize),
    both: (f64, f64, usize),
    unseen_entities: usize,
}

fn check(graph: &Graph, expected: &Expected) {
    assert_eq!(graph.entities().len(), expected.entities);
    assert_eq!(graph.relations().len(), expected.relations);
    assert_eq!(Split::ALL.map(|split| graph.triples(split).len()), expected.splits);
    assert_eq!(graph.n_triples(), expected.splits.iter().sum::<usize>());
    check_degrees(&statistics::forward_degrees(graph), expected.forward);
    check_degrees(&statistics::both_degrees(graph), expected.both);
    assert_eq!(statistics::unseen(graph).entities, expected.unseen_entities);
}

fn check_degrees(degrees: &Degrees, (mean, median, max): (f64, f64, usize)) {
    assert!((degrees.mean - mean).abs() < 0.005, "{} is not {mean}", degrees.mean);
    assert_eq!((degrees.median, degrees.max), (median, max));
}

#[test]
fn fb15k_237() {
    let Some(folder) = folder("FB15k-237") else { return };
    let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
    // Counts and degrees: the paper's table of datasets.
    check(
        &graph,
        &Expected {
            entities: 14_541,
            relations: 237,
            splits: [272_115, 17_535, 20_466],
            forward: (3.03, 1.0, 954),
            both: (3.83, 1.0, 4_364),
            unseen_entities: 36,
        },
    );
    // It was made so that no test triple has a training triple between the same two entities.
    assert_eq!(statistics::leakage(&graph).test_triples, 0);
}

#[test]
fn wn18rr() {
    let Some(folder) = folder("WN18RR") else { return };
    let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
    check(
        &graph,
        &Expected {
            entities: 40_943,
            relations: 11,
            splits: [86_835, 3_034, 3_134],
            // The paper cuts these means off to 1.40 and 1.70: they are 93,003 / 66,166 and
            // 186,006 / 109,019.
            forward: (1.4056, 1.0, 473),
            both: (1.7062, 1.0, 510),
            unseen_entities: 384,
        },
    );
    // Its three symmetric relations are a known way to a third of the answers (Akrami et al. 2020).
    let leakage = statistics::leakage(&graph);
    assert_eq!((leakage.pairs.len(), leakage.test_triples), (3, 1_052));
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    let mix = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[test]
fn hetionet_approx_with_the_split_of_pykeen() {
    let Some(folder) = folder("Hetionet-approx") else { return };
    let cut = CutOptions { splitter: Splitter::Pykeen { seed: 42 }, ..CutOptions::default() };
    let graph = load(&folder, &LoadOptions { cut, ..LoadOptions::default() }).unwrap().graph;
    check(
        &graph,
        &Expected {
            entities: 44_753,
            relations: 24,
            splits: [1_634_540, 204_318, 204_317],
            forward: (26.60, 6.0, 14_594),
            both: (19.78, 5.0, 14_594),
            unseen_entities: 0,
        },
    );
    // The sum of hashes of all lines, as PyKEEN 1.11.1 splits them:
    // TriplesFactory.from_labeled_triples(…).split([.8, .1, .1], random_state=42).
    let expected = [(Split::Valid, 0x20b5_d128_6af4_f8bb), (Split::Test, 0xb991_6c52_8308_a5b2)];
    for (split, expected) in expected {
        let (entities, relations) = (graph.entities(), graph.relations());
        let hashes = graph.triples(split).iter().map(|triple| {
            let [subject, object] = [triple.subject, triple.object].map(|id| entities.name(id.0));
            hash(&format!("{subject}\t{}\t{object}", relations.name(triple.relation.0)))
        });
        assert_eq!(hashes.fold(0, u64::wrapping_add), expected, "{split}");
    }
}

#[test]
fn small_benchmarks() {
    // Counted from the files with standard tools: entities, relations, largest numbers of answers.
    let degrees = [
        ("CoDEx-S", 2_034, 42, 193, 749),
        ("UMLS", 135, 46, 45, 134),
        ("Kinships", 104, 25, 26, 31),
        ("Nations", 14, 55, 13, 13),
    ];
    for (name, entities, relations, forward, both) in degrees {
        let Some(folder) = folder(name) else { return };
        let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
        assert_eq!((graph.entities().len(), graph.relations().len()), (entities, relations));
        assert_eq!(statistics::forward_degrees(&graph).max, forward);
        assert_eq!(statistics::both_degrees(&graph).max, both);
    }
}

#[test]
fn a_large_graph_takes_at_most_48_bytes_per_triple() {
    let Some(folder) = folder("HsGene-full") else { return };
    let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
    assert_eq!(graph.entities().len(), 2_628_372);
    let per_triple = graph.heap_bytes() as f64 / graph.n_triples() as f64;
    assert!(per_triple <= 48.0, "{per_triple}");
}
