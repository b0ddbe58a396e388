//! The plan of a search: which trial is trained next, and how far?
//!
//! Successive halving (Jamieson and Talwalkar 2016) without waiting, as ASHA has it (Li et al. 2020, "A
//! System for Massively Parallel Hyperparameter Tuning"): a trial is first trained for a ninth of its
//! epochs, the best third of those goes on to a third, and the best third of these to the end. A trial
//! goes on as soon as it is among the best third of those that have come as far, so the number of
//! trials need not be known before.
//!
//! What is next follows from the steps so far and the times that they took, and from nothing else.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::metrics::Metrics;
use crate::settings::choices;

/// Of how many trials on a rung one goes on, and by how much it is trained longer.
const REDUCTION: usize = 3;
/// Trials that came to nothing after which, without any other, a search gives up.
const HOPELESS: usize = 20;
/// What a training may take longer than its epochs so far foretell.
const SLACK: f64 = 1.05;

choices! {
    /// What trials are compared by, on validation.
    pub Metric {
        /// The mean reciprocal rank.
        Mrr = "mrr",
        /// The filtered negative log-likelihood.
        Nll = "nll",
    }
}

impl Metric {
    /// Its value, where the model has one.
    pub fn of(self, metrics: &Metrics) -> Option<f64> {
        match self {
            Self::Mrr => Some(metrics.realistic.mrr),
            Self::Nll => metrics.nll_filtered,
        }
    }

    /// The better one first; last is having none.
    pub fn order(self, a: Option<f64>, b: Option<f64>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) if self == Self::Mrr => b.total_cmp(&a),
            (Some(a), Some(b)) => a.total_cmp(&b),
            (a, b) => b.is_some().cmp(&a.is_some()),
        }
    }
}

/// How a search goes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// What trials are compared by.
    pub metric: Metric,
    /// Lengths to which trials are trained; with 1, every trial is trained to its end, which is random
    /// search.
    pub rungs: usize,
    /// Trials, at most.
    pub trials: Option<usize>,
    /// Seconds for everything, the end of the best trial included.
    pub seconds: Option<f64>,
}

/// What is to be trained.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// From 1; one more than there were is a new one.
    pub trial: usize,
    /// Where it is to come, from 0.
    pub rung: usize,
    /// Seconds that all of its epochs may take; a trial that is slower could not end in time. Nothing
    /// for one whose time is known.
    pub within: Option<f64>,
}

/// What training a trial from one rung to another came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// From 1.
    pub trial: usize,
    /// Where it was to come, from 0.
    pub rung: usize,
    /// Epochs that it has made.
    pub epochs: usize,
    /// Epochs of its config.
    pub of_epochs: usize,
    /// Validation metric of the epoch whose weights are kept.
    pub value: Option<f64>,
    /// What this step took.
    pub seconds: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// On its rung; the trial can go on.
    Stopped,
    /// The training is over.
    Over,
    /// It would take more time or memory than there is; in words.
    Refused(String),
    /// Its training failed, or it cannot be compared; in words.
    Failed(String),
}

/// A trial, as far as it has come.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// From 1.
    pub number: usize,
    /// Epochs made.
    pub epochs: usize,
    /// Epochs of its config.
    pub of_epochs: usize,
    /// Validation metric of the epoch whose weights are kept.
    pub value: Option<f64>,
    /// What it took.
    pub seconds: f64,
    /// How its last step ended.
    pub outcome: Outcome,
    /// Rungs, and its values there.
    rungs: Vec<(usize, Option<f64>)>,
}

impl Trial {
    /// Whether it has a model, and is trained on if that is among the best.
    pub fn is_alive(&self) -> bool {
        matches!(self.outcome, Outcome::Stopped | Outcome::Over)
    }

    /// Whether there is nothing left to train.
    pub fn is_over(&self) -> bool {
        self.outcome != Outcome::Stopped
    }

