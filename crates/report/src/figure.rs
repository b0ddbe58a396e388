//! The paper's pictures, with numbers from the engine's own output layers and the bounds' own orders.

mod mixtures;
mod one_dimension;
mod polynomial;
mod svg;

pub use mixtures::{distributions as mixture_distributions, log_ratios};
pub use one_dimension::{distributions, rankings};
pub use polynomial::{POLYNOMIAL_STEPS, polynomial};
