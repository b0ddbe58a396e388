//! How are loss and gradients computed without the B × K × E matrix of logits?
//!
//! Objects are cut into a fixed number of chunks, chunks into tiles; a tile of logits for a block
//! of rows (a row is one component of one query) is made, used and forgotten while it is in cache.
//! A chunk has its own buffers, and chunks are added up in order, so that the bits of the result
//! do not depend on the number of threads.
//!
//! For a query with answer weights y_o and z_k the scores of f_k(h) and all objects:
//! - L_k = log Σ_o exp z_{k,o}, from running maxima and sums over the tiles;
//! - at the answers only: log P(o) = log Σ_k exp(log π_k + z_{k,o} − L_k), the responsibilities
//!   γ_{k,o} (the terms of that sum over the sum), Γ_k = Σ_o y_o γ_{k,o};
//! - loss = −Σ_o y_o log P(o), ∂loss/∂z_{k,j} = Γ_k softmax_k(j) − y_j γ_{k,j} and
//!   ∂loss/∂log π_k = −Γ_k.
//!
//! Tiles that fit the workspace's budget are kept from the forward to the backward pass, as
//! exp(z − tile maximum), which saves one of four products and half of the exponentials.

mod answers;

use std::ops::Range;

use rayon::prelude::*;

use super::BatchAnswers;
use crate::ops::product::{Matrix, Onto};
use crate::ops::score::{PairScore, Side};
use crate::ops::simd;
pub(crate) use answers::AnswersByTile;
use answers::mix_answers;

/// Parts that objects are cut into: enough for many threads to share, few enough that the copies
/// of the query gradient, one per part, stay small.
const CHUNKS: usize = 16;
/// Objects in a tile of logits, at most.
const TILE_OBJECTS: usize = 512;
/// Rows in a tile of logits, at most; 512 × 512 floats fit in a second-level cache.
const TILE_ROWS: usize = 512;

/// Sizes of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) queries: usize,
    pub(crate) components: usize,
    pub(crate) dim: usize,
    pub(crate) entities: usize,
}

impl Shape {
    pub(crate) fn rows(&self) -> usize {
        self.queries * self.components
    }

    pub(crate) fn chunk_len(&self) -> usize {
        self.entities.div_ceil(CHUNKS)
    }

    pub(crate) fn chunk(&self, number: usize) -> Range<usize> {
        let start = number * self.chunk_len();
        start..(start + self.chunk_len()).min(self.entities)
    }

    pub(crate) fn n_chunks(&self) -> usize {
        self.entities.div_ceil(self.chunk_len())
    }

    /// Tiles of a chunk, of nearly equal width.
    pub(crate) fn tile_len(&self) -> usize {
        self.chunk_len().div_ceil(self.chunk_len().div_ceil(TILE_OBJECTS))
    }

    /// Rows per block: all components of a query are in one block.
    pub(crate) fn block_len(&self) -> usize {
        let most = (TILE_ROWS / self.components).max(1) * self.components;
        let blocks = self.rows().div_ceil(most);
        self.queries.div_ceil(blocks) * self.components
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        pieces(0..self.rows(), self.block_len())
    }
}

/// What the loss is computed from.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) shape: Shape,
    pub(crate) score: PairScore,
    /// f_k(h), `[B·K, D]`.
    pub(crate) context: &'a [f32],
    /// log π, `[B, K]`.
    pub(crate) log_prior: &'a [f32],
    /// `[E, D]`.
    pub(crate) objects: &'a [f32],
    /// `[E]`, added to every logit of its object.
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) answers: &'a BatchAnswers,
    /// Share of the answers' weight spread over all objects; for one component and the dot
    /// product only.
    pub(crate) smoothing: f32,
}

/// What the backward pass needs of the forward pass, besides the inputs.
#[derive(Debug)]
pub(crate) struct Saved {
    /// L, `[B·K]`.
    normaliser: Vec<f32>,
    /// Γ, `[B·K]`.
    share: Vec<f32>,
    /// y·γ of each answer and component.
    pull: Vec<f32>,
    /// Which forward pass left its tiles in the workspace.
    pass: u64,
}

/// Gradients of the loss.
#[derive(Debug, Clone)]
pub(crate) struct Grads {
    pub(crate) context: Vec<f32>,
    pub(crate) log_prior: Vec<f32>,
    pub(crate) objects: Vec<f32>,
    pub(crate) bias: Option<Vec<f32>>,
}

/// Buffers that one training step leaves to the next, so that the machine need not hand out and
/// clear hundreds of megabytes every time.
#[derive(Debug)]
pub(crate) struct Workspace {
    kept_bytes: usize,
    pass: u64,
    pub(crate) chunks: Vec<Chunk>,
}

