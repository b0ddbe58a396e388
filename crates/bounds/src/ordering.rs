//! Orderings: in which order of the objects do answers lie in few blocks?
//!
//! Put the objects on a line. A row whose answers form b blocks changes its sign at most 2b times
//! along it, so a polynomial of degree 2b tells them from all other objects, and 2b + 1 dimensions
//! are enough (Alon, Frankl and Rödl 1985). The fewer blocks the worst row has, the better.
//! This file counts, and has the orders that are made at once; `search` improves them.

use rayon::prelude::*;
use serde::Serialize;

use crate::matrix::AnswerMatrix;

/// How many blocks the rows have under an order.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Blocks {
    /// The mean over all queries.
    pub blocks_mean: f64,
    /// The largest number of blocks of any row.
    pub blocks_max: usize,
    /// The largest number of sign changes of any row, at most twice as many.
    pub kappa: usize,
    /// 2b + 1, as the paper reports it.
    pub dimension: usize,
}

/// Counts the blocks of every row; `order` has each object once.
///
/// # Panics
/// If `order` is no order of all objects.
pub fn count_blocks(matrix: &AnswerMatrix, order: &[u32]) -> Blocks {
    let counts = blocks_of_rows(matrix, order);
    let n_queries: usize = (0..counts.len()).map(|row| matrix.n_queries(row)).sum();
    let total: usize =
        counts.iter().enumerate().map(|(row, (blocks, _))| blocks * matrix.n_queries(row)).sum();
    let blocks_max = counts.iter().map(|(blocks, _)| *blocks).max().unwrap_or(0);
    Blocks {
        blocks_mean: total as f64 / n_queries.max(1) as f64,
        blocks_max,
        kappa: counts.iter().map(|(_, changes)| *changes).max().unwrap_or(0),
        dimension: 2 * blocks_max + 1,
    }
}

/// The blocks and sign changes of every row.
///
/// # Panics
/// If `order` is no order of all objects.
pub fn blocks_of_rows(matrix: &AnswerMatrix, order: &[u32]) -> Vec<(usize, usize)> {
    let position = positions(order);
    assert_eq!(order.len(), matrix.n_columns(), "an order has every object");
    let rows = (0..matrix.n_rows()).into_par_iter();
    rows.map(|row| blocks_and_changes(matrix.row(row), &position)).collect()
}

/// Where each object stands.
///
/// # Panics
/// If an object is missing or comes twice.
pub(crate) fn positions(order: &[u32]) -> Vec<u32> {
    let mut position = vec![u32::MAX; order.len()];
    for (place, object) in order.iter().enumerate() {
        assert_eq!(position[*object as usize], u32::MAX, "object {object} comes twice");
        position[*object as usize] = place as u32;
    }
    position
}

/// Into how many blocks a row falls, and how often its sign changes along the line.
pub(crate) fn blocks_and_changes(row: &[u32], position: &[u32]) -> (usize, usize) {
    let mut places: Vec<u32> = row.iter().map(|object| position[*object as usize]).collect();
    places.sort_unstable();
    let gaps = places.windows(2).filter(|pair| pair[1] > pair[0] + 1).count();
    let blocks = gaps + usize::from(!places.is_empty());
    // A block at an end of the line changes the sign only once.
    let at_start = places.first() == Some(&0);
    let at_end = places.last().is_some_and(|last| *last as usize == position.len() - 1);
    (blocks, 2 * blocks - usize::from(at_start) - usize::from(at_end))
}

/// The paper's order: Reverse Cuthill–McKee on the graph of objects that answer a query together,
/// for queries with more answers than 99.9 % of all.
pub fn reverse_cuthill_mckee(matrix: &AnswerMatrix) -> Vec<u32> {
    let heavy = heavy_rows(matrix);
    let rows_of = rows_of_columns(matrix, heavy);
    let degrees = co_occurrence_degrees(matrix, heavy, &rows_of);
    let mut by_degree: Vec<u32> = (0..matrix.n_columns() as u32).collect();
    by_degree.sort_by_key(|object| degrees[*object as usize]);

    let mut is_placed = vec![false; matrix.n_columns()];
    let mut is_opened = vec![false; heavy];
    let mut order = Vec::with_capacity(matrix.n_columns());
    for start in by_degree {
        if is_placed[start as usize] {
            continue;
        }
        is_placed[start as usize] = true;
        let mut next = order.len();
        order.push(start);
        while next < order.len() {
            let from = order.len();
            for row in &rows_of[order[next] as usize] {
                // All objects of a row are placed when the first of them is reached.
                if !std::mem::replace(&mut is_opened[*row as usize], true) {
                    for object in matrix.row(*row as usize) {
                        if !std::mem::replace(&mut is_placed[*object as usize], true) {
                            order.push(*object);
                        }
                    }
                }
            }
            order[from..].sort_by_key(|object| (degrees[*object as usize], *object));
            next += 1;
        }
    }
    order.reverse();
    order
}

/// How many rows, of the longest first, have more answers than 99.9 % of all queries.
fn heavy_rows(matrix: &AnswerMatrix) -> usize {
    let n_queries: usize = (0..matrix.n_rows()).map(|row| matrix.n_queries(row)).sum();
    // The degree at a place between two, interpolated as NumPy does; rows descend by degree.
    let place = 0.001 * (n_queries.max(1) - 1) as f64;
    let degree_at = |place: usize| {
        let mut seen = 0;
        let reaches = |row: &usize| {
            seen += matrix.n_queries(*row);
            seen > place
        };
        (0..matrix.n_rows()).find(reaches).map_or(0.0, |row| matrix.row(row).len() as f64)
    };
    let (above, below) = (degree_at(place.floor() as usize), degree_at(place.ceil() as usize));
    let threshold = above + (below - above) * place.fract();
    (0..matrix.n_rows()).take_while(|row| matrix.row(*row).len() as f64 > threshold).count()
}

