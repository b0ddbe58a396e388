//! A search as it goes, and what came of it: which trials are ahead, with which settings?

use std::path::PathBuf;

use fullrank_engine::Config;
use fullrank_engine::Event;
use fullrank_engine::search::{Metric, Outcome, Plan, Step, Task, Trial, leaderboard, trials};
use fullrank_engine::settings::Choice;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::Found;
use super::budget::duration;
use super::folder::{BEST_CONFIG, trial_name};
use crate::output::{cell, counted, quoted, say, table};
use crate::train::{Summary, results};

/// Trials of the leaderboard that are shown.
const SHOWN: usize = 10;
/// Characters of a trial's settings while a search goes on; terminals are narrow.
const WIDTH: usize = 60;

/// Shows a search as it goes: a bar and the leaderboard on a terminal, a line per step anyway.
pub(super) struct Board {
    bar: ProgressBar,
    plan: Plan,
    /// Settings that trials have differently.
    varied: Vec<&'static str>,
}

impl Board {
    pub(super) fn new(plan: Plan, varied: Vec<&'static str>) -> Self {
        let style = ProgressStyle::with_template("{prefix}{msg} {bar:20} {pos}/{len}")
            .expect("the template is well formed");
        Self { bar: ProgressBar::new(0).with_style(style), plan, varied }
    }

    /// A trial is to be trained, or trained on.
    pub(super) fn begin(&self, task: &Task, config: &Config) {
        let Task { trial, rung, .. } = *task;
        let epochs = config.training().epochs;
        let target = self.plan.epochs_at(rung, epochs);
        let line = match rung {
            0 => format!("trial {trial}: {}", drawn(config, &self.varied)),
            _ => format!("trial {trial} goes on to epoch {target} of {epochs}"),
        };
        self.bar.suspend(|| say(&line));
    }

    /// Something happens in a trial that is trained to an epoch.
    pub(super) fn show(&self, event: &Event, task: &Task, target: usize) {
        match event {
            Event::Update { epoch, batch, batches, loss } => {
                self.bar.set_length(*batches as u64);
                self.bar.set_position(*batch as u64);
                let trial = task.trial;
                let message = format!("trial {trial}, epoch {}/{target} loss {loss:.3}", epoch + 1);
                self.bar.set_message(message);
            }
            Event::Scoring { done, total } => {
                self.bar.set_length(*total as u64);
                self.bar.set_position(*done as u64);
                self.bar.set_message(format!("trial {}, validating", task.trial));
            }
            _ => {}
        }
    }

    /// A trial has come to something.
    pub(super) fn end(&self, step: &Step, leaders: &[&Trial], configs: &[Config]) {
        let Step { trial, epochs, of_epochs, value, seconds, outcome, .. } = step;
        let line = match outcome {
            Outcome::Refused(why) | Outcome::Failed(why) => {
                format!("trial {trial} is given up: {why}")
            }
            Outcome::Stopped | Outcome::Over => {
                let best = leaders.first().filter(|best| best.number != *trial);
                let best = best.map_or("the best so far".into(), |best| {
                    format!("best: {}, trial {}", cell(best.value, 4), best.number)
                });
                let (value, metric) = (cell(*value, 4), metric_name(self.plan.metric));
                format!(
                    "trial {trial}: epoch {epochs}/{of_epochs}  valid {metric} {value}  \
                     {seconds:.1} s  ({best})"
                )
            }
        };
        self.bar.suspend(|| say(&line));
        let width = |mut row: Vec<String>| {
            row.iter_mut().for_each(|cell| *cell = cell.chars().take(WIDTH).collect());
            row
        };
        let rows = board_rows(leaders, configs, &self.varied).into_iter().map(width);
        self.bar.set_prefix(table(&header(self.plan.metric), rows));
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

/// The settings of a trial that others may have differently, but for rates and weights of zero.
fn drawn(config: &Config, varied: &[&str]) -> String {
    let pairs = varied.iter().filter_map(|name| {
        let value = config.value(name).filter(|value| value.as_float() != Some(0.0))?.to_string();
        Some(format!("{name} {}", value.trim_matches('"')))
    });
    pairs.collect::<Vec<_>>().join(", ")
}

fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::Mrr => "MRR",
        Metric::Nll => "NLL",
    }
}

