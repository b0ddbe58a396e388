//! `fullrank`: link prediction on knowledge graphs, on the command line.
//!
//! Parses arguments, runs one command and turns its outcome into an exit code:
//! 0 done, 1 failed, 2 wrong usage, 130 interrupted. The work itself is done by the libraries.

mod bench;
mod candidates;
mod compare;
mod demo;
mod evaluate;
mod export;
mod figure;
mod generate;
mod input;
mod inspect;
mod memory;
mod models;
mod open;
mod output;
mod predict;
mod provenance;
mod reproduce;
mod search;
mod settings;
mod shell;
mod spectrum;
mod stop;
mod train;

use std::io;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};

/// With the commit it was built from, where that is known.
const VERSION: &str = env!("FULLRANK_VERSION");

/// Link prediction on knowledge graphs without the rank bottleneck.
#[derive(Parser, Debug)]
#[command(version = VERSION, propagate_version = true, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,

    /// Number of threads, at most 1024 [default: one per core]
    #[arg(long, global = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

#[derive(Subcommand, Debug)]
enum Command {
    Demo(demo::DemoArguments),
    Inspect(inspect::InspectArguments),
    Generate(generate::GenerateArguments),
    Train(train::TrainArguments),
    Search(search::SearchArguments),
    Evaluate(evaluate::EvaluateArguments),
    Predict(predict::PredictArguments),
    Compare(compare::CompareArguments),
    Export(export::ExportArguments),
    Spectrum(spectrum::SpectrumArguments),
    Models(models::ModelsArguments),
    Reproduce(reproduce::ReproduceArguments),
    Figure(figure::FigureArguments),
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    Completions(shell::CompletionsArguments),
    Man(shell::ManArguments),
}

/// The command was told to stop and has cleaned up.
#[derive(Debug)]
struct Interrupted;

impl std::error::Error for Interrupted {}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

fn main() -> ExitCode {
    let outcome = run(&Arguments::parse());
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            output::say(&error.to_string());
            ExitCode::from(130)
        }
        Err(error) => {
            output::report(&error);
            if is_wrong_usage(&error) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if let Some(threads) = arguments.threads {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.into());
        pool.build_global().with_context(|| format!("{threads} threads cannot be started"))?;
    }
    match &arguments.command {
        Command::Demo(arguments) => demo::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Generate(arguments) => generate::run(arguments),
        Command::Train(arguments) => train::run(arguments),
        Command::Search(arguments) => search::run(arguments),
        Command::Evaluate(arguments) => evaluate::run(arguments),
        Command::Predict(arguments) => predict::run(arguments),
        Command::Compare(arguments) => compare::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Spectrum(arguments) => spectrum::run(arguments),
        Command::Models(arguments) => models::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Figure(arguments) => figure::run(arguments),
        Command::Bench(command) => bench::run(command),
        Command::Completions(arguments) => shell::completions(arguments),
        Command::Man(arguments) => shell::man(arguments),
    }
}

/// Whether the settings are at fault, as a wrong option would be.
fn is_wrong_usage(error: &anyhow::Error) -> bool {
    use fullrank_engine::Error;
    matches!(error.downcast_ref(), Some(Error::Config { .. } | Error::ConfigSyntax { .. }))
}

/// Whether whoever read our output, such as `head`, has had enough of it.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
