//! Distances: how are those of many pairs computed at the speed of the machine?
//!
//! A product of matrices does not give them, so these are loops of our own, compiled for all
//! instruction sets of [`crate::simd`]. Vectors are met coordinate by coordinate: of L1 and L2 a
//! coordinate is a number, of the modulus two, the real part in the left half of a vector and the
//! imaginary part in the right. The loops are the same for all; a distance is what it adds to the
//! sum at a coordinate, and which way that pulls.

use crate::pair_score::Side;
use crate::product::{Matrix, Onto};
use crate::simd::{LANES, dispatched, multiply_add, total};

/// How far apart two vectors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distance {
    /// Σ |a − b|.
    L1,
    /// √Σ (a − b)².
    L2,
    /// Σ |a − b| over complex numbers.
    Modulus,
}

dispatched!(
    /// The distance of two vectors.
    pub of_pair, of_pair_body, (distance: Distance, a: &[f32], b: &[f32]) -> f32
);
dispatched!(
    /// Minus the distances of all contexts to all objects, row after row.
    pub subtract, subtract_body,
    (distance: Distance, out: &mut [f32], onto: Onto, context: Matrix, objects: Matrix)
);
dispatched!(
    /// From the gradient of such a tile, which is used up, to those of its two sides.
    pub pull_back, pull_back_body,
    (distance: Distance, grad_logits: &mut [f32], context: Side, objects: Side)
);

/// Values that are worked on in one instruction, or a few.
type Lanes<const N: usize> = [f32; N];

/// Adds to each sum what a coordinate of its two vectors brings.
#[inline(always)]
fn add_l1<const N: usize>(sums: &mut Lanes<N>, [a]: [Lanes<N>; 1], [b]: [Lanes<N>; 1]) {
    for i in 0..N {
        sums[i] += (a[i] - b[i]).abs();
    }
}

#[inline(always)]
fn add_l2<const FMA: bool, const N: usize>(
    sums: &mut Lanes<N>,
    [a]: [Lanes<N>; 1],
    [b]: [Lanes<N>; 1],
) {
    for i in 0..N {
        sums[i] = multiply_add::<FMA>(a[i] - b[i], a[i] - b[i], sums[i]);
    }
}

#[inline(always)]
fn add_modulus<const FMA: bool, const N: usize>(
    sums: &mut Lanes<N>,
    [a_re, a_im]: [Lanes<N>; 2],
    [b_re, b_im]: [Lanes<N>; 2],
) {
    for i in 0..N {
        let (re, im) = (a_re[i] - b_re[i], a_im[i] - b_im[i]);
        sums[i] += multiply_add::<FMA>(re, re, im * im).sqrt();
    }
}

#[inline(always)]
fn of_pair_body<const FMA: bool>(distance: Distance, a: &[f32], b: &[f32]) -> f32 {
    let half = a.len() / 2;
    match distance {
        Distance::L1 => sum_pair([a], [b], add_l1),
        Distance::L2 => sum_pair([a], [b], add_l2::<FMA, LANES>).sqrt(),
        Distance::Modulus => {
            let (a, b) = (a.split_at(half).into(), b.split_at(half).into());
            sum_pair(a, b, add_modulus::<FMA, LANES>)
        }
    }
}

#[inline(always)]
fn sum_pair<const PARTS: usize>(
    a: [&[f32]; PARTS],
    b: [&[f32]; PARTS],
    add: impl Fn(&mut Lanes<LANES>, [Lanes<LANES>; PARTS], [Lanes<LANES>; PARTS]),
) -> f32 {
    let mut sums = [0.0; LANES];
    for start in (0..a[0].len()).step_by(LANES) {
        add(&mut sums, a.map(|a| lanes_at(a, start)), b.map(|b| lanes_at(b, start)));
    }
    total(sums)
}

/// Values from `start` on; zeros where they end.
#[inline(always)]
fn lanes_at<const N: usize>(values: &[f32], start: usize) -> Lanes<N> {
    let values = &values[start..];
    if let Some(lanes) = values.first_chunk() {
        return *lanes;
    }
    let mut lanes = [0.0; N];
    lanes[..values.len()].copy_from_slice(values);
    lanes
}

#[inline(always)]
fn subtract_body<const FMA: bool>(
    distance: Distance,
    out: &mut [f32],
    onto: Onto,
    context: Matrix,
    objects: Matrix,
) {
    let finish = |sum: f32| sum;
    match distance {
        Distance::L1 => {
            subtract_tile(out, onto, context, objects, Measure { add: add_l1, finish });
        }
        Distance::L2 => {
            let measure = Measure { add: add_l2::<FMA, LANES>, finish: |sum: f32| sum.sqrt() };
            subtract_tile(out, onto, context, objects, measure);
        }
        Distance::Modulus => {
            let measure = Measure { add: add_modulus::<FMA, LANES>, finish };
            subtract_tile(out, onto, context, objects, measure);
        }
    }
}

