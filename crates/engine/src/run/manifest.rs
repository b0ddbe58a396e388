//! The manifest of a run: who trained what, and what did it come to?
//!
//! `run.json` names the other files with their hashes and carries a hash of itself. The oldest format is
//! still read, for ever.

use std::path::Path;

use fullrank_graph::Split;
use serde::{Deserialize, Serialize};

use super::RUN;
use super::files::{self, TensorFile};
use crate::error::Error;
use crate::evaluate::Calibration;
use crate::metrics::Metrics;
use crate::progress::{Best, End, Trained};

/// Changes when older programs could no longer read a run, or would not see all that is wrong with it.
const FORMAT: u32 = 3;
/// Without a hash of itself, and with less in it.
const OLDEST: u32 = 1;

/// What `run.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RunManifest {
    format: u32,
    fullrank: String,
    pub(super) seed: u64,
    /// SHA-256 of `config.toml`.
    pub(super) config: String,
    /// SHA-256 of names and triples.
    pub(super) dataset: String,
    pub(super) known: TensorFile,
    /// What held-out answers are ranked among, if it was given.
    #[serde(default)]
    pub(super) candidates: Option<TensorFile>,
    /// One for each time the training was begun or taken up again.
    #[serde(default)]
    pub(super) sessions: Vec<Provenance>,
    /// Nothing until the training is over.
    pub(super) result: Option<RunResult>,
    /// SHA-256 of this file with nothing between these quotes.
    #[serde(default)]
    hash: String,
}

/// Where and by whom a training was begun, or taken up again. The engine does not look at clock and
/// machine: whoever calls it tells.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Provenance {
    /// The command line, word by word, or what stands in its place.
    pub command: Vec<String>,
    /// Date and time, as in RFC 3339.
    pub date: String,
    /// Processor and system.
    pub machine: String,
    /// Threads that work was shared by.
    pub threads: usize,
    /// Version of the program.
    pub version: String,
}

/// What a finished training has come to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct RunResult {
    pub(super) best: Best,
    pub(super) updates: u64,
    pub(super) epochs: usize,
    pub(super) end: End,
    /// Time for updates and validation, over all sessions; nothing in runs of versions that did not
    /// measure it.
    #[serde(default)]
    pub(super) seconds: Option<f64>,
    pub(super) parameters: usize,
    pub(super) model: TensorFile,
    /// What log-probabilities are divided by, once that was fitted on validation.
    #[serde(default)]
    pub(super) temperature: Option<f64>,
    /// Of every split that was ranked in the end.
    #[serde(default)]
    pub(super) splits: Vec<SplitMetrics>,
    /// On the last of these, as trained and then at the temperature.
    #[serde(default)]
    pub(super) calibration: Vec<Calibration>,
}

/// Metrics on one held-out split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SplitMetrics {
    /// `valid` or `test`.
    pub split: String,
    /// Of the model.
    pub model: Metrics,
    /// Of ranking by popularity alone.
    pub popularity: Metrics,
    /// What is expected of a random order; nothing in runs of versions that did not compute it.
    #[serde(default)]
    pub random: Option<Metrics>,
}

impl RunResult {
    /// Of a training that is over.
    pub(super) fn new(trained: Trained, parameters: usize, model: TensorFile) -> Self {
        let Trained { best, updates, epochs, end, seconds } = trained;
        Self {
            best,
            updates,
            epochs,
            end,
            seconds: Some(seconds),
            parameters,
            model,
            temperature: None,
            splits: Vec::new(),
            calibration: Vec::new(),
        }
    }

    pub(super) fn trained(&self) -> Trained {
        let Self { best, updates, epochs, end, seconds, .. } = *self;
        Trained { best, updates, epochs, end, seconds: seconds.unwrap_or_default() }
    }
}

impl RunManifest {
    /// Of a training that begins.
    pub(super) fn new(seed: u64, config: String, dataset: String, known: TensorFile) -> Self {
        let fullrank = env!("CARGO_PKG_VERSION").into();
        Self {
            format: FORMAT,
            fullrank,
            seed,
            config,
            dataset,
            known,
            candidates: None,
            sessions: Vec::new(),
            result: None,
            hash: String::new(),
        }
    }

    /// That of a run folder.
    pub(super) fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(RUN);
        if !path.exists() {
            return Err(Error::NotARun { path: folder.into() });
        }
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }
        let Format { format } = files::read_json(&path)?;
        if !(OLDEST..=FORMAT).contains(&format) {
            return Err(Error::OtherFormat { path, expected: FORMAT, found: format });
        }
        let manifest: Self = files::read_json(&path)?;
        if format > OLDEST {
            let text = String::from_utf8_lossy(&files::read(&path)?).into_owned();
            let unsigned = text.replacen(&format!("\"{}\"", manifest.hash), "\"\"", 1);
            if manifest.hash.is_empty() || files::sha256(unsigned.as_bytes()) != manifest.hash {
                return Err(Error::Damaged { path, what: "it is not what was written".into() });
            }
        }
        Ok(manifest)
    }

    /// Writes it to a run folder, with its hash.
    pub(super) fn write(&mut self, folder: &Path) -> Result<(), Error> {
        self.format = FORMAT;
        self.hash = String::new();
        self.hash = files::sha256(files::json_text(self).as_bytes());
        files::write_json(&folder.join(RUN), self)
    }

    /// Adds what a finished training came to on held-out splits.
    pub(super) fn add_splits(&mut self, finished: &crate::model::Finished) {
        let Some(result) = &mut self.result else { return };
        let of_split = |found: &crate::model::SplitResult| SplitMetrics {
            split: Split::to_string(&found.split),
            model: found.metrics,
            popularity: found.baselines.popularity,
            random: Some(found.baselines.random),
        };
        result.splits = finished.splits.iter().map(of_split).collect();
        result.calibration.clone_from(&finished.calibration);
    }
}
