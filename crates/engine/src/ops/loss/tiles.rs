//! How is a batch scored against all objects without the B × K × E matrix of logits?
//!
//! Objects are cut into a fixed number of chunks, chunks into tiles; a tile of logits for a block
//! of rows (a row is one component of one query) is made, used and forgotten while it is in cache.
//! A chunk has its own buffers, and chunks are added up in order, so that the bits of the result
//! do not depend on the number of threads.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use super::softmax::Kept;
use super::sparse::TileEntries;
use super::units::{Contexts, TilePacks};
use super::{BatchAnswers, Products, Shortcuts};
use crate::ops::product::{Matrix, Onto};
use crate::ops::score::{Learned, PairScore, Side};
use crate::ops::{pieces, simd};

/// Parts that objects are cut into: enough for many threads to share, few enough that the copies
/// of the query gradient, one per part, stay small.
const CHUNKS: usize = 16;
/// Objects in a tile of logits, at most.
const TILE_OBJECTS: usize = 512;
/// Rows in a tile of logits, at most; 512 × 512 floats fit in a second-level cache.
const TILE_ROWS: usize = 512;

/// A length of chunks and tiles that makes their rows start with a line of the cache; short ones stay,
/// so that there are enough of them for all threads.
fn even(len: usize) -> usize {
    const EVEN: usize = 32;
    if len < 8 * EVEN { len } else { len.next_multiple_of(EVEN) }
}

/// Sizes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) queries: usize,
    pub(crate) components: usize,
    /// Width of contexts.
    pub(crate) context_dim: usize,
    /// Width of objects; the same for most scores.
    pub(crate) object_dim: usize,
    pub(crate) entities: usize,
}

impl Shape {
    pub(super) fn rows(&self) -> usize {
        self.queries * self.components
    }

    pub(super) fn chunk_len(&self) -> usize {
        even(self.entities.div_ceil(CHUNKS))
    }

    pub(super) fn chunk(&self, number: usize) -> Range<usize> {
        let start = number * self.chunk_len();
        start..(start + self.chunk_len()).min(self.entities)
    }

    pub(super) fn n_chunks(&self) -> usize {
        self.entities.div_ceil(self.chunk_len())
    }

    /// Tiles of a chunk, of nearly equal width.
    pub(super) fn tile_len(&self) -> usize {
        let tiles = self.chunk_len().div_ceil(TILE_OBJECTS);
        even(self.chunk_len().div_ceil(tiles))
    }

    /// Rows per block: all components of a query are in one block.
    pub(super) fn block_len(&self) -> usize {
        let most = (TILE_ROWS / self.components).max(1) * self.components;
        let blocks = self.rows().div_ceil(most);
        self.queries.div_ceil(blocks) * self.components
    }

    /// The tiles of a chunk in a fixed order: objects outside, rows inside.
    pub(super) fn tiles(&self, chunk: usize) -> impl Iterator<Item = Tile> + use<> {
        let shape = *self;
        let of_objects = move |(number, objects): (usize, Range<usize>)| {
            pieces(0..shape.rows(), shape.block_len()).map(move |rows| Tile {
                chunk,
                number,
                rows,
                objects: objects.clone(),
            })
        };
        pieces(shape.chunk(chunk), shape.tile_len()).enumerate().flat_map(of_objects)
    }
}

/// One tile: a block of rows against some objects.
#[derive(Debug, Clone)]
pub(super) struct Tile {
    pub(super) chunk: usize,
    /// Among those of its chunk, by objects alone.
    pub(super) number: usize,
    pub(super) rows: Range<usize>,
    pub(super) objects: Range<usize>,
}

impl Tile {
    /// Number of its logits.
    pub(super) fn size(&self) -> usize {
        self.rows.len() * self.objects.len()
    }
}

/// What a loss is computed from.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) shape: Shape,
    pub(super) score: PairScore,
    /// f_k(h), `[B·K, C]`.
    pub(super) context: &'a [f32],
    /// log π, `[B, K]`.
    pub(super) log_prior: &'a [f32],
    /// `[E, D]`.
    pub(super) objects: &'a [f32],
    /// `[E]`, added to every logit of its object.
    pub(super) bias: Option<&'a [f32]>,
    /// What the score has learned; nothing for most.
    pub(super) weights: &'a [f32],
    pub(super) answers: &'a BatchAnswers,
    /// Packed for a unit that multiplies them; without, products are made in f32.
    pub(super) packed: Option<&'a Contexts>,
}

/// Where the gradients of a chunk's tiles go.
pub(super) struct ChunkGrads<'a> {
    /// Of all rows, for this chunk alone.
    pub(super) context: &'a mut [f32],
    /// Likewise.
    pub(super) weights: &'a mut [f32],
    /// Of the objects of this chunk.
    pub(super) objects: &'a mut [f32],
    /// Likewise.
    pub(super) bias: &'a mut [f32],
}

