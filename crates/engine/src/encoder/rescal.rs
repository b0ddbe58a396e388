//! RESCAL: score = sᵀ·W_r·o with a matrix per relation (Nickel et al. 2011).

use burn::module::Module;
use burn::tensor::Tensor;

use super::bilinear::outer;
use super::{
    Bilinear, Encode, Encoded, EncoderFacts, Pairs, Pass, Queries, QueryDropout, RelationScores,
    Table, rows, table,
};
use crate::ops::{relation_matmul, transposed_relation_matmul};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};

/// h = sᵀ·W_r.
#[derive(Module, Debug)]
pub(crate) struct Rescal {
    entity: Table,
    /// One matrix a row, `[R, D·D]`, each row of it after the other.
    relation: Table,
}

impl Encode for Rescal {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::MATRICES,
        ..EncoderFacts::new(Formula::linear("sᵀ·W_r·o", "E·d + 2R·d²"))
    };

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        (build.entities() + build.relations() * build.dim()) * build.dim()
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let dim = build.dim();
        let entity = table(build.entities(), dim, weights);
        // Every relation is a matrix of its own, so the fans are those of one of them.
        let bound = (6.0 / (2 * dim) as f64).sqrt();
        let relation = weights.vectors_within([build.relations(), dim * dim], bound);
        Self { entity, relation: Table::from_tensor(relation) }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let query = relation_matmul(subject.clone(), self.relation.val(), &queries.relations);
        Encoded { query, factors: vec![subject] }
    }

    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        transposed_relation_matmul(pairs.objects, self.relation.val(), &pairs.relations)
    }

    /// s·oᵀ, flattened, against every matrix: N·d² numbers.
    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let contexts = outer(pairs.subjects, pairs.objects);
        RelationScores { contexts, relations: self.relation.val() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
