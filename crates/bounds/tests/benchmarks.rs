//! Do the bounds of the published benchmark graphs come out as published?

#[path = "../../graph/tests/published/mod.rs"]
mod published;

use fullrank_bounds::{
    AnswerMatrix, Bounds, Decomposition, Side, count_blocks, matrix_rank, reverse_cuthill_mckee,
};
use fullrank_graph::statistics::both_degrees;
use fullrank_graph::{LoadOptions, load};
use published::folder;

#[test]
fn worst_cases_are_twice_the_largest_number_of_answers_and_one() {
    // Entities and dimensions: the paper's table of datasets.
    for (name, entities, worst_case) in [("FB15k-237", 14_541, 8_729), ("WN18RR", 40_943, 1_021)] {
        let Some(folder) = folder(name) else { return };
        let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
        let bounds = Bounds::from_counts(graph.entities().len(), &both_degrees(&graph));
        assert_eq!(bounds.worst_case, worst_case, "{name}");
        assert_eq!(bounds.universality.rankings, entities - 1, "{name}");
    }
}

#[test]
fn polynomials_tell_answers_from_all_other_objects() {
    // By product only where that takes no time; CoDEx-S took 27 seconds on two cores.
    for (name, by_product) in
        [("Nations", true), ("Kinships", true), ("UMLS", true), ("CoDEx-S", false)]
    {
        let Some(folder) = folder(name) else { return };
        let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
        let matrix = AnswerMatrix::of(&graph, Side::Both);
        let order = reverse_cuthill_mckee(&matrix);
        let kappa = count_blocks(&matrix, &order).kappa;
        let decomposition = Decomposition::of(&matrix, &order);
        let verified = decomposition.verify(&matrix).unwrap();
        assert_eq!((verified.degree, verified.n_objects), (kappa, graph.entities().len()));
        assert_eq!(verified.n_queries, graph.answers().n_queries());
        if by_product {
            assert!(decomposition.product_size().is_small());
            let product = decomposition.verify_by_product(&matrix).unwrap();
            assert_eq!((product.verified, product.matrix_rank), (verified, kappa + 1));
        }
    }
}

#[test]
fn matrix_ranks() {
    // Of the distinct rows, with inverse relations and without, as `numpy.linalg.matrix_rank` gives
    // them, and whether it stays the same with a row of ones; FB15k-237 is too large for that.
    let expected = [
        ("Nations", (14, true), (14, true)),
        ("Kinships", (104, true), (104, true)),
        ("UMLS", (133, true), (123, false)),
        ("CoDEx-S", (1671, false), (961, false)),
    ];
    for (name, both, forward) in expected {
        let Some(folder) = folder(name) else { return };
        let graph = load(&folder, &LoadOptions::default()).unwrap().graph;
        for (side, (rank, has_all_ones)) in [(Side::Both, both), (Side::Forward, forward)] {
            let found = matrix_rank(&AnswerMatrix::of(&graph, side), u64::MAX);
            assert!(found.exact, "{name}: {found:?}");
            assert_eq!((found.rank, found.has_all_ones), (rank, Some(has_all_ones)), "{name}");
        }
    }
}
