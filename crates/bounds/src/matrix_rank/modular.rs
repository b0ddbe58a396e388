//! Modular elimination: how are rows eliminated modulo a prime at the speed of a matrix product?
//!
//! Residues are whole numbers in f64, as near to zero as can be: with primes of 22 bits, 512 products
//! of two of them add up to less than 2^53, so nothing is rounded. Rows come in panels; a panel is
//! cleared by the panels before it with one product each, then by itself, in halves.

use fullrank_kernels::product::subtract_product_f64;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

/// Rows of a panel, at most: 2^9 products of two residues below 2^21 stay below 2^53.
pub(super) const PANEL: usize = 512;
/// Rows that are cleared one by one.
const FEW: usize = 16;
/// Values that one task reduces.
const CHUNK: usize = 1 << 16;

/// Whole numbers modulo a prime.
#[derive(Clone, Copy)]
pub(super) struct Field {
    pub(super) prime: u32,
    p: f64,
    inverse: f64,
}

impl Field {
    /// A random prime of 22 bits.
    pub(super) fn random(rng: &mut ChaCha8Rng) -> Self {
        loop {
            let candidate = rng.random_range(1 << 21..1 << 22);
            if is_prime(candidate) {
                return Self::new(candidate);
            }
        }
    }

    fn new(prime: u32) -> Self {
        let p = f64::from(prime);
        Self { prime, p, inverse: 1.0 / p }
    }

    /// The residue of a whole number below 2^53, between -p/2 and p/2.
    #[inline(always)]
    pub(super) fn reduce(self, x: f64) -> f64 {
        /// Adding it rounds to a whole number, and unlike `round` it needs no call.
        const ROUND: f64 = 1.5 * (1_u64 << 52) as f64;
        x - ((x * self.inverse + ROUND) - ROUND) * self.p
    }

    fn reduce_all(self, values: &mut [f64]) {
        values.par_chunks_mut(CHUNK).for_each(|chunk| {
            chunk.iter_mut().for_each(|x| *x = self.reduce(*x));
        });
    }

    /// 1 / x, by Fermat's little theorem.
    fn invert(self, x: f64) -> f64 {
        let (mut result, mut square, mut exponent) = (1.0, x, self.prime - 2);
        while exponent > 0 {
            if exponent % 2 == 1 {
                result = self.reduce(result * square);
            }
            square = self.reduce(square * square);
            exponent /= 2;
        }
        result
    }
}

fn is_prime(n: u32) -> bool {
    n > 1 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d))
}

/// Independent rows, in panels. A panel is a unit matrix in its own pivot columns and zero in those
/// of the panels before it.
pub(super) struct Echelon {
    field: Field,
    width: usize,
    panels: Vec<Panel>,
}

struct Panel {
    /// `[pivots, width]`
    rows: Vec<f64>,
    /// The pivot column of each row.
    pivots: Vec<usize>,
}

impl Echelon {
    pub(super) fn new(field: Field, width: usize) -> Self {
        Self { field, width, panels: vec![] }
    }

    pub(super) fn rank(&self) -> usize {
        self.panels.iter().map(|panel| panel.pivots.len()).sum()
    }

    /// Adds what is new in at most `PANEL` rows of residues; returns how many were.
    pub(super) fn add(&mut self, rows: Vec<f64>) -> usize {
        let mut rows = rows;
        self.clear(&mut rows);
        let mut pivots = vec![None; rows.len().checked_div(self.width).unwrap_or(0)];
        eliminate(self.field, self.width, &mut rows, &mut pivots);
        let mut kept = Panel { rows: vec![], pivots: vec![] };
        for (row, pivot) in rows.chunks_exact(self.width.max(1)).zip(pivots) {
            if let Some(pivot) = pivot {
                kept.rows.extend(row);
                kept.pivots.push(pivot);
            }
        }
        let n_new = kept.pivots.len();
        if n_new > 0 {
            self.panels.push(kept);
        }
        n_new
    }

    /// Makes rows zero in all pivot columns.
    fn clear(&self, rows: &mut [f64]) {
        for Panel { rows: known, pivots } in &self.panels {
            clear_by(self.field, self.width, rows, known, pivots);
        }
    }
}

/// Clears rows among themselves: each gets a pivot column, in which the others are zero, or is zero.
fn eliminate(field: Field, width: usize, rows: &mut [f64], pivots: &mut [Option<usize>]) {
    if pivots.len() <= FEW {
        return eliminate_few(field, width, rows, pivots);
    }
    let half = pivots.len() / 2;
    let (upper, lower) = rows.split_at_mut(half * width);
    let (upper_pivots, lower_pivots) = pivots.split_at_mut(half);
    eliminate(field, width, upper, upper_pivots);
    clear_by_some(field, width, lower, upper, upper_pivots);
    eliminate(field, width, lower, lower_pivots);
    clear_by_some(field, width, upper, lower, lower_pivots);
}

