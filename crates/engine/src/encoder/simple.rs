//! SimplE: score = ½ (Σ head(s)·r·tail(o) + Σ head(o)·r'·tail(s)) (Kazemi and Poole 2018, eq. 2).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{
    Bilinear, Encode, Encoded, EncoderFacts, Pairs, Pass, Queries, QueryDropout, RelationScores,
    Table, halves, rows, tables,
};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};

/// Entity vectors are [head; tail], relation vectors [r; r'], so h = ½ [r' ∘ tail(s); r ∘ head(s)].
#[derive(Module, Debug)]
pub(crate) struct SimplE {
    entity: Table,
    relation: Table,
}

impl Encode for SimplE {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::VECTORS,
        halves: true,
        ..EncoderFacts::new(Formula::linear("½ Σ s₁·r₁·o₂ + ½ Σ o₁·r₂·s₂", "(E + 2R)·d"))
    };

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let [entity, relation] = tables(build, weights);
        Self { entity, relation }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        let (head, tail) = halves(subject.clone());
        let (forward, backward) = halves(relation.clone());
        Encoded {
            query: Tensor::cat(vec![backward * tail, forward * head], 1).mul_scalar(0.5),
            factors: vec![subject, relation],
        }
    }

    /// ½ [r ∘ tail(o); r' ∘ head(o)].
    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        let (forward, backward) = halves(rows(&self.relation, &pairs.relations));
        let (head, tail) = halves(pairs.objects);
        Tensor::cat(vec![forward * tail, backward * head], 1).mul_scalar(0.5)
    }

    /// ½ [head(s) ∘ tail(o); tail(s) ∘ head(o)].
    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let ((head, tail), (object_head, object_tail)) =
            (halves(pairs.subjects), halves(pairs.objects));
        let contexts = Tensor::cat(vec![head * object_tail, tail * object_head], 1);
        RelationScores { contexts: contexts.mul_scalar(0.5), relations: self.relation.val() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
