//! Buffers of softmax losses, kept from one training step to the next.

use crate::aligned::AlignedBuf;
use crate::log_sum::LogSum;
use crate::loss::saved_tiles::SavedTiles;
use crate::loss::sparse::TileEntries;
use crate::pool::{Lender, Pool};
use crate::tiles::Shape;
use crate::tiles::amx::{PackedContexts, PackedTile};
use crate::tiles::chunks::Chunks;

/// Buffers that one training step leaves to the next.
#[derive(Debug)]
pub struct Workspace {
    pub(super) chunks: Pool<Chunks<Scratch>>,
    pub(super) contexts: Pool<PackedContexts>,
    /// A set for each chunk, of the last forward pass: memory is forecast for no more.
    pub(super) saved: Lender<Vec<SavedTiles>>,
    /// Bytes that saved tiles may take.
    pub(super) saved_bytes: usize,
}

impl Workspace {
    /// One that saves tiles of logits up to `saved_bytes`; the rest is computed twice.
    pub fn new(saved_bytes: usize) -> Self {
        Self {
            chunks: Pool::default(),
            contexts: Pool::default(),
            saved: Lender::default(),
            saved_bytes,
        }
    }
}

/// What a chunk works in.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// The tile at work, unless it is saved.
    pub(super) tile: AlignedBuf,
    /// What is packed of the tile at work, where AMX multiplies it.
    pub(super) packed: PackedTile,
    /// The entries of the tile at work that are multiplied, where they are few.
    pub(super) entries: TileEntries,
    /// What makes gradients of the tile at work, row by row.
    pub(super) factors: Vec<f32>,
    /// Σ exp z of each row, over the whole chunk.
    pub(super) rows: Vec<LogSum>,
}

impl Scratch {
    /// Forgets what an earlier pass left.
    pub(super) fn clear(&mut self, shape: &Shape) {
        self.packed.clear();
        self.rows.clear();
        self.rows.resize(shape.rows(), LogSum::EMPTY);
    }
}
