//! Batches: what does one update learn from?

use std::sync::Arc;

use crate::encoder::Queries;
use crate::ops::BatchAnswers;
use crate::output::Negatives;

/// One batch: queries and their weighted answers.
#[derive(Debug, Clone)]
pub(crate) struct Batch {
    pub(crate) queries: Queries,
    pub(crate) answers: Arc<BatchAnswers>,
    /// Nothing where answers are compared with all objects.
    pub(crate) negatives: Option<Negatives>,
}
