//! `fullrank bench`: how long does each part take?

mod gradient;
mod kernels;
mod step;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, Subcommand, ValueHint};
use fullrank_engine::evaluate::rank_answers;
use fullrank_engine::predictor::Ask;
use fullrank_engine::{Device, Predictor, Run, silent};
use fullrank_graph::Query;
use serde::Serialize;

use crate::evaluate::SplitArgument;
use crate::input::InputArguments;
use crate::memory::status_mb;
use crate::output::{count, show, show_json, wrong_usage};
use gradient::GradientArguments;
use kernels::KernelArguments;
use step::StepArguments;

/// Measure how long something takes on this machine, and how exact a sparse gradient is.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    Step(StepArguments),
    Kernels(KernelArguments),
    Gradient(GradientArguments),
    Evaluate(EvaluateArguments),
    Predict(PredictArguments),
    Load(LoadArguments),
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
        BenchCommand::Step(arguments) => step::run(arguments),
        BenchCommand::Kernels(arguments) => kernels::run(arguments),
        BenchCommand::Gradient(arguments) => gradient::run(arguments),
        BenchCommand::Evaluate(arguments) => evaluate(arguments),
        BenchCommand::Predict(arguments) => predict(arguments),
        BenchCommand::Load(arguments) => load(arguments),
    }
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
    let run = Run::open(&arguments.run, Device::default())?;
    let mut seconds = Vec::new();
    let mut n_ranks = 0;
    for _ in 0..arguments.repeats {
        let start = Instant::now();
        let split = arguments.split.into();
        let ranks = rank_answers(run.model.graph(), split, &run.model, &mut silent())?;
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
    let predictor = Predictor::new(Run::open(&arguments.run, Device::default())?.model);
    let graph = predictor.model().graph();
    let answers = graph.answers();
    // Evenly over all queries of the graph, so that none is asked twice.
    let n_queries = (arguments.queries as usize).min(answers.n_queries());
    let number = |i: usize| i * answers.n_queries() / n_queries;
    let queries: Vec<Query> = (0..n_queries).map(|i| answers.query(number(i))).collect();
    let ask = |queries: &[Query]| -> anyhow::Result<f64> {
        let k = arguments.k as usize;
        let asks: Vec<Ask> = queries.iter().map(|query| Ask { k, ..Ask::new(*query) }).collect();
        let start = Instant::now();
        predictor.answer(&asks)?;
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
        entities: graph.entities().len(),
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
