//! Sampled losses: what does a batch lose against a few negative samples?
//!
//! For a query with answers a of weight y_a, their scores s_a, and the scores s_j of drawn objects
//! j that are no known answers of it. E entities, of which K are known answers; n drawn ones are
//! none.
//!
//! - Sampled softmax: Σ_a y_a (log Z − s_a), Z = Σ_a exp s_a + (E − K)/n · Σ_j exp s_j. Each drawn
//!   object stands for as many as were not drawn (its sampling probability is n/(E − K)), so that Z
//!   is right on average and the loss in the limit of many; with all entities drawn it is that of
//!   the full softmax. (Importance sampling, as in Jean et al. 2015.)
//! - Margin: Σ_a y_a Σ_j w_j max(0, γ − s_a + s_j) (Bordes et al. 2013, eq. 1).
//! - Logistic: −Σ_a y_a (log σ(s_a) + Σ_j w_j log σ(−s_j)) (Sun et al. 2019, eq. 5; the margin is in
//!   the scores).
//!
//! The weights w are 1/n, or with a temperature α above zero softmax_j(α s_j), which is not
//! differentiated (self-adversarial, Sun et al. 2019): a wrong object counts the more the
//! better it scores.

use burn::tensor::{IndexingUpdateOp, Int, Tensor, TensorData, activation};

use super::negatives::{Negatives, constant};
use crate::ops::{BatchAnswers, gather_rows};

/// Scores that a loss is made of.
#[derive(Debug, Clone)]
pub(crate) struct Sampled<'a> {
    pub(crate) answers: &'a BatchAnswers,
    /// Of every answer with its query, `[A]`.
    pub(crate) answer_scores: Tensor<1>,
    pub(crate) negatives: &'a Negatives,
    /// Of every query with every drawn object, `[B, N]`.
    pub(crate) negative_scores: Tensor<2>,
}

/// Which loss against negative samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SampledLoss {
    /// Cross-entropy of a softmax over answers and samples.
    Softmax,
    /// A ranking loss with a margin.
    Margin { margin: f64, adversarial: f64 },
    /// The loss of sigmoids.
    Logistic { adversarial: f64 },
}

impl SampledLoss {
    /// The loss of a batch, `[1]`.
    pub(crate) fn of(self, sampled: &Sampled) -> Tensor<1> {
        match self {
            Self::Softmax => sampled_softmax(sampled),
            Self::Margin { margin, adversarial } => margin_loss(sampled, margin, adversarial),
            Self::Logistic { adversarial } => logistic_loss(sampled, adversarial),
        }
    }
}

/// Cross-entropy of a softmax over answers and drawn objects, `[1]`.
fn sampled_softmax(sampled: &Sampled) -> Tensor<1> {
    let device = sampled.negative_scores.device();
    let negatives = sampled.negative_scores.clone()
        + sampled.negatives.log_stands_for(&device)
        + sampled.negatives.penalty(&device);
    let queries = negatives.dims()[0];
    let top = sampled.largest(&negatives);
    let answer_top = sampled.of_queries(&top);
    let ids: Vec<i64> = sampled.answers.queries.iter().map(|query| i64::from(*query)).collect();
    let ids = Tensor::<1, Int>::from_data(TensorData::new(ids, [sampled.answers.len()]), &device);
    let answers = (sampled.answer_scores.clone() - sampled.constant(answer_top)).exp();
    let answers =
        Tensor::zeros([queries], &device).select_assign(0, ids, answers, IndexingUpdateOp::Add);
    let tops = sampled.constant(top);
    let negatives = (negatives - tops.clone().reshape([queries, 1])).exp().sum_dim(1);
    let log_sum = (answers + negatives.reshape([queries])).log() + tops;
    let weights = sampled.constant(sampled.query_weights());
    (log_sum * weights).sum() - (sampled.answer_scores.clone() * sampled.weights()).sum()
}

/// Ranking loss with a margin, `[1]`.
fn margin_loss(sampled: &Sampled, margin: f64, adversarial: f64) -> Tensor<1> {
    let queries = sampled.answers.queries.as_slice();
    let each = gather_rows(sampled.negative_scores.clone(), queries.into());
    let weights = gather_rows(sampled.negative_weights(adversarial), queries.into());
    let answers = sampled.answer_scores.clone().reshape([queries.len(), 1]);
    let short = activation::relu((each - answers).add_scalar(margin));
    let losses = (short * weights).sum_dim(1).reshape([queries.len()]);
    (losses * sampled.weights()).sum()
}

