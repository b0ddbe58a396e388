//! Baselines: what do the metrics of a model have to be above?
//!
//! Those of ranking by popularity, and those that are expected of a random order: over all orders of
//! each answer's candidates, in closed form, so that nothing is drawn.

use fullrank_graph::{EntityId, Graph, Split};
use serde::Serialize;

use super::{Breakdown, parts};
use crate::metrics::{AnswerRank, Metrics, RankMetrics, metrics};

/// Metrics of the same answers without a model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Baselines {
    /// Of ranking by popularity.
    pub popularity: Metrics,
    /// What is expected of a random order.
    pub random: Metrics,
}

impl Baselines {
    /// Those of answers as popularity ranks them; nothing for no answers.
    pub fn of(graph: &Graph, ranks_by_popularity: &[AnswerRank]) -> Option<Self> {
        Self::of_part(graph, &ranks_by_popularity.iter().collect::<Vec<_>>())
    }

    /// Those of the parts of a breakdown, as [`break_down`](super::break_down) has them.
    pub fn break_down(
        graph: &Graph,
        ranks_by_popularity: &[AnswerRank],
        by: Breakdown,
    ) -> Vec<Self> {
        let parts = parts(graph, ranks_by_popularity, by).into_iter();
        parts.filter_map(|(_, ranks)| Self::of_part(graph, &ranks)).collect()
    }

    fn of_part(graph: &Graph, ranks: &[&AnswerRank]) -> Option<Self> {
        Some(Self {
            popularity: metrics(ranks.iter().copied())?,
            random: metrics_at_random(graph, ranks)?,
        })
    }
}

/// What the metrics of these answers are expected to be if all orders of their candidates are equally
/// likely, and all objects equally probable; nothing for no answers.
///
/// Of n candidates, the mean rank is (n + 1) / 2, the mean of one over it (1 + 1/2 + … + 1/n) / n, and
/// a share min(k, n) / n of the ranks is up to k. An NLL is there where every answer has one.
fn metrics_at_random(graph: &Graph, ranks: &[&AnswerRank]) -> Option<Metrics> {
    if ranks.is_empty() {
        return None;
    }
    let mean = |value: &dyn Fn(&AnswerRank) -> f64| {
        ranks.iter().map(|rank| value(rank)).sum::<f64>() / ranks.len() as f64
    };
    let n_entities = graph.entities().len();
    let left = |rank: &AnswerRank| {
        let train = graph.answers().in_split(rank.query as usize, Split::Train);
        n_entities - others(train, rank.object)
    };
    let has = |nll: fn(&AnswerRank) -> Option<f64>| ranks.iter().all(|rank| nll(rank).is_some());
    let hits =
        |most: u32| mean(&|rank| f64::from(most.min(rank.candidates)) / f64::from(rank.candidates));
    let mr = mean(&|rank| (f64::from(rank.candidates) + 1.0) / 2.0);
    let all = RankMetrics {
        mrr: mean(&|rank| mean_reciprocal(rank.candidates)),
        mr,
        hits_at_1: hits(1),
        hits_at_3: hits(3),
        hits_at_10: hits(10),
        // As for models: with a single candidate a rank is as good as it gets.
        amri: if mr > 1.0 { 0.0 } else { 1.0 },
    };
    let without_test =
        |rank: &AnswerRank| mean_reciprocal(rank.candidates - rank.candidates_from_test);
    Some(Metrics {
        n_ranks: ranks.len(),
        realistic: all,
        mrr_filtered_with_test: Some(mean(&without_test)),
        nll_candidates: has(|rank| rank.nll_candidates)
            .then(|| mean(&|rank| f64::from(rank.candidates).ln())),
        nll_filtered: has(|rank| rank.nll_filtered).then(|| mean(&|rank| (left(rank) as f64).ln())),
        nll: has(|rank| rank.nll).then(|| (n_entities as f64).ln()),
        // In an order there are no ties.
        optimistic: all,
        pessimistic: all,
    })
}

/// How many of these are not the object itself.
fn others(known: &[EntityId], object: EntityId) -> usize {
    known.len() - usize::from(known.contains(&object))
}

