//! Burn operations: which are too slow, or too large, as a chain of tensor operations?
//!
//! Each is a kernel of `fullrank_kernels` that [`adaptor`] makes an operation of burn, and beside it
//! the same in plain tensor operations: the reference in tests, and what runs on another device.
//! Models are on the CPU alone today, as batch norm makes its statistics there.

mod adaptor;
mod batch_norm;
mod batched_matmul;
mod gather;
mod log_probs;
mod loss;
mod messages;
mod optimizer_step;
mod pair_score;
mod pairwise;
mod relation_matmul;

pub(crate) use fullrank_kernels::adagrad::AdagradStep;
pub(crate) use fullrank_kernels::adam::AdamStep;
pub(crate) use fullrank_kernels::distance::Distance;
pub(crate) use fullrank_kernels::mixtape::Mixtape;
pub(crate) use fullrank_kernels::mlp::Mlp;
pub(crate) use fullrank_kernels::pair_score::PairScore;
pub(crate) use fullrank_kernels::pointwise::Pointwise;
pub(crate) use fullrank_kernels::product::{Precision, peak};
pub(crate) use fullrank_kernels::simd::{count_above, sum_of_exp};

pub(crate) use batch_norm::{Statistics, Treatment, batch_norm, statistics};
pub(crate) use batched_matmul::batched_matmul;
pub(crate) use gather::gather_rows;
pub(crate) use log_probs::map_log_probs;
pub(crate) use loss::{
    BatchAnswers, Logits, Shape, Shortcuts, SoftmaxOptions, Thinning, Work, Workspace,
    binary_cross_entropy, cross_entropy,
};
pub(crate) use messages::{Compose, Message, Messages, sum_messages};
pub(crate) use optimizer_step::{Moments, OptimizerStep, follow, norm, step_all, step_rows};
pub(crate) use pair_score::row_scores;
pub(crate) use pairwise::{pairwise_bytes, pairwise_scores};
pub(crate) use relation_matmul::{relation_matmul, transposed_relation_matmul};
