//! Sparse rows: which loops choose a few entries of a row, and multiply only these?
//!
//! An entry of size x is chosen if x is larger than a number u of its own between 0 and 1: always
//! if x ≥ 1, and else with probability x. The numbers of a row are a random start and steps of the
//! golden ratio, each uniform by itself, and together more even than if they were independent.

use super::{LANES, multiply_add};
use crate::product::Onto;

/// 2³² over the golden ratio, made odd.
const STEP: u32 = 0x9e37_79b1;
/// Numbers u are multiples of one over this: as many as a float can tell apart.
const GRAINS: f32 = 16_777_216.0;

/// Where the chosen entries of a row are written.
pub struct Chosen<'a> {
    /// Their columns, ascending.
    pub columns: &'a mut [u16],
    /// Their values.
    pub values: &'a mut [f32],
}

/// Some rows of a table, and what each is multiplied by.
#[derive(Debug, Clone, Copy)]
pub struct ChosenRows<'a> {
    /// Numbers of rows.
    pub rows: &'a [u16],
    /// One for each of these.
    pub factors: &'a [f32],
    /// As wide as what it is added to.
    pub table: &'a [f32],
}

/// Writes the chosen of a row of values x, whose sizes are `factor`·x, and gives their number; there
/// must be room for all.
pub fn select(row: &[f32], factor: f32, start: u32, out: Chosen<'_>) -> usize {
    let Chosen { columns, values } = &out;
    assert!(columns.len() >= row.len() && values.len() >= row.len(), "room for {}", row.len());
    assert!(row.len() <= 1 + usize::from(u16::MAX), "a row of {}", row.len());
    #[cfg(target_arch = "x86_64")]
    if super::instructions::has_avx512() {
        // SAFETY: the features it was compiled for were found just now.
        return unsafe { select_by_masks(row, factor, start, out) };
    }
    select_by_bits(row, factor, start, out)
}

