//! Clock: how long does an update take on this machine?
//!
//! A small update of each kind of model is timed on random data, and scaled by what a large one
//! computes. Adam's part goes by the number of parameters, the rest by operations.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use fullrank_engine::bench::{GraphSize, StepBench, StepWork};
use fullrank_engine::settings::Choice;
use fullrank_engine::{Config, RawConfig};

use crate::memory::check_memory;

/// Entities and relations of small updates.
const SMALL: GraphSize = GraphSize { entities: 4096, relations: 2, facts: 0 };

/// What was measured so far.
#[derive(Debug)]
pub(super) struct Clock {
    /// Seconds of an update for each learned number.
    per_parameter: f64,
    /// By kind of model: seconds of a small update without Adam's part, and its operations.
    measured: BTreeMap<String, (f64, f64)>,
}

impl Clock {
    pub(super) fn new() -> anyhow::Result<Self> {
        // Two queries of many entities: next to all of it is Adam's.
        let config = Config::parse("encoder = \"distmult\"\ndim = 64\nbatch = 2\nexact = true")?;
        let size = GraphSize { entities: 100_000, ..SMALL };
        let parameters = StepWork::of(&config, size).parameters as f64;
        Ok(Self { per_parameter: fastest(&config, size) / parameters, measured: BTreeMap::new() })
    }

    /// How many kinds of models were timed.
    pub(super) fn n_measured(&self) -> usize {
        self.measured.len()
    }

    /// Seconds of an update on a graph of this size.
    pub(super) fn seconds(&mut self, config: &Config, size: GraphSize) -> anyhow::Result<f64> {
        let small = small(config)?;
        let kind = kind(&small);
        let (seconds, flops) = match self.measured.get(&kind) {
            Some(found) => *found,
            None => {
                let found = self.measure(&small)?;
                self.measured.insert(kind, found);
                found
            }
        };
        let work = StepWork::of(config, size);
        Ok(seconds * work.flops / flops + self.per_parameter * work.parameters as f64)
    }

    fn measure(&self, config: &Config) -> anyhow::Result<(f64, f64)> {
        let size = GraphSize::of_bench(SMALL.entities, SMALL.relations);
        check_memory(StepBench::forecast(config, size.entities, 2 * size.relations))?;
        let (seconds, work) = (fastest(config, size), StepWork::of(config, size));
        let of_adam = self.per_parameter * work.parameters as f64;
        // What is measured is never all Adam's, however the machine wavers.
        Ok(((seconds - of_adam).max(0.1 * seconds), work.flops))
    }
}

/// A config whose updates are short, and whose speed is that of the other.
fn small(config: &Config) -> anyhow::Result<Config> {
    let mut raw = RawConfig::default();
    raw.add_file(Path::new("config"), &config.to_toml())?;
    raw.set("dim", config.dim().min(1000) as i64);
    let components = number(config, "components").unwrap_or(1);
    // As many rows as a tile has anyway: of queries, or of their components.
    raw.set("batch", if components > 1 { 64 } else { 256 });
    if components > 1 {
        raw.set("components", 4);
    }
    Ok(raw.check()?)
}

/// What updates must have in common to be timed as one.
fn kind(config: &Config) -> String {
    let parts = [config.encoder().name(), config.score().name(), config.output().name()];
    format!("{parts:?} {} {:?}", config.dim(), number(config, "components"))
}

fn number(config: &Config, name: &str) -> Option<i64> {
    config.value(name)?.as_integer()
}

/// Seconds of the fastest of three updates, after one that makes room: what else runs only makes them slower.
fn fastest(config: &Config, size: GraphSize) -> f64 {
    let mut bench = StepBench::new(config, size.entities, 2 * size.relations, 1);
    bench.step();
    let steps = [(); 3].map(|()| {
        let start = Instant::now();
        bench.step();
        start.elapsed().as_secs_f64()
    });
    steps.into_iter().fold(f64::INFINITY, f64::min)
}
