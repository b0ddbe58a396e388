//! Where is a training kept, so that nothing is lost and nothing else is needed?
//!
//! A run folder has:
//! - `config.toml`: every setting, also the defaulted ones;
//! - `names.json` and `known.safetensors`: the graph;
//! - `run.json`: version, hashes of dataset and weights, and how the training ended;
//! - `metrics.jsonl`: a line per epoch;
//! - `report.html`: a page that shows it, made by the program;
//! - `model.safetensors`: the best weights, once the training is over;
//! - `checkpoint/` until then: the state to go on from, the best weights so far, and a manifest
//!   that is written last. What the manifest does not name is a leftover and is removed;
//! - `checked.json`: which files were found whole, so that they need not be hashed again.
//!
//! Only one training can be in a folder: it holds a lock on `lock`.

mod checked;
mod checkpoint;
mod facts;
mod files;
#[cfg(test)]
mod tests;

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use fullrank_graph::{Graph, Query};
use safetensors::tensor::{Dtype, TensorView};
use serde::{Deserialize, Serialize};

use crate::config::{Config, RawConfig};
use crate::error::Error;
use crate::evaluate::Scorer;
use crate::model::Scoring;
use crate::output::Meaning;
use crate::parameters::{Named, count, tensors};
use crate::random::Weights;
use crate::train::{
    Best, End, EpochRecord, Position, State, Trained, check_fit, device, new_model,
};
use checked::{CHECKED, Checked};
use checkpoint::{Checkpoint, load_model};
use files::{Hashes, TensorFile, TensorReader};

/// Changes when older programs could no longer read a run.
const FORMAT: u32 = 1;
const CONFIG: &str = "config.toml";
const RUN: &str = "run.json";
const MODEL: &str = "model.safetensors";
const METRICS: &str = "metrics.jsonl";
/// Made by the program, not by this library; it goes with the run that it shows.
const REPORT: &str = "report.html";
const LOCK: &str = "lock";
const CHECKPOINT: &str = "checkpoint";

/// What `run.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunManifest {
    format: u32,
    fullrank: String,
    seed: u64,
    /// SHA-256 of `config.toml`.
    config: String,
    /// SHA-256 of names and triples.
    dataset: String,
    known: TensorFile,
    /// Nothing until the training is over.
    result: Option<RunResult>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct RunResult {
    best: Best,
    updates: u64,
    epochs: usize,
    end: End,
    parameters: usize,
    model: TensorFile,
    /// What log-probabilities are divided by, once that was fitted on validation.
    #[serde(default)]
    temperature: Option<f64>,
}

/// A trained model and the graph it was trained on.
#[derive(Debug)]
pub struct Run {
    /// What it was trained with.
    pub config: Config,
    /// What it was trained on.
    pub graph: Graph,
    /// The epoch its weights are from.
    pub best: Best,
    /// Whether the training is over.
    pub is_finished: bool,
    /// Updates made when the weights were written or later.
    pub updates: u64,
    /// Learned numbers.
    pub parameters: usize,
    /// What to divide log-probabilities by, if it was fitted on validation.
    pub temperature: Option<f64>,
    pub(crate) scoring: Scoring,
}

/// A table of learned numbers, for other programs.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// As in `model.safetensors`.
    pub name: String,
    /// Rows first.
    pub shape: Vec<usize>,
    /// Row after row.
    pub values: Vec<f32>,
    /// What its rows belong to.
    pub rows: TableRows,
}

/// What the rows of a table belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableRows {
    /// A row per entity.
    Entities,
    /// A row per relation, then a row per inverse of a relation.
    Relations,
    /// Neither.
    Other,
}

impl Run {
    /// Opens a run: the best weights of a finished training, or the best so far of another.
    ///
    /// # Errors
    /// When the folder is no run, has no weights yet, or is damaged.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let manifest = read_manifest(folder)?;
        let checked = Checked::read(folder);
        // With the manifest, whose hashes they were checked against.
        let files = [RUN, MODEL, facts::NAMES, facts::KNOWN];
        let stamps = checked.stamps(&files);
        let hashes = if checked.has(&files) { Hashes::Known } else { Hashes::Check };
        let found = SavedWeights::open(folder, &manifest, hashes);
        // The training may have moved on between two looks: look again, once.
        let mut weights = match found {
            Err(Error::NoWeights { .. } | Error::Read { .. }) => {
                SavedWeights::open(folder, &read_manifest(folder)?, hashes)
            }
            found => found,
        }?;
        let config = read_config(folder, &manifest)?;
        let graph = facts::read(folder, &manifest.known, &manifest.dataset, hashes)?;
        let model = new_model(&config, &graph, Weights::zeros(device()));
        let model = load_model(model, &mut weights.reader, "")?;
        let parameters = count(&model);
        let SavedWeights { best, updates, is_finished, temperature, .. } = weights;
        if is_finished && hashes == Hashes::Check {
            checked.remember(&stamps);
        }
        let scoring = model.scoring();
        Ok(Self { config, graph, best, is_finished, updates, parameters, temperature, scoring })
    }

    /// Everything the model has learned, and its running statistics.
    pub fn tables(&self) -> Vec<Table> {
        let n_entities = self.graph.entities().len();
        let rows = |tensor: &Named| match tensor.name.as_str() {
            "encoder.relation" => TableRows::Relations,
            _ if tensor.shape[0] == n_entities => TableRows::Entities,
            _ => TableRows::Other,
        };
        let table = |tensor: Named| Table {
            rows: rows(&tensor),
            name: tensor.name,
            shape: tensor.shape,
            values: tensor.values.into_data().try_into_vec().expect("models are f32"),
        };
        tensors(&self.scoring.model).into_iter().map(table).collect()
    }
}

