//! The spectrum: how many dimensions do a model's log-probabilities really have?
//!
//! The matrix has a row per distinct query of a split, both directions, and a column per entity.
//! Its matrix rank is the number of singular values above max(m, n)·ε·σ_max, where ε is that of f32:
//! what NumPy and PyTorch call the rank. A softmax cannot come above d + 1 (one more with a bias per
//! object), whatever it has learned; a mixture can (Yang et al. 2018).
//!
//! Of a model that says whether each triple holds, log-odds log P / (1 − P) are taken: of a sigmoid
//! these are its scores, limited to rank d + 1, where log σ of them has no limit. What limits a model is
//! said by [`Config::max_matrix_rank`](crate::Config::max_matrix_rank).
//!
//! Singular values are the roots of the eigenvalues of the Gram matrix of the smaller side. Squaring
//! costs half of the digits, so it is done in f64, in which products of two f32 are exact. The
//! error of an eigenvalue is about n·2.2e-16·σ_max², which for n = 14,541 hides singular values
//! below 1.8e-6·σ_max; the tolerance for 22,850 queries is 2.7e-3·σ_max, far above.
//!
//! A matrix too large for that is projected to fewer dimensions first ([`Method::Sketch`]): what is
//! then found is a lower bound.

mod gram;

use fullrank_graph::{Graph, Query, Split};
use rand::RngExt;
use serde::Serialize;

use crate::error::Error;
use crate::evaluate::{Scorer, held_out_queries};
use crate::probability::ProbabilityKind;
use crate::progress::{Event, Progress, Signal};
use crate::random::{Purpose, generator};
use gram::{Gram, Sketch};

/// The singular values of a model's log-probabilities.
#[derive(Debug, Clone, Serialize)]
pub struct Spectrum {
    /// Distinct queries, m.
    pub n_queries: usize,
    /// Entities, n.
    pub n_entities: usize,
    /// What the matrix has for each of both.
    pub measured: Measured,
    /// How they were found.
    pub method: Method,
    /// The matrix rank at a tenfold tolerance, at the usual one, and at a tenth of it.
    pub ranks: Vec<RankAt>,
    /// Where singular values fall the most; nothing for fewer than three.
    pub largest_fall: Option<Fall>,
    /// Largest first.
    pub singular_values: Vec<f64>,
}

/// What a matrix is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measured {
    /// log P, where probabilities of all objects sum to one.
    LogProbabilities,
    /// log P / (1 − P), where each is that of its triple to hold.
    LogOdds,
}

impl Measured {
    fn of(probability: ProbabilityKind) -> Self {
        match probability {
            ProbabilityKind::Categorical => Self::LogProbabilities,
            ProbabilityKind::Bernoulli => Self::LogOdds,
        }
    }
}

/// How singular values were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// All of them, from the whole matrix.
    Exact,
    /// The largest of the matrix projected on so many directions, drawn at random from its rows:
    /// none is larger than the true one (Halko, Martinsson and Tropp 2011).
    Sketch {
        /// Directions; no matrix rank is found above it.
        width: usize,
    },
}

/// A matrix rank at a tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RankAt {
    /// Singular values above this share of the largest count.
    pub tolerance: f64,
    /// How many do.
    pub matrix_rank: usize,
}

/// How much smaller a singular value is than the one before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Fall {
    /// Singular values before it.
    pub after: usize,
    /// How many times as large the last of these is.
    pub factor: f64,
}

impl Fall {
    /// The largest one; that after the first, which is the mean of the matrix, tells nothing.
    fn largest(singular_values: &[f64]) -> Option<Self> {
        // What is smaller is rounding, as of eigenvalues.
        let rounding = (singular_values.len() as f64 * f64::EPSILON).sqrt();
        let least = singular_values.first()? * rounding;
        let falls = singular_values.windows(2).enumerate().skip(1).map(|(i, pair)| Self {
            after: i + 1,
            factor: pair[0].max(least) / pair[1].max(least),
        });
        falls.max_by(|a, b| a.factor.total_cmp(&b.factor))
    }
}

/// How much memory the work may take, in numbers.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Rows of a Gram matrix, of which there are two copies in f64.
    side: usize,
    /// Log-probabilities kept at once, in f32.
    kept: usize,
    /// Directions of a sketch.
    width: usize,
    /// Values of a sketch over all entities, of which there are three copies in f64.
    sketch: usize,
}

/// Within 8 GiB.
const LIMITS: Limits = Limits { side: 16_384, kept: 3 << 28, width: 2048, sketch: 1 << 28 };

/// The spectrum of a model over the distinct queries of a split; nothing without any.
///
/// # Errors
/// When a log-probability is not a finite number, or when `progress` says stop.
pub fn spectrum(
    graph: &Graph,
    split: Split,
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Option<Spectrum>, Error> {
    let queries = held_out_queries(graph, split);
    if queries.is_empty() {
        return Ok(None);
    }
    let rows = Rows { queries: &queries, n_entities: graph.entities().len(), scorer };
    of_rows(&rows, LIMITS, progress).map(Some)
}

/// The matrix, of which a few rows exist at a time.
struct Rows<'a, S> {
    queries: &'a [Query],
    n_entities: usize,
    scorer: &'a S,
}

