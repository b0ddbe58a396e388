//! How likely is every object, for a block of queries?
//!
//! Tile by tile for a block of queries, whose logits are exponentiated and summed while they are in
//! cache; when all sums are there, tiles are normalised and mixed to rows, and a row is used while it
//! is in cache, too. Nothing is differentiated here: losses have their own operation.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use burn::backend::{DispatchDevice, Flex};
use burn::tensor::activation::{log_sigmoid, log_softmax};
use burn::tensor::{DType, Tensor, TensorData};
use rayon::prelude::*;

use super::bf16::{self, Left, Right};
use super::loss::{Logits, Products};
use super::product::{Matrix, Onto};
use super::score::PairScore;
use super::{pieces, simd, values};
use crate::part::ProbabilityKind as Meaning;

/// What `map` makes of each query's place in the batch and its row, the log-probabilities of every
/// object; in the order of the queries.
///
/// Where they are shares, a row's probabilities sum to one for any number of components.
pub(crate) fn map_log_probs<T: Send>(
    input: Logits,
    meaning: Meaning,
    products: Products,
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    match input.context.device().as_dispatch() {
        DispatchDevice::Flex(_) if input.context.dtype() == DType::F32 => {
            map_fused(input, meaning, products, map)
        }
        _ => {
            let entities = input.objects.dims()[0];
            map_all(&floats(reference(input, meaning).into_data()), entities, map)
        }
    }
}

/// Of rows that are all there.
fn map_all<T: Send>(
    rows: &[f32],
    entities: usize,
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    rows.par_chunks_exact(entities).enumerate().map(|(query, row)| map(query, row)).collect()
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
        Meaning::Categorical => log_softmax(logits, 1),
        Meaning::Bernoulli => log_sigmoid(logits),
    };
    let parts = parts.reshape([queries, components, entities]);
    let mixed = parts + log_prior.reshape([queries, components, 1]);
    let top = mixed.clone().max_dim(1);
    ((mixed - top.clone()).exp().sum_dim(1).log() + top).reshape([queries, entities])
}

/// Objects of one tile: its logits are normalised while they are in cache.
const TILE: usize = 512;
/// Rows (queries × components) up to which objects are read once and not copied first.
const FEW_ROWS: usize = 8;

fn map_fused<T: Send>(
    input: Logits,
    meaning: Meaning,
    products: Products,
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Vec<T> {
    /// Rows of one block, at most.
    const ROWS: usize = 128;
    /// Floats of one thread's logits, at most, unless a single query has more; fewer rows where
    /// objects are many.
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
    let mut scored = Scored {
        score: input.score,
        weights: weights.as_deref().unwrap_or_default(),
        objects: &objects,
        object_dim,
        bias: bias.as_deref(),
        dim,
        entities,
        components,
        meaning,
        packed: Vec::new(),
    };
    if queries == 0 {
        return Vec::new();
    }
    let block = (ROWS.min(FLOATS / entities) / components).max(1);
    if queries <= block {
        // Packing objects would take longer than multiplying them.
        return map_all(&scored.block_by_all(&context, &log_prior), entities, map);
    }
    if products == Products::Halves {
        scored.pack_objects();
    }
    // As many as threads: what rayon would make for each, it makes for every part of the work.
    let room = Mutex::new(Vec::<Tiles>::new());
    let take_room = || room.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let blocks = context.par_chunks(block * components * dim);
    let blocks = blocks.zip(log_prior.par_chunks(block * components)).enumerate();
    let mapped: Vec<Vec<T>> = blocks
        .map(|(number, (context, log_prior))| {
            let mut tiles = take_room().unwrap_or_default();
            let mut mapped = Vec::with_capacity(block);
            scored.block(context, log_prior, &mut tiles, |query, row| {
                mapped.push(map(number * block + query, row));
            });
            room.lock().unwrap_or_else(PoisonError::into_inner).push(tiles);
            mapped
        })
        .collect();
    mapped.into_iter().flatten().collect()
}

/// Objects, how they are scored, and what becomes of it.
struct Scored<'a> {
    score: PairScore,
    weights: &'a [f32],
    objects: &'a [f32],
    object_dim: usize,
    bias: Option<&'a [f32]>,
    /// Width of contexts.
    dim: usize,
    entities: usize,
    components: usize,
    meaning: Meaning,
    /// The objects of every tile, for a unit that multiplies them; empty if they are multiplied as they
    /// are.
    packed: Vec<Right>,
}

