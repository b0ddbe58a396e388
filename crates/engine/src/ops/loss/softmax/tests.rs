//! The fused loss against an f64 loop, finite differences and plain tensor operations.

use super::super::tests::{Case, Five, FiveGrads, assert_right_on_average, distance, on_threads};
use super::*;
use crate::ops::score::tests::ALL;
use crate::ops::{Products, Shape};

/// Logits of several components are mixed with priors that sum to one.
fn case(score: PairScore, size: [usize; 4], has_bias: bool, seed: u64) -> Case {
    let mut case = Case::random(score, size, has_bias, seed);
    for row in case.log_prior.chunks_exact_mut(case.shape.components) {
        let sum: f32 = row.iter().map(|x| x.exp()).sum();
        row.iter_mut().for_each(|x| *x -= sum.ln());
    }
    case
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

/// The loss by the formula, in f64, one logit at a time.
fn plain_loss(case: &Case, smoothing: f32, values: Five) -> f64 {
    let Shape { components, entities, .. } = case.shape;
    let [_, log_prior, ..] = values;
    let log_probs = |query: usize| -> Vec<f64> {
        let mut mixed = vec![0.0; entities];
        let rows = query * components..(query + 1) * components;
        for (row, log_prior) in rows.clone().zip(&log_prior[rows]) {
            let logits: Vec<f64> =
                (0..entities).map(|object| case.plain_logit(values, row, object)).collect();
            let sum: f64 = logits.iter().map(|z| z.exp()).sum();
            for (mixed, z) in mixed.iter_mut().zip(&logits) {
                *mixed += (log_prior + z).exp() / sum;
            }
        }
        mixed.into_iter().map(f64::ln).collect()
    };
    let mut loss = 0.0;
    for i in 0..case.answers.len() {
        let log_probs = log_probs(case.answers.query(i));
        let mean = log_probs.iter().sum::<f64>() / entities as f64;
        let at = log_probs[case.answers.objects[i] as usize];
        let smoothing = f64::from(smoothing);
        let weight = f64::from(case.answers.weights[i]);
        loss -= weight * ((1.0 - smoothing) * at + smoothing * mean);
    }
    loss
}

/// Loss and gradients by the fused kernel, scaled by `scale`.
fn fused(case: &Case, smoothing: f32, kept_bytes: usize, scale: f32) -> (f64, FiveGrads) {
    with_options(case, Options { smoothing, ..Options::default() }, kept_bytes, scale).0
}

/// The same with all options, and the share of entries that were multiplied.
fn with_options(
    case: &Case,
    options: Options,
    kept_bytes: usize,
    scale: f32,
) -> ((f64, FiveGrads), f64) {
    let mut workspace = Workspace::new(kept_bytes);
    let (loss, saved) = forward(&case.inputs(), options, &mut workspace);
    let grads = backward(&case.inputs(), &saved, scale, &mut workspace).into_five();
    ((loss, grads), workspace.take_work().density().unwrap())
}

fn thinned(case: &Case, below: f32, seed: u64, kept_bytes: usize) -> ((f64, FiveGrads), f64) {
    let thinning = Some(Thinning { below, seed });
    with_options(case, shortcuts(thinning, Products::Whole), kept_bytes, 0.5)
}

fn shortcuts(thinning: Option<Thinning>, products: Products) -> Options {
    Options { smoothing: 0.0, shortcuts: Shortcuts { thinning, products } }
}

/// Sharp enough that few entries matter.
fn sharp(size: [usize; 4], has_bias: bool, seed: u64) -> Case {
    let mut case = dots(size, has_bias, seed);
    case.context.iter_mut().for_each(|x| *x *= 6.0);
    case
}

#[test]
fn fused_equals_plain_tensor_operations() {
    for (case, smoothing) in cases_of_all_scores() {
        let (expected, expected_grads) =
            case.by_tensors(|input| reference(input, &case.answers, smoothing));
        for kept_bytes in [0, 1 << 20, usize::MAX / 2] {
            let (loss, grads) = fused(&case, smoothing, kept_bytes, 1.0);
            assert!((loss - expected).abs() <= 1e-5 * expected.abs(), "{loss} and {expected}");
            for (grad, expected) in grads.iter().zip(&expected_grads) {
                let distance = distance(grad, expected);
                assert!(distance < 1e-5, "{:?}, {:?}: {distance}", case.score, case.shape);
            }
        }
    }
}

#[test]
fn gradients_equal_finite_differences_in_f64() {
    // The two large ones would take minutes.
    for (case, smoothing) in
        cases_of_all_scores().iter().filter(|(case, _)| case.shape.queries < 100)
    {
        let (loss, grads) = fused(case, *smoothing, 0, 1.0);
        let values = case.wide();
        let expected = plain_loss(case, *smoothing, values.each_ref().map(Vec::as_slice));
        assert!((loss - expected).abs() < 1e-5 * loss.abs());
        case.assert_slopes(&grads, |values| plain_loss(case, *smoothing, values));
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
fn what_is_taken_does_not_depend_on_what_is_kept() {
    for size in [[40, 3, 6, 700], [600, 1, 9, 9000]] {
        let case = sharp(size, true, 15);
        let (expected, density) = thinned(&case, 0.02, 7, 0);
        assert!(density < 0.25, "{density}");
        // Room for nothing, for some entries, and for all.
        for kept_bytes in [1 << 16, 1 << 18, 1 << 30] {
            let (found, again) = thinned(&case, 0.02, 7, kept_bytes);
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
fn products_of_halves_are_off_by_a_part_of_32768() {
    if !crate::ops::bf16::tests::is_there() {
        return;
    }
    for (case, smoothing) in cases() {
        let (loss, grads) = fused(&case, smoothing, 0, 0.5);
        for kept_bytes in [0, 1 << 18, usize::MAX / 2] {
            let run = |thinning| {
                let options = Options { smoothing, ..shortcuts(thinning, Products::Halves) };
                with_options(&case, options, kept_bytes, 0.5).0
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
fn a_workspace_used_by_another_pass_in_between_does_no_harm() {
    let case = dots([20, 2, 7, 500], false, 9);
    let mut workspace = Workspace::new(1 << 20);
    let (_, saved) = forward(&case.inputs(), Options::default(), &mut workspace);
    forward(&dots([3, 4, 5, 900], false, 10).inputs(), Options::default(), &mut workspace);
    let first = backward(&case.inputs(), &saved, 1.0, &mut workspace);
    let again = backward(&case.inputs(), &saved, 1.0, &mut workspace);
    let [context, _, objects, ..] = fused(&case, 0.0, 0, 1.0).1;
    for grads in [first, again] {
        assert!(distance(&grads.objects, &objects) < 1e-6);
        assert!(distance(&grads.context, &context) < 1e-6);
    }
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
