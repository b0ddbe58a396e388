//! Pair scores in plain tensor operations: what do contexts and objects score on any device?
//!
//! The kernels of [`fullrank_kernels::pair_score`] are tested against these.

use burn::tensor::Tensor;
use burn::tensor::activation::{self, log_sigmoid, sigmoid};
use fullrank_kernels::distance::Distance;
use fullrank_kernels::mixtape::{Mixtape, Part};
use fullrank_kernels::mlp::Mlp;
use fullrank_kernels::pair_score::PairScore;
use fullrank_kernels::pointwise::{Pointwise, REACH};

/// Scores of all contexts with all objects, `[B, C]` and `[N, D]` → `[B, N]`.
pub(super) fn pair_scores(
    score: PairScore,
    weights: Option<Tensor<1>>,
    context: Tensor<2>,
    objects: Tensor<2>,
) -> Tensor<2> {
    let ([rows, dim], width) = (context.dims(), objects.dims()[0]);
    match score {
        PairScore::Dot => context.matmul(objects.transpose()),
        PairScore::Minus(_) | PairScore::Through(_) => {
            let context = context.reshape([rows, 1, dim]).repeat_dim(1, width);
            let objects = objects.reshape([1, width, dim]).repeat_dim(0, rows);
            let pairs = [rows * width, dim];
            let scores = row_scores(score, weights, context.reshape(pairs), objects.reshape(pairs));
            scores.reshape([rows, width])
        }
        PairScore::Over(function) => {
            pointwise(function, weights, context.matmul(objects.transpose()))
        }
        PairScore::Mixed(sizes) => mixtape(sizes, MixtapeSides::AllPairs, &context, &objects),
    }
}

/// Scores of the rows of one tensor with those of another, `[A, C]` and `[A, D]` → `[A]`.
pub(crate) fn row_scores(
    score: PairScore,
    weights: Option<Tensor<1>>,
    context: Tensor<2>,
    objects: Tensor<2>,
) -> Tensor<1> {
    /// Under a root, whose slope at zero is infinite; with it, the gradient there is zero.
    const FLOOR: f64 = 1e-30;
    let [n, dim] = context.dims();
    let scores = match score {
        PairScore::Dot => (context * objects).sum_dim(1),
        PairScore::Minus(Distance::L1) => -(context - objects).abs().sum_dim(1),
        PairScore::Minus(Distance::L2) => {
            -(context - objects).square().sum_dim(1).add_scalar(FLOOR).sqrt()
        }
        PairScore::Minus(Distance::Modulus) => {
            let squares = (context - objects).square().reshape([n, 2, dim / 2]).sum_dim(1);
            -squares.add_scalar(FLOOR).sqrt().reshape([n, dim / 2]).sum_dim(1)
        }
        PairScore::Over(function) => pointwise(function, weights, (context * objects).sum_dim(1)),
        PairScore::Mixed(sizes) => mixtape(sizes, MixtapeSides::RowByRow, &context, &objects),
        PairScore::Through(layers) => mlp(layers, weights, context, objects),
    };
    scores.reshape([n])
}

/// φ(z).
fn pointwise(function: Pointwise, weights: Option<Tensor<1>>, z: Tensor<2>) -> Tensor<2> {
    match function {
        Pointwise::Sigsoftmax => z.clone() + log_sigmoid(z),
        Pointwise::Monotone => monotone(weights.expect("a monotone function has slopes"), z),
    }
}

/// A piecewise linear function with these slopes.
fn monotone(slopes: Tensor<1>, z: Tensor<2>) -> Tensor<2> {
    let n = slopes.dims()[0];
    let width = 2.0 * REACH / n as f32;
    let mut sum = Tensor::zeros(z.dims(), &z.device());
    for piece in 0..n {
        // How far the piece is gone through, from its end that is nearer to zero.
        let start = -REACH + piece as f32 * width;
        let from = if piece < n / 2 { start + width } else { start };
        let mut way = z.clone().sub_scalar(from);
        if piece < n / 2 {
            way = way.clamp_max(0.0);
            way = if piece == 0 { way } else { way.clamp_min(-width) };
        } else {
            way = way.clamp_min(0.0);
            way = if piece == n - 1 { way } else { way.clamp_max(width) };
        }
        let slope = slopes.clone().slice(piece..piece + 1);
        sum = sum + way * slope.unsqueeze();
    }
    sum
}

/// Which contexts meet which objects.
#[derive(Clone, Copy)]
enum MixtapeSides {
    /// Each context all objects.
    AllPairs,
    /// Each context the object of its row.
    RowByRow,
}

impl MixtapeSides {
    /// Dot products, `[B, N]` or `[A, 1]`.
    fn products(self, context: Tensor<2>, objects: Tensor<2>) -> Tensor<2> {
        match self {
            Self::AllPairs => context.matmul(objects.transpose()),
            Self::RowByRow => (context * objects).sum_dim(1),
        }
    }

    /// A column of the objects, so that it can be added to products.
    fn of_objects(self, column: Tensor<2>) -> Tensor<2> {
        match self {
            Self::AllPairs => column.transpose(),
            Self::RowByRow => column,
        }
    }
}

