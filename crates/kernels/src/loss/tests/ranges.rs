//! Objects cut into three uneven ranges, against all of them at once.

use std::ops::Range;

use super::assert_right_on_average;
use crate::loss::samples::{Case, FiveGrads, distance};
use crate::loss::{Grads, Shortcuts, SoftmaxOptions, Thinning, sigmoid, softmax};
use crate::pair_score::PairScore;
use crate::pair_score::samples::ALL;

const ENTITIES: usize = 2000;
/// Of less than a tile, of tiles of another width than those of the others, and of the rest.
const RANGES: [Range<usize>; 3] = [0..17, 17..1301, 1301..ENTITIES];
/// Sums of f32 in another order.
const ROUNDING: f64 = 1e-6;

fn case(score: PairScore, components: usize) -> Case {
    let case = Case::random(score, [400, components, 6, ENTITIES], true, 21);
    let objects = &case.answers.objects;
    let of =
        |range: &Range<usize>| objects.iter().filter(|x| range.contains(&(**x as usize))).count();
    assert!(RANGES.iter().all(|range| of(range) > 0), "answers in all ranges");
    // A query with one answer has none in two of them.
    assert!(case.answers.queries.contains(&1) && !case.answers.queries.contains(&0));
    case.with_normalised_prior()
}

/// Sharp enough that few entries matter.
fn sharp(components: usize) -> Case {
    let mut case = case(PairScore::Dot, components);
    case.context.iter_mut().for_each(|x| *x *= 6.0);
    case
}

/// Loss and gradients of softmaxes, by parts on machines of their own.
fn softmax(case: &Case, options: SoftmaxOptions, ranges: &[Range<usize>]) -> (f64, FiveGrads) {
    let inputs: Vec<_> = ranges.iter().map(|range| case.inputs_of(range.clone())).collect();
    let workspaces = ranges.iter().map(|_| softmax::Workspace::new(1 << 20));
    let workspaces: Vec<_> = workspaces.collect();
    let pairs = || inputs.iter().zip(&workspaces);
    let forward = pairs().map(|(inputs, workspace)| softmax::forward(inputs, options, workspace));
    let (partials, saved): (Vec<_>, Vec<_>) = forward.unzip();
    let merged = partials.into_iter().reduce(softmax::Partial::merge).unwrap();
    // Whichever part it is that makes the loss.
    let last = inputs.last().unwrap();
    let finished = softmax::finish(merged, last, options.smoothing);
    let grads = pairs().zip(saved).map(|((inputs, workspace), mut saved)| {
        softmax::backward(inputs, &mut saved, &finished, 0.5, workspace).0
    });
    let logits = grads.reduce(crate::tiles::LogitGrads::merge).unwrap();
    let grads = Grads { log_prior: finished.grad_log_prior(0.5), logits };
    (finished.loss, grads.into_five())
}

fn sigmoid(case: &Case, shortcuts: Shortcuts, ranges: &[Range<usize>]) -> (f64, FiveGrads) {
    let of_part = |range: &Range<usize>| {
        let workspace = sigmoid::Workspace::default();
        sigmoid::pass(&case.inputs_of(range.clone()), shortcuts, &workspace)
    };
    let merged = ranges.iter().map(of_part).reduce(sigmoid::Partial::merge).unwrap();
    (merged.loss, merged.into_grads().into_five())
}

fn all() -> [Range<usize>; 1] {
    std::array::from_fn(|_| 0..ENTITIES)
}

fn assert_same((loss, grads): (f64, FiveGrads), (expected, of_all): (f64, FiveGrads)) {
    assert!((loss - expected).abs() <= ROUNDING * expected.abs(), "{loss}, not {expected}");
    for (which, (found, expected)) in grads.iter().zip(&of_all).enumerate() {
        // What a score has learned has a sum over all pairs, much of which cancels.
        let most = if which == 4 { 4.0 * ROUNDING } else { ROUNDING };
        let distance = distance(found, expected);
        assert!(distance <= most, "gradient {which}: {distance}");
    }
}

fn thinned(below: f32, seed: u64) -> Shortcuts {
    Shortcuts { thinning: Some(Thinning { below, seed }), ..Shortcuts::default() }
}

