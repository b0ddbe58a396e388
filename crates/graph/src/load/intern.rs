//! Interning: which id does each mention of a name get?
//!
//! A large graph mentions millions of names, in no order, and looking each up in one table is one
//! cache miss after the other. So mentions are dealt to shards by their hash, each shard has a
//! table that fits the cache, and the ids are put together in the end.
//! Ids follow the order of first appearance, whatever the number of threads or pieces.

use std::hash::BuildHasher;
use std::sync::{Mutex, PoisonError};

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
    names: Vec<Mention>,
}

#[derive(Clone, Copy)]
struct Mention {
    /// Where the name ends in the text; once it has one, its early id.
    end_or_id: u32,
    /// Its place among all mentions of the piece.
    number: u32,
}

impl Mentions {
    pub(super) fn push(&mut self, name: &str) {
        let shard = &mut self.shards[shard_of(&self.hasher, name)];
        shard.text.push_str(name);
        let end_or_id = shard.text.len() as u32;
        shard.names.push(Mention { end_or_id, number: self.n_mentions });
        self.n_mentions += 1;
        self.n_bytes += name.len();
    }

    /// Tells the early id of each mention, in no order: the place of the mention, then the id.
    pub(super) fn each_id(&self, mut tell: impl FnMut(usize, EarlyId)) {
        for mention in self.shards.iter().flat_map(|shard| &shard.names) {
            tell(mention.number as usize, EarlyId(mention.end_or_id));
        }
    }

    /// Whether the next name should go to the next piece.
    pub(super) fn is_full(&self) -> bool {
        self.n_bytes >= super::PIECE_BYTES
    }
}

fn shard_of(hasher: &DefaultHashBuilder, name: &str) -> usize {
    // Not the bits by which tables choose their slots.
    (hasher.hash_one(name) >> 32) as usize % SHARDS
}

/// Gives ids to names, piece after piece.
pub(super) struct Interner {
    shards: Vec<Shard>,
    n_mentions: u64,
    hasher: DefaultHashBuilder,
    pool: Mutex<Vec<Mentions>>,
}

/// The names with certain hashes.
#[derive(Default)]
struct Shard {
    names: Names,
    /// The place of the first mention of each name among all mentions.
    firsts: Vec<u64>,
}

/// An id that is unique, but not yet in the order of first appearance.
#[derive(Clone, Copy)]
pub(super) struct EarlyId(u32);

impl EarlyId {
    fn new(shard: usize, id: u32) -> Result<Self, Error> {
        let limit = u32::MAX as usize / SHARDS;
        match id as usize <= limit {
            true => Ok(Self(id * SHARDS as u32 + shard as u32)),
            false => Err(Error::TooMany { what: "distinct names", limit: limit * SHARDS }),
        }
    }

    fn shard(self) -> usize {
        self.0 as usize % SHARDS
    }

    fn id(self) -> usize {
        self.0 as usize / SHARDS
    }

    /// The bits, to be kept where the id will be.
    pub(super) fn bits(self) -> u32 {
        self.0
    }

    pub(super) fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

impl Interner {
    pub(super) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Self {
            shards,
            n_mentions: 0,
            hasher: DefaultHashBuilder::default(),
            pool: Mutex::default(),
        }
    }

    /// A list to collect mentions in; an old one, if there is one, because new memory is slow.
    pub(super) fn mentions(&self) -> Mentions {
        let old = self.pool.lock().unwrap_or_else(PoisonError::into_inner).pop();
        old.unwrap_or_else(|| Mentions {
            shards: vec![ShardMentions::default(); SHARDS],
            n_mentions: 0,
            n_bytes: 0,
            hasher: self.hasher.clone(),
        })
    }

