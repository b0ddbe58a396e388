//! How long does a training step take?
//!
//! The same step as in training, on random queries and answers or on those of a run: encoder with
//! dropout, output layer, loss, backward pass, Adam. Encoders that read the training facts get
//! random ones.

mod gradient;
mod kernels;

use std::sync::{Arc, Mutex, PoisonError};

use burn::optim::GradientsParams;
use burn::tensor::TensorData;
use rand::RngExt;

use crate::config::Config;
use crate::encoder::{Domain, Edges, Queries};
use crate::error::Error;
use crate::model::{Batch, Model};
use crate::ops::{BatchAnswers, PairScore, Products, Work, Workspace, peak};
use crate::output::Negatives;
use crate::parameters::{Adam, replace, tensors};
use crate::random::{Noise, Purpose, Weights, generator, shuffled};
use crate::rows::narrow;
use crate::run::Run;
use crate::train::items::{ItemList, draw_negatives};
use crate::train::{device, new_model, step_bytes};
pub use gradient::{GradientNoise, SparseNoise, gradient_noise};
pub use kernels::{KernelSizes, KernelTiming, time_kernels};

/// A model in training on one random batch.
#[derive(Debug)]
pub struct StepBench {
    config: Config,
    model: Option<Model>,
    adam: Adam,
    batch: Batch,
    entities: usize,
    workspace: Arc<Mutex<Workspace>>,
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
        let mut rng = generator(config.seed, Purpose::Benchmark, (0, 0));
        let mut draw = |n: usize, below: usize| -> Vec<u32> {
            (0..n).map(|_| rng.random_range(0..below as u32)).collect()
        };
        let queries = Queries {
            subjects: draw(config.batch, entities).into(),
            relations: draw(config.batch, relations).into(),
        };
        let batch_answers = BatchAnswers {
            queries: (0..config.batch as u32)
                .flat_map(|q| std::iter::repeat_n(q, answers))
                .collect(),
            objects: draw(config.batch * answers, entities),
            weights: vec![1.0 / answers as f32; config.batch * answers],
        };
        let known = batch_answers.objects.chunks_exact(answers).map(|known| {
            let mut known = known.to_vec();
            known.sort_unstable();
            known.dedup();
            known
        });
        let negatives = Negatives::draw(config, entities, 0, known);
        let domain = domain(config, entities, relations);
        let weights = Weights::new(config.seed, device().autodiff());
        Self {
            model: Some(Model::new(config, &domain, weights)),
            adam: Adam::default(),
            batch: Batch { queries, answers: Arc::new(batch_answers), negatives },
            entities,
            workspace: Arc::new(Mutex::new(Workspace::new(config.memory_budget << 20))),
            config: config.clone(),
        }
    }

    /// The model of a run, and a batch of its training items; `config` is the run's, or nearly.
    ///
    /// # Errors
    /// When there is nothing to learn from.
    pub fn of_run(run: &Run, config: &Config) -> Result<Self, Error> {
        let graph = &run.graph;
        let items = ItemList::of(graph, config)?;
        let order = shuffled((0..items.len() as u32).collect(), config.seed, 0);
        let mut batch = items.batch(graph, &order[..config.batch.min(order.len())]);
        batch.negatives = draw_negatives(graph, &batch.queries, config, 0);
        let model = new_model(config, graph, Weights::zeros(device().autodiff()));
        Ok(Self {
            model: Some(with_weights_of(run, model)),
            adam: Adam::default(),
            batch,
            entities: graph.entities().len(),
            workspace: Arc::new(Mutex::new(Workspace::new(config.memory_budget << 20))),
            // So that no step changes what the next one has to do.
            config: Config { learning_rate: 0.0, ..config.clone() },
        })
    }

    /// What the loss has computed since it was last asked for; nothing for losses that are not over
    /// all objects.
    pub fn take_work(&self) -> Option<LossWork> {
        let work = take_work(&self.workspace);
        let (_, dim) = self.config.scored_dims();
        let is_dot = self.config.pair_score() == PairScore::Dot;
        let flops = is_dot.then(|| 2.0 * dim as f64 * work.products() as f64);
        work.density().map(|density| LossWork { density, flops })
    }

    /// Floating-point operations a second that matrix products of the loss's tiles reach on this
    /// machine, with all threads and nothing else.
    pub fn peak_flops(&self) -> f64 {
        peak(self.config.scored_dims().0, Products::Whole)
    }

    /// Bytes that such a step will take at its peak.
    pub fn forecast(config: &Config, entities: usize, relations: usize) -> u64 {
        step_bytes(config, &domain(config, entities, relations), config.batch)
    }

    /// One step; gives the loss before it.
    pub fn step(&mut self) -> f64 {
        let model = self.model.take().expect("put back at the end of every step");
        let mut batch = self.batch.clone();
        let (model, whole) = narrow(model, &mut batch, &self.config, self.entities);
        let noise = Noise::new(self.config.seed, self.adam.steps);
        let loss = model.loss(&batch, &self.config, &noise, &self.workspace).total;
        let value = f64::from(loss.clone().into_scalar::<f32>());
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.adam.step(model, grads, whole, self.config.learning_rate, 1.0));
        value
    }
}

fn take_work(workspace: &Mutex<Workspace>) -> Work {
    workspace.lock().unwrap_or_else(PoisonError::into_inner).take_work()
}

/// A model with what a run has learned.
fn with_weights_of(run: &Run, model: Model) -> Model {
    let values = tensors(&run.scoring.model).into_iter().map(|tensor| {
        let values = tensor.values.into_data().try_into_vec::<f32>().expect("models are f32");
        (tensor.name, TensorData::new(values, burn::tensor::Shape::from(tensor.shape)))
    });
    replace(model, values.collect())
}

/// Random facts per entity, for encoders that read them: as many as FB15k-237 has in training.
const FACTS_PER_ENTITY: usize = 19;

fn domain(config: &Config, entities: usize, relations: usize) -> Domain {
    let domain = Domain::without_edges(entities, relations);
    if !config.encoder.reads_edges() {
        return domain;
    }
    let mut rng = generator(config.seed, Purpose::Benchmark, (1, 0));
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
