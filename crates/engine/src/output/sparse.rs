//! Sparse gradients: which settings do output layers share whose gradient may be left to chance?

use crate::settings::{Needs, Range, With, settings};

settings! {
    /// Settings of losses over the dot products with all objects.
    pub(crate) struct SparseConfig {
        /// Entries of the gradient of all scores that are left to chance, in units of an answer's weight:
        /// what is smaller than this is taken at this size, as often as its own size says. Right on
        /// average, and much faster once a model has learned a little; from 8,192 entities on.
        sparse_below: f64 = 1.0 / 1024.0, Range::Positive, needs DOT_PRODUCTS;
    }
}

const DOT_PRODUCTS: Needs<SparseConfig> = Needs {
    text: "score = \"dot\" or \"cosine\", without negatives or exact",
    deciding: &["score", "negatives", "exact"],
    are_met: |_, with| may_be_sparse(with),
};

/// Whether all scores are dot products, and need not be differentiated with all care.
pub(super) fn may_be_sparse(with: &With) -> bool {
    with.score.is_linear && with.training.negatives.is_none() && !with.training.exact
}
