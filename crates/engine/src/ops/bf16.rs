//! How are matrices multiplied on a processor's unit for 16-bit numbers, at nearly the precision of
//! f32?
//!
//! Every number is split in two bf16, what it rounds to and what that leaves, which together have 16
//! of the 24 bits of an f32. Three products of halves make one of the whole, and only that of two
//! remainders is left out: the result is off by about 2⁻¹⁶ of each term. The unit (Intel's AMX)
//! multiplies 16 by 32 numbers with 32 by 16 in one instruction and adds in f32; even three times it
//! does so several times as fast as vector instructions do once.
//!
//! Factors are packed in the order in which the unit reads them, padded with zeros to whole tiles,
//! and used as often as there are factors on the other side. One thread, as in `product`.

#[cfg_attr(target_arch = "x86_64", path = "bf16/amx.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "bf16/absent.rs")]
mod unit;

use super::product::{Onto, Operand};

/// Rows of a tile of a left factor, columns of one of a right factor.
const SIDE: usize = 16;
/// Numbers in a line: what is summed over in one step.
const DEPTH: usize = 32;
/// Lines of one step of a strip: 16 of the rounded numbers, 16 of what that leaves.
const STEP: usize = 2 * SIDE;
/// Rows, or columns, that are multiplied at once: two strips, whose sums stay in registers.
const AT_ONCE: usize = 2 * SIDE;

/// What a tile of the unit has 16 of.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u16; DEPTH]);

const ZEROS: Line = Line([0; DEPTH]);

/// A factor in strips of 16 rows (of a left factor) or columns (of a right one); a strip in steps of
/// 32 numbers to sum over; a step in its rounded numbers, and then what these leave.
#[derive(Debug, Default)]
struct Packed {
    /// Longer than what is in use.
    lines: Vec<Line>,
    /// Rows or columns.
    len: usize,
    steps: usize,
}

impl Packed {
    /// Makes room for a factor, with zeros where tiles are not filled to their end.
    fn resize(&mut self, len: usize, depth: usize) {
        (self.len, self.steps) = (len, depth.div_ceil(DEPTH));
        let strip = self.strip();
        let n_lines = len.div_ceil(AT_ONCE) * 2 * strip;
        if self.lines.len() < n_lines {
            self.lines.resize(n_lines, ZEROS);
        }
        if !depth.is_multiple_of(DEPTH) {
            for strip in self.lines[..n_lines].chunks_exact_mut(strip) {
                strip[(depth / DEPTH) * STEP..].fill(ZEROS);
            }
        }
        self.lines[len / SIDE * strip..n_lines].fill(ZEROS);
    }

    /// Lines of a strip.
    fn strip(&self) -> usize {
        self.steps * STEP
    }

    /// The rounded numbers of one step of a strip, and what they leave.
    #[inline(always)]
    fn step(&mut self, strip: usize, step: usize) -> [&mut [Line]; 2] {
        let start = strip * self.strip() + step * STEP;
        self.lines[start..start + STEP].split_at_mut(SIDE).into()
    }
}

/// A left factor: a line has 32 numbers of one row.
#[derive(Debug, Default)]
pub(crate) struct Left(Packed);

/// A right factor: a line has pairs of numbers, one below the other, of 16 columns.
#[derive(Debug, Default)]
pub(crate) struct Right(Packed);

impl Left {
    /// A packed factor.
    pub(crate) fn of<'a>(factor: impl Into<Operand<'a>>) -> Self {
        let mut packed = Self::default();
        packed.pack(factor);
        packed
    }

    /// Packs a factor in the place of what was packed before.
    pub(crate) fn pack<'a>(&mut self, factor: impl Into<Operand<'a>>) {
        let Operand { matrix, transposed } = factor.into();
        let pack = if transposed { unit::lines_of_columns } else { unit::lines_of_rows };
        pack(&mut self.0, matrix);
    }
}

impl Right {
    /// A packed factor.
    pub(crate) fn of<'a>(factor: impl Into<Operand<'a>>) -> Self {
        let mut packed = Self::default();
        packed.pack(factor);
        packed
    }

    /// Packs a factor in the place of what was packed before.
    pub(crate) fn pack<'a>(&mut self, factor: impl Into<Operand<'a>>) {
        let Operand { matrix, transposed } = factor.into();
        let pack = if transposed { unit::pairs_of_rows } else { unit::pairs_of_columns };
        pack(&mut self.0, matrix);
    }
}

/// Bytes of a packed factor with so many rows (of a left one) or columns (of a right one).
pub(crate) fn packed_bytes(len: usize, depth: usize) -> usize {
    len.div_ceil(AT_ONCE) * 2 * depth.div_ceil(DEPTH) * STEP * size_of::<Line>()
}

