//! How long does it take?

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand, ValueHint};
use fullrank_engine::bench::StepBench;
use fullrank_engine::config::{Choice, OutputKind};
use fullrank_engine::evaluate::rank_answers;
use fullrank_engine::{RawConfig, Run, ScoreKind, Signal};
use serde::Serialize;

use crate::evaluate::SplitArgument;
use crate::input::InputArguments;
use crate::memory::{check_memory, status_mb};
use crate::output::{count, show, show_json, wrong_usage};

/// Measure how long something takes on this machine.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    Step(StepArguments),
    Evaluate(EvaluateArguments),
    Load(LoadArguments),
}

/// One training step on random data: encoder with dropout, output layer, loss, backward, Adam.
///
/// Encoders that read the graph get 19 random facts per entity, about what FB15k-237 has.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank bench step --entities 14541 --dim 200 --batch 1000 --components 4 --answers 4 --json
  fullrank bench step --components 0
  fullrank bench step --encoder concatmlp --hidden 1024,512

benches/peer/torch_step.py does the same work in PyTorch.")]
pub(crate) struct StepArguments {
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

    /// Queries per step
    #[arg(long, default_value_t = 1000)]
    batch: u32,

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

    /// MiB of logits kept from the forward to the backward pass
    #[arg(long, default_value_t = 512)]
    memory_budget: u32,

    /// Steps to measure, after two that warm up
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    steps: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Ranking every held-out answer of a run's split.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  fullrank bench evaluate runs/first --json")]
pub(crate) struct EvaluateArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// Which triples to rank
    #[arg(long, default_value = "test")]
    split: SplitArgument,

    /// Rank this often and report the median
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// From file to finished graph: read, parsed, interned, deduplicated and indexed.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  fullrank bench load FB15k-237 --repeats 5 --json")]
pub(crate) struct LoadArguments {
    #[command(flatten)]
    input: InputArguments,

