//! Moving averages: how does a running mean of a table follow it in one pass?

use rayon::prelude::*;

/// Floats per task: large enough that handing it out costs nothing.
const PIECE: usize = 64 * 1024;

/// Moves every mean by `weight` of the way to its value.
pub fn follow(means: &mut [f32], values: &[f32], weight: f32) {
    means.par_chunks_mut(PIECE).zip(values.par_chunks(PIECE)).for_each(|(means, values)| {
        for (mean, value) in means.iter_mut().zip(values) {
            *mean += weight * (value - *mean);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_goes_its_share_of_the_way() {
        let mut means = vec![1.0, -2.0, 0.5];
        follow(&mut means, &[2.0, 2.0, 0.5], 0.25);
        assert_eq!(means, [1.25, -1.0, 0.5]);
        follow(&mut means, &[7.0, 8.0, 9.0], 1.0);
        assert_eq!(means, [7.0, 8.0, 9.0]);
    }
}