/// What a block of rows makes of all objects, tile after tile, the rows of a tile one after the other.
#[derive(Default)]
struct Tiles {
    /// Logits, or exp(z − largest) of those that are mixed.
    values: Vec<f32>,
    /// Of every row of every tile.
    sums: Vec<Sum>,
    /// The log-probabilities of one query.
    row: Vec<f32>,
    /// The contexts, for a unit that multiplies them.
    contexts: Left,
}

/// Σ exp z, as the largest z and Σ exp(z − largest).
#[derive(Clone, Copy, Default)]
struct Sum {
    top: f32,
    sum: f32,
}

impl Tiles {
    fn make_room(&mut self, rows: usize, entities: usize) {
        self.values.resize(rows * entities, 0.0);
        self.sums.resize(rows * entities.div_ceil(TILE), Sum::default());
    }
}

impl Scored<'_> {
    /// All of a block, by one thread; `take` gets the place and the row of each query.
    fn block(
        &self,
        context: &[f32],
        log_prior: &[f32],
        tiles: &mut Tiles,
        mut take: impl FnMut(usize, &[f32]),
    ) {
        let rows = log_prior.len();
        tiles.make_room(rows, self.entities);
        if !self.packed.is_empty() {
            tiles.contexts.pack(Matrix::rows_of(context, self.dim));
        }
        let slots = tiles.values.chunks_mut(rows * TILE).zip(tiles.sums.chunks_mut(rows));
        for (tile, (objects, (values, sums))) in
            pieces(0..self.entities, TILE).zip(slots).enumerate()
        {
            match self.packed.get(tile) {
                Some(vectors) => self.multiply(&tiles.contexts, vectors, objects.clone(), values),
                None => self.logits(context, objects.clone(), values),
            }
            self.sum_tile(objects.len(), values, sums);
        }
        let mut row = std::mem::take(&mut tiles.row);
        row.resize(self.entities, 0.0);
        for query in 0..rows / self.components {
            let mixing = Mixing::of(self, tiles, query, log_prior);
            for (tile, out) in row.chunks_mut(TILE).enumerate() {
                mixing.fill(self, context, tile, out);
            }
            take(query, &row);
        }
        tiles.row = row;
    }

    /// All rows where there is no other block, by all threads, which share its tiles.
    fn block_by_all(&self, context: &[f32], log_prior: &[f32]) -> Vec<f32> {
        let rows = log_prior.len();
        let mut tiles = Tiles::default();
        tiles.make_room(rows, self.entities);
        let slots = tiles.values.par_chunks_mut(rows * TILE).zip(tiles.sums.par_chunks_mut(rows));
        slots.enumerate().for_each(|(tile, (values, sums))| {
            let objects = tile * TILE..((tile + 1) * TILE).min(self.entities);
            self.logits(context, objects.clone(), values);
            self.sum_tile(objects.len(), values, sums);
        });
        let mut out = vec![0.0; rows / self.components * self.entities];
        for (query, out) in out.chunks_exact_mut(self.entities).enumerate() {
            let mixing = Mixing::of(self, &tiles, query, log_prior);
            out.par_chunks_mut(TILE).enumerate().for_each(|(tile, out)| {
                mixing.fill(self, context, tile, out);
            });
        }
        out
    }

    /// What normalising needs of the logits of a tile.
    fn sum_tile(&self, width: usize, values: &mut [f32], sums: &mut [Sum]) {
        if self.meaning == Meaning::Bernoulli {
            return;
        }
        for (values, sum) in values.chunks_exact_mut(width).zip(sums) {
            let top = simd::maximum(values);
            let of_exps = match self.components {
                1 => simd::sum_of_exp(values, top),
                _ => simd::exp_and_sum(values, top),
            };
            *sum = Sum { top, sum: of_exps };
        }
    }

    /// The logits of some contexts and objects, row after row.
    fn logits(&self, context: &[f32], objects: Range<usize>, out: &mut [f32]) {
        if self.score == PairScore::Dot && context.len() <= FEW_ROWS * self.dim {
            simd::dots(out, context, self.vectors(&objects), self.dim);
            if let Some(bias) = self.bias {
                let rows = out.chunks_exact_mut(objects.len());
                rows.for_each(|row| simd::add(row, &bias[objects.clone()]));
            }
            return;
        }
        let onto = self.start_with_bias(&objects, out);
        let context = Matrix::rows_of(context, self.dim);
        let vectors = Matrix::rows_of(self.vectors(&objects), self.object_dim);
        self.score.logits(self.weights, out, onto, context, vectors);
    }

    /// The same of packed vectors.
    fn multiply(&self, contexts: &Left, vectors: &Right, objects: Range<usize>, out: &mut [f32]) {
        let onto = self.start_with_bias(&objects, out);
        bf16::multiply(out, objects.len(), onto, contexts, vectors);
    }

    /// Writes the bias of some objects to all rows of `out`, if there is one, and tells what products
    /// are to do with what stands there.
    fn start_with_bias(&self, objects: &Range<usize>, out: &mut [f32]) -> Onto {
        let Some(bias) = self.bias else { return Onto::Replace };
        let rows = out.chunks_exact_mut(objects.len());
        rows.for_each(|row| row.copy_from_slice(&bias[objects.clone()]));
        Onto::Add
    }

    fn pack_objects(&mut self) {
        assert_eq!(self.score, PairScore::Dot, "halves of another score");
        let pack = |objects: Range<usize>| {
            let vectors = Matrix::rows_of(self.vectors(&objects), self.object_dim);
            Right::of(vectors.transposed())
        };
        let tiles: Vec<_> = pieces(0..self.entities, TILE).collect();
        self.packed = tiles.into_par_iter().map(pack).collect();
    }

    fn vectors(&self, objects: &Range<usize>) -> &[f32] {
        &self.objects[objects.start * self.object_dim..objects.end * self.object_dim]
    }
}

