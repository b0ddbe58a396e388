//! Which number does a name have, and which name a number?
//!
//! Names are kept in one string, so a million of them are three allocations.
//! The table from names to ids is our own for one reason: loading a large graph is one cache miss
//! after the other, unless many look-ups wait for memory at the same time. See [`Names::warm`].

use std::hash::BuildHasher;
use std::hint::black_box;

use hashbrown::DefaultHashBuilder;

use crate::Error;

/// Distinct names with dense ids, in the order in which they were first seen.
#[derive(Clone, Default)]
pub struct Names {
    text: String,
    /// Where each name ends in `text`; it starts where the one before ends.
    ends: Vec<usize>,
    /// Open addressing with linear probing; the length is a power of two, or zero.
    slots: Vec<Slot>,
    hasher: DefaultHashBuilder,
}

/// An id under the hash of its name.
#[derive(Clone, Copy)]
struct Slot {
    id: u32,
    /// The upper half of the hash; the lower half chose the slot.
    tag: u32,
}

impl Slot {
    const EMPTY: Slot = Slot { id: u32::MAX, tag: 0 };
}

impl Names {
    /// The largest number of names: the last id means "none".
    const LIMIT: usize = u32::MAX as usize;

    /// The number of names.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no name yet.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The name with this id.
    ///
    /// # Panics
    /// If there is no such id.
    pub fn name(&self, id: u32) -> &str {
        &self.text[self.start(id)..self.ends[id as usize]]
    }

    /// The id of a name.
    pub fn find(&self, name: &str) -> Option<u32> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = self.slots[self.probe(name, self.hash(name))];
        (slot.id != Slot::EMPTY.id).then_some(slot.id)
    }

    /// All names in the order of their ids.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.ends.len()).map(|id| self.name(id as u32))
    }

    /// The id of a name, which is added when it is new.
    ///
    /// # Errors
    /// When there are as many names as 32-bit ids.
    pub fn intern(&mut self, name: &str) -> Result<u32, Error> {
        self.intern_hashed(name, self.hash(name))
    }

    /// What `intern` gives for each name; much quicker for many names in a large table.
    ///
    /// # Errors
    /// As for [`Names::intern`].
    pub(crate) fn intern_all<'a>(
        &mut self,
        names: impl IntoIterator<Item = &'a str>,
        mut use_id: impl FnMut(u32),
    ) -> Result<(), Error> {
        /// As many as there are misses in flight, and some more.
        const BATCH: usize = 64;
        let mut names = names.into_iter();
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            batch.clear();
            batch.extend(names.by_ref().take(BATCH).map(|name| (name, self.hash(name))));
            if batch.is_empty() {
                return Ok(());
            }
            self.warm(&batch);
            for &(name, hash) in &batch {
                use_id(self.intern_hashed(name, hash)?);
            }
        }
    }

    /// Reads what looking up these names will need, so that it is in the cache then.
    ///
    /// Each loop has only loads that do not wait for each other.
    fn warm(&self, batch: &[(&str, u64)]) {
        if self.slots.is_empty() {
            return;
        }
        let first_slot = |hash: u64| &self.slots[hash as usize & (self.slots.len() - 1)];
        let mut ids = [Slot::EMPTY.id; 64];
        for (id, &(_, hash)) in ids.iter_mut().zip(batch) {
            *id = first_slot(hash).id;
        }
        let mut starts = [0; 64];
        for (start, &id) in starts.iter_mut().zip(&ids) {
            *start = if id == Slot::EMPTY.id { 0 } else { self.start(id) };
        }
        let text = self.text.as_bytes();
        let sum =
            starts.iter().map(|&start| text.get(start).copied().unwrap_or(0)).fold(0, |a, b| a ^ b);
        black_box(sum);
    }

    fn intern_hashed(&mut self, name: &str, hash: u64) -> Result<u32, Error> {
        // At most half full, so that a probe is short.
        if self.slots.len() < 2 * (self.ends.len() + 1) {
            self.resize_slots((4 * (self.ends.len() + 1)).next_power_of_two());
        }
        let place = self.probe(name, hash);
        if self.slots[place].id != Slot::EMPTY.id {
            return Ok(self.slots[place].id);
        }
        if self.ends.len() == Self::LIMIT {
            return Err(Error::TooMany { what: "distinct names", limit: Self::LIMIT });
        }
        let id = self.ends.len() as u32;
        self.text.push_str(name);
        self.ends.push(self.text.len());
        self.slots[place] = Slot { id, tag: tag(hash) };
        Ok(id)
    }

    /// The slot that holds a name, or the empty one where it belongs.
    fn probe(&self, name: &str, hash: u64) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = hash as usize & mask;
        loop {
            let slot = self.slots[place];
            let is_it =
                slot.tag == tag(hash) && slot.id != Slot::EMPTY.id && self.name(slot.id) == name;
            if slot.id == Slot::EMPTY.id || is_it {
                return place;
            }
            place = (place + 1) & mask;
        }
    }

    fn resize_slots(&mut self, n_slots: usize) {
        self.slots = vec![Slot::EMPTY; n_slots];
        let mask = n_slots - 1;
        for id in 0..self.ends.len() as u32 {
            let hash = self.hash(self.name(id));
            let mut place = hash as usize & mask;
            while self.slots[place].id != Slot::EMPTY.id {
                place = (place + 1) & mask;
            }
            self.slots[place] = Slot { id, tag: tag(hash) };
        }
    }

    /// Gives back the memory that growing has left over.
    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.ends.shrink_to_fit();
        self.resize_slots((2 * (self.ends.len() + 1)).next_power_of_two());
    }

    fn hash(&self, name: &str) -> u64 {
        self.hasher.hash_one(name)
    }

    fn start(&self, id: u32) -> usize {
        if id == 0 { 0 } else { self.ends[id as usize - 1] }
    }
}

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_the_order_of_first_appearance() {
        let mut names = Names::default();
        assert_eq!(names.find("b"), None);
        let ids: Vec<u32> =
            ["b", "a", "b", "", "ü"].iter().map(|name| names.intern(name).unwrap()).collect();
        assert_eq!(ids, [0, 1, 0, 2, 3]);
        assert_eq!(names.iter().collect::<Vec<_>>(), ["b", "a", "", "ü"]);
        assert_eq!(names.find("ü"), Some(3));
        assert_eq!(names.find("c"), None);
    }

    #[test]
    fn interning_many_at_once_is_interning_one_by_one() {
        let texts: Vec<String> = (0..5000).map(|i| (i * i % 1013).to_string()).collect();
        let (mut one_by_one, mut at_once) = (Names::default(), Names::default());
        let expected: Vec<u32> =
            texts.iter().map(|text| one_by_one.intern(text).unwrap()).collect();
        let mut ids = vec![];
        at_once.intern_all(texts.iter().map(String::as_str), |id| ids.push(id)).unwrap();
        assert_eq!(ids, expected);
        assert!(at_once.iter().eq(one_by_one.iter()));
    }

    #[test]
    fn shrinking_loses_no_name() {
        let mut names = Names::default();
        for i in 0..1000 {
            names.intern(&i.to_string()).unwrap();
        }
        names.shrink();
        assert!((0..1000).all(|i| names.find(&i.to_string()) == Some(i)));
    }
}
