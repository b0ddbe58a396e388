//! ComplEx: score = Re Σ s·r·conj(o) over complex vectors (Trouillon et al. 2016).

use burn::module::Module;
use burn::tensor::Tensor;

use super::{
    Bilinear, Encode, Encoded, EncoderFacts, Pairs, Pass, Queries, QueryDropout, RelationScores,
    Table, halves, moduli, rows, tables,
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
        bilinear: Bilinear::VECTORS,
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
        Encoded { query: Tensor::cat(vec![re, im], 1), factors: vec![subject, relation] }
    }

    /// Re(s·r·ō) is the dot product of s with conj(r)·o.
    fn transposed(&self, pairs: Pairs) -> Tensor<2> {
        conjugate_product(rows(&self.relation, &pairs.relations), pairs.objects)
    }

    /// Re(s·r·ō) is the dot product of r with conj(s)·o.
    fn relation_scores(&self, pairs: Pairs) -> RelationScores {
        let contexts = conjugate_product(pairs.subjects, pairs.objects);
        RelationScores { contexts, relations: self.relation.val() }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }

    fn magnitudes(vectors: Tensor<2>) -> Tensor<2> {
        moduli(vectors)
    }
}

/// conj(a)·b of complex rows.
fn conjugate_product(a: Tensor<2>, b: Tensor<2>) -> Tensor<2> {
    let ((a_re, a_im), (b_re, b_im)) = (halves(a), halves(b));
    let re = a_re.clone() * b_re.clone() + a_im.clone() * b_im.clone();
    Tensor::cat(vec![re, a_re * b_im - a_im * b_re], 1)
}
