//! Runs: which one does a command work on?

use std::path::{Path, PathBuf};

use anyhow::bail;
use fullrank_engine::{Device, Error, Run, best_epoch};

use crate::output::say;

/// Opens a run folder, or the run with the best validation of a folder with several seeds.
pub(crate) fn open_run(path: &Path) -> anyhow::Result<Run> {
    if !path.exists() {
        bail!("{}: there is no such folder", path.display());
    }
    let folder = if path.join("run.json").exists() { None } else { best_seed(path)? };
    if let Some(folder) = &folder {
        say(&format!("note: {} is the best of its seeds on validation", folder.display()));
    }
    let run = Run::open(folder.as_deref().unwrap_or(path), Device::default())?;
    if !run.is_finished {
        let epoch = run.trained.best.epoch;
        say(&format!("note: the training is not over; these are the weights of epoch {epoch}"));
    }
    Ok(run)
}

/// The run of a folder with several seeds that is best on validation; nothing without any.
fn best_seed(path: &Path) -> Result<Option<PathBuf>, Error> {
    let mut best: Option<(f64, PathBuf)> = None;
    for entry in path.read_dir().into_iter().flatten().flatten() {
        let (name, folder) = (entry.file_name(), entry.path());
        if !name.to_string_lossy().starts_with("seed-") || !folder.join("run.json").exists() {
            continue;
        }
        let Some(valid_mrr) = best_epoch(&folder)?.and_then(|best| best.valid_mrr) else {
            continue;
        };
        // Of equal ones the first by name, whatever the order of the folder.
        let is_better = |(mrr, other): &(f64, PathBuf)| {
            valid_mrr > *mrr || (valid_mrr == *mrr && folder < *other)
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some((valid_mrr, folder));
        }
    }
    Ok(best.map(|(_, folder)| folder))
}