/// The best epoch of a training so far, if it has come so far.
///
/// # Errors
/// When the folder is no run, or is damaged.
pub fn best_epoch(folder: &Path) -> Result<Option<Best>, Error> {
    if let Some(result) = read_manifest(folder)?.result {
        return Ok(Some(result.best));
    }
    let checkpoint = Checkpoint::read(&folder.join(CHECKPOINT))?;
    Ok(checkpoint.and_then(|checkpoint| checkpoint.position.best))
}

/// Tables as one file in the safetensors format.
pub fn to_safetensors(tables: &[Table]) -> Vec<u8> {
    let bytes: Vec<Vec<u8>> = tables
        .iter()
        .map(|table| table.values.iter().flat_map(|value| value.to_le_bytes()).collect())
        .collect();
    let views = tables.iter().zip(&bytes).map(|(table, bytes)| {
        let view = TensorView::new(Dtype::F32, table.shape.clone(), bytes);
        (&table.name, view.expect("a table has as many values as its shape says"))
    });
    safetensors::serialize(views, None).expect("names are strings")
}

/// The epochs of a training so far.
///
/// # Errors
/// When the folder is no run, or is damaged.
pub fn epochs(folder: &Path) -> Result<Vec<EpochRecord>, Error> {
    read_manifest(folder)?;
    let path = folder.join(METRICS);
    let text = String::from_utf8_lossy(&files::read(&path)?).into_owned();
    let record = |line: &str| {
        serde_json::from_str(line)
            .map_err(|source| Error::Damaged { path: path.clone(), what: source.to_string() })
    };
    text.lines().map(record).collect()
}

/// The best weights of a run, opened: whatever is removed from now on, they can be read.
struct SavedWeights {
    reader: TensorReader,
    best: Best,
    updates: u64,
    is_finished: bool,
    temperature: Option<f64>,
}

impl SavedWeights {
    fn open(folder: &Path, manifest: &RunManifest, hashes: Hashes) -> Result<Self, Error> {
        if let Some(RunResult { best, updates, model, temperature, .. }) = &manifest.result {
            let reader = TensorReader::map(folder, model, hashes)?;
            return Ok(Self {
                reader,
                best: *best,
                updates: *updates,
                is_finished: true,
                temperature: *temperature,
            });
        }
        let checkpoints = folder.join(CHECKPOINT);
        let checkpoint = Checkpoint::read(&checkpoints)?;
        let found = checkpoint.and_then(|checkpoint| {
            let Position { best, updates, .. } = checkpoint.position;
            Some((best?, updates, checkpoint.best?))
        });
        let (best, updates, file) =
            found.ok_or_else(|| Error::NoWeights { path: folder.into() })?;
        let reader = TensorReader::open(&checkpoints, &file)?;
        Ok(Self { reader, best, updates, is_finished: false, temperature: None })
    }
}

impl Scorer for Run {
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        self.scoring.map_rows(queries, map)
    }

    fn meaning(&self) -> Meaning {
        self.scoring.meaning()
    }
}

/// What happens to a run that is where a new one is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the new one is refused.
    Keep,
    /// It is removed.
    Replace,
}

/// A run folder in which a training works, and no other.
#[derive(Debug)]
pub struct TrainingFolder {
    path: PathBuf,
    manifest: RunManifest,
    checkpoint: Option<Checkpoint>,
    /// Unlocked when dropped, also by the end of the process.
    _lock: File,
}

