//! `fullrank bench gradient`: how noisy are sparse gradients, how much time do they save, and how much
//! of a gradient passes the output layer?

use std::path::PathBuf;

use clap::{Args, ValueHint};
use fullrank_engine::bench::{GradientPassed, gradient_noise, gradient_passed, is_measurable};
use fullrank_engine::{Device, Run};
use serde::Serialize;

use super::quartiles;
use crate::output::{show, show_json, table, wrong_usage};

/// The variance that a sparse gradient adds to that between batches, and the time it takes.
///
/// The same batches of a trained run are differentiated with all entries of the gradient, and with
/// those that chance leaves of the ones below a size (`sparse_below`).
///
/// Below it stands how much of the gradient by the logits lies in the column space of the object
/// vectors, which is all that an update can follow, for softmaxes of dot products without a bias.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank bench gradient runs/first
  fullrank bench gradient runs/first --below 0.0001,0.001,0.01 --json")]
pub(crate) struct GradientArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// Sizes below which entries are left to chance, in units of an answer's weight
    /// [default: the run's `sparse_below`, and powers of four from 2^-16 to 2^-4]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = size)]
    below: Vec<f64>,

    /// Batches to draw
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..))]
    batches: u32,

    /// Training items whose gradient by the logits is projected on the object vectors
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    items: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> Result<f64, String> {
    let size = text.parse::<f64>().ok().filter(|size| *size > 0.0 && size.is_finite());
    size.ok_or_else(|| "expected a number above 0".to_owned())
}

#[derive(Serialize)]
struct Noise {
    batches: usize,
    batch: usize,
    threads: usize,
    /// Of the exact gradient, summed over all learned numbers.
    variance_between_batches: f64,
    /// Median for an exact gradient, forward and backward.
    exact_seconds: f64,
    sparse: Vec<Below>,
    /// Null for output layers that it is not measured for.
    passed: Option<Passed>,
}

/// What passes the output layer of the gradient by the logits.
#[derive(Serialize)]
struct Passed {
    /// Gradients: one for each component of each item.
    gradients: usize,
    share_of_norm: f64,
    share_of_square: f64,
    /// The share of the square that would pass by chance.
    by_chance: f64,
}

#[derive(Serialize)]
struct Below {
    below: f64,
    /// What chance adds to the variance,
    variance_of_chance: f64,
    /// and that over the variance between batches.
    added: f64,
    /// Share of the entries that were multiplied.
    density: f64,
    /// Median.
    seconds: f64,
}

/// What was asked for, measured.
fn measure(arguments: &GradientArguments) -> anyhow::Result<Noise> {
    let run = Run::open(&arguments.run, Device::default())?;
    if run.model.config().training().negatives.is_some() {
        wrong_usage("expected a run over all entities; this one draws negatives");
    }
    let mut sizes = arguments.below.clone();
    if sizes.is_empty() {
        sizes = (4..=16).step_by(2).map(|power| 0.5_f64.powi(power)).collect();
        let own = run.model.config().value("sparse_below").and_then(|value| value.as_float());
        sizes.extend(own);
    }
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let noise = gradient_noise(&run.model, arguments.batches as usize, &sizes)?;
    let passed: Option<GradientPassed> = is_measurable(&run.model)
        .then(|| gradient_passed(&run.model, arguments.items as usize))
        .transpose()?;
    let median = |seconds: Vec<f64>| quartiles(seconds)[1];
    let sparse = noise.sparse.into_iter().map(|sparse| Below {
        below: sparse.below,
        variance_of_chance: sparse.of_chance,
        added: sparse.of_chance / noise.between_batches,
        density: sparse.density,
        seconds: median(sparse.seconds),
    });
    Ok(Noise {
        batches: noise.exact_seconds.len(),
        batch: noise.batch,
        threads: rayon::current_num_threads(),
        variance_between_batches: noise.between_batches,
        sparse: sparse.collect(),
        exact_seconds: median(noise.exact_seconds),
        passed: passed.map(|found| Passed {
            gradients: found.n_gradients,
            share_of_norm: found.of_norm,
            share_of_square: found.of_square,
            by_chance: found.by_chance,
        }),
    })
}

pub(super) fn run(arguments: &GradientArguments) -> anyhow::Result<()> {
    let noise = measure(arguments)?;
    if arguments.json {
        return show_json(&noise);
    }
    let row = |below: &Below| {
        vec![
            format!("{:.1e}", below.below),
            format!("{:.1} %", 100.0 * below.density),
            format!("{:.1e}", below.added),
            format!("{:.4}", below.seconds),
        ]
    };
    let exact = ["exact".to_owned(), "100 %".to_owned(), "0".to_owned()];
    let exact = [exact.to_vec(), vec![format!("{:.4}", noise.exact_seconds)]].concat();
    let rows = std::iter::once(exact).chain(noise.sparse.iter().map(row));
    let table = table(&["below", "multiplied", "variance added", "seconds"], rows);
    show(&format!(
        "{table}\n{} batches of {}; variance over that between batches; medians, forward and \
         backward, {} threads.\n{}",
        noise.batches,
        noise.batch,
        noise.threads,
        noise.passed.as_ref().map_or(String::new(), Passed::sentence),
    ))
}

impl Passed {
    fn sentence(&self) -> String {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        format!(
            "Of the gradient by the logits, {} of the norm and {} of the square lie in the column \
             space of the object vectors, where {} of the square would by chance ({} gradients).\n",
            percent(self.share_of_norm),
            percent(self.share_of_square),
            percent(self.by_chance),
            self.gradients,
        )
    }
}
