//! Negative samples: which wrong answers does a batch learn from, where all of them would be too many?
//!
//! Some entities, drawn once for all queries of a batch, so that their scores are one block.
//! Every entity is as likely as any other, and none is drawn twice. An entity that is a known
//! training answer of a query counts as nothing for that query, and as wrong for all others.
//! What is learned from them is the business of `sampled`.

use std::collections::BTreeSet;
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use rand::RngExt;

use crate::random::{Purpose, generator};

/// Entities drawn for a batch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Negatives {
    /// Ascending; N of them.
    pub(crate) objects: Arc<[u32]>,
    /// 1 where an entity is wrong for a query, 0 where it is a known answer, `[B, N]`.
    is_wrong: Vec<f32>,
    /// Wrong entities that each drawn wrong one stands for, `[B]`; 1 where none was drawn.
    stands_for: Vec<f32>,
}

/// From where negative samples are drawn: the same seed and update draw the same.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) entities: usize,
    pub(crate) seed: u64,
    pub(crate) update: u64,
}

impl Negatives {
    /// So many, or all entities if there are no more.
    ///
    /// `known` gives the training answers of each query of the batch, without repetition.
    pub(crate) fn draw(n: usize, draw: Draw, known: impl Iterator<Item = Vec<u32>>) -> Self {
        let Draw { entities, seed, update } = draw;
        let n = n.min(entities);
        let objects = distinct(n, entities, seed, update);
        let (mut is_wrong, mut stands_for) = (Vec::new(), Vec::new());
        for known in known {
            let start = is_wrong.len();
            is_wrong.resize(start + n, 1.0);
            let mut wrong = n;
            for place in known.iter().filter_map(|object| objects.binary_search(object).ok()) {
                is_wrong[start + place] = 0.0;
                wrong -= 1;
            }
            stands_for.push((entities - known.len()).max(1) as f32 / wrong.max(1) as f32);
        }
        Self { objects: objects.into(), is_wrong, stands_for }
    }

    fn n_queries(&self) -> usize {
        self.stands_for.len()
    }

    /// 1 for a wrong entity and 0 for a known answer, `[B, N]`.
    pub(super) fn is_wrong(&self, device: &Device) -> Tensor<2> {
        let shape = [self.n_queries(), self.objects.len()];
        constant(TensorData::new(self.is_wrong.clone(), shape), device)
    }

    /// What is added to a score so that only wrong entities count: 0, or far below any score.
    pub(super) fn penalty(&self, device: &Device) -> Tensor<2> {
        /// Not −∞, of which a row of known answers alone would make a NaN.
        const NEVER: f64 = 1e30;
        self.is_wrong(device).sub_scalar(1.0).mul_scalar(NEVER)
    }

    /// log of how many wrong entities each drawn one stands for, `[B, 1]`.
    pub(super) fn log_stands_for(&self, device: &Device) -> Tensor<2> {
        let logs: Vec<f32> = self.stands_for.iter().map(|n| n.ln()).collect();
        constant(TensorData::new(logs, [self.n_queries(), 1]), device)
    }
}

/// A tensor that nothing is learned of, beside others on the same device.
pub(super) fn constant<const D: usize>(data: TensorData, device: &Device) -> Tensor<D> {
    let tensor = Tensor::from_data(data, &device.clone().without_autodiff());
    if device.is_autodiff() { Tensor::from_inner(tensor) } else { tensor }
}

/// Some of the numbers below `below`, ascending (Floyd's method: every set is as likely).
fn distinct(n: usize, below: usize, seed: u64, update: u64) -> Vec<u32> {
    let mut rng = generator(seed, Purpose::Negatives, (update, 0));
    let mut chosen = BTreeSet::new();
    for last in below - n..below {
        let number = rng.random_range(0..=last as u32);
        if !chosen.insert(number) {
            chosen.insert(last as u32);
        }
    }
    chosen.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(negatives: usize, entities: usize, seed: u64, update: u64) -> Negatives {
        let known = [vec![1, 3], vec![], (0..entities as u32).collect()];
        Negatives::draw(negatives, Draw { entities, seed, update }, known.into_iter())
    }

    #[test]
    fn the_same_seed_and_update_draw_the_same() {
        let first = draw(5, 100, 7, 3);
        assert_eq!(first, draw(5, 100, 7, 3));
        assert_ne!(first.objects, draw(5, 100, 7, 4).objects, "another update");
        assert_ne!(first.objects, draw(5, 100, 8, 3).objects, "another seed");
        assert_eq!(first.objects.len(), 5);
        assert!(first.objects.is_sorted_by(|a, b| a < b), "{:?}", first.objects);
    }

    #[test]
    fn every_entity_is_drawn_as_often_as_any_other() {
        let mut counts = [0; 10];
        for update in 0..2000 {
            draw(3, 10, 1, update).objects.iter().for_each(|o| counts[*o as usize] += 1);
        }
        // 600 each; five standard deviations of √(2000 · .3 · .7) ≈ 20.
        assert!(counts.iter().all(|count| (500..700).contains(count)), "{counts:?}");
    }

    #[test]
    fn known_answers_count_as_nothing_and_the_others_stand_for_all_wrong_ones() {
        let all = draw(9, 6, 1, 1);
        assert_eq!(*all.objects, [0, 1, 2, 3, 4, 5], "no more than there are");
        assert_eq!(all.is_wrong[..6], [1.0, 0.0, 1.0, 0.0, 1.0, 1.0]);
        assert_eq!(all.is_wrong[6..], [[1.0; 6], [0.0; 6]].concat());
        assert_eq!(all.stands_for, [1.0, 1.0, 1.0]);
        let some = draw(4, 100, 2, 1);
        // Neither 1 nor 3 is among them: 98 wrong entities for 4.
        assert!(!some.objects.contains(&1) && !some.objects.contains(&3));
        assert_eq!(some.stands_for[..2], [24.5, 25.0]);
    }
}
