//! Configs: which settings does a training have, and do they go together?
//!
//! A config is composed of what its parts own: encoder, score and output layer, each with its
//! settings, what all models have in common, and the training. To the outside settings are flat, each
//! by its name, in files, options and calls alike.
//! It does not know the graph; what must fit the graph is checked when a training begins.

mod listing;
mod raw;
#[cfg(test)]
mod tests;

use toml::Value;

use crate::encoder::{EncoderConfig, EncoderKind};
use crate::error::Error;
use crate::ops::{PairScore, Precision, Shortcuts, Thinning};
use crate::output::{LossTerms, OutputConfig, OutputKind};
use crate::part::{Domain, MANY_ENTITIES, TableRows, training_precision};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Purpose};
use crate::score::{ScoreConfig, ScoreKind};
use crate::settings::{
    Choice, Fault, Group, ModelConfig, NotAllowed, Refusal, Setting, TrainingConfig, With, plain,
};
use fullrank_graph::Graph;

pub use listing::all_settings;
pub(crate) use listing::takes;
pub use raw::RawConfig;

/// A config that can train: every setting is in its range and goes with the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub(crate) encoder: EncoderConfig,
    pub(crate) score: ScoreConfig,
    pub(crate) output: OutputConfig,
    pub(crate) model: ModelConfig,
    pub(crate) training: TrainingConfig,
}

impl Default for Config {
    fn default() -> Self {
        Self::of(EncoderKind::DistMult, None, OutputKind::Softmax)
    }
}

impl Config {
    /// A config from the text of a config file.
    ///
    /// # Errors
    /// When it is not TOML, or with everything that is wrong with the settings.
    pub fn parse(text: &str) -> Result<Self, Error> {
        RawConfig::parse(text)?.check()
    }

    /// These parts with all settings at their defaults; without a score, that of the encoder.
    pub(crate) fn of(encoder: EncoderKind, score: Option<ScoreKind>, output: OutputKind) -> Self {
        let score = score.unwrap_or(encoder.facts().scores[0]);
        Self {
            encoder: EncoderConfig::of(encoder),
            score: ScoreConfig::of(score),
            output: OutputConfig::of(output),
            model: ModelConfig::default(),
            training: TrainingConfig::default(),
        }
    }

    /// What makes query vectors.
    pub fn encoder(&self) -> EncoderKind {
        self.encoder.kind()
    }

    /// What query vectors and object vectors are scored with.
    pub fn score(&self) -> ScoreKind {
        self.score.kind()
    }

    /// The score, where it is not the encoder's own.
    pub fn chosen_score(&self) -> Option<ScoreKind> {
        Some(self.score()).filter(|score| *score != self.encoder.facts().scores[0])
    }

    /// What turns scores into probabilities.
    pub fn output(&self) -> OutputKind {
        self.output.kind()
    }

    /// Width of the object vectors.
    pub fn dim(&self) -> usize {
        self.model.dim
    }

    /// How it is trained.
    pub fn training(&self) -> &TrainingConfig {
        &self.training
    }

    /// What probabilities of such a model say.
    pub fn probability(&self) -> ProbabilityKind {
        self.output.facts().probability
    }

    /// Whether probabilities were trained for; a model of a margin has them only when it is asked.
    pub fn trains_probabilities(&self) -> bool {
        self.output.facts().trains_probabilities
    }

    /// Such a model in a few words: `distmult with a softmax`.
    pub fn description(&self) -> String {
        let score = self
            .chosen_score()
            .map_or(String::new(), |score| format!(" scored by {}", score.name()));
        format!("{}{score} with {}", self.encoder().name(), self.output.called())
    }

    /// The largest matrix rank that the log-probabilities of such a model can have over all queries and
    /// objects; of one that says whether each triple holds, its log-odds. Nothing if there is no limit
    /// but the number of objects.
    pub fn max_matrix_rank(&self) -> Option<usize> {
        let of_output = self.output.limit(&self.with()).at(self.model.dim)?;
        // A bias per object is a row that every query adds.
        self.with().score.is_linear.then_some(of_output + usize::from(self.model.bias))
    }

