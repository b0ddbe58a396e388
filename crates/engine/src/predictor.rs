//! The predictor: which objects answer a query, and how likely is a given triple?
//!
//! Questions of many callers can be put together: each has its own number of answers, candidates and
//! temperature. Names are the business of `answers`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fullrank_graph::{EntityId, Graph, Query, Split, Triple};

use crate::error::Error;
use crate::evaluate::{
    Rivals, ScorePart, Scorer, TopK, check_temperature, log_add, log_sum_without, map_block,
    queries_at_once,
};
use crate::model::Model;
use crate::probability::ProbabilityKind;
use crate::progress::{Event, Progress, Signal, silent};

/// Answers questions about a model's graph, from any number of threads.
#[derive(Debug)]
pub struct Predictor {
    model: Arc<Model>,
}

const _: () = {
    const fn can_be_shared<T: Send + Sync>() {}
    can_be_shared::<Predictor>();
};

/// A question: the best answers to a query.
#[derive(Debug, Clone)]
pub struct Ask {
    /// What is asked; for subjects over the inverse relation.
    pub query: Query,
    /// Answers, at most.
    pub k: usize,
    /// What becomes of answers that the graph has, in any split.
    pub known: Known,
    /// Whether each entity may be an answer; all may by default.
    pub candidates: Option<Arc<[bool]>>,
    /// What log-probabilities are divided by; by default what was fitted to the model, if anything.
    pub temperature: Option<f64>,
}

impl Ask {
    /// The ten best new answers to a query.
    pub fn new(query: Query) -> Self {
        Self { query, k: 10, known: Known::LeftOut, candidates: None, temperature: None }
    }

