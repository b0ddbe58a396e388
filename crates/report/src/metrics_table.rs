//! The table of metrics: which numbers stand in it, and in which order?

use fullrank_engine::metrics::Metrics;

use crate::numbers::{cell, count};

/// Columns of [`metrics_row`].
pub const METRICS_HEADER: &[&str] =
    &["", "ranks", "MRR", "MR", "Hits@1", "Hits@3", "Hits@10", "NLL filtered", "NLL"];

/// A name, how many ranks there are, and the numbers made of them.
pub fn metrics_row(name: &str, metrics: &Metrics) -> Vec<String> {
    let cells = metrics_cells(metrics).into_iter().map(|(value, digits)| cell(value, digits));
    [name.to_owned(), count(metrics.n_ranks)].into_iter().chain(cells).collect()
}

/// The numbers of a row, as far as the model has them, and how many of their digits are shown.
pub fn metrics_cells(metrics: &Metrics) -> [(Option<f64>, usize); 7] {
    let ranks = &metrics.realistic;
    [
        (Some(ranks.mrr), 4),
        (Some(ranks.mr), 1),
        (Some(ranks.hits_at_1), 4),
        (Some(ranks.hits_at_3), 4),
        (Some(ranks.hits_at_10), 4),
        (metrics.nll_filtered, 3),
        (metrics.nll, 3),
    ]
}
