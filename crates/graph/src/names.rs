//! The name table: which number does a name have, and which name a number?
//!
//! Names are kept in one string, so a million of them are three allocations.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::Error;

/// Distinct names with dense ids, in the order in which they were first seen.
#[derive(Clone, Default)]
pub struct Names {
    text: String,
    /// Where each name ends in `text`; it starts where the one before ends.
    ends: Vec<usize>,
    /// Ids by the hash of their name.
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl Names {
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
        name_at(&self.text, &self.ends, id)
    }

    /// The id of a name.
    pub fn find(&self, name: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        self.table.find(hash, |&id| self.name(id) == name).copied()
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
        let hash = self.hasher.hash_one(name);
        let Self { text, ends, table, .. } = self;
        if let Some(&id) = table.find(hash, |&id| name_at(text, ends, id) == name) {
            return Ok(id);
        }
        self.push(name, hash)
    }

    /// The memory they take, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.text.capacity() + size_of_val(self.ends.as_slice()) + self.table.allocation_size()
    }

    /// Names that are known to be distinct, in the order of their ids.
    pub(crate) fn from_distinct<'a>(
        names: impl ExactSizeIterator<Item = &'a str>,
    ) -> Result<Self, Error> {
        let mut all = Self::default();
        all.ends.reserve_exact(names.len());
        all.table.reserve(names.len(), |_| unreachable!("the table is empty"));
        for name in names {
            all.push(name, all.hasher.hash_one(name))?;
        }
        all.text.shrink_to_fit();
        Ok(all)
    }

    fn push(&mut self, name: &str, hash: u64) -> Result<u32, Error> {
        let id = u32::try_from(self.ends.len())
            .map_err(|_| Error::TooMany { what: "distinct names", limit: u32::MAX as usize })?;
        let Self { text, ends, table, hasher } = self;
        text.push_str(name);
        ends.push(text.len());
        table.insert_unique(hash, id, |&other| hasher.hash_one(name_at(text, ends, other)));
        Ok(id)
    }
}

impl std::fmt::Debug for Names {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A function of the parts, so that the table can be changed while the names are read.
fn name_at<'a>(text: &'a str, ends: &[usize], id: u32) -> &'a str {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] };
    &text[start..ends[id]]
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
    fn distinct_names_are_found_again() {
        let texts: Vec<String> = (0..1000).map(|i| i.to_string()).collect();
        let names = Names::from_distinct(texts.iter().map(String::as_str)).unwrap();
        assert!((0..1000).all(|i| names.find(&i.to_string()) == Some(i)));
    }
}
