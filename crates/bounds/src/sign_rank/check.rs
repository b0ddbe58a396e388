//! Certificates: does one prove its lower bound of the sign rank?
//!
//! Nothing here is shared with the search: signs are read from the matrix one by one, patterns are
//! counted with a set, Cover's count is summed in whole numbers, and the norm is bounded by a
//! Cholesky factorisation. Whether a better certificate exists is not asked.

use std::collections::HashSet;

use thiserror::Error;

use super::{Argument, Certificate, Lines};
use crate::matrix::AnswerMatrix;

/// Why a certificate proves nothing.
#[derive(Clone, PartialEq, Debug, Error)]
#[non_exhaustive]
pub enum Fault {
    /// A row or column that the matrix does not have.
    #[error("{kind} {id} is not in the matrix, which has {n}")]
    Missing {
        /// Rows or columns.
        kind: Lines,
        /// The one that is named.
        id: u32,
        /// How many there are.
        n: usize,
    },
    /// A row or column named twice.
    #[error("{kind} {id} is named twice")]
    Repeated {
        /// Rows or columns.
        kind: Lines,
        /// The one that is named.
        id: u32,
    },
    /// No rows or no columns, so no matrix that could have a sign rank.
    #[error("no {kind} is named")]
    Empty {
        /// Rows or columns.
        kind: Lines,
    },
    /// More or fewer weights than rows or columns.
    #[error("expected a weight for each {kind}, {n_lines} in all, found {n_weights}")]
    WeightCount {
        /// Rows or columns.
        kind: Lines,
        /// How many are named.
        n_lines: usize,
        /// How many weights there are.
        n_weights: usize,
    },
    /// A weight that is no positive number.
    #[error("{kind} {id} has the weight {weight}, which is not positive")]
    Weight {
        /// Rows or columns.
        kind: Lines,
        /// The one that is named.
        id: u32,
        /// Its weight.
        weight: f64,
    },
    /// Weights that are no distribution.
    #[error("the {kind} weights sum to {sum}, expected 1")]
    WeightSum {
        /// Rows or columns.
        kind: Lines,
        /// Their sum.
        sum: f64,
    },
    /// As few patterns as a smaller dimension can show.
    #[error("{n_patterns} patterns on {n_lines} lines do not need {claim} dimensions")]
    TooFewPatterns {
        /// Patterns found, complements included.
        n_patterns: usize,
        /// Lines that they are read on.
        n_lines: usize,
        /// The claimed lower bound.
        claim: usize,
    },
    /// Some pattern and its complement are both missing.
    #[error("{n_patterns} patterns on {n_lines} lines are not all of them")]
    NotShattered {
        /// Patterns found, complements included.
        n_patterns: usize,
        /// Lines that they are read on.
        n_lines: usize,
    },
    /// A shattered set proves its size, and the claim is larger.
    #[error("{n_lines} lines do not need {claim} dimensions")]
    TooFewLines {
        /// Lines in the set.
        n_lines: usize,
        /// The claimed lower bound.
        claim: usize,
    },
    /// Both a row and a column are so heavy that vectors may not come into Forster's position.
    #[error("a row weighs {row} and a column {column}; for {claim} dimensions one must be lighter")]
    Unbalanced {
        /// The largest weight of a row.
        row: f64,
        /// The largest weight of a column.
        column: f64,
        /// The claimed lower bound.
        claim: usize,
    },
    /// The weighted matrix was not shown to have a norm below 1/(claim − 1).
    #[error("the norm of the weighted matrix is not below 1/({claim} - 1)")]
    Norm {
        /// The claimed lower bound.
        claim: usize,
    },
}

/// How far from one the sum of weights may be: far above the rounding of a sum of a million terms.
const SUM_TOLERANCE: f64 = 1e-9;
/// The relative gap kept below a limit.
///
/// Weights that sum to 1 ± 1e-9 scale the squared norm by less than 1 ± 3e-9.
const MARGIN: f64 = 1e-8;

