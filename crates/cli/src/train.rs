//! `fullrank train`: trains a model and shows how it goes.

mod progress;
mod summary;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::bail;
use clap::{Args, ValueHint};
use fullrank_engine::advice::Chosen;
use fullrank_engine::evaluate::GivenCandidates;
use fullrank_engine::settings::Choice;
use fullrank_engine::{
    Config, Device, Error, Existing, RawConfig, Run, Trained, TrainingFolder, epochs, forecast,
};
use fullrank_graph::{Graph, Split};
use fullrank_report::RunReport;

use crate::Interrupted;
use crate::candidates::given_candidates;
use crate::evaluate::{progress_bar, show_progress};
use crate::input::InputArguments;
use crate::memory::check_memory;
use crate::output::{count, counted, existing, quoted, say, show, show_json, write_file};
use crate::provenance::provenance;
use crate::settings::SettingsArguments;
use crate::stop::stop_flag;
pub(crate) use progress::Progress;
pub(crate) use summary::{Summary, results};
use summary::{next_steps, say_below_popularity};

/// Train a model on a graph
///
/// Writes a run folder, from which `predict` and `evaluate` work without the data, with a page,
/// report.html, to look at.
/// Without --output, a softmax or a mixture is chosen by what the graph's bounds advise at --dim;
/// without --batch, one that gives a small graph a hundred updates an epoch.
/// Ctrl-C saves and stops; the same command with --resume goes on, bit for bit, also after a crash.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank train FB15k-237 --out runs/first
  fullrank train FB15k-237 --output mixture --components 4 --out runs/mixture
  fullrank train FB15k-237 --config my.toml --epochs 50 --out runs/longer
  fullrank train FB15k-237 --out runs/longer --resume
  fullrank train biokg --candidates biokg --out runs/biokg --keep-ranks")]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    input: InputArguments,

    /// The run folder to make [default: runs/DATA-ENCODER-OUTPUT, with a score that is not
    /// the encoder's own between the last two]
    #[arg(long, value_hint = ValueHint::DirPath, value_name = "RUN")]
    out: Option<PathBuf>,

    /// Go on with the training in the run folder, which must be there
    #[arg(long)]
    resume: bool,

    /// Replace the run that is there
    #[arg(long, conflicts_with = "resume")]
    force: bool,

    /// Train this many times, with seeds from --seed upwards, in folders of their own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1000))]
    seeds: Option<u16>,

    /// Validate and test against the candidates in this folder, and stop early by these ranks:
    /// {valid,test}_negative_{subjects,objects}.npy, or a run that was trained with them
    ///
    /// They are kept with the run, so that --resume needs them no more.
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    candidates: Option<PathBuf>,

    /// Keep where every answer of valid and test stands in the run folder: ranks-valid.csv and
    /// ranks-test.csv, as `evaluate --ranks` writes them
    #[arg(long)]
    keep_ranks: bool,

    #[command(flatten)]
    settings: SettingsArguments,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl TrainArguments {
    /// What the data are called.
    pub(crate) fn data_name(&self) -> String {
        self.input.name()
    }
}

