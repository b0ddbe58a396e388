//! How are the columns of a batch normalised, activated and dropped in one pass over their values?
//!
//! Every layer of a projection does this with all values of all components. As a chain of tensor
//! operations each would be written about eight times on the way forward and as often on the way
//! back, by one thread. `channels` does the same where neighbouring values share a channel.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, Tensor, TensorData};
use rayon::prelude::*;

use super::channels::{Line, Statistics};
use super::{flex_tensor, simd, values};

/// Rows per task; sums are made of those of tasks, in order, so it never changes.
const ROWS: usize = 32;

/// What happens to columns besides scale and shift.
#[derive(Debug)]
pub(crate) struct ColumnTreatment {
    /// Where a gradient is asked for, these are of the values themselves, and it passes through them.
    pub(crate) statistics: Statistics,
    /// What negative values are multiplied by: 1 leaves them, 0 makes zeros of them.
    pub(crate) negative_slope: f32,
    /// What each value is multiplied by in the end, `[B·N]`.
    pub(crate) kept: Option<Vec<f32>>,
}

/// Mean and biased variance of each column of `[B, N]`.
pub(crate) fn column_statistics(tensor: &Tensor<2>) -> Statistics {
    let [rows, columns] = tensor.dims();
    let tensor =
        if tensor.device().is_autodiff() { tensor.clone().inner() } else { tensor.clone() };
    let tensor = tensor.try_into_primitive::<Flex>().expect("models are on the CPU");
    let values = values(&tensor);
    // Sums of differences from some value of the column: squares of what is far from zero would
    // leave nothing of a small variance.
    let origin = &values[..columns];
    let [sums, squares] = column_sums(rows, columns, |row, [sum, squares]| {
        simd::columns::add_moments(&values[row * columns..][..columns], origin, sum, squares);
    });
    let mean = |sum: f64| sum / rows as f64;
    let variance = |(sum, squares): (&f64, &f64)| {
        // Rounding may take it below zero if all values are the same.
        (mean(*squares) - mean(*sum).powi(2)).max(0.0) as f32
    };
    Statistics {
        mean: sums.iter().zip(origin).map(|(sum, x)| (f64::from(*x) + mean(*sum)) as f32).collect(),
        variance: sums.iter().zip(&squares).map(variance).collect(),
    }
}

/// a((x − mean)/√(variance + ε)·gamma + beta)·kept, for `[B, N]` and the `[N]` of scale and shift,
/// where a leaves positive values as they are.
pub(crate) fn treat_columns(
    values: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    treatment: ColumnTreatment,
) -> Tensor<2> {
    match values.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if values.dtype() == DType::F32 => {
            let [values, gamma, beta] =
                [values.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch()];
            let treatment = Arc::new(treatment);
            Tensor::from_dispatch(Dispatch::treat_columns(values, gamma, beta, treatment))
        }
        _ => reference(values, gamma, beta, &treatment),
    }
}

