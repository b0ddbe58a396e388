//! Local search for an order: how few blocks can the worst row have?
//!
//! Objects with the same membership in the long rows stand together, so what is to be ordered are
//! distinct columns of bits. Going along the line, a row's bit flips twice per block. An order is a
//! closed tour through all distinct columns and an empty one, where the line is cut; the sum of
//! flips, weighted by row, is the length of the tour, and `tour` finds short ones.
//! The worst row is attacked by weights: the more blocks a row has, the more its flips cost in the
//! next round. Moves are counted, not seconds, so the same call gives the same order.

mod tour;

use rayon::prelude::*;

use crate::matrix::AnswerMatrix;
use crate::ordering::{count_blocks, gray, rows_of_columns};
use tour::Tour;

/// How long to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchEffort {
    /// Rounds, after each of which rows are weighted anew.
    pub rounds: usize,
    /// Kicks per distinct column and round.
    pub kicks: usize,
}

/// An order, and what no order can beat.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// Objects along the line.
    pub order: Vec<u32>,
    /// Every order has a row with at least this many blocks.
    pub lower_bound: usize,
}

/// Near neighbours of a column that moves look at.
const NEIGHBOURS: usize = 8;
/// Words of columns that are compared in one go over all pairs, at most: some ten seconds.
const MOST_WORDS: usize = 1 << 32;
/// The largest weight of a row.
const HEAVIEST: f64 = 1000.0;

/// Searches for an order in which the worst row has few blocks; `progress` is called after every
/// round. The order is never worse than the Gray code it starts from.
pub fn search(matrix: &AnswerMatrix, effort: SearchEffort, progress: &mut dyn FnMut()) -> Found {
    let start = gray(matrix, 128);
    let mut best = count_blocks(matrix, &start).blocks_max;
    // A row cannot have more blocks than answers, and no search came below half of the start.
    let long = |row: &usize| 5 * matrix.row(*row).len() > 2 * best;
    let n_rows = (0..matrix.n_rows()).take_while(long).count();
    let (columns, members) = Columns::of(matrix, n_rows, &start);
    let mut found = Found { order: start, lower_bound: best.min(1) };
    // With so few there is nothing to gain, and moves would meet themselves.
    if columns.len() < 12 {
        return found;
    }
    let mut tour = Tour::new(columns);
    let mut weights = vec![1.0; n_rows];
    for round in 0..effort.rounds {
        tour.columns.set_weights(&weights);
        if renews_neighbours(round) {
            tour.find_neighbours();
        }
        tour.improve();
        tour.kick(effort.kicks * tour.nodes.len(), round as u64);
        let blocks = tour.blocks();
        let worst = blocks.iter().copied().max().unwrap_or(0);
        if worst < best {
            best = worst;
            found.order = lay_out(&tour.nodes, &members);
        }
        reweigh(&mut weights, &blocks, round, effort.rounds);
        progress();
    }
    tour.columns.set_weights(&weights);
    found.lower_bound = tour.columns.lower_bound();
    found
}

/// Distances change with the weights, at first quickly: new neighbours in rounds 0, 1, 3, 6, 12, …
fn renews_neighbours(round: usize) -> bool {
    round < 2 || (round.is_multiple_of(3) && (round / 3).is_power_of_two())
}

/// Rows with more blocks than others weigh more; the closer to the end, the smaller the change.
fn reweigh(weights: &mut [f64], blocks: &[usize], round: usize, rounds: usize) {
    let worst = blocks.iter().copied().max().unwrap_or(1).max(1) as f64;
    let step = 1.0 - round as f64 / rounds as f64 + 0.2;
    for (weight, blocks) in weights.iter_mut().zip(blocks) {
        *weight *= (step * (*blocks as f64 / worst - 1.0)).exp();
    }
    let heaviest = weights.iter().copied().fold(0.0, f64::max);
    // No row is forgotten: the blocks of one that costs nothing would grow without bound.
    weights.iter_mut().for_each(|weight| *weight = (*weight / heaviest).max(1e-3));
}

/// The objects of a closed tour, cut at the empty column.
fn lay_out(tour: &[u32], members: &[Vec<u32>]) -> Vec<u32> {
    let cut = tour.iter().position(|node| *node == 0).expect("the empty column is on every tour");
    let line = tour[cut..].iter().chain(&tour[..cut]);
    line.flat_map(|node| &members[*node as usize]).copied().collect()
}