impl<S: Scorer> Rows<'_, S> {
    /// Hands over blocks of rows in order, each with the number of its first row.
    fn for_each_block(
        &self,
        mut progress: impl FnMut(usize) -> Signal,
        mut take: impl FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        /// Of one block.
        const FLOATS: usize = 16 * 1024 * 1024;
        let measured = Measured::of(self.scorer.probability());
        let measure = |_, row: &[f32]| -> Option<Vec<f32>> {
            let are_finite = row.iter().fold(true, |are, x| are & x.is_finite());
            are_finite.then(|| match measured {
                Measured::LogOdds => row.iter().copied().map(log_odds).collect(),
                Measured::LogProbabilities => row.to_vec(),
            })
        };
        let mut values = Vec::new();
        let mut done = 0;
        for block in self.queries.chunks((FLOATS / self.n_entities).max(16)) {
            values.clear();
            for row in self.scorer.map_rows(block, measure) {
                values.extend(row.ok_or(Error::BrokenModel)?);
            }
            take(done, &values);
            done += block.len();
            if progress(done) == Signal::Stop {
                return Err(Error::Interrupted);
            }
        }
        Ok(())
    }
}

/// log P / (1 − P) of log P, to the last digits of f32 also where P is nearly one.
fn log_odds(log_prob: f32) -> f32 {
    // A probability of one would have no end.
    let log_prob = f64::from(log_prob.min(-f32::MIN_POSITIVE));
    (log_prob - (-log_prob.exp_m1()).ln()) as f32
}

fn of_rows(
    rows: &Rows<impl Scorer>,
    limits: Limits,
    progress: &mut Progress,
) -> Result<Spectrum, Error> {
    let (m, n) = (rows.queries.len(), rows.n_entities);
    let is_wide = m < n;
    let (method, gram) = if m.min(n) > limits.side || (is_wide && m * n > limits.kept) {
        let width = limits.width.min(limits.sketch / n).min(m).min(n).max(1);
        (Method::Sketch { width }, sketched(rows, width, progress)?)
    } else if is_wide {
        (Method::Exact, of_wide(rows, progress)?)
    } else {
        (Method::Exact, of_tall(rows, progress)?)
    };
    progress(Event::Solving { side: gram.side() });
    let singular_values = gram.singular_values();
    let largest = singular_values[0];
    let usual = m.max(n) as f64 * f64::from(f32::EPSILON);
    let rank_at = |tolerance: f64| RankAt {
        tolerance,
        matrix_rank: singular_values.partition_point(|value| *value > tolerance * largest),
    };
    let ranks = [10.0 * usual, usual, 0.1 * usual].map(rank_at).to_vec();
    let measured = Measured::of(rows.scorer.probability());
    let largest_fall = Fall::largest(&singular_values);
    Ok(Spectrum {
        n_queries: m,
        n_entities: n,
        measured,
        method,
        ranks,
        largest_fall,
        singular_values,
    })
}

/// AᵀA, block of rows after block of rows.
fn of_tall(rows: &Rows<impl Scorer>, progress: &mut Progress) -> Result<Gram, Error> {
    let total = rows.queries.len();
    let mut gram = Gram::zero(rows.n_entities);
    let progress = |done| progress(Event::Scoring { done, total });
    rows.for_each_block(progress, |_, block| gram.add(block))?;
    Ok(gram)
}

/// AAᵀ, for which all rows must be there.
fn of_wide(rows: &Rows<impl Scorer>, progress: &mut Progress) -> Result<Gram, Error> {
    /// Columns turned into rows at a time.
    const COLUMNS: usize = 1024;
    let (total, n) = (rows.queries.len(), rows.n_entities);
    let mut all = Vec::with_capacity(total * n);
    let progress = |done| progress(Event::Scoring { done, total });
    rows.for_each_block(progress, |_, block| all.extend_from_slice(block))?;
    let mut gram = Gram::zero(total);
    for start in (0..n).step_by(COLUMNS) {
        let columns = start..n.min(start + COLUMNS);
        let turned: Vec<f32> =
            columns.flat_map(|column| all[column..].iter().step_by(n).copied()).collect();
        gram.add(&turned);
    }
    Ok(gram)
}

/// (AQ)ᵀAQ, where Q is a basis of random sums of the rows.
fn sketched(
    rows: &Rows<impl Scorer>,
    width: usize,
    progress: &mut Progress,
) -> Result<Gram, Error> {
    let (m, n) = (rows.queries.len(), rows.n_entities);
    let mut stage = |done| progress(Event::Scoring { done, total: 2 * m });
    let mut sketch = Sketch::zero(width, n);
    rows.for_each_block(&mut stage, |first, block| {
        // Each block has a generator of its own, so the draw does not depend on what came before.
        let mut rng = generator(0, Purpose::Sketch, (first as u64, 0));
        let factors = (0..block.len() / n * width).map(|_| rng.random::<f64>() * 2.0 - 1.0);
        sketch.add(&factors.collect::<Vec<_>>(), block);
    })?;
    let basis = sketch.basis();
    let mut gram = Gram::zero(width);
    rows.for_each_block(|done| stage(m + done), |_, block| gram.add_projected(block, &basis))?;
    Ok(gram)
}

#[cfg(test)]
mod tests;
