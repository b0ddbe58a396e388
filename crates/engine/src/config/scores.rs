//! Which scores and which drawn negatives do not go with the other settings, and why?

use super::{Choice, Config, Fault, has_margin, is_mixture};
use crate::output::Meaning;

/// What is wrong between the score, the negatives and everything else.
pub(super) fn contradictions(config: &Config) -> Vec<Fault> {
    let faults = [
        uneven_dim(config),
        score_of_another_encoder(config),
        smoothing_of_distances(config),
        smoothing_of_few(config),
        margin_from_nothing(config),
        mixture_of_few(config),
        sigmoid_of_few(config),
        sigmoid_of_distances(config),
    ];
    let fault = |(name, what): (&str, String)| Fault { name: name.into(), origin: None, what };
    faults.into_iter().flatten().map(fault).collect()
}

type Found = Option<(&'static str, String)>;

fn uneven_dim(config: &Config) -> Found {
    let (score, dim) = (config.score(), config.dim);
    // An encoder that halves has a fault of its own.
    let is_wrong = score.halves() && !config.encoder.halves() && !dim.is_multiple_of(2);
    let what =
        || format!("{} splits it in two halves; expected an even one, found {dim}", score.name());
    is_wrong.then(|| ("dim", what()))
}

fn score_of_another_encoder(config: &Config) -> Found {
    let (encoder, score) = (config.encoder, config.score());
    let names: Vec<&str> = encoder.scores().iter().map(|score| score.name()).collect();
    let what = || {
        format!(
            "{} needs its own: {}; expected {}, found {}",
            encoder.name(),
            encoder.needs_its_score(),
            names.join(" or "),
            score.name()
        )
    };
    (!encoder.scores().contains(&score)).then(|| ("score", what()))
}

fn smoothing_of_distances(config: &Config) -> Found {
    let what = "goes by the mean of all object vectors, and the distance to a mean is not the mean \
                of distances; expected 0 with this score";
    (config.smoothing > 0.0 && config.score().is_distance()).then(|| ("smoothing", what.into()))
}

fn smoothing_of_few(config: &Config) -> Found {
    let what = "spreads weight over all objects, of which only some are scored; expected 0 with \
                negatives";
    (config.smoothing > 0.0 && config.negatives.is_some()).then(|| ("smoothing", what.into()))
}

fn margin_from_nothing(config: &Config) -> Found {
    let what = "a margin is kept from drawn entities; expected a number with output = \"margin\"";
    (has_margin(config) && config.negatives.is_none()).then(|| ("negatives", what.into()))
}

fn mixture_of_few(config: &Config) -> Found {
    let what = "each component of a mixture is normalised over all objects; expected none with \
                output = \"mixture\"";
    (is_mixture(config) && config.negatives.is_some()).then(|| ("negatives", what.into()))
}

fn sigmoid_of_few(config: &Config) -> Found {
    let what = format!("a {} learns from all objects; expected none", config.output.name());
    let is_wrong = config.output.meaning() == Meaning::Holds && !is_mixture(config);
    (is_wrong && config.negatives.is_some()).then_some(("negatives", what))
}

fn sigmoid_of_distances(config: &Config) -> Found {
    let what = "no distance is below zero, so a sigmoid would find no triple more likely than not; \
                expected dot or cosine";
    let is_wrong = config.output.meaning() == Meaning::Holds && config.score().is_distance();
    is_wrong.then(|| ("score", what.into()))
}