/// Loss of sigmoids, `[1]`.
fn logistic_loss(sampled: &Sampled, adversarial: f64) -> Tensor<1> {
    let queries = sampled.answers.queries.as_slice();
    let right = activation::log_sigmoid(sampled.answer_scores.clone());
    let wrong = activation::log_sigmoid(sampled.negative_scores.clone().neg());
    let wrong = (wrong * sampled.negative_weights(adversarial)).sum_dim(1);
    let wrong = gather_rows(wrong, queries.into()).reshape([queries.len()]);
    ((right + wrong) * sampled.weights()).sum().neg()
}

impl Sampled<'_> {
    fn constant(&self, values: Vec<f32>) -> Tensor<1> {
        let n = values.len();
        constant(TensorData::new(values, [n]), &self.answer_scores.device())
    }

    /// y, `[A]`.
    fn weights(&self) -> Tensor<1> {
        self.constant(self.answers.weights.clone())
    }

    /// Σ_a y_a of each query.
    fn query_weights(&self) -> Vec<f32> {
        let mut sums = vec![0.0; self.negative_scores.dims()[0]];
        for (query, weight) in self.answers.queries.iter().zip(&self.answers.weights) {
            sums[*query as usize] += weight;
        }
        sums
    }

    /// w, `[B, N]`; rows sum to one, or to zero where nothing wrong was drawn.
    fn negative_weights(&self, adversarial: f64) -> Tensor<2> {
        let device = self.negative_scores.device();
        let scores = self.negative_scores.clone().detach().mul_scalar(adversarial);
        let weights = activation::softmax(scores + self.negatives.penalty(&device), 1);
        weights * self.negatives.is_wrong(&device)
    }

    /// The largest of each query's scores.
    fn largest(&self, negatives: &Tensor<2>) -> Vec<f32> {
        let floats = |data: TensorData| data.iter::<f32>().collect::<Vec<f32>>();
        let mut top = floats(negatives.clone().detach().max_dim(1).into_data());
        let answers = floats(self.answer_scores.clone().detach().into_data());
        for (query, score) in self.answers.queries.iter().zip(answers) {
            let top = &mut top[*query as usize];
            *top = top.max(score);
        }
        top
    }

    /// The value of its query for each answer.
    fn of_queries(&self, values: &[f32]) -> Vec<f32> {
        self.answers.queries.iter().map(|query| values[*query as usize]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::negatives::Draw;
    use burn::tensor::Device;

    /// Two queries and five entities, all drawn. The first query has answers 1 (twice as heavy) and
    /// 3, the second has 0; it knows 4 too, which is in another item.
    struct Case {
        answers: BatchAnswers,
        negatives: Negatives,
        scores: [[f32; 5]; 2],
    }

    const KNOWN: [&[u32]; 2] = [&[1, 3], &[0, 4]];

    fn case() -> Case {
        let known = KNOWN.iter().map(|known| known.to_vec());
        Case {
            answers: BatchAnswers {
                queries: vec![0, 0, 1],
                objects: vec![1, 3, 0],
                weights: vec![2.0, 1.0, 1.0],
            },
            negatives: Negatives::draw(5, Draw { entities: 5, seed: 0, update: 0 }, known),
            scores: [[0.3, -1.0, 0.2, 0.9, -0.4], [-0.2, 0.5, 0.1, 2.0, 3.0]],
        }
    }

    impl Case {
        /// A loss and its gradient by all scores, answers' and drawn ones' together.
        fn check(&self, loss: impl Fn(&Sampled) -> Tensor<1>) -> (f32, Vec<f32>) {
            let device = Device::flex().autodiff();
            let scores = Tensor::<2>::from_floats(self.scores, &device).require_grad();
            let pairs = self.answers.queries.iter().zip(&self.answers.objects);
            let at: Vec<i64> = pairs.map(|(q, o)| i64::from(q * 5 + o)).collect();
            let at = Tensor::<1, Int>::from_data(TensorData::new(at, [3]), &device);
            let loss = loss(&Sampled {
                answers: &self.answers,
                answer_scores: scores.clone().reshape([10]).select(0, at),
                negatives: &self.negatives,
                negative_scores: scores.clone(),
            });
            let grads = loss.backward();
            let grad = scores.grad(&grads).unwrap().into_data().iter::<f32>().collect();
            (loss.into_scalar::<f32>(), grad)
        }

        /// Each answer's weight, its score, and the scores of the wrong objects of its query.
        fn by_answer(&self) -> Vec<(f64, f64, Vec<f64>)> {
            let row = |query: usize| self.scores[query].map(f64::from);
            (0..3)
                .map(|i| {
                    let (query, object) =
                        (self.answers.queries[i] as usize, self.answers.objects[i]);
                    let is_wrong = |o: &usize| !KNOWN[query].contains(&(*o as u32));
                    let wrong = (0..5).filter(is_wrong).map(|o| row(query)[o]).collect();
                    (f64::from(self.answers.weights[i]), row(query)[object as usize], wrong)
                })
                .collect()
        }
    }

    fn close(found: f32, expected: f64) {
        assert!((f64::from(found) - expected).abs() < 1e-5, "{found} {expected}");
    }

    #[test]
    fn with_all_entities_drawn_a_sampled_softmax_leaves_out_other_known_answers_alone() {
        let (loss, _) = case().check(sampled_softmax);
        // The first query's answers are all in the batch; of the second, 4 is left out.
        let log_sum = |scores: &[f64]| scores.iter().map(|x| x.exp()).sum::<f64>().ln();
        let first = log_sum(&[0.3, -1.0, 0.2, 0.9, -0.4]);
        let second = log_sum(&[-0.2, 0.5, 0.1, 2.0]);
        close(loss, 2.0 * (first + 1.0) + (first - 0.9) + (second + 0.2));
    }

    #[test]
    fn a_drawn_object_stands_for_those_that_are_not() {
        let mut case = case();
        // Ten entities instead of five, of which 8 are wrong for each query.
        let draw = |update| {
            let known = KNOWN.iter().map(|known| known.to_vec());
            Negatives::draw(2, Draw { entities: 10, seed: 0, update }, known)
        };
        let is_wrong =
            |drawn: &Negatives| KNOWN.concat().iter().all(|o| !drawn.objects.contains(o));
        let drawn = (0..).map(draw).find(is_wrong).unwrap();
        case.negatives = drawn;
        let device = Device::flex();
        let loss = sampled_softmax(&Sampled {
            answers: &case.answers,
            answer_scores: Tensor::from_floats([1.0, 2.0, 3.0], &device),
            negatives: &case.negatives,
            negative_scores: Tensor::from_floats([[0.5, -0.5], [4.0, 100.0]], &device),
        });
        let exp = f64::exp;
        let first = (exp(1.0) + exp(2.0) + 4.0 * (exp(0.5) + exp(-0.5))).ln();
        // 100 is so large that nothing else counts.
        let second = 100.0 + 4.0_f64.ln();
        let expected = 2.0 * (first - 1.0) + (first - 2.0) + (second - 3.0);
        assert!((f64::from(loss.into_scalar::<f32>()) - expected).abs() < 1e-4);
    }

    #[test]
    fn a_margin_loss_is_the_mean_of_what_answers_fall_short_of() {
        let (loss, grad) = case().check(|sampled| margin_loss(sampled, 1.0, 0.0));
        let mut expected = 0.0;
        for (weight, answer, wrong) in case().by_answer() {
            let short = wrong.iter().map(|wrong| (1.0 - answer + wrong).max(0.0));
            expected += weight * short.sum::<f64>() / wrong.len() as f64;
        }
        close(loss, expected);
        // By hand: 1 − 0.9 + 0.3 and 1 − 0.9 + 0.2 are short, 1 − 0.9 − 0.4 is not.
        close(grad[3], -2.0 / 3.0);
        assert_eq!(grad[9], 0.0, "a known answer that was drawn counts as nothing");
    }

    #[test]
    fn adversarial_weights_are_a_softmax_that_is_not_differentiated() {
        let weights = |wrong: &[f64], i: usize| {
            let sum: f64 = wrong.iter().map(|x| (0.5 * x).exp()).sum();
            (0.5 * wrong[i]).exp() / sum
        };
        let (loss, grad) = case().check(|sampled| margin_loss(sampled, 4.0, 0.5));
        let mut expected = 0.0;
        for (weight, answer, wrong) in case().by_answer() {
            let terms = (0..wrong.len()).map(|i| weights(&wrong, i) * (4.0 - answer + wrong[i]));
            expected += weight * terms.sum::<f64>();
        }
        close(loss, expected);
        // Every term is short of its margin, so the gradient by a wrong object is its weight alone.
        close(grad[5 + 2], weights(&[0.5, 0.1, 2.0], 1));
    }

    #[test]
    fn a_logistic_loss_asks_of_answers_that_they_hold_and_of_others_that_they_do_not() {
        let (loss, grad) = case().check(|sampled| logistic_loss(sampled, 0.0));
        let log_sigma = |x: f64| -(-x).exp().ln_1p();
        let mut expected = 0.0;
        for (weight, answer, wrong) in case().by_answer() {
            let others = wrong.iter().map(|x| log_sigma(-x)).sum::<f64>() / wrong.len() as f64;
            expected -= weight * (log_sigma(answer) + others);
        }
        close(loss, expected);
        // By hand: answer 3 of the first query has the slope σ(0.9) − 1.
        close(grad[3], log_sigma(0.9).exp() - 1.0);
        assert_eq!(grad[9], 0.0, "a known answer that was drawn counts as nothing");
    }
}
