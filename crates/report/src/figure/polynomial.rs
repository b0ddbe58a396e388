//! Polynomials: which one tells the answers of a query from all other entities?
//!
//! Entities stand in the best order that a search finds; the polynomial of the query's row is
//! positive at its answers and negative elsewhere. Its values span thousands of orders of magnitude,
//! so heights are logarithms, with the sign put back.

use fullrank_bounds::{
    AnswerMatrix, Decomposition, Effort, Polynomial, Side, Sign, count_blocks,
    reverse_cuthill_mckee, search,
};
use fullrank_engine::answers::QueryNames;
use fullrank_graph::{Graph, Query, Split};

use super::svg::{Anchor, COLORS, Font, GREY, Point, Stroke, Svg};
use crate::numbers::{count, counted};

/// Answers named in the picture, at most.
const NAMED: usize = 12;
/// Entities that have a dot each, at most.
const MOST_DOTS: usize = 1000;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 960.0;
/// Where the polynomial is zero, and how far it reaches up and down.
const ZERO: f64 = 375.0;
const REACH: f64 = 150.0;

/// Steps of [`polynomial`].
pub const POLYNOMIAL_STEPS: usize = Effort::NORMAL.search.rounds;

/// The polynomial that tells the answers of a query from all other entities; nothing if the graph has
/// no answer to it. `step` is called after each of [`POLYNOMIAL_STEPS`] steps.
pub fn polynomial(graph: &Graph, query: Query, step: &mut dyn FnMut()) -> Option<String> {
    let answers = sorted_answers(graph, query)?;
    let matrix = AnswerMatrix::of(graph, Side::Both);
    let decomposition = Decomposition::of(&matrix, &best_order(&matrix, step));
    let is_row = |row: &usize| matrix.row(*row) == answers;
    let row = (0..matrix.n_rows()).find(is_row).expect("every query with answers has a row");
    Some(picture(graph, query, &decomposition, row).finish())
}

fn sorted_answers(graph: &Graph, query: Query) -> Option<Vec<u32>> {
    let number = graph.answers().find(query)?;
    let answers = graph.answers().up_to(number, Split::Test);
    let mut answers: Vec<u32> = answers.iter().map(|object| object.0).collect();
    answers.sort_unstable();
    Some(answers)
}

/// The better of the paper's order and one searched for.
fn best_order(matrix: &AnswerMatrix, step: &mut dyn FnMut()) -> Vec<u32> {
    let found = search(matrix, Effort::NORMAL.search, &mut || step()).order;
    let kappa = |order: &Vec<u32>| count_blocks(matrix, order).kappa;
    let orders = [found, reverse_cuthill_mckee(matrix)];
    orders.into_iter().min_by_key(kappa).expect("there are two")
}

/// Logarithm and sign of a polynomial, with leading coefficient ±1.
struct Heights<'a> {
    polynomial: Polynomial<'a>,
    /// Of the logarithms at the objects shown.
    lowest: f64,
    highest: f64,
}

impl<'a> Heights<'a> {
    fn over(polynomial: Polynomial<'a>, shown: std::ops::RangeInclusive<u32>) -> Self {
        let mut heights = Self { polynomial, lowest: f64::INFINITY, highest: f64::NEG_INFINITY };
        for place in shown {
            let height = heights.logarithm(f64::from(place));
            heights.lowest = heights.lowest.min(height);
            heights.highest = heights.highest.max(height);
        }
        heights
    }

    /// A root lies half a place behind the number it has.
    fn logarithm(&self, x: f64) -> f64 {
        let roots = self.polynomial.roots.iter();
        roots.map(|root| (x - f64::from(*root) - 0.5).abs().max(1e-9).log10()).sum()
    }

    /// From −1 to 1; objects keep a distance from zero, roots are at zero.
    fn at(&self, x: f64) -> f64 {
        /// The height of the object that is closest to zero.
        const LEAST: f64 = 0.15;
        let range = (self.highest - self.lowest).max(1e-9);
        let share = (self.logarithm(x) - self.lowest) / range;
        // Nearer to a root than any object is, the height is in proportion to the value.
        let height = match share {
            ..0.0 => LEAST * 10_f64.powf(share * range),
            _ => LEAST + (1.0 - LEAST) * share,
        };
        // The sign changes halfway between two places.
        match self.polynomial.sign_at((x - 0.5).ceil() as u32) {
            Sign::Plus => height,
            Sign::Minus => -height,
        }
    }
}