/// The first `n_rows` rows in which each object is.
pub(crate) fn rows_of_columns(matrix: &AnswerMatrix, n_rows: usize) -> Vec<Vec<u32>> {
    let mut rows_of = vec![Vec::new(); matrix.n_columns()];
    for row in 0..n_rows {
        for object in matrix.row(row) {
            rows_of[*object as usize].push(row as u32);
        }
    }
    rows_of
}

/// With how many objects each one shares a row, itself included.
fn co_occurrence_degrees(matrix: &AnswerMatrix, n_rows: usize, rows_of: &[Vec<u32>]) -> Vec<usize> {
    /// Words of memory for rows as bits; with more, objects are marked one by one.
    const MOST: usize = 1 << 26;
    let words = matrix.n_columns().div_ceil(64);
    let bits_of = |row: usize| {
        let mut bits = vec![0_u64; words];
        for object in matrix.row(row) {
            bits[*object as usize / 64] |= 1 << (object % 64);
        }
        bits
    };
    let bits: Vec<Vec<u64>> =
        if n_rows * words <= MOST { (0..n_rows).map(bits_of).collect() } else { vec![] };
    let degree = |union: &mut Vec<u64>, rows: &Vec<u32>| match &rows[..] {
        [] => 0,
        [only] => matrix.row(*only as usize).len(),
        rows => {
            union.clear();
            union.resize(words, 0);
            for row in rows {
                if bits.is_empty() {
                    for object in matrix.row(*row as usize) {
                        union[*object as usize / 64] |= 1 << (object % 64);
                    }
                } else {
                    union.iter_mut().zip(&bits[*row as usize]).for_each(|(all, bits)| *all |= bits);
                }
            }
            union.iter().map(|word| word.count_ones() as usize).sum()
        }
    };
    rows_of.par_iter().map_init(Vec::new, degree).collect()
}

/// Objects by their membership in the longest rows, read as a reflected Gray code: neighbours
/// differ in few rows, and the longest row is one block.
pub(crate) fn gray(matrix: &AnswerMatrix, n_rows: usize) -> Vec<u32> {
    let rows_of = rows_of_columns(matrix, n_rows.min(matrix.n_rows()));
    let mut order: Vec<u32> = (0..matrix.n_columns() as u32).collect();
    order.par_sort_by(|a, b| {
        gray_order(&rows_of[*a as usize], &rows_of[*b as usize]).then(a.cmp(b))
    });
    order
}

/// Compares two ascending lists of set bits as reflected Gray codes: at the first bit in which they
/// differ, the one without it comes first if an even number of bits are set before it.
fn gray_order(a: &[u32], b: &[u32]) -> std::cmp::Ordering {
    let common = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let (a_has_it, b_has_it) = match (a.get(common), b.get(common)) {
        (None, None) => return std::cmp::Ordering::Equal,
        (Some(_), None) => (true, false),
        (None, Some(_)) => (false, true),
        (Some(a), Some(b)) => (a < b, b < a),
    };
    let ascending = a_has_it.cmp(&b_has_it);
    if common % 2 == 0 { ascending } else { ascending.reverse() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> AnswerMatrix {
        // Two queries have the first row.
        AnswerMatrix::from_rows(6, vec![vec![0, 2, 3], vec![0, 2, 3], vec![1, 2], vec![5]])
    }

    #[test]
    fn blocks_and_sign_changes_are_counted_by_hand() {
        let identity: Vec<u32> = (0..6).collect();
        // {0, 2, 3} is two blocks, the first at the start of the line: three changes.
        let blocks = count_blocks(&matrix(), &identity);
        assert_eq!((blocks.blocks_max, blocks.kappa, blocks.dimension), (2, 3, 5));
        assert_eq!(blocks.blocks_mean, (2.0 + 2.0 + 1.0 + 1.0) / 4.0);
        // 0 3 2 1 …: every row is one block.
        let blocks = count_blocks(&matrix(), &[4, 0, 3, 2, 1, 5]);
        assert_eq!((blocks.blocks_max, blocks.kappa), (1, 2));
    }

    #[test]
    #[should_panic(expected = "object 0 comes twice")]
    fn what_is_no_order_is_not_counted() {
        count_blocks(&matrix(), &[0, 0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_gray_code_changes_one_row_at_a_time() {
        // Columns are the numbers 0 to 7 in binary; rows are their bits.
        let rows = (0..3).map(|bit| (0..8).filter(|n| n >> bit & 1 == 1).collect());
        let matrix = AnswerMatrix::from_rows(8, rows.collect());
        let order = gray(&matrix, 3);
        let differing = order.windows(2).map(|pair| (pair[0] ^ pair[1]).count_ones());
        assert!(differing.eq([1; 7]), "{order:?}");
    }

    #[test]
    fn reverse_cuthill_mckee_keeps_what_answers_together_together() {
        // Above the 99.9th percentile of two thousand queries is the first row alone.
        let mut rows = vec![vec![1, 3, 5, 7]];
        rows.extend((0..2000).map(|i| vec![i % 8]));
        let matrix = AnswerMatrix::from_rows(8, rows);
        let order = reverse_cuthill_mckee(&matrix);
        assert_eq!(count_blocks(&matrix, &order).blocks_max, 1, "{order:?}");
    }
}
