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

use crate::settings::Init;

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
    Sample = 8,
    Search = 9,
    Resample = 10,
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

/// `n` of the numbers below `len`, ascending; all if there are no more.
pub(crate) fn sample(len: usize, n: usize, seed: u64) -> Vec<u32> {
    let mut rng = generator(seed, Purpose::Sample, (0, 0));
    // Every number is taken with the chance that the rest of the sample still needs it (Fan 1962).
    let mut wanted = n.min(len);
    let taken = (0..len).filter(|number| {
        let is_taken = rng.random_range(0..len - number) < wanted;
        wanted -= usize::from(is_taken);
        is_taken
    });
    taken.map(|number| number as u32).collect()
}

/// Draws initial weights, tensor after tensor.
#[derive(Debug)]
pub(crate) struct Weights {
    /// Nothing for zeros.
    seed: Option<u64>,
    drawn: u64,
    init: Init,
    /// Standard deviation of normal values.
    scale: f64,
    pub(crate) device: Device,
}

impl Weights {
    pub(crate) fn new(seed: u64, device: Device) -> Self {
        Self { seed: Some(seed), ..Self::zeros(device) }
    }

    /// Zeros, which cost no time: for a model that is about to get its weights from a file.
    pub(crate) fn zeros(device: Device) -> Self {
        Self { seed: None, drawn: 0, init: Init::Xavier, scale: 0.0, device }
    }

    /// Has tables of vectors start in another way; `scale` is the standard deviation of normal values.
    pub(crate) fn starting(self, init: Init, scale: f64) -> Self {
        Self { init, scale, ..self }
    }

    /// Uniform in ±`bound`.
    pub(crate) fn uniform<const D: usize>(&mut self, shape: [usize; D], bound: f64) -> Tensor<D> {
        let bound = bound as f32;
        self.draw(shape, |rng| (rng.random::<f32>() * 2.0 - 1.0) * bound)
    }

    /// A table of vectors of entities or relations, as `init` says.
    pub(crate) fn vectors(&mut self, rows: usize, columns: usize) -> Tensor<2> {
        let bound = xavier_bound(rows, columns);
        self.vectors_within([rows, columns], bound)
    }

    /// The same of an encoder whose authors start it uniform in ±`bound`, where that is not Xavier's.
    pub(crate) fn vectors_within(&mut self, shape: [usize; 2], bound: f64) -> Tensor<2> {
        match self.init {
            Init::Xavier => self.uniform(shape, bound),
            Init::XavierTorch => self.xavier(shape[0], shape[1]),
            Init::Normal => {
                let scale = self.scale;
                self.draw(shape, |rng| (scale * normal(rng)) as f32)
            }
        }
    }

    /// `columns` values for each of `n` slices of a tensor `[n, rows, columns]` of `dim` by `dim`, of
    /// an encoder whose authors start it uniform in ±1: PyTorch's fans are those of its first two sizes,
    /// times the third.
    pub(crate) fn core(&mut self, n: usize, dim: usize) -> Tensor<2> {
        let bound = match self.init {
            Init::Xavier | Init::Normal => 1.0,
            Init::XavierTorch => xavier_bound(n * dim, dim * dim),
        };
        self.uniform([n, dim * dim], bound)
    }

    fn draw<const D: usize>(
        &mut self,
        shape: [usize; D],
        mut value: impl FnMut(&mut ChaCha8Rng) -> f32,
    ) -> Tensor<D> {
        let Some(seed) = self.seed else { return Tensor::zeros(shape, &self.device) };
        let mut rng = generator(seed, Purpose::Weights, (self.drawn, 0));
        self.drawn += 1;
        let len = shape.iter().product::<usize>();
        let values: Vec<f32> = (0..len).map(|_| value(&mut rng)).collect();
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    /// Xavier uniform with torch's fans of a matrix: bound √(6 / (rows + columns)); for layers.
    pub(crate) fn xavier(&mut self, rows: usize, columns: usize) -> Tensor<2> {
        self.uniform([rows, columns], xavier_bound(rows, columns))
    }
}

/// Of Xavier uniform, with torch's fans of a matrix.
fn xavier_bound(rows: usize, columns: usize) -> f64 {
    (6.0 / (rows + columns) as f64).sqrt()
}

/// A number of the standard normal distribution (Box and Muller 1958).
fn normal(rng: &mut ChaCha8Rng) -> f64 {
    // In (0, 1], whose logarithm is finite.
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
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
    fn a_sample_has_its_size_and_takes_each_number_as_often() {
        assert_eq!(sample(5, 9, 1), [0, 1, 2, 3, 4]);
        let mut counts = [0; 5];
        for seed in 0..5000 {
            let taken = sample(5, 2, seed);
            assert!(taken.len() == 2 && taken[0] < taken[1]);
            taken.iter().for_each(|number| counts[*number as usize] += 1);
        }
        // 2,000 each, within five standard deviations of a share of .4.
        assert!(counts.iter().all(|count| (1827..2173).contains(count)), "{counts:?}");
    }

    #[test]
    fn vectors_start_as_init_says() {
        let start = |init, rows, columns| {
            let mut weights = Weights::new(3, Device::flex()).starting(init, 0.01);
            floats(weights.vectors_within([rows, columns], 2.0))
        };
        let largest = |values: &[f32]| values.iter().fold(0.0_f32, |a, x| a.max(x.abs()));
        let own = largest(&start(Init::Xavier, 40, 250));
        assert!(own <= 2.0 && own > 1.99);
        let torch = largest(&start(Init::XavierTorch, 40, 250));
        let bound = (6.0_f32 / 290.0).sqrt();
        assert!(torch <= bound && torch > 0.99 * bound);
        let normal = start(Init::Normal, 40, 250);
        let share = |below: f32| {
            normal.iter().filter(|x| x.abs() < below).count() as f64 / normal.len() as f64
        };
        // Within one and two standard deviations; 10,000 draws, five standard errors.
        assert!((share(0.01) - 0.6827).abs() < 0.024, "{}", share(0.01));
        assert!((share(0.02) - 0.9545).abs() < 0.011, "{}", share(0.02));
        let mean = normal.iter().sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 5e-4, "{mean}");
    }

    #[test]
    fn a_core_has_the_fans_of_a_tensor_of_three_sizes() {
        let largest = |init| {
            let mut weights = Weights::new(3, Device::flex()).starting(init, 0.01);
            floats(weights.core(5, 40)).into_iter().fold(0.0_f32, |a, x| a.max(x.abs()))
        };
        assert!(largest(Init::Xavier) > 0.99 && largest(Init::Xavier) <= 1.0);
        // Fan in 40·40, fan out 5·40.
        let bound = (6.0_f32 / 1800.0).sqrt();
        let torch = largest(Init::XavierTorch);
        assert!(torch <= bound && torch > 0.99 * bound);
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
