//! Are the claims ever larger than the truth, and is every fault found?

mod oracle;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;

const QUICK: SignRankEffort = SignRankEffort { beam: 16, weightings: 40 };

fn bounds(matrix: &AnswerMatrix) -> Vec<Certificate> {
    sign_rank_lower_bound(matrix, QUICK)
}

fn best(matrix: &AnswerMatrix) -> usize {
    bounds(matrix)[0].lower_bound
}

fn from_signs(signs: &[Vec<bool>]) -> AnswerMatrix {
    let positive = |row: &Vec<bool>| (0..).zip(row).filter(|it| *it.1).map(|it| it.0).collect();
    AnswerMatrix::from_rows(signs[0].len(), signs.iter().map(positive).collect())
}

/// The rows that the matrix kept: distinct, and not empty.
fn to_signs(matrix: &AnswerMatrix) -> Vec<Vec<bool>> {
    let sign = |row: usize, column: u32| matrix.row(row).contains(&column);
    let row = |row| (0..matrix.n_columns() as u32).map(|column| sign(row, column)).collect();
    (0..matrix.n_rows()).map(row).collect()
}

fn random(n_rows: usize, n_columns: usize, share: f64, rng: &mut ChaCha8Rng) -> AnswerMatrix {
    let mut row = || (0..n_columns).map(|_| rng.random_bool(share)).collect();
    from_signs(&(0..n_rows).map(|_| row()).collect::<Vec<_>>())
}

/// Sylvester's matrix of orthogonal rows.
fn hadamard(n: u32) -> AnswerMatrix {
    let row = |i: u32| (0..n).map(|j| (i & j).count_ones().is_multiple_of(2)).collect();
    from_signs(&(0..n).map(row).collect::<Vec<_>>())
}

/// All patterns on k columns; the empty one is dropped, but its complement is there.
fn all_patterns(k: u32) -> AnswerMatrix {
    let row = |bits: u32| (0..k).map(|column| bits >> column & 1 == 1).collect();
    from_signs(&(0..1 << k).map(row).collect::<Vec<_>>())
}

fn find(matrix: &AnswerMatrix, is_kind: impl Fn(&Argument) -> bool) -> Certificate {
    bounds(matrix).into_iter().find(|it| is_kind(&it.argument)).unwrap()
}

fn spectral(matrix: &AnswerMatrix) -> Certificate {
    find(matrix, |it| matches!(it, Argument::Spectral { .. }))
}

fn shattered(matrix: &AnswerMatrix) -> Certificate {
    find(matrix, |it| matches!(it, Argument::Shattered { .. }))
}

fn patterns(matrix: &AnswerMatrix) -> Certificate {
    find(matrix, |it| matches!(it, Argument::Patterns { .. }))
}

#[test]
fn no_claim_is_above_the_sign_rank_of_small_matrices() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut n_by_rank = [0; 6];
    for _ in 0..150 {
        let (n_rows, n_columns) = (rng.random_range(1..=5), rng.random_range(1..=5));
        let matrix = random(n_rows, n_columns, 0.5, &mut rng);
        if matrix.n_rows() == 0 {
            continue;
        }
        let signs = to_signs(&matrix);
        let upper_bound = oracle::sign_rank_at_most(&signs, &mut rng);
        n_by_rank[upper_bound] += 1;
        for certificate in bounds(&matrix) {
            assert!(certificate.lower_bound <= upper_bound, "{signs:?} {certificate:?}");
        }
    }
    // The test would be empty if the oracle always said 5.
    assert!(n_by_rank[1] > 0 && n_by_rank[2] > 0 && n_by_rank[3] > 0, "{n_by_rank:?}");
}

