//! `fullrank spectrum`: how many dimensions do the log-probabilities of a run really have?

use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;
use clap::{Args, ValueHint};
use fullrank_engine::spectrum::{Fall, Measured, Method, RankAt, Spectrum, spectrum};
use fullrank_engine::{Error, Event, Run};
use fullrank_graph::Split;
use serde::Serialize;

use crate::Interrupted;
use crate::evaluate::{SplitArgument, progress_bar, show_progress};
use crate::open::open_run;
use crate::output::{check_free, count, delimited, existing, show, show_json, table, write_file};
use crate::stop::stop_flag;

/// Show the matrix rank and the spectrum of a run's log-probabilities
///
/// The matrix has a row for each distinct query of the split, both directions, and a column for each
/// entity. Singular values above max(rows, columns)·1.2e-7 of the largest count, as in NumPy and
/// PyTorch for f32. A softmax comes to d + 1 at most (d + 2 with a bias); a mixture can have many more.
/// Of sigmoids, log-odds log P / (1 − P) are measured instead, which come to d + 1 at most.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank spectrum runs/first
  fullrank spectrum runs/first --out spectrum.csv
  fullrank spectrum runs/first --split valid --json

Up to 16,384 queries or entities, whichever are fewer, all singular values are computed; above, those
of a random projection, which give a lower bound.")]
pub(crate) struct SpectrumArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// Whose queries are the rows
    #[arg(long, default_value = "test")]
    split: SplitArgument,

    /// Write the singular values as CSV
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,

    /// Replace the file if there is one
    #[arg(long, requires = "out")]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    run: PathBuf,
    split: String,
    dim: usize,
    /// Of such a model, whatever it has learned; nothing if d does not limit it.
    max_matrix_rank: Option<usize>,
    #[serde(flatten)]
    spectrum: Spectrum,
    seconds: f64,
}

pub(crate) fn run(arguments: &SpectrumArguments) -> anyhow::Result<()> {
    let start = Instant::now();
    if let Some(out) = arguments.out.as_ref().filter(|_| !arguments.force) {
        check_free(out)?;
    }
    let run = open_run(&arguments.run)?;
    let split = Split::from(arguments.split);
    let Some(spectrum) = compute(&run, split)? else {
        bail!(
            "{}: there are no {split} triples, so there are no queries\n\n\
             Choose another split by --split.",
            arguments.run.display()
        );
    };
    if let Some(out) = &arguments.out {
        let rows = csv_rows(&spectrum);
        write_file(out, existing(arguments.force), delimited(',', &rows).as_bytes())?;
    }
    let report = Report {
        run: arguments.run.clone(),
        split: split.to_string(),
        dim: run.model.config().dim(),
        max_matrix_rank: run.model.config().max_matrix_rank(),
        spectrum,
        seconds: start.elapsed().as_secs_f64(),
    };
    if arguments.json { show_json(&report) } else { show(&text(&report)) }
}

fn compute(run: &Run, split: Split) -> anyhow::Result<Option<Spectrum>> {
    let stop = stop_flag()?;
    let bar = progress_bar("scoring");
    let mut progress = |event: Event| show_progress(&bar, &stop, &event);
    let found = spectrum(run.model.graph(), split, &run.model, &mut progress);
    bar.finish_and_clear();
    match found {
        Err(Error::Interrupted) => Err(Interrupted.into()),
        found => Ok(found?),
    }
}

fn csv_rows(spectrum: &Spectrum) -> Vec<Vec<String>> {
    let values = &spectrum.singular_values;
    let header = ["place", "singular_value", "share_of_largest"].map(str::to_owned).to_vec();
    let row = |(place, value): (usize, &f64)| {
        vec![place.to_string(), format!("{value:e}"), format!("{:e}", share(*value, values[0]))]
    };
    [header].into_iter().chain((1..).zip(values).map(row)).collect()
}

