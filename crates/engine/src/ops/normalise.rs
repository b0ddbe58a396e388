//! How are the channels of a batch normalised, activated and dropped in few passes over their values?
//!
//! A convolution makes thousands of values of a query, and every layer of a mixture's projections a
//! value for each component and dimension. As a chain of tensor operations each would be written
//! about eight times on the way forward and as often on the way back, by one thread.

mod channels;
mod columns;

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

/// Mean and biased variance of each channel, `[C]`.
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
    /// What negative values are multiplied by: 1 leaves them, 0 makes zeros of them.
    pub(crate) negative_slope: f32,
    /// What each channel of each query is multiplied by in the end, `[B·C]`.
    pub(crate) kept: Option<Vec<f32>>,
}

impl Statistics {
    /// Under the root of a variance (Ioffe and Szegedy 2015; as in PyTorch).
    const EPSILON: f32 = 1e-5;

    /// Of each channel of `[B, C, P]`.
    pub(crate) fn of(tensor: &Tensor<3>) -> Self {
        let shape = tensor.dims();
        let tensor =
            if tensor.device().is_autodiff() { tensor.clone().inner() } else { tensor.clone() };
        let tensor = tensor.try_into_primitive::<Flex>().expect("models are on the CPU");
        let values = values(&tensor);
        match shape {
            [_, _, 1] => columns::statistics(&values, shape),
            _ => channels::statistics(&values, shape),
        }
    }

    fn inverse_deviation(&self, channel: usize) -> f32 {
        (self.variance[channel] + Self::EPSILON).sqrt().recip()
    }
}

/// a((x − mean)/√(variance + ε)·gamma + beta)·kept, for `[B, C, P]` and the `[C]` of scale and shift,
/// where a leaves positive values as they are.
pub(crate) fn normalise(
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
            Tensor::from_dispatch(Dispatch::normalise(values, gamma, beta, treatment))
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
    let of_channels = [1, channels, 1];
    let (mean, variance) = if device.is_autodiff() {
        let mean_of = |values: Tensor<3>| values.mean_dim(2).mean_dim(0);
        let mean = mean_of(values.clone());
        (mean.clone(), mean_of((values.clone() - mean).square()))
    } else {
        let Statistics { mean, variance } = &treatment.statistics;
        (given(mean, of_channels), given(variance, of_channels))
    };
    let normalised = (values - mean) / variance.add_scalar(Statistics::EPSILON).sqrt();
    let scaled = normalised * gamma.reshape(of_channels) + beta.reshape(of_channels);
    let below = scaled.clone().clamp_max(0.0).mul_scalar(treatment.negative_slope);
    let active = scaled.clamp_min(0.0) + below;
    match &treatment.kept {
        Some(kept) => active * given(kept, [queries, channels, 1]),
        None => active,
    }
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait NormaliseBackend: Backend {
    /// See [`normalise`].
    fn normalise(
        values: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        treatment: Arc<Treatment>,
    ) -> FloatTensor<Self>;
}

impl NormaliseBackend for Flex {
    fn normalise(
        tensor: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        treatment: Arc<Treatment>,
    ) -> FlexTensor {
        let shape: [usize; 3] = tensor.shape().dims();
        let lines = Lines::of(&values(&gamma), &values(&beta), &treatment.statistics);
        let source = values(&tensor);
        let out = match shape {
            [_, _, 1] => columns::forward(&source, shape, &lines, &treatment),
            _ => channels::forward(&source, shape, &lines, &treatment),
        };
        flex_tensor(out, shape)
    }
}

/// Normalisation, scale and shift of every channel together: slope·x + start.
struct Lines {
    slope: Vec<f32>,
    start: Vec<f32>,
}

impl Lines {
    fn of(gamma: &[f32], beta: &[f32], statistics: &Statistics) -> Self {
        let line = |channel: usize| {
            let slope = gamma[channel] * statistics.inverse_deviation(channel);
            (slope, beta[channel] - statistics.mean[channel] * slope)
        };
        let (slope, start) = (0..gamma.len()).map(line).unzip();
        Self { slope, start }
    }
}

/// Gradients of one pass.
struct Grads {
    values: Vec<f32>,
    gamma: Vec<f32>,
    beta: Vec<f32>,
}

#[derive(Debug)]
struct NormaliseBackward;

#[derive(Debug, Clone)]
struct State {
    values: FlexTensor,
    gamma: FlexTensor,
    beta: FlexTensor,
    treatment: Arc<Treatment>,
}

impl Backward<Flex, 3> for NormaliseBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<Flex>(&ops.node);
        let State { values: tensor, gamma, beta, treatment } = ops.state;
        let shape: [usize; 3] = tensor.shape().dims();
        let lines = Lines::of(&values(&gamma), &values(&beta), &treatment.statistics);
        let (source, grad) = (values(&tensor), values(&grad));
        let found = match shape {
            [_, _, 1] => columns::backward(&source, grad.into_owned(), shape, &lines, &treatment),
            _ => channels::backward(&source, &grad, shape, &lines, &treatment),
        };
        let [values_node, gamma_node, beta_node] = ops.parents;
        if let Some(node) = values_node {
            grads.register::<Flex>(node.id, flex_tensor(found.values, shape));
        }
        for (node, grad) in [(gamma_node, found.gamma), (beta_node, found.beta)] {
            if let Some(node) = node {
                grads.register::<Flex>(node.id, flex_tensor(grad, [shape[1]]));
            }
        }
    }
}

