//! Networks: what do an encoder, a score, an optional bias per object and an output layer make together?
//!
//! A loss for a batch of queries when training, and log-probabilities of all objects when asked.
//! Which graph the objects are of, and what they are called, is the business of `model`.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use fullrank_graph::Query;

use crate::batch::Batch;
use crate::config::Config;
use crate::encoder::{Encoded, Encoder, Pass, Queries};
use crate::evaluate::Scorer;
use crate::ops::{
    BatchAnswers, Logits, PairScore, Precision, SoftmaxOptions, Workspace, binary_cross_entropy,
    cross_entropy, gather_rows, map_log_probs, pairwise_scores, row_scores,
};
use crate::output::{Components, Negatives, Output, Sampled, SampledLoss, mean_entropy};
use crate::part::Domain;
use crate::penalty::Facts;
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Weights};
use crate::score::AnyScore;

/// Encoder, score, bias and output layer of any kind.
#[derive(Module, Debug)]
pub(crate) struct Network {
    pub(crate) encoder: Encoder,
    pub(crate) score: AnyScore,
    #[module(skip)]
    pub(crate) of_pairs: PairScore,
    bias: Option<Param<Tensor<1>>>,
    /// Added to every score.
    shift: f64,
    output: Output,
    #[module(skip)]
    probability: ProbabilityKind,
    #[module(skip)]
    sampled_loss: Option<SampledLoss>,
}

/// Contexts of a batch, and what its answers are compared with.
struct SampledBatch<'a> {
    answers: &'a BatchAnswers,
    negatives: &'a Negatives,
    context: Tensor<2>,
}

/// The parts of a batch's loss that are reported.
#[derive(Debug)]
pub(crate) struct Loss {
    /// What is minimised, `[1]`.
    pub(crate) total: Tensor<1>,
    /// Cross-entropy of all answers, or of all objects each for itself, or what answers fall short
    /// of their margin, not divided by anything, `[1]`.
    pub(crate) cross_entropy: Tensor<1>,
}

impl Network {
    /// A new network.
    pub(crate) fn new(config: &Config, domain: &Domain, mut weights: Weights) -> Self {
        let with = config.with();
        weights = weights.starting(config.training.init, config.training.init_scale);
        // In this order, which decides who draws which initial weights.
        let encoder = config.encoder.build(with, domain, &mut weights);
        let output = config.output.build(with, domain, &mut weights);
        let score = config.score.build(with, domain, &mut weights);
        let bias = || Param::from_tensor(Tensor::zeros([domain.entities], &weights.device));
        Self {
            encoder,
            score,
            of_pairs: config.pair_score(),
            bias: config.model.bias.then(bias),
            shift: config.output.shift(&with),
            output,
            probability: config.probability(),
            sampled_loss: config.output.sampled_loss(),
        }
    }

    /// Learned numbers of such a network, without building it.
    pub(crate) fn n_parameters(config: &Config, domain: &Domain) -> usize {
        let with = config.with();
        config.encoder.n_parameters(with, domain)
            + config.score.n_parameters(with, domain)
            + if config.model.bias { domain.entities } else { 0 }
            + config.output.n_parameters(with, domain)
    }

    /// Numbers that a batch makes beyond rows of tables and what the kernels need, and their gradients.
    pub(crate) fn n_batch_values(config: &Config, domain: &Domain, batch: usize) -> usize {
        let with = config.with();
        let objects = match config.output.makes_objects() {
            true => 2 * domain.entities * config.scored_dims()[1],
            false => 0,
        };
        config.encoder.n_batch_values(with, domain, batch)
            + config.score.n_batch_values(with, domain, batch)
            + objects
    }

    /// The loss of a batch, divided by its number of queries.
    pub(crate) fn loss(
        &self,
        batch: &Batch,
        config: &Config,
        noise: &Noise,
        workspace: &Arc<Workspace>,
    ) -> Loss {
        let objects = self.encoder.objects(Some(noise));
        let pass = Pass { objects: &objects, noise: Some(noise) };
        let Encoded { query, factors } = self.encoder.forward(&batch.queries, &pass);
        let encoded = query.clone();
        let query = noise.drop(query, config.encoder.query_dropout());
        let n_queries = query.dims()[0] as f64;
        let terms = config.loss_terms();
        let components = self.output.forward(query, Some(noise));
        let entropy = components
            .log_gate
            .as_ref()
            .filter(|gate| gate.dims()[1] > 1 && terms.entropy_weight > 0.0)
            .map(|gate| mean_entropy(gate.clone()));
        let cross_entropy = match (&batch.negatives, self.sampled_loss) {
            (Some(negatives), Some(loss)) => {
                let context = self.score.queries(components.context);
                let sampled = SampledBatch { answers: &batch.answers, negatives, context };
                loss.of(&self.sampled_scores(sampled, &objects))
            }
            _ => {
                let input = self.logits(components, self.scored(objects.clone()));
                let answers = Arc::clone(&batch.answers);
                let shortcuts = config.shortcuts(input.objects.dims()[0], noise);
                match self.probability {
                    ProbabilityKind::Categorical => {
                        let smoothing = terms.smoothing as f32;
                        let options = SoftmaxOptions { smoothing, shortcuts };
                        cross_entropy(input, answers, options, workspace)
                    }
                    ProbabilityKind::Bernoulli => {
                        binary_cross_entropy(input, answers, shortcuts, workspace)
                    }
                }
            }
        };
        let mut total = cross_entropy.clone().div_scalar(n_queries);
        if let Some(entropy) = entropy {
            total = total - entropy.mul_scalar(terms.entropy_weight);
        }
        let facts = Facts { batch, config, query: encoded, factors, objects };
        for term in facts.terms(&self.encoder) {
            total = total + term.div_scalar(n_queries);
        }
        Loss { total, cross_entropy: cross_entropy.detach() }
    }

