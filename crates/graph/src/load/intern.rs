//! Which id does each mention of a name get?
//!
//! A large graph mentions millions of names, in no order, and looking each up in one table is one
//! cache miss after the other. So mentions are dealt to shards by their hash, each shard has a
//! table that fits the cache, and the ids are put together in the end.
//! Ids follow the order of first appearance, whatever the number of threads or pieces.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use rayon::prelude::*;

use crate::{Error, Names};

/// Enough that the table of a shard fits the cache for a few million names.
const SHARDS: usize = 128;

/// The names mentioned in one piece of the input, in order.
pub(super) struct Mentions {
    shards: Vec<ShardMentions>,
    n_mentions: u32,
    n_bytes: usize,
    hasher: DefaultHashBuilder,
}

/// Those of them that belong to one shard.
///
/// Copied, because a shard that read them where they stand would wait for memory at every name.
#[derive(Clone, Default)]
struct ShardMentions {
    text: String,
    /// Where each name ends in `text`, and its place among all mentions of the piece.
    names: Vec<(u32, u32)>,
}

impl Mentions {
    /// No mentions yet; pieces that belong together have the same hasher.
    pub(super) fn new(hasher: DefaultHashBuilder) -> Self {
        let shards = vec![ShardMentions::default(); SHARDS];
        Self { shards, n_mentions: 0, n_bytes: 0, hasher }
    }

    pub(super) fn push(&mut self, name: &str) {
        // Not the bits by which tables choose their slots.
        let shard = (self.hasher.hash_one(name) >> 32) as usize % SHARDS;
        let shard = &mut self.shards[shard];
        shard.text.push_str(name);
        shard.names.push((shard.text.len() as u32, self.n_mentions));
        self.n_mentions += 1;
        self.n_bytes += name.len();
    }

    /// Whether the next name should go to the next piece.
    pub(super) fn is_full(&self) -> bool {
        self.n_bytes >= super::PIECE_BYTES
    }
}

/// Distinct names of all pieces, and the id of every mention.
///
/// # Errors
/// When there are more names than 32-bit ids.
pub(super) fn intern(pieces: Vec<Mentions>) -> Result<(Names, MentionIds), Error> {
    let n_mentions = pieces.iter().map(|piece| piece.n_mentions as usize).collect();
    let mut shards: Vec<Shard> =
        by_shard(pieces).into_par_iter().map(Shard::intern).collect::<Result<_, Error>>()?;

    // The first mention of every name, in the order of the input.
    let mut firsts: Vec<First> = shards
        .iter_mut()
        .enumerate()
        .flat_map(|(shard, table)| {
            let shard = shard as u32;
            let first = move |(id, place)| First { place, shard, id: id as u32 };
            std::mem::take(&mut table.firsts).into_iter().enumerate().map(first)
        })
        .collect();
    firsts.par_sort_unstable();
    let name = |first: &First| shards[first.shard as usize].names.name(first.id);
    let names = Names::from_distinct(firsts.iter().map(name))?;
    let mut new_ids: Vec<Vec<u32>> =
        shards.iter().map(|shard| vec![0; shard.names.len()]).collect();
    for (id, first) in firsts.iter().enumerate() {
        new_ids[first.shard as usize][first.id as usize] = id as u32;
    }
    let mentions = shards.into_iter().map(|shard| shard.mentions).collect();
    Ok((names, MentionIds { mentions, new_ids, n_mentions }))
}

/// The ids of all mentions.
pub(super) struct MentionIds {
    /// Id within the shard and number of each mention. `[shard][piece]`
    mentions: Vec<Vec<Vec<(u32, u32)>>>,
    /// Ids of names by those within the shard.
    new_ids: Vec<Vec<u32>>,
    n_mentions: Vec<usize>,
}

impl MentionIds {
    /// The ids of the mentions of a piece, in their order.
    pub(super) fn of_piece(&self, piece: usize) -> Vec<u32> {
        let mut ids = vec![0; self.n_mentions[piece]];
        for (mentions, new_ids) in self.mentions.iter().zip(&self.new_ids) {
            for &(id, number) in &mentions[piece] {
                ids[number as usize] = new_ids[id as usize];
            }
        }
        ids
    }
}

/// All mentions of each shard, per piece.
fn by_shard(pieces: Vec<Mentions>) -> Vec<Vec<ShardMentions>> {
    let mut shards: Vec<Vec<ShardMentions>> = vec![vec![]; SHARDS];
    for piece in pieces {
        for (shard, mentions) in shards.iter_mut().zip(piece.shards) {
            shard.push(mentions);
        }
    }
    shards
}

/// The first mention of a name. The order of the fields is the order of sorting.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct First {
    /// Piece and number of the mention.
    place: (u32, u32),
    shard: u32,
    id: u32,
}

/// The names with certain hashes.
struct Shard {
    names: Names,
    /// Where each name is first mentioned: the piece and the number of the mention.
    firsts: Vec<(u32, u32)>,
    /// The id within the shard and the number of each mention, per piece.
    mentions: Vec<Vec<(u32, u32)>>,
}

impl Shard {
    fn intern(pieces: Vec<ShardMentions>) -> Result<Self, Error> {
        let mut shard = Self { names: Names::default(), firsts: vec![], mentions: vec![] };
        for (piece, ShardMentions { text, names: mut mentions }) in pieces.into_iter().enumerate() {
            let mut start = 0;
            // The id takes the place of the name's end: there are many mentions.
            for (end, number) in &mut mentions {
                let name = &text[start..*end as usize];
                start = *end as usize;
                *end = shard.names.intern(name)?;
                if *end as usize == shard.firsts.len() {
                    shard.firsts.push((piece as u32, *number));
                }
            }
            shard.mentions.push(mentions);
        }
        Ok(shard)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_interning_one_by_one() {
        let text: Vec<String> = (0..3000u64).map(|i| (i * i % 1013).to_string()).collect();
        let mut plain = Names::default();
        let expected: Vec<u32> = text.iter().map(|name| plain.intern(name).unwrap()).collect();
        let hasher = DefaultHashBuilder::default();
        let pieces = text
            .chunks(700)
            .map(|names| {
                let mut mentions = Mentions::new(hasher.clone());
                names.iter().for_each(|name| mentions.push(name));
                mentions
            })
            .collect();
        let (names, ids) = intern(pieces).unwrap();
        let ids: Vec<u32> = (0..5).flat_map(|piece| ids.of_piece(piece)).collect();
        assert_eq!(ids, expected);
        assert!(names.iter().eq(plain.iter()));
    }
}
