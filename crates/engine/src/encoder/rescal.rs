//! RESCAL: score = sᵀ·W_r·o with a matrix per relation (Nickel et al. 2011).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{Encode, Encoded, EncoderConfig, Formula, Pass, Queries, Table, rows, table};
use crate::ops::grouped_product;
use crate::random::{Noise, Weights};

/// h = sᵀ·W_r.
#[derive(Module, Debug)]
pub(crate) struct Rescal {
    entity: Table,
    /// One matrix a row, `[R, D·D]`, each row of it after the other.
    relation: Table,
}

impl Encode for Rescal {
    const FORMULA: Formula = Formula::linear("sᵀ·W_r·o", "E·d + 2R·d²");
    fn n_parameters(config: &EncoderConfig) -> usize {
        (config.entities() + config.relations() * config.dim()) * config.dim()
    }

    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self {
        let dim = config.dim();
        let entity = table(config.entities(), dim, weights);
        // Every relation is a matrix of its own, so the fans are those of one of them.
        let bound = (6.0 / (2 * dim) as f64).sqrt();
        let relation = weights.uniform([config.relations(), dim * dim], bound);
        Self { entity, relation: Table::from_tensor(relation) }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let query = grouped_product(subject.clone(), self.relation.val(), &queries.relations);
        Encoded { query, factors: vec![Self::magnitudes(subject)] }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}
