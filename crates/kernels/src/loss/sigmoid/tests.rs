//! The fused losses of sigmoids against an f64 loop and finite differences.

use super::*;
use crate::loss::BatchAnswers;
use crate::loss::samples::{Case, FiveGrads, distance};
use crate::loss::tests::{assert_right_on_average, assert_slopes, has_amx, on_threads};
use crate::pair_score::PairScore;
use crate::pair_score::samples::ALL;
use crate::product::Precision;

fn dots(size: [usize; 4], has_bias: bool, seed: u64) -> Case {
    Case::random(PairScore::Dot, size, has_bias, seed)
}

/// Cases around every edge: one chunk, uneven tiles, more rows than a block, with and without bias.
fn cases() -> Vec<Case> {
    vec![
        dots([5, 1, 3, 7], false, 1),
        dots([6, 3, 4, 40], true, 2),
        dots([9, 1, 8, 33], true, 3),
        dots([13, 3, 5, 2], false, 4),
        dots([150, 5, 6, 9000], true, 5),
        dots([700, 1, 6, 300], false, 6),
    ]
}

/// Every score with a mixture of sigmoids, and the other cases.
fn cases_of_all_scores() -> Vec<Case> {
    let of_scores = ALL.map(|score| Case::random(score, [6, 2, 6, 40], true, 12));
    cases().into_iter().chain(of_scores).collect()
}

fn fused(case: &Case) -> (f64, FiveGrads) {
    let partial = pass(&case.inputs(), Shortcuts::default(), &Workspace::default());
    (partial.loss, partial.into_grads().into_five())
}

fn thinned(case: &Case, below: f32, seed: u64) -> (f64, FiveGrads, f64) {
    let shortcuts = Shortcuts { thinning: Some(Thinning { below, seed }), ..Shortcuts::default() };
    let partial = pass(&case.inputs(), shortcuts, &Workspace::default());
    let density = partial.work.density().unwrap();
    (partial.loss, partial.into_grads().into_five(), density)
}

#[test]
fn gradients_equal_finite_differences_in_f64() {
    // The two large ones would take minutes.
    for case in cases_of_all_scores().iter().filter(|case| case.shape.queries < 100) {
        let (loss, grads) = fused(case);
        let expected = case.sigmoid_loss(case.wide().each_ref().map(Vec::as_slice));
        assert!((loss - expected).abs() < 2e-6 * loss, "{:?}", case.score);
        assert_slopes(case, &grads, |values| case.sigmoid_loss(values));
    }
}

#[test]
fn split_bf16_products_are_off_by_a_part_of_32768() {
    if !has_amx() {
        return;
    }
    for case in cases() {
        let (loss, grads) = fused(&case);
        let shortcuts = Shortcuts { precision: Precision::SplitBf16, ..Shortcuts::default() };
        let partial = pass(&case.inputs(), shortcuts, &Workspace::default());
        let (found, found_grads) = (partial.loss, partial.into_grads());
        assert!((found - loss).abs() <= 3e-5 * loss.abs(), "{found} and {loss}");
        for (grad, expected) in found_grads.into_five().iter().zip(&grads) {
            let distance = distance(grad, expected);
            // Those of the prior are small differences.
            assert!(distance < 1e-4, "{:?}: {distance}", case.shape);
        }
    }
}

#[test]
fn without_answers_every_object_is_wrong() {
    let mut case = dots([4, 1, 3, 20], false, 8);
    case.answers = BatchAnswers::default();
    case.context.fill(0.0);
    // σ(0) = ½ everywhere.
    let (loss, [context, ..]) = fused(&case);
    assert!((loss - 80.0 * 2_f64.ln()).abs() < 1e-4);
    for (value, grad) in context[..3].iter().enumerate() {
        let sum: f32 = case.objects.iter().skip(value).step_by(3).sum();
        assert!((grad - 0.5 * sum).abs() < 1e-5);
    }
}

#[test]
fn extreme_logits_give_finite_losses_and_gradients() {
    for components in [1, 3] {
        let mut case = dots([8, components, 1, 30], false, 9);
        for (i, x) in case.context.iter_mut().enumerate() {
            *x = if i % 2 == 0 { 80.0 } else { -80.0 };
        }
        for (i, x) in case.objects.iter_mut().enumerate() {
            *x = if i % 3 == 0 { 1.0 } else { -1.0 };
        }
        // One component has all the weight, but for exp(−60).
        case.log_prior.iter_mut().step_by(3).for_each(|x| *x = 60.0);
        let expected = case.sigmoid_loss(case.wide().each_ref().map(Vec::as_slice));
        let (loss, grads) = fused(&case);
        assert!((loss - expected).abs() < 1e-5 * expected, "{loss} and {expected}");
        assert!(grads.iter().flatten().all(|x| x.is_finite()));
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    for components in [1, 4] {
        let case = dots([60, components, 7, 5000], true, 10);
        let on = |threads: usize| on_threads(threads, || fused(&case));
        let one = on(1);
        for threads in [2, 7] {
            assert!(on(threads) == one, "{threads} threads");
        }
    }
}

#[test]
fn thinned_gradients_are_right_on_average() {
    for components in [1, 3] {
        let mut case = dots([40, components, 6, 700], true, 12);
        // Most triples do not hold, and hardly any object is in doubt.
        case.context.iter_mut().for_each(|x| *x *= 3.0);
        case.bias.as_mut().unwrap().iter_mut().for_each(|x| *x -= 8.0);
        let exact = fused(&case);
        // ε times the largest coordinate.
        assert_right_on_average(&exact.1, 0.02 * 3.0, |seed| {
            let (loss, grads, density) = thinned(&case, 0.02, seed);
            assert_eq!(loss, exact.0, "the loss leaves nothing to chance");
            assert!(density < 0.25, "{density}");
            grads
        });
        let on = |threads: usize| on_threads(threads, || thinned(&case, 0.02, 5));
        assert!(on(1) == on(3));
    }
}

#[test]
fn a_broken_weight_reaches_the_loss() {
    for components in [1, 3] {
        let mut case = dots([4, components, 5, 50], false, 11);
        // No query has object 49 as its answer.
        case.answers.objects.iter_mut().for_each(|object| *object %= 49);
        case.objects[49 * 5] = f32::NAN;
        assert!(!fused(&case).0.is_finite());
    }
}
