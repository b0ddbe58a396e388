//! Random numbers: where do they come from, so that a run repeats and resumes bit for bit?
//!
//! Every use has a generator of its own, made from the seed, the purpose and a counter.
//! Nothing has a state to be saved: update 1,000 draws the same numbers in a run that was
//! interrupted before it as in one that was not.

use std::cell::Cell;

use burn::tensor::{Device, Tensor, TensorData};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// What random numbers are for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    Weights = 1,
    Order = 2,
    Dropout = 3,
    Benchmark = 4,
    Negatives = 5,
    Sketch = 6,
    Thinning = 7,
}

/// The generator for one use: `counters` are, say, the update and the layer.
pub(crate) fn generator(seed: u64, purpose: Purpose, counters: (u64, u64)) -> ChaCha8Rng {
    let mut key = [0; 32];
    for (part, value) in key.chunks_exact_mut(8).zip([seed, purpose as u64, counters.0, counters.1])
    {
        part.copy_from_slice(&value.to_le_bytes());
    }
    ChaCha8Rng::from_seed(key)
}

/// The order in which an epoch visits its items (Fisher and Yates).
pub(crate) fn shuffled(mut items: Vec<u32>, seed: u64, epoch: u64) -> Vec<u32> {
    let mut rng = generator(seed, Purpose::Order, (epoch, 0));
    for i in (1..items.len()).rev() {
        items.swap(i, rng.random_range(0..=i));
    }
    items
}

/// Draws initial weights, tensor after tensor.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Nothing for zeros.
    seed: Option<u64>,
    drawn: u64,
    pub(crate) device: Device,
}

impl Weights {
    pub(crate) fn new(seed: u64, device: Device) -> Self {
        Self { seed: Some(seed), drawn: 0, device }
    }

    /// Zeros, which cost no time: for a model that is about to get its weights from a file.
    pub(crate) fn zeros(device: Device) -> Self {
        Self { seed: None, drawn: 0, device }
    }

    /// Uniform in ±`bound`.
    pub(crate) fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Tensor<D> {
        let Some(seed) = self.seed else { return Tensor::zeros(shape, &self.device) };
        let mut rng = generator(seed, Purpose::Weights, (self.drawn, 0));
        self.drawn += 1;
        let bound = bound as f32;
        let values: Vec<f32> = (0..shape.iter().product::<usize>())
            .map(|_| (rng.random::<f32>() * 2.0 - 1.0) * bound)
            .collect();
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// Xavier uniform with torch's fans of a matrix: bound √(6 / (rows + columns)).
    pub(crate) fn xavier(&mut self, rows: usize, columns: usize) -> Tensor<2> {
        self.uniform([rows, columns], (6.0 / (rows + columns) as f64).sqrt())
    }
}

/// The noise of one update; without it a model is evaluated, not trained.
#[derive(Debug)]
pub(crate) struct Noise {
    seed: u64,
    update: u64,
    drawn: Cell<u64>,
}

impl Noise {
    pub(crate) fn new(seed: u64, update: u64) -> Self {
        Self { seed, update, drawn: Cell::new(0) }
    }

    /// A number for what makes random numbers of its own.
    pub(crate) fn number(&self, purpose: Purpose) -> u64 {
        generator(self.seed, purpose, (self.update, 0)).random()
    }

    /// Sets a share `rate` of values to zero and scales the others by 1 / (1 − rate).
    pub(crate) fn drop<const D: usize>(&self, values: Tensor<D>, rate: f64) -> Tensor<D> {
        if rate == 0.0 {
            return values;
        }
        let mask = self.mask(values.shape().num_elements(), rate);
        let mask = Tensor::<D>::from_data(
            TensorData::new(mask, values.shape()),
            &values.device().without_autodiff(),
        );
        values.mul(Tensor::from_inner(mask))
    }

    /// Zero for a share `rate` of values, 1 / (1 − rate) for the others.
    pub(crate) fn mask(&self, len: usize, rate: f64) -> Vec<f32> {
        /// Values per task; part of what decides the bits, so it never changes.
        const PIECE: usize = 16 * 1024;
        let layer = self.drawn.get();
        self.drawn.set(layer + 1);
        let rng = generator(self.seed, Purpose::Dropout, (self.update, layer));
        // Sixteen random bits a value: the rate is met to within 1 / 65,536.
        let dropped = ((rate * 65_536.0).round() as u32).min(65_535);
        // By the rate that is met, so that the mean is kept exactly.
        let kept = 65_536.0 / (65_536 - dropped) as f32;
        let mut mask = vec![0.0; len];
        mask.par_chunks_mut(PIECE).enumerate().for_each(|(piece, mask)| {
            let mut rng = rng.clone();
            rng.set_stream(piece as u64);
            let mut bits = [0; 128];
            for mask in mask.chunks_mut(bits.len() / 2) {
                rng.fill_bytes(&mut bits);
                for (value, bits) in mask.iter_mut().zip(bits.chunks_exact(2)) {
                    let bits = u32::from(u16::from_le_bytes([bits[0], bits[1]]));
                    *value = if bits < dropped { 0.0 } else { kept };
                }
            }
        });
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    #[test]
    fn xavier_fills_its_bound_evenly() {
        let mut weights = Weights::new(7, Device::flex());
        let first = floats(weights.xavier(300, 100));
        let bound = (6.0_f32 / 400.0).sqrt();
        let largest = first.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
        assert!(largest <= bound && largest > 0.99 * bound);
        let mean = first.iter().sum::<f32>() / first.len() as f32;
        // Four standard errors of the mean of 30,000 such numbers.
        assert!(mean.abs() < 4.0 * bound / (3.0 * 30_000.0_f32).sqrt());
        assert_ne!(first, floats(weights.xavier(300, 100)), "another tensor has other weights");
        let again = floats(Weights::new(7, Device::flex()).xavier(300, 100));
        assert_eq!(first, again);
    }

    #[test]
    fn dropout_keeps_the_mean_and_repeats() {
        let ones = Tensor::<2>::ones([200, 500], &Device::flex());
        let draw = |seed, update| {
            let noise = Noise::new(seed, update);
            let first = floats(noise.drop(ones.clone(), 0.3));
            (first, floats(noise.drop(ones.clone(), 0.3)))
        };
        let (first, second) = draw(1, 5);
        let dropped = first.iter().filter(|x| **x == 0.0).count() as f64 / 100_000.0;
        // Four standard errors of a share of .3 in 100,000.
        assert!((dropped - 0.3).abs() < 4.0 * (0.21_f64 / 100_000.0).sqrt(), "{dropped}");
        assert!(first.iter().all(|x| *x == 0.0 || (x - 1.0 / 0.7).abs() < 1e-4));
        assert_ne!(first, second, "another layer has other zeros");
        assert_ne!(first, draw(1, 6).0, "another update has other zeros");
        assert_eq!(first, draw(1, 5).0);
    }

    #[test]
    fn shuffling_is_fair() {
        // Each of the six orders of three items about a thousand times.
        let mut counts = std::collections::BTreeMap::new();
        for epoch in 0..6000 {
            *counts.entry(shuffled(vec![0, 1, 2], 3, epoch)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
