//! Packed factors: in which order does AMX read them?
//!
//! Numbers are split and put in place with AVX-512, which every machine with AMX has.

use std::arch::x86_64::*;
use std::mem::transmute;

use super::{DEPTH, Packed, SIDE, Side, TileRow};
use crate::product::{Matrix, Operand};

/// Whether the machine has AVX-512 with its instructions for bf16.
pub(super) fn is_available() -> bool {
    crate::simd::instructions::has_avx512() && std::arch::is_x86_feature_detected!("avx512bf16")
}

/// Packs a factor, where [`is_available`].
pub(super) fn pack(packed: &mut Packed, factor: Operand, side: Side) {
    assert!(is_available(), "no AVX-512 with bf16");
    let Operand { matrix, transposed } = factor;
    // SAFETY: the machine has what they were compiled for, as asserted above.
    unsafe {
        match (side, transposed) {
            (Side::Left, false) => lines_of_rows(packed, matrix),
            (Side::Left, true) => lines_of_columns(packed, matrix),
            (Side::Right, false) => pairs_of_columns(packed, matrix),
            (Side::Right, true) => pairs_of_rows(packed, matrix),
        }
    }
}

/// Up to 32 numbers: what they round to, and what that leaves; zeros after them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn split(values: &[f32]) -> [__m512i; 2] {
    assert!(values.len() <= DEPTH, "{} numbers of a tile's row", values.len());
    let mask = ((1_u64 << values.len()) - 1) as u32;
    // SAFETY: reads what there is of the values: masks have no more bits.
    let (first, second) = unsafe {
        (
            _mm512_maskz_loadu_ps(mask as u16, values.as_ptr()),
            _mm512_maskz_loadu_ps((mask >> SIDE) as u16, values.as_ptr().wrapping_add(SIDE)),
        )
    };
    // SAFETY: all are 64 bytes of plain numbers.
    unsafe {
        let high: __m512i = transmute(_mm512_cvtne2ps_pbh(second, first));
        let (low_half, high_half) =
            (_mm512_castsi512_si256(high), _mm512_extracti64x4_epi64::<1>(high));
        let first = _mm512_sub_ps(first, widened(low_half));
        let second = _mm512_sub_ps(second, widened(high_half));
        [high, transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(second, first))]
    }
}

/// A tile's row of the numbers in a register.
#[inline(always)]
fn tile_row(numbers: __m512i) -> TileRow {
    // SAFETY: both are 64 bytes of plain numbers.
    unsafe { transmute(numbers) }
}

#[target_feature(enable = "avx512f")]
fn widened(numbers: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(numbers)))
}

/// A tile's row is 32 numbers of a row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn lines_of_rows(packed: &mut Packed, matrix: Matrix) {
    packed.resize(matrix.rows, matrix.columns);
    for row in 0..matrix.rows {
        for (number, values) in matrix.row(row).chunks(DEPTH).enumerate() {
            let parts = split(values);
            for (tile, part) in packed.step(row / SIDE, number).into_iter().zip(parts) {
                tile[row % SIDE] = tile_row(part);
            }
        }
    }
}

/// A tile's row is 32 numbers of a column.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn lines_of_columns(packed: &mut Packed, matrix: Matrix) {
    packed.resize(matrix.columns, matrix.rows);
    for row in 0..matrix.rows {
        for (strip, values) in matrix.row(row).chunks(SIDE).enumerate() {
            let parts = split(values);
            for (tile, part) in packed.step(strip, row / DEPTH).into_iter().zip(parts) {
                // Of a strip that is not full, zeros to columns that there are not.
                for (out, value) in tile.iter_mut().zip(tile_row(part).0) {
                    out.0[row % DEPTH] = value;
                }
            }
        }
    }
}

