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

/// The run folders that a path stands for: itself, or those of its seeds.
pub(crate) fn run_folders(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.exists() {
        bail!("{}: there is no such folder", path.display());
    }
    let seeds = if path.join("run.json").exists() { Vec::new() } else { seed_folders(path) };
    // A folder without any is no run, which opening it will tell.
    Ok(if seeds.is_empty() { vec![path.to_owned()] } else { seeds })
}

/// The runs of a folder with several seeds, by seed.
fn seed_folders(path: &Path) -> Vec<PathBuf> {
    let entries = path.read_dir().into_iter().flatten().flatten();
    let seed = |entry: std::fs::DirEntry| {
        let seed = entry.file_name().to_str()?.strip_prefix("seed-")?.parse::<u64>().ok()?;
        entry.path().join("run.json").exists().then(|| (seed, entry.path()))
    };
    let mut found: Vec<(u64, PathBuf)> = entries.filter_map(seed).collect();
    found.sort();
    found.into_iter().map(|(_, folder)| folder).collect()
}

/// The run of a folder with several seeds that is best on validation; nothing without any.
fn best_seed(path: &Path) -> Result<Option<PathBuf>, Error> {
    let mut best: Option<(f64, PathBuf)> = None;
    for folder in seed_folders(path) {
        let Some(valid_mrr) = best_epoch(&folder)?.and_then(|best| best.valid_mrr) else {
            continue;
        };
        // Of equal ones the first seed.
        if best.as_ref().is_none_or(|(mrr, _)| valid_mrr > *mrr) {
            best = Some((valid_mrr, folder));
        }
    }
    Ok(best.map(|(_, folder)| folder))
}
