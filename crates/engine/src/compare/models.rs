//! Models that are compared: which runs differ in their seeds alone, and what else do two models
//! differ in?

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::metric::Metric;
use super::outcome::Outcome;
use crate::config::{Config, all_settings};
use crate::metrics::Metrics;
use crate::run::Provenance;
use crate::settings::{Choice, plain};

/// Runs that differ in their seeds alone.
#[derive(Debug, Clone, Serialize)]
pub struct ComparedModel {
    /// Encoder, dimension and output layer, and what else tells it from the others.
    pub name: String,
    /// What makes query vectors.
    pub encoder: String,
    /// What turns scores into probabilities.
    pub output: String,
    /// Width of the object vectors.
    pub dim: usize,
    /// K, where the output layer is a mixture.
    pub components: Option<usize>,
    /// Learned numbers.
    pub parameters: usize,
    /// Of its runs, ascending.
    pub seeds: Vec<u64>,
    /// Epochs made.
    pub epochs: Spread,
    /// Updates made.
    pub updates: Spread,
    /// Time for updates and validation, where it was measured.
    pub minutes: Option<Spread>,
    /// Every metric on validation that all of its runs have.
    pub valid: BTreeMap<Metric, Spread>,
    /// The same on test.
    pub test: BTreeMap<Metric, Spread>,
    /// What models with other encoders may have too: the output layer, its K, and a score that is not
    /// the encoder's own.
    #[serde(skip)]
    pub layer: String,
    /// The places of its runs in [`Comparison::runs`](super::Comparison::runs), by seed.
    #[serde(skip)]
    pub runs: Vec<usize>,
}

/// Mean and standard deviation over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Of a sample; nothing for a single value.
    pub deviation: Option<f64>,
}

/// Something in which two models differ, besides their seeds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct SettingDifference {
    /// A setting, or what is known of the training: `version`, `machine`, `threads` or `finished`.
    pub name: String,
    /// As the first model has it; nothing where it means nothing there.
    pub a: Option<String>,
    /// As the second model has it.
    pub b: Option<String>,
}

impl Spread {
    /// That of at least one value.
    pub fn of(values: &[f64]) -> Self {
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        let deviation = (values.len() > 1).then(|| (squares / (n - 1.0)).sqrt());
        Self { mean, deviation }
    }
}

/// Settings but for the seed.
fn without_seed(config: &Config) -> Config {
    let mut config = config.clone();
    config.training.seed = 0;
    config
}

/// Sorts runs into models: in the order of their encoders, dimensions and layers, plain ones before
/// mixtures; each run learns the place of its own.
pub(super) fn models(runs: &mut [Outcome]) -> Vec<ComparedModel> {
    let mut groups: Vec<(Config, Vec<usize>)> = Vec::new();
    for (place, run) in runs.iter().enumerate() {
        let config = without_seed(&run.config);
        match groups.iter_mut().find(|(other, _)| *other == config) {
            Some((_, places)) => places.push(place),
            None => groups.push((config, vec![place])),
        }
    }
    let order = |config: &Config| {
        (config.encoder() as usize, config.dim(), components(config), config.output() as usize)
    };
    // Stable: models alike in these stay as they were given.
    groups.sort_by_key(|(config, _)| order(config));
    let mut models: Vec<ComparedModel> = Vec::new();
    for (config, places) in &mut groups {
        places.sort_by_key(|place| runs[*place].seed);
        for place in &*places {
            runs[*place].model = models.len();
        }
        models.push(ComparedModel::of(config, places, runs));
    }
    let names = names(&groups.iter().map(|(config, _)| config).collect::<Vec<_>>());
    for (model, name) in models.iter_mut().zip(names) {
        model.name = name;
    }
    models
}

