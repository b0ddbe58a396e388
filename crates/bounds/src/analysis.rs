//! Analysis: what can be said of the dimension that a graph demands, with so much effort?
//!
//! Brings the bounds together: which dimensions are needed and which are enough, for rankings, sets
//! of answers and distributions. How each is found is the business of the other files.

use std::time::Instant;

use fullrank_graph::Graph;
use fullrank_graph::statistics::{both_degrees, forward_degrees};
use serde::Serialize;

use crate::Bounds;
use crate::matrix::{AnswerMatrix, Side};
use crate::matrix_rank::{MatrixRank, matrix_rank};
use crate::ordering::{Blocks, count_blocks, reverse_cuthill_mckee};
use crate::search::{SearchEffort, search};
use crate::sign_rank::{Certificate, SignRankEffort, sign_rank_lower_bound};

/// How much to compute. Steps are counted, not seconds, so the same call gives the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// For a better order of the objects.
    pub search: SearchEffort,
    /// Multiplications of residues for the matrix rank, at most, for each prime.
    pub multiplications: u64,
    /// For the lower end of the sign rank.
    pub sign_rank: SignRankEffort,
}

impl Effort {
    /// Within two minutes for graphs of some ten thousand entities, most of it for the order.
    pub const NORMAL: Self = Self {
        search: SearchEffort { rounds: 8, kicks: 1 },
        multiplications: 1_000_000_000_000,
        sign_rank: SignRankEffort { beam: 128, weightings: 200 },
    };
    /// Some ten times as long.
    pub const HIGH: Self = Self {
        search: SearchEffort { rounds: 48, kicks: 4 },
        multiplications: 10_000_000_000_000,
        sign_rank: SignRankEffort { beam: 512, weightings: 1000 },
    };
}

/// All bounds of one side of a graph.
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// What follows from counts.
    #[serde(flatten)]
    pub counts: Bounds,
    /// Blocks in the paper's order.
    pub rcm: Blocks,
    /// The best order found; nothing if none was searched for.
    pub best: Option<BestOrder>,
    /// rank(Y); nothing if it was not computed.
    pub matrix_rank: Option<TimedRank>,
    /// The sign rank of Y±; nothing if it was not bounded.
    pub sign_rank: Option<SignRank>,
    /// Y.
    #[serde(skip)]
    pub matrix: AnswerMatrix,
    /// The objects in the paper's order.
    #[serde(skip)]
    pub rcm_order: Vec<u32>,
}

/// The best order of the objects that was found.
#[derive(Clone, Debug, Serialize)]
pub struct BestOrder {
    /// How it was found: `search`, or `rcm` where no search came below it.
    pub ordering: &'static str,
    /// Its blocks, counted anew from the order alone.
    #[serde(flatten)]
    pub blocks: Blocks,
    /// What no order can beat.
    pub blocks_max_at_least: usize,
    /// The objects.
    #[serde(skip)]
    pub order: Vec<u32>,
}

/// The matrix rank, and how long it took.
#[derive(Clone, Debug, Serialize)]
pub struct TimedRank {
    /// The rank.
    #[serde(flatten)]
    pub found: MatrixRank,
    /// Time for both primes.
    pub seconds: f64,
}

/// Dimensions of a linear output layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Range {
    /// With fewer it is impossible; nothing if this was not computed.
    pub needed: Option<usize>,
    /// With as many it is possible.
    pub enough: usize,
}

/// Between which numbers the sign rank lies.
#[derive(Clone, Debug, Serialize)]
pub struct SignRank {
    /// It is at least this.
    pub lower: usize,
    /// The argument for it.
    pub lower_by: &'static str,
    /// It is at most this.
    pub upper: usize,
    /// What shows it: `order` (κ + 1), `matrix_rank` (rank(Y) + 1) or `entities` (E).
    pub upper_by: &'static str,
    /// The best certificate of each argument for the lower end, the best first.
    #[serde(skip)]
    pub certificates: Vec<Certificate>,
}

impl Analysis {
    /// Computes what the effort allows; without one, counts and the paper's order alone.
    ///
    /// `progress` is called [`Self::steps`] times.
    pub fn of(
        graph: &Graph,
        side: Side,
        effort: Option<Effort>,
        progress: &mut dyn FnMut(),
    ) -> Self {
        let matrix = AnswerMatrix::of(graph, side);
        let degrees = match side {
            Side::Forward => forward_degrees(graph),
            Side::Both => both_degrees(graph),
        };
        let rcm_order = reverse_cuthill_mckee(&matrix);
        let rcm = count_blocks(&matrix, &rcm_order);
        progress();
        let counts = Bounds::from_counts(graph.entities().len(), &degrees);
        let mut analysis =
            Self { counts, rcm, best: None, matrix_rank: None, sign_rank: None, matrix, rcm_order };
        if let Some(effort) = effort {
            analysis.best = Some(analysis.best_order(effort, progress));
            analysis.matrix_rank = Some(analysis.timed_rank(effort));
            progress();
            analysis.sign_rank = Some(analysis.bracket(effort));
            progress();
        }
        analysis
    }

