//! Checkpoints: how is a training saved and taken up again?
//!
//! A checkpoint is a file with weights and moments, a file with the best weights so far, and a
//! manifest that names both and is written last. Files that it does not name are leftovers.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use super::files::{self, Stored, TensorFile, TensorReader, Values};
use crate::average::Average;
use crate::config::Config;
use crate::device::Device;
use crate::error::Error;
use crate::learner::Learner;
use crate::network::Network;
use crate::optimizer::Optimizer;
use crate::parameters::{Named, replace, tensors};
use crate::trainer::{Position, State, Trainer};

const MANIFEST: &str = "manifest.json";
/// What runs before format 3 did not have, whose sigmoids added nothing to their scores.
const OFFSET: &str = "output.offset";

/// What a saved state is put into.
#[derive(Debug)]
pub(super) struct Fresh<'a> {
    /// A network of the config, whatever its weights.
    pub(super) network: Network,
    pub(super) config: &'a Config,
    pub(super) n_entities: usize,
    pub(super) device: Device,
}

/// What the manifest says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    pub(super) position: Position,
    #[serde(alias = "adam_steps")]
    steps: u64,
    /// Updates in the averaged weights, where they are averaged.
    #[serde(default)]
    averaged_updates: Option<u64>,
    /// Length of `metrics.jsonl`; what follows was written after this checkpoint.
    pub(super) metrics_bytes: u64,
    state: TensorFile,
    pub(super) best: Option<TensorFile>,
}

impl Checkpoint {
    /// The checkpoint in a folder, if there is one.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let path = folder.join(MANIFEST);
        if path.exists() { files::read_json(&path).map(Some) } else { Ok(None) }
    }

    /// The state that was saved, and its best weights checked: better now than after hours.
    pub(super) fn load(&self, folder: &Path, fresh: Fresh) -> Result<State, Error> {
        let Fresh { network, config, n_entities, device } = fresh;
        if let Some(best) = &self.best {
            TensorReader::open(folder, best)?.check()?;
        }
        let mut reader = TensorReader::open(folder, &self.state)?;
        let network = load_network(network, &mut reader, "model.")?;
        let names = reader.names();
        let mut floats = |name: &str| -> Result<Tensor<1>, Error> {
            let (_, floats) = reader.floats(name)?;
            Ok(Tensor::from_floats(floats.as_slice(), &device.burn()))
        };
        let training = &config.training;
        let mut optimizer = Optimizer::new(training.optimizer);
        optimizer.steps = self.steps;
        let kinds = optimizer.kind.moment_names();
        for parameter in named(&names, kinds[0]) {
            let moment = |kind: &&str| floats(&format!("{kind}.{parameter}"));
            let moments = kinds.iter().map(moment).collect::<Result<_, _>>()?;
            optimizer.moments.insert(parameter.to_owned(), moments);
        }
        let mut average = training.average.map(Average::new);
        if let Some(average) = &mut average {
            average.updates = self.averaged_updates.unwrap_or_default();
            for tensor in named(&names, AVERAGE) {
                average.means.insert(tensor.to_owned(), floats(&format!("{AVERAGE}.{tensor}"))?);
            }
        }
        let learner = Learner::at(network, optimizer, average, config, n_entities);
        Ok(State { learner, position: self.position.clone() })
    }

    /// Writes a checkpoint. `write_metrics` is called when its tensors are on disk and gives the
    /// length of the metrics.
    pub(super) fn write(
        folder: &Path,
        trainer: &Trainer,
        old_best: Option<TensorFile>,
        is_best: bool,
        write_metrics: impl FnOnce() -> Result<u64, Error>,
    ) -> Result<Self, Error> {
        fs::create_dir_all(folder)
            .map_err(|source| Error::Write { path: folder.into(), source })?;
        let Position { epoch, updates, .. } = *trainer.position();
        let learner = trainer.learner();
        let model = tensors(learner.network());
        let best = if is_best {
            let path = folder.join(format!("best-{epoch}.safetensors"));
            Some(files::write_tensors(&path, &stored_network(&learner.asked()))?)
        } else {
            old_best
        };
        // Named by epoch too: the end of an epoch is saved after the same update as its last batch.
        let path = folder.join(format!("state-{epoch}-{updates}.safetensors"));
        let state_file = files::write_tensors(&path, &state_tensors(learner, &model))?;
        let checkpoint = Self {
            position: trainer.position().clone(),
            steps: learner.optimizer.steps,
            averaged_updates: learner.average.as_ref().map(|average| average.updates),
            metrics_bytes: write_metrics()?,
            state: state_file,
            best,
        };
        files::write_json(&folder.join(MANIFEST), &checkpoint)?;
        checkpoint.sweep(folder)?;
        Ok(checkpoint)
    }

    /// Removes what this checkpoint does not name.
    pub(super) fn sweep(&self, folder: &Path) -> Result<(), Error> {
        let kept = [Some(&self.state), self.best.as_ref()];
        let mut kept: Vec<&str> = kept.into_iter().flatten().map(|f| f.file.as_str()).collect();
        kept.push(MANIFEST);
        let fail = |source| Error::Read { path: folder.into(), source };
        for entry in fs::read_dir(folder).map_err(fail)? {
            let name = entry.map_err(fail)?.file_name();
            if !kept.iter().any(|kept| name == *kept) {
                remove_file(&folder.join(name))?;
            }
        }
        Ok(())
    }
}