    /// The logits of some queries in training.
    pub(crate) fn training_logits(
        &self,
        queries: &Queries,
        config: &Config,
        noise: &Noise,
    ) -> Logits {
        let objects = self.encoder.objects(Some(noise));
        let pass = Pass { objects: &objects, noise: Some(noise) };
        let query = self.encoder.forward(queries, &pass).query;
        let query = noise.drop(query, config.encoder.query_dropout());
        let components = self.output.forward(query, Some(noise));
        self.logits(components, self.scored(objects))
    }

    /// The network with its table of objects, ready to be asked.
    pub(crate) fn scoring(self) -> Scoring {
        let objects = self.encoder.objects(None);
        let scored = self.scored(objects.clone());
        Scoring { network: self, objects, scored, precision: Precision::F32 }
    }

    /// The table of objects, as score and output layer have it.
    fn scored(&self, objects: Tensor<2>) -> Tensor<2> {
        self.output.objects(self.score.objects(objects))
    }

    /// `objects` are as they are scored.
    fn logits(&self, components: Components, objects: Tensor<2>) -> Logits {
        Logits {
            context: self.score.queries(components.context),
            log_prior: components.log_prior,
            bias: self.biases(&objects),
            objects,
            score: self.of_pairs,
            weights: self.weights(),
        }
    }

    /// What has been learned of how a pair is scored; a score and an output layer that both learn are
    /// refused.
    fn weights(&self) -> Option<Tensor<1>> {
        self.score.weights().or_else(|| self.output.weights())
    }

    /// What is added to the scores of each object, `[E]`.
    fn biases(&self, objects: &Tensor<2>) -> Option<Tensor<1>> {
        let learned = self.bias.as_ref().map(Param::val);
        let offset = self.output.offset();
        if self.shift == 0.0 && offset.is_none() {
            return learned;
        }
        let none = || Tensor::zeros([objects.dims()[0]], &objects.device());
        let biases = learned.unwrap_or_else(none).add_scalar(self.shift);
        Some(offset.into_iter().fold(biases, Tensor::add))
    }

    /// The scores of a batch against its negative samples.
    fn sampled_scores<'a>(&self, batch: SampledBatch<'a>, objects: &Tensor<2>) -> Sampled<'a> {
        let SampledBatch { answers, negatives, context } = batch;
        let vectors =
            |ids: &Arc<[u32]>| self.score.objects(gather_rows(objects.clone(), Arc::clone(ids)));
        let bias = |ids: &Arc<[u32]>| {
            let column = |bias: &Param<Tensor<1>>| bias.val().reshape([-1, 1]);
            let rows = self.bias.as_ref().map(|bias| gather_rows(column(bias), Arc::clone(ids)));
            rows.map(|rows| rows.reshape([ids.len()]))
        };
        let ids: Arc<[u32]> = answers.objects.as_slice().into();
        let of_answers = gather_rows(context.clone(), answers.queries.as_slice().into());
        let weights = self.weights();
        let mut answer_scores =
            row_scores(self.of_pairs, weights.clone(), of_answers, vectors(&ids));
        let mut negative_scores =
            pairwise_scores(self.of_pairs, weights, context, vectors(&negatives.objects));
        if let (Some(of_answers), Some(of_negatives)) = (bias(&ids), bias(&negatives.objects)) {
            answer_scores = answer_scores + of_answers;
            negative_scores = negative_scores + of_negatives.unsqueeze();
        }
        Sampled {
            answers,
            answer_scores: answer_scores.add_scalar(self.shift),
            negatives,
            negative_scores: negative_scores.add_scalar(self.shift),
        }
    }

    /// What one query's probabilities are made of: contexts, log priors, objects and biases.
    #[cfg(test)]
    pub(crate) fn vectors(&self, query: Query) -> (Vec<f64>, Vec<f64>, Vec<f64>, Vec<f64>) {
        let queries =
            Queries { subjects: [query.subject.0].into(), relations: [query.relation.0].into() };
        let input = self.clone().scoring().logits(&queries);
        let wide = |data: burn::tensor::TensorData| -> Vec<f64> {
            data.iter::<f32>().map(f64::from).collect()
        };
        let entities = input.objects.dims()[0];
        let bias = input.bias.map_or(vec![0.0; entities], |bias| wide(bias.into_data()));
        let context = wide(input.context.into_data());
        (context, wide(input.log_prior.into_data()), wide(input.objects.into_data()), bias)
    }
}

/// A network that is asked: its table of objects is made once for all queries.
#[derive(Debug)]
pub(crate) struct Scoring {
    pub(crate) network: Network,
    objects: Tensor<2>,
    /// The same as they are scored.
    scored: Tensor<2>,
    /// How products are made where many queries are scored at once.
    pub(crate) precision: Precision,
}

impl Scoring {
    fn logits(&self, queries: &Queries) -> Logits {
        let pass = Pass { objects: &self.objects, noise: None };
        let query = self.network.encoder.forward(queries, &pass).query;
        let components = self.network.output.forward(query, None);
        self.network.logits(components, self.scored.clone())
    }
}

impl Scorer for Scoring {
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let queries = Queries {
            subjects: queries.iter().map(|query| query.subject.0).collect(),
            relations: queries.iter().map(|query| query.relation.0).collect(),
        };
        map_log_probs(self.logits(&queries), self.network.probability, self.precision, map)
    }

    fn probability(&self) -> ProbabilityKind {
        self.network.probability
    }
}
