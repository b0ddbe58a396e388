//! Mixtape: how are dot products mixed before they are normalised, with gates of each pair's own?
//!
//! Mixtape (Yang et al. 2019): y = Σ_k π_k z_k with z_k = h_k·e. The weights are a tree of gates:
//! leaf k is reached by going left with γ_j = σ(l_j) and right with 1 − γ_j at every node j, where
//! l_j = t_j·v + s_j + b_j. One softmax over y is enough, where a mixture of softmaxes needs K.
//!
//! A context is [h_1 … h_K | t_1 … t_{K−1} | s_1 … s_{K−1}], an object [e | v | b_1 … b_{K−1}].
//! The tree is a heap: node j has the children 2j + 1 and 2j + 2, and the last K are leaves. With
//! v_j the value of a node, y = v_0 and v_j = γ_j v_{2j+1} + (1 − γ_j) v_{2j+2}.

use std::ops::Range;

use crate::pair_score::Side;
use crate::product::{Matrix, Onto, multiply};
use crate::simd;

/// Contexts whose trees are grown together: enough to make up for arranging the objects for each
/// product, few enough for the trees to stay in cache.
const ROWS: usize = 128;

/// The sizes of a mixtape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mixtape {
    /// K.
    pub components: usize,
    /// Width of h_k and e.
    pub dim: usize,
    /// Width of t_j and v.
    pub gate_dim: usize,
}

impl Mixtape {
    /// Inner nodes of the tree.
    pub fn n_gates(self) -> usize {
        self.components - 1
    }

    /// Width of a context.
    pub fn context_dim(self) -> usize {
        self.components * self.dim + self.n_gates() * (self.gate_dim + 1)
    }

    /// Width of an object.
    pub fn object_dim(self) -> usize {
        self.dim + self.gate_dim + self.n_gates()
    }

    /// Where h_k, t_j or s_j stands in a context.
    pub fn context_columns(self, part: Part) -> Range<usize> {
        let gates = self.components * self.dim;
        let start = match part {
            Part::Component(k) => k * self.dim,
            Part::Gate(j) => gates + j * self.gate_dim,
            Part::Shift(j) => gates + self.n_gates() * self.gate_dim + j,
        };
        start..start + self.width(part)
    }

    /// Where e, v or b_j stands in an object.
    pub fn object_columns(self, part: Part) -> Range<usize> {
        let start = match part {
            Part::Component(_) => 0,
            Part::Gate(_) => self.dim,
            Part::Shift(j) => self.dim + self.gate_dim + j,
        };
        start..start + self.width(part)
    }

    fn width(self, part: Part) -> usize {
        match part {
            Part::Component(_) => self.dim,
            Part::Gate(_) => self.gate_dim,
            Part::Shift(_) => 1,
        }
    }

    /// The score of one pair.
    pub(crate) fn of_pair(self, context: &[f32], object: &[f32]) -> f32 {
        let sides =
            (Matrix::rows_of(context, context.len()), Matrix::rows_of(object, object.len()));
        let mut tree = Tree::new(self, 1);
        tree.grow(self, sides.0, sides.1);
        tree.values[0]
    }

    /// The scores of a tile.
    pub(crate) fn logits(self, out: &mut [f32], onto: Onto, context: Matrix, objects: Matrix) {
        let width = objects.rows;
        let mut tree = Tree::new(self, ROWS * width);
        for (out, rows) in out.chunks_mut(ROWS * width).zip(blocks(context)) {
            tree.grow(self, rows, objects);
            match onto {
                Onto::Replace => out.copy_from_slice(&tree.values[..out.len()]),
                Onto::Add => simd::add(out, &tree.values[..out.len()]),
            }
        }
    }

