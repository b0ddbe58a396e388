//! Progress: what does long work tell while it goes on, and how is it stopped?
//!
//! All long work of the engine takes one callback, is told by it whether to go on, and ends with
//! [`Error::Interrupted`](crate::Error::Interrupted) if not. A training loses nothing by that.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;

/// What a callback answers: go on, or stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Go on.
    Continue,
    /// Stop as soon as nothing is lost by it. The call ends with
    /// [`Error::Interrupted`](crate::Error::Interrupted); called again, a trainer goes on where it was.
    Stop,
}

/// What work tells while it goes on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// One update of a training was made.
    Update {
        /// Epochs finished.
        epoch: usize,
        /// Updates of this epoch, of `batches`.
        batch: usize,
        /// Updates of a whole epoch.
        batches: usize,
        /// Mean loss of the epoch so far, per unit of answer weight.
        loss: f64,
    },
    /// Queries are being scored: to be ranked, calibrated or measured.
    Scoring {
        /// Queries done.
        done: usize,
        /// Queries to be done.
        total: usize,
    },
    /// Eigenvalues of a matrix with so many rows are computed; nothing can stop that.
    Solving {
        /// Rows and columns.
        side: usize,
    },
    /// One of several runs is about to be ranked.
    Run {
        /// Its folder.
        folder: &'a Path,
        /// Runs done.
        done: usize,
        /// Runs to be done.
        total: usize,
    },
    /// Resamples are being drawn for intervals.
    Resampling {
        /// Resamples done.
        done: usize,
        /// Resamples to be drawn.
        total: usize,
    },
    /// An epoch of a training is over.
    Epoch(&'a EpochRecord),
}

/// What is called while work goes on.
pub type Progress<'a> = dyn FnMut(Event) -> Signal + 'a;

/// A callback for those who do not want to know.
pub fn silent() -> impl FnMut(Event) -> Signal {
    |_| Signal::Continue
}

/// What an epoch of a training came to: a line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// From 1.
    pub epoch: usize,
    /// Updates since the start.
    pub updates: u64,
    /// Mean cross-entropy (of sigmoids, that of all objects), or shortfall of the margin, per unit of
    /// answer weight, as it was during the epoch.
    pub loss: f64,
    /// Of the last update.
    pub learning_rate: f64,
    /// Of validation; nothing if there is none.
    pub valid: Option<Metrics>,
    /// Whether validation MRR was never better.
    pub best: bool,
    /// Time for updates, of the part since the last start.
    pub seconds: f64,
    /// Time for validation.
    pub valid_seconds: f64,
    /// Items (queries or triples) per second of updates.
    pub items_per_second: f64,
    /// Fraction of the entries of the logits' gradient that were multiplied, of the part since the last
    /// start; nothing for losses that are not over all objects.
    #[serde(default)]
    pub density: Option<f64>,
}

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// From 1.
    pub epoch: usize,
    /// Its validation MRR; nothing without validation, where the last epoch is the best.
    pub valid_mrr: Option<f64>,
}

/// Why a training ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// All epochs were made.
    Epochs,
    /// Validation MRR did not improve for `patience` epochs.
    Patience,
    /// It was stopped before either: its model was taken as it was.
    Stopped,
}

/// A finished training.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trained {
    /// The epoch whose weights were kept.
    pub best: Best,
    /// Updates made.
    pub updates: u64,
    /// Epochs made.
    pub epochs: usize,
    /// Why it ended.
    pub end: End,
    /// Time for updates and validation, over all sessions.
    pub seconds: f64,
}
