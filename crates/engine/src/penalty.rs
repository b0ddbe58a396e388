//! Penalties: what does a batch lose besides its answers?
//!
//! Norms of the factors of each answer, N3, L2 and DURA, and the cross-entropy of its relation given
//! subject and object. All are of the encoder's own score, whatever the output layer mixes.

use std::sync::Arc;

use burn::tensor::Tensor;

use crate::batch::Batch;
use crate::config::Config;
use crate::encoder::{Encoder, Pairs, RelationScores};
use crate::ops::{
    BatchAnswers, Logits, PairScore, SoftmaxOptions, Workspace, cross_entropy, gather_rows,
};

/// A batch as its encoder sees it.
pub(crate) struct Facts<'a> {
    pub(crate) batch: &'a Batch,
    pub(crate) config: &'a Config,
    /// Query vectors, nothing dropped, `[B, C]`.
    pub(crate) query: Tensor<2>,
    /// Rows of subjects and, where they are vectors, of relations, `[B, …]` each.
    pub(crate) factors: Vec<Tensor<2>>,
    /// The table of object vectors, `[E, D]`.
    pub(crate) objects: Tensor<2>,
}

impl Facts<'_> {
    /// What is added to the cross-entropy of the batch, `[1]` each.
    pub(crate) fn terms(self, encoder: &Encoder) -> Vec<Tensor<1>> {
        let training = &self.config.training;
        let has_norms = training.n3 > 0.0 || training.l2 > 0.0;
        let (has_dura, has_relations) = (training.dura > 0.0, training.relation_weight > 0.0);
        if !(has_norms || has_dura || has_relations) {
            return Vec::new();
        }
        let answers = self.batch.answers.objects.as_slice().into();
        let objects = gather_rows(self.objects.clone(), answers);
        let norms = has_norms.then(|| self.norms(encoder, objects.clone()));
        let dura = has_dura.then(|| self.dura(encoder, objects.clone()));
        let relations = has_relations.then(|| self.relations(encoder, objects));
        norms.into_iter().chain(dura).chain(relations).collect()
    }

    /// N3 (Lacroix et al. 2018, eq. 4) and L2 of the factors of every answer: subject, relation, object.
    fn norms(&self, encoder: &Encoder, objects: Tensor<2>) -> Tensor<1> {
        let training = &self.config.training;
        let powers = |rows: Tensor<2>| {
            let rows = encoder.magnitudes(rows);
            let squares = rows.clone().square();
            (squares.clone() * rows).mul_scalar(training.n3) + squares.mul_scalar(training.l2)
        };
        let mut sum = (powers(objects) * self.answer_weights()).sum();
        for factor in &self.factors {
            sum = sum + (powers(factor.clone()) * self.query_weights()).sum();
        }
        sum
    }

    /// DURA (Zhang et al. 2020, eq. 6) of every answer: a·(|s|² + |o|²) + b·(|sᵀ·W_r|² + |W_r·o|²).
    fn dura(&self, encoder: &Encoder, objects: Tensor<2>) -> Tensor<1> {
        let bilinear = self.config.encoder.facts().bilinear;
        let bilinear = bilinear.expect("a config with DURA was checked for it");
        let of_query = self.factors[0].clone().square().mul_scalar(bilinear.alone)
            + self.query.clone().square().mul_scalar(bilinear.with_relation);
        let transposed = encoder.transposed(self.pairs(objects.clone()));
        let of_answer = objects.square().mul_scalar(bilinear.alone)
            + transposed.square().mul_scalar(bilinear.with_relation);
        let sum =
            (of_query * self.query_weights()).sum() + (of_answer * self.answer_weights()).sum();
        sum.mul_scalar(self.config.training.dura)
    }

    /// −log P(r | s, o) of every answer, over all relations and inverses (Chen et al. 2021, eq. 3).
    fn relations(&self, encoder: &Encoder, objects: Tensor<2>) -> Tensor<1> {
        let pairs = self.pairs(objects);
        let answers = Arc::new(BatchAnswers {
            queries: (0..pairs.relations.len() as u32).collect(),
            objects: pairs.relations.to_vec(),
            weights: self.batch.answers.weights.clone(),
        });
        let RelationScores { contexts, relations } = encoder.relation_scores(pairs);
        let input = Logits {
            log_prior: Tensor::zeros([contexts.dims()[0], 1], &contexts.device()),
            context: contexts,
            objects: relations,
            bias: None,
            score: PairScore::Dot,
            weights: None,
        };
        // Of its own, so that the logits of the objects stay saved in the other one: these here are
        // few, and made twice.
        let workspace = Arc::new(Workspace::new(0));
        let loss = cross_entropy(input, answers, SoftmaxOptions::default(), &workspace);
        loss.mul_scalar(self.config.training.relation_weight)
    }

    /// Every answer by itself, with the rows of its object.
    fn pairs(&self, objects: Tensor<2>) -> Pairs {
        let Batch { queries, answers, .. } = self.batch;
        let relation = |query: &u32| queries.relations[*query as usize];
        Pairs {
            subjects: gather_rows(self.factors[0].clone(), answers.queries.as_slice().into()),
            relations: answers.queries.iter().map(relation).collect(),
            objects,
        }
    }

    /// `[N, 1]`, a row an answer.
    fn answer_weights(&self) -> Tensor<2> {
        self.column(&self.batch.answers.weights)
    }

    /// The weights of the answers of each query together, `[B, 1]`.
    fn query_weights(&self) -> Tensor<2> {
        let answers = &self.batch.answers;
        let mut sums = vec![0.0; self.batch.queries.subjects.len()];
        for (query, weight) in answers.queries.iter().zip(&answers.weights) {
            sums[*query as usize] += weight;
        }
        self.column(&sums)
    }

    fn column(&self, values: &[f32]) -> Tensor<2> {
        let column = Tensor::<1>::from_floats(values, &self.query.device());
        column.reshape([values.len(), 1])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use burn::optim::GradientsParams;
    use burn::tensor::{Shape, TensorData};

    use super::*;
    use crate::device::Device;
    use crate::encoder::{EncoderKind, Pass, Queries};
    use crate::network::Network;
    use crate::parameters::{Named, gradients, replace, tensors};
    use crate::part::{Domain, Edges};
    use crate::random::{Noise, Weights};
    use crate::settings::Choice;

    const ENTITIES: usize = 6;
    const RELATIONS: usize = 4;

    fn kinds() -> impl Iterator<Item = EncoderKind> {
        EncoderKind::ALL.iter().copied().filter(|kind| kind.facts().bilinear.is_some())
    }

    /// Nothing is dropped, so that a loss is a function of the weights.
    fn config(kind: EncoderKind, own: &str) -> Config {
        let more = match kind {
            EncoderKind::CompGcn | EncoderKind::Rgcn => "initial_dim = 3\nmessage_dropout = 0\n",
            _ => "",
        };
        let name = kind.name();
        let text = format!("encoder = \"{name}\"\ndim = 4\ndropout = 0\nexact = true\n{more}{own}");
        Config::parse(&text).unwrap()
    }

    fn network(config: &Config) -> Network {
        let edges = Edges {
            subjects: [0, 1, 2, 1, 3, 5].into(),
            relations: [0, 1, 0, 2, 3, 2].into(),
            objects: [1, 3, 5, 0, 1, 2].into(),
        };
        let domain = Domain { edges, ..Domain::without_edges(ENTITIES, RELATIONS) };
        Network::new(config, &domain, Weights::new(3, Device::Cpu.burn().autodiff()))
    }

    const SUBJECTS: [u32; 4] = [3, 0, 5, 2];
    const RELATION_OF: [u32; 4] = [1, 2, 0, 3];
    /// Query, object and weight; the first query has two answers.
    const ANSWERS: [(u32, u32, f32); 5] =
        [(0, 1, 1.0), (0, 4, 0.5), (1, 2, 2.0), (2, 0, 1.0), (3, 3, 1.0)];

    fn batch() -> Batch {
        let answers = BatchAnswers {
            queries: ANSWERS.map(|answer| answer.0).to_vec(),
            objects: ANSWERS.map(|answer| answer.1).to_vec(),
            weights: ANSWERS.map(|answer| answer.2).to_vec(),
        };
        Batch {
            queries: Queries { subjects: SUBJECTS.into(), relations: RELATION_OF.into() },
            answers: Arc::new(answers),
            negatives: None,
        }
    }

    fn total(network: &Network, config: &Config) -> Tensor<1> {
        network.loss(&batch(), config, &Noise::new(0, 0), &Arc::new(Workspace::new(1 << 20))).total
    }

    fn rows(tensor: Tensor<2>) -> Vec<Vec<f64>> {
        let width = tensor.dims()[1];
        let values: Vec<f32> = tensor.into_data().try_into_vec().unwrap();
        let wide = |row: &[f32]| row.iter().map(|x| f64::from(*x)).collect();
        values.chunks_exact(width).map(wide).collect()
    }

    /// What a setting of .25 adds to the loss, times the number of queries.
    fn found(kind: EncoderKind, setting: &str) -> f64 {
        let (plain, with) = (config(kind, ""), config(kind, &format!("{setting} = 0.25")));
        let network = network(&plain);
        let loss = |config| f64::from(total(&network, config).into_scalar::<f32>());
        4.0 * (loss(&with) - loss(&plain))
    }

    /// Query vectors, rows of subjects, and the answers as pairs, of the network in `found`.
    fn encoded(kind: EncoderKind) -> (Network, [Vec<Vec<f64>>; 2], Pairs) {
        let network = network(&config(kind, ""));
        let Batch { queries, answers, .. } = batch();
        let objects = network.encoder.objects(None);
        let encoded = network.encoder.forward(&queries, &Pass { objects: &objects, noise: None });
        let subjects = encoded.factors[0].clone();
        let pairs = Pairs {
            subjects: gather_rows(subjects.clone(), answers.queries.as_slice().into()),
            relations: ANSWERS.map(|(query, ..)| RELATION_OF[query as usize]).into(),
            objects: gather_rows(objects, answers.objects.as_slice().into()),
        };
        (network, [rows(encoded.query), rows(subjects)], pairs)
    }

    #[test]
    fn dura_is_its_formula() {
        for kind in kinds() {
            let (network, [query, subjects], pairs) = encoded(kind);
            let objects = rows(pairs.objects.clone());
            let transposed = rows(network.encoder.transposed(pairs));
            let square = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>();
            let is_matrix = matches!(kind, EncoderKind::Rescal | EncoderKind::Tucker);
            let (alone, with_relation) = if is_matrix { (1.0, 1.0) } else { (0.5, 1.5) };
            let expected: f64 = ANSWERS
                .iter()
                .enumerate()
                .map(|(answer, (of, _, weight))| {
                    let of = *of as usize;
                    let alone = alone * (square(&subjects[of]) + square(&objects[answer]));
                    let both = square(&query[of]) + square(&transposed[answer]);
                    0.25 * f64::from(*weight) * (alone + with_relation * both)
                })
                .sum();
            let found = found(kind, "dura");
            assert!(
                (found - expected).abs() < 1e-5 * expected.max(1.0),
                "{kind:?} {found} {expected}"
            );
        }
    }

    #[test]
    fn relation_prediction_is_a_cross_entropy_over_relations_and_inverses() {
        for kind in kinds() {
            let (network, _, pairs) = encoded(kind);
            let RelationScores { contexts, relations } = network.encoder.relation_scores(pairs);
            let scores = rows(contexts.matmul(relations.transpose()));
            let expected: f64 = ANSWERS
                .iter()
                .zip(&scores)
                .map(|((query, _, weight), scores)| {
                    let sum: f64 = scores.iter().map(|score| score.exp()).sum();
                    let own = scores[RELATION_OF[*query as usize] as usize];
                    0.25 * f64::from(*weight) * (sum.ln() - own)
                })
                .sum();
            let found = found(kind, "relation_weight");
            assert!(
                (found - expected).abs() < 1e-5 * expected.max(1.0),
                "{kind:?} {found} {expected}"
            );
        }
    }

    #[test]
    fn gradients_of_all_terms_are_the_slopes_of_finite_differences() {
        let terms = "dura = 0.3\nrelation_weight = 0.4\nn3 = 0.2\nl2 = 0.1\n";
        let mixture = "output = \"mixture\"\ncomponents = 2\nlayers = 1\nprojection_dropout = 0\n";
        for (kind, output) in kinds().flat_map(|kind| [(kind, ""), (kind, mixture)]) {
            let config = config(kind, &format!("{terms}{output}"));
            let network = varied(network(&config));
            let loss = total(&network, &config);
            let grads = GradientsParams::from_grads(loss.backward(), &network);
            let found = gradients(&network, &grads);
            let learned: Vec<Named> =
                tensors(&network).into_iter().filter(|tensor| tensor.is_learned).collect();
            let mut at = 0;
            for tensor in learned {
                let len = tensor.values.dims()[0];
                // Some of each tensor's.
                for i in (0..len).step_by(len.div_ceil(5)) {
                    let slope = slope(&network, &config, &tensor.name, i);
                    let found = f64::from(found[at + i]);
                    // Rounding of a loss in f32 over a step of 1/1024.
                    assert!(
                        (found - slope).abs() < 3e-3 * found.abs().max(1.0),
                        "{kind:?} {} {i}: {found}, {slope}",
                        tensor.name
                    );
                }
                at += len;
            }
            assert_eq!(at, found.len());
        }
    }

    /// Xavier's values for a network so small are large; its cubes and squares would drown the rest.
    fn varied(network: Network) -> Network {
        changed(&network, |_, _, x| 0.5 * x)
    }

    fn slope(network: &Network, config: &Config, name: &str, place: usize) -> f64 {
        const STEP: f32 = 1.0 / 1024.0;
        let at = |step: f32| {
            let move_one = |other: &str, i: usize, x: f32| {
                if other == name && i == place { x + step } else { x }
            };
            f64::from(total(&changed(network, move_one), config).into_scalar::<f32>())
        };
        (at(STEP) - at(-STEP)) / (2.0 * f64::from(STEP))
    }

    fn changed(network: &Network, change: impl Fn(&str, usize, f32) -> f32) -> Network {
        let values: BTreeMap<String, TensorData> = tensors(network)
            .into_iter()
            .map(|Named { name, shape, values, .. }| {
                let old: Vec<f32> = values.into_data().try_into_vec().unwrap();
                let new = old.into_iter().enumerate().map(|(i, x)| change(&name, i, x)).collect();
                (name, TensorData::new::<f32, _>(new, Shape::from(shape)))
            })
            .collect();
        replace(network.clone(), values)
    }
}
