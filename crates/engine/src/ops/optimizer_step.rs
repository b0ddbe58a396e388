//! Steps of optimizers: how does one pass over a table once instead of a dozen times?

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use fullrank_kernels::adagrad::{self, AdagradStep};
use fullrank_kernels::adam::{self, AdamStep, Learned};
use fullrank_kernels::moving_average;

use super::adaptor::{is_supported, values};
use super::gather;

/// One step of an optimizer, the same for every value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OptimizerStep {
    Adam(AdamStep),
    Adagrad(AdagradStep),
}

/// What an optimizer remembers of a parameter, flattened: of Adam the running means of the gradient
/// and of its square, of Adagrad the sum of its squares.
pub(crate) type Moments = Vec<Tensor<1>>;

/// Updates a parameter and its moments: in one pass and in place on the CPU, by tensor operations
/// elsewhere.
pub(crate) fn step_all<const D: usize>(
    step: OptimizerStep,
    parameter: Tensor<D>,
    grad: Tensor<D>,
    moments: Moments,
) -> (Tensor<D>, Moments) {
    let shape = parameter.shape();
    let parameter = parameter.reshape([-1]);
    let grad = grad.reshape([-1]);
    let (parameter, moments) = if is_on_cpu(&parameter) {
        fused(step, parameter, grad, moments, None)
    } else {
        reference(step, parameter, grad, moments)
    };
    (parameter.reshape(shape), moments)
}

/// Updates some rows of a table and of its moments, all flattened, from the gradient of these rows:
/// in place on the CPU.
pub(crate) fn step_rows<const D: usize>(
    step: OptimizerStep,
    table: Tensor<1>,
    grad: Tensor<D>,
    ids: &[u32],
    moments: Moments,
) -> (Tensor<1>, Moments) {
    let grad = grad.reshape([-1]);
    if is_on_cpu(&table) {
        fused(step, table, grad, moments, Some(ids))
    } else {
        reference_rows(step, table, grad, ids, moments)
    }
}

/// Moves every mean by `weight` of the way to its value: in place on the CPU.
pub(crate) fn follow(means: Tensor<1>, values: Tensor<1>, weight: f32) -> Tensor<1> {
    if !is_on_cpu(&means) {
        return means.clone() + (values - means).mul_scalar(weight);
    }
    let [mut means, values] = on_cpu([means, values]);
    let values = values.as_slice::<f32>().expect("contiguous f32");
    moving_average::follow(means.storage_mut::<f32>(), values, weight);
    Tensor::from_primitive::<Flex>(means)
}

/// The Euclidean norm of all values of a tensor, added up in a fixed order.
pub(crate) fn norm<const D: usize>(tensor: Tensor<D>) -> f64 {
    let tensor = tensor.reshape([-1]);
    if !is_on_cpu(&tensor) {
        return f64::from(tensor.square().sum().sqrt().into_scalar::<f32>());
    }
    let tensor = tensor.try_into_primitive::<Flex>().expect("just looked");
    adam::norm(&values(&tensor))
}

/// Whether a tensor is on the CPU in f32, and no input of a gradient.
fn is_on_cpu(tensor: &Tensor<1>) -> bool {
    is_supported(tensor) && !tensor.device().is_autodiff()
}

fn on_cpu<const N: usize>(tensors: [Tensor<1>; N]) -> [FlexTensor; N] {
    tensors.map(flex)
}

fn flex(tensor: Tensor<1>) -> FlexTensor {
    let tensor = tensor.try_into_primitive::<Flex>().expect("the caller saw the CPU");
    tensor.to_contiguous()
}

/// A step over all values, or over the rows that `ids` names.
fn fused(
    step: OptimizerStep,
    parameter: Tensor<1>,
    grad: Tensor<1>,
    moments: Moments,
    ids: Option<&[u32]>,
) -> (Tensor<1>, Moments) {
    let [mut parameter, grad] = on_cpu([parameter, grad]);
    let mut moments: Vec<FlexTensor> = moments.into_iter().map(flex).collect();
    let grad = grad.as_slice::<f32>().expect("contiguous f32");
    let values = parameter.storage_mut::<f32>();
    match (step, moments.as_mut_slice()) {
        (OptimizerStep::Adam(step), [first, second]) => {
            let (first, second) = (first.storage_mut::<f32>(), second.storage_mut::<f32>());
            let learned = Learned { parameter: values, first, second };
            match ids {
                None => adam::update(step, learned, grad),
                Some(ids) => adam::update_rows(step, learned, grad, ids),
            }
        }
        (OptimizerStep::Adagrad(step), [sum]) => match ids {
            None => adagrad::update(step, values, sum.storage_mut::<f32>(), grad),
            Some(ids) => adagrad::update_rows(step, values, sum.storage_mut::<f32>(), grad, ids),
        },
        (step, moments) => panic!("{} moments for {step:?}", moments.len()),
    }
    let moments = moments.into_iter().map(Tensor::from_primitive::<Flex>).collect();
    (Tensor::from_primitive::<Flex>(parameter), moments)
}