    /// How often progress is told.
    pub fn steps(effort: Option<Effort>) -> usize {
        1 + effort.map_or(0, |effort| effort.search.rounds + 2)
    }

    /// The best order known.
    pub fn order(&self) -> &[u32] {
        self.best.as_ref().map_or(&self.rcm_order, |best| &best.order)
    }

    /// The blocks in the best order known.
    pub fn blocks(&self) -> Blocks {
        self.best.as_ref().map_or(self.rcm, |best| best.blocks)
    }

    /// Dimensions in which some linear output layer ranks the answers of every query before all
    /// other objects: one fewer than for signs, where the threshold of a query is a dimension too.
    pub fn rankings(&self) -> Range {
        let Range { needed, enough } = self.signs();
        let one_fewer = |dim: usize| dim.saturating_sub(1);
        Range { needed: needed.map(one_fewer), enough: one_fewer(enough) }
    }

    /// Dimensions in which the answers of every query score above zero and all others below.
    pub fn signs(&self) -> Range {
        match &self.sign_rank {
            Some(sign_rank) => Range { needed: Some(sign_rank.lower), enough: sign_rank.upper },
            None => Range { needed: None, enough: self.upper_sign_rank().0 },
        }
    }

    /// Dimensions in which every query has its distribution, equal over its answers.
    pub fn distributions(&self) -> Range {
        let any = self.counts.universality.distributions;
        let Some(TimedRank { found, .. }) = &self.matrix_rank else {
            return Range { needed: None, enough: any };
        };
        match found.distributions() {
            Some(exactly) => Range { needed: Some(exactly), enough: exactly },
            None => {
                Range { needed: Some(found.rank.saturating_sub(1)), enough: found.at_most.min(any) }
            }
        }
    }

    fn best_order(&self, effort: Effort, progress: &mut dyn FnMut()) -> BestOrder {
        let found = search(&self.matrix, effort.search, progress);
        let searched = count_blocks(&self.matrix, &found.order);
        let (ordering, blocks, order) = if searched.kappa <= self.rcm.kappa {
            ("search", searched, found.order)
        } else {
            ("rcm", self.rcm, self.rcm_order.clone())
        };
        BestOrder { ordering, blocks, blocks_max_at_least: found.lower_bound, order }
    }

    fn timed_rank(&self, effort: Effort) -> TimedRank {
        let start = Instant::now();
        let found = matrix_rank(&self.matrix, effort.multiplications);
        TimedRank { found, seconds: start.elapsed().as_secs_f64() }
    }

    fn bracket(&self, effort: Effort) -> SignRank {
        let certificates = sign_rank_lower_bound(&self.matrix, effort.sign_rank);
        let (upper, upper_by) = self.upper_sign_rank();
        let best = certificates.first();
        SignRank {
            lower: best.map_or(0, |best| best.lower_bound),
            lower_by: best.map_or("none", |best| best.argument.name()),
            upper,
            upper_by,
            certificates,
        }
    }

    fn upper_sign_rank(&self) -> (usize, &'static str) {
        let rank = self.matrix_rank.as_ref().map(|rank| (rank.found.at_most + 1, "matrix_rank"));
        let order = (self.blocks().kappa + 1, "order");
        let entities = (self.counts.universality.signs, "entities");
        rank.into_iter().fold(order.min(entities), Ord::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needed_is_never_more_than_enough() {
        for text in ["a r b", "a r b; b r a; c q a", "a r b; a r c; a r d; b r d; c q a; d q a"] {
            let graph = Graph::from_text(text);
            for (side, effort) in [
                (Side::Both, Some(Effort::NORMAL)),
                (Side::Forward, Some(Effort::NORMAL)),
                (Side::Both, None),
            ] {
                let mut steps = 0;
                let found = Analysis::of(&graph, side, effort, &mut || steps += 1);
                assert!(steps <= Analysis::steps(effort));
                for range in [found.rankings(), found.signs(), found.distributions()] {
                    assert_eq!(range.needed.is_some(), effort.is_some());
                    assert!(range.needed.is_none_or(|n| n <= range.enough), "{text}: {range:?}");
                }
            }
        }
    }

    #[test]
    fn bounds_of_a_small_graph_by_hand() {
        // Forward: {b, c, d}, {d}, {a}, {a}: rank 3 without the row of ones, since a + (b + c + d)
        // is that row: one dimension fewer is enough for distributions.
        let graph = Graph::from_text("a r b; a r c; a r d; b r d; c q a; d q a");
        let found = Analysis::of(&graph, Side::Forward, Some(Effort::NORMAL), &mut || {});
        let rank = &found.matrix_rank.as_ref().unwrap().found;
        assert_eq!((rank.rank, rank.has_all_ones), (3, Some(true)));
        assert_eq!(found.distributions(), Range { needed: Some(2), enough: 2 });
        // In the order a b c d every row is a block at an end: one change of sign.
        assert_eq!(found.blocks().kappa, 1);
        assert_eq!(found.signs(), Range { needed: Some(2), enough: 2 });
        assert_eq!(found.rankings(), Range { needed: Some(1), enough: 1 });
        assert_eq!(found.sign_rank.unwrap().upper_by, "order");
    }
}
