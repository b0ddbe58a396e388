//! P(y_o = 1|s,r) = σ(F_o·(V·h + b)), F fixed: sines and cosines of the object's number (Grivas et al.
//! 2023, "Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse Multi-Label Classification").
//!
//! Row o of F is 1, cos(2π·f·o/E), sin(2π·f·o/E) for f = 1 … frequencies. A trigonometric polynomial of
//! degree f can be positive at any f of E points and negative at all others, so every set of up to
//! `frequencies` answers can be told from all other objects, if V·h + b can be anything. Not divided by
//! √E as in the paper, so that logits are of order one at the start.

use std::f64::consts::TAU;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};

use crate::random::Weights;

#[derive(Module, Debug)]
pub(crate) struct Fourier {
    /// V, `[D, 2·frequencies + 1]`.
    weight: Param<Tensor<2>>,
    /// b, `[2·frequencies + 1]`.
    bias: Param<Tensor<1>>,
    /// F, `[E, 2·frequencies + 1]`.
    #[module(skip)]
    table: Arc<[f32]>,
}

impl Fourier {
    pub(crate) fn new(
        (dim, frequencies): (usize, usize),
        entities: usize,
        weights: &mut Weights,
    ) -> Self {
        let width = 2 * frequencies + 1;
        let weight = Param::from_tensor(weights.xavier(dim, width));
        let bias = Param::from_tensor(Tensor::zeros([width], &weights.device));
        Self { weight, bias, table: table(entities, frequencies) }
    }

    pub(crate) fn queries(&self, query: Tensor<2>) -> Tensor<2> {
        query.matmul(self.weight.val()) + self.bias.val().unsqueeze()
    }

    pub(crate) fn objects(&self) -> Tensor<2> {
        let width = self.bias.dims()[0];
        let data = TensorData::new(self.table.to_vec(), [self.table.len() / width, width]);
        Tensor::from_data(data, &self.bias.device())
    }
}

fn table(entities: usize, frequencies: usize) -> Arc<[f32]> {
    let row = |object: usize| {
        let waves = (1..=frequencies).flat_map(move |frequency| {
            // The product is taken around the circle first, so that no angle is large.
            let angle = TAU * (frequency * object % entities) as f64 / entities as f64;
            [angle.cos() as f32, angle.sin() as f32]
        });
        std::iter::once(1.0).chain(waves)
    };
    (0..entities).flat_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_as_many_objects_as_frequencies_can_be_told_from_all_others() {
        let (entities, answers) = (12, [2, 3, 9]);
        let width = 2 * answers.len() + 1;
        let table = table(entities, answers.len());
        // ½ − Π (1 − cos(x − x_a)), times what is needed to be above the nearest other: a product of
        // three shifted cosines is a trigonometric polynomial of degree three.
        let product = |o: usize| -> f64 {
            let factor = |a: &usize| 1.0 - (TAU * (o as f64 - *a as f64) / entities as f64).cos();
            answers.iter().map(factor).product()
        };
        let least = (0..entities).filter(|o| !answers.contains(o)).map(product).fold(9.0, f64::min);
        let wanted: Vec<f64> = (0..entities).map(|o| 0.5 * least - product(o)).collect();
        // Columns are orthogonal: projecting on each gives the coefficients.
        let mut logits = vec![0.0; entities];
        for column in 0..width {
            let at = |o: usize| f64::from(table[o * width + column]);
            let length: f64 = (0..entities).map(|o| at(o) * at(o)).sum();
            let share: f64 = (0..entities).map(|o| at(o) * wanted[o]).sum::<f64>() / length;
            (0..entities).for_each(|o| logits[o] += share * at(o));
        }
        for (o, logit) in logits.iter().enumerate() {
            assert_eq!(*logit > 0.0, answers.contains(&o), "{o}: {logit}");
        }
    }
}
