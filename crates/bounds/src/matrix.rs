//! The answer matrix Y: which sets of objects answer queries? A row per query, a column per object.
//!
//! Equal rows are kept once, with the number of queries that have them. Rows without answers change
//! no bound and are left out.

use fullrank_graph::{Graph, Split};
use rayon::prelude::*;

/// Which queries are rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// (subject, relation, ?)
    Forward,
    /// And (object, inverse relation, ?).
    Both,
}

/// The distinct rows of Y, each as its answers in ascending order.
#[derive(Clone, Debug)]
pub struct AnswerMatrix {
    n_columns: usize,
    /// Where each row ends in `columns`.
    ends: Vec<usize>,
    columns: Vec<u32>,
    /// Queries that have each row.
    n_queries: Vec<usize>,
    /// The first of them.
    queries: Vec<u32>,
}

impl AnswerMatrix {
    /// The matrix of a graph, over all splits.
    pub fn of(graph: &Graph, side: Side) -> Self {
        let answers = graph.answers();
        let n_rows = match side {
            Side::Forward => answers.n_forward_queries(),
            Side::Both => answers.n_queries(),
        };
        Self::of_queries(graph, (0..n_rows).into_par_iter())
    }

    /// The matrix of some queries of a graph, given by their numbers.
    pub(crate) fn of_queries(
        graph: &Graph,
        numbers: impl IndexedParallelIterator<Item = usize>,
    ) -> Self {
        let rows = numbers.map(|number| {
            let answers = graph.answers().up_to(number, Split::Test);
            let mut row: Vec<u32> = answers.iter().map(|object| object.0).collect();
            row.sort_unstable();
            row
        });
        Self::from_rows(graph.entities().len(), rows.collect())
    }

    /// A matrix of rows that may be equal, each ascending.
    pub fn from_rows(n_columns: usize, rows: Vec<Vec<u32>>) -> Self {
        let mut rows: Vec<(Vec<u32>, u32)> = rows.into_iter().zip(0..).collect();
        rows.retain(|(row, _)| !row.is_empty());
        // The longest first: they decide every bound.
        rows.par_sort_unstable_by(|(a, a_query), (b, b_query)| {
            b.len().cmp(&a.len()).then_with(|| a.cmp(b)).then(a_query.cmp(b_query))
        });
        let mut matrix =
            Self { n_columns, ends: vec![], columns: vec![], n_queries: vec![], queries: vec![] };
        for equal in rows.chunk_by(|(a, _), (b, _)| a == b) {
            matrix.columns.extend(&equal[0].0);
            matrix.ends.push(matrix.columns.len());
            matrix.n_queries.push(equal.len());
            matrix.queries.push(equal[0].1);
        }
        matrix
    }

    /// Objects.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Distinct rows.
    pub fn n_rows(&self) -> usize {
        self.ends.len()
    }

    /// The answers of a row, ascending; rows are ordered by their number of answers, most first.
    pub fn row(&self, row: usize) -> &[u32] {
        let start = if row == 0 { 0 } else { self.ends[row - 1] };
        &self.columns[start..self.ends[row]]
    }

    /// Queries that have this row.
    pub fn n_queries(&self, row: usize) -> usize {
        self.n_queries[row]
    }

    /// The first query that has this row, as the queries that the matrix was made of are counted.
    pub fn query(&self, row: usize) -> usize {
        self.queries[row] as usize
    }
}
