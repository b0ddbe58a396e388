//! Scores for tests: one of each kind, learned numbers for it, and its formula in f64.

use crate::distance::Distance;
use crate::mixtape::Mixtape;
use crate::mlp::Mlp;
use crate::pair_score::PairScore;
use crate::pointwise::Pointwise;

/// Scores of every kind.
pub const ALL: [PairScore; 10] = [
    PairScore::Dot,
    PairScore::Minus(Distance::L1),
    PairScore::Minus(Distance::L2),
    PairScore::Minus(Distance::Modulus),
    PairScore::Over(Pointwise::Sigsoftmax),
    PairScore::Over(Pointwise::Monotone),
    PairScore::Mixed(Mixtape { components: 2, dim: 3, gate_dim: 2 }),
    PairScore::Mixed(Mixtape { components: 5, dim: 4, gate_dim: 3 }),
    PairScore::Through(Mlp { widths: [5, 0, 0, 0] }),
    PairScore::Through(Mlp { widths: [6, 4, 3, 0] }),
];

impl PairScore {
    /// Some numbers that such a score could have learned.
    pub fn some_weights(self) -> Vec<f32> {
        match self {
            // Pieces are 0.4 wide, so that products of small vectors are in several.
            Self::Over(Pointwise::Monotone) => draw(100, 6).iter().map(|x| 1.0 + 0.8 * x).collect(),
            Self::Through(mlp) => draw(mlp.n_weights(), 7),
            _ => Vec::new(),
        }
    }

    /// How wide contexts and objects are; `dim` where there is a choice.
    pub fn widths(self, dim: usize) -> (usize, usize) {
        match self {
            Self::Mixed(mixtape) => (mixtape.context_dim(), mixtape.object_dim()),
            Self::Through(mlp) => (mlp.widths[0], mlp.widths[0]),
            _ => (dim, dim),
        }
    }
}

/// The score of one pair by its formula.
pub fn formula(score: PairScore, weights: &[f64], context: &[f64], object: &[f64]) -> f64 {
    let pairs = context.iter().zip(object).map(|(c, o)| (*c, *o));
    let differences: Vec<f64> = pairs.clone().map(|(c, o)| c - o).collect();
    let half = differences.len() / 2;
    let dot = || pairs.clone().map(|(c, o)| c * o).sum::<f64>();
    match score {
        PairScore::Dot => dot(),
        PairScore::Minus(Distance::L1) => -differences.iter().map(|d| d.abs()).sum::<f64>(),
        PairScore::Minus(Distance::L2) => -differences.iter().map(|d| d * d).sum::<f64>().sqrt(),
        PairScore::Minus(Distance::Modulus) => {
            -(0..half).map(|i| differences[i].hypot(differences[half + i])).sum::<f64>()
        }
        PairScore::Over(Pointwise::Sigsoftmax) => dot() - (-dot()).exp().ln_1p(),
        PairScore::Over(Pointwise::Monotone) => {
            // From zero to the product, piece by piece.
            let (z, width) = (dot(), 40.0 / weights.len() as f64);
            let way = |piece: usize| {
                let from = -20.0 + piece as f64 * width;
                z.max(0.0).clamp(from, from + width) - z.min(0.0).clamp(from, from + width)
            };
            let rise = |(piece, slope): (usize, &f64)| slope * way(piece);
            weights.iter().enumerate().map(rise).sum::<f64>() * z.signum()
        }
        PairScore::Mixed(Mixtape { components, dim, gate_dim }) => {
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let (vectors, rest) = context.split_at(components * dim);
            let (gates, shifts) = rest.split_at((components - 1) * gate_dim);
            let (vector, rest) = object.split_at(dim);
            let (object_gate, object_shifts) = rest.split_at(gate_dim);
            let gate = |j: usize| {
                let own = dot(&gates[j * gate_dim..][..gate_dim], object_gate);
                1.0 / (1.0 + (-own - shifts[j] - object_shifts[j]).exp())
            };
            let weight = |leaf: usize| {
                let (mut node, mut weight) = (components - 1 + leaf, 1.0);
                while node > 0 {
                    let parent = (node - 1) / 2;
                    let is_left = node == 2 * parent + 1;
                    weight *= if is_left { gate(parent) } else { 1.0 - gate(parent) };
                    node = parent;
                }
                weight
            };
            let component = |k: usize| weight(k) * dot(&vectors[k * dim..][..dim], vector);
            (0..components).map(component).sum()
        }
        PairScore::Through(mlp) => {
            let mut values: Vec<f64> = pairs.map(|(c, o)| c + o).collect();
            let mut rest = weights;
            for (inputs, outputs) in mlp.shapes() {
                let (matrix, after) = rest.split_at(inputs * outputs);
                let (bias, after) = after.split_at(outputs);
                let output = |(j, bias): (usize, &f64)| {
                    let terms = values.iter().zip(matrix.chunks_exact(outputs));
                    bias + terms.map(|(x, row)| x.max(0.0) * row[j]).sum::<f64>()
                };
                values = bias.iter().enumerate().map(output).collect();
                rest = after;
            }
            values[0]
        }
    }
}

/// Numbers between −1 and 1, uniform and the same for the same seed: splitmix64 (Steele, Lea and
/// Flood 2014).
pub fn draw(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        // The upper 24 bits, as many as a float can tell apart.
        ((z ^ (z >> 31)) >> 40) as f32 / 8_388_608.0 - 1.0
    };
    (0..n).map(|_| next()).collect()
}