#[test]
fn no_claim_is_above_the_matrix_rank_that_made_the_signs() {
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    for dim in [2, 3, 4] {
        let mut vector = || (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f64>>();
        let columns: Vec<_> = (0..60).map(|_| vector()).collect();
        let rows: Vec<_> = (0..80).map(|_| vector()).collect();
        let sign = |row: &[f64], column: &[f64]| oracle::dot(row, column) > 0.0;
        let signs: Vec<Vec<bool>> = rows
            .iter()
            .map(|row| columns.iter().map(|column| sign(row, column)).collect())
            .collect();
        // Many vectors leave so many traces of their dimension that patterns find all of it.
        assert_eq!(best(&from_signs(&signs)), dim);
    }
}

#[test]
fn orthogonal_rows_prove_the_root_of_their_number() {
    // Forster 2002: ‖A‖ = √n.
    assert_eq!(spectral(&hadamard(16)).lower_bound, 4);
    assert_eq!(spectral(&hadamard(64)).lower_bound, 8);
}

#[test]
fn weights_find_orthogonal_rows_among_others() {
    let mut signs = to_signs(&hadamard(64));
    // Rows that are nearly equal carry the norm under equal weights.
    let nearly_equal = |i: usize| (0..64).map(|j| j < 32 || j == 32 + i).collect();
    signs.extend((0..30).map(nearly_equal));
    let matrix = from_signs(&signs);
    let at_first = SignRankEffort { beam: 1, weightings: 0 };
    let is_spectral = |it: &&Certificate| matches!(it.argument, Argument::Spectral { .. });
    let uniform = sign_rank_lower_bound(&matrix, at_first);
    let uniform = uniform.iter().find(is_spectral).unwrap().lower_bound;
    assert!(uniform < 4, "{uniform}");
    assert!(spectral(&matrix).lower_bound >= 7, "{}", spectral(&matrix).lower_bound);
}

#[test]
fn the_identity_has_sign_rank_three() {
    // Points on a parabola, each cut off by a line; two dimensions show 2n of the 2n + 2 patterns.
    for n in [4, 8, 20] {
        let matrix = AnswerMatrix::from_rows(n, (0..n as u32).map(|i| vec![i]).collect());
        assert_eq!(best(&matrix), 3);
    }
}

#[test]
fn all_patterns_on_k_columns_need_k_dimensions() {
    for k in 1..=7 {
        let matrix = all_patterns(k);
        assert_eq!(best(&matrix), k as usize);
        assert_eq!(shattered(&matrix).lower_bound, k as usize);
    }
}

#[test]
fn nested_rows_need_two_dimensions_however_many() {
    let matrix = AnswerMatrix::from_rows(140, (1..140).map(|n| (0..n).collect()).collect());
    assert_eq!(best(&matrix), 2);
}

#[test]
fn any_row_proves_one_dimension_and_no_row_nothing() {
    assert_eq!(best(&AnswerMatrix::from_rows(1, vec![vec![0]])), 1);
    assert_eq!(best(&AnswerMatrix::from_rows(3, vec![vec![0, 1]])), 1);
    assert_eq!(best(&AnswerMatrix::from_rows(3, vec![vec![0], vec![1, 2]])), 1);
    assert_eq!(best(&AnswerMatrix::from_rows(3, vec![vec![0], vec![1]])), 2);
    assert_eq!(bounds(&AnswerMatrix::from_rows(3, vec![])), vec![]);
}

#[test]
fn the_best_of_each_argument_comes_once_and_the_same_each_time() {
    let matrix = random(60, 90, 0.3, &mut ChaCha8Rng::seed_from_u64(3));
    let found = bounds(&matrix);
    assert_eq!(found.len(), 3);
    assert!(found.is_sorted_by(|a, b| a.lower_bound >= b.lower_bound));
    assert_eq!(bounds(&matrix), found);
}

#[test]
fn a_claim_raised_by_one_is_refused() {
    let matrix = random(40, 50, 0.5, &mut ChaCha8Rng::seed_from_u64(4));
    for mut certificate in bounds(&matrix) {
        certificate.lower_bound += 1;
        assert!(check(&matrix, &certificate).is_err(), "{certificate:?}");
    }
}

#[test]
fn a_swapped_column_is_refused() {
    let matrix = all_patterns(6);
    // Seventh and eighth columns: never an answer, and an answer with column 0.
    let mut rows: Vec<Vec<u32>> =
        (0..matrix.n_rows()).map(|row| matrix.row(row).to_vec()).collect();
    rows.iter_mut().filter(|row| row[0] == 0).for_each(|row| row.push(7));
    let matrix = AnswerMatrix::from_rows(8, rows);
    let mut certificate = shattered(&matrix);
    assert_eq!((certificate.lower_bound, certificate.columns.len()), (6, 6));
    certificate.columns[3] = 6;
    let fault = check(&matrix, &certificate).unwrap_err().to_string();
    assert_eq!(fault, "32 patterns on 6 lines are not all of them");
}

#[test]
fn a_swapped_row_changes_the_norm() {
    // One line more than the orthogonal ones, equal to one of them but for an entry.
    let mut signs = to_signs(&hadamard(16));
    let mut almost = signs[5].clone();
    almost[3] = !almost[3];
    signs.push(almost);
    let matrix = from_signs(&signs);
    let is_new = |row: &u32| !to_signs(&hadamard(16)).contains(&to_signs(&matrix)[*row as usize]);
    let is_twin = |row: &u32| to_signs(&matrix)[*row as usize] == signs[5];
    let mut rows: Vec<u32> = (0..17).filter(|row| !is_new(row)).collect();
    let weights = || vec![1.0 / 16.0; 16];
    let argument = Argument::Spectral { row_weights: weights(), column_weights: weights() };
    let columns = (0..16).collect();
    let whole = Certificate { argument, lower_bound: 4, rows: rows.clone(), columns };
    assert_eq!(check(&matrix, &whole), Ok(()));
    let other = rows.iter().position(|row| !is_twin(row)).unwrap();
    rows[other] = (0..17).find(is_new).unwrap();
    let fault = check(&matrix, &Certificate { rows, ..whole }).unwrap_err().to_string();
    assert_eq!(fault, "the norm of the weighted matrix is not below 1/(4 - 1)");
}

/// Spoils a certificate for [`hadamard`], and gives the message of its fault.
fn fault(certificate: Certificate, spoil: impl FnOnce(&mut Certificate)) -> String {
    let matrix = hadamard(16);
    let mut certificate = certificate;
    assert_eq!(check(&matrix, &certificate), Ok(()));
    spoil(&mut certificate);
    check(&matrix, &certificate).unwrap_err().to_string()
}

/// Spoils the weights of the rows.
fn weight_fault(spoil: impl FnOnce(&mut Vec<f64>)) -> String {
    fault(spectral(&hadamard(16)), |it| {
        if let Argument::Spectral { row_weights, .. } = &mut it.argument {
            spoil(row_weights);
        }
    })
}

#[test]
fn lines_that_are_missing_or_repeated_are_refused() {
    let certificate = || patterns(&hadamard(16));
    assert_eq!(
        fault(certificate(), |it| it.rows[0] = 16),
        "row 16 is not in the matrix, which has 16"
    );
    assert_eq!(fault(certificate(), |it| it.columns = vec![4, 2, 4]), "column 4 is named twice");
    assert_eq!(fault(certificate(), |it| it.rows.clear()), "no row is named");
}

#[test]
fn weights_that_are_no_distribution_are_refused() {
    assert_eq!(
        weight_fault(|weights| weights.truncate(15)),
        "expected a weight for each row, 16 in all, found 15"
    );
    let first = spectral(&hadamard(16)).rows[0];
    assert_eq!(
        weight_fault(|weights| weights[0] = -0.5),
        format!("row {first} has the weight -0.5, which is not positive")
    );
    assert_eq!(
        weight_fault(|weights| *weights = vec![0.125; 16]),
        "the row weights sum to 2, expected 1"
    );
    // The smallest change of a weight that is more than rounding.
    assert!(weight_fault(|weights| weights[0] += 1e-8).starts_with("the row weights sum"));
}

#[test]
fn claims_beyond_the_proof_are_refused() {
    // 16 rows on 4 columns that show all 16 patterns up to complement, and no more.
    let few = || {
        let argument = Argument::Shattered { lines: Lines::Columns };
        let rows = (0..16).collect();
        Certificate { argument, lower_bound: 4, rows, columns: vec![1, 2, 4, 8] }
    };
    assert_eq!(fault(few(), |it| it.lower_bound = 5), "4 lines do not need 5 dimensions");
    assert_eq!(
        fault(few(), |it| it.columns = vec![0, 1, 2, 3]),
        "8 patterns on 4 lines are not all of them"
    );
    let as_patterns = |it: &mut Certificate| {
        it.argument = Argument::Patterns { lines: Lines::Columns };
        it.lower_bound = 5;
    };
    assert_eq!(fault(few(), as_patterns), "16 patterns on 4 lines do not need 5 dimensions");
    assert_eq!(
        fault(spectral(&hadamard(16)), |it| it.lower_bound = 6),
        "the norm of the weighted matrix is not below 1/(6 - 1)"
    );
}

#[test]
fn heavy_lines_on_both_sides_are_refused() {
    let single = |it: &mut Certificate| {
        it.rows.truncate(1);
        it.columns.truncate(1);
        it.argument = Argument::Spectral { row_weights: vec![1.0], column_weights: vec![1.0] };
        it.lower_bound = 3;
    };
    assert_eq!(
        fault(spectral(&hadamard(16)), single),
        "a row weighs 1 and a column 1; for 3 dimensions one must be lighter"
    );
}