    fn rung(&self) -> usize {
        self.rungs.last().map_or(0, |(rung, _)| *rung)
    }

    /// Its value on a rung, or on the next one that it was trained to; a training that is over has
    /// come to all of them.
    fn value_at(&self, rung: usize) -> Option<Option<f64>> {
        let found = self.rungs.iter().find(|(other, _)| *other >= rung);
        found.map(|(_, value)| *value).or((self.outcome == Outcome::Over).then_some(self.value))
    }

    /// Forecast for as many epochs more.
    fn seconds_for(&self, epochs: usize) -> f64 {
        SLACK * self.seconds * epochs as f64 / self.epochs.max(1) as f64
    }

    fn seconds_to_end(&self) -> f64 {
        match self.is_over() {
            true => 0.0,
            false => self.seconds_for(self.of_epochs - self.epochs),
        }
    }
}

/// All trials of a search, by number.
pub fn trials(steps: &[Step]) -> Vec<Trial> {
    let mut trials: Vec<Trial> = Vec::new();
    for step in steps {
        let Step { trial: number, rung, epochs, of_epochs, value, seconds, outcome } = step.clone();
        let before = trials.iter().position(|trial| trial.number == number);
        let (mut spent, mut rungs) = (seconds, Vec::new());
        if let Some(place) = before {
            let Trial { seconds, rungs: earlier, .. } = trials.remove(place);
            spent += seconds;
            rungs = earlier;
        }
        rungs.push((rung, value));
        trials.push(Trial { number, epochs, of_epochs, value, seconds: spent, outcome, rungs });
    }
    trials.sort_by_key(|trial| trial.number);
    trials
}

/// Trials that have a model, the best one first.
pub fn leaderboard(trials: &[Trial], metric: Metric) -> Vec<&Trial> {
    let mut alive: Vec<&Trial> =
        trials.iter().filter(|trial| trial.is_alive() && trial.value.is_some()).collect();
    alive.sort_by(|a, b| metric.order(a.value, b.value));
    alive
}

impl Plan {
    /// Epochs after which a trial has come to a rung.
    pub fn epochs_at(&self, rung: usize, of_epochs: usize) -> usize {
        of_epochs.div_ceil(REDUCTION.pow((self.top() - rung) as u32))
    }

    /// The seconds that all epochs of a trial would take, by what these took, where that is too long. Of
    /// the first epoch a part may be made.
    ///
    /// A short time foretells little, so it has to be far too long at first: six times as long after a
    /// hundredth of all seconds, twice as long after a twentieth.
    pub fn too_long(
        &self,
        task: &Task,
        seconds: f64,
        epochs: f64,
        of_epochs: usize,
    ) -> Option<f64> {
        let (all, within) = (self.seconds?, task.within?);
        let is_there = epochs >= self.epochs_at(task.rung, of_epochs) as f64;
        let least = all / 100.0;
        let tolerance = if is_there { 1.0 } else { 1.0 + all / 20.0 / seconds };
        let forecast = seconds * of_epochs as f64 / epochs;
        (seconds >= least && forecast > tolerance * within).then_some(forecast)
    }

    /// What is to be trained next; nothing when the search is over.
    pub fn next(&self, steps: &[Step]) -> Option<Task> {
        let trials = trials(steps);
        let left = self.seconds.map(|all| all - steps.iter().map(|step| step.seconds).sum::<f64>());
        let leader = leaderboard(&trials, self.metric).first().copied();
        let state = State { plan: self, trials: &trials, leader, left };
        let on = |trial: &Trial, rung| Task { trial: trial.number, rung, within: None };
        let promoted = (0..self.top()).rev().find_map(|rung| {
            let trial =
                state.promotable(rung).into_iter().find(|it| state.has_time(it, rung + 1))?;
            Some(on(trial, rung + 1))
        });
        promoted
            .or_else(|| state.new_trial())
            .or_else(|| Some(on(leader.filter(|leader| !leader.is_over())?, self.top())))
            .or_else(|| Some(on(state.last_chance()?, self.top())))
    }