impl ComparedModel {
    fn of(config: &Config, places: &[usize], all: &[Outcome]) -> Self {
        let runs: Vec<&Outcome> = places.iter().map(|place| &all[*place]).collect();
        let spread = |value: &dyn Fn(&Outcome) -> Option<f64>| -> Option<Spread> {
            let values: Option<Vec<f64>> = runs.iter().map(|run| value(run)).collect();
            values.map(|values| Spread::of(&values))
        };
        let of_split = |of: fn(&Outcome) -> Option<&Metrics>| {
            let of_metric = |metric: &Metric| {
                Some((*metric, spread(&|run| of(run).and_then(|found| metric.of(found)))?))
            };
            Metric::ALL.iter().filter_map(of_metric).collect()
        };
        let spread_of = |value: fn(&Outcome) -> f64| {
            Spread::of(&runs.iter().map(|run| value(run)).collect::<Vec<_>>())
        };
        Self {
            name: String::new(),
            encoder: config.encoder().name().to_owned(),
            output: config.output().name().to_owned(),
            dim: config.dim(),
            components: components(config),
            parameters: runs[0].parameters,
            seeds: runs.iter().map(|run| run.seed).collect(),
            epochs: spread_of(|run| run.epochs as f64),
            updates: spread_of(|run| run.updates as f64),
            minutes: spread(&|run| run.minutes),
            valid: of_split(|run| run.valid.as_ref()),
            test: of_split(|run| Some(&run.test)),
            layer: layer(config),
            runs: places.to_vec(),
        }
    }

    /// Whether two models have the same encoder and dimension.
    pub(super) fn is_beside(&self, other: &Self) -> bool {
        self.encoder == other.encoder && self.dim == other.dim
    }
}

fn components(config: &Config) -> Option<usize> {
    config.value("components")?.as_integer().and_then(|number| usize::try_from(number).ok())
}

fn layer(config: &Config) -> String {
    let score =
        config.chosen_score().map_or(String::new(), |score| format!(" of {}", score.name()));
    let k = components(config).map_or(String::new(), |k| format!(" K = {k}"));
    format!("{}{k}{score}", config.output().name())
}

/// What models are called: encoder, dimension and layer, and where these are the same, in what they
/// differ.
fn names(configs: &[&Config]) -> Vec<String> {
    let short = |config: &Config| {
        format!("{} d = {}, {}", config.encoder().name(), config.dim(), layer(config))
    };
    let name = |config: &&Config| {
        let short_name = short(config);
        let alike = configs.iter().filter(|other| short(other) == short_name);
        let differing: BTreeSet<String> =
            alike.flat_map(|other| differing_settings(config, other)).map(|own| own.name).collect();
        let values = differing.iter().map(|name| match shown(config, name) {
            Some(value) => format!("{name} {value}"),
            None => format!("no {name}"),
        });
        let values: Vec<String> = values.collect();
        if values.is_empty() { short_name } else { format!("{short_name} ({})", values.join(", ")) }
    };
    configs.iter().map(name).collect()
}

fn shown(config: &Config, name: &str) -> Option<String> {
    config.value(name).as_ref().map(plain)
}

/// Settings in which two models differ.
fn differing_settings(a: &Config, b: &Config) -> Vec<SettingDifference> {
    let settings = all_settings().iter().filter(|setting| setting.name != "seed");
    let both = settings.map(|setting| SettingDifference {
        name: setting.name.to_owned(),
        a: shown(a, setting.name),
        b: shown(b, setting.name),
    });
    both.filter(|both| both.a != both.b).collect()
}

/// Everything in which runs of two models differ but their seeds, by what they are called.
pub(super) fn differences(a: &[&Outcome], b: &[&Outcome]) -> Vec<SettingDifference> {
    let mut all = differing_settings(&a[0].config, &b[0].config);
    let of_sessions = |name: &str, value: fn(&Provenance) -> String| {
        let of = |runs: &[&Outcome]| -> String {
            let sessions = runs.iter().flat_map(|run| &run.sessions);
            let values: BTreeSet<String> = sessions.map(value).collect();
            values.into_iter().collect::<Vec<_>>().join("; ")
        };
        let noted = |text: String| Some(text).filter(|text| !text.is_empty());
        SettingDifference { name: name.to_owned(), a: noted(of(a)), b: noted(of(b)) }
    };
    let finished = |runs: &[&Outcome]| {
        let is_finished = runs.iter().all(|run| run.is_finished);
        Some(if is_finished { "yes" } else { "no" }.to_owned())
    };
    let known = [
        of_sessions("version", |session| session.version.clone()),
        of_sessions("machine", |session| session.machine.clone()),
        of_sessions("threads", |session| session.threads.to_string()),
        SettingDifference { name: "finished".to_owned(), a: finished(a), b: finished(b) },
    ];
    // Older versions noted less.
    let are_known = |both: &SettingDifference| both.a.is_some() && both.b.is_some();
    all.extend(known.into_iter().filter(|both| are_known(both) && both.a != both.b));
    all
}
