//! How long does it take?

use std::fs;
use std::path::Path;
use std::time::Instant;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::input::InputArguments;
use crate::output::{count, show, show_json, wrong_usage};

/// Measure how long something takes on this machine.
#[derive(Subcommand, Debug)]
pub(crate) enum BenchCommand {
    Load(LoadArguments),
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
        BenchCommand::Load(arguments) => load(arguments),
    }
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
    seconds.sort_by(f64::total_cmp);
    let seconds = (seconds[(seconds.len() - 1) / 2] + seconds[seconds.len() / 2]) / 2.0;
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
    let megabytes = |mb: Option<f64>| mb.map_or("?".to_owned(), |mb| format!("{mb:.0} MB"));
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

/// A line of Linux's account of this process, in megabytes.
fn status_mb(line: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let value = status.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'))?;
    let kilobytes: f64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}