fn picture(graph: &Graph, query: Query, decomposition: &Decomposition, row: usize) -> Svg {
    let polynomial = decomposition.row(row);
    let order = decomposition.order();
    let title = format!(
        "Positive at the answers of {} alone",
        short(&QueryNames::of(graph, query).to_string(), 90)
    );
    let mut svg = Svg::new(1000.0, 620.0, &title);
    let (first, last) = shown_places(&polynomial, order.len());
    let heights = Heights::over(polynomial, first..=last);
    let (from, to) = (f64::from(first), f64::from(last));
    let x = |place: f64| LEFT + (RIGHT - LEFT) * (place - from) / (to - from).max(1.0);
    let at = |place: f64| [x(place), ZERO - REACH * heights.at(place)];
    svg.line([LEFT, ZERO], [RIGHT, ZERO], GREY);
    svg.text([LEFT - 8.0, ZERO - REACH + 8.0], Anchor::End, Font::Small, "+");
    svg.text([LEFT - 8.0, ZERO + 4.0], Anchor::End, Font::Small, "0");
    svg.text([LEFT - 8.0, ZERO + REACH], Anchor::End, Font::Small, "−");
    let line: Vec<Point> = curve_places(from, to, polynomial.roots).into_iter().map(at).collect();
    svg.polyline(&line, Stroke { color: "#777", width: 1.5 });
    for root in polynomial.roots {
        let place = x(f64::from(*root) + 0.5);
        svg.line([place, ZERO - 5.0], [place, ZERO + 5.0], Stroke { color: "#222", width: 1.0 });
    }
    objects(graph, order, &heights, first..=last, &at, &mut svg);
    for place in [first, last] {
        let label = count(place as usize + 1);
        svg.text([x(f64::from(place)), ZERO + REACH + 38.0], Anchor::Middle, Font::Small, &label);
    }
    let axis = format!("place of the entity in the order, of {}", count(order.len()));
    svg.text([(LEFT + RIGHT) / 2.0, ZERO + REACH + 38.0], Anchor::Middle, Font::Plain, &axis);
    legend(&heights, &mut svg);
    svg
}

/// All places, or those around the roots where entities are many.
fn shown_places(polynomial: &Polynomial, n_objects: usize) -> (u32, u32) {
    const ALL: usize = 200;
    let end = n_objects as u32 - 1;
    let (Some(first), Some(last)) = (polynomial.roots.first(), polynomial.roots.last()) else {
        return (0, end);
    };
    if n_objects <= ALL {
        return (0, end);
    }
    let margin = ((last - first) / 10).max(5);
    (first.saturating_sub(margin), (last + 1 + margin).min(end))
}

/// Enough places for a smooth curve: every root, and steps of less than a pixel.
fn curve_places(from: f64, to: f64, roots: &[u32]) -> Vec<f64> {
    const STEPS: usize = 1500;
    let mut places: Vec<f64> =
        (0..=STEPS).map(|i| from + (to - from) * i as f64 / STEPS as f64).collect();
    places.extend(roots.iter().map(|root| f64::from(*root) + 0.5));
    places.sort_by(f64::total_cmp);
    places
}

/// A dot for each entity, and names of the answers if they are few.
fn objects(
    graph: &Graph,
    order: &[u32],
    heights: &Heights,
    shown: std::ops::RangeInclusive<u32>,
    at: &impl Fn(f64) -> Point,
    svg: &mut Svg,
) {
    let is_answer = |place: &u32| heights.polynomial.sign_at(*place) == Sign::Plus;
    let radius = if shown.clone().count() > 300 { 1.2 } else { 2.5 };
    // Answers last, so that no other dot covers them; very many others would hide the curve.
    let others = shown.clone().filter(|place| !is_answer(place));
    for place in others.filter(|_| shown.clone().count() <= MOST_DOTS) {
        svg.dot(at(f64::from(place)), radius, COLORS[0]);
    }
    let answers: Vec<u32> = shown.filter(is_answer).collect();
    if answers.len() <= NAMED {
        names(graph, order, &answers, at, svg);
    }
    for place in answers {
        svg.dot(at(f64::from(place)), 1.6 * radius, COLORS[1]);
    }
}

/// The name of each answer at the end of a line, each lower than the one before so that no line
/// crosses a name.
fn names(graph: &Graph, order: &[u32], answers: &[u32], at: &impl Fn(f64) -> Point, svg: &mut Svg) {
    let is_right = |place: &u32| at(f64::from(*place))[0] > (LEFT + RIGHT) / 2.0;
    let n_right = answers.iter().filter(|place| is_right(place)).count();
    // Names run to the side on which there is more room.
    let runs_left = 2 * n_right > answers.len();
    for (i, place) in answers.iter().enumerate() {
        let [x, y] = at(f64::from(*place));
        let line = if runs_left { answers.len() - 1 - i } else { i };
        let top = 60.0 + 13.0 * line as f64;
        svg.line([x, top - 8.0], [x, y], Stroke { color: "#ccc", width: 0.8 });
        let (anchor, beside) = if runs_left { (Anchor::End, -4.0) } else { (Anchor::Start, 4.0) };
        let name = short(graph.entities().name(order[*place as usize]), 40);
        svg.text([x + beside, top], anchor, Font::Small, &name);
    }
}
fn legend(heights: &Heights, svg: &mut Svg) {
    let y = 600.0;
    svg.dot([LEFT + 6.0, y - 4.0], 4.0, COLORS[1]);
    svg.text([LEFT + 18.0, y], Anchor::Start, Font::Small, "answers");
    svg.dot([LEFT + 96.0, y - 4.0], 2.5, COLORS[0]);
    svg.text([LEFT + 108.0, y], Anchor::Start, Font::Small, "other entities");
    let degree = heights.polynomial.degree();
    let scale = format!(
        "{}, the ticks; height: log₁₀ of the value, which spans {:.1} orders of magnitude",
        counted(degree, "root"),
        (heights.highest - heights.lowest).max(0.0),
    );
    svg.text([RIGHT, y], Anchor::End, Font::Small, &scale);
}

/// A name that does not run out of the picture.
fn short(name: &str, most: usize) -> String {
    match name.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}