    /// A setting by its name; nothing if it is not set, or means nothing with the others.
    pub fn value(&self, name: &str) -> Option<Value> {
        self.applying().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// As a config file: every setting that means something with the others, defaults included.
    pub fn to_toml(&self) -> String {
        self.applying().map(|(name, value)| format!("{name} = {value}\n")).collect()
    }

    /// Settings that are not at their defaults, as they would be given on a command line.
    pub fn changes(&self) -> Vec<(&'static str, String)> {
        let score = self.chosen_score();
        let defaults = Self::of(self.encoder(), score, self.output());
        let choices = [
            ("encoder", self.encoder() != Self::default().encoder()),
            ("score", score.is_some()),
            ("output", self.output() != Self::default().output()),
        ];
        let is_changed = |(name, value): &(&'static str, Value)| match choices
            .iter()
            .find(|(choice, _)| choice == name)
        {
            Some((_, is_changed)) => *is_changed,
            None => defaults.raw_value(name).as_ref() != Some(value),
        };
        self.applying().filter(is_changed).map(|(name, value)| (name, plain(&value))).collect()
    }

    /// The same with another value of a setting that this config has; what then means nothing is left
    /// out.
    ///
    /// # Errors
    /// When there is no such setting, or when the value is not allowed or does not go with the others.
    pub fn with_setting(&self, name: &str, value: impl Into<Value>) -> Result<Self, Error> {
        let mut config = self.clone();
        let fault = |what: String| Fault { name: name.into(), origin: None, what };
        let value = value.into();
        let what = match config.set(name, &value) {
            Some(Ok(())) => None,
            Some(Err(NotAllowed { expected })) => {
                Some(format!("expected {expected}, found `{}`", plain(&value)))
            }
            None => Some("means nothing in this config".into()),
        };
        let refused = config.refusals().into_iter().map(Fault::from);
        let faults: Vec<Fault> = what.map(fault).into_iter().chain(refused).collect();
        if faults.is_empty() { Ok(config) } else { Err(Error::Config { faults }) }
    }

    /// What parts may know of each other.
    pub(crate) fn with(&self) -> With<'_> {
        With {
            model: &self.model,
            training: &self.training,
            score: self.score().facts(),
            query_dim: self.encoder.facts().query_width * self.model.dim,
        }
    }

    /// All groups of settings, in the order of config files.
    pub(crate) fn groups(&self) -> [&dyn Group; 5] {
        let Self { encoder, score, output, model, training } = self;
        [model, encoder.group(), score.group(), output.group(), training]
    }

    /// Sets one of the settings that the parts of this config own.
    pub(crate) fn set(&mut self, name: &str, value: &Value) -> Option<Result<(), NotAllowed>> {
        let Self { encoder, score, output, model, training } = self;
        let groups: [&mut dyn Group; 5] =
            [model, encoder.group_mut(), score.group_mut(), output.group_mut(), training];
        groups.into_iter().find_map(|group| group.set(name, value))
    }

    /// Settings that have a value and mean something with the others; first which parts there are.
    fn applying(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let with = self.with();
        let choices = [
            ("encoder", Setting::to_value(&self.encoder())),
            ("score", Setting::to_value(&self.score())),
            ("output", Setting::to_value(&self.output())),
        ];
        let mut all: Vec<(&'static str, Value)> =
            choices.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        for group in self.groups() {
            let applies = |name| group.unmet(name, &with).is_none();
            let values = group.values().into_iter();
            all.extend(
                values.filter_map(|(name, value)| Some((name, value.filter(|_| applies(name))?))),
            );
        }
        all.into_iter()
    }

    /// The value of a setting, whether it means something or not.
    fn raw_value(&self, name: &str) -> Option<Value> {
        let mut values = self.groups().into_iter().flat_map(Group::values);
        values.find(|(other, _)| *other == name)?.1
    }

    /// What does not go together. A part that comes later does not repeat what one before it has
    /// against a setting.
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        let with = self.with();
        let mut all = self.encoder.refusals(&with);
        for refusals in [self.score.refusals(&with), self.output.refusals(&with)] {
            let known: Vec<&str> = all.iter().map(|refusal| refusal.name).collect();
            let new = |refusal: &Refusal| !known.contains(&refusal.name);
            let new: Vec<Refusal> = refusals.into_iter().filter(new).collect();
            all.extend(new);
        }
        all
    }

    /// What of a config does not fit a graph.
    ///
    /// # Errors
    /// With the setting at fault.
    pub(crate) fn check_fit(&self, graph: &Graph) -> Result<(), Error> {
        match self.output.misfit(&self.with(), graph.entities().len()) {
            None => Ok(()),
            Some(refusal) => Err(Error::Config { faults: vec![refusal.into()] }),
        }
    }
}

/// What follows from the parts together.
impl Config {
    /// The tables of a model that have a row per entity or relation, by the names of their tensors.
    pub(crate) fn tables(&self) -> impl Iterator<Item = (String, TableRows)> {
        let encoder = self.encoder.facts().tables.iter();
        let output = self.output.facts().tables.iter();
        let bias = self.model.bias.then(|| ("bias".to_owned(), TableRows::Entities));
        let encoder = encoder.map(|(name, rows)| (format!("encoder.{name}"), *rows));
        let output = output.map(|(name, rows)| (format!("output.{name}"), *rows));
        encoder.chain(output).chain(bias)
    }

