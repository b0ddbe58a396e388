//! Batch norm: how are the channels of a batch normalised, activated and dropped in few passes?

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{Tensor, TensorData};
pub(crate) use fullrank_kernels::batch_norm::{Statistics, Treatment};
use fullrank_kernels::batch_norm::{Values, backward, forward};

use super::adaptor::{self, InputGrads, Inputs, Operation, flex_tensor, values};

/// Mean and variance of each channel of `[B, C, P]`. Panics off the CPU, where models are today.
pub(crate) fn statistics(tensor: &Tensor<3>) -> Statistics {
    let shape = tensor.dims();
    let tensor =
        if tensor.device().is_autodiff() { tensor.clone().inner() } else { tensor.clone() };
    let tensor = tensor.try_into_primitive::<Flex>().expect("models are on the CPU");
    Statistics::of(&values(&tensor), shape)
}

/// a((x − mean)/√(variance + ε)·gamma + beta)·mask, for `[B, C, P]` and the `[C]` of scale and shift,
/// where a leaves positive values as they are.
pub(crate) fn batch_norm(
    values: Tensor<3>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    treatment: Treatment,
) -> Tensor<3> {
    if !adaptor::is_supported(&values) {
        return reference(values, gamma, beta, &treatment);
    }
    let operation = BatchNorm { treatment: Arc::new(treatment) };
    adaptor::apply(operation, [values.into(), gamma.into(), beta.into()])
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
    match &treatment.dropout_mask {
        Some(mask) => active * given(mask, [queries, channels, 1]),
        None => active,
    }
}

/// Of values, scale and shift.
#[derive(Debug, Clone)]
struct BatchNorm {
    treatment: Arc<Treatment>,
}

impl Operation<3> for BatchNorm {
    type Saved = ();

    fn forward(&self, inputs: &Inputs<3>) -> (FlexTensor, ()) {
        let [values, gamma, beta] = [0, 1, 2].map(|input| inputs.values(input));
        let shape = inputs.dims(0);
        let input = Values { values: &values, shape, gamma: &gamma, beta: &beta };
        (flex_tensor(forward(input, &self.treatment), shape), ())
    }

    fn backward(self, inputs: &Inputs<3>, (): (), grad: &[f32], grads: &mut InputGrads<3>) {
        let [values, gamma, beta] = [0, 1, 2].map(|input| inputs.values(input));
        let shape = inputs.dims(0);
        let input = Values { values: &values, shape, gamma: &gamma, beta: &beta };
        let made = backward(input, &self.treatment, grad);
        grads.set(0, made.values);
        grads.set(1, made.gamma);
        grads.set(2, made.beta);
    }
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
        let mask = (0..queries * channels).map(|i| [0.0, 1.5, 1.0][i % 3]).collect();
        let statistics = statistics(values);
        Treatment { statistics, negative_slope, dropout_mask: drops.then_some(mask) }
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
            let fused = run(&|x, gamma, beta| batch_norm(x.clone(), gamma, beta, treatment(&x)));
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
                dropout_mask: None,
            };
            let fused = batch_norm(values.clone(), gamma.clone(), beta.clone(), given());
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
                    statistics: statistics(&values),
                    negative_slope: 0.1,
                    dropout_mask: Some(
                        [1.0, 2.0, 1.0, 1.0, 0.0, 1.0, 1.5, 1.0][..shape[0] * 2].to_vec(),
                    ),
                };
                (batch_norm(values, part(8, 2), part(10, 2), treatment) * weights.clone()).sum()
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