/// How a distance is made: what the two vectors add to a sum at each coordinate, and what is made of
/// the sum.
struct Measure<A, F> {
    add: A,
    finish: F,
}

/// Contexts whose sums are in registers at once, each for as many objects as there are lanes.
const ROWS: usize = 4;

/// Objects side by side: of each coordinate, one value per object and part.
type Panel<const PARTS: usize> = Vec<[Lanes<LANES>; PARTS]>;

#[inline(always)]
fn subtract_tile<const PARTS: usize>(
    out: &mut [f32],
    onto: Onto,
    context: Matrix,
    objects: Matrix,
    Measure { add, finish }: Measure<
        impl Fn(&mut Lanes<LANES>, [Lanes<LANES>; PARTS], [Lanes<LANES>; PARTS]),
        impl Fn(f32) -> f32,
    >,
) {
    let (dim, width) = (context.columns, objects.rows);
    let mut panel: Panel<PARTS> = vec![[[0.0; LANES]; PARTS]; dim / PARTS];
    for start in (0..width).step_by(LANES) {
        let used = LANES.min(width - start);
        fill(&mut panel, &objects.values[start * dim..][..used * dim]);
        for first in (0..context.rows).step_by(ROWS) {
            let n = ROWS.min(context.rows - first);
            // Where rows run out, the last one stands in for those that are missing.
            let row = |r: usize| &context.values[(first + r.min(n - 1)) * dim..][..dim];
            let sums = sum_rows(std::array::from_fn(row), &panel, &add);
            for (r, sums) in sums.iter().enumerate().take(n) {
                let out = &mut out[(first + r) * width + start..][..used];
                for (out, sum) in out.iter_mut().zip(sums) {
                    let before = if onto == Onto::Add { *out } else { 0.0 };
                    *out = before - finish(*sum);
                }
            }
        }
    }
}

#[inline(always)]
fn fill<const PARTS: usize>(panel: &mut Panel<PARTS>, objects: &[f32]) {
    let coordinates = panel.len();
    for (lane, object) in objects.chunks_exact(coordinates * PARTS).enumerate() {
        for (i, coordinate) in panel.iter_mut().enumerate() {
            for (part, lanes) in coordinate.iter_mut().enumerate() {
                lanes[lane] = object[part * coordinates + i];
            }
        }
    }
}

#[inline(always)]
fn sum_rows<const PARTS: usize>(
    rows: [&[f32]; ROWS],
    panel: &Panel<PARTS>,
    add: &impl Fn(&mut Lanes<LANES>, [Lanes<LANES>; PARTS], [Lanes<LANES>; PARTS]),
) -> [Lanes<LANES>; ROWS] {
    let coordinates = panel.len();
    let rows: [[&[f32]; PARTS]; ROWS] =
        rows.map(|row| std::array::from_fn(|part| &row[part * coordinates..][..coordinates]));
    let mut sums = [[0.0; LANES]; ROWS];
    for (i, objects) in panel.iter().enumerate() {
        for r in 0..ROWS {
            add(&mut sums[r], rows[r].map(|part| [part[i]; LANES]), *objects);
        }
    }
    sums
}

#[inline(always)]
fn pull_back_body<const FMA: bool>(
    distance: Distance,
    grad_logits: &mut [f32],
    context: Side,
    objects: Side,
) {
    match distance {
        Distance::L1 => pull_tile::<1, 4>(grad_logits, context, objects, pull_l1),
        Distance::L2 => {
            divide_by_distance::<FMA>(grad_logits, context.vectors, objects.vectors);
            pull_tile::<1, 4>(grad_logits, context, objects, pull_l2);
        }
        Distance::Modulus => {
            pull_tile::<2, 2>(grad_logits, context, objects, pull_modulus::<FMA>);
        }
    }
}

/// The gradient of the distance by the first of two vectors, whose difference is given, times a
/// weight; by the second it is the opposite.
#[inline(always)]
fn pull_l1(weight: f32, [d]: Piece<1>) -> Piece<1> {
    // Not `signum`, which is ±1 at ±0.
    [d.map(|d| {
        let pull = if d < 0.0 { -weight } else { weight };
        if d == 0.0 { 0.0 } else { pull }
    })]
}

/// The weight is divided by the distance already.
#[inline(always)]
fn pull_l2(weight: f32, [d]: Piece<1>) -> Piece<1> {
    [d.map(|d| weight * d)]
}

#[inline(always)]
fn pull_modulus<const FMA: bool>(weight: f32, [re, im]: Piece<2>) -> Piece<2> {
    let mut weights = [0.0; NARROW];
    for i in 0..NARROW {
        let square = multiply_add::<FMA>(re[i], re[i], im[i] * im[i]);
        weights[i] = if square > 0.0 { weight / square.sqrt() } else { 0.0 };
    }
    let times = |x: Lanes<NARROW>| std::array::from_fn(|i| weights[i] * x[i]);
    [times(re), times(im)]
}

