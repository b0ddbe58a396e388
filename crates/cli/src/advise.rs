//! Which settings suit the graph, where the user has not said?

use fullrank_engine::config::{Choice, Fault, OutputKind};
use fullrank_engine::{Error, RawConfig, advised_batch, max_frequencies};
use fullrank_graph::Graph;
use fullrank_graph::bounds::{Advice, CROWDED, advise, crowded_share};

use crate::output::{count, say};

/// The output layers that are chosen from.
const CHOICES: [OutputKind; 2] = [OutputKind::Softmax, OutputKind::Mixture];

/// The output layers that go with the settings given; an error if there is none.
pub(crate) fn possible_outputs(given: &RawConfig) -> Result<Vec<OutputKind>, Error> {
    if given.gives("output") {
        return Ok(vec![given.check()?.output]);
    }
    let goes = |output: &OutputKind| with_output(given, *output).check().is_ok();
    let possible: Vec<OutputKind> = CHOICES.into_iter().filter(goes).collect();
    if possible.is_empty() {
        given.check()?;
    }
    Ok(possible)
}

/// The settings given, and an output layer, its frequencies and a batch that suit the graph where they
/// are not.
/// Says what it chose.
pub(crate) fn advised(given: &RawConfig, graph: &Graph) -> Result<RawConfig, Error> {
    let mut settings = given.clone();
    if !given.gives("output") {
        settings = match possible_outputs(given)?[..] {
            [only] => {
                say(&format!("note: {} chosen: {} (--output)", only.name(), why_only(given, only)));
                with_output(given, only)
            }
            _ => {
                let config = given.check()?;
                let (output, reason) = match config.score() {
                    score if score.is_linear() => advised_output(graph, config.dim),
                    score => {
                        let reason = format!("scores of {} are not limited by d", score.name());
                        (OutputKind::Softmax, reason)
                    }
                };
                say(&format!("note: {} chosen: {reason} (--output)", output.name()));
                with_output(given, output)
            }
        };
    }
    let config = settings.check()?;
    let frequencies = max_frequencies(graph);
    if config.output == OutputKind::Fourier
        && !given.gives("frequencies")
        && config.frequencies() > frequencies
    {
        let count = count(frequencies);
        say(&format!("note: {count} frequencies chosen, half of the entities (--frequencies)"));
        settings.add_option("frequencies", &frequencies.to_string());
    }
    if !given.gives("batch") {
        let batch = advised_batch(graph, &config)?;
        if batch != config.batch {
            say(&format!("note: batch {batch} chosen, for enough updates an epoch (--batch)"));
            settings.add_option("batch", &batch.to_string());
        }
    }
    Ok(settings)
}

/// The settings given that refuse the other choice.
fn why_only(given: &RawConfig, only: OutputKind) -> String {
    let others = CHOICES.into_iter().filter(|other| *other != only);
    let reasons = others.filter_map(|other| {
        let Err(Error::Config { faults }) = with_output(given, other).check() else { return None };
        let mut names: Vec<String> = faults.iter().map(|fault| decided(given, fault)).collect();
        names.dedup();
        Some(format!("{} does not go with {}", other.name(), names.join(", ")))
    });
    reasons.collect::<Vec<_>>().join("; ")
}

/// The setting given to which a fault is due.
fn decided(given: &RawConfig, fault: &Fault) -> String {
    let name = match fault.name.as_str() {
        // The output layer, which was not given, is at fault where there is a score of its own.
        "output" if given.gives("score") => "score",
        "output" => "encoder",
        name => name,
    };
    format!("`{name}`")
}

fn with_output(given: &RawConfig, output: OutputKind) -> RawConfig {
    let mut settings = given.clone();
    settings.add_option("output", output.name());
    settings
}

/// The output layer that is advised at a dimension, and why.
pub(crate) fn advised_output(graph: &Graph, dim: usize) -> (OutputKind, String) {
    let advice = advise(graph, dim);
    let d = count(dim);
    if advice == Advice::Wide {
        return (OutputKind::Softmax, format!("d = {d} is enough for any ranking"));
    }
    let (share, limit) = (100.0 * crowded_share(graph, dim), 100.0 * CROWDED);
    let crowd = format!(
        "{share:.0} % of the facts belong to queries with more answers n than d = {d} is sure to tell \
         apart (2n + 1 > d)"
    );
    match advice {
        Advice::Crowded => {
            (OutputKind::Mixture, format!("{crowd}; up to {limit:.0} % a softmax is advised"))
        }
        Advice::Wide | Advice::Sparse => {
            (OutputKind::Softmax, format!("{crowd}; above {limit:.0} % a mixture is advised"))
        }
    }
}
