//! Split bf16: how are matrices multiplied on a processor's matrix unit at nearly the precision of f32?
//!
//! Every number is split into a sum of two bf16, what it rounds to and what that leaves, which
//! together have 16 of the 24 bits of an f32. Three products of bf16 make one, and only that of two
//! remainders is left out: the result is off by about 2⁻¹⁶ of each term (Henry, Tang and Heinecke
//! 2019, "Leveraging the bfloat16 artificial intelligence datatype for higher-precision
//! computations"). Intel's AMX multiplies 16 by 32 numbers with 32 by 16 in one instruction and adds
//! in f32; even three times it does so several times as fast as vector instructions do once.
//!
//! Factors are packed in the order in which AMX reads them, padded with zeros to full tiles, and used
//! as often as there are factors on the other side. Where there is no AMX a scalar twin does all of it,
//! which is what tests run there. One thread, as in [`crate::product`].

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod scalar;

use crate::product::{Onto, Operand};

/// Rows of a tile of a left factor, columns of one of a right factor.
const SIDE: usize = 16;
/// Numbers in a tile's row: what is summed over in one step.
const DEPTH: usize = 32;
/// Tile rows of one step of a strip: 16 of the rounded numbers, 16 of what that leaves.
const STEP: usize = 2 * SIDE;
/// Rows, or columns, that are multiplied at once: two strips, whose sums stay in registers.
const AT_ONCE: usize = 2 * SIDE;

/// What a tile of AMX has 16 of.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct TileRow([u16; DEPTH]);

const ZEROS: TileRow = TileRow([0; DEPTH]);

/// A factor in strips of 16 rows (of a left factor) or columns (of a right one); a strip in steps of
/// 32 numbers to sum over; a step in its rounded numbers, and then what these leave.
#[derive(Debug, Default)]
struct Packed {
    /// Longer than what is in use.
    tile_rows: Vec<TileRow>,
    /// Rows or columns.
    len: usize,
    steps: usize,
}

impl Packed {
    /// Makes room for a factor, with zeros where tiles are not filled to their end.
    fn resize(&mut self, len: usize, depth: usize) {
        (self.len, self.steps) = (len, depth.div_ceil(DEPTH));
        let strip = self.strip();
        let n_tile_rows = len.div_ceil(AT_ONCE) * 2 * strip;
        if self.tile_rows.len() < n_tile_rows {
            self.tile_rows.resize(n_tile_rows, ZEROS);
        }
        if !depth.is_multiple_of(DEPTH) {
            for strip in self.tile_rows[..n_tile_rows].chunks_exact_mut(strip) {
                strip[(depth / DEPTH) * STEP..].fill(ZEROS);
            }
        }
        self.tile_rows[len / SIDE * strip..n_tile_rows].fill(ZEROS);
    }

    /// The rounded numbers of one step of a strip, and what they leave.
    fn tiles(&self, strip: usize, step: usize) -> [&[TileRow]; 2] {
        let start = strip * self.strip() + step * STEP;
        self.tile_rows[start..start + STEP].split_at(SIDE).into()
    }

    /// Tile rows of a strip.
    fn strip(&self) -> usize {
        self.steps * STEP
    }

    /// The same to be written.
    #[inline(always)]
    fn step(&mut self, strip: usize, step: usize) -> [&mut [TileRow]; 2] {
        let start = strip * self.strip() + step * STEP;
        self.tile_rows[start..start + STEP].split_at_mut(SIDE).into()
    }
}

/// On which side of a product a factor stands.
#[derive(Debug, Clone, Copy)]
enum Side {
    /// A tile's row has 32 numbers of one row.
    Left,
    /// A tile's row has pairs of numbers, one below the other, of 16 columns.
    Right,
}

impl Packed {
    fn pack(&mut self, factor: Operand, side: Side) {
        #[cfg(target_arch = "x86_64")]
        if avx512::is_available() {
            return avx512::pack(self, factor, side);
        }
        scalar::pack(self, factor, side);
    }
}

/// A left factor, packed for AMX.
#[derive(Debug, Default)]
pub struct PackedLeft(Packed);

/// A right factor, packed for AMX.
#[derive(Debug, Default)]
pub struct PackedRight(Packed);

impl PackedLeft {
    /// A packed factor.
    pub fn of<'a>(factor: impl Into<Operand<'a>>) -> Self {
        let mut packed = Self::default();
        packed.pack(factor);
        packed
    }

    /// Packs a factor in the place of what was packed before.
    pub fn pack<'a>(&mut self, factor: impl Into<Operand<'a>>) {
        self.0.pack(factor.into(), Side::Left);
    }
}

impl PackedRight {
    /// A packed factor.
    pub fn of<'a>(factor: impl Into<Operand<'a>>) -> Self {
        let mut packed = Self::default();
        packed.pack(factor);
        packed
    }

    /// Packs a factor in the place of what was packed before.
    pub fn pack<'a>(&mut self, factor: impl Into<Operand<'a>>) {
        self.0.pack(factor.into(), Side::Right);
    }
}

