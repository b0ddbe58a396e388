//! How likely is every object, for a block of queries?
//!
//! One tile per block of queries; normalising and mixing follow while its rows are in cache.
//! Nothing is differentiated here: losses have their own operation.

use std::ops::Range;

use burn::backend::{DispatchDevice, Flex};
use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{DType, Tensor, TensorData};
use rayon::prelude::*;

use super::loss::Logits;
use super::product::{Matrix, Onto};
use super::score::PairScore;
use super::{pieces, simd, values};
use crate::output::Meaning;

/// Log-probabilities of every object, `[B, E]`, row after row into `out`.
///
/// Where they are shares, each row's probabilities sum to one for any number of components.
pub(crate) fn log_probs(input: Logits, meaning: Meaning, out: &mut Vec<f32>) {
    match input.context.device().as_dispatch() {
        DispatchDevice::Flex(_) if input.context.dtype() == DType::F32 => {
            fused(input, meaning, out);
        }
        _ => *out = floats(reference(input, meaning).into_data()),
    }
}

fn floats(data: TensorData) -> Vec<f32> {
    data.convert::<f32>().try_into_vec().expect("just converted to f32")
}

fn reference(input: Logits, meaning: Meaning) -> Tensor<2> {
    let Logits { context, log_prior, objects, bias, score, weights } = input;
    let [queries, components] = log_prior.dims();
    let entities = objects.dims()[0];
    let mut logits = score.reference(weights, context, objects);
    if let Some(bias) = bias {
        logits = logits + bias.unsqueeze();
    }
    let parts = match meaning {
        Meaning::Share => log_softmax(logits, 1),
        Meaning::Holds => log_sigmoid(logits),
    };
    let parts = parts.reshape([queries, components, entities]);
    let mixed = parts + log_prior.reshape([queries, components, 1]);
    let top = mixed.clone().max_dim(1);
    ((mixed - top.clone()).exp().sum_dim(1).log() + top).reshape([queries, entities])
}

fn fused(input: Logits, meaning: Meaning, out: &mut Vec<f32>) {
    /// Rows (queries × components) of one tile, at most.
    const ROWS: usize = 128;
    /// Floats of one thread's logits, at most; fewer rows where objects are many.
    const FLOATS: usize = 16 * 1024 * 1024;
    let [queries, components] = input.log_prior.dims();
    let (entities, object_dim) = (input.objects.dims()[0], input.objects.dims()[1]);
    let dim = input.context.dims()[1];
    let [context, log_prior, objects] = [input.context, input.log_prior, input.objects]
        .map(|tensor| tensor.try_into_primitive::<Flex>().expect("the caller saw the CPU"));
    let [bias, weights] = [input.bias, input.weights].map(|tensor| {
        tensor.map(|tensor| tensor.try_into_primitive::<Flex>().expect("the caller saw the CPU"))
    });
    let (context, log_prior, objects) = (values(&context), values(&log_prior), values(&objects));
    let [bias, weights] = [&bias, &weights].map(|tensor| tensor.as_ref().map(values));
    let scored = Scored {
        score: input.score,
        weights: weights.as_deref().unwrap_or_default(),
        objects: &objects,
        object_dim,
        bias: bias.as_deref(),
        dim,
    };
    let mixed =
        |out: &mut [f32], logits: &[f32], log_prior: &[f32], room: &mut Vec<f32>| match meaning {
            Meaning::Share => mix(out, logits, log_prior, room),
            Meaning::Holds => mix_sigmoids(out, logits, log_prior),
        };

    let block = (ROWS.min(FLOATS / entities) / components).max(1);
    out.resize(queries * entities, 0.0);
    if queries.div_ceil(block) < rayon::current_num_threads() {
        // Too few blocks for all threads: they share the objects of each query instead.
        let of_queries =
            context.chunks_exact(components * dim).zip(log_prior.chunks_exact(components));
        for (out, (context, log_prior)) in out.chunks_exact_mut(entities).zip(of_queries) {
            mixed(out, &scored.logits_by_all(context, entities), log_prior, &mut Vec::new());
        }
        return;
    }
    out.par_chunks_mut(block * entities)
        .zip(context.par_chunks(block * components * dim))
        .zip(log_prior.par_chunks(block * components))
        .for_each_init(Default::default, |rooms, ((out, context), log_prior)| {
            let (logits, room): &mut (Vec<f32>, Vec<f32>) = rooms;
            logits.resize(log_prior.len() * entities, 0.0);
            scored.logits(context, 0..entities, logits);
            for ((out, logits), log_prior) in out
                .chunks_exact_mut(entities)
                .zip(logits.chunks_exact(components * entities))
                .zip(log_prior.chunks_exact(components))
            {
                mixed(out, logits, log_prior, room);
            }
        });
}

/// Objects, and how they are scored.
struct Scored<'a> {
    score: PairScore,
    weights: &'a [f32],
    objects: &'a [f32],
    object_dim: usize,
    bias: Option<&'a [f32]>,
    /// Width of contexts.
    dim: usize,
}

