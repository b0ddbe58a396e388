//! Sign rank: how many dimensions do the signs of a graph need at least?
//!
//! The sign rank of Y± = 2Y − 1 is the smallest matrix rank of any real matrix with these signs: rows
//! h_i and columns e_j in d dimensions with sign⟨h_i, e_j⟩ = Y±_ij. To compute it is NP-hard. Three
//! arguments bound it from below; each speaks of a part of the matrix, which has no larger sign rank.
//!
//! Patterns (Cover 1965): n vectors in d dimensions are cut by hyperplanes through the origin in at
//! most 2·Σ_{i<d} C(n − 1, i) ways. So as many patterns are to be seen on n columns at most, where a
//! row stands for its pattern and the complement, which −h cuts.
//!
//! Shattered sets: if every pattern on n columns, or its complement, is some row's, then d ≥ n. For
//! if Σ c_j e_j = 0, no h has the signs of c, nor the opposite ones: the terms of Σ c_j ⟨h, e_j⟩ would
//! all have one sign. This is the case of 2^n patterns, for which Cover's count needs d = n too.
//!
//! Spectral (Forster 2002; Forster, Krause, Lokam, Mubarakzjanov, Schmitt and Simon 2001): let μ and ν
//! be distributions over rows and columns, A the signs, and B_ij = √μ_i A_ij √ν_j. Suppose all μ_i are
//! below 1/d. As no scalar product is 0, the h_i can be moved into general position, and then a linear
//! map takes them, scaled to length 1, to Σ μ_i h_i h_iᵀ = I/d (Barthe 1998 for unequal weights). The
//! inverse map takes the e_j along, and they are scaled to length 1 too. No sign changes, so
//!
//! ```text
//! 1/d = Σ μ_i ν_j ⟨h_i, e_j⟩² ≤ Σ μ_i ν_j |⟨h_i, e_j⟩| = Σ √μ_i B_ij √ν_j ⟨h_i, e_j⟩ ≤ ‖B‖,
//! ```
//!
//! the last because the √μ_i h_i, and the √ν_j e_j, have squared lengths that sum to one. Hence
//! d ≥ min(1/‖B‖, 1/max μ), and as well with ν for μ. All of it holds with rows and columns exchanged.
//!
//! `patterns` and `spectral` search, `check` is convinced by nothing but the certificate and the
//! matrix. Upper bounds are the business of `search`, which orders the objects.

mod check;
mod crossing;
mod patterns;
mod spectral;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::Serialize;

pub use check::{Fault, check};

use crate::matrix::AnswerMatrix;

/// Why the sign rank cannot be smaller: a part of the matrix, and what to see in it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Certificate {
    /// What the part proves.
    pub argument: Argument,
    /// The sign rank is at least this.
    pub lower_bound: usize,
    /// Rows of the part, by their place in [`AnswerMatrix::row`].
    pub rows: Vec<u32>,
    /// Columns of the part.
    pub columns: Vec<u32>,
}

/// How a part of the matrix proves a lower bound.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Argument {
    /// On its lines of a kind, those that cross show more patterns than Cover's count allows.
    Patterns {
        /// What the patterns are read on.
        lines: Lines,
    },
    /// On its lines of a kind, every pattern or its complement is shown.
    Shattered {
        /// What the patterns are read on.
        lines: Lines,
    },
    /// Under these weights its norm is small.
    Spectral {
        /// One for each row; they sum to one.
        row_weights: Vec<f64>,
        /// One for each column; they sum to one.
        column_weights: Vec<f64>,
    },
}

impl Argument {
    /// What it is called in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Patterns { .. } => "patterns",
            Self::Shattered { .. } => "shattered",
            Self::Spectral { .. } => "spectral",
        }
    }
}

/// Rows or columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lines {
    /// Queries.
    Rows,
    /// Objects.
    Columns,
}

impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rows => "row",
            Self::Columns => "column",
        })
    }
}

/// How long to search for lower bounds; counted in steps, so the same call gives the same bounds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignRankEffort {
    /// Sets of lines that are kept at each size, when looking for many patterns.
    pub beam: usize,
    /// How often weights are improved, for the spectral argument.
    pub weightings: usize,
}

/// The best certificate of each argument, the largest bound first; none for a matrix without rows.
///
/// # Panics
/// If a certificate does not pass [`check`], which is a fault of the search.
pub fn sign_rank_lower_bound(matrix: &AnswerMatrix, effort: SignRankEffort) -> Vec<Certificate> {
    if matrix.n_rows() == 0 {
        return vec![];
    }
    let mut found = Vec::new();
    for lines in [Lines::Rows, Lines::Columns] {
        found.extend(patterns::search(matrix, lines, effort.beam));
        found.push(spectral::search(matrix, lines, effort.weightings));
    }
    for certificate in &found {
        if let Err(fault) = check(matrix, certificate) {
            panic!("the search claims what its certificate does not prove: {fault}");
        }
    }
    // Of two that prove as much, the smaller one is easier to read.
    found.sort_by_key(|it| (std::cmp::Reverse(it.lower_bound), it.rows.len() * it.columns.len()));
    let mut kinds = Vec::new();
    found.retain(|it| {
        let kind = std::mem::discriminant(&it.argument);
        let is_first = !kinds.contains(&kind);
        kinds.push(kind);
        is_first
    });
    found
}