    /// Load this often and report the median [default: 3, and 1 for `-`]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: Option<u16>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: &BenchCommand) -> anyhow::Result<()> {
    match command {
        BenchCommand::Step(arguments) => step(arguments),
        BenchCommand::Evaluate(arguments) => evaluate(arguments),
        BenchCommand::Load(arguments) => load(arguments),
    }
}

/// The same fields as `torch_step.py` prints.
#[derive(Serialize)]
struct StepTiming {
    system: String,
    threads: usize,
    /// Median over the steps.
    seconds: f64,
    quartiles: [f64; 2],
    /// The most memory that was resident; null where the system does not tell.
    peak_mb: Option<f64>,
}

fn step(arguments: &StepArguments) -> anyhow::Result<()> {
    let mut raw = RawConfig::default();
    raw.add_option("encoder", &arguments.encoder);
    for (name, value) in [
        ("dim", arguments.dim),
        ("batch", arguments.batch),
        ("memory_budget", arguments.memory_budget),
    ] {
        raw.add_option(name, &value.to_string());
    }
    for (name, value) in [("score", &arguments.score), ("hidden", &arguments.hidden)] {
        if let Some(value) = value {
            raw.add_option(name, value);
        }
    }
    let is_mlp = raw.check()?.score() == ScoreKind::Mlp;
    let components = arguments.components.unwrap_or(if is_mlp { 0 } else { 4 });
    if let Some(negatives) = arguments.negatives {
        raw.add_option("negatives", &negatives.to_string());
    }
    let output = match (components, arguments.sigmoids) {
        (0, false) => OutputKind::Softmax,
        (0, true) => OutputKind::Sigmoid,
        (_, false) => OutputKind::Mixture,
        (_, true) => OutputKind::MixtureOfSigmoids,
    };
    let name = arguments.output.as_deref().unwrap_or(output.name());
    raw.add_option("output", name);
    let is_mixture = OutputKind::ALL.iter().any(|kind| kind.name() == name && kind.is_mixture());
    if is_mixture {
        raw.add_option("layers", &arguments.layers.to_string());
    }
    // Without --output, 0 has said which output layer.
    if is_mixture || arguments.output.is_some() && arguments.components.is_some() {
        raw.add_option("components", &components.to_string());
    }
    let config = raw.check()?;
    let &StepArguments { entities, relations, answers, .. } = arguments;
    let (entities, relations) = (entities as usize, relations as usize);
    check_memory(StepBench::forecast(&config, entities, relations))?;
    let mut bench = StepBench::new(&config, entities, relations, answers as usize);
    let mut seconds = Vec::new();
    for step in 0..arguments.steps + WARM_UP {
        let start = Instant::now();
        bench.step();
        if step >= WARM_UP {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let [lower, median, upper] = quartiles(seconds);
    let timing = StepTiming {
        system: format!("fullrank {}", env!("CARGO_PKG_VERSION")),
        threads: rayon::current_num_threads(),
        seconds: median,
        quartiles: [lower, upper],
        peak_mb: status_mb("VmHWM"),
    };
    if arguments.json {
        return show_json(&timing);
    }
    show(&format!(
        "{median:.4} s a step ({lower:.4} to {upper:.4}; {} steps, {} threads), {} at the peak\n",
        arguments.steps,
        timing.threads,
        megabytes(timing.peak_mb),
    ))
}

/// Steps that are not measured: the first ones make room.
const WARM_UP: u32 = 2;

#[derive(Serialize)]
struct EvaluateTiming {
    system: String,
    threads: usize,
    split: String,
    n_ranks: usize,
    seconds: f64,
    quartiles: [f64; 2],
    ranks_per_second: f64,
    peak_mb: Option<f64>,
}

fn evaluate(arguments: &EvaluateArguments) -> anyhow::Result<()> {
    let run = Run::open(&arguments.run)?;
    let mut seconds = Vec::new();
    let mut n_ranks = 0;
    for _ in 0..arguments.repeats {
        let start = Instant::now();
        let ranks =
            rank_answers(&run.graph, arguments.split.into(), &run, &mut |_, _| Signal::Continue)?;
        n_ranks = ranks.len();
        seconds.push(start.elapsed().as_secs_f64());
    }
    let [lower, median, upper] = quartiles(seconds);
    let timing = EvaluateTiming {
        system: format!("fullrank {}", env!("CARGO_PKG_VERSION")),
        threads: rayon::current_num_threads(),
        split: fullrank_graph::Split::from(arguments.split).to_string(),
        n_ranks,
        seconds: median,
        quartiles: [lower, upper],
        ranks_per_second: n_ranks as f64 / median,
        peak_mb: status_mb("VmHWM"),
    };
    if arguments.json {
        return show_json(&timing);
    }
    show(&format!(
        "{} ranks in {median:.2} s ({lower:.2} to {upper:.2}; median of {}, {} threads), {} at the \
         peak\n",
        count(n_ranks),
        arguments.repeats,
        timing.threads,
        megabytes(timing.peak_mb),
    ))
}

/// Lower quartile, median and upper quartile.
fn quartiles(mut seconds: Vec<f64>) -> [f64; 3] {
    seconds.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75].map(|share| {
        let place = share * (seconds.len() - 1) as f64;
        let (below, above) = (seconds[place as usize], seconds[place.ceil() as usize]);
        below + (above - below) * place.fract()
    })
}

fn megabytes(mb: Option<f64>) -> String {
    mb.map_or("?".to_owned(), |mb| format!("{mb:.0} MB"))
}

#[derive(Serialize)]
struct LoadTiming {
    triples: usize,
    entities: usize,
    threads: usize,
    repeats: u16,
    /// Median over the repeats, for all triples of the files.
    seconds: f64,
    triples_per_second: f64,
    /// The most memory that was resident during the first load; null where the system does not tell.
    peak_mb: Option<f64>,
    /// What was resident after it.
    resident_mb: Option<f64>,
    /// What triples and index of the graph take, and per triple.
    graph_mb: f64,
    bytes_per_triple: f64,
    /// What its names and their table take.
    names_mb: f64,
}

fn load(arguments: &LoadArguments) -> anyhow::Result<()> {
    let once = arguments.input.data == Path::new("-");
    let repeats = arguments.repeats.unwrap_or(if once { 1 } else { 3 });
    if once && repeats > 1 {
        wrong_usage("expected --repeats 1 with `-`: standard input can be read only once");
    }
    let mut seconds = vec![];
    let mut load = || -> anyhow::Result<_> {
        let start = Instant::now();
        let loaded = arguments.input.load()?;
        seconds.push(start.elapsed().as_secs_f64());
        Ok(loaded)
    };
    // Memory is that of the first load: later ones find what earlier ones left to the allocator.
    let loaded = load()?;
    let (peak_mb, resident_mb) = (status_mb("VmHWM"), status_mb("VmRSS"));
    for _ in 1..repeats {
        load()?;
    }
    let [_, seconds, _] = quartiles(seconds);
    let triples: usize = loaded.files.iter().map(|file| file.triples).sum();
    let graph = &loaded.graph;
    let names_bytes = graph.entities().heap_bytes() + graph.relations().heap_bytes();
    let timing = LoadTiming {
        triples,
        entities: graph.entities().len(),
        threads: rayon::current_num_threads(),
        repeats,
        seconds,
        triples_per_second: triples as f64 / seconds,
        peak_mb,
        resident_mb,
        graph_mb: graph.heap_bytes() as f64 / MB,
        bytes_per_triple: graph.heap_bytes() as f64 / graph.n_triples() as f64,
        names_mb: names_bytes as f64 / MB,
    };
    if arguments.json {
        return show_json(&timing);
    }
    let LoadTiming { entities, threads, .. } = timing;
    show(&format!(
        "{} triples and {} entities in {seconds:.3} s (median of {repeats}, {threads} threads): \
         {} triples per second\n\
         {} at the peak, {} when done; the graph takes {:.1} MB ({:.1} bytes per triple) and {:.1} MB \
         of names\n",
        count(triples),
        count(entities),
        count(timing.triples_per_second as usize),
        megabytes(timing.peak_mb),
        megabytes(timing.resident_mb),
        timing.graph_mb,
        timing.bytes_per_triple,
        timing.names_mb,
    ))
}

const MB: f64 = 1024.0 * 1024.0;
