//! Pattern counting: on which rows or columns do others show the most patterns for their number?
//!
//! A beam search: chosen lines sort the patterns into classes, up to complement, and a further line
//! splits some of them. Sets that split the most are kept, and of those that split as many, the
//! ones whose classes stay large enough to be split again. As long as every class is split the
//! lines are shattered; later the number of classes still counts against Cover's.
//! Whether a set proves its claim is left to `check`.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;

use super::crossing::{Crossing, Pattern};
use super::{Argument, Certificate, Lines};
use crate::matrix::AnswerMatrix;

/// Lines to choose from: the bits of a pattern.
const CANDIDATES: usize = u128::BITS as usize;
/// Sizes without a better claim after which the search ends: past the size at which patterns run
/// out, a set shows ever fewer for its size.
const PATIENCE: usize = 4;

/// The largest shattered set found, and the set with the best claim by Cover's count.
///
/// The matrix has a row, and a single line is shattered.
pub(super) fn search(matrix: &AnswerMatrix, lines: Lines, beam: usize) -> [Certificate; 2] {
    let crossing = Crossing::of(matrix, lines, CANDIDATES);
    let points: Vec<u128> = crossing.patterns.iter().map(bits).collect();
    let n_lines = crossing.ids.len();
    let mut states: Vec<State> =
        (0..n_lines).map(|first| State::of_one(first, n_lines, &points)).collect();
    let (mut shattered, mut counted) = (Vec::new(), Vec::new());
    let mut best = 0;
    while let Some(state) = states.first() {
        let n = state.chosen.len();
        if 1_usize.checked_shl(n as u32 - 1) == Some(state.n_classes()) {
            shattered.clone_from(&state.chosen);
        }
        let dimension = dimension_for(n, 2 * state.n_classes());
        if dimension > best {
            best = dimension;
            counted.clone_from(&state.chosen);
        }
        if n >= counted.len() + PATIENCE {
            break;
        }
        states = widen(&states, beam);
    }
    [
        certify(&crossing, &shattered, Argument::Shattered { lines }, shattered.len()),
        certify(&crossing, &counted, Argument::Patterns { lines }, best),
    ]
}

fn bits(pattern: &Pattern) -> u128 {
    pattern.positive.iter().fold(0, |bits, place| bits | 1 << place)
}

/// The smallest d in which `n` lines can show so many patterns, or n if they are too many for any.
fn dimension_for(n: usize, n_patterns: usize) -> usize {
    let (mut possible, mut binomial) = (0.0, 2.0);
    for d in 1..n {
        possible += binomial;
        if possible >= n_patterns as f64 {
            return d;
        }
        binomial *= (n - d) as f64 / d as f64;
    }
    n
}

/// A set of lines, and the patterns sorted by how they look on it.
struct State {
    /// Places of the lines.
    chosen: Vec<usize>,
    /// Patterns that share their class with others, class by class. Those that are + on the first
    /// line are flipped on all others, so each stands for its complement too.
    points: Vec<u128>,
    /// Where each class ends in `points`.
    ends: Vec<usize>,
    /// Classes of a single pattern, which nothing splits.
    n_single: usize,
}

/// A line that may join a set.
#[derive(Clone, Copy)]
struct Extension {
    /// Classes of the set with it.
    n_classes: usize,
    /// The sum over classes of about one over the size of each part: small parts are not split
    /// again. A pattern and its complement count as two parts here, though one is enough, for lines
    /// that never overlap are shattered by threes and never by fours.
    smallness: f64,
    state: usize,
    line: usize,
}

impl State {
    fn of_one(first: usize, n_lines: usize, points: &[u128]) -> Self {
        let others = u128::MAX >> (CANDIDATES - n_lines) ^ 1 << first;
        let flip = |point: &u128| if point >> first & 1 == 1 { point ^ others } else { *point };
        let points = points.iter().map(flip);
        let mut state = Self { chosen: vec![first], points: vec![], ends: vec![], n_single: 0 };
        state.add_class(points);
        state
    }

    fn n_classes(&self) -> usize {
        self.ends.len() + self.n_single
    }

    fn add_class(&mut self, points: impl IntoIterator<Item = u128>) {
        let start = self.points.len();
        self.points.extend(points);
        match self.points.len() - start {
            0 => {}
            1 => {
                self.points.pop();
                self.n_single += 1;
            }
            _ => self.ends.push(self.points.len()),
        }
    }

