//! How are channels normalised, cut off and dropped in one pass over their values?
//!
//! A convolution makes thousands of values of a query. As a chain of tensor operations, each would
//! be written about eight times on the way forward and as often on the way back, by one thread.

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

use super::{flex_tensor, values};

/// Mean and variance of each channel, `[C]`.
#[derive(Debug, Clone)]
pub(crate) struct Statistics {
    pub(crate) mean: Vec<f32>,
    pub(crate) variance: Vec<f32>,
}

/// What happens to channels besides scale and shift.
#[derive(Debug)]
pub(crate) struct Treatment {
    /// Where a gradient is asked for, these are of the values themselves, and it passes through them.
    pub(crate) statistics: Statistics,
    /// Lower values become this: zero, or −∞ for none.
    pub(crate) floor: f32,
    /// What each channel of each query is multiplied by in the end, `[B·C]`.
    pub(crate) kept: Vec<f32>,
}

/// Mean and biased variance of each channel of `[B, C, P]`.
pub(crate) fn channel_statistics(tensor: &Tensor<3>) -> Statistics {
    let [queries, channels, places] = tensor.dims();
    let tensor =
        if tensor.device().is_autodiff() { tensor.clone().inner() } else { tensor.clone() };
    let tensor = tensor.try_into_primitive::<Flex>().expect("models are on the CPU");
    let values = values(&tensor);
    let sums = channel_sums(channels, queries, |row| {
        let values = &values[row * places..][..places];
        pair_sums(values, values, |x, _| [x, x * x])
    });
    let count = (queries * places) as f64;
    let mean = |sums: &[f64; 2]| (sums[0] / count) as f32;
    let variance = |sums: &[f64; 2]| {
        let mean = sums[0] / count;
        // Rounding may take it below zero if all values are the same.
        (sums[1] / count - mean * mean).max(0.0) as f32
    };
    Statistics {
        mean: sums.iter().map(mean).collect(),
        variance: sums.iter().map(variance).collect(),
    }
}

/// max((x − mean)/√(variance + ε)·gamma + beta, floor)·kept, for `[B, C, P]` and the `[C]` of scale
/// and shift.
pub(crate) fn treat_channels(
    values: Tensor<3>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    treatment: Treatment,
) -> Tensor<3> {
    match values.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if values.dtype() == DType::F32 => {
            let [values, gamma, beta] =
                [values.into_dispatch(), gamma.into_dispatch(), beta.into_dispatch()];
            let treatment = Arc::new(treatment);
            Tensor::from_dispatch(Dispatch::treat_channels(values, gamma, beta, treatment))
        }
        _ => reference(values, gamma, beta, &treatment),
    }
}