impl Workspace {
    /// A workspace that keeps tiles of logits up to `kept_bytes`; the rest is computed twice.
    pub(crate) fn new(kept_bytes: usize) -> Self {
        Self { kept_bytes, pass: 0, chunks: Vec::new() }
    }

    /// Bytes that a step of this size takes beyond its inputs and gradients.
    pub(crate) fn forecast(shape: Shape, kept_bytes: usize) -> usize {
        let tiles = (shape.rows() * shape.entities * size_of::<f32>()).min(kept_bytes);
        let per_chunk = shape.block_len() * shape.tile_len() + shape.rows() * (shape.dim + 3);
        tiles + shape.n_chunks() * per_chunk * size_of::<f32>()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Chunk {
    /// The tile at work, unless it is kept.
    pub(crate) tile: Vec<f32>,
    /// The first tiles of the chunk, as exp(z − maximum).
    kept: Vec<f32>,
    /// The maxima of kept tiles, row by row.
    kept_maximum: Vec<f32>,
    /// Of each row, over the whole chunk.
    maximum: Vec<f32>,
    /// Σ exp(z − maximum) of each row.
    sum: Vec<f64>,
    pub(crate) grad_context: Vec<f32>,
}

/// One tile: a block of rows against some objects.
struct Tile {
    rows: Range<usize>,
    objects: Range<usize>,
    /// Where it is kept: the start of its values and of its maxima.
    kept: Option<(usize, usize)>,
}

/// Loss of a batch (a sum over its answers), and what the backward pass needs.
pub(crate) fn forward(inputs: &Inputs, workspace: &mut Workspace) -> (f64, Saved) {
    let shape = inputs.shape;
    assert!(inputs.smoothing == 0.0 || shape.components == 1, "smoothing of a mixture");
    assert!(inputs.smoothing == 0.0 || inputs.score == PairScore::Dot, "smoothing of distances");
    workspace.pass += 1;
    workspace.chunks.resize_with(shape.n_chunks(), Chunk::default);
    let kept_floats = workspace.kept_bytes / size_of::<f32>() / shape.n_chunks();
    workspace.chunks.par_iter_mut().enumerate().for_each(|(number, chunk)| {
        sum_chunk(inputs, number, chunk, kept_floats);
    });
    let normaliser: Vec<f32> =
        (0..shape.rows()).into_par_iter().map(|row| normaliser(&workspace.chunks, row)).collect();
    let (loss, share, pull) = mix_answers(inputs, &normaliser);
    (loss, Saved { normaliser, share, pull, pass: workspace.pass })
}

/// Gradients of `scale` times the loss.
pub(crate) fn backward(
    inputs: &Inputs,
    saved: &Saved,
    scale: f32,
    workspace: &mut Workspace,
) -> Grads {
    let shape = inputs.shape;
    let kept_floats = if saved.pass == workspace.pass {
        workspace.kept_bytes / size_of::<f32>() / shape.n_chunks()
    } else {
        // Another forward pass has used the workspace since: compute everything again.
        workspace.chunks.resize_with(shape.n_chunks(), Chunk::default);
        0
    };
    let by_tile = AnswersByTile::of(inputs);
    let mut objects = vec![0.0; shape.entities * shape.dim];
    let mut bias = vec![0.0; shape.entities];
    workspace
        .chunks
        .par_iter_mut()
        .zip(objects.par_chunks_mut(shape.chunk_len() * shape.dim))
        .zip(bias.par_chunks_mut(shape.chunk_len()))
        .enumerate()
        .for_each(|(number, ((chunk, objects), bias))| {
            let pass = ChunkBackward { inputs, saved, scale, by_tile: &by_tile, number };
            pass.run(chunk, kept_floats, objects, bias);
        });
    // Kept tiles have become gradients: a second backward pass must make its own.
    workspace.pass += 1;
    let context = sum_grad_context(&workspace.chunks, shape);
    let log_prior = saved.share.iter().map(|share| -scale * share).collect();
    Grads { context, log_prior, objects, bias: inputs.bias.map(|_| bias) }
}

/// Runs over a chunk's tiles in a fixed order: objects outside, rows inside.
fn for_each_tile(
    shape: Shape,
    number: usize,
    kept_floats: usize,
    mut visit: impl FnMut(usize, Tile),
) {
    let (mut values, mut maxima) = (0, 0);
    for (t, objects) in pieces(shape.chunk(number), shape.tile_len()).enumerate() {
        let is_kept = values + shape.rows() * objects.len() <= kept_floats;
        for rows in shape.blocks() {
            let kept = is_kept.then_some((values, maxima));
            if is_kept {
                values += rows.len() * objects.len();
                maxima += rows.len();
            }
            visit(t, Tile { rows, objects: objects.clone(), kept });
        }
    }
}

fn sum_chunk(inputs: &Inputs, number: usize, chunk: &mut Chunk, kept_floats: usize) {
    let shape = inputs.shape;
    make_room(chunk, shape, number, kept_floats);
    chunk.maximum.clear();
    chunk.maximum.resize(shape.rows(), f32::NEG_INFINITY);
    chunk.sum.clear();
    chunk.sum.resize(shape.rows(), 0.0);
    let Chunk { tile: scratch, kept, kept_maximum, maximum, sum, .. } = chunk;
    for_each_tile(shape, number, kept_floats, |_, tile| {
        let (rows, width) = (tile.rows.clone(), tile.objects.len());
        let size = rows.len() * width;
        let (logits, mut tile_maxima) = match tile.kept {
            Some((values, maxima)) => {
                (&mut kept[values..][..size], Some(&mut kept_maximum[maxima..][..rows.len()]))
            }
            None => (&mut scratch[..size], None),
        };
        make_logits(inputs, &tile, logits);
        for (i, (row, logits)) in rows.zip(logits.chunks_exact_mut(width)).enumerate() {
            let top = simd::maximum(logits);
            let tile_sum = match &mut tile_maxima {
                Some(maxima) => {
                    maxima[i] = top;
                    simd::exp_and_sum(logits, top)
                }
                None => simd::sum_of_exp(logits, top),
            };
            add_to_sum((&mut maximum[row], &mut sum[row]), (top, f64::from(tile_sum)));
        }
    });
}

/// Σ exp as a pair (maximum, Σ exp(z − maximum)): adds one to another.
fn add_to_sum((maximum, sum): (&mut f32, &mut f64), (other_maximum, other_sum): (f32, f64)) {
    if other_maximum > *maximum {
        *sum = *sum * f64::from(*maximum - other_maximum).exp() + other_sum;
        *maximum = other_maximum;
    } else {
        *sum += other_sum * f64::from(other_maximum - *maximum).exp();
    }
}

fn make_room(chunk: &mut Chunk, shape: Shape, number: usize, kept_floats: usize) {
    let (mut scratch, mut kept, mut maxima) = (0, 0, 0);
    for_each_tile(shape, number, kept_floats, |_, tile| {
        let size = tile.rows.len() * tile.objects.len();
        match tile.kept {
            Some((values, start)) => (kept, maxima) = (values + size, start + tile.rows.len()),
            None => scratch = scratch.max(size),
        }
    });
    for (buffer, len) in
        [(&mut chunk.tile, scratch), (&mut chunk.kept, kept), (&mut chunk.kept_maximum, maxima)]
    {
        if buffer.len() < len {
            buffer.resize(len, 0.0);
        }
    }
}

fn make_logits(inputs: &Inputs, tile: &Tile, logits: &mut [f32]) {
    let dim = inputs.shape.dim;
    let onto = match inputs.bias {
        Some(bias) => {
            for row in logits.chunks_exact_mut(tile.objects.len()) {
                row.copy_from_slice(&bias[tile.objects.clone()]);
            }
            Onto::Add
        }
        None => Onto::Replace,
    };
    let context = rows_of(inputs.context, &tile.rows, dim);
    let objects = rows_of(inputs.objects, &tile.objects, dim);
    inputs.score.logits(logits, onto, context, objects);
}

fn normaliser(chunks: &[Chunk], row: usize) -> f32 {
    let (mut maximum, mut sum) = (f32::NEG_INFINITY, 0.0);
    for chunk in chunks {
        add_to_sum((&mut maximum, &mut sum), (chunk.maximum[row], chunk.sum[row]));
    }
    (f64::from(maximum) + sum.ln()) as f32
}

/// The backward pass over one chunk of objects.
struct ChunkBackward<'a> {
    inputs: &'a Inputs<'a>,
    saved: &'a Saved,
    scale: f32,
    by_tile: &'a AnswersByTile,
    number: usize,
}

impl ChunkBackward<'_> {
    fn run(
        &self,
        chunk: &mut Chunk,
        kept_floats: usize,
        grad_objects: &mut [f32],
        grad_bias: &mut [f32],
    ) {
        let shape = self.inputs.shape;
        make_room(chunk, shape, self.number, kept_floats);
        chunk.grad_context.resize(shape.rows() * shape.dim, 0.0);
        let first_object = shape.chunk(self.number).start;
        let Chunk { tile: scratch, kept, kept_maximum, grad_context, .. } = chunk;
        for_each_tile(shape, self.number, kept_floats, |t, tile| {
            let width = tile.objects.len();
            let size = tile.rows.len() * width;
            let grad_logits = match tile.kept {
                Some((values, maxima)) => {
                    let grad_logits = &mut kept[values..][..size];
                    self.scale_kept(&tile, &kept_maximum[maxima..], grad_logits);
                    grad_logits
                }
                None => {
                    self.recompute(&tile, &mut scratch[..size]);
                    &mut scratch[..size]
                }
            };
            self.subtract_answers(&tile, t, grad_logits);
            let within = tile.objects.start - first_object;
            if self.inputs.bias.is_some() {
                for row in grad_logits.chunks_exact(width) {
                    simd::add(&mut grad_bias[within..][..width], row);
                }
            }
            let dim = shape.dim;
            let context = Side {
                vectors: rows_of(self.inputs.context, &tile.rows, dim),
                grad: &mut grad_context[tile.rows.start * dim..tile.rows.end * dim],
                onto: if t == 0 { Onto::Replace } else { Onto::Add },
            };
            let objects = Side {
                vectors: rows_of(self.inputs.objects, &tile.objects, dim),
                grad: &mut grad_objects[within * dim..][..width * dim],
                onto: if tile.rows.start == 0 { Onto::Replace } else { Onto::Add },
            };
            self.inputs.score.pull_back(grad_logits, context, objects);
        });
    }

