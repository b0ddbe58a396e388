//! Intel's AMX: how are its instructions given?
//!
//! Rust has no stable names for its instructions, so they stand here in assembly. A thread sets its
//! tiles up before a product and gives them back after it: nothing of them outlives a call.

use std::arch::asm;
use std::sync::OnceLock;

use super::{AT_ONCE, Packed, SIDE, TileRow};
use crate::product::Onto;

/// Shapes of the tiles, as AMX reads them.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    bytes_per_row: [u16; 16],
    rows: [u8; 16],
}

/// Eight full tiles.
const FULL: Shapes = {
    let (mut bytes_per_row, mut rows) = ([0; 16], [0; 16]);
    let mut tile = 0;
    while tile < 8 {
        bytes_per_row[tile] = size_of::<TileRow>() as u16;
        rows[tile] = SIDE as u8;
        tile += 1;
    }
    Shapes { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row, rows }
};

pub(super) fn is_available() -> bool {
    static IS_USABLE: OnceLock<bool> = OnceLock::new();
    // AVX-512 is for packing; every machine with AMX has it.
    super::avx512::is_available() && *IS_USABLE.get_or_init(|| has_instructions() && is_permitted())
}

fn has_instructions() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// Of leaf 7: the tiles of AMX, and its products of bf16.
    const TILES: u32 = 1 << 24;
    const BF16: u32 = 1 << 22;
    let has_leaf = __cpuid(0).eax >= 7;
    has_leaf && __cpuid_count(7, 0).edx & (TILES | BF16) == TILES | BF16
}

/// Asks the system to keep the registers of AMX when it changes threads. That is for the whole
/// process, and only has to be asked once.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const REQUEST_PERMISSION: u64 = 0x1023;
    const TILE_DATA: u64 = 18;
    let result: i64;
    // SAFETY: a system call that takes two numbers and touches no memory of ours; rcx and r11 are
    // all that it changes besides its result.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") ARCH_PRCTL => result,
            in("rdi") REQUEST_PERMISSION,
            in("rsi") TILE_DATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// left · right, row after row, `stride` apart; shapes agree and there is room.
pub(super) fn multiply(out: &mut [f32], stride: usize, onto: Onto, left: &Packed, right: &Packed) {
    let (rows, columns) = (left.len, right.len);
    let mut edge = [0.0; AT_ONCE * AT_ONCE];
    // SAFETY: AMX is there and permitted, as the caller has asserted; shapes are read only.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &FULL, options(nostack, readonly)) };
    for column in (0..columns).step_by(AT_ONCE) {
        let right = &right.tile_rows[column / SIDE * right.strip()..][..2 * right.strip()];
        for row in (0..rows).step_by(AT_ONCE) {
            let left = &left.tile_rows[row / SIDE * left.strip()..][..2 * left.strip()];
            if row + AT_ONCE <= rows && column + AT_ONCE <= columns {
                let last = (row + AT_ONCE - 1) * stride + column + AT_ONCE;
                block(&mut out[row * stride + column..last], stride, onto, left, right);
                continue;
            }
            let width = AT_ONCE.min(columns - column);
            let at = |i: usize| (row + i) * stride + column..(row + i) * stride + column + width;
            let rows_here = AT_ONCE.min(rows - row);
            if onto == Onto::Add {
                for (i, edge) in edge.chunks_exact_mut(AT_ONCE).take(rows_here).enumerate() {
                    edge[..width].copy_from_slice(&out[at(i)]);
                }
            }
            block(&mut edge, AT_ONCE, onto, left, right);
            for (i, edge) in edge.chunks_exact(AT_ONCE).take(rows_here).enumerate() {
                out[at(i)].copy_from_slice(&edge[..width]);
            }
        }
    }
    // SAFETY: gives back what was set up above.
    unsafe { asm!("tilerelease", options(nostack, nomem)) };
}

/// 32 by 32 sums: two strips of each factor. Rows of `out` are `stride` apart; tiles are set up.
#[expect(clippy::too_many_lines, reason = "one piece of assembly")]
fn block(out: &mut [f32], stride: usize, onto: Onto, left: &[TileRow], right: &[TileRow]) {
    assert!(out.len() >= (AT_ONCE - 1) * stride + AT_ONCE && left.len() == right.len());
    let strip = left.len() / 2;
    let steps = strip / super::STEP;
    assert!(steps > 0, "nothing to sum over");
    let upper = out.as_mut_ptr();
    prefetch(out, stride);
    // SAFETY: reads two strips of each factor, which are `steps` long, and reads and writes 32 rows of
    // `out` of 32 values each, all inside their slices as asserted above; the tiles are ours alone.
    unsafe {
        asm!(
            "test {add:e}, {add:e}",
            "jnz 3f",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "jmp 2f",
            "3:",
            "tileloadd tmm0, [{upper} + {stride}*1]",
            "tileloadd tmm1, [{upper} + {stride}*1 + 64]",
            "tileloadd tmm2, [{lower} + {stride}*1]",
            "tileloadd tmm3, [{lower} + {stride}*1 + 64]",
            "2:",
            // Rounded numbers of both.
            "tileloadd tmm4, [{left_0} + {line}*1]",
            "tileloadd tmm6, [{right_0} + {line}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right_1} + {line}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{left_1} + {line}*1]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // What is left on the right.
            "tileloadd tmm6, [{right_0} + {line}*1 + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tileloadd tmm7, [{right_1} + {line}*1 + 1024]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm3, tmm5, tmm7",
            // What is left on the left.
            "tileloadd tmm6, [{right_0} + {line}*1]",
            "tileloadd tmm4, [{left_0} + {line}*1 + 1024]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{right_1} + {line}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{left_1} + {line}*1 + 1024]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {left_0}, 2048",
            "add {left_1}, 2048",
            "add {right_0}, 2048",
            "add {right_1}, 2048",
            "dec {steps}",
            "jnz 2b",
            "tilestored [{upper} + {stride}*1], tmm0",
            "tilestored [{upper} + {stride}*1 + 64], tmm1",
            "tilestored [{lower} + {stride}*1], tmm2",
            "tilestored [{lower} + {stride}*1 + 64], tmm3",
            left_0 = inout(reg) left.as_ptr() => _,
            left_1 = inout(reg) left[strip..].as_ptr() => _,
            right_0 = inout(reg) right.as_ptr() => _,
            right_1 = inout(reg) right[strip..].as_ptr() => _,
            steps = inout(reg) steps => _,
            line = in(reg) size_of::<TileRow>(),
            upper = in(reg) upper,
            lower = in(reg) upper.add(SIDE * stride),
            stride = in(reg) stride * size_of::<f32>(),
            add = in(reg) i32::from(onto == Onto::Add),
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// Has the rows that a block will be written to fetched while it is computed: without, AMX
/// waits for each of them when it writes.
fn prefetch(out: &[f32], stride: usize) {
    use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
    for row in out.chunks(stride).take(AT_ONCE) {
        for line in [0, SIDE, AT_ONCE - 1] {
            // SAFETY: a hint, which reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(row.as_ptr().wrapping_add(line).cast()) };
        }
    }
}