/// Checks a certificate against the matrix that it speaks of.
pub fn check(matrix: &AnswerMatrix, certificate: &Certificate) -> Result<(), Fault> {
    check_lines(Lines::Rows, &certificate.rows, matrix.n_rows())?;
    check_lines(Lines::Columns, &certificate.columns, matrix.n_columns())?;
    let signs = signs(matrix, certificate);
    let claim = certificate.lower_bound;
    match &certificate.argument {
        Argument::Patterns { lines } => check_patterns(&across(signs, *lines), claim),
        Argument::Shattered { lines } => check_shattered(&across(signs, *lines), claim),
        Argument::Spectral { row_weights, column_weights } => {
            check_weights(Lines::Rows, &certificate.rows, row_weights)?;
            check_weights(Lines::Columns, &certificate.columns, column_weights)?;
            check_spectral(&signs, row_weights, column_weights, claim)
        }
    }
}

fn check_lines(kind: Lines, ids: &[u32], n: usize) -> Result<(), Fault> {
    let mut seen = HashSet::new();
    for id in ids {
        if *id as usize >= n {
            return Err(Fault::Missing { kind, id: *id, n });
        }
        if !seen.insert(*id) {
            return Err(Fault::Repeated { kind, id: *id });
        }
    }
    if ids.is_empty() { Err(Fault::Empty { kind }) } else { Ok(()) }
}

/// The named part of Y±, row by row: true for +.
fn signs(matrix: &AnswerMatrix, certificate: &Certificate) -> Vec<Vec<bool>> {
    let row = |row: &u32| {
        let answers = matrix.row(*row as usize);
        let is_answer = |column: &u32| answers.binary_search(column).is_ok();
        certificate.columns.iter().map(is_answer).collect()
    };
    certificate.rows.iter().map(row).collect()
}

/// The lines that cross those of a kind.
fn across(rows: Vec<Vec<bool>>, lines: Lines) -> Vec<Vec<bool>> {
    match lines {
        Lines::Columns => rows,
        Lines::Rows => transpose(&rows),
    }
}

fn transpose(rows: &[Vec<bool>]) -> Vec<Vec<bool>> {
    (0..rows[0].len()).map(|column| rows.iter().map(|row| row[column]).collect()).collect()
}

fn count_patterns(patterns: &[Vec<bool>]) -> usize {
    let complement = |pattern: &Vec<bool>| pattern.iter().map(|sign| !sign).collect();
    let both = patterns.iter().flat_map(|pattern| [pattern.clone(), complement(pattern)]);
    both.collect::<HashSet<_>>().len()
}

fn check_patterns(patterns: &[Vec<bool>], claim: usize) -> Result<(), Fault> {
    let (n_patterns, n_lines) = (count_patterns(patterns), patterns[0].len());
    // One dimension less would have to be too few.
    if n_patterns as u128 > cover_count(n_lines, claim.saturating_sub(1)) {
        Ok(())
    } else {
        Err(Fault::TooFewPatterns { n_patterns, n_lines, claim })
    }
}

/// The most patterns on n lines in d dimensions, 2·Σ_{i<d} C(n − 1, i), or the largest number.
fn cover_count(n: usize, d: usize) -> u128 {
    // Row n − 1 of Pascal's triangle, from the top.
    let mut row = vec![1_u128];
    for _ in 1..n {
        let sums = row.windows(2).map(|pair| pair[0].saturating_add(pair[1]));
        row = [1].into_iter().chain(sums.collect::<Vec<_>>()).chain([1]).collect();
    }
    row.iter().take(d).fold(0_u128, |sum, binomial| sum.saturating_add(*binomial)).saturating_mul(2)
}

fn check_shattered(patterns: &[Vec<bool>], claim: usize) -> Result<(), Fault> {
    let (n_patterns, n_lines) = (count_patterns(patterns), patterns[0].len());
    let n_possible = u32::try_from(n_lines).ok().and_then(|n| 1_usize.checked_shl(n));
    if n_possible != Some(n_patterns) {
        return Err(Fault::NotShattered { n_patterns, n_lines });
    }
    if claim > n_lines { Err(Fault::TooFewLines { n_lines, claim }) } else { Ok(()) }
}

