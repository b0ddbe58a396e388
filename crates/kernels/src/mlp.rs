//! MLP scores: how are they computed for all pairs of a tile, at the speed of a product?
//!
//! y(c, m) = v·h_L + b, where h_1 = relu(c + m) and h_l = relu(h_(l−1)·W_l + b_l). What a linear
//! first layer makes of a query, c, and of an object, m, is made once for each of them; here is what
//! must be done for each pair. A few hundred pairs at a time go through all layers, as products of
//! matrices in a few MB of scratch; the backward pass makes their hidden values again.
//! The first layer is the business of `score`.

use std::ops::Range;

use crate::pair_score::{Learned, Side};
use crate::pieces;
use crate::product::{Matrix, Onto, multiply};
use crate::simd::{self, LANES, dispatched, multiply_add, total};

/// The widths of an MLP's hidden layers.
///
/// Its weights are all after the first layer, in one slice: W_2, b_2, …, v, b, where a matrix is
/// `[in, out]`, row after row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mlp {
    /// Zero where there is no layer.
    pub(crate) widths: [usize; Mlp::MAX_HIDDEN],
}

impl Mlp {
    /// Hidden layers, at most.
    pub const MAX_HIDDEN: usize = 4;

    /// Layers of these widths, 1 to [`Mlp::MAX_HIDDEN`] of them; anything else panics.
    pub fn new(hidden: &[usize]) -> Self {
        let fits = (1..=Self::MAX_HIDDEN).contains(&hidden.len()) && !hidden.contains(&0);
        assert!(fits, "1 to {} hidden layers with a width, found {hidden:?}", Self::MAX_HIDDEN);
        let mut widths = [0; Self::MAX_HIDDEN];
        widths[..hidden.len()].copy_from_slice(hidden);
        Self { widths }
    }

    fn hidden(&self) -> &[usize] {
        self.widths.split(|width| *width == 0).next().expect("split gives at least one part")
    }

    fn widest(&self) -> usize {
        self.widths.into_iter().max().expect("the array is not empty")
    }

    /// Inputs and outputs of every layer but the first.
    pub fn shapes(&self) -> impl Iterator<Item = (usize, usize)> {
        let hidden = self.hidden();
        hidden.iter().copied().zip(hidden[1..].iter().copied().chain([1]))
    }

    /// Learned numbers after the first layer.
    pub fn n_weights(&self) -> usize {
        self.shapes().map(|(inputs, outputs)| (inputs + 1) * outputs).sum()
    }

    /// Pairs that go through the layers together: enough that a matrix is not read for a few rows
    /// only, few enough that their values stay near the core. The sizes are a guess, not measured.
    fn block_len(&self, n_pairs: usize) -> usize {
        /// Of the widest layer: 1 MB.
        const VALUES: usize = 256 * 1024;
        (VALUES / self.widest()).clamp(64, 512).min(n_pairs)
    }

    /// Floats that a thread needs besides its tile.
    pub(crate) fn n_scratch(self) -> usize {
        let MlpScratch { hidden, product } = MlpScratch::sizes(self, usize::MAX);
        hidden.iter().sum::<usize>() + product
    }

    /// The score of one pair.
    pub(crate) fn of_pair(self, weights: &[f32], context: &[f32], object: &[f32]) -> f32 {
        let mut score = [0.0];
        let [context, object] = [context, object].map(|row| Matrix::rows_of(row, row.len()));
        self.logits(weights, &mut score, Onto::Replace, context, object);
        score[0]
    }

    /// The scores of all contexts with all objects, row after row.
    pub(crate) fn logits(
        self,
        weights: &[f32],
        out: &mut [f32],
        onto: Onto,
        context: Matrix,
        objects: Matrix,
    ) {
        let tile = Tile { layers: layers(self, weights), context, objects };
        let last = tile.last();
        let mut scratch = MlpScratch::of(self, tile.n_pairs());
        for pairs in tile.blocks(self) {
            tile.fill(&mut scratch, pairs.clone());
            for (place, out) in out[pairs.clone()].iter_mut().enumerate() {
                let (a, b) = tile.last_sum(&scratch.product, pairs.start, place);
                let before = if onto == Onto::Add { *out } else { 0.0 };
                *out = before + relu_dot(a, b, last.matrix.values) + last.bias[0];
            }
        }
    }

