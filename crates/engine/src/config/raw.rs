//! Raw configs: what was given, and everything that is wrong with it.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Value;

use super::listing::{all_settings, owners};
use super::{Choice, Config, EncoderKind, OutputKind, ScoreKind, plain};
use crate::error::Error;
use crate::settings::{Fault, Group, NotAllowed, OptimizerKind, Origin, Range, Refusal, Setting};

/// Settings as they were given, not yet checked.
#[derive(Debug, Clone, Default)]
pub struct RawConfig {
    given: BTreeMap<String, (Value, Origin)>,
}

impl RawConfig {
    /// Adds the settings of a config file's text.
    ///
    /// # Errors
    /// When it is not TOML.
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

    /// The settings of a config file's text, whatever is to be said of the others later.
    ///
    /// # Errors
    /// When it is not TOML.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut given = Self::default();
        given.add_file(Path::new("config"), text)?;
        Ok(given)
    }

    /// Adds one setting, over any given before; `text` is a TOML value, several with commas
    /// between them, or a bare word. `argument` is what the user knows the setting by: the name of an
    /// option, or of an argument.
    pub fn add(&mut self, name: &str, argument: &str, text: &str) {
        let parsed = format!("x = {text}").parse::<toml::Table>();
        let parsed = parsed.or_else(|error| match text.contains(',') {
            true => format!("x = [{text}]").parse(),
            false => Err(error),
        });
        let value = parsed.ok().and_then(|mut table| table.remove("x"));
        let value = value.unwrap_or_else(|| Value::String(text.into()));
        self.given.insert(name.into(), (value, Origin::Argument(argument.into())));
    }

    /// Sets one setting by a value, over any given before.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        let origin = Origin::Argument(format!("`{name}`"));
        self.given.insert(name.into(), (value.into(), origin));
    }

    /// The same, with where the value was given.
    pub(crate) fn put(&mut self, name: &str, value: Value, origin: Origin) {
        self.given.insert(name.into(), (value, origin));
    }

    /// All that was given, and where.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&str, &Value, &Origin)> {
        self.given.iter().map(|(name, (value, origin))| (name.as_str(), value, origin))
    }

    /// Whether a setting was given.
    pub fn gives(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }

    /// The config, or everything that is wrong with it.
    ///
    /// # Errors
    /// With all faults.
    pub fn check(&self) -> Result<Config, Error> {
        let (config, mut faults) = self.read();
        faults.extend(self.meaningless(&config, &faults));
        // What could not be read is at its default, which contradicts nothing.
        let is_read = |refusal: &Refusal| faults.iter().all(|fault| fault.name != refusal.name);
        let refusals: Vec<Fault> =
            config.refusals().into_iter().filter(is_read).map(Fault::from).collect();
        faults.extend(refusals);
        if faults.is_empty() { Ok(config) } else { Err(Error::Config { faults }) }
    }

    /// The config that was written to a run folder, by this version or one before: what was allowed to
    /// train once can be opened for ever.
    pub(crate) fn check_written(&self) -> Result<Config, Error> {
        let (config, faults) = self.read();
        if faults.is_empty() { Ok(config) } else { Err(Error::Config { faults }) }
    }

    /// What is wrong with settings by themselves, whatever the others are.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.read().1
    }

    /// The same without settings that mean nothing with the others.
    pub(crate) fn without_meaningless(&self) -> Self {
        let mut kept = self.clone();
        loop {
            let (config, faults) = kept.read();
            let lost = kept.meaningless(&config, &faults);
            if lost.is_empty() {
                return kept;
            }
            for Fault { name, .. } in lost {
                kept.given.remove(&name);
            }
        }
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
        let shown = |value: Option<Value>| value.map_or("not set".into(), |value| shown(&value));
        // As the config itself would read it: `0` is `0.0`, and a number a list of one.
        let found = |name: &str, given: &Value| {
            let mut config = own.clone();
            match config.set(name, given) {
                Some(Ok(())) => config.raw_value(name),
                _ => asked.value(name).or_else(|| Some(given.clone())),
            }
        };
        let known = all_settings().iter().map(|setting| setting.name);
        Ok(known
            .filter(|name| self.gives(name))
            .map(|name| {
                let given = self.given.get(name).map(|(value, _)| value);
                (name, own.value(name), given.and_then(|given| found(name, given)))
            })
            .filter(|(_, own, asked)| own != asked)
            .map(|(name, own, asked)| format!("{name} is {}, not {}", shown(own), shown(asked)))
            .collect())
    }

    /// Each setting for itself, and what is wrong with it.
    fn read(&self) -> (Config, Vec<Fault>) {
        let mut faults = self.unknown();
        let encoder = self.choice::<EncoderKind>("encoder", &mut faults);
        let score = self.choice::<ScoreKind>("score", &mut faults);
        let output = self.choice::<OutputKind>("output", &mut faults);
        let mut config = Config::of(
            encoder.unwrap_or(EncoderKind::DistMult),
            score,
            output.unwrap_or(OutputKind::Softmax),
        );
        // In the order of config files.
        for info in all_settings() {
            let Some((value, origin)) = self.given.get(info.name) else { continue };
            if let Some(Err(NotAllowed { expected })) = config.set(info.name, value) {
                let what = format!("expected {expected}, found {}", found(value, origin));
                let (name, origin) = (info.name.into(), Some(origin.clone()));
                faults.push(Fault { name, origin, what });
            }
        }
        let training = &mut config.training;
        if training.optimizer == OptimizerKind::Adagrad && !self.gives("learning_rate") {
            training.learning_rate = ADAGRAD_RATE;
        }
        (config, faults)
    }

    fn unknown(&self) -> Vec<Fault> {
        let is_unknown = |name: &str| all_settings().iter().all(|setting| setting.name != name);
        self.given
            .iter()
            .filter(|(name, _)| is_unknown(name))
            .map(|(name, (_, origin))| Fault {
                name: name.clone(),
                origin: Some(origin.clone()),
                what: format!("there is no such setting{}", closest(name)),
            })
            .collect()
    }

    /// Which part was chosen, if that was given and can be read.
    fn choice<T: Choice>(&self, name: &str, faults: &mut Vec<Fault>) -> Option<T> {
        let (value, origin) = self.given.get(name)?;
        let choice = T::from_value(value, Range::Any);
        if choice.is_none() {
            let expected = T::expected(Range::Any);
            let what = format!("expected {expected}, found {}", found(value, origin));
            faults.push(Fault { name: name.into(), origin: Some(origin.clone()), what });
        }
        choice
    }

    /// Settings given that mean nothing with the others: their part was not chosen, or does not need
    /// them as it is.
    fn meaningless(&self, config: &Config, faults: &[Fault]) -> Vec<Fault> {
        let is_read = |name: &str| faults.iter().all(|fault| fault.name != name);
        let mut found = Vec::new();
        for info in all_settings() {
            let Some((_, origin)) = self.given.get(info.name) else { continue };
            let Some(lack) = Lack::of(info.name, config) else { continue };
            // A choice that could not be read has its own fault.
            if lack.deciding.iter().all(|name| is_read(name)) {
                let (name, origin) = (info.name.into(), Some(origin.clone()));
                found.push(Fault { name, origin, what: lack.what(config) });
            }
        }
        found
    }
}

