//! Batches for tests: random values, and the loss of each kind by its formula in f64.

use std::ops::Range;

use super::{BatchAnswers, Grads, Inputs};
use crate::pair_score::PairScore;
use crate::pair_score::samples::{draw, formula};
use crate::tiles::{LogitInputs, Shape};

/// Gradients by context, prior, objects, bias and weights; the last two may be empty.
pub type FiveGrads = [Vec<f32>; 5];

/// The values that a loss is made of, in the same order, in f64.
pub type Five<'a> = [&'a [f64]; 5];

/// A batch with everything that its loss is made of.
#[derive(Debug, Clone)]
pub struct Case {
    /// How pairs are scored.
    pub score: PairScore,
    /// Sizes; all objects.
    pub shape: Shape,
    /// `[B·K, C]`.
    pub context: Vec<f32>,
    /// `[B, K]`.
    pub log_prior: Vec<f32>,
    /// `[E, D]`.
    pub objects: Vec<f32>,
    /// `[E]`.
    pub bias: Option<Vec<f32>>,
    /// What the score has learned.
    pub weights: Vec<f32>,
    /// The answers.
    pub answers: BatchAnswers,
}

impl Case {
    /// Queries, components, dimension and entities are the numbers of `size`. Priors are not
    /// normalised.
    pub fn random(score: PairScore, size: [usize; 4], has_bias: bool, seed: u64) -> Self {
        let [queries, components, dim, entities] = size;
        let (context_dim, object_dim) = score.widths(dim);
        let mut seeds = (0..).map(|number| 1_000 * seed + number);
        let mut draw = |n: usize| draw(n, seeds.next().unwrap_or_default());
        Self {
            score,
            context: draw(queries * components * context_dim),
            objects: draw(entities * object_dim),
            bias: has_bias.then(|| draw(entities)),
            log_prior: draw(queries * components),
            weights: score.some_weights(),
            answers: some_answers(queries, entities, draw),
            shape: Shape { queries, components, context_dim, object_dim, objects: 0..entities },
        }
    }

    /// The same with priors that sum to one.
    #[must_use]
    pub fn with_normalised_prior(mut self) -> Self {
        for row in self.log_prior.chunks_exact_mut(self.shape.components) {
            let sum: f32 = row.iter().map(|x| x.exp()).sum();
            row.iter_mut().for_each(|x| *x -= sum.ln());
        }
        self
    }

