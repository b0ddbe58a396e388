//! TransE: score = −‖s + r − o‖ (Bordes et al. 2013).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Encode, Encoded, EncoderConfig, Formula, Pass, Queries, Table, rows, tables};
use crate::models::Limit;
use crate::random::{Noise, Weights};
use crate::score::ScoreKind;

/// h = s + r, a point that the answers are to be near.
#[derive(Module, Debug)]
pub(crate) struct TransE {
    entity: Table,
    relation: Table,
}

impl Encode for TransE {
    const FORMULA: Formula = Formula::new("−‖s + r − o‖", "(E + 2R)·d", Limit::Entities);
    /// (s + r)·o = s·o + r·o does not ask whether the subject has anything to do with the relation.
    const SCORES: &'static [ScoreKind] = &[ScoreKind::L1, ScoreKind::L2];
    const NEEDS_ITS_SCORE: &'static str =
        "its query vector, subject plus relation, is a point that answers are to be near";

    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self {
        let [entity, relation] = tables(config, weights);
        Self { entity, relation }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        Encoded {
            query: subject.clone() + relation.clone(),
            factors: vec![Self::magnitudes(subject), Self::magnitudes(relation)],
        }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
