//! The k best: which objects of a part score the highest, and of several parts together?

use super::ScorePart;

/// The k best objects of a part of all, the best first; equal ones by id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TopK {
    k: usize,
    /// Score and object.
    best: Vec<(f32, u32)>,
}

impl TopK {
    /// Of the objects of a part, as far as they may be chosen.
    pub(crate) fn of(part: ScorePart, k: usize, may_be_chosen: impl Fn(u32) -> bool) -> Self {
        let objects = part.objects().filter(|(object, _)| may_be_chosen(*object));
        Self { k, best: objects.map(|(object, score)| (score, object)).collect() }.cut()
    }

    /// The k best of both parts.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.best.extend(other.best);
        self.cut()
    }

    /// Score and object, the best first.
    pub(crate) fn best(self) -> impl Iterator<Item = (f32, u32)> {
        self.best.into_iter()
    }

    fn cut(mut self) -> Self {
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if self.k < self.best.len() {
            self.best.select_nth_unstable_by(self.k, order);
            self.best.truncate(self.k);
        }
        self.best.sort_unstable_by(order);
        self
    }
}

#[cfg(test)]
mod tests {
    use fullrank_graph::EntityId;

    use super::*;
    use crate::evaluate::Rivals;

    /// Scores with ties, within parts and across them.
    fn scores() -> Vec<f32> {
        (0..1000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32 / 16.0).collect()
    }

    /// Three uneven parts, and a cut through the ties.
    fn parts(row: &[f32]) -> [ScorePart<'_>; 3] {
        [0..7, 7..640, 640..1000].map(|range: std::ops::Range<usize>| ScorePart {
            first: range.start as u32,
            scores: &row[range],
        })
    }

    #[test]
    fn the_best_of_three_parts_are_the_best_of_all() {
        let row = scores();
        let may = |object: u32| !object.is_multiple_of(5);
        let mut expected: Vec<(f32, u32)> =
            (0..).zip(&row).filter(|(object, _)| may(*object)).map(|(o, s)| (*s, o)).collect();
        expected.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for k in [0, 1, 10, 700, 2000] {
            let merged = parts(&row).map(|part| TopK::of(part, k, may)).into_iter();
            let merged = merged.reduce(TopK::merge).unwrap();
            assert!(merged.best().eq(expected.iter().copied().take(k)), "{k}");
        }
    }

    #[test]
    fn ranks_over_three_parts_are_those_over_all() {
        let row = scores();
        let known: Vec<EntityId> = [3, 8, 500, 641, 999].map(EntityId).to_vec();
        for object in [0, 6, 7, 8, 639, 640, 999].map(EntityId) {
            let score = row[object.0 as usize];
            let others = |is: fn(f32, f32) -> bool| {
                let all = (0..).map(EntityId).zip(&row);
                let all = all.filter(|(other, _)| *other != object && !known.contains(other));
                all.filter(|(_, other)| is(**other, score)).count() as u32
            };
            let expected = Rivals { above: others(|a, b| a > b), beside: others(|a, b| a == b) };
            let merged = parts(&row).map(|part| Rivals::in_part(part, object, score, &known));
            assert_eq!(merged.into_iter().reduce(Rivals::merge), Some(expected));
            assert_eq!(Rivals::among(&row, object, &known), expected);
        }
    }
}
