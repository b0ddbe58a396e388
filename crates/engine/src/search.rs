//! Search: which settings suit a graph best, by trials?
//!
//! A [`Space`] says which values settings may have, and draws the settings of every trial; a [`Plan`]
//! says which trial is trained next, and how far, by what is known of all of them. Neither trains,
//! looks at a clock or opens a file: whoever searches does what the plan says, in run folders, and
//! keeps what came of it as [`Step`]s. The same steps give the same plan, so a search that was stopped
//! goes on as if it had not been.

mod plan;
mod space;
mod spaces;
#[cfg(test)]
mod tests;

pub use plan::{Metric, Outcome, Plan, Step, Task, Trial, leaderboard, trials};
pub use space::Space;
pub use spaces::{BUILT_IN, built_in_for};
