//! Edge order: how does every sum over messages find its terms?
//!
//! Messages are grouped by receiver for the sums, by sender and by relation for the two gradients.
//! A group is added up by one task, term after term in an order that only the facts decide: the
//! bits depend neither on the number of threads nor on how facts were listed.

use std::sync::OnceLock;

use rayon::prelude::*;

use crate::product::Matrix;
use crate::simd;

/// What flows along one edge of a graph.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Message {
    /// The entity it comes from.
    pub sender: u32,
    /// The relation it comes along.
    pub relation: u32,
    /// The entity it reaches.
    pub receiver: u32,
    /// What the message is multiplied by.
    pub factor: f32,
}

/// All messages of a graph, or of one direction of it.
#[derive(Debug)]
pub struct Messages {
    entities: usize,
    relations: usize,
    by_receiver: Groups,
    // Only a gradient needs these two: a model that is asked goes without.
    by_sender: OnceLock<Groups>,
    by_relation: OnceLock<PiecedGroups>,
}

/// Sums, and the terms of each.
#[derive(Debug)]
pub(super) struct Groups {
    /// Where the terms of each sum start, and where the last ones end.
    starts: Vec<usize>,
    terms: Vec<Term>,
}

/// Factor times something made of a row of one table and a row of another.
#[derive(Debug, Clone, Copy)]
struct Term {
    left: u32,
    right: u32,
    factor: f32,
}

/// Groups of which some hold a large share of all terms, as relations do: such a sum is made in
/// pieces of a fixed size, added up in order.
#[derive(Debug)]
pub(super) struct PiecedGroups {
    pieces: Groups,
    /// The group of each piece.
    group_of: Vec<u32>,
    n_groups: usize,
}

/// What terms are made of: rows of two tables.
#[derive(Clone, Copy)]
pub(super) struct Tables<'a> {
    pub(super) left: Matrix<'a>,
    pub(super) right: Matrix<'a>,
}

impl Messages {
    /// Those of a graph with so many entities and relations.
    pub fn new(entities: usize, relations: usize, mut messages: Vec<Message>) -> Self {
        messages.par_sort_unstable_by_key(|m| (m.receiver, m.relation, m.sender));
        let receivers = messages.iter().map(|message| message.receiver);
        let by_receiver = Groups {
            starts: starts(receivers, entities),
            terms: terms(&messages, |m| (m.sender, m.relation)),
        };
        Self {
            entities,
            relations,
            by_receiver,
            by_sender: OnceLock::new(),
            by_relation: OnceLock::new(),
        }
    }

    /// Memory of so many messages in training, in units of an f32: three groupings of terms.
    pub fn n_words(n: usize) -> usize {
        3 * n * size_of::<Term>() / size_of::<f32>()
    }

    /// All messages, receiver after receiver.
    pub fn iter(&self) -> impl Iterator<Item = Message> {
        self.by_receiver.iter().map(|(receiver, term)| Message {
            sender: term.left,
            relation: term.right,
            receiver,
            factor: term.factor,
        })
    }

    /// Terms are a sender and a relation.
    pub(super) fn by_receiver(&self) -> &Groups {
        &self.by_receiver
    }

    /// Terms are a receiver and a relation.
    pub(super) fn by_sender(&self) -> &Groups {
        self.by_sender.get_or_init(|| {
            let mut messages: Vec<Message> = self.iter().collect();
            messages.par_sort_unstable_by_key(|m| (m.sender, m.relation, m.receiver));
            Groups {
                starts: starts(messages.iter().map(|message| message.sender), self.entities),
                terms: terms(&messages, |m| (m.receiver, m.relation)),
            }
        })
    }

    /// Terms are a receiver and a sender.
    pub(super) fn by_relation(&self) -> &PiecedGroups {
        self.by_relation.get_or_init(|| {
            let mut messages: Vec<Message> = self.iter().collect();
            messages.par_sort_unstable_by_key(|m| (m.relation, m.sender, m.receiver));
            let groups = Groups {
                starts: starts(messages.iter().map(|message| message.relation), self.relations),
                terms: terms(&messages, |m| (m.receiver, m.sender)),
            };
            PiecedGroups::of(groups)
        })
    }
}

/// Where each of `n` groups starts among sorted keys, and where the last ends.
fn starts(keys: impl Iterator<Item = u32>, n: usize) -> Vec<usize> {
    let mut starts = vec![0; n + 1];
    for key in keys {
        starts[key as usize + 1] += 1;
    }
    for i in 0..n {
        starts[i + 1] += starts[i];
    }
    starts
}

fn terms(messages: &[Message], rows: impl Fn(&Message) -> (u32, u32)) -> Vec<Term> {
    let term = |message: &Message| {
        let (left, right) = rows(message);
        Term { left, right, factor: message.factor }
    };
    messages.iter().map(term).collect()
}

impl Groups {
    /// Each term, and the group that it belongs to.
    fn iter(&self) -> impl Iterator<Item = (u32, &Term)> {
        self.starts.windows(2).zip(0..).flat_map(|(ends, group)| {
            self.terms[ends[0]..ends[1]].iter().map(move |term| (group, term))
        })
    }

    /// A row of width `dim` per group, to which `add` has added each term: it is given the factor
    /// and a row of the left and of the right table.
    pub(super) fn sums(
        &self,
        tables: Tables,
        dim: usize,
        add: impl Fn(&mut [f32], f32, &[f32], &[f32]) + Sync,
    ) -> Vec<f32> {
        /// Few enough that a task with a few crowded groups does not keep the others waiting.
        const GROUPS_PER_TASK: usize = 32;
        let mut sums = vec![0.0; (self.starts.len() - 1) * dim];
        let tasks = sums.par_chunks_mut(GROUPS_PER_TASK * dim).enumerate();
        tasks.for_each(|(task, sums)| {
            let starts = &self.starts[task * GROUPS_PER_TASK..];
            for (sum, ends) in sums.chunks_exact_mut(dim).zip(starts.windows(2)) {
                for term in &self.terms[ends[0]..ends[1]] {
                    let left = tables.left.row(term.left as usize);
                    let right = tables.right.row(term.right as usize);
                    add(sum, term.factor, left, right);
                }
            }
        });
        sums
    }
}

impl PiecedGroups {
    /// Terms in a piece; part of what decides the bits, so it never changes.
    const PIECE: usize = 512;

    fn of(groups: Groups) -> Self {
        let (mut starts, mut group_of) = (vec![0], Vec::new());
        for (ends, group) in groups.starts.windows(2).zip(0..) {
            for start in (ends[0]..ends[1]).step_by(Self::PIECE) {
                starts.push(ends[1].min(start + Self::PIECE));
                group_of.push(group);
            }
        }
        let n_groups = groups.starts.len() - 1;
        Self { pieces: Groups { starts, terms: groups.terms }, group_of, n_groups }
    }

    /// As [`Groups::sums`].
    pub(super) fn sums(
        &self,
        tables: Tables,
        dim: usize,
        add: impl Fn(&mut [f32], f32, &[f32], &[f32]) + Sync,
    ) -> Vec<f32> {
        let pieces = self.pieces.sums(tables, dim, add);
        let mut sums = vec![0.0; self.n_groups * dim];
        for (group, piece) in self.group_of.iter().zip(pieces.chunks_exact(dim)) {
            simd::add(&mut sums[*group as usize * dim..][..dim], piece);
        }
        sums
    }
}
