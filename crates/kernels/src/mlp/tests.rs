use super::*;
use crate::pair_score::PairScore;
use crate::pair_score::samples::{draw, formula};
use crate::simd::instructions::on_each;

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
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

    fn formula(&self, pair: usize) -> f64 {
        let (context, object) = self.pair(pair);
        let score = PairScore::Through(self.mlp());
        formula(score, &wide(&self.weights), &wide(context), &wide(object))
    }

    fn pair(&self, pair: usize) -> (&[f32], &[f32]) {
        let width = self.hidden[0];
        let n_objects = self.objects.len() / width;
        let context = &self.context[pair / n_objects * width..][..width];
        (context, &self.objects[pair % n_objects * width..][..width])
    }

    /// The gradients of contexts, objects and weights.
    fn pull_back(&self, grad_logits: &[f32]) -> [Vec<f32>; 3] {
        let mut grad_context = vec![0.25; self.context.len()];
        let mut grad_objects = vec![f32::NAN; self.objects.len()];
        let mut grad_weights = vec![0.5; self.weights.len()];
        let width = self.hidden[0];
        self.mlp().pull_back(
            Learned { weights: &self.weights, grad: &mut grad_weights },
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
    (3, 600, &[2]),
    (9, 40, &[34]),
    (1, 1, &[1, 1]),
    (3, 5, &[6, 4]),
    (37, 29, &[17, 16]),
    (1, 600, &[16, 33]),
    (21, 26, &[5, 18, 7, 3]),
];

#[test]
fn tiles_and_pairs_equal_their_formula_across_blocks() {
    on_each(|| {
        for (rows, objects, hidden) in SIZES {
            let sample = Sample::new(rows, objects, hidden);
            let (mlp, weights) = (sample.mlp(), &sample.weights);
            let [context, vectors] =
                [&sample.context, &sample.objects].map(|values| Matrix::rows_of(values, hidden[0]));
            let mut replaced = vec![f32::NAN; rows * objects];
            let mut added = vec![7.0; rows * objects];
            mlp.logits(weights, &mut replaced, Onto::Replace, context, vectors);
            mlp.logits(weights, &mut added, Onto::Add, context, vectors);
            for (pair, logit) in replaced.iter().enumerate() {
                let expected = sample.formula(pair);
                let (context, object) = sample.pair(pair);
                for found in [*logit, added[pair] - 7.0, mlp.of_pair(weights, context, object)] {
                    // Rounding of sums of some thirty terms of order one.
                    let off = (f64::from(found) - expected).abs();
                    assert!(off < 1e-5 * (1.0 + expected.abs()), "{hidden:?}: {found}, {expected}");
                }
            }
        }
    });
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
    on_each(|| {
        for hidden in [&[3][..], &[3, 2]] {
            let mut sample = Sample::new(1, 1, hidden);
            sample.context[1] = f32::NAN;
            let score = sample.mlp().of_pair(&sample.weights, &sample.context, &sample.objects);
            assert!(score.is_nan());
        }
    });
}
