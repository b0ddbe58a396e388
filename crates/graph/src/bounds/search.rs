//! How few blocks can the worst row have?
//!
//! Objects with the same membership in the long rows stand together, so what is to be ordered are
//! distinct columns of bits. Going along the line, a row's bit flips twice per block. An order is a
//! closed tour through all distinct columns and an empty one, where the line is cut; the sum of
//! flips, weighted by row, is the length of the tour, and short tours are found as for travelling
//! salesmen: 2-opt and moves of short runs, among near neighbours, with local kicks.
//! The worst row is attacked by weights: the more blocks a row has, the more its flips cost in the
//! next round. Moves are counted, not seconds, so the same call gives the same order.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use super::matrix::AnswerMatrix;
use super::ordering::{gray, rows_of_columns};

/// How long to search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
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
    /// Blocks of the worst row after each round.
    pub history: Vec<usize>,
}

/// Near neighbours of a column that moves look at.
const NEIGHBOURS: usize = 8;
/// The largest weight of a row.
const HEAVIEST: f64 = 1000.0;

impl Effort {
    /// Under a minute for graphs of some ten thousand entities.
    pub const NORMAL: Self = Self { rounds: 8, kicks: 1 };
    /// Some ten times as long.
    pub const HIGH: Self = Self { rounds: 48, kicks: 4 };
}

