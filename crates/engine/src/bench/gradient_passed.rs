//! Gradient that passes the output layer: how much of what a loss asks of the logits can an encoder do?
//!
//! The loss has a gradient g_k by the logits of each component, one number an object. An update can
//! move logits only along the object vectors, so what reaches the encoder of g_k is its projection on
//! the column space of E; the rest is lost (Godey and Artzi 2026, "Lost in Backpropagation").

use faer::{Mat, Side};
use fullrank_kernels::simd::dot;
use rayon::prelude::*;

use super::trainable;
use crate::error::Error;
use crate::model::Model;
use crate::ops::{BatchAnswers, PairScore};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, shuffled};
use crate::trainer::items::ItemList;

/// How much of the gradient by the logits lies in the column space of the object vectors.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GradientPassed {
    /// Gradients by the logits of a component.
    pub n_gradients: usize,
    /// Σ‖P g‖ / Σ‖g‖.
    pub of_norm: f64,
    /// Σ‖P g‖² / Σ‖g‖².
    pub of_square: f64,
    /// The matrix rank of the object vectors over their number: what would pass of the squares if the
    /// gradient had nothing to do with them.
    pub by_chance: f64,
}

/// Measures it for so many training items of a model, with dropout as in training.
///
/// # Errors
/// When there is nothing to learn from.
///
/// # Panics
/// If the model has no softmaxes of dot products, which [`is_measurable`] asks about.
pub fn gradient_passed(model: &Model, n_items: usize) -> Result<GradientPassed, Error> {
    assert!(is_measurable(model), "softmaxes of dot products");
    let (graph, config) = (model.graph(), model.config());
    let items = ItemList::of(graph, config)?;
    let order = shuffled((0..items.len() as u32).collect(), config.training.seed, 0);
    let batch = items.batch(graph, &order[..n_items.min(order.len())]);
    let network = trainable(model, config);
    let noise = Noise::new(config.training.seed, 0);
    let logits = network.training_logits(&batch.queries, config, &noise);
    let [_, components] = logits.log_prior.dims();
    let [entities, dim] = logits.objects.dims();
    let floats = |tensor: burn::tensor::TensorData| {
        tensor.try_into_vec::<f32>().expect("models are made of f32")
    };
    let [contexts, log_prior, objects] =
        [logits.context.into_data(), logits.log_prior.into_data(), logits.objects.into_data()]
            .map(floats);
    let space = ColumnSpace::of(&objects, dim);
    let query = |number: usize| {
        let query = Query {
            contexts: &contexts[number * components * dim..][..components * dim],
            log_prior: &log_prior[number * components..][..components],
            answers: answers_of(&batch.answers, number),
        };
        query.lengths(&objects, &space)
    };
    let n_queries = batch.queries.subjects.len();
    let lengths: Vec<[f64; 2]> =
        (0..n_queries).into_par_iter().map(query).collect::<Vec<_>>().concat();
    let sum = |power: i32, which: usize| -> f64 {
        lengths.iter().map(|squares| squares[which].sqrt().powi(power)).sum()
    };
    Ok(GradientPassed {
        n_gradients: lengths.len(),
        of_norm: sum(1, 0) / sum(1, 1),
        of_square: sum(2, 0) / sum(2, 1),
        by_chance: space.rank() as f64 / entities as f64,
    })
}

/// Whether a model has what is measured: softmaxes over all objects, of dot products without a bias.
pub fn is_measurable(model: &Model) -> bool {
    let config = model.config();
    config.pair_score() == PairScore::Dot
        && config.probability() == ProbabilityKind::Categorical
        && config.training.negatives.is_none()
        && !config.model.bias
}

/// The objects and weights of the answers of one query of a batch.
fn answers_of(answers: &BatchAnswers, query: usize) -> Vec<(usize, f64)> {
    let from = answers.queries.partition_point(|other| (*other as usize) < query);
    let to = answers.queries.partition_point(|other| (*other as usize) <= query);
    let weights = answers.weights[from..to].iter().map(|weight| f64::from(*weight));
    answers.objects[from..to].iter().map(|object| *object as usize).zip(weights).collect()
}

/// One query of a batch.
struct Query<'a> {
    /// `[K, D]`.
    contexts: &'a [f32],
    /// `[K]`.
    log_prior: &'a [f32],
    answers: Vec<(usize, f64)>,
}

impl Query<'_> {
    /// ‖P g_k‖² and ‖g_k‖² of every component, with g_k = Γ_k softmax_k − Σ_a y_a γ_ka (at a).
    fn lengths(&self, objects: &[f32], space: &ColumnSpace) -> Vec<[f64; 2]> {
        let dim = space.dim();
        let log_probs: Vec<Vec<f64>> = self
            .contexts
            .chunks_exact(dim)
            .map(|context| log_softmax(objects.chunks_exact(dim).map(|row| dot(context, row))))
            .collect();
        // log π_k + log softmax_k, component by component.
        let joint = |object: usize| -> Vec<f64> {
            let joint = self.log_prior.iter().zip(&log_probs);
            joint.map(|(prior, log_probs)| f64::from(*prior) + log_probs[object]).collect()
        };
        let shares: Vec<(usize, f64, Vec<f64>)> = self
            .answers
            .iter()
            .map(|(object, weight)| {
                let joint = joint(*object);
                let total = log_sum_exp(&joint);
                (*object, *weight, joint.iter().map(|a| (a - total).exp()).collect())
            })
            .collect();
        (0..log_probs.len())
            .map(|k| {
                let all: f64 = shares.iter().map(|(_, weight, share)| weight * share[k]).sum();
                let mut grad: Vec<f64> = log_probs[k].iter().map(|log| all * log.exp()).collect();
                for (object, weight, share) in &shares {
                    grad[*object] -= weight * share[k];
                }
                [space.projected(objects, &grad), grad.iter().map(|g| g * g).sum()]
            })
            .collect()
    }
}