    /// What is computed of a context and an object, as score and output layer have them.
    pub(crate) fn pair_score(&self) -> PairScore {
        self.output.pair_score(&self.with(), self.score.pair_score())
    }

    /// Width of contexts and of objects, as they are scored.
    pub(crate) fn scored_dims(&self) -> [usize; 2] {
        self.output.widths(&self.with(), self.score.width(self.model.dim))
    }

    /// What the loss over all objects takes; an entry of the gradient may be left to chance only where
    /// scores are dot products and all care is not asked for.
    pub(crate) fn loss_terms(&self) -> LossTerms {
        let terms = self.output.loss_terms();
        let training = &self.training;
        let may_be_sparse =
            self.pair_score() == PairScore::Dot && training.negatives.is_none() && !training.exact;
        LossTerms { sparse_below: terms.sparse_below.filter(|_| may_be_sparse), ..terms }
    }

    /// What the loss of the update that has this noise need not do with all care.
    pub(crate) fn shortcuts(&self, entities: usize, noise: &Noise) -> Shortcuts {
        let below = self.loss_terms().sparse_below.filter(|_| entities >= MANY_ENTITIES);
        let thinning = below
            .map(|below| Thinning { below: below as f32, seed: noise.number(Purpose::Thinning) });
        Shortcuts { thinning, precision: self.precision(entities) }
    }

    /// How training multiplies contexts and objects, in updates and in validation.
    pub(crate) fn precision(&self, entities: usize) -> Precision {
        let is_exact = self.training.exact || self.pair_score() != PairScore::Dot;
        training_precision(is_exact, entities)
    }

    /// Whether a part of the model normalises over a batch.
    pub(crate) fn normalises_batch(&self) -> bool {
        self.encoder.facts().normalises_batch || self.output.normalises_batch()
    }

    /// Whether an update reads and changes only the rows of entities that its batch names.
    pub(crate) fn updates_rows(&self, entities: usize) -> bool {
        // Messages reach every entity.
        let reads_edges = self.encoder.facts().reads_edges;
        self.training.negatives.is_some() && !reads_edges && entities >= MANY_ENTITIES
    }

    /// What a model of such a config is about.
    pub(crate) fn domain(&self, graph: &Graph) -> Domain {
        let domain = Domain::of(graph);
        match self.encoder.facts().reads_edges {
            true => Domain { edges: crate::part::Edges::of(graph), ..domain },
            false => domain,
        }
    }
}
