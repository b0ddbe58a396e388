//! `fullrank generate`: writes a synthetic graph to disk.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use fullrank_graph::Split;
use fullrank_graph::generate::{GenerateConfig, Generator};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::output::{count, counted, say, show, show_json, wrong_usage};
use crate::stop::stop_flag;

/// Make a synthetic graph with planted structure
///
/// Entities have types, relations lead from each type of subject to a few types of object, some
/// entities are far more popular than others, and a share of all triples is noise.
/// Written as train.tsv, valid.tsv and test.tsv; the same options give the same files.
#[derive(Args, Debug)]
#[command(
    allow_negative_numbers = true,
    after_help = "Examples:
  fullrank generate toy
  fullrank generate large --entities 1000000 --relations 20 --types 1000 --mean-degree 10"
)]
pub(crate) struct GenerateArguments {
    /// The folder to make
    #[arg(value_hint = ValueHint::DirPath)]
    out: PathBuf,

    /// Number of entities
    #[arg(long, default_value_t = defaults().entities, value_parser = count_up_to(100_000_000))]
    entities: u32,

    /// Number of relations
    #[arg(long, default_value_t = defaults().relations, value_parser = count_up_to(100_000))]
    relations: u32,

    /// Triples per entity, at least 1: there will be about entities × mean-degree triples
    #[arg(long, default_value_t = defaults().mean_degree, value_parser = mean_degree)]
    mean_degree: f64,

    /// Number of types of entities [default: 64, or as many as there are entities]
    #[arg(long, value_parser = count_up_to(100_000))]
    types: Option<u32>,

    /// Types of object to which a relation leads from one type of subject
    #[arg(long, default_value_t = defaults().modes, value_parser = count_up_to(1000))]
    modes: u32,

    /// Share of triples whose object is drawn at random
    #[arg(long, default_value_t = defaults().noise, value_parser = share)]
    noise: f64,

    /// Another seed gives another graph of the same kind
    #[arg(long, default_value_t = defaults().seed)]
    seed: u64,

    /// Replace the files of an earlier graph in this folder
    #[arg(long)]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

fn defaults() -> GenerateConfig {
    GenerateConfig::default()
}

fn count_up_to(most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=most)
}

