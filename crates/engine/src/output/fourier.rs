//! Fourier: P(y_o = 1|s,r) = σ(F_o·(V·h + b)), F fixed: sines and cosines of the object's number (Grivas
//! et al. 2023, "Taming the Sigmoid Bottleneck: Provably Argmaxable Sparse Multi-Label Classification").
//!
//! Row o of F is 1, cos(2π·f·o/E), sin(2π·f·o/E) for f = 1 … frequencies. A trigonometric polynomial of
//! degree f can be positive at any f of E points and negative at all others, so every set of up to
//! `frequencies` answers can be told from all other objects, if V·h + b can be anything. Not divided by
//! √E as in the paper, so that logits are of order one at the start.

use std::f64::consts::TAU;
use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::{Tensor, TensorData};
use toml::Value;

use super::sparse::SparseConfig;
use super::{Components, LossTerms, MadeOf, OutputFacts, OutputLayer};
use crate::part::{Build, Formula, Limit};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Weights};
use crate::settings::{Range, Refusal, With, settings};

settings! {
    /// Settings of the Fourier layer.
    pub(crate) struct FourierConfig {
        /// Frequencies of sines and cosines, which is also how many answers of a query can be told from
        /// all other objects; at most half of the entities, and half of `dim` if not given.
        frequencies: Option<usize> = None, Range::Between(1, 100_000);
        + sparse: SparseConfig;
    }
}

impl FourierConfig {
    fn frequencies(&self, with: &With) -> usize {
        self.frequencies.unwrap_or((with.model.dim / 2).max(1))
    }

    /// Columns of F.
    fn width(&self, with: &With) -> usize {
        2 * self.frequencies(with) + 1
    }
}

/// V and b are learned, F is not.
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

impl OutputLayer for Fourier {
    type Settings = FourierConfig;
    const FACTS: OutputFacts = OutputFacts {
        made_of: MadeOf::Dot,
        ..OutputFacts::new(
            Formula::new(
                "σ(F_o·(V·h + b)), F sines and cosines",
                "(2f + 1)·(d + 1)",
                Limit::DimPlusOne,
            ),
            ProbabilityKind::Bernoulli,
        )
    };
    const MAKES_OBJECTS: bool = true;

    fn called(_: &FourierConfig) -> String {
        "a Fourier layer".into()
    }

    fn misfit(own: &FourierConfig, with: &With, entities: usize) -> Option<Refusal> {
        let (found, most) = (own.frequencies(with), max_frequencies(entities));
        let given = if own.frequencies.is_none() { ", which is half of `dim`" } else { "" };
        let what = || {
            format!(
                "above half of the objects, waves look like slower ones; expected at most {most} for \
                 {entities} entities, found {found}{given}"
            )
        };
        (found > most).then(|| Refusal::new("frequencies", what()))
    }

    fn advice(own: &FourierConfig, with: &With, entities: usize) -> Option<(&'static str, Value)> {
        let most = max_frequencies(entities);
        (own.frequencies(with) > most).then_some(("frequencies", Value::Integer(most as i64)))
    }

    fn limit(own: &FourierConfig, with: &With) -> Limit {
        Limit::Width(own.width(with))
    }

    fn widths(own: &FourierConfig, with: &With, _: usize) -> [usize; 2] {
        [own.width(with); 2]
    }

    fn loss_terms(own: &FourierConfig) -> LossTerms {
        LossTerms { sparse_below: Some(own.sparse.sparse_below), ..LossTerms::default() }
    }

    fn n_parameters(build: &Build<FourierConfig>) -> usize {
        build.own.width(&build.with) * (build.dim() + 1)
    }

    fn new(build: &Build<FourierConfig>, weights: &mut Weights) -> Self {
        let width = build.own.width(&build.with);
        let weight = Param::from_tensor(weights.xavier(build.dim(), width));
        // The first column of F is one: that of b is what an offset is to other sigmoids.
        let mut bias = vec![0.0; width];
        bias[0] = build.domain.log_odds() as f32;
        let bias = Tensor::from_data(TensorData::new(bias, [width]), &weights.device);
        let bias = Param::from_tensor(bias);
        let table = table(build.entities(), build.own.frequencies(&build.with));
        Self { weight, bias, table }
    }

    fn forward(&self, query: Tensor<2>, _: Option<&Noise>) -> Components {
        Components::single(query.matmul(self.weight.val()) + self.bias.val().unsqueeze())
    }

    fn objects(&self, _: Tensor<2>) -> Tensor<2> {
        let width = self.bias.dims()[0];
        let data = TensorData::new(self.table.to_vec(), [self.table.len() / width, width]);
        Tensor::from_data(data, &self.bias.device())
    }
}

/// Above half of the objects, waves look like slower ones.
fn max_frequencies(entities: usize) -> usize {
    (entities / 2).max(1)
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
