//! Can a probability be taken at its word?
//!
//! Under a softmax the probability of an object is its share among the answers of the query.
//! So every held-out triple is one draw of an answer: the model says how likely each object is to
//! be drawn, training answers left out, and the draw tells.

use fullrank_graph::{EntityId, Graph, Split};
use serde::Serialize;

use super::{Asked, Scorer, held_out, log_sum_without, map_rows};
use crate::error::Error;
use crate::train::Signal;

/// How probabilities compare with what happened.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// What log-probabilities were divided by.
    pub temperature: f64,
    /// Mean −log P of the drawn answers, training answers left out.
    pub nll_filtered: f64,
    /// The most likely object of each query.
    pub top_answer: Reliability,
    /// Every pair of query and object.
    pub pairs: Reliability,
}

/// A reliability diagram and its one-number summary.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Reliability {
    /// Expected calibration error: mean distance of predicted and observed, weighted.
    pub ece: f64,
    /// From low to high probability, empty ones left out.
    pub bins: Vec<Bin>,
}

/// Predictions of similar probability.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Bin {
    /// Mean predicted probability.
    pub predicted: f64,
    /// Share that came true.
    pub observed: f64,
    /// Predictions in it.
    pub count: f64,
}

/// Bins of a reliability diagram.
const BINS: usize = 15;
/// Bins in which pairs are collected before they are merged into [`BINS`] of equal mass: the
/// logarithm of the probability from −40 to 0.
const FINE_BINS: usize = 400;
const LOWEST: f64 = -40.0;

/// What one query adds to a calibration.
struct QueryCalibration {
    n_answers: f64,
    top: f64,
    n_top_drawn: f64,
    nll: f64,
    /// Fine bin and what is in it; of single precision, for every query has hundreds.
    pairs: Vec<(u32, [f32; 3])>,
}

/// Compares the probabilities of a split's queries, at a temperature, with its answers.
///
/// # Errors
/// When a score is not a number, or when `progress` says stop.
pub fn calibrate(
    graph: &Graph,
    split: Split,
    scorer: &impl Scorer,
    temperature: f64,
    progress: &mut dyn FnMut(usize, usize) -> Signal,
) -> Result<Calibration, Error> {
    let asked = held_out(graph, split);
    let queries = map_rows(graph, &asked, scorer, progress, |asked, row| {
        calibrate_query(graph, asked, row, temperature)
    })?;
    let n_answers: f64 = queries.iter().map(|query| query.n_answers).sum();
    let mut top = vec![Sums::default(); BINS];
    let mut pairs = vec![Sums::default(); FINE_BINS];
    for query in &queries {
        let bin = ((query.top * BINS as f64) as usize).min(BINS - 1);
        top[bin].add(query.n_answers, query.top * query.n_answers, query.n_top_drawn);
        for (bin, sums) in &query.pairs {
            let [count, mass, drawn] = sums.map(f64::from);
            pairs[*bin as usize].add(count, mass, drawn);
        }
    }
    Ok(Calibration {
        temperature,
        nll_filtered: queries.iter().map(|query| query.nll).sum::<f64>() / n_answers,
        top_answer: reliability(&top, n_answers),
        pairs: reliability(&equal_mass(&pairs), n_answers),
    })
}

/// The temperature at which the answers of a split are most likely.
///
/// The loss is tabulated for many temperatures in one pass, and its lowest point found by a
/// parabola through the three best; a second pass does the same on a finer grid around it.
///
/// # Errors
/// When a score is not a number, or when `progress` says stop.
pub fn fit_temperature(
    graph: &Graph,
    split: Split,
    scorer: &impl Scorer,
    progress: &mut dyn FnMut(usize, usize) -> Signal,
) -> Result<f64, Error> {
    const POINTS: usize = 9;
    let asked = held_out(graph, split);
    let (mut center, mut step) = (0.0_f64, 0.35);
    for _ in 0..2 {
        let at = |point: usize| center + (point as f64 - (POINTS / 2) as f64) * step;
        let losses = map_rows(graph, &asked, scorer, progress, |asked, row| {
            let mut scaled = row.to_vec();
            std::array::from_fn::<f64, POINTS, _>(|point| {
                let factor = (1.0 / at(point).exp()) as f32;
                scaled.iter_mut().zip(row).for_each(|(scaled, x)| *scaled = x * factor);
                filtered_nll(graph, asked, &scaled)
            })
        })?;
        let total = |point: usize| losses.iter().map(|loss| loss[point]).sum::<f64>();
        let totals: Vec<f64> = (0..POINTS).map(total).collect();
        let best = (0..POINTS).min_by(|a, b| totals[*a].total_cmp(&totals[*b])).unwrap_or(0);
        let best = best.clamp(1, POINTS - 2);
        let [left, middle, right] = [totals[best - 1], totals[best], totals[best + 1]];
        let bend = left - 2.0 * middle + right;
        let offset = if bend > 0.0 { 0.5 * (left - right) / bend } else { 0.0 };
        center = at(best) + offset.clamp(-1.0, 1.0) * step;
        step /= 6.0;
    }
    Ok(center.exp())
}