/// How the components of one query become log-probabilities.
struct Mixing<'a> {
    tiles: &'a Tiles,
    rows: usize,
    /// The first of its rows in the block.
    first: usize,
    log_prior: &'a [f32],
    share: Vec<f32>,
    /// L_k, as a largest logit and what is to be added to it.
    normalisers: Vec<(f32, f32)>,
}

impl<'a> Mixing<'a> {
    /// Of a query of a block, whose weights are `log_prior`.
    fn of(scored: &Scored, tiles: &'a Tiles, query: usize, log_prior: &'a [f32]) -> Self {
        let (rows, first) = (log_prior.len(), query * scored.components);
        let log_prior = &log_prior[first..first + scored.components];
        let normaliser = |row: usize| {
            let sums = || tiles.sums[row..].iter().step_by(rows);
            let top = sums().fold(f32::NEG_INFINITY, |top, sum| top.max(sum.top));
            let of_tile = |sum: &Sum| f64::from(sum.sum) * f64::from(sum.top - top).exp();
            (top, sums().map(of_tile).sum::<f64>().ln() as f32)
        };
        let normalisers = match scored.meaning {
            Meaning::Categorical => (first..first + scored.components).map(normaliser).collect(),
            Meaning::Bernoulli => Vec::new(),
        };
        let share = log_prior.iter().map(|x| x.exp()).collect();
        Self { tiles, rows, first, log_prior, share, normalisers }
    }

    /// The log-probabilities of a tile's objects.
    fn fill(&self, scored: &Scored, context: &[f32], tile: usize, out: &mut [f32]) {
        let width = out.len();
        let start = self.rows * tile * TILE + self.first * width;
        let values = &self.tiles.values[start..][..scored.components * width];
        match (scored.meaning, &self.normalisers[..]) {
            (Meaning::Bernoulli, _) if scored.components == 1 => {
                simd::sigmoid::log_sigmoid(out, values);
            }
            (Meaning::Bernoulli, _) => {
                let prior = simd::sigmoid::Prior { log: self.log_prior, share: &self.share };
                simd::sigmoid::log_mixed_sigmoid(out, values, prior, &mut Vec::new());
            }
            // The largest logit is taken off first: added to the logarithm of the sum, it would
            // round that to the digits of a logit, however large.
            (Meaning::Categorical, [(top, log_sum)]) => {
                let more = self.log_prior[0] - log_sum;
                out.iter_mut().zip(values).for_each(|(out, logit)| *out = (logit - top) + more);
            }
            (Meaning::Categorical, _) => self.mix(scored, context, tile, values, out),
        }
    }