/// Distinct columns as bits over the long rows; the first has none.
struct Columns {
    /// Words of a column.
    width: usize,
    n_rows: usize,
    bits: Vec<u64>,
    /// The weight of every value of every byte.
    table: Vec<u32>,
    total_weight: f64,
}

impl Columns {
    /// The columns in the order in which they first come, and the objects of each.
    fn of(matrix: &AnswerMatrix, n_rows: usize, order: &[u32]) -> (Self, Vec<Vec<u32>>) {
        let width = n_rows.div_ceil(64).max(1);
        let rows_of = rows_of_columns(matrix, n_rows);
        let mut numbers = hashbrown::HashMap::<&[u32], usize>::new();
        numbers.insert(&[], 0);
        let mut members = vec![Vec::new()];
        let mut bits = vec![0; width];
        for object in order {
            let rows = &rows_of[*object as usize][..];
            let number = *numbers.entry(rows).or_insert_with(|| {
                members.push(Vec::new());
                let start = bits.len();
                bits.resize(start + width, 0);
                for row in rows {
                    bits[start + *row as usize / 64] |= 1 << (row % 64);
                }
                members.len() - 1
            });
            members[number].push(*object);
        }
        (Self { width, n_rows, bits, table: vec![], total_weight: 0.0 }, members)
    }

    fn len(&self) -> usize {
        self.bits.len() / self.width
    }

    fn column(&self, node: u32) -> &[u64] {
        &self.bits[node as usize * self.width..][..self.width]
    }

    fn set_weights(&mut self, weights: &[f64]) {
        let weight = |row: usize| (weights[row] * HEAVIEST).round() as u32;
        self.total_weight = (0..self.n_rows).map(|row| f64::from(weight(row))).sum();
        let table = (0..self.width * 8 * 256).map(|place| {
            let (byte, value) = (place / 256, place % 256);
            let rows = (0..8).filter(|bit| value >> bit & 1 == 1).map(|bit| byte * 8 + bit);
            rows.filter(|row| *row < self.n_rows).map(weight).sum()
        });
        self.table = table.collect();
    }

    /// What it costs to stand side by side.
    fn distance(&self, a: u32, b: u32) -> i64 {
        let pairs = self.column(a).iter().zip(self.column(b));
        let mut sum = 0;
        for ((a, b), table) in pairs.zip(self.table.chunks_exact(8 * 256)) {
            let differing = a ^ b;
            // Most rows have neither.
            if differing != 0 {
                for (byte, table) in differing.to_le_bytes().iter().zip(table.chunks_exact(256)) {
                    sum += table[usize::from(*byte)];
                }
            }
        }
        i64::from(sum)
    }

    /// The nearest columns of each.
    fn neighbours(&self, tour: &[u32]) -> Vec<[u32; NEIGHBOURS]> {
        /// On large graphs only columns close by on the tour are looked at, but so many at least.
        const LEAST: usize = 200;
        let n = self.len();
        let window = (MOST_WORDS / (2 * n * self.width)).max(LEAST).min(n / 2 + 1);
        let mut position = vec![0; n];
        for (place, node) in tour.iter().enumerate() {
            position[*node as usize] = place;
        }
        let nearest = |node: usize| {
            let mut near = [(i64::MAX, 0_u32); NEIGHBOURS];
            for offset in 1..=(2 * window).min(n - 1) {
                let step = offset.div_ceil(2);
                let place =
                    if offset % 2 == 0 { position[node] + step } else { position[node] + n - step };
                let other = tour[place % n];
                let distance = self.distance(node as u32, other);
                if distance < near[NEIGHBOURS - 1].0 {
                    let at = near.partition_point(|(known, _)| *known <= distance);
                    near[at..].rotate_right(1);
                    near[at] = (distance, other);
                }
            }
            near.map(|(_, other)| other)
        };
        (0..n).into_par_iter().map(nearest).collect()
    }

