//! Kinds of probability: what does one of a model say?

use serde::Serialize;

/// What a probability of a model says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ProbabilityKind {
    /// The share of this object among the answers of the query: those of all objects sum to one.
    #[serde(rename = "share")]
    Categorical,
    /// That the triple holds, whatever else does.
    #[serde(rename = "holds")]
    Bernoulli,
}