/// Searches for an order in which the worst row has few blocks; `progress` is told the rounds done
/// and to be done.
pub fn search(
    matrix: &AnswerMatrix,
    effort: Effort,
    progress: &mut dyn FnMut(usize, usize),
) -> Found {
    let start = gray(matrix, 128);
    let worst = super::ordering::count_blocks(matrix, &start).blocks_max;
    // A row cannot have more blocks than answers, and no search came below half of the start.
    let long = |row: &usize| 5 * matrix.row(*row).len() > 2 * worst;
    let n_rows = (0..matrix.n_rows()).take_while(long).count();
    let (columns, members) = Columns::of(matrix, n_rows, &start);
    // With so few there is nothing to gain, and moves would meet themselves.
    if columns.len() < 16 {
        return Found { order: start, lower_bound: worst.min(1), history: vec![worst] };
    }
    let mut tour = Tour::new(columns);
    let mut found = Found { order: start, lower_bound: 1, history: Vec::new() };
    let (mut best, mut best_tour) = (usize::MAX, tour.nodes.clone());
    let mut weights = vec![1.0; n_rows];
    for round in 0..effort.rounds {
        tour.columns.set_weights(&weights);
        if renews_neighbours(round) {
            tour.find_neighbours();
        }
        tour.improve();
        tour.swaps.clear();
        tour.kick(effort.kicks * tour.nodes.len(), round as u64);
        let blocks = tour.blocks();
        let worst = blocks.iter().copied().max().unwrap_or(0);
        if worst < best {
            (best, best_tour) = (worst, tour.nodes.clone());
        }
        found.history.push(best);
        progress(round + 1, effort.rounds);
        reweigh(&mut weights, &blocks, round, effort.rounds);
    }
    tour.columns.set_weights(&weights);
    found.lower_bound = tour.columns.lower_bound();
    found.order = lay_out(&best_tour, &members);
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
        /// Above this, only columns close by on the tour are looked at.
        const MOST: usize = 30_000;
        let n = self.len();
        let window = if n <= MOST { n / 2 + 1 } else { 2000 };
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
        /// Leaving objects out makes no blocks, so some of them do where all are too many.
        const MOST: usize = 20_000;
        let sample: Vec<u32> = (0..self.len() as u32).step_by(self.len().div_ceil(MOST)).collect();
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

/// A closed tour through all columns.
struct Tour {
    columns: Columns,
    nodes: Vec<u32>,
    position: Vec<u32>,
    neighbours: Vec<[u32; NEIGHBOURS]>,
    /// Nodes whose surroundings have changed.
    queue: Vec<u32>,
    is_queued: Vec<bool>,
    /// By how much moves have made it shorter.
    gained: i64,
    /// Places and lengths that were reversed, so that it can be taken back.
    swaps: Vec<(u32, u32)>,
}

impl Tour {
    fn new(columns: Columns) -> Self {
        let n = columns.len();
        let nodes: Vec<u32> = (0..n as u32).collect();
        let position = nodes.clone();
        Self {
            columns,
            nodes,
            position,
            neighbours: vec![],
            queue: vec![],
            is_queued: vec![false; n],
            gained: 0,
            swaps: vec![],
        }
    }

    fn find_neighbours(&mut self) {
        self.neighbours = self.columns.neighbours(&self.nodes);
    }

    fn at(&self, place: usize) -> u32 {
        self.nodes[place % self.nodes.len()]
    }

    fn next(&self, node: u32) -> u32 {
        self.at(self.position[node as usize] as usize + 1)
    }

    fn previous(&self, node: u32) -> u32 {
        self.at(self.position[node as usize] as usize + self.nodes.len() - 1)
    }

    fn push(&mut self, node: u32) {
        if !std::mem::replace(&mut self.is_queued[node as usize], true) {
            self.queue.push(node);
        }
    }

    /// Improves until no move among near neighbours helps.
    fn improve(&mut self) {
        for place in (0..self.nodes.len()).rev() {
            self.push(self.nodes[place]);
        }
        self.settle();
    }

    fn settle(&mut self) {
        while let Some(node) = self.queue.pop() {
            self.is_queued[node as usize] = false;
            while self.move_from(node) {}
        }
    }

    /// Makes one move that starts at a node, if one helps.
    fn move_from(&mut self, a: u32) -> bool {
        self.reconnect(a, true) || self.reconnect(a, false) || self.transfer(a)
    }

    /// 2-opt: takes the edge from `a` to its next (or previous) node and another of the same
    /// direction away, and joins the ends the other way.
    fn reconnect(&mut self, a: u32, forward: bool) -> bool {
        let step = |tour: &Self, node| if forward { tour.next(node) } else { tour.previous(node) };
        let b = step(self, a);
        let edge = self.columns.distance(a, b);
        for c in self.neighbours[a as usize] {
            let near = self.columns.distance(a, c);
            if near >= edge {
                return false;
            }
            let d = step(self, c);
            if c == a || c == b || d == a {
                continue;
            }
            let gain = edge + self.columns.distance(c, d) - near - self.columns.distance(b, d);
            if gain > 0 {
                if forward {
                    self.reverse(b, c)
                } else {
                    self.reverse(c, b)
                }
                self.gained += gain;
                for node in [a, b, c, d] {
                    self.push(node);
                }
                return true;
            }
        }
        false
    }

    /// Moves a run of up to three nodes that starts at `a` beside a near neighbour of `a`.
    fn transfer(&mut self, a: u32) -> bool {
        let n = self.nodes.len();
        for length in 1..=3.min(n / 4) {
            for is_first in [true, false] {
                // The run from a to z; a is its first node or its last.
                let place = self.position[a as usize] as usize;
                let z_place = if is_first { place + length - 1 } else { place + n + 1 - length };
                let z = self.at(z_place);
                let (first, last) = if is_first { (a, z) } else { (z, a) };
                let (before, after) = (self.previous(first), self.next(last));
                let removed = self.columns.distance(before, first)
                    + self.columns.distance(last, after)
                    - self.columns.distance(before, after);
                if removed <= 0 {
                    continue;
                }
                for c in self.neighbours[a as usize] {
                    let near = self.columns.distance(a, c);
                    if near >= removed {
                        break;
                    }
                    if self.is_in_run(c, first, length) {
                        continue;
                    }
                    for d in [self.next(c), self.previous(c)] {
                        if self.is_in_run(d, first, length) {
                            continue;
                        }
                        let gain = removed + self.columns.distance(c, d)
                            - near
                            - self.columns.distance(z, d);
                        if gain > 0 {
                            self.insert([first, last], [c, d], a);
                            self.gained += gain;
                            for node in [a, z, c, d, before, after] {
                                self.push(node);
                            }
                            return true;
                        }
                    }
                }
            }
        }
        false
    }

    fn is_in_run(&self, node: u32, first: u32, length: usize) -> bool {
        self.steps(first, node) < length
    }

    /// Puts the run from `first` to `last` between the neighbours `c` and `d`, with `a`, one end of
    /// it, beside `c`. Made of reversals, after which the tour may run the other way.
    fn insert(&mut self, [first, last]: [u32; 2], [c, d]: [u32; 2], a: u32) {
        let n = self.nodes.len();
        let (before, after) = (self.previous(first), self.next(last));
        let ahead = self.steps(first, c);
        let d_is_next = self.next(c) == d;
        if ahead <= n / 2 {
            // before [first last] after … near | far: turn all up to near, then turn the way back.
            let near = if d_is_next { c } else { d };
            self.reverse(first, near);
            self.reverse_between(before, near, after);
        } else {
            // far | near … before [first last] after.
            let near = if d_is_next { d } else { c };
            self.reverse(near, last);
            self.reverse_between(after, near, before);
        }
        if self.next(a) != c && self.previous(a) != c {
            let length = self.steps(first, last).min(self.steps(last, first));
            let is_forward = self.steps(first, last) == length;
            if is_forward { self.reverse(first, last) } else { self.reverse(last, first) }
        }
    }

    /// Reverses the way from `from` to `to`, where `from` stands beside `outside`.
    fn reverse_between(&mut self, outside: u32, from: u32, to: u32) {
        if self.next(outside) == from { self.reverse(from, to) } else { self.reverse(to, from) }
    }

    /// Steps forward from one node to another.
    fn steps(&self, from: u32, to: u32) -> usize {
        let n = self.nodes.len();
        (self.position[to as usize] as usize + n - self.position[from as usize] as usize) % n
    }

    /// Reverses the way from one node to another, or what is outside of it, if that is shorter.
    fn reverse(&mut self, from: u32, to: u32) {
        let n = self.nodes.len();
        let (mut i, j) =
            (self.position[from as usize] as usize, self.position[to as usize] as usize);
        let inside = (j + n - i) % n + 1;
        let mut length = inside;
        if 2 * inside > n {
            i = (j + 1) % n;
            length = n - inside;
        }
        self.swaps.push((i as u32, length as u32));
        self.reverse_places(i, length);
    }

    fn reverse_places(&mut self, mut i: usize, length: usize) {
        let n = self.nodes.len();
        let mut j = (i + n + length - 1) % n;
        for _ in 0..length / 2 {
            let (a, b) = (self.nodes[i], self.nodes[j]);
            self.nodes[i] = b;
            self.nodes[j] = a;
            self.position[b as usize] = i as u32;
            self.position[a as usize] = j as u32;
            i = if i + 1 == n { 0 } else { i + 1 };
            j = if j == 0 { n - 1 } else { j - 1 };
        }
    }

    /// Exchanges two neighbouring runs somewhere, improves around them, and takes it back if the
    /// tour is longer than before; `kicks` times.
    fn kick(&mut self, kicks: usize, round: u64) {
        /// The longest run.
        const LONGEST: usize = 50;
        let n = self.nodes.len();
        let longest = LONGEST.min(n / 4);
        let mut rng = ChaCha8Rng::seed_from_u64(round);
        for _ in 0..kicks {
            self.swaps.clear();
            self.gained = 0;
            let start = rng.random_range(0..n);
            let middle = start + rng.random_range(1..=longest);
            let end = middle + rng.random_range(1..=longest);
            // a [b … c] [d … e] f becomes a [d … e] [b … c] f.
            let [a, b, c, d, e, f] =
                [start, start + 1, middle, middle + 1, end, end + 1].map(|place| self.at(place));
            let distance = |x, y| self.columns.distance(x, y);
            let cost = distance(a, d) + distance(e, b) + distance(c, f)
                - distance(a, b)
                - distance(c, d)
                - distance(e, f);
            self.reverse(b, c);
            self.reverse_between(f, e, d);
            self.reverse_between(f, d, b);
            for node in [a, b, c, d, e, f] {
                self.push(node);
            }
            self.settle();
            if self.gained < cost {
                while let Some((place, length)) = self.swaps.pop() {
                    self.reverse_places(place as usize, length as usize);
                }
            }
        }
    }

    /// Blocks of each long row: half of its flips.
    fn blocks(&self) -> Vec<usize> {
        let mut flips = vec![0; self.columns.width * 64];
        for place in 0..self.nodes.len() {
            let (a, b) =
                (self.columns.column(self.at(place)), self.columns.column(self.at(place + 1)));
            for (word, (a, b)) in a.iter().zip(b).enumerate() {
                let mut differing = a ^ b;
                while differing != 0 {
                    flips[word * 64 + differing.trailing_zeros() as usize] += 1;
                    differing &= differing - 1;
                }
            }
        }
        flips.truncate(self.columns.n_rows);
        flips.into_iter().map(|flips: usize| flips / 2).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::count_blocks;

    #[test]
    fn a_matrix_without_rows_has_no_blocks() {
        let found = check(&AnswerMatrix::from_rows(3, vec![]), Effort::NORMAL);
        assert_eq!((found.order.len(), found.lower_bound), (3, 0));
    }

    /// A matrix of random rows.
    fn random(n_columns: usize, n_rows: usize, share: f64, seed: u64) -> AnswerMatrix {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut row = || (0..n_columns as u32).filter(|_| rng.random_bool(share)).collect();
        AnswerMatrix::from_rows(n_columns, (0..n_rows).map(|_| row()).collect())
    }

    fn check(matrix: &AnswerMatrix, effort: Effort) -> Found {
        let found = search(matrix, effort, &mut |_, _| {});
        // Counting fails for what is no order of all objects.
        let blocks = count_blocks(matrix, &found.order).blocks_max;
        assert!(found.lower_bound <= blocks, "{} > {blocks}", found.lower_bound);
        found
    }

    #[test]
    fn searching_finds_fewer_blocks_than_it_starts_with() {
        let matrix = random(300, 40, 0.2, 1);
        let start = count_blocks(&matrix, &gray(&matrix, 128)).blocks_max;
        let found = check(&matrix, Effort::NORMAL);
        let blocks = count_blocks(&matrix, &found.order).blocks_max;
        assert!(blocks < start, "{blocks} of {start}");
        assert_eq!(found.history.last(), Some(&blocks));
        assert_eq!(check(&matrix, Effort::NORMAL), found);
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
        let found = check(&matrix, Effort { rounds: 12, kicks: 4 });
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

    #[test]
    fn moves_change_the_length_by_what_they_say() {
        let matrix = random(200, 30, 0.3, 7);
        let all = (0..200).collect::<Vec<_>>();
        let (mut columns, _) = Columns::of(&matrix, matrix.n_rows(), &all);
        let weights: Vec<f64> = (0..matrix.n_rows()).map(|i| 1.0 + i as f64 / 10.0).collect();
        columns.set_weights(&weights);
        let mut tour = Tour::new(columns);
        tour.find_neighbours();
        let length = |tour: &Tour| -> i64 {
            let edges = 0..tour.nodes.len();
            edges.map(|place| tour.columns.distance(tour.at(place), tour.at(place + 1))).sum()
        };
        let start = length(&tour);
        tour.improve();
        assert_eq!(length(&tour), start - tour.gained);
        let improved = length(&tour);
        assert!(improved < start);
        tour.kick(500, 0);
        assert!(length(&tour) <= improved);
        let mut nodes = tour.nodes.clone();
        nodes.sort_unstable();
        assert_eq!(nodes, (0..tour.nodes.len() as u32).collect::<Vec<_>>());
        assert!(
            (0..nodes.len()).all(|place| tour.position[tour.nodes[place] as usize] == place as u32)
        );
    }
}
