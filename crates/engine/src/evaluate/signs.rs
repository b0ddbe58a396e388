//! Sign reconstruction: can a model tell triples that hold from those that do not?
//!
//! Every pair of a split's query and an object is classified by its score.
//! The split's answers are positives, answers of the splits before it are left out, and everything
//! else is negative. Scores are log-probabilities, whatever the output layer: under a softmax they
//! are comparable within a query, and only as far as shares are between queries.
//!
//! There are E pairs for each query, too many to be kept or sorted. But every figure below changes
//! only where a positive stands, and those are few: negatives are counted between and beside them,
//! in a second pass over the same scores. So all figures are exact, ties included.

use std::sync::{Mutex, PoisonError};

use fullrank_graph::{EntityId, Graph, Split};
use serde::Serialize;

use super::{Asked, Scorer, for_each_row, held_out};
use crate::error::Error;
use crate::progress::Progress;

/// How well scores separate positives from negatives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Signs {
    /// Distinct queries, both directions.
    pub n_queries: usize,
    /// Their answers in the split.
    pub n_positives: u64,
    /// Objects that are no known answers.
    pub n_negatives: u64,
    /// Area under the receiver operating characteristic: how often a positive scores higher than a
    /// negative, ties counting half.
    pub auroc: f64,
    /// Mean precision at the score of each positive, all pairs of that score included.
    pub average_precision: f64,
    /// Nothing without a threshold.
    #[serde(flatten)]
    pub decided: Option<Decided>,
}

/// What comes of calling everything from a threshold on true.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Decided {
    /// The least probability that is called true.
    pub threshold: f64,
    /// Share of what is called true that is positive.
    pub precision: f64,
    /// Share of positives that is called true.
    pub recall: f64,
    /// Harmonic mean of the two.
    pub f1: f64,
}

