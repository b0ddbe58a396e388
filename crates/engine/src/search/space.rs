//! Spaces: which values may settings have, and which ones does a trial get?
//!
//! A space is a config file in which a setting may have a range instead of a value. Ranges that go
//! together, such as a learning rate and its optimizer, stand in recipes, which trials take in turn.
//! Settings of a trial come from the seed and the number of the trial alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fullrank_graph::Graph;
use rand::{Rng, RngExt};
use toml::Value;

use crate::config::{Config, RawConfig, all_settings, takes};
use crate::error::Error;
use crate::output::OutputKind;
use crate::random::{Purpose, generator};
use crate::settings::{Choice, Fault, Origin};

/// What a table of a space is called that is one of several.
const RECIPE: &str = "recipe";
/// How often a trial is drawn anew, for each recipe, if its settings do not go together or were drawn
/// before.
const ATTEMPTS: usize = 100;

/// The values that settings may have.
#[derive(Debug, Clone, PartialEq)]
pub struct Space {
    /// For messages.
    path: PathBuf,
    /// Of every trial.
    common: Settings,
    /// Over these, those of one recipe.
    recipes: Vec<Settings>,
}

type Settings = BTreeMap<String, Values>;

/// The values of one setting.
#[derive(Debug, Clone, PartialEq)]
enum Values {
    Fixed(Value),
    Choice(Vec<Value>),
    Between { scale: Scale, low: f64, high: f64, is_whole: bool },
}

/// How numbers of a range are spread.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    Linear,
    Log,
}

impl Space {
    /// A space from the text of its file.
    ///
    /// # Errors
    /// When it is not TOML, with everything that is wrong with its settings by themselves, or with
    /// settings that mean nothing in any trial.
    pub fn parse(path: &Path, text: &str) -> Result<Self, Error> {
        let table: toml::Table = text.parse().map_err(|source| Error::ConfigSyntax {
            path: path.into(),
            source: Box::new(source),
        })?;
        let mut faults = Faults { path, found: Vec::new() };
        let mut space = Self { path: path.into(), common: Settings::new(), recipes: Vec::new() };
        for (name, value) in &table {
            match (name.as_str(), value) {
                (RECIPE, Value::Array(recipes)) if recipes.iter().all(Value::is_table) => {
                    let tables = recipes.iter().filter_map(Value::as_table).enumerate();
                    space.recipes =
                        tables.map(|(i, table)| faults.settings(table, Some(i + 1))).collect();
                }
                (RECIPE, _) => {
                    let found = format!("found `{value}`");
                    faults.add(
                        RECIPE,
                        format!("expected tables that begin with [[recipe]], {found}"),
                    );
                }
                _ => faults.setting(&mut space.common, None, (name, value)),
            }
        }
        if faults.found.is_empty() {
            faults.found = space.meaningless(|_| true);
        }
        match faults.found.is_empty() {
            true => Ok(space),
            false => Err(Error::Config { faults: faults.found }),
        }
    }

    /// Fixes settings, whatever values the space gives them.
    ///
    /// # Errors
    /// With everything that is wrong with these settings by themselves, or those that mean nothing in
    /// any trial.
    pub fn fix(&mut self, given: &RawConfig) -> Result<(), Error> {
        let mut faults = given.faults();
        if faults.is_empty() {
            for (name, value, _) in given.values() {
                self.recipes.iter_mut().for_each(|recipe| drop(recipe.remove(name)));
                self.common.insert(name.into(), Values::Fixed(value.clone()));
            }
            faults = self.meaningless(|name| given.gives(name));
            for fault in &mut faults {
                let found = given.values().find(|(name, ..)| *name == fault.name);
                fault.origin = found.map(|(_, _, origin)| origin.clone());
            }
        }
        if faults.is_empty() { Ok(()) } else { Err(Error::Config { faults }) }
    }

    /// The space as the text of a file.
    pub fn to_toml(&self) -> String {
        let table = |settings: &Settings| -> toml::Table {
            settings.iter().map(|(name, values)| (name.clone(), values.to_value())).collect()
        };
        // Tables of a TOML file come after all else.
        let lines = |table: toml::Table| -> String {
            table.into_iter().map(|(name, value)| format!("{name} = {value}\n")).collect()
        };
        let recipes =
            self.recipes.iter().map(|recipe| format!("\n[[{RECIPE}]]\n{}", lines(table(recipe))));
        lines(table(&self.common)) + &recipes.collect::<String>()
    }

