//! Log-probabilities: how likely is every object, for a block of queries?
//!
//! Nothing is differentiated here: losses are operations of their own.
//! How they are computed is the business of [`fullrank_kernels::log_probs`].

use burn::backend::{DispatchDevice, Flex};
use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{DType, Tensor, TensorData};
use fullrank_kernels::log_probs::{self, Inputs, Probability};
use fullrank_kernels::product::Precision;
use fullrank_kernels::tiles::LogitInputs;
use rayon::prelude::*;

use super::adaptor::values;
use super::loss::{Logits, Shape};
use super::pair_score::pair_scores;
use crate::probability::ProbabilityKind;

/// What `map` makes of each query's place in the batch and its row, the log-probabilities of every
/// object; in the order of the queries.
///
/// Under a softmax, a row's probabilities sum to one for any number of components.
pub(crate) fn map_log_probs<T: Send>(
    input: Logits,
    probability: ProbabilityKind,
    precision: Precision,
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    match input.context.device().as_dispatch() {
        DispatchDevice::Flex(_) if input.context.dtype() == DType::F32 => {
            map_fused(input, probability, precision, map)
        }
        _ => map_reference(input, probability, map),
    }
}

fn map_fused<T: Send>(
    input: Logits,
    probability: ProbabilityKind,
    precision: Precision,
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    const ON_CPU: &str = "the caller saw the CPU";
    let [queries, components] = input.log_prior.dims();
    let ([_, context_dim], [entities, object_dim]) = (input.context.dims(), input.objects.dims());
    let [context, log_prior, objects] = [input.context, input.log_prior, input.objects]
        .map(|tensor| tensor.try_into_primitive::<Flex>().expect(ON_CPU));
    let [bias, weights] = [input.bias, input.weights]
        .map(|tensor| tensor.map(|tensor| tensor.try_into_primitive::<Flex>().expect(ON_CPU)));
    let [context, log_prior, objects] = [&context, &log_prior, &objects].map(values);
    let [bias, weights] = [&bias, &weights].map(|tensor| tensor.as_ref().map(values));
    let inputs = Inputs {
        logits: LogitInputs {
            shape: Shape { queries, components, context_dim, object_dim, objects: 0..entities },
            score: input.score,
            context: &context,
            objects: &objects,
            bias: bias.as_deref(),
            weights: weights.as_deref().unwrap_or_default(),
        },
        log_prior: &log_prior,
        probability: match probability {
            ProbabilityKind::Categorical => Probability::Softmax,
            ProbabilityKind::Bernoulli => Probability::Sigmoid,
        },
    };
    log_probs::map(&inputs, precision, map)
}

/// The same in plain tensor operations, query block by query block.
fn map_reference<T: Send>(
    input: Logits,
    probability: ProbabilityKind,
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    /// Queries whose logits for all objects are in memory at once.
    const BLOCK: usize = 64;
    let [queries, components] = input.log_prior.dims();
    let entities = input.objects.dims()[0];
    let mut mapped = Vec::with_capacity(queries);
    for first in (0..queries).step_by(BLOCK) {
        let end = (first + BLOCK).min(queries);
        let of_block = |tensor: &Tensor<2>, rows: usize| {
            let columns = tensor.dims()[1];
            tensor.clone().slice([first * rows..end * rows, 0..columns])
        };
        let block = Logits {
            context: of_block(&input.context, components),
            log_prior: of_block(&input.log_prior, 1),
            ..input.clone()
        };
        let rows = floats(reference(block, probability).into_data());
        let rows = rows.par_chunks_exact(entities).enumerate();
        mapped.par_extend(rows.map(|(query, row)| map(first + query, row)));
    }
    mapped
}

fn floats(data: TensorData) -> Vec<f32> {
    data.convert::<f32>().try_into_vec().expect("just converted to f32")
}

/// Log-probabilities of all objects, `[B, E]`.
fn reference(input: Logits, probability: ProbabilityKind) -> Tensor<2> {
    let Logits { context, log_prior, objects, bias, score, weights } = input;
    let [queries, components] = log_prior.dims();
    let entities = objects.dims()[0];
    let mut logits = pair_scores(score, weights, context, objects);
    if let Some(bias) = bias {
        logits = logits + bias.unsqueeze();
    }
    let parts = match probability {
        ProbabilityKind::Categorical => log_softmax(logits, 1),
        ProbabilityKind::Bernoulli => log_sigmoid(logits),
    };
    let parts = parts.reshape([queries, components, entities]);
    let mixed = parts + log_prior.reshape([queries, components, 1]);
    let top = mixed.clone().max_dim(1);
    ((mixed - top.clone()).exp().sum_dim(1).log() + top).reshape([queries, entities])
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::{Device, Distribution};
    use fullrank_kernels::pair_score::samples::ALL;

    #[test]
    fn fused_equals_plain_tensor_operations() {
        let device = Device::flex();
        // Fewer and more queries than a block, fewer and more objects than a tile.
        let sizes = [
            (1, 1, 3, false),
            (200, 1, 50, true),
            (70, 4, 33, false),
            (3, 2, 2000, true),
            (1, 3, 9000, true),
            (150, 2, 1100, true),
        ];
        for (score, (queries, components, entities, has_bias)) in
            ALL.into_iter().flat_map(|score| sizes.map(|size| (score, size)))
        {
            let random =
                |shape| Tensor::<2>::random(shape, Distribution::Normal(0.0, 3.0), &device);
            let (context_dim, object_dim) = score.widths(8);
            let weights = score.some_weights();
            let input = Logits {
                context: random([queries * components, context_dim]),
                log_prior: log_softmax(random([queries, components]), 1),
                objects: random([entities, object_dim]),
                bias: has_bias.then(|| random([1, entities]).reshape([entities])),
                score,
                weights: (!weights.is_empty())
                    .then(|| Tensor::from_floats(weights.as_slice(), &device)),
            };
            for probability in [ProbabilityKind::Bernoulli, ProbabilityKind::Categorical] {
                let to_row = |place: usize, row: &[f32]| (place, row.to_vec());
                let fused = map_log_probs(input.clone(), probability, Precision::F32, to_row);
                let plain = map_reference(input.clone(), probability, to_row);
                assert_eq!(fused.len(), plain.len());
                for (i, ((fused_place, fused), (place, plain))) in
                    fused.iter().zip(&plain).enumerate()
                {
                    assert_eq!([*fused_place, *place], [i, i]);
                    for (fused, plain) in fused.iter().zip(plain) {
                        let off = (fused - plain).abs();
                        assert!(off < 1e-4 * plain.abs().max(1.0), "{fused} {plain}");
                    }
                }
            }
        }
    }
}
