//! Chunk plans: are all entries of a chunk's gradient multiplied, or a few?

use super::sparse::{FEW, FEW_BESIDE_AMX, Thinning};
use crate::simd::select::expected;

/// Every so many rows are looked at.
const LOOKED_AT: usize = 16;

/// How the tiles of a chunk become gradients. The first of them decides for all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) enum ChunkPlan {
    /// All entries are multiplied, as matrices.
    #[default]
    Dense,
    /// The few that thinning takes are.
    Sparse(Thinning),
}

/// A chunk's first tile.
pub(super) struct FirstTile<'a> {
    /// Row after row.
    pub(super) values: &'a [f32],
    /// Objects of a row.
    pub(super) width: usize,
    /// Whether AMX would multiply all of them.
    pub(super) is_on_amx: bool,
}

impl ChunkPlan {
    /// Sparse if few entries of the first tile are taken on average; `factor` makes sizes, in units of
    /// ε, of a row's values.
    ///
    /// On average, because what is taken must not depend on what happens to be taken.
    pub(super) fn of(
        thinning: Option<Thinning>,
        first: &FirstTile,
        factor: impl Fn(Thinning, usize) -> f32,
    ) -> Self {
        let Some(thinning) = thinning else { return Self::Dense };
        let rows = first.values.chunks_exact(first.width).enumerate().step_by(LOOKED_AT);
        let (mut taken, mut all) = (0.0, 0);
        for (row, values) in rows {
            taken += expected(values, factor(thinning, row));
            all += values.len();
        }
        let few = if first.is_on_amx { FEW_BESIDE_AMX } else { FEW };
        if taken <= few * all as f32 { Self::Sparse(thinning) } else { Self::Dense }
    }
}
