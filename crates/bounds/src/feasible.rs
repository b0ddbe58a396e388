//! Feasible outcomes: how many rankings and labellings can d dimensions express, of all there are?
//!
//! For object vectors in general position the number does not depend on where they are
//! (Cover 1965 and 1967). It has millions of digits, so logarithms are counted.
//! Whether the rankings of the graph in hand are among them is what the other bounds are about.

use serde::Serialize;

/// What a linear output layer h·Eᵀ can express.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Feasible {
    /// Objects that are ranked or labelled.
    pub n_objects: usize,
    /// The dimension of their vectors.
    pub dim: usize,
    /// Orders of all objects by their score.
    pub rankings: Outcomes,
    /// Sets of objects with a score above zero.
    pub labellings: Outcomes,
}

/// How many outcomes of a kind there are, as logarithms to base 10.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Outcomes {
    /// Those that some query vector gives.
    pub log10_feasible: f64,
    /// Those that can be thought of.
    pub log10_all: f64,
}

/// Steps after which numbers are brought back near one. Each step multiplies a number by the count
/// of objects at most, and 16 times 32 bits is half of what the exponent of an f64 can take.
const STEPS: usize = 16;

impl Feasible {
    /// Counts what vectors of `dim` dimensions give; takes time for each object and dimension.
    ///
    /// # Panics
    /// If there is no dimension: all scores would be zero.
    pub fn of(n_objects: usize, dim: usize) -> Self {
        assert!(dim > 0, "a ranking needs at least one dimension, found {dim}");
        Self {
            n_objects,
            dim,
            rankings: Outcomes {
                log10_feasible: log10_rankings(n_objects, dim),
                log10_all: log10_factorial(n_objects),
            },
            labellings: Outcomes {
                log10_feasible: log10_labellings(n_objects, dim),
                log10_all: n_objects as f64 * 2_f64.log10(),
            },
        }
    }
}

fn log10_factorial(n: usize) -> f64 {
    (2..=n).map(|factor| (factor as f64).log10()).sum()
}

/// Rankings of n objects in d dimensions (Cover 1967; Good and Tideman 1977, by Stirling numbers):
/// Q(n, d) = Q(n − 1, d) + (n − 1)·Q(n − 1, d − 1), with Q(n, 1) = 2 and Q(2, d) = 2.
fn log10_rankings(n_objects: usize, dim: usize) -> f64 {
    if dim + 1 >= n_objects {
        return log10_factorial(n_objects);
    }
    let mut counts = Counts::of_two_objects(dim);
    for n_before in 2..n_objects {
        counts.add_object(n_before as f64);
        if n_before % STEPS == 0 {
            counts.rescale();
        }
    }
    counts.log10_last()
}

/// Q(n, d) for one n and each d from 1 on, as `value` · 2^`exponent`.
struct Counts {
    values: Vec<f64>,
    exponents: Vec<i64>,
    /// What a value is worth in units of the next one: 2 to the difference of their exponents.
    units: Vec<f64>,
    /// Room for the values of the next n.
    next: Vec<f64>,
}

impl Counts {
    fn of_two_objects(dim: usize) -> Self {
        Self {
            values: vec![2.0; dim],
            exponents: vec![0; dim],
            units: vec![1.0; dim - 1],
            next: vec![2.0; dim],
        }
    }

    /// From n objects to n + 1.
    fn add_object(&mut self, n: f64) {
        // In one dimension there are always two rankings, so the first value stays.
        self.next[0] = self.values[0];
        let pairs = self.values.iter().zip(&self.values[1..]).zip(&self.units);
        for (next, ((below, same), unit)) in self.next[1..].iter_mut().zip(pairs) {
            *next = same + n * unit * below;
        }
        std::mem::swap(&mut self.values, &mut self.next);
    }

    /// Moves powers of two from values to exponents, which changes no count.
    fn rescale(&mut self) {
        for (value, exponent) in self.values.iter_mut().zip(&mut self.exponents) {
            let shift = value.log2().floor();
            *value *= (-shift).exp2();
            *exponent += shift as i64;
        }
        // A dimension more gives at most n² times as many rankings, so units stay in range.
        for (unit, pair) in self.units.iter_mut().zip(self.exponents.windows(2)) {
            *unit = ((pair[0] - pair[1]) as f64).exp2();
        }
    }

    fn log10_last(&self) -> f64 {
        let last = self.values.len() - 1;
        self.values[last].log10() + self.exponents[last] as f64 * 2_f64.log10()
    }
}

