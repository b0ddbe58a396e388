//! Batched matmul: how is every component's vector multiplied by a matrix of its own?

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use fullrank_kernels::batched_matmul::BatchedMatmul;
use fullrank_kernels::product::Precision;

use super::adaptor::{self, InputGrads, Inputs, Operation, flex_tensor};

/// out_k = vectors_k · matrices_k: `[B, K·D]` and `[K, D, F]` → `[B, K·F]`; `[B, D]` is the same
/// vector for all components. Other devices than the CPU take no notice of `precision`.
pub(crate) fn batched_matmul(
    vectors: Tensor<2>,
    matrices: Tensor<3>,
    precision: Precision,
) -> Tensor<2> {
    if !adaptor::is_supported(&vectors) {
        return reference(vectors, matrices);
    }
    let sizes = BatchedMatmul::new(matrices.dims(), vectors.dims()[1], precision);
    adaptor::apply(sizes, [vectors.into(), matrices.into()])
}

fn reference(vectors: Tensor<2>, matrices: Tensor<3>) -> Tensor<2> {
    let [components, dim, out_dim] = matrices.dims();
    let [queries, width] = vectors.dims();
    let vectors = vectors.reshape([queries, width / dim, dim]).swap_dims(0, 1);
    let vectors = vectors.repeat_dim(0, components * dim / width);
    vectors.matmul(matrices).swap_dims(0, 1).reshape([queries, components * out_dim])
}

/// Of vectors and matrices.
impl Operation<2> for BatchedMatmul {
    type Saved = ();

    fn forward(&self, inputs: &Inputs<2>) -> (FlexTensor, ()) {
        let ([queries, _], [components, _, out_dim]) = (inputs.dims(0), inputs.dims(1));
        let products = self.multiply(&inputs.values(0), &inputs.values(1));
        (flex_tensor(products, [queries, components * out_dim]), ())
    }

    fn backward(self, inputs: &Inputs<2>, (): (), grad: &[f32], grads: &mut InputGrads<2>) {
        if grads.wants(0) {
            grads.set(0, self.grad_vectors(grad, &inputs.values(1)));
        }
        if grads.wants(1) {
            grads.set(1, self.grad_matrices(grad, &inputs.values(0)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, Tolerance};

    #[test]
    fn products_in_place_equal_those_of_copies() {
        let device = Device::flex().autodiff();
        let random = |shape: [usize; 2]| {
            Tensor::<2>::random(shape, Distribution::Normal(0.0, 1.0), &device).require_grad()
        };
        // Shared or each its own; more queries and rows of a matrix than a task.
        for (queries, components, dim, out_dim, width) in
            [(200, 3, 70, 5, 70), (130, 4, 70, 9, 280), (7, 1, 6, 6, 6)]
        {
            let values = random([queries, width]);
            let matrices = random([components * dim, out_dim]);
            let run = |product: &dyn Fn(Tensor<2>, Tensor<3>) -> Tensor<2>| {
                let by_component = matrices.clone().reshape([components, dim, out_dim]);
                let out = product(values.clone(), by_component);
                let grads = out.clone().square().sum().backward();
                [out, values.grad(&grads).unwrap(), matrices.grad(&grads).unwrap()]
                    .map(|tensor| tensor.into_data())
            };
            let fused =
                |precision| run(&|values, matrices| batched_matmul(values, matrices, precision));
            let plain = run(&reference);
            for (fused, plain) in fused(Precision::F32).iter().zip(&plain) {
                // Sums of a few hundred f32, which may cancel.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 2e-3));
            }
            for (fused, plain) in fused(Precision::SplitBf16).iter().zip(&plain) {
                // Sums of sums, up to 200 of 70 terms of about one: each off by 2⁻¹⁶ of itself.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-3, 3e-2));
            }
        }
    }

    #[test]
    fn gradients_are_the_slopes_of_finite_differences() {
        let device = Device::flex().autodiff();
        // As one list: values, then two matrices of 2 × 3.
        let start: Vec<f32> = (0..20).map(|i| (i as f32 * 0.7).sin()).collect();
        // Vectors that both components share, and of their own.
        for (queries, width) in [(4, 2), (2, 4)] {
            let loss = |all: Tensor<1>| {
                let values = all.clone().narrow(0, 0, 8).reshape([queries, width]);
                let matrices = all.narrow(0, 8, 12).reshape([2, 2, 3]);
                batched_matmul(values, matrices, Precision::F32).square().sum()
            };
            let at = |all: &[f32]| Tensor::<1>::from_floats(all, &device).require_grad();
            let all = at(&start);
            let grad = all.grad(&loss(all.clone()).backward()).unwrap();
            let grad = grad.into_data().try_into_vec::<f32>().unwrap();
            for i in 0..start.len() {
                let moved = |by: f32| {
                    let mut all = start.clone();
                    all[i] += by;
                    loss(at(&all)).into_scalar::<f32>()
                };
                let slope = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                // A square has no third derivative: rounding divided by the step.
                assert!((slope - grad[i]).abs() < 1e-2, "{i}: {slope}, {}", grad[i]);
            }
        }
    }
}
