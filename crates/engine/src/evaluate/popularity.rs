//! The popularity baseline: how well do answers rank that know nothing of the subject?
//!
//! An object scores the number of training facts that it has with the relation of the query; inverse
//! relations likewise. As a probability it is that number plus one, over the sum for all objects.
//! A model that does not rank better has learned nothing of the queries' subjects.

use std::collections::BTreeMap;

use fullrank_graph::load::Candidates;
use fullrank_graph::{EntityId, Graph, RelationId, Split};

use super::candidates::{negatives_of, rank_among};
use super::{Asked, HeldOut, Rivals, held_out};
use crate::error::Error;
use crate::metrics::AnswerRank;
use crate::progress::{Event, Progress, Signal};

/// Ranks every held-out answer of a split by popularity, in both directions, in the order in which
/// [`rank_answers`](super::rank_answers) does.
///
/// # Errors
/// When `progress` says stop.
pub fn rank_by_popularity(
    graph: &Graph,
    split: Split,
    progress: &mut Progress,
) -> Result<Vec<AnswerRank>, Error> {
    let rank = |popularity: &Popularity, asked: &Asked| popularity.rank(graph, split, asked);
    by_popularity(graph, split, rank, progress)
}

/// Ranks every held-out answer of a split against its own candidates by popularity, in the order in
/// which [`rank_candidates`](super::rank_candidates) does.
///
/// # Errors
/// When `progress` says stop.
pub fn rank_candidates_by_popularity(
    graph: &Graph,
    split: Split,
    candidates: &Candidates,
    progress: &mut Progress,
) -> Result<Vec<AnswerRank>, Error> {
    let rank = |popularity: &Popularity, asked: &Asked| {
        let rank = |answer: &HeldOut| {
            let negatives = negatives_of(graph, candidates, asked, answer);
            popularity.rank_among(graph, asked, answer.object, negatives)
        };
        asked.answers.iter().map(rank).collect()
    };
    by_popularity(graph, split, rank, progress)
}

/// Ranks relation by relation.
fn by_popularity(
    graph: &Graph,
    split: Split,
    rank: impl Fn(&Popularity, &Asked) -> Vec<AnswerRank>,
    progress: &mut Progress,
) -> Result<Vec<AnswerRank>, Error> {
    let asked = held_out(graph, split);
    let mut by_relation = BTreeMap::<RelationId, Vec<usize>>::new();
    for (place, asked) in asked.iter().enumerate() {
        let relation = graph.answers().relation(asked.number as usize);
        by_relation.entry(relation).or_default().push(place);
    }
    let mut found = vec![Vec::new(); asked.len()];
    let mut done = 0;
    for (relation, places) in by_relation {
        let popularity = Popularity::of(graph, relation);
        for place in &places {
            found[*place] = rank(&popularity, &asked[*place]);
        }
        done += places.len();
        if progress(Event::Scoring { done, total: asked.len() }) == Signal::Stop {
            return Err(Error::Interrupted);
        }
    }
    Ok(found.into_iter().flatten().collect())
}

/// How often each object stands in training with one relation.
struct Popularity {
    /// By object.
    counts: Vec<u32>,
    ascending: Vec<u32>,
    /// Σ (count + 1).
    total: f64,
}

impl Popularity {
    fn of(graph: &Graph, relation: RelationId) -> Self {
        let is_inverse = graph.is_inverse(relation);
        let own = if is_inverse { graph.inverse(relation) } else { relation };
        let mut counts = vec![0_u32; graph.entities().len()];
        for fact in graph.triples(Split::Train).iter().filter(|fact| fact.relation == own) {
            let object = if is_inverse { fact.subject } else { fact.object };
            counts[object.0 as usize] += 1;
        }
        let mut ascending = counts.clone();
        ascending.sort_unstable();
        let total = counts.iter().map(|count| f64::from(*count) + 1.0).sum();
        Self { counts, ascending, total }
    }