impl Scored<'_> {
    /// The logits of some contexts and objects, row after row.
    fn logits(&self, context: &[f32], objects: Range<usize>, out: &mut [f32]) {
        /// Contexts up to which objects are read once and not copied first.
        const FEW: usize = 8;
        if self.score == PairScore::Dot && context.len() <= FEW * self.dim {
            simd::dots(out, context, self.vectors(&objects), self.dim);
            if let Some(bias) = self.bias {
                let rows = out.chunks_exact_mut(objects.len());
                rows.for_each(|row| simd::add(row, &bias[objects.clone()]));
            }
            return;
        }
        let mut onto = Onto::Replace;
        if let Some(bias) = self.bias {
            let rows = out.chunks_exact_mut(objects.len());
            rows.for_each(|row| row.copy_from_slice(&bias[objects.clone()]));
            onto = Onto::Add;
        }
        let context = Matrix::rows_of(context, self.dim);
        let vectors = Matrix::rows_of(self.vectors(&objects), self.object_dim);
        self.score.logits(self.weights, out, onto, context, vectors);
    }

    fn vectors(&self, objects: &Range<usize>) -> &[f32] {
        &self.objects[objects.start * self.object_dim..objects.end * self.object_dim]
    }

    /// Those of a few contexts and all objects, which all threads share.
    fn logits_by_all(&self, context: &[f32], entities: usize) -> Vec<f32> {
        /// Objects of one task: their vectors take some megabytes.
        const PIECE: usize = 8192;
        let rows = context.len() / self.dim;
        let of_pieces: Vec<Vec<f32>> = pieces(0..entities, PIECE)
            .collect::<Vec<_>>()
            .into_par_iter()
            .map(|objects| {
                let mut logits = vec![0.0; rows * objects.len()];
                self.logits(context, objects, &mut logits);
                logits
            })
            .collect();
        let mut logits = Vec::with_capacity(rows * entities);
        for row in 0..rows {
            for piece in &of_pieces {
                let width = piece.len() / rows;
                logits.extend_from_slice(&piece[row * width..][..width]);
            }
        }
        logits
    }
}

/// Normalises and mixes the components of one query; `exps` is room for as many values as `logits`.
///
/// The largest logit is taken off first, which loses nothing where probabilities are large: added to
/// the logarithm of a sum it would round that to the digits of a logit, however large.
fn mix(out: &mut [f32], logits: &[f32], log_prior: &[f32], exps: &mut Vec<f32>) {
    exps.resize(logits.len(), 0.0);
    let rows = logits.chunks_exact(out.len()).zip(exps.chunks_exact_mut(out.len()));
    let (tops, log_factors): (Vec<f32>, Vec<f32>) = rows
        .zip(log_prior)
        .map(|((row, exps), log_prior)| {
            let top = simd::maximum(row);
            exps.copy_from_slice(row);
            (top, log_prior - simd::exp_and_sum(exps, top).ln())
        })
        .unzip();
    match (&tops[..], &log_factors[..]) {
        ([top], [log_factor]) => {
            for (out, logit) in out.iter_mut().zip(logits) {
                *out = (logit - top) + log_factor;
            }
        }
        _ => {
            let factors: Vec<f32> = log_factors.iter().map(|x| x.exp()).collect();
            let parts = simd::Parts { logits, exps, tops: &tops, log_factors: &log_factors };
            simd::log_mixture(out, parts, &factors);
        }
    }
}

/// Mixes the sigmoids of one query's components.
fn mix_sigmoids(out: &mut [f32], logits: &[f32], log_prior: &[f32]) {
    if let [_] = log_prior {
        return simd::sigmoid::log_sigmoid(out, logits);
    }
    let share: Vec<f32> = log_prior.iter().map(|x| x.exp()).collect();
    let prior = simd::sigmoid::Prior { log: log_prior, share: &share };
    simd::sigmoid::log_mixed_sigmoid(out, logits, prior, &mut Vec::new());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::score::tests::ALL;
    use burn::tensor::{Device, Distribution};

    #[test]
    fn fused_equals_plain_tensor_operations_and_shares_sum_to_one() {
        let device = Device::flex();
        // One of many queries, one of a query with more objects than a task.
        let sizes = [
            (1, 1, 3, false),
            (200, 1, 50, true),
            (70, 4, 33, false),
            (3, 2, 2000, true),
            (1, 3, 9000, true),
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
            let mut fused = Vec::new();
            for meaning in [Meaning::Holds, Meaning::Share] {
                log_probs(input.clone(), meaning, &mut fused);
                let plain = floats(reference(input.clone(), meaning).into_data());
                for (fused, plain) in fused.iter().zip(&plain) {
                    assert!((fused - plain).abs() < 1e-4 * plain.abs().max(1.0), "{fused} {plain}");
                }
            }
            for row in fused.chunks_exact(entities) {
                let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
                assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            }
        }
    }
}
