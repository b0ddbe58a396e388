//! Runs: trains what is missing of a cell, resumes what is unfinished, and opens what is there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use fullrank_engine::metrics::Metrics;
use fullrank_engine::{
    Device, Error, Event, Existing, RawConfig, Run, Signal, TrainingFolder, epochs, forecast,
};
use fullrank_report::RunReport;

use super::places::Place;
use crate::Interrupted;
use crate::evaluate::{progress_bar, show_progress};
use crate::memory::check_memory;
use crate::output::{quoted, say, write_file};
use crate::provenance::provenance;
use crate::train::Progress;

/// One training of a cell.
#[derive(Debug, Clone)]
pub(super) struct Training {
    /// All settings, the seed among them.
    pub(super) settings: RawConfig,
    pub(super) folder: PathBuf,
}

/// How far a training has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Missing,
    /// So many epochs are made.
    Begun(usize),
    Done,
}

impl Training {
    pub(super) fn stage(&self) -> Stage {
        if self.folder.join("model.safetensors").exists() {
            return Stage::Done;
        }
        match epochs(&self.folder) {
            Ok(epochs) => Stage::Begun(epochs.len()),
            Err(_) => Stage::Missing,
        }
    }

    /// Trains to the end if that is not done, and ranks valid and test.
    pub(super) fn finished(&self, place: &Place, stop: &AtomicBool) -> anyhow::Result<Run> {
        let graph = &place.graph;
        let (mut folder, config) = TrainingFolder::resume(&self.folder, graph, &self.settings)?;
        if let Some(candidates) = &place.candidates {
            folder.rank_among(Arc::clone(candidates))?;
        }
        if !folder.is_over() {
            check_memory(forecast(&config, graph))?;
            say(&format!("{}:", self.folder.display()));
            folder.note(provenance())?;
            let mut progress = Progress::new(&config, stop);
            let trained =
                folder.train(Arc::clone(graph), config, Device::default(), &mut |event| {
                    progress.show(event)
                });
            progress.bar.finish_and_clear();
            trained.map_err(interrupted)?;
        }
        let mut run = Run::open(&self.folder, Device::default())?;
        if run.splits.is_empty() {
            if let Some(candidates) = &place.candidates {
                run.model.rank_among(Arc::clone(candidates));
            }
            self.finish(&mut run, &mut folder, &place.path, stop)?;
            run = Run::open(&self.folder, Device::default())?;
        }
        Ok(run)
    }

    /// Ranks, calibrates and reports what a training has come to.
    fn finish(
        &self,
        run: &mut Run,
        folder: &mut TrainingFolder,
        data: &Path,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let finished =
            with_bar("ranking and calibrating", stop, |progress| run.model.finish(progress))?;
        folder.keep(&run.model, &finished)?;
        let words = [data.display().to_string(), self.folder.display().to_string()];
        let [data_word, folder_word] = words.map(|word| quoted(&word));
        let report = RunReport {
            data: data.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            command: format!(
                "fullrank train {data_word} --config {folder_word}/config.toml --out again"
            ),
            version: crate::VERSION,
            epochs: epochs(&self.folder)?,
            finished,
            model: &run.model,
        };
        let page = self.folder.join("report.html");
        write_file(&page, Existing::Replace, report.to_html()?.as_bytes())
    }
}

/// Test metrics that a finished run has kept.
pub(super) fn test_metrics(run: &Run) -> Option<Metrics> {
    run.splits.iter().find(|split| split.split == "test").map(|split| split.model)
}

/// Does something long with a bar to look at.
pub(super) fn with_bar<T>(
    message: &'static str,
    stop: &AtomicBool,
    work: impl FnOnce(&mut dyn FnMut(Event) -> Signal) -> Result<T, Error>,
) -> anyhow::Result<T> {
    let bar = progress_bar(message);
    let done = work(&mut |event| show_progress(&bar, stop, &event));
    bar.finish_and_clear();
    done.map_err(interrupted)
}

fn interrupted(error: Error) -> anyhow::Error {
    match error {
        Error::Interrupted => {
            say("saved; the same command goes on");
            Interrupted.into()
        }
        other => other.into(),
    }
}