/// Makes ∂loss/∂distance · 1/distance of the gradient of L2, whose pull is that times a − b; zero
/// where the distance is.
#[inline(always)]
fn divide_by_distance<const FMA: bool>(grad_logits: &mut [f32], context: Matrix, objects: Matrix) {
    let mut logits = vec![0.0; grad_logits.len()];
    subtract_body::<FMA>(Distance::L2, &mut logits, Onto::Replace, context, objects);
    for (grad, logit) in grad_logits.iter_mut().zip(&logits) {
        *grad = if *logit < 0.0 { *grad / -logit } else { 0.0 };
    }
}

/// Coordinates of a gradient that are in registers at once.
const NARROW: usize = 8;

/// Some coordinates of a vector, of a difference, or of a gradient.
type Piece<const PARTS: usize> = [Lanes<NARROW>; PARTS];

#[inline(always)]
fn pull_tile<const PARTS: usize, const ROWS: usize>(
    weights: &[f32],
    context: Side,
    objects: Side,
    pull: impl Fn(f32, Piece<PARTS>) -> Piece<PARTS>,
) {
    let (dim, width) = (context.vectors.columns, objects.vectors.rows);
    for side in [(&mut *context.grad, context.onto), (&mut *objects.grad, objects.onto)] {
        if side.1 == Onto::Replace {
            side.0.fill(0.0);
        }
    }
    // Rows that are missing in the last block weigh nothing.
    let nothing = vec![0.0; width];
    for start in (0..dim / PARTS).step_by(NARROW) {
        let vectors: Vec<Piece<PARTS>> =
            objects.vectors.values.chunks_exact(dim).map(|row| piece(row, start)).collect();
        let mut grads: Vec<Piece<PARTS>> = vec![[[0.0; NARROW]; PARTS]; width];
        for first in (0..context.vectors.rows).step_by(ROWS) {
            let n = ROWS.min(context.vectors.rows - first);
            let weights: [&[f32]; ROWS] = std::array::from_fn(|r| match r < n {
                true => &weights[(first + r) * width..][..width],
                false => &nothing[..],
            });
            let rows = std::array::from_fn(|r| {
                piece(&context.vectors.values[(first + r.min(n - 1)) * dim..][..dim], start)
            });
            let pulled = pull_rows(weights, &rows, &vectors, &mut grads, &pull);
            for (r, pulled) in pulled.iter().enumerate().take(n) {
                add_piece(&mut context.grad[(first + r) * dim..][..dim], start, pulled);
            }
        }
        for (row, grad) in objects.grad.chunks_exact_mut(dim).zip(&grads) {
            add_piece(row, start, grad);
        }
    }
}

/// Adds the gradients of the objects and gives those of the rows.
#[inline(always)]
fn pull_rows<const PARTS: usize, const ROWS: usize>(
    weights: [&[f32]; ROWS],
    rows: &[Piece<PARTS>; ROWS],
    vectors: &[Piece<PARTS>],
    grads: &mut [Piece<PARTS>],
    pull: &impl Fn(f32, Piece<PARTS>) -> Piece<PARTS>,
) -> [Piece<PARTS>; ROWS] {
    let weights = weights.map(|weights| &weights[..vectors.len()]);
    let mut pulled = [[[0.0; NARROW]; PARTS]; ROWS];
    for (j, (vector, grad)) in vectors.iter().zip(grads).enumerate() {
        let mut sum = *grad;
        for r in 0..ROWS {
            let difference = std::array::from_fn(|part| {
                std::array::from_fn(|i| rows[r][part][i] - vector[part][i])
            });
            let by_row = pull(weights[r][j], difference);
            for part in 0..PARTS {
                for i in 0..NARROW {
                    pulled[r][part][i] -= by_row[part][i];
                    sum[part][i] += by_row[part][i];
                }
            }
        }
        *grad = sum;
    }
    pulled
}

/// Coordinates of a vector from `start` on.
#[inline(always)]
fn piece<const PARTS: usize>(row: &[f32], start: usize) -> Piece<PARTS> {
    let coordinates = row.len() / PARTS;
    std::array::from_fn(|part| lanes_at(&row[part * coordinates..][..coordinates], start))
}

#[inline(always)]
fn add_piece<const PARTS: usize>(row: &mut [f32], start: usize, piece: &Piece<PARTS>) {
    let coordinates = row.len() / PARTS;
    let used = NARROW.min(coordinates - start);
    for (part, lanes) in piece.iter().enumerate() {
        let out = &mut row[part * coordinates + start..][..used];
        out.iter_mut().zip(lanes).for_each(|(out, x)| *out += x);
    }
}
