//! Which settings does a training have?
//!
//! Every setting is written once, in the table below: name, meaning, type, default and range.
//! The config file, the command line and the checked [`Config`] are made from it.
//! It does not know the graph; what must fit the graph is checked by the trainer.

mod contradictions;
mod only_with;
mod setting;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use toml::Value;

use crate::encoder::EncoderKind;
use crate::error::Error;
use crate::ops::Mlp;
use crate::output::Meaning;
use crate::score::ScoreKind;
use contradictions::contradictions;
use only_with::{ONLY_WITH, is_mixture};
pub use setting::Choice;
pub(crate) use setting::choices;
use setting::{Range, Setting};

/// Where a setting came from, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A config file.
    File(PathBuf),
    /// An option of the command line, or an argument of a call.
    Option,
}

/// Settings as they were given, not yet checked.
#[derive(Debug, Clone, Default)]
pub struct RawConfig {
    given: BTreeMap<String, (Value, Origin)>,
}

/// What a table of settings says of one of them.
#[derive(Debug, Clone, Copy)]
pub struct SettingInfo {
    /// As in TOML; on the command line with hyphens.
    pub name: &'static str,
    /// What it does, in a sentence or two.
    pub meaning: &'static str,
    /// The allowed values.
    pub expected: fn() -> String,
    /// What it is when it is not given.
    pub default: fn() -> String,
    /// Whether naming it is enough to set it.
    pub is_switch: bool,
}

/// One thing wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The setting, as given.
    pub name: String,
    /// Where it was given; nothing for a fault between several settings.
    pub origin: Option<Origin>,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(Origin::File(path)) => {
                write!(f, "{}: `{}`: {}", path.display(), self.name, self.what)
            }
            Some(Origin::Option) => write!(f, "--{}: {}", self.name.replace('_', "-"), self.what),
            None => write!(f, "`{}`: {}", self.name, self.what),
        }
    }
}

