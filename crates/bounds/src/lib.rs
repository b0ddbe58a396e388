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

use fullrank_graph::Graph;
use fullrank_graph::statistics::Degrees;
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

/// Which share of facts, asked in both directions, belongs to queries with so many answers n that
/// `dim` dimensions are not sure to tell them from all other objects: 2n + 1 > `dim`.
pub fn crowded_share(graph: &Graph, dim: usize) -> f64 {
    let crowded = graph.answers().degrees().filter(|n| 2 * n + 1 > dim).sum::<usize>();
    crowded as f64 / graph.answers().n_answers().max(1) as f64
}

/// What an output layer should be like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// Linear: there are dimensions enough for any ranking and any distribution.
    Wide,
    /// Linear: it expresses nearly all of the graph, and is quicker.
    Sparse,
    /// A mixture: a linear one is too narrow for much of the graph.
    Crowded,
}

/// The share of crowded facts above which a mixture is advised.
///
/// At 200 dimensions it is 4 % on WN18RR, where the paper's mixtures lose much, 18 % on FB15k-237,
/// where they gain little, and 46 % on a Hetionet, where they gain most.
pub const CROWDED: f64 = 1.0 / 3.0;

/// What is advised for a graph at a dimension.
pub fn advise(graph: &Graph, dim: usize) -> Advice {
    if dim + 1 >= graph.entities().len() {
        Advice::Wide
    } else if crowded_share(graph, dim) > CROWDED {
        Advice::Crowded
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

    #[test]
    fn a_mixture_is_advised_where_many_facts_are_crowded_and_dimensions_few() {
        // One query of 5 answers; 5 of one answer each from behind.
        let graph = Graph::from_text("a r b; a r c; a r d; a r e; a r f");
        assert_eq!(crowded_share(&graph, 2), 1.0);
        assert_eq!(crowded_share(&graph, 3), 0.5);
        assert_eq!(crowded_share(&graph, 11), 0.0);
        assert_eq!(advise(&graph, 3), Advice::Crowded);
        assert_eq!(advise(&graph, 4), Advice::Crowded);
        // 6 entities: any ranking is possible with 5 dimensions.
        assert_eq!(advise(&graph, 5), Advice::Wide);
    }
}