    /// log Σ_k π_k exp(z_k − L_k), of exponentials.
    fn mix(&self, scored: &Scored, context: &[f32], tile: usize, exps: &[f32], out: &mut [f32]) {
        let sums = &self.tiles.sums[tile * self.rows + self.first..][..scored.components];
        let factor = |((sum, (top, log_sum)), log_prior): ((&Sum, &(f32, f32)), &f32)| {
            ((sum.top - top) + (log_prior - log_sum)).exp()
        };
        let parts = sums.iter().zip(&self.normalisers).zip(self.log_prior);
        let factors: Vec<f32> = parts.map(factor).collect();
        if simd::log_mixture(out, exps, &factors) {
            return;
        }
        // Some are so small that exponentials do not tell them apart: these from the logits again,
        // and only these, as logits made by another product differ in their last digits.
        let context = &context[self.first * scored.dim..][..scored.components * scored.dim];
        let objects = tile * TILE..tile * TILE + out.len();
        let mut logits = vec![0.0; exps.len()];
        scored.logits(context, objects, &mut logits);
        let shifts: Vec<(f32, f32)> = (self.normalisers.iter().zip(self.log_prior))
            .map(|((top, log_sum), log_prior)| (*top, log_prior - log_sum))
            .collect();
        let mut again = vec![0.0; out.len()];
        simd::log_sum_exp(&mut again, &logits, &shifts);
        for (out, again) in out.iter_mut().zip(again) {
            // NaN is not above it either.
            *out = if *out > simd::TINY.ln() { *out } else { again };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::score::tests::ALL;
    use burn::tensor::{Device, Distribution};

    /// Row after row; every row is mapped at its own place.
    fn log_probs(input: Logits, meaning: Meaning) -> Vec<f32> {
        log_probs_by(input, meaning, Products::Whole)
    }

    fn log_probs_by(input: Logits, meaning: Meaning, products: Products) -> Vec<f32> {
        let rows = map_log_probs(input, meaning, products, |place, row| (place, row.to_vec()));
        assert!(rows.iter().enumerate().all(|(i, (place, _))| i == *place));
        rows.into_iter().flat_map(|(_, row)| row).collect()
    }

    #[test]
    fn fused_equals_plain_tensor_operations_and_shares_sum_to_one() {
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
            let mut fused = Vec::new();
            for meaning in [Meaning::Bernoulli, Meaning::Categorical] {
                fused = log_probs(input.clone(), meaning);
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

    #[test]
    fn products_of_halves_are_nearly_the_same() {
        if !crate::ops::bf16::tests::is_there() {
            return;
        }
        let device = Device::flex();
        let random = |shape| Tensor::<2>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        for (components, has_bias) in [(1, true), (2, false)] {
            let input = Logits {
                context: random([300 * components, 40]),
                log_prior: log_softmax(random([300, components]), 1),
                objects: random([1100, 40]),
                bias: has_bias.then(|| random([1, 1100]).reshape([1100])),
                score: PairScore::Dot,
                weights: None,
            };
            for meaning in [Meaning::Bernoulli, Meaning::Categorical] {
                let whole = log_probs(input.clone(), meaning);
                let halves = log_probs_by(input.clone(), meaning, Products::Halves);
                for (whole, halves) in whole.iter().zip(&halves) {
                    // Forty terms of about one, each off by 2⁻¹⁶ at most.
                    assert!((whole - halves).abs() < 1e-3, "{whole} {halves}");
                }
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits_and_no_queries_give_no_rows() {
        let device = Device::flex();
        let input = |queries: usize| {
            let values = |n: usize| (0..n).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<_>>();
            let tensor = |rows: usize, columns: usize| {
                let data = TensorData::new(values(rows * columns), [rows, columns]);
                Tensor::<2>::from_data(data, &device)
            };
            Logits {
                context: tensor(queries * 2, 8),
                log_prior: log_softmax(tensor(queries, 2), 1),
                objects: tensor(700, 8),
                bias: None,
                score: PairScore::Dot,
                weights: None,
            }
        };
        let at = |threads: usize, queries: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| log_probs(input(queries), Meaning::Categorical))
        };
        assert!(at(2, 0).is_empty());
        let found = at(1, 300);
        assert!([2, 5].iter().all(|threads| at(*threads, 300) == found));
    }

    #[test]
    fn what_is_next_to_impossible_keeps_its_digits_and_nan_stays() {
        let device = Device::flex();
        // Two components that agree: object 1 is e^200 times as unlikely as object 0.
        let context = Tensor::<2>::from_floats([[1.0], [1.0]], &device);
        let prior = Tensor::<2>::full([1, 2], 0.5_f32.ln(), &device);
        let found = |objects: [[f32; 1]; 3]| {
            let input = Logits {
                context: context.clone(),
                log_prior: prior.clone(),
                objects: Tensor::from_floats(objects, &device),
                bias: None,
                score: PairScore::Dot,
                weights: None,
            };
            log_probs(input, Meaning::Categorical)
        };
        let close = |a: f32, b: f32| (a - b).abs() < 1e-4;
        let [first, second, third] = found([[0.0], [-200.0], [-1000.0]])[..] else { panic!() };
        assert!(close(first, 0.0) && close(second, -200.0) && close(third, -1000.0));
        assert!(found([[0.0], [f32::NAN], [1.0]]).iter().any(|x| x.is_nan()));
    }
}
