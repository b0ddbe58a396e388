//! TransE: score = −‖s + r − o‖ (Bordes et al. 2013).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Encode, Encoded, EncoderFacts, Pass, Queries, QueryDropout, Table, rows, tables};
use crate::part::{Build, Formula, Limit};
use crate::random::{Noise, Weights};
use crate::score::ScoreKind;

/// h = s + r, a point that the answers are to be near.
#[derive(Module, Debug)]
pub(crate) struct TransE {
    entity: Table,
    relation: Table,
}

impl Encode for TransE {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        // (s + r)·o = s·o + r·o does not ask whether the subject has anything to do with the relation.
        scores: &[ScoreKind::L1, ScoreKind::L2],
        needs_its_score: "its query vector, subject plus relation, is a point that answers are to be near",
        ..EncoderFacts::new(Formula::new("−‖s + r − o‖", "(E + 2R)·d", Limit::Entities))
    };

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let [entity, relation] = tables(build, weights);
        Self { entity, relation }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        Encoded { query: subject.clone() + relation.clone(), factors: vec![subject, relation] }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
