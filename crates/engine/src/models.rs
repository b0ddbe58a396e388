//! The catalogue of models: which are there, what does each cost, and how much can it express?
//!
//! A model is an encoder, a score and an output layer. The lists are those that configs choose from,
//! so none can be forgotten; each kind brings its own formula.
//! What a graph demands of them is the business of `fullrank_bounds`.

use serde::Serialize;

use crate::config::Config;
use crate::encoder::EncoderKind;
use crate::output::OutputKind;
use crate::part::{Domain, Formula};
use crate::score::ScoreKind;
use crate::settings::Choice;

/// A graph and a dimension, as far as they matter for the size of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Sizes {
    /// E.
    pub entities: usize,
    /// R, inverse relations not counted.
    pub relations: usize,
    /// d.
    pub dim: usize,
}

/// All parts that models are made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Catalogue {
    /// What makes a query vector of subject and relation.
    pub encoders: Vec<Part>,
    /// What makes a number of a query vector and an object vector.
    pub scores: Vec<Part>,
    /// What makes probabilities of the scores.
    pub outputs: Vec<Part>,
    /// Families that are not here, each with the reason.
    pub out_of_scope: Vec<Absent>,
}

/// One encoder, score or output layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Part {
    /// As in configs.
    pub name: &'static str,
    /// What it computes.
    pub formula: &'static str,
    /// How many numbers it learns.
    pub parameters: &'static str,
    /// The largest matrix rank of what it gives.
    pub bottleneck: &'static str,
    /// Both as numbers; nothing without sizes, or where `dim` does not fit.
    #[serde(flatten)]
    pub at: Option<PartSize>,
}

/// The size of a part for a given graph and dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PartSize {
    /// Learned numbers, with all other settings at their defaults.
    pub n_parameters: usize,
    /// The largest matrix rank of what it gives.
    pub max_matrix_rank: usize,
}

/// A family of models that fullrank does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// The family, with examples.
    pub family: &'static str,
    /// Why it is not here.
    pub reason: &'static str,
}

const OUT_OF_SCOPE: &[Absent] = &[
    Absent {
        family: "region-based: BoxE, ConE, Query2Box",
        reason: "an answer is a point in a region, so there is no linear output layer to widen",
    },
    Absent {
        family: "path-based and rules: NBFNet, AnyBURL, RNNLogic",
        reason: "they score a candidate by the paths to it, without vectors of objects",
    },
    Absent {
        family: "translations beyond TransE and RotatE: TransH, TransR, TransD, HAKE",
        reason: "distances as of these two, which stand for their kind",
    },
];

/// Every part, with numbers if sizes are given.
pub fn catalogue(sizes: Option<Sizes>) -> Catalogue {
    Catalogue {
        encoders: EncoderKind::ALL.iter().map(|kind| encoder(*kind, sizes)).collect(),
        scores: ScoreKind::ALL.iter().map(|kind| score(*kind, sizes)).collect(),
        outputs: OutputKind::ALL.iter().map(|kind| output(*kind, sizes)).collect(),
        out_of_scope: OUT_OF_SCOPE.to_vec(),
    }
}

fn encoder(kind: EncoderKind, sizes: Option<Sizes>) -> Part {
    let config = |sizes: &Sizes| with_dim(Config::of(kind, None, OutputKind::Softmax), sizes);
    let fits = |sizes: &Sizes| {
        let config = config(sizes);
        !config.encoder.refusals(&config.with()).iter().any(|refusal| refusal.name == "dim")
    };
    part(kind.name(), kind.facts().formula, sizes.filter(fits), |sizes| {
        let (config, domain) = (config(&sizes), domain(&sizes));
        let own = config.encoder.n_parameters(config.with(), &domain);
        // With its score, which alone makes it what its formula says.
        own + config.score.n_parameters(config.with(), &domain)
    })
}

fn score(kind: ScoreKind, sizes: Option<Sizes>) -> Part {
    let config = |sizes: &Sizes| {
        with_dim(Config::of(EncoderKind::DistMult, Some(kind), OutputKind::Softmax), sizes)
    };
    let fits = |sizes: &Sizes| !kind.halves() || sizes.dim.is_multiple_of(2);
    part(kind.name(), kind.formula(), sizes.filter(fits), |sizes| {
        let config = config(&sizes);
        config.score.n_parameters(config.with(), &domain(&sizes))
    })
}

