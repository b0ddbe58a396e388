//! Runs: which one does a command work on?

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::bail;
use fullrank_engine::{Device, Error, Run, best_epoch};

use crate::output::say;
use crate::search::BEST;

/// Opens a run folder, the run with the best validation of a folder with several seeds, or the best trial
/// of a search.
pub(crate) fn open_run(path: &Path) -> anyhow::Result<Run> {
    if !path.exists() {
        bail!("{}: there is no such folder", path.display());
    }
    let mut folder = None;
    if !path.join("run.json").exists() {
        let (best, of) = match best_trial(path) {
            Some(trial) => (Some(trial), "trials"),
            None => (best_seed(path)?, "seeds"),
        };
        if let Some(best) = &best {
            say(&format!("note: {} is the best of its {of} on validation", best.display()));
        }
        folder = best;
    }
    let run = Run::open(folder.as_deref().unwrap_or(path), Device::default())?;
    if !run.is_finished {
        let epoch = run.trained.best.epoch;
        say(&format!("note: the training is not over; these are the weights of epoch {epoch}"));
    }
    Ok(run)
}

/// The best trial of a search; nothing in another folder.
fn best_trial(path: &Path) -> Option<PathBuf> {
    let name = fs::read_to_string(path.join(BEST)).ok()?;
    Some(path.join(name.trim_end()))
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
