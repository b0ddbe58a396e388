//! Training items: what does one epoch go through?
//!
//! Every distinct query of the training set once, with all its answers, in both directions.
//! Or, with `answers_per_item`, in several items of at most so many answers each: a few queries of
//! a large graph have thousands of answers, and a batch with one of them in it would be about
//! little else. With one answer per item, an item is a triple (1-vs-All).

use std::sync::Arc;

use fullrank_graph::{EntityId, Graph, Query, RelationId, Split};

use crate::batch::Batch;
use crate::config::Config;
use crate::encoder::Queries;
use crate::error::Error;
use crate::ops::BatchAnswers;
use crate::output::{Draw, Negatives};
use crate::settings::AnswerWeight;

/// The training items of a graph.
#[derive(Debug)]
pub(crate) struct ItemList {
    items: Vec<Item>,
    answer_weight: AnswerWeight,
}

/// A query and some of its training answers.
#[derive(Debug, Clone, Copy)]
struct Item {
    /// As numbered in the graph's answers.
    query: u32,
    start: u32,
    end: u32,
}

impl ItemList {
    pub(crate) fn of(graph: &Graph, config: &Config) -> Result<Self, Error> {
        let answers = graph.answers();
        let most = config.training.answers_per_item.unwrap_or(usize::MAX);
        let mut items = Vec::new();
        for query in 0..answers.n_queries() {
            let n_answers = answers.in_split(query, Split::Train).len();
            // Pieces of nearly equal length, so that none is left with a single answer.
            let pieces = n_answers.div_ceil(most);
            items.extend((0..pieces).map(|piece| Item {
                query: query as u32,
                start: (piece * n_answers / pieces) as u32,
                end: ((piece + 1) * n_answers / pieces) as u32,
            }));
        }
        if items.is_empty() {
            return Err(Error::NothingToLearn);
        }
        Ok(Self { items, answer_weight: config.training.answer_weight })
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// The batch of some items, by their numbers.
    pub(crate) fn batch(&self, graph: &Graph, numbers: &[u32]) -> Batch {
        let (mut subjects, mut relations) = (Vec::new(), Vec::new());
        let mut answers = BatchAnswers::default();
        for (place, number) in (0..).zip(numbers) {
            let Item { query, start, end } = self.items[*number as usize];
            let all = graph.answers().in_split(query as usize, Split::Train);
            let query = graph.answers().query(query as usize);
            subjects.push(query.subject.0);
            relations.push(query.relation.0);
            let weight = match self.answer_weight {
                AnswerWeight::One => 1.0,
                AnswerWeight::Share => 1.0 / all.len() as f32,
            };
            for object in &all[start as usize..end as usize] {
                answers.queries.push(place);
                answers.objects.push(object.0);
                answers.weights.push(weight);
            }
        }
        let queries = Queries { subjects: subjects.into(), relations: relations.into() };
        Batch { queries, answers: Arc::new(answers), negatives: None }
    }
}

/// What a batch's answers are compared with, if it is not all entities.
pub(crate) fn draw_negatives(
    graph: &Graph,
    queries: &Queries,
    config: &Config,
    update: u64,
) -> Option<Negatives> {
    let known = |(subject, relation): (&u32, &u32)| {
        let query = Query { subject: EntityId(*subject), relation: RelationId(*relation) };
        let number = graph.answers().find(query).expect("an item has answers");
        let answers = graph.answers().in_split(number, Split::Train);
        answers.iter().map(|object| object.0).collect()
    };
    let known = queries.subjects.iter().zip(queries.relations.iter()).map(known);
    let draw = Draw { entities: graph.entities().len(), seed: config.training.seed, update };
    Some(Negatives::draw(config.training.negatives?, draw, known))
}
