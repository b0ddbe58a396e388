//! Channels of many values for each query, which lie side by side.

use rayon::prelude::*;

use super::{Grads, Lines, Statistics, Treatment, Values, by_row};

pub(super) fn statistics(values: &[f32], [queries, channels, places]: [usize; 3]) -> Statistics {
    // Differences from some value of the channel: squares of what is far from zero would leave
    // nothing of a small variance.
    let origin = |channel: usize| values[channel * places];
    let sums = channel_sums(channels, queries, |row| {
        let origin = origin(row % channels);
        let values = &values[row * places..][..places];
        pair_sums(values, values, |x, _| [x - origin, (x - origin) * (x - origin)])
    });
    let count = (queries * places) as f64;
    let mean =
        |(channel, sums): (usize, &[f64; 2])| (f64::from(origin(channel)) + sums[0] / count) as f32;
    let variance = |[sum, squares]: &[f64; 2]| {
        // Rounding may take it below zero if all values are the same.
        (squares / count - (sum / count).powi(2)).max(0.0) as f32
    };
    Statistics {
        mean: sums.iter().enumerate().map(mean).collect(),
        variance: sums.iter().map(variance).collect(),
    }
}

pub(super) fn forward(
    Values { values: source, shape: [_, channels, places], .. }: Values,
    lines: &Lines,
    treatment: &Treatment,
) -> Vec<f32> {
    let mut out = vec![0.0; source.len()];
    by_row(&mut out, places, |row, out| {
        let (slope, start) = (lines.slope[row % channels], lines.start[row % channels]);
        let (positive, negative) = slopes(treatment, row);
        for (out, x) in out.iter_mut().zip(&source[row * places..]) {
            let y = x * slope + start;
            *out = y * if y > 0.0 { positive } else { negative };
        }
    });
    out
}

/// What positive and negative values of a channel of a query are multiplied by in the end.
fn slopes(treatment: &Treatment, row: usize) -> (f32, f32) {
    let factor = treatment.dropout_mask.as_ref().map_or(1.0, |mask| mask[row]);
    (factor, treatment.negative_slope * factor)
}

pub(super) fn backward(
    Values { values: source, shape: [queries, channels, places], .. }: Values,
    lines: &Lines,
    treatment: &Treatment,
    grad: &[f32],
) -> Grads {
    let statistics = &treatment.statistics;
    // In normalised units: x̂ and the gradient that reaches it.
    let at = |row: usize| {
        let channel = row % channels;
        let (slope, start) = (lines.slope[channel], lines.start[channel]);
        let (mean, inverse) =
            (statistics.mean[channel], statistics.inverse_standard_deviation(channel));
        let (positive, negative) = slopes(treatment, row);
        move |x: f32, grad: f32| {
            let is_positive = x * slope + start > 0.0;
            [(x - mean) * inverse, grad * if is_positive { positive } else { negative }]
        }
    };
    let sums = channel_sums(channels, queries, |row| {
        let at = at(row);
        let [source, grad] = [source, grad].map(|values| &values[row * places..][..places]);
        pair_sums(source, grad, |x, grad| {
            let [normalised, grad] = at(x, grad);
            [grad, grad * normalised]
        })
    });
    let count = (queries * places) as f64;
    let mut grad_values = vec![0.0; source.len()];
    by_row(&mut grad_values, places, |row, out| {
        let channel = row % channels;
        let at = at(row);
        let scale = lines.slope[channel];
        let [mean, slope] = sums[channel].map(|sum| (sum / count) as f32);
        let pairs = source[row * places..].iter().zip(&grad[row * places..]);
        for (out, (x, grad)) in out.iter_mut().zip(pairs) {
            let [normalised, grad] = at(*x, *grad);
            *out = scale * (grad - mean - normalised * slope);
        }
    });
    let part = |part: usize| sums.iter().map(|sums| sums[part] as f32).collect();
    Grads { values: grad_values, gamma: part(1), beta: part(0) }
}

/// The sums of both numbers that `pair` makes of each x and y.
fn pair_sums(xs: &[f32], ys: &[f32], pair: impl Fn(f32, f32) -> [f32; 2]) -> [f64; 2] {
    /// Sums side by side, for the compiler to make vectors of.
    const LANES: usize = 16;
    let mut lanes = [[0.0_f32; LANES]; 2];
    let mut add = |lane: usize, x: f32, y: f32| {
        let [first, second] = pair(x, y);
        lanes[0][lane] += first;
        lanes[1][lane] += second;
    };
    let ((x_chunks, x_rest), (y_chunks, y_rest)) =
        (xs.as_chunks::<LANES>(), ys.as_chunks::<LANES>());
    for (xs, ys) in x_chunks.iter().zip(y_chunks) {
        (0..LANES).for_each(|lane| add(lane, xs[lane], ys[lane]));
    }
    for (lane, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
        add(lane, *x, *y);
    }
    lanes.map(|lanes| lanes.into_iter().map(f64::from).sum())
}

/// Two sums for each channel from those of its rows, task by task and in order, so that the number
/// of threads changes no bit.
fn channel_sums(
    channels: usize,
    queries: usize,
    row_sums: impl Fn(usize) -> [f64; 2] + Sync,
) -> Vec<[f64; 2]> {
    /// Queries per task; part of what decides the bits, so it never changes.
    const QUERIES: usize = 16;
    let add = |sums: &mut [f64; 2], more: [f64; 2]| {
        sums[0] += more[0];
        sums[1] += more[1];
    };
    let of_task = |task: usize| {
        let mut sums = vec![[0.0; 2]; channels];
        for query in task * QUERIES..((task + 1) * QUERIES).min(queries) {
            for (channel, sums) in sums.iter_mut().enumerate() {
                add(sums, row_sums(query * channels + channel));
            }
        }
        sums
    };
    let tasks: Vec<_> = (0..queries.div_ceil(QUERIES)).into_par_iter().map(of_task).collect();
    let mut all = vec![[0.0; 2]; channels];
    for sums in tasks {
        all.iter_mut().zip(sums).for_each(|(all, sums)| add(all, sums));
    }
    all
}