    /// Over all objects.
    pub fn inputs(&self) -> Inputs<'_> {
        self.inputs_of(self.shape.objects.clone())
    }

    /// Over a range of objects.
    pub fn inputs_of(&self, objects: Range<usize>) -> Inputs<'_> {
        let dim = self.shape.object_dim;
        Inputs {
            logits: LogitInputs {
                shape: Shape { objects: objects.clone(), ..self.shape.clone() },
                score: self.score,
                context: &self.context,
                objects: &self.objects[objects.start * dim..objects.end * dim],
                bias: self.bias.as_ref().map(|bias| &bias[objects]),
                weights: &self.weights,
            },
            log_prior: &self.log_prior,
            answers: &self.answers,
        }
    }

    /// Everything in f64; a bias of zeros where there is none.
    pub fn wide(&self) -> [Vec<f64>; 5] {
        let bias = self.bias.clone().unwrap_or_else(|| vec![0.0; self.shape.objects.len()]);
        [&self.context, &self.log_prior, &self.objects, &bias, &self.weights]
            .map(|values| values.iter().map(|x| f64::from(*x)).collect())
    }

    /// The logit of a row and an object by its formula.
    fn logit(&self, values: Five, row: usize, object: usize) -> f64 {
        let [context, _, objects, bias, weights] = values;
        let Shape { context_dim, object_dim, .. } = self.shape;
        let context = &context[row * context_dim..][..context_dim];
        let vector = &objects[object * object_dim..][..object_dim];
        formula(self.score, weights, context, vector) + bias[object]
    }

    /// log Σ_k π_k softmax_k of every object, one logit at a time.
    pub fn log_probs(&self, values: Five, query: usize) -> Vec<f64> {
        let [_, log_prior, ..] = values;
        let Shape { components, ref objects, .. } = self.shape;
        let mut mixed = vec![0.0; objects.len()];
        let rows = query * components..(query + 1) * components;
        for (row, log_prior) in rows.clone().zip(&log_prior[rows]) {
            let logits: Vec<f64> =
                objects.clone().map(|object| self.logit(values, row, object)).collect();
            let sum: f64 = logits.iter().map(|z| z.exp()).sum();
            for (mixed, z) in mixed.iter_mut().zip(&logits) {
                *mixed += (log_prior + z).exp() / sum;
            }
        }
        mixed.into_iter().map(f64::ln).collect()
    }

    /// The loss of softmaxes by its formula.
    pub fn softmax_loss(&self, smoothing: f32, values: Five) -> f64 {
        let smoothing = f64::from(smoothing);
        let of_answer = |i: usize| {
            let log_probs = self.log_probs(values, self.answers.query(i));
            let mean = log_probs.iter().sum::<f64>() / log_probs.len() as f64;
            let at = log_probs[self.answers.objects[i] as usize];
            -f64::from(self.answers.weights[i]) * ((1.0 - smoothing) * at + smoothing * mean)
        };
        (0..self.answers.len()).map(of_answer).sum()
    }

    /// The loss of sigmoids by its formula.
    pub fn sigmoid_loss(&self, values: Five) -> f64 {
        let Shape { queries, components, ref objects, .. } = self.shape;
        let [_, log_prior, ..] = values;
        let mut targets = vec![0.0; queries * objects.len()];
        for (i, object) in self.answers.objects.iter().enumerate() {
            targets[self.answers.query(i) * objects.len() + *object as usize] +=
                f64::from(self.answers.weights[i]);
        }
        let mut loss = 0.0;
        for query in 0..queries {
            let rows = query * components..(query + 1) * components;
            let total: f64 = log_prior[rows.clone()].iter().map(|x| x.exp()).sum();
            for object in objects.clone() {
                let (mut yes, mut no) = (0.0, 0.0);
                for row in rows.clone() {
                    let z = self.logit(values, row, object);
                    let gate = log_prior[row].exp() / total;
                    yes += gate / (1.0 + (-z).exp());
                    no += gate / (1.0 + z.exp());
                }
                let target = targets[query * objects.len() + object];
                loss -= target * yes.ln() + (1.0 - target) * no.ln();
            }
        }
        loss
    }
}

/// Every fourth query has none.
fn some_answers(
    queries: usize,
    entities: usize,
    mut draw: impl FnMut(usize) -> Vec<f32>,
) -> BatchAnswers {
    let of_query = |query: u32| std::iter::repeat_n(query, query as usize % 4);
    let queries: Vec<u32> = (0..queries as u32).flat_map(of_query).collect();
    let n = queries.len();
    let object = |x: f32| (((x + 1.0) / 2.0 * entities as f32) as u32).min(entities as u32 - 1);
    let objects = draw(n).into_iter().map(object).collect();
    let weights = draw(n).into_iter().map(|x| 0.55 + 0.45 * x).collect();
    BatchAnswers { queries, objects, weights }
}

impl Grads {
    /// As one list.
    pub fn into_five(self) -> FiveGrads {
        let logits = self.logits;
        let bias = logits.bias.unwrap_or_default();
        [logits.context, self.log_prior, logits.objects, bias, logits.weights]
    }
}

/// How far two gradients are apart, over the length of the second, or over a hundredth where that is
/// nothing but rounding.
pub fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len(), "values of a gradient");
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let size = norm(&mut expected.iter().map(|x| f64::from(*x)));
    norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b))) / size.max(1e-2)
}