    /// Every order has a row with at least this many blocks: a tour is longer than a shortest
    /// spanning tree (Prim), and the worst row has at least the weighted mean of blocks.
    fn lower_bound(&self) -> usize {
        // Leaving objects out makes no blocks, so some of them do where all are too many.
        let most = (MOST_WORDS / self.width).isqrt();
        let sample: Vec<u32> = (0..self.len() as u32).step_by(self.len().div_ceil(most)).collect();
        let n = sample.len();
        let mut distance = vec![i64::MAX; n];
        let mut is_in = vec![false; n];
        let (mut node, mut total) = (0, 0_i64);
        for _ in 1..n {
            is_in[node] = true;
            distance.par_iter_mut().enumerate().with_min_len(1024).for_each(|(other, known)| {
                if !is_in[other] {
                    *known = (*known).min(self.distance(sample[node], sample[other]));
                }
            });
            let outside = (0..n).filter(|other| !is_in[*other]);
            node = outside.min_by_key(|other| distance[*other]).expect("one is outside");
            total += distance[node];
        }
        // Two flips a block.
        (total as f64 / self.total_weight / 2.0).ceil() as usize
    }
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    const NORMAL: SearchEffort = SearchEffort { rounds: 8, kicks: 1 };

    #[test]
    fn a_matrix_without_rows_has_no_blocks() {
        let found = check(&AnswerMatrix::from_rows(3, vec![]), NORMAL);
        assert_eq!((found.order.len(), found.lower_bound), (3, 0));
    }

    /// A matrix of random rows.
    pub(super) fn random(n_columns: usize, n_rows: usize, share: f64, seed: u64) -> AnswerMatrix {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut row = || (0..n_columns as u32).filter(|_| rng.random_bool(share)).collect();
        AnswerMatrix::from_rows(n_columns, (0..n_rows).map(|_| row()).collect())
    }

    fn check(matrix: &AnswerMatrix, effort: SearchEffort) -> Found {
        let found = search(matrix, effort, &mut || {});
        // Counting fails for what is no order of all objects.
        let blocks = count_blocks(matrix, &found.order).blocks_max;
        assert!(found.lower_bound <= blocks, "{} > {blocks}", found.lower_bound);
        found
    }

    #[test]
    fn searching_finds_fewer_blocks_than_it_starts_with() {
        let matrix = random(300, 40, 0.2, 1);
        let start = count_blocks(&matrix, &gray(&matrix, 128)).blocks_max;
        let found = check(&matrix, NORMAL);
        let blocks = count_blocks(&matrix, &found.order).blocks_max;
        assert!(blocks < start, "{blocks} of {start}");
        assert_eq!(check(&matrix, NORMAL), found);
    }

    #[test]
    fn intervals_that_were_shuffled_are_found_again() {
        // Each row is an interval of a hidden order, so one block each is possible.
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut hidden: Vec<u32> = (0..120).collect();
        for i in (1..hidden.len()).rev() {
            hidden.swap(i, rng.random_range(0..=i));
        }
        let rows = (0..60).map(|_| {
            let start = rng.random_range(0..100);
            let mut row = hidden[start..start + rng.random_range(5..20)].to_vec();
            row.sort_unstable();
            row
        });
        let matrix = AnswerMatrix::from_rows(120, rows.collect());
        assert_eq!(count_blocks(&matrix, &hidden).blocks_max, 1);
        let found = check(&matrix, SearchEffort { rounds: 12, kicks: 4 });
        assert_eq!(count_blocks(&matrix, &found.order).blocks_max, 1);
    }

    #[test]
    fn no_order_of_small_matrices_beats_the_lower_bound() {
        for seed in 0..20 {
            let matrix = random(7, 6, 0.5, seed);
            let mut best = usize::MAX;
            for_each_order(&mut (0..7).collect(), 0, &mut |order| {
                best = best.min(count_blocks(&matrix, order).blocks_max);
            });
            let all = (0..matrix.n_columns() as u32).collect::<Vec<_>>();
            let (mut columns, _) = Columns::of(&matrix, matrix.n_rows(), &all);
            for weights in [
                vec![1.0; matrix.n_rows()],
                (1..=matrix.n_rows()).map(|i| 1.0 / i as f64).collect(),
            ] {
                columns.set_weights(&weights);
                assert!(columns.lower_bound() <= best, "seed {seed}");
            }
        }
    }

    fn for_each_order(order: &mut Vec<u32>, from: usize, visit: &mut dyn FnMut(&[u32])) {
        if from == order.len() {
            return visit(order);
        }
        for i in from..order.len() {
            order.swap(from, i);
            for_each_order(order, from + 1, visit);
            order.swap(from, i);
        }
    }
}