/// Removes a folder of checkpoints, if there is one.
pub(super) fn remove(folder: &Path) -> Result<(), Error> {
    if !folder.exists() {
        return Ok(());
    }
    // The manifest first: without it the rest is a leftover.
    remove_file(&folder.join(MANIFEST))?;
    fs::remove_dir_all(folder).map_err(|source| Error::Write { path: folder.into(), source })
}

/// Removes a file, if it is there.
pub(super) fn remove_file(path: &PathBuf) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Write { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

/// Gives a network the weights of a file, where they are called by its own names behind `prefix`.
pub(super) fn load_network(
    network: Network,
    reader: &mut TensorReader,
    prefix: &str,
) -> Result<Network, Error> {
    let mut values = BTreeMap::new();
    for tensor in tensors(&network) {
        let name = format!("{prefix}{}", tensor.name);
        if tensor.name == OFFSET && !reader.names().contains(&name) {
            values.insert(tensor.name, TensorData::zeros::<f32, _>(tensor.shape));
            continue;
        }
        let data = reader.data(&name)?;
        if data.shape().as_slice() != tensor.shape {
            let (found, expected) = (data.shape().to_vec(), &tensor.shape);
            return Err(reader.damaged(format!(
                "tensor `{name}` is {found:?}, but the config asks for {expected:?}"
            )));
        }
        values.insert(tensor.name, data);
    }
    Ok(replace(network, values))
}

/// The tensors of a network as they are written.
pub(super) fn stored_network(network: &Network) -> BTreeMap<String, Stored> {
    stored_tensors(&tensors(network))
}

fn stored_tensors(model: &[Named]) -> BTreeMap<String, Stored> {
    model.iter().map(|tensor| (tensor.name.clone(), stored(tensor))).collect()
}

fn stored(tensor: &Named) -> Stored {
    Stored { shape: tensor.shape.clone(), values: Values::Floats(Box::new(tensor.values.clone())) }
}

/// What the names of averaged weights begin with.
const AVERAGE: &str = "average";

/// The ends of those names that begin with a word and a dot.
fn named<'a>(names: &'a [String], word: &str) -> impl Iterator<Item = &'a str> {
    names.iter().filter_map(move |name| name.strip_prefix(word)?.strip_prefix('.'))
}

fn state_tensors(learner: &Learner, model: &[Named]) -> BTreeMap<String, Stored> {
    let flat = |values: &Tensor<1>| {
        let shape = values.dims().to_vec();
        Stored { shape, values: Values::Floats(Box::new(values.clone())) }
    };
    let mut all = BTreeMap::new();
    for tensor in model {
        all.insert(format!("model.{}", tensor.name), stored(tensor));
    }
    let Optimizer { kind, moments, .. } = &learner.optimizer;
    for (name, moments) in moments {
        for (kind, values) in kind.moment_names().iter().zip(moments) {
            all.insert(format!("{kind}.{name}"), flat(values));
        }
    }
    for (name, mean) in learner.average.iter().flat_map(|average| &average.means) {
        all.insert(format!("{AVERAGE}.{name}"), flat(mean));
    }
    all
}