    fn scale_kept(&self, tile: &Tile, maxima: &[f32], kept: &mut [f32]) {
        for (i, row) in tile.rows.clone().enumerate() {
            let shift = maxima[i] - self.saved.normaliser[row];
            let factor = self.scale * self.saved.share[row] * shift.exp();
            simd::scale(self.row(tile, i, kept), factor, self.smoothed(row));
        }
    }

    fn recompute(&self, tile: &Tile, logits: &mut [f32]) {
        make_logits(self.inputs, tile, logits);
        for (i, row) in tile.rows.clone().enumerate() {
            let factor = self.scale * self.saved.share[row];
            let shift = self.saved.normaliser[row];
            simd::scaled_exp(self.row(tile, i, logits), shift, factor, self.smoothed(row));
        }
    }

    fn row<'v>(&self, tile: &Tile, i: usize, values: &'v mut [f32]) -> &'v mut [f32] {
        let width = tile.objects.len();
        &mut values[i * width..][..width]
    }

    /// What smoothing takes off the gradient of every logit of a row.
    fn smoothed(&self, row: usize) -> f32 {
        let each = self.inputs.smoothing / self.inputs.shape.entities as f32;
        self.scale * self.saved.share[row] * each
    }

    fn subtract_answers(&self, tile: &Tile, t: usize, grad_logits: &mut [f32]) {
        let components = self.inputs.shape.components;
        let answers = self.inputs.answers;
        let width = tile.objects.len();
        let numbers = self.by_tile.in_tile(self.number, t);
        let row_of = |number: &u32| answers.query(*number as usize) * components;
        let start = numbers.partition_point(|number| row_of(number) < tile.rows.start);
        for number in numbers[start..].iter().take_while(|number| row_of(number) < tile.rows.end) {
            let object = answers.objects[*number as usize] as usize - tile.objects.start;
            for k in 0..components {
                let row = row_of(number) + k - tile.rows.start;
                let pull = self.saved.pull[*number as usize * components + k];
                grad_logits[row * width + object] -= self.scale * pull;
            }
        }
    }
}

pub(crate) fn sum_grad_context(chunks: &[Chunk], shape: Shape) -> Vec<f32> {
    /// Floats that one thread adds up at a time.
    const PIECE: usize = 16 * 1024;
    let mut grad_context = vec![0.0; shape.rows() * shape.dim];
    grad_context.par_chunks_mut(PIECE).enumerate().for_each(|(piece, sum)| {
        for chunk in chunks {
            simd::add(sum, &chunk.grad_context[piece * PIECE..][..sum.len()]);
        }
    });
    grad_context
}

pub(crate) fn rows_of<'a>(values: &'a [f32], rows: &Range<usize>, columns: usize) -> Matrix<'a> {
    Matrix::rows_of(&values[rows.start * columns..rows.end * columns], columns)
}

/// Cuts a range into pieces of `len`, the last one shorter.
pub(crate) fn pieces(range: Range<usize>, len: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(len).map(move |start| start..(start + len).min(end))
}
