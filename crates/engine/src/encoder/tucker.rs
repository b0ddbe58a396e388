//! TuckER: score = W ×₁ s ×₂ r ×₃ o with one core tensor for all (Balažević et al. 2019, eq. 2).

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::Tensor;

use super::{
    Encode, Encoded, EncoderFacts, EncoderSettings, Pass, Queries, QueryDropout, RelationDim,
    Table, rows, table,
};
use crate::ops::{gather_rows, relation_matmul};
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
    const FACTS: EncoderFacts =
        EncoderFacts::new(Formula::linear("W ×₁ s ×₂ r ×₃ o", "E·d + (2R + d²)·d_r"));

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
        // As in the authors' code: the core is uniform in ±1.
        let core = weights.uniform([build.own.relation.relation_dim(build.dim()), dim * dim], 1.0);
        Self { entity, relation, core: Table::from_tensor(core) }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        // A matrix for each distinct relation of the batch, not for each query.
        let mut distinct = queries.relations.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        let place = |relation: &u32| distinct.partition_point(|other| other < relation) as u32;
        let places: Arc<[u32]> = queries.relations.iter().map(place).collect();
        let relation = gather_rows(self.relation.val(), distinct.into());
        let matrices = relation.clone().matmul(self.core.val());
        let query = relation_matmul(subject.clone(), matrices, &places);
        let factors = [subject, gather_rows(relation, places)].map(Self::magnitudes).into();
        Encoded { query, factors }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
