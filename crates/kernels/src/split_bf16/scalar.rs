//! Split bf16 in plain Rust: what do packing and products give, instruction by instruction?
//!
//! The twin of AVX-512 and AMX: the same layout and the same order of sums, one number at a time. It
//! is what runs where there is no AMX, slowly, so that packing orders and split products are tested
//! on every machine. It differs from AMX in numbers below 1e-38 alone, which AMX takes for zero.

use super::{AT_ONCE, DEPTH, Packed, SIDE, Side};
use crate::product::{Matrix, Onto, Operand};

/// Packs a factor.
pub(super) fn pack(packed: &mut Packed, factor: Operand, side: Side) {
    let Operand { matrix, transposed } = factor;
    // What is summed over: columns of a left factor, rows of a right one.
    let sums_rows = transposed == matches!(side, Side::Left);
    let (len, depth) =
        if sums_rows { (matrix.columns, matrix.rows) } else { (matrix.rows, matrix.columns) };
    packed.resize(len, depth);
    for (i, number) in (0..len).flat_map(|i| (0..depth).map(move |number| (i, number))) {
        let (row, column) = if sums_rows { (number, i) } else { (i, number) };
        let (tile_row, place) = match side {
            Side::Left => (i % SIDE, number % DEPTH),
            Side::Right => (number % DEPTH / 2, 2 * (i % SIDE) + number % 2),
        };
        let parts = split(at(matrix, row, column));
        for (tile, part) in packed.step(i / SIDE, number / DEPTH).into_iter().zip(parts) {
            tile[tile_row].0[place] = part;
        }
    }
}

fn at(matrix: Matrix, row: usize, column: usize) -> f32 {
    matrix.values[row * matrix.stride + column]
}

/// What a number rounds to, and what that leaves, rounded too.
pub(super) fn split(x: f32) -> [u16; 2] {
    let high = to_bf16(x);
    [high, to_bf16(x - to_f32(high))]
}

/// The nearest bf16, of two as near the even one; numbers that are not normal become zero, as
/// AVX-512's instruction has it.
fn to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        // Some digit stays set, or it would be infinite.
        return (bits >> 16) as u16 | 0x40;
    }
    if x.is_subnormal() {
        return (bits >> 16) as u16 & 0x8000;
    }
    let is_odd = (bits >> 16) & 1;
    ((bits + 0x7fff + is_odd) >> 16) as u16
}

/// Exact: a bf16 is the upper half of an f32.
pub(super) fn to_f32(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// left · right, row after row, `stride` apart; shapes agree and there is room.
pub(super) fn multiply(out: &mut [f32], stride: usize, onto: Onto, left: &Packed, right: &Packed) {
    debug_assert_eq!(AT_ONCE % SIDE, 0, "strips come in twos");
    for row in 0..left.len {
        let out = &mut out[row * stride..][..right.len];
        if onto == Onto::Replace {
            out.fill(0.0);
        }
        for step in 0..left.steps {
            let [high, low] = left.tiles(row / SIDE, step).map(|tile| tile[row % SIDE].0);
            let [high, low] = [high, low].map(|numbers| numbers.map(to_f32));
            for (strip, out) in out.chunks_mut(SIDE).enumerate() {
                let [right_high, right_low] = right.tiles(strip, step);
                for (numbers, tile) in [(&high, right_high), (&high, right_low), (&low, right_high)]
                {
                    for (column, out) in out.iter_mut().enumerate() {
                        *out += pair_sums(numbers, |pair, i| to_f32(tile[pair].0[2 * column + i]));
                    }
                }
            }
        }
    }
}

/// What one instruction adds to a value of its output: the sum of the products of numbers at even
/// places, and that of those at odd ones. A product of two bf16 is exact in f32.
fn pair_sums(left: &[f32; DEPTH], right: impl Fn(usize, usize) -> f32) -> f32 {
    let mut sums = [0.0; 2];
    for (pair, left) in left.as_chunks::<2>().0.iter().enumerate() {
        for (i, sum) in sums.iter_mut().enumerate() {
            *sum += left[i] * right(pair, i);
        }
    }
    sums[0] + sums[1]
}