/// Steps of Adagrad only become shorter, so they start long: as in Lacroix et al. 2018.
const ADAGRAD_RATE: f64 = 0.1;

/// What a setting lacks to mean something.
struct Lack {
    /// What it needs.
    expected: String,
    /// The settings that decide.
    deciding: Vec<&'static str>,
}

impl Lack {
    /// Nothing for a setting that means something.
    fn of(name: &str, config: &Config) -> Option<Self> {
        let owners = owners(name)?;
        let mut deciding = owners.choices();
        let has = |group: &&dyn Group| group.values().iter().any(|(other, _)| *other == name);
        let Some(group) = config.groups().into_iter().find(has) else {
            return Some(Self { expected: owners.expected(&[]), deciding });
        };
        let unmet = group.unmet(name, &config.with())?;
        let chosen = [config.encoder().name(), config.score().name(), config.output().name()];
        let expected = match deciding.is_empty() {
            true => unmet.text.to_owned(),
            false => owners.expected(&chosen),
        };
        deciding.extend(unmet.deciding.iter().filter(|name| !owners.choices().contains(name)));
        Some(Self { expected, deciding })
    }

    /// What was expected and what was found.
    fn what(&self, config: &Config) -> String {
        let shown = |name: &&'static str| match config.value(name) {
            Some(Value::Boolean(false)) => None,
            Some(value) => Some(format!("{name} = {value}")),
            None => Some(format!("no {name}")),
        };
        let found: Vec<String> = self.deciding.iter().filter_map(shown).collect();
        format!("only means something with {}; found {}", self.expected, found.join(" and "))
    }
}

impl From<Refusal> for Fault {
    fn from(Refusal { name, what }: Refusal) -> Self {
        Self { name: name.into(), origin: None, what }
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
    let known = all_settings().iter().map(|setting| setting.name);
    let near = known.map(|known| (strsim::jaro_winkler(name, known), known));
    match near.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((likeness, known)) if likeness > 0.8 => format!("; did you mean `{known}`?"),
        _ => String::new(),
    }
}
