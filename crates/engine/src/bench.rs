//! Benchmarks: how long does a training step take?
//!
//! The same step as in training, on random queries and answers or on those of a model: encoder with
//! dropout, output layer, loss, backward pass, Adam. Encoders that read the training facts get
//! random ones.

mod gradient;
mod gradient_passed;
mod kernels;
mod work;

use std::sync::Arc;

use burn::tensor::TensorData;
use rand::RngExt;

use crate::batch::Batch;
use crate::config::Config;
use crate::device::Device;
use crate::encoder::Queries;
use crate::error::Error;
use crate::learner::{Learner, NotFinite, UpdateAt};
use crate::model::Model;
use crate::network::Network;
use crate::ops::{BatchAnswers, PairScore, Precision, Work, Workspace, peak};
use crate::output::{Draw, Negatives};
use crate::parameters::{replace, tensors};
use crate::part::{Domain, Edges};
use crate::random::{Purpose, Weights, generator, shuffled};
use crate::trainer::items::{ItemList, draw_negatives};
use crate::trainer::step_bytes;
pub use gradient::{GradientNoise, SparseNoise, gradient_noise};
pub use gradient_passed::{GradientPassed, gradient_passed, is_measurable};
pub use kernels::{KernelSizes, KernelTiming, time_kernels};
pub use work::{GraphSize, StepWork};

/// A network in training on one batch, over and over.
#[derive(Debug)]
pub struct StepBench {
    config: Config,
    learner: Learner,
    batch: Batch,
}

/// What a loss over all objects computed, forward and backward.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossWork {
    /// Share of the entries of the logits' gradient that were multiplied.
    pub density: f64,
    /// Floating-point operations of its products; nothing for other scores than the dot product.
    pub flops: Option<f64>,
}

impl StepBench {
    /// A fresh model for `entities` and `relations` (inverses included), and a batch of random
    /// queries with `answers` answers each.
    pub fn new(config: &Config, entities: usize, relations: usize, answers: usize) -> Self {
        let mut rng = generator(config.training.seed, Purpose::Benchmark, (0, 0));
        let mut draw = |n: usize, below: usize| -> Vec<u32> {
            (0..n).map(|_| rng.random_range(0..below as u32)).collect()
        };
        let size = config.training.batch;
        let queries = Queries {
            subjects: draw(size, entities).into(),
            relations: draw(size, relations).into(),
        };
        let batch_answers = BatchAnswers {
            queries: (0..size as u32).flat_map(|q| std::iter::repeat_n(q, answers)).collect(),
            objects: draw(size * answers, entities),
            weights: vec![1.0 / answers as f32; size * answers],
        };
        let known = batch_answers.objects.chunks_exact(answers).map(|known| {
            let mut known = known.to_vec();
            known.sort_unstable();
            known.dedup();
            known
        });
        let seed = config.training.seed;
        let draw = Draw { entities, seed, update: 0 };
        let negatives = config.training.negatives.map(|n| Negatives::draw(n, draw, known));
        let domain = domain(config, entities, relations);
        let weights = Weights::new(seed, Device::default().burn().autodiff());
        let network = Network::new(config, &domain, weights);
        Self {
            learner: Learner::new(network, config, entities),
            batch: Batch { queries, answers: Arc::new(batch_answers), negatives },
            config: config.clone(),
        }
    }

    /// The network of a model, and a batch of its training items; `config` is the model's, or nearly.
    ///
    /// # Errors
    /// When there is nothing to learn from.
    pub fn of_model(model: &Model, config: &Config) -> Result<Self, Error> {
        let graph = model.graph();
        let items = ItemList::of(graph, config)?;
        let order = shuffled((0..items.len() as u32).collect(), config.training.seed, 0);
        let mut batch = items.batch(graph, &order[..config.training.batch.min(order.len())]);
        batch.negatives = draw_negatives(graph, &batch.queries, config, 0);
        let network = trainable(model, config);
        let mut config = config.clone();
        // So that no step changes what the next one has to do.
        config.training.learning_rate = 0.0;
        let learner = Learner::new(network, &config, graph.entities().len());
        Ok(Self { learner, batch, config })
    }

    /// What the loss has computed since it was last asked for; nothing for losses that are not over
    /// all objects.
    pub fn take_work(&self) -> Option<LossWork> {
        let work = self.learner.take_work();
        let [_, dim] = self.config.scored_dims();
        let is_dot = self.config.pair_score() == PairScore::Dot;
        let flops = is_dot.then(|| 2.0 * dim as f64 * work.products() as f64);
        work.density().map(|density| LossWork { density, flops })
    }

    /// Floating-point operations a second that matrix products of the loss's tiles reach on this
    /// machine, with all threads and nothing else.
    pub fn peak_flops(&self) -> f64 {
        peak(self.config.scored_dims()[0], Precision::F32)
    }

    /// Bytes that such a step will take at its peak.
    pub fn forecast(config: &Config, entities: usize, relations: usize) -> u64 {
        step_bytes(config, &domain(config, entities, relations), config.training.batch)
    }

    /// One step; gives the loss before it.
    ///
    /// # Panics
    /// If the loss is not finite.
    pub fn step(&mut self) -> f64 {
        let learning_rate = self.config.training.learning_rate;
        let at = UpdateAt { number: self.learner.optimizer.steps, learning_rate };
        match self.learner.update(&self.config, self.batch.clone(), at) {
            Ok(loss) => loss.total,
            Err(NotFinite { quantity, value, .. }) => panic!("{quantity} became {value}"),
        }
    }
}

fn take_work(workspace: &Workspace) -> Work {
    workspace.take_work()
}

/// A network with what a model has learned, ready to be trained on.
fn trainable(model: &Model, config: &Config) -> Network {
    let weights = Weights::zeros(Device::default().burn().autodiff());
    let network = Network::new(config, &config.domain(model.graph()), weights);
    let values = tensors(model.network()).into_iter().map(|tensor| {
        let values = tensor.values.into_data().try_into_vec::<f32>().expect("models are f32");
        (tensor.name, TensorData::new(values, burn::tensor::Shape::from(tensor.shape)))
    });
    replace(network, values.collect())
}

/// Random facts per entity, for encoders that read them: as many as FB15k-237 has in training.
const FACTS_PER_ENTITY: usize = 19;

fn domain(config: &Config, entities: usize, relations: usize) -> Domain {
    let domain = Domain::without_edges(entities, relations);
    if !config.encoder.facts().reads_edges {
        return domain;
    }
    let mut rng = generator(config.training.seed, Purpose::Benchmark, (1, 0));
    let mut draw = |below: usize| -> Vec<u32> {
        let n = FACTS_PER_ENTITY * entities;
        (0..n).map(|_| rng.random_range(0..below as u32)).collect()
    };
    let half = relations / 2;
    let [subjects, objects, relations] = [entities, entities, half.max(1)].map(&mut draw);
    let inverses: Vec<u32> = relations.iter().map(|relation| relation + half as u32).collect();
    let edges = Edges {
        subjects: [&subjects[..], &objects].concat().into(),
        relations: [&relations[..], &inverses].concat().into(),
        objects: [&objects[..], &subjects].concat().into(),
    };
    Domain { edges, ..domain }
}
