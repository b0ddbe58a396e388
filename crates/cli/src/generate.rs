//! Writes a synthetic graph to disk.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, bail};
use clap::{Args, ValueHint};
use fullrank_graph::Split;
use fullrank_graph::generate::{GenerateConfig, Generator};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::output::{count, show, show_json, wrong_usage};

/// Make a synthetic graph with planted structure
///
/// Entities have types, relations lead from each type of subject to a few types of object, some
/// entities are far more popular than others, and a share of all triples is noise.
/// Written as train.tsv, valid.tsv and test.tsv; the same options give the same files.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank generate toy
  fullrank generate large --entities 1000000 --relations 20 --types 1000 --mean-degree 10")]
pub(crate) struct GenerateArguments {
    /// The folder to make
    #[arg(value_hint = ValueHint::DirPath)]
    out: PathBuf,

    /// Number of entities
    #[arg(long, default_value_t = defaults().entities, value_parser = clap::value_parser!(u32).range(1..))]
    entities: u32,

    /// Number of relations
    #[arg(long, default_value_t = defaults().relations, value_parser = clap::value_parser!(u32).range(1..))]
    relations: u32,

    /// Triples per entity: there will be about entities × mean-degree triples
    #[arg(long, default_value_t = defaults().mean_degree, value_parser = positive)]
    mean_degree: f64,

    /// Number of types of entities
    #[arg(long, default_value_t = defaults().types, value_parser = clap::value_parser!(u32).range(1..))]
    types: u32,

    /// Types of object to which a relation leads from one type of subject
    #[arg(long, default_value_t = defaults().modes, value_parser = clap::value_parser!(u32).range(1..))]
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

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && number < f64::INFINITY => Ok(number),
        _ => Err("expected a number above 0".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.0..=1.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0 to 1".to_owned()),
    }
}

#[derive(Serialize)]
struct Written {
    out: PathBuf,
    entities: u32,
    relations: u32,
    triples: usize,
    train: usize,
    valid: usize,
    test: usize,
}

pub(crate) fn run(arguments: &GenerateArguments) -> anyhow::Result<()> {
    let &GenerateArguments { entities, relations, mean_degree, types, modes, noise, seed, .. } =
        arguments;
    if types > entities {
        wrong_usage(format!(
            "expected at most as many --types as --entities ({entities}), found {types}"
        ));
    }
    let out = &arguments.out;
    check_target(out, arguments.force)?;
    let config = GenerateConfig { entities, relations, mean_degree, types, modes, noise, seed };
    let [train, valid, test] = write(Generator::new(config), out)?;
    let triples = train + valid + test;
    let written = Written { out: out.clone(), entities, relations, triples, train, valid, test };
    if arguments.json {
        return show_json(&written);
    }
    show(&format!(
        "{}: {} triples ({} train, {} valid, {} test) between {} entities\n\n\
         Next: fullrank inspect {}\n",
        out.display(),
        count(triples),
        count(train),
        count(valid),
        count(test),
        count(entities as usize),
        out.display(),
    ))?;
    Ok(())
}

/// The file of a split.
fn file_name(split: Split) -> String {
    format!("{split}.tsv")
}

/// Only an empty folder, or with `--force` one that has the files of a graph, may be written to.
fn check_target(out: &Path, force: bool) -> anyhow::Result<()> {
    if !out.exists() {
        return Ok(());
    }
    let entries = fs::read_dir(out)
        .with_context(|| format!("{}: expected a folder or nothing", out.display()))?;
    let occupied = entries.count() > 0;
    if occupied && !force {
        bail!(
            "{}: expected an empty folder or none; --force replaces train.tsv, valid.tsv and test.tsv in it",
            out.display()
        );
    }
    Ok(())
}

/// Writes all triples beside their target, then moves the finished files there.
fn write(generator: Generator, out: &Path) -> anyhow::Result<[usize; 3]> {
    let fail = || format!("{}: cannot be written", out.display());
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || flag.store(true, Ordering::Relaxed))?;

    let is_new = !out.exists();
    fs::create_dir_all(out).with_context(fail)?;
    let unfinished =
        tempfile::Builder::new().prefix(".unfinished-").tempdir_in(out).with_context(fail)?;
    let counts = write_files(generator, unfinished.path(), &stop).with_context(fail);
    let stopped = stop.load(Ordering::Relaxed);
    if stopped || counts.is_err() {
        drop(unfinished);
        if is_new {
            fs::remove_dir(out).with_context(fail)?;
        }
        return if stopped { Err(Interrupted.into()) } else { counts };
    }
    for split in Split::ALL {
        let name = file_name(split);
        fs::rename(unfinished.path().join(&name), out.join(&name)).with_context(fail)?;
    }
    counts
}

/// Writes the files of all splits to a folder.
fn write_files(generator: Generator, folder: &Path, stop: &AtomicBool) -> io::Result<[usize; 3]> {
    let mut files = Vec::with_capacity(Split::ALL.len());
    for split in Split::ALL {
        let file = fs::File::create(folder.join(file_name(split)))?;
        files.push(BufWriter::with_capacity(1 << 20, file));
    }
    let counts = stream(generator, &mut files, stop)?;
    for file in files {
        file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
    }
    Ok(counts)
}

/// Writes triple after triple, until the end or until told to stop.
fn stream(
    mut generator: Generator,
    files: &mut [BufWriter<fs::File>],
    stop: &AtomicBool,
) -> io::Result<[usize; 3]> {
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
    Ok(counts)
}

fn progress_bar(expected: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(
        "{bar:30} {human_pos} of about {human_len} triples, {eta} left",
    )
    .expect("the template is well formed");
    ProgressBar::new(expected).with_style(style)
}
