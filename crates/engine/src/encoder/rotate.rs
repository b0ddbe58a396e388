//! RotatE: score = −Σ |s·e^{iθ} − o| over complex vectors (Sun et al. 2019).

use std::f64::consts::PI;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{
    Encode, Encoded, EncoderFacts, Pass, Queries, QueryDropout, Table, halves, moduli, rows, table,
};
use crate::part::{Build, Formula, Limit};
use crate::random::{Noise, Weights};
use crate::score::ScoreKind;

/// h = s·e^{iθ}: every relation turns every coordinate by an angle of its own. Real parts of
/// entities are in the left half of a vector and imaginary parts in the right.
#[derive(Module, Debug)]
pub(crate) struct RotatE {
    entity: Table,
    /// θ, `[R, D/2]`, in radians.
    relation: Table,
}

impl Encode for RotatE {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        halves: true,
        scores: &[ScoreKind::Modulus],
        needs_its_score: "its query vector, the subject turned, is a complex point that answers are to be near",
        ..EncoderFacts::new(Formula::new(
            "−Σ |s·e^{iθ_r} − o|, complex numbers",
            "(E + R)·d",
            Limit::Entities,
        ))
    };

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        build.entities() * build.dim() + build.relations() * (build.dim() / 2)
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        Self {
            entity: table(build.entities(), build.dim(), weights),
            relation: Param::from_tensor(
                weights.vectors_within([build.relations(), build.dim() / 2], PI),
            ),
        }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let phase = rows(&self.relation, &queries.relations);
        let (re, im) = halves(subject.clone());
        let (cos, sin) = (phase.clone().cos(), phase.sin());
        let turned_re = re.clone() * cos.clone() - im.clone() * sin.clone();
        let turned_im = re * sin + im * cos;
        Encoded {
            query: Tensor::cat(vec![turned_re, turned_im], 1),
            // The modulus of e^{iθ} is one: there is nothing to keep small.
            factors: vec![subject],
        }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }

    fn magnitudes(vectors: Tensor<2>) -> Tensor<2> {
        moduli(vectors)
    }
}