fn reference(
    step: OptimizerStep,
    parameter: Tensor<1>,
    grad: Tensor<1>,
    moments: Moments,
) -> (Tensor<1>, Moments) {
    match (step, moments.as_slice()) {
        (OptimizerStep::Adam(step), [first, second]) => {
            let grad = grad.mul_scalar(step.grad_factor);
            let mean = |mean: &Tensor<1>, value: Tensor<1>, beta: f32| {
                mean.clone().mul_scalar(beta) + value.mul_scalar(1.0 - beta)
            };
            let first = mean(first, grad.clone(), step.beta_1);
            let second = mean(second, grad.square(), step.beta_2);
            let root = second.clone().sqrt().mul_scalar(step.second_factor);
            let root = root.add_scalar(step.epsilon);
            (parameter - first.clone().mul_scalar(step.rate) / root, vec![first, second])
        }
        (OptimizerStep::Adagrad(step), [sum]) => {
            let grad = grad.mul_scalar(step.grad_factor);
            let sum = sum.clone() + grad.clone().square();
            let root = sum.clone().sqrt().add_scalar(step.epsilon);
            (parameter - grad.mul_scalar(step.rate) / root, vec![sum])
        }
        (step, moments) => panic!("{} moments for {step:?}", moments.len()),
    }
}

fn reference_rows(
    step: OptimizerStep,
    table: Tensor<1>,
    grad: Tensor<1>,
    ids: &[u32],
    moments: Moments,
) -> (Tensor<1>, Moments) {
    let columns = grad.dims()[0] / ids.len();
    let rows_of = |tensor: &Tensor<1>| {
        let rows = tensor.dims()[0] / columns;
        gather::reference(tensor.clone().reshape([rows, columns]), ids).reshape([-1])
    };
    let (rows, new) = reference(step, rows_of(&table), grad, moments.iter().map(rows_of).collect());
    let put = |all: Tensor<1>, new: Tensor<1>| {
        let (len, change) = (all.dims()[0], new - rows_of(&all));
        let numbers: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
        let numbers = TensorData::new(numbers, [ids.len()]);
        let numbers = Tensor::<1, Int>::from_data(numbers, &all.device());
        let change = change.reshape([ids.len(), columns]);
        let all = all.reshape([len / columns, columns]);
        all.select_assign(0, numbers, change, IndexingUpdateOp::Add).reshape([-1])
    };
    let moments = moments.into_iter().zip(new).map(|(all, new)| put(all, new)).collect();
    (put(table, rows), moments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Tolerance};

    fn tensor(len: usize, f: fn(f32) -> f32) -> Tensor<1> {
        let values: Vec<f32> = (0..len).map(|i| f(i as f32)).collect();
        Tensor::<1>::from_floats(values.as_slice(), &Device::flex())
    }

    #[test]
    fn a_norm_is_that_of_all_values() {
        let tensor = Tensor::<2>::full([300, 1000], 2.0, &Device::flex());
        assert!((norm(tensor) - 2.0 * 300_000_f64.sqrt()).abs() < 1e-3);
    }

    #[test]
    fn a_mean_follows_its_value() {
        let means = follow(tensor(3, |x| x), tensor(3, |_| 2.0), 0.5);
        assert_eq!(means.into_data().try_into_vec::<f32>().unwrap(), [1.0, 1.5, 2.0]);
    }

    #[test]
    fn fused_steps_equal_plain_ones_over_all_rows_and_some() {
        let adam = AdamStep {
            beta_1: 0.9,
            beta_2: 0.999,
            rate: 0.02,
            second_factor: 3.0,
            epsilon: 1e-8,
            grad_factor: 0.5,
        };
        let adagrad = AdagradStep { rate: 0.1, epsilon: 1e-10, grad_factor: 0.5 };
        let moments = [tensor(100, |x| x.cos().abs()), tensor(100, f32::abs)];
        for (step, moments) in [
            (OptimizerStep::Adam(adam), moments.to_vec()),
            (OptimizerStep::Adagrad(adagrad), moments[..1].to_vec()),
        ] {
            let (parameter, all) = (|| tensor(100, |x| x), tensor(100, |x| x.sin()));
            // Rows of ten.
            let (ids, some) = ([0, 3, 9], tensor(30, |x| x.sin()));
            for (grad, ids, expected) in [
                (all.clone(), None, reference(step, parameter(), all.clone(), moments.clone())),
                (
                    some.clone(),
                    Some(&ids[..]),
                    reference_rows(step, parameter(), some, &ids, moments.clone()),
                ),
            ] {
                let found = fused(step, parameter(), grad, moments.clone(), ids);
                let found = [found.0].into_iter().chain(found.1);
                for (found, expected) in found.zip([expected.0].into_iter().chain(expected.1)) {
                    let tolerance = Tolerance::<f32>::relative(1e-5);
                    found.into_data().assert_approx_eq(&expected.into_data(), tolerance);
                }
            }
        }
    }
}