impl Inputs<'_> {
    fn contexts(&self, rows: &Range<usize>) -> Matrix<'_> {
        rows_of(self.context, rows, self.shape.context_dim)
    }

    /// The logit of one row and one object.
    pub(super) fn logit(&self, row: usize, object: usize) -> f32 {
        let context = &self.context[row * self.shape.context_dim..][..self.shape.context_dim];
        let vector = &self.objects[object * self.shape.object_dim..][..self.shape.object_dim];
        let bias = self.bias.map_or(0.0, |bias| bias[object]);
        self.score.pair(self.weights, context, vector) + bias
    }

    /// The logits of a tile.
    pub(super) fn logits(&self, tile: &Tile, packs: &mut TilePacks, out: &mut [f32]) {
        let mut onto = Onto::Replace;
        if let Some(bias) = self.bias {
            for row in out.chunks_exact_mut(tile.objects.len()) {
                row.copy_from_slice(&bias[tile.objects.clone()]);
            }
            onto = Onto::Add;
        }
        let objects = rows_of(self.objects, &tile.objects, self.shape.object_dim);
        match self.packed {
            Some(contexts) => packs.logits(contexts, (self.shape, tile), objects, onto, out),
            None => self.score.logits(self.weights, out, onto, self.contexts(&tile.rows), objects),
        }
    }

    /// From the gradient of a tile's logits, which is used up, to those of all they are made of.
    pub(super) fn pull_back(
        &self,
        tile: &Tile,
        packs: &mut TilePacks,
        grad_logits: &mut [f32],
        grads: &mut ChunkGrads,
    ) {
        let Shape { context_dim, object_dim, .. } = self.shape;
        let width = tile.objects.len();
        let within = tile.objects.start - self.shape.chunk(tile.chunk).start;
        if self.bias.is_some() {
            for row in grad_logits.chunks_exact(width) {
                simd::add(&mut grads.bias[within..][..width], row);
            }
        }
        let vectors = rows_of(self.objects, &tile.objects, object_dim);
        let grad_context =
            &mut grads.context[tile.rows.start * context_dim..tile.rows.end * context_dim];
        let grad_objects = &mut grads.objects[within * object_dim..][..width * object_dim];
        if let Some(contexts) = self.packed {
            let at = (self.shape, tile);
            packs.pull_back(contexts, at, grad_logits, vectors, (grad_context, grad_objects));
            return;
        }
        let context = Side {
            vectors: self.contexts(&tile.rows),
            grad: grad_context,
            onto: if tile.number == 0 { Onto::Replace } else { Onto::Add },
        };
        let objects = Side {
            vectors,
            grad: grad_objects,
            onto: if tile.rows.start == 0 { Onto::Replace } else { Onto::Add },
        };
        let learned = Learned { weights: self.weights, grad: &mut *grads.weights };
        self.score.pull_back(learned, grad_logits, context, objects);
    }
}

fn rows_of<'a>(values: &'a [f32], rows: &Range<usize>, columns: usize) -> Matrix<'a> {
    Matrix::rows_of(&values[rows.start * columns..rows.end * columns], columns)
}

/// Gradients of a loss.
#[derive(Debug, Clone)]
pub(super) struct Grads {
    pub(super) context: Vec<f32>,
    pub(super) log_prior: Vec<f32>,
    pub(super) objects: Vec<f32>,
    pub(super) bias: Option<Vec<f32>>,
    pub(super) weights: Vec<f32>,
}

/// Buffers that one training step leaves to the next, so that the machine need not hand out and
/// clear hundreds of megabytes every time.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(super) kept_bytes: usize,
    pub(super) pass: u64,
    pub(super) chunks: Vec<Chunk>,
    packed: Arc<Contexts>,
    /// What losses have done so far.
    work: Work,
}

/// What was computed of logits and their gradients, counted in entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// Logits of all rows and objects.
    pub(crate) logits: u64,
    /// Those that were computed again in the backward pass.
    pub(crate) again: u64,
    /// Entries of their gradient that were multiplied, each with a context and with an object.
    pub(crate) multiplied: u64,
}

impl Work {
    pub(super) fn add(&mut self, other: Self) {
        self.logits += other.logits;
        self.again += other.again;
        self.multiplied += other.multiplied;
    }

    /// The share of the gradient that was multiplied; nothing if there were no such losses.
    pub(crate) fn density(&self) -> Option<f64> {
        (self.logits > 0).then(|| self.multiplied as f64 / self.logits as f64)
    }

    /// Multiplications of entries with vectors.
    pub(crate) fn products(&self) -> u64 {
        self.logits + self.again + 2 * self.multiplied
    }
}

