//! `fullrank search`: looks for the settings that suit a graph best, by trials.

mod budget;
mod folder;
mod show;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use fullrank_engine::search::{
    BUILT_IN, Metric, Outcome, Plan, Space, Step, Trial, built_in_for, leaderboard, trials,
};
use fullrank_engine::settings::Choice;
use fullrank_engine::{Config, Error, RawConfig};
use fullrank_graph::{Graph, Split};

use crate::input::InputArguments;
use crate::output::{counted, say, show, show_json};
use crate::settings::SettingsArguments;
use crate::stop::stop_flag;
use crate::train::{Summary, train_chosen};
use budget::Budget;
pub(crate) use folder::BEST;
use folder::{Method, SearchFolder};
use show::{Board, document, final_text};
use trial::Trials;

/// Search for the settings that suit a graph best
///
/// Trains trials with settings that are drawn from a space, each at first for a ninth of its epochs;
/// the best third of those goes on to a third, and the best third of these to the end (successive
/// halving). Trials that could not end in time are given up.
/// Trials are compared on validation alone; the test split is ranked once, by the winner, at the end.
///
/// A space is a config file in which a setting may have a range: `dim = { choice = [100, 200] }`,
/// `dropout = { linear = [0.0, 0.5] }`, `learning_rate = { log = [1e-4, 1e-1] }`. Settings given as
/// options are fixed in all trials.
/// Every trial is a run folder, OUT/trials/0001 and so on. OUT/best.toml is the config of the best one,
/// OUT/best its folder; `predict` and `evaluate` take OUT for it.
/// Ctrl-C saves and stops; the same command with --resume goes on, also after a crash, and with a
/// larger --budget or --trials it goes on for longer.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank search FB15k-237 --budget 1h
  fullrank search FB15k-237 --budget 2h --resume
  fullrank search FB15k-237 --space my.toml --trials 30 --out runs/mine
  fullrank search drugs.csv --columns drug,effect,disease --budget 20m --dim 64 --seeds 3
  fullrank train FB15k-237 --config runs/mine/best.toml --out runs/again")]
pub(crate) struct SearchArguments {
    #[command(flatten)]
    input: InputArguments,

    /// The settings that trials may have: a file, or one of small, medium, large and paper [default:
    /// by the size of the graph]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    space: Option<PathBuf>,

    /// Time for all trials and the winner's end: `20m`, `1h`, `1h30m` [default: 1h, without --trials]
    #[arg(long, value_name = "TIME")]
    budget: Option<Budget>,

    /// Trials, at most
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trials: Option<u32>,

    /// What trials are compared by, on validation [default: mrr]
    #[arg(long, value_parser = PossibleValuesParser::new(Metric::ALL.iter().map(|it| it.name())))]
    metric: Option<String>,

    /// Lengths to which trials are trained, each three times the one before; 1 is random search
    /// [default: 3]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=6))]
    rungs: Option<u8>,

    /// Train the winner with this many seeds in all, after the search
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    seeds: Option<u16>,

    /// The folder for trials and the best of them [default: runs/DATA-search]
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Go on with the search in the folder, which must be there
    #[arg(long)]
    resume: bool,

    /// Replace the search that is there
    #[arg(long, conflicts_with = "resume")]
    force: bool,

    #[command(flatten)]
    settings: SettingsArguments,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What a search has come to.
struct Found<'a> {
    out: &'a Path,
    space: &'a Space,
    plan: Plan,
    steps: &'a [Step],
    /// Of all trials, by number.
    configs: Vec<Config>,
    /// The number of the best trial.
    winner: usize,
    /// What it came to, and then the same with other seeds.
    summaries: Vec<Summary>,
}

