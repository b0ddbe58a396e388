//! `fullrank bench step`: how long does a training step take, and how much memory?

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueHint};
use fullrank_engine::bench::StepBench;
use fullrank_engine::settings::Choice;
use fullrank_engine::{Device, OutputKind, RawConfig, Run, ScoreKind};
use serde::Serialize;

use super::{MB, WARM_UP, megabytes, quartiles};
use crate::memory::{check_memory, status_mb};
use crate::output::{show, show_json};

/// One training step on random data: encoder with dropout, output layer, loss, backward, Adam.
///
/// Encoders that read the graph get 19 random facts per entity, about what FB15k-237 has.
///
/// With --run it is a step of a trained model on its own training facts: how many entries of the
/// gradient are worth multiplying depends on what a model has learned.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank bench step --entities 14541 --dim 200 --batch 1000 --components 4 --answers 4 --json
  fullrank bench step --components 0
  fullrank bench step --encoder concatmlp --hidden 1024,512
  fullrank bench step --run runs/first --batch 1000

benches/peer/torch_step.py does the same work in PyTorch.")]
pub(crate) struct StepArguments {
    /// Take model and facts from a run folder; of the other options, --batch, --exact,
    /// --memory-budget, --steps and --json go with it
    #[arg(long, value_name = "RUN", value_hint = ValueHint::DirPath, conflicts_with_all = [
        "encoder", "score", "hidden", "negatives", "entities", "relations", "dim", "components",
        "sigmoids", "output", "layers", "answers"])]
    run: Option<PathBuf>,

    /// Multiply all entries of the gradient, also the smallest, and all of them in f32
    #[arg(long)]
    exact: bool,

    /// What makes a query vector
    #[arg(long, default_value = "distmult")]
    encoder: String,

    /// What a query vector and an object vector score; the encoder's own if not given
    #[arg(long)]
    score: Option<String>,

    /// Widths of the hidden layers of the score `mlp`
    #[arg(long, value_name = "WIDTHS")]
    hidden: Option<String>,

    /// Entities to compare answers with, for --components 0; all of them if not given
    #[arg(long)]
    negatives: Option<u32>,

    /// Number of entities
    #[arg(long, default_value_t = 14_541, value_parser = clap::value_parser!(u32).range(1..))]
    entities: u32,

    /// Number of relations, inverses included
    #[arg(long, default_value_t = 474, value_parser = clap::value_parser!(u32).range(1..))]
    relations: u32,

    /// Width of the object vectors
    #[arg(long, default_value_t = 200)]
    dim: u32,

    /// Queries per step [default: 1000, or the run's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..))]
    batch: Option<u32>,

    /// Components of the mixture; 0 is the plain softmax or sigmoid, and the default with the score
    /// `mlp`, which goes with no mixture [default: 4]
    #[arg(long)]
    components: Option<u32>,

    /// Sigmoids in the place of softmaxes
    #[arg(long)]
    sigmoids: bool,

    /// The output layer by its name, such as mixtape, in the place of --sigmoids and of
    /// --components 0
    #[arg(long, conflicts_with = "sigmoids")]
    output: Option<String>,

    /// Layers of each component's projection
    #[arg(long, default_value_t = 2)]
    layers: u32,

    /// Answers per query
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    answers: u32,

    /// MiB of logits kept from the forward to the backward pass [default: 512, or the run's]
    #[arg(long)]
    memory_budget: Option<u32>,

    /// Steps to measure, after two that warm up
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The fields that `torch_step.py` prints, and more.
#[derive(Serialize)]
struct StepTiming {
    system: String,
    threads: usize,
    /// Median over the steps.
    seconds: f64,
    quartiles: [f64; 2],
    /// The most memory that was resident; null where the system does not tell.
    peak_mb: Option<f64>,
    /// What was forecast for it.
    forecast_mb: f64,
    /// What was resident before the first step that was measured, and after the last.
    resident_mb: [Option<f64>; 2],
    /// Of losses over all objects: the share of the entries of the logits' gradient that were
    /// multiplied,
    density: Option<f64>,
    /// the share of the step that its products would take at the machine's peak (dot products only),
    products_share: Option<f64>,
    /// and that peak, measured in the same run, in 10⁹ operations a second.
    peak_gflops: f64,
}

