//! Peeling: which pivots can be had without a single multiplication?
//!
//! A row with one column left is a pivot: that column is struck from all other rows, which puts no
//! new entry anywhere. A column with one row left is a pivot too, and strikes that row.
//! Where neither is left, a column is put aside, to be dealt with at the end, and the peeling goes
//! on (structured Gaussian elimination: LaMacchia and Odlyzko 1990). The pivot rows are rows of Y
//! as they were, all ones, in triangular order; what remains is a dense problem in the columns put
//! aside, which is the business of `modular`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::matrix::AnswerMatrix;

/// A triangular part of Y, and what it leaves.
pub(super) struct Peeled {
    /// Rows and columns of pivots whose column no other row has, once those before are struck.
    pub(super) free: Vec<(u32, u32)>,
    /// Rows in the order in which they became pivots, each with its columns but the pivot's own.
    /// Pivot `t` is column `t`; columns put aside have the numbers from `n_pivots` on. A row has
    /// only columns before its own, and columns put aside.
    pub(super) pivots: Vec<Vec<u32>>,
    /// Columns that were put aside.
    pub(super) n_aside: usize,
    /// The other rows, in the same numbers.
    pub(super) rest: Vec<Vec<u32>>,
    /// The number of each column; none for that of a free pivot and for one without answers.
    pub(super) number: Vec<Option<u32>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Open,
    /// The pivot with this number.
    Pivot(u32),
    Aside(u32),
    /// The column of a free pivot.
    Free,
}

struct Peeling<'a> {
    matrix: &'a AnswerMatrix,
    rows_of: Rows,
    place: Vec<Place>,
    /// Open columns of a row.
    open: Vec<u32>,
    /// All open columns of a row, folded by exclusive or: of a row with one, that one.
    folded: Vec<u32>,
    is_taken: Vec<bool>,
    /// Rows that are not taken of a column.
    waiting: Vec<u32>,
    /// Rows with one open column, the shortest first: they make the later work lighter.
    single_rows: BinaryHeap<Reverse<(usize, u32)>>,
    single_columns: Vec<u32>,
    /// Rows by how few columns they have open; what is outdated is skipped.
    by_open: BinaryHeap<Reverse<(u32, u32)>>,
    pivot_rows: Vec<u32>,
    free: Vec<(u32, u32)>,
    n_aside: usize,
}

/// The rows of each column, one list after the other.
struct Rows {
    starts: Vec<usize>,
    rows: Vec<u32>,
}

impl Rows {
    fn of(matrix: &AnswerMatrix) -> Self {
        let mut starts = vec![0; matrix.n_columns() + 1];
        for row in 0..matrix.n_rows() {
            matrix.row(row).iter().for_each(|column| starts[*column as usize + 1] += 1);
        }
        for column in 0..matrix.n_columns() {
            starts[column + 1] += starts[column];
        }
        let mut next = starts.clone();
        let mut rows = vec![0; starts[matrix.n_columns()]];
        for row in 0..matrix.n_rows() {
            for column in matrix.row(row) {
                rows[next[*column as usize]] = row as u32;
                next[*column as usize] += 1;
            }
        }
        Self { starts, rows }
    }

    fn of_column(&self, column: u32) -> &[u32] {
        &self.rows[self.starts[column as usize]..self.starts[column as usize + 1]]
    }
}

impl Peeled {
    /// Pivots of both kinds.
    pub(super) fn n_pivots(&self) -> usize {
        self.free.len() + self.pivots.len()
    }

    pub(super) fn of(matrix: &AnswerMatrix) -> Self {
        let mut peeling = Peeling::new(matrix);
        loop {
            if let Some(row) = peeling.next_single_row() {
                peeling.take_row(row);
            } else if let Some(column) = peeling.next_single_column() {
                peeling.take_column(column);
            } else if let Some(row) = peeling.next_short_row() {
                peeling.put_aside_all_but_one(row);
            } else {
                return peeling.finish();
            }
        }
    }
}

