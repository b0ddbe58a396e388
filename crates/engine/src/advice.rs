//! Advice: which settings suit a graph, where nobody has said?
//!
//! An output layer by the number of training facts per entity, sizes that the output layer can have
//! over so few entities, and a batch that gives a small graph enough updates.

use fullrank_bounds::{Advice, DENSE, advise, facts_per_entity};
use fullrank_graph::Graph;

use crate::config::{Config, RawConfig};
use crate::error::Error;
use crate::output::OutputKind;
use crate::settings::{Choice, Fault, plain};
use crate::trainer::advised_batch;

/// The output layers that are chosen from.
const CHOICES: [OutputKind; 2] = [OutputKind::Softmax, OutputKind::Mixture];

/// Settings that suit a graph, and what was chosen for it.
#[derive(Debug, Clone)]
pub struct Advised {
    /// The settings given, and those that were chosen.
    pub settings: RawConfig,
    /// What was chosen, and why.
    pub chosen: Vec<Chosen>,
}

/// A setting that was chosen for a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The setting.
    pub name: &'static str,
    /// What it was set to.
    pub value: String,
    /// Why.
    pub reason: String,
}

impl Config {
    /// The config that suits a graph, with everything else at its default.
    ///
    /// # Errors
    /// When there is nothing to learn from.
    pub fn advised(graph: &Graph) -> Result<Self, Error> {
        RawConfig::default().advised(graph)?.settings.check()
    }
}

impl RawConfig {
    /// These settings, with an output layer, its sizes and a batch that suit the graph where they are not
    /// given.
    ///
    /// # Errors
    /// With everything that is wrong with the settings, or when there is nothing to learn from.
    pub fn advised(&self, graph: &Graph) -> Result<Advised, Error> {
        let mut advised = Advised { settings: self.clone(), chosen: Vec::new() };
        if !self.gives("output") {
            let (output, reason) = self.advised_output(graph)?;
            advised.choose("output", output.name().into(), reason);
        }
        let config = advised.settings.check()?;
        if let Some((name, value)) = config.output.advice(&config.with(), graph.entities().len())
            && !self.gives(name)
        {
            advised.choose(name, plain(&value), "half of the entities".into());
        }
        if !self.gives("batch") {
            let batch = advised_batch(graph, &config)?;
            if batch != config.training.batch {
                let reason = "for enough updates an epoch".into();
                advised.choose("batch", batch.to_string(), reason);
            }
        }
        Ok(advised)
    }

    /// The output layers, of those that are chosen from, that go with these settings; the one that is
    /// given, if there is one.
    ///
    /// # Errors
    /// When there is none, with everything that is wrong with the settings.
    pub fn possible_outputs(&self) -> Result<Vec<OutputKind>, Error> {
        if self.gives("output") {
            return Ok(vec![self.check()?.output()]);
        }
        let goes = |output: &OutputKind| self.with_output(*output).check().is_ok();
        let possible: Vec<OutputKind> = CHOICES.into_iter().filter(goes).collect();
        if possible.is_empty() {
            self.check()?;
        }
        Ok(possible)
    }

    fn advised_output(&self, graph: &Graph) -> Result<(OutputKind, String), Error> {
        if let [only] = self.possible_outputs()?[..] {
            return Ok((only, self.why_only(only)));
        }
        let config = self.check()?;
        let score = config.with().score;
        Ok(match score.is_linear {
            true => advised_output(graph, config.model.dim),
            false => {
                (OutputKind::Softmax, format!("scores of {} are not limited by d", score.name))
            }
        })
    }

    /// The settings given that refuse the other choice.
    fn why_only(&self, only: OutputKind) -> String {
        let others = CHOICES.into_iter().filter(|other| *other != only);
        let reasons = others.filter_map(|other| {
            let Err(Error::Config { faults }) = self.with_output(other).check() else {
                return None;
            };
            let mut names: Vec<String> = faults.iter().map(|fault| self.decided(fault)).collect();
            names.dedup();
            Some(format!("{} does not go with {}", other.name(), names.join(", ")))
        });
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// The setting given to which a fault is due.
    fn decided(&self, fault: &Fault) -> String {
        let name = match fault.name.as_str() {
            // The output layer, which was not given, is at fault where there is a score of its own.
            "output" if self.gives("score") => "score",
            "output" => "encoder",
            name => name,
        };
        format!("`{name}`")
    }

    fn with_output(&self, output: OutputKind) -> Self {
        let mut settings = self.clone();
        settings.set("output", output.name());
        settings
    }
}

impl Advised {
    fn choose(&mut self, name: &'static str, value: String, reason: String) {
        self.settings.add(name, &format!("`{name}`"), &value);
        self.chosen.push(Chosen { name, value, reason });
    }
}

/// The output layer that is advised at a dimension, and why.
pub fn advised_output(graph: &Graph, dim: usize) -> (OutputKind, String) {
    let advice = advise(graph, dim);
    if advice == Advice::Wide {
        return (OutputKind::Softmax, format!("d = {dim} is enough for any ranking"));
    }
    let facts = format!("{:.1} training facts per entity", facts_per_entity(graph));
    match advice {
        Advice::Dense => {
            (OutputKind::Mixture, format!("{facts}; below {DENSE} a softmax is advised"))
        }
        Advice::Wide | Advice::Sparse => {
            (OutputKind::Softmax, format!("{facts}; from {DENSE} on a mixture is advised"))
        }
    }
}