impl TrainingFolder {
    /// A new run folder.
    ///
    /// # Errors
    /// When the config does not fit the graph; when there is something at `path` already, unless it
    /// is a run folder and to be replaced; when another training works there; when it cannot be
    /// written.
    pub fn create(
        path: &Path,
        graph: &Graph,
        config: &Config,
        existing: Existing,
    ) -> Result<Self, Error> {
        check_fit(config, graph)?;
        let is_run = path.join(RUN).exists();
        let is_free = is_free(path)? || (is_run && existing == Existing::Replace);
        if !is_free {
            return Err(Error::Exists { path: path.into(), is_run });
        }
        let lock = lock(path)?;
        Self::begin(path, graph, config, lock)
    }

    /// A run folder whose training is to go on; one that has nothing saved yet starts anew.
    ///
    /// # Errors
    /// When it was trained on another dataset or with another config, when another training works
    /// there, or when it is damaged.
    pub fn resume(path: &Path, graph: &Graph, given: &RawConfig) -> Result<(Self, Config), Error> {
        if !path.join(RUN).exists() {
            if !is_free(path)? {
                return Err(Error::NotARun { path: path.into() });
            }
            let config = given.check()?;
            check_fit(&config, graph)?;
            let lock = lock(path)?;
            return Ok((Self::begin(path, graph, &config, lock)?, config));
        }
        let lock = lock(path)?;
        let manifest = read_manifest(path)?;
        let config = read_config(path, &manifest)?;
        let differences = given.differences(&config)?;
        if !differences.is_empty() {
            return Err(Error::OtherConfig { path: path.into(), differences });
        }
        if facts::dataset_hash(graph) != manifest.dataset {
            return Err(Error::OtherDataset { path: path.into() });
        }
        let checkpoints = path.join(CHECKPOINT);
        let checkpoint = if manifest.result.is_none() {
            Checkpoint::read(&checkpoints)?
        } else {
            // The training was killed when only this was left to do.
            checkpoint::remove(&checkpoints)?;
            None
        };
        Ok((Self { path: path.into(), manifest, checkpoint, _lock: lock }, config))
    }

    fn begin(path: &Path, graph: &Graph, config: &Config, lock: File) -> Result<Self, Error> {
        // First what makes it a run, so that no half of an old one looks whole.
        for file in [RUN, MODEL, METRICS, CHECKED, REPORT] {
            checkpoint::remove_file(&path.join(file))?;
        }
        checkpoint::remove(&path.join(CHECKPOINT))?;
        files::write_whole(&path.join(CONFIG), |path| fs::write(path, config.to_toml()))?;
        let manifest = RunManifest {
            format: FORMAT,
            fullrank: env!("CARGO_PKG_VERSION").into(),
            seed: config.seed,
            config: files::sha256(config.to_toml().as_bytes()),
            dataset: facts::dataset_hash(graph),
            known: facts::write(path, graph)?,
            result: None,
        };
        files::write_json(&path.join(RUN), &manifest)?;
        Ok(Self { path: path.into(), manifest, checkpoint: None, _lock: lock })
    }

    /// Epochs already finished, and updates made.
    pub fn progress(&self) -> (usize, u64) {
        match (&self.manifest.result, &self.checkpoint) {
            (Some(result), _) => (result.epochs, result.updates),
            (None, Some(checkpoint)) => (checkpoint.position.epoch, checkpoint.position.updates),
            (None, None) => (0, 0),
        }
    }

    /// What a training that is over came to.
    pub(crate) fn trained(&self) -> Option<Trained> {
        let RunResult { best, updates, epochs, end, .. } = self.manifest.result.as_ref()?;
        Some(Trained { best: *best, updates: *updates, epochs: *epochs, end: *end })
    }

    /// The state to train from: fresh, or as it was saved last.
    pub(crate) fn start(&mut self, config: &Config, graph: &Graph) -> Result<State, Error> {
        let folder = self.path.join(CHECKPOINT);
        let fresh = State::new(config, graph);
        let Some(checkpoint) = &self.checkpoint else {
            checkpoint::remove(&folder)?;
            self.cut_metrics(0)?;
            return Ok(fresh);
        };
        let state = checkpoint.load(&folder, fresh)?;
        checkpoint.sweep(&folder)?;
        self.cut_metrics(checkpoint.metrics_bytes)?;
        Ok(state)
    }

