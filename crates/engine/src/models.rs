//! Which models are there, what does each cost, and how much can it express?
//!
//! A model is an encoder, a score and an output layer. The lists are those that configs choose from,
//! so none can be forgotten; each kind brings its own formula.
//! What a graph demands of them is the business of `fullrank_graph::bounds`.

use serde::Serialize;

use crate::config::{Choice, Config, OutputKind};
use crate::encoder::{Domain, EncoderConfig, EncoderKind};
use crate::score::ScoreKind;

/// What a part of a model computes, costs and limits, as people write it.
///
/// E, R and d are entities, relations and `dim`; inverse relations make 2R.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Formula {
    /// For an encoder the score of a triple, for an output layer the probability of an object.
    formula: &'static str,
    parameters: &'static str,
    limit: Limit,
}

/// The largest matrix rank of what a part of a model gives, over all queries and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Scores h·Eᵀ.
    Dim,
    /// Log-probabilities: scores, and the normaliser of each query.
    DimPlusOne,
    /// None but the number of objects.
    Entities,
}

impl Formula {
    pub(crate) const fn new(formula: &'static str, parameters: &'static str, limit: Limit) -> Self {
        Self { formula, parameters, limit }
    }

    /// Of an encoder whose score is linear in the object vector.
    pub(crate) const fn linear(formula: &'static str, parameters: &'static str) -> Self {
        Self::new(formula, parameters, Limit::Dim)
    }
}

impl Limit {
    const fn text(self) -> &'static str {
        match self {
            Self::Dim => "d",
            Self::DimPlusOne => "d + 1",
            Self::Entities => "none",
        }
    }

    fn value(self, sizes: Sizes) -> usize {
        let Sizes { entities, dim, .. } = sizes;
        match self {
            Self::Dim => dim.min(entities),
            Self::DimPlusOne => (dim + 1).min(entities),
            Self::Entities => entities,
        }
    }
}

impl Config {
    /// The largest matrix rank that the log-probabilities of such a model can have over all queries and
    /// objects; of one that says whether each triple holds, its log-odds. Nothing if there is no limit
    /// but the number of objects.
    pub fn max_matrix_rank(&self) -> Option<usize> {
        let limit = match self.output {
            // A mixture of one is a projection, and no mixture.
            OutputKind::Mixture if self.components == 1 => OutputKind::Softmax.formula().limit,
            OutputKind::MixtureOfSigmoids if self.components == 1 => {
                OutputKind::Sigmoid.formula().limit
            }
            output => output.formula().limit,
        };
        let of_output = match limit {
            Limit::Dim => self.dim,
            // Its scores are not those of the object vectors, and there are no more than their width.
            Limit::DimPlusOne if self.output == OutputKind::Fourier => {
                self.scored_dims().0.min(self.dim + 1)
            }
            Limit::DimPlusOne => self.dim + 1,
            Limit::Entities => return None,
        };
        // A bias per object is a row that every query adds.
        self.score().is_linear().then_some(of_output + usize::from(self.bias))
    }
}

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
    let settings = |sizes: &Sizes| Config { encoder: kind, dim: sizes.dim, ..Config::default() };
    let fits = |sizes: &Sizes| {
        let halves = !kind.halves() || sizes.dim.is_multiple_of(2);
        halves && kind.fault(&settings(sizes)).is_none()
    };
    part(kind.name(), kind.formula(), sizes.filter(fits), |sizes| {
        let settings = settings(&sizes);
        let domain = Domain::without_edges(sizes.entities, 2 * sizes.relations);
        let own = kind.n_parameters(&EncoderConfig { domain: &domain, settings: &settings });
        // With its score, which alone makes it what its formula says.
        own + settings.score().n_parameters(&settings)
    })
}

fn score(kind: ScoreKind, sizes: Option<Sizes>) -> Part {
    let fits = |sizes: &Sizes| !kind.halves() || sizes.dim.is_multiple_of(2);
    part(kind.name(), kind.formula(), sizes.filter(fits), |sizes| {
        kind.n_parameters(&Config { score: Some(kind), dim: sizes.dim, ..Config::default() })
    })
}

fn output(kind: OutputKind, sizes: Option<Sizes>) -> Part {
    part(kind.name(), kind.formula(), sizes, |sizes| {
        let settings = Config { output: kind, dim: sizes.dim, ..Config::default() };
        settings.n_output_parameters(sizes.entities)
    })
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
        max_matrix_rank: limit.value(sizes),
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
        use OutputKind::{Fourier, Mixture, MixtureOfSigmoids, Sigmoid, Softmax};
        let limit = |output, components, bias, score| {
            let config = Config { dim: 8, output, components, bias, score, ..Config::default() };
            config.max_matrix_rank()
        };
        for (output, components, expected) in [
            (Softmax, 4, Some(9)),
            (Mixture, 4, None),
            (Mixture, 1, Some(9)),
            (Sigmoid, 4, Some(8)),
            (MixtureOfSigmoids, 4, None),
            (MixtureOfSigmoids, 1, Some(8)),
            (Fourier, 4, Some(9)),
        ] {
            assert_eq!(limit(output, components, false, None), expected, "{output:?}");
            let with_bias = limit(output, components, true, None);
            assert_eq!(with_bias, expected.map(|limit| limit + 1), "{output:?}");
            assert_eq!(limit(output, components, false, Some(ScoreKind::L1)), None, "{output:?}");
        }
        let few = Config { frequencies: Some(2), output: Fourier, ..Config::default() };
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