    /// Whether another space gives the same trials.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.common, &self.recipes) == (&other.common, &other.recipes)
    }

    /// The seed that is fixed, of trials and of what they are; 0 if there is none.
    pub fn seed(&self) -> u64 {
        match self.common.get("seed") {
            Some(Values::Fixed(Value::Integer(seed))) => seed.unsigned_abs(),
            _ => 0,
        }
    }

    /// Settings that trials can have differently, in the order of config files.
    pub fn varied(&self) -> Vec<&'static str> {
        let varies = |name: &str| {
            let of_common = self.common.get(name).into_iter();
            let mut all = of_common.chain(self.recipes.iter().filter_map(|it| it.get(name)));
            let is_alone =
                self.recipes.len() < 2 || self.recipes.iter().all(|it| !it.contains_key(name));
            !is_alone || all.any(|values| !matches!(values, Values::Fixed(_)))
        };
        all_settings().iter().map(|info| info.name).filter(|name| varies(name)).collect()
    }

    /// The config of a trial, numbered from 1, with what suits the graph where the space is silent;
    /// nothing if all that goes together was drawn in earlier trials.
    ///
    /// Settings that mean nothing with the others are left out.
    pub fn draw(&self, trial: usize, graph: &Graph, earlier: &[Config]) -> Option<Config> {
        let recipes = self.recipes.len().max(1);
        (0..ATTEMPTS * recipes).find_map(|attempt| {
            let recipe = (trial - 1 + attempt) % recipes;
            let config = self.attempt(recipe, (trial, attempt), graph).ok()?;
            (!earlier.contains(&config)).then_some(config)
        })
    }

    /// Recipes, by their number from 1, none of whose settings go together or fit the graph, and why:
    /// their turn goes to the next.
    ///
    /// # Errors
    /// When no trial can be drawn, with what is wrong with the settings.
    pub fn impossible(&self, graph: &Graph) -> Result<Vec<(usize, Error)>, Error> {
        let recipes = self.recipes.len().max(1);
        let mut impossible = Vec::new();
        for recipe in 0..recipes {
            let mut refused = None;
            for attempt in 0..ATTEMPTS {
                refused = match self.attempt(recipe, (1, attempt), graph) {
                    Err(error @ Error::Config { .. }) => Some(error),
                    drawn => drawn.map(|_| None)?,
                };
                if refused.is_none() {
                    break;
                }
            }
            impossible.extend(refused.map(|error| (recipe + 1, error)));
        }
        match impossible.len() == recipes {
            true => Err(impossible.remove(0).1),
            false => Ok(impossible),
        }
    }

    /// A config, or why it is none.
    fn attempt(&self, recipe: usize, of: (usize, usize), graph: &Graph) -> Result<Config, Error> {
        let mut given = self.given(recipe, of);
        if !given.gives("output") {
            let advised = given.without_meaningless().advised(graph)?;
            given.set("output", advised.settings.check()?.output().name());
        }
        let config = given.without_meaningless().advised(graph)?.settings.check()?;
        config.check_fit(graph)?;
        Ok(config)
    }

    /// Settings as they are drawn, whether they go together or not.
    fn given(&self, recipe: usize, (trial, attempt): (usize, usize)) -> RawConfig {
        let mut rng = generator(self.seed(), Purpose::Search, (trial as u64, attempt as u64));
        let mut settings = self.common.clone();
        settings.extend(self.recipes.get(recipe).cloned().unwrap_or_default());
        let mut given = RawConfig::default();
        for (name, values) in settings {
            given.put(&name, values.draw(&mut rng), Origin::File(self.path.clone()));
        }
        given
    }

    /// Settings, of those that are asked for, that never mean anything, as far as many trials tell.
    fn meaningless(&self, is_asked: impl Fn(&str) -> bool) -> Vec<Fault> {
        const TRIALS: usize = 256;
        let is_named = |name: &str| {
            self.recipes.iter().chain([&self.common]).any(|settings| settings.contains_key(name))
        };
        let mut unused: Vec<&str> = all_settings().iter().map(|info| info.name).collect();
        unused.retain(|name| is_named(name) && is_asked(name));
        for (trial, recipe) in
            (1..=TRIALS).flat_map(|trial| (0..self.recipes.len().max(1)).map(move |it| (trial, it)))
        {
            let given = self.given(recipe, (trial, 0));
            // Any output layer might be advised.
            let with_output = |output: &OutputKind| {
                let mut given = given.clone();
                given.set("output", output.name());
                given
            };
            let possible = match given.gives("output") {
                true => vec![given],
                false => OutputKind::ALL.iter().map(with_output).collect(),
            };
            for given in possible {
                let given = given.without_meaningless();
                unused.retain(|name| !given.gives(name));
            }
            if unused.is_empty() {
                break;
            }
        }
        let what = "means nothing with any of the settings that trials can have";
        let mut faults = Faults { path: &self.path, found: Vec::new() };
        unused.into_iter().for_each(|name| faults.add(name, what.into()));
        faults.found
    }
}

