//! How are the products of tiles made on a unit for bf16, where there is one?
//!
//! Contexts are packed once for a pass, objects once for a tile of them, which goes through all blocks
//! of rows. The gradient of a tile is packed twice, as the left factor of that of the contexts and as
//! the right factor of that of the objects, a slice of rows at a time.

use std::ops::Range;

use rayon::prelude::*;

use super::tiles::{Shape, Tile};
use crate::ops::bf16::{self, Left, Right, packed_bytes};
use crate::ops::pieces;
use crate::ops::product::{Matrix, Onto};

/// Rows of a tile whose gradient is packed at once, so that it is still in cache when it is used.
const SLICE: usize = 128;

/// The contexts of a pass, packed.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Block by block, for logits.
    blocks: Vec<Left>,
    /// Slice by slice, transposed, for gradients of objects.
    slices: Vec<Left>,
}

impl Contexts {
    /// For logits alone.
    pub(super) fn pack(&mut self, shape: Shape, context: &[f32]) {
        let len = shape.block_len();
        pack_pieces(&mut self.blocks, pieces(0..shape.rows(), len), |packed, rows| {
            packed.pack(rows_of(context, &rows, shape.context_dim));
        });
    }

    /// For logits and for gradients.
    pub(super) fn pack_all(&mut self, shape: Shape, context: &[f32]) {
        self.pack(shape, context);
        let blocks = pieces(0..shape.rows(), shape.block_len());
        let slices = blocks.flat_map(|block| pieces(block, SLICE));
        pack_pieces(&mut self.slices, slices, |packed, rows| {
            packed.pack(rows_of(context, &rows, shape.context_dim).transposed());
        });
    }

    /// Bytes for contexts of this shape.
    pub(super) fn n_bytes(shape: Shape) -> usize {
        let (dim, len) = (shape.context_dim, shape.block_len());
        let of_block = packed_bytes(len, dim) + len.div_ceil(SLICE) * packed_bytes(dim, SLICE);
        shape.rows().div_ceil(len) * of_block
    }
}

fn pack_pieces(
    packed: &mut Vec<Left>,
    pieces: impl Iterator<Item = Range<usize>>,
    pack: impl Fn(&mut Left, Range<usize>) + Sync,
) {
    let pieces: Vec<_> = pieces.collect();
    packed.resize_with(pieces.len().max(packed.len()), Left::default);
    packed.par_iter_mut().zip(pieces).for_each(|(packed, rows)| pack(packed, rows));
}

/// What a chunk has packed of the tile at work.
#[derive(Debug, Default)]
pub(super) struct TilePacks {
    /// Of the objects transposed, and which tile of the chunk these are.
    objects: (Option<usize>, Right),
    /// Of the objects as they stand, likewise.
    objects_back: (Option<usize>, Right),
    /// Of a slice of the gradient of logits.
    grad_left: Left,
    grad_right: Right,
    /// The gradient of the objects so far, transposed.
    grad_objects: Vec<f32>,
}

impl TilePacks {
    /// Forgets objects, which change from pass to pass.
    pub(super) fn clear(&mut self) {
        (self.objects.0, self.objects_back.0) = (None, None);
    }

    /// Bytes for tiles of this shape.
    pub(super) fn n_bytes(shape: Shape) -> usize {
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
        contexts: &Contexts,
        (shape, tile): (Shape, &Tile),
        objects: Matrix,
        onto: Onto,
        out: &mut [f32],
    ) {
        let (packed, factor) = &mut self.objects;
        if packed.replace(tile.number) != Some(tile.number) {
            factor.pack(objects.transposed());
        }
        let block = &contexts.blocks[tile.rows.start / shape.block_len()];
        bf16::multiply(out, tile.objects.len(), onto, block, factor);
    }

    /// From the gradient of a tile's logits to those of its contexts and objects; that of objects is
    /// written with the last block of rows, and replaces what stands there.
    pub(super) fn pull_back(
        &mut self,
        contexts: &Contexts,
        (shape, tile): (Shape, &Tile),
        grad_logits: &[f32],
        objects: Matrix,
        (grad_context, grad_objects): (&mut [f32], &mut [f32]),
    ) {
        let (packed, factor) = &mut self.objects_back;
        if packed.replace(tile.number) != Some(tile.number) {
            factor.pack(objects);
        }
        let (dim, width) = (shape.object_dim, tile.objects.len());
        self.grad_objects.resize(self.grad_objects.len().max(dim * width), 0.0);
        let sums = &mut self.grad_objects[..dim * width];
        let onto = if tile.number == 0 { Onto::Replace } else { Onto::Add };
        let slices_per_block = shape.block_len().div_ceil(SLICE);
        let first = tile.rows.start / shape.block_len() * slices_per_block;
        let slices = grad_logits.chunks(SLICE * width).zip(grad_context.chunks_mut(SLICE * dim));
        for (i, (grad, grad_context)) in slices.enumerate() {
            let grad = Matrix::rows_of(grad, width);
            self.grad_left.pack(grad);
            bf16::multiply(grad_context, dim, onto, &self.grad_left, factor);
            self.grad_right.pack(grad);
            let is_first = tile.rows.start == 0 && i == 0;
            let onto = if is_first { Onto::Replace } else { Onto::Add };
            bf16::multiply(sums, width, onto, &contexts.slices[first + i], &self.grad_right);
        }
        if tile.rows.end == shape.rows() {
            for (object, grad) in grad_objects.chunks_exact_mut(dim).enumerate() {
                for (grad, sums) in grad.iter_mut().zip(sums.chunks_exact(width)) {
                    *grad = sums[object];
                }
            }
        }
    }
}

fn rows_of<'a>(values: &'a [f32], rows: &Range<usize>, columns: usize) -> Matrix<'a> {
    Matrix::rows_of(&values[rows.start * columns..rows.end * columns], columns)
}
