//! Answers with names: what do other programs get of an answer?
//!
//! The one place in which the JSON of predictions is made; it changes only on purpose.

use std::fmt;

use fullrank_graph::{Graph, Query, Triple};
use serde::Serialize;

use crate::names::printable;
use crate::predictor::{Answer, Answered, Predictor, TripleScore};
use crate::probability::ProbabilityKind;

/// A query and its answers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Prediction {
    /// What was asked.
    pub query: QueryNames,
    /// The most likely first.
    pub answers: Vec<AnswerNames>,
    /// Known answers among the candidates that were left out.
    pub known_left_out: usize,
    /// What log-probabilities were divided by.
    pub temperature: f64,
    /// What probabilities say.
    pub meaning: ProbabilityKind,
}

/// The names of a query; what is asked for is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueryNames {
    /// The subject, unless it is asked for.
    pub subject: Option<String>,
    /// The relation, never an inverse.
    pub relation: String,
    /// The object, unless it is asked for.
    pub object: Option<String>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerNames {
    /// The entity.
    pub name: String,
    /// Its share among the answers, or the probability that the triple holds.
    pub probability: f64,
    /// The logarithm of it.
    pub log_probability: f64,
    /// The first split that has the fact.
    pub known_in: Option<String>,
}

/// A triple and how likely it is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoredTriple {
    /// As given.
    pub subject: String,
    /// As given.
    pub relation: String,
    /// As given.
    pub object: String,
    /// The object's share among the answers to (subject, relation, ?), or the probability that the
    /// triple holds.
    pub probability: f64,
    /// The logarithm of it.
    pub log_probability: f64,
    /// Its place among all objects that are no other known answers; ties count half.
    pub rank: f64,
    /// The first split that has the triple.
    pub known_in: Option<String>,
}

impl Prediction {
    /// What a predictor answered to a query.
    pub fn new(predictor: &Predictor, query: Query, answered: &Answered) -> Self {
        let graph = predictor.model().graph();
        let answer = |answer: &Answer| AnswerNames {
            name: graph.entities().name(answer.object.0).to_owned(),
            probability: answer.log_probability.exp(),
            log_probability: answer.log_probability,
            known_in: answer.known_in.map(|split| split.to_string()),
        };
        Self {
            query: QueryNames::of(graph, query),
            answers: answered.answers.iter().map(answer).collect(),
            known_left_out: answered.known_left_out,
            temperature: answered.temperature,
            meaning: predictor.model().config().probability(),
        }
    }
}

impl QueryNames {
    /// The names of a query.
    pub fn of(graph: &Graph, query: Query) -> Self {
        let given = Some(graph.entities().name(query.subject.0).to_owned());
        let is_inverse = graph.is_inverse(query.relation);
        let relation = if is_inverse { graph.inverse(query.relation) } else { query.relation };
        let relation = graph.relations().name(relation.0).to_owned();
        match is_inverse {
            true => Self { subject: None, relation, object: given },
            false => Self { subject: given, relation, object: None },
        }
    }
}

impl fmt::Display for QueryNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |name: &Option<String>| printable(name.as_deref().unwrap_or("?"));
        let Self { subject, relation, object } = self;
        write!(f, "({}, {}, {})", place(subject), printable(relation), place(object))
    }
}

impl ScoredTriple {
    /// A triple and its score.
    pub fn new(graph: &Graph, triple: &Triple, score: &TripleScore) -> Self {
        Self {
            subject: graph.entities().name(triple.subject.0).to_owned(),
            relation: graph.relations().name(triple.relation.0).to_owned(),
            object: graph.entities().name(triple.object.0).to_owned(),
            probability: score.log_probability.exp(),
            log_probability: score.log_probability,
            rank: score.answer_rank,
            known_in: score.known_in.map(|split| split.to_string()),
        }
    }
}
