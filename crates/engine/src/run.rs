//! The run folder: where is a training kept, so that nothing is lost and nothing else is needed?
//!
//! A run folder has:
//! - `config.toml`: every setting, also the defaulted ones;
//! - `names.json` and `known.safetensors`: the graph;
//! - `run.json`: who trained what where, hashes of dataset and weights, and what it came to; with a
//!   hash of itself;
//! - `metrics.jsonl`: a line per epoch;
//! - `report.html`: a page that shows it, if somebody made one;
//! - `candidates.safetensors`: what held-out answers are ranked among, if it was given;
//! - `ranks-valid.csv` and `ranks-test.csv`: where every held-out answer stands, if that was kept;
//! - `model.safetensors`: the best weights, once the training is over;
//! - `checkpoint/` until then: the state to go on from, the best weights so far, and a manifest
//!   that is written last. What the manifest does not name is a leftover and is removed;
//! - `checked.json`: which files were found whole, so that they need not be hashed again.
//!
//! Only one training can be in a folder: it holds a lock on `lock`.

mod candidate_file;
mod checkpoint;
mod files;
mod graph_files;
mod hash_cache;
mod manifest;
#[cfg(test)]
mod tests;
mod training;

use std::path::Path;
use std::sync::Arc;

use fullrank_graph::{Graph, Split};

use crate::config::{Config, RawConfig};
use crate::device::Device;
use crate::error::Error;
use crate::evaluate::{Calibration, GivenCandidates};
use crate::model::Model;
use crate::network::Network;
use crate::progress::{Best, EpochRecord, Trained};
use crate::random::Weights;
use crate::rank_file::{self, RankLine};
use checkpoint::{Checkpoint, load_network};
use files::{Hashes, TensorReader};
use hash_cache::HashCache;
use manifest::RunManifest;
pub use manifest::{Provenance, SplitMetrics};
pub use training::{Existing, TrainingFolder, lock};

const CONFIG: &str = "config.toml";
const RUN: &str = "run.json";
const MODEL: &str = "model.safetensors";
const METRICS: &str = "metrics.jsonl";
/// Not made by this library; it goes with the run that it shows.
const REPORT: &str = "report.html";
/// The file of a folder that a training, or a search, holds while it works there.
pub const LOCK: &str = "lock";
const CHECKPOINT: &str = "checkpoint";

/// A run folder, opened: a model, and what is known of its training.
#[derive(Debug)]
pub struct Run {
    /// The model with the best weights.
    pub model: Model,
    /// What the training has come to so far.
    pub trained: Trained,
    /// Whether the training is over.
    pub is_finished: bool,
    /// Metrics of the splits that were ranked when it was over.
    pub splits: Vec<SplitMetrics>,
    /// Of the last of these, as trained and then at the temperature that was fitted.
    pub calibration: Vec<Calibration>,
    /// One for each time the training was begun or taken up again.
    pub sessions: Vec<Provenance>,
    /// Whether it was validated against [candidates that were given](kept_candidates), among which the
    /// model ranks only if it is [told to](Model::rank_among).
    pub has_candidates: bool,
}

impl Run {
    /// Opens a run: the best weights of a finished training, or the best so far of another.
    ///
    /// Runs of every version that was ever released can be opened.
    ///
    /// # Errors
    /// When the folder is no run, has no weights yet, or is damaged.
    pub fn open(folder: &Path, device: Device) -> Result<Self, Error> {
        let manifest = RunManifest::read(folder)?;
        let cache = HashCache::read(folder);
        // With the manifest, whose hashes they were checked against.
        let files = [RUN, MODEL, graph_files::NAMES, graph_files::KNOWN];
        let stamps = cache.stamps(&files);
        let hashes = if cache.has(&files) { Hashes::Known } else { Hashes::Check };
        let found = SavedWeights::open(folder, &manifest, hashes);
        // The training may have moved on between two looks: look again, once.
        let mut weights = match found {
            Err(Error::NoWeights { .. } | Error::Read { .. }) => {
                SavedWeights::open(folder, &RunManifest::read(folder)?, hashes)
            }
            found => found,
        }?;
        let config = read_config(folder, &manifest)?;
        let graph = graph_files::read(folder, &manifest.known, &manifest.dataset, hashes)?;
        let fresh = Weights::zeros(device.burn());
        let fresh = Network::new(&config, &config.domain(&graph), fresh);
        let network = load_network(fresh, &mut weights.reader, "")?;
        let SavedWeights { trained, is_finished, temperature, .. } = weights;
        if is_finished && hashes == Hashes::Check {
            cache.remember(&stamps);
        }
        let mut model = Model::new(Arc::new(graph), config, network, trained);
        model.temperature = temperature;
        let (splits, calibration) =
            manifest.result.map(|result| (result.splits, result.calibration)).unwrap_or_default();
        let sessions = manifest.sessions;
        let has_candidates = manifest.candidates.is_some();
        Ok(Self { model, trained, is_finished, splits, calibration, sessions, has_candidates })
    }
}