    fn allows(&self, object: u32) -> bool {
        self.candidates.as_ref().is_none_or(|candidates| candidates[object as usize])
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

/// The best answers to a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// The most likely first; equal ones by id.
    pub answers: Vec<Answer>,
    /// Known answers among the candidates that were left out.
    pub known_left_out: usize,
    /// What log-probabilities were divided by.
    pub temperature: f64,
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

impl Predictor {
    /// Of a model.
    pub fn new(model: impl Into<Arc<Model>>) -> Self {
        Self { model: model.into() }
    }

    /// The model that is asked.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What log-probabilities are divided by where nothing else is asked for.
    pub fn temperature(&self) -> f64 {
        self.model.temperature().unwrap_or(1.0)
    }

    /// The best answers to each question, in their order.
    ///
    /// # Errors
    /// When a score is not a number, or when there can be no temperature.
    pub fn answer(&self, asks: &[Ask]) -> Result<Vec<Answered>, Error> {
        self.model.answer(asks, &mut silent())
    }

    /// How likely each triple is; in the order of `triples`. Without a temperature, at what was fitted
    /// to the model, if anything.
    ///
    /// # Errors
    /// When a score is not a number, when there can be no temperature, or when `progress` says stop.
    pub fn score(
        &self,
        triples: &[Triple],
        temperature: Option<f64>,
        progress: &mut Progress,
    ) -> Result<Vec<TripleScore>, Error> {
        let temperature = temperature.unwrap_or(self.temperature());
        score_triples(self.model.graph(), &*self.model, triples, temperature, progress)
    }

    /// Log-probabilities of all objects for each query, at temperature 1, known answers included.
    ///
    /// # Errors
    /// When a score is not a number.
    pub fn log_probs(&self, queries: &[Query]) -> Result<Vec<Vec<f32>>, Error> {
        map_block(&*self.model, queries, |_, row| row.to_vec())
    }
}

impl Model {
    /// The best answers to each question, in their order.
    ///
    /// # Errors
    /// When a score is not a number, when there can be no temperature, or when `progress` says stop.
    pub fn answer(&self, asks: &[Ask], progress: &mut Progress) -> Result<Vec<Answered>, Error> {
        let asks: Vec<Ask> = asks
            .iter()
            .map(|ask| Ask { temperature: ask.temperature.or(self.temperature()), ..ask.clone() })
            .collect();
        answer(self.graph(), self, &asks, progress)
    }
}

/// The best answers to each question.
fn answer(
    graph: &Graph,
    scorer: &impl Scorer,
    asks: &[Ask],
    progress: &mut Progress,
) -> Result<Vec<Answered>, Error> {
    let probability = scorer.probability();
    for ask in asks {
        check_temperature(probability, ask.temperature.unwrap_or(1.0))?;
    }
    let queries: Vec<Query> = asks.iter().map(|ask| ask.query).collect();
    let best = |place: usize, row: &[f32]| best_answers(graph, &asks[place], row, probability);
    map_rows(graph, scorer, &queries, best, progress)
}

fn score_triples(
    graph: &Graph,
    scorer: &impl Scorer,
    triples: &[Triple],
    temperature: f64,
    progress: &mut Progress,
) -> Result<Vec<TripleScore>, Error> {
    let probability = scorer.probability();
    check_temperature(probability, temperature)?;
    // Each query is scored once, however many objects are asked for.
    let mut places = BTreeMap::<Query, Vec<usize>>::new();
    for (place, triple) in triples.iter().enumerate() {
        let query = Query { subject: triple.subject, relation: triple.relation };
        places.entry(query).or_default().push(place);
    }
    let queries: Vec<Query> = places.keys().copied().collect();
    let score_all = |place: usize, row: &[f32]| {
        let query = queries[place];
        let row = at_temperature(row, temperature);
        let left = log_total(&row, known_answers(graph, query), probability);
        let score = |place: &usize| {
            (*place, score_object(graph, query, triples[*place].object, &row, left))
        };
        places[&query].iter().map(score).collect::<Vec<_>>()
    };
    let found = map_rows(graph, scorer, &queries, score_all, progress)?;
    let mut scores: Vec<(usize, TripleScore)> = found.into_iter().flatten().collect();
    scores.sort_by_key(|(place, _)| *place);
    Ok(scores.into_iter().map(|(_, score)| score).collect())
}

/// Scores queries block by block and maps the place of each with its row.
fn map_rows<T: Send>(
    graph: &Graph,
    scorer: &impl Scorer,
    queries: &[Query],
    map: impl Fn(usize, &[f32]) -> T + Sync,
    progress: &mut Progress,
) -> Result<Vec<T>, Error> {
    let mut all = Vec::with_capacity(queries.len());
    for block in queries.chunks(queries_at_once(graph.entities().len())) {
        let first = all.len();
        all.extend(map_block(scorer, block, |place, row| map(first + place, row))?);
        if progress(Event::Scoring { done: all.len(), total: queries.len() }) == Signal::Stop {
            return Err(Error::Interrupted);
        }
    }
    Ok(all)
}

/// log Σ P over all objects but those `without`, where these probabilities are parts of one whole.
fn log_total(row: &[f32], without: &[EntityId], probability: ProbabilityKind) -> Option<f64> {
    (probability == ProbabilityKind::Categorical).then(|| log_sum_without(row, without))
}

fn best_answers(graph: &Graph, ask: &Ask, row: &[f32], probability: ProbabilityKind) -> Answered {
    let temperature = ask.temperature.unwrap_or(1.0);
    let row = at_temperature(row, temperature);
    let left_out = match ask.known {
        Known::LeftOut => known_answers(graph, ask.query),
        Known::Shown => &[],
    };
    let total = log_total(&row, left_out, probability).unwrap_or(0.0);
    let mut is_left_out = vec![false; row.len()];
    for object in left_out {
        is_left_out[object.0 as usize] = true;
    }
    let may_answer = |object: u32| !is_left_out[object as usize] && ask.allows(object);
    let best = ScorePart::all(&row).map(|part| TopK::of(part, ask.k, may_answer));
    let best = best.reduce(TopK::merge);
    let answer = |(score, object): (f32, u32)| Answer {
        object: EntityId(object),
        log_probability: f64::from(score) - total,
        known_in: known_in(graph, ask.query, EntityId(object)),
    };
    Answered {
        answers: best.into_iter().flat_map(TopK::best).map(answer).collect(),
        known_left_out: left_out.iter().filter(|object| ask.allows(object.0)).count(),
        temperature,
    }
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
    let Rivals { above, beside } = Rivals::among(row, object, known_answers(graph, query));
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
    use crate::config::Config;
    use crate::device::Device;
    use crate::evaluate::tests::graph;
    use crate::network::Network;
    use crate::progress::{Best, End, Trained};
    use crate::random::Weights;
    use fullrank_graph::RelationId;

    /// The same probabilities for every query.
    struct Constant(Vec<f32>, ProbabilityKind);

    impl Scorer for Constant {
        fn map_rows<T: Send>(
            &self,
            queries: &[Query],
            map: impl Fn(usize, &[f32]) -> T + Sync,
        ) -> Vec<T> {
            let row: Vec<f32> = self.0.iter().map(|p| p.ln()).collect();
            (0..queries.len()).map(|place| map(place, &row)).collect()
        }

        fn probability(&self) -> ProbabilityKind {
            self.1
        }
    }

    /// Entities a to e in this order, of which a knows b (train), c (valid) and d (test).
    fn known() -> (Graph, Query) {
        let graph = graph(["a knows b; c knows e", "a knows c", "a knows d"]);
        assert_eq!(graph.entities().iter().collect::<Vec<_>>(), ["a", "b", "c", "e", "d"]);
        (graph, Query { subject: EntityId(0), relation: RelationId(0) })
    }

    fn check(ask: impl FnOnce(Ask) -> Ask) -> Vec<(u32, f64, Option<Split>)> {
        let (graph, query) = known();
        // a .1, b .4, c .2, e .1, d .2
        let scorer = Constant(vec![0.1, 0.4, 0.2, 0.1, 0.2], ProbabilityKind::Categorical);
        let asks = [ask(Ask::new(query))];
        let answers = answer(&graph, &scorer, &asks, &mut silent()).unwrap().remove(0).answers;
        let rounded = |x: f64| (x.exp() * 1e5).round() / 1e5;
        answers.iter().map(|a| (a.object.0, rounded(a.log_probability), a.known_in)).collect()
    }

    #[test]
    fn known_answers_are_left_out_and_the_rest_sums_to_one() {
        let found = check(|ask| ask);
        assert_eq!(found, [(0, 0.5, None), (3, 0.5, None)]);
    }

    #[test]
    fn known_answers_can_be_shown_with_the_split_they_are_from() {
        let expected = [
            (1, 0.4, Some(Split::Train)),
            (2, 0.2, Some(Split::Valid)),
            (4, 0.2, Some(Split::Test)),
            (0, 0.1, None),
        ];
        assert_eq!(check(|ask| Ask { k: 4, known: Known::Shown, ..ask }), expected);
    }

    #[test]
    fn candidates_are_chosen_from_without_changing_probabilities() {
        let candidates = Some([false, true, false, true, false].into());
        let found = check(|ask| Ask { known: Known::Shown, candidates, ..ask });
        assert_eq!(found, [(1, 0.4, Some(Split::Train)), (3, 0.1, None)]);
    }

    #[test]
    fn a_temperature_flattens_the_distribution() {
        // Square roots of the probabilities, normalised: at temperature 2.
        let roots = [0.1, 0.4, 0.2, 0.1, 0.2].map(f64::sqrt);
        let share = roots[1] / roots.iter().sum::<f64>();
        let found = check(|ask| Ask { k: 1, known: Known::Shown, temperature: Some(2.0), ..ask });
        assert_eq!(found, [(1, (share * 1e5).round() / 1e5, Some(Split::Train))]);
    }

    #[test]
    fn a_triple_competes_with_what_is_not_known() {
        let (graph, _) = known();
        let scorer = Constant(vec![0.1, 0.4, 0.2, 0.1, 0.2], ProbabilityKind::Categorical);
        let triple = |object| Triple {
            subject: EntityId(0),
            relation: RelationId(0),
            object: EntityId(object),
        };
        let scores =
            score_triples(&graph, &scorer, &[triple(3), triple(1)], 1.0, &mut silent()).unwrap();
        // e ties with a, the only other object that is not known; b beats both.
        assert_eq!([scores[0].answer_rank, scores[1].answer_rank], [1.5, 1.0]);
        assert_eq!([scores[0].known_in, scores[1].known_in], [None, Some(Split::Train)]);
        assert!((scores[0].log_probability.exp() - 0.1 / 0.2).abs() < 1e-6);
        assert!((scores[1].log_probability.exp() - 0.4 / 0.6).abs() < 1e-6);
    }

    #[test]
    fn the_probability_that_a_triple_holds_does_not_depend_on_others() {
        let (graph, query) = known();
        let scorer = Constant(vec![0.9, 0.8, 0.9, 0.3, 0.7], ProbabilityKind::Bernoulli);
        let asks = [Ask::new(query)];
        let answers = answer(&graph, &scorer, &asks, &mut silent()).unwrap().remove(0).answers;
        let rounded = |x: f64| (x.exp() * 1e5).round() / 1e5;
        let found: Vec<(u32, f64)> =
            answers.iter().map(|a| (a.object.0, rounded(a.log_probability))).collect();
        assert_eq!(found, [(0, 0.9), (3, 0.3)]);
        let Query { subject, relation } = query;
        let triple = Triple { subject, relation, object: EntityId(1) };
        let score = score_triples(&graph, &scorer, &[triple], 1.0, &mut silent()).unwrap()[0];
        assert!((score.log_probability.exp() - 0.8).abs() < 1e-6);
        assert_eq!(score.answer_rank, 2.0);
        let error = score_triples(&graph, &scorer, &[triple], 2.0, &mut silent()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "temperature 2 is for shares among answers; this model gives the probability that a \
             triple holds"
        );
    }

    /// A model with the weights that a training begins with.
    fn untrained(graph: &Arc<Graph>, output: &str) -> Model {
        let config = Config::parse(&format!("dim = 8\noutput = \"{output}\"")).unwrap();
        let weights = Weights::new(0, Device::Cpu.burn());
        let network = Network::new(&config, &config.domain(graph), weights);
        let best = Best { epoch: 0, valid_mrr: None };
        let trained = Trained { best, updates: 0, epochs: 0, end: End::Stopped, seconds: 0.0 };
        Model::new(Arc::clone(graph), config, network, trained)
    }

    #[test]
    fn threads_that_ask_one_predictor_get_what_one_gets() {
        let splits = ["a r b; b r c; c r d; d q a; a q c; c q e; e r a", "b q d; d r e", "a r d"];
        let graph = Arc::new(graph(splits));
        for output in ["softmax", "mixture", "sigmoid"] {
            let predictor = Predictor::new(untrained(&graph, output));
            let query = |subject, relation| Query {
                subject: EntityId(subject),
                relation: RelationId(relation),
            };
            let candidates: Arc<[bool]> = [true, false, true, true, false].into();
            let ask = |(subject, relation): (u32, u32)| Ask {
                k: 1 + subject as usize,
                known: if relation == 0 { Known::Shown } else { Known::LeftOut },
                candidates: (subject == 2).then(|| Arc::clone(&candidates)),
                ..Ask::new(query(subject, relation))
            };
            let each = (0..5).flat_map(|subject| (0..4).map(move |relation| (subject, relation)));
            let asks: Vec<Ask> = each.map(ask).collect();
            let triples: Vec<Triple> = graph.triples(Split::Train).to_vec();
            let all = || {
                let scores = predictor.score(&triples, None, &mut silent()).unwrap();
                (predictor.answer(&asks).unwrap(), scores)
            };
            let (alone, scored) = all();
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..2)
                    .map(|_| scope.spawn(|| (0..20).map(|_| all()).collect::<Vec<_>>()))
                    .collect();
                for thread in threads {
                    for found in thread.join().unwrap() {
                        assert_eq!(found, (alone.clone(), scored.clone()), "{output}");
                    }
                }
            });
        }
    }

    #[test]
    fn scores_that_are_not_numbers_are_an_error() {
        let (graph, query) = known();
        let scorer = Constant(vec![f32::NAN; 5], ProbabilityKind::Categorical);
        let error = answer(&graph, &scorer, &[Ask::new(query)], &mut silent()).unwrap_err();
        assert_eq!(error.to_string(), "the model gives scores that are not numbers");
    }
}
