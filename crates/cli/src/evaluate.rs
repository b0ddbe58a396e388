//! `fullrank evaluate`: ranks the held-out answers of a run, or classifies triples by it.

mod signs;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use clap::{Args, ValueEnum, ValueHint};
use fullrank_engine::evaluate::{
    Breakdown, Calibration, break_down, calibrate, fit_temperature, rank_answers, rank_candidates,
    without_unseen,
};
use fullrank_engine::metrics::{AnswerRank, Metrics, metrics};
use fullrank_engine::{Error, Event, ProbabilityKind, Run, Signal};
use fullrank_graph::Split;
use fullrank_graph::load::load_candidates;
use fullrank_report::{METRICS_HEADER, metrics_row};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::open::open_run;
use crate::output::{count, say, show, show_json, table, wrong_usage};
use crate::stop::{signal, stop_flag};
use crate::train::{model_line, say_untrained};
use signs::{signs, signs_text};

/// Rank the held-out answers of a run
///
/// Every triple of the split is asked in both directions; other known answers do not compete.
/// Ties count half. NLL is the mean of −log P of the answers; filtered, with the query's training
/// answers taken out of the distribution; a sigmoid has no distribution over the objects, and no NLL.
/// With --task signs, every pair of a query and an object is told to hold or not.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank evaluate runs/first
  fullrank evaluate runs/first --split valid --by class
  fullrank evaluate runs/first --calibration --json
  fullrank evaluate runs/sigmoid --task signs

What a probability means: the share of this object among the answers of the query. Fifty true
answers get about .02 each. Of a sigmoid: the probability that the triple holds.")]
pub(crate) struct EvaluateArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// Which triples to rank
    #[arg(long, default_value = "test")]
    split: SplitArgument,

    /// Rank answers, or tell which triples hold: AUROC, average precision, and F1 at the threshold that
    /// is best on validation
    #[arg(long, default_value = "ranks")]
    task: TaskArgument,

    /// Break the result down
    #[arg(long)]
    by: Option<BreakdownArgument>,

    /// Compare probabilities with what came true, before and after a temperature fitted on
    /// validation
    #[arg(long, conflicts_with = "candidates")]
    calibration: bool,

    /// Rank against the candidates in this folder: {valid,test}_negative_{subjects,objects}.npy
    ///
    /// NLL filtered is then that among the answer and its candidates.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    candidates: Option<PathBuf>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum SplitArgument {
    Train,
    Valid,
    Test,
}