/// Labellings of n objects in d dimensions (Cover 1965): 2·Σ C(n − 1, i) over i < d.
fn log10_labellings(n_objects: usize, dim: usize) -> f64 {
    /// 2^−512: what sum and term are multiplied with when the sum leaves half the range of f64.
    const SHRINK: f64 = f64::from_bits((1023 - 512) << 52);
    if dim >= n_objects {
        return n_objects as f64 * 2_f64.log10();
    }
    let (mut term, mut sum, mut n_shrunk) = (1.0, 1.0, 0);
    for i in 1..dim {
        term *= (n_objects - i) as f64 / i as f64;
        sum += term;
        if sum * SHRINK > 1.0 {
            (term, sum, n_shrunk) = (term * SHRINK, sum * SHRINK, n_shrunk + 1);
        }
    }
    (2.0 * sum).log10() - f64::from(n_shrunk) * SHRINK.log10()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn check(log10: f64, expected: f64) {
        // Every one of the additions may round.
        assert!((log10 - expected).abs() <= 1e-12 * expected.max(1.0), "{log10} is not {expected}");
    }

    /// Rankings and labellings that random queries meet on random objects.
    fn met(n_objects: usize, dim: usize, seed: u64) -> [usize; 2] {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut vector = || (0..dim).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f64>>();
        let objects: Vec<Vec<f64>> = (0..n_objects).map(|_| vector()).collect();
        let (mut rankings, mut labellings) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..20_000 {
            let query = vector();
            let score = |object: &Vec<f64>| object.iter().zip(&query).map(|(a, b)| a * b).sum();
            let scores: Vec<f64> = objects.iter().map(score).collect();
            let mut ranking: Vec<usize> = (0..n_objects).collect();
            ranking.sort_by(|a, b| scores[*a].total_cmp(&scores[*b]));
            rankings.insert(ranking);
            labellings.insert(scores.iter().map(|score| *score > 0.0).collect::<Vec<bool>>());
        }
        [rankings.len(), labellings.len()]
    }

    #[test]
    fn as_many_are_feasible_as_random_queries_meet() {
        for (n_objects, dim) in [(3, 1), (4, 2), (5, 2), (5, 3), (4, 3), (3, 4)] {
            let feasible = Feasible::of(n_objects, dim);
            // Queries can miss a narrow region, but meet none that is not there.
            let met = (0..8).map(|seed| met(n_objects, dim, seed));
            let most = met.reduce(|a, b| [a[0].max(b[0]), a[1].max(b[1])]).unwrap();
            check(feasible.rankings.log10_feasible, (most[0] as f64).log10());
            check(feasible.labellings.log10_feasible, (most[1] as f64).log10());
        }
        // Six pairs of objects, and each turns round twice on the way round a circle.
        check(Feasible::of(4, 2).rankings.log10_feasible, 12_f64.log10());
    }

    #[test]
    fn with_dimensions_enough_all_are_feasible() {
        for n_objects in [0, 1, 2, 10, 2_000] {
            let for_rankings = Feasible::of(n_objects, n_objects.max(2) - 1).rankings;
            check(for_rankings.log10_feasible, for_rankings.log10_all);
            let for_labellings = Feasible::of(n_objects, n_objects.max(1)).labellings;
            check(for_labellings.log10_feasible, for_labellings.log10_all);
        }
        // 10!
        check(Feasible::of(10, 1).rankings.log10_all, 3_628_800_f64.log10());
        check(Feasible::of(10, 1).labellings.log10_all, 1_024_f64.log10());
    }

    #[test]
    #[should_panic(expected = "a ranking needs at least one dimension, found 0")]
    fn without_a_dimension_nothing_is_counted() {
        Feasible::of(3, 0);
    }

    #[test]
    fn one_dimension_too_few_leaves_some_out() {
        // The last term of Cover's sum is missing: two labellings.
        let feasible = Feasible::of(6, 5);
        check(feasible.labellings.log10_feasible, 62_f64.log10());
        // 2·(225 + 15) of 2·(120 + 225 + 15), by the Stirling numbers of 6 objects.
        let feasible = Feasible::of(6, 4);
        check(feasible.rankings.log10_feasible, 480_f64.log10());
    }

    #[test]
    fn large_counts_equal_those_of_a_plain_recurrence_in_logarithms() {
        let add = |a: f64, b: f64| a.max(b) + (1.0 + 10_f64.powf(a.min(b) - a.max(b))).log10();
        let (n_objects, dims) = (1_500, [1, 2, 37, 700, 1_490]);
        let mut rankings = vec![2_f64.log10(); n_objects];
        // Of one object: the top of Pascal's triangle.
        let mut binomials = vec![f64::NEG_INFINITY; n_objects];
        binomials[0] = 0.0;
        for n in 1..n_objects {
            for d in (1..n_objects).rev() {
                binomials[d] = match (binomials[d], binomials[d - 1]) {
                    (same, f64::NEG_INFINITY) => same,
                    (same, below) => add(same, below),
                };
                if n > 1 {
                    rankings[d] = add(rankings[d], (n as f64).log10() + rankings[d - 1]);
                }
            }
        }
        for dim in dims {
            let feasible = Feasible::of(n_objects, dim);
            let labellings = binomials[..dim].iter().copied().reduce(add).unwrap();
            // The logarithms of the plain recurrence are rounded with every object.
            let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
            close(feasible.rankings.log10_feasible, rankings[dim - 1]);
            close(feasible.labellings.log10_feasible, 2_f64.log10() + labellings);
        }
    }

    #[test]
    fn millions_of_objects_neither_overflow_nor_vanish() {
        // In two dimensions each pair of objects turns round twice.
        let n_objects = 2_600_000;
        let feasible = Feasible::of(n_objects, 2);
        let pairs = n_objects as f64 * (n_objects as f64 - 1.0);
        assert!((feasible.rankings.log10_feasible - pairs.log10()).abs() < 1e-9);
        check(feasible.labellings.log10_feasible, (2.0 * n_objects as f64).log10());
        // By symmetry half of all labellings lie below the middle.
        let half = log10_labellings(n_objects, n_objects / 2);
        assert!((half - (n_objects as f64 - 1.0) * 2_f64.log10()).abs() < 1e-6, "{half}");
    }
}
