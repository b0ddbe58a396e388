//! Fused log-probabilities against an f64 loop, and those of ranges against those of all objects.

use std::ops::Range;

use super::*;
use crate::loss::samples::Case;
use crate::pair_score::PairScore;
use crate::pair_score::samples::ALL;
use crate::split_bf16;

fn case(score: PairScore, size: [usize; 4], has_bias: bool, seed: u64) -> Case {
    Case::random(score, size, has_bias, seed).with_normalised_prior()
}

/// Over a range of objects.
fn inputs(case: &Case, probability: Probability, objects: Range<usize>) -> Inputs<'_> {
    let inputs = case.inputs_of(objects);
    Inputs { logits: inputs.logits, log_prior: inputs.log_prior, probability }
}

/// Row after row; every row is mapped at its own place.
fn rows(case: &Case, probability: Probability, precision: Precision) -> Vec<f32> {
    let inputs = inputs(case, probability, case.shape.objects.clone());
    let rows = map(&inputs, precision, |place, row| (place, row.to_vec()));
    assert!(rows.iter().enumerate().all(|(i, (place, _))| i == *place));
    rows.into_iter().flat_map(|(_, row)| row).collect()
}

const BOTH: [Probability; 2] = [Probability::Softmax, Probability::Sigmoid];

#[test]
fn fused_equals_the_formula_and_those_of_a_softmax_sum_to_one() {
    // Fewer and more queries than a block, fewer and more objects than a tile.
    let sizes = [[1, 1, 6, 3], [200, 1, 6, 50], [70, 4, 6, 33], [3, 2, 6, 2000], [150, 2, 6, 1100]];
    for (score, size) in ALL.into_iter().flat_map(|score| sizes.map(|size| (score, size))) {
        let case = case(score, size, size[0] > 1, 3);
        let found = rows(&case, Probability::Softmax, Precision::F32);
        let values = case.wide();
        for (query, row) in found.chunks_exact(size[3]).enumerate() {
            let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            // Some of the rows, as the formula takes its time.
            if query % 29 == 0 {
                let plain = case.log_probs(values.each_ref().map(Vec::as_slice), query);
                for (found, plain) in row.iter().zip(plain) {
                    let off = (f64::from(*found) - plain).abs();
                    assert!(off < 2e-5 * plain.abs().max(1.0), "{score:?}: {found} {plain}");
                }
            }
        }
    }
}

#[test]
fn parts_merge_to_what_all_objects_give() {
    // A part of less than a tile, and others that tiles cut elsewhere.
    let ranges = [0..17, 17..1301, 1301..2000];
    for components in [1, 3] {
        let case = case(PairScore::Dot, [40, components, 6, 2000], true, 4);
        for probability in BOTH {
            let expected = rows(&case, probability, Precision::F32);
            let of_ranges =
                ranges.each_ref().map(|range| inputs(&case, probability, range.clone()));
            let parts = of_ranges.each_ref().map(Part::of);
            let mut sums = vec![LogSum::EMPTY; case.shape.rows()];
            for part in &parts {
                for (sum, of_part) in sums.iter_mut().zip(part.sums()) {
                    *sum = sum.merge(of_part);
                }
            }
            for (range, part) in ranges.iter().zip(&parts) {
                let found = part.log_probs(&sums);
                for (query, row) in found.chunks_exact(range.len()).enumerate() {
                    let expected = &expected[query * 2000..][range.clone()];
                    for (found, expected) in row.iter().zip(expected) {
                        let off = (found - expected).abs();
                        assert!(off <= 1e-6 * expected.abs().max(1.0), "{found} {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits_and_no_queries_give_no_rows() {
    for (components, probability) in [1, 2].into_iter().flat_map(|k| BOTH.map(|kind| (k, kind))) {
        let at = |threads: usize, queries: usize| {
            let case = case(PairScore::Dot, [queries, components, 8, 700], true, 5);
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| rows(&case, probability, Precision::F32))
        };
        assert!(at(2, 0).is_empty());
        let found = at(1, 300);
        assert!([2, 5].iter().all(|threads| at(*threads, 300) == found));
    }
}

#[test]
fn split_bf16_products_are_nearly_the_same() {
    if !split_bf16::is_available() {
        return;
    }
    for (components, has_bias) in [(1, true), (2, false)] {
        let case = case(PairScore::Dot, [300, components, 40, 1100], has_bias, 6);
        for probability in BOTH {
            let [in_f32, split] = [Precision::F32, Precision::SplitBf16]
                .map(|precision| rows(&case, probability, precision));
            for (in_f32, split) in in_f32.iter().zip(&split) {
                // Forty terms of at most one, each off by 2⁻¹⁶ at most.
                assert!((in_f32 - split).abs() < 1e-3, "{in_f32} {split}");
            }
        }
    }
}

#[test]
fn what_is_next_to_impossible_keeps_its_digits_and_nan_stays() {
    // Two components that agree: object 1 is e^200 times as unlikely as object 0.
    let found = |objects: [f32; 3]| {
        let mut case = case(PairScore::Dot, [1, 2, 1, 3], false, 7);
        (case.context, case.objects) = (vec![1.0, 1.0], objects.to_vec());
        case.log_prior.fill(0.5_f32.ln());
        rows(&case, Probability::Softmax, Precision::F32)
    };
    let close = |a: f32, b: f32| (a - b).abs() < 1e-4;
    let [first, second, third] = found([0.0, -200.0, -1000.0])[..] else { panic!() };
    assert!(close(first, 0.0) && close(second, -200.0) && close(third, -1000.0));
    assert!(found([0.0, f32::NAN, 1.0]).iter().any(|x| x.is_nan()));
}
