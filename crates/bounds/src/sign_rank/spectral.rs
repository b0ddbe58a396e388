//! Spectral bound (Forster 2002): under which weights does a part of Y± look the most like noise?
//!
//! For Forster's argument the norm of B = diag(√μ) A diag(√ν) is to be small. Its leading singular
//! vectors tell which lines carry it; they lose weight, the others gain, and so on. Where several
//! singular values are the largest, one vector would push the weights to and fro, so all of them
//! are asked at once through a power of G = B·Bᵀ that grows from step to step.
//! Lines that end with next to no weight are left out of the certificate.
//! Whether the weights prove the claim is left to `check`.

use rayon::prelude::*;

use super::crossing::{Crossing, Pattern};
use super::{Argument, Certificate, Lines};
use crate::matrix::AnswerMatrix;

/// The side of G; its powers are most of the work.
const CANDIDATES: usize = 160;
/// Crossing patterns with a weight, at most.
const PATTERNS: usize = 4000;
/// Squarings of G that show its norm: the 2^14-th root of the trace is at most 1.0004 times as large.
const SQUARINGS: usize = 14;
/// The share of the mean weight below which a line is left out.
const NEXT_TO_NOTHING: f64 = 1e-3;

/// The weights with the best claim among those met in so many steps; the matrix has a row.
pub(super) fn search(matrix: &AnswerMatrix, lines: Lines, steps: usize) -> Certificate {
    let mut crossing = Crossing::of(matrix, lines, CANDIDATES);
    let n = crossing.ids.len();
    // Balanced patterns are the least alike.
    crossing.patterns.sort_by_key(|it| it.positive.len().abs_diff(n / 2));
    crossing.patterns.truncate(PATTERNS);
    let mut weights = Weights::uniform(n, crossing.patterns.len());
    let mut best = (0.0, weights.clone());
    for step in 0..=steps {
        let gram = gram(&crossing.patterns, &weights);
        if step.is_multiple_of(10) || step == steps {
            let bound = weights.bound(&gram);
            if bound > best.0 {
                best = (bound, weights.clone());
            }
        }
        let stage = step as f64 / steps.max(1) as f64;
        weights.improve(&crossing.patterns, gram, stage);
    }
    certify(crossing, &best.1)
}

/// Distributions over the chosen lines and over the patterns that cross them.
#[derive(Clone)]
struct Weights {
    lines: Vec<f64>,
    patterns: Vec<f64>,
}

impl Weights {
    fn uniform(n_lines: usize, n_patterns: usize) -> Self {
        let uniform = |n: usize| vec![1.0 / n as f64; n];
        Self { lines: uniform(n_lines), patterns: uniform(n_patterns) }
    }

    /// What the sign rank cannot be below.
    fn bound(&self, gram: &Square) -> f64 {
        let heaviest = |weights: &[f64]| weights.iter().copied().fold(0.0, f64::max);
        // Either side may be the one that is brought into position.
        let balance = heaviest(&self.lines).min(heaviest(&self.patterns)).recip();
        gram.norm().sqrt().recip().min(balance)
    }

    /// Takes weight from what carries more of the norm than its weight, at a stage from 0 to 1.
    fn improve(&mut self, patterns: &[Pattern], gram: Square, stage: f64) {
        let n_squarings = 2 + (4.0 * stage) as usize;
        let mut power = gram.clone();
        for _ in 0..n_squarings {
            power = power.squared();
            power.scale(power.trace().recip());
        }
        let carried = power.times_diagonal(&gram);
        let total: f64 = carried.iter().sum();
        let roots: Vec<f64> = self.lines.iter().map(|weight| weight.sqrt()).collect();
        power.scale_both(&roots);
        let by_pattern = power.quadratic_forms(patterns);
        let step = 0.5 - 0.4 * stage;
        let by_line = carried.iter().zip(&self.lines).map(|(carried, weight)| carried / weight);
        let by_line: Vec<f64> = by_line.collect();
        reweigh(&mut self.lines, &by_line, total, step);
        reweigh(&mut self.patterns, &by_pattern, total, step);
    }
}

/// Multiplies each weight by a power of e that falls with what it carries for its weight.
fn reweigh(weights: &mut [f64], carried: &[f64], total: f64, step: f64) {
    for (weight, carried) in weights.iter_mut().zip(carried) {
        // No step multiplies a weight by more than e, and none is lost for good.
        *weight = (*weight * (step * (1.0 - carried / total).clamp(-2.0, 2.0)).exp()).max(1e-12);
    }
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
}

/// G = B·Bᵀ, from the places where patterns are +, which are few: with Y for A = 2Y − 1,
/// A diag(ν) Aᵀ = 4·Y diag(ν) Yᵀ − 2·(r·1ᵀ + 1·rᵀ) + 1·1ᵀ, where r = Yν.
fn gram(patterns: &[Pattern], weights: &Weights) -> Square {
    let n = weights.lines.len();
    let mut gram = Square::zero(n);
    for (pattern, weight) in patterns.iter().zip(&weights.patterns) {
        for i in &pattern.positive {
            let row = &mut gram.entries[*i as usize * n..][..n];
            pattern.positive.iter().for_each(|k| row[*k as usize] += weight);
        }
    }
    let positive: Vec<f64> = (0..n).map(|i| gram.entries[i * n + i]).collect();
    for (i, row) in gram.entries.chunks_exact_mut(n).enumerate() {
        for (k, entry) in row.iter_mut().enumerate() {
            *entry = 4.0 * *entry - 2.0 * (positive[i] + positive[k]) + 1.0;
        }
    }
    let roots: Vec<f64> = weights.lines.iter().map(|weight| weight.sqrt()).collect();
    gram.scale_both(&roots);
    gram
}