    fn rank(&self, graph: &Graph, split: Split, asked: &Asked) -> Vec<AnswerRank> {
        let number = asked.number as usize;
        let known = graph.answers().up_to(number, split);
        let train = graph.answers().in_split(number, Split::Train);
        let all = graph.answers().up_to(number, Split::Test);
        let rank = |object: EntityId| {
            let count = self.counts[object.0 as usize];
            let from = self.ascending.partition_point(|other| *other < count);
            let to = self.ascending.partition_point(|other| *other <= count);
            let above = (self.ascending.len() - to) as u32;
            // It stands beside itself, which does not count.
            let rivals = Rivals { above, beside: (to - from) as u32 - 1 };
            let filtered = rivals.without(&self.counts, object, known);
            let unknown = filtered.without(&self.counts, object, &all[known.len()..]);
            let others = known.len() - usize::from(known.contains(&object));
            let [nll_filtered, nll] = self.nlls(train, object);
            AnswerRank {
                query: asked.number,
                object,
                above: filtered.above,
                beside: filtered.beside,
                from_test: filtered.minus(unknown),
                candidates: (self.counts.len() - others) as u32,
                candidates_from_test: (all.len() - known.len()) as u32,
                nll_candidates: None,
                nll_filtered,
                nll,
            }
        };
        asked.answers.iter().map(|answer| rank(answer.object)).collect()
    }

    fn rank_among(
        &self,
        graph: &Graph,
        asked: &Asked,
        object: EntityId,
        negatives: &[EntityId],
    ) -> AnswerRank {
        let train = graph.answers().in_split(asked.number as usize, Split::Train);
        let [nll_filtered, nll] = self.nlls(train, object);
        let all = negatives.iter().chain([&object]).map(|other| self.mass(*other)).sum::<f64>();
        AnswerRank {
            nll_candidates: Some((all / self.mass(object)).ln()),
            nll_filtered,
            nll,
            ..rank_among(asked, object, negatives, &self.counts)
        }
    }

    /// −log P of an answer with training answers removed, and among all objects.
    fn nlls(&self, train: &[EntityId], object: EntityId) -> [Option<f64>; 2] {
        // One that training has too competes with what is left and itself.
        let others = train.iter().filter(|other| **other != object);
        let left = self.total - others.map(|other| self.mass(*other)).sum::<f64>();
        [left, self.total].map(|all| Some((all / self.mass(object)).ln()))
    }

    /// What an object's probability is proportional to.
    fn mass(&self, object: EntityId) -> f64 {
        f64::from(self.counts[object.0 as usize]) + 1.0
    }
}

#[cfg(test)]
mod tests {
    use fullrank_graph::Query;
    use fullrank_graph::load::Rows;

    use super::*;
    use crate::evaluate::tests::{Fixed, graph, random_graph};
    use crate::evaluate::{rank_answers, rank_candidates};
    use crate::progress::silent;