fn reference(
    values: Tensor<3>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    treatment: &Treatment,
) -> Tensor<3> {
    let [queries, channels, _] = values.dims();
    let device = values.device();
    let given = |numbers: &[f32], shape: [usize; 3]| {
        Tensor::<3>::from_data(TensorData::new(numbers.to_vec(), shape), &device)
    };
    let (mean, variance) = if device.is_autodiff() {
        let mean_of = |values: Tensor<3>| values.mean_dim(2).mean_dim(0);
        let mean = mean_of(values.clone());
        (mean.clone(), mean_of((values.clone() - mean).square()))
    } else {
        let Statistics { mean, variance } = &treatment.statistics;
        (given(mean, [1, channels, 1]), given(variance, [1, channels, 1]))
    };
    let normalised = (values - mean) / variance.add_scalar(Statistics::EPSILON).sqrt();
    let shape = [1, channels, 1];
    let scaled = normalised * gamma.reshape(shape) + beta.reshape(shape);
    scaled.clamp_min(treatment.floor) * given(&treatment.kept, [queries, channels, 1])
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait ChannelsBackend: Backend {
    /// See [`treat_channels`].
    fn treat_channels(
        values: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        treatment: Arc<Treatment>,
    ) -> FloatTensor<Self>;
}

impl ChannelsBackend for Flex {
    fn treat_channels(
        tensor: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        treatment: Arc<Treatment>,
    ) -> FlexTensor {
        let [queries, channels, places] = tensor.shape().dims();
        let (gamma, beta) = (values(&gamma), values(&beta));
        let source = values(&tensor);
        let mut out = vec![0.0; source.len()];
        by_row(&mut out, places, |row, out| {
            let Line { slope, start } =
                Line::of(row % channels, &gamma, &beta, &treatment.statistics);
            let kept = treatment.kept[row];
            for (out, x) in out.iter_mut().zip(&source[row * places..]) {
                *out = (x * slope + start).max(treatment.floor) * kept;
            }
        });
        flex_tensor(out, [queries, channels, places])
    }
}

/// Normalisation, scale and shift of one channel together: slope·x + start.
pub(super) struct Line {
    pub(super) slope: f32,
    pub(super) start: f32,
}

impl Line {
    pub(super) fn of(channel: usize, gamma: &[f32], beta: &[f32], statistics: &Statistics) -> Self {
        let slope = gamma[channel] * statistics.inverse_deviation(channel);
        Self { slope, start: beta[channel] - statistics.mean[channel] * slope }
    }
}

impl Statistics {
    /// Under the root of a variance (Ioffe and Szegedy 2015; as in PyTorch).
    pub(super) const EPSILON: f32 = 1e-5;

    pub(super) fn inverse_deviation(&self, channel: usize) -> f32 {
        (self.variance[channel] + Self::EPSILON).sqrt().recip()
    }
}

#[derive(Debug)]
struct ChannelsBackward;

#[derive(Debug, Clone)]
struct State {
    values: FlexTensor,
    gamma: FlexTensor,
    beta: FlexTensor,
    treatment: Arc<Treatment>,
}

impl Backward<Flex, 3> for ChannelsBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<Flex>(&ops.node);
        let State { values: tensor, gamma, beta, treatment } = ops.state;
        let shape: [usize; 3] = tensor.shape().dims();
        let [queries, channels, places] = shape;
        let (source, grad) = (values(&tensor), values(&grad));
        let (gamma, beta) = (values(&gamma), values(&beta));
        let statistics = &treatment.statistics;
        // By the value before the floor, in normalised units: x̂ and the gradient that reaches it.
        let at = |row: usize| {
            let line = Line::of(row % channels, &gamma, &beta, &treatment.statistics);
            let mean = statistics.mean[row % channels];
            let (inverse, kept) =
                (statistics.inverse_deviation(row % channels), treatment.kept[row]);
            let floor = treatment.floor;
            move |x: f32, grad: f32| {
                let passes = x * line.slope + line.start > floor;
                [(x - mean) * inverse, if passes { grad * kept } else { 0.0 }]
            }
        };
        let sums = channel_sums(channels, queries, |row| {
            let at = at(row);
            let [source, grad] = [&source, &grad].map(|values| &values[row * places..][..places]);
            pair_sums(source, grad, |x, grad| {
                let [normalised, grad] = at(x, grad);
                [grad, grad * normalised]
            })
        });
        let count = (queries * places) as f64;
        let mut grad_values = vec![0.0; source.len()];
        by_row(&mut grad_values, places, |row, out| {
            let channel = row % channels;
            let at = at(row);
            let scale = gamma[channel] * statistics.inverse_deviation(channel);
            let [mean, slope] = sums[channel].map(|sum| (sum / count) as f32);
            let pairs = source[row * places..].iter().zip(&grad[row * places..]);
            for (out, (x, grad)) in out.iter_mut().zip(pairs) {
                let [normalised, grad] = at(*x, *grad);
                *out = scale * (grad - mean - normalised * slope);
            }
        });
        let [values_node, gamma_node, beta_node] = ops.parents;
        if let Some(node) = values_node {
            grads.register::<Flex>(node.id, flex_tensor(grad_values, shape));
        }
        for (node, part) in [(beta_node, 0), (gamma_node, 1)] {
            if let Some(node) = node {
                let sums = sums.iter().map(|sums| sums[part] as f32).collect();
                grads.register::<Flex>(node.id, flex_tensor(sums, [channels]));
            }
        }
    }
}