/// Precision mixed by a tree of gates; see [`fullrank_kernels::mixtape`].
fn mixtape(
    sizes: Mixtape,
    sides: MixtapeSides,
    context: &Tensor<2>,
    objects: &Tensor<2>,
) -> Tensor<2> {
    let columns = |side: &Tensor<2>, columns| side.clone().slice([0..side.dims()[0], columns]);
    let of_context = |part: Part| columns(context, sizes.context_columns(part));
    let of_objects = |part: Part| columns(objects, sizes.object_columns(part));
    let products = |part: Part| sides.products(of_context(part), of_objects(part));
    let mut values: Vec<Tensor<2>> =
        (0..sizes.components).map(|k| products(Part::Component(k))).collect();
    for j in (0..sizes.n_gates()).rev() {
        let shift = Part::Shift(j);
        let logit =
            products(Part::Gate(j)) + of_context(shift) + sides.of_objects(of_objects(shift));
        let gate = sigmoid(logit);
        // The first value is that of node j + 1, so the children stand at j and j + 1.
        let right = values.remove(j + 1);
        let left = values.remove(j);
        let node = gate.clone() * left + (gate.neg().add_scalar(1.0)) * right;
        values.insert(0, node);
    }
    values.remove(0)
}

/// What the layers after the first make of the sums of rows; twice `[A, H]` → `[A, 1]`.
fn mlp(
    layers: Mlp,
    weights: Option<Tensor<1>>,
    context: Tensor<2>,
    objects: Tensor<2>,
) -> Tensor<2> {
    let weights = weights.expect("an MLP has weights");
    let mut values = context + objects;
    let mut start = 0;
    for (inputs, outputs) in layers.shapes() {
        let bias = start + inputs * outputs;
        let matrix = weights.clone().slice(start..bias).reshape([inputs, outputs]);
        start = bias + outputs;
        let bias = weights.clone().slice(bias..start).unsqueeze();
        values = activation::relu(values).matmul(matrix) + bias;
    }
    values
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};
    use fullrank_kernels::pair_score::samples::{draw, formula};
    use fullrank_kernels::pair_score::{Learned, Side};
    use fullrank_kernels::product::{Matrix, Onto};

    use super::*;

    fn wide(values: &[f32]) -> Vec<f64> {
        values.iter().map(|x| f64::from(*x)).collect()
    }

    /// Gradients of contexts, objects and weights as the kernel makes them.
    fn kernel_grads(mlp: Mlp, inputs: [&[f32]; 3], grad_logits: &[f32]) -> [Vec<f32>; 3] {
        let [context, objects, weights] = inputs;
        let width = mlp.shapes().next().unwrap().0;
        let mut grads = inputs.map(|values| vec![0.0; values.len()]);
        let [grad_context, grad_objects, grad_weights] = &mut grads;
        let side = |vectors, grad| Side {
            vectors: Matrix::rows_of(vectors, width),
            grad,
            onto: Onto::Replace,
        };
        PairScore::Through(mlp).pull_back(
            Learned { weights, grad: grad_weights },
            &mut grad_logits.to_vec(),
            side(context, grad_context),
            side(objects, grad_objects),
        );
        grads
    }

    #[test]
    fn scores_and_gradients_of_an_mlp_equal_its_formula_and_its_kernel() {
        // Around every edge of lanes, of blocks of pairs, which start in the middle of a row, and of
        // the number of layers.
        let sizes: [(usize, usize, &[usize]); 8] = [
            (1, 1, &[1]),
            (3, 600, &[2]),
            (9, 40, &[34]),
            (1, 1, &[1, 1]),
            (3, 5, &[6, 4]),
            (37, 29, &[17, 16]),
            (1, 600, &[16, 33]),
            (21, 26, &[5, 18, 7, 3]),
        ];
        let device = Device::flex().autodiff();
        for (rows, n_objects, hidden) in sizes {
            let (mlp, width) = (Mlp::new(hidden), hidden[0]);
            // Smaller for wider layers, so that scores are of order one.
            let scale = (hidden.iter().max().unwrap().isqrt() as f32).recip();
            let weights = draw(mlp.n_weights(), 3).into_iter().map(|x| 2.0 * scale * x);
            let inputs =
                [draw(rows * width, 1), draw(n_objects * width, 2), weights.collect::<Vec<f32>>()];
            let matrix = |values: &[f32]| {
                let data = TensorData::new(values.to_vec(), [values.len() / width, width]);
                Tensor::<2>::from_data(data, &device).require_grad()
            };
            let (context, objects) = (matrix(&inputs[0]), matrix(&inputs[1]));
            let weights = Tensor::<1>::from_floats(inputs[2].as_slice(), &device).require_grad();
            let score = PairScore::Through(mlp);
            let scores =
                pair_scores(score, Some(weights.clone()), context.clone(), objects.clone());

            let grad_logits = draw(rows * n_objects, 5);
            let data = TensorData::new(grad_logits.clone(), [rows, n_objects]);
            let grads = (scores.clone() * Tensor::from_data(data, &device)).sum().backward();
            let floats = |data: TensorData| data.try_into_vec::<f32>().unwrap();
            let expected = [
                floats(context.grad(&grads).unwrap().into_data()),
                floats(objects.grad(&grads).unwrap().into_data()),
                floats(weights.grad(&grads).unwrap().into_data()),
            ];
            let found = kernel_grads(mlp, [&inputs[0], &inputs[1], &inputs[2]], &grad_logits);
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                // Sums over up to a thousand pairs of terms of order one, which may cancel.
                let off = (found - expected).abs();
                assert!(off < 1e-4 * (1.0 + expected.abs()), "{hidden:?}: {found}, {expected}");
            }
            let [context, objects, weights] = inputs.map(|values| wide(&values));
            for (pair, found) in floats(scores.into_data()).into_iter().enumerate() {
                let context = &context[pair / n_objects * width..][..width];
                let object = &objects[pair % n_objects * width..][..width];
                let expected = formula(score, &weights, context, object);
                let off = (f64::from(found) - expected).abs();
                assert!(off < 1e-5 * (1.0 + expected.abs()), "{hidden:?}: {found}, {expected}");
            }
        }
    }
}