/// Trains what another command has chosen, or goes on with it, and finishes as `train` does.
pub(crate) fn train_chosen(
    input: &InputArguments,
    graph: &Arc<Graph>,
    plans: &[(RawConfig, PathBuf)],
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Summary>> {
    let arguments = TrainArguments {
        input: input.clone(),
        out: None,
        resume: true,
        force: false,
        seeds: None,
        candidates: None,
        keep_ranks: false,
        settings: SettingsArguments::default(),
        json: false,
    };
    let graph = Arc::clone(graph);
    let session = Session { arguments: &arguments, graph, candidates: None, stop };
    let train = |(settings, out): &(RawConfig, PathBuf)| {
        if plans.len() > 1 {
            say(&format!("{}:", out.display()));
        }
        session.train(settings, out)
    };
    plans.iter().map(train).collect()
}

pub(crate) fn run(arguments: &TrainArguments) -> anyhow::Result<()> {
    let given = arguments.settings.raw()?;
    // Before minutes of loading, not after. A run to be resumed has its own settings; those given
    // need not go together without them.
    if !arguments.resume {
        given.possible_outputs()?;
    } else if let Some(out) = &arguments.out {
        check_begun(out)?;
    }
    let loaded = arguments.input.load()?;
    arguments.input.say_notes(&loaded);
    let graph = Arc::new(loaded.graph);
    let plans = plan(arguments, &given, &graph)?;
    let candidates = match &arguments.candidates {
        Some(folder) => {
            Some(Arc::new(given_candidates(folder, &graph, &[Split::Valid, Split::Test])?))
        }
        None => None,
    };
    let session = Session { arguments, graph, candidates, stop: &*stop_flag()? };
    let mut summaries = Vec::new();
    for (settings, out) in &plans {
        if plans.len() > 1 {
            say(&format!("{}:", out.display()));
        }
        summaries.push(session.train(settings, out)?);
    }
    say_untrained(&summaries[0].config);
    say_below_popularity(&summaries);
    if arguments.json {
        return match &summaries[..] {
            [summary] => show_json(summary),
            several => show_json(&several),
        };
    }
    show(&results(&summaries))?;
    show(&next_steps(&summaries))
}

/// The settings and the folder of each training.
fn plan(
    arguments: &TrainArguments,
    given: &RawConfig,
    graph: &Graph,
) -> anyhow::Result<Vec<(RawConfig, PathBuf)>> {
    // A run goes on with its own settings, whatever would be advised now.
    let goes_on = |out: &Path| arguments.resume && out.join("run.json").exists();
    if let (Some(out), None) = (&arguments.out, arguments.seeds)
        && goes_on(out)
    {
        return Ok(vec![(given.clone(), out.clone())]);
    }
    let advised = given.advised(graph)?;
    advised.chosen.iter().for_each(say_chosen);
    let advised = advised.settings;
    let config = advised.check()?;
    let out = arguments.out.clone().unwrap_or_else(|| default_folder(arguments, &config));
    if arguments.resume {
        check_begun(&out)?;
    }
    let settings = |out: &Path| if goes_on(out) { given.clone() } else { advised.clone() };
    let Some(seeds) = arguments.seeds else { return Ok(vec![(settings(&out), out)]) };
    let first = config.training().seed;
    let seeds = first..first + u64::from(seeds);
    Ok(seeds
        .map(|seed| {
            let out = out.join(format!("seed-{seed}"));
            let mut settings = settings(&out);
            settings.add("seed", "--seed", &seed.to_string());
            (settings, out)
        })
        .collect())
}

/// An error if there is no folder to go on in. One without anything saved, or with some of several
/// seeds, is enough.
fn check_begun(out: &Path) -> anyhow::Result<()> {
    if !out.exists() {
        bail!(
            "{}: there is no such folder, and nothing to resume\n\n\
             Name the folder of a training that was begun, or leave --resume out to begin one.",
            out.display()
        );
    }
    Ok(())
}

/// Says what was chosen where the user has not said.
fn say_chosen(chosen: &Chosen) {
    let Chosen { name, value, reason } = chosen;
    let value = match *name {
        // A word of its own says what it is.
        "output" => value.clone(),
        name => format!("{name} {value}"),
    };
    say(&format!("note: {value} chosen: {reason} (--{})", name.replace('_', "-")));
}

/// Where a run goes unless told otherwise.
fn default_folder(arguments: &TrainArguments, config: &Config) -> PathBuf {
    let name = arguments.input.name();
    let score = config.chosen_score().map_or(String::new(), |score| format!("-{}", score.name()));
    let (encoder, output) = (config.encoder().name(), config.output().name());
    Path::new("runs").join(format!("{name}-{encoder}{score}-{output}"))
}

struct Session<'a> {
    arguments: &'a TrainArguments,
    graph: Arc<Graph>,
    candidates: Option<Arc<GivenCandidates>>,
    stop: &'a AtomicBool,
}

