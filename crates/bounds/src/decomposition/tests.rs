//! Do polynomials have the signs of the matrix, and are wrong ones found?

use proptest::prelude::*;

use super::*;
use crate::count_blocks;

fn matrix() -> AnswerMatrix {
    // Two queries have the first row.
    AnswerMatrix::from_rows(6, vec![vec![0, 2, 3], vec![0, 2, 3], vec![1, 2], vec![5]])
}

fn decomposition() -> Decomposition {
    Decomposition::of(&matrix(), &[0, 1, 2, 3, 4, 5])
}

/// Both ways of verifying find the same fault.
fn check_mismatch(decomposition: &Decomposition, expected: Mismatch) {
    assert_eq!(decomposition.verify(&matrix()), Err(expected));
    assert_eq!(decomposition.verify_by_product(&matrix()), Err(expected));
}

#[test]
fn roots_and_coefficients_are_those_worked_out_by_hand() {
    let decomposition = decomposition();
    // + − + + − −
    let first = decomposition.row(0);
    assert_eq!(first, Polynomial { roots: &[0, 1, 3], leading_sign: Sign::Minus });
    // − + + − − −
    assert_eq!(decomposition.row(1).roots, [0, 2]);
    // − − − − − +
    let last = decomposition.row(2);
    assert_eq!(last, Polynomial { roots: &[4], leading_sign: Sign::Plus });
    // Objects are at −6, −4, …, 4 and roots at −5, −3 and 1:
    // −(x + 5)(x + 3)(x − 1) = 15 − 7x − 7x² − x³.
    assert_eq!(decomposition.coefficients(0), [15, -7, -7, -1].map(BigInt::from));
    // 15 takes four bits; the second row has (x + 5)(x + 1), the third x − 3.
    let verified = Verified { n_rows: 3, n_queries: 4, n_objects: 6, degree: 3 };
    assert_eq!(decomposition.verify(&matrix()), Ok(verified));
    let product = VerifiedProduct { verified, matrix_rank: 4, coefficient_bits: 4 };
    assert_eq!(decomposition.verify_by_product(&matrix()), Ok(product));
    // 4 + 3 + 2 coefficients.
    let size = decomposition.product_size();
    assert_eq!((size.matrix_rank, size.multiply_adds), (4, 9 * 6));
    assert!(size.is_small());
}

#[test]
fn a_row_that_all_objects_answer_has_no_root() {
    let matrix = AnswerMatrix::from_rows(3, vec![vec![0, 1, 2]]);
    let decomposition = Decomposition::of(&matrix, &[2, 0, 1]);
    assert_eq!(decomposition.row(0), Polynomial { roots: &[], leading_sign: Sign::Plus });
    assert_eq!(decomposition.verify(&matrix).unwrap().degree, 0);
    assert_eq!(decomposition.verify_by_product(&matrix).unwrap().matrix_rank, 1);
}

#[test]
fn a_root_that_was_moved_is_found() {
    let mut decomposition = decomposition();
    // The last root of the first row, so that object 4 looks like an answer.
    decomposition.rows.roots[2] = 4;
    check_mismatch(&decomposition, Mismatch { row: 0, object: 4, expected: Sign::Minus });
    // And the first one, so that object 1 does, which comes earlier.
    decomposition.rows.roots[0] = 1;
    check_mismatch(&decomposition, Mismatch { row: 0, object: 1, expected: Sign::Minus });
}

#[test]
fn an_interval_of_the_right_length_at_the_wrong_objects_is_found() {
    let mut decomposition = decomposition();
    // The second row, at objects 2 and 3 in place of 1 and 2.
    decomposition.rows.roots[3..5].copy_from_slice(&[1, 3]);
    check_mismatch(&decomposition, Mismatch { row: 1, object: 1, expected: Sign::Plus });
}

#[test]
fn a_leading_sign_that_was_turned_is_found() {
    let mut decomposition = decomposition();
    decomposition.rows.leading_signs[2] = Sign::Minus;
    let mismatch = Mismatch { row: 2, object: 0, expected: Sign::Minus };
    check_mismatch(&decomposition, mismatch);
    let message = "row 2: expected − at object 0, found another sign";
    assert_eq!(mismatch.to_string(), message);
}

/// Rows and an order of as many objects.
fn rows_and_order() -> impl Strategy<Value = (Vec<Vec<u32>>, Vec<u32>)> {
    (1..20_u32).prop_flat_map(|n_objects| {
        let objects: Vec<u32> = (0..n_objects).collect();
        let row = proptest::sample::subsequence(objects.clone(), 0..=n_objects as usize);
        (proptest::collection::vec(row, 0..12), Just(objects).prop_shuffle())
    })
}

proptest! {
    #[test]
    fn every_matrix_has_the_signs_of_its_decomposition((rows, order) in rows_and_order()) {
        let matrix = AnswerMatrix::from_rows(order.len(), rows);
        let decomposition = Decomposition::of(&matrix, &order);
        let verified = decomposition.verify(&matrix).unwrap();
        prop_assert_eq!(verified.degree, count_blocks(&matrix, &order).kappa);
        let product = decomposition.verify_by_product(&matrix).unwrap();
        prop_assert_eq!(product.verified, verified);
        prop_assert_eq!(product.matrix_rank, verified.degree + 1);
    }

    #[test]
    fn no_other_matrix_has_them((rows, order) in rows_and_order(), object in 0..20_u32) {
        // One row alone, because rows with an answer more or less may change their places.
        let Some(mut other) = rows.into_iter().find(|row| !row.is_empty()) else { return Ok(()) };
        let matrix = AnswerMatrix::from_rows(order.len(), vec![other.clone()]);
        let object = object % order.len() as u32;
        match other.binary_search(&object) {
            Ok(at) => _ = other.remove(at),
            Err(at) => other.insert(at, object),
        }
        prop_assume!(!other.is_empty());
        let other = AnswerMatrix::from_rows(order.len(), vec![other]);
        let decomposition = Decomposition::of(&matrix, &order);
        let mismatch = decomposition.verify(&other).unwrap_err();
        prop_assert_eq!((mismatch.row, mismatch.object), (0, object));
        prop_assert_eq!(decomposition.verify_by_product(&other), Err(mismatch));
    }
}
