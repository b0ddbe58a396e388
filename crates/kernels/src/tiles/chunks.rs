//! Chunks: how do threads share a pass over all objects?
//!
//! A chunk has the gradient of all contexts for itself, which are added up in the order of chunks.

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::{ChunkGrads, LogitGrads, LogitInputs, Shape};
use crate::simd;

/// What a chunk works in: the loss's own buffers, and its part of the gradients that all chunks share.
#[derive(Debug, Default)]
pub(crate) struct Chunk<S> {
    pub(crate) scratch: S,
    grad_context: Vec<f32>,
    grad_weights: Vec<f32>,
}

/// One chunk at work.
pub(crate) struct ChunkWork<'a, S> {
    pub(crate) number: usize,
    pub(crate) scratch: &'a mut S,
    pub(crate) grads: ChunkGrads<'a>,
}

/// What all chunks of a pass work in.
#[derive(Debug)]
pub(crate) struct Chunks<S>(Vec<Chunk<S>>);

impl<S> Default for Chunks<S> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<S: Default + Send + Sync> Chunks<S> {
    /// The chunks of a shape, with what earlier passes left in them.
    pub(crate) fn of(&mut self, shape: &Shape) -> &mut [Chunk<S>] {
        let n_chunks = shape.n_chunks();
        self.0.resize_with(n_chunks.max(self.0.len()), Chunk::default);
        &mut self.0[..n_chunks]
    }

    /// Runs over all chunks, each with a place for its gradients and with one of `given`; gives the
    /// sums of these gradients, and what `run` found in each chunk.
    pub(crate) fn gradients<G: Send, T: Send>(
        &mut self,
        inputs: &LogitInputs,
        given: Vec<G>,
        run: impl Fn(ChunkWork<S>, G) -> T + Sync,
    ) -> (LogitGrads, Vec<T>) {
        let shape = &inputs.shape;
        let chunks = self.of(shape);
        assert_eq!(given.len(), chunks.len(), "one for each chunk");
        let (context_len, n_values) =
            (shape.rows() * shape.context_dim, shape.n_objects() * shape.object_dim);
        let mut objects = Vec::with_capacity(n_values);
        let mut bias = vec![0.0; shape.n_objects()];
        let room = &mut objects.spare_capacity_mut()[..n_values];
        let found = chunks
            .par_iter_mut()
            .zip(room.par_chunks_mut(shape.chunk_len() * shape.object_dim))
            .zip(bias.par_chunks_mut(shape.chunk_len()))
            .zip(given)
            .enumerate()
            .map(|(number, (((chunk, objects), bias), given))| {
                let objects = cleared(objects);
                let Chunk { scratch, grad_context: context, grad_weights: weights } = chunk;
                context.resize(context_len, 0.0);
                weights.clear();
                weights.resize(inputs.weights.len(), 0.0);
                let range = shape.chunk(number);
                let grads = ChunkGrads { range, context, weights, objects, bias };
                run(ChunkWork { number, scratch, grads }, given)
            })
            .collect();
        // SAFETY: every chunk has cleared its part.
        unsafe { objects.set_len(n_values) };
        let grads = LogitGrads {
            context: sum(chunks, context_len, |chunk| &chunk.grad_context),
            objects,
            bias: inputs.bias.map(|_| bias),
            weights: sum(chunks, inputs.weights.len(), |chunk| &chunk.grad_weights),
        };
        (grads, found)
    }
}

/// The sum over chunks of values that each has `len` of.
fn sum<S: Sync>(
    chunks: &[Chunk<S>],
    len: usize,
    values: impl Fn(&Chunk<S>) -> &[f32] + Sync,
) -> Vec<f32> {
    /// Floats that one thread adds up at a time.
    const PIECE: usize = 16 * 1024;
    let mut sums = vec![0.0; len];
    let Some((first, others)) = chunks.split_first() else { return sums };
    sums.par_chunks_mut(PIECE).enumerate().for_each(|(piece, sum)| {
        let range = piece * PIECE..piece * PIECE + sum.len();
        // Written before it is read: else the system would map every page twice.
        sum.copy_from_slice(&values(first)[range.clone()]);
        for chunk in others {
            simd::add(sum, &values(chunk)[range.clone()]);
        }
    });
    sums
}

/// Sets values to zero by the thread that will use them.
fn cleared(values: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    values.fill(MaybeUninit::new(0.0));
    // SAFETY: all were written just now.
    unsafe { values.assume_init_mut() }
}