fn header(metric: Metric) -> [&'static str; 5] {
    let value = match metric {
        Metric::Mrr => "valid MRR",
        Metric::Nll => "valid NLL",
    };
    ["trial", "epochs", value, "seconds", ""]
}

fn board_rows(leaders: &[&Trial], configs: &[Config], varied: &[&str]) -> Vec<Vec<String>> {
    let row = |trial: &&Trial| {
        vec![
            trial.number.to_string(),
            format!("{}/{}", trial.epochs, trial.of_epochs),
            cell(trial.value, 4),
            format!("{:.1}", trial.seconds),
            drawn(&configs[trial.number - 1], varied),
        ]
    };
    leaders.iter().take(SHOWN).map(row).collect()
}

/// What a search has come to, for people.
pub(super) fn final_text(found: &Found) -> String {
    let Found { out, space, plan, steps, configs, winner, summaries } = found;
    let trials = trials(steps);
    let leaders = leaderboard(&trials, plan.metric);
    let mut text = table(&header(plan.metric), board_rows(&leaders, configs, &space.varied()));
    let mut rest = Vec::new();
    if leaders.len() > SHOWN {
        rest.push(format!("{} behind these", counted(leaders.len() - SHOWN, "trial")));
    }
    let n_given_up = trials.iter().filter(|trial| !trial.is_alive()).count();
    if n_given_up > 0 {
        rest.push(format!("{} given up", counted(n_given_up, "trial")));
    }
    if !rest.is_empty() {
        text.push_str(&format!("… {}\n", rest.join(", ")));
    }
    let seconds = duration(steps.iter().map(|step| step.seconds).sum());
    text.push_str(&format!(
        "\ntrial {winner} of {} is the best on validation, found in {seconds}; test was ranked only now, \
         by this winner alone\n",
        trials.len()
    ));
    text.push_str(&results(summaries));
    let (folder, config) = (out.display(), out.join(BEST_CONFIG));
    let [folder, config] = [folder.to_string(), config.display().to_string()].map(|it| quoted(&it));
    text.push_str(&format!(
        "\na page to look at: {}\nits settings: {}\n\
         next: fullrank predict {folder} --subject NAME --relation NAME\n      \
         fullrank train DATA --config {config}\n",
        summaries[0].report.display(),
        out.join(BEST_CONFIG).display(),
    ));
    text
}

/// What a search has come to, for machines.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    out: PathBuf,
    /// What trials were compared by, on validation.
    metric: &'static str,
    rungs: usize,
    seconds: f64,
    /// By number.
    trials: Vec<TrialDocument<'a>>,
    /// The number of the best trial.
    best: usize,
    best_config: PathBuf,
    /// Of the best trial, and then with other seeds.
    results: &'a [Summary],
}

#[derive(Serialize)]
struct TrialDocument<'a> {
    trial: usize,
    run: PathBuf,
    epochs: usize,
    of_epochs: usize,
    value: Option<f64>,
    seconds: f64,
    outcome: &'a Outcome,
    /// Settings that trials may have differently.
    settings: serde_json::Map<String, serde_json::Value>,
}

pub(super) fn document<'a>(found: &'a Found) -> Document<'a> {
    let varied = found.space.varied();
    let settings = |number: usize| {
        let config = &found.configs[number - 1];
        let pairs = varied.iter().filter_map(|name| {
            let value = serde_json::to_value(config.value(name)?).ok()?;
            Some(((*name).to_owned(), value))
        });
        pairs.collect()
    };
    let outcome = |number: usize| {
        let last = found.steps.iter().rfind(|step| step.trial == number);
        &last.expect("a trial has a step").outcome
    };
    let trial = |trial: &Trial| TrialDocument {
        trial: trial.number,
        run: found.out.join(trial_name(trial.number)),
        epochs: trial.epochs,
        of_epochs: trial.of_epochs,
        value: trial.value,
        seconds: trial.seconds,
        outcome: outcome(trial.number),
        settings: settings(trial.number),
    };
    Document {
        out: found.out.to_owned(),
        metric: found.plan.metric.name(),
        rungs: found.plan.rungs,
        seconds: found.steps.iter().map(|step| step.seconds).sum(),
        trials: trials(found.steps).iter().map(trial).collect(),
        best: found.winner,
        best_config: found.out.join(BEST_CONFIG),
        results: &found.summaries,
    }
}
