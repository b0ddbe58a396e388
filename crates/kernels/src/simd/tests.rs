use super::instructions::{on_each, with_each};
use super::*;
use crate::pair_score::samples::draw;

#[test]
fn exp_and_ln_are_right_to_the_last_digits() {
    on_each(|| {
        for i in -8600..100 {
            let x = i as f32 * 0.01;
            let mut found = [x];
            scaled_exp(&mut found, 0.0, 1.0, 0.0);
            let expected = f64::from(x).exp();
            assert!((f64::from(found[0]) / expected - 1.0).abs() < 2e-7, "exp({x}) = {}", found[0]);
        }
        for i in 1..5000 {
            let x = i as f32 * 0.1;
            let expected = f64::from(x).ln();
            let mut found = [0.0];
            assert!(log_mixture(&mut found, &[x], &[1.0]));
            let found = f64::from(found[0]);
            assert!(
                (found - expected).abs() <= 1.5e-7 * expected.abs().max(1.0),
                "ln({x}) = {found}"
            );
        }
    });
}

#[test]
fn loops_equal_plain_ones_at_every_length() {
    on_each(|| {
        for n in [0, 1, 15, 16, 17, 100] {
            let row: Vec<f32> = (0..n).map(|i| (i as f32 * 0.7).sin() * 3.0).collect();
            let wide = || row.iter().map(|x| f64::from(*x));
            let sum: f64 = wide().map(|x| (x - 1.0).exp()).sum();
            let close = |a: f32, b: f64| (f64::from(a) - b).abs() <= 1e-5 * (1.0 + b.abs());
            assert_eq!(maximum(&row), row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            assert!(close(sum_of_exp(&row, 1.0), sum));
            let mut copy = row.clone();
            assert!(close(exp_and_sum(&mut copy, 1.0), sum));
            assert!(copy.iter().zip(wide()).all(|(a, x)| close(*a, (x - 1.0).exp())));
            let mut products = [0.0; 4];
            let both = [row.clone(), copy.clone()].concat();
            dots(&mut products, &both, &both, n.max(1));
            let [a, b, c, d] = products;
            assert!(n == 0 || [a, b, c, d] == [dot(&row, &row), b, b, dot(&copy, &copy)]);
            assert!(n == 0 || (b, c) == (dot(&row, &copy), dot(&row, &copy)));
            assert!(close(dot(&row, &copy), wide().map(|x| x * (x - 1.0).exp()).sum()));
            let mut out = vec![0.0; n];
            log_sum_exp(&mut out, &both, &[(0.5, 1.0), (60.0, 0.0)]);
            for ((out, x), y) in out.iter().zip(wide()).zip(&copy) {
                assert!(close(*out, ((x + 0.5).exp() + (f64::from(*y) - 60.0).exp()).ln()));
            }
            let mut exps = both.clone();
            exp_and_sum(&mut exps, 0.0);
            assert!(log_mixture(&mut out, &exps, &[0.3, 2.0]));
            for ((out, x), y) in out.iter().zip(wide()).zip(&copy) {
                assert!(close(*out, (0.3 * x.exp() + 2.0 * f64::from(*y).exp()).ln()));
            }
            assert_eq!(log_mixture(&mut out, &exps, &[1e-37, 1e-38]), n == 0, "too small");
        }
    });
}

/// The same bits with AVX2 and AVX-512, which round alike; nearly the same from the scalar twin.
fn assert_agree(name: &str, run: impl Fn() -> Vec<f32>) {
    let [baseline, avx2, avx512] = with_each(run);
    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    assert!(bits(&avx2) == bits(&avx512), "{name}");
    for (scalar, vector) in baseline.iter().zip(&avx512) {
        // Sums of some hundred numbers under ten, with one rounding or two for each.
        let off = (scalar - vector).abs();
        assert!(off <= 1e-5 * (1.0 + vector.abs()), "{name}: {scalar}, {vector}");
    }
}

#[test]
fn every_loop_over_a_row_agrees_with_its_scalar_twin() {
    for n in [1, 2, 15, 16, 17, 34, 100] {
        let (a, b, c) = (draw(n, 1), draw(n, 2), draw(n, 3));
        let rows = [&a[..], &b[..]].concat();
        let changed = |change: &dyn Fn(&mut [f32])| {
            let mut row = a.clone();
            change(&mut row);
            row
        };
        assert_agree("maximum", || vec![maximum(&a)]);
        assert_agree("exp_and_sum", || {
            let mut row = a.clone();
            let sum = exp_and_sum(&mut row, 0.5);
            [row, vec![sum]].concat()
        });
        assert_agree("sum_of_exp", || vec![sum_of_exp(&a, 0.5)]);
        assert_agree("scaled_exp", || changed(&|row| scaled_exp(row, 0.5, 2.0, 0.1)));
        assert_agree("scale", || changed(&|row| scale(row, 2.0, 0.1)));
        assert_agree("multiply", || changed(&|row| multiply(row, &b)));
        assert_agree("add", || changed(&|row| add(row, &b)));
        assert_agree("add_scaled", || changed(&|row| add_scaled(row, 0.3, &b)));
        assert_agree("add_product", || changed(&|row| add_product(row, 0.3, &b, &c)));
        if n % 2 == 0 {
            assert_agree("complex", || changed(&|row| add_complex_product(row, 0.3, &b, &c)));
            assert_agree("conjugate", || changed(&|row| add_conjugate_product(row, 0.3, &b, &c)));
        }
        assert_agree("count_above", || {
            let (above, equal) = count_above(&a, a[0]);
            vec![above as f32, equal as f32]
        });
        assert_agree("dot", || vec![dot(&a, &b)]);
        assert_agree("dots", || {
            let mut out = vec![0.0; 4];
            dots(&mut out, &rows, &rows, n);
            out
        });
        assert_agree("log_mixture", || {
            let exps: Vec<f32> = rows.iter().map(|x| x.exp()).collect();
            let mut out = vec![0.0; n];
            assert!(log_mixture(&mut out, &exps, &[0.3, 0.7]));
            out
        });
        assert_agree("log_sum_exp", || {
            let mut out = vec![0.0; n];
            log_sum_exp(&mut out, &rows, &[(0.5, 1.0), (2.0, 0.0)]);
            out
        });
    }
}
