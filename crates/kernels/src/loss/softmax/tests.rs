//! The fused losses of softmaxes against an f64 loop and finite differences.

use super::*;
use crate::loss::samples::{Case, FiveGrads, distance};
use crate::loss::tests::{assert_right_on_average, assert_slopes, has_amx, on_threads};
use crate::loss::{Grads, Shortcuts, SoftmaxOptions, Thinning, Work};
use crate::pair_score::PairScore;
use crate::pair_score::samples::ALL;
use crate::product::Precision;

/// Logits of several components are mixed with priors that sum to one.
fn case(score: PairScore, size: [usize; 4], has_bias: bool, seed: u64) -> Case {
    Case::random(score, size, has_bias, seed).with_normalised_prior()
}

fn dots(size: [usize; 4], has_bias: bool, seed: u64) -> Case {
    case(PairScore::Dot, size, has_bias, seed)
}

/// Cases around every edge, with their smoothing: one chunk, uneven tiles, more rows than a block,
/// bias.
fn cases() -> Vec<(Case, f32)> {
    vec![
        (dots([5, 1, 3, 7], false, 1), 0.0),
        (dots([6, 3, 4, 40], true, 2), 0.0),
        (dots([9, 1, 8, 33], true, 3), 0.2),
        (dots([13, 4, 5, 2], false, 4), 0.0),
        (dots([150, 5, 6, 9000], true, 5), 0.0),
        (dots([700, 1, 6, 300], false, 6), 0.1),
    ]
}

/// Every score with a softmax and with a mixture, and the other cases.
fn cases_of_all_scores() -> Vec<(Case, f32)> {
    let mut cases = cases();
    for (score, components) in ALL.into_iter().flat_map(|score| [(score, 1), (score, 2)]) {
        cases.push((case(score, [7, components, 6, 45], components == 2, 12), 0.0));
    }
    cases
}

/// A forward pass over all objects of a case.
struct Pass<'a> {
    case: &'a Case,
    finished: Finished,
    saved: Saved,
}

impl<'a> Pass<'a> {
    fn forward(case: &'a Case, options: SoftmaxOptions, workspace: &Workspace) -> Self {
        let (partial, saved) = forward(&case.inputs(), options, workspace);
        let finished = finish(partial, &case.inputs(), options.smoothing);
        Self { case, finished, saved }
    }

    /// Gradients of `scale` times the loss, and what was computed.
    fn backward(&mut self, scale: f32, workspace: &Workspace) -> (FiveGrads, Work) {
        let Self { case, finished, saved } = self;
        let (logits, work) = backward(&case.inputs(), saved, finished, scale, workspace);
        let grads = Grads { log_prior: finished.grad_log_prior(scale), logits };
        (grads.into_five(), work)
    }
}

/// Loss and gradients by the fused kernel, scaled by `scale`.
fn fused(case: &Case, smoothing: f32, saved_bytes: usize, scale: f32) -> (f64, FiveGrads) {
    with_options(
        case,
        SoftmaxOptions { smoothing, ..SoftmaxOptions::default() },
        saved_bytes,
        scale,
    )
    .0
}

/// The same with all options, and the part of all entries that were multiplied.
fn with_options(
    case: &Case,
    options: SoftmaxOptions,
    saved_bytes: usize,
    scale: f32,
) -> ((f64, FiveGrads), f64) {
    let workspace = Workspace::new(saved_bytes);
    let mut pass = Pass::forward(case, options, &workspace);
    let (grads, work) = pass.backward(scale, &workspace);
    ((pass.finished.loss, grads), work.density().unwrap())
}

fn thinned(case: &Case, below: f32, seed: u64, saved_bytes: usize) -> ((f64, FiveGrads), f64) {
    let thinning = Some(Thinning { below, seed });
    with_options(case, shortcuts(thinning, Precision::F32), saved_bytes, 0.5)
}

fn shortcuts(thinning: Option<Thinning>, precision: Precision) -> SoftmaxOptions {
    SoftmaxOptions { smoothing: 0.0, shortcuts: Shortcuts { thinning, precision } }
}

/// Sharp enough that few entries matter.
fn sharp(size: [usize; 4], has_bias: bool, seed: u64) -> Case {
    let mut case = dots(size, has_bias, seed);
    case.context.iter_mut().for_each(|x| *x *= 6.0);
    case
}

