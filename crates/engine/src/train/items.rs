//! What does one epoch go through?
//!
//! With `items = "queries"`, every distinct query of the training set once, with all its answers;
//! with `items = "triples"`, every training triple once in each direction.

use std::sync::Arc;

use fullrank_graph::{Graph, Split};

use crate::config::{AnswerWeight, Config, Items};
use crate::encoder::Queries;
use crate::error::Error;
use crate::model::Batch;
use crate::ops::BatchAnswers;

/// The training items of a graph.
#[derive(Debug)]
pub(super) struct ItemList {
    /// The query of each item, as numbered in the graph's answers.
    queries: Vec<u32>,
    /// Which of the query's answers, if an item is a triple.
    answer: Option<Vec<u32>>,
    answer_weight: AnswerWeight,
}

impl ItemList {
    pub(super) fn of(graph: &Graph, config: &Config) -> Result<Self, Error> {
        let answers = graph.answers();
        let mut queries = Vec::new();
        let mut answer = (config.items == Items::Triples).then(Vec::new);
        for number in 0..answers.n_queries() {
            let n_answers = answers.in_split(number, Split::Train).len() as u32;
            match &mut answer {
                Some(answer) => {
                    queries.extend((0..n_answers).map(|_| number as u32));
                    answer.extend(0..n_answers);
                }
                None if n_answers > 0 => queries.push(number as u32),
                None => {}
            }
        }
        if queries.is_empty() {
            return Err(Error::NothingToLearn);
        }
        Ok(Self { queries, answer, answer_weight: config.answer_weight })
    }

    pub(super) fn len(&self) -> usize {
        self.queries.len()
    }

    /// The batch of some items, by their numbers.
    pub(super) fn batch(&self, graph: &Graph, items: &[u32]) -> Batch {
        let (mut subjects, mut relations) = (Vec::new(), Vec::new());
        let mut answers = BatchAnswers::default();
        for (place, item) in (0..).zip(items) {
            let number = self.queries[*item as usize] as usize;
            let query = graph.answers().query(number);
            subjects.push(query.subject.0);
            relations.push(query.relation.0);
            let all = graph.answers().in_split(number, Split::Train);
            let own = match &self.answer {
                Some(answer) => std::slice::from_ref(&all[answer[*item as usize] as usize]),
                None => all,
            };
            let weight = match self.answer_weight {
                AnswerWeight::One => 1.0,
                AnswerWeight::Share => 1.0 / own.len() as f32,
            };
            for object in own {
                answers.queries.push(place);
                answers.objects.push(object.0);
                answers.weights.push(weight);
            }
        }
        let queries = Queries { subjects: subjects.into(), relations: relations.into() };
        Batch { queries, answers: Arc::new(answers) }
    }
}