impl<C: CheckpointStrategy> NormaliseBackend for Autodiff<Flex, C> {
    fn normalise(
        values: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        treatment: Arc<Treatment>,
    ) -> FloatTensor<Self> {
        let ((values, a), (gamma, b), (beta, c)) =
            (values.into_parts(), gamma.into_parts(), beta.into_parts());
        let out =
            Flex::normalise(values.clone(), gamma.clone(), beta.clone(), Arc::clone(&treatment));
        match NormaliseBackward.prepare::<C>([a, b, c]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { values, gamma, beta, treatment }, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }
}

/// Fills rows of `width` values, many at a time.
fn by_row(out: &mut [f32], width: usize, fill: impl Fn(usize, &mut [f32]) + Sync) {
    /// Values per task.
    const VALUES: usize = 16_384;
    let rows = (VALUES / width).max(1);
    out.par_chunks_mut(rows * width).enumerate().for_each(|(task, out)| {
        for (i, row) in out.chunks_exact_mut(width).enumerate() {
            fill(task * rows + i, row);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    /// Of both kinds: more values than a task has, more columns or places than lanes.
    const SHAPES: [[usize; 3]; 2] = [[450, 37, 1], [19, 50, 21]];

    fn tensor<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
        let len = shape.iter().product::<usize>();
        // Neither small nor even, and far from zero.
        let values = (0..len).map(|i| ((i * 7919) % 211) as f32 / 100.0 + 0.5).collect();
        Tensor::from_data(TensorData::new::<f32, _>(values, shape), device)
    }

    fn treatment(values: &Tensor<3>, negative_slope: f32, drops: bool) -> Treatment {
        let [queries, channels, _] = values.dims();
        let kept = (0..queries * channels).map(|i| [0.0, 1.5, 1.0][i % 3]).collect();
        let statistics = Statistics::of(values);
        Treatment { statistics, negative_slope, kept: drops.then_some(kept) }
    }

    #[test]
    fn statistics_equal_plain_sums_however_far_from_zero() {
        for (shape, shift) in SHAPES.iter().flat_map(|shape| [(*shape, 0.0), (*shape, 1000.0)]) {
            let values = tensor(shape, &Device::flex()).add_scalar(shift);
            let found = Statistics::of(&values);
            let all = values.into_data().try_into_vec::<f32>().unwrap();
            let [queries, channels, places] = shape;
            for channel in 0..channels {
                let own: Vec<f64> = (0..queries)
                    .flat_map(|query| &all[(query * channels + channel) * places..][..places])
                    .map(|x| f64::from(*x))
                    .collect();
                let mean = own.iter().sum::<f64>() / own.len() as f64;
                let variance =
                    own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / own.len() as f64;
                // Rounding of f32.
                let close = |found: f32, x: f64| (f64::from(found) - x).abs() < 1e-6 * x.max(1.0);
                assert!(close(found.mean[channel], mean));
                assert!(close(found.variance[channel], variance));
            }
        }
    }

    #[test]
    fn one_pass_and_its_gradients_equal_those_of_plain_operations() {
        let device = Device::flex().autodiff();
        let kinds = [(0.01, true), (0.0, false), (1.0, true)];
        for (shape, (slope, drops)) in SHAPES.iter().flat_map(|s| kinds.map(|kind| (*s, kind))) {
            let [queries, channels, places] = shape;
            let values = tensor(shape, &device).require_grad();
            let gamma = tensor([channels], &device).require_grad();
            let beta = tensor([channels], &device).sub_scalar(0.4).require_grad();
            let upstream = tensor([places, channels, queries], &device).swap_dims(0, 2);
            let run = |treat: &dyn Fn(Tensor<3>, Tensor<1>, Tensor<1>) -> Tensor<3>| {
                let out = treat(values.clone(), gamma.clone(), beta.clone());
                let grads = (out.clone() * upstream.clone()).sum().backward();
                let [gamma, beta] = [&gamma, &beta].map(|x| x.grad(&grads).unwrap().into_data());
                [out.into_data(), values.grad(&grads).unwrap().into_data(), gamma, beta]
            };
            let treatment = |x: &Tensor<3>| treatment(x, slope, drops);
            let fused = run(&|x, gamma, beta| normalise(x.clone(), gamma, beta, treatment(&x)));
            let plain = run(&|x, gamma, beta| reference(x.clone(), gamma, beta, &treatment(&x)));
            for (fused, plain) in fused.iter().zip(&plain) {
                // Gradients of scale are sums of hundreds of values of up to 5, which cancel.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 2e-3));
            }
        }
    }

    #[test]
    fn without_gradients_the_given_statistics_count() {
        let device = Device::flex();
        for shape in SHAPES {
            let channels = shape[1];
            let values = tensor(shape, &device);
            let [gamma, beta] = [1.2, -0.3].map(|x| Tensor::<1>::full([channels], x, &device));
            let given = || Treatment {
                statistics: Statistics { mean: vec![0.7; channels], variance: vec![0.4; channels] },
                negative_slope: 0.1,
                kept: None,
            };
            let fused = normalise(values.clone(), gamma.clone(), beta.clone(), given());
            let plain = reference(values, gamma, beta, &given());
            // Where slope·x and start cancel, an absolute error is left.
            let tolerance = Tolerance::<f32>::rel_abs(1e-5, 1e-6);
            fused.into_data().assert_approx_eq(&plain.into_data(), tolerance);
        }
    }

    #[test]
    fn gradients_are_the_slopes_of_finite_differences() {
        let device = Device::flex().autodiff();
        // As one list: values, then scale, then shift.
        let start = [0.3_f32, -0.8, 1.1, 0.9, -0.2, 0.5, -1.1, 0.4, 1.3, 0.8, 0.1, 0.2];
        for shape in [[4, 2, 1], [2, 2, 2]] {
            let weights = [0.3, -1.0, 0.8, 0.5, 0.2, -0.7, 0.9, -0.4];
            let weights = Tensor::<1>::from_floats(weights, &device).reshape(shape);
            let loss = |all: Tensor<1>| {
                let part = |start, len| all.clone().narrow(0, start, len);
                let values = part(0, 8).reshape(shape);
                let treatment = Treatment {
                    statistics: Statistics::of(&values),
                    negative_slope: 0.1,
                    kept: Some([1.0, 2.0, 1.0, 1.0, 0.0, 1.0, 1.5, 1.0][..shape[0] * 2].to_vec()),
                };
                (normalise(values, part(8, 2), part(10, 2), treatment) * weights.clone()).sum()
            };
            let at = |all: [f32; 12]| Tensor::<1>::from_floats(all, &device).require_grad();
            let all = at(start);
            let grad = all.grad(&loss(all.clone()).backward()).unwrap();
            let grad = grad.into_data().try_into_vec::<f32>().unwrap();
            for i in 0..start.len() {
                let moved = |by: f32| {
                    let mut all = start;
                    all[i] += by;
                    loss(at(all)).into_scalar::<f32>()
                };
                let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                // The third derivative times the square of the step, and rounding divided by it.
                assert!((slope - grad[i]).abs() < 5e-3, "{shape:?}, {i}: {slope}, {}", grad[i]);
            }
        }
    }
}
