//! What is the sign rank of a very small matrix?
//!
//! Exactly, for sign ranks 1 and 2; above, the smallest dimension in which vectors were found.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A dimension in which the signs are possible: the smallest, if it is 1 or 2.
pub(super) fn sign_rank_at_most(signs: &[Vec<bool>], rng: &mut ChaCha8Rng) -> usize {
    if is_one(signs) {
        return 1;
    }
    if is_at_most_two(signs) {
        return 2;
    }
    // The matrix itself has no larger rank than its smaller side.
    let most = signs.len().min(signs[0].len());
    (3..most).find(|dim| (0..20).any(|_| is_realised(signs, *dim, rng))).unwrap_or(most)
}

/// All rows are equal up to complement.
fn is_one(signs: &[Vec<bool>]) -> bool {
    signs
        .iter()
        .all(|row| (0..row.len()).all(|j| (row[j] == row[0]) == (signs[0][j] == signs[0][0])))
}

/// Vectors in the plane can be flipped into a half plane and sorted by angle; then a row changes
/// its sign at most once. So some order and flips of the columns do this for every row.
fn is_at_most_two(signs: &[Vec<bool>]) -> bool {
    let n = signs[0].len();
    let mut is_possible = false;
    for_each_order(&mut (0..n).collect(), 0, &mut |order| {
        let fits = |flips: usize| {
            signs.iter().all(|row| {
                let line: Vec<bool> =
                    order.iter().map(|j| row[*j] ^ (flips >> j & 1 == 1)).collect();
                line.windows(2).filter(|pair| pair[0] != pair[1]).count() <= 1
            })
        };
        is_possible = is_possible || (0..1 << n).any(fits);
    });
    is_possible
}

fn for_each_order(order: &mut Vec<usize>, from: usize, visit: &mut dyn FnMut(&[usize])) {
    if from == order.len() {
        return visit(order);
    }
    for i in from..order.len() {
        order.swap(from, i);
        for_each_order(order, from + 1, visit);
        order.swap(from, i);
    }
}

/// Whether perceptron steps on rows and columns in turn end with vectors of these signs.
fn is_realised(signs: &[Vec<bool>], dim: usize, rng: &mut ChaCha8Rng) -> bool {
    let mut vectors = |n: usize| -> Vec<Vec<f64>> {
        (0..n).map(|_| (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect()).collect()
    };
    let (mut rows, mut columns) = (vectors(signs.len()), vectors(signs[0].len()));
    for _ in 0..500 {
        let mut is_done = true;
        for (i, row) in rows.iter_mut().enumerate() {
            for (j, column) in columns.iter_mut().enumerate() {
                let sign = if signs[i][j] { 1.0 } else { -1.0 };
                // Far enough from zero that rounding cannot change a sign.
                if sign * dot(row, column) < 1e-3 {
                    is_done = false;
                    for (a, b) in row.iter_mut().zip(column.iter_mut()) {
                        (*a, *b) = (*a + 0.2 * sign * *b, *b + 0.2 * sign * *a);
                    }
                }
            }
        }
        if is_done {
            return true;
        }
    }
    false
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
