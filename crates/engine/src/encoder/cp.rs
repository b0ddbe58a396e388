//! CP: score = Σ s·r·o with a table for subjects and another for objects
//! (Hitchcock 1927; with inverse relations, Lacroix et al. 2018).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{
    Bilinear, Encode, Encoded, EncoderFacts, Pairs, Pass, Queries, QueryDropout, RelationScores,
    Table, rows, table,
};
use crate::part::{Build, Formula, TableRows};
use crate::random::{Noise, Weights};

/// h = s ∘ r.
#[derive(Module, Debug)]
pub(crate) struct Cp {
    subject: Table,
    relation: Table,
    object: Table,
}

impl Encode for Cp {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        bilinear: Bilinear::VECTORS,
        tables: &[
            ("subject", TableRows::Entities),
            ("object", TableRows::Entities),
            ("relation", TableRows::Relations),
        ],
        ..EncoderFacts::new(Formula::linear("Σ s·r·o, subjects and objects apart", "(2E + 2R)·d"))
    };

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        (2 * build.entities() + build.relations()) * build.dim()
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        Self {
            subject: table(build.entities(), build.dim(), weights),
            relation: table(build.relations(), build.dim(), weights),
            object: table(build.entities(), build.dim(), weights),
        }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.subject, &queries.subjects);
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
        self.object.val()
    }
}
