//! Answers: which objects are known to answer a query?
//!
//! One index serves training targets, filters of evaluation and degrees.
//! The answers of a query lie side by side: first those of training, then those that validation
//! adds, then those that test adds, so that each use is one slice.
//! It knows ids only; names are the business of the graph, making the index that of `index`.

use std::ops::Range;

use crate::{Direction, EntityId, Query, RelationId, Split};

/// The known answers of every query that has any, inverse relations included.
///
/// Queries are numbered: first those over relations, then those over inverse relations,
/// each by subject, then relation.
/// An answer that stands in two splits belongs to the earlier one and is counted once.
#[derive(Clone, Debug)]
pub struct Answers {
    pub(crate) n_entities: usize,
    pub(crate) n_relations: usize,
    /// The first query of each subject: forward, then inverse, then the end. `[2E + 1]`
    pub(crate) subject_start: Vec<u32>,
    /// The relation of each query.
    pub(crate) relations: Vec<RelationId>,
    /// Where the answers of train, valid and test end, for each query;
    /// those of train start where the query before ends.
    pub(crate) ends: Vec<[u32; 3]>,
    /// All answers, ascending within query and split.
    pub(crate) objects: Vec<EntityId>,
}

impl Answers {
    /// The number of queries with an answer in any split, both directions.
    pub fn n_queries(&self) -> usize {
        self.relations.len()
    }

    /// The number of queries that are not over an inverse relation; they have the first numbers.
    pub fn n_forward_queries(&self) -> usize {
        self.subject_start[self.n_entities] as usize
    }

    /// The number of answers of all queries: twice the number of distinct triples.
    pub fn n_answers(&self) -> usize {
        self.objects.len()
    }

    /// The number of a query, if it has an answer in any split.
    pub fn find(&self, query: Query) -> Option<usize> {
        let direction = match query.relation.0 as usize {
            relation if relation < self.n_relations => Direction::Forward,
            _ => Direction::Inverse,
        };
        let queries = self.queries_of(query.subject, direction);
        let at = self.relations[queries.clone()].binary_search(&query.relation).ok()?;
        Some(queries.start + at)
    }

    /// The query with this number.
    pub fn query(&self, number: usize) -> Query {
        // Subjects without queries share their start with the next one; the last of equals counts.
        let row = self.subject_start.partition_point(|&start| start as usize <= number) - 1;
        let subject = EntityId((row % self.n_entities) as u32);
        Query { subject, relation: self.relations[number] }
    }

    /// The relation of the query with this number; quicker than the whole query.
    pub fn relation(&self, number: usize) -> RelationId {
        self.relations[number]
    }

    /// The numbers of all queries about a subject in one direction.
    pub fn queries_of(&self, subject: EntityId, direction: Direction) -> Range<usize> {
        let row = direction as usize * self.n_entities + subject.0 as usize;
        self.subject_start[row] as usize..self.subject_start[row + 1] as usize
    }

    /// The answers that a split adds to those of the splits before it.
    pub fn in_split(&self, number: usize, split: Split) -> &[EntityId] {
        let end = self.ends[number][split as usize] as usize;
        let start = match split {
            Split::Train => self.start(number),
            Split::Valid => self.ends[number][0] as usize,
            Split::Test => self.ends[number][1] as usize,
        };
        &self.objects[start..end]
    }

    /// The answers of this split and the ones before it: the filter when it is evaluated.
    pub fn up_to(&self, number: usize, split: Split) -> &[EntityId] {
        &self.objects[self.start(number)..self.ends[number][split as usize] as usize]
    }

    /// The number of answers of each query over all splits, in the order of the queries.
    pub fn degrees(&self) -> impl ExactSizeIterator<Item = usize> {
        (0..self.n_queries()).map(|number| self.up_to(number, Split::Test).len())
    }

    /// The memory the index takes, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(self.subject_start.as_slice())
            + size_of_val(self.relations.as_slice())
            + size_of_val(self.ends.as_slice())
            + size_of_val(self.objects.as_slice())
    }

    fn start(&self, number: usize) -> usize {
        if number == 0 { 0 } else { self.ends[number - 1][2] as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Graph;

    #[test]
    fn each_use_is_one_slice() {
        let graph = Graph::from_text("a r c; a r b | a r e; b r a | a r d; a q b");
        let answers = graph.answers();
        let names = |objects: &[EntityId]| -> Vec<String> {
            objects.iter().map(|&object| graph.entities().name(object.0).to_owned()).collect()
        };
        let query = Query { subject: EntityId(0), relation: RelationId(0) };
        let number = answers.find(query).unwrap();
        assert_eq!(answers.query(number), query);
        assert_eq!(names(answers.in_split(number, Split::Train)), ["c", "b"]);
        assert_eq!(names(answers.in_split(number, Split::Valid)), ["e"]);
        assert_eq!(names(answers.in_split(number, Split::Test)), ["d"]);
        assert_eq!(names(answers.up_to(number, Split::Train)), ["c", "b"]);
        assert_eq!(names(answers.up_to(number, Split::Valid)), ["c", "b", "e"]);
        assert_eq!(names(answers.up_to(number, Split::Test)), ["c", "b", "e", "d"]);
        // (c, r⁻¹, ?) is answered by a.
        let inverse = Query { subject: EntityId(1), relation: RelationId(2) };
        assert_eq!(names(answers.up_to(answers.find(inverse).unwrap(), Split::Test)), ["a"]);
        assert_eq!(answers.find(Query { subject: EntityId(1), relation: RelationId(0) }), None);
    }
}
