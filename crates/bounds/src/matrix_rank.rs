//! Matrix rank: what is that of Y?
//!
//! As many dimensions as rank(Y) give every query its distribution exactly, and hardly fewer do.
//! `peel` finds most pivots without arithmetic; for the rest, random sums of the rows left are
//! cleared by those pivots and eliminated modulo a prime by `modular`.
//!
//! Every pivot found modulo a prime is one of the rational matrix, so the rank is never too large.
//! It is too small only if the prime divides every minor of that size, or if all random sums miss a
//! direction: on a matrix like a random one each has a chance of about 1/p. Two primes are tried.

mod modular;
mod peel;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;

use crate::matrix::AnswerMatrix;
use modular::{Echelon, Field, PANEL};
use peel::Peeled;

/// The matrix rank of Y, or what is known of it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MatrixRank {
    /// The rank; if not `exact`, it is no less than this.
    pub rank: usize,
    /// It is no more than this.
    pub at_most: usize,
    /// Whether the elimination came to its end, with the same rank for every prime.
    pub exact: bool,
    /// The primes, of 22 bits.
    pub primes: Vec<u32>,
    /// Whether the row of all ones is a sum of multiples of rows; unknown if not `exact`.
    pub has_all_ones: Option<bool>,
}

impl MatrixRank {
    /// The fewest dimensions in which every query can have its distribution, with a threshold of
    /// its own: one fewer than the rank if the row of all ones comes with the others anyway.
    pub fn distributions(&self) -> Option<usize> {
        self.has_all_ones.map(|has| self.rank - usize::from(has))
    }
}

/// How many random sums each row is part of: enough that no direction is missed.
const COPIES: usize = 8;
/// Values of all panels together: 4 GiB.
const MOST_VALUES: usize = 1 << 29;

/// Computes the rank with at most `budget` multiplications of residues for each prime.
pub fn matrix_rank(matrix: &AnswerMatrix, budget: u64) -> MatrixRank {
    let peeled = Peeled::of(matrix);
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let first = Field::random(&mut rng);
    let second = std::iter::repeat_with(|| Field::random(&mut rng));
    let second = second.into_iter().find(|field| field.prime != first.prime);
    let fields = [first, second.expect("primes do not end")];
    let found = fields.map(|field| Elimination::new(matrix, &peeled, field).run(budget));
    let rank = found[0].rank.max(found[1].rank);
    let exact = found[0] == found[1] && found[0].is_complete;
    MatrixRank {
        rank: peeled.n_pivots() + rank,
        at_most: peeled.n_pivots()
            + if exact { rank } else { peeled.n_aside.min(peeled.rest.len()) },
        exact,
        primes: fields.map(|field| field.prime).to_vec(),
        has_all_ones: exact.then_some(found[0].has_all_ones),
    }
}

/// The part of the rank that is not peeled off, modulo one prime.
struct Elimination<'a> {
    matrix: &'a AnswerMatrix,
    peeled: &'a Peeled,
    field: Field,
    echelon: Echelon,
    rng: ChaCha8Rng,
}

#[derive(PartialEq, Eq)]
struct Eliminated {
    rank: usize,
    is_complete: bool,
    has_all_ones: bool,
}

impl<'a> Elimination<'a> {
    fn new(matrix: &'a AnswerMatrix, peeled: &'a Peeled, field: Field) -> Self {
        let rng = ChaCha8Rng::seed_from_u64(field.prime.into());
        Self { matrix, peeled, field, echelon: Echelon::new(field, peeled.n_aside), rng }
    }

    fn run(mut self, budget: u64) -> Eliminated {
        let (width, n_rest) = (self.peeled.n_aside, self.peeled.rest.len());
        let sums = self.deal(width.min(n_rest).next_multiple_of(PANEL));
        let mut spent = 0;
        for panel in sums.chunks(PANEL) {
            let rank = self.echelon.rank();
            spent += (panel.len() * (rank + panel.len()) * width) as u64;
            if spent > budget || (rank + panel.len()) * width > MOST_VALUES {
                return Eliminated { rank, is_complete: false, has_all_ones: false };
            }
            let n_new = self.add(panel);
            if n_new == 0 || rank + n_new == width.min(n_rest) {
                break;
            }
        }
        // Sums of all rows, with other factors, find what the sums of a few have missed.
        while self.echelon.rank() < width.min(n_rest) {
            let everything: Vec<u32> = (0..n_rest as u32).collect();
            if self.add(&[everything.clone(), everything]) == 0 {
                break;
            }
        }
        let rank = self.echelon.rank();
        Eliminated { rank, is_complete: true, has_all_ones: self.has_all_ones() }
    }

    /// Deals the rows left to so many sums, each row to several.
    fn deal(&mut self, n_sums: usize) -> Vec<Vec<u32>> {
        let mut sums = vec![vec![]; n_sums];
        for row in 0..self.peeled.rest.len() as u32 {
            for _ in 0..COPIES.min(n_sums) {
                sums[self.rng.random_range(0..n_sums)].push(row);
            }
        }
        sums
    }

