//! ComplEx: score = Re Σ s·r·conj(o) over complex vectors (Trouillon et al. 2016).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{
    Encode, Encoded, EncoderFacts, Pass, Queries, QueryDropout, Table, halves, moduli, rows, tables,
};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};

/// h = s·r, with real parts in the left half of every vector and imaginary parts in the right.
#[derive(Module, Debug)]
pub(crate) struct ComplEx {
    entity: Table,
    relation: Table,
}

impl Encode for ComplEx {
    type Settings = QueryDropout;
    const FACTS: EncoderFacts = EncoderFacts {
        halves: true,
        ..EncoderFacts::new(Formula::linear("Re Σ s·r·ō, complex numbers", "(E + 2R)·d"))
    };

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let [entity, relation] = tables(build, weights);
        Self { entity, relation }
    }

    fn forward(&self, queries: &Queries, _: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        let (subject_re, subject_im) = halves(subject.clone());
        let (relation_re, relation_im) = halves(relation.clone());
        let re =
            subject_re.clone() * relation_re.clone() - subject_im.clone() * relation_im.clone();
        let im = subject_re * relation_im + subject_im * relation_re;
        Encoded {
            query: Tensor::cat(vec![re, im], 1),
            factors: vec![Self::magnitudes(subject), Self::magnitudes(relation)],
        }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }

    fn magnitudes(vectors: Tensor<2>) -> Tensor<2> {
        moduli(vectors)
    }
}
