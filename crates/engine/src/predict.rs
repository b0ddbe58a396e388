//! Which objects answer a query, and how likely is a given triple?
//!
//! Scores queries block by block, leaves known answers out where that is asked for, and keeps the
//! best. Names and files are the business of the caller.

use std::collections::BTreeMap;

use fullrank_graph::{EntityId, Graph, Query, Split, Triple};

use crate::error::Error;
use crate::evaluate::{
    Scorer, check_temperature, log_add, log_sum_without, map_block, queries_at_once, rivals,
};
use crate::output::Meaning;

/// What is asked of every query.
#[derive(Debug, Clone)]
pub struct PredictOptions {
    /// Answers per query, at most.
    pub k: usize,
    /// What becomes of answers that the graph has, in any split.
    pub known: Known,
    /// Whether each entity may be an answer; all may by default.
    pub among: Option<Vec<bool>>,
    /// What log-probabilities are divided by; 1 where they are no logarithms of shares.
    pub temperature: f64,
}

impl Default for PredictOptions {
    fn default() -> Self {
        Self { k: 10, known: Known::LeftOut, among: None, temperature: 1.0 }
    }
}

/// What becomes of answers that the graph has already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known {
    /// They are taken out; where probabilities are shares, the rest is scaled up to one.
    LeftOut,
    /// They are answers like all others.
    Shown,
}

/// An answer to a query.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// The entity.
    pub object: EntityId,
    /// The logarithm of its share among the answers, or of the probability that the triple holds.
    pub log_probability: f64,
    /// The first split that has the fact.
    pub known_in: Option<Split>,
}

/// How likely a given triple is, as an answer to (subject, relation, ?).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TripleScore {
    /// The logarithm of the object's share, other known answers left out, or of the probability that
    /// the triple holds.
    pub log_probability: f64,
    /// Its place among all objects that are no other known answers; ties count half.
    pub answer_rank: f64,
    /// The first split that has the triple.
    pub known_in: Option<Split>,
}

/// The best answers to each query, the most likely first; equal ones by id.
///
/// # Errors
/// When a score is not a number, or when there can be no temperature.
pub fn predict(
    graph: &Graph,
    scorer: &impl Scorer,
    queries: &[Query],
    options: &PredictOptions,
) -> Result<Vec<Vec<Answer>>, Error> {
    let meaning = scorer.meaning();
    check_temperature(meaning, options.temperature)?;
    map_rows(graph, scorer, queries, |query, row| best_answers(graph, query, row, options, meaning))
}

/// How likely each triple is; in the order of `triples`.
///
/// # Errors
/// When a score is not a number, or when there can be no temperature.
pub fn score_triples(
    graph: &Graph,
    scorer: &impl Scorer,
    triples: &[Triple],
    temperature: f64,
) -> Result<Vec<TripleScore>, Error> {
    let meaning = scorer.meaning();
    check_temperature(meaning, temperature)?;
    // Each query is scored once, however many objects are asked for.
    let mut places = BTreeMap::<Query, Vec<usize>>::new();
    for (place, triple) in triples.iter().enumerate() {
        let query = Query { subject: triple.subject, relation: triple.relation };
        places.entry(query).or_default().push(place);
    }
    let queries: Vec<Query> = places.keys().copied().collect();
    let found = map_rows(graph, scorer, &queries, |query, row| {
        let row = at_temperature(row, temperature);
        let left = log_total(&row, known_answers(graph, query), meaning);
        let score = |place: &usize| {
            (*place, score_object(graph, query, triples[*place].object, &row, left))
        };
        places[&query].iter().map(score).collect::<Vec<_>>()
    })?;
    let mut scores: Vec<(usize, TripleScore)> = found.into_iter().flatten().collect();
    scores.sort_by_key(|(place, _)| *place);
    Ok(scores.into_iter().map(|(_, score)| score).collect())
}

/// Scores queries block by block and maps each with its row.
fn map_rows<T: Send>(
    graph: &Graph,
    scorer: &impl Scorer,
    queries: &[Query],
    map: impl Fn(Query, &[f32]) -> T + Sync,
) -> Result<Vec<T>, Error> {
    let mut all = Vec::with_capacity(queries.len());
    for block in queries.chunks(queries_at_once(graph.entities().len())) {
        all.extend(map_block(scorer, block, |place, row| map(block[place], row))?);
    }
    Ok(all)
}