impl From<SplitArgument> for Split {
    fn from(argument: SplitArgument) -> Self {
        match argument {
            SplitArgument::Train => Self::Train,
            SplitArgument::Valid => Self::Valid,
            SplitArgument::Test => Self::Test,
        }
    }
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum TaskArgument {
    Ranks,
    Signs,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum BreakdownArgument {
    Direction,
    Relation,
    Class,
    Degree,
}

impl From<BreakdownArgument> for Breakdown {
    fn from(argument: BreakdownArgument) -> Self {
        match argument {
            BreakdownArgument::Direction => Self::Direction,
            BreakdownArgument::Relation => Self::Relation,
            BreakdownArgument::Class => Self::Class,
            BreakdownArgument::Degree => Self::Degree,
        }
    }
}

#[derive(Serialize)]
struct Report {
    run: PathBuf,
    split: String,
    meaning: ProbabilityKind,
    #[serde(flatten)]
    metrics: Metrics,
    /// Without triples that speak of what training does not.
    without_unseen: Option<Metrics>,
    parameters: usize,
    epoch: usize,
    updates: u64,
    finished: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<Vec<Part>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    calibration: Option<Vec<Calibration>>,
}

#[derive(Serialize)]
struct Part {
    name: String,
    #[serde(flatten)]
    metrics: Metrics,
}

pub(crate) fn run(arguments: &EvaluateArguments) -> anyhow::Result<()> {
    if let (TaskArgument::Signs, Some(option)) = (arguments.task, of_ranks(arguments)) {
        wrong_usage(format!("{option} is for ranks; expected it without --task signs"));
    }
    let run = open_run(&arguments.run)?;
    say_untrained(run.model.config());
    let stop = stop_flag()?;
    let interrupted = |error: anyhow::Error| match error.downcast_ref::<Error>() {
        Some(Error::Interrupted) => Interrupted.into(),
        _ => error,
    };
    let model = || model_line(run.model.config()) + "\n";
    match arguments.task {
        TaskArgument::Ranks => {
            let report = evaluate(arguments, &run, &stop).map_err(interrupted)?;
            if arguments.json { show_json(&report) } else { show(&(model() + &text(&report))) }
        }
        TaskArgument::Signs => {
            let report = signs(arguments, &run, &stop).map_err(interrupted)?;
            if arguments.json {
                show_json(&report)
            } else {
                show(&(model() + &signs_text(&report)))
            }
        }
    }
}

/// An option given that only means something for ranks.
fn of_ranks(arguments: &EvaluateArguments) -> Option<&'static str> {
    let given = [
        ("--by", arguments.by.is_some()),
        ("--calibration", arguments.calibration),
        ("--candidates", arguments.candidates.is_some()),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

fn evaluate(arguments: &EvaluateArguments, run: &Run, stop: &AtomicBool) -> anyhow::Result<Report> {
    let split = arguments.split.into();
    let ranks = rank(arguments, run, split, stop)?;
    let Some(all) = metrics(&ranks) else {
        bail!(
            "{}: there are no {split} triples to rank\n\nChoose another split by --split.",
            arguments.run.display()
        );
    };
    let seen = without_unseen(run.model.graph(), &ranks);
    let by = arguments.by.map(|by| {
        let parts = break_down(run.model.graph(), &ranks, by.into());
        parts.into_iter().map(|(name, metrics)| Part { name, metrics }).collect()
    });
    let calibration = match arguments.calibration {
        true => Some(calibration(run, split, stop)?),
        false => None,
    };
    Ok(Report {
        run: arguments.run.clone(),
        split: split.to_string(),
        meaning: run.model.config().probability(),
        metrics: all,
        without_unseen: metrics(seen),
        parameters: run.model.n_parameters(),
        epoch: run.trained.best.epoch,
        updates: run.trained.updates,
        finished: run.is_finished,
        by,
        calibration,
    })
}

fn rank(
    arguments: &EvaluateArguments,
    run: &Run,
    split: Split,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<AnswerRank>> {
    let bar = progress_bar("ranking");
    let mut progress = |event: Event| show_progress(&bar, stop, &event);
    let ranks = match &arguments.candidates {
        None => rank_answers(run.model.graph(), split, &run.model, &mut progress),
        Some(folder) => {
            let Some(candidates) = load_candidates(folder, run.model.graph(), split)? else {
                bail!(
                    "{}: expected {split}_negative_subjects.npy and {split}_negative_objects.npy\n\n\
                     Name the folder that has them; docs/data.md says what they hold.",
                    folder.display()
                );
            };
            rank_candidates(run.model.graph(), split, &candidates, &run.model, &mut progress)
        }
    };
    bar.finish_and_clear();
    Ok(ranks?)
}

/// As the model gives them, and at the temperature that fits validation best.
fn calibration(run: &Run, split: Split, stop: &AtomicBool) -> anyhow::Result<Vec<Calibration>> {
    let bar = progress_bar("calibrating");
    let mut progress = |event: Event| show_progress(&bar, stop, &event);
    let mut all = vec![calibrate(run.model.graph(), split, &run.model, 1.0, &mut progress)?];
    let fitted = match run.model.temperature() {
        Some(fitted) => Some(fitted),
        None => fit_temperature(run.model.graph(), Split::Valid, &run.model, &mut progress)?,
    };
    match fitted {
        Some(fitted) => {
            all.push(calibrate(run.model.graph(), split, &run.model, fitted, &mut progress)?)
        }
        None if run.model.config().probability() == ProbabilityKind::Bernoulli => {}
        None => say("note: there are too few valid triples to fit a temperature on"),
    }
    bar.finish_and_clear();
    Ok(all)
}

pub(crate) fn progress_bar(message: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} queries, {eta} left")
        .expect("the template is well formed");
    ProgressBar::new(0).with_style(style).with_message(message)
}

pub(crate) fn show_progress(bar: &ProgressBar, stop: &AtomicBool, event: &Event) -> Signal {
    match event {
        Event::Scoring { done, total } => {
            bar.set_length(*total as u64);
            bar.set_position(*done as u64);
        }
        Event::Solving { side } => {
            bar.println(format!("eigenvalues of {side} × {side} numbers …"));
        }
        _ => {}
    }
    signal(stop)
}

fn text(report: &Report) -> String {
    let all = &report.metrics;
    let mut rows = vec![metrics_row(&report.split, all)];
    if let Some(seen) = &report.without_unseen
        && seen.n_ranks < all.n_ranks
    {
        rows.push(metrics_row("without unseen entities", seen));
    }
    let mut text = table(METRICS_HEADER, rows);
    text.push_str(&format!(
        "\nadjusted mean rank index {:.4}; MRR is {:.4} if ties count as won, {:.4} as lost\n\
         weights of epoch {}; {} updates in all, {} parameters\n",
        all.realistic.amri,
        all.optimistic.mrr,
        all.pessimistic.mrr,
        report.epoch,
        count(report.updates as usize),
        count(report.parameters),
    ));
    if let (Some(mrr), true) =
        (all.mrr_filtered_with_test, report.split == Split::Valid.to_string())
    {
        text.push_str(&format!(
            "MRR is {mrr:.4} if test answers are filtered too, as LibKGE does\n"
        ));
    }
    if let Some(parts) = &report.by {
        let rows = parts.iter().map(|part| metrics_row(&part.name, &part.metrics));
        text.push_str(&format!("\n{}", table(METRICS_HEADER, rows)));
    }
    for calibration in report.calibration.iter().flatten() {
        text.push_str(&calibration_text(calibration, report.meaning));
    }
    text
}

fn calibration_text(calibration: &Calibration, meaning: ProbabilityKind) -> String {
    let counted = match meaning {
        ProbabilityKind::Categorical => "triples",
        ProbabilityKind::Bernoulli => "queries",
    };
    let reliability = &calibration.top_answer;
    let rows = reliability.bins.iter().map(|bin| {
        vec![
            String::new(),
            format!("{:.3}", bin.predicted),
            format!("{:.3}", bin.observed),
            count(bin.count as usize),
        ]
    });
    format!(
        "\ncalibration at temperature {:.3}: expected error {:.4} for the top answer, {:.4} for \
         all pairs{}\n{}",
        calibration.temperature,
        reliability.ece,
        calibration.pairs.ece,
        calibration.nll_filtered.map_or(String::new(), |nll| format!("; NLL filtered {nll:.3}")),
        table(&["", "top answer's probability", "came true", counted], rows),
    )
}
