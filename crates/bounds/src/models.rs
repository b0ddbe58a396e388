//! Bounds of single models: which dimensions do the results of the literature ask for?
//!
//! They stand beside the bounds for any linear output layer, which ask for less.
//! What is computed here is the rounding rank of each relation, bounded from above: the smallest
//! matrix rank of scores that are above ½ at triples and nowhere else.

use fullrank_graph::Graph;
use rayon::prelude::*;
use serde::Serialize;

use crate::matrix::AnswerMatrix;
use crate::ordering::{blocks_and_changes, positions};

/// Dimensions from the literature, for one model each.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ModelBounds {
    /// Enough for ComplEx on any graph of the size: E·R (Trouillon et al. 2017).
    pub complex_universality: usize,
    /// Enough for TuckER on any graph of the size, with R for relations: E (Balažević et al. 2019).
    pub tucker_universality: usize,
    /// Needed by models that score with a distance, for the signs of any graph of the size: E − 1.
    ///
    /// Nobody knows whether it is enough: it comes from the VC dimension of balls (Dudley 1979).
    pub distance_signs: usize,
    /// Enough for RESCAL and ComplEx to rank this graph: twice the sum of rounding ranks
    /// (Wang et al. 2017), each replaced by a number that is at least as large.
    pub bilinear_sufficient: usize,
    /// The rounding rank of each relation, in the order of [`Graph::relations`].
    pub relations: Vec<RoundingRank>,
}

/// A number that the rounding rank of a relation does not exceed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct RoundingRank {
    /// The smallest that was found.
    pub at_most: usize,
    /// Why it holds.
    pub witness: RoundingRankWitness,
}

/// Why a rounding rank is no larger.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RoundingRankWitness {
    /// So many sets of objects answer a subject, and 0 and 1 are scores too.
    DistinctSubjects,
    /// So many sets of subjects have an object.
    DistinctObjects,
    /// The sign changes of subjects' answers along the order of objects.
    SignChanges,
    /// The sign changes of objects' subjects along the same order.
    InverseSignChanges,
}

impl ModelBounds {
    /// Bounds that follow from counts, and rounding ranks with all entities in this order.
    ///
    /// # Panics
    /// If `order` is no order of all entities.
    pub fn of(graph: &Graph, order: &[u32]) -> Self {
        let (n_entities, n_relations) = (graph.entities().len(), graph.relations().len());
        assert_eq!(order.len(), n_entities, "an order has every entity");
        let lines = with_an_outsider(order);
        let queries = queries_by_relation(graph);
        let relations: Vec<RoundingRank> = (0..n_relations)
            .into_par_iter()
            .map(|relation| {
                let [forward, inverse] = [relation, relation + n_relations].map(|relation| {
                    let numbers = queries[relation].par_iter().map(|number| *number as usize);
                    AnswerMatrix::of_queries(graph, numbers)
                });
                rounding_rank(&forward, &inverse, &lines)
            })
            .collect();
        Self {
            complex_universality: n_entities * n_relations,
            tucker_universality: n_entities,
            distance_signs: n_entities.saturating_sub(1),
            bilinear_sufficient: 2 * relations.iter().map(|rank| rank.at_most).sum::<usize>(),
            relations,
        }
    }
}

/// Where entities stand if one more, which is in no triple, stands before or behind them all.
fn with_an_outsider(order: &[u32]) -> [Vec<u32>; 2] {
    let outsider = order.len() as u32;
    let before: Vec<u32> = [outsider].into_iter().chain(order.iter().copied()).collect();
    let behind: Vec<u32> = order.iter().copied().chain([outsider]).collect();
    [positions(&before), positions(&behind)]
}

/// The numbers of the queries over each relation, inverse ones included.
fn queries_by_relation(graph: &Graph) -> Vec<Vec<u32>> {
    let mut queries = vec![Vec::new(); 2 * graph.relations().len()];
    for number in 0..graph.answers().n_queries() {
        queries[graph.answers().relation(number).0 as usize].push(number as u32);
    }
    queries
}

/// The smallest of four; a matrix and its transpose have the same rank.
fn rounding_rank(
    forward: &AnswerMatrix,
    inverse: &AnswerMatrix,
    lines: &[Vec<u32>; 2],
) -> RoundingRank {
    let found = [
        (forward.n_rows(), RoundingRankWitness::DistinctSubjects),
        (inverse.n_rows(), RoundingRankWitness::DistinctObjects),
        (sign_changes(forward, lines), RoundingRankWitness::SignChanges),
        (sign_changes(inverse, lines), RoundingRankWitness::InverseSignChanges),
    ];
    let ranks = found.map(|(at_most, witness)| RoundingRank { at_most, witness });
    ranks.into_iter().min().expect("there are four")
}

