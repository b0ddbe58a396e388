//! Adam: how does a step pass over a table once instead of a dozen times?

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData};
use fullrank_kernels::adam::{self, AdamStep, Learned};

use super::adaptor::{is_supported, values};
use super::gather;

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

/// Updates some rows of a table and of its moments, all flattened, from the gradient of these rows:
/// in place on the CPU.
pub(crate) fn adam_rows<const D: usize>(
    step: AdamStep,
    table: Tensor<1>,
    grad: Tensor<D>,
    ids: &[u32],
    moments: Moments,
) -> (Tensor<1>, Moments) {
    let grad = grad.reshape([-1]);
    if is_on_cpu(&table) {
        fused_rows(step, table, grad, ids, moments)
    } else {
        reference_rows(step, table, grad, ids, moments)
    }
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
    tensors.map(|tensor| {
        let tensor = tensor.try_into_primitive::<Flex>().expect("the caller saw the CPU");
        tensor.to_contiguous()
    })
}

fn fused(
    step: AdamStep,
    parameter: Tensor<1>,
    grad: Tensor<1>,
    moments: Moments,
) -> (Tensor<1>, Moments) {
    let [mut parameter, grad, mut first, mut second] =
        on_cpu([parameter, grad, moments.first, moments.second]);
    let learned = Learned {
        parameter: parameter.storage_mut::<f32>(),
        first: first.storage_mut::<f32>(),
        second: second.storage_mut::<f32>(),
    };
    adam::update(step, learned, grad.as_slice::<f32>().expect("contiguous f32"));
    let [parameter, first, second] = [parameter, first, second].map(Tensor::from_primitive::<Flex>);
    (parameter, Moments { first, second })
}

fn fused_rows(
    step: AdamStep,
    table: Tensor<1>,
    grad: Tensor<1>,
    ids: &[u32],
    moments: Moments,
) -> (Tensor<1>, Moments) {
    let [mut table, grad, mut first, mut second] =
        on_cpu([table, grad, moments.first, moments.second]);
    let learned = Learned {
        parameter: table.storage_mut::<f32>(),
        first: first.storage_mut::<f32>(),
        second: second.storage_mut::<f32>(),
    };
    adam::update_rows(step, learned, grad.as_slice::<f32>().expect("contiguous f32"), ids);
    let [table, first, second] = [table, first, second].map(Tensor::from_primitive::<Flex>);
    (table, Moments { first, second })
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
    let root = second.clone().sqrt().mul_scalar(step.second_factor).add_scalar(step.epsilon);
    let parameter = parameter - first.clone().mul_scalar(step.rate) / root;
    (parameter, Moments { first, second })
}

fn reference_rows(
    step: AdamStep,
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
    let [first, second] = [&moments.first, &moments.second].map(rows_of);
    let (rows, new) = reference(step, rows_of(&table), grad, Moments { first, second });
    let put = |all: Tensor<1>, new: Tensor<1>| {
        let (len, change) = (all.dims()[0], new - rows_of(&all));
        let numbers: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
        let numbers = TensorData::new(numbers, [ids.len()]);
        let numbers = Tensor::<1, Int>::from_data(numbers, &all.device());
        let change = change.reshape([ids.len(), columns]);
        let all = all.reshape([len / columns, columns]);
        all.select_assign(0, numbers, change, IndexingUpdateOp::Add).reshape([-1])
    };
    let (first, second) = (put(moments.first, new.first), put(moments.second, new.second));
    (put(table, rows), Moments { first, second })
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
    fn fused_steps_equal_plain_ones_over_all_rows_and_some() {
        let device = Device::flex();
        let tensor = |len: usize, f: fn(f32) -> f32| {
            let values: Vec<f32> = (0..len).map(|i| f(i as f32)).collect();
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
        let moments =
            || Moments { first: tensor(100, |x| x.cos()), second: tensor(100, |x| x.abs()) };
        let parameter = || tensor(100, |x| x);
        let all = tensor(100, |x| x.sin());
        check(
            fused(step, parameter(), all.clone(), moments()),
            reference(step, parameter(), all, moments()),
        );
        // Rows of ten.
        let (ids, some) = ([0, 3, 9], tensor(30, |x| x.sin()));
        check(
            fused_rows(step, parameter(), some.clone(), &ids, moments()),
            reference_rows(step, parameter(), some, &ids, moments()),
        );
    }

    fn check(found: (Tensor<1>, Moments), expected: (Tensor<1>, Moments)) {
        let tolerance = Tolerance::<f32>::relative(1e-5);
        for (a, b) in [
            (found.0, expected.0),
            (found.1.first, expected.1.first),
            (found.1.second, expected.1.second),
        ] {
            a.into_data().assert_approx_eq(&b.into_data(), tolerance);
        }
    }
}
