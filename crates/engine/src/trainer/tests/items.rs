//! What an epoch goes through, and what its batches are compared with.

use super::*;
use crate::output::{Draw, Negatives};

#[test]
fn every_query_is_visited_once_in_batches_of_one_size() {
    let graph = rings();
    let items = ItemList::of(&graph, &Config::default()).unwrap();
    let n_training_queries = (0..graph.answers().n_queries())
        .filter(|number| !graph.answers().in_split(*number, Split::Train).is_empty())
        .count();
    assert_eq!(items.len(), n_training_queries);
    let order = shuffled((0..items.len() as u32).collect(), 3, 1);
    let mut visited: Vec<u32> = Vec::new();
    for number in 0..n_batches(items.len(), 16) {
        let numbers = &order[places_of(items.len(), 16, number)];
        assert_eq!(items.batch(&graph, numbers).queries.subjects.len(), numbers.len());
        visited.extend(numbers);
    }
    visited.sort_unstable();
    assert!(visited.into_iter().eq(0..items.len() as u32));
}

#[test]
fn no_batch_is_much_smaller_than_the_others_or_of_a_single_item() {
    let sizes = |n_items: usize, size: usize| -> Vec<usize> {
        let batches = n_batches(n_items, size);
        (0..batches).map(|number| places_of(n_items, size, number).len()).collect()
    };
    assert_eq!(sizes(10, 4), [3, 3, 4]);
    assert_eq!(sizes(12, 4), [4, 4, 4]);
    assert_eq!(sizes(9, 4), [3, 3, 3]);
    assert_eq!(sizes(5, 2), [2, 3]);
    assert_eq!((sizes(3, 1), sizes(3, 1000), sizes(1, 2)), (vec![1; 3], vec![3], vec![1]));
}

#[test]
fn with_one_answer_an_item_is_a_triple_in_one_direction() {
    let graph = rings();
    let items = ItemList::of(&graph, &config("answers_per_item = 1")).unwrap();
    assert_eq!(items.len(), 2 * graph.triples(Split::Train).len());
    let all: Vec<u32> = (0..items.len() as u32).collect();
    let batch = items.batch(&graph, &all);
    assert_eq!(batch.answers.len(), items.len());
    assert!(batch.answers.weights.iter().all(|weight| *weight == 1.0));
}

#[test]
fn queries_with_many_answers_become_several_items() {
    let graph = graph(["a r b; a r c; a r d; a r e; a r f; b r a", "", ""]);
    let items = ItemList::of(&graph, &config("answers_per_item = 2")).unwrap();
    let sizes: Vec<usize> =
        (0..items.len() as u32).map(|item| items.batch(&graph, &[item]).answers.len()).collect();
    // Five answers in three items, (b, r, ?) in one, and the six inverse queries, of which
    // (a, r⁻¹, ?) and the others have one answer each.
    assert_eq!(sizes, [1, 2, 2, 1, 1, 1, 1, 1, 1, 1]);
    let all: Vec<u32> = (0..items.len() as u32).collect();
    let mut objects = items.batch(&graph, &all[..3]).answers.objects.clone();
    objects.sort_unstable();
    assert_eq!(objects, [1, 2, 3, 4, 5]);
}

#[test]
fn answers_weigh_one_each_or_share_one() {
    let graph = graph(["a r b; a r c; a r d", "", ""]);
    for (text, expected) in [("", 1.0), ("answer_weight = \"share\"", 1.0 / 3.0)] {
        let items = ItemList::of(&graph, &config(text)).unwrap();
        let batch = items.batch(&graph, &[0]);
        assert_eq!(batch.answers.weights, vec![expected; 3]);
    }
}

#[test]
fn other_training_answers_of_a_query_are_no_negatives() {
    let graph = graph(["a r b; a r c; d r d", "a r d", ""]);
    let config = config("answers_per_item = 1\nnegatives = 4");
    let items = ItemList::of(&graph, &config).unwrap();
    let batch = items.batch(&graph, &[0]);
    let negatives = draw_negatives(&graph, &batch.queries, &config, 0).unwrap();
    let draw = Draw { entities: 4, seed: config.training.seed, update: 0 };
    let expected = Negatives::draw(4, draw, [vec![1, 2]].into_iter());
    // d is an answer too, but of validation, which training must not know.
    assert_eq!(negatives, expected);
}

#[test]
fn a_graph_without_training_triples_is_an_error() {
    let graph = graph(["", "a r b", ""]);
    let error = ItemList::of(&graph, &Config::default()).unwrap_err();
    assert_eq!(error.to_string(), "the graph has no training triples");
}