impl<'a> Peeling<'a> {
    fn new(matrix: &'a AnswerMatrix) -> Self {
        let rows_of = Rows::of(matrix);
        let n_rows = matrix.n_rows();
        let open: Vec<u32> = (0..n_rows).map(|row| matrix.row(row).len() as u32).collect();
        let fold = |row| matrix.row(row).iter().fold(0, |all, column| all ^ column);
        let waiting: Vec<u32> =
            (0..matrix.n_columns() as u32).map(|c| rows_of.of_column(c).len() as u32).collect();
        let single_rows = (0..n_rows).filter(|row| open[*row] == 1);
        let single_columns = (0..matrix.n_columns()).filter(|column| waiting[*column] == 1);
        Self {
            single_rows: single_rows.map(|row| Reverse((1, row as u32))).collect(),
            single_columns: single_columns.map(|column| column as u32).collect(),
            by_open: open.iter().enumerate().map(|(row, n)| Reverse((*n, row as u32))).collect(),
            folded: (0..n_rows).map(fold).collect(),
            place: vec![Place::Open; matrix.n_columns()],
            is_taken: vec![false; n_rows],
            pivot_rows: vec![],
            free: vec![],
            n_aside: 0,
            matrix,
            rows_of,
            open,
            waiting,
        }
    }

    fn next_single_row(&mut self) -> Option<u32> {
        while let Some(Reverse((_, row))) = self.single_rows.pop() {
            if !self.is_taken[row as usize] && self.open[row as usize] == 1 {
                return Some(row);
            }
        }
        None
    }

    fn next_single_column(&mut self) -> Option<u32> {
        while let Some(column) = self.single_columns.pop() {
            let is_open = self.place[column as usize] == Place::Open;
            if is_open && self.waiting[column as usize] == 1 {
                return Some(column);
            }
        }
        None
    }

    fn next_short_row(&mut self) -> Option<u32> {
        while let Some(Reverse((n, row))) = self.by_open.pop() {
            if !self.is_taken[row as usize] && self.open[row as usize] == n && n > 0 {
                return Some(row);
            }
        }
        None
    }

    /// A row with one open column becomes a pivot.
    fn take_row(&mut self, row: u32) {
        let column = self.folded[row as usize];
        self.close(column, Place::Pivot(self.pivot_rows.len() as u32));
        self.pivot_rows.push(row);
        self.leave(row);
    }

    /// A column with one row becomes a pivot.
    fn take_column(&mut self, column: u32) {
        let mut rows = self.rows_of.of_column(column).iter().copied();
        let row = rows.find(|row| !self.is_taken[*row as usize]).expect("one row waits");
        self.leave(row);
        self.place[column as usize] = Place::Free;
        self.free.push((row, column));
    }

    /// Strikes a row.
    fn leave(&mut self, row: u32) {
        self.is_taken[row as usize] = true;
        for column in self.matrix.row(row as usize) {
            let waiting = &mut self.waiting[*column as usize];
            *waiting -= 1;
            if *waiting == 1 {
                self.single_columns.push(*column);
            }
        }
    }

    /// Strikes a column.
    fn close(&mut self, column: u32, place: Place) {
        self.place[column as usize] = place;
        for row in self.rows_of.of_column(column) {
            let at = *row as usize;
            self.open[at] -= 1;
            self.folded[at] ^= column;
            if self.is_taken[at] {
                continue;
            }
            match self.open[at] {
                0 => {}
                1 => self.single_rows.push(Reverse((self.matrix.row(at).len(), *row))),
                open => self.by_open.push(Reverse((open, *row))),
            }
        }
    }

    /// Of a shortest row, the column that fewest rows wait for stays.
    fn put_aside_all_but_one(&mut self, row: u32) {
        let columns = self.matrix.row(row as usize).iter().copied();
        let mut open: Vec<u32> =
            columns.filter(|column| self.place[*column as usize] == Place::Open).collect();
        open.sort_by_key(|column| Reverse((self.waiting[*column as usize], *column)));
        open.pop();
        for column in open {
            self.close(column, Place::Aside(self.n_aside as u32));
            self.n_aside += 1;
        }
    }

    fn finish(self) -> Peeled {
        let n_pivots = self.pivot_rows.len() as u32;
        let number: Vec<Option<u32>> = self
            .place
            .iter()
            .map(|place| match place {
                Place::Pivot(number) => Some(*number),
                Place::Aside(number) => Some(n_pivots + number),
                Place::Free | Place::Open => None,
            })
            .collect();
        let numbers = |row: u32, but: Option<u32>| -> Vec<u32> {
            let columns = self.matrix.row(row as usize).iter();
            let numbers = columns.filter_map(|column| number[*column as usize]);
            numbers.filter(|number| Some(*number) != but).collect()
        };
        let pivots = self.pivot_rows.iter().enumerate();
        let pivots: Vec<Vec<u32>> =
            pivots.map(|(at, row)| numbers(*row, Some(at as u32))).collect();
        let rest = (0..self.matrix.n_rows() as u32).filter(|row| !self.is_taken[*row as usize]);
        let rest = rest.map(|row| numbers(row, None)).collect();
        Peeled { free: self.free, pivots, n_aside: self.n_aside, rest, number }
    }
}