/// Bytes of a packed factor with so many rows (of a left one) or columns (of a right one).
pub fn packed_bytes(len: usize, depth: usize) -> usize {
    len.div_ceil(AT_ONCE) * 2 * depth.div_ceil(DEPTH) * STEP * size_of::<TileRow>()
}

/// Whether this machine has AMX with bf16, and the system lets us use it. Products are right without,
/// and slower than those in f32.
pub fn is_available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return amx::is_available();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// left · right, written to the start of `out` row after row, `stride` apart.
pub fn multiply(
    out: &mut [f32],
    stride: usize,
    onto: Onto,
    left: &PackedLeft,
    right: &PackedRight,
) {
    let (left, right) = (&left.0, &right.0);
    let (rows, columns) = (left.len, right.len);
    assert_eq!(left.steps, right.steps, "steps of a product of {rows}×{columns}");
    assert!(stride >= columns, "rows of {columns} values {stride} apart");
    let last = if rows == 0 { 0 } else { (rows - 1) * stride + columns };
    assert!(out.len() >= last, "room for {} of {rows}×{columns} at {stride}", out.len());
    #[cfg(target_arch = "x86_64")]
    if amx::is_available() {
        return amx::multiply(out, stride, onto, left, right);
    }
    scalar::multiply(out, stride, onto, left, right);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;
    use crate::product::Matrix;
    use crate::simd::instructions::on_each;

    /// Left and right factor, each packed as it stands and from its transpose.
    fn all_ways(a: &[f32], b: &[f32], [m, k, n]: [usize; 3]) -> [(PackedLeft, PackedRight); 2] {
        let transposed = |values: &[f32], columns: usize| -> Vec<f32> {
            let rows = values.len() / columns;
            (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
        };
        let mut ways: [(PackedLeft, PackedRight); 2] = Default::default();
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
        on_each(|| {
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
                            assert!(
                                off <= most,
                                "{m}×{k}×{n}, way {way}, {onto:?}: {off} > {most}"
                            );
                        }
                    }
                }
            }
        });
    }

    #[test]
    fn both_parts_add_up_to_16_bits_and_keep_what_is_not_finite() {
        for x in draw(1000, 4).into_iter().chain([0.0, 1e-30, 3e38]) {
            let [high, low] = scalar::split(x).map(scalar::to_f32);
            assert!((high - x).abs() <= x.abs() / 256.0, "{x}: {high}");
            assert!((high + low - x).abs() <= x.abs() / 65536.0, "{x}: {high} + {low}");
        }
        for x in [f32::NAN, f32::INFINITY, f32::from_bits(0x7fff_ffff), -f32::INFINITY] {
            let high = scalar::to_f32(scalar::split(x)[0]);
            assert!(!high.is_finite(), "{x}: {high}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn packing_with_avx512_gives_the_bits_of_plain_rust() {
        if !avx512::is_available() {
            return;
        }
        for (rows, columns) in [(1, 1), (16, 32), (33, 31), (47, 65), (70, 200)] {
            let mut values = draw(rows * columns, 5);
            // Neither normal nor finite.
            for (value, odd) in values.iter_mut().zip([1e-40, -1e-40, f32::INFINITY, -0.0]) {
                *value = odd;
            }
            let matrix = Matrix::rows_of(&values, columns);
            for factor in [Operand::from(matrix), matrix.transposed()] {
                for side in [Side::Left, Side::Right] {
                    let packed = |pack: fn(&mut Packed, Operand, Side)| {
                        let mut packed = Packed::default();
                        // What was there before must not be seen.
                        pack(&mut packed, Matrix::rows_of(&[f32::NAN; 70 * 90], 90).into(), side);
                        pack(&mut packed, factor, side);
                        let in_use = packed.len.div_ceil(AT_ONCE) * 2 * packed.strip();
                        packed.tile_rows[..in_use].iter().map(|row| row.0).collect::<Vec<_>>()
                    };
                    let equal = packed(avx512::pack) == packed(scalar::pack);
                    assert!(equal, "{rows}×{columns}, {side:?}, {}", factor.transposed);
                }
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn products_with_amx_give_the_bits_of_plain_rust() {
        if !amx::is_available() {
            return;
        }
        for [m, k, n] in [[1, 1, 1], [32, 64, 32], [70, 200, 90]] {
            let (a, b) = (draw(m * k, 6), draw(k * n, 7));
            let left = PackedLeft::of(Matrix::rows_of(&a, k)).0;
            let right = PackedRight::of(Matrix::rows_of(&b, n)).0;
            for onto in [Onto::Replace, Onto::Add] {
                let mut found = draw(m * n, 8);
                let mut expected = found.clone();
                amx::multiply(&mut found, n, onto, &left, &right);
                scalar::multiply(&mut expected, n, onto, &left, &right);
                // The order of sums is the same.
                assert!(found == expected, "{m}×{k}×{n}, {onto:?}");
            }
        }
    }
}