dispatched!(
    /// The same with the instructions that most machines have.
    pub select_by_bits, select_body, (row: &[f32], factor: f32, start: u32, out: Chosen<'_>) -> usize
);
dispatched!(
    /// Σ min(`factor`·x, 1): how many are chosen on average.
    pub expected, expected_body, (row: &[f32], factor: f32) -> f32
);
dispatched!(
    /// Adds Σ factor·row to `sum`, or replaces it by that.
    pub add_rows, add_rows_body, (sum: &mut [f32], onto: Onto, chosen: ChosenRows<'_>)
);

/// Whether an entry of size `size` is chosen.
#[inline(always)]
pub fn is_chosen(size: f32, start: u32, column: u16) -> bool {
    let grains = start.wrapping_add(STEP.wrapping_mul(u32::from(column))) >> 8;
    // Half a grain off, so that what is nothing is never chosen.
    size * GRAINS - 0.5 > grains as f32
}

#[inline(always)]
fn select_body<const FMA: bool>(row: &[f32], factor: f32, start: u32, out: Chosen<'_>) -> usize {
    let Chosen { columns, values } = out;
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut count = 0;
    let mut grains: [u32; LANES] =
        std::array::from_fn(|i| start.wrapping_add(STEP.wrapping_mul(i as u32)));
    for (number, block) in blocks.iter().enumerate() {
        let mut above = [0_u32; LANES];
        for i in 0..LANES {
            // Both as signed numbers, which is what there are instructions for; they are small.
            let grain = (grains[i] >> 8) as i32 as f32;
            let size = multiply_add::<FMA>(block[i], factor * GRAINS, -0.5);
            above[i] = if size > grain { u32::MAX } else { 0 };
            grains[i] = grains[i].wrapping_add(STEP.wrapping_mul(LANES as u32));
        }
        let mut chosen = bits::<FMA>(&above);
        while chosen != 0 {
            let i = chosen.trailing_zeros() as usize;
            columns[count] = (number * LANES + i) as u16;
            values[count] = block[i];
            count += 1;
            chosen &= chosen - 1;
        }
    }
    let first = row.len() - rest.len();
    for (i, x) in rest.iter().enumerate() {
        let grain = (grains[i] >> 8) as i32 as f32;
        if multiply_add::<FMA>(*x, factor * GRAINS, -0.5) > grain {
            (columns[count], values[count]) = ((first + i) as u16, *x);
            count += 1;
        }
    }
    count
}

/// The same with AVX-512, which compares to a mask and writes what a mask says.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
fn select_by_masks(row: &[f32], factor: f32, start: u32, out: Chosen<'_>) -> usize {
    use std::arch::x86_64::*;
    let Chosen { columns, values } = out;
    let (blocks, rest) = row.as_chunks::<LANES>();
    let grain = |i: usize| start.wrapping_add(STEP.wrapping_mul(i as u32));
    let numbers: [i32; LANES] = std::array::from_fn(|i| i as i32);
    let first: [i32; LANES] = std::array::from_fn(|i| grain(i) as i32);
    // SAFETY: both have sixteen lanes.
    let (numbers, mut grains) =
        unsafe { (_mm512_loadu_epi32(numbers.as_ptr()), _mm512_loadu_epi32(first.as_ptr())) };
    let step = _mm512_set1_epi32(STEP.wrapping_mul(LANES as u32) as i32);
    let (factors, half) = (_mm512_set1_ps(factor * GRAINS), _mm512_set1_ps(-0.5));
    let mut count = 0;
    for (number, block) in blocks.iter().enumerate() {
        // SAFETY: a block has sixteen lanes.
        let block = unsafe { _mm512_loadu_ps(block.as_ptr()) };
        let sizes = _mm512_fmadd_ps(block, factors, half);
        let grain = _mm512_cvtepi32_ps(_mm512_srli_epi32::<8>(grains));
        let chosen = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(sizes, grain);
        grains = _mm512_add_epi32(grains, step);
        if chosen != 0 {
            let at = _mm512_add_epi32(numbers, _mm512_set1_epi32((number * LANES) as i32));
            let at = _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(chosen, at));
            let block = _mm512_maskz_compress_ps(chosen, block);
            // SAFETY: no more were chosen than blocks before have lanes, and there is room for all of
            // these blocks and this one, as the caller has asserted.
            unsafe {
                _mm256_storeu_epi16(columns[count..].as_mut_ptr().cast(), at);
                _mm512_storeu_ps(values[count..].as_mut_ptr(), block);
            }
            count += chosen.count_ones() as usize;
        }
    }
    let first = row.len() - rest.len();
    for (i, x) in (first..).zip(rest) {
        if x.mul_add(factor * GRAINS, -0.5) > (grain(i) >> 8) as f32 {
            (columns[count], values[count]) = (i as u16, *x);
            count += 1;
        }
    }
    count
}

/// The highest bit of each lane.
#[inline(always)]
fn bits<const AVX2: bool>(lanes: &[u32; LANES]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if AVX2 {
        use std::arch::x86_64::{_mm256_loadu_ps, _mm256_movemask_ps};
        let [low, high] = [0, LANES / 2].map(|at| lanes[at..].as_ptr().cast::<f32>());
        // SAFETY: only bodies compiled for AVX2 and called where it was found are made with `true`,
        // and each half has eight lanes.
        let [low, high] =
            [low, high].map(|half| unsafe { _mm256_movemask_ps(_mm256_loadu_ps(half)) } as u32);
        return low | (high << (LANES / 2));
    }
    lanes.iter().enumerate().fold(0, |bits, (i, lane)| bits | ((lane >> 31) << i))
}

#[inline(always)]
fn expected_body<const FMA: bool>(row: &[f32], factor: f32) -> f32 {
    let (blocks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for block in blocks {
        for i in 0..LANES {
            let size = factor * block[i];
            lanes[i] += if size < 1.0 { size } else { 1.0 };
        }
    }
    super::total(lanes) + rest.iter().map(|x| (factor * x).min(1.0)).sum::<f32>()
}

#[inline(always)]
fn add_rows_body<const FMA: bool>(sum: &mut [f32], onto: Onto, chosen: ChosenRows<'_>) {
    let dim = sum.len();
    let mut at = 0;
    // Widths that stay in registers over all chosen rows, the widest first.
    while dim - at >= 96 {
        add_columns::<FMA, 96>(sum, onto, chosen, at);
        at += 96;
    }
    while dim - at >= 32 {
        add_columns::<FMA, 32>(sum, onto, chosen, at);
        at += 32;
    }
    while dim - at >= 8 {
        add_columns::<FMA, 8>(sum, onto, chosen, at);
        at += 8;
    }
    while at < dim {
        add_columns::<FMA, 1>(sum, onto, chosen, at);
        at += 1;
    }
}

/// The same for `N` columns from `at` on.
#[inline(always)]
fn add_columns<const FMA: bool, const N: usize>(
    sum: &mut [f32],
    onto: Onto,
    ChosenRows { rows, factors, table }: ChosenRows<'_>,
    at: usize,
) {
    let dim = sum.len();
    let sum = &mut sum[at..at + N];
    let mut lanes = [0.0; N];
    if onto == Onto::Add {
        lanes.copy_from_slice(sum);
    }
    for (row, factor) in rows.iter().zip(factors) {
        let row = &table[usize::from(*row) * dim + at..][..N];
        for i in 0..N {
            lanes[i] = multiply_add::<FMA>(*factor, row[i], lanes[i]);
        }
    }
    sum.copy_from_slice(&lanes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::instructions::on_each;

    /// By the instructions of most machines and by those of this one, which must agree.
    fn selected(row: &[f32], factor: f32, start: u32) -> (Vec<u16>, Vec<f32>) {
        let [by_bits, fastest] = [select_by_bits, select].map(|select| {
            let (mut columns, mut values) = (vec![0; row.len()], vec![0.0; row.len()]);
            let out = Chosen { columns: &mut columns, values: &mut values };
            let count = select(row, factor, start, out);
            columns.truncate(count);
            values.truncate(count);
            (columns, values)
        });
        assert_eq!(by_bits, fastest);
        fastest
    }

    /// Sizes from far below to above one.
    fn row(n: usize) -> Vec<f32> {
        (0..n).map(|i| (-(i as f32 * 0.37 % 9.0)).exp() * 2.0).collect()
    }

    #[test]
    fn chosen_are_those_that_the_rule_says_at_every_length() {
        on_each(|| {
            for n in [0, 1, 15, 16, 17, 100, 512] {
                for start in [0, 12_345, u32::MAX] {
                    let row = row(n);
                    let (columns, values) = selected(&row, 0.7, start);
                    let expected: Vec<u16> = (0..n as u16)
                        .filter(|column| is_chosen(0.7 * row[usize::from(*column)], start, *column))
                        .collect();
                    assert_eq!(columns, expected);
                    let stand_there = columns.iter().map(|column| row[usize::from(*column)]);
                    assert!(stand_there.eq(values));
                }
            }
        });
    }

    #[test]
    fn entries_are_chosen_as_often_as_their_size_says() {
        const DRAWS: u32 = 4096;
        let row = row(50);
        let mut counts = [0_u32; 50];
        for draw in 0..DRAWS {
            // Starts a part of the circle apart: the counts are then right to within one or two.
            let (columns, _) = selected(&row, 0.7, draw.wrapping_mul(u32::MAX / DRAWS));
            columns.iter().for_each(|column| counts[usize::from(*column)] += 1);
        }
        for (x, count) in row.iter().zip(counts) {
            let chance = (0.7 * x).min(1.0) * DRAWS as f32;
            assert!((count as f32 - chance).abs() <= 2.0, "{x}: {count} times, not {chance}");
        }
        let mean = counts.iter().sum::<u32>() as f32 / DRAWS as f32;
        assert!((expected(&row, 0.7) - mean).abs() < 0.1);
        assert!(selected(&[0.0; 40], 1.0, 0).0.is_empty());
    }

    #[test]
    fn rows_are_added_in_every_width() {
        on_each(|| {
            for dim in [1, 7, 8, 33, 96, 104, 200] {
                let table: Vec<f32> = (0..5 * dim).map(|i| (i as f32 * 0.3).sin()).collect();
                let (rows, factors) = ([4, 0, 4], [0.5, -1.0, 2.0]);
                let chosen = ChosenRows { rows: &rows, factors: &factors, table: &table };
                for onto in [Onto::Replace, Onto::Add] {
                    let mut sum = vec![7.0; dim];
                    add_rows(&mut sum, onto, chosen);
                    for (i, found) in sum.iter().enumerate() {
                        let before = if onto == Onto::Add { 7.0 } else { 0.0 };
                        let expected = before + 2.5 * table[4 * dim + i] - table[i];
                        assert!((found - expected).abs() < 1e-5, "{found}, not {expected}");
                    }
                }
            }
        });
    }
}