    /// From the gradient of such a tile to those of the weights and of its two sides.
    pub(crate) fn pull_back(
        self,
        learned: Learned,
        grad_logits: &[f32],
        context: Side,
        objects: Side,
    ) {
        for side in [(&mut *context.grad, context.onto), (&mut *objects.grad, objects.onto)] {
            if side.1 == Onto::Replace {
                side.0.fill(0.0);
            }
        }
        let layers = layers(self, learned.weights);
        let tile = Tile { layers, context: context.vectors, objects: objects.vectors };
        let mut grads = Grads {
            layers: layer_grads(self, learned.grad),
            context: context.grad,
            objects: objects.grad,
            width: self.widths[0],
        };
        let mut scratch = MlpScratch::of(self, tile.n_pairs());
        for pairs in tile.blocks(self) {
            tile.fill(&mut scratch, pairs.clone());
            tile.pull_last(&mut scratch, &mut grads, pairs.clone(), grad_logits);
            for depth in (0..tile.layers.len() - 1).rev() {
                tile.pull_layer(&mut scratch, &mut grads, pairs.clone(), depth);
            }
        }
    }
}

/// A layer after the first.
struct Layer<'a> {
    matrix: Matrix<'a>,
    bias: &'a [f32],
}

fn layers(mlp: Mlp, weights: &[f32]) -> Vec<Layer<'_>> {
    assert_eq!(weights.len(), mlp.n_weights(), "weights of {mlp:?}");
    let mut rest = weights;
    let layer = |(inputs, outputs)| {
        let (matrix, bias);
        (matrix, rest) = rest.split_at(inputs * outputs);
        (bias, rest) = rest.split_at(outputs);
        Layer { matrix: Matrix::rows_of(matrix, outputs), bias }
    };
    mlp.shapes().map(layer).collect()
}

struct LayerGrad<'a> {
    matrix: &'a mut [f32],
    bias: &'a mut [f32],
}

fn layer_grads(mlp: Mlp, grad_weights: &mut [f32]) -> Vec<LayerGrad<'_>> {
    assert_eq!(grad_weights.len(), mlp.n_weights(), "gradient of the weights of {mlp:?}");
    let mut rest = grad_weights;
    let mut grads = Vec::new();
    for (inputs, outputs) in mlp.shapes() {
        let (matrix, after) = rest.split_at_mut(inputs * outputs);
        let (bias, after) = after.split_at_mut(outputs);
        grads.push(LayerGrad { matrix, bias });
        rest = after;
    }
    grads
}

/// Where all gradients of a tile go; every one is added to.
struct Grads<'a> {
    layers: Vec<LayerGrad<'a>>,
    context: &'a mut [f32],
    objects: &'a mut [f32],
    /// Of rows of the last two.
    width: usize,
}

/// Objects that are in cache together where there are no products: up to 1024 wide, 256 kB.
const FEW_OBJECTS: usize = 64;

/// Buffers for a block of pairs, or how much of it.
struct MlpScratch<T = Vec<f32>> {
    /// Values of each hidden layer, and in the backward pass the gradient before its relu.
    hidden: Vec<T>,
    /// What a product gives.
    product: T,
}

impl MlpScratch<usize> {
    fn sizes(mlp: Mlp, n_pairs: usize) -> Self {
        // A single hidden layer needs no products.
        let block = if mlp.hidden().len() > 1 { mlp.block_len(n_pairs) } else { 0 };
        let hidden = mlp.hidden().iter().map(|width| block * width).collect();
        Self { hidden, product: block * mlp.widest() }
    }
}

impl MlpScratch {
    fn of(mlp: Mlp, n_pairs: usize) -> Self {
        let MlpScratch { hidden, product } = MlpScratch::sizes(mlp, n_pairs);
        let hidden = hidden.into_iter().map(|len| vec![0.0; len]).collect();
        Self { hidden, product: vec![0.0; product] }
    }
}

/// What all blocks share. Pairs are numbered row after row.
struct Tile<'a> {
    layers: Vec<Layer<'a>>,
    context: Matrix<'a>,
    objects: Matrix<'a>,
}

impl<'a> Tile<'a> {
    fn n_pairs(&self) -> usize {
        self.context.rows * self.objects.rows
    }