/// The log-probability from which on to call a pair true, so that F1 on validation is largest;
/// nothing without validation answers. Of several equal ones the highest.
///
/// # Errors
/// When a score is not a number, or when `progress` says stop.
pub fn fit_threshold(
    graph: &Graph,
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Option<f32>, Error> {
    let counts = Counts::of(graph, Split::Valid, scorer, None, progress)?;
    let mut best: Option<(f64, f32)> = None;
    for step in counts.steps() {
        let f1 = counts.decided(&step).f1;
        if step.positives > 0 && best.is_none_or(|(best, _)| f1 > best) {
            best = Some((f1, step.score));
        }
    }
    Ok(best.map(|(_, score)| score))
}

/// Classifies every pair of a split's queries and all objects; nothing if it has no positives, or no
/// negatives.
///
/// # Errors
/// When a score is not a number, or when `progress` says stop.
pub fn classify(
    graph: &Graph,
    split: Split,
    scorer: &impl Scorer,
    threshold: Option<f32>,
    progress: &mut Progress,
) -> Result<Option<Signs>, Error> {
    let counts = Counts::of(graph, split, scorer, threshold, progress)?;
    let (positives, negatives) = (counts.n_positives as f64, counts.n_negatives as f64);
    if positives == 0.0 || negatives == 0.0 {
        return Ok(None);
    }
    let (mut won, mut precision_sum, mut decided) = (0.0, 0.0, None);
    for step in counts.steps() {
        let here = step.positives as f64;
        let below = (counts.n_negatives - step.false_positives) as f64;
        won += here * (below + 0.5 * step.negatives as f64);
        precision_sum += here * counts.decided(&step).precision;
        if threshold == Some(step.score) {
            decided = Some(counts.decided(&step));
        }
    }
    Ok(Some(Signs {
        n_queries: counts.n_queries,
        n_positives: counts.n_positives,
        n_negatives: counts.n_negatives,
        auroc: won / (positives * negatives),
        average_precision: precision_sum / positives,
        decided,
    }))
}

/// Positives and negatives by score.
struct Counts {
    scores: Scores,
    /// Positives of each score.
    positives: Vec<u64>,
    /// Negatives below all scores, then of each score and above it, in turn.
    negatives: Vec<u64>,
    n_queries: usize,
    n_positives: u64,
    n_negatives: u64,
}

/// What is called true from a score on.
struct Step {
    score: f32,
    /// Of just this score.
    positives: u64,
    negatives: u64,
    /// Of this score or a higher one.
    true_positives: u64,
    false_positives: u64,
}

impl Counts {
    /// Counts at the scores of all positives, and at one more.
    fn of(
        graph: &Graph,
        split: Split,
        scorer: &impl Scorer,
        also: Option<f32>,
        progress: &mut Progress,
    ) -> Result<Self, Error> {
        let asked = held_out(graph, split);
        let positives = positive_scores(graph, split, &asked, scorer, progress)?;
        let scores = Scores::of(positives.iter().copied().chain(also));
        let mut counts = Self {
            positives: vec![0; scores.ascending.len()],
            negatives: count_negatives(graph, split, &asked, scorer, &scores, progress)?,
            n_queries: asked.len(),
            n_positives: positives.len() as u64,
            n_negatives: 0,
            scores,
        };
        for score in positives {
            counts.positives[counts.scores.slot(score) / 2] += 1;
        }
        counts.n_negatives = counts.negatives.iter().sum();
        Ok(counts)
    }

    /// From the highest score to the lowest.
    fn steps(&self) -> impl Iterator<Item = Step> {
        let (mut true_positives, mut false_positives) = (0, 0);
        (0..self.positives.len()).rev().map(move |i| {
            let (equal, above) = (self.negatives[2 * i + 1], self.negatives[2 * i + 2]);
            true_positives += self.positives[i];
            false_positives += equal + above;
            Step {
                score: self.scores.ascending[i],
                positives: self.positives[i],
                negatives: equal,
                true_positives,
                false_positives,
            }
        })
    }

    fn decided(&self, step: &Step) -> Decided {
        let true_positives = step.true_positives as f64;
        let called_true = true_positives + step.false_positives as f64;
        let share = |of: f64| if of > 0.0 { true_positives / of } else { 0.0 };
        Decided {
            threshold: f64::from(step.score).exp(),
            precision: share(called_true),
            recall: share(self.n_positives as f64),
            f1: 2.0 * share(called_true + self.n_positives as f64),
        }
    }
}

/// The scores of all positives.
fn positive_scores(
    graph: &Graph,
    split: Split,
    asked: &[Asked],
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Vec<f32>, Error> {
    let mut scores = Vec::new();
    let of_query = |asked: &Asked, row: &[f32]| -> Vec<f32> {
        positives(graph, split, asked).iter().map(|object| row[object.0 as usize]).collect()
    };
    for_each_row(graph, asked, scorer, progress, of_query, |found| scores.extend(found))?;
    Ok(scores)
}

/// Negatives of each slot.
fn count_negatives(
    graph: &Graph,
    split: Split,
    asked: &[Asked],
    scorer: &impl Scorer,
    scores: &Scores,
    progress: &mut Progress,
) -> Result<Vec<u64>, Error> {
    let none = || Mutex::new(vec![0_u64; 2 * scores.ascending.len() + 1]);
    // One for each thread: whole numbers have the same sum in any order.
    let by_thread: Vec<_> = (0..rayon::current_num_threads()).map(|_| none()).collect();
    let count = |asked: &Asked, row: &[f32]| {
        let own = &by_thread[rayon::current_thread_index().unwrap_or(0)];
        let mut counts = own.lock().unwrap_or_else(PoisonError::into_inner);
        row.iter().for_each(|score| counts[scores.slot(*score)] += 1);
        for object in graph.answers().up_to(asked.number as usize, split) {
            counts[scores.slot(row[object.0 as usize])] -= 1;
        }
    };
    for_each_row(graph, asked, scorer, progress, count, |()| ())?;
    let mut total = vec![0; 2 * scores.ascending.len() + 1];
    for counts in by_thread {
        let counts = counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    Ok(total)
}

/// Answers of a query that this split has, and none before it.
fn positives<'a>(graph: &'a Graph, split: Split, asked: &Asked) -> &'a [EntityId] {
    graph.answers().in_split(asked.number as usize, split)
}

/// Distinct scores, and a quick way to find where another stands among them.
struct Scores {
    ascending: Vec<f32>,
    /// How many have smaller high bits than each pattern of high bits.
    starts: Vec<u32>,
}

impl Scores {
    fn of(scores: impl Iterator<Item = f32>) -> Self {
        let mut ascending: Vec<f32> = scores.collect();
        ascending.sort_unstable_by(f32::total_cmp);
        // By value: the two zeros are one score.
        ascending.dedup_by(|a, b| a == b);
        let mut starts = vec![0; (1 << 16) + 1];
        for score in &ascending {
            starts[high_bits(*score) + 1] += 1;
        }
        for i in 1..starts.len() {
            starts[i] += starts[i - 1];
        }
        Self { ascending, starts }
    }

    /// 0 below all scores; 2i + 1 for one that equals score i, 2i + 2 for one above it and below
    /// the next.
    fn slot(&self, score: f32) -> usize {
        let bits = high_bits(score);
        let (start, end) = (self.starts[bits] as usize, self.starts[bits + 1] as usize);
        let up_to = start + self.ascending[start..end].partition_point(|other| *other <= score);
        let is_equal = up_to > 0 && self.ascending[up_to - 1] == score;
        2 * up_to - usize::from(is_equal)
    }
}

/// The upper half of a pattern that is ordered as the numbers are.
fn high_bits(score: f32) -> usize {
    // Negative zero becomes zero.
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    (ordered >> 16) as usize
}

#[cfg(test)]
mod tests {
    use fullrank_graph::Query;

    use super::*;
    use crate::evaluate::tests::{Fixed, graph};
    use crate::progress::silent;

    fn classified(
        graph: &Graph,
        threshold: Option<f32>,
        score: impl Fn(Query, u32) -> f32,
    ) -> Option<Signs> {
        let scorer = Fixed(graph.entities().len(), score);
        classify(graph, Split::Test, &scorer, threshold, &mut silent()).unwrap()
    }

    fn threshold(graph: &Graph, score: impl Fn(Query, u32) -> f32) -> Option<f32> {
        let scorer = Fixed(graph.entities().len(), score);
        fit_threshold(graph, &scorer, &mut silent()).unwrap()
    }

    #[test]
    fn a_hand_worked_example() {
        // Entities in order: a, b, c, d, e. (a, r, ?): b (train) and c (valid) are left out; d is
        // positive, a and e are negative. (d, r⁻¹, ?): a is positive, the others are negative.
        let graph = graph(["a r b", "a r c", "a r d; a r e"]);
        let scores = [-1.0, -9.0, -9.0, -2.0, -3.0];
        // Asked are (a, r, ?), (d, r⁻¹, ?) and (e, r⁻¹, ?): positives −2, −3; −1; −1, negatives
        // −1; −9, −9, −2, −3 twice.
        let found = classified(&graph, Some(-2.0), |_, object| scores[object as usize]).unwrap();
        assert_eq!((found.n_queries, found.n_positives, found.n_negatives), (3, 4, 9));
        // −1 beats 8 and ties with 1 of 9, twice; −2 beats 6 and ties with 2; −3 beats 4, ties with 2.
        let auroc = (2.0 * 8.5 + 7.0 + 5.0) / 36.0;
        assert!((found.auroc - auroc).abs() < 1e-12, "{found:?}");
        // Precision is 2/3 from −1 on (twice), 3/6 from −2 on, 4/9 from −3 on.
        let average_precision = (2.0 * 2.0 / 3.0 + 0.5 + 4.0 / 9.0) / 4.0;
        assert!((found.average_precision - average_precision).abs() < 1e-12, "{found:?}");
        let decided = found.decided.unwrap();
        assert_eq!((decided.precision, decided.recall), (0.5, 0.75));
        assert!((decided.f1 - 0.6).abs() < 1e-12);
        assert!((decided.threshold - (-2.0_f64).exp()).abs() < 1e-12);
    }

    #[test]
    fn figures_equal_those_of_scikit_learn() {
        // The graph, the scores, with many ties, and the figures are those of benches/peer/signs.py,
        // run with scikit-learn 1.9.1.
        let line = |i: u32, object: u32| format!("{i} r {};", object % 30);
        let splits = [
            (0..30).map(|i| line(i, 7 * i + 1)).collect::<String>(),
            (0..30).step_by(3).map(|i| line(i, 11 * i + 5)).collect(),
            (0..30).step_by(2).map(|i| line(i, 13 * i + 8)).collect(),
        ];
        let graph = graph(splits.each_ref().map(String::as_str));
        let numbers: Vec<u32> = graph.entities().iter().map(|name| name.parse().unwrap()).collect();
        let score = |query: Query, object: u32| {
            let (subject, object) = (numbers[query.subject.0 as usize], numbers[object as usize]);
            let mixed = subject * 31 + query.relation.0 * 17 + object * 7;
            -((mixed * mixed % 101) as f32) / 8.0
        };
        let fitted = threshold(&graph, score);
        assert_eq!(fitted, Some(-2.75));
        let found = classified(&graph, fitted, score).unwrap();
        assert_eq!((found.n_positives, found.n_negatives), (30, 830));
        let figures = [found.auroc, found.average_precision, found.decided.unwrap().f1];
        let expected = [0.6342971887550201, 0.0548833463096531, 0.09486166007905138];
        for (figure, expected) in figures.into_iter().zip(expected) {
            assert!((figure - expected).abs() < 1e-12, "{figures:?}");
        }
    }

    #[test]
    fn a_perfect_model_gets_one_everywhere_and_a_constant_one_what_chance_gives() {
        let graph = graph(["a r b; c r d", "b r c; d r e", "a r c; b r e; e r a"]);
        let holds = |query: Query, object: u32| {
            let number = graph.answers().find(query).unwrap();
            let known = graph.answers().up_to(number, Split::Test);
            if known.contains(&EntityId(object)) { -0.5 } else { -2.0 }
        };
        let found = classified(&graph, threshold(&graph, holds), holds).unwrap();
        let decided = found.decided.unwrap();
        assert_eq!([found.auroc, found.average_precision, decided.f1], [1.0; 3]);
        let found = classified(&graph, None, |_, _| -1.0).unwrap();
        let share = found.n_positives as f64 / (found.n_positives + found.n_negatives) as f64;
        assert_eq!(found.auroc, 0.5);
        assert!((found.average_precision - share).abs() < 1e-12);
        assert_eq!(found.decided, None);
    }

    #[test]
    fn the_threshold_is_where_validation_has_its_best_f1() {
        // Entities in order: d, e, f, a, b, c.
        let graph = graph(["d r e; f r d", "a r b; a r c", "a r e"]);
        let scores = [-2.0, -4.0, -5.0, -0.1, -1.0, -3.0];
        // (a, r, ?): b −1 and c −3 are positive, a −.1, d −2, e −4, f −5 negative; that test has e is
        // not known yet. (b, r⁻¹, ?) and (c, r⁻¹, ?): a −.1 is positive. Of those called true, 2 of 3
        // are from −.1 on, 3 of 6 from −1 on, 4 of 12 from −3 on: F1 is 4/7, 6/10, 8/16.
        assert_eq!(threshold(&graph, |_, object| scores[object as usize]), Some(-1.0));
    }

    #[test]
    fn a_split_without_answers_has_no_figures() {
        let graph = graph(["a r b", "", ""]);
        assert_eq!(classified(&graph, None, |_, _| -1.0), None);
        assert_eq!(threshold(&graph, |_, _| -1.0), None);
    }

    #[test]
    fn slots_are_found_among_scores_of_any_sign() {
        let scores = Scores::of([-0.0, 0.0, -1.5, 2.0, f32::NEG_INFINITY, -1.5].into_iter());
        assert_eq!(scores.ascending, [f32::NEG_INFINITY, -1.5, 0.0, 2.0]);
        let places: Vec<usize> = [f32::NEG_INFINITY, -7.0, -1.5, -1.0, -0.0, 0.0, 1e-9, 2.0, 3.0]
            .into_iter()
            .map(|score| scores.slot(score))
            .collect();
        assert_eq!(places, [1, 2, 3, 4, 5, 5, 6, 7, 8]);
    }
}
