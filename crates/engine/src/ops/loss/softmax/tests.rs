//! The fused loss against an f64 loop, finite differences and plain tensor operations.

use burn::tensor::Device;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::ops::score::tests::{ALL, formula};

#[derive(Clone)]
struct Case {
    score: PairScore,
    shape: Shape,
    context: Vec<f32>,
    log_prior: Vec<f32>,
    objects: Vec<f32>,
    bias: Option<Vec<f32>>,
    weights: Vec<f32>,
    answers: BatchAnswers,
    smoothing: f32,
}

impl Case {
    /// `size`: queries, components, dimension, entities.
    fn random(size: [usize; 4], has_bias: bool, smoothing: f32, seed: u64) -> Self {
        Self::scored(PairScore::Dot, size, has_bias, seed).smoothed(smoothing)
    }

    fn smoothed(self, smoothing: f32) -> Self {
        Self { smoothing, ..self }
    }

    fn scored(score: PairScore, size: [usize; 4], has_bias: bool, seed: u64) -> Self {
        let [queries, components, dim, entities] = size;
        let (context_dim, object_dim) = score.widths(dim);
        let shape = Shape { queries, components, context_dim, object_dim, entities };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw =
            |n: usize| -> Vec<f32> { (0..n).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let context = draw(queries * components * context_dim);
        let objects = draw(entities * object_dim);
        let bias = has_bias.then(|| draw(entities));
        let mut log_prior = draw(queries * components);
        for row in log_prior.chunks_exact_mut(components) {
            let sum: f32 = row.iter().map(|x| x.exp()).sum();
            row.iter_mut().for_each(|x| *x -= sum.ln());
        }
        let mut answers = BatchAnswers::default();
        for query in 0..queries as u32 {
            // Some queries have no answer, and some have one twice.
            for _ in 0..query % 4 {
                answers.queries.push(query);
                answers.objects.push(rng.random_range(0..entities as u32));
                answers.weights.push(rng.random_range(0.1..2.0));
            }
        }
        let weights = score.some_weights();
        let smoothing = 0.0;
        Self { score, shape, context, log_prior, objects, bias, weights, answers, smoothing }
    }

    fn inputs(&self) -> Inputs<'_> {
        Inputs {
            shape: self.shape,
            score: self.score,
            context: &self.context,
            log_prior: &self.log_prior,
            objects: &self.objects,
            bias: self.bias.as_deref(),
            weights: &self.weights,
            answers: &self.answers,
        }
    }

    /// The loss by the formula, in f64, one logit at a time.
    fn plain_loss(&self, [context, log_prior, objects, bias, weights]: [&[f64]; 5]) -> f64 {
        let Shape { components, context_dim, object_dim, entities, .. } = self.shape;
        let log_probs = |query: usize| -> Vec<f64> {
            let mut mixed = vec![0.0; entities];
            for row in query * components..(query + 1) * components {
                let logits: Vec<f64> = (0..entities)
                    .map(|o| {
                        let context = &context[row * context_dim..][..context_dim];
                        let object = &objects[o * object_dim..][..object_dim];
                        formula(self.score, weights, context, object) + bias[o]
                    })
                    .collect();
                let sum: f64 = logits.iter().map(|z| z.exp()).sum();
                for (mixed, z) in mixed.iter_mut().zip(&logits) {
                    *mixed += (log_prior[row] + z).exp() / sum;
                }
            }
            mixed.into_iter().map(f64::ln).collect()
        };
        let mut loss = 0.0;
        for i in 0..self.answers.len() {
            let log_probs = log_probs(self.answers.query(i));
            let weight = f64::from(self.answers.weights[i]);
            let mean = log_probs.iter().sum::<f64>() / entities as f64;
            let smoothing = f64::from(self.smoothing);
            let at = log_probs[self.answers.objects[i] as usize];
            loss -= weight * ((1.0 - smoothing) * at + smoothing * mean);
        }
        loss
    }

    /// Loss and gradients by the fused kernel, scaled by `scale`.
    fn fused(&self, kept_bytes: usize, scale: f32) -> (f64, [Vec<f32>; 5]) {
        let mut workspace = Workspace::new(kept_bytes);
        let (loss, saved) = forward(&self.inputs(), self.smoothing, &mut workspace);
        let grads = backward(&self.inputs(), &saved, scale, &mut workspace);
        let bias = grads.bias.unwrap_or_default();
        (loss, [grads.context, grads.log_prior, grads.objects, bias, grads.weights])
    }

    /// The same by plain tensor operations and burn's autodiff.
    fn by_tensors(&self) -> (f64, [Vec<f32>; 5]) {
        let device = Device::flex().autodiff();
        let Shape { queries, components, entities, .. } = self.shape;
        let table = |values: &[f32], rows: usize| {
            let columns = values.len() / rows;
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), [rows, columns]), &device)
                .require_grad()
        };
        let context = table(&self.context, queries * components);
        let log_prior = table(&self.log_prior, queries);
        let objects = table(&self.objects, entities);
        let bias = self
            .bias
            .as_ref()
            .map(|bias| Tensor::<1>::from_floats(bias.as_slice(), &device).require_grad());
        let weights = (!self.weights.is_empty())
            .then(|| Tensor::<1>::from_floats(self.weights.as_slice(), &device).require_grad());
        let input = Logits {
            context: context.clone(),
            log_prior: log_prior.clone(),
            objects: objects.clone(),
            bias: bias.clone(),
            score: self.score,
            weights: weights.clone(),
        };
        let loss = reference(input, &self.answers, self.smoothing);
        let grads = loss.backward();
        let vec = |data: TensorData| data.try_to_vec::<f32>().unwrap();
        let grad = |tensor: &Tensor<2>| vec(tensor.grad(&grads).unwrap().into_data());
        let [grad_bias, grad_weights] = [bias, weights]
            .map(|t| t.map_or_else(Vec::new, |t| vec(t.grad(&grads).unwrap().into_data())));
        (
            f64::from(loss.into_scalar::<f32>()),
            [grad(&context), grad(&log_prior), grad(&objects), grad_bias, grad_weights],
        )
    }
}

