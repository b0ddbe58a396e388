//! Saved tiles: what does the forward pass leave to the backward pass?
//!
//! All of a tile, or the few of its entries that may be needed, as far as there is room; the logits of
//! all others are computed again, as FlashAttention does with all of them (Dao et al. 2022). Tiles are
//! saved as exp(z − the row's maximum in the tile), which saves one of four products and half of the
//! exponentials.

use super::plan::ChunkPlan;
use super::sparse::{Entries, FEW};
use crate::aligned::AlignedBuf;
use crate::tiles::{Shape, Tile};

/// What is saved of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SavedTile {
    /// All values, from here on.
    Dense(usize),
    /// Some of its entries.
    Sparse,
    /// Nothing.
    None,
}

/// The values of dense tiles, one after the other.
#[derive(Debug, Default)]
pub(super) struct DenseTiles {
    values: AlignedBuf,
    /// Values in use.
    len: usize,
}

impl DenseTiles {
    /// The values of the tile that is saved from `start` on.
    pub(super) fn at(&mut self, start: usize, tile: &Tile) -> &mut [f32] {
        &mut self.values.first(self.len)[start..][..tile.size()]
    }
}

/// What is saved of a chunk.
#[derive(Debug, Default)]
pub(super) struct SavedTiles {
    /// By the first tile, as the forward pass knew it.
    pub(super) plan: ChunkPlan,
    /// Tile after tile.
    pub(super) tiles: Vec<SavedTile>,
    pub(super) dense: DenseTiles,
    /// Entries of sparse tiles; a row for each row of every tile, empty where there are none.
    pub(super) entries: Entries,
    /// The largest logit of every row of every tile, as in `entries`.
    pub(super) maxima: Vec<f32>,
}

impl SavedTiles {
    pub(super) fn clear(&mut self) {
        self.plan = ChunkPlan::Dense;
        self.tiles.clear();
        self.dense.len = 0;
        self.entries.clear();
        self.maxima.clear();
    }

    /// Makes room for all of the next tile, if no more than `bytes` are in use with it.
    pub(super) fn reserve_dense(&mut self, tile: &Tile, bytes: usize) -> SavedTile {
        let mut saved = SavedTile::None;
        if self.n_bytes() + tile.size() * size_of::<f32>() <= bytes {
            saved = SavedTile::Dense(self.dense.len);
            self.dense.len += tile.size();
        }
        self.tiles.push(saved);
        saved
    }

    /// Allows entries of the next tile, if no more than `bytes` would be in use with as many as a
    /// sparse tile has at most.
    pub(super) fn reserve_sparse(&mut self, tile: &Tile, bytes: usize) -> SavedTile {
        let most = tile.size() as f64 * f64::from(FEW) * Entries::BYTES as f64;
        let fits = self.n_bytes() + most as usize <= bytes;
        let saved = if fits { SavedTile::Sparse } else { SavedTile::None };
        self.tiles.push(saved);
        saved
    }

    fn n_bytes(&self) -> usize {
        self.dense.len * size_of::<f32>() + self.entries.n_bytes()
    }

    /// Where a tile's rows stand in `entries` and `maxima`.
    pub(super) fn first_row(shape: &Shape, tile: &Tile) -> usize {
        tile.number * shape.rows() + tile.rows.start
    }
}
