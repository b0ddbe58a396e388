//! How long does a training step take?
//!
//! The same step as in training, on random queries and answers: encoder with dropout, output
//! layer, loss, backward pass, Adam.

use std::sync::{Arc, Mutex};

use burn::optim::GradientsParams;
use rand::RngExt;

use crate::config::Config;
use crate::encoder::{Domain, Queries};
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
        let domain = Domain::without_edges(entities, relations);
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
        step_bytes(config, &Domain::without_edges(entities, relations), config.batch)
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
