//! The graph: triples of named entities and relations, in three splits, immutable once built.
//!
//! Names, the triples of each split in the order of their file, and one index over all of them.
//! A graph is immutable once built; reading files is left to `load`, cutting into splits to `split`.

use std::fmt;

use crate::index::{Indexed, Indexer};
use crate::split::{self, Cut, CutOptions};
use crate::{Answers, Error, Names};

/// An entity: its place among [`Graph::entities`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntityId(pub u32);

/// A relation or the inverse of one.
///
/// Below the number of relations it is a place among [`Graph::relations`];
/// above it, the inverse of the relation that many places lower.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RelationId(pub u32);

/// A fact: this subject stands in this relation to this object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Triple {
    /// Who the fact is about.
    pub subject: EntityId,
    /// How the two are related; never an inverse.
    pub relation: RelationId,
    /// Whom the subject is related to.
    pub object: EntityId,
}

/// A question: which objects complete (subject, relation, ?)
///
/// Asking for subjects is a query over the inverse relation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Query {
    /// Whom the question is about.
    pub subject: EntityId,
    /// A relation or the inverse of one.
    pub relation: RelationId,
}

/// Which way a query goes through triples.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From subject to objects, over a relation.
    Forward,
    /// From object to subjects, over the inverse of a relation.
    Inverse,
}

/// What a triple is used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Split {
    /// Learned from.
    Train,
    /// Held out to choose settings and the moment to stop.
    Valid,
    /// Held out to be measured on, once.
    Test,
}

impl Split {
    /// All splits, in the order in which they come everywhere.
    pub const ALL: [Split; 3] = [Split::Train, Split::Valid, Split::Test];
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Split::Train => "train",
            Split::Valid => "valid",
            Split::Test => "test",
        })
    }
}

/// How often the input said the same thing twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repeats {
    /// Triples dropped because their own split had them already, per split.
    pub within: [usize; 3],
    /// Triples of training that stand in validation too; they are kept in both.
    pub train_valid: usize,
    /// Triples of training that stand in test too.
    pub train_test: usize,
    /// Triples of validation that stand in test too, and not in training.
    pub valid_test: usize,
}

impl std::ops::Add for Repeats {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            within: std::array::from_fn(|split| self.within[split] + other.within[split]),
            train_valid: self.train_valid + other.train_valid,
            train_test: self.train_test + other.train_test,
            valid_test: self.valid_test + other.valid_test,
        }
    }
}

/// A knowledge graph, ready to be learned from.
#[derive(Clone, Debug)]
pub struct Graph {
    entities: Names,
    relations: Names,
    triples: [Vec<Triple>; 3],
    answers: Answers,
    repeats: Repeats,
}

impl Graph {
    /// A graph of the triples of training, validation and test, in this order.
    ///
    /// Repeated triples are dropped within a split and counted.
    ///
    /// # Errors
    /// When there are more triples than a 32-bit index can address in both directions.
    ///
    /// # Panics
    /// If a triple has an id that has no name.
    pub fn from_triples(
        entities: Names,
        relations: Names,
        triples: [Vec<Triple>; 3],
    ) -> Result<Self, Error> {
        let splits = Split::ALL.iter().zip(&triples);
        let split_of: Vec<Split> = splits
            .flat_map(|(&split, triples)| std::iter::repeat_n(split, triples.len()))
            .collect();
        let indexer = Indexer::new(entities.len(), relations.len(), triples)?;
        let Indexed { lists: triples, answers, repeats } = indexer.finish(&split_of);
        Ok(Self { entities, relations, triples, answers, repeats })
    }

    /// A graph of triples that belong to no split yet, and how they were cut into splits.
    ///
    /// Repeated triples are dropped and counted as training's.
    ///
    /// # Errors
    /// As for [`Graph::from_triples`], and when PyKEEN's way cannot cut them: too many triples, or
    /// too small a share for training.
    ///
    /// # Panics
    /// If a triple has an id that has no name.
    pub fn from_uncut_triples(
        entities: Names,
        relations: Names,
        triples: Vec<Triple>,
        options: &CutOptions,
    ) -> Result<(Self, Cut), Error> {
        let indexer = Indexer::new(entities.len(), relations.len(), [triples])?;
        let (indexer, n_repeated) = indexer.without_repeated()?;
        let (split_of, cut) = split::assign(&entities, &relations, &indexer.lists[0], options)?;
        let Indexed { lists: [all], answers, .. } = indexer.finish(&split_of);
        let size = |split| split_of.iter().filter(|&&other| other == split).count();
        let mut triples = Split::ALL.map(|split| Vec::with_capacity(size(split)));
        for (triple, split) in all.into_iter().zip(split_of) {
            triples[split as usize].push(triple);
        }
        let repeats = Repeats { within: [n_repeated, 0, 0], ..Repeats::default() };
        Ok((Self { entities, relations, triples, answers, repeats }, cut))
    }

