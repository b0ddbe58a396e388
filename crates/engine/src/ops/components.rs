//! How is every component's vector multiplied by a matrix of its own?
//!
//! The vectors of a query's components lie side by side, and stay there: products read and write
//! them in place, where tensor operations would swap axes and copy before and after each.

use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::CheckpointStrategy};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, Dispatch, DispatchDevice, Flex, TensorMetadata, backend_extension,
};
use burn::tensor::{DType, Tensor};
use rayon::prelude::*;

use super::bf16::{self, Left, Right};
use super::loss::Products;
use super::product::{Matrix, Onto, Operand, multiply_into};
use super::{flex_tensor, values};

/// Queries per task.
const ROWS: usize = 128;
/// Rows of a matrix's gradient per task.
const MATRIX_ROWS: usize = 64;

/// out_k = values_k · matrices_k: `[B, K·D]` and `[K, D, F]` → `[B, K·F]`; `[B, D]` is the same
/// vector for all components.
pub(crate) fn component_products(
    values: Tensor<2>,
    matrices: Tensor<3>,
    products: Products,
) -> Tensor<2> {
    match values.device().without_autodiff().as_dispatch() {
        DispatchDevice::Flex(_) if values.dtype() == DType::F32 => {
            Tensor::from_dispatch(Dispatch::component_products(
                values.into_dispatch(),
                matrices.into_dispatch(),
                products,
            ))
        }
        _ => reference(values, matrices),
    }
}

fn reference(values: Tensor<2>, matrices: Tensor<3>) -> Tensor<2> {
    let [components, dim, out_dim] = matrices.dims();
    let [queries, width] = values.dims();
    let values = values.reshape([queries, width / dim, dim]).swap_dims(0, 1);
    let values = values.repeat_dim(0, components * dim / width);
    values.matmul(matrices).swap_dims(0, 1).reshape([queries, components * out_dim])
}

/// The operation as burn's backends know it.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait ComponentsBackend: Backend {
    /// See [`component_products`].
    fn component_products(
        values: FloatTensor<Self>,
        matrices: FloatTensor<Self>,
        products: Products,
    ) -> FloatTensor<Self>;
}

/// The right factors of all components, as products are made.
enum Factors<'a> {
    Whole(Vec<Operand<'a>>),
    Halves(Vec<Right>),
}

impl<'a> Factors<'a> {
    fn of(products: Products, factors: impl Iterator<Item = Operand<'a>>) -> Self {
        let factors: Vec<Operand> = factors.collect();
        match products {
            Products::Whole => Self::Whole(factors),
            Products::Halves => Self::Halves(factors.into_par_iter().map(Right::of).collect()),
        }
    }

    /// left · factor of a component, written to the start of `out`, rows `stride` apart.
    fn multiply(
        &self,
        component: usize,
        (out, stride): (&mut [f32], usize),
        onto: Onto,
        left: Operand,
    ) {
        match self {
            Self::Whole(factors) => multiply_into(out, stride, onto, left, factors[component]),
            Self::Halves(factors) => {
                bf16::multiply(out, stride, onto, &Left::of(left), &factors[component]);
            }
        }
    }
}

/// Sizes of one call.
#[derive(Clone, Copy)]
struct Sizes {
    components: usize,
    dim: usize,
    out_dim: usize,
    /// Of the values of a query: `dim` if all components share them.
    width: usize,
}

impl Sizes {
    fn of(values: &FlexTensor, matrices: &FlexTensor) -> Self {
        let [components, dim, out_dim] = matrices.shape().dims();
        let width = values.shape()[1];
        assert!(
            width == dim || width == components * dim,
            "{components} components of {dim} in rows of {width}"
        );
        Self { components, dim, out_dim, width }
    }

    /// Where a component's values start in a row.
    fn start(&self, component: usize) -> usize {
        if self.width == self.dim { 0 } else { component * self.dim }
    }

    /// One component's values, for a number of queries.
    fn values<'a>(&self, rows: &'a [f32], component: usize) -> Matrix<'a> {
        columns_of(rows, self.width, self.start(component), self.dim)
    }

    /// What is made of these.
    fn made<'a>(&self, rows: &'a [f32], component: usize) -> Matrix<'a> {
        let Self { components, out_dim, .. } = *self;
        columns_of(rows, components * out_dim, component * out_dim, out_dim)
    }

    fn matrix<'a>(&self, matrices: &'a [f32], component: usize) -> Matrix<'a> {
        let len = self.dim * self.out_dim;
        Matrix::rows_of(&matrices[component * len..][..len], self.out_dim)
    }
}

