//! ConcatMLP: score = MLP([s; r; o]) ("On the Theoretical Limitations of Embedding-based Link
//! Prediction", ICML 2026, appendix on ConcatMLP).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Encode, Encoded, EncoderFacts, Pass, Queries, QueryDropout, Table, rows, tables};
use crate::part::{Build, Formula, Limit};
use crate::random::{Noise, Weights};
use crate::score::ScoreKind;

/// h = [s; r]; all else is done by the score.
#[derive(Module, Debug)]
pub(crate) struct ConcatMlp {
    entity: Table,
    relation: Table,
}

impl Encode for ConcatMlp {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        query_width: 2,
        scores: &[ScoreKind::Mlp],
        needs_its_score: "its query vector, subject beside relation, is twice as wide as object vectors",
        ..EncoderFacts::new(Formula::new(
            "MLP([s; r; o])",
            "(E + 2R)·d + about (3d + H₂)·H₁",
            Limit::Entities,
        ))
    };

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let [entity, relation] = tables(build, weights);
        Self { entity, relation }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        Encoded {
            query: Tensor::cat(vec![subject.clone(), relation.clone()], 1),
            factors: vec![subject, relation],
        }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
