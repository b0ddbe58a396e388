//! Gather and scatter-add: how are some rows of a table read, and their gradients added to its?

use crate::simd;

/// Rows `ids` of a table that is `dim` wide, one after the other.
pub fn rows(table: &[f32], dim: usize, ids: &[u32]) -> Vec<f32> {
    let mut rows = Vec::with_capacity(ids.len() * dim);
    for id in ids {
        rows.extend_from_slice(&table[*id as usize * dim..][..dim]);
    }
    rows
}

/// Adds each of `rows` to the row of `table` that `ids` names, in their order.
pub fn add_rows(table: &mut [f32], dim: usize, ids: &[u32], rows: &[f32]) {
    for (id, row) in ids.iter().zip(rows.chunks_exact(dim)) {
        simd::add(&mut table[*id as usize * dim..][..dim], row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_added_as_often_as_they_are_named() {
        let table = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let ids = [2, 0, 2];
        assert_eq!(rows(&table, 2, &ids), [5.0, 6.0, 1.0, 2.0, 5.0, 6.0]);
        let mut sums = table;
        add_rows(&mut sums, 2, &ids, &[1.0, 0.0, 0.5, 0.5, 2.0, 3.0]);
        assert_eq!(sums, [1.5, 2.5, 3.0, 4.0, 8.0, 9.0]);
    }
}
