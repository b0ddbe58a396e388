//! How long does a training step take?
//!
//! The same step as in training, on random queries and answers: encoder with dropout, output
//! layer, loss, backward pass, Adam. Encoders that read the training facts get random ones.

use std::sync::{Arc, Mutex};

use burn::optim::GradientsParams;
use rand::RngExt;

use crate::config::Config;
use crate::encoder::{Domain, Edges, Queries};
use crate::model::{Batch, Model};
use crate::ops::{BatchAnswers, Workspace};
use crate::output::Negatives;
use crate::parameters::Adam;
use crate::random::{Noise, Purpose, Weights, generator};
use crate::train::{device, step_bytes};

/// A model in training on one random batch.
#[derive(Debug)]
pub struct StepBench {
    config: Config,
    model: Option<Model>,
    adam: Adam,
    batch: Batch,
    workspace: Arc<Mutex<Workspace>>,
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
            workspace: Arc::new(Mutex::new(Workspace::new(config.memory_budget << 20))),
            config: config.clone(),
        }
    }

    /// Bytes that such a step will take at its peak.
    pub fn forecast(config: &Config, entities: usize, relations: usize) -> u64 {
        step_bytes(config, &domain(config, entities, relations), config.batch)
    }

    /// One step; gives the loss before it.
    pub fn step(&mut self) -> f64 {
        let model = self.model.take().expect("put back at the end of every step");
        let noise = Noise::new(self.config.seed, self.adam.steps);
        let loss = model.loss(&self.batch, &self.config, &noise, &self.workspace).total;
        let value = f64::from(loss.clone().into_scalar::<f32>());
        let grads = GradientsParams::from_grads(loss.backward(), &model);
        self.model = Some(self.adam.step(model, grads, self.config.learning_rate, 1.0));
        value
    }
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