fn text(report: &Report) -> String {
    let Spectrum { n_queries, n_entities, measured, method, ranks, largest_fall, singular_values } =
        &report.spectrum;
    // A smaller step is no end of a spectrum.
    let sharp = largest_fall.filter(|fall| fall.factor >= 10.0);
    let fall = sharp.map_or(String::new(), |Fall { after, factor }| {
        let factor = count(factor.min(1e12) as usize);
        format!("  They fall the most after the first {}, to 1/{factor}.\n", count(after))
    });
    let measured = match measured {
        Measured::LogProbabilities => "Log-probabilities",
        Measured::LogOdds => "Log-odds",
    };
    let limit = match report.max_matrix_rank {
        Some(limit) if limit < *n_entities => {
            format!("limits the matrix rank to {}", count(limit))
        }
        _ => "does not limit the matrix rank".to_owned(),
    };
    let (how, at_least) = match method {
        Method::Exact => ("all singular values".to_owned(), ""),
        Method::Sketch { width } => {
            (format!("from a random projection on {} dimensions", count(*width)), "≥ ")
        }
    };
    let rank_row = |at: &RankAt, name: &str| {
        let matrix_rank = format!("{at_least}{}", count(at.matrix_rank));
        vec![name.to_owned(), format!("{:.1e}", at.tolerance), matrix_rank]
    };
    let names = ["ten times the tolerance", "max(rows, columns)·ε", "a tenth of it"];
    let ranks_table = table(
        &["", "share of the largest", "matrix rank"],
        ranks.iter().zip(names).map(|(at, name)| rank_row(at, name)),
    );
    format!(
        "{measured} of {} queries ({}) by {} entities: {how}; d = {} {limit}\n\n{ranks_table}{fall}\n\
         {}\n  {}\n  places 1 to {}, heights from 1 to {:.0e} of the largest, both logarithmic\n",
        count(*n_queries),
        report.split,
        count(*n_entities),
        count(report.dim),
        values_table(singular_values),
        sparkline(singular_values, ranks[2].tolerance),
        count(singular_values.len()),
        ranks[2].tolerance,
    )
}

/// Singular values at places 1, 2, 5, 10, 20, 50, … and the last.
fn values_table(values: &[f64]) -> String {
    let mut places: Vec<usize> = (0..)
        .flat_map(|power| [1, 2, 5].map(|digit| digit * 10_usize.pow(power)))
        .take_while(|place| *place < values.len())
        .collect();
    places.push(values.len());
    let row = |place: usize| {
        let value = values[place - 1];
        vec![count(place), format!("{value:.3e}"), format!("{:.1e}", share(value, values[0]))]
    };
    table(&["place", "singular value", "share"], places.into_iter().map(row))
}

/// A bar for each place on a logarithmic scale, as high as its value is above the floor, in
/// logarithms too.
fn sparkline(values: &[f64], floor: f64) -> String {
    const WIDTH: usize = 60;
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let width = WIDTH.min(values.len());
    let bar = |i: usize| {
        let part = i as f64 / (width - 1).max(1) as f64;
        let place = (values.len() as f64).powf(part).round() as usize;
        let share = share(values[place - 1], values[0]);
        let height = 1.0 - (share.max(floor).ln() / floor.ln());
        BARS[(height * 8.0).ceil() as usize]
    };
    (0..width).map(bar).collect()
}

/// Nothing but zeros has no share.
fn share(value: f64, largest: f64) -> f64 {
    if largest > 0.0 { value / largest } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_fall_from_the_largest_to_nothing_at_the_floor() {
        // Four bars, at places 4^0, 4^(1/3) = 1.6, 4^(2/3) = 2.5 and 4.
        assert_eq!(sparkline(&[1.0, 1e-2, 1e-4, 0.0], 1e-4), "█▄  ");
        assert_eq!(sparkline(&[0.0], 1e-4), " ");
    }
}
