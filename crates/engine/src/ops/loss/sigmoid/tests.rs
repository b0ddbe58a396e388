//! The fused loss against an f64 loop, finite differences and plain tensor operations.

use std::sync::{Arc, Mutex};

use burn::tensor::Device;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::super::binary_cross_entropy;
use super::super::tiles::Shape;
use super::*;
use crate::ops::score::tests::formula;
use crate::ops::{PairScore, Pointwise};

struct Case {
    score: PairScore,
    shape: Shape,
    context: Vec<f32>,
    log_prior: Vec<f32>,
    objects: Vec<f32>,
    bias: Option<Vec<f32>>,
    weights: Vec<f32>,
    answers: BatchAnswers,
}

impl Case {
    /// `size`: queries, components, dimension, entities. Priors are not normalised.
    fn random(size: [usize; 4], has_bias: bool, seed: u64) -> Self {
        Self::scored(PairScore::Dot, size, has_bias, seed)
    }

    fn scored(score: PairScore, size: [usize; 4], has_bias: bool, seed: u64) -> Self {
        let [queries, components, dim, entities] = size;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw =
            |n: usize| -> Vec<f32> { (0..n).map(|_| rng.random_range(-1.0..1.0)).collect() };
        let (context_dim, object_dim) = score.widths(dim);
        let context = draw(queries * components * context_dim);
        let objects = draw(entities * object_dim);
        let bias = has_bias.then(|| draw(entities));
        let log_prior = draw(queries * components);
        let mut answers = BatchAnswers::default();
        for query in 0..queries as u32 {
            // Some queries have no answer, and some have one twice.
            for _ in 0..query % 4 {
                answers.queries.push(query);
                answers.objects.push(rng.random_range(0..entities as u32));
                answers.weights.push(rng.random_range(0.1..1.0));
            }
        }
        let shape = Shape { queries, components, context_dim, object_dim, entities };
        let weights = score.some_weights();
        Self { score, shape, context, log_prior, objects, bias, weights, answers }
    }

    /// The loss by the formula, in f64, one logit at a time.
    fn plain_loss(&self, [context, log_prior, objects, bias, weights]: [&[f64]; 5]) -> f64 {
        let Shape { queries, components, context_dim, object_dim, entities } = self.shape;
        let mut targets = vec![0.0; queries * entities];
        for (i, object) in self.answers.objects.iter().enumerate() {
            targets[self.answers.query(i) * entities + *object as usize] +=
                f64::from(self.answers.weights[i]);
        }
        let mut loss = 0.0;
        for query in 0..queries {
            let rows = query * components..(query + 1) * components;
            let total: f64 = log_prior[rows.clone()].iter().map(|x| x.exp()).sum();
            for object in 0..entities {
                let (mut yes, mut no) = (0.0, 0.0);
                for row in rows.clone() {
                    let context = &context[row * context_dim..][..context_dim];
                    let vector = &objects[object * object_dim..][..object_dim];
                    let z = formula(self.score, weights, context, vector) + bias[object];
                    let share = log_prior[row].exp() / total;
                    yes += share / (1.0 + (-z).exp());
                    no += share / (1.0 + z.exp());
                }
                let target = targets[query * entities + object];
                loss -= target * yes.ln() + (1.0 - target) * no.ln();
            }
        }
        loss
    }

    fn fused(&self) -> (f64, [Vec<f32>; 5]) {
        let inputs = Inputs {
            score: self.score,
            shape: self.shape,
            context: &self.context,
            log_prior: &self.log_prior,
            objects: &self.objects,
            bias: self.bias.as_deref(),
            weights: &self.weights,
            answers: &self.answers,
        };
        let (loss, grads) = pass(&inputs, &mut Workspace::new(0));
        let bias = grads.bias.unwrap_or_default();
        (loss, [grads.context, grads.log_prior, grads.objects, bias, grads.weights])
    }

