//! Bootstrap intervals: where would a mean lie, had others been drawn?
//!
//! Clusters are drawn with replacement, as many as there are, and the mean over the members of those
//! drawn is made anew, many times; the interval has the middle 95 % of these means (Efron 1979, its
//! percentiles). The members of a cluster stay together, for they are alike: the answers of a query, or
//! those of a relation.
//!
//! Sums of each cluster come first, so that a resample costs a product per cluster, whatever its size.
//! All means see the same resamples.

use rand::RngExt;
use rayon::prelude::*;
use serde::Serialize;

use crate::error::Error;
use crate::progress::{Event, Progress, Signal};
use crate::random::{Purpose, generator};

/// The middle 95 % of a mean's resamples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Its 2.5th percentile.
    pub low: f64,
    /// Its 97.5th percentile.
    pub high: f64,
}

/// Clusters of values: of each how many members it has, and their sum, once for every mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Clusters {
    /// Members of each cluster.
    pub sizes: Vec<f64>,
    /// Of every mean, the sum of each cluster.
    pub sums: Vec<Vec<f64>>,
}

/// Resamples that are drawn side by side.
const LANES: usize = 8;

impl Clusters {
    /// The means over all members.
    pub fn means(&self) -> Vec<f64> {
        let size: f64 = self.sizes.iter().sum();
        self.sums.iter().map(|sums| sums.iter().sum::<f64>() / size).collect()
    }

    /// Clusters of these clusters, which are numbered by `groups`, up to `n_groups`.
    pub fn merged(&self, groups: &[usize], n_groups: usize) -> Self {
        let merge = |values: &Vec<f64>| {
            let mut merged = vec![0.0; n_groups];
            for (group, value) in groups.iter().zip(values) {
                merged[*group] += value;
            }
            merged
        };
        Self { sizes: merge(&self.sizes), sums: self.sums.iter().map(merge).collect() }
    }

    /// Some of the clusters, by their places.
    pub fn only(&self, places: &[usize]) -> Self {
        let pick = |values: &Vec<f64>| places.iter().map(|place| values[*place]).collect();
        Self { sizes: pick(&self.sizes), sums: self.sums.iter().map(pick).collect() }
    }

    /// An interval for each mean; the same for the same number of resamples, at any number of threads.
    ///
    /// # Errors
    /// When `progress` says stop.
    ///
    /// # Panics
    /// If there are no clusters or no resamples.
    pub fn intervals(
        &self,
        n_resamples: usize,
        progress: &mut Progress,
    ) -> Result<Vec<Interval>, Error> {
        /// Blocks of resamples between two reports of progress.
        const BLOCKS: usize = 32;
        assert!(!self.sizes.is_empty() && n_resamples > 0, "{n_resamples} of nothing");
        let mut resampled = vec![Vec::with_capacity(n_resamples + LANES); self.sums.len()];
        let n_blocks = n_resamples.div_ceil(LANES);
        for first in (0..n_blocks).step_by(BLOCKS) {
            let blocks = first..(first + BLOCKS).min(n_blocks);
            let done = (blocks.end * LANES).min(n_resamples);
            let found: Vec<_> = blocks.into_par_iter().map(|block| self.resample(block)).collect();
            for block in found {
                for (values, means) in resampled.iter_mut().zip(block) {
                    values.extend(means);
                }
            }
            if progress(Event::Resampling { done, total: n_resamples }) == Signal::Stop {
                return Err(Error::Interrupted);
            }
        }
        let interval = |mut values: Vec<f64>| {
            values.truncate(n_resamples);
            values.sort_unstable_by(f64::total_cmp);
            Interval { low: quantile(&values, 0.025), high: quantile(&values, 0.975) }
        };
        Ok(resampled.into_iter().map(interval).collect())
    }

    /// The means of a block of resamples.
    fn resample(&self, block: usize) -> Vec<[f64; LANES]> {
        let n = self.sizes.len() as u32;
        let first = (block * LANES) as u64;
        let mut counts = vec![[0.0_f32; LANES]; self.sizes.len()];
        for (lane, resample) in (first..first + LANES as u64).enumerate() {
            let mut rng = generator(0, Purpose::Resample, (resample, 0));
            for _ in 0..n {
                counts[rng.random_range(0..n) as usize][lane] += 1.0;
            }
        }
        let sizes = weighted_sums(&counts, &self.sizes);
        let mean = |sums: &Vec<f64>| {
            let sums = weighted_sums(&counts, sums);
            std::array::from_fn(|lane| sums[lane] / sizes[lane])
        };
        self.sums.iter().map(mean).collect()
    }
}