    fn classes(&self) -> impl Iterator<Item = &[u128]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.points[start..*end])
    }

    fn with(&self, line: usize) -> Self {
        let mut chosen = self.chosen.clone();
        chosen.push(line);
        let mut state = Self { chosen, points: vec![], ends: vec![], n_single: self.n_single };
        for class in self.classes() {
            for bit in [0, 1] {
                state.add_class(class.iter().copied().filter(|point| point >> line & 1 == bit));
            }
        }
        state
    }

    /// What every line that splits a class would do.
    fn extensions(&self, number: usize) -> Vec<Extension> {
        let mut n_split = [0; CANDIDATES];
        let mut smallness = [0.0; CANDIDATES];
        for class in self.classes() {
            for (line, parts) in parts_by_line(class, self.chosen[0]).into_iter().enumerate() {
                let [zeros, ones] = parts;
                n_split[line] += usize::from(zeros != [0; 2] && ones != [0; 2]);
                let sizes = zeros.into_iter().chain(ones);
                smallness[line] += sizes.map(|size| 1.0 / (size + 1) as f64).sum::<f64>();
            }
        }
        let extension = |line: usize| Extension {
            n_classes: self.n_classes() + n_split[line],
            smallness: smallness[line],
            state: number,
            line,
        };
        let splits = |line: &usize| n_split[*line] > 0 && *line != self.chosen[0];
        (0..CANDIDATES).filter(splits).map(extension).collect()
    }
}

/// For every line, how many patterns of a class are − and + on it: each as two counts, of patterns
/// that were not flipped and of those that were.
fn parts_by_line(class: &[u128], first: usize) -> [[[usize; 2]; 2]; CANDIDATES] {
    let mut ones = [[0; 2]; CANDIDATES];
    for point in class {
        // The first line itself was not flipped, so it tells.
        let is_flipped = (point >> first & 1) as usize;
        let mut rest = *point;
        while rest != 0 {
            ones[rest.trailing_zeros() as usize][is_flipped] += 1;
            rest &= rest - 1;
        }
    }
    let n_flipped = ones[first][1];
    let n = [class.len() - n_flipped, n_flipped];
    ones.map(|ones| [[n[0] - ones[0], n[1] - ones[1]], ones])
}

/// The best sets of one line more, each once.
fn widen(states: &[State], beam: usize) -> Vec<State> {
    let per_state = states.par_iter().enumerate().map(|(number, state)| state.extensions(number));
    let mut extensions: Vec<Extension> = per_state.flatten_iter().collect();
    extensions.sort_by(|a, b| {
        let by_count = b.n_classes.cmp(&a.n_classes);
        let by_size = a.smallness.total_cmp(&b.smallness);
        by_count.then(by_size).then((a.state, a.line).cmp(&(b.state, b.line)))
    });
    let mut seen = BTreeSet::new();
    // The same lines in another order are the same set.
    extensions.retain(|it| {
        let lines = states[it.state].chosen.iter().chain([&it.line]);
        seen.len() < beam && seen.insert(lines.fold(0_u128, |set, line| set | 1 << line))
    });
    extensions.par_iter().map(|it| states[it.state].with(it.line)).collect()
}

/// The chosen lines, with one crossing line for each pattern that they show.
fn certify(
    crossing: &Crossing,
    chosen: &[usize],
    argument: Argument,
    lower_bound: usize,
) -> Certificate {
    let mut witnesses = BTreeMap::new();
    for pattern in &crossing.patterns {
        let bits = bits(pattern);
        let flip = bits >> chosen[0] & 1;
        let key: Vec<u128> = chosen.iter().map(|line| bits >> line & 1 ^ flip).collect();
        witnesses.entry(key).or_insert(pattern.line);
    }
    let mut chosen: Vec<u32> = chosen.iter().map(|place| crossing.ids[*place]).collect();
    chosen.sort_unstable();
    let mut witnesses: Vec<u32> = witnesses.into_values().collect();
    witnesses.sort_unstable();
    let (rows, columns) = match crossing.lines {
        Lines::Rows => (chosen, witnesses),
        Lines::Columns => (witnesses, chosen),
    };
    Certificate { argument, lower_bound, rows, columns }
}