pub(super) fn run(arguments: &StepArguments) -> anyhow::Result<()> {
    let (mut bench, forecast) = match &arguments.run {
        Some(folder) => bench_of_run(folder, arguments)?,
        None => random_bench(arguments)?,
    };
    let peak_flops = bench.peak_flops();
    let mut seconds = Vec::new();
    let mut resident_mb = [None; 2];
    for step in 0..arguments.steps + WARM_UP {
        if step == WARM_UP {
            bench.take_work();
            resident_mb[0] = status_mb("VmRSS");
        }
        let start = Instant::now();
        bench.step();
        if step >= WARM_UP {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    resident_mb[1] = status_mb("VmRSS");
    let work = bench.take_work();
    let [lower, median, upper] = quartiles(seconds);
    let flops = work.and_then(|work| work.flops);
    let products_share =
        flops.map(|flops| flops / f64::from(arguments.steps) / peak_flops / median);
    let timing = StepTiming {
        system: format!("fullrank {}", env!("CARGO_PKG_VERSION")),
        threads: rayon::current_num_threads(),
        seconds: median,
        quartiles: [lower, upper],
        peak_mb: status_mb("VmHWM"),
        forecast_mb: forecast as f64 / MB,
        resident_mb,
        density: work.map(|work| work.density),
        products_share,
        peak_gflops: peak_flops / 1e9,
    };
    if arguments.json {
        return show_json(&timing);
    }
    let products = work.zip(products_share).map_or(String::new(), |(work, share)| {
        format!(
            "the products of its loss, with {:.1} % of the gradient's entries, would take {:.0} % of \
             that at {:.0} GFLOP/s, the machine's peak\n",
            100.0 * work.density,
            100.0 * share,
            peak_flops / 1e9,
        )
    });
    show(&format!(
        "{median:.4} s a step ({lower:.4} to {upper:.4}; {} steps, {} threads)\n\
         {} at the peak, {:.0} MB forecast; {} before the first step that counts, {} after the last\n\
         {products}",
        arguments.steps,
        timing.threads,
        megabytes(timing.peak_mb),
        timing.forecast_mb,
        megabytes(resident_mb[0]),
        megabytes(resident_mb[1]),
    ))
}

/// A bench, and the bytes forecast for it.
fn bench_of_run(folder: &Path, arguments: &StepArguments) -> anyhow::Result<(StepBench, u64)> {
    let run = Run::open(folder, Device::default())?;
    let mut config = run.model.config().clone();
    if let Some(batch) = arguments.batch {
        config = config.with_setting("batch", i64::from(batch))?;
    }
    if arguments.exact {
        config = config.with_setting("exact", true)?;
    }
    if let Some(budget) = arguments.memory_budget {
        config = config.with_setting("memory_budget", i64::from(budget))?;
    }
    let forecast = fullrank_engine::forecast(&config, run.model.graph());
    check_memory(forecast)?;
    Ok((StepBench::of_model(&run.model, &config)?, forecast))
}

fn random_bench(arguments: &StepArguments) -> anyhow::Result<(StepBench, u64)> {
    let mut raw = RawConfig::default();
    raw.add("encoder", "--encoder", &arguments.encoder);
    if arguments.exact {
        raw.add("exact", "--exact", "true");
    }
    for (name, value) in [("dim", arguments.dim), ("batch", arguments.batch.unwrap_or(1000))] {
        raw.add(name, &format!("--{name}"), &value.to_string());
    }
    if let Some(budget) = arguments.memory_budget {
        raw.add("memory_budget", "--memory-budget", &budget.to_string());
    }
    for (name, value) in [("score", &arguments.score), ("hidden", &arguments.hidden)] {
        if let Some(value) = value {
            raw.add(name, &format!("--{name}"), value);
        }
    }
    let is_mlp = raw.check()?.score() == ScoreKind::Mlp;
    let components = arguments.components.unwrap_or(if is_mlp { 0 } else { 4 });
    if let Some(negatives) = arguments.negatives {
        raw.add("negatives", "--negatives", &negatives.to_string());
    }
    let output = match (components, arguments.sigmoids) {
        (0, false) => OutputKind::Softmax,
        (0, true) => OutputKind::Sigmoid,
        (_, false) => OutputKind::Mixture,
        (_, true) => OutputKind::MixtureOfSigmoids,
    };
    let name = arguments.output.as_deref().unwrap_or(output.name());
    raw.add("output", "--output", name);
    let is_mixture = OutputKind::ALL.iter().any(|kind| kind.name() == name && kind.is_mixture());
    if is_mixture {
        raw.add("layers", "--layers", &arguments.layers.to_string());
    }
    // Without --output, 0 has said which output layer.
    if is_mixture || arguments.output.is_some() && arguments.components.is_some() {
        raw.add("components", "--components", &components.to_string());
    }
    let config = raw.check()?;
    let &StepArguments { entities, relations, answers, .. } = arguments;
    let (entities, relations) = (entities as usize, relations as usize);
    let forecast = StepBench::forecast(&config, entities, relations);
    check_memory(forecast)?;
    Ok((StepBench::new(&config, entities, relations, answers as usize), forecast))
}