    /// Saves a state, and a line of metrics at the end of an epoch. The checkpoint before stays
    /// until the new one stands.
    pub(crate) fn save(
        &mut self,
        state: &State,
        record: Option<&EpochRecord>,
    ) -> Result<(), Error> {
        let old_best = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.best.clone());
        let is_best = record.is_some_and(|record| record.best);
        let folder = self.path.join(CHECKPOINT);
        let write_metrics = || self.write_metrics(record);
        let checkpoint = Checkpoint::write(&folder, state, old_best, is_best, write_metrics)?;
        self.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// Puts the best weights in their place and removes the checkpoint.
    pub(crate) fn finish(&mut self, state: &State) -> Result<Trained, Error> {
        let Position { best, end, updates, epoch, .. } = state.position.clone();
        let (best, end) = best.zip(end).expect("a training that is over has a best epoch");
        let folder = self.path.join(CHECKPOINT);
        let file = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.best.clone());
        let file = file.expect("the best epoch was saved");
        let from = folder.join(&file.file);
        files::write_whole(&self.path.join(MODEL), |path| fs::copy(&from, path))?;
        self.manifest.result = Some(RunResult {
            best,
            updates,
            epochs: epoch,
            end,
            parameters: count(&state.model),
            model: TensorFile { file: MODEL.into(), tensors: file.tensors },
            temperature: None,
        });
        files::write_json(&self.path.join(RUN), &self.manifest)?;
        checkpoint::remove(&folder)?;
        Ok(Trained { best, updates, epochs: epoch, end })
    }

    /// Keeps the temperature that fits validation best, for whoever shows probabilities.
    ///
    /// # Errors
    /// When it cannot be written.
    ///
    /// # Panics
    /// If the training is not over.
    pub fn set_temperature(&mut self, temperature: f64) -> Result<(), Error> {
        let result = self.manifest.result.as_mut().expect("the training is over");
        result.temperature = Some(temperature);
        files::write_json(&self.path.join(RUN), &self.manifest)
    }

    /// Adds a line and tells the length of the file.
    fn write_metrics(&self, record: Option<&EpochRecord>) -> Result<u64, Error> {
        let path = self.path.join(METRICS);
        let append = || -> io::Result<u64> {
            let mut file = File::options().create(true).append(true).open(&path)?;
            if let Some(record) = record {
                let mut line = serde_json::to_string(record)?;
                line.push('\n');
                file.write_all(line.as_bytes())?;
                file.sync_all()?;
            }
            file.seek(io::SeekFrom::End(0))
        };
        append().map_err(|source| Error::Write { path: path.clone(), source })
    }

    /// Drops the lines of epochs that will be made again.
    fn cut_metrics(&self, len: u64) -> Result<(), Error> {
        let path = self.path.join(METRICS);
        let fail = |source| Error::Write { path: path.clone(), source };
        let file = File::options().create(true).append(true).open(&path).map_err(fail)?;
        let found = file.metadata().map_err(fail)?.len();
        if found < len {
            let what = format!("expected at least {len} bytes, found {found}");
            return Err(Error::Damaged { path, what });
        }
        file.set_len(len).map_err(fail)
    }
}

fn read_manifest(folder: &Path) -> Result<RunManifest, Error> {
    let path = folder.join(RUN);
    if !path.exists() {
        return Err(Error::NotARun { path: folder.into() });
    }
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let Format { format } = files::read_json(&path)?;
    if format != FORMAT {
        return Err(Error::OtherFormat { path, expected: FORMAT, found: format });
    }
    files::read_json(&path)
}

fn read_config(folder: &Path, manifest: &RunManifest) -> Result<Config, Error> {
    let path = folder.join(CONFIG);
    let text = String::from_utf8_lossy(&files::read(&path)?).into_owned();
    if files::sha256(text.as_bytes()) != manifest.config {
        return Err(Error::Damaged { path, what: "it is not what was written".into() });
    }
    let mut raw = RawConfig::default();
    raw.add_file(&path, &text)?;
    raw.check()
}

/// Whether a training may begin here: nothing is there, or only what one leaves that was stopped
/// before it began. The lock tells that the rest is ours: it is made first.
fn is_free(path: &Path) -> Result<bool, Error> {
    if !path.exists() {
        return Ok(true);
    }
    let fail = |source| Error::Read { path: path.into(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        names.push(entry.map_err(fail)?.file_name().to_string_lossy().into_owned());
    }
    let own =
        [LOCK, CONFIG, MODEL, METRICS, CHECKED, CHECKPOINT, facts::NAMES, facts::KNOWN, REPORT];
    let is_own = |name: &String| own.contains(&name.as_str()) || name.ends_with(files::UNFINISHED);
    let is_locked = names.iter().any(|name| name == LOCK);
    Ok(names.is_empty() || (is_locked && names.iter().all(is_own)))
}

fn lock(path: &Path) -> Result<File, Error> {
    let file_path = path.join(LOCK);
    let open = || {
        fs::create_dir_all(path)?;
        File::options().create(true).truncate(false).write(true).open(&file_path)
    };
    let file = open().map_err(|source| Error::Write { path: file_path.clone(), source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: path.into() }),
        Err(TryLockError::Error(source)) => Err(Error::Write { path: file_path, source }),
    }
}