/// Sums of values, each as often as it was drawn.
fn weighted_sums(counts: &[[f32; LANES]], values: &[f64]) -> [f64; LANES] {
    let mut sums = [0.0; LANES];
    for (counts, value) in counts.iter().zip(values) {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += f64::from(*count) * value;
        }
    }
    sums
}

/// The value below which a share of sorted values lies, between two of them by a straight line.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * (sorted.len() - 1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    sorted[below] + (place - place.floor()) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::silent;

    fn intervals(sizes: &[f64], sums: &[f64]) -> Interval {
        let clusters = Clusters { sizes: sizes.to_vec(), sums: vec![sums.to_vec()] };
        clusters.intervals(10_000, &mut silent()).unwrap()[0]
    }

    #[test]
    fn quantiles_lie_between_values() {
        let sorted = [10.0, 20.0, 40.0];
        assert_eq!(
            [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| quantile(&sorted, share)),
            [10.0, 15.0, 20.0, 30.0, 40.0]
        );
        assert_eq!(quantile(&[3.0], 0.975), 3.0);
    }

    #[test]
    fn the_interval_of_a_mean_is_that_of_its_standard_error() {
        // Of ones and zeros in equal number the resampled mean is binomial: ½ ± 1.96·√(¼ / 1,000).
        let values: Vec<f64> = (0..1000).map(|i| f64::from(i % 2)).collect();
        let found = intervals(&[1.0; 1000], &values);
        let half = 1.96 * (0.25_f64 / 1000.0).sqrt();
        // A percentile of 10,000 resamples is known to about 1.5 % of its distance; steps are .001.
        assert!((found.low - (0.5 - half)).abs() < 2e-3, "{found:?}");
        assert!((found.high - (0.5 + half)).abs() < 2e-3, "{found:?}");
    }

    #[test]
    fn members_of_a_cluster_stay_together() {
        // The same hundred values, in two clusters of equal ones: half of all resamples have one cluster
        // twice.
        let found = intervals(&[50.0, 50.0], &[0.0, 50.0]);
        assert_eq!((found.low, found.high), (0.0, 1.0));
        let found = intervals(&[3.0], &[1.5]);
        assert_eq!((found.low, found.high), (0.5, 0.5), "a single cluster has no spread");
    }

    #[test]
    fn larger_clusters_weigh_more() {
        let clusters = Clusters { sizes: vec![1.0, 3.0], sums: vec![vec![1.0, 0.0]] };
        assert_eq!(clusters.means(), [0.25]);
        // Twice the first, one of each, or twice the second.
        let found = clusters.intervals(1000, &mut silent()).unwrap()[0];
        assert_eq!((found.low, found.high), (0.0, 1.0));
    }

    #[test]
    fn clusters_can_be_merged_and_picked() {
        let clusters = Clusters { sizes: vec![1.0, 2.0, 3.0], sums: vec![vec![4.0, 5.0, 6.0]] };
        let merged = Clusters { sizes: vec![3.0, 3.0], sums: vec![vec![6.0, 9.0]] };
        assert_eq!(clusters.merged(&[1, 1, 0], 2), merged);
        assert_eq!(clusters.only(&[2]), Clusters { sizes: vec![3.0], sums: vec![vec![6.0]] });
    }

    #[test]
    fn every_cluster_is_drawn_as_often_as_any() {
        let clusters = Clusters { sizes: vec![1.0; 5], sums: vec![] };
        let identity = (0..5).map(|own| (0..5).map(|i| f64::from(u8::from(i == own))).collect());
        let clusters = Clusters { sums: identity.collect(), ..clusters };
        let mut totals = [0.0; 5];
        for block in 0..250 {
            for (total, means) in totals.iter_mut().zip(clusters.resample(block)) {
                *total += means.iter().sum::<f64>() * 5.0;
            }
        }
        // 2,000 resamples of five: 2,000 of each on average, with variance 10,000·.2·.8.
        let most = 4.0 * (10_000.0 * 0.16_f64).sqrt();
        assert!(totals.iter().all(|total| (total - 2000.0).abs() < most), "{totals:?}");
        assert_eq!(totals.iter().sum::<f64>().round(), 10_000.0);
    }

    #[test]
    fn resamples_do_not_depend_on_threads_and_can_be_stopped() {
        let values: Vec<f64> = (0..100).map(|i| f64::from(i * i % 17)).collect();
        let clusters = Clusters { sizes: vec![1.0; 100], sums: vec![values] };
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| clusters.intervals(1001, &mut silent()).unwrap())
        };
        assert_eq!(with(1), with(3));
        let stopped = clusters.intervals(1001, &mut |_| Signal::Stop);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