    /// A small graph written in a line, for examples and tests: triples of three words, with `;`
    /// between them and `|` between the splits.
    ///
    /// ```
    /// use fullrank_graph::{Graph, Split};
    ///
    /// let graph = Graph::from_text("ann knows bob; bob knows cid | ann knows cid");
    /// assert_eq!(graph.entities().len(), 3);
    /// assert_eq!(graph.triples(Split::Valid).len(), 1);
    /// ```
    ///
    /// # Panics
    /// If a triple is not of three words, or there are more than three splits.
    pub fn from_text(text: &str) -> Self {
        let (mut entities, mut relations) = (Names::default(), Names::default());
        let mut triples = [vec![], vec![], vec![]];
        let id = |names: &mut Names, name| names.intern(name).expect("a line has few names");
        for (split, part) in text.split('|').enumerate() {
            for triple in part.split(';').filter(|triple| !triple.trim().is_empty()) {
                let words: Vec<&str> = triple.split_whitespace().collect();
                let [subject, relation, object] = words[..] else {
                    panic!("expected subject, relation and object, found `{}`", triple.trim());
                };
                triples[split].push(Triple {
                    subject: EntityId(id(&mut entities, subject)),
                    relation: RelationId(id(&mut relations, relation)),
                    object: EntityId(id(&mut entities, object)),
                });
            }
        }
        Self::from_triples(entities, relations, triples).expect("a line has few triples")
    }

    /// The names of the entities.
    pub fn entities(&self) -> &Names {
        &self.entities
    }

    /// The names of the relations; inverses have none of their own.
    pub fn relations(&self) -> &Names {
        &self.relations
    }

    /// The distinct triples of one split, in the order of its file.
    pub fn triples(&self, split: Split) -> &[Triple] {
        &self.triples[split as usize]
    }

    /// The number of distinct triples over all splits.
    pub fn n_triples(&self) -> usize {
        self.answers.n_answers() / 2
    }

    /// The index from queries of both directions to their answers.
    pub fn answers(&self) -> &Answers {
        &self.answers
    }

    /// What was said twice.
    pub fn repeats(&self) -> Repeats {
        self.repeats
    }

    /// The relation that holds from object to subject where this one holds from subject to object.
    pub fn inverse(&self, relation: RelationId) -> RelationId {
        let n_relations = self.relations.len() as u32;
        RelationId(if relation.0 < n_relations {
            relation.0 + n_relations
        } else {
            relation.0 - n_relations
        })
    }

    /// Whether this is the inverse of a relation, so that a query over it asks for subjects.
    pub fn is_inverse(&self, relation: RelationId) -> bool {
        relation.0 as usize >= self.relations.len()
    }

    /// The memory that triples and index take, in bytes; names come on top.
    pub fn heap_bytes(&self) -> usize {
        let triples = self.triples.iter().map(|split| size_of_val(split.as_slice()));
        triples.sum::<usize>() + self.answers.heap_bytes()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The triples of a split as text.
    pub(crate) fn show(graph: &Graph, split: Split) -> Vec<String> {
        let (entities, relations) = (graph.entities(), graph.relations());
        graph
            .triples(split)
            .iter()
            .map(|triple| {
                let (subject, object) = (triple.subject.0, triple.object.0);
                let relation = relations.name(triple.relation.0);
                format!("{} {relation} {}", entities.name(subject), entities.name(object))
            })
            .collect()
    }

    #[test]
    fn repeated_triples_are_dropped_within_a_split_and_counted_across_splits() {
        let graph = Graph::from_text(
            "b r c; a r b; b r c; b r c; a r b | a r b; a r d; a r d | a r d; b r c",
        );
        assert_eq!(show(&graph, Split::Train), ["b r c", "a r b"]);
        assert_eq!(show(&graph, Split::Valid), ["a r b", "a r d"]);
        assert_eq!(show(&graph, Split::Test), ["a r d", "b r c"]);
        assert_eq!(
            graph.repeats(),
            Repeats { within: [3, 1, 0], train_valid: 1, train_test: 1, valid_test: 1 }
        );
        assert_eq!(graph.n_triples(), 3);
    }

    #[test]
    fn the_inverse_of_the_inverse_is_the_relation() {
        let graph = Graph::from_text("a r b; a q b; a p b");
        for id in 0..6 {
            let relation = RelationId(id);
            assert_ne!(graph.inverse(relation), relation);
            assert_eq!(graph.is_inverse(relation), id >= 3);
            assert_eq!(graph.inverse(graph.inverse(relation)), relation);
        }
    }
}
