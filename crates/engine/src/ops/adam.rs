//! How does a step of Adam pass over a table once instead of a dozen times?

use burn::backend::{DispatchDevice, Flex};
use burn::tensor::{DType, Tensor};
use rayon::prelude::*;

use super::values;

/// Floats per task: large enough that handing it out costs nothing.
const PIECE: usize = 64 * 1024;

/// One step of Adam (Kingma and Ba 2015, algorithm 1), its bias corrections already worked out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamStep {
    pub(crate) beta_1: f32,
    pub(crate) beta_2: f32,
    /// lr / (1 − beta_1^t).
    pub(crate) rate: f32,
    /// 1 / √(1 − beta_2^t).
    pub(crate) second_factor: f32,
    pub(crate) epsilon: f32,
    /// What every gradient is multiplied by: below 1 where it is clipped.
    pub(crate) grad_factor: f32,
}

/// Running means of a parameter's gradient and of its square, flattened.
#[derive(Debug, Clone)]
pub(crate) struct Moments {
    pub(crate) first: Tensor<1>,
    pub(crate) second: Tensor<1>,
}

/// Updates a parameter and its moments: in one pass and in place on the CPU, by tensor operations
/// elsewhere.
pub(crate) fn adam_step<const D: usize>(
    step: AdamStep,
    parameter: Tensor<D>,
    grad: Tensor<D>,
    moments: Moments,
) -> (Tensor<D>, Moments) {
    let shape = parameter.shape();
    let parameter = parameter.reshape([-1]);
    let grad = grad.reshape([-1]);
    let (parameter, moments) = if is_on_cpu(&parameter) {
        fused(step, parameter, grad, moments)
    } else {
        reference(step, parameter, grad, moments)
    };
    (parameter.reshape(shape), moments)
}

/// The Euclidean norm of all values of a tensor, added up in a fixed order.
pub(crate) fn norm<const D: usize>(tensor: Tensor<D>) -> f64 {
    let tensor = tensor.reshape([-1]);
    if !is_on_cpu(&tensor) {
        return f64::from(tensor.square().sum().sqrt().into_scalar::<f32>());
    }
    let tensor = tensor.try_into_primitive::<Flex>().expect("just looked");
    let pieces: Vec<f64> = values(&tensor)
        .par_chunks(PIECE)
        .map(|piece| f64::from(super::simd::dot(piece, piece)))
        .collect();
    pieces.into_iter().sum::<f64>().sqrt()
}

fn is_on_cpu(tensor: &Tensor<1>) -> bool {
    tensor.dtype() == DType::F32 && matches!(tensor.device().as_dispatch(), DispatchDevice::Flex(_))
}

fn fused(
    step: AdamStep,
    parameter: Tensor<1>,
    grad: Tensor<1>,
    moments: Moments,
) -> (Tensor<1>, Moments) {
    let [mut parameter, grad, mut first, mut second] =
        [parameter, grad, moments.first, moments.second].map(|tensor| {
            let tensor = tensor.try_into_primitive::<Flex>().expect("the caller saw the CPU");
            tensor.to_contiguous()
        });
    update(
        step,
        parameter.storage_mut::<f32>(),
        grad.as_slice::<f32>().expect("contiguous f32"),
        first.storage_mut::<f32>(),
        second.storage_mut::<f32>(),
    );
    let [parameter, first, second] = [parameter, first, second].map(Tensor::from_primitive::<Flex>);
    (parameter, Moments { first, second })
}

fn update(
    step: AdamStep,
    parameter: &mut [f32],
    grad: &[f32],
    first: &mut [f32],
    second: &mut [f32],
) {
    parameter
        .par_chunks_mut(PIECE)
        .zip(grad.par_chunks(PIECE))
        .zip(first.par_chunks_mut(PIECE).zip(second.par_chunks_mut(PIECE)))
        .for_each(|((parameter, grad), (first, second))| {
            super::simd::adam(step, parameter, grad, (first, second));
        });
}

fn reference(
    step: AdamStep,
    parameter: Tensor<1>,
    grad: Tensor<1>,
    moments: Moments,
) -> (Tensor<1>, Moments) {
    let grad = grad.mul_scalar(step.grad_factor);
    let first = moments.first.mul_scalar(step.beta_1) + grad.clone().mul_scalar(1.0 - step.beta_1);
    let second =
        moments.second.mul_scalar(step.beta_2) + grad.square().mul_scalar(1.0 - step.beta_2);
    let deviation = second.clone().sqrt().mul_scalar(step.second_factor).add_scalar(step.epsilon);
    let parameter = parameter - first.clone().mul_scalar(step.rate) / deviation;
    (parameter, Moments { first, second })
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    #[test]
    fn a_norm_is_that_of_all_values() {
        let tensor = Tensor::<2>::full([300, 1000], 2.0, &Device::flex());
        assert!((norm(tensor) - 2.0 * 300_000_f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn fused_steps_equal_plain_ones() {
        let device = Device::flex();
        let tensor = |f: fn(f32) -> f32| {
            let values: Vec<f32> = (0..100).map(|i| f(i as f32)).collect();
            Tensor::<1>::from_floats(values.as_slice(), &device)
        };
        let step = AdamStep {
            beta_1: 0.9,
            beta_2: 0.999,
            rate: 0.02,
            second_factor: 3.0,
            epsilon: 1e-8,
            grad_factor: 0.5,
        };
        let inputs = || {
            let moments = Moments { first: tensor(|x| x.cos()), second: tensor(|x| x.abs()) };
            (tensor(|x| x), tensor(|x| x.sin()), moments)
        };
        let (parameter, grad, moments) = inputs();
        let (fused_parameter, fused_moments) = fused(step, parameter, grad, moments);
        let (parameter, grad, moments) = inputs();
        let (parameter, moments) = reference(step, parameter, grad, moments);
        let tolerance = Tolerance::<f32>::relative(1e-5);
        for (a, b) in [
            (fused_parameter, parameter),
            (fused_moments.first, moments.first),
            (fused_moments.second, moments.second),
        ] {
            a.into_data().assert_approx_eq(&b.into_data(), tolerance);
        }
    }
}