    /// Loss and gradients through burn, by the operation or by plain tensor operations.
    fn by_tensors(&self, loss: impl Fn(Logits) -> Tensor<1>) -> (f64, [Vec<f32>; 5]) {
        let device = Device::flex().autodiff();
        let Shape { queries, components, entities, .. } = self.shape;
        let table = |values: &[f32], rows: usize| {
            let columns = values.len() / rows;
            Tensor::<2>::from_data(TensorData::new(values.to_vec(), [rows, columns]), &device)
                .require_grad()
        };
        let [context, log_prior, objects] = [
            table(&self.context, queries * components),
            table(&self.log_prior, queries),
            table(&self.objects, entities),
        ];
        let vector =
            |bias: &Vec<f32>| Tensor::<1>::from_floats(bias.as_slice(), &device).require_grad();
        let bias = self.bias.as_ref().map(vector);
        let weights = (!self.weights.is_empty()).then(|| vector(&self.weights));
        let loss = loss(Logits {
            context: context.clone(),
            log_prior: log_prior.clone(),
            objects: objects.clone(),
            bias: bias.clone(),
            score: self.score,
            weights: weights.clone(),
        });
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

/// Cases around every edge: one chunk, uneven tiles, more rows than a block, with and without bias.
fn cases() -> Vec<Case> {
    vec![
        Case::random([5, 1, 3, 7], false, 1),
        Case::random([6, 3, 4, 40], true, 2),
        Case::random([9, 1, 8, 33], true, 3),
        Case::random([13, 3, 5, 2], false, 4),
        Case::scored(PairScore::Over(Pointwise::Monotone), [6, 2, 4, 40], true, 12),
        Case::random([150, 5, 6, 9000], true, 5),
        Case::random([700, 1, 6, 300], false, 6),
    ]
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let size = norm(&mut expected.iter().map(|x| f64::from(*x)));
    let distance = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
    // The prior of a single component has no gradient but rounding.
    assert!(distance <= 1e-5 * size.max(1e-2), "{what}: {distance} of {size}");
}

#[test]
fn fused_equals_plain_tensor_operations() {
    for case in cases() {
        let (expected, expected_grads) = case.by_tensors(|input| reference(input, &case.answers));
        let (loss, grads) = case.fused();
        assert!((loss - expected).abs() <= 1e-5 * expected, "{loss} and {expected}");
        for (grad, expected) in grads.iter().zip(&expected_grads) {
            assert_close(grad, expected, &format!("{:?}", case.shape));
        }
    }
}

#[test]
fn the_operation_scales_its_gradients() {
    let case = Case::random([20, 3, 4, 100], true, 7);
    let workspace = Arc::new(Mutex::new(Workspace::new(0)));
    let answers = Arc::new(case.answers.clone());
    let (_, found) = case.by_tensors(|input| {
        binary_cross_entropy(input, Arc::clone(&answers), &workspace).mul_scalar(0.25)
    });
    for (found, whole) in found.iter().zip(case.fused().1) {
        let quarter: Vec<f32> = whole.iter().map(|x| 0.25 * x).collect();
        assert_eq!(*found, quarter);
    }
}

#[test]
fn gradients_equal_finite_differences_in_f64() {
    for case in &cases()[..5] {
        let wide = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let bias = case.bias.clone().unwrap_or_else(|| vec![0.0; case.shape.entities]);
        let inputs =
            [&case.context, &case.log_prior, &case.objects, &bias, &case.weights].map(|v| wide(v));
        let loss =
            |inputs: &[Vec<f64>; 5]| case.plain_loss(inputs.each_ref().map(|v| v.as_slice()));
        let (fused, grads) = case.fused();
        assert!((fused - loss(&inputs)).abs() < 1e-6 * fused);
        for (which, grad) in grads.iter().enumerate() {
            for i in 0..grad.len() {
                // The error of a central difference is of the order of the square of its step.
                let step = 1e-4;
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
fn without_answers_every_object_is_wrong() {
    let mut case = Case::random([4, 1, 3, 20], false, 8);
    case.answers = BatchAnswers::default();
    case.context.fill(0.0);
    // σ(0) = ½ everywhere.
    let (loss, [context, ..]) = case.fused();
    assert!((loss - 80.0 * 2_f64.ln()).abs() < 1e-4);
    for (value, grad) in context[..3].iter().enumerate() {
        let sum: f32 = case.objects.iter().skip(value).step_by(3).sum();
        assert!((grad - 0.5 * sum).abs() < 1e-5);
    }
}

#[test]
fn extreme_logits_give_finite_losses_and_gradients() {
    for components in [1, 3] {
        let mut case = Case::random([8, components, 1, 30], false, 9);
        for (i, x) in case.context.iter_mut().enumerate() {
            *x = if i % 2 == 0 { 80.0 } else { -80.0 };
        }
        for (i, x) in case.objects.iter_mut().enumerate() {
            *x = if i % 3 == 0 { 1.0 } else { -1.0 };
        }
        // One component has all the weight, but for exp(−60).
        case.log_prior.iter_mut().step_by(3).for_each(|x| *x = 60.0);
        let wide = |values: &[f32]| values.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let expected = case.plain_loss([
            &wide(&case.context),
            &wide(&case.log_prior),
            &wide(&case.objects),
            &[0.0; 30],
            &[],
        ]);
        let (loss, grads) = case.fused();
        assert!((loss - expected).abs() < 1e-5 * expected, "{loss} and {expected}");
        assert!(grads.iter().flatten().all(|x| x.is_finite()));
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for components in [1, 4] {
        let case = Case::random([60, components, 7, 5000], true, 10);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| case.fused())
        };
        let one = on(1);
        for threads in [2, 7] {
            assert!(on(threads) == one, "{threads} threads");
        }
    }
}

#[test]
fn a_broken_weight_reaches_the_loss() {
    for components in [1, 3] {
        let mut case = Case::random([4, components, 5, 50], false, 11);
        // No query has object 49 as its answer.
        case.answers.objects.iter_mut().for_each(|object| *object %= 49);
        case.objects[49 * 5] = f32::NAN;
        assert!(!case.fused().0.is_finite());
    }
}