#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) buffers: Buffers,
    grad_context: Vec<f32>,
    grad_weights: Vec<f32>,
}

#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// The tile at work, unless it is kept.
    pub(super) tile: Lines,
    /// What the backward pass finds of the forward pass.
    pub(super) kept: Kept,
    /// What is packed of the tile at work, for a unit that multiplies it.
    pub(super) packs: TilePacks,
    /// The entries of the tile at work that are multiplied, where they are few.
    pub(super) entries: TileEntries,
    /// What makes gradients of the tile at work, row by row.
    pub(super) factors: Vec<f32>,
    /// Of each row, over the whole chunk.
    pub(super) maximum: Vec<f32>,
    /// Σ exp(z − maximum) of each row.
    pub(super) sum: Vec<f64>,
}

/// Floats that start with a line of the cache.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<LineOfCache>);

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct LineOfCache([f32; 16]);

impl Lines {
    /// The first `len` floats; what stands there is of no use.
    pub(super) fn make_room(&mut self, len: usize) -> &mut [f32] {
        let n_lines = len.div_ceil(16);
        if self.0.len() < n_lines {
            self.0.resize(n_lines, LineOfCache([0.0; 16]));
        }
        // SAFETY: a line is sixteen floats and nothing else, so lines are floats without gaps.
        let all = unsafe {
            std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast::<f32>(), 16 * self.0.len())
        };
        &mut all[..len]
    }
}

impl Workspace {
    /// A workspace that keeps tiles of logits up to `kept_bytes`; the rest is computed twice.
    pub(crate) fn new(kept_bytes: usize) -> Self {
        Self {
            kept_bytes,
            pass: 0,
            chunks: Vec::new(),
            packed: Arc::default(),
            work: Work::default(),
        }
    }

    /// Bytes that a step of this size takes beyond its inputs and gradients.
    pub(crate) fn forecast(shape: Shape, score: PairScore, kept_bytes: usize) -> usize {
        let tiles = (shape.rows() * shape.entities * size_of::<f32>()).min(kept_bytes);
        let (room, weights) = score.n_room_and_weights();
        // A tile, and entries of another by row and by object; the gradient of the rows, and for
        // each of them its sum, a maximum and the end of its entries in every tile.
        let tile = shape.block_len() * shape.tile_len();
        let tiles_of_row = shape.chunk_len().div_ceil(shape.tile_len());
        let of_row = shape.context_dim + 3 + 2 * tiles_of_row;
        let per_chunk = 2 * tile + shape.rows() * of_row + weights;
        let at_work = rayon::current_num_threads().min(shape.n_chunks());
        let packed = match score {
            PairScore::Dot if Products::fastest() == Products::Halves => {
                Contexts::n_bytes(shape) + shape.n_chunks() * TilePacks::n_bytes(shape)
            }
            _ => 0,
        };
        tiles + packed + (shape.n_chunks() * per_chunk + at_work * room) * size_of::<f32>()
    }

    /// Contexts for a unit that multiplies them, if it is to be used.
    pub(super) fn pack(
        &mut self,
        inputs: &Inputs,
        shortcuts: Shortcuts,
        pack: impl FnOnce(&mut Contexts, Shape, &[f32]),
    ) -> Option<Arc<Contexts>> {
        assert!(
            inputs.score == PairScore::Dot || shortcuts == Shortcuts::default(),
            "shortcuts for other scores"
        );
        (shortcuts.products == Products::Halves).then(|| {
            let packed = Arc::get_mut(&mut self.packed).expect("a pass gives them back at its end");
            pack(packed, inputs.shape, inputs.context);
            Arc::clone(&self.packed)
        })
    }

    pub(super) fn count(&mut self, work: Work) {
        self.work.add(work);
    }

    /// What losses have done since it was last asked for.
    pub(crate) fn take_work(&mut self) -> Work {
        std::mem::take(&mut self.work)
    }