fn mean_degree(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (1.0..=1e6).contains(&number) => Ok(number),
        _ => Err("expected a number from 1 to 1000000".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

/// What was written.
struct Written {
    counts: [usize; 3],
    n_relations: usize,
}

#[derive(Serialize)]
struct Summary {
    out: PathBuf,
    entities: u32,
    relations: usize,
    triples: usize,
    train: usize,
    valid: usize,
    test: usize,
}

pub(crate) fn run(arguments: &GenerateArguments) -> anyhow::Result<()> {
    let config = config(arguments);
    let out = &arguments.out;
    check_target(out, arguments.force)?;
    let Written { counts, n_relations: relations } = write(Generator::new(config.clone()), out)?;
    let triples = counts.iter().sum();
    let ([train, valid, test], entities) = (counts, config.entities);
    let asked_for = f64::from(entities) * config.mean_degree;
    // The mean of so uneven degrees strays by a few percent, more in small graphs.
    if (triples as f64) < 0.8 * asked_for {
        say(&format!(
            "note: there are fewer triples than the {} asked for: with these types and relations, \
             subjects run out of objects",
            count(asked_for as usize)
        ));
    }
    if relations < config.relations as usize {
        say(&format!("note: {} of {} relations occur", count(relations), config.relations));
    }
    let summary = Summary { out: out.clone(), entities, relations, triples, train, valid, test };
    if arguments.json {
        return show_json(&summary);
    }
    show(&format!(
        "{}: {} ({} train, {} valid, {} test) between {} entities\n",
        out.display(),
        counted(triples, "triple"),
        count(train),
        count(valid),
        count(test),
        count(entities as usize),
    ))
}

/// The settings, if they go together.
fn config(arguments: &GenerateArguments) -> GenerateConfig {
    let &GenerateArguments { entities, relations, mean_degree, modes, noise, seed, .. } = arguments;
    let types = arguments.types.unwrap_or(defaults().types.min(entities));
    if types > entities {
        wrong_usage(format!(
            "expected at most as many --types as --entities ({entities}), found {types}"
        ));
    }
    let n_patterns = u64::from(types) * u64::from(relations) * u64::from(modes);
    if n_patterns > MAX_PATTERNS {
        wrong_usage(format!(
            "expected types × relations × modes to be at most {MAX_PATTERNS}, found {n_patterns}"
        ));
    }
    GenerateConfig { entities, relations, mean_degree, types, modes, noise, seed }
}

/// Where relations lead is drawn in advance; this many destinations take 400 MB.
const MAX_PATTERNS: u64 = 100_000_000;

/// The file of a split.
fn file_name(split: Split) -> String {
    format!("{split}.tsv")
}

/// Only an empty folder, or with `--force` one that has the files of a graph, may be written to.
fn check_target(out: &Path, force: bool) -> anyhow::Result<()> {
    if !out.exists() {
        return Ok(());
    }
    let fail = || format!("{}: expected a folder or nothing", out.display());
    let entries = fs::read_dir(out).with_context(fail)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<io::Result<Vec<String>>>().with_context(fail)?;
    // What a killed run has left behind is in nobody's way.
    names.retain(|name| !name.starts_with(UNFINISHED));
    if !names.is_empty() && !force {
        bail!(
            "{}: expected an empty folder or none; --force replaces train.tsv, valid.tsv and \
             test.tsv in it",
            out.display()
        );
    }
    for split in Split::ALL {
        let is_other =
            |name: &&String| name.starts_with(&format!("{split}.")) && **name != file_name(split);
        if let Some(other) = names.iter().find(is_other) {
            bail!("{}: expected no other file for {split}, found `{other}`", out.display());
        }
    }
    Ok(())
}

/// How the folder starts in which files are made.
const UNFINISHED: &str = ".unfinished-";

/// Writes all triples beside their target, then moves the finished files there.
fn write(generator: Generator, out: &Path) -> anyhow::Result<Written> {
    let fail = || format!("{}: cannot be written", out.display());
    let stop = stop_flag()?;
    let is_new = !out.exists();
    fs::create_dir_all(out).with_context(fail)?;
    let unfinished =
        tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(out).with_context(fail)?;
    let written = write_files(generator, unfinished.path(), &stop).with_context(fail);
    let stopped = stop.load(Ordering::Relaxed);
    if stopped || written.is_err() {
        drop(unfinished);
        if is_new {
            // What went wrong before is what the user has to know.
            let _ = fs::remove_dir(out);
        }
        return if stopped { Err(Interrupted.into()) } else { written };
    }
    for split in Split::ALL {
        let name = file_name(split);
        fs::rename(unfinished.path().join(&name), out.join(&name)).with_context(fail)?;
    }
    written
}

/// Writes the files of all splits to a folder.
fn write_files(generator: Generator, folder: &Path, stop: &AtomicBool) -> io::Result<Written> {
    let mut files = Vec::with_capacity(Split::ALL.len());
    for split in Split::ALL {
        let file = fs::File::create(folder.join(file_name(split)))?;
        files.push(BufWriter::with_capacity(1 << 20, file));
    }
    let written = stream(generator, &mut files, stop)?;
    for file in files {
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    }
    Ok(written)
}

/// Writes triple after triple, until the end or until told to stop.
fn stream(
    mut generator: Generator,
    files: &mut [BufWriter<fs::File>],
    stop: &AtomicBool,
) -> io::Result<Written> {
    /// How many triples pass between two looks at the clock and at Ctrl-C.
    const STRIDE: usize = 1 << 14;
    let bar = progress_bar(generator.expected_triples());
    let mut counts = [0; 3];
    while let Some((split, triple)) = generator.next() {
        let subject = generator.entity_name(triple.subject);
        let relation = generator.relation_name(triple.relation);
        let object = generator.entity_name(triple.object);
        writeln!(files[split as usize], "{subject}\t{relation}\t{object}")?;
        counts[split as usize] += 1;
        let n_written: usize = counts.iter().sum();
        if n_written.is_multiple_of(STRIDE) {
            bar.set_position(n_written as u64);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    bar.finish_and_clear();
    Ok(Written { counts, n_relations: generator.n_relations() })
}

fn progress_bar(expected: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bar:30} {human_pos} of about {human_len} triples, {eta} left",
    )
    .expect("the template is well formed");
    ProgressBar::new(expected).with_style(style)
}