    /// Gives ids to all mentions in the pieces that come next.
    ///
    /// # Errors
    /// When there are more names than 32-bit ids.
    pub(super) fn intern(&mut self, pieces: &mut [Mentions]) -> Result<(), Error> {
        let start_of = |piece: &Mentions| {
            let start = self.n_mentions;
            self.n_mentions += u64::from(piece.n_mentions);
            start
        };
        let starts: Vec<u64> = pieces.iter().map(start_of).collect();
        let mut by_shard: Vec<Vec<&mut ShardMentions>> = (0..SHARDS).map(|_| vec![]).collect();
        for piece in pieces {
            for (all, mentions) in by_shard.iter_mut().zip(&mut piece.shards) {
                all.push(mentions);
            }
        }
        self.shards.par_iter_mut().zip(by_shard).enumerate().try_for_each(
            |(number, (shard, mentions))| {
                for (mentions, &start) in mentions.into_iter().zip(&starts) {
                    shard.intern(number, mentions, start)?;
                }
                Ok(())
            },
        )
    }

    /// Takes lists back that are no longer needed.
    pub(super) fn recycle(&mut self, pieces: Vec<Mentions>) {
        let pool = self.pool.get_mut().unwrap_or_else(PoisonError::into_inner);
        for mut piece in pieces {
            for shard in &mut piece.shards {
                shard.text.clear();
                shard.names.clear();
            }
            (piece.n_mentions, piece.n_bytes) = (0, 0);
            pool.push(piece);
        }
    }

    /// All names in the order of first appearance, and their places in it.
    ///
    /// # Errors
    /// When there are more names than 32-bit ids.
    pub(super) fn finish(self) -> Result<(Names, FinalIds), Error> {
        let mut firsts: Vec<(u64, EarlyId)> = vec![];
        for (number, shard) in self.shards.iter().enumerate() {
            for (id, &first) in shard.firsts.iter().enumerate() {
                firsts.push((first, EarlyId::new(number, id as u32)?));
            }
        }
        firsts.par_sort_unstable_by_key(|&(first, _)| first);
        let name = |id: EarlyId| self.shards[id.shard()].names.name(id.id() as u32);
        let names = Names::from_distinct(firsts.iter().map(|&(_, id)| name(id)))?;
        let mut ids: Vec<Vec<u32>> =
            self.shards.iter().map(|shard| vec![0; shard.names.len()]).collect();
        for (place, (_, id)) in firsts.into_iter().enumerate() {
            ids[id.shard()][id.id()] = place as u32;
        }
        Ok((names, FinalIds(ids)))
    }
}

impl Shard {
    fn intern(
        &mut self,
        number: usize,
        mentions: &mut ShardMentions,
        start: u64,
    ) -> Result<(), Error> {
        let mut name_start = 0;
        for mention in &mut mentions.names {
            let end = mention.end_or_id as usize;
            let id = self.names.intern(&mentions.text[name_start..end])?;
            name_start = end;
            if id as usize == self.firsts.len() {
                self.firsts.push(start + u64::from(mention.number));
            }
            mention.end_or_id = EarlyId::new(number, id)?.0;
        }
        Ok(())
    }
}

/// The places of names in the order of first appearance. `[shard][id]`
pub(super) struct FinalIds(Vec<Vec<u32>>);

impl FinalIds {
    pub(super) fn of(&self, id: EarlyId) -> u32 {
        self.0[id.shard()][id.id()]
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
        let mut interner = Interner::new();
        let mut ids = vec![];
        for batch in text.chunks(1400) {
            let mut pieces: Vec<Mentions> = batch
                .chunks(700)
                .map(|names| {
                    let mut mentions = interner.mentions();
                    names.iter().for_each(|name| mentions.push(name));
                    mentions
                })
                .collect();
            interner.intern(&mut pieces).unwrap();
            for piece in &pieces {
                let mut of_piece = vec![EarlyId(0); piece.n_mentions as usize];
                piece.each_id(|place, id| of_piece[place] = id);
                ids.extend(of_piece);
            }
            interner.recycle(pieces);
        }
        let (names, final_ids) = interner.finish().unwrap();
        let ids: Vec<u32> = ids.into_iter().map(|id| final_ids.of(id)).collect();
        assert_eq!(ids, expected);
        assert!(names.iter().eq(plain.iter()));
    }
}