    #[test]
    fn a_hand_worked_example() {
        // As objects of r, in training, a, b, c, d and e stand 0, 3, 2, 1 and 0 times, as its subjects
        // 2, 1, 1, 0 and 2 times; either way Σ (count + 1) = 11.
        let graph = graph(["a r b; c r b; e r b; a r c; e r c; b r d", "", "d r b; b r a"]);
        let ranks = rank_by_popularity(&graph, Split::Test, &mut silent()).unwrap();
        let check =
            |subject: &str, is_inverse: bool, object: &str, expected: (f64, u32, f64, f64)| {
                let id = |name: &str| EntityId(graph.entities().find(name).unwrap());
                let r = RelationId(0);
                let relation = if is_inverse { graph.inverse(r) } else { r };
                let query = graph.answers().find(Query { subject: id(subject), relation }).unwrap();
                let found = ranks.iter().find(|rank| rank.query as usize == query).unwrap();
                let (realistic, candidates, mass_left, mass_of_all) = expected;
                assert_eq!(found.object, id(object));
                assert_eq!((found.realistic(), found.candidates), (realistic, candidates));
                let [filtered, all] = [mass_left, mass_of_all].map(f64::ln);
                assert!((found.nll_filtered.unwrap() - filtered).abs() < 1e-12, "{found:?}");
                assert!((found.nll.unwrap() - all).abs() < 1e-12, "{found:?}");
            };
        // (d, r, ?): b is the most popular, with 4 of 11.
        check("d", false, "b", (1.0, 5, 11.0 / 4.0, 11.0 / 4.0));
        // (b, r, ?): a (0) is behind b (3) and c (2) and beside e (0); d is known, and its 2 of 11 are
        // left out.
        check("b", false, "a", (3.5, 4, 9.0, 11.0));
        // (b, r⁻¹, ?): d (0) is behind b (1); a, c and e are known, with 3, 2 and 3 of 11.
        check("b", true, "d", (2.0, 2, 3.0, 11.0));
        // (a, r⁻¹, ?): b (1) is behind a and e (2) and beside c (1).
        check("a", true, "b", (3.5, 5, 11.0 / 2.0, 11.0 / 2.0));
        assert_eq!(ranks.len(), 4);
    }

    #[test]
    fn it_is_the_model_whose_probabilities_are_counts() {
        let graph = random_graph(40, 4, 300, 3);
        let n = graph.entities().len();
        let score = |query: Query, object: u32| {
            let is_inverse = graph.is_inverse(query.relation);
            let stands = |fact: &&fullrank_graph::Triple| match is_inverse {
                false => fact.relation == query.relation && fact.object.0 == object,
                true => graph.inverse(fact.relation) == query.relation && fact.subject.0 == object,
            };
            let count = graph.triples(Split::Train).iter().filter(stands).count();
            let of_relation = |fact: &&fullrank_graph::Triple| match is_inverse {
                false => fact.relation == query.relation,
                true => graph.inverse(fact.relation) == query.relation,
            };
            let total = n + graph.triples(Split::Train).iter().filter(of_relation).count();
            ((count as f32 + 1.0) / total as f32).ln()
        };
        let model = Fixed(n, score);
        for split in [Split::Valid, Split::Test] {
            let found = rank_by_popularity(&graph, split, &mut silent()).unwrap();
            let expected = rank_answers(&graph, split, &model, &mut silent()).unwrap();
            assert_same(&found, &expected);
            // Three candidates each, the answer perhaps among them.
            let row =
                |triple: usize| (0..3).map(move |i| EntityId(((triple * 7 + i * 11) % n) as u32));
            let entities = (0..graph.triples(split).len()).flat_map(row).collect();
            let rows = Rows { width: 3, entities };
            let given = Candidates { subjects: rows.clone(), objects: rows };
            let found =
                rank_candidates_by_popularity(&graph, split, &given, &mut silent()).unwrap();
            let expected = rank_candidates(&graph, split, &given, &model, &mut silent()).unwrap();
            assert!(found.iter().all(|rank| rank.nll_candidates.is_some()));
            assert_same(&found, &expected);
        }
    }

    fn assert_same(found: &[AnswerRank], expected: &[AnswerRank]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            let places = |rank: &AnswerRank| AnswerRank {
                nll: None,
                nll_filtered: None,
                nll_candidates: None,
                ..*rank
            };
            assert_eq!(places(found), places(expected));
            let nlls = |rank: &AnswerRank| {
                [rank.nll, rank.nll_filtered, rank.nll_candidates].map(Option::unwrap_or_default)
            };
            for (nll, expected_nll) in nlls(found).into_iter().zip(nlls(expected)) {
                // Of the two, the model's are rounded to f32.
                assert!((nll - expected_nll).abs() < 1e-5, "{found:?} {expected:?}");
            }
        }
    }

    #[test]
    fn progress_can_stop_it() {
        let graph = graph(["a r b", "", "b r a"]);
        let stopped = rank_by_popularity(&graph, Split::Test, &mut |_| Signal::Stop);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
