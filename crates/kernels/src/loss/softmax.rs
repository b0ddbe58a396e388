//! Softmax and mixture losses, fused: what does a batch lose?
//!
//! Tiles (`tiles`) are gone through twice, for the normalisers and for the gradients.
//! For a query with answer weights y_o and z_k the scores of f_k(h) and all objects:
//! - L_k = log Σ_o exp z_{k,o}, from running maxima and sums over the tiles ([`LogSum`]);
//! - at the answers only: log P(o) = log Σ_k exp(log π_k + z_{k,o} − L_k), the responsibilities
//!   γ_{k,o} (the terms of that sum over the sum), Γ_k = Σ_o y_o γ_{k,o};
//! - loss = −Σ_o y_o log P(o), ∂loss/∂z_{k,j} = Γ_k softmax_k(j) − y_j γ_{k,j} and
//!   ∂loss/∂log π_k = −Γ_k.
//!
//! Objects may be cut into ranges, and each [`forward`] pass sees one: [`Partial`] sums are merged,
//! [`finish`] makes the loss of those over all objects, and each [`backward`] pass makes the gradients
//! by its own objects. One range is the whole of it on one machine.
//!
//! What the backward pass finds of the tiles is in `saved_tiles`. Where most entries of Γ_k softmax_k
//! are next to nothing, only a few of them are multiplied (`sparse`).

mod answer_logits;
mod backward;
mod bound;
mod forward;
mod partial;
#[cfg(test)]
mod tests;
mod workspace;

pub use backward::backward;
pub use forward::{Saved, forward};
pub use partial::{Finished, ObjectSums, Partial, finish};
pub use workspace::Workspace;

#[cfg(doc)]
use crate::log_sum::LogSum;
