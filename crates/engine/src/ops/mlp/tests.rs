use super::*;
use burn::tensor::{Device, TensorData};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn draw(n: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..n).map(|_| rng.random_range(-1.0..1.0)).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// The score of one pair by its formula; `hidden` are the widths.
fn formula(hidden: &[usize], weights: &[f64], context: &[f64], object: &[f64]) -> f64 {
    let mut values: Vec<f64> = context.iter().zip(object).map(|(c, m)| c + m).collect();
    let mut rest = weights;
    for outputs in hidden[1..].iter().copied().chain([1]) {
        let (matrix, after) = rest.split_at(values.len() * outputs);
        let output = |j: usize| {
            let terms = values.iter().zip(matrix.chunks_exact(outputs));
            after[j] + terms.map(|(x, row)| x.max(0.0) * row[j]).sum::<f64>()
        };
        values = (0..outputs).map(output).collect();
        rest = &after[outputs..];
    }
    assert!(rest.is_empty());
    values[0]
}

/// Contexts, objects and weights of an MLP.
struct Sample {
    hidden: &'static [usize],
    context: Vec<f32>,
    objects: Vec<f32>,
    weights: Vec<f32>,
}

impl Sample {
    fn new(rows: usize, objects: usize, hidden: &'static [usize]) -> Self {
        let width = hidden[0];
        // Smaller for wider layers, so that scores are of order one.
        let scale = (hidden.iter().max().unwrap().isqrt() as f32).recip();
        let weights = draw(Mlp::new(hidden).n_weights(), 3);
        Self {
            hidden,
            context: draw(rows * width, 1),
            objects: draw(objects * width, 2),
            weights: weights.into_iter().map(|x| 2.0 * scale * x).collect(),
        }
    }

    fn mlp(&self) -> Mlp {
        Mlp::new(self.hidden)
    }

    fn n_pairs(&self) -> usize {
        self.context.len() * self.objects.len() / self.hidden[0].pow(2)
    }

    /// The gradients of contexts, objects and weights; the first is added to ¼.
    fn pull_back(&self, grad_logits: &[f32]) -> [Vec<f32>; 3] {
        let mut grad_context = vec![0.25; self.context.len()];
        let mut grad_objects = vec![f32::NAN; self.objects.len()];
        let mut grad_weights = vec![0.5; self.weights.len()];
        let width = self.hidden[0];
        pull_back(
            self.mlp(),
            (&self.weights, &mut grad_weights),
            grad_logits,
            Side {
                vectors: Matrix::rows_of(&self.context, width),
                grad: &mut grad_context,
                onto: Onto::Add,
            },
            Side {
                vectors: Matrix::rows_of(&self.objects, width),
                grad: &mut grad_objects,
                onto: Onto::Replace,
            },
        );
        grad_context.iter_mut().for_each(|x| *x -= 0.25);
        grad_weights.iter_mut().for_each(|x| *x -= 0.5);
        [grad_context, grad_objects, grad_weights]
    }
}

/// Around every edge of lanes, of blocks of pairs, which start in the middle of a row, and of the
/// number of layers.
const SIZES: [(usize, usize, &[usize]); 8] = [
    (1, 1, &[1]),
    (3, 5, &[2]),
    (9, 40, &[34]),
    (1, 1, &[1, 1]),
    (3, 5, &[6, 4]),
    (37, 29, &[17, 16]),
    (1, 600, &[16, 33]),
    (21, 26, &[5, 18, 7, 3]),
];