/// Σ −log P of a query's answers, training answers left out; `row` need not be normalised.
fn filtered_nll(graph: &Graph, asked: &Asked, row: &[f32]) -> f64 {
    let hidden = hidden(graph, asked);
    let left = log_sum_without(row, &hidden);
    asked.answers.iter().map(|answer| left - f64::from(row[answer.object.0 as usize])).sum()
}

/// Training answers of the query, except those that are held out as well.
fn hidden(graph: &Graph, asked: &Asked) -> Vec<EntityId> {
    let train = graph.answers().in_split(asked.number as usize, Split::Train);
    let is_held_out = |object: &&EntityId| asked.answers.iter().any(|a| a.object == **object);
    train.iter().filter(|object| !is_held_out(object)).copied().collect()
}

fn calibrate_query(
    graph: &Graph,
    asked: &Asked,
    row: &[f32],
    temperature: f64,
) -> QueryCalibration {
    let mut row: Vec<f32> = row.iter().map(|x| x / temperature as f32).collect();
    let nll = filtered_nll(graph, asked, &row);
    let hidden = hidden(graph, asked);
    let left = log_sum_without(&row, &hidden);
    for object in &hidden {
        row[object.0 as usize] = f32::NEG_INFINITY;
    }
    let n_answers = asked.answers.len() as f64;
    let bin_of = |log_prob: f64| {
        let place = (log_prob - LOWEST) / -LOWEST * FINE_BINS as f64;
        (place.max(0.0) as usize).min(FINE_BINS - 1) as u32
    };
    let mut pairs = vec![[0.0; 3]; FINE_BINS];
    let (mut top, mut top_object) = (f64::NEG_INFINITY, 0);
    for (object, log_prob) in row.iter().enumerate() {
        if *log_prob == f32::NEG_INFINITY {
            continue;
        }
        let log_prob = f64::from(*log_prob) - left;
        if log_prob > top {
            (top, top_object) = (log_prob, object as u32);
        }
        let bin = &mut pairs[bin_of(log_prob) as usize];
        bin[0] += n_answers;
        bin[1] += n_answers * log_prob.exp();
    }
    for answer in &asked.answers {
        let log_prob = f64::from(row[answer.object.0 as usize]) - left;
        pairs[bin_of(log_prob) as usize][2] += 1.0;
    }
    let n_top_drawn =
        asked.answers.iter().filter(|answer| answer.object.0 == top_object).count() as f64;
    let pairs = (0..).zip(pairs).filter(|(_, [count, ..])| *count > 0.0);
    let pairs = pairs.map(|(bin, sums)| (bin, sums.map(|sum| sum as f32))).collect();
    QueryCalibration { n_answers, top: top.exp().min(1.0), n_top_drawn, nll, pairs }
}

/// Predictions, the sum of their probabilities, and how many came true.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    count: f64,
    mass: f64,
    drawn: f64,
}

impl Sums {
    fn add(&mut self, count: f64, mass: f64, drawn: f64) {
        self.count += count;
        self.mass += mass;
        self.drawn += drawn;
    }
}

/// Merges neighbours until each bin has its share of all probability.
fn equal_mass(fine: &[Sums]) -> Vec<Sums> {
    let total: f64 = fine.iter().map(|bin| bin.mass).sum();
    let mut bins = vec![Sums::default()];
    let mut before = 0.0;
    for bin in fine {
        if before >= total * bins.len() as f64 / BINS as f64 && bins.len() < BINS {
            bins.push(Sums::default());
        }
        let last = bins.len() - 1;
        bins[last].add(bin.count, bin.mass, bin.drawn);
        before += bin.mass;
    }
    bins
}

/// `draws`: what the distances of the bins are divided by, so that they average.
fn reliability(sums: &[Sums], draws: f64) -> Reliability {
    let bins = sums.iter().filter(|bin| bin.count > 0.0);
    Reliability {
        ece: sums.iter().map(|bin| (bin.mass - bin.drawn).abs()).sum::<f64>() / draws,
        bins: bins
            .map(|bin| Bin {
                predicted: bin.mass / bin.count,
                observed: bin.drawn / bin.count,
                count: bin.count,
            })
            .collect(),
    }
}