/// A symmetric matrix.
#[derive(Clone)]
struct Square {
    n: usize,
    entries: Vec<f64>,
}

impl Square {
    fn zero(n: usize) -> Self {
        Self { n, entries: vec![0.0; n * n] }
    }

    fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.entries.chunks_exact(self.n)
    }

    fn trace(&self) -> f64 {
        self.entries.iter().step_by(self.n + 1).sum()
    }

    fn scale(&mut self, factor: f64) {
        self.entries.iter_mut().for_each(|entry| *entry *= factor);
    }

    /// diag(d) · self · diag(d).
    fn scale_both(&mut self, diagonal: &[f64]) {
        for (row, by) in self.entries.chunks_exact_mut(self.n).zip(diagonal) {
            row.iter_mut().zip(diagonal).for_each(|(entry, with)| *entry *= by * with);
        }
    }

    fn squared(&self) -> Self {
        let mut square = Self::zero(self.n);
        let rows = square.entries.par_chunks_exact_mut(self.n).zip(self.entries.par_chunks(self.n));
        rows.for_each(|(to, from)| {
            for (factor, row) in from.iter().zip(self.rows()) {
                to.iter_mut().zip(row).for_each(|(to, entry)| *to += factor * entry);
            }
        });
        square
    }

    /// The diagonal of self · other.
    fn times_diagonal(&self, other: &Self) -> Vec<f64> {
        let dot = |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(|(a, b)| a * b).sum();
        self.rows().zip(other.rows()).map(dot).collect()
    }

    /// aᵀ · self · a for the signs a of each pattern.
    fn quadratic_forms(&self, patterns: &[Pattern]) -> Vec<f64> {
        let sums: Vec<f64> = self.rows().map(|row| row.iter().sum()).collect();
        let total: f64 = sums.iter().sum();
        let form = |pattern: &Pattern| {
            let of_row = |i: &u32| {
                let row = &self.entries[*i as usize * self.n..][..self.n];
                let inner: f64 = pattern.positive.iter().map(|k| row[*k as usize]).sum();
                inner - sums[*i as usize]
            };
            total + 4.0 * pattern.positive.iter().map(of_row).sum::<f64>()
        };
        patterns.par_iter().map(form).collect()
    }

    /// The largest eigenvalue of a positive matrix, or slightly more: the root of the trace of a
    /// high power.
    fn norm(&self) -> f64 {
        let (mut power, mut log_scale) = (self.clone(), 0.0);
        for _ in 0..SQUARINGS {
            let trace = power.trace();
            power.scale(trace.recip());
            // The logarithm of what the power was divided by doubles with each squaring.
            log_scale = 2.0 * (log_scale + trace.ln());
            power = power.squared();
        }
        ((log_scale + power.trace().ln()) / f64::from(1 << SQUARINGS)).exp()
    }
}

/// The lines that have weight, and what follows for them.
fn certify(mut crossing: Crossing, weights: &Weights) -> Certificate {
    let lines = heavy(&weights.lines);
    let patterns = heavy(&weights.patterns);
    let mut places = vec![None; crossing.ids.len()];
    (0..).zip(&lines).for_each(|(place, line)| places[*line] = Some(place));
    crossing.ids = lines.iter().map(|line| crossing.ids[*line]).collect();
    let restricted = patterns.iter().map(|number| {
        let Pattern { positive, line } = &crossing.patterns[*number];
        let positive = positive.iter().filter_map(|place| places[*place as usize]).collect();
        Pattern { positive, line: *line }
    });
    crossing.patterns = restricted.collect();
    let weights = Weights {
        lines: share(&weights.lines, &lines),
        patterns: share(&weights.patterns, &patterns),
    };
    let bound = weights.bound(&gram(&crossing.patterns, &weights));
    // A bound that is a whole number is not to be rounded up by its last digits.
    let lower_bound = (bound * (1.0 - 1e-6)).ceil() as usize;
    let crossed = crossing.patterns.iter().map(|pattern| pattern.line).collect();
    let (rows, columns, row_weights, column_weights) = match crossing.lines {
        Lines::Rows => (crossing.ids, crossed, weights.lines, weights.patterns),
        Lines::Columns => (crossed, crossing.ids, weights.patterns, weights.lines),
    };
    let argument = Argument::Spectral { row_weights, column_weights };
    Certificate { argument, lower_bound, rows, columns }
}

fn heavy(weights: &[f64]) -> Vec<usize> {
    let least = NEXT_TO_NOTHING / weights.len() as f64;
    (0..weights.len()).filter(|place| weights[*place] > least).collect()
}

/// The weights at some places, made to sum to one.
fn share(weights: &[f64], places: &[usize]) -> Vec<f64> {
    let sum: f64 = places.iter().map(|place| weights[*place]).sum();
    places.iter().map(|place| weights[*place] / sum).collect()
}
