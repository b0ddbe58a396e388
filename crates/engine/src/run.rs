//! Where is a training kept, so that nothing is lost and nothing else is needed?
//!
//! A run folder has:
//! - `config.toml`: every setting, also the defaulted ones;
//! - `names.json` and `known.safetensors`: the graph;
//! - `run.json`: version, hashes of dataset and weights, and how the training ended;
//! - `metrics.jsonl`: a line per epoch;
//! - `model.safetensors`: the best weights, once the training is over;
//! - `checkpoint/` until then: the state to go on from, the best weights so far, and a manifest
//!   that is written last. What the manifest does not name is a leftover and is removed.
//!
//! Only one training can be in a folder: it holds a lock on `lock`.

mod facts;
mod files;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use fullrank_graph::{Graph, Query};
use serde::{Deserialize, Serialize};

use crate::config::{Config, RawConfig};
use crate::error::Error;
use crate::evaluate::Scorer;
use crate::model::Model;
use crate::ops::Moments;
use crate::parameters::{Adam, Named, count, replace, tensors};
use crate::train::{Best, End, EpochRecord, Position, State, Trained, device, new_model};
use files::{Stored, TensorFile, Values};

/// Changes when older programs could no longer read a run.
const FORMAT: u32 = 1;
const CONFIG: &str = "config.toml";
const RUN: &str = "run.json";
const MODEL: &str = "model.safetensors";
const METRICS: &str = "metrics.jsonl";
const LOCK: &str = "lock";
const CHECKPOINT: &str = "checkpoint";
const MANIFEST: &str = "manifest.json";

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
}

/// What `checkpoint/manifest.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Checkpoint {
    position: Position,
    adam_steps: u64,
    /// Length of `metrics.jsonl`; what follows was written after this checkpoint.
    metrics_bytes: u64,
    state: TensorFile,
    best: Option<TensorFile>,
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
    pub(crate) model: Model,
}

impl Run {
    /// Opens a run: the best weights of a finished training, or the best so far of another.
    ///
    /// # Errors
    /// When the folder is no run, has no weights yet, or is damaged.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let manifest = read_manifest(folder)?;
        let config = read_config(folder, &manifest)?;
        let graph = facts::read(folder, &manifest.known, &manifest.dataset)?;
        let checkpoint_folder = folder.join(CHECKPOINT);
        let (best, updates, weights_folder, weights) = match &manifest.result {
            Some(result) => (result.best, result.updates, folder, result.model.clone()),
            None => {
                let checkpoint = read_checkpoint(folder)?;
                let found = checkpoint.and_then(|checkpoint| {
                    let best = checkpoint.position.best?;
                    Some((best, checkpoint.position.updates, checkpoint.best?))
                });
                let (best, updates, weights) =
                    found.ok_or_else(|| Error::NoWeights { path: folder.into() })?;
                (best, updates, checkpoint_folder.as_path(), weights)
            }
        };
        let model = new_model(&config, &graph, &device());
        let model = load_model(model, weights_folder, &weights, "")?;
        let parameters = count(&model);
        let is_finished = manifest.result.is_some();
        Ok(Self { config, graph, best, is_finished, updates, parameters, model })
    }
}

impl Scorer for Run {
    fn score(&self, queries: &[Query], rows: &mut Vec<f32>) {
        self.model.score(queries, rows);
    }
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
    /// When there is something at `path` already, unless `replace` and it is a run folder; when
    /// another training works there; when it cannot be written.
    pub fn create(
        path: &Path,
        graph: &Graph,
        config: &Config,
        replace: bool,
    ) -> Result<Self, Error> {
        let is_run = path.join(RUN).exists();
        let is_free = is_empty(path)? || (replace && is_run);
        if !is_free {
            return Err(Error::Exists { path: path.into(), is_run });
        }
        let lock = lock(path)?;
        if replace {
            // From what makes it a run to what it is made of, so that no half of it looks whole.
            for file in [RUN, MODEL, METRICS, CONFIG] {
                remove(&path.join(file))?;
            }
        }
        Self::begin(path, graph, config, lock)
    }