/// Whether this machine has such a unit, and the system lets us use it.
pub(crate) fn is_available() -> bool {
    unit::is_available()
}

/// left · right, written to the start of `out` row after row, `stride` apart; only where there is a
/// unit.
pub(crate) fn multiply(out: &mut [f32], stride: usize, onto: Onto, left: &Left, right: &Right) {
    let (left, right) = (&left.0, &right.0);
    let (rows, columns) = (left.len, right.len);
    assert!(is_available(), "no unit for bf16");
    assert_eq!(left.steps, right.steps, "steps of a product of {rows}×{columns}");
    assert!(stride >= columns, "rows of {columns} values {stride} apart");
    let last = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
    assert!(out.len() >= last, "room for {} of {rows}×{columns} at {stride}", out.len());
    unit::multiply(out, stride, onto, left, right);
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::ops::product::Matrix;
    use crate::ops::score::tests::draw;

    /// Whether there is a unit to test; says so if not.
    #[expect(clippy::print_stderr, reason = "a test that is skipped says why")]
    pub(crate) fn is_there() -> bool {
        let is_there = is_available();
        if !is_there {
            eprintln!("skipped: this machine has no unit for bf16");
        }
        is_there
    }

    /// Left and right factor, each packed as it stands and from its transpose.
    fn all_ways(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> [(Left, Right); 2] {
        let transposed = |values: &[f32], columns: usize| -> Vec<f32> {
            let rows = values.len() / columns;
            (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
        };
        let mut ways: [(Left, Right); 2] = Default::default();
        for (left, right) in &mut ways {
            // What was there before must not be seen.
            left.pack(Matrix::rows_of(&[f32::NAN; 70 * 90], 90));
            right.pack(Matrix::rows_of(&[f32::NAN; 70 * 90], 90));
        }
        ways[0].0.pack(Matrix::rows_of(a, k));
        ways[0].1.pack(Matrix::rows_of(b, n));
        ways[1].0.pack(Matrix::rows_of(&transposed(a, k), m).transposed());
        ways[1].1.pack(Matrix::rows_of(&transposed(b, n), k).transposed());
        ways
    }

    #[test]
    fn products_equal_plain_sums_at_every_size() {
        if !is_there() {
            return;
        }
        for [m, k, n] in [[1, 1, 1], [16, 32, 16], [32, 64, 32], [33, 65, 31], [70, 200, 90]] {
            let (a, b) = (draw(m * k, 1), draw(k * n, 2));
            let before = draw(m * n, 3);
            for (way, (left, right)) in all_ways(&a, &b, [m, k, n]).iter().enumerate() {
                for onto in [Onto::Replace, Onto::Add] {
                    // With a gap of one after each row.
                    let rows = before.chunks(n).flat_map(|row| [row, &[7.0]].concat());
                    let mut out: Vec<f32> = rows.collect();
                    multiply(&mut out, n + 1, onto, left, right);
                    assert!(out.iter().skip(n).step_by(n + 1).all(|gap| *gap == 7.0));
                    let found = out.chunks(n + 1).flat_map(|row| &row[..n]);
                    for (i, found) in found.enumerate() {
                        let term = |j: usize| f64::from(a[i / n * k + j] * b[j * n + i % n]);
                        let sum: f64 = (0..k).map(term).sum();
                        let size: f64 = (0..k).map(|j| term(j).abs()).sum();
                        let start = if onto == Onto::Add { f64::from(before[i]) } else { 0.0 };
                        // Each factor is off by 2⁻¹⁷ and each product by 2⁻¹⁶ of itself at most.
                        let most = 2_f64.powi(-15) * size + 1e-6;
                        let off = (f64::from(*found) - sum - start).abs();
                        assert!(off <= most, "{m}×{k}×{n}, way {way}, {onto:?}: {off} > {most}");
                    }
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn halves_add_up_to_16_bits_and_keep_what_is_not_finite() {
        if !is_there() {
            return;
        }
        let split = unit::split_lines;
        for x in draw(1000, 4).into_iter().chain([0.0, 1e-30, 3e38]) {
            let [high, low] = split(&[x]).map(|line| f32::from_bits(u32::from(line.0[0]) << 16));
            assert!((high - x).abs() <= x.abs() / 256.0, "{x}: {high}");
            assert!((high + low - x).abs() <= x.abs() / 65536.0, "{x}: {high} + {low}");
        }
        for x in [f32::NAN, f32::INFINITY, f32::from_bits(0x7fff_ffff), -f32::INFINITY] {
            let high = f32::from_bits(u32::from(split(&[x])[0].0[0]) << 16);
            assert!(!high.is_finite(), "{x}: {high}");
        }
    }
}
