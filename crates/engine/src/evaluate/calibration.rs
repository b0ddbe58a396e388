//! Calibration: can a probability be taken at its word?
//!
//! Under a softmax the probability of an object is its share among the answers of the query.
//! So every held-out triple is one draw of an answer: the model says how likely each object is to
//! be drawn, training answers left out, and the draw tells.
//!
//! Under a sigmoid it is the probability that the triple holds: every pair of a query and an object
//! is a prediction of its own, answers of earlier splits left out, that comes true if the split has
//! it. There is no temperature: dividing log-probabilities would not scale a sigmoid's logits.

use fullrank_graph::{EntityId, Graph, Split};
use serde::{Deserialize, Serialize};

use super::{Asked, Scorer, filtered_nll, for_each_row, held_out, log_sum_without};
use crate::error::Error;
use crate::probability::ProbabilityKind;
use crate::progress::Progress;
use crate::random::shuffled;

/// How probabilities compare with what happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// What log-probabilities were divided by.
    pub temperature: f64,
    /// Mean −log P of the drawn answers, training answers left out; nothing where probabilities are no
    /// shares.
    pub nll_filtered: Option<f64>,
    /// The most likely object of each query.
    pub top_answer: Reliability,
    /// Every pair of query and object.
    pub pairs: Reliability,
}

/// A reliability diagram and its one-number summary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reliability {
    /// Expected calibration error: mean distance of predicted and observed, weighted.
    pub ece: f64,
    /// From low to high probability, empty ones left out.
    pub bins: Vec<Bin>,
}

/// Predictions of similar probability.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
    /// Predictions that its top answer stands for.
    n_top: f64,
    top: f64,
    n_top_drawn: f64,
    nll: Option<f64>,
    /// Every object, by fine bin.
    pairs: Vec<Sums>,
}

/// Compares the probabilities of a split's queries, at a temperature, with its answers.
///
/// # Errors
/// When a score is not a number, when `progress` says stop, or when there can be no temperature.
pub fn calibrate(
    graph: &Graph,
    split: Split,
    scorer: &impl Scorer,
    temperature: f64,
    progress: &mut Progress,
) -> Result<Calibration, Error> {
    let probability = scorer.probability();
    check_temperature(probability, temperature)?;
    let mut top = vec![Sums::default(); BINS];
    let mut pairs = vec![Sums::default(); FINE_BINS];
    let (mut nll, mut n_answers, mut n_top) = (Some(0.0), 0.0, 0.0);
    let calibrate = |asked: &Asked, row: &[f32]| match probability {
        ProbabilityKind::Categorical => calibrate_shares(graph, asked, row, temperature),
        ProbabilityKind::Bernoulli => calibrate_triples(graph, split, asked, row),
    };
    let add = |query: QueryCalibration| {
        nll = nll.zip(query.nll).map(|(sum, nll)| sum + nll);
        n_answers += query.n_answers;
        n_top += query.n_top;
        let bin = ((query.top * BINS as f64) as usize).min(BINS - 1);
        top[bin].add(query.n_top, query.top * query.n_top, query.n_top_drawn);
        for (sums, own) in pairs.iter_mut().zip(&query.pairs) {
            sums.add(own.count, own.mass, own.drawn);
        }
    };
    for_each_row(graph, &held_out(graph, split), scorer, progress, calibrate, add)?;
    Ok(Calibration {
        temperature,
        nll_filtered: nll.map(|nll| nll / n_answers),
        top_answer: reliability(&top, n_top),
        pairs: reliability(&equal_mass(&pairs), n_answers),
    })
}

/// Dividing log-probabilities by a temperature makes other shares of shares, but nothing of sense of
/// probabilities that each stand for themselves.
pub(crate) fn check_temperature(
    probability: ProbabilityKind,
    temperature: f64,
) -> Result<(), Error> {
    match probability {
        ProbabilityKind::Bernoulli if temperature != 1.0 => {
            Err(Error::NoTemperature { temperature })
        }
        _ => Ok(()),
    }
}