/// log Σ P over all objects but those `without`, where these probabilities are parts of one whole.
fn log_total(row: &[f32], without: &[EntityId], meaning: Meaning) -> Option<f64> {
    (meaning == Meaning::Share).then(|| log_sum_without(row, without))
}

fn best_answers(
    graph: &Graph,
    query: Query,
    row: &[f32],
    options: &PredictOptions,
    meaning: Meaning,
) -> Vec<Answer> {
    let row = at_temperature(row, options.temperature);
    let left_out = match options.known {
        Known::LeftOut => known_answers(graph, query),
        Known::Shown => &[],
    };
    let total = log_total(&row, left_out, meaning).unwrap_or(0.0);
    let mut is_left_out = vec![false; row.len()];
    for object in left_out {
        is_left_out[object.0 as usize] = true;
    }
    let is_candidate = |object: &u32| {
        let object = *object as usize;
        !is_left_out[object] && options.among.as_ref().is_none_or(|among| among[object])
    };
    let mut objects: Vec<u32> = (0..row.len() as u32).filter(is_candidate).collect();
    let order = |a: &u32, b: &u32| row[*b as usize].total_cmp(&row[*a as usize]).then(a.cmp(b));
    if options.k < objects.len() {
        objects.select_nth_unstable_by(options.k, order);
        objects.truncate(options.k);
    }
    objects.sort_unstable_by(order);
    let answer = |object: u32| Answer {
        object: EntityId(object),
        log_probability: f64::from(row[object as usize]) - total,
        known_in: known_in(graph, query, EntityId(object)),
    };
    objects.into_iter().map(answer).collect()
}

/// `left`: log Σ P over all objects that are no known answers, if that is a whole.
fn score_object(
    graph: &Graph,
    query: Query,
    object: EntityId,
    row: &[f32],
    left: Option<f64>,
) -> TripleScore {
    let score = row[object.0 as usize];
    let known_in = known_in(graph, query, object);
    let (above, beside) = rivals(row, object, known_answers(graph, query));
    let log_probability = f64::from(score);
    let total = left.map_or(0.0, |left| match known_in {
        Some(_) => log_add(left, log_probability),
        None => left,
    });
    TripleScore {
        log_probability: log_probability - total,
        answer_rank: f64::from(above) + 0.5 * f64::from(beside) + 1.0,
        known_in,
    }
}

/// Log-probabilities at a temperature, no longer normalised.
fn at_temperature(row: &[f32], temperature: f64) -> Vec<f32> {
    row.iter().map(|x| x / temperature as f32).collect()
}

/// All answers of a query that the graph has, in any split.
pub fn known_answers(graph: &Graph, query: Query) -> &[EntityId] {
    let number = graph.answers().find(query);
    number.map_or(&[], |number| graph.answers().up_to(number, Split::Test))
}

