//! The cosine: a · h·e / (‖h‖ ‖e‖), with a learned scale a.

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use super::{NoScoreSettings, Score};
use crate::ops::PairScore;
use crate::part::{Build, Formula};
use crate::random::Weights;

/// a · h·e / (‖h‖ ‖e‖).
#[derive(Module, Debug)]
pub(crate) struct Cosine {
    /// log a, `[1]`: a is positive whatever is learned.
    log_scale: Param<Tensor<1>>,
}

/// a at the start. Cosines of unrelated vectors are about 0 and those of a perfect answer 1;
/// with e^10 the answer is as likely as 22,000 others together.
const SCALE: f64 = 10.0;

impl Score for Cosine {
    type Settings = NoScoreSettings;
    const FORMULA: Formula = Formula::linear("a·h·e_o / (‖h‖ ‖e_o‖)", "1");
    const IS_LINEAR: bool = true;

    fn pair_score(_: &Self::Settings) -> PairScore {
        PairScore::Dot
    }

    fn n_parameters(_: &Build<Self::Settings>) -> usize {
        1
    }

    fn new(_: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        Self { log_scale: Param::from_tensor(Tensor::full([1], SCALE.ln(), &weights.device)) }
    }

    fn queries(&self, vectors: Tensor<2>) -> Tensor<2> {
        of_length_one(vectors) * self.log_scale.val().exp().unsqueeze()
    }

    fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        of_length_one(vectors)
    }
}

/// Rows divided by their lengths; rows of zeros stay.
fn of_length_one(rows: Tensor<2>) -> Tensor<2> {
    /// Under the root, whose slope at zero is infinite.
    const FLOOR: f64 = 1e-20;
    let lengths = rows.clone().square().sum_dim(1).add_scalar(FLOOR).sqrt();
    rows / lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::ops::pairwise_scores;
    use crate::part::Domain;
    use burn::tensor::Device;

    #[test]
    fn a_cosine_is_that_of_the_angle_whatever_the_lengths() {
        let config = Config::parse("score = \"cosine\"").unwrap();
        let device = Device::flex();
        let domain = Domain::without_edges(3, 2);
        let mut weights = Weights::zeros(device.clone());
        let score = config.score.build(config.with(), &domain, &mut weights);
        let rows = |values: [[f32; 2]; 3]| Tensor::<2>::from_floats(values, &device);
        let queries = score.queries(rows([[3.0, 0.0], [1e-4, 1e-4], [0.0, 0.0]]));
        let objects = score.objects(rows([[0.5, 0.0], [0.0, 7.0], [-2.0, -2.0]]));
        let found = pairwise_scores(config.pair_score(), None, queries, objects);
        let diagonal = 0.5_f32.sqrt();
        let expected = [1.0, 0.0, -diagonal, diagonal, diagonal, -1.0, 0.0, 0.0, 0.0];
        for (found, cosine) in found.into_data().iter::<f32>().zip(expected) {
            assert!((found - 10.0 * cosine).abs() < 1e-5, "{found} {cosine}");
        }
    }
}