#[test]
fn tiles_and_pairs_equal_their_formula() {
    for (rows, objects, hidden) in SIZES {
        let sample = Sample::new(rows, objects, hidden);
        let (mlp, weights, width) = (sample.mlp(), &sample.weights, hidden[0]);
        let sides =
            || (Matrix::rows_of(&sample.context, width), Matrix::rows_of(&sample.objects, width));
        let mut replaced = vec![f32::NAN; rows * objects];
        let mut added = vec![7.0; rows * objects];
        add_logits(mlp, weights, &mut replaced, Onto::Replace, sides());
        add_logits(mlp, weights, &mut added, Onto::Add, sides());
        for (place, logit) in replaced.iter().enumerate() {
            let context = &sample.context[place / objects * width..][..width];
            let object = &sample.objects[place % objects * width..][..width];
            let expected = formula(hidden, &wide(weights), &wide(context), &wide(object));
            for found in [*logit, added[place] - 7.0, of_pair(mlp, weights, context, object)] {
                // Rounding of sums of some thirty terms of order one.
                let off = (f64::from(found) - expected).abs();
                assert!(off < 1e-5 * (1.0 + expected.abs()), "{hidden:?}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn gradients_equal_finite_differences() {
    for (rows, objects, hidden) in
        [(1, 1, &[1][..]), (2, 3, &[3]), (3, 2, &[6, 4]), (2, 2, &[3; 4])]
    {
        let sample = Sample::new(rows, objects, hidden);
        let grad_logits = draw(rows * objects, 4);
        let width = hidden[0];
        let inputs = [&sample.context, &sample.objects, &sample.weights].map(|x| wide(x));
        let loss = |[context, objects, weights]: &[Vec<f64>; 3]| -> f64 {
            let pairs = context.chunks_exact(width).flat_map(|context| {
                objects.chunks_exact(width).map(move |object| (context, object))
            });
            let scores = pairs.map(|(context, object)| formula(hidden, weights, context, object));
            grad_logits.iter().zip(scores).map(|(grad, score)| f64::from(*grad) * score).sum()
        };
        for (part, found) in sample.pull_back(&grad_logits).iter().enumerate() {
            for (i, found) in found.iter().enumerate() {
                let at = |step: f64| {
                    let mut inputs = inputs.clone();
                    inputs[part][i] += step;
                    loss(&inputs)
                };
                // Between two kinks the loss is nearly a line, and f64 has digits to spare.
                let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
                let off = (f64::from(*found) - expected).abs();
                assert!(off < 1e-5 * (1.0 + expected.abs()), "{hidden:?}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn scores_and_gradients_equal_plain_tensor_operations() {
    let device = Device::flex().autodiff();
    for (rows, objects, hidden) in SIZES {
        let sample = Sample::new(rows, objects, hidden);
        let width = hidden[0];
        let matrix = |values: &[f32]| {
            let data = TensorData::new(values.to_vec(), [values.len() / width, width]);
            Tensor::<2>::from_data(data, &device).require_grad()
        };
        let (context, vectors) = (matrix(&sample.context), matrix(&sample.objects));
        let weights = Tensor::<1>::from_floats(sample.weights.as_slice(), &device).require_grad();
        let scores = reference(sample.mlp(), weights.clone(), context.clone(), vectors.clone());
        assert_eq!(scores.dims(), [rows, objects]);

        let grad_logits = draw(sample.n_pairs(), 5);
        let data = TensorData::new(grad_logits.clone(), [rows, objects]);
        let grads = (scores.clone() * Tensor::from_data(data, &device)).sum().backward();
        let floats = |data: TensorData| data.try_into_vec::<f32>().unwrap();
        let expected = [
            floats(context.grad(&grads).unwrap().into_data()),
            floats(vectors.grad(&grads).unwrap().into_data()),
            floats(weights.grad(&grads).unwrap().into_data()),
        ];
        let found = sample.pull_back(&grad_logits);
        for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
            // Sums over up to a thousand pairs of terms of order one, which may cancel.
            let off = (found - expected).abs();
            assert!(off < 1e-4 * (1.0 + expected.abs()), "{hidden:?}: {found}, {expected}");
        }
        for (place, score) in floats(scores.into_data()).into_iter().enumerate() {
            let context = wide(&sample.context[place / objects * width..][..width]);
            let object = wide(&sample.objects[place % objects * width..][..width]);
            let expected = formula(hidden, &wide(&sample.weights), &context, &object);
            let off = (f64::from(score) - expected).abs();
            assert!(off < 1e-5 * (1.0 + expected.abs()), "{hidden:?}: {score}, {expected}");
        }
    }
}

#[test]
fn at_the_kink_of_a_relu_nothing_is_pulled() {
    for hidden in [&[3][..], &[3, 2]] {
        let mut sample = Sample::new(1, 1, hidden);
        sample.objects = sample.context.iter().map(|x| -x).collect();
        let [grad_context, grad_objects, grad_weights] = sample.pull_back(&[1.0]);
        assert_eq!([grad_context, grad_objects], [[0.0; 3]; 2]);
        // No value reaches a matrix, but the score is its bias.
        assert_eq!(grad_weights.last(), Some(&1.0));
        assert_eq!(grad_weights[..3], [0.0; 3]);
    }
}

#[test]
fn a_broken_weight_reaches_the_score() {
    for hidden in [&[3][..], &[3, 2]] {
        let mut sample = Sample::new(1, 1, hidden);
        sample.context[1] = f32::NAN;
        let score = of_pair(sample.mlp(), &sample.weights, &sample.context, &sample.objects);
        assert!(score.is_nan());
    }
}