#[test]
fn gradients_equal_finite_differences_in_f64() {
    // The two large ones would take minutes.
    for (case, smoothing) in
        cases_of_all_scores().iter().filter(|(case, _)| case.shape.queries < 100)
    {
        let (loss, grads) = fused(case, *smoothing, 0, 1.0);
        let values = case.wide();
        let expected = case.softmax_loss(*smoothing, values.each_ref().map(Vec::as_slice));
        assert!((loss - expected).abs() < 1e-5 * loss.abs());
        assert_slopes(case, &grads, |values| case.softmax_loss(*smoothing, values));
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for score in ALL {
        let case = case(score, [60, 4, 6, 5000], true, 8);
        let on = |threads: usize| on_threads(threads, || fused(&case, 0.0, 1 << 20, 0.5));
        let one = on(1);
        for threads in [2, 3, 7] {
            assert!(on(threads) == one, "{score:?} on {threads} threads");
        }
    }
}

#[test]
fn thinned_gradients_are_right_on_average() {
    let case = sharp([40, 3, 6, 700], true, 13);
    let exact = fused(&case, 0.0, 0, 0.5);
    // ε times the largest coordinate and the scale.
    assert_right_on_average(&exact.1, 0.02 * 6.0 * 0.5, |seed| {
        let ((loss, grads), density) = thinned(&case, 0.02, seed, 1 << 20);
        assert_eq!(loss, exact.0, "the loss leaves nothing to chance");
        assert!(density < 0.25, "{density}");
        grads
    });
}

#[test]
fn what_is_above_the_threshold_is_exact() {
    let case = sharp([40, 3, 6, 700], true, 14);
    let exact = fused(&case, 0.0, 0, 0.5).1;
    // Below it are a hundred thousand entries that add nothing that a float could tell.
    let ((_, grads), density) = thinned(&case, 1e-9, 3, 1 << 20);
    assert!(density <= 1.0);
    for (grad, exact) in grads.iter().zip(&exact) {
        assert!(distance(grad, exact) < 1e-5);
    }
}

#[test]
fn what_is_taken_does_not_depend_on_what_is_saved() {
    for size in [[40, 3, 6, 700], [600, 1, 9, 9000]] {
        let case = sharp(size, true, 15);
        let (expected, density) = thinned(&case, 0.02, 7, 0);
        assert!(density < 0.25, "{density}");
        // Room for nothing, for some entries, and for all.
        for saved_bytes in [1 << 16, 1 << 18, 1 << 30] {
            let (found, again) = thinned(&case, 0.02, 7, saved_bytes);
            assert_eq!(density, again);
            for (found, expected) in found.1.iter().zip(&expected.1) {
                assert!(distance(found, expected) < 1e-5);
            }
        }
        for threads in [1, 3] {
            let found = on_threads(threads, || thinned(&case, 0.02, 7, 1 << 18));
            assert!(found == thinned(&case, 0.02, 7, 1 << 18), "{threads} threads");
        }
    }
}

#[test]
fn split_bf16_products_are_off_by_a_part_of_32768() {
    if !has_amx() {
        return;
    }
    for (case, smoothing) in cases() {
        let (loss, grads) = fused(&case, smoothing, 0, 0.5);
        for saved_bytes in [0, 1 << 18, usize::MAX / 2] {
            let run = |thinning| {
                let options =
                    SoftmaxOptions { smoothing, ..shortcuts(thinning, Precision::SplitBf16) };
                with_options(&case, options, saved_bytes, 0.5).0
            };
            // With chance left out of it: nothing is below so little.
            for thinning in [None, Some(Thinning { below: 1e-30, seed: 1 })] {
                let (found, found_grads) = run(thinning.filter(|_| smoothing == 0.0));
                assert!((found - loss).abs() <= 3e-5 * loss.abs(), "{found} and {loss}");
                for (grad, expected) in found_grads.iter().zip(&grads) {
                    let distance = distance(grad, expected);
                    assert!(distance < 3e-5, "{:?}: {distance}", case.shape);
                }
            }
            let on = |threads: usize| on_threads(threads, || run(None));
            assert!(on(1) == on(3), "threads");
        }
    }
}

#[test]
fn a_second_backward_pass_gives_what_the_first_gave() {
    let case = dots([20, 2, 7, 500], false, 9);
    let workspace = Workspace::new(1 << 20);
    let mut pass = Pass::forward(&case, SoftmaxOptions::default(), &workspace);
    let first = pass.backward(1.0, &workspace).0;
    let again = pass.backward(1.0, &workspace).0;
    for (first, again) in first.iter().zip(&again) {
        assert!(distance(again, first) < 1e-6);
    }
}

#[test]
fn of_two_forward_passes_the_last_finds_its_tiles_and_both_are_right() {
    let cases = [dots([20, 2, 7, 500], false, 9), dots([3, 4, 5, 900], false, 10)];
    let expected = cases.each_ref().map(|case| fused(case, 0.0, 1 << 20, 1.0).1);
    let workspace = Workspace::new(1 << 20);
    let passes =
        cases.each_ref().map(|case| Pass::forward(case, SoftmaxOptions::default(), &workspace));
    let mut again = Vec::new();
    for (mut pass, expected) in passes.into_iter().zip(&expected) {
        let (grads, work) = pass.backward(1.0, &workspace);
        again.push(work.again);
        for (found, expected) in grads.iter().zip(expected) {
            assert!(distance(found, expected) < 1e-6);
        }
    }
    assert_eq!(again, [20 * 2 * 500, 0], "logits that were made again");
}

#[test]
fn a_forward_pass_that_nobody_differentiates_does_not_hold_tiles_back() {
    let case = dots([20, 2, 7, 500], false, 9);
    let workspace = Workspace::new(1 << 20);
    let pass = || Pass::forward(&case, SoftmaxOptions::default(), &workspace);
    let _never_differentiated = [pass(), pass()];
    assert_eq!(pass().backward(1.0, &workspace).1.again, 0);
}

#[test]
fn a_broken_weight_reaches_the_loss() {
    // An infinite vector is infinitely far from all others, which is no contradiction.
    let distances = ALL.map(|score| (score, f32::NAN));
    for (score, value) in distances.into_iter().chain([(PairScore::Dot, f32::INFINITY)]) {
        let mut case = case(score, [4, 2, 6, 50], false, 11);
        // No query has object 49 as its answer.
        case.answers.objects.iter_mut().for_each(|object| *object %= 49);
        case.objects[49 * case.shape.object_dim] = value;
        assert!(!fused(&case, 0.0, 0, 1.0).0.is_finite());
        assert!(!fused(&case, 0.0, 1 << 20, 1.0).0.is_finite());
    }
}
