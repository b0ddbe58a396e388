//! An output layer on its own: which distributions can it give, over a handful of objects?
//!
//! A model without an encoder: query vectors are chosen by the caller, and go through the same
//! output layer and the same kernel as those of a trained model. For pictures and examples.

use burn::tensor::{Tensor, TensorData};

use crate::config::Config;
use crate::device::Device;
use crate::ops::{Logits, PairScore, Precision, map_log_probs};
use crate::output::Output;
use crate::part::Domain;
use crate::probability::ProbabilityKind;
use crate::random::Weights;

/// An output layer with weights drawn from a seed, over objects placed by hand.
#[derive(Debug)]
pub struct OutputDemo {
    output: Output,
    probability: ProbabilityKind,
    score: PairScore,
    objects: Tensor<2>,
}

impl OutputDemo {
    /// The output layer of a config, fresh from its `seed`, over these object vectors.
    ///
    /// # Panics
    /// If the vectors are not `dim` wide.
    pub fn new(config: &Config, objects: &[Vec<f32>]) -> Self {
        let mut weights = Weights::new(config.training.seed, Device::default().burn());
        let domain = Domain::without_edges(objects.len(), 0);
        Self {
            output: config.output.build(config.with(), &domain, &mut weights),
            probability: config.probability(),
            score: config.pair_score(),
            objects: table(objects, config.model.dim),
        }
    }

    /// Log-probabilities of all objects, a row for each query vector.
    ///
    /// # Panics
    /// If the vectors are not as wide as those of the objects.
    pub fn log_probs(&self, queries: &[Vec<f32>]) -> Vec<Vec<f32>> {
        let dim = self.objects.dims()[1];
        let components = self.output.forward(table(queries, dim), None);
        let input = Logits {
            context: components.context,
            log_prior: components.log_prior,
            objects: self.output.objects(self.objects.clone()),
            bias: None,
            score: self.score,
            weights: self.output.weights(),
        };
        map_log_probs(input, self.probability, Precision::F32, |_, row| row.to_vec())
    }
}

fn table(rows: &[Vec<f32>], dim: usize) -> Tensor<2> {
    for row in rows {
        assert_eq!(row.len(), dim, "a vector of another width");
    }
    Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), dim]), &Device::default().burn())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_softmax_over_given_vectors_is_the_formula() {
        let config = Config::parse("dim = 2").unwrap();
        let objects = [vec![1.0, 0.0], vec![0.0, 2.0], vec![-1.0, 1.0]];
        let found = OutputDemo::new(&config, &objects).log_probs(&[vec![0.5, -1.0]]).remove(0);
        let scores = [0.5_f64, -2.0, -1.5];
        let total = scores.iter().map(|score| score.exp()).sum::<f64>().ln();
        for (found, score) in found.iter().zip(scores) {
            assert!((f64::from(*found) - (score - total)).abs() < 1e-6, "{found}");
        }
    }

    #[test]
    fn a_softmax_is_a_line_of_log_ratios_and_a_mixture_is_not() {
        // One dimension and three objects: log-ratios to the last are a point in the plane.
        let objects = [vec![1.0], vec![0.5], vec![-0.8]];
        let cross = |output: &str, seed: u64| {
            let text = format!("dim = 1\noutput = \"{output}\"\nseed = {seed}");
            let config = Config::parse(&text).unwrap();
            let queries = [vec![-2.0], vec![0.5], vec![3.0]];
            let rows = OutputDemo::new(&config, &objects).log_probs(&queries);
            let ratios = rows.iter().map(|row| [row[0] - row[2], row[1] - row[2]]);
            let [a, b, c]: [[f32; 2]; 3] = ratios.collect::<Vec<_>>().try_into().unwrap();
            // Zero if the three lie on a line.
            (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
        };
        assert!(cross("softmax", 0).abs() < 1e-5);
        let leaves_the_line = |seed| cross("mixture", seed).abs() > 1e-3;
        assert!((0..8).any(leaves_the_line));
    }
}