#[test]
fn softmax_losses_and_gradients_of_parts_add_up_to_those_of_all_objects() {
    for score in ALL {
        for components in [1, 3] {
            let case = case(score, components);
            let options = SoftmaxOptions::default();
            assert_same(softmax(&case, options, &RANGES), softmax(&case, options, &all()));
        }
    }
}

#[test]
fn smoothing_over_parts_is_smoothing_over_all_objects() {
    let case = case(PairScore::Dot, 1);
    let options = SoftmaxOptions { smoothing: 0.2, ..SoftmaxOptions::default() };
    assert_same(softmax(&case, options, &RANGES), softmax(&case, options, &all()));
}

#[test]
fn sigmoid_losses_and_gradients_of_parts_add_up_to_those_of_all_objects() {
    for score in ALL {
        for components in [1, 3] {
            let case = case(score, components);
            let shortcuts = Shortcuts::default();
            assert_same(sigmoid(&case, shortcuts, &RANGES), sigmoid(&case, shortcuts, &all()));
        }
    }
}

#[test]
fn parts_may_be_merged_in_any_grouping() {
    let case = case(PairScore::Dot, 3);
    let partial = |range: &Range<usize>| {
        let workspace = softmax::Workspace::new(0);
        let inputs = case.inputs_of(range.clone());
        softmax::forward(&inputs, SoftmaxOptions::default(), &workspace).0
    };
    let [a, b, c] = RANGES.each_ref().map(partial);
    let left = a.clone().merge(b.clone()).merge(c.clone());
    let right = a.merge(b.merge(c));
    let loss = |partial| softmax::finish(partial, &case.inputs(), 0.0).loss;
    let (left, right) = (loss(left), loss(right));
    assert!((left - right).abs() <= ROUNDING * right.abs());
}

#[test]
fn a_part_without_objects_changes_nothing() {
    let case = case(PairScore::Dot, 3);
    let options = SoftmaxOptions::default();
    let ranges = [0..0, 0..ENTITIES, ENTITIES..ENTITIES];
    assert_eq!(softmax(&case, options, &ranges), softmax(&case, options, &all()));
    let shortcuts = Shortcuts::default();
    assert_eq!(sigmoid(&case, shortcuts, &ranges), sigmoid(&case, shortcuts, &all()));
}

/// What is below the threshold adds nothing that a float could tell, so that it does not matter which
/// of it is drawn: another cut is another draw.
#[test]
fn what_thinning_takes_as_it_is_adds_up() {
    for components in [1, 3] {
        let case = sharp(components);
        let shortcuts = thinned(1e-9, 3);
        let options = SoftmaxOptions { smoothing: 0.0, shortcuts };
        assert_same(softmax(&case, options, &RANGES), softmax(&case, options, &all()));
        assert_same(sigmoid(&case, shortcuts, &RANGES), sigmoid(&case, shortcuts, &all()));
    }
}

#[test]
fn thinned_parts_are_right_on_average() {
    let mut case = Case::random(PairScore::Dot, [40, 3, 6, 700], true, 22).with_normalised_prior();
    case.context.iter_mut().for_each(|x| *x *= 6.0);
    let (ranges, whole) = ([0..17, 17..500, 500..700], [0..700; 1]);
    let exact = softmax(&case, SoftmaxOptions::default(), &whole);
    // ε times the largest coordinate and the scale.
    assert_right_on_average(&exact.1, 0.02 * 6.0 * 0.5, |seed| {
        let options = SoftmaxOptions { smoothing: 0.0, shortcuts: thinned(0.02, seed) };
        let (loss, grads) = softmax(&case, options, &ranges);
        let off = (loss - exact.0).abs();
        assert!(off <= ROUNDING * exact.0, "the loss leaves nothing to chance");
        grads
    });
}

#[test]
#[should_panic(expected = "answers found in all parts together")]
fn a_loss_without_the_part_of_some_answers_is_refused() {
    softmax(&case(PairScore::Dot, 1), SoftmaxOptions::default(), &RANGES[..2]);
}
