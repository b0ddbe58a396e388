//! Which objects are known to answer a query?
//!
//! One index serves training targets, filters of evaluation and degrees.
//! The answers of a query lie side by side: first those of training, then those that validation
//! adds, then those that test adds, so that each use is one slice.
//! It knows ids only; names are the business of the graph.

use std::ops::Range;

use rayon::prelude::*;

use crate::{EntityId, Error, Query, RelationId, Repeats, Split, Triple};

/// The known answers of every query that has any, inverse relations included.
///
/// Queries are numbered: first those over relations, then those over inverse relations,
/// each by subject, then relation.
/// An answer that stands in two splits belongs to the earlier one and is counted once.
#[derive(Clone, Debug)]
pub struct Answers {
    n_entities: usize,
    n_relations: usize,
    /// The first query of each subject: forward, then inverse, then the end. `[2E + 1]`
    subject_start: Vec<u32>,
    /// The relation of each query.
    relations: Vec<RelationId>,
    /// Where the answers of train, valid and test end, for each query;
    /// those of train start where the query before ends.
    ends: Vec<[u32; 3]>,
    /// All answers, ascending within query and split.
    objects: Vec<EntityId>,
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
        let inverse = query.relation.0 as usize >= self.n_relations;
        let queries = self.queries_of(query.subject, inverse);
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

