//! Which settings mean something only with others?

use toml::Value;

use super::{Config, OutputKind};
use crate::encoder::EncoderKind;
use crate::score::ScoreKind;

/// A setting that only means something with one choice of another.
pub(super) struct OnlyWith {
    pub(super) name: &'static str,
    pub(super) applies: fn(&Config) -> bool,
    pub(super) with: &'static str,
}

/// Settings that decide whether others mean something.
const DECIDING: [&str; 8] =
    ["encoder", "score", "output", "layers", "components", "negatives", "smoothing", "exact"];

impl OnlyWith {
    /// Whether a setting decides, which is so if `with` speaks of it.
    pub(super) fn depends_on(&self, name: &str) -> bool {
        DECIDING.contains(&name) && self.with.contains(name)
    }

    /// What was expected and what was found, of a config with which the setting means nothing.
    pub(super) fn what(&self, config: &Config) -> String {
        // The score that is used, given or not.
        let config = Config { score: Some(config.score()), ..config.clone() };
        let shown = |(name, value): (&str, Option<Value>)| match value {
            Some(value) => format!("{name} = {value}"),
            None => format!("no {name}"),
        };
        let decide = |name| self.depends_on(name) && config.applies(name);
        let found = config.values().into_iter().filter(|(name, _)| decide(name)).map(shown);
        let found = found.collect::<Vec<_>>().join(" and ");
        format!("only means something with {}; found {found}", self.with)
    }
}

pub(super) const ONLY_WITH: &[OnlyWith] = &[
    only_with("relation_dim", has_relation_dim, "encoder = \"tucker\" or \"hyper\""),
    only_with("convolutions", |c| c.encoder == EncoderKind::ConvE, "encoder = \"conve\""),
    only_with("channels", is_convolutional, CONVOLUTIONAL),
    only_with("input_dropout", is_convolutional, CONVOLUTIONAL),
    only_with("feature_dropout", is_convolutional, CONVOLUTIONAL),
    only_with("hidden_dropout", is_convolutional, CONVOLUTIONAL),
    only_with("attention_layers", is_transformer, TRANSFORMER),
    only_with("heads", is_transformer, TRANSFORMER),
    only_with("attention_dropout", is_transformer, TRANSFORMER),
    only_with("members", |c| c.encoder == EncoderKind::Ensemble, "encoder = \"ensemble\""),
    only_with("dropout", |c| c.encoder.drops_query(), "encoders without dropout of their own"),
    only_with("initial_dim", |c| c.encoder.reads_edges(), GRAPH_CONVOLUTION),
    only_with("message_layers", |c| c.encoder.reads_edges(), GRAPH_CONVOLUTION),
    only_with("message_dropout", |c| c.encoder.reads_edges(), GRAPH_CONVOLUTION),
    only_with("composition", |c| c.encoder == EncoderKind::CompGcn, "encoder = \"compgcn\""),
    only_with("bases", |c| c.encoder == EncoderKind::Rgcn, "encoder = \"rgcn\""),
    only_with("hidden", is_mlp, "encoder = \"concatmlp\" or score = \"mlp\""),
    only_with("components", |c| is_mixture(c) || is_mixtape(c), COMPONENTS),
    only_with("layers", is_mixture, MIXTURE),
    only_with("activation", |c| is_mixture(c) && c.layers > 0, LAYERS),
    only_with("projection_dropout", |c| is_mixture(c) && c.layers > 0, LAYERS),
    only_with("entropy_weight", |c| is_mixture(c) && c.components > 1, SEVERAL),
    only_with("pieces", |c| c.output == OutputKind::Monotone, "output = \"monotone\""),
    only_with("gate_dim", is_mixtape, "output = \"mixtape\""),
    only_with("frequencies", |c| c.output == OutputKind::Fourier, "output = \"fourier\""),
    only_with("smoothing", |c| c.output == OutputKind::Softmax, "output = \"softmax\""),
    only_with("sparse_below", Config::is_thinned, THINNED),
    only_with("margin", |c| has_margin(c) || c.is_sigmoid_of_distance(), MARGIN),
    only_with("adversarial", weighs_negatives, ADVERSARIAL),
];
const CONVOLUTIONAL: &str = "encoder = \"conve\" or \"hyper\"";
const TRANSFORMER: &str = "encoder = \"transformer\"";
const GRAPH_CONVOLUTION: &str = "encoder = \"compgcn\" or \"rgcn\"";
const THINNED: &str = "output = \"softmax\", \"mixture\", \"sigmoid\", \
                       \"mixture-of-sigmoids\" or \"fourier\" and score = \"dot\" or \"cosine\", \
                       without negatives, smoothing or exact";
const MARGIN: &str = "output = \"margin\", or sigmoids and a distance as score";
const ADVERSARIAL: &str = "output = \"margin\", or \"sigmoid\" and negatives";
const MIXTURE: &str = "output = \"mixture\" or \"mixture-of-sigmoids\"";
const COMPONENTS: &str = "output = \"mixture\", \"mixture-of-sigmoids\" or \"mixtape\"";
const LAYERS: &str = "output = \"mixture\" or \"mixture-of-sigmoids\", and layers";
const SEVERAL: &str = "output = \"mixture\" or \"mixture-of-sigmoids\", and several components";

const fn only_with(
    name: &'static str,
    applies: fn(&Config) -> bool,
    with: &'static str,
) -> OnlyWith {
    OnlyWith { name, applies, with }
}

fn has_relation_dim(config: &Config) -> bool {
    matches!(config.encoder, EncoderKind::Tucker | EncoderKind::HypEr)
}

fn is_convolutional(config: &Config) -> bool {
    matches!(config.encoder, EncoderKind::ConvE | EncoderKind::HypEr)
}

fn is_transformer(config: &Config) -> bool {
    config.encoder == EncoderKind::Transformer
}

pub(super) fn is_mlp(config: &Config) -> bool {
    config.score() == ScoreKind::Mlp
}

pub(super) fn has_margin(config: &Config) -> bool {
    config.output == OutputKind::Margin
}

pub(super) fn is_mixture(config: &Config) -> bool {
    config.output.is_mixture()
}

fn weighs_negatives(config: &Config) -> bool {
    has_margin(config) || config.output == OutputKind::Sigmoid && config.negatives.is_some()
}

pub(super) fn is_mixtape(config: &Config) -> bool {
    config.output == OutputKind::Mixtape
}