/// The temperature at which the answers of a split are most likely; nothing if there are so few
/// that it would say more about them than about the model, or if probabilities are no shares.
/// Of more than 32,768 queries, so many are drawn.
///
/// The loss is tabulated for nine temperatures in one pass, and its lowest point found by a parabola
/// through the three lowest; a last pass does the same on a finer grid around it.
///
/// # Errors
/// When a score is not a number, or when `progress` says stop.
pub fn fit_temperature(
    graph: &Graph,
    split: Split,
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Option<f64>, Error> {
    /// Answers, both directions, that one number can be fitted to.
    const LEAST_ANSWERS: usize = 100;
    /// Passes on the coarse grid: temperatures from e^-7 to e^7 can be reached.
    const COARSE_PASSES: usize = 5;
    /// Queries after which more of them would only take longer.
    const MOST_QUERIES: usize = 32_768;
    let is_enough = 2 * graph.triples(split).len() >= LEAST_ANSWERS;
    if scorer.probability() != ProbabilityKind::Categorical || !is_enough {
        return Ok(None);
    }
    let asked = drawn(held_out(graph, split), MOST_QUERIES);
    let mut grid = Grid { center: 0.0, step: 0.35 };
    for _ in 0..COARSE_PASSES {
        let totals = nll_on_grid(graph, &asked, scorer, &grid, progress)?;
        if grid.move_to_lowest(&totals) == Found::Inside {
            break;
        }
    }
    grid.step /= 6.0;
    let totals = nll_on_grid(graph, &asked, scorer, &grid, progress)?;
    grid.move_to_lowest(&totals);
    Ok(Some(grid.center.exp()))
}

/// At most so many of some queries, always the same ones, in their order.
pub(super) fn drawn(asked: Vec<Asked>, most: usize) -> Vec<Asked> {
    if asked.len() <= most {
        return asked;
    }
    let mut numbers = shuffled((0..asked.len() as u32).collect(), 0, 0);
    numbers.truncate(most);
    numbers.sort_unstable();
    numbers.into_iter().map(|number| asked[number as usize].clone()).collect()
}

/// Logarithms of temperatures, evenly spaced.
struct Grid {
    center: f64,
    step: f64,
}

/// Whether the lowest point of a grid has neighbours on both sides.
#[derive(PartialEq, Eq)]
enum Found {
    Inside,
    AtTheEnd,
}

impl Grid {
    const POINTS: usize = 9;

    fn at(&self, point: usize) -> f64 {
        self.center + (point as f64 - (Self::POINTS / 2) as f64) * self.step
    }

    /// Centers the grid on the lowest point of a parabola through the three lowest totals.
    fn move_to_lowest(&mut self, totals: &[f64; Self::POINTS]) -> Found {
        let lowest = (0..Self::POINTS).min_by(|a, b| totals[*a].total_cmp(&totals[*b]));
        let lowest = lowest.unwrap_or(0);
        if lowest == 0 || lowest == Self::POINTS - 1 {
            self.center = self.at(lowest);
            return Found::AtTheEnd;
        }
        let [left, middle, right] = [totals[lowest - 1], totals[lowest], totals[lowest + 1]];
        let bend = left - 2.0 * middle + right;
        let offset = if bend > 0.0 { 0.5 * (left - right) / bend } else { 0.0 };
        self.center = self.at(lowest) + offset * self.step;
        Found::Inside
    }
}

/// Σ −log P of all answers at each temperature of a grid.
fn nll_on_grid(
    graph: &Graph,
    asked: &[Asked],
    scorer: &impl Scorer,
    grid: &Grid,
    progress: &mut Progress,
) -> Result<[f64; Grid::POINTS], Error> {
    let nll_of = |asked: &Asked, row: &[f32]| {
        let mut scaled = row.to_vec();
        std::array::from_fn::<f64, { Grid::POINTS }, _>(|point| {
            let factor = (-grid.at(point)).exp() as f32;
            scaled.iter_mut().zip(row).for_each(|(scaled, x)| *scaled = x * factor);
            query_nll(graph, asked, &scaled)
        })
    };
    let mut totals = [0.0; Grid::POINTS];
    for_each_row(graph, asked, scorer, progress, nll_of, |found| {
        totals.iter_mut().zip(found).for_each(|(total, nll)| *total += nll);
    })?;
    Ok(totals)
}

fn training_answers<'a>(graph: &'a Graph, asked: &Asked) -> &'a [EntityId] {
    graph.answers().in_split(asked.number as usize, Split::Train)
}