    /// Runs over all chunks, each with a place for its gradients; gives the sums of these, and what
    /// `run` found in each chunk. Gradients of the prior are left to the caller.
    pub(super) fn gradients<T: Send>(
        &mut self,
        inputs: &Inputs,
        run: impl Fn(usize, &mut Buffers, &mut ChunkGrads) -> T + Sync,
    ) -> (Grads, Vec<T>) {
        let shape = inputs.shape;
        self.chunks.resize_with(shape.n_chunks(), Chunk::default);
        let n_values = shape.entities * shape.object_dim;
        let mut objects = Vec::with_capacity(n_values);
        let mut bias = vec![0.0; shape.entities];
        let room = &mut objects.spare_capacity_mut()[..n_values];
        let found = self
            .chunks
            .par_iter_mut()
            .zip(room.par_chunks_mut(shape.chunk_len() * shape.object_dim))
            .zip(bias.par_chunks_mut(shape.chunk_len()))
            .enumerate()
            .map(|(number, ((chunk, objects), bias))| {
                let objects = cleared(objects);
                let Chunk { buffers, grad_context: context, grad_weights: weights } = chunk;
                context.resize(shape.rows() * shape.context_dim, 0.0);
                weights.clear();
                weights.resize(inputs.weights.len(), 0.0);
                run(number, buffers, &mut ChunkGrads { context, weights, objects, bias })
            })
            .collect();
        // SAFETY: every chunk has cleared its part.
        unsafe { objects.set_len(n_values) };
        let context_len = shape.rows() * shape.context_dim;
        let grads = Grads {
            context: self.sum_chunks(context_len, |chunk| &chunk.grad_context),
            log_prior: Vec::new(),
            objects,
            bias: inputs.bias.map(|_| bias),
            weights: self.sum_chunks(inputs.weights.len(), |chunk| &chunk.grad_weights),
        };
        (grads, found)
    }

    fn sum_chunks(&self, len: usize, values: impl Fn(&Chunk) -> &[f32] + Sync) -> Vec<f32> {
        /// Floats that one thread adds up at a time.
        const PIECE: usize = 16 * 1024;
        let mut sums = vec![0.0; len];
        sums.par_chunks_mut(PIECE).enumerate().for_each(|(piece, sum)| {
            let range = piece * PIECE..piece * PIECE + sum.len();
            let (first, others) = self.chunks.split_first().expect("there are objects");
            // Written before it is read: else the system would map every page twice.
            sum.copy_from_slice(&values(first)[range.clone()]);
            for chunk in others {
                simd::add(sum, &values(chunk)[range.clone()]);
            }
        });
        sums
    }
}

/// Sets values to zero by the thread that will use them.
fn cleared(values: &mut [MaybeUninit<f32>]) -> &mut [f32] {
    values.fill(MaybeUninit::new(0.0));
    // SAFETY: all were written just now.
    unsafe { values.assume_init_mut() }
}

/// A batch's answers in the order in which tiles meet them.
pub(super) struct AnswersByTile<'a> {
    inputs: &'a Inputs<'a>,
    /// Numbers of answers, by tile of objects, then by query.
    order: Vec<u32>,
    /// Where each tile's answers start in `order`.
    starts: Vec<u32>,
    tiles_per_chunk: usize,
}

/// An answer in a tile.
pub(super) struct AnswerAt {
    /// Among all answers of the batch.
    pub(super) number: usize,
    /// The row of its query's first component.
    pub(super) row: usize,
    /// Where that row's logit of the answer stands in the tile.
    pub(super) place: usize,
}

impl<'a> AnswersByTile<'a> {
    pub(super) fn of(inputs: &'a Inputs) -> Self {
        let shape = inputs.shape;
        let tiles_per_chunk = shape.chunk_len().div_ceil(shape.tile_len());
        let tile_of = |number: u32| {
            let object = inputs.answers.objects[number as usize] as usize;
            let (chunk, within) = (object / shape.chunk_len(), object % shape.chunk_len());
            chunk * tiles_per_chunk + within / shape.tile_len()
        };
        let mut order: Vec<u32> = (0..inputs.answers.len() as u32).collect();
        // Stable: within a tile answers stay in the order of their queries.
        order.sort_by_key(|number| tile_of(*number));
        let mut starts = vec![0; shape.n_chunks() * tiles_per_chunk + 1];
        for number in &order {
            starts[tile_of(*number) + 1] += 1;
        }
        for tile in 1..starts.len() {
            starts[tile] += starts[tile - 1];
        }
        Self { inputs, order, starts, tiles_per_chunk }
    }

    /// The answers in a tile, by query.
    pub(super) fn within(&self, tile: &Tile) -> impl Iterator<Item = AnswerAt> {
        let at = tile.chunk * self.tiles_per_chunk + tile.number;
        let numbers = &self.order[self.starts[at] as usize..self.starts[at + 1] as usize];
        let answers = self.inputs.answers;
        let components = self.inputs.shape.components;
        let row_of = move |number: usize| answers.query(number) * components;
        let start = numbers.partition_point(|number| row_of(*number as usize) < tile.rows.start);
        let (rows, objects) = (tile.rows.clone(), tile.objects.clone());
        let answer = move |number: &u32| {
            let (number, row) = (*number as usize, row_of(*number as usize));
            let object = answers.objects[number] as usize - objects.start;
            AnswerAt { number, row, place: (row - rows.start) * objects.len() + object }
        };
        let end = tile.rows.end;
        numbers[start..].iter().map(answer).take_while(move |answer| answer.row < end)
    }
}