impl Session<'_> {
    fn train(&self, settings: &RawConfig, out: &Path) -> anyhow::Result<Summary> {
        let start = Instant::now();
        let (mut folder, config) = if self.arguments.resume {
            let (folder, config) = TrainingFolder::resume(out, &self.graph, settings)?;
            check_memory(forecast(&config, &self.graph))?;
            (folder, config)
        } else {
            let config = settings.check()?;
            // Before the folder is made.
            check_memory(forecast(&config, &self.graph))?;
            let existing = existing(self.arguments.force);
            (TrainingFolder::create(out, &self.graph, &config, existing)?, config)
        };
        if let Some(given) = &self.candidates {
            folder.rank_among(Arc::clone(given))?;
        }
        let (epochs, updates) = folder.progress();
        if self.arguments.resume && updates > 0 {
            let (epochs, updates) = (counted(epochs, "epoch"), counted(updates as usize, "update"));
            say(&match folder.is_over() {
                true => format!("the training is over, after {epochs} and {updates}"),
                false => format!("going on after {epochs} and {updates}"),
            });
        }
        let mut progress = Progress::new(&config, self.stop);
        if !folder.is_over() {
            folder.note(provenance())?;
        }
        let graph = Arc::clone(&self.graph);
        let trained =
            folder.train(graph, config, Device::default(), &mut |event| progress.show(event));
        progress.bar.finish_and_clear();
        let trained = trained.map_err(|error| match error {
            Error::Interrupted => {
                let instead = if self.arguments.force { " instead of --force" } else { "" };
                say(&format!("saved; the same command with --resume{instead} goes on"));
                Interrupted.into()
            }
            other => anyhow::Error::from(other),
        })?;
        let summary = self.summarise(out, &mut folder, &trained, start);
        summary.map_err(|error| match error.downcast_ref() {
            Some(Error::Interrupted) => Interrupted.into(),
            _ => error,
        })
    }

    /// Ranks, calibrates and reports what a training has come to.
    fn summarise(
        &self,
        out: &Path,
        folder: &mut TrainingFolder,
        trained: &Trained,
        start: Instant,
    ) -> anyhow::Result<Summary> {
        let mut run = Run::open(out, Device::default())?;
        run.model.rank_among(Arc::clone(folder.candidates()));
        let bar = progress_bar("ranking and calibrating");
        let finished = run.model.finish(&mut |event| show_progress(&bar, self.stop, &event))?;
        bar.finish_and_clear();
        folder.keep(&run.model, &finished)?;
        if self.arguments.keep_ranks {
            folder.keep_ranks(&self.graph, &finished)?;
        }
        let [valid, test] = [Split::Valid, Split::Test].map(|split| {
            finished.of(split).map(|result| (result.metrics, result.baselines)).unzip()
        });
        let (temperature, parameters) = (run.model.temperature(), run.model.n_parameters());
        let report = RunReport {
            data: self.arguments.input.name(),
            command: self.command(run.model.config(), out),
            version: crate::VERSION,
            epochs: epochs(out)?,
            finished,
            model: &run.model,
        };
        let report_path = out.join("report.html");
        write_file(&report_path, Existing::Replace, report.to_html()?.as_bytes())?;
        Ok(Summary {
            valid: valid.0,
            test: test.0,
            valid_baselines: valid.1,
            test_baselines: test.1,
            temperature,
            report: report_path,
            run: out.to_owned(),
            seed: run.model.config().training().seed,
            epochs: trained.epochs,
            updates: trained.updates,
            best_epoch: trained.best.epoch,
            ended_by: trained.end,
            parameters,
            seconds: start.elapsed().as_secs_f64(),
            config: run.model.config().clone(),
        })
    }

    /// The command that would train the same again.
    fn command(&self, config: &Config, out: &Path) -> String {
        let mut words = vec!["fullrank".to_owned(), "train".to_owned()];
        words.extend(self.arguments.input.to_words());
        // These two always, for without them they would be chosen anew.
        let advised = [
            ("output", config.output().name().to_owned()),
            ("batch", config.training().batch.to_string()),
        ];
        let changes =
            config.changes().into_iter().filter(|(name, _)| !matches!(*name, "output" | "batch"));
        for (name, value) in changes.chain(advised) {
            words.extend([format!("--{}", name.replace('_', "-")), value]);
        }
        if let Some(folder) = &self.arguments.candidates {
            words.extend(["--candidates".to_owned(), folder.display().to_string()]);
        }
        if self.arguments.keep_ranks {
            words.push("--keep-ranks".to_owned());
        }
        words.extend(["--out".to_owned(), out.display().to_string(), "--force".to_owned()]);
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    }
}

/// What kind of model the figures below are of.
pub(crate) fn model_line(config: &Config) -> String {
    format!("{}, d = {}\n", config.description(), count(config.dim()))
}

/// Says that probabilities are not what was learned, where that is so.
pub(crate) fn say_untrained(config: &Config) {
    if !config.trains_probabilities() {
        say(UNTRAINED);
    }
}

const UNTRAINED: &str = "note: with a margin, scores are trained for ranks alone; NLL and probabilities \
                         are of their softmax, for which nothing was trained";