fn log_softmax(logits: impl Iterator<Item = f32>) -> Vec<f64> {
    let logits: Vec<f64> = logits.map(f64::from).collect();
    let total = log_sum_exp(&logits);
    logits.into_iter().map(|logit| logit - total).collect()
}

fn log_sum_exp(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + values.iter().map(|x| (x - largest).exp()).sum::<f64>().ln()
}

/// The column space of E: eigenvectors of EᵀE, and what they are stretched by.
struct ColumnSpace {
    vectors: Mat<f64>,
    eigenvalues: Vec<f64>,
}

impl ColumnSpace {
    fn of(objects: &[f32], dim: usize) -> Self {
        let rows = Mat::from_fn(objects.len() / dim, dim, |i, j| f64::from(objects[i * dim + j]));
        let gram = rows.transpose() * &rows;
        let found = gram.self_adjoint_eigen(Side::Lower);
        let found = found.expect("a Gram matrix of finite numbers has eigenvalues");
        let eigenvalues = found.S().column_vector().iter().copied().collect();
        Self { vectors: found.U().to_owned(), eigenvalues }
    }

    fn dim(&self) -> usize {
        self.eigenvalues.len()
    }

    /// Under this an eigenvalue is rounding.
    fn floor(&self) -> f64 {
        let largest = self.eigenvalues.iter().copied().fold(0.0, f64::max);
        largest * self.dim() as f64 * f64::EPSILON
    }

    fn rank(&self) -> usize {
        self.eigenvalues.iter().filter(|value| **value > self.floor()).count()
    }

    /// ‖P g‖², as Eᵀ·g = a gives it: Σ_i (v_i·a)² / λ_i.
    fn projected(&self, objects: &[f32], grad: &[f64]) -> f64 {
        let mut sums = vec![0.0; self.dim()];
        for (row, g) in objects.chunks_exact(self.dim()).zip(grad) {
            for (sum, x) in sums.iter_mut().zip(row) {
                *sum += g * f64::from(*x);
            }
        }
        let floor = self.floor();
        let along = |i: usize| -> f64 {
            let column = self.vectors.col(i).iter();
            column.zip(&sums).map(|(v, a)| v * a).sum()
        };
        (0..self.dim())
            .filter(|i| self.eigenvalues[*i] > floor)
            .map(|i| along(i).powi(2) / self.eigenvalues[i])
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::device::Device;
    use crate::trainer::Trainer;
    use crate::trainer::tests::rings;

    fn passed(text: &str) -> GradientPassed {
        let config = Config::parse(&format!("batch = 16\nlearning_rate = 0.02\n{text}")).unwrap();
        let mut trainer = Trainer::new(Arc::new(rings()), config, Device::Cpu).unwrap();
        for _ in 0..3 {
            trainer.update().unwrap();
        }
        gradient_passed(&trainer.into_model(), 30).unwrap()
    }

    #[test]
    fn everything_passes_where_there_are_as_many_dimensions_as_objects() {
        for output in ["", "output = \"mixture\"\ncomponents = 3"] {
            let passed = passed(&format!("dim = 24\n{output}"));
            assert!((passed.of_norm - 1.0).abs() < 1e-6 && (passed.of_square - 1.0).abs() < 1e-6);
            assert_eq!(passed.by_chance, 1.0);
        }
    }

    #[test]
    fn less_passes_with_fewer_dimensions() {
        let [few, more] = [2, 8].map(|dim| passed(&format!("dim = {dim}")));
        assert_eq!((few.n_gradients, few.by_chance, more.by_chance), (30, 0.1, 0.4));
        assert!(few.of_norm < more.of_norm && more.of_norm < 1.0);
        let mixed = passed("dim = 8\noutput = \"mixture\"\ncomponents = 3");
        assert_eq!(mixed.n_gradients, 90);
        assert!(mixed.of_norm < 1.0);
    }

    #[test]
    fn a_projection_is_that_of_its_formula() {
        // Two objects along the first axis, one along the second, in three dimensions of which one
        // is empty: E = [[1, 0, 0], [2, 0, 0], [0, 3, 0]].
        let objects = [1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0];
        let space = ColumnSpace::of(&objects, 3);
        assert_eq!(space.rank(), 2);
        // (1, 2, 0)/√5 and (0, 0, 1) span the columns: of g = (1, 0, 2) they keep 1/5 and 4.
        assert!((space.projected(&objects, &[1.0, 0.0, 2.0]) - 4.2).abs() < 1e-12);
    }

    #[test]
    fn gradients_of_a_mixture_are_those_of_its_loss() {
        // Two components of one dimension over two objects at ±1.
        let objects = [1.0, -1.0];
        let query = Query {
            contexts: &[0.5, -0.25],
            log_prior: &[0.25_f32.ln(), 0.75_f32.ln()],
            answers: vec![(0, 2.0)],
        };
        let softmax = |c: f64| [c, -c].map(|z| z.exp() / (c.exp() + (-c).exp()));
        let [a, b] = [softmax(0.5), softmax(-0.25)];
        let p = 0.25 * a[0] + 0.75 * b[0];
        let found = query.lengths(&objects, &ColumnSpace::of(&objects, 1));
        for (found, (prior, probs)) in found.iter().zip([(0.25, a), (0.75, b)]) {
            let share = prior * probs[0] / p;
            // y γ (softmax − answer), and of its two opposite values all lies along (1, −1).
            let expected = 2.0 * (2.0 * share * probs[1]).powi(2);
            assert!((found[0] - expected).abs() < 1e-6 && (found[1] - expected).abs() < 1e-6);
        }
    }
}
