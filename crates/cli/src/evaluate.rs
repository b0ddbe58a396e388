//! `fullrank evaluate`: ranks the held-out answers of a run, or classifies triples by it.

mod signs;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use clap::{Args, ValueEnum, ValueHint};
use fullrank_engine::evaluate::{
    Baselines, Breakdown, Calibration, break_down, calibrate, fit_temperature, without_unseen,
};
use fullrank_engine::metrics::{Metrics, metrics};
use fullrank_engine::{Error, Event, ProbabilityKind, Run, Signal, SplitResult, rank_file};
use fullrank_graph::Split;
use fullrank_report::{CANDIDATES_REMARK, MetricsColumns, below_popularity};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::candidates::given_candidates;
use crate::open::open_run;
use crate::output::{
    check_target, count, counted, existing, say, show, show_json, table, write_file, wrong_usage,
};
use crate::stop::{signal, stop_flag};
use crate::train::{model_line, say_untrained};
use signs::{signs, signs_text};

/// Rank the held-out answers of a run
///
/// Every triple of the split is asked in both directions; other known answers do not compete.
/// Ties count half. NLL is the mean of −log P of the answers; filtered, with the query's training
/// answers taken out of the distribution; a sigmoid has no distribution over the objects, and no NLL.
/// Beside the model stand what ranking by popularity comes to, which is by the number of training
/// triples that an entity has with the relation, and what is expected of a random order.
/// With --task signs, every pair of a query and an object is told to hold or not.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank evaluate runs/first
  fullrank evaluate runs/first --split valid --by class
  fullrank evaluate runs/first --calibration --json
  fullrank evaluate runs/first --ranks ranks.csv
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

    /// Rank against the candidates in this folder: {valid,test}_negative_{subjects,objects}.npy, or
    /// those that a run was trained with
    ///
    /// The NLL among the answer and its candidates stands beside those over all entities then.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    candidates: Option<PathBuf>,

    /// Write where every held-out answer stands to this file, a line each: split, direction, subject,
    /// relation, object, its rank, the rank as if ties were won and lost, what it competes with, and
    /// −log P, filtered and not
    #[arg(long, value_name = "FILE.csv", value_hint = ValueHint::FilePath, value_parser = csv_file)]
    ranks: Option<PathBuf>,

    /// Replace the file that is there
    #[arg(long, requires = "ranks")]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn csv_file(text: &str) -> Result<PathBuf, String> {
    match Path::new(text).extension().is_some_and(|ending| ending == "csv") {
        true => Ok(text.into()),
        false => Err("expected a name that ends in .csv".to_owned()),
    }
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
    #[serde(flatten)]
    baselines: Baselines,
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
    #[serde(flatten)]
    baselines: Baselines,
}

pub(crate) fn run(arguments: &EvaluateArguments) -> anyhow::Result<()> {
    if let (TaskArgument::Signs, Some(option)) = (arguments.task, of_ranks(arguments)) {
        wrong_usage(format!("{option} is for ranks; expected it without --task signs"));
    }
    if let Some(path) = &arguments.ranks {
        check_target(path, existing(arguments.force))?;
    }
    let mut run = open_run(&arguments.run)?;
    rank_among(arguments, &mut run)?;
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

/// Takes the candidates that are asked for.
fn rank_among(arguments: &EvaluateArguments, run: &mut Run) -> anyhow::Result<()> {
    if let Some(folder) = &arguments.candidates {
        let given = given_candidates(folder, run.model.graph(), &[arguments.split.into()])?;
        run.model.rank_among(Arc::new(given));
    } else if run.has_candidates && matches!(arguments.task, TaskArgument::Ranks) {
        say(
            "note: this run was trained with given candidates; --candidates with its folder ranks \
             among them",
        );
    }
    Ok(())
}

/// An option given that only means something for ranks.
fn of_ranks(arguments: &EvaluateArguments) -> Option<&'static str> {
    let given = [
        ("--by", arguments.by.is_some()),
        ("--calibration", arguments.calibration),
        ("--candidates", arguments.candidates.is_some()),
        ("--ranks", arguments.ranks.is_some()),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| option)
}

fn evaluate(arguments: &EvaluateArguments, run: &Run, stop: &AtomicBool) -> anyhow::Result<Report> {
    let split = arguments.split.into();
    let graph = run.model.graph();
    let Some(found) = rank(run, split, stop)? else {
        bail!(
            "{}: there are no {split} triples to rank\n\nChoose another split by --split.",
            arguments.run.display()
        );
    };
    let SplitResult { ranks, popularity_ranks, metrics: all, baselines, .. } = found;
    if let Some(path) = &arguments.ranks {
        let text = rank_file::to_csv(graph, split, &ranks);
        write_file(path, existing(arguments.force), text.as_bytes())?;
        say(&format!("{} are in {}", counted(ranks.len(), "rank"), path.display()));
    }
    if let Some(told) = below_popularity(&split.to_string(), &all, &baselines) {
        say(&format!("note: {told}"));
    }
    let seen = without_unseen(graph, &ranks);
    let by = arguments.by.map(|by| {
        let beside = Baselines::break_down(graph, &popularity_ranks, by.into());
        let parts = break_down(graph, &ranks, by.into()).into_iter().zip(beside);
        parts.map(|((name, metrics), baselines)| Part { name, metrics, baselines }).collect()
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
        baselines,
        without_unseen: metrics(seen),
        parameters: run.model.n_parameters(),
        epoch: run.trained.best.epoch,
        updates: run.trained.updates,
        finished: run.is_finished,
        by,
        calibration,
    })
}

fn rank(run: &Run, split: Split, stop: &AtomicBool) -> anyhow::Result<Option<SplitResult>> {
    let bar = progress_bar("ranking");
    let found = run.model.rank(split, &mut |event: Event| show_progress(&bar, stop, &event));
    bar.finish_and_clear();
    Ok(found?)
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
    let columns = MetricsColumns::of(&report.baselines);
    let mut rows = vec![columns.row(&report.split, all)];
    rows.extend(columns.baseline_rows(&report.split, &report.baselines));
    if let Some(seen) = &report.without_unseen
        && seen.n_ranks < all.n_ranks
    {
        rows.push(columns.row("without unseen entities", seen));
    }
    let mut text = table(&columns.header(), rows);
    if columns == MetricsColumns::Candidates {
        text.push_str(&format!("\n{CANDIDATES_REMARK}\n"));
    }
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
    // Among given candidates nothing is filtered.
    let is_filtered =
        columns == MetricsColumns::Entities && report.split == Split::Valid.to_string();
    if let (Some(mrr), true) = (all.mrr_filtered_with_test, is_filtered) {
        text.push_str(&format!(
            "MRR is {mrr:.4} if test answers are filtered too, as LibKGE does\n"
        ));
    }
    if let Some(parts) = &report.by {
        let row = |part: &Part| columns.breakdown_row(&part.name, &part.metrics, &part.baselines);
        let table = table(&columns.breakdown_header(""), parts.iter().map(row));
        text.push_str(&format!("\n{table}"));
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