impl<C: CheckpointStrategy> ChannelsBackend for Autodiff<Flex, C> {
    fn treat_channels(
        values: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        treatment: Arc<Treatment>,
    ) -> FloatTensor<Self> {
        let ((values, a), (gamma, b), (beta, c)) =
            (values.into_parts(), gamma.into_parts(), beta.into_parts());
        let out = Flex::treat_channels(
            values.clone(),
            gamma.clone(),
            beta.clone(),
            Arc::clone(&treatment),
        );
        match ChannelsBackward.prepare::<C>([a, b, c]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { values, gamma, beta, treatment }, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

/// Rows, each a channel of a query, per task.
const ROWS: usize = 256;

/// Fills rows of `places` values, many at a time.
fn by_row(out: &mut [f32], places: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
    out.par_chunks_mut(ROWS * places).enumerate().for_each(|(task, out)| {
        for (i, row) in out.chunks_exact_mut(places).enumerate() {
            fill(task * ROWS + i, row);
        }
    });
}

/// The sums of both numbers that `pair` makes of each x and y.
fn pair_sums(xs: &[f32], ys: &[f32], pair: impl Fn(f32, f32) -> [f32; 2]) -> [f64; 2] {
    /// Sums side by side, for the compiler to make vectors of.
    const LANES: usize = 16;
    let mut lanes = [[0.0_f32; LANES]; 2];
    let mut add = |lane: usize, x: f32, y: f32| {
        let [first, second] = pair(x, y);
        lanes[0][lane] += first;
        lanes[1][lane] += second;
    };
    let ((x_chunks, x_rest), (y_chunks, y_rest)) =
        (xs.as_chunks::<LANES>(), ys.as_chunks::<LANES>());
    for (xs, ys) in x_chunks.iter().zip(y_chunks) {
        (0..LANES).for_each(|lane| add(lane, xs[lane], ys[lane]));
    }
    for (lane, (x, y)) in x_rest.iter().zip(y_rest).enumerate() {
        add(lane, *x, *y);
    }
    lanes.map(|lanes| lanes.into_iter().map(f64::from).sum())
}

/// Two sums for each channel from those of its rows, task by task and in order, so that the number
/// of threads changes no bit.
fn channel_sums(
    channels: usize,
    queries: usize,
    row_sums: impl Fn(usize) -> [f64; 2] + Sync,
) -> Vec<[f64; 2]> {
    /// Queries per task; part of what decides the bits, so it never changes.
    const QUERIES: usize = 16;
    let add = |sums: &mut [f64; 2], more: [f64; 2]| {
        sums[0] += more[0];
        sums[1] += more[1];
    };
    let of_task = |task: usize| {
        let mut sums = vec![[0.0; 2]; channels];
        for query in task * QUERIES..((task + 1) * QUERIES).min(queries) {
            for (channel, sums) in sums.iter_mut().enumerate() {
                add(sums, row_sums(query * channels + channel));
            }
        }
        sums
    };
    let tasks: Vec<_> = (0..queries.div_ceil(QUERIES)).into_par_iter().map(of_task).collect();
    let mut all = vec![[0.0; 2]; channels];
    for sums in tasks {
        all.iter_mut().zip(sums).for_each(|(all, sums)| add(all, sums));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    const SHAPE: [usize; 3] = [19, 3, 21];

    fn tensor<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
        let len = shape.iter().product::<usize>();
        // Neither small nor even, and far from zero.
        let values = (0..len).map(|i| ((i * 7919) % 211) as f32 / 100.0 + 0.5).collect();
        Tensor::from_data(TensorData::new::<f32, _>(values, shape), device)
    }

    fn treatment(values: &Tensor<3>, floor: f32) -> Treatment {
        let kept = (0..SHAPE[0] * SHAPE[1]).map(|i| [0.0, 1.5, 1.0][i % 3]).collect();
        Treatment { statistics: channel_statistics(values), floor, kept }
    }

    #[test]
    fn statistics_equal_plain_sums() {
        let values = tensor(SHAPE, &Device::flex());
        let found = channel_statistics(&values);
        let all = values.into_data().try_into_vec::<f32>().unwrap();
        for channel in 0..SHAPE[1] {
            let own: Vec<f64> = (0..SHAPE[0])
                .flat_map(|query| &all[(query * SHAPE[1] + channel) * SHAPE[2]..][..SHAPE[2]])
                .map(|x| f64::from(*x))
                .collect();
            let mean = own.iter().sum::<f64>() / own.len() as f64;
            let variance = own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
            // Rounding of f32.
            assert!((f64::from(found.mean[channel]) - mean).abs() < 1e-6);
            assert!((f64::from(found.variance[channel]) - variance).abs() < 1e-6);
        }
    }

    #[test]
    fn one_pass_and_its_gradients_equal_those_of_plain_operations() {
        let device = Device::flex().autodiff();
        for floor in [0.0, f32::NEG_INFINITY] {
            let values = tensor(SHAPE, &device).require_grad();
            let gamma = tensor([SHAPE[1]], &device).require_grad();
            let beta = tensor([SHAPE[1]], &device).sub_scalar(0.4).require_grad();
            let upstream = tensor([SHAPE[2], SHAPE[1], SHAPE[0]], &device).swap_dims(0, 2);
            let run = |treat: &dyn Fn(Tensor<3>, Tensor<1>, Tensor<1>) -> Tensor<3>| {
                let out = treat(values.clone(), gamma.clone(), beta.clone());
                let grads = (out.clone() * upstream.clone()).sum().backward();
                let [gamma, beta] = [&gamma, &beta].map(|x| x.grad(&grads).unwrap().into_data());
                [out.into_data(), values.grad(&grads).unwrap().into_data(), gamma, beta]
            };
            let fused = run(&|x, gamma, beta| {
                let treatment = treatment(&x, floor);
                treat_channels(x, gamma, beta, treatment)
            });
            let plain =
                run(&|x, gamma, beta| reference(x.clone(), gamma, beta, &treatment(&x, floor)));
            for (fused, plain) in fused.iter().zip(&plain) {
                // Sums of about a thousand f32 each.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 1e-4));
            }
        }
    }

    #[test]
    fn gradients_are_the_slopes_of_finite_differences() {
        let device = Device::flex().autodiff();
        let shape = [2, 1, 3];
        let weights = Tensor::<3>::from_floats([[[0.3, -1.0, 0.8]], [[0.5, 0.2, -0.7]]], &device);
        let loss = |values: Tensor<3>| {
            let gamma = Tensor::from_floats([1.3], &device);
            let beta = Tensor::from_floats([0.1], &device);
            let statistics = channel_statistics(&values);
            let treatment = Treatment { statistics, floor: 0.0, kept: vec![1.0, 2.0] };
            (treat_channels(values, gamma, beta, treatment) * weights.clone()).sum()
        };
        let start = vec![0.3_f32, -0.8, 1.1, 0.9, -0.2, 0.5];
        let at = |values: Vec<f32>| {
            Tensor::<3>::from_data(TensorData::new(values, shape), &device).require_grad()
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