/// The largest number κ of sign changes of any row, on the better of the two lines.
///
/// Polynomials of degree κ, as in `decomposition`, have matrix rank κ + 1, and keep it with ½ added,
/// which moves the limit of their signs to ½. But all of them are negative at the outsider. Measure
/// places from there and scale each polynomial to −½ at zero: with ½ added no constant is left, and
/// the rank is κ. Rows without answers become zero.
fn sign_changes(matrix: &AnswerMatrix, lines: &[Vec<u32>; 2]) -> usize {
    let most = |position: &Vec<u32>| {
        let changes = |row| blocks_and_changes(matrix.row(row), position).1;
        (0..matrix.n_rows()).into_par_iter().map(changes).max().unwrap_or(0)
    };
    most(&lines[0]).min(most(&lines[1]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Decomposition;

    /// Entities in the order of their ids.
    fn bounds(text: &str) -> ModelBounds {
        let graph = Graph::from_text(text);
        let order: Vec<u32> = (0..graph.entities().len() as u32).collect();
        ModelBounds::of(&graph, &order)
    }

    #[test]
    fn each_relation_has_the_smallest_bound_of_both_sides() {
        // Ids ascend as names do. `r` is a cycle: all rows differ, each one block of one answer
        // inside a line, so two changes. All subjects of `q` have the same answers. `p` joins each
        // of three subjects with the others.
        let bounds = bounds(
            "a r b; b r c; c r d; d r e; e r a; \
             a q a; a q c; a q e; b q a; b q c; b q e; \
             b p c; b p d; c p b; c p d; d p b; d p c | a s c | b s d",
        );
        let rank = |at_most, witness| RoundingRank { at_most, witness };
        assert_eq!(bounds.relations[0], rank(2, RoundingRankWitness::SignChanges));
        assert_eq!(bounds.relations[1], rank(1, RoundingRankWitness::DistinctSubjects));
        assert_eq!(bounds.relations[2], rank(3, RoundingRankWitness::DistinctSubjects));
        // All splits count.
        assert_eq!(bounds.relations[3], rank(2, RoundingRankWitness::DistinctSubjects));
        assert_eq!(bounds.bilinear_sufficient, 2 * (2 + 1 + 3 + 2));
        assert_eq!((bounds.complex_universality, bounds.tucker_universality), (20, 5));
        assert_eq!(bounds.distance_signs, 4);
    }

    #[test]
    fn the_inverse_may_have_fewer_sign_changes() {
        // `x` only makes ids ascend as names do. The answers of each subject of `r` are scattered,
        // the subjects of each object are one block.
        let bounds = bounds(
            "a x a; a x b; a x c; a x d; a x e; a x f; a x g; \
             a r a; a r c; a r e; a r g; b r a; b r c; b r e; b r f; c r a; c r b; c r e",
        );
        let RoundingRank { at_most, witness } = bounds.relations[1];
        assert_eq!((at_most, witness), (2, RoundingRankWitness::InverseSignChanges));
    }

    #[test]
    fn a_graph_without_triples_needs_nothing() {
        let bounds = bounds("");
        assert_eq!((bounds.bilinear_sufficient, bounds.distance_signs), (0, 0));
    }

    /// The polynomial of a row on a line, scaled to −½ at the outsider, with ½ added.
    fn score(roots: &[f64], place: f64, outsider: f64) -> f64 {
        let product = |x: f64| roots.iter().map(|root| x - root).product::<f64>();
        0.5 - 0.5 * product(place) / product(outsider)
    }

    proptest! {
        #[test]
        fn scores_without_a_constant_round_to_the_rows(
            rows in proptest::collection::vec(proptest::sample::subsequence(
                (0..9_u32).collect::<Vec<_>>(), 0..=9), 1..6)
        ) {
            let matrix = AnswerMatrix::from_rows(9, rows.clone());
            let with_outsider = AnswerMatrix::from_rows(10, rows);
            let order: Vec<u32> = (0..9).collect();
            let lines = with_an_outsider(&order);
            let orders = [[vec![9], order.clone()].concat(), [order, vec![9]].concat()];
            let mut smallest = usize::MAX;
            for (line, order) in lines.iter().zip(&orders) {
                let decomposition = Decomposition::of(&with_outsider, order);
                smallest = smallest.min(decomposition.degree());
                for row in 0..matrix.n_rows() {
                    let roots = decomposition.row(row).roots.iter();
                    let roots: Vec<f64> = roots.map(|root| f64::from(*root) + 0.5).collect();
                    for object in 0..9_u32 {
                        let place = f64::from(line[object as usize]);
                        let score = score(&roots, place, f64::from(line[9]));
                        let is_answer = matrix.row(row).contains(&object);
                        prop_assert_eq!(score > 0.5, is_answer);
                    }
                }
            }
            prop_assert_eq!(sign_changes(&matrix, &lines), smallest);
        }
    }
}
