//! How large must the dimension be?
//!
//! A linear output layer scores objects with h·Eᵀ, so its scores have matrix rank at most d.
//! This module says which d is enough for rankings, for signs (the right labels at a threshold)
//! and for distributions: for any graph of the size, and for the graph in hand.

use serde::Serialize;

use crate::statistics::Degrees;

/// Dimensions that are enough, whatever the graph or for the graph in hand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Bounds {
    /// Enough and needed for every graph with as many entities.
    pub universality: Universality,
    /// The largest number of answers of any query.
    pub max_answers: usize,
    /// Enough for the signs of every graph whose queries have no more answers: 2c + 1.
    ///
    /// Objects on a moment curve are cut apart by a polynomial that changes its sign before and
    /// after each answer, so at most 2c times.
    pub worst_case: usize,
}

/// The dimension at which every outcome of a kind becomes possible, for any graph of the size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Universality {
    /// Every order of the objects.
    pub rankings: usize,
    /// Every set of answers above a fixed threshold.
    pub signs: usize,
    /// Every distribution over the objects.
    pub distributions: usize,
}

impl Bounds {
    /// The bounds that follow from counts alone.
    pub fn from_counts(n_entities: usize, degrees: &Degrees) -> Self {
        Self {
            universality: Universality {
                rankings: n_entities.saturating_sub(1),
                signs: n_entities,
                distributions: n_entities.saturating_sub(1),
            },
            max_answers: degrees.max,
            worst_case: 2 * degrees.max + 1,
        }
    }
}