    /// The layer that gives the score.
    fn last(&self) -> &Layer<'a> {
        self.layers.last().expect("an MLP has a last layer")
    }

    /// All pairs, in the order in which they are met.
    fn blocks(&self, mlp: Mlp) -> Vec<Range<usize>> {
        let (n_pairs, width) = (self.n_pairs(), self.objects.rows);
        if self.layers.len() > 1 {
            return pieces(0..n_pairs, mlp.block_len(n_pairs)).collect();
        }
        // Without a product the work of a pair is so little that its object should be in cache: some
        // objects meet all contexts before the next ones do.
        let some = pieces(0..width, FEW_OBJECTS);
        let of_row = |objects: &Range<usize>, row: usize| {
            row * width + objects.start..row * width + objects.end
        };
        some.flat_map(|objects| (0..self.context.rows).map(move |row| of_row(&objects, row)))
            .collect()
    }

    /// Rows of context and object of a pair.
    fn rows(&self, pair: usize) -> (usize, usize) {
        (pair / self.objects.rows, pair % self.objects.rows)
    }

    fn vectors(&self, pair: usize) -> (&'a [f32], &'a [f32]) {
        let row = |matrix: Matrix<'a>, row| &matrix.values[row * matrix.stride..][..matrix.columns];
        let (context, object) = self.rows(pair);
        (row(self.context, context), row(self.objects, object))
    }

    /// All hidden values of some pairs but those of the last hidden layer, of which only the product
    /// is made.
    fn fill(&self, scratch: &mut MlpScratch, pairs: Range<usize>) {
        if self.layers.len() == 1 {
            return;
        }
        let MlpScratch { hidden, product } = scratch;
        let width = self.context.columns;
        for (hidden, pair) in hidden[0].chunks_exact_mut(width).zip(pairs.clone()) {
            let (context, object) = self.vectors(pair);
            relu_sum(hidden, context, object);
        }
        let n_products = self.layers.len() - 1;
        for (depth, layer) in self.layers[..n_products].iter().enumerate() {
            let Matrix { rows: inputs, columns: outputs, .. } = layer.matrix;
            let values = Matrix::rows_of(&hidden[depth][..pairs.len() * inputs], inputs);
            let product = &mut product[..pairs.len() * outputs];
            multiply(product, Onto::Replace, values, layer.matrix);
            if depth + 1 < n_products {
                let rows = hidden[depth + 1].chunks_exact_mut(outputs);
                for (hidden, product) in rows.zip(product.chunks_exact(outputs)) {
                    relu_sum(hidden, product, layer.bias);
                }
            }
        }
    }

    /// Two vectors whose sum the last relu sees, for the pair at a place of the block: product and
    /// bias, or what comes from both sides if there is only one hidden layer.
    fn last_sum<'b>(&self, product: &'b [f32], start: usize, place: usize) -> (&'b [f32], &'b [f32])
    where
        'a: 'b,
    {
        match &self.layers[..] {
            [.., before, last] => {
                let width = last.matrix.rows;
                (&product[place * width..][..width], before.bias)
            }
            _ => self.vectors(start + place),
        }
    }

    /// From the scores of some pairs to the gradient before the last relu.
    fn pull_last(
        &self,
        scratch: &mut MlpScratch,
        grads: &mut Grads,
        pairs: Range<usize>,
        grad_logits: &[f32],
    ) {
        let (weights, width) = (self.last().matrix.values, self.last().matrix.rows);
        let values = scratch.hidden.last_mut().expect("an MLP has a hidden layer");
        values.fill(0.0);
        for (place, pair) in pairs.clone().enumerate() {
            let grad = grad_logits[pair];
            let (a, b) = self.last_sum(&scratch.product, pairs.start, place);
            let (before, last) = grads.layers.split_at_mut(self.layers.len() - 1);
            let (grad_a, grad_b) = match before.last_mut() {
                Some(before) => (&mut values[place * width..][..width], &mut *before.bias),
                None => {
                    let (context, object) = self.rows(pair);
                    let context = &mut grads.context[context * width..][..width];
                    (context, &mut grads.objects[object * width..][..width])
                }
            };
            pull_relu_dot(
                grad,
                Pulled { values: a, grad: grad_a },
                Pulled { values: b, grad: grad_b },
                Pulled { values: weights, grad: last[0].matrix },
            );
            last[0].bias[0] += grad;
        }
    }

    /// From the gradient before the relu that follows a layer to that before the relu that it
    /// follows.
    fn pull_layer(
        &self,
        scratch: &mut MlpScratch,
        grads: &mut Grads,
        pairs: Range<usize>,
        depth: usize,
    ) {
        let layer = &self.layers[depth];
        let Matrix { rows: inputs, columns: outputs, .. } = layer.matrix;
        let (values, after) = scratch.hidden.split_at_mut(depth + 1);
        let values = &mut values[depth][..pairs.len() * inputs];
        let after = Matrix::rows_of(&after[0][..pairs.len() * outputs], outputs);
        let product = &mut scratch.product[..pairs.len() * inputs];
        let transposed = Matrix::rows_of(values, inputs).transposed();
        multiply(grads.layers[depth].matrix, Onto::Add, transposed, after);
        multiply(product, Onto::Replace, after, layer.matrix.transposed());
        let rows = values.chunks_exact_mut(inputs).zip(product.chunks_exact(inputs));
        for ((values, grad), pair) in rows.zip(pairs) {
            if depth > 0 {
                pull_relu(values, grad, grads.layers[depth - 1].bias);
            } else {
                let (context, object) = self.rows(pair);
                pull_relu(values, grad, &mut grads.context[context * grads.width..][..inputs]);
                simd::add(&mut grads.objects[object * grads.width..][..inputs], values);
            }
        }
    }
}

