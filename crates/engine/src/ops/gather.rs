//! Gather: how are rows of a table read so that their gradient does not cost a pass over the table?
//!
//! burn's `select` makes a table of zeros for every gather and adds it to the gradient that is
//! there. The entity table of a linear model already has a dense gradient when its gathers are
//! differentiated, for the loss comes first in the backward pass: rows are added to that in place.

use std::sync::Arc;

use burn::backend::flex::FlexTensor;
use burn::tensor::{Int, Tensor, TensorData};
use fullrank_kernels::gather;

use super::adaptor::{self, InputGrads, Inputs, Operation, flex_tensor};

/// Rows `ids` of a table, `[R, D]` → `[B, D]`.
pub(crate) fn gather_rows(table: Tensor<2>, ids: Arc<[u32]>) -> Tensor<2> {
    if !adaptor::is_supported(&table) {
        return reference(table, &ids);
    }
    adaptor::apply(GatherRows { ids }, [table.into()])
}

pub(super) fn reference(table: Tensor<2>, ids: &[u32]) -> Tensor<2> {
    let ids: Vec<i64> = ids.iter().map(|id| i64::from(*id)).collect();
    let n = ids.len();
    let device = table.device();
    table.select(0, Tensor::<1, Int>::from_data(TensorData::new(ids, [n]), &device))
}

#[derive(Debug, Clone)]
struct GatherRows {
    ids: Arc<[u32]>,
}

impl Operation<1> for GatherRows {
    type Saved = ();
    const ADDS_TO: Option<usize> = Some(0);

    fn forward(&self, inputs: &Inputs<1>) -> (FlexTensor, ()) {
        let [_, dim] = inputs.dims(0);
        let rows = gather::rows(&inputs.values(0), dim, &self.ids);
        (flex_tensor(rows, [self.ids.len(), dim]), ())
    }

    fn backward(self, inputs: &Inputs<1>, (): (), grad: &[f32], grads: &mut InputGrads<1>) {
        let [_, dim] = inputs.dims(0);
        grads.add_to(0, |sums| gather::add_rows(sums, dim, &self.ids, grad));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution};

    #[test]
    fn repeated_rows_and_a_gradient_that_is_there_add_up() {
        let device = Device::flex().autodiff();
        let table = Tensor::<2>::random([7, 5], Distribution::Default, &device).require_grad();
        let other = Tensor::<2>::random([4, 5], Distribution::Default, &device);
        let ids: Arc<[u32]> = [6, 0, 6, 3].into();
        // The rows are learned themselves, or made of what is.
        for make in [|learned: Tensor<2>| learned, |learned: Tensor<2>| learned.tanh()] {
            let grad = |gather: &dyn Fn(Tensor<2>) -> Tensor<2>| {
                let made = make(table.clone());
                let rows = gather(made.clone());
                // The second use of the table gives it a dense gradient, as a loss does.
                let loss = (rows * other.clone()).matmul(made.transpose()).sum();
                table.grad(&loss.backward()).unwrap().into_data()
            };
            let fused = grad(&|table| gather_rows(table, Arc::clone(&ids)));
            let plain = grad(&|table| reference(table, &ids));
            fused.assert_approx_eq::<f32>(&plain, burn::tensor::Tolerance::relative(1e-6));
        }
    }
}
