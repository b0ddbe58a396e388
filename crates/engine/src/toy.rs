//! Which distributions can an output layer give, over a handful of objects?
//!
//! A model without an encoder: query vectors are chosen by the caller, and go through the same
//! output layer and the same kernel as those of a trained model. For pictures and examples.

use burn::tensor::{Tensor, TensorData};

use crate::config::Config;
use crate::ops::{Logits, PairScore, Products, map_log_probs};
use crate::output::{Meaning, Output};
use crate::random::Weights;
use crate::train::device;

/// An output layer with weights drawn from a seed, over objects placed by hand.
#[derive(Debug)]
pub struct Toy {
    output: Output,
    meaning: Meaning,
    score: PairScore,
    objects: Tensor<2>,
}

impl Toy {
    /// The output layer of a config, fresh from its `seed`, over these object vectors.
    ///
    /// # Panics
    /// If the vectors are not `dim` wide.
    pub fn new(config: &Config, objects: &[Vec<f32>]) -> Self {
        let output = Output::new(config, objects.len(), &mut Weights::new(config.seed, device()));
        let meaning = config.output.meaning();
        let score = config.pair_score();
        let objects = table(objects, config.dim);
        Self { output, meaning, score, objects }
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
        map_log_probs(input, self.meaning, Products::Whole, |_, row| row.to_vec())
    }
}

fn table(rows: &[Vec<f32>], dim: usize) -> Tensor<2> {
    for row in rows {
        assert_eq!(row.len(), dim, "a vector of another width");
    }
    Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), dim]), &device())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::OutputKind;

    #[test]
    fn a_softmax_over_given_vectors_is_the_formula() {
        let config = Config { dim: 2, ..Config::default() };
        let objects = [vec![1.0, 0.0], vec![0.0, 2.0], vec![-1.0, 1.0]];
        let found = Toy::new(&config, &objects).log_probs(&[vec![0.5, -1.0]]).remove(0);
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
        let cross = |output, seed| {
            let config = Config { dim: 1, output, seed, ..Config::default() };
            let queries = [vec![-2.0], vec![0.5], vec![3.0]];
            let rows = Toy::new(&config, &objects).log_probs(&queries);
            let ratios = rows.iter().map(|row| [row[0] - row[2], row[1] - row[2]]);
            let [a, b, c]: [[f32; 2]; 3] = ratios.collect::<Vec<_>>().try_into().unwrap();
            // Zero if the three lie on a line.
            (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
        };
        assert!(cross(OutputKind::Softmax, 0).abs() < 1e-5);
        let leaves_the_line = |seed| cross(OutputKind::Mixture, seed).abs() > 1e-3;
        assert!((0..8).any(leaves_the_line));
    }
}
