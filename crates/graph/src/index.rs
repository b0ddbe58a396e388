//! Indexing: how is the index of answers made?
//!
//! Every triple becomes an entry, a wide number that sorts by subject, relation and object.
//! Entries are dealt to buckets of neighbouring subjects, sorted there, and written to their places.
//! What the index is for is told in `answers`.

use std::ops::Range;

use rayon::prelude::*;

use crate::{Answers, EntityId, Error, RelationId, Repeats, Split, Triple};

/// Triples that are sorted, but not yet known to belong to a split.
///
/// A position counts through the concatenation of the lists of triples.
pub(crate) struct Indexer<const N: usize> {
    n_entities: usize,
    n_relations: usize,
    pub(crate) lists: [Vec<Triple>; N],
    entries: Vec<Entry>,
    buckets: Buckets,
}

/// An index, and what was found on the way.
pub(crate) struct Indexed<const N: usize> {
    /// Without the triples that their own split had already.
    pub(crate) lists: [Vec<Triple>; N],
    pub(crate) answers: Answers,
    pub(crate) repeats: Repeats,
}

impl<const N: usize> Indexer<N> {
    pub(crate) fn new(
        n_entities: usize,
        n_relations: usize,
        lists: [Vec<Triple>; N],
    ) -> Result<Self, Error> {
        // Answers are addressed in both directions, relations are numbered in both.
        let limit = u32::MAX as usize / 2;
        let n_triples = lists.iter().map(Vec::len).sum();
        if n_triples > limit {
            return Err(Error::TooMany { what: "triples", limit });
        }
        if n_relations > limit {
            return Err(Error::TooMany { what: "relations", limit });
        }
        let forward = |triple: &Triple| (triple.subject, triple.relation, triple.object);
        let mut entries = vec![Entry(0); n_triples];
        let buckets = Buckets::fill(&mut entries, n_entities, &lists, forward);
        buckets.sort(&mut entries);
        Ok(Self { n_entities, n_relations, lists, entries, buckets })
    }

    /// The same without triples that stand before already, in any list, and their number.
    pub(crate) fn without_repeated(mut self) -> Result<(Self, usize), Error> {
        let same = self.entries.par_chunk_by(|a, b| a.triple() == b.triple());
        let mut repeated: Vec<u32> = same
            .filter(|same| same.len() > 1)
            .flat_map_iter(|same| same[1..].iter().map(|entry| entry.position() as u32))
            .collect();
        if !repeated.is_empty() {
            repeated.sort_unstable();
            drop_positions(&mut self.lists, &repeated);
            // Rare, so the simple way: all other positions have changed too.
            self = Self::new(self.n_entities, self.n_relations, self.lists)?;
        }
        Ok((self, repeated.len()))
    }

    /// The index, given the split of the triple at each position.
    pub(crate) fn finish(mut self, split_of: &[Split]) -> Indexed<N> {
        let n_relations = self.n_relations as u32;
        let inverse = |triple: &Triple| {
            (triple.object, RelationId(triple.relation.0 + n_relations), triple.subject)
        };
        let mut answers = Answers {
            n_entities: self.n_entities,
            n_relations: self.n_relations,
            subject_start: vec![],
            relations: vec![],
            ends: vec![],
            objects: Vec::with_capacity(2 * self.entries.len()),
        };
        let found = append(&mut answers, &mut self.entries, &self.buckets, split_of);
        // The same buffer again, because entries take more memory than the index.
        let buckets = Buckets::fill(&mut self.entries, self.n_entities, &self.lists, inverse);
        buckets.sort(&mut self.entries);
        append(&mut answers, &mut self.entries, &buckets, split_of);
        answers.subject_start.push(answers.relations.len() as u32);
        answers.relations.shrink_to_fit();
        answers.ends.shrink_to_fit();
        answers.objects.shrink_to_fit();

        // Both directions have found the same.
        let repeats = found.iter().fold(Repeats::default(), |all, found| all + found.counts);
        let mut dropped: Vec<u32> = found.into_iter().flat_map(|found| found.dropped).collect();
        dropped.sort_unstable();
        drop_positions(&mut self.lists, &dropped);
        Indexed { lists: self.lists, answers, repeats }
    }
}

/// Removes triples by their position; `dropped` ascends.
fn drop_positions(lists: &mut [Vec<Triple>], dropped: &[u32]) {
    let mut dropped = dropped.iter().peekable();
    let mut position = 0;
    for list in lists {
        list.retain(|_| {
            let keep = dropped.next_if_eq(&&position).is_none();
            position += 1;
            keep
        });
        list.shrink_to_fit();
    }
}

