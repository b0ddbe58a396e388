//! How much noise does chance add to a gradient?

use std::path::PathBuf;

use clap::{Args, ValueHint};
use fullrank_engine::Run;
use fullrank_engine::bench::{GradientNoise, gradient_noise};
use serde::Serialize;

use crate::output::{show, show_json, wrong_usage};

/// The variance that a sparse gradient has, beside that between batches.
///
/// The same batches of a trained run are differentiated with all entries of the gradient, and with
/// those that chance leaves of the small ones (`sparse_below`).
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  fullrank bench gradient runs/first --batches 16 --json")]
pub(crate) struct GradientArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// Batches to draw
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..))]
    batches: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Noise {
    batches: usize,
    batch: usize,
    /// Of the gradient, summed over all learned numbers: between batches,
    variance_between_batches: f64,
    /// and what chance adds to it.
    variance_of_chance: f64,
    /// The second over the first.
    added: f64,
    /// Share of the entries that were multiplied.
    density: f64,
}

pub(super) fn run(arguments: &GradientArguments) -> anyhow::Result<()> {
    let run = Run::open(&arguments.run)?;
    if run.config.negatives.is_some() {
        wrong_usage("expected a run over all entities; this one draws negatives");
    }
    let noise = gradient_noise(&run, &run.config, arguments.batches as usize)?;
    let GradientNoise { batches, batch, between_batches, of_chance, density } = noise;
    let noise = Noise {
        batches,
        batch,
        variance_between_batches: between_batches,
        variance_of_chance: of_chance,
        added: of_chance / between_batches,
        density,
    };
    if arguments.json {
        return show_json(&noise);
    }
    show(&format!(
        "{batches} batches of {batch}: with {:.1} % of its entries multiplied, the variance of the \
         gradient grows by {:.1e} of that between batches\n",
        100.0 * density,
        noise.added,
    ))
}
