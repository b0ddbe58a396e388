//! A weighted ensemble of K linear models: score = Σ_k w_k·score_k (Wang et al. 2018, "On
//! Multi-Relational Link Prediction with Bilinear Models"), here of DistMults.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{
    Bilinear, Encode, Encoded, EncoderFacts, EncoderSettings, Pairs, Pass, Queries, QueryDropout,
    RelationScores, Table, rows,
};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};
use crate::settings::{Range, settings};

settings! {
    /// Settings of the ensemble.
    pub(crate) struct EnsembleConfig {
        /// Models in the ensemble, which share `dim` evenly.
        members: usize = 4, Range::Between(1, 1000);
        + query: QueryDropout;
    }
}

impl EncoderSettings for EnsembleConfig {
    fn query_dropout(&self) -> f64 {
        self.query.dropout
    }
}

/// h = [w_1·(s_1 ∘ r_1); …; w_K·(s_K ∘ r_K)], and an object vector is [o_1; …; o_K].
///
/// The bottleneck of an ensemble is the width of all members together, so that is `dim`, as in every
/// other encoder; each member has dim / K of it.
#[derive(Module, Debug)]
pub(crate) struct Ensemble {
    /// The vectors of all members side by side, so that no pass has to put them together.
    entity: Table,
    relation: Table,
    /// w, `[K]`.
    weight: Param<Tensor<1>>,
}

impl Encode for Ensemble {
    type Settings = EnsembleConfig;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::VECTORS,
        ..EncoderFacts::new(Formula::linear("Σ_k w_k Σ s_k·r_k·o_k", "(E + 2R)·d + members"))
    };

    fn refuse(own: &EnsembleConfig, dim: usize) -> Option<String> {
        let members = own.members;
        let what = || {
            format!(
                "the {members} members of the ensemble share it; expected a multiple of {members}, found {dim}"
            )
        };
        (!dim.is_multiple_of(members)).then(what)
    }

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        (build.entities() + build.relations()) * build.dim() + build.own.members
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let (dim, members) = (build.dim(), build.own.members);
        // Every member starts as a model of its own width would.
        let mut table = |rows: usize| {
            let bound = (6.0 / (rows + dim / members) as f64).sqrt();
            Table::from_tensor(weights.vectors_within([rows, dim], bound))
        };
        let (entity, relation) = (table(build.entities()), table(build.relations()));
        let mean = Tensor::full([members], 1.0 / members as f64, &weights.device);
        Self { entity, relation, weight: Param::from_tensor(mean) }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        let query = self.weighted(subject.clone() * relation.clone());
        Encoded { query, factors: vec![subject, relation] }
    }

    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        self.weighted(rows(&self.relation, &pairs.relations) * pairs.objects)
    }

    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let contexts = self.weighted(pairs.subjects * pairs.objects);
        RelationScores { contexts, relations: self.relation.val() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}

impl Ensemble {
    /// Products of vectors, those of each member times its weight, `[N, D]`.
    fn weighted(&self, products: Tensor<2>) -> Tensor<2> {
        let [n, dim] = products.dims();
        let [members] = self.weight.dims();
        let products = products.reshape([n, members, dim / members]);
        (products * self.weight.val().reshape([1, members, 1])).reshape([n, dim])
    }
}
