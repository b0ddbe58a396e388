//! The folder of a search: what is kept of it, so that it goes on where it was?
//!
//! `trials/` has a run folder per trial; `search.json` what every step came to, from which follows what
//! comes next; `space.toml` the space; `best` the folder of the best trial, and `best.toml` its config;
//! `seeds/` the winner's trainings with other seeds. Files are written beside and renamed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fullrank_engine::search::{Metric, Plan, Space, Step, leaderboard, trials};
use fullrank_engine::settings::Choice;
use fullrank_engine::{Config, Error, Existing, LOCK, lock};
use serde::{Deserialize, Serialize};

use crate::output::write_file;

/// The file that names the folder of the best trial.
pub(crate) const BEST: &str = "best";
pub(super) const BEST_CONFIG: &str = "best.toml";
const LOG: &str = "search.json";
const SPACE: &str = "space.toml";
const TRIALS: &str = "trials";
const SEEDS: &str = "seeds";
const FORMAT: u32 = 1;
/// Seconds of a search that nobody has limited.
const SECONDS: f64 = 3600.0;
const RUNGS: usize = 3;

/// A folder in which a search works, and no other.
pub(super) struct SearchFolder {
    path: PathBuf,
    begun: Option<(Log, Space)>,
    /// Unlocked when dropped, also by the end of the process.
    _lock: File,
}

/// What `search.json` says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Log {
    format: u32,
    fullrank: String,
    metric: String,
    rungs: usize,
    trials: Option<usize>,
    seconds: Option<f64>,
    steps: Vec<Step>,
}

/// How to search, as far as that was said.
pub(super) struct Method {
    pub(super) metric: Option<Metric>,
    pub(super) rungs: Option<usize>,
    pub(super) trials: Option<usize>,
    pub(super) seconds: Option<f64>,
}

/// An error if what is in a folder, or is not, keeps a search from it.
pub(super) fn check(path: &Path, resume: bool, force: bool) -> anyhow::Result<()> {
    let is_search = path.join(LOG).exists();
    if resume && !path.exists() {
        bail!(
            "{}: there is no such folder, and nothing to resume\n\n\
             Name the folder of a search that was begun, or leave --resume out to begin one.",
            path.display()
        );
    }
    if is_search && !resume && !force {
        bail!(
            "{}: there is a search already\n\n\
             Go on with it by --resume, replace it by --force, or choose another folder by --out.",
            path.display()
        );
    }
    if !is_search && !is_free(path)? {
        return Err(Error::Exists { path: path.into(), is_run: false }.into());
    }
    Ok(())
}

impl SearchFolder {
    /// A folder for a new search, or with one to go on with. What is to be replaced is still there.
    pub(super) fn open(path: &Path, resume: bool, force: bool) -> anyhow::Result<Self> {
        check(path, resume, force)?;
        let lock = lock(path)?;
        let goes_on = resume && path.join(LOG).exists();
        let begun = if goes_on { Some(read(path)?) } else { None };
        Ok(Self { path: path.into(), begun, _lock: lock })
    }

    /// The space of the search that goes on.
    pub(super) fn space(&self) -> Option<&Space> {
        self.begun.as_ref().map(|(_, space)| space)
    }

    /// Begins a search, or goes on with one that is the same but for its limits.
    pub(super) fn begin(&mut self, space: &Space, method: Method) -> anyhow::Result<Plan> {
        let Method { metric, rungs, mut trials, mut seconds } = method;
        let mut log = match &self.begun {
            Some((log, own)) => {
                self.check_same(log, own, space, metric, rungs)?;
                if trials.is_none() && seconds.is_none() {
                    (trials, seconds) = (log.trials, log.seconds);
                }
                log.clone()
            }
            None => {
                self.remove()?;
                let text = space.to_toml();
                write_file(&self.path.join(SPACE), Existing::Replace, text.as_bytes())?;
                Log {
                    format: FORMAT,
                    fullrank: crate::VERSION.into(),
                    metric: metric.unwrap_or(Metric::Mrr).name().into(),
                    rungs: rungs.unwrap_or(RUNGS),
                    trials: None,
                    seconds: None,
                    steps: Vec::new(),
                }
            }
        };
        if trials.is_none() && seconds.is_none() {
            seconds = Some(SECONDS);
        }
        (log.trials, log.seconds) = (trials, seconds);
        let plan = Plan { metric: log.metric()?, rungs: log.rungs, trials, seconds };
        self.begun = Some((log, space.clone()));
        self.write()?;
        Ok(plan)
    }

