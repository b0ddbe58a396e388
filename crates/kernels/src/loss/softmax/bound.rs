//! Bounds: how large can an entry of a gradient be, before all objects have been seen?

use crate::log_sum::LogSum;
use crate::loss::sparse::Thinning;

/// Limits of a row that are known before all objects are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bound {
    /// Σ_o y_o, which Γ_k cannot exceed.
    pub(super) weight: f32,
    /// The largest z of an answer, below which L_k cannot be.
    pub(super) normaliser: f32,
}

impl Bound {
    /// What makes sizes, in units of ε, of exp(z − `maximum`), no smaller than they are in the end;
    /// `so_far` is Σ exp z over some objects.
    pub(super) fn factor(self, thinning: Thinning, maximum: f32, so_far: LogSum) -> f32 {
        /// For rounding: a little more than can be lost between here and the end.
        const SLACK: f64 = 1.0001;
        let so_far = so_far.sum * f64::from(so_far.maximum - maximum).exp();
        let least = so_far.max(f64::from(self.normaliser - maximum).exp());
        (SLACK * f64::from(self.weight) / f64::from(thinning.below) / least) as f32
    }
}
