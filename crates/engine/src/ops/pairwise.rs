//! Pairwise scores: how are all queries of a batch scored against the same few objects?
//!
//! For drawn negatives: their scores are few enough to be in memory all at once, and what is made
//! of them is left to plain tensor operations.

use burn::backend::flex::FlexTensor;
use burn::tensor::Tensor;
use fullrank_kernels::pair_score::PairScore;
use fullrank_kernels::pairwise;
pub(crate) use fullrank_kernels::pairwise::pairwise_bytes;
use fullrank_kernels::product::Matrix;

use super::adaptor::{self, InputGrads, Inputs, Operation, flex_tensor};
use super::pair_score::pair_scores;

/// Scores of all pairs, `[B, C]` and `[N, D]` → `[B, N]`; `weights` are what the score has learned.
pub(crate) fn pairwise_scores(
    score: PairScore,
    weights: Option<Tensor<1>>,
    context: Tensor<2>,
    objects: Tensor<2>,
) -> Tensor<2> {
    if !adaptor::is_supported(&context) {
        return pair_scores(score, weights, context, objects);
    }
    adaptor::apply(PairwiseScores { score }, [context.into(), objects.into(), weights.into()])
}

/// Of contexts, objects and weights, which may be absent.
#[derive(Debug, Clone)]
struct PairwiseScores {
    score: PairScore,
}

impl Operation<3> for PairwiseScores {
    type Saved = ();

    fn forward(&self, inputs: &Inputs<3>) -> (FlexTensor, ()) {
        let ([rows, context_dim], [width, object_dim]) = (inputs.dims(0), inputs.dims(1));
        let (context, objects) = (inputs.values(0), inputs.values(1));
        let scores = pairwise::scores(
            self.score,
            &inputs.optional(2).unwrap_or_default(),
            Matrix::rows_of(&context, context_dim),
            Matrix::rows_of(&objects, object_dim),
        );
        (flex_tensor(scores, [rows, width]), ())
    }

    fn backward(self, inputs: &Inputs<3>, (): (), grad: &[f32], grads: &mut InputGrads<3>) {
        let ([_, context_dim], [_, object_dim]) = (inputs.dims(0), inputs.dims(1));
        let (context, objects) = (inputs.values(0), inputs.values(1));
        let made = pairwise::pull_back(
            self.score,
            &inputs.optional(2).unwrap_or_default(),
            Matrix::rows_of(&context, context_dim),
            Matrix::rows_of(&objects, object_dim),
            grad,
        );
        grads.set(0, made.context);
        grads.set(1, made.objects);
        grads.set(2, made.weights);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution, Tolerance};
    use fullrank_kernels::pair_score::samples::ALL;

    #[test]
    fn fused_equals_plain_tensor_operations_at_any_number_of_threads() {
        let device = Device::flex().autodiff();
        let random = |shape| {
            Tensor::<2>::random(shape, Distribution::Uniform(-1.0, 1.0), &device).require_grad()
        };
        for score in ALL {
            let (context_dim, object_dim) = score.widths(6);
            let (context, objects) = (random([37, context_dim]), random([21, object_dim]));
            let weights = score.some_weights();
            let weights = (!weights.is_empty())
                .then(|| Tensor::<1>::from_floats(weights.as_slice(), &device).require_grad());
            let run = |scores: &dyn Fn() -> Tensor<2>| {
                let scores = scores();
                let grads = scores.clone().square().sum().backward();
                let of_weights = weights.as_ref().map(|weights| weights.grad(&grads).unwrap());
                [Some(scores), context.grad(&grads), objects.grad(&grads)]
                    .into_iter()
                    .flatten()
                    .map(|tensor| tensor.into_data())
                    .chain(of_weights.map(|tensor| tensor.into_data()))
                    .collect::<Vec<_>>()
            };
            let on = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let scores =
                    || pairwise_scores(score, weights.clone(), context.clone(), objects.clone());
                pool.install(|| run(&scores))
            };
            let fused = on(1);
            assert!(on(2) == fused, "{score:?}");
            let plain =
                run(&|| pair_scores(score, weights.clone(), context.clone(), objects.clone()));
            assert_eq!(fused.len(), plain.len());
            for (fused, plain) in fused.iter().zip(&plain) {
                // Gradients are sums of some thirty terms of about one, which may cancel.
                fused.assert_approx_eq::<f32>(plain, Tolerance::rel_abs(1e-4, 1e-5));
            }
        }
    }
}