    /// From the gradient of a tile's scores to those of its two sides.
    pub(crate) fn pull_back(self, grad_scores: &[f32], context: Side, objects: Side) {
        let width = objects.vectors.rows;
        let mut tree = Tree::new(self, ROWS * width);
        let mut scratch = Vec::new();
        if objects.onto == Onto::Replace {
            objects.grad.fill(0.0);
        }
        if context.onto == Onto::Replace {
            context.grad.fill(0.0);
        }
        let grads = context.grad.chunks_mut(ROWS * self.context_dim());
        for ((grad_scores, rows), grad_context) in
            grad_scores.chunks(ROWS * width).zip(blocks(context.vectors)).zip(grads)
        {
            tree.grow(self, rows, objects.vectors);
            tree.pull_back(grad_scores);
            let mut block = Block {
                context: rows,
                objects: objects.vectors,
                grad_context,
                grad_objects: &mut *objects.grad,
            };
            for part in self.parts() {
                let grads = Matrix::rows_of(tree.grad_of(part, self, grad_scores.len()), width);
                match part {
                    Part::Shift(_) => block.pull_sum(self, part, grads),
                    _ => block.pull_product(self, part, grads, &mut scratch),
                }
            }
        }
    }

    fn parts(self) -> impl Iterator<Item = Part> {
        let gates = (0..self.n_gates()).flat_map(|j| [Part::Gate(j), Part::Shift(j)]);
        (0..self.components).map(Part::Component).chain(gates)
    }
}

/// A part of a context and of an object.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// h_k and e.
    Component(usize),
    /// t_j and v.
    Gate(usize),
    /// s_j and b_j.
    Shift(usize),
}

/// Some contexts and all objects of a tile, and where their gradients are added.
struct Block<'a> {
    context: Matrix<'a>,
    objects: Matrix<'a>,
    grad_context: &'a mut [f32],
    grad_objects: &'a mut [f32],
}

impl Block<'_> {
    /// From the gradient of products of a part to those of its two factors.
    fn pull_product(&mut self, sizes: Mixtape, part: Part, grads: Matrix, scratch: &mut Vec<f32>) {
        let (of_context, of_objects) = (sizes.context_columns(part), sizes.object_columns(part));
        let left = columns(self.context, of_context.clone());
        let right = columns(self.objects, of_objects.clone());
        scratch.resize(grads.rows.max(grads.columns) * right.columns, 0.0);
        let rows = &mut scratch[..grads.rows * right.columns];
        multiply(rows, Onto::Replace, grads, right);
        add_columns(self.grad_context, sizes.context_dim(), of_context, rows);
        let rows = &mut scratch[..grads.columns * left.columns];
        multiply(rows, Onto::Replace, grads.transposed(), left);
        add_columns(self.grad_objects, sizes.object_dim(), of_objects, rows);
    }

    /// From the gradient of sums of one number of each side to those of the numbers.
    fn pull_sum(&mut self, sizes: Mixtape, part: Part, grads: Matrix) {
        let (of_context, of_object) =
            (sizes.context_columns(part).start, sizes.object_columns(part).start);
        let contexts = self.grad_context.chunks_exact_mut(sizes.context_dim());
        for (context, grads) in contexts.zip(grads.values.chunks_exact(grads.columns)) {
            context[of_context] += grads.iter().sum::<f32>();
            let objects = self.grad_objects.chunks_exact_mut(sizes.object_dim());
            objects.zip(grads).for_each(|(object, grad)| object[of_object] += grad);
        }
    }
}

/// The nodes of all pairs of some contexts and objects.
struct Tree {
    n_gates: usize,
    /// Pairs that fit.
    capacity: usize,
    /// Pairs there are.
    pairs: usize,
    /// v of every node, then leaves; for each the pairs, row after row. Gradients later.
    values: Vec<f32>,
    /// γ of every node. Gradients of l later.
    gates: Vec<f32>,
}

impl Tree {
    fn new(sizes: Mixtape, capacity: usize) -> Self {
        let n_gates = sizes.n_gates();
        Self {
            n_gates,
            capacity,
            pairs: 0,
            values: vec![0.0; capacity * (n_gates + sizes.components)],
            gates: vec![0.0; capacity * n_gates],
        }
    }

