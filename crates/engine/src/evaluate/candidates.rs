//! Given candidates: where does an answer stand among given wrong ones?
//!
//! The way of ogbl-biokg: every held-out triple has its own list of negatives for each side.

use fullrank_graph::load::Candidates;
use fullrank_graph::{EntityId, Graph, Split};

use super::{
    Asked, HeldOut, Scorer, filtered_nll, for_each_row, held_out, log_left, rank_answers,
    rank_by_popularity, rank_candidates_by_popularity,
};
use crate::error::Error;
use crate::metrics::AnswerRank;
use crate::probability::ProbabilityKind;
use crate::progress::Progress;

/// The candidates that were given for the triples of some splits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GivenCandidates([Option<Candidates>; 3]);

impl GivenCandidates {
    /// Gives those of a split.
    pub fn insert(&mut self, split: Split, candidates: Candidates) {
        self.0[split as usize] = Some(candidates);
    }

    /// Those of a split; nothing if its answers compete with all entities.
    pub fn of(&self, split: Split) -> Option<&Candidates> {
        self.0[split as usize].as_ref()
    }

    /// Whether none were given for any split.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Ranks every held-out answer of a split against its candidates, or against all entities.
    ///
    /// # Errors
    /// When a score is not a number, or when `progress` says stop.
    pub fn rank(
        &self,
        graph: &Graph,
        split: Split,
        scorer: &impl Scorer,
        progress: &mut Progress,
    ) -> Result<Vec<AnswerRank>, Error> {
        match self.of(split) {
            None => rank_answers(graph, split, scorer, progress),
            Some(candidates) => rank_candidates(graph, split, candidates, scorer, progress),
        }
    }

    /// The same by popularity.
    ///
    /// # Errors
    /// When `progress` says stop.
    pub fn rank_by_popularity(
        &self,
        graph: &Graph,
        split: Split,
        progress: &mut Progress,
    ) -> Result<Vec<AnswerRank>, Error> {
        match self.of(split) {
            None => rank_by_popularity(graph, split, progress),
            Some(candidates) => rank_candidates_by_popularity(graph, split, candidates, progress),
        }
    }
}

/// Ranks every held-out answer of a split against its own candidates:
/// 0.5 · (negatives above + negatives above or beside) + 1.
///
/// Beside the NLL among all entities there is that among the answer and its candidates; nothing where
/// probabilities are no shares.
///
/// # Errors
/// When a score is not a number, or when `progress` says stop.
pub fn rank_candidates(
    graph: &Graph,
    split: Split,
    candidates: &Candidates,
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Vec<AnswerRank>, Error> {
    let probability = scorer.probability();
    let rank_query = |asked: &Asked, row: &[f32]| {
        let number = asked.number as usize;
        let train = graph.answers().in_split(number, Split::Train);
        let left = (probability == ProbabilityKind::Categorical).then(|| log_left(row, train));
        let rank = |answer: &HeldOut| {
            let negatives = negatives_of(graph, candidates, asked, answer);
            let (object, score) = (answer.object, row[answer.object.0 as usize]);
            AnswerRank {
                nll_candidates: left.map(|_| log_sum(negatives, object, row) - f64::from(score)),
                nll_filtered: left.map(|left| filtered_nll(left, train, object, score)),
                nll: left.map(|_| -f64::from(score)),
                ..rank_among(asked, object, negatives, row)
            }
        };
        asked.answers.iter().map(rank).collect::<Vec<_>>()
    };
    let asked = held_out(graph, split);
    let mut ranks = Vec::with_capacity(2 * graph.triples(split).len());
    for_each_row(graph, &asked, scorer, progress, rank_query, |found| ranks.extend(found))?;
    Ok(ranks)
}

/// The candidates that an answer was given.
pub(super) fn negatives_of<'a>(
    graph: &Graph,
    candidates: &'a Candidates,
    asked: &Asked,
    answer: &HeldOut,
) -> &'a [EntityId] {
    let is_inverse = graph.is_inverse(graph.answers().relation(asked.number as usize));
    let side = if is_inverse { &candidates.subjects } else { &candidates.objects };
    &side.entities[answer.triple as usize * side.width..][..side.width]
}

/// The place of an answer among its candidates by the scores of all objects, without an NLL.
pub(super) fn rank_among<T: PartialOrd>(
    asked: &Asked,
    object: EntityId,
    negatives: &[EntityId],
    scores: &[T],
) -> AnswerRank {
    let score = &scores[object.0 as usize];
    let count = |is: fn(&T, &T) -> bool| {
        negatives.iter().filter(|other| is(&scores[other.0 as usize], score)).count() as u32
    };
    AnswerRank {
        query: asked.number,
        object,
        above: count(|other, score| other > score),
        beside: count(|other, score| other == score),
        from_test: (0, 0),
        candidates: negatives.len() as u32 + 1,
        candidates_from_test: 0,
        nll_candidates: None,
        nll_filtered: None,
        nll: None,
    }
}

/// log Σ P over an answer and its candidates.
fn log_sum(negatives: &[EntityId], object: EntityId, row: &[f32]) -> f64 {
    let all = || negatives.iter().chain([&object]).map(|other| f64::from(row[other.0 as usize]));
    // Of all objects these may be so unlikely that f64 has no number for it.
    let top = all().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        return top;
    }
    top + all().map(|log_prob| (log_prob - top).exp()).sum::<f64>().ln()
}