pub(crate) fn run(arguments: &SearchArguments) -> anyhow::Result<()> {
    let default = || Path::new("runs").join(format!("{}-search", arguments.input.name()));
    let out = arguments.out.clone().unwrap_or_else(default);
    // Before minutes of loading, not after.
    let given = arguments.settings.raw()?;
    let named = arguments.named_space()?;
    folder::check(&out, arguments.resume, arguments.force)?;
    let loaded = arguments.input.load()?;
    arguments.input.say_notes(&loaded);
    let graph = Arc::new(loaded.graph);
    if graph.triples(Split::Valid).is_empty() {
        bail!(
            "the graph has no validation triples to choose by\n\n\
             Name a folder with a valid file, or a single file, which is then split."
        );
    }
    let mut folder = SearchFolder::open(&out, arguments.resume, arguments.force)?;
    let space = match folder.space() {
        Some(space) if named.is_none() && arguments.settings.is_empty() => space.clone(),
        _ => asked_space(named, &given, &graph)?,
    };
    for (recipe, why) in space.impossible(&graph)? {
        say(&format!("note: recipe {recipe} is left out: {why}"));
    }
    let plan = folder.begin(&space, arguments.method())?;
    let stop = stop_flag()?;
    let board = Board::new(plan, space.varied());
    let trials = Trials { graph: &graph, stop: &stop, board: &board, space: &space, plan };
    let configs = trials.train_all(&mut folder)?;
    board.clear();
    let (winner, again) = plans(arguments.seeds, &folder, &configs, plan.metric)?;
    let summaries = train_chosen(&arguments.input, &graph, &again, &stop)?;
    let steps = folder.steps();
    let found = Found { out: &out, space: &space, plan, steps, configs, winner, summaries };
    if arguments.json { show_json(&document(&found)) } else { show(&final_text(&found)) }
}

impl SearchArguments {
    /// The space that is named, if one is.
    fn named_space(&self) -> anyhow::Result<Option<Space>> {
        let Some(path) = &self.space else { return Ok(None) };
        if let Some(space) = path.to_str().and_then(built_in) {
            return Ok(Some(space?));
        }
        let text = fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.clone(), source })?;
        Ok(Some(Space::parse(path, &text)?))
    }

    /// How to search, as far as that was said.
    fn method(&self) -> Method {
        let metric = |name: &String| Metric::ALL.iter().copied().find(|it| it.name() == name);
        Method {
            metric: self.metric.as_ref().and_then(metric),
            rungs: self.rungs.map(usize::from),
            trials: self.trials.map(|trials| trials as usize),
            seconds: self.budget.map(|Budget(seconds)| seconds),
        }
    }
}

/// A space that comes with the program.
fn built_in(name: &str) -> Option<Result<Space, Error>> {
    let (_, text) = BUILT_IN.into_iter().find(|(known, _)| *known == name)?;
    Some(Space::parse(Path::new(name), text))
}

/// The space that was asked for, with the settings that were given.
fn asked_space(named: Option<Space>, given: &RawConfig, graph: &Graph) -> anyhow::Result<Space> {
    let mut space = match named {
        Some(space) => space,
        None => {
            let name = built_in_for(graph);
            say(&format!("note: space {name} chosen: by the size of the graph (--space)"));
            built_in(name).context("a built-in space has its name")??
        }
    };
    space.fix(given)?;
    Ok(space)
}

/// The number of the winner; its training and those with other seeds, to be finished.
fn plans(
    seeds: Option<u16>,
    folder: &SearchFolder,
    configs: &[Config],
    metric: Metric,
) -> anyhow::Result<(usize, Vec<(RawConfig, PathBuf)>)> {
    let trials = trials(folder.steps());
    let Some(winner) = leaderboard(&trials, metric).first().map(|trial| trial.number) else {
        bail!("none of {} came to anything{}", counted(trials.len(), "trial"), reasons(&trials));
    };
    let config = &configs[winner - 1];
    let mut plans = vec![(RawConfig::parse(&config.to_toml())?, folder.trial(winner))];
    let first = config.training().seed;
    for seed in first + 1..first + u64::from(seeds.unwrap_or(1)) {
        let config = config.with_setting("seed", seed as i64)?;
        plans.push((RawConfig::parse(&config.to_toml())?, folder.seed(seed)));
    }
    Ok((winner, plans))
}

/// Why trials came to nothing: the first few reasons.
fn reasons(trials: &[Trial]) -> String {
    let reason = |trial: &Trial| match &trial.outcome {
        Outcome::Refused(why) | Outcome::Failed(why) => {
            Some(format!("\n  trial {}: {why}", trial.number))
        }
        _ => None,
    };
    trials.iter().filter_map(reason).take(3).collect()
}