/// Σ −log P of a query's answers, training answers left out; `row` need not be normalised.
fn query_nll(graph: &Graph, asked: &Asked, row: &[f32]) -> f64 {
    let train = training_answers(graph, asked);
    let left = log_sum_without(row, train);
    let nll = |object: EntityId| filtered_nll(left, train, object, row[object.0 as usize]);
    asked.answers.iter().map(|answer| nll(answer.object)).sum()
}

fn calibrate_shares(
    graph: &Graph,
    asked: &Asked,
    row: &[f32],
    temperature: f64,
) -> QueryCalibration {
    let mut row: Vec<f32> = row.iter().map(|x| x / temperature as f32).collect();
    let nll = query_nll(graph, asked, &row);
    // Answers that training has too are no news, and have no place in what is left.
    let train = training_answers(graph, asked);
    let left = log_sum_without(&row, train);
    for object in train {
        row[object.0 as usize] = f32::NEG_INFINITY;
    }
    let new: Vec<u32> = asked
        .answers
        .iter()
        .filter(|answer| !train.contains(&answer.object))
        .map(|answer| answer.object.0)
        .collect();
    let n_answers = new.len() as f64;
    let mut pairs = vec![Sums::default(); FINE_BINS];
    let (mut top, mut top_object) = (f64::NEG_INFINITY, 0);
    for (object, log_prob) in row.iter().enumerate() {
        if *log_prob == f32::NEG_INFINITY {
            continue;
        }
        let log_prob = f64::from(*log_prob) - left;
        if log_prob > top {
            (top, top_object) = (log_prob, object as u32);
        }
        pairs[fine_bin(log_prob)].add(n_answers, n_answers * log_prob.exp(), 0.0);
    }
    for object in &new {
        pairs[fine_bin(f64::from(row[*object as usize]) - left)].drawn += 1.0;
    }
    let n_top_drawn = new.iter().filter(|object| **object == top_object).count() as f64;
    let top = top.exp().min(1.0);
    QueryCalibration { n_answers, n_top: n_answers, top, n_top_drawn, nll: Some(nll), pairs }
}

fn calibrate_triples(graph: &Graph, split: Split, asked: &Asked, row: &[f32]) -> QueryCalibration {
    let answers = graph.answers().in_split(asked.number as usize, split);
    let known = graph.answers().up_to(asked.number as usize, split);
    let mut row = row.to_vec();
    for object in known.iter().filter(|object| !answers.contains(object)) {
        row[object.0 as usize] = f32::NEG_INFINITY;
    }
    let mut pairs = vec![Sums::default(); FINE_BINS];
    let (mut top, mut top_object) = (f32::NEG_INFINITY, 0);
    for (object, log_prob) in (0..).zip(&row).filter(|(_, x)| **x != f32::NEG_INFINITY) {
        if *log_prob > top {
            (top, top_object) = (*log_prob, object);
        }
        let log_prob = f64::from(*log_prob);
        pairs[fine_bin(log_prob)].add(1.0, log_prob.exp(), 0.0);
    }
    for object in answers {
        pairs[fine_bin(f64::from(row[object.0 as usize]))].drawn += 1.0;
    }
    QueryCalibration {
        n_answers: answers.len() as f64,
        n_top: 1.0,
        top: f64::from(top).exp().min(1.0),
        n_top_drawn: f64::from(u8::from(answers.contains(&EntityId(top_object)))),
        nll: None,
        pairs,
    }
}

fn fine_bin(log_prob: f64) -> usize {
    let place = (log_prob - LOWEST) / -LOWEST * FINE_BINS as f64;
    (place.max(0.0) as usize).min(FINE_BINS - 1)
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