fn output(kind: OutputKind, sizes: Option<Sizes>) -> Part {
    part(kind.name(), kind.facts().formula, sizes, |sizes| {
        let config = with_dim(Config::of(EncoderKind::DistMult, None, kind), &sizes);
        config.output.n_parameters(config.with(), &domain(&sizes))
    })
}

fn with_dim(mut config: Config, sizes: &Sizes) -> Config {
    config.model.dim = sizes.dim;
    config
}

fn domain(sizes: &Sizes) -> Domain {
    Domain::without_edges(sizes.entities, 2 * sizes.relations)
}

fn part(
    name: &'static str,
    formula: Formula,
    sizes: Option<Sizes>,
    n_parameters: impl Fn(Sizes) -> usize,
) -> Part {
    let Formula { formula, parameters, limit } = formula;
    let at = sizes.map(|sizes| PartSize {
        n_parameters: n_parameters(sizes),
        max_matrix_rank: limit.at(sizes.dim).unwrap_or(usize::MAX).min(sizes.entities),
    });
    Part { name, formula, parameters, bottleneck: limit.text(), at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(dim: usize) -> Option<Sizes> {
        Some(Sizes { entities: 100, relations: 3, dim })
    }

    #[test]
    fn every_kind_is_in_the_list_with_a_formula() {
        let all = catalogue(None);
        assert_eq!(all.encoders.len(), EncoderKind::ALL.len());
        assert_eq!(all.outputs.len(), OutputKind::ALL.len());
        for part in all.encoders.iter().chain(&all.scores).chain(&all.outputs) {
            assert!(!part.formula.is_empty() && !part.parameters.is_empty(), "{part:?}");
            assert_eq!(part.at, None);
        }
    }

    #[test]
    fn a_dimension_that_does_not_fit_has_no_numbers() {
        let find = |all: Catalogue, name: &str| {
            all.encoders.into_iter().find(|part| part.name == name).unwrap().at
        };
        assert_eq!(find(catalogue(sizes(9)), "complex"), None);
        let at = find(catalogue(sizes(10)), "complex").unwrap();
        assert_eq!((at.n_parameters, at.max_matrix_rank), (106 * 10, 10));
    }

    #[test]
    fn a_model_is_limited_by_its_output_its_score_and_its_bias() {
        for (output, expected) in [
            ("output = \"softmax\"", [Some(9), Some(10)]),
            ("output = \"mixture\"\ncomponents = 4", [None, None]),
            ("output = \"mixture\"\ncomponents = 1", [Some(9), Some(10)]),
            // The offset is a part of any bias.
            ("output = \"sigmoid\"", [Some(9), Some(9)]),
            ("output = \"sigmoid\"\nnegatives = 5", [Some(8), Some(9)]),
            ("output = \"mixture-of-sigmoids\"\ncomponents = 4", [None, None]),
            ("output = \"mixture-of-sigmoids\"\ncomponents = 1", [Some(9), Some(9)]),
            ("output = \"fourier\"", [Some(9), Some(10)]),
        ] {
            let limit = |more: &str| {
                let config = Config::parse(&format!("dim = 8\n{output}\n{more}")).unwrap();
                config.max_matrix_rank()
            };
            assert_eq!([limit(""), limit("bias = true")], expected, "{output}");
            if !output.contains("fourier") {
                assert_eq!(limit("score = \"l1\""), None, "{output}");
            }
        }
        let few = Config::parse("output = \"fourier\"\nfrequencies = 2").unwrap();
        assert_eq!(few.max_matrix_rank(), Some(5));
    }

    #[test]
    fn no_limit_is_above_the_number_of_objects() {
        let all = catalogue(sizes(200));
        for part in all.encoders.iter().chain(&all.scores).chain(&all.outputs) {
            assert_eq!(part.at.unwrap().max_matrix_rank, 100, "{part:?}");
        }
        let limits = catalogue(sizes(8)).outputs;
        let limits: Vec<usize> = limits.iter().map(|p| p.at.unwrap().max_matrix_rank).collect();
        assert_eq!(limits[..2], [9, 100]);
    }
}