fn reference(
    values: Tensor<2>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    treatment: &ColumnTreatment,
) -> Tensor<2> {
    let shape = values.dims();
    let device = values.device();
    let (mean, variance) = if device.is_autodiff() {
        let mean = values.clone().mean_dim(0);
        (mean.clone(), (values.clone() - mean).square().mean_dim(0))
    } else {
        let given = |x: &[f32]| Tensor::<1>::from_floats(x, &device).unsqueeze();
        let Statistics { mean, variance } = &treatment.statistics;
        (given(mean), given(variance))
    };
    let normalised = (values - mean) / variance.add_scalar(Statistics::EPSILON).sqrt();
    let scaled = normalised * gamma.unsqueeze() + beta.unsqueeze();
    let below = scaled.clone().clamp_max(0.0).mul_scalar(treatment.negative_slope);
    let active = scaled.clamp_min(0.0) + below;
    match &treatment.kept {
        Some(kept) => active * Tensor::from_data(TensorData::new(kept.clone(), shape), &device),
        None => active,
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait ColumnsBackend: Backend {
    /// See [`treat_columns`].
    fn treat_columns(
        values: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        treatment: Arc<ColumnTreatment>,
    ) -> FloatTensor<Self>;
}

impl ColumnsBackend for Flex {
    fn treat_columns(
        tensor: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        treatment: Arc<ColumnTreatment>,
    ) -> FlexTensor {
        let [rows, columns] = tensor.shape().dims();
        let lines = Lines::of(&values(&gamma), &values(&beta), &treatment);
        let source = values(&tensor);
        let mut out = vec![0.0; source.len()];
        by_row(&mut out, columns, |row, out| {
            lines.activate(&source[row * columns..][..columns], out);
            if let Some(kept) = &treatment.kept {
                simd::multiply(out, &kept[row * columns..][..columns]);
            }
        });
        flex_tensor(out, [rows, columns])
    }
}

/// Normalisation, scale and shift of every column together, and what follows.
struct Lines {
    slope: Vec<f32>,
    start: Vec<f32>,
    negative_slope: f32,
}

impl Lines {
    fn of(gamma: &[f32], beta: &[f32], treatment: &ColumnTreatment) -> Self {
        let line = |column| {
            let Line { slope, start } = Line::of(column, gamma, beta, &treatment.statistics);
            (slope, start)
        };
        let (slope, start) = (0..gamma.len()).map(line).unzip();
        Self { slope, start, negative_slope: treatment.negative_slope }
    }

    fn activate(&self, row: &[f32], out: &mut [f32]) {
        simd::columns::activate(out, row, (&self.slope, &self.start), self.negative_slope);
    }

    /// From the gradient after the activation, in `grad`, to that before it.
    fn deactivate(&self, row: &[f32], grad: &mut [f32]) {
        simd::columns::deactivate(grad, row, (&self.slope, &self.start), self.negative_slope);
    }
}

#[derive(Debug)]
struct ColumnsBackward;

#[derive(Debug, Clone)]
struct State {
    values: FlexTensor,
    gamma: FlexTensor,
    beta: FlexTensor,
    treatment: Arc<ColumnTreatment>,
}

impl Backward<Flex, 3> for ColumnsBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<Flex>(&ops.node);
        let State { values: tensor, gamma, beta, treatment } = ops.state;
        let [rows, columns] = tensor.shape().dims();
        let (source, mut grad) = (values(&tensor), values(&grad).into_owned());
        let gamma = values(&gamma);
        let lines = Lines::of(&gamma, &values(&beta), &treatment);
        let statistics = &treatment.statistics;
        let row_of = |row: usize| &source[row * columns..][..columns];
        by_row(&mut grad, columns, |row, grad| {
            if let Some(kept) = &treatment.kept {
                simd::multiply(grad, &kept[row * columns..][..columns]);
            }
            lines.deactivate(row_of(row), grad);
        });
        // Σ g and Σ g·(x − mean), which make the gradients of shift and scale.
        let [sums, products] = column_sums(rows, columns, |row, [sum, product]| {
            let grad = &grad[row * columns..][..columns];
            simd::columns::add_products(grad, (row_of(row), &statistics.mean), sum, product);
        });
        let inverse: Vec<f32> =
            (0..columns).map(|column| statistics.inverse_deviation(column)).collect();
        let of_scale: Vec<f32> =
            products.iter().zip(&inverse).map(|(sum, inverse)| *sum as f32 * inverse).collect();
        let [values_node, gamma_node, beta_node] = ops.parents;
        if let Some(node) = values_node {
            // slope·(g − Σg/B − x̂·Σ(g·x̂)/B), which is linear in x as well.
            let count = rows as f32;
            let less: Vec<f32> = sums.iter().map(|sum| *sum as f32 / count).collect();
            let by_value: Vec<f32> =
                of_scale.iter().zip(&inverse).map(|(sum, inverse)| sum * inverse / count).collect();
            by_row(&mut grad, columns, |row, grad| {
                let centred = (row_of(row), &statistics.mean[..]);
                simd::columns::pull_back(grad, centred, (&less, &by_value), &lines.slope);
            });
            grads.register::<Flex>(node.id, flex_tensor(grad, [rows, columns]));
        }
        if let Some(node) = gamma_node {
            grads.register::<Flex>(node.id, flex_tensor(of_scale, [columns]));
        }
        if let Some(node) = beta_node {
            let of_shift = sums.iter().map(|sum| *sum as f32).collect();
            grads.register::<Flex>(node.id, flex_tensor(of_shift, [columns]));
        }
    }
}

