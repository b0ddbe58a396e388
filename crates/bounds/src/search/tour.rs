//! Travelling salesman tours: how is a short one through all columns found?
//!
//! As for travelling salesmen: 2-opt and moves of short runs, among near neighbours, until none
//! helps (Croes 1958; Or 1976); then local kicks, each taken back if it does not help in the end.
//! What a distance is, and which rows it minds, is the business of `search`.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{Columns, NEIGHBOURS};

/// Moves that would turn a longer part of the tour round are not made: on tours of hundreds of
/// thousands of columns they would take nearly all of the time.
const LONGEST_TURN: usize = 25_000;

/// A closed tour through all columns.
pub(super) struct Tour {
    pub(super) columns: Columns,
    pub(super) nodes: Vec<u32>,
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
    pub(super) fn new(columns: Columns) -> Self {
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

    pub(super) fn find_neighbours(&mut self) {
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
    pub(super) fn improve(&mut self) {
        for place in (0..self.nodes.len()).rev() {
            self.push(self.nodes[place]);
        }
        self.settle();
    }

    /// Makes moves around the nodes that wait, until none helps.
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
            if c == a || c == b || d == a || self.is_far(a, c) {
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
                    if self.is_in_run(c, first, length) || self.is_far(first, c) {
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

    /// Whether the shorter way between two nodes is too long to be turned round.
    fn is_far(&self, a: u32, b: u32) -> bool {
        let steps = self.steps(a, b);
        steps.min(self.nodes.len() - steps) > LONGEST_TURN
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
    pub(super) fn kick(&mut self, kicks: usize, round: u64) {
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
    pub(super) fn blocks(&self) -> Vec<usize> {
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
    use super::super::tests::random;
    use super::*;

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