/// Cases around every edge: one chunk, uneven tiles, more rows than a block, bias, smoothing.
fn cases() -> Vec<Case> {
    vec![
        Case::random([5, 1, 3, 7], false, 0.0, 1),
        Case::random([6, 3, 4, 40], true, 0.0, 2),
        Case::random([9, 1, 8, 33], true, 0.2, 3),
        Case::random([13, 4, 5, 2], false, 0.0, 4),
        Case::random([150, 5, 6, 9000], true, 0.0, 5),
        Case::random([700, 1, 6, 300], false, 0.1, 6),
    ]
}

/// Every score with a softmax and with a mixture, and the other cases.
fn cases_of_all_scores() -> Vec<Case> {
    let mut cases = cases();
    for (score, components) in ALL.into_iter().flat_map(|score| [(score, 1), (score, 2)]) {
        cases.push(Case::scored(score, [7, components, 6, 45], components == 2, 12));
    }
    cases
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |x: f64| x * x;
    let norm: f64 = b.iter().map(|x| square(f64::from(*x))).sum();
    let difference: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(a - b))).sum();
    if norm == 0.0 { difference.sqrt() } else { (difference / norm).sqrt() }
}

#[test]
fn fused_equals_plain_tensor_operations() {
    for case in cases_of_all_scores() {
        let (expected, expected_grads) = case.by_tensors();
        for kept_bytes in [0, 1 << 20, usize::MAX / 2] {
            let (loss, grads) = case.fused(kept_bytes, 1.0);
            assert!((loss - expected).abs() <= 1e-5 * expected.abs(), "{loss} and {expected}");
            for (grad, expected) in grads.iter().zip(&expected_grads) {
                let distance = distance(grad, expected);
                assert!(distance < 1e-5, "{:?}: {distance}", case.shape);
            }
        }
    }
}

#[test]
fn gradients_equal_finite_differences_in_f64() {
    // The two large ones would take minutes.
    for case in cases_of_all_scores().iter().filter(|case| case.shape.queries < 100) {
        let wide = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let bias = case.bias.clone().unwrap_or_else(|| vec![0.0; case.shape.entities]);
        let inputs =
            [&case.context, &case.log_prior, &case.objects, &bias, &case.weights].map(|v| wide(v));
        let loss =
            |inputs: &[Vec<f64>; 5]| case.plain_loss(inputs.each_ref().map(|v| v.as_slice()));
        let (fused, grads) = case.fused(0, 1.0);
        assert!((fused - loss(&inputs)).abs() < 1e-5 * fused.abs());
        for (which, grad) in grads.iter().enumerate() {
            for i in 0..grad.len() {
                // The error of a central difference is of the order of the square of its step. A
                // step across a kink, where two coordinates agree, would be wrong by more; there
                // is none that close in these cases.
                let step = 1e-6;
                let at = |x: f64| {
                    let mut moved = inputs.clone();
                    moved[which][i] += x;
                    loss(&moved)
                };
                let expected = (at(step) - at(-step)) / (2.0 * step);
                let found = f64::from(grad[i]);
                assert!((found - expected).abs() < 2e-5, "input {which}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for score in ALL {
        let case = Case::scored(score, [60, 4, 6, 5000], true, 8);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| case.fused(1 << 20, 0.5))
        };
        let one = on(1);
        for threads in [2, 3, 7] {
            assert!(on(threads) == one, "{score:?} on {threads} threads");
        }
    }
}

#[test]
fn a_workspace_used_by_another_pass_in_between_does_no_harm() {
    let case = Case::random([20, 2, 7, 500], false, 0.0, 9);
    let mut workspace = Workspace::new(1 << 20);
    let (_, saved) = forward(&case.inputs(), 0.0, &mut workspace);
    forward(&Case::random([3, 4, 5, 900], false, 0.0, 10).inputs(), 0.0, &mut workspace);
    let first = backward(&case.inputs(), &saved, 1.0, &mut workspace);
    let again = backward(&case.inputs(), &saved, 1.0, &mut workspace);
    let expected = case.fused(0, 1.0).1;
    for grads in [first, again] {
        assert!(distance(&grads.objects, &expected[2]) < 1e-6);
        assert!(distance(&grads.context, &expected[0]) < 1e-6);
    }
}

#[test]
fn a_broken_weight_reaches_the_loss() {
    // An infinite vector is infinitely far from all others, which is no contradiction.
    let distances = ALL.map(|score| (score, f32::NAN));
    for (score, value) in distances.into_iter().chain([(PairScore::Dot, f32::INFINITY)]) {
        let mut case = Case::scored(score, [4, 2, 6, 50], false, 11);
        // No query has object 49 as its answer.
        case.answers.objects.iter_mut().for_each(|object| *object %= 49);
        case.objects[49 * case.shape.object_dim] = value;
        assert!(!case.fused(0, 1.0).0.is_finite());
        assert!(!case.fused(1 << 20, 1.0).0.is_finite());
    }
}