impl<C: CheckpointStrategy> ColumnsBackend for Autodiff<Flex, C> {
    fn treat_columns(
        values: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        treatment: Arc<ColumnTreatment>,
    ) -> FloatTensor<Self> {
        let ((values, a), (gamma, b), (beta, c)) =
            (values.into_parts(), gamma.into_parts(), beta.into_parts());
        let out = Flex::treat_columns(
            values.clone(),
            gamma.clone(),
            beta.clone(),
            Arc::clone(&treatment),
        );
        match ColumnsBackward.prepare::<C>([a, b, c]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { values, gamma, beta, treatment }, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

/// Fills rows, many at a time.
fn by_row(out: &mut [f32], columns: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
    out.par_chunks_mut(ROWS * columns).enumerate().for_each(|(task, out)| {
        for (i, row) in out.chunks_exact_mut(columns).enumerate() {
            fill(task * ROWS + i, row);
        }
    });
}

/// Two sums for each column, to which `add` adds a row: in f32 over the rows of a task, in f64 over
/// tasks, in order.
fn column_sums(
    rows: usize,
    columns: usize,
    add: impl Fn(usize, [&mut [f32]; 2]) + Sync,
) -> [Vec<f64>; 2] {
    let of_task = |task: usize| {
        let [mut first, mut second] = [vec![0.0; columns], vec![0.0; columns]];
        for row in task * ROWS..((task + 1) * ROWS).min(rows) {
            add(row, [&mut first, &mut second]);
        }
        [first, second]
    };
    let tasks: Vec<_> = (0..rows.div_ceil(ROWS)).into_par_iter().map(of_task).collect();
    let mut all = [vec![0.0; columns], vec![0.0; columns]];
    for sums in tasks {
        for (all, sums) in all.iter_mut().zip(sums) {
            all.iter_mut().zip(sums).for_each(|(all, sum)| *all += f64::from(sum));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    /// More rows than a task, more columns than lanes.
    const SHAPE: [usize; 2] = [75, 37];

    fn tensor<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
        let len = shape.iter().product::<usize>();
        // Neither small nor even, and far from zero.
        let values = (0..len).map(|i| ((i * 7919) % 211) as f32 / 100.0 + 0.5).collect();
        Tensor::from_data(TensorData::new::<f32, _>(values, shape), device)
    }

    fn treatment(values: &Tensor<2>, negative_slope: f32, drops: bool) -> ColumnTreatment {
        let kept = (0..SHAPE[0] * SHAPE[1]).map(|i| [0.0, 1.5, 1.0][i % 3]).collect();
        let statistics = column_statistics(values);
        ColumnTreatment { statistics, negative_slope, kept: drops.then_some(kept) }
    }

    #[test]
    fn statistics_equal_plain_sums_however_far_from_zero() {
        for shift in [0.0, 1000.0] {
            let values = tensor(SHAPE, &Device::flex()).add_scalar(shift);
            let found = column_statistics(&values);
            let all = values.into_data().try_into_vec::<f32>().unwrap();
            for column in 0..SHAPE[1] {
                let own: Vec<f64> =
                    all[column..].iter().step_by(SHAPE[1]).map(|x| f64::from(*x)).collect();
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                let variance =
                    own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
                // Rounding of f32.
                let close = |found: f32, x: f64| (f64::from(found) - x).abs() < 1e-6 * x.max(1.0);
                assert!(close(found.mean[column], mean));
                assert!(close(found.variance[column], variance));
            }
        }
    }

    #[test]
    fn one_pass_and_its_gradients_equal_those_of_plain_operations() {
        let device = Device::flex().autodiff();
        for (negative_slope, drops) in [(0.01, true), (0.0, false), (1.0, true)] {
            let values = tensor(SHAPE, &device).require_grad();
            let gamma = tensor([SHAPE[1]], &device).require_grad();
            let beta = tensor([SHAPE[1]], &device).sub_scalar(0.4).require_grad();
            let upstream = tensor([SHAPE[1], SHAPE[0]], &device).swap_dims(0, 1);
            let run = |treat: &dyn Fn(Tensor<2>, Tensor<1>, Tensor<1>) -> Tensor<2>| {
                let out = treat(values.clone(), gamma.clone(), beta.clone());
                let grads = (out.clone() * upstream.clone()).sum().backward();
                let [gamma, beta] = [&gamma, &beta].map(|x| x.grad(&grads).unwrap().into_data());
                [out.into_data(), values.grad(&grads).unwrap().into_data(), gamma, beta]
            };
            let treatment = |x: &Tensor<2>| treatment(x, negative_slope, drops);
            let fused = run(&|x, gamma, beta| treat_columns(x.clone(), gamma, beta, treatment(&x)));
            let plain = run(&|x, gamma, beta| reference(x.clone(), gamma, beta, &treatment(&x)));
            for (fused, plain) in fused.iter().zip(&plain) {
                // Sums of about a hundred f32 each.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 1e-4));
            }
        }
    }

    #[test]
    fn without_gradients_the_given_statistics_count() {
        let device = Device::flex();
        let values = tensor(SHAPE, &device);
        let [gamma, beta] = [1.2, -0.3].map(|x| Tensor::<1>::full([SHAPE[1]], x, &device));
        let given = || ColumnTreatment {
            statistics: Statistics { mean: vec![0.7; SHAPE[1]], variance: vec![0.4; SHAPE[1]] },
            negative_slope: 0.1,
            kept: None,
        };
        let fused = treat_columns(values.clone(), gamma.clone(), beta.clone(), given());
        let plain = reference(values, gamma, beta, &given());
        // Where slope·x and start cancel, an absolute error is left.
        let tolerance = Tolerance::<f32>::rel_abs(1e-5, 1e-6);
        fused.into_data().assert_approx_eq(&plain.into_data(), tolerance);
    }

    #[test]
    fn gradients_are_the_slopes_of_finite_differences() {
        let device = Device::flex().autodiff();
        let weights = Tensor::<2>::from_floats([[0.3, -1.0], [0.8, 0.5], [0.2, -0.7]], &device);
        let loss = |values: Tensor<2>| {
            let [gamma, beta] = [[1.3, 0.8], [0.1, 0.2]].map(|x| Tensor::from_floats(x, &device));
            let statistics = column_statistics(&values);
            let kept = Some(vec![1.0, 2.0, 1.0, 1.0, 0.0, 1.0]);
            let treatment = ColumnTreatment { statistics, negative_slope: 0.1, kept };
            (treat_columns(values, gamma, beta, treatment) * weights.clone()).sum()
        };
        let start = vec![0.3_f32, -0.8, 1.1, 0.9, -0.2, 0.5];
        let at = |values: Vec<f32>| {
            Tensor::<2>::from_data(TensorData::new(values, [3, 2]), &device).require_grad()
        };
        let values = at(start.clone());
        let grad = values.grad(&loss(values.clone()).backward()).unwrap();
        let grad = grad.into_data().try_into_vec::<f32>().unwrap();
        for i in 0..start.len() {
            let moved = |by: f32| {
                let mut values = start.clone();
                values[i] += by;
                loss(at(values)).into_scalar::<f32>()
            };
            let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            // The second derivative times the step, and rounding divided by it.
            assert!((slope - grad[i]).abs() < 5e-3, "{i}: {slope}, {}", grad[i]);
        }
    }
}