impl Values {
    /// The values that stand in a file, or what is wrong with them.
    fn read(name: &str, value: &Value) -> Result<Self, String> {
        let Value::Table(table) = value else {
            return allowed(name, value).map(|()| Self::Fixed(value.clone()));
        };
        let entry = table.iter().next().filter(|_| table.len() == 1);
        match entry.map(|(kind, values)| (kind.as_str(), values)) {
            Some(("choice", Value::Array(values))) if !values.is_empty() => {
                values.iter().try_for_each(|value| allowed(name, value))?;
                Ok(Self::Choice(values.clone()))
            }
            Some(("linear", ends)) => Self::between(name, Scale::Linear, ends),
            Some(("log", ends)) => Self::between(name, Scale::Log, ends),
            _ => Err(format!(
                "expected a value, {{ log = [low, high] }}, {{ linear = [low, high] }} or \
                 {{ choice = [value, …] }}, found `{value}`"
            )),
        }
    }

    fn between(name: &str, scale: Scale, ends: &Value) -> Result<Self, String> {
        let number = |value: &Value| value.as_float().or(value.as_integer().map(|it| it as f64));
        let numbers: Option<Vec<f64>> =
            ends.as_array().and_then(|ends| ends.iter().map(number).collect());
        let (low, high) = match numbers.as_deref() {
            Some([low, high]) if low < high && (scale == Scale::Linear || *low > 0.0) => {
                (*low, *high)
            }
            _ => {
                let above = if scale == Scale::Log { " above 0" } else { "" };
                return Err(format!(
                    "expected two numbers{above}, the lower one first, found `{ends}`"
                ));
            }
        };
        let is_taken = |value: Value| takes(name, &value);
        let is_whole = ![low, high].map(Value::Float).into_iter().all(is_taken);
        if is_whole {
            for end in [low, high] {
                let is_integer = end.fract() == 0.0;
                allowed(name, &if is_integer { Value::Integer(end as i64) } else { end.into() })?;
            }
        }
        Ok(Self::Between { scale, low, high, is_whole })
    }

    fn to_value(&self) -> Value {
        let table = |kind: &str, values: Vec<Value>| {
            Value::Table([(kind.to_owned(), Value::Array(values))].into_iter().collect())
        };
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Choice(values) => table("choice", values.clone()),
            Self::Between { scale, low, high, is_whole } => {
                let kind = if *scale == Scale::Log { "log" } else { "linear" };
                let end = |end: f64| if *is_whole { Value::from(end as i64) } else { end.into() };
                table(kind, vec![end(*low), end(*high)])
            }
        }
    }

    fn draw(&self, rng: &mut impl Rng) -> Value {
        match self {
            Self::Fixed(value) => value.clone(),
            Self::Choice(values) => values[rng.random_range(0..values.len())].clone(),
            Self::Between { scale, low, high, is_whole } => {
                let share: f64 = rng.random();
                let number = match scale {
                    Scale::Linear => low + share * (high - low),
                    Scale::Log => low * (high / low).powf(share),
                };
                match is_whole {
                    true => Value::Integer(number.round() as i64),
                    false => Value::Float(readable(number).clamp(*low, *high)),
                }
            }
        }
    }
}

/// Four digits of a number: more make no difference, and nobody reads them.
fn readable(number: f64) -> f64 {
    format!("{number:.3e}").parse().expect("a number was written")
}

fn allowed(name: &str, value: &Value) -> Result<(), String> {
    if takes(name, value) {
        return Ok(());
    }
    let info = all_settings().iter().find(|info| info.name == name);
    let expected = info.map_or_else(String::new, |info| (info.expected)());
    Err(format!("expected {expected}, found `{value}`"))
}

/// What is wrong with the settings of a file.
struct Faults<'a> {
    path: &'a Path,
    found: Vec<Fault>,
}

impl Faults<'_> {
    fn add(&mut self, name: &str, what: String) {
        let origin = Some(Origin::File(self.path.into()));
        self.found.push(Fault { name: name.into(), origin, what });
    }

    fn settings(&mut self, table: &toml::Table, recipe: Option<usize>) -> Settings {
        let mut settings = Settings::new();
        for setting in table {
            self.setting(&mut settings, recipe, setting);
        }
        settings
    }

    fn setting(
        &mut self,
        settings: &mut Settings,
        recipe: Option<usize>,
        (name, value): (&String, &Value),
    ) {
        if all_settings().iter().all(|info| info.name != name) {
            let mut unknown = RawConfig::default();
            unknown.put(name, value.clone(), Origin::File(self.path.into()));
            self.found.extend(unknown.faults());
            return;
        }
        match Values::read(name, value) {
            Ok(values) => drop(settings.insert(name.clone(), values)),
            Err(what) => {
                let place = recipe.map_or(String::new(), |n| format!("in recipe {n}, "));
                self.add(name, place + &what);
            }
        }
    }
}
