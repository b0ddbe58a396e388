//! Given candidates: where does an answer stand among given wrong ones?
//!
//! The way of ogbl-biokg: every held-out triple has its own list of negatives for each side.

use fullrank_graph::load::Candidates;
use fullrank_graph::{EntityId, Graph, Split};

use super::{Asked, HeldOut, Scorer, for_each_row, held_out};
use crate::error::Error;
use crate::metrics::AnswerRank;
use crate::probability::ProbabilityKind;
use crate::progress::Progress;

/// Ranks every held-out answer of a split against its own candidates:
/// 0.5 · (negatives above + negatives above or beside) + 1.
///
/// The filtered NLL is that among the answer and its candidates; nothing where probabilities are no
/// shares.
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
    let n_relations = graph.relations().len() as u32;
    let probability = scorer.probability();
    let rank_query = |asked: &Asked, row: &[f32]| {
        let relation = graph.answers().relation(asked.number as usize);
        let side =
            if relation.0 < n_relations { &candidates.objects } else { &candidates.subjects };
        let rank = |answer: &HeldOut| {
            let negatives = &side.entities[answer.triple as usize * side.width..][..side.width];
            let among = rank_among(asked, answer.object, negatives, row);
            match probability {
                ProbabilityKind::Categorical => among,
                ProbabilityKind::Bernoulli => AnswerRank { nll_filtered: None, nll: None, ..among },
            }
        };
        asked.answers.iter().map(rank).collect::<Vec<_>>()
    };
    let asked = held_out(graph, split);
    let mut ranks = Vec::with_capacity(2 * graph.triples(split).len());
    for_each_row(graph, &asked, scorer, progress, rank_query, |found| ranks.extend(found))?;
    Ok(ranks)
}

fn rank_among(asked: &Asked, object: EntityId, negatives: &[EntityId], row: &[f32]) -> AnswerRank {
    let score = row[object.0 as usize];
    let count = |is: fn(f32, f32) -> bool| {
        negatives.iter().filter(|other| is(row[other.0 as usize], score)).count() as u32
    };
    // The distribution over the answer and its negatives alone.
    let all = negatives.iter().chain([&object]).map(|other| f64::from(row[other.0 as usize]).exp());
    AnswerRank {
        query: asked.number,
        object,
        above: count(|other, score| other > score),
        beside: count(|other, score| other == score),
        from_test: (0, 0),
        candidates: negatives.len() as u32 + 1,
        nll_filtered: Some(all.sum::<f64>().ln() - f64::from(score)),
        nll: Some(-f64::from(score)),
    }
}
