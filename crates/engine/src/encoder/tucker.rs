//! TuckER: score = W ×₁ s ×₂ r ×₃ o with one core tensor for all (Balažević et al. 2019, eq. 2).

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;

use super::bilinear::outer;
use super::{
    Bilinear, Encode, Encoded, EncoderFacts, EncoderSettings, Pairs, Pass, Queries, QueryDropout,
    RelationDim, RelationScores, Table, rows, table,
};
use crate::ops::{gather_rows, relation_matmul, transposed_relation_matmul};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};
use crate::settings::settings;

settings! {
    /// Settings of TuckER.
    pub(crate) struct TuckerConfig {
        + relation: RelationDim;
        + query: QueryDropout;
    }
}

impl EncoderSettings for TuckerConfig {
    fn query_dropout(&self) -> f64 {
        self.query.dropout
    }
}

/// h = sᵀ·W_r with W_r = Σ_j r_j W_j: RESCAL whose matrices share the slices of a core.
#[derive(Module, Debug)]
pub(crate) struct Tucker {
    entity: Table,
    relation: Table,
    /// The slices W_j, one a row, `[relation_dim, D·D]`.
    core: Table,
}

impl Encode for Tucker {
    type Settings = TuckerConfig;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::MATRICES,
        ..EncoderFacts::new(Formula::linear("W ×₁ s ×₂ r ×₃ o", "E·d + (2R + d²)·d_r"))
    };

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        build.entities() * build.dim()
            + (build.relations() + build.dim() * build.dim())
                * build.own.relation.relation_dim(build.dim())
    }

    fn n_batch_values(build: &Build<Self::Settings>, batch: usize) -> usize {
        2 * build.relations().min(batch) * build.dim() * build.dim()
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let dim = build.dim();
        let entity = table(build.entities(), dim, weights);
        let relation =
            table(build.relations(), build.own.relation.relation_dim(build.dim()), weights);
        let core = weights.core(build.own.relation.relation_dim(build.dim()), dim);
        Self { entity, relation, core: Table::from_tensor(core) }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let Matrices { matrices, places, relation } = self.matrices(&queries.relations);
        let query = relation_matmul(subject.clone(), matrices, &places);
        Encoded { query, factors: vec![subject, gather_rows(relation, places)] }
    }

    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        let Matrices { matrices, places, .. } = self.matrices(&pairs.relations);
        transposed_relation_matmul(pairs.objects, matrices, &places)
    }

    /// The core with subject and object, against every relation.
    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let contexts = outer(pairs.subjects, pairs.objects).matmul(self.core.val().transpose());
        RelationScores { contexts, relations: self.relation.val() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}

/// The matrices of some relations.
struct Matrices {
    /// W_r, one a row.
    matrices: Tensor<2>,
    /// Which row is whose.
    places: Arc<[u32]>,
    /// The vectors that they were made of.
    relation: Tensor<2>,
}

impl Tucker {
    /// A matrix for each distinct relation of a batch, not for each query.
    fn matrices(&self, relations: &[u32]) -> Matrices {
        let mut distinct = relations.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let place = |relation: &u32| distinct.partition_point(|other| other < relation) as u32;
        let places: Arc<[u32]> = relations.iter().map(place).collect();
        let relation = gather_rows(self.relation.val(), distinct.into());
        Matrices { matrices: relation.clone().matmul(self.core.val()), places, relation }
    }
}
