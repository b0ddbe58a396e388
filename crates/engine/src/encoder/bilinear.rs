//! Bilinear encoders: what follows from a score sᵀ·W_r·o that is linear in subject, relation and
//! object, each by itself?
//!
//! DURA weighs what subject and object become with the relation, and a relation can be predicted from
//! both of them. How a subject, a relation and an object are scored is in the file of each encoder.

use std::sync::Arc;

use burn::tensor::Tensor;

use super::{EncoderFacts, EncoderKind};
use crate::settings::{Choice, Refusal, With};

/// What DURA weighs of an encoder whose score is sᵀ·W_r·o (Zhang et al. 2020).
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bilinear {
    /// Weight of |s|² + |o|².
    pub(crate) alone: f64,
    /// Weight of |sᵀ·W_r|² + |W_r·o|².
    pub(crate) with_relation: f64,
}

impl Bilinear {
    /// Of relations that are vectors: as DURA's authors weigh CP and ComplEx.
    pub(crate) const VECTORS: Option<Self> = Some(Self { alone: 0.5, with_relation: 1.5 });
    /// Of relations that are matrices: as they weigh RESCAL.
    pub(crate) const MATRICES: Option<Self> = Some(Self { alone: 1.0, with_relation: 1.0 });
}

/// Answers by themselves: the row of each one's subject, its relation, and its row as an object.
#[derive(Debug, Clone)]
pub(crate) struct Pairs {
    pub(crate) subjects: Tensor<2>,
    pub(crate) relations: Arc<[u32]>,
    pub(crate) objects: Tensor<2>,
}

/// What a score is as a dot product with something of the relation: `contexts` `[N, …]`, one a pair,
/// against all `relations` `[R, …]`.
#[derive(Debug)]
pub(crate) struct RelationScores {
    pub(crate) contexts: Tensor<2>,
    pub(crate) relations: Tensor<2>,
}

/// a·bᵀ of two rows, flattened, for every pair of them: `[N, D]` and `[N, F]` → `[N, D·F]`.
pub(crate) fn outer(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    let ([n, rows], [_, columns]) = (a.dims(), b.dims());
    let products = a.reshape([n, rows, 1]) * b.reshape([n, 1, columns]);
    products.reshape([n, rows * columns])
}

/// What goes by a score that is linear in subject, relation and object.
pub(super) fn refusals(encoder: &str, facts: &EncoderFacts, with: &With) -> Vec<Refusal> {
    let score = with.score.name;
    let found = match facts.bilinear {
        None => format!("encoder = \"{encoder}\""),
        Some(_) if score != "dot" => format!("score = \"{score}\""),
        Some(_) => return Vec::new(),
    };
    let all = EncoderKind::ALL.iter().filter(|kind| kind.facts().bilinear.is_some());
    let names = all.map(|kind| kind.name()).collect::<Vec<_>>().join(", ");
    let training = with.training;
    let refusal = |(name, value)| {
        let what = format!(
            "goes by a dot product that is linear in subject, relation and object; expected 0 but \
             for {names}, found {value} with {found}"
        );
        Refusal::new(name, what)
    };
    [("dura", training.dura), ("relation_weight", training.relation_weight)]
        .into_iter()
        .filter(|(_, value)| *value > 0.0)
        .map(refusal)
        .collect()
}