fn check_weights(kind: Lines, ids: &[u32], weights: &[f64]) -> Result<(), Fault> {
    let (n_lines, n_weights) = (ids.len(), weights.len());
    if n_lines != n_weights {
        return Err(Fault::WeightCount { kind, n_lines, n_weights });
    }
    let is_positive = |weight: f64| weight > 0.0 && weight.is_finite();
    if let Some((id, weight)) = ids.iter().zip(weights).find(|(_, weight)| !is_positive(**weight)) {
        return Err(Fault::Weight { kind, id: *id, weight: *weight });
    }
    let sum: f64 = weights.iter().sum();
    if (sum - 1.0).abs() > SUM_TOLERANCE { Err(Fault::WeightSum { kind, sum }) } else { Ok(()) }
}

/// Shows that claim − 1 dimensions are too few: norm and weights lie below 1/(claim − 1).
fn check_spectral(
    signs: &[Vec<bool>],
    row_weights: &[f64],
    column_weights: &[f64],
    claim: usize,
) -> Result<(), Fault> {
    // No dimensions are too few for any entry.
    if claim <= 1 {
        return Ok(());
    }
    let limit = (1.0 - MARGIN) / (claim - 1) as f64;
    let heaviest = |weights: &[f64]| weights.iter().copied().fold(0.0, f64::max);
    let (row, column) = (heaviest(row_weights), heaviest(column_weights));
    if row.min(column) > limit {
        return Err(Fault::Unbalanced { row, column, claim });
    }
    let is_below = if signs.len() <= signs[0].len() {
        norm_is_below(signs, row_weights, column_weights, limit)
    } else {
        norm_is_below(&transpose(signs), column_weights, row_weights, limit)
    };
    if is_below { Ok(()) } else { Err(Fault::Norm { claim }) }
}

/// Whether ‖B‖ < `limit` for B = diag(√μ) A diag(√ν), shown by the Cholesky factorisation of
/// (limit² − rounding)·I − B·Bᵀ; `false` proves nothing.
///
/// With u = 2⁻⁵³, m rows and n columns: entry (i, k) of B·Bᵀ is computed with an error of at most
/// (n + 8)·u·√(μ_i μ_k), which is a matrix of norm (n + 8)·u. A factorisation that goes through shows
/// that the matrix plus 2·(m + 2)·u times its trace, at most m·limit², is positive (Rump 2006).
/// Twice the sum of both is taken off.
fn norm_is_below(
    signs: &[Vec<bool>],
    row_weights: &[f64],
    column_weights: &[f64],
    limit: f64,
) -> bool {
    let (m, n) = (signs.len() as f64, column_weights.len() as f64);
    let rounding = f64::EPSILON * (n + 8.0 + 2.0 * (m + 2.0) * m * limit * limit);
    let mut factor: Vec<Vec<f64>> = Vec::with_capacity(signs.len());
    for (i, row) in signs.iter().enumerate() {
        let mut line = Vec::with_capacity(i + 1);
        for (k, other) in signs.iter().take(i + 1).enumerate() {
            let terms = row.iter().zip(other).zip(column_weights);
            let product: f64 = terms.map(|((a, b), nu)| if a == b { *nu } else { -nu }).sum();
            let gram = (row_weights[i] * row_weights[k]).sqrt() * product;
            let entry = if i == k { limit * limit - rounding - gram } else { -gram };
            let known = line.iter().zip(factor.get(k).unwrap_or(&line));
            let rest = entry - known.map(|(a, b): (&f64, &f64)| a * b).sum::<f64>();
            if i != k {
                line.push(rest / factor[k][k]);
            } else if rest > 0.0 {
                line.push(rest.sqrt());
            } else {
                return false;
            }
        }
        factor.push(line);
    }
    true
}