fn known_in(graph: &Graph, query: Query, object: EntityId) -> Option<Split> {
    let number = graph.answers().find(query)?;
    Split::ALL.into_iter().find(|split| {
        // Ascending within a split.
        graph.answers().in_split(number, *split).binary_search(&object).is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::tests::graph;
    use fullrank_graph::RelationId;

    /// The same probabilities for every query.
    struct Constant(Vec<f32>, Meaning);

    impl Scorer for Constant {
        fn map_rows<T: Send>(
            &self,
            queries: &[Query],
            map: impl Fn(usize, &[f32]) -> T + Sync,
        ) -> Vec<T> {
            let row: Vec<f32> = self.0.iter().map(|p| p.ln()).collect();
            (0..queries.len()).map(|place| map(place, &row)).collect()
        }

        fn meaning(&self) -> Meaning {
            self.1
        }
    }

    /// Entities a to e in this order, of which a knows b (train), c (valid) and d (test).
    fn known() -> (Graph, Query) {
        let graph = graph(["a knows b; c knows e", "a knows c", "a knows d"]);
        assert_eq!(graph.entities().iter().collect::<Vec<_>>(), ["a", "b", "c", "e", "d"]);
        (graph, Query { subject: EntityId(0), relation: RelationId(0) })
    }

    fn check(options: &PredictOptions) -> Vec<(u32, f64, Option<Split>)> {
        let (graph, query) = known();
        // a .1, b .4, c .2, e .1, d .2
        let scorer = Constant(vec![0.1, 0.4, 0.2, 0.1, 0.2], Meaning::Share);
        let answers = predict(&graph, &scorer, &[query], options).unwrap().remove(0);
        let rounded = |x: f64| (x.exp() * 1e5).round() / 1e5;
        answers.iter().map(|a| (a.object.0, rounded(a.log_probability), a.known_in)).collect()
    }

    #[test]
    fn known_answers_are_left_out_and_the_rest_sums_to_one() {
        let found = check(&PredictOptions::default());
        assert_eq!(found, [(0, 0.5, None), (3, 0.5, None)]);
    }

    #[test]
    fn known_answers_can_be_shown_with_the_split_they_are_from() {
        let options = PredictOptions { k: 4, known: Known::Shown, ..Default::default() };
        let expected = [
            (1, 0.4, Some(Split::Train)),
            (2, 0.2, Some(Split::Valid)),
            (4, 0.2, Some(Split::Test)),
            (0, 0.1, None),
        ];
        assert_eq!(check(&options), expected);
    }

    #[test]
    fn candidates_are_chosen_from_without_changing_probabilities() {
        let among = Some(vec![false, true, false, true, false]);
        let options = PredictOptions { known: Known::Shown, among, ..Default::default() };
        assert_eq!(check(&options), [(1, 0.4, Some(Split::Train)), (3, 0.1, None)]);
    }

    #[test]
    fn a_temperature_flattens_the_distribution() {
        // Square roots of the probabilities, normalised: at temperature 2.
        let roots = [0.1, 0.4, 0.2, 0.1, 0.2].map(f64::sqrt);
        let share = roots[1] / roots.iter().sum::<f64>();
        let options =
            PredictOptions { k: 1, known: Known::Shown, temperature: 2.0, ..Default::default() };
        assert_eq!(check(&options), [(1, (share * 1e5).round() / 1e5, Some(Split::Train))]);
    }

    #[test]
    fn a_triple_competes_with_what_is_not_known() {
        let (graph, _) = known();
        let scorer = Constant(vec![0.1, 0.4, 0.2, 0.1, 0.2], Meaning::Share);
        let triple = |object| Triple {
            subject: EntityId(0),
            relation: RelationId(0),
            object: EntityId(object),
        };
        let scores = score_triples(&graph, &scorer, &[triple(3), triple(1)], 1.0).unwrap();
        // e ties with a, the only other object that is not known; b beats both.
        assert_eq!([scores[0].answer_rank, scores[1].answer_rank], [1.5, 1.0]);
        assert_eq!([scores[0].known_in, scores[1].known_in], [None, Some(Split::Train)]);
        assert!((scores[0].log_probability.exp() - 0.1 / 0.2).abs() < 1e-6);
        assert!((scores[1].log_probability.exp() - 0.4 / 0.6).abs() < 1e-6);
    }

    #[test]
    fn the_probability_that_a_triple_holds_does_not_depend_on_others() {
        let (graph, query) = known();
        let scorer = Constant(vec![0.9, 0.8, 0.9, 0.3, 0.7], Meaning::Holds);
        let options = PredictOptions::default();
        let answers = predict(&graph, &scorer, &[query], &options).unwrap().remove(0);
        let rounded = |x: f64| (x.exp() * 1e5).round() / 1e5;
        let found: Vec<(u32, f64)> =
            answers.iter().map(|a| (a.object.0, rounded(a.log_probability))).collect();
        assert_eq!(found, [(0, 0.9), (3, 0.3)]);
        let Query { subject, relation } = query;
        let triple = Triple { subject, relation, object: EntityId(1) };
        let score = score_triples(&graph, &scorer, &[triple], 1.0).unwrap()[0];
        assert!((score.log_probability.exp() - 0.8).abs() < 1e-6);
        assert_eq!(score.answer_rank, 2.0);
        let error = score_triples(&graph, &scorer, &[triple], 2.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            "temperature 2 is for shares among answers; this model gives the probability that a \
             triple holds"
        );
    }

    #[test]
    fn scores_that_are_not_numbers_are_an_error() {
        let (graph, query) = known();
        let scorer = Constant(vec![f32::NAN; 5], Meaning::Share);
        let error = predict(&graph, &scorer, &[query], &PredictOptions::default()).unwrap_err();
        assert_eq!(error.to_string(), "the model gives scores that are not numbers");
    }
}