/// Values, and where their gradient is added.
struct Pulled<'a> {
    values: &'a [f32],
    grad: &'a mut [f32],
}

dispatched!(
    /// relu(a + b), value by value.
    relu_sum, relu_sum_body, (out: &mut [f32], a: &[f32], b: &[f32])
);
dispatched!(
    /// Σ w·relu(a + b).
    relu_dot, relu_dot_body, (a: &[f32], b: &[f32], w: &[f32]) -> f32
);
dispatched!(
    /// From the gradient of that sum to those of a, b and w, which are added to.
    pull_relu_dot, pull_relu_dot_body,
    (grad: f32, a: Pulled<'_>, b: Pulled<'_>, w: Pulled<'_>)
);
dispatched!(
    /// From the gradient of relu(x) to that of x, which takes the place of relu(x) and is added to
    /// `sum`.
    pull_relu, pull_relu_body, (values: &mut [f32], grad: &[f32], sum: &mut [f32])
);

/// Written so that NaN passes through: a broken weight must reach the loss.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}

#[inline(always)]
fn relu_sum_body<const FMA: bool>(out: &mut [f32], a: &[f32], b: &[f32]) {
    for (out, (a, b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *out = relu(a + b);
    }
}

#[inline(always)]
fn relu_dot_body<const FMA: bool>(a: &[f32], b: &[f32], w: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let (w, w_rest) = w.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for ((a, b), w) in a.iter().zip(b).zip(w) {
        for i in 0..LANES {
            lanes[i] = multiply_add::<FMA>(w[i], relu(a[i] + b[i]), lanes[i]);
        }
    }
    for (lane, ((a, b), w)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest).zip(w_rest)) {
        *lane = multiply_add::<FMA>(*w, relu(a + b), *lane);
    }
    total(lanes)
}

#[inline(always)]
fn pull_relu_dot_body<const FMA: bool>(grad: f32, a: Pulled<'_>, b: Pulled<'_>, w: Pulled<'_>) {
    let [a, b, w] = [a, b, w].map(|Pulled { values, grad }| values.iter().zip(grad));
    for (((a, grad_a), (b, grad_b)), (w, grad_w)) in a.zip(b).zip(w) {
        let sum = a + b;
        let pull = if sum > 0.0 { grad * w } else { 0.0 };
        *grad_a += pull;
        *grad_b += pull;
        *grad_w = multiply_add::<FMA>(grad, relu(sum), *grad_w);
    }
}

#[inline(always)]
fn pull_relu_body<const FMA: bool>(values: &mut [f32], grad: &[f32], sum: &mut [f32]) {
    for ((value, grad), sum) in values.iter_mut().zip(grad).zip(sum) {
        *value = if *value > 0.0 { *grad } else { 0.0 };
        *sum += *value;
    }
}

#[cfg(test)]
mod tests;