/// Appends the queries of one direction, whose entries are sorted.
fn append(
    answers: &mut Answers,
    entries: &mut [Entry],
    buckets: &Buckets,
    split_of: &[Split],
) -> Vec<FoundRepeats> {
    let of_bucket = cut(entries, buckets.sizes());
    let sizes: Vec<(usize, usize)> = of_bucket
        .par_iter()
        .map(|entries| {
            let n_queries = entries.chunk_by(|a, b| a.query() == b.query()).count();
            (n_queries, entries.chunk_by(|a, b| a.triple() == b.triple()).count())
        })
        .collect();
    let n_queries = || sizes.iter().map(|(n_queries, _)| *n_queries);
    let n_answers = || sizes.iter().map(|(_, n_answers)| *n_answers);
    let first_subject = answers.subject_start.len();
    let (mut first_query, mut first_answer) = (answers.relations.len(), answers.objects.len());
    answers.subject_start.resize(first_subject + answers.n_entities, 0);
    answers.relations.resize(first_query + n_queries().sum::<usize>(), RelationId(0));
    answers.ends.resize(answers.relations.len(), [0; 3]);
    answers.objects.resize(first_answer + n_answers().sum::<usize>(), EntityId(0));

    let starts = cut(&mut answers.subject_start[first_subject..], buckets.n_subjects());
    let relations = cut(&mut answers.relations[first_query..], n_queries());
    let ends = cut(&mut answers.ends[first_query..], n_queries());
    let objects = cut(&mut answers.objects[first_answer..], n_answers());
    let mut parts = vec![];
    for (i, (((starts, relations), ends), objects)) in
        starts.into_iter().zip(relations).zip(ends).zip(objects).enumerate()
    {
        let first_subject = (i * buckets.width) as u32;
        let first = (first_query as u32, first_answer as u32);
        first_query += relations.len();
        first_answer += objects.len();
        let (first_query, first_answer) = first;
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
    let fill = |(part, entries): (Part, &mut [Entry])| part.fill(entries, split_of);
    parts.into_par_iter().zip(of_bucket).map(fill).collect()
}

/// Cuts a slice into parts of the given lengths.
pub(crate) fn cut<T>(mut all: &mut [T], lengths: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
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
/// One wide number sorts faster than four fields.
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

    fn position(self) -> usize {
        self.0 as u32 as usize
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
        lists: &[Vec<Triple>],
        read: impl Fn(&Triple) -> (EntityId, RelationId, EntityId),
    ) -> Self {
        /// About half a megabyte of entries.
        const ENTRIES: usize = 1 << 15;
        /// Writing to more places at a time than this would miss the cache again.
        const MOST: usize = 512;
        let width = n_entities.div_ceil((entries.len() / ENTRIES).clamp(1, MOST)).max(1);
        let mut ranges = vec![0..0; n_entities.div_ceil(width)];
        for triple in lists.iter().flatten() {
            ranges[read(triple).0.0 as usize / width].end += 1;
        }
        let mut start = 0;
        for range in &mut ranges {
            let size = range.end;
            *range = start..start;
            start += size;
        }
        for (position, triple) in lists.iter().flatten().enumerate() {
            let (subject, relation, object) = read(triple);
            let range = &mut ranges[subject.0 as usize / width];
            entries[range.end] = Entry::new(subject, relation, object, position as u32);
            range.end += 1;
        }
        Self { n_entities, width, ranges }
    }

    fn sort(&self, entries: &mut [Entry]) {
        cut(entries, self.sizes()).into_par_iter().for_each(<[Entry]>::sort_unstable);
    }

    /// The number of entries of each bucket.
    fn sizes(&self) -> impl Iterator<Item = usize> {
        self.ranges.iter().map(Range::len)
    }

    /// The number of subjects of each bucket: the last may have fewer.
    fn n_subjects(&self) -> impl Iterator<Item = usize> {
        (0..self.ranges.len()).map(|i| self.width.min(self.n_entities - i * self.width))
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
    fn fill(self, entries: &[Entry], split_of: &[Split]) -> FoundRepeats {
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
                    if split_of[same[0].position()] == split {
                        self.objects[n_objects] = same[0].object();
                        n_objects += 1;
                        if same.len() > 1 {
                            repeats.note(same, split_of);
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
    fn note(&mut self, same: &[Entry], split_of: &[Split]) {
        let mut is_in = [false; 3];
        for &entry in same {
            let split = split_of[entry.position()] as usize;
            if std::mem::replace(&mut is_in[split], true) {
                self.counts.within[split] += 1;
                self.dropped.push(entry.position() as u32);
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
    use crate::Query;

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
            let split_of: Vec<Split> = Split::ALL.iter()
                .flat_map(|&split| vec![split; triples[split as usize].len()])
                .collect();
            let given = triples.clone();
            let indexer = Indexer::new(6, 3, triples).unwrap();
            let Indexed { lists, answers, repeats } = indexer.finish(&split_of);
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
            for split in 0..3 {
                let distinct: BTreeSet<&Triple> = given[split].iter().collect();
                prop_assert_eq!(lists[split].iter().collect::<BTreeSet<_>>(), distinct.clone());
                prop_assert_eq!(lists[split].len(), distinct.len());
                prop_assert_eq!(repeats.within[split], given[split].len() - distinct.len());
            }
            let (indexer, n_repeated) =
                Indexer::new(6, 3, [given.concat()]).unwrap().without_repeated().unwrap();
            prop_assert_eq!(indexer.lists[0].len(), answers.n_answers() / 2);
            prop_assert_eq!(n_repeated + indexer.lists[0].len(), given.concat().len());
        }
    }
}
