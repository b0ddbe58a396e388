//! Pages and pictures: what do a training, a comparison, a demo and a graph's bounds look like?
//!
//! Everything here turns plain results into text: HTML pages that need nothing else, SVG pictures, and
//! the numbers and sentences that pages, terminals and notebooks share.
//! Files, terminals and progress bars are left to the caller.

pub mod compare;
pub mod dimension;
pub mod figure;
pub mod numbers;

mod demo;
mod inspect;
mod metrics_table;
mod page;
mod run;

pub use compare::ComparePage;
pub use demo::{DemoReport, Group};
pub use inspect::InspectPage;
pub use metrics_table::{
    CANDIDATES_REMARK, METRICS_HEADER, MetricsColumns, below_popularity, metrics_cells, metrics_row,
};
pub use run::{RunReport, example_queries};