/// Makes the checked config and the reader of raw ones from the table of settings.
macro_rules! settings {
    ($($(#[doc = $doc:literal])* $name:ident: $ty:ty = $default:expr, $range:expr;)*) => {
        /// A config that can train: every setting is in its range and fits the others.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Config {
            $($(#[doc = $doc])* pub $name: $ty,)*
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        /// Every setting, in the order of config files and help.
        pub const SETTINGS: &[SettingInfo] = &[$(
            SettingInfo {
                name: stringify!($name),
                meaning: concat!($($doc, "\n"),*),
                expected: || <$ty as Setting>::expected($range),
                is_switch: <$ty as Setting>::IS_SWITCH,
                default: || {
                    let default: $ty = $default;
                    default.to_value().map_or_else(|| "none".into(), |value| plain(&value))
                },
            },
        )*];

        impl Config {
            fn take(given: &BTreeMap<String, (Value, Origin)>, faults: &mut Vec<Fault>) -> Self {
                let mut config = Self::default();
                $(if let Some((value, origin)) = given.get(stringify!($name)) {
                    match <$ty as Setting>::from_value(value, $range) {
                        Some(value) => config.$name = value,
                        None => faults.push(Fault {
                            name: stringify!($name).into(),
                            origin: Some(origin.clone()),
                            what: format!(
                                "expected {}, found {}",
                                <$ty as Setting>::expected($range),
                                found(value, origin)
                            ),
                        }),
                    }
                })*
                config
            }

            fn values(&self) -> Vec<(&'static str, Option<Value>)> {
                vec![$((stringify!($name), self.$name.to_value()),)*]
            }
        }
    };
}

choices! {
    /// What turns scores into probabilities.
    OutputKind {
        /// One softmax over all objects.
        Softmax = "softmax",
        /// A mixture of softmaxes with shared object vectors.
        Mixture = "mixture",
        /// Raw scores: answers are to score better than drawn entities, by a margin.
        Margin = "margin",
        /// A sigmoid for each object.
        Sigmoid = "sigmoid",
        /// A mixture of sigmoids for each object.
        MixtureOfSigmoids = "mixture-of-sigmoids",
        /// One softmax over z + log σ(z) of all scores (Kanai 2018).
        Sigsoftmax = "sigsoftmax",
        /// One softmax over a learned increasing function of all scores (Ganea 2019).
        Monotone = "monotone",
        /// One softmax over scores that are mixed, with weights of each object's own (Yang 2019).
        Mixtape = "mixtape",
        /// A sigmoid for each object, whose vector is made of sines and cosines (Grivas 2023).
        Fourier = "fourier",
    }
    /// How much an answer of a query counts.
    AnswerWeight {
        /// Every answer counts 1, so every triple counts the same.
        One = "one",
        /// Answers share the weight 1 of their query, so every query counts the same.
        Share = "share",
    }
    /// The nonlinearity of the mixture's projections.
    Activation {
        /// max(x, 0.01·x).
        LeakyRelu = "leaky_relu",
        /// max(x, 0).
        Relu = "relu",
        /// x·Φ(x).
        Gelu = "gelu",
        /// The hyperbolic tangent.
        Tanh = "tanh",
        /// Nothing.
        Identity = "identity",
    }
    /// What a message along an edge is made of: sender x and relation z, in CompGCN.
    Composition {
        /// x ∘ z.
        DistMult = "distmult",
        /// x − z.
        Subtraction = "subtraction",
        /// The circular correlation: value k is Σ_i x_i·z_(i+k).
        Correlation = "correlation",
    }
    /// How the learning rate changes over a training.
    Schedule {
        /// Not at all.
        Constant = "constant",
        /// Halved after every 3 epochs in which validation MRR did not improve.
        Plateau = "plateau",
        /// Along half a cosine from its full value to zero at the last epoch.
        Cosine = "cosine",
    }
}

settings! {
    /// What makes a query vector of subject and relation.
    encoder: EncoderKind = EncoderKind::DistMult, Range::Any;
    /// Width of the object vectors: the bottleneck.
    dim: usize = 200, Range::Between(1, 100_000);
    /// Width of the relation vectors of TuckER and HypER; `dim` if not given.
    relation_dim: Option<usize> = None, Range::Between(1, 100_000);
    /// Convolutional layers of ConvE.
    convolutions: usize = 1, Range::Between(1, 7);
    /// Channels that a convolution makes.
    channels: usize = 32, Range::Between(1, 10_000);
    /// Layers of the transformer.
    attention_layers: usize = 2, Range::Between(1, 100);
    /// Parts of a token that attend on their own in the transformer.
    heads: usize = 4, Range::Between(1, 1000);
    /// Models in the ensemble, which share `dim` evenly.
    members: usize = 4, Range::Between(1, 1000);
    /// Width of the entity vectors that messages along the edges start from.
    initial_dim: usize = 100, Range::Between(1, 100_000);
    /// How many edges a message can travel: layers of graph convolution.
    message_layers: usize = 1, Range::Between(1, 100);
    /// Share of the sums of messages, and of the object vectors made of them, set to zero in training.
    message_dropout: f64 = 0.1, Range::Share;
    /// How CompGCN makes a message of sender and relation.
    composition: Composition = Composition::DistMult, Range::Any;
    /// Matrices of which R-GCN mixes those of all relations.
    bases: usize = 2, Range::Between(1, 1000);
    /// What a query vector and an object vector score; the encoder's own if not given: `l1` for
    /// TransE, `modulus` for RotatE, `mlp` for ConcatMLP, `dot` for all others.
    score: Option<ScoreKind> = None, Range::Any;
    /// Widths of the hidden layers of the score `mlp`, as a list, first to last.
    hidden: Vec<usize> = vec![512, 256], Range::Each(Mlp::MAX_HIDDEN, 1, 100_000);
    /// Whether every object has a learned bias added to its score.
    bias: bool = false, Range::Any;
    /// Share of the query vector's values set to zero in training.
    dropout: f64 = 0.1, Range::Share;
    /// Share of values set to zero before a convolution.
    input_dropout: f64 = 0.2, Range::Share;
    /// Share of channels set to zero after a convolution.
    feature_dropout: f64 = 0.3, Range::Share;
    /// Share of values set to zero in the query vector of a convolutional encoder, before it is
    /// normalised.
    hidden_dropout: f64 = 0.3, Range::Share;
    /// Share of values set to zero in what each layer of the transformer adds.
    attention_dropout: f64 = 0.1, Range::Share;
    /// What turns scores into probabilities.
    output: OutputKind = OutputKind::Softmax, Range::Any;
    /// Softmaxes, or sigmoids, in the mixture; scores that a mixtape mixes.
    components: usize = 4, Range::Between(1, 1000);
    /// Layers of each component's projection.
    layers: usize = 2, Range::Between(0, 100);
    /// Nonlinearity after each layer of a projection.
    activation: Activation = Activation::LeakyRelu, Range::Any;
    /// Share of values set to zero after each layer of a projection.
    projection_dropout: f64 = 0.1, Range::Share;
    /// Reward for using all components: loss − entropy_weight · mean entropy of the prior.
    entropy_weight: f64 = 1e-3, Range::NotNegative;
    /// Straight pieces of the learned function on each side of zero, between −20 and 20.
    pieces: usize = 40, Range::Between(1, 10_000);
    /// Width of the vectors that a mixtape's gates are made of.
    gate_dim: usize = 64, Range::Between(1, 100_000);
    /// Frequencies of sines and cosines, which is also how many answers of a query can be told from
    /// all other objects; at most half of the entities, and half of `dim` if not given.
    frequencies: Option<usize> = None, Range::Between(1, 100_000);
    /// Entities drawn for each batch, which the answers of all its queries are compared with; all
    /// entities if not given.
    negatives: Option<usize> = None, Range::Between(1, 1_000_000_000);
    /// How much better than a drawn entity an answer is to score; for sigmoids of distances, the
    /// distance at which a triple is as likely as not.
    margin: f64 = 1.0, Range::NotNegative;
    /// How much drawn entities count the more the better they score: weights are the softmax of
    /// this times their scores, and 0 weighs all the same (Sun 2019).
    adversarial: f64 = 0.0, Range::NotNegative;
    /// Answers in one training item, at most; 1 is an item per triple (1-vs-All), and without it an
    /// item is a query with all its answers.
    answers_per_item: Option<usize> = None, Range::Between(1, 1_000_000_000);
    /// How much an answer of a query counts.
    answer_weight: AnswerWeight = AnswerWeight::One, Range::Any;
    /// Items per update; the last batch of an epoch may be shorter and is kept.
    batch: usize = 1000, Range::Between(1, 1_000_000);
    /// Passes over the training items, at most.
    epochs: usize = 30, Range::Between(1, 1_000_000);
    /// Epochs without a better validation MRR after which training stops.
    patience: usize = 8, Range::Between(1, 1_000_000);
    /// Step size of Adam.
    learning_rate: f64 = 1e-3, Range::Positive;
    /// How the learning rate changes.
    schedule: Schedule = Schedule::Constant, Range::Any;
    /// Updates over which the learning rate grows from zero to its full value.
    warmup: usize = 0, Range::Between(0, 1_000_000_000);
    /// Largest norm of the gradient of all parameters together; longer ones are scaled down.
    clip: Option<f64> = None, Range::Positive;
    /// Share of an answer's weight spread over all objects; for the softmax only.
    smoothing: f64 = 0.0, Range::Share;
    /// Weight of the cubes of the factors of each answer (N3, Lacroix 2018).
    n3: f64 = 0.0, Range::NotNegative;
    /// Weight of the squares of the factors of each answer.
    l2: f64 = 0.0, Range::NotNegative;
    /// Entries of the gradient of all scores that are left to chance, in units of an answer's weight:
    /// what is smaller than this is taken at this size, as often as its own size says. Right on
    /// average, and much faster once a model has learned a little; from 8,192 entities on.
    sparse_below: f64 = 1.0 / 1024.0, Range::Positive;
    /// Whether no entry is left to chance, and all products are made in f32.
    exact: bool = false, Range::Any;
    /// Updates between two checkpoints, besides one after every epoch.
    checkpoint_every: Option<usize> = None, Range::Between(1, 1_000_000_000);
    /// MiB of logits kept from the forward to the backward pass; the rest is computed twice.
    memory_budget: usize = 512, Range::Between(0, 1_000_000_000);
    /// Of all random numbers: initial weights, order of items, dropout.
    seed: u64 = 0, Range::AtLeast(0);
}

impl RawConfig {
    /// Adds the settings of a config file's text.
    pub fn add_file(&mut self, path: &Path, text: &str) -> Result<(), Error> {
        let table: toml::Table = text.parse().map_err(|source| Error::ConfigSyntax {
            path: path.into(),
            source: Box::new(source),
        })?;
        for (name, value) in table {
            self.given.insert(name, (value, Origin::File(path.into())));
        }
        Ok(())
    }

    /// Adds one setting, over any given before; `text` is a TOML value, several with commas
    /// between them, or a bare word.
    pub fn add_option(&mut self, name: &str, text: &str) {
        let parsed = format!("x = {text}").parse::<toml::Table>();
        let parsed = parsed.or_else(|error| match text.contains(',') {
            true => format!("x = [{text}]").parse(),
            false => Err(error),
        });
        let value = parsed.ok().and_then(|mut table| table.remove("x"));
        let value = value.unwrap_or_else(|| Value::String(text.into()));
        self.given.insert(name.into(), (value, Origin::Option));
    }

    /// Whether a setting was given.
    pub fn gives(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// Settings given that a config has otherwise, as `name is this, not that`.
    ///
    /// Each is compared for itself: another choice of one setting does not put the blame on all those
    /// that mean nothing with it.
    pub(crate) fn differences(&self, own: &Config) -> Result<Vec<String>, Error> {
        let (asked, faults) = self.read();
        if !faults.is_empty() {
            return Err(Error::Config { faults });
        }
        let own: BTreeMap<&str, Value> = own.applying().collect();
        let shown = |value: Option<&Value>| value.map_or("not set".into(), shown);
        Ok(asked
            .values()
            .iter()
            .map(|(name, asked)| (*name, own.get(name), asked.as_ref()))
            .filter(|(name, own, asked)| self.gives(name) && own != asked)
            .map(|(name, own, asked)| format!("{name} is {}, not {}", shown(own), shown(asked)))
            .collect())
    }

    /// The config, or everything that is wrong with it.
    pub fn check(&self) -> Result<Config, Error> {
        let (config, mut faults) = self.read();
        for only in ONLY_WITH {
            if let Some((_, origin)) = self.given.get(only.name)
                && !(only.applies)(&config)
                // A choice that could not be read has its own fault.
                && faults.iter().all(|fault| !only.depends_on(&fault.name))
            {
                let (name, what) = (only.name.into(), only.what(&config));
                faults.push(Fault { name, origin: Some(origin.clone()), what });
            }
        }
        // What could not be read is at its default, which contradicts nothing.
        let read = |fault: &Fault| faults.iter().all(|other| other.name != fault.name);
        let contradictions: Vec<Fault> = contradictions(&config).into_iter().filter(read).collect();
        faults.extend(contradictions);
        if faults.is_empty() { Ok(config) } else { Err(Error::Config { faults }) }
    }

    /// Each setting for itself, and what is wrong with it.
    fn read(&self) -> (Config, Vec<Fault>) {
        let mut faults = Vec::new();
        for (name, (_, origin)) in &self.given {
            if SETTINGS.iter().all(|setting| setting.name != name) {
                let what = format!("there is no such setting{}", closest(name));
                faults.push(Fault { name: name.clone(), origin: Some(origin.clone()), what });
            }
        }
        (Config::take(&self.given, &mut faults), faults)
    }
}

impl Config {
    /// As a config file: every setting that means something with the others, defaults included.
    pub fn to_toml(&self) -> String {
        self.applying().map(|(name, value)| format!("{name} = {value}\n")).collect()
    }

    /// Settings that are not at their defaults, as they would be given on a command line.
    pub fn changes(&self) -> Vec<(&'static str, String)> {
        let defaults = Self::default().values();
        let is_changed = |(name, value): &(&'static str, Value)| {
            defaults.iter().all(|(other, default)| other != name || default.as_ref() != Some(value))
        };
        self.applying().filter(is_changed).map(|(name, value)| (name, plain(&value))).collect()
    }

    /// Settings that have a value and mean something with the others.
    fn applying(&self) -> impl Iterator<Item = (&'static str, Value)> {
        let values = self.values().into_iter();
        values.filter_map(move |(name, value)| Some((name, value.filter(|_| self.applies(name))?)))
    }

    /// Whether a setting means something with the others.
    fn applies(&self, name: &str) -> bool {
        ONLY_WITH.iter().all(|only| only.name != name || (only.applies)(self))
    }

    /// Dropout on the query vector: none where the encoder has its own.
    pub(crate) fn query_dropout(&self) -> f64 {
        if self.encoder.drops_query() { self.dropout } else { 0.0 }
    }

    /// The score, by default the encoder's own.
    pub fn score(&self) -> ScoreKind {
        self.score.unwrap_or(self.encoder.scores()[0])
    }

    /// Components that are scored against the objects: one without a mixture.
    pub(crate) fn n_components(&self) -> usize {
        if is_mixture(self) { self.components } else { 1 }
    }

    /// Whether sigmoids are made of distances, which are never below zero.
    fn is_sigmoid_of_distance(&self) -> bool {
        self.output.meaning() == Meaning::Holds && self.score().is_distance()
    }

    /// What is added to every score.
    pub(crate) fn shift(&self) -> f64 {
        if self.is_sigmoid_of_distance() { self.margin } else { 0.0 }
    }

    /// Frequencies of the Fourier layer.
    pub fn frequencies(&self) -> usize {
        self.frequencies.unwrap_or((self.dim / 2).max(1))
    }
}

/// A value as a person writes it on a command line: without the quotes and brackets of TOML.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // With an exponent where there would be many zeros.
        Value::Float(number) => format!("{number:?}"),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// A value that was not expected. One of a file keeps the quotes and brackets that may be what is
/// wrong with it.
fn found(value: &Value, origin: &Origin) -> String {
    let seems_other = |text: &str| format!("x = {text}").parse::<toml::Table>().is_ok();
    match (origin, value) {
        (Origin::File(_), Value::Array(_)) => format!("`{value}`"),
        (Origin::File(_), Value::String(text)) if seems_other(text) => format!("`{value}`"),
        _ => shown(value),
    }
}

fn shown(value: &Value) -> String {
    format!("`{}`", plain(value))
}

/// The setting that was perhaps meant.
fn closest(name: &str) -> String {
    let known = SETTINGS.iter().map(|setting| setting.name);
    let near = known.map(|known| (strsim::jaro_winkler(name, known), known));
    match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, known)) if likeness > 0.8 => format!("; did you mean `{known}`?"),
        _ => String::new(),
    }
}
