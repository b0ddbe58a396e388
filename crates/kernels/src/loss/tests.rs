//! What the tests of both losses share.

mod ranges;

use super::samples::{Case, Five, FiveGrads};
use crate::split_bf16;

/// Compares gradients with the slopes of a loss by its formula, one value at a time.
pub(super) fn assert_slopes(case: &Case, grads: &FiveGrads, plain_loss: impl Fn(Five) -> f64) {
    // The error of a central difference is of the order of the square of its step. A step across
    // a kink, where two coordinates agree, would be wrong by more; there is none that close in
    // these cases.
    const STEP: f64 = 1e-6;
    let inputs = case.wide();
    for (which, grad) in grads.iter().enumerate() {
        for (i, found) in grad.iter().enumerate() {
            let at = |x: f64| {
                let mut moved = inputs.clone();
                moved[which][i] += x;
                plain_loss(moved.each_ref().map(Vec::as_slice))
            };
            let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
            let off = (f64::from(*found) - expected).abs();
            assert!(off < 2e-5, "{:?}, input {which}: {found}, {expected}", case.score);
        }
    }
}

/// Gradients of random thinning, by seed, are on average what they are without it; `one_draw` is what
/// one entry of size ε adds to a gradient at most.
pub(super) fn assert_right_on_average(
    exact: &FiveGrads,
    one_draw: f64,
    thinned: impl Fn(u64) -> FiveGrads,
) {
    const DRAWS: u64 = 400;
    let mut sums = exact.each_ref().map(|grad| vec![(0.0_f64, 0.0_f64); grad.len()]);
    for seed in 0..DRAWS {
        for (sums, grads) in sums.iter_mut().zip(&thinned(seed)) {
            for ((sum, square), grad) in sums.iter_mut().zip(grads) {
                *sum += f64::from(*grad);
                *square += f64::from(*grad).powi(2);
            }
        }
    }
    let draws = DRAWS as f64;
    for ((sum, square), exact) in sums.iter().flatten().zip(exact.iter().flatten()) {
        let mean = sum / draws;
        let error = ((square / draws - mean * mean).max(0.0) / draws).sqrt();
        // Where a few draws make the mean, they do not tell its error: the variance of draws of one
        // size is their mean times that size.
        let exact = f64::from(*exact);
        let error = error.max((exact.abs() * one_draw / draws).sqrt());
        // Of five thousand means one may well be four standard errors off.
        let off = (mean - exact).abs();
        let most = 5.0 * error + 2.0 * one_draw / draws;
        assert!(off <= most, "{mean}, not {exact} ± {error}");
    }
}

/// What `run` gives on so many threads.
pub(super) fn on_threads<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

/// Whether AMX is there to be tested; says so if not.
#[expect(clippy::print_stderr, reason = "a test that is skipped says why")]
pub(super) fn has_amx() -> bool {
    let is_there = split_bf16::is_available();
    if !is_there {
        eprintln!("skipped: this machine has no AMX");
    }
    is_there
}
