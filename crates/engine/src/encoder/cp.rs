//! CP: score = Σ s·r·o with a table for subjects and another for objects
//! (Hitchcock 1927; with inverse relations, Lacroix et al. 2018).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Encode, Encoded, EncoderConfig, Formula, Pass, Queries, Table, rows, table};
use crate::random::{Noise, Weights};

/// h = s ∘ r.
#[derive(Module, Debug)]
pub(crate) struct Cp {
    subject: Table,
    relation: Table,
    object: Table,
}

impl Encode for Cp {
    const FORMULA: Formula = Formula::linear("Σ s·r·o, subjects and objects apart", "(2E + 2R)·d");
    fn n_parameters(config: &EncoderConfig) -> usize {
        (2 * config.entities() + config.relations()) * config.dim()
    }

    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self {
        Self {
            subject: table(config.entities(), config.dim(), weights),
            relation: table(config.relations(), config.dim(), weights),
            object: table(config.entities(), config.dim(), weights),
        }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.subject, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        Encoded {
            query: subject.clone() * relation.clone(),
            factors: vec![Self::magnitudes(subject), Self::magnitudes(relation)],
        }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.object.val()
    }
}
