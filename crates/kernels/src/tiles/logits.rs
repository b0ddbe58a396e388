//! Tiles of logits: how are they made, and how does their gradient go back?

use std::ops::Range;

use super::amx::{PackedContexts, PackedTile, Packing};
use super::{ChunkGrads, Shape, Tile};
use crate::pair_score::{Learned, PairScore, Side};
use crate::product::{Matrix, Onto, Precision};
use crate::simd;

/// What logits are made of: z = score(context, object) + bias.
#[derive(Debug, Clone)]
pub struct LogitInputs<'a> {
    /// Their sizes.
    pub shape: Shape,
    /// How a pair is scored.
    pub score: PairScore,
    /// f_k(h), `[B·K, C]`, the components of a query one after the other.
    pub context: &'a [f32],
    /// The vectors of the shape's objects, `[n, D]`.
    pub objects: &'a [f32],
    /// `[n]`, added to every logit of its object.
    pub bias: Option<&'a [f32]>,
    /// What the score has learned; nothing for most.
    pub weights: &'a [f32],
}

impl LogitInputs<'_> {
    pub(crate) fn context_of(&self, row: usize) -> &[f32] {
        &self.context[row * self.shape.context_dim..][..self.shape.context_dim]
    }

    /// The vector of an object, by its place among those that are scored.
    pub(crate) fn vector_of(&self, object: usize) -> &[f32] {
        &self.objects[object * self.shape.object_dim..][..self.shape.object_dim]
    }

    /// The logit of one row and one object, by its place among those that are scored.
    pub(crate) fn logit(&self, row: usize, object: usize) -> f32 {
        let bias = self.bias.map_or(0.0, |bias| bias[object]);
        self.score.pair(self.weights, self.context_of(row), self.vector_of(object)) + bias
    }
}

/// The inputs of a pass, with contexts packed for AMX where products are made there.
#[derive(Clone, Copy)]
pub(crate) struct TiledLogits<'a> {
    pub(crate) inputs: &'a LogitInputs<'a>,
    packed: Option<&'a PackedContexts>,
}

impl<'a> TiledLogits<'a> {
    /// Packs contexts into `contexts`, if they need be.
    pub(crate) fn new(
        inputs: &'a LogitInputs<'a>,
        precision: Precision,
        packing: Packing,
        contexts: &'a mut PackedContexts,
    ) -> Self {
        let packed = (precision == Precision::SplitBf16).then(|| {
            contexts.pack(&inputs.shape, inputs.context, packing);
            &*contexts
        });
        Self { inputs, packed }
    }

    /// Whether products are made by AMX.
    pub(crate) fn is_on_amx(&self) -> bool {
        self.packed.is_some()
    }

    /// Writes the logits of a tile.
    pub(crate) fn fill(&self, tile: &Tile, packed_tile: &mut PackedTile, out: &mut [f32]) {
        let inputs = self.inputs;
        let mut onto = Onto::Replace;
        if let Some(bias) = inputs.bias {
            for row in out.chunks_exact_mut(tile.objects.len()) {
                row.copy_from_slice(&bias[tile.objects.clone()]);
            }
            onto = Onto::Add;
        }
        let objects = rows_of(inputs.objects, &tile.objects, inputs.shape.object_dim);
        match self.packed {
            Some(contexts) => packed_tile.logits(contexts, tile, objects, onto, out),
            None => inputs.score.logits(inputs.weights, out, onto, self.contexts(tile), objects),
        }
    }

    /// From the gradient of a tile's logits, which is used up, to those of all they are made of.
    pub(crate) fn pull_back(
        &self,
        tile: &Tile,
        packed_tile: &mut PackedTile,
        grad_logits: &mut [f32],
        grads: &mut ChunkGrads,
    ) {
        let inputs = self.inputs;
        let Shape { context_dim, object_dim, .. } = inputs.shape;
        let width = tile.objects.len();
        let within = tile.objects.start - grads.range.start;
        if inputs.bias.is_some() {
            for row in grad_logits.chunks_exact(width) {
                simd::add(&mut grads.bias[within..][..width], row);
            }
        }
        let context = Side {
            vectors: self.contexts(tile),
            grad: &mut grads.context[tile.rows.start * context_dim..tile.rows.end * context_dim],
            onto: if tile.number == 0 { Onto::Replace } else { Onto::Add },
        };
        let objects = Side {
            vectors: rows_of(inputs.objects, &tile.objects, object_dim),
            grad: &mut grads.objects[within * object_dim..][..width * object_dim],
            onto: if tile.rows.start == 0 { Onto::Replace } else { Onto::Add },
        };
        if let Some(contexts) = self.packed {
            return packed_tile.pull_back(contexts, tile, grad_logits, context, objects);
        }
        let learned = Learned { weights: inputs.weights, grad: &mut *grads.weights };
        inputs.score.pull_back(learned, grad_logits, context, objects);
    }

    fn contexts(&self, tile: &Tile) -> Matrix<'a> {
        rows_of(self.inputs.context, &tile.rows, self.inputs.shape.context_dim)
    }
}

fn rows_of<'a>(values: &'a [f32], rows: &Range<usize>, columns: usize) -> Matrix<'a> {
    Matrix::rows_of(&values[rows.start * columns..rows.end * columns], columns)
}