    fn check_same(
        &self,
        log: &Log,
        own: &Space,
        space: &Space,
        metric: Option<Metric>,
        rungs: Option<usize>,
    ) -> anyhow::Result<()> {
        let differs = |name: &str, own: String, asked: Option<String>| {
            let asked = asked.filter(|asked| *asked != own)?;
            Some(format!("{name} is `{own}`, not `{asked}`"))
        };
        let mut differences = Vec::new();
        differences.extend(differs(
            "metric",
            log.metric.clone(),
            metric.map(|it| it.name().into()),
        ));
        differences.extend(differs("rungs", log.rungs.to_string(), rungs.map(|it| it.to_string())));
        if !own.is_same(space) {
            differences.push(format!("its space is that of {SPACE}"));
        }
        if differences.is_empty() {
            return Ok(());
        }
        bail!(
            "{}: was searched otherwise: {}\n\n\
             Leave these options out to go on as before, or search anew in another folder by --out.",
            self.path.display(),
            differences.join(", ")
        );
    }

    /// What every step came to.
    pub(super) fn steps(&self) -> &[Step] {
        self.begun.as_ref().map_or(&[], |(log, _)| &log.steps)
    }

    /// Keeps a step, and which trial is the best now; `configs` are those of all trials.
    pub(super) fn keep(&mut self, step: Step, configs: &[Config]) -> anyhow::Result<()> {
        let Some((log, _)) = &mut self.begun else { return Ok(()) };
        log.steps.push(step);
        let trials = trials(&log.steps);
        let best = leaderboard(&trials, log.metric()?).first().map(|best| best.number);
        self.write()?;
        let Some(best) = best else { return Ok(()) };
        let config = configs[best - 1].to_toml();
        let name = format!("{}\n", trial_name(best));
        write_file(&self.path.join(BEST_CONFIG), Existing::Replace, config.as_bytes())?;
        write_file(&self.path.join(BEST), Existing::Replace, name.as_bytes())
    }

    /// The run folder of a trial.
    pub(super) fn trial(&self, number: usize) -> PathBuf {
        self.path.join(trial_name(number))
    }

    /// The run folder of the winner with another seed.
    pub(super) fn seed(&self, seed: u64) -> PathBuf {
        self.path.join(SEEDS).join(format!("seed-{seed}"))
    }

    fn write(&self) -> anyhow::Result<()> {
        let Some((log, _)) = &self.begun else { return Ok(()) };
        let mut text = serde_json::to_string_pretty(log)?;
        text.push('\n');
        write_file(&self.path.join(LOG), Existing::Replace, text.as_bytes())
    }

    /// Removes a search, or what is left of one; first what makes it one.
    fn remove(&self) -> anyhow::Result<()> {
        for name in [LOG, BEST, BEST_CONFIG, SPACE, TRIALS, SEEDS] {
            let path = self.path.join(name);
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false if path.exists() => fs::remove_file(&path),
                false => Ok(()),
            };
            removed.map_err(|source| Error::Write { path, source })?;
        }
        Ok(())
    }
}

impl Log {
    fn metric(&self) -> anyhow::Result<Metric> {
        let found = Metric::ALL.iter().copied().find(|metric| metric.name() == self.metric);
        found.with_context(|| {
            format!("{LOG}: expected mrr or nll as metric, found `{}`", self.metric)
        })
    }
}

/// Of a trial, in the folder of its search.
pub(super) fn trial_name(number: usize) -> String {
    format!("{TRIALS}/{number:04}")
}

fn read(path: &Path) -> anyhow::Result<(Log, Space)> {
    let read = |name: &str| -> Result<(PathBuf, String), Error> {
        let path = path.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(source) => Err(Error::Read { path, source }),
        }
    };
    let (log_path, text) = read(LOG)?;
    let damaged = |what: String| Error::Damaged { path: log_path.clone(), what };
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let parse = |error: serde_json::Error| damaged(error.to_string());
    let Format { format } = serde_json::from_str(&text).map_err(parse)?;
    if format != FORMAT {
        return Err(Error::OtherFormat { path: log_path, expected: FORMAT, found: format }.into());
    }
    let log: Log = serde_json::from_str(&text).map_err(parse)?;
    let (space_path, text) = read(SPACE)?;
    Ok((log, Space::parse(&space_path, &text)?))
}

/// Whether a search may begin here: nothing is there, or only what one leaves that was stopped while it
/// was made or removed. The lock tells that the rest is ours: it is made first.
fn is_free(path: &Path) -> anyhow::Result<bool> {
    if !path.exists() {
        return Ok(true);
    }
    let fail = |source| Error::Read { path: path.into(), source };
    let mut names = Vec::new();
    for entry in path.read_dir().map_err(fail)? {
        names.push(entry.map_err(fail)?.file_name().to_string_lossy().into_owned());
    }
    let own = [LOCK, SPACE, BEST, BEST_CONFIG, TRIALS, SEEDS];
    let is_own = |name: &String| own.contains(&name.as_str()) || name.ends_with(".unfinished");
    let is_locked = names.iter().any(|name| name == LOCK);
    Ok(names.is_empty() || (is_locked && names.iter().all(is_own)))
}