    fn top(&self) -> usize {
        self.rungs - 1
    }

    /// The part of all epochs that a trial is trained for at first.
    fn first_part(&self) -> f64 {
        (REDUCTION as f64).powi(-(self.top() as i32))
    }
}

/// Where a search is.
struct State<'a> {
    plan: &'a Plan,
    trials: &'a [Trial],
    leader: Option<&'a Trial>,
    /// Seconds, where they are limited.
    left: Option<f64>,
}

impl<'a> State<'a> {
    /// Trials of the best third on a rung that did not go on from there.
    fn promotable(&self, rung: usize) -> Vec<&'a Trial> {
        let competed = |trial: &&Trial| !matches!(trial.outcome, Outcome::Refused(_));
        let here = |trial: &'a Trial| Some((trial, trial.value_at(rung)?));
        let mut all: Vec<(&Trial, Option<f64>)> =
            self.trials.iter().filter(competed).filter_map(here).collect();
        all.sort_by(|a, b| self.plan.metric.order(a.1, b.1));
        all.truncate(all.len() / REDUCTION);
        let waits = |trial: &&Trial| !trial.is_over() && trial.rung() == rung;
        all.into_iter().map(|(trial, _)| trial).filter(waits).collect()
    }

    /// What is to be left for the best trial to be trained to its end.
    fn reserve(&self) -> f64 {
        self.leader.map_or(0.0, Trial::seconds_to_end)
    }

    /// Whether a trial can be trained to a rung, and then the best of all to its end.
    fn has_time(&self, trial: &Trial, rung: usize) -> bool {
        let Some(left) = self.left else { return true };
        let epochs = self.plan.epochs_at(rung, trial.of_epochs).saturating_sub(trial.epochs);
        let now = trial.seconds_for(epochs);
        let is_leader = self.leader.is_some_and(|leader| leader.number == trial.number);
        let others = if is_leader { 0.0 } else { self.reserve() };
        now + others.max(trial.seconds_to_end() - now) <= left
    }

    /// A trial more, if there may be one and the time is enough for one like those before.
    fn new_trial(&self) -> Option<Task> {
        let trial = self.trials.len() + 1;
        let task = Task { trial, rung: 0, within: None };
        if self.plan.trials.is_some_and(|most| trial > most) {
            return None;
        }
        let alive: Vec<&Trial> = self.trials.iter().filter(|trial| trial.is_alive()).collect();
        if alive.is_empty() && self.trials.len() >= HOPELESS {
            return None;
        }
        let (Some(left), Some(all)) = (self.left, self.plan.seconds) else { return Some(task) };
        let part = self.plan.first_part();
        let lengths = alive.iter().map(|trial| trial.seconds_for(trial.of_epochs));
        let length = lengths.sum::<f64>() / alive.len().max(1) as f64;
        let now = part * length;
        if left <= 0.0 || now + self.reserve().max(length - now) > left {
            return None;
        }
        // It can end, and so can the best of the others if it is worse; and there is time for others.
        let within = (all / 2.0).min(left).min((left - self.reserve()) / part);
        Some(Task { within: Some(within / SLACK), ..task })
    }

    /// When there is no time for anything else, the trial that is likeliest to be the best, if it can
    /// end.
    fn last_chance(&self) -> Option<&'a Trial> {
        let left = self.left?;
        let mut waiting: Vec<&Trial> = self
            .trials
            .iter()
            .filter(|trial| !trial.is_over() && trial.value.is_some())
            .filter(|trial| trial.seconds_to_end() <= left)
            .collect();
        let order = |a: &Trial, b: &Trial| self.plan.metric.order(a.value, b.value);
        waiting.sort_by(|a, b| b.rung().cmp(&a.rung()).then(order(a, b)));
        waiting.first().copied()
    }
}