    /// Computes all nodes.
    fn grow(&mut self, sizes: Mixtape, context: Matrix, objects: Matrix) {
        self.pairs = context.rows * objects.rows;
        let side = |part| {
            let context = columns(context, sizes.context_columns(part));
            (context, columns(objects, sizes.object_columns(part)).transposed())
        };
        for k in 0..sizes.components {
            let (context, objects) = side(Part::Component(k));
            let values = &mut self.values[(self.n_gates + k) * self.capacity..][..self.pairs];
            multiply(values, Onto::Replace, context, objects);
        }
        for j in (0..self.n_gates).rev() {
            let gates = &mut self.gates[j * self.capacity..][..self.pairs];
            let (shift, of_object) = (
                sizes.context_columns(Part::Shift(j)).start,
                sizes.object_columns(Part::Shift(j)).start,
            );
            for (row, gates) in gates.chunks_exact_mut(objects.rows).enumerate() {
                let shift = context.values[row * context.stride + shift];
                let biases = objects.values[of_object..].iter().step_by(objects.stride);
                gates.iter_mut().zip(biases).for_each(|(gate, bias)| *gate = shift + bias);
            }
            let (context, objects) = side(Part::Gate(j));
            multiply(gates, Onto::Add, context, objects);
            simd::sigmoid::sigmoid(gates);
            let (node, below) = self.values[j * self.capacity..].split_at_mut(self.capacity);
            let left = &below[j * self.capacity..][..self.pairs];
            let right = &below[(j + 1) * self.capacity..][..self.pairs];
            for (((node, gate), left), right) in node.iter_mut().zip(&*gates).zip(left).zip(right) {
                *node = right + gate * (left - right);
            }
        }
    }

    /// Turns values and gates into their gradients, from the root on.
    fn pull_back(&mut self, grad: &[f32]) {
        let (capacity, pairs) = (self.capacity, self.pairs);
        // The value of a node is needed by nobody once its own gradient is known.
        for j in 0..self.n_gates {
            let (above, below) = self.values.split_at_mut((j + 1) * capacity);
            let node = if j == 0 { grad } else { &above[j * capacity..][..pairs] };
            let (left, right) = below[j * capacity..].split_at_mut(capacity);
            let gates = &mut self.gates[j * capacity..][..pairs];
            for (((grad, gate), left), right) in node.iter().zip(gates).zip(left).zip(right) {
                let difference = *left - *right;
                *left = grad * *gate;
                *right = grad * (1.0 - *gate);
                *gate *= (1.0 - *gate) * grad * difference;
            }
        }
        if self.n_gates == 0 {
            self.values[..pairs].copy_from_slice(grad);
        }
    }

    fn grad_of(&self, part: Part, sizes: Mixtape, pairs: usize) -> &[f32] {
        match part {
            Part::Component(k) => &self.values[(sizes.n_gates() + k) * self.capacity..][..pairs],
            Part::Gate(j) | Part::Shift(j) => &self.gates[j * self.capacity..][..pairs],
        }
    }
}

/// Some columns of a matrix.
fn columns(matrix: Matrix, range: Range<usize>) -> Matrix {
    Matrix { values: &matrix.values[range.start..], columns: range.len(), ..matrix }
}

/// A matrix in blocks of rows.
fn blocks(matrix: Matrix) -> impl Iterator<Item = Matrix> {
    let block = move |values| Matrix::rows_of(values, matrix.columns);
    matrix.values.chunks(ROWS * matrix.columns).map(block)
}

/// Adds rows to some columns of others, which are `stride` wide.
fn add_columns(sums: &mut [f32], stride: usize, columns: Range<usize>, rows: &[f32]) {
    for (sum, row) in sums.chunks_exact_mut(stride).zip(rows.chunks_exact(columns.len())) {
        simd::add(&mut sum[columns.clone()], row);
    }
}
