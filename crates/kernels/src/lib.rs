//! Kernels: loops over slices that a training spends its time in.
//!
//! Nothing here knows of tensors, graphs or settings: a kernel takes slices and sizes, and the engine
//! makes operations of them. Which instructions a loop uses is chosen at run time, and every loop has
//! a scalar twin, so that it is tested on machines without those instructions.
//!
//! - [`product`] multiplies matrices in f32; [`split_bf16`] on a processor's matrix unit.
//!   [`batched_matmul`] and [`relation_matmul`] multiply each vector by a matrix of its own.
//! - [`simd`] has the loops over rows.
//! - [`pair_score`] scores contexts against objects, a tile at a time, and takes gradients back; the
//!   scores are in [`distance`], [`pointwise`], [`mixtape`] and [`mlp`].
//! - [`tiles`] cuts a batch and its objects into tiles of logits; [`loss`] makes losses and gradients of
//!   them, [`log_probs`] log-probabilities, both over a range of objects, with [`log_sum`] to merge.
//! - [`batch_norm`], [`messages`] along edges, [`gather`] of rows, [`pairwise`] scores, steps of [`adam`]
//!   and [`adagrad`], and [`moving_average`] are whole operations.
//!
//! This is the crate with `unsafe` code.

#![expect(unsafe_code, reason = "SIMD chosen at run time, gemm's face of pointers, and AMX")]

pub mod adagrad;
pub mod adam;
mod aligned;
pub mod batch_norm;
pub mod batched_matmul;
pub mod distance;
pub mod gather;
pub mod log_probs;
pub mod log_sum;
pub mod loss;
pub mod messages;
pub mod mixtape;
pub mod mlp;
pub mod moving_average;
pub mod pair_score;
pub mod pairwise;
pub mod pointwise;
mod pool;
pub mod product;
pub mod relation_matmul;
pub mod simd;
pub mod split_bf16;
pub mod tiles;

use std::ops::Range;

/// Cuts a range into pieces of `len`, the last one shorter.
pub fn pieces(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(len.max(1)).map(move |start| start..(start + len).min(end))
}