    /// A run folder whose training is to go on; one that has nothing saved yet starts anew.
    ///
    /// # Errors
    /// When it was trained on another dataset or with another config, when another training works
    /// there, or when it is damaged.
    pub fn resume(path: &Path, graph: &Graph, given: &RawConfig) -> Result<(Self, Config), Error> {
        if !path.join(RUN).exists() {
            if !is_empty(path)? {
                return Err(Error::NotARun { path: path.into() });
            }
            let config = given.check()?;
            let lock = lock(path)?;
            return Ok((Self::begin(path, graph, &config, lock)?, config));
        }
        let lock = lock(path)?;
        let manifest = read_manifest(path)?;
        let config = read_config(path, &manifest)?;
        let mut asked = RawConfig::default();
        asked.add_file(&path.join(CONFIG), &config.to_toml())?;
        asked.add_all(given);
        let differences = config.differences(&asked.check()?);
        if !differences.is_empty() {
            return Err(Error::OtherConfig { path: path.into(), differences });
        }
        if facts::dataset_hash(graph) != manifest.dataset {
            return Err(Error::OtherDataset { path: path.into() });
        }
        let checkpoint = match manifest.result {
            Some(_) => None,
            None => read_checkpoint(path)?,
        };
        Ok((Self { path: path.into(), manifest, checkpoint, _lock: lock }, config))
    }