/// A tile's row is two numbers of each of 16 rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn pairs_of_rows(packed: &mut Packed, matrix: Matrix) {
    packed.resize(matrix.rows, matrix.columns);
    for strip in 0..matrix.rows.div_ceil(SIDE) {
        let rows = strip * SIDE..matrix.rows.min((strip + 1) * SIDE);
        for (number, start) in (0..matrix.columns).step_by(DEPTH).enumerate() {
            let end = matrix.columns.min(start + DEPTH);
            let mut parts = [[_mm512_setzero_si512(); SIDE]; 2];
            for (i, row) in rows.clone().enumerate() {
                let [high, low] = split(&matrix.row(row)[start..end]);
                (parts[0][i], parts[1][i]) = (high, low);
            }
            for (tile, part) in packed.step(strip, number).into_iter().zip(parts) {
                transpose(&part, tile.try_into().expect("a tile has as many rows"));
            }
        }
    }
}

/// Makes a tile's rows of what stands at the same place in all rows, two numbers at a time.
#[target_feature(enable = "avx512f")]
fn transpose(rows: &[__m512i; SIDE], out: &mut [TileRow; SIDE]) {
    let none = _mm512_setzero_si512();
    // Pairs of pairs: blocks of two by two, then of four by four, in every quarter of a register.
    let mut twos = [none; SIDE];
    for i in 0..SIDE / 2 {
        twos[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        twos[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    let mut fours = [none; SIDE];
    for i in 0..SIDE / 4 {
        let [a, b, c, d] = [0, 1, 2, 3].map(|j| twos[4 * i + j]);
        fours[4 * i] = _mm512_unpacklo_epi64(a, c);
        fours[4 * i + 1] = _mm512_unpackhi_epi64(a, c);
        fours[4 * i + 2] = _mm512_unpacklo_epi64(b, d);
        fours[4 * i + 3] = _mm512_unpackhi_epi64(b, d);
    }
    // Then the quarters themselves: of `fours[j]`, `fours[4 + j]` and so on, quarter q belongs to
    // row 4q + j.
    for j in 0..4 {
        let [a, b, c, d] = [0, 4, 8, 12].map(|i| fours[i + j]);
        let (ab_even, ab_odd) =
            (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
        let (cd_even, cd_odd) =
            (_mm512_shuffle_i32x4::<0x88>(c, d), _mm512_shuffle_i32x4::<0xdd>(c, d));
        let quarters = [
            _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even),
            _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd),
            _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even),
            _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd),
        ];
        for (q, quarter) in quarters.into_iter().enumerate() {
            out[4 * q + j] = tile_row(quarter);
        }
    }
}

/// A tile's row is two numbers of each of 16 columns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
fn pairs_of_columns(packed: &mut Packed, matrix: Matrix) {
    packed.resize(matrix.columns, matrix.rows);
    // Numbers of two rows in turn: the first sixteen of each, and the others.
    let in_turn = |start: u16| -> __m512i {
        let places: [u16; DEPTH] =
            std::array::from_fn(|i| start + i as u16 / 2 + if i % 2 == 0 { 0 } else { 32 });
        // SAFETY: 64 bytes of plain numbers.
        unsafe { transmute(places) }
    };
    let places = [in_turn(0), in_turn(SIDE as u16)];
    for pair in 0..matrix.rows.div_ceil(2) {
        let above = matrix.row(2 * pair);
        let below = if 2 * pair + 1 < matrix.rows { matrix.row(2 * pair + 1) } else { &[] };
        for (number, above) in above.chunks(DEPTH).enumerate() {
            let below = below.get(number * DEPTH..).unwrap_or(&[]);
            let [above, below] = [split(above), split(&below[..below.len().min(above.len())])];
            for part in 0..2 {
                // Strips come in twos, so the second of these is there.
                for (side, places) in places.into_iter().enumerate() {
                    let in_turn = _mm512_permutex2var_epi16(above[part], places, below[part]);
                    let tile = &mut packed.step(2 * number + side, pair / SIDE)[part];
                    tile[pair % SIDE] = tile_row(in_turn);
                }
            }
        }
    }
}
