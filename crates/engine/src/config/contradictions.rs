//! Which settings do not go together, and why?

use super::only_with::{has_margin, is_mixtape, is_mixture, is_mlp};
use super::{AnswerWeight, Choice, Config, Fault, OutputKind};
use crate::output::Meaning;
use crate::score::ScoreKind;

/// What is wrong between settings that are each in their range.
pub(super) fn contradictions(config: &Config) -> Vec<Fault> {
    let faults = [
        uneven_dim_of_encoder(config),
        dim_of_encoder(config),
        single_items_of_encoder(config),
        single_items_of_mixture(config),
        mixture_without_projection(config),
        sigmoid_of_some_answers(config),
        sigmoid_of_shares(config),
        uneven_dim_of_score(config),
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

fn uneven_dim_of_encoder(config: &Config) -> Found {
    let is_wrong = config.encoder.halves() && !config.dim.is_multiple_of(2);
    is_wrong.then(|| ("dim", uneven(config.encoder.name(), config.dim)))
}

fn uneven(part: &str, dim: usize) -> String {
    format!("{part} splits it in two halves; expected an even one, found {dim}")
}

fn dim_of_encoder(config: &Config) -> Found {
    config.encoder.fault(config).map(|what| ("dim", what))
}

fn single_items_of_encoder(config: &Config) -> Found {
    let is_wrong = config.encoder.normalises_batch() && config.batch == 1;
    is_wrong.then(|| ("batch", single_items(config.encoder.name())))
}

fn single_items_of_mixture(config: &Config) -> Found {
    let is_wrong = is_mixture(config) && config.layers > 0 && config.batch == 1;
    is_wrong.then(|| ("batch", single_items("a mixture with layers")))
}

fn single_items(part: &str) -> String {
    format!("batch normalisation needs several items; expected at least 2 for {part}, found 1")
}

fn mixture_without_projection(config: &Config) -> Found {
    let plain = match config.output.meaning() {
        Meaning::Share => "softmax",
        Meaning::Holds => "sigmoid",
    };
    let what = format!(
        "without a projection all components are equal and the mixture is a plain {plain}; expected \
         at least 1 with more than one component, found 0"
    );
    let is_wrong = is_mixture(config) && config.layers == 0 && config.components > 1;
    is_wrong.then_some(("layers", what))
}

/// Sigmoids of all objects. Known answers are never drawn, so with negatives an item may have some of
/// them alone.
fn asks_all_objects(config: &Config) -> bool {
    config.output.meaning() == Meaning::Holds && config.negatives.is_none()
}

fn sigmoid_of_some_answers(config: &Config) -> Found {
    let most = config.answers_per_item.filter(|_| asks_all_objects(config))?;
    let what = format!(
        "a {} learns that whatever is no answer of its item is wrong, so an item needs all answers of \
         its query; expected none, found {most}",
        config.output.name()
    );
    Some(("answers_per_item", what))
}

fn sigmoid_of_shares(config: &Config) -> Found {
    let what = format!(
        "a {} learns whether each triple holds, and a part of a weight would say that it holds in \
         part; expected `one`, found `share`",
        config.output.name()
    );
    let is_wrong = asks_all_objects(config) && config.answer_weight == AnswerWeight::Share;
    is_wrong.then_some(("answer_weight", what))
}

fn uneven_dim_of_score(config: &Config) -> Found {
    let (score, dim) = (config.score(), config.dim);
    // An encoder that halves has a fault of its own.
    let is_wrong = score.halves() && !config.encoder.halves() && !dim.is_multiple_of(2);
    is_wrong.then(|| ("dim", uneven(score.name(), dim)))
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
    let what = format!(
        "goes by the mean of all object vectors, and {what}; expected 0 with score = \"{}\", found {}",
        config.score().name(),
        config.smoothing
    );
    (config.smoothing > 0.0 && !config.score().is_linear()).then_some(("smoothing", what))
}

fn smoothing_of_few(config: &Config) -> Found {
    let what = format!(
        "spreads weight over all objects, of which only some are scored; expected 0 with negatives, \
         found {}",
        config.smoothing
    );
    (config.smoothing > 0.0 && config.negatives.is_some()).then_some(("smoothing", what))
}

fn margin_from_nothing(config: &Config) -> Found {
    let what = "a margin is kept from drawn entities; expected a number with output = \"margin\", \
                found none";
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
    let found = config.negatives.filter(|_| is_mixture(config))?;
    let output = config.output.name();
    Some(("negatives", format!("{what}; expected none with output = \"{output}\", found {found}")))
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
    let found = config.negatives.filter(|_| scores_itself(config.output))?;
    let output = config.output.name();
    let what = format!(
        "output = \"{output}\" is made for all objects; expected none with it, found {found}"
    );
    Some(("negatives", what))
}

fn mixtape_of_one(config: &Config) -> Found {
    let what =
        "one score has nothing to be mixed with; expected at least 2 with a mixtape, found 1";
    (is_mixtape(config) && config.components == 1).then(|| ("components", what.into()))
}
