//! Tiles on AMX: how are the products of tiles made as split bf16, where the processor multiplies
//! these?
//!
//! Contexts are packed once for a pass, objects once for a tile of them, which goes through all blocks
//! of rows. The gradient of a tile is packed twice, as the left factor of that of the contexts and as
//! the right factor of that of the objects, a slice of rows at a time.
//! How split bf16 are multiplied is the business of [`split_bf16`].

use std::ops::Range;

use rayon::prelude::*;

use super::{Shape, Tile};
use crate::pair_score::Side;
use crate::pieces;
use crate::product::{Matrix, Onto};
use crate::split_bf16::{self, PackedLeft, PackedRight, packed_bytes};

/// Rows of a tile whose gradient is packed at once, so that it is still in cache when it is used.
const SLICE: usize = 128;

/// What contexts are packed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    /// Logits alone.
    Logits,
    /// Logits and the gradients of objects.
    LogitsAndGradients,
}

/// The contexts of a pass, packed.
#[derive(Debug, Default)]
pub(crate) struct PackedContexts {
    /// Block by block, for logits.
    blocks: Vec<PackedLeft>,
    /// Slice by slice, transposed, for gradients of objects.
    slices: Vec<PackedLeft>,
    n_rows: usize,
    block_len: usize,
}

impl PackedContexts {
    pub(super) fn pack(&mut self, shape: &Shape, context: &[f32], packing: Packing) {
        (self.n_rows, self.block_len) = (shape.rows(), shape.block_len());
        let dim = shape.context_dim;
        let rows =
            |rows: Range<usize>| Matrix::rows_of(&context[rows.start * dim..rows.end * dim], dim);
        let blocks = || pieces(0..self.n_rows, self.block_len);
        let slices: Vec<_> = match packing {
            Packing::Logits => Vec::new(),
            Packing::LogitsAndGradients => {
                blocks().flat_map(|block| pieces(block, SLICE)).collect()
            }
        };
        let blocks: Vec<_> = blocks().collect();
        pack_pieces(&mut self.blocks, blocks, |packed, block| packed.pack(rows(block)));
        pack_pieces(&mut self.slices, slices, |packed, slice| {
            packed.pack(rows(slice).transposed());
        });
    }

    /// Bytes for contexts of this shape.
    pub(crate) fn n_bytes(shape: &Shape) -> usize {
        let (dim, len) = (shape.context_dim, shape.block_len());
        let of_block = packed_bytes(len, dim) + len.div_ceil(SLICE) * packed_bytes(dim, SLICE);
        shape.rows().div_ceil(len) * of_block
    }

    /// The number of the first slice of a tile's rows.
    fn first_slice(&self, tile: &Tile) -> usize {
        tile.rows.start / self.block_len * self.block_len.div_ceil(SLICE)
    }
}

fn pack_pieces(
    packed: &mut Vec<PackedLeft>,
    pieces: Vec<Range<usize>>,
    pack: impl Fn(&mut PackedLeft, Range<usize>) + Sync,
) {
    packed.resize_with(pieces.len().max(packed.len()), PackedLeft::default);
    packed.par_iter_mut().zip(pieces).for_each(|(packed, rows)| pack(packed, rows));
}

/// Objects of a tile, packed, and which tile of the chunk it is.
#[derive(Debug, Default)]
struct PackedObjects {
    tile: Option<usize>,
    factor: PackedRight,
}

impl PackedObjects {
    /// The factor of a tile, made by `pack` if it is of another one.
    fn of(&mut self, tile: &Tile, pack: impl FnOnce(&mut PackedRight)) -> &PackedRight {
        if self.tile.replace(tile.number) != Some(tile.number) {
            pack(&mut self.factor);
        }
        &self.factor
    }
}

/// What a chunk has packed of the tile at work.
#[derive(Debug, Default)]
pub(crate) struct PackedTile {
    /// Transposed, for logits.
    objects: PackedObjects,
    /// As they stand, for the gradient of contexts.
    objects_back: PackedObjects,
    /// A slice of the gradient of logits, for that of contexts.
    grad_left: PackedLeft,
    /// A slice of the gradient of logits, for that of objects.
    grad_right: PackedRight,
    /// The gradient of the objects so far, transposed.
    grad_objects: Vec<f32>,
}

impl PackedTile {
    /// Forgets objects, which change from pass to pass.
    pub(crate) fn clear(&mut self) {
        (self.objects.tile, self.objects_back.tile) = (None, None);
    }

    /// Bytes for tiles of this shape.
    pub(crate) fn n_bytes(shape: &Shape) -> usize {
        let (dim, width) = (shape.object_dim, shape.tile_len());
        packed_bytes(width, dim)
            + packed_bytes(dim, width)
            + packed_bytes(SLICE, width)
            + packed_bytes(width, SLICE)
            + dim * width * size_of::<f32>()
    }

    /// The products of a tile's contexts and objects.
    pub(super) fn logits(
        &mut self,
        contexts: &PackedContexts,
        tile: &Tile,
        objects: Matrix,
        onto: Onto,
        out: &mut [f32],
    ) {
        let factor = self.objects.of(tile, |factor| factor.pack(objects.transposed()));
        let block = &contexts.blocks[tile.rows.start / contexts.block_len];
        split_bf16::multiply(out, tile.objects.len(), onto, block, factor);
    }

    /// From the gradient of a tile's logits to those of its contexts, whose vectors are packed
    /// already, and objects; that of objects is written with the last block of rows, and replaces what
    /// stands there.
    pub(super) fn pull_back(
        &mut self,
        contexts: &PackedContexts,
        tile: &Tile,
        grad_logits: &[f32],
        context: Side,
        objects: Side,
    ) {
        let factor = self.objects_back.of(tile, |factor| factor.pack(objects.vectors));
        let (dim, width) = (objects.vectors.columns, tile.objects.len());
        self.grad_objects.resize(self.grad_objects.len().max(dim * width), 0.0);
        let sums = &mut self.grad_objects[..dim * width];
        let first = contexts.first_slice(tile);
        let slices = grad_logits.chunks(SLICE * width).zip(context.grad.chunks_mut(SLICE * dim));
        for (i, (grad, grad_context)) in slices.enumerate() {
            let grad = Matrix::rows_of(grad, width);
            self.grad_left.pack(grad);
            split_bf16::multiply(grad_context, dim, context.onto, &self.grad_left, factor);
            self.grad_right.pack(grad);
            let is_first = tile.rows.start == 0 && i == 0;
            let onto = if is_first { Onto::Replace } else { Onto::Add };
            split_bf16::multiply(sums, width, onto, &contexts.slices[first + i], &self.grad_right);
        }
        if tile.rows.end == contexts.n_rows {
            for (object, grad) in objects.grad.chunks_exact_mut(dim).enumerate() {
                for (grad, sums) in grad.iter_mut().zip(sums.chunks_exact(width)) {
                    *grad = sums[object];
                }
            }
        }
    }
}
