//! Which operations are too slow, or too large, as a chain of tensor operations?
//!
//! Each is a burn backend extension: a CPU kernel with its own backward pass, and beside it the
//! same in plain tensor operations, which serves every other device and is the reference in tests.
//! This is the only place with `unsafe` code.

#![expect(unsafe_code, reason = "SIMD chosen at run time, and gemm's face of pointers")]

mod adam;
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "nothing is packed for no unit")
)]
mod bf16;
mod components;
mod distance;
mod gather;
mod grouped;
mod log_probs;
mod loss;
mod messages;
mod mixtape;
mod mlp;
mod normalise;
mod pairwise;
mod pointwise;
mod product;
mod score;
mod simd;

pub(crate) use adam::{AdamStep, Moments, adam_rows, adam_step, norm};
pub(crate) use components::component_products;
pub(crate) use distance::Distance;
pub(crate) use gather::gather_rows;
pub(crate) use grouped::grouped_product;
pub(crate) use log_probs::map_log_probs;
pub(crate) use loss::{
    BatchAnswers, Logits, Products, Shape, Shortcuts, SoftmaxOptions, Thinning, Work, Workspace,
    binary_cross_entropy, cross_entropy,
};
pub(crate) use messages::{Compose, Message, Messages, sum_messages};
pub(crate) use mixtape::Mixtape;
pub(crate) use mlp::Mlp;
pub(crate) use normalise::{Statistics, Treatment, normalise};
pub(crate) use pairwise::{pairwise_bytes, pairwise_scores};
pub(crate) use pointwise::Pointwise;
pub(crate) use product::peak;
pub(crate) use score::PairScore;
pub(crate) use simd::{count_above, sum_of_exp};

use std::borrow::Cow;
use std::ops::Range;

use burn::backend::flex::FlexTensor;
use burn::tensor::TensorData;

/// The values of a tensor; copied only if they do not lie in order.
fn values(tensor: &FlexTensor) -> Cow<'_, [f32]> {
    match tensor.as_slice::<f32>() {
        Some(values) => Cow::Borrowed(values),
        None => Cow::Owned(tensor.to_contiguous().storage::<f32>().to_vec()),
    }
}

fn flex_tensor<const N: usize>(values: Vec<f32>, shape: [usize; N]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

/// Cuts a range into pieces of `len`, the last one shorter.
fn pieces(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(len.max(1)).map(move |start| start..(start + len).min(end))
}
