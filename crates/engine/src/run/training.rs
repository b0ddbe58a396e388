//! Training in a run folder: what is saved when, and where does a training go on?

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fullrank_graph::{Graph, Split};

use super::candidate_file::{self, CANDIDATES};
use super::checkpoint::{self, Checkpoint, Fresh};
use super::files::{self, TensorFile};
use super::hash_cache::CHECKED;
use super::manifest::{Provenance, RunManifest, RunResult};
use super::{
    CHECKPOINT, CONFIG, LOCK, METRICS, MODEL, REPORT, RUN, graph_files, ranks_file, read_config,
};
use crate::config::{Config, RawConfig};
use crate::device::Device;
use crate::error::Error;
use crate::evaluate::GivenCandidates;
use crate::model::{Finished, Model, SplitResult};
use crate::network::Network;
use crate::parameters::count;
use crate::progress::{EpochRecord, Event, Progress, Signal, Trained};
use crate::random::Weights;
use crate::rank_file;
use crate::trainer::Trainer;

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
    candidates: Arc<GivenCandidates>,
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
        config.check_fit(graph)?;
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
            config.check_fit(graph)?;
            let lock = lock(path)?;
            return Ok((Self::begin(path, graph, &config, lock)?, config));
        }
        let lock = lock(path)?;
        let manifest = RunManifest::read(path)?;
        let config = read_config(path, &manifest)?;
        let differences = given.differences(&config)?;
        if !differences.is_empty() {
            return Err(Error::OtherConfig { path: path.into(), differences });
        }
        if graph_files::dataset_hash(graph) != manifest.dataset {
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
        let candidates = match &manifest.candidates {
            Some(file) => Arc::new(candidate_file::read(path, file, graph)?),
            None => Arc::default(),
        };
        Ok((Self { path: path.into(), manifest, checkpoint, candidates, _lock: lock }, config))
    }

    fn begin(path: &Path, graph: &Graph, config: &Config, lock: File) -> Result<Self, Error> {
        // First what makes it a run, so that no half of an old one looks whole.
        for file in [RUN, MODEL, METRICS, CHECKED, REPORT, CANDIDATES] {
            checkpoint::remove_file(&path.join(file))?;
        }
        for file in Split::ALL.map(ranks_file) {
            checkpoint::remove_file(&path.join(file))?;
        }
        checkpoint::remove(&path.join(CHECKPOINT))?;
        let text = config.to_toml();
        files::write_atomically(&path.join(CONFIG), |path| fs::write(path, &text))?;
        let mut manifest = RunManifest::new(
            config.training.seed,
            files::sha256(text.as_bytes()),
            graph_files::dataset_hash(graph),
            graph_files::write(path, graph)?,
        );
        manifest.write(path)?;
        let (checkpoint, candidates) = (None, Arc::default());
        Ok(Self { path: path.into(), manifest, checkpoint, candidates, _lock: lock })
    }

    /// Has held-out answers ranked against given candidates, in validation and in the end, which are
    /// kept with the run: it goes on with them.
    ///
    /// # Errors
    /// When the training has begun with others, or with none, and when they cannot be written.
    pub fn rank_among(&mut self, given: Arc<GivenCandidates>) -> Result<(), Error> {
        if self.candidates == given {
            return Ok(());
        }
        let (_, updates) = self.progress();
        if updates > 0 || self.manifest.candidates.is_some() {
            return Err(Error::OtherCandidates { path: self.path.clone() });
        }
        self.manifest.candidates = Some(candidate_file::write(&self.path, &given)?);
        self.manifest.write(&self.path)?;
        self.candidates = given;
        Ok(())
    }

    /// What held-out answers are ranked against, where it is not all entities.
    pub fn candidates(&self) -> &Arc<GivenCandidates> {
        &self.candidates
    }

    /// Keeps where and by whom the training is begun, or taken up again.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn note(&mut self, provenance: Provenance) -> Result<(), Error> {
        self.manifest.sessions.push(provenance);
        self.manifest.write(&self.path)
    }

    /// Whether the training is over, so that nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.manifest.result.is_some()
    }

    /// Epochs already finished, and updates made.
    pub fn progress(&self) -> (usize, u64) {
        match (&self.manifest.result, &self.checkpoint) {
            (Some(result), _) => (result.epochs, result.updates),
            (None, Some(checkpoint)) => (checkpoint.position.epoch, checkpoint.position.updates),
            (None, None) => (0, 0),
        }
    }

    /// Seconds that updates and validation took so far, over all sessions.
    pub fn seconds(&self) -> f64 {
        match (&self.manifest.result, &self.checkpoint) {
            (Some(result), _) => result.seconds.unwrap_or_default(),
            (None, Some(checkpoint)) => checkpoint.position.seconds,
            (None, None) => 0.0,
        }
    }

    /// Trains to the end, from where the folder is.
    ///
    /// # Errors
    /// When the graph has nothing to learn from, when a loss is not finite, when a file cannot be
    /// written, or when `progress` says stop, in which case everything is saved first.
    pub fn train(
        &mut self,
        graph: Arc<Graph>,
        config: Config,
        device: Device,
        progress: &mut Progress,
    ) -> Result<Trained, Error> {
        if let Some(result) = &self.manifest.result {
            return Ok(result.trained());
        }
        let mut trainer = self.start(graph, config, device)?;
        trainer.rank_among(Arc::clone(&self.candidates));
        while !trainer.is_over() {
            let record =
                trainer.epoch_with(progress, &mut |trainer: &Trainer| self.save(trainer, None));
            if let Err(Error::Interrupted) = record {
                self.save(&trainer, None)?;
            }
            let record = record?;
            self.save(&trainer, Some(&record))?;
            if progress(Event::Epoch(&record)) == Signal::Stop && !trainer.is_over() {
                return Err(Error::Interrupted);
            }
        }
        self.finish(&trainer)
    }

    /// A training from the start, or from where it was saved last.
    pub(super) fn start(
        &mut self,
        graph: Arc<Graph>,
        config: Config,
        device: Device,
    ) -> Result<Trainer, Error> {
        let folder = self.path.join(CHECKPOINT);
        let Some(checkpoint) = &self.checkpoint else {
            checkpoint::remove(&folder)?;
            self.cut_metrics(0)?;
            return Trainer::new(graph, config, device);
        };
        let weights = Weights::zeros(device.burn().autodiff());
        let network = Network::new(&config, &config.domain(&graph), weights);
        let n_entities = graph.entities().len();
        let fresh = Fresh { network, config: &config, n_entities, device };
        let state = checkpoint.load(&folder, fresh)?;
        checkpoint.sweep(&folder)?;
        self.cut_metrics(checkpoint.metrics_bytes)?;
        Trainer::at(graph, config, state)
    }

    /// Saves a training, and a line of metrics at the end of an epoch. The checkpoint before stays
    /// until the new one stands.
    pub(super) fn save(
        &mut self,
        trainer: &Trainer,
        record: Option<&EpochRecord>,
    ) -> Result<(), Error> {
        let old_best = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.best.clone());
        let is_best = record.is_some_and(|record| record.best);
        let folder = self.path.join(CHECKPOINT);
        let write_metrics = || self.write_metrics(record);
        let checkpoint = Checkpoint::write(&folder, trainer, old_best, is_best, write_metrics)?;
        self.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// Puts the best weights in their place and removes the checkpoint.
    fn finish(&mut self, trainer: &Trainer) -> Result<Trained, Error> {
        let trained = trainer.trained().expect("a training that is over has a best epoch");
        let folder = self.path.join(CHECKPOINT);
        let file = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.best.clone());
        let file = file.expect("the best epoch was saved");
        let from = folder.join(&file.file);
        files::write_atomically(&self.path.join(MODEL), |path| fs::copy(&from, path))?;
        let model = TensorFile { file: MODEL.into(), tensors: file.tensors };
        self.manifest.result =
            Some(RunResult::new(trained, count(trainer.learner().network()), model));
        self.manifest.write(&self.path)?;
        checkpoint::remove(&folder)?;
        Ok(trained)
    }

    /// Writes a model that was trained elsewhere.
    pub(super) fn finish_with(&mut self, model: &Model) -> Result<(), Error> {
        self.cut_metrics(0)?;
        let stored = checkpoint::stored_network(model.network());
        let file = files::write_tensors(&self.path.join(MODEL), &stored)?;
        let mut result = RunResult::new(model.trained(), model.n_parameters(), file);
        result.temperature = model.temperature();
        self.manifest.result = Some(result);
        self.manifest.write(&self.path)
    }

    /// Keeps what a finished training came to: the temperature that fits validation best, and the
    /// metrics of held-out splits.
    ///
    /// # Errors
    /// When it cannot be written.
    ///
    /// # Panics
    /// If the training is not over.
    pub fn keep(&mut self, model: &Model, finished: &Finished) -> Result<(), Error> {
        let result = self.manifest.result.as_mut().expect("the training is over");
        result.temperature = model.temperature();
        self.manifest.add_splits(finished);
        self.manifest.write(&self.path)
    }

    /// Keeps where every held-out answer stands with a finished training.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_ranks(&self, graph: &Graph, finished: &Finished) -> Result<(), Error> {
        for SplitResult { split, ranks, .. } in &finished.splits {
            let text = rank_file::to_csv(graph, *split, ranks);
            let path = self.path.join(ranks_file(*split));
            files::write_atomically(&path, |path| fs::write(path, &text))?;
        }
        Ok(())
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

/// Whether a training may begin here: nothing is there, or only what one leaves that was stopped
/// before it began. The lock tells that the rest is ours: it is made first.
pub(super) fn is_free(path: &Path) -> Result<bool, Error> {
    if !path.exists() {
        return Ok(true);
    }
    let fail = |source| Error::Read { path: path.into(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(fail)? {
        names.push(entry.map_err(fail)?.file_name().to_string_lossy().into_owned());
    }
    let own = [
        LOCK,
        CONFIG,
        MODEL,
        METRICS,
        CHECKED,
        CHECKPOINT,
        graph_files::NAMES,
        graph_files::KNOWN,
        REPORT,
        CANDIDATES,
    ];
    let ranks = Split::ALL.map(ranks_file);
    let is_own = |name: &String| {
        own.contains(&name.as_str()) || ranks.contains(name) || name.ends_with(files::UNFINISHED)
    };
    let is_locked = names.iter().any(|name| name == LOCK);
    Ok(names.is_empty() || (is_locked && names.iter().all(is_own)))
}

/// Makes a folder and holds its [`LOCK`], until the file is dropped.
///
/// # Errors
/// When somebody else holds it, or it cannot be written.
pub fn lock(path: &Path) -> Result<File, Error> {
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