/// Some neighbouring columns of rows that are `stride` wide.
fn columns_of(rows: &[f32], stride: usize, start: usize, columns: usize) -> Matrix<'_> {
    Matrix { values: &rows[start..], rows: rows.len() / stride, columns, stride }
}

impl ComponentsBackend for Flex {
    fn component_products(
        tensor: FlexTensor,
        matrices: FlexTensor,
        products: Products,
    ) -> FlexTensor {
        let sizes = Sizes::of(&tensor, &matrices);
        let Sizes { components, out_dim, width, .. } = sizes;
        let (source, matrices) = (values(&tensor), values(&matrices));
        let queries = tensor.shape()[0];
        let stride = components * out_dim;
        let matrices = (0..components).map(|k| sizes.matrix(&matrices, k).into());
        let factors = Factors::of(products, matrices);
        let mut out = vec![0.0; queries * stride];
        out.par_chunks_mut(ROWS * stride).zip(source.par_chunks(ROWS * width)).for_each(
            |(out, source)| {
                for k in 0..components {
                    let values = sizes.values(source, k).into();
                    factors.multiply(k, (&mut out[k * out_dim..], stride), Onto::Replace, values);
                }
            },
        );
        flex_tensor(out, [queries, stride])
    }
}

#[derive(Debug)]
struct ComponentsBackward;

#[derive(Debug, Clone)]
struct State {
    values: FlexTensor,
    matrices: FlexTensor,
    products: Products,
}

impl Backward<Flex, 2> for ComponentsBackward {
    type State = State;

    fn backward(self, ops: Ops<State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let grad = grads.consume::<Flex>(&ops.node);
        let State { values: tensor, matrices, products } = ops.state;
        let sizes = Sizes::of(&tensor, &matrices);
        let Sizes { components, dim, out_dim, width } = sizes;
        let (source, matrices, grad) = (values(&tensor), values(&matrices), values(&grad));
        let [values_node, matrices_node] = ops.parents;
        if let Some(node) = values_node {
            let transposed = (0..components).map(|k| sizes.matrix(&matrices, k).transposed());
            let factors = Factors::of(products, transposed);
            let mut out = vec![0.0; source.len()];
            let grads_of = grad.par_chunks(ROWS * components * out_dim);
            out.par_chunks_mut(ROWS * width).zip(grads_of).for_each(|(out, grad)| {
                for k in 0..components {
                    let start = sizes.start(k);
                    let onto = if start == 0 && k > 0 { Onto::Add } else { Onto::Replace };
                    let out = (&mut out[start..], width);
                    factors.multiply(k, out, onto, sizes.made(grad, k).into());
                }
            });
            grads.register::<Flex>(node.id, flex_tensor(out, [tensor.shape()[0], width]));
        }
        if let Some(node) = matrices_node {
            let made = (0..components).map(|k| sizes.made(&grad, k).into());
            let factors = Factors::of(products, made);
            let mut out = vec![0.0; components * dim * out_dim];
            out.par_chunks_exact_mut(dim * out_dim).enumerate().for_each(|(k, out)| {
                let tasks = out.par_chunks_mut(MATRIX_ROWS * out_dim).enumerate();
                tasks.for_each(|(task, out)| {
                    let start = sizes.start(k) + task * MATRIX_ROWS;
                    let values = columns_of(&source, width, start, out.len() / out_dim);
                    factors.multiply(k, (out, out_dim), Onto::Replace, values.transposed());
                });
            });
            grads.register::<Flex>(node.id, flex_tensor(out, [components, dim, out_dim]));
        }
    }
}

impl<C: CheckpointStrategy> ComponentsBackend for Autodiff<Flex, C> {
    fn component_products(
        values: FloatTensor<Self>,
        matrices: FloatTensor<Self>,
        products: Products,
    ) -> FloatTensor<Self> {
        let ((values, a), (matrices, b)) = (values.into_parts(), matrices.into_parts());
        let out = Flex::component_products(values.clone(), matrices.clone(), products);
        match ComponentsBackward.prepare::<C>([a, b]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(State { values, matrices, products }, out),
            OpsKind::UnTracked(prep) => prep.finish(out),
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
                |products| run(&|values, matrices| component_products(values, matrices, products));
            let plain = run(&reference);
            for (fused, plain) in fused(Products::Whole).iter().zip(&plain) {
                // Sums of a few hundred f32, which may cancel.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 2e-3));
            }
            if bf16::tests::is_there() {
                for (fused, plain) in fused(Products::Halves).iter().zip(&plain) {
                    // Sums of sums, up to 200 of 70 terms of about one: each off by 2⁻¹⁶ of itself.
                    fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-3, 3e-2));
                }
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
                component_products(values, matrices, Products::Whole).square().sum()
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
