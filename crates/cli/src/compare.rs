//! `fullrank compare`: several runs side by side, with paired differences, intervals and tests.

use std::path::PathBuf;

use clap::{Args, Parser, ValueHint};
use fullrank_engine::compare::{Comparison, Outcome, compare};
use fullrank_engine::{Device, Error, Event};
use fullrank_report::ComparePage;
use fullrank_report::compare::{
    DIFFERENCES_HEADER, METRIC_TABLES, MODELS_HEADER, SPLITS, dataset_line, difference_rows,
    metric_rows, metrics_header, model_rows, pair_facts, pair_name, remarks,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::open::run_folders;
use crate::output::{
    check_free, existing, quoted, say, show, show_json, table, wrapped, write_file,
};
use crate::stop::{signal, stop_flag};

/// Compare runs: metrics, paired differences, intervals and tests
///
/// Runs that differ in their seeds alone are one model. Two models with the same encoder and dimension
/// are compared seed by seed, and everything else that they differ in is listed; where several encoders
/// have the same output layers, these are compared over all of them, too.
/// Intervals are made by bootstrap over the test queries, and over the relations; p by the exact Wilcoxon
/// signed-rank test over pairs of runs, of which it needs six.
/// Runs of different graphs or splits are refused.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank compare runs/softmax runs/mixture-1 runs/mixture-4
  fullrank compare runs/* --html compare.html
  fullrank compare runs/softmax runs/mixture --json

Three models with three seeds each, side by side:
  fullrank train UMLS --output softmax --seeds 3 --out runs/softmax
  fullrank train UMLS --output mixture --components 1 --seeds 3 --out runs/mixture-1
  fullrank train UMLS --output mixture --components 4 --seeds 3 --out runs/mixture-4
  fullrank compare runs/softmax runs/mixture-1 runs/mixture-4")]
pub(crate) struct CompareArguments {
    /// Run folders, or folders of `train --seeds`, which stand for the runs in them
    #[arg(required = true, value_name = "RUN", value_hint = ValueHint::DirPath)]
    runs: Vec<PathBuf>,

    /// Resamples that each interval is made of
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    resamples: u32,

    /// Write a page with the tables, and pictures of sizes, differences, curves and calibration
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,

    /// Replace the page if there is one
    #[arg(long, requires = "html")]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    /// What the data are called, if a run tells.
    data: Option<String>,
    #[serde(flatten)]
    comparison: Comparison,
}

pub(crate) fn run(arguments: &CompareArguments) -> anyhow::Result<()> {
    if let Some(html) = arguments.html.as_ref().filter(|_| !arguments.force) {
        check_free(html)?;
    }
    let mut folders = Vec::new();
    for path in &arguments.runs {
        folders.extend(run_folders(path)?);
    }
    let comparison = compute(arguments, &folders)?;
    for run in comparison.runs.iter().filter(|run| !run.is_finished) {
        let (folder, epoch) = (run.run.display(), run.best_epoch);
        say(&format!("note: {folder}: the training is not over; it is as of epoch {epoch}"));
    }
    let report = Report { data: comparison.runs.iter().find_map(data_name), comparison };
    if let Some(html) = &arguments.html {
        let page = ComparePage {
            comparison: &report.comparison,
            data: report.data.as_deref(),
            command: &command(arguments, html),
            version: crate::VERSION,
        };
        write_file(html, existing(arguments.force), page.to_html().as_bytes())?;
    }
    if arguments.json { show_json(&report) } else { show(&text(&report)) }
}

fn compute(arguments: &CompareArguments, folders: &[PathBuf]) -> anyhow::Result<Comparison> {
    let stop = stop_flag()?;
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len}, {eta} left")
        .expect("the template is well formed");
    let bar = ProgressBar::new(0).with_style(style);
    let mut progress = |event: Event| {
        match event {
            Event::Run { folder, done, total } => {
                bar.reset();
                bar.set_message(format!("{} ({} of {total})", folder.display(), done + 1));
            }
            Event::Scoring { done, total } => {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            }
            Event::Resampling { done, total } => {
                bar.set_message("resampling");
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            }
            _ => {}
        }
        signal(&stop)
    };
    let found = compare(folders, arguments.resamples as usize, Device::default(), &mut progress);
    bar.finish_and_clear();
    match found {
        Err(Error::Interrupted) => Err(Interrupted.into()),
        found => Ok(found?),
    }
}

/// What the data of a run were called on the command line that trained it, if that can still be read.
fn data_name(run: &Outcome) -> Option<String> {
    let command = &run.sessions.first()?.command;
    match crate::Arguments::try_parse_from(command).ok()?.command {
        crate::Command::Train(train) => Some(train.data_name()),
        _ => None,
    }
}

/// The command that would make the same page.
fn command(arguments: &CompareArguments, html: &std::path::Path) -> String {
    let mut words = vec!["fullrank".to_owned(), "compare".to_owned()];
    words.extend(arguments.runs.iter().map(|run| run.display().to_string()));
    words.extend(["--resamples".to_owned(), arguments.resamples.to_string()]);
    words.extend(["--html".to_owned(), html.display().to_string(), "--force".to_owned()]);
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn text(report: &Report) -> String {
    let comparison = &report.comparison;
    let data = report.data.as_ref().map_or(String::new(), |data| format!("{data}: "));
    let mut text = format!("{data}{}\n\n", dataset_line(comparison));
    text.push_str(&table(&MODELS_HEADER, model_rows(comparison)));
    for (name, split) in SPLITS {
        let tables =
            METRIC_TABLES.map(|metrics| (metrics, metric_rows(comparison, metrics, split)));
        if tables.iter().all(|(_, rows)| !rows.is_empty()) {
            text.push_str(&format!("\n{name}\n"));
            for (metrics, rows) in tables {
                text.push_str(&table(&metrics_header(metrics), rows));
            }
        }
    }
    for pair in &comparison.pairs {
        text.push_str(&format!("\n{}\n{}\n", pair_name(pair), wrapped(&pair_facts(pair))));
        if pair.n_pairs > 0 {
            text.push_str(&table(&DIFFERENCES_HEADER, difference_rows(comparison, pair)));
        }
    }
    for remark in remarks(comparison) {
        text.push_str(&format!("\n{}\n", wrapped(&remark)));
    }
    text
}
