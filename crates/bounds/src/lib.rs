//! Dimension bounds: how large must the dimension of a linear output layer be for a graph?
//!
//! A linear output layer scores objects with h·Eᵀ, so its scores have matrix rank at most d.
//! This module says which d is enough for rankings, for signs (the right labels at a threshold)
//! and for distributions: for any graph of the size, and for the graph in hand.

mod analysis;
mod decomposition;
mod feasible;
mod matrix;
mod matrix_rank;
mod models;
mod ordering;
mod search;
mod sign_rank;

pub use analysis::{Analysis, BestOrder, Effort, Range, SignRank, TimedRank};
pub use decomposition::{
    Decomposition, Mismatch, Polynomial, ProductSize, Sign, Verified, VerifiedProduct,
};
pub use feasible::{Feasible, Outcomes};
pub use matrix::{AnswerMatrix, Side};
pub use matrix_rank::{MatrixRank, matrix_rank};
pub use models::{ModelBounds, RoundingRank, RoundingRankWitness};
pub use ordering::{Blocks, blocks_of_rows, count_blocks, reverse_cuthill_mckee};
pub use search::{Found, SearchEffort, search};
pub use sign_rank::{
    Argument, Certificate, Fault, Lines, SignRankEffort, check as check_certificate,
    sign_rank_lower_bound,
};

use fullrank_graph::statistics::Degrees;
use fullrank_graph::{Graph, Split};
use serde::Serialize;

/// Dimensions that are enough, whatever the graph or for the graph in hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Bounds {
    /// Enough and needed for every graph with as many entities.
    pub universality: Universality,
    /// The largest number of answers of any query.
    pub max_answers: usize,
    /// Enough for the signs of every graph whose queries have no more answers: 2c + 1.
    ///
    /// Objects on a moment curve are cut apart by a polynomial that changes its sign before and
    /// after each answer, so at most 2c times.
    pub worst_case: usize,
}

/// The dimension at which every outcome of a kind becomes possible, for any graph of the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Universality {
    /// Every order of the objects.
    pub rankings: usize,
    /// Every set of answers above a fixed threshold.
    pub signs: usize,
    /// Every distribution over the objects.
    pub distributions: usize,
}

/// Which share of training facts, asked in both directions, belongs to queries with so many of them,
/// n, that `dim` dimensions are not sure to tell them from all other objects: 2n + 1 > `dim`.
pub fn crowded_share(graph: &Graph, dim: usize) -> f64 {
    let answers = graph.answers();
    let degrees = (0..answers.n_queries()).map(|query| answers.in_split(query, Split::Train).len());
    let crowded = degrees.filter(|n| 2 * n + 1 > dim).sum::<usize>();
    crowded as f64 / (2 * graph.triples(Split::Train).len()).max(1) as f64
}

/// Training facts per entity.
pub fn facts_per_entity(graph: &Graph) -> f64 {
    graph.triples(Split::Train).len() as f64 / graph.entities().len().max(1) as f64
}

/// What an output layer should be like, as far as a graph's training facts tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Linear: there are dimensions enough for any ranking and any distribution.
    Wide,
    /// Linear: each entity has too few facts for a mixture to learn more from them.
    Sparse,
    /// A mixture: it pays on most graphs with so many facts per entity.
    Dense,
}

/// The number of training facts per entity from which on a mixture is advised.
///
/// Fitted on eight graphs: WN18RR with 2, CoDEx-S with 16 and FB15k-237 with 19, where mixtures lose or
/// gain little, and openbiolink with 23, UMLS with 39 and three more, where NLL falls for most
/// encoders. docs/dimension.md counts them.
pub const DENSE: f64 = 20.0;

/// What is advised for a graph at a dimension.
pub fn advise(graph: &Graph, dim: usize) -> Advice {
    if dim + 1 >= graph.entities().len() {
        Advice::Wide
    } else if facts_per_entity(graph) >= DENSE {
        Advice::Dense
    } else {
        Advice::Sparse
    }
}

impl Bounds {
    /// The bounds that follow from counts alone.
    pub fn from_counts(n_entities: usize, degrees: &Degrees) -> Self {
        Self {
            universality: Universality {
                rankings: n_entities.saturating_sub(1),
                signs: n_entities,
                distributions: n_entities.saturating_sub(1),
            },
            max_answers: degrees.max,
            worst_case: 2 * degrees.max + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every entity has so many relations to every other; one more fact is of validation.
    fn complete(entities: usize, relations: usize) -> Graph {
        let pairs = (0..entities).flat_map(|s| (0..entities).map(move |o| (s, o)));
        let facts = pairs.filter(|(s, o)| s != o).flat_map(|(s, o)| {
            (0..relations).map(move |relation| format!("e{s} r{relation} e{o}"))
        });
        let facts: Vec<String> = facts.collect();
        Graph::from_text(&format!("{} | e0 r0 e0 |", facts.join("; ")))
    }

    #[test]
    fn crowded_facts_are_those_of_training() {
        // One query of 5 answers; 5 of one answer each from behind. Others are not looked at.
        let graph = Graph::from_text("a r b; a r c; a r d; a r e; a r f | a r a | b r a; c r a");
        assert_eq!(crowded_share(&graph, 2), 1.0);
        assert_eq!(crowded_share(&graph, 3), 0.5);
        assert_eq!(crowded_share(&graph, 10), 0.5);
        assert_eq!(crowded_share(&graph, 11), 0.0);
        assert_eq!(facts_per_entity(&graph), 5.0 / 6.0);
    }

    #[test]
    fn a_mixture_is_advised_where_entities_have_many_facts_and_dimensions_are_few() {
        // 6·5 facts a relation, so 5 for each of six entities.
        assert_eq!(facts_per_entity(&complete(6, 4)), 20.0);
        assert_eq!(advise(&complete(6, 3), 4), Advice::Sparse);
        assert_eq!(advise(&complete(6, 4), 4), Advice::Dense);
        // Any ranking is possible with 5 dimensions.
        assert_eq!(advise(&complete(6, 4), 5), Advice::Wide);
    }
}
