//! How long does it take?

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand, ValueHint};
use fullrank_engine::bench::StepBench;
use fullrank_engine::config::{Choice, OutputKind};
use fullrank_engine::evaluate::rank_answers;
use fullrank_engine::predict::PredictOptions;
use fullrank_engine::{RawConfig, Run, ScoreKind, Signal};
use fullrank_graph::Query;
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
    Predict(PredictArguments),
    Load(LoadArguments),
}

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
    /// --memory-budget and --steps go with it
    #[arg(long, value_name = "RUN", value_hint = ValueHint::DirPath, conflicts_with_all = [
        "encoder", "score", "hidden", "negatives", "entities", "relations", "dim", "components",
        "sigmoids", "output", "layers", "answers"])]
    run: Option<PathBuf>,

    /// Multiply all entries of the gradient, also the smallest
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
    #[arg(long)]
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

/// The ten best answers to one query, known facts left out, once a run is open and was asked before.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  fullrank bench predict runs/first --json")]
pub(crate) struct PredictArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// Queries to ask one by one, and then all at once
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    queries: u32,

    /// Answers per query
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,

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
        BenchCommand::Predict(arguments) => predict(arguments),
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
    /// Of losses by softmaxes over all objects: the share of the entries of the logits' gradient
    /// that were multiplied,
    density: Option<f64>,
    /// the share of the step that its products would take at the machine's peak,
    products_share: Option<f64>,
    /// and that peak, measured in the same run, in 10⁹ operations a second.
    peak_gflops: f64,
}

fn step(arguments: &StepArguments) -> anyhow::Result<()> {
    let mut bench = match &arguments.run {
        Some(folder) => bench_of_run(folder, arguments)?,
        None => random_bench(arguments)?,
    };
    let peak_flops = bench.peak_flops();
    let mut seconds = Vec::new();
    for step in 0..arguments.steps + WARM_UP {
        if step == WARM_UP {
            bench.take_work();
        }
        let start = Instant::now();
        bench.step();
        if step >= WARM_UP {
            seconds.push(start.elapsed().as_secs_f64());
        }
    }
    let work = bench.take_work();
    let [lower, median, upper] = quartiles(seconds);
    let products_share =
        work.map(|work| work.flops / f64::from(arguments.steps) / peak_flops / median);
    let timing = StepTiming {
        system: format!("fullrank {}", env!("CARGO_PKG_VERSION")),
        threads: rayon::current_num_threads(),
        seconds: median,
        quartiles: [lower, upper],
        peak_mb: status_mb("VmHWM"),
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
        "{median:.4} s a step ({lower:.4} to {upper:.4}; {} steps, {} threads), {} at the peak\n\
         {products}",
        arguments.steps,
        timing.threads,
        megabytes(timing.peak_mb),
    ))
}

fn bench_of_run(folder: &Path, arguments: &StepArguments) -> anyhow::Result<StepBench> {
    let run = Run::open(folder)?;
    let mut config = run.config.clone();
    config.batch = arguments.batch.map_or(config.batch, |batch| batch as usize);
    config.exact |= arguments.exact;
    config.memory_budget = arguments.memory_budget as usize;
    check_memory(fullrank_engine::forecast(&config, &run.graph))?;
    Ok(StepBench::of_run(&run, &config)?)
}

fn random_bench(arguments: &StepArguments) -> anyhow::Result<StepBench> {
    let mut raw = RawConfig::default();
    raw.add_option("encoder", &arguments.encoder);
    if arguments.exact {
        raw.add_option("exact", "true");
    }
    for (name, value) in [
        ("dim", arguments.dim),
        ("batch", arguments.batch.unwrap_or(1000)),
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
    Ok(StepBench::new(&config, entities, relations, answers as usize))
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

#[derive(Serialize)]
struct PredictTiming {
    system: String,
    threads: usize,
    entities: usize,
    queries: usize,
    /// Of queries asked one by one: the median,
    p50_seconds: f64,
    /// and what 99 of 100 do not exceed.
    p99_seconds: f64,
    /// Of all asked at once, each.
    together_seconds: f64,
    peak_mb: Option<f64>,
}

fn predict(arguments: &PredictArguments) -> anyhow::Result<()> {
    let run = Run::open(&arguments.run)?;
    let answers = run.graph.answers();
    // Evenly over all queries of the graph, so that none is asked twice.
    let n_queries = (arguments.queries as usize).min(answers.n_queries());
    let number = |i: usize| i * answers.n_queries() / n_queries;
    let queries: Vec<Query> = (0..n_queries).map(|i| answers.query(number(i))).collect();
    let options = PredictOptions {
        k: arguments.k as usize,
        temperature: run.temperature.unwrap_or(1.0),
        ..PredictOptions::default()
    };
    let ask = |queries: &[Query]| -> anyhow::Result<f64> {
        let start = Instant::now();
        fullrank_engine::predict::predict(&run.graph, &run, queries, &options)?;
        Ok(start.elapsed().as_secs_f64())
    };
    for query in queries.iter().take(WARM_UP as usize) {
        ask(std::slice::from_ref(query))?;
    }
    let alone = queries.iter().map(|query| ask(std::slice::from_ref(query)));
    let [p50, p99] = quantiles(alone.collect::<Result<_, _>>()?, [0.5, 0.99]);
    let timing = PredictTiming {
        system: format!("fullrank {}", env!("CARGO_PKG_VERSION")),
        threads: rayon::current_num_threads(),
        entities: run.graph.entities().len(),
        queries: n_queries,
        p50_seconds: p50,
        p99_seconds: p99,
        together_seconds: ask(&queries)? / n_queries as f64,
        peak_mb: status_mb("VmHWM"),
    };
    if arguments.json {
        return show_json(&timing);
    }
    show(&format!(
        "{} queries over {} entities, {} threads: one at a time {:.2} ms (median) and {:.2} ms (99 %), \
         all at once {:.2} ms each, {} at the peak\n",
        count(n_queries),
        count(timing.entities),
        timing.threads,
        1e3 * p50,
        1e3 * p99,
        1e3 * timing.together_seconds,
        megabytes(timing.peak_mb),
    ))
}

/// Lower quartile, median and upper quartile.
fn quartiles(seconds: Vec<f64>) -> [f64; 3] {
    quantiles(seconds, [0.25, 0.5, 0.75])
}

fn quantiles<const N: usize>(mut seconds: Vec<f64>, shares: [f64; N]) -> [f64; N] {
    seconds.sort_by(f64::total_cmp);
    shares.map(|share| {
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
