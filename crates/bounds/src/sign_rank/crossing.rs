//! Crossings: which rows or columns may an argument choose, and how do the others look there?
//!
//! Every argument chooses some lines of one kind and reads the lines that cross them. Equal ones
//! add nothing, so each pattern is kept once. What is made of the patterns is left to the arguments.

use super::Lines;
use crate::matrix::AnswerMatrix;

/// Lines to choose from, and the distinct patterns of those that cross them.
pub(super) struct Crossing {
    /// The kind of line to choose from.
    pub(super) lines: Lines,
    /// Where the lines are in the matrix, the most balanced first.
    pub(super) ids: Vec<u32>,
    /// Distinct patterns on the lines.
    pub(super) patterns: Vec<Pattern>,
}

/// How a crossing line looks on the lines to choose from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Pattern {
    /// Places in [`Crossing::ids`] where it is +, ascending.
    pub(super) positive: Vec<u32>,
    /// A line that has it.
    pub(super) line: u32,
}

impl Crossing {
    /// The `most` lines of a kind whose signs are the most balanced.
    ///
    /// A line that is nearly all of one sign splits few patterns, whatever the argument.
    pub(super) fn of(matrix: &AnswerMatrix, lines: Lines, most: usize) -> Self {
        let (n_positive, n_crossing) = match lines {
            Lines::Rows => (row_lengths(matrix), matrix.n_columns()),
            Lines::Columns => (column_lengths(matrix), matrix.n_rows()),
        };
        let mut ids: Vec<u32> = (0..n_positive.len() as u32).collect();
        let balance = |id: u32| n_positive[id as usize].min(n_crossing - n_positive[id as usize]);
        ids.sort_by_key(|id| (std::cmp::Reverse(balance(*id)), *id));
        ids.truncate(most);
        let positive = match lines {
            Lines::Rows => columns_on(matrix, &ids),
            Lines::Columns => rows_on(matrix, &ids),
        };
        let numbered = positive.into_iter().zip(0..);
        let mut patterns: Vec<Pattern> =
            numbered.map(|(positive, line)| Pattern { positive, line }).collect();
        patterns.sort_unstable();
        patterns.dedup_by(|later, first| later.positive == first.positive);
        Self { lines, ids, patterns }
    }
}

fn row_lengths(matrix: &AnswerMatrix) -> Vec<usize> {
    (0..matrix.n_rows()).map(|row| matrix.row(row).len()).collect()
}

fn column_lengths(matrix: &AnswerMatrix) -> Vec<usize> {
    let mut lengths = vec![0; matrix.n_columns()];
    for column in (0..matrix.n_rows()).flat_map(|row| matrix.row(row)) {
        lengths[*column as usize] += 1;
    }
    lengths
}

/// For every column, the places of the rows that it answers.
fn columns_on(matrix: &AnswerMatrix, rows: &[u32]) -> Vec<Vec<u32>> {
    let mut positive = vec![Vec::new(); matrix.n_columns()];
    for (place, row) in (0..).zip(rows) {
        for column in matrix.row(*row as usize) {
            positive[*column as usize].push(place);
        }
    }
    positive
}

/// For every row, the places of the columns that answer it.
fn rows_on(matrix: &AnswerMatrix, columns: &[u32]) -> Vec<Vec<u32>> {
    let mut places = vec![None; matrix.n_columns()];
    for (place, column) in (0..).zip(columns) {
        places[*column as usize] = Some(place);
    }
    let row = |row| {
        let mut positive: Vec<u32> =
            matrix.row(row).iter().filter_map(|column| places[*column as usize]).collect();
        positive.sort_unstable();
        positive
    };
    (0..matrix.n_rows()).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(lines: Lines, most: usize) -> (Vec<u32>, Vec<(Vec<u32>, u32)>) {
        // Rows 0 to 3, the longest first: all but one column, two halves, one column.
        let rows = vec![vec![0, 1, 2], vec![0, 1], vec![1, 2], vec![3]];
        let crossing = Crossing::of(&AnswerMatrix::from_rows(4, rows), lines, most);
        let patterns = crossing.patterns.into_iter().map(|it| (it.positive, it.line));
        (crossing.ids, patterns.collect())
    }

    #[test]
    fn balanced_rows_come_first_and_equal_columns_once() {
        let patterns = vec![(vec![], 3), (vec![0], 0), (vec![0, 1], 1), (vec![1], 2)];
        assert_eq!(check(Lines::Rows, 2), (vec![1, 2], patterns));
    }

    #[test]
    fn rows_are_read_on_the_balanced_columns() {
        // Columns 0 and 2 are in two rows of four, 1 in three, 3 in one.
        let patterns = vec![(vec![], 3), (vec![0], 1), (vec![0, 1], 0), (vec![1], 2)];
        assert_eq!(check(Lines::Columns, 2), (vec![0, 2], patterns));
    }
}
