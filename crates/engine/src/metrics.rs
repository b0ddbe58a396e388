//! Metrics: where does a held-out answer stand, and what do many of them come to?

use fullrank_graph::EntityId;
use serde::{Deserialize, Serialize};

/// Where one held-out answer stands.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnswerRank {
    /// The query, as numbered in [`fullrank_graph::Answers`].
    pub query: u32,
    /// The answer.
    pub object: EntityId,
    /// Objects, other known answers left out, that score higher.
    pub above: u32,
    /// Objects, other known answers left out, that score the same.
    pub beside: u32,
    /// Of those above, and beside it, the answers that are known from test alone.
    pub from_test: (u32, u32),
    /// Objects that it competes with, itself included.
    pub candidates: u32,
    /// Of those, the answers that are known from test alone.
    pub candidates_from_test: u32,
    /// −log P among itself and the candidates that were given; nothing if none were, or where
    /// probabilities are no shares.
    pub nll_candidates: Option<f64>,
    /// −log P, with the query's training answers removed from the distribution over all objects;
    /// nothing where probabilities are none.
    pub nll_filtered: Option<f64>,
    /// −log P; nothing where probabilities are no distribution: a model that calls every triple certain
    /// would lose nothing.
    pub nll: Option<f64>,
}

impl AnswerRank {
    /// Ties count half: the mean of the best and the worst place.
    pub fn realistic(&self) -> f64 {
        f64::from(self.above) + 0.5 * f64::from(self.beside) + 1.0
    }

    /// The same if answers known from test are left out too.
    fn realistic_without_test(&self) -> f64 {
        let (above, beside) = self.from_test;
        self.realistic() - f64::from(above) - 0.5 * f64::from(beside)
    }

    /// As if it came first among those that score the same.
    pub fn optimistic(&self) -> f64 {
        f64::from(self.above) + 1.0
    }

    /// As if it came last among them.
    pub fn pessimistic(&self) -> f64 {
        f64::from(self.above) + f64::from(self.beside) + 1.0
    }
}

/// Averages over answer ranks of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RankMetrics {
    /// Mean reciprocal rank.
    pub mrr: f64,
    /// Mean rank.
    pub mr: f64,
    /// Share of ranks that are 1.
    pub hits_at_1: f64,
    /// Share of ranks up to 3.
    pub hits_at_3: f64,
    /// Share of ranks up to 10.
    pub hits_at_10: f64,
    /// Adjusted mean rank index: 1 is perfect, 0 is chance (Berrendorf et al. 2020).
    pub amri: f64,
}

/// What is reported of a set of held-out answers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Held-out answers, both directions.
    pub n_ranks: usize,
    /// With realistic ranks: ties count half.
    #[serde(flatten)]
    pub realistic: RankMetrics,
    /// Mean reciprocal rank with test answers left out as well, which for validation is what LibKGE
    /// reports; for test the same as `mrr`. Nothing in runs of versions that did not compute it.
    #[serde(default)]
    pub mrr_filtered_with_test: Option<f64>,
    /// Mean −log P among an answer and the candidates that were given for it; nothing if none were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nll_candidates: Option<f64>,
    /// Mean −log P among all entities, training answers removed; nothing where probabilities are no
    /// shares.
    pub nll_filtered: Option<f64>,
    /// Mean −log P; nothing where probabilities are no distribution.
    pub nll: Option<f64>,
    /// With optimistic ranks.
    pub optimistic: RankMetrics,
    /// With pessimistic ranks.
    pub pessimistic: RankMetrics,
}

/// Averages over some answers; nothing for none.
pub fn metrics<'a>(ranks: impl IntoIterator<Item = &'a AnswerRank>) -> Option<Metrics> {
    let ranks: Vec<&AnswerRank> = ranks.into_iter().collect();
    if ranks.is_empty() {
        return None;
    }
    let mean = |value: &dyn Fn(&AnswerRank) -> f64| {
        ranks.iter().map(|rank| value(rank)).sum::<f64>() / ranks.len() as f64
    };
    let mean_nll = |value: fn(&AnswerRank) -> Option<f64>| {
        let sum = ranks.iter().map(|rank| value(rank)).sum::<Option<f64>>();
        sum.map(|sum| sum / ranks.len() as f64)
    };
    // A rank drawn at random is half of its candidates on average.
    let chance_mr = mean(&|rank| (f64::from(rank.candidates) + 1.0) / 2.0);
    let of_kind = |place: fn(&AnswerRank) -> f64| {
        let hits = |most: f64| mean(&|rank| f64::from(u8::from(place(rank) <= most)));
        let mr = mean(&place);
        RankMetrics {
            mrr: mean(&|rank| 1.0 / place(rank)),
            mr,
            hits_at_1: hits(1.0),
            hits_at_3: hits(3.0),
            hits_at_10: hits(10.0),
            // With a single candidate every rank is 1, which is as good as it gets.
            amri: if chance_mr > 1.0 { 1.0 - (mr - 1.0) / (chance_mr - 1.0) } else { 1.0 },
        }
    };
    Some(Metrics {
        n_ranks: ranks.len(),
        realistic: of_kind(AnswerRank::realistic),
        mrr_filtered_with_test: Some(mean(&|rank| 1.0 / rank.realistic_without_test())),
        nll_candidates: mean_nll(|rank| rank.nll_candidates),
        nll_filtered: mean_nll(|rank| rank.nll_filtered),
        nll: mean_nll(|rank| rank.nll),
        optimistic: of_kind(AnswerRank::optimistic),
        pessimistic: of_kind(AnswerRank::pessimistic),
    })
}