fn eliminate_few(field: Field, width: usize, rows: &mut [f64], pivots: &mut [Option<usize>]) {
    for at in 0..pivots.len() {
        let row = &mut rows[at * width..][..width];
        let Some(pivot) = row.iter().position(|x| *x != 0.0) else { continue };
        let scale = field.invert(row[pivot]);
        row.iter_mut().for_each(|x| *x = field.reduce(*x * scale));
        pivots[at] = Some(pivot);
        let row = row.to_vec();
        for (other, values) in rows.chunks_exact_mut(width).enumerate() {
            let factor = values[pivot];
            if other != at && factor != 0.0 {
                values.iter_mut().zip(&row).for_each(|(x, y)| *x = field.reduce(*x - factor * y));
            }
        }
    }
}

/// Clears rows in the pivot columns of other rows, of which some may have none.
fn clear_by_some(
    field: Field,
    width: usize,
    rows: &mut [f64],
    by: &[f64],
    pivots: &[Option<usize>],
) {
    // A row without a pivot is zero and clears nothing, whatever its factor.
    let pivots: Vec<usize> = pivots.iter().map(|pivot| pivot.unwrap_or(0)).collect();
    clear_by(field, width, rows, by, &pivots);
}

fn clear_by(field: Field, width: usize, rows: &mut [f64], by: &[f64], pivots: &[usize]) {
    let factors: Vec<f64> = rows
        .chunks_exact(width.max(1))
        .flat_map(|row| pivots.iter().map(|pivot| row[*pivot]))
        .collect();
    subtract_product_f64(rows, &factors, by, width);
    field.reduce_all(rows);
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn primes_have_22_bits_and_residues_are_the_nearest() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let field = Field::random(&mut rng);
        assert!(is_prime(field.prime) && field.prime.ilog2() == 21);
        for x in [0_i64, 1, -1, 2_097_151, 4_503_599_627_370_495, -4_503_599_627_370_495] {
            let residue = field.reduce(x as f64) as i64;
            assert!((x - residue) % i64::from(field.prime) == 0, "{x} is not {residue}");
            assert!(2 * residue.abs() <= i64::from(field.prime));
        }
        for x in [1.0, 2.0, -77.0, 1_000_000.0] {
            assert_eq!(field.reduce(x * field.invert(x)), 1.0);
        }
    }

    /// The rank modulo p, one entry after the other in whole numbers.
    fn plain_rank(field: Field, width: usize, rows: &[f64]) -> usize {
        let p = i64::from(field.prime);
        let mut rows: Vec<Vec<i64>> = rows
            .chunks_exact(width)
            .map(|row| row.iter().map(|x| (*x as i64).rem_euclid(p)).collect())
            .collect();
        let mut rank = 0;
        for column in 0..width {
            let Some(pivot) = (rank..rows.len()).find(|row| rows[*row][column] != 0) else {
                continue;
            };
            rows.swap(rank, pivot);
            let lead = rows[rank].clone();
            for row in &mut rows[rank + 1..] {
                let factor = row[column];
                // row · lead − lead · row keeps the rank and needs no division.
                row.iter_mut().zip(&lead).for_each(|(x, y)| {
                    *x = (*x * lead[column] - factor * y).rem_euclid(p);
                });
            }
            rank += 1;
        }
        rank
    }

    #[test]
    fn panels_find_the_rank_that_a_plain_elimination_finds() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let field = Field::random(&mut rng);
        for (n_rows, width, rank) in [(150, 90, 37), (90, 150, 90), (64, 64, 64), (5, 3, 2)] {
            let mut random = |n: usize| -> Vec<f64> {
                let half = (field.prime / 2) as i32;
                (0..n).map(|_| f64::from(rng.random_range(-half..=half))).collect()
            };
            // A product of two random matrices has the rank of their common side.
            let (left, right) = (random(n_rows * rank), random(rank * width));
            let mut rows = vec![0.0; n_rows * width];
            subtract_product_f64(&mut rows, &left, &right, width);
            field.reduce_all(&mut rows);
            assert_eq!(plain_rank(field, width, &rows), rank);
            let mut echelon = Echelon::new(field, width);
            let mut n_new = 0;
            for panel in rows.chunks(40 * width) {
                n_new += echelon.add(panel.to_vec());
            }
            assert_eq!((echelon.rank(), n_new), (rank, rank));
            // What lies in the row space adds nothing.
            assert_eq!(echelon.add(rows[..width].to_vec()), 0);
        }
    }
}