    /// The numbers of all queries about a subject, over relations or over their inverses.
    pub fn queries_of(&self, subject: EntityId, inverse: bool) -> Range<usize> {
        let row = subject.0 as usize + if inverse { self.n_entities } else { 0 };
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

/// Indexes triples, and finds the positions of those that their own split had already.
///
/// A position counts through the concatenation of the splits.
pub(crate) fn index(
    n_entities: usize,
    n_relations: usize,
    triples: &[Vec<Triple>; 3],
) -> Result<(Answers, Vec<u32>, Repeats), Error> {
    // Answers are addressed in both directions, relations are numbered in both.
    let limit = u32::MAX as usize / 2;
    if triples.iter().map(Vec::len).sum::<usize>() > limit {
        return Err(Error::TooMany { what: "triples", limit });
    }
    if n_relations > limit {
        return Err(Error::TooMany { what: "relations", limit });
    }
    let forward = |triple: &Triple| (triple.subject, triple.relation, triple.object);
    let inverse = |triple: &Triple| {
        (triple.object, RelationId(triple.relation.0 + n_relations as u32), triple.subject)
    };
    let splits = SplitEnds::of(triples);
    let n_triples = triples.iter().map(Vec::len).sum();
    let mut answers = Answers {
        n_entities,
        n_relations,
        subject_start: vec![],
        relations: vec![],
        ends: vec![],
        objects: Vec::with_capacity(2 * n_triples),
    };
    // One buffer for both directions, because entries take more memory than the index.
    let mut entries = vec![Entry(0); n_triples];
    let buckets = Buckets::fill(&mut entries, n_entities, triples, forward);
    let repeats = answers.append(&mut entries, &buckets, splits);
    let buckets = Buckets::fill(&mut entries, n_entities, triples, inverse);
    answers.append(&mut entries, &buckets, splits);
    answers.subject_start.push(answers.relations.len() as u32);
    answers.relations.shrink_to_fit();
    answers.ends.shrink_to_fit();
    answers.objects.shrink_to_fit();
    let mut dropped: Vec<u32> = repeats.iter().flat_map(|found| found.dropped.clone()).collect();
    dropped.sort_unstable();
    let repeats = repeats.iter().fold(Repeats::default(), |all, found| all + found.counts);
    Ok((answers, dropped, repeats))
}

impl Answers {
    /// Appends the queries of one direction; entries are in their buckets, in any order there.
    fn append(
        &mut self,
        entries: &mut [Entry],
        buckets: &Buckets,
        splits: SplitEnds,
    ) -> Vec<FoundRepeats> {
        let mut of_bucket = cut(entries, buckets.ranges.iter().map(Range::len));
        let sizes: Vec<(usize, usize)> = of_bucket
            .par_iter_mut()
            .map(|entries| {
                entries.sort_unstable();
                let n_queries = entries.chunk_by(|a, b| a.query() == b.query()).count();
                (n_queries, entries.chunk_by(|a, b| a.triple() == b.triple()).count())
            })
            .collect();
        let (first_query, first_answer) = (self.relations.len(), self.objects.len());
        let n_queries = first_query + sizes.iter().map(|(n_queries, _)| n_queries).sum::<usize>();
        let n_answers = first_answer + sizes.iter().map(|(_, n_answers)| n_answers).sum::<usize>();
        let first_subject = self.subject_start.len();
        self.subject_start.resize(first_subject + self.n_entities, 0);
        self.relations.resize(n_queries, RelationId(0));
        self.ends.resize(n_queries, [0; 3]);
        self.objects.resize(n_answers, EntityId(0));

        let n_queries = || sizes.iter().map(|(n_queries, _)| *n_queries);
        let n_answers = || sizes.iter().map(|(_, n_answers)| *n_answers);
        let starts = cut(&mut self.subject_start[first_subject..], buckets.n_subjects());
        let relations = cut(&mut self.relations[first_query..], n_queries());
        let ends = cut(&mut self.ends[first_query..], n_queries());
        let objects = cut(&mut self.objects[first_answer..], n_answers());
        let (mut next_query, mut next_answer) = (first_query as u32, first_answer as u32);
        let mut parts = vec![];
        for (i, (((starts, relations), ends), objects)) in
            starts.into_iter().zip(relations).zip(ends).zip(objects).enumerate()
        {
            let (first_query, first_answer) = (next_query, next_answer);
            next_query += relations.len() as u32;
            next_answer += objects.len() as u32;
            let first_subject = (i * buckets.width) as u32;
            parts.push(Part {
                first_subject,
                first_query,
                first_answer,
                starts,
                relations,
                ends,
                objects,
            });
        }
        let fill = |(part, entries): (Part, &mut [Entry])| part.fill(entries, splits);
        parts.into_par_iter().zip(of_bucket).map(fill).collect()
    }
}

/// Cuts a slice into parts of the given lengths.
fn cut<T>(mut all: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    let mut parts = vec![];
    for length in lengths {
        let part;
        (part, all) = all.split_at_mut(length);
        parts.push(part);
    }
    parts
}

/// One answer of some subject: subject, relation, object and position, from the highest bits down.
///
/// One wide number sorts in half the time of four fields.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry(u128);

impl Entry {
    fn new(subject: EntityId, relation: RelationId, object: EntityId, position: u32) -> Self {
        let high = u64::from(subject.0) << 32 | u64::from(relation.0);
        let low = u64::from(object.0) << 32 | u64::from(position);
        Self(u128::from(high) << 64 | u128::from(low))
    }

    /// Subject and relation.
    fn query(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Subject, relation and object.
    fn triple(self) -> u128 {
        self.0 >> 32
    }

    fn subject(self) -> EntityId {
        EntityId((self.0 >> 96) as u32)
    }

    fn relation(self) -> RelationId {
        RelationId((self.0 >> 64) as u32)
    }

    fn object(self) -> EntityId {
        EntityId((self.0 >> 32) as u32)
    }

    fn position(self) -> u32 {
        self.0 as u32
    }
}

/// Runs of entries, each of them for as many subjects that follow each other.
///
/// Sorting in two steps, into buckets and within them, keeps every step within the cache.
struct Buckets {
    n_entities: usize,
    /// Subjects per bucket.
    width: usize,
    ranges: Vec<Range<usize>>,
}

impl Buckets {
    /// Writes every triple into its bucket, as `read` turns it.
    fn fill(
        entries: &mut [Entry],
        n_entities: usize,
        triples: &[Vec<Triple>; 3],
        read: impl Fn(&Triple) -> (EntityId, RelationId, EntityId),
    ) -> Self {
        /// About half a megabyte of entries.
        const ENTRIES: usize = 1 << 15;
        /// Writing to more places at a time than this would miss the cache again.
        const MOST: usize = 512;
        let width = n_entities.div_ceil((entries.len() / ENTRIES).clamp(1, MOST)).max(1);
        let mut ranges = vec![0..0; n_entities.div_ceil(width)];
        for triple in triples.iter().flatten() {
            ranges[read(triple).0.0 as usize / width].end += 1;
        }
        let mut start = 0;
        for range in &mut ranges {
            let size = range.end;
            *range = start..start;
            start += size;
        }
        for (position, triple) in triples.iter().flatten().enumerate() {
            let (subject, relation, object) = read(triple);
            let range = &mut ranges[subject.0 as usize / width];
            entries[range.end] = Entry::new(subject, relation, object, position as u32);
            range.end += 1;
        }
        Self { n_entities, width, ranges }
    }

    /// The number of subjects of each bucket: the last may have fewer.
    fn n_subjects(&self) -> impl Iterator<Item = usize> {
        (0..self.ranges.len()).map(|i| self.width.min(self.n_entities - i * self.width))
    }
}

/// Where train and valid end in the concatenation of the splits.
#[derive(Clone, Copy)]
struct SplitEnds {
    train: u32,
    valid: u32,
}

impl SplitEnds {
    fn of(triples: &[Vec<Triple>; 3]) -> Self {
        let train = triples[0].len() as u32;
        Self { train, valid: train + triples[1].len() as u32 }
    }

    fn split_of(self, entry: Entry) -> Split {
        match entry.position() {
            position if position < self.train => Split::Train,
            position if position < self.valid => Split::Valid,
            _ => Split::Test,
        }
    }
}

/// Where the index of one bucket is to be written.
struct Part<'a> {
    first_subject: u32,
    first_query: u32,
    first_answer: u32,
    starts: &'a mut [u32],
    relations: &'a mut [RelationId],
    ends: &'a mut [[u32; 3]],
    objects: &'a mut [EntityId],
}

/// Triples of a bucket that stand more than once.
#[derive(Default)]
struct FoundRepeats {
    /// Positions of those that their own split had already.
    dropped: Vec<u32>,
    counts: Repeats,
}

impl Part<'_> {
    /// Writes the index of sorted entries.
    fn fill(self, entries: &[Entry], splits: SplitEnds) -> FoundRepeats {
        let mut repeats = FoundRepeats::default();
        let (mut n_started, mut n_objects) = (0, 0);
        let queries = entries.chunk_by(|a, b| a.query() == b.query());
        for (i, query) in queries.enumerate() {
            let subject = (query[0].subject().0 - self.first_subject) as usize;
            // Subjects without queries start where the next one does.
            while n_started <= subject {
                self.starts[n_started] = self.first_query + i as u32;
                n_started += 1;
            }
            self.relations[i] = query[0].relation();
            for split in Split::ALL {
                for same in query.chunk_by(|a, b| a.object() == b.object()) {
                    if splits.split_of(same[0]) == split {
                        self.objects[n_objects] = same[0].object();
                        n_objects += 1;
                        if same.len() > 1 {
                            repeats.note(same, splits);
                        }
                    }
                }
                self.ends[i][split as usize] = self.first_answer + n_objects as u32;
            }
        }
        self.starts[n_started..].fill(self.first_query + self.relations.len() as u32);
        repeats
    }
}

impl FoundRepeats {
    /// Counts the entries of one triple that stands more than once.
    fn note(&mut self, same: &[Entry], splits: SplitEnds) {
        let mut is_in = [false; 3];
        for &entry in same {
            let split = splits.split_of(entry) as usize;
            if std::mem::replace(&mut is_in[split], true) {
                self.counts.within[split] += 1;
                self.dropped.push(entry.position());
            }
        }
        match is_in {
            [true, valid, test] => {
                self.counts.train_valid += usize::from(valid);
                self.counts.train_test += usize::from(test);
            }
            [false, true, true] => self.counts.valid_test += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::graph::tests::graph;

    #[test]
    fn each_use_is_one_slice() {
        let graph = graph("a r c; a r b | a r e; b r a | a r d; a q b");
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

    /// The index of random triples equals maps and sets filled one by one.
    #[derive(Default, PartialEq, Debug)]
    struct Plain(BTreeMap<Query, [BTreeSet<EntityId>; 3]>);

    impl Plain {
        fn add(&mut self, query: Query, split: Split, object: EntityId) {
            let sets = self.0.entry(query).or_default();
            if !sets[..split as usize].iter().any(|set| set.contains(&object)) {
                sets[split as usize].insert(object);
            }
        }
    }

    proptest! {
        #[test]
        fn the_index_equals_plain_sets(
            rows in proptest::collection::vec((0..3usize, 0..6u32, 0..3u32, 0..6u32), 0..80)
        ) {
            let mut triples = [vec![], vec![], vec![]];
            for (split, subject, relation, object) in rows {
                triples[split].push(Triple {
                    subject: EntityId(subject),
                    relation: RelationId(relation),
                    object: EntityId(object),
                });
            }
            let mut plain = Plain::default();
            for split in Split::ALL {
                for &Triple { subject, relation, object } in &triples[split as usize] {
                    plain.add(Query { subject, relation }, split, object);
                    let relation = RelationId(relation.0 + 3);
                    plain.add(Query { subject: object, relation }, split, subject);
                }
            }
            let (answers, dropped, repeats) = index(6, 3, &triples).unwrap();
            let mut indexed = Plain::default();
            for number in 0..answers.n_queries() {
                let query = answers.query(number);
                prop_assert_eq!(answers.find(query), Some(number));
                prop_assert_eq!(number < answers.n_forward_queries(), query.relation.0 < 3);
                let sets = Split::ALL.map(|split| {
                    let objects = answers.in_split(number, split);
                    assert!(objects.is_sorted_by(|a, b| a < b));
                    objects.iter().copied().collect()
                });
                indexed.0.insert(query, sets);
            }
            prop_assert_eq!(indexed, plain);
            let distinct: BTreeSet<_> = triples.iter().enumerate()
                .flat_map(|(split, triples)| triples.iter().map(move |triple| (split, triple)))
                .collect();
            let n_triples: usize = triples.iter().map(Vec::len).sum();
            prop_assert_eq!(dropped.len(), n_triples - distinct.len());
            prop_assert_eq!(repeats.within.iter().sum::<usize>(), dropped.len());
        }
    }
}
