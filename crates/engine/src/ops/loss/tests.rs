//! What the tests of both losses share: random inputs, and three ways to a loss and its gradients.

use burn::tensor::{Device, Tensor, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::tiles::{Grads, Inputs};
use super::{BatchAnswers, Logits, Shape};
use crate::ops::PairScore;
use crate::ops::score::tests::formula;

/// Gradients by context, prior, objects, bias and weights; the last two may be empty.
pub(super) type FiveGrads = [Vec<f32>; 5];

/// The values that a loss is made of, in the same order, in f64.
pub(super) type Five<'a> = [&'a [f64]; 5];

#[derive(Clone)]
pub(super) struct Case {
    pub(super) score: PairScore,
    pub(super) shape: Shape,
    pub(super) context: Vec<f32>,
    pub(super) log_prior: Vec<f32>,
    pub(super) objects: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) weights: Vec<f32>,
    pub(super) answers: BatchAnswers,
}

impl Case {
    /// `size`: queries, components, dimension, entities. Priors are not normalised.
    pub(super) fn random(score: PairScore, size: [usize; 4], has_bias: bool, seed: u64) -> Self {
        let [queries, components, dim, entities] = size;
        let (context_dim, object_dim) = score.widths(dim);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut draw =
            |n: usize| -> Vec<f32> { (0..n).map(|_| rng.random_range(-1.0..1.0)).collect() };
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

    pub(super) fn inputs(&self) -> Inputs<'_> {
        Inputs {
            shape: self.shape,
            score: self.score,
            context: &self.context,
            log_prior: &self.log_prior,
            objects: &self.objects,
            bias: self.bias.as_deref(),
            weights: &self.weights,
            answers: &self.answers,
            packed: None,
        }
    }

    /// Everything in f64; a bias of zeros where there is none.
    pub(super) fn wide(&self) -> [Vec<f64>; 5] {
        let bias = self.bias.clone().unwrap_or_else(|| vec![0.0; self.shape.entities]);
        [&self.context, &self.log_prior, &self.objects, &bias, &self.weights]
            .map(|values| values.iter().map(|x| f64::from(*x)).collect())
    }

    /// The logit of a row and an object by its formula.
    pub(super) fn plain_logit(&self, values: Five, row: usize, object: usize) -> f64 {
        let [context, _, objects, bias, weights] = values;
        let Shape { context_dim, object_dim, .. } = self.shape;
        let context = &context[row * context_dim..][..context_dim];
        let vector = &objects[object * object_dim..][..object_dim];
        formula(self.score, weights, context, vector) + bias[object]
    }

    /// Loss and gradients through burn, by the operation or by plain tensor operations.
    pub(super) fn by_tensors(&self, loss: impl Fn(Logits) -> Tensor<1>) -> (f64, FiveGrads) {
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
            |values: &Vec<f32>| Tensor::<1>::from_floats(values.as_slice(), &device).require_grad();
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

    /// Compares gradients with the slopes of a loss by its formula, one value at a time.
    pub(super) fn assert_slopes(&self, grads: &FiveGrads, plain_loss: impl Fn(Five) -> f64) {
        // The error of a central difference is of the order of the square of its step. A step across
        // a kink, where two coordinates agree, would be wrong by more; there is none that close in
        // these cases.
        const STEP: f64 = 1e-6;
        let inputs = self.wide();
        for (which, grad) in grads.iter().enumerate() {
            for (i, found) in grad.iter().enumerate() {
                let at = |x: f64| {
                    let mut moved = inputs.clone();
                    moved[which][i] += x;
                    plain_loss(moved.each_ref().map(Vec::as_slice))
                };
                let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
                let off = (f64::from(*found) - expected).abs();
                assert!(off < 2e-5, "{:?}, input {which}: {found}, {expected}", self.score);
            }
        }
    }
}

impl Grads {
    pub(super) fn into_five(self) -> FiveGrads {
        let bias = self.bias.unwrap_or_default();
        [self.context, self.log_prior, self.objects, bias, self.weights]
    }
}

/// How far two gradients are apart, over the length of the second, or over a hundredth where that is
/// nothing but rounding.
pub(super) fn distance(found: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|x| x * x).sum::<f64>().sqrt();
    let size = norm(&mut expected.iter().map(|x| f64::from(*x)));
    norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b))) / size.max(1e-2)
}

/// Gradients of random thinning, by seed, are on average what they are without it; `one_draw` is what
/// one entry of size ε adds to a gradient at most.
pub(super) fn assert_right_on_average(
    exact: &FiveGrads,
    one_draw: f64,
    thinned: impl Fn(u64) -> FiveGrads,
) {
    const DRAWS: u64 = 400;
    let mut sums = exact.each_ref().map(|grad| vec![(0.0_f64, 0.0_f64); grad.len()]);
    for seed in 0..DRAWS {
        for (sums, grads) in sums.iter_mut().zip(&thinned(seed)) {
            for ((sum, square), grad) in sums.iter_mut().zip(grads) {
                *sum += f64::from(*grad);
                *square += f64::from(*grad).powi(2);
            }
        }
    }
    let draws = DRAWS as f64;
    for ((sum, square), exact) in sums.iter().flatten().zip(exact.iter().flatten()) {
        let mean = sum / draws;
        let error = ((square / draws - mean * mean).max(0.0) / draws).sqrt();
        // Of five thousand means one may well be four standard errors off. One draw more or less of
        // an entry that is hardly ever drawn is what its error does not know of.
        let off = (mean - f64::from(*exact)).abs();
        let most = 5.0 * error + 2.0 * one_draw / draws;
        assert!(off <= most, "{mean}, not {exact} ± {error}");
    }
}

/// What `run` gives on so many threads.
pub(super) fn on_threads<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}