    fn begin(path: &Path, graph: &Graph, config: &Config, lock: File) -> Result<Self, Error> {
        let checkpoint = path.join(CHECKPOINT);
        if checkpoint.exists() {
            remove_folder(&checkpoint)?;
        }
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

    /// The state to train from: fresh, or as it was saved last.
    pub(crate) fn start(&mut self, config: &Config, graph: &Graph) -> Result<State, Error> {
        if let Some(result) = &self.manifest.result {
            // A finished training has only its end left.
            let model = new_model(config, graph, &device().autodiff());
            let position = Position {
                updates: result.updates,
                epoch: result.epochs,
                best: Some(result.best),
                end: Some(result.end),
                ..Position::default()
            };
            return Ok(State { model, adam: Adam::default(), position });
        }
        let metrics_bytes = self.checkpoint.as_ref().map_or(0, |c| c.metrics_bytes);
        self.cut_metrics(metrics_bytes)?;
        let state = State::new(config, graph);
        let Some(checkpoint) = &self.checkpoint else { return Ok(state) };
        let folder = self.path.join(CHECKPOINT);
        let model = load_model(state.model, &folder, &checkpoint.state, "model.")?;
        let adam = load_adam(&model, &folder, checkpoint)?;
        Ok(State { model, adam, position: checkpoint.position.clone() })
    }

    /// Saves a state, and a line of metrics at the end of an epoch. The checkpoint before stays
    /// until the new one stands.
    pub(crate) fn save(
        &mut self,
        state: &State,
        record: Option<&EpochRecord>,
    ) -> Result<(), Error> {
        let folder = self.path.join(CHECKPOINT);
        fs::create_dir_all(&folder)
            .map_err(|source| Error::Write { path: folder.clone(), source })?;
        let updates = state.position.updates;
        let old = self.checkpoint.take();
        let mut best = old.and_then(|old| old.best);
        let model = tensors(&state.model);
        if record.is_some_and(|record| record.best) {
            let name = format!("best-{}.safetensors", state.position.epoch);
            let stored = model.iter().map(|tensor| (tensor.name.clone(), stored(tensor)));
            best = Some(files::write_tensors(&folder.join(name), &stored.collect())?);
        }
        // Two saves after the same update differ in their position, so they have their own names.
        let name = format!("state-{}-{updates}.safetensors", state.position.epoch);
        let state_file = files::write_tensors(&folder.join(name), &state_tensors(state, &model))?;
        let metrics_bytes = self.write_metrics(record)?;
        let checkpoint = Checkpoint {
            position: state.position.clone(),
            adam_steps: state.adam.steps,
            metrics_bytes,
            state: state_file,
            best,
        };
        files::write_json(&folder.join(MANIFEST), &checkpoint)?;
        let kept = [Some(&checkpoint.state), checkpoint.best.as_ref()];
        let kept: Vec<&str> = kept.into_iter().flatten().map(|file| file.file.as_str()).collect();
        remove_others(&folder, &kept)?;
        self.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// Puts the best weights in their place and removes the checkpoint.
    pub(crate) fn finish(&mut self, state: &State) -> Result<Trained, Error> {
        let Position { best, end, updates, epoch, .. } = state.position.clone();
        let (best, end) = best.zip(end).expect("a training that is over has a best epoch");
        let folder = self.path.join(CHECKPOINT);
        if self.manifest.result.is_none() {
            let file = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.best.clone());
            let file = file.expect("the best epoch was saved");
            let from = folder.join(&file.file);
            files::write_whole(&self.path.join(MODEL), |path| {
                remove_if_there(path)?;
                fs::hard_link(&from, path).or_else(|_| fs::copy(&from, path).map(drop))
            })?;
            self.manifest.result = Some(RunResult {
                best,
                updates,
                epochs: epoch,
                end,
                parameters: count(&state.model),
                model: TensorFile { file: MODEL.into(), tensors: file.tensors },
            });
            files::write_json(&self.path.join(RUN), &self.manifest)?;
        }
        if folder.exists() {
            remove_folder(&folder)?;
        }
        Ok(Trained { best, updates, epochs: epoch, end })
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
        let cut = || File::options().create(true).append(true).open(&path)?.set_len(len);
        cut().map_err(|source| Error::Write { path: path.clone(), source })
    }
}

fn stored(tensor: &Named) -> Stored {
    Stored { shape: tensor.shape.clone(), values: Values::Floats(Box::new(tensor.values.clone())) }
}

fn state_tensors(state: &State, model: &[Named]) -> BTreeMap<String, Stored> {
    let mut all = BTreeMap::new();
    for tensor in model {
        all.insert(format!("model.{}", tensor.name), stored(tensor));
    }
    for (name, Moments { first, second }) in &state.adam.moments {
        for (kind, values) in [("first", first), ("second", second)] {
            let values = values.clone();
            let shape = values.dims().to_vec();
            let stored = Stored { shape, values: Values::Floats(Box::new(values)) };
            all.insert(format!("adam.{kind}.{name}"), stored);
        }
    }
    all
}

/// Gives a model the weights of a file, where they are called by its own names behind `prefix`.
fn load_model(
    model: Model,
    folder: &Path,
    file: &TensorFile,
    prefix: &str,
) -> Result<Model, Error> {
    let mut read = files::read_tensors(folder, file)?;
    let damaged = |what| Error::Damaged { path: folder.join(&file.file), what };
    let mut values = BTreeMap::new();
    for tensor in tensors(&model) {
        let name = format!("{prefix}{}", tensor.name);
        let floats = read.floats.remove(&name);
        let floats = floats.ok_or_else(|| damaged(format!("tensor `{name}` is missing")))?;
        let shape = &read.shapes[&name];
        if *shape != tensor.shape {
            let expected = &tensor.shape;
            return Err(damaged(format!(
                "tensor `{name}` is {shape:?}, but the config asks for {expected:?}"
            )));
        }
        values.insert(tensor.name, floats);
    }
    Ok(replace(model, values))
}

fn load_adam(model: &Model, folder: &Path, checkpoint: &Checkpoint) -> Result<Adam, Error> {
    let mut read = files::read_tensors(folder, &checkpoint.state)?;
    let mut adam = Adam { steps: checkpoint.adam_steps, moments: BTreeMap::new() };
    for tensor in tensors(model) {
        let mut take = |kind: &str| {
            let floats = read.floats.remove(&format!("adam.{kind}.{}", tensor.name))?;
            Some(burn::tensor::Tensor::from_floats(floats.as_slice(), &device()))
        };
        if let Some((first, second)) = take("first").zip(take("second")) {
            adam.moments.insert(tensor.name.clone(), Moments { first, second });
        }
    }
    Ok(adam)
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

fn read_checkpoint(folder: &Path) -> Result<Option<Checkpoint>, Error> {
    let path = folder.join(CHECKPOINT).join(MANIFEST);
    if path.exists() { files::read_json(&path).map(Some) } else { Ok(None) }
}

/// Whether a training may begin here: nothing is there, or only what one leaves that was stopped
/// before it began.
fn is_empty(path: &Path) -> Result<bool, Error> {
    if !path.exists() {
        return Ok(true);
    }
    let fail = |source| Error::Read { path: path.into(), source };
    let own = [LOCK, CONFIG, "names.json", "known.safetensors"];
    for entry in fs::read_dir(path).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let name = name.to_string_lossy();
        if !own.contains(&name.as_ref()) && !name.ends_with(files::UNFINISHED) {
            return Ok(false);
        }
    }
    Ok(true)
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

fn remove(path: &Path) -> Result<(), Error> {
    remove_if_there(path).map_err(|source| Error::Write { path: path.into(), source })
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn remove_folder(path: &Path) -> Result<(), Error> {
    // The manifest first: without it the rest is a leftover.
    remove(&path.join(MANIFEST))?;
    fs::remove_dir_all(path).map_err(|source| Error::Write { path: path.into(), source })
}

/// Removes all tensor files of a folder but some.
fn remove_others(folder: &Path, kept: &[&str]) -> Result<(), Error> {
    let fail = |source| Error::Read { path: folder.into(), source };
    for entry in fs::read_dir(folder).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        let name = name.to_string_lossy();
        if name != MANIFEST && !kept.contains(&name.as_ref()) {
            remove(&folder.join(name.as_ref()))?;
        }
    }
    Ok(())
}
