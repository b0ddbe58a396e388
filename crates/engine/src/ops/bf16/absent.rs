//! What stands in the place of a unit where no processor has one: nothing is ever packed.

use super::Packed;
use crate::ops::product::{Matrix, Onto};

pub(super) fn is_available() -> bool {
    false
}

pub(super) fn multiply(_: &mut [f32], _: usize, _: Onto, _: &Packed, _: &Packed) {
    unreachable!("no unit for bf16")
}

pub(super) fn lines_of_rows(_: &mut Packed, _: Matrix) {
    unreachable!("no unit for bf16")
}

pub(super) fn lines_of_columns(_: &mut Packed, _: Matrix) {
    unreachable!("no unit for bf16")
}

pub(super) fn pairs_of_rows(_: &mut Packed, _: Matrix) {
    unreachable!("no unit for bf16")
}

pub(super) fn pairs_of_columns(_: &mut Packed, _: Matrix) {
    unreachable!("no unit for bf16")
}
