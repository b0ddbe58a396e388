//! Score parts: which objects of a query have these scores, where they are not those of all?

use fullrank_graph::EntityId;

/// The scores of the objects from `first` on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScorePart<'a> {
    pub(crate) first: u32,
    pub(crate) scores: &'a [f32],
}

impl<'a> ScorePart<'a> {
    /// The scores of all objects, in parts that fit the cache.
    pub(crate) fn all(row: &'a [f32]) -> impl Iterator<Item = Self> {
        const LEN: usize = 1 << 16;
        (0..).step_by(LEN).zip(row.chunks(LEN)).map(|(first, scores)| Self { first, scores })
    }

    /// The score of an object; nothing if it is not in this part.
    pub(crate) fn score(self, object: EntityId) -> Option<f32> {
        let place = object.0.checked_sub(self.first)?;
        self.scores.get(place as usize).copied()
    }

    /// Object and score.
    pub(crate) fn objects(self) -> impl Iterator<Item = (u32, f32)> + use<'a> {
        (self.first..).zip(self.scores.iter().copied())
    }
}