/// (1 + 1/2 + … + 1/n) / n: the mean of one over the ranks 1 to n.
fn mean_reciprocal(n: u32) -> f64 {
    /// From here on the series below has all digits of an f64: its next term is 1 / (252 n⁶).
    const SERIES: u32 = 256;
    /// Euler's constant.
    const GAMMA: f64 = 0.577_215_664_901_532_9;
    let x = f64::from(n);
    let sum = if n < SERIES {
        (1..=n).rev().map(|rank| 1.0 / f64::from(rank)).sum()
    } else {
        x.ln() + GAMMA + 0.5 / x - 1.0 / (12.0 * x * x) + 1.0 / (120.0 * x.powi(4))
    };
    sum / x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::break_down;
    use crate::evaluate::rank_by_popularity;
    use crate::evaluate::tests::{graph, random_graph};
    use crate::progress::silent;

    #[test]
    fn a_hand_worked_example() {
        // Five entities. (a, r, ?) has b in training, c in valid and d in test; (c, r⁻¹, ?) and
        // (d, r⁻¹, ?) have a alone.
        let graph = graph(["a r b; e s e", "a r c", "a r d"]);
        let check = |split, expected: Metrics| {
            let ranks = rank_by_popularity(&graph, split, &mut silent()).unwrap();
            let Baselines { popularity, random: found } = Baselines::of(&graph, &ranks).unwrap();
            assert_eq!(Some(popularity), metrics(&ranks));
            let near = |found: f64, expected: f64| {
                assert!((found - expected).abs() < 1e-12, "{found} {expected}");
            };
            assert_eq!((found.n_ranks, found.nll_candidates), (expected.n_ranks, None));
            for (found, expected) in [found.realistic, found.optimistic, found.pessimistic]
                .iter()
                .zip([expected.realistic; 3])
            {
                near(found.mrr, expected.mrr);
                near(found.mr, expected.mr);
                near(found.hits_at_1, expected.hits_at_1);
                near(found.hits_at_3, expected.hits_at_3);
                near(found.hits_at_10, expected.hits_at_10);
                near(found.amri, 0.0);
            }
            near(found.mrr_filtered_with_test.unwrap(), expected.mrr_filtered_with_test.unwrap());
            near(found.nll_filtered.unwrap(), expected.nll_filtered.unwrap());
            near(found.nll.unwrap(), 5_f64.ln());
        };
        // Of n candidates one over the rank is 25/48 on average for 4, 11/18 for 3, 137/300 for 5.
        let expected = |mrr: f64, mr, hits_at_1, hits_at_3, with_test| {
            let realistic =
                RankMetrics { mrr, mr, hits_at_1, hits_at_3, hits_at_10: 1.0, amri: 0.0 };
            Metrics {
                n_ranks: 2,
                realistic,
                mrr_filtered_with_test: Some(with_test),
                nll_candidates: None,
                // b is left out of the five for (a, r, ?).
                nll_filtered: Some((4_f64.ln() + 5_f64.ln()) / 2.0),
                nll: None,
                optimistic: realistic,
                pessimistic: realistic,
            }
        };
        let [of_3, of_4, of_5] = [11.0 / 18.0, 25.0 / 48.0, 137.0 / 300.0];
        // For c, four entities that are not b; three if d is left out, too.
        check(
            Split::Valid,
            expected(
                (of_4 + of_5) / 2.0,
                (2.5 + 3.0) / 2.0,
                (0.25 + 0.2) / 2.0,
                (0.75 + 0.6) / 2.0,
                (of_3 + of_5) / 2.0,
            ),
        );
        // For d, three that are neither b nor c.
        let mrr = (of_3 + of_5) / 2.0;
        check(Split::Test, expected(mrr, 2.5, (1.0 / 3.0 + 0.2) / 2.0, (1.0 + 0.6) / 2.0, mrr));
    }

    #[test]
    fn the_series_continues_the_sum() {
        for n in [255, 256, 1000, 100_000] {
            let plain: f64 = (1..=n).rev().map(|rank| 1.0 / f64::from(rank)).sum();
            let found = mean_reciprocal(n) * f64::from(n);
            // A plain sum of so many terms is off by a few last digits.
            assert!((found / plain - 1.0).abs() < 1e-14, "{n}: {found} {plain}");
        }
        assert_eq!(mean_reciprocal(1), 1.0);
    }

    #[test]
    fn parts_stand_beside_those_of_a_model() {
        let graph = random_graph(40, 4, 300, 3);
        let ranks = rank_by_popularity(&graph, Split::Test, &mut silent()).unwrap();
        for by in [Breakdown::Direction, Breakdown::Relation, Breakdown::Class, Breakdown::Degree] {
            let parts = break_down(&graph, &ranks, by);
            let beside = Baselines::break_down(&graph, &ranks, by);
            assert_eq!(parts.len(), beside.len());
            for ((_, found), beside) in parts.iter().zip(beside) {
                assert_eq!((found, found.n_ranks), (&beside.popularity, beside.random.n_ranks));
            }
        }
    }

    #[test]
    fn nothing_is_expected_of_no_answers() {
        let graph = graph(["a r b", "", ""]);
        assert_eq!(Baselines::of(&graph, &[]), None);
    }
}
