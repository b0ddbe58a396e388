//! DistMult: score = Σ s·r·o (Yang et al. 2015).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{
    Bilinear, Encode, Encoded, EncoderFacts, Pairs, Pass, Queries, QueryDropout, RelationScores,
    Table, rows, tables,
};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};

/// h = s ∘ r.
#[derive(Module, Debug)]
pub(crate) struct DistMult {
    entity: Table,
    relation: Table,
}

impl Encode for DistMult {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::VECTORS,
        ..EncoderFacts::new(Formula::linear("Σ s·r·o", "(E + 2R)·d"))
    };

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let [entity, relation] = tables(build, weights);
        Self { entity, relation }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        Encoded { query: subject.clone() * relation.clone(), factors: vec![subject, relation] }
    }

    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        rows(&self.relation, &pairs.relations) * pairs.objects
    }

    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let contexts = pairs.subjects * pairs.objects;
        RelationScores { contexts, relations: self.relation.val() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
