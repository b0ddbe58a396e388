//! Tiles: how is a batch scored against many objects without the B × K × E matrix of logits?
//!
//! Objects are cut into a fixed number of chunks, chunks into tiles; a tile of logits for a block
//! of rows (a row is one component of one query) is made, used and forgotten while it is in cache, as
//! FlashAttention does with the scores of attention (Dao et al. 2022).
//! A chunk has its own buffers, and chunks are added up in order, so that the bits of the result
//! do not depend on the number of threads.
//!
//! The objects may be a part of all: a range of ids, whose vectors are at hand.
//! What is made of a tile's logits is left to the losses.

pub(crate) mod amx;
pub(crate) mod chunks;
mod grads;
mod logits;

pub use grads::LogitGrads;
pub(crate) use grads::{ChunkGrads, scale};
pub use logits::LogitInputs;
pub(crate) use logits::TiledLogits;

use std::ops::Range;

use crate::pieces;

/// Chunks that objects are cut into: enough for many threads to share, few enough that the copies
/// of the query gradient, one per chunk, stay small.
const CHUNKS: usize = 16;
/// Objects in a tile of logits, at most.
const TILE_OBJECTS: usize = 512;
/// Rows in a tile of logits, at most; 512 × 512 floats fit in a second-level cache.
const TILE_ROWS: usize = 512;

/// Rounds up to 32 floats, so that tile rows are cache-line aligned; lengths under 256 stay, or small
/// graphs would have fewer chunks than threads.
fn aligned(len: usize) -> usize {
    const FLOATS: usize = 32;
    if len < 8 * FLOATS { len } else { len.next_multiple_of(FLOATS) }
}

/// Sizes of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// Queries of the batch.
    pub queries: usize,
    /// Components of each query, one for a plain softmax or sigmoid.
    pub components: usize,
    /// Width of contexts.
    pub context_dim: usize,
    /// Width of objects; the same for most scores.
    pub object_dim: usize,
    /// Ids of the objects that are scored: all, or a part of all.
    pub objects: Range<usize>,
}

impl Shape {
    /// Components of all queries together.
    pub fn rows(&self) -> usize {
        self.queries * self.components
    }

    pub(crate) fn n_objects(&self) -> usize {
        self.objects.len()
    }

    /// Where an object stands among those that are scored, if it is one of them.
    pub(crate) fn place_of(&self, id: usize) -> Option<usize> {
        self.objects.contains(&id).then(|| id - self.objects.start)
    }

    pub(crate) fn chunk_len(&self) -> usize {
        aligned(self.n_objects().div_ceil(CHUNKS)).max(1)
    }

    /// The objects of a chunk, counted from the first that is scored.
    pub(crate) fn chunk(&self, number: usize) -> Range<usize> {
        let start = number * self.chunk_len();
        start..(start + self.chunk_len()).min(self.n_objects())
    }

    pub(crate) fn n_chunks(&self) -> usize {
        self.n_objects().div_ceil(self.chunk_len())
    }

    /// Objects of a tile; those of a chunk have nearly equal width.
    pub(crate) fn tile_len(&self) -> usize {
        let tiles = self.chunk_len().div_ceil(TILE_OBJECTS);
        aligned(self.chunk_len().div_ceil(tiles))
    }

    /// Tiles side by side in a chunk.
    pub(crate) fn tiles_per_chunk(&self) -> usize {
        self.chunk_len().div_ceil(self.tile_len())
    }

    /// Rows per block: all components of a query are in one block.
    pub(crate) fn block_len(&self) -> usize {
        let most = (TILE_ROWS / self.components).max(1) * self.components;
        let blocks = self.rows().div_ceil(most).max(1);
        self.queries.div_ceil(blocks) * self.components
    }

    /// Logits of a tile, at most.
    pub(crate) fn tile_size(&self) -> usize {
        self.block_len() * self.tile_len()
    }

    /// The tiles of a chunk in a fixed order: objects outside, rows inside.
    pub(crate) fn tiles(&self, chunk: usize) -> impl Iterator<Item = Tile> + use<> {
        let (rows, block_len) = (self.rows(), self.block_len());
        let of_objects = move |(number, objects): (usize, Range<usize>)| {
            pieces(0..rows, block_len).map(move |rows| Tile {
                chunk,
                number,
                rows,
                objects: objects.clone(),
            })
        };
        pieces(self.chunk(chunk), self.tile_len()).enumerate().flat_map(of_objects)
    }
}

/// One tile: a block of rows against some objects.
#[derive(Debug, Clone)]
pub(crate) struct Tile {
    pub(crate) chunk: usize,
    /// Among those of its chunk, by objects alone.
    pub(crate) number: usize,
    pub(crate) rows: Range<usize>,
    /// Counted from the first object that is scored.
    pub(crate) objects: Range<usize>,
}

impl Tile {
    /// Number of its logits.
    pub(crate) fn size(&self) -> usize {
        self.rows.len() * self.objects.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_cover_every_row_and_object_once_whatever_the_range() {
        for (queries, components, objects) in
            [(1, 1, 0..1), (700, 3, 5..905), (9, 5, 100..9100), (3, 2, 7..7), (0, 1, 0..9)]
        {
            let shape = Shape { queries, components, context_dim: 4, object_dim: 4, objects };
            let mut seen = vec![0; shape.rows() * shape.n_objects()];
            for tile in (0..shape.n_chunks()).flat_map(|chunk| shape.tiles(chunk)) {
                assert!(tile.size() <= shape.tile_size());
                assert!(tile.rows.len() % components == 0, "a query in two blocks");
                for row in tile.rows.clone() {
                    let objects = tile.objects.clone();
                    objects.for_each(|object| seen[row * shape.n_objects() + object] += 1);
                }
            }
            assert!(seen.iter().all(|times| *times == 1), "{shape:?}");
        }
    }
}