    /// Adds random multiples of the rows of each sum to the echelon; returns how many were new.
    fn add(&mut self, sums: &[Vec<u32>]) -> usize {
        let seeds: Vec<u64> = sums.iter().map(|_| self.rng.random()).collect();
        let n = self.peeled.pivots.len() + self.peeled.n_aside;
        let half = (self.field.prime / 2) as i32;
        let rows: Vec<Vec<f64>> = sums
            .par_iter()
            .zip(seeds)
            .map(|(sum, seed)| {
                let mut rng = ChaCha8Rng::seed_from_u64(seed);
                let mut values = vec![0.0; n];
                for row in sum {
                    let factor = f64::from(rng.random_range(-half..=half));
                    for column in &self.peeled.rest[*row as usize] {
                        values[*column as usize] += factor;
                    }
                }
                self.clear(values)
            })
            .collect();
        self.echelon.add(rows.concat())
    }

    /// Clears a row by all pivots; what is left are the columns put aside.
    fn clear(&self, mut values: Vec<f64>) -> Vec<f64> {
        let pivots = &self.peeled.pivots;
        for (at, columns) in pivots.iter().enumerate().rev() {
            let factor = self.field.reduce(values[at]);
            if factor != 0.0 {
                columns.iter().for_each(|column| values[*column as usize] -= factor);
            }
        }
        values[pivots.len()..].iter().map(|x| self.field.reduce(*x)).collect()
    }

    /// Whether the row of all ones adds nothing.
    fn has_all_ones(&mut self) -> bool {
        let mut ones = vec![1.0; self.matrix.n_columns()];
        for (row, column) in &self.peeled.free {
            let factor = self.field.reduce(ones[*column as usize]);
            for column in self.matrix.row(*row as usize) {
                ones[*column as usize] -= factor;
            }
        }
        let mut values = vec![0.0; self.peeled.pivots.len() + self.peeled.n_aside];
        for (value, number) in ones.into_iter().zip(&self.peeled.number) {
            match number {
                Some(number) => values[*number as usize] = value,
                // No row left has this column.
                None if self.field.reduce(value) != 0.0 => return false,
                None => {}
            }
        }
        let row = self.clear(values);
        self.echelon.add(row) == 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(matrix: &AnswerMatrix) -> MatrixRank {
        let rank = matrix_rank(matrix, u64::MAX);
        assert!(rank.exact && rank.rank == rank.at_most, "{rank:?}");
        rank
    }

    /// The rank of a small 0/1 matrix over the rationals, in fractions without division.
    fn rational_rank(n_columns: usize, rows: &[Vec<u32>]) -> usize {
        let mut rows: Vec<Vec<i128>> = rows
            .iter()
            .map(|row| (0..n_columns as u32).map(|c| i128::from(row.contains(&c))).collect())
            .collect();
        let (mut rank, mut before) = (0, 1);
        for column in 0..n_columns {
            let Some(pivot) = (rank..rows.len()).find(|row| rows[*row][column] != 0) else {
                continue;
            };
            rows.swap(rank, pivot);
            let lead = rows[rank].clone();
            for row in &mut rows[rank + 1..] {
                let factor = row[column];
                // Bareiss 1968: every quotient is whole.
                row.iter_mut().zip(&lead).for_each(|(x, y)| {
                    *x = (*x * lead[column] - factor * y) / before;
                });
            }
            before = lead[column];
            rank += 1;
        }
        rank
    }

    proptest! {
        #[test]
        fn it_is_the_rational_rank(rows in prop::collection::vec(
            prop::collection::btree_set(0..12_u32, 0..9), 0..20))
        {
            let mut rows: Vec<Vec<u32>> =
                rows.into_iter().map(|row| row.into_iter().collect()).collect();
            let found = check(&AnswerMatrix::from_rows(12, rows.clone()));
            prop_assert_eq!(found.rank, rational_rank(12, &rows));
            rows.push((0..12).collect());
            let with_ones = rational_rank(12, &rows);
            prop_assert_eq!(found.has_all_ones, Some(with_ones == found.rank));
        }
    }

    #[test]
    fn dense_matrices_are_more_than_peeling() {
        // J − I has full rank for any size above one, and not a single row or column to peel.
        for n in [3, 40, 700] {
            let rows = (0..n).map(|i| (0..n).filter(|j| i != *j).collect()).collect();
            let rank = check(&AnswerMatrix::from_rows(n as usize, rows));
            assert_eq!((rank.rank, rank.has_all_ones), (n as usize, Some(true)));
            assert_eq!(rank.distributions(), Some(n as usize - 1));
        }
    }

    #[test]
    fn a_spent_budget_leaves_a_bracket() {
        let n = 1500;
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let rows = (0..n).map(|_| (0..n).filter(|_| rng.random_bool(0.5)).collect()).collect();
        let matrix = AnswerMatrix::from_rows(n as usize, rows);
        let found = matrix_rank(&matrix, 1_000_000_000);
        assert!(!found.exact && found.has_all_ones.is_none() && found.distributions().is_none());
        assert!(found.rank < 1500 && found.rank > 512 && found.at_most == 1500, "{found:?}");
        assert_eq!(check(&matrix).rank, 1500);
    }
}
