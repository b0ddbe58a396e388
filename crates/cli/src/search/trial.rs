//! Trials: how is one trained to where the plan wants it?

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use fullrank_engine::search::{Outcome, Plan, Space, Step, Task, leaderboard, trials};
use fullrank_engine::{
    Config, Device, Error, Event, RawConfig, Signal, TrainingFolder, epochs, forecast,
};
use fullrank_graph::Graph;

use super::budget::duration;
use super::folder::SearchFolder;
use super::show::Board;
use crate::Interrupted;
use crate::memory::check_memory;
use crate::output::{counted, say};
use crate::provenance::provenance;
use crate::stop::signal;

/// Everything that trials are made of.
pub(super) struct Trials<'a> {
    pub(super) graph: &'a Arc<Graph>,
    pub(super) stop: &'a AtomicBool,
    pub(super) board: &'a Board,
    pub(super) space: &'a Space,
    pub(super) plan: Plan,
}

impl Trials<'_> {
    /// Does what the plan says until there is nothing more to do; gives the configs of all trials.
    pub(super) fn train_all(&self, folder: &mut SearchFolder) -> anyhow::Result<Vec<Config>> {
        let mut plan = self.plan;
        let mut configs: Vec<Config> = Vec::new();
        let begun = folder.steps().iter().map(|step| step.trial).max().unwrap_or(0);
        for trial in 1..=begun {
            configs.extend(self.space.draw(trial, self.graph, &configs));
        }
        while let Some(task) = plan.next(folder.steps()) {
            if task.trial > configs.len() {
                let Some(config) = self.space.draw(task.trial, self.graph, &configs) else {
                    say("note: all that the space has was tried");
                    plan.trials = Some(configs.len());
                    continue;
                };
                configs.push(config);
            }
            let before = trials(folder.steps());
            let spent = before.iter().find(|trial| trial.number == task.trial);
            let spent = spent.map_or(0.0, |trial| trial.seconds);
            let config = &configs[task.trial - 1];
            self.board.begin(&task, config);
            let step = self.step(&task, config, &folder.trial(task.trial), spent)?;
            folder.keep(step.clone(), &configs)?;
            let after = trials(folder.steps());
            self.board.end(&step, &leaderboard(&after, plan.metric), &configs);
            if self.stop.load(Ordering::Relaxed) {
                return Err(self.interrupted());
            }
        }
        Ok(configs)
    }

    /// Trains a trial that has `spent` so many seconds.
    fn step(&self, task: &Task, config: &Config, out: &Path, spent: f64) -> anyhow::Result<Step> {
        let of_epochs = config.training().epochs;
        let target = self.plan.epochs_at(task.rung, of_epochs);
        let mut step = Step {
            trial: task.trial,
            rung: task.rung,
            epochs: 0,
            of_epochs,
            value: None,
            seconds: 0.0,
            outcome: Outcome::Stopped,
        };
        match check_memory(forecast(config, self.graph)) {
            Err(error) if !out.join("run.json").exists() => {
                step.outcome = Outcome::Refused(error.to_string());
                return Ok(step);
            }
            checked => checked?,
        }
        let start = Instant::now();
        let given = RawConfig::parse(&config.to_toml())?;
        let (mut folder, config) = TrainingFolder::resume(out, self.graph, &given)?;
        // What a step took that was killed.
        let lost = (folder.seconds() - spent).max(0.0);
        let (refused, is_there) = (None, folder.progress().0 >= target || folder.is_over());
        let spent = spent + lost;
        let mut watch =
            Watch { trials: self, task, of_epochs, target, start, spent, refused, is_there };
        step.outcome = self.train(&mut folder, config, &mut watch)?;
        drop(folder);
        step.seconds = lost + start.elapsed().as_secs_f64();
        for record in epochs(out)?.into_iter().filter(|record| record.epoch <= target) {
            step.epochs = record.epoch;
            if record.best {
                step.value = record.valid.as_ref().and_then(|valid| self.plan.metric.of(valid));
            }
        }
        if matches!(step.outcome, Outcome::Stopped | Outcome::Over) && step.value.is_none() {
            step.outcome = Outcome::Failed("its probabilities have no NLL".into());
        }
        Ok(step)
    }

    /// Trains as far as it is watched.
    fn train(
        &self,
        folder: &mut TrainingFolder,
        config: Config,
        watch: &mut Watch,
    ) -> anyhow::Result<Outcome> {
        if !watch.is_there {
            folder.note(provenance())?;
            let graph = Arc::clone(self.graph);
            let trained =
                folder.train(graph, config, Device::default(), &mut |event| watch.see(event));
            match trained {
                // However long it took.
                Ok(_) => watch.refused = None,
                Err(Error::Interrupted) if watch.is_there || watch.refused.is_some() => {}
                Err(Error::Interrupted) => return Err(self.interrupted()),
                Err(error @ (Error::NotFinite { .. } | Error::BrokenModel)) => {
                    return Ok(Outcome::Failed(error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(forecast) = watch.refused {
            return Ok(too_slow(watch, forecast));
        }
        // Another program may have trained it for longer.
        let is_over = folder.is_over() && folder.progress().0 <= watch.target;
        Ok(if is_over { Outcome::Over } else { Outcome::Stopped })
    }

    fn interrupted(&self) -> anyhow::Error {
        self.board.clear();
        say("saved; the same command with --resume (instead of --force) goes on");
        Interrupted.into()
    }
}

fn too_slow(watch: &Watch, seconds: f64) -> Outcome {
    let [all, most] = [seconds, watch.task.within.unwrap_or_default()].map(duration);
    let epochs = counted(watch.of_epochs, "epoch");
    Outcome::Refused(format!("{epochs} would take about {all}, where there are {most}"))
}

/// Looks at a trial in training: is it there, or too slow, or to be stopped?
struct Watch<'a> {
    trials: &'a Trials<'a>,
    task: &'a Task,
    of_epochs: usize,
    /// Epochs to which it is trained.
    target: usize,
    start: Instant,
    /// Seconds before the start.
    spent: f64,
    /// Forecast of a trial that is too slow.
    refused: Option<f64>,
    is_there: bool,
}

impl Watch<'_> {
    fn see(&mut self, event: Event) -> Signal {
        let Self { trials, task, target, .. } = self;
        trials.board.show(&event, task, *target);
        let made = match event {
            Event::Update { epoch, batch, batches, .. } => {
                Some(epoch as f64 + batch as f64 / batches as f64)
            }
            Event::Epoch(record) => {
                self.is_there = record.epoch >= *target;
                Some(record.epoch as f64)
            }
            _ => None,
        };
        let seconds = self.spent + self.start.elapsed().as_secs_f64();
        self.refused =
            made.and_then(|made| trials.plan.too_long(task, seconds, made, self.of_epochs));
        if self.is_there || self.refused.is_some() { Signal::Stop } else { signal(trials.stop) }
    }
}