impl Model {
    /// Opens the model of a run folder.
    ///
    /// # Errors
    /// When the folder is no run, has no weights yet, or is damaged.
    pub fn open(folder: &Path, device: Device) -> Result<Self, Error> {
        Run::open(folder, device).map(|run| run.model)
    }

    /// Writes the model as a run folder, from which it can be opened without the data.
    ///
    /// Its temperature is that of [`finish`](Model::finish), if that was called, and the candidates that
    /// it ranks among are kept with it. What only a training in a folder knows is not there: metrics of
    /// every epoch, and who trained where.
    ///
    /// # Errors
    /// When there is something else, or when it cannot be written.
    pub fn save(&self, folder: &Path, existing: Existing) -> Result<(), Error> {
        let mut folder = TrainingFolder::create(folder, self.graph(), self.config(), existing)?;
        folder.rank_among(Arc::clone(&self.candidates))?;
        folder.finish_with(self)
    }
}

/// The best epoch of a training so far, if it has come so far.
///
/// # Errors
/// When the folder is no run, or is damaged.
pub fn best_epoch(folder: &Path) -> Result<Option<Best>, Error> {
    if let Some(result) = RunManifest::read(folder)?.result {
        return Ok(Some(result.best));
    }
    let checkpoint = Checkpoint::read(&folder.join(CHECKPOINT))?;
    Ok(checkpoint.and_then(|checkpoint| checkpoint.position.best))
}

/// The epochs of a training so far.
///
/// # Errors
/// When the folder is no run, or is damaged.
pub fn epochs(folder: &Path) -> Result<Vec<EpochRecord>, Error> {
    RunManifest::read(folder)?;
    let path = folder.join(METRICS);
    let text = String::from_utf8_lossy(&files::read(&path)?).into_owned();
    let record = |line: &str| {
        serde_json::from_str(line)
            .map_err(|source| Error::Damaged { path: path.clone(), what: source.to_string() })
    };
    text.lines().map(record).collect()
}

/// Where every held-out answer of a split stands, if that was kept with the run.
///
/// # Errors
/// When the folder is no run, or at the first line that is not as it should be.
pub fn kept_ranks(folder: &Path, split: Split) -> Result<Option<Vec<RankLine>>, Error> {
    RunManifest::read(folder)?;
    let path = folder.join(ranks_file(split));
    path.exists().then(|| rank_file::read(&path)).transpose()
}

/// The candidates that held-out answers of a training are ranked among, if any were given.
///
/// # Errors
/// When the folder is no run or is damaged, or when it is of another graph.
pub fn kept_candidates(folder: &Path, graph: &Graph) -> Result<Option<GivenCandidates>, Error> {
    let manifest = RunManifest::read(folder)?;
    let Some(file) = &manifest.candidates else { return Ok(None) };
    if graph_files::dataset_hash(graph) != manifest.dataset {
        return Err(Error::OtherDataset { path: folder.into() });
    }
    candidate_file::read(folder, file, graph).map(Some)
}

fn ranks_file(split: Split) -> String {
    format!("ranks-{split}.csv")
}

/// The best weights of a run, opened: whatever is removed from now on, they can be read.
struct SavedWeights {
    reader: TensorReader,
    trained: Trained,
    is_finished: bool,
    temperature: Option<f64>,
}

impl SavedWeights {
    fn open(folder: &Path, manifest: &RunManifest, hashes: Hashes) -> Result<Self, Error> {
        if let Some(result) = &manifest.result {
            let reader = TensorReader::map(folder, &result.model, hashes)?;
            let (trained, temperature) = (result.trained(), result.temperature);
            return Ok(Self { reader, trained, is_finished: true, temperature });
        }
        let checkpoints = folder.join(CHECKPOINT);
        let checkpoint = Checkpoint::read(&checkpoints)?;
        let found = checkpoint.and_then(|checkpoint| {
            let trained = checkpoint.position.so_far()?;
            Some((trained, checkpoint.best?))
        });
        let (trained, file) = found.ok_or_else(|| Error::NoWeights { path: folder.into() })?;
        let reader = TensorReader::open(&checkpoints, &file)?;
        Ok(Self { reader, trained, is_finished: false, temperature: None })
    }
}

fn read_config(folder: &Path, manifest: &RunManifest) -> Result<Config, Error> {
    let path = folder.join(CONFIG);
    let text = String::from_utf8_lossy(&files::read(&path)?).into_owned();
    if files::sha256(text.as_bytes()) != manifest.config {
        return Err(Error::Damaged { path, what: "it is not what was written".into() });
    }
    let mut raw = RawConfig::default();
    raw.add_file(&path, &text)?;
    raw.check_written()
}
