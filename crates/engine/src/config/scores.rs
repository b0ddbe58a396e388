//! Which scores and which drawn negatives do not go with the other settings, and why?

use super::only_with::{has_margin, is_mixtape, is_mixture, is_mlp};
use super::{Choice, Config, Fault, OutputKind};
use crate::output::Meaning;
use crate::score::ScoreKind;

/// What is wrong between the score, the negatives and everything else.
pub(super) fn contradictions(config: &Config) -> Vec<Fault> {
    let faults = [
        uneven_dim(config),
        score_of_another_encoder(config),
        smoothing_of_nonlinear_scores(config),
        smoothing_of_few(config),
        margin_from_nothing(config),
        mixture_of_mlps(config),
        mixture_of_few(config),
        output_without_dot_product(config),
        output_of_few(config),
        mixtape_of_one(config),
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

fn smoothing_of_nonlinear_scores(config: &Config) -> Found {
    let what = match config.score().is_distance() {
        true => "the distance to a mean is not the mean of distances",
        false => "the score of a mean is not the mean of scores",
    };
    let what =
        format!("goes by the mean of all object vectors, and {what}; expected 0 with this score");
    (config.smoothing > 0.0 && !config.score().is_linear()).then_some(("smoothing", what))
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

fn mixture_of_mlps(config: &Config) -> Found {
    let what = format!(
        "an MLP is not linear in the object vector, so there is no bottleneck for a mixture to break; \
         expected softmax, sigmoid or margin with score = \"mlp\", found {}",
        config.output.name()
    );
    (is_mixture(config) && is_mlp(config)).then_some(("output", what))
}

fn mixture_of_few(config: &Config) -> Found {
    let what = match config.output.meaning() {
        Meaning::Share => "each component of a mixture is normalised over all objects",
        Meaning::Holds => "a mixture of sigmoids is made for all objects",
    };
    let what = || format!("{what}; expected none with output = \"{}\"", config.output.name());
    (is_mixture(config) && config.negatives.is_some()).then(|| ("negatives", what()))
}

/// Output layers that score in a way of their own.
fn scores_itself(output: OutputKind) -> bool {
    use OutputKind::{Fourier, Mixtape, Monotone, Sigsoftmax};
    matches!(output, Sigsoftmax | Monotone | Mixtape | Fourier)
}

fn output_without_dot_product(config: &Config) -> Found {
    let (output, score) = (config.output, config.score());
    // Of vectors of length one, dot products are cosines; what a layer adds to them is not.
    let also_cosine = matches!(output, OutputKind::Sigsoftmax | OutputKind::Monotone);
    let (is_right, expected) = match also_cosine {
        true => (score.is_linear(), "dot or cosine"),
        false => (score == ScoreKind::Dot, "dot"),
    };
    let what = || {
        let (output, score) = (output.name(), score.name());
        format!("output = \"{output}\" is made of dot products; expected {expected}, found {score}")
    };
    (scores_itself(output) && !is_right).then(|| ("score", what()))
}

fn output_of_few(config: &Config) -> Found {
    let what = || {
        let output = config.output.name();
        format!("output = \"{output}\" is made for all objects; expected none with it")
    };
    (scores_itself(config.output) && config.negatives.is_some()).then(|| ("negatives", what()))
}

fn mixtape_of_one(config: &Config) -> Found {
    let what =
        "one score has nothing to be mixed with; expected at least 2 with a mixtape, found 1";
    (is_mixtape(config) && config.components == 1).then(|| ("components", what.into()))
}
