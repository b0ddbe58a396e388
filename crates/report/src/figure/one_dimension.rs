//! One dimension: what can its softmax say of three entities?
//!
//! The paper's toy: object vectors .8, .4 and −.7. The query vector is a number h, so everything the
//! model can say lies along a line.

use fullrank_engine::Config;
use fullrank_engine::output_demo::OutputDemo;

use super::svg::{Anchor, COLORS, Font, GREY, Point, Stroke, Svg, ramp};

/// One number each.
const OBJECTS: [f32; 3] = [0.8, 0.4, -0.7];
/// Query vectors looked at; an even number of them misses zero, where all scores are equal.
const SAMPLES: usize = 240;

/// What holds over a stretch of query vectors.
struct Region {
    from: f64,
    to: f64,
    says: String,
}

/// The rankings and labels that occur, of all there are.
pub fn rankings() -> String {
    let mut svg = Svg::new(900.0, 470.0, "What one dimension can rank and label (d = 1, E = 3)");
    let x = |value: f64| 545.0 + 250.0 * value;
    let thin = Stroke { color: "#222", width: 1.2 };
    let rows = [("object vectors", 90.0), ("feasible rankings", 190.0), ("feasible labels", 270.0)];
    for (name, y) in rows {
        svg.text([40.0, y + 5.0], Anchor::Start, Font::Bold, name);
        svg.arrow([x(0.0), y], [x(1.15), y], thin);
        svg.arrow([x(0.0), y], [x(-1.15), y], thin);
        svg.line([x(0.0), y - 6.0], [x(0.0), y + 6.0], thin);
    }
    for (i, (object, color)) in OBJECTS.into_iter().zip(COLORS).enumerate() {
        // One above the other: two of them point the same way.
        let y = 90.0 - 10.0 + 10.0 * i as f64;
        let end = x(f64::from(object));
        svg.arrow([x(0.0), y], [end, y], Stroke { color, width: 3.0 });
        let above = [y - 10.0, y + 28.0, y + 24.0][i];
        let anchor = if object > 0.0 { Anchor::Start } else { Anchor::End };
        let name = format!("e{} = {object}", i + 1).replace('-', "−");
        svg.text([end, above], anchor, Font::Plain, &name);
    }
    let [rankings, labels] = [regions(ranking), regions(label)];
    for (regions, y) in [(&rankings, 190.0), (&labels, 270.0)] {
        for (i, Region { from, to, says }) in regions.iter().enumerate() {
            let color = COLORS[i % COLORS.len()];
            let stroke = Stroke { color, width: 5.0 };
            svg.line([x(*from), y], [x(*to), y], stroke);
            svg.text([x((from + to) / 2.0), y - 14.0], Anchor::Middle, Font::Bold, says);
        }
    }
    svg.text([x(1.15), 295.0], Anchor::End, Font::Small, "query vector h, from −1 to 1");
    all_of("rankings", &all_rankings(), &rankings, 350.0, &mut svg);
    all_of("labels", &all_labels(), &labels, 400.0, &mut svg);
    let note = "Pale: no query vector gives it. 1 2 3 means entity 1 before 2 before 3; + is a \
                score above zero.";
    svg.text([40.0, 445.0], Anchor::Start, Font::Small, note);
    svg.finish()
}

/// All outcomes of a kind, those pale that no region has.
fn all_of(kind: &str, all: &[String], found: &[Region], y: f64, svg: &mut Svg) {
    let is_found = |outcome: &String| found.iter().any(|region| region.says == *outcome);
    let n_found = all.iter().filter(|outcome| is_found(outcome)).count();
    let name = format!("{n_found} of {} {kind}", all.len());
    svg.text([40.0, y], Anchor::Start, Font::Bold, &name);
    for (i, outcome) in all.iter().enumerate() {
        let font = if is_found(outcome) { Font::Bold } else { Font::Pale };
        svg.text([220.0 + 80.0 * i as f64, y], Anchor::Start, font, outcome);
    }
}

/// Probabilities along h, and the curve that they are in the simplex.
pub fn distributions() -> String {
    const REACH: f64 = 6.0;
    let mut svg =
        Svg::new(900.0, 470.0, "Distributions that one dimension can give (d = 1, E = 3)");
    let h = |i: usize| REACH * (2.0 * i as f64 / SAMPLES as f64 - 1.0);
    let queries: Vec<Vec<f32>> = (0..=SAMPLES).map(|i| vec![h(i) as f32]).collect();
    let rows = output_of(&OBJECTS).log_probs(&queries);
    let rows: Vec<Vec<f64>> =
        rows.iter().map(|row| row.iter().map(|x| f64::from(*x).exp()).collect()).collect();

    let at = |h: f64, p: f64| [235.0 + 170.0 * h / REACH, 390.0 - 300.0 * p];
    svg.line(at(-REACH, 0.0), at(REACH, 0.0), GREY);
    svg.line(at(-REACH, 0.0), at(-REACH, 1.0), GREY);
    for (label, h) in [("−6", -REACH), ("0", 0.0), ("6", REACH)] {
        let [x, y] = at(h, 0.0);
        svg.line([x, y], [x, y + 5.0], GREY);
        svg.text([x, y + 20.0], Anchor::Middle, Font::Small, label);
    }
    for p in [0.0, 0.5, 1.0] {
        let [x, y] = at(-REACH, p);
        svg.text([x - 8.0, y + 4.0], Anchor::End, Font::Small, &p.to_string());
    }
    svg.text([235.0, 432.0], Anchor::Middle, Font::Plain, "query vector h");
    svg.text([65.0, 66.0], Anchor::Start, Font::Plain, "probability");
    for (object, color) in COLORS.into_iter().enumerate() {
        let line: Vec<Point> = rows.iter().zip(0..).map(|(row, i)| at(h(i), row[object])).collect();
        svg.polyline(&line, Stroke { color, width: 2.5 });
        let place = [7 * SAMPLES / 8, 9 * SAMPLES / 16, SAMPLES / 4][object];
        let [x, y] = at(h(place), rows[place][object]);
        let (anchor, x) =
            if object == 0 { (Anchor::End, x - 8.0) } else { (Anchor::Start, x + 6.0) };
        svg.text([x, y - 8.0], anchor, Font::Plain, &format!("entity {}", object + 1));
    }
    triangle(&rows, &mut svg);
    svg.finish()
}

/// The curve in the triangle of all distributions.
fn triangle(rows: &[Vec<f64>], svg: &mut Svg) {
    let corners: [Point; 3] = [[500.0, 390.0], [860.0, 390.0], [680.0, 80.0]];
    let at = |row: &[f64]| -> Point {
        let along = |axis: usize| row.iter().zip(corners).map(|(p, corner)| p * corner[axis]).sum();
        [along(0), along(1)]
    };
    svg.polygon(&corners, "#ececec", 1.0);
    svg.polyline(&[corners[0], corners[1], corners[2], corners[0]], GREY);
    for ([x, y], name) in corners.into_iter().zip(["entity 1", "entity 2", "entity 3"]) {
        let y = if y > 100.0 { y + 20.0 } else { y - 10.0 };
        svg.text([x, y], Anchor::Middle, Font::Plain, name);
    }
    for (i, pair) in rows.windows(2).enumerate() {
        let color = ramp(i as f64 / rows.len() as f64);
        svg.line(at(&pair[0]), at(&pair[1]), Stroke { color: &color, width: 4.0 });
    }
    let middle = at(&rows[rows.len() / 2]);
    svg.dot(middle, 4.0, "#222");
    svg.text([middle[0] + 10.0, middle[1] + 4.0], Anchor::Start, Font::Small, "h = 0");
    let note = "grey: all distributions; the curve: those of some h (dark −6, light 6)";
    svg.text([680.0, 432.0], Anchor::Middle, Font::Small, note);
}

/// An object whose vector is zero stands for the threshold: its score is zero.
const WITH_THRESHOLD: [f32; 4] = [OBJECTS[0], OBJECTS[1], OBJECTS[2], 0.0];

fn output_of(objects: &[f32]) -> OutputDemo {
    let config = Config::parse("dim = 1").expect("a softmax of one dimension can train");
    OutputDemo::new(&config, &objects.iter().map(|object| vec![*object]).collect::<Vec<_>>())
}

/// Stretches of h from −1 to 1 over which the log-probabilities say the same.
fn regions(says: fn(&[f32]) -> String) -> Vec<Region> {
    let end = |i: usize| 2.0 * i as f64 / SAMPLES as f64 - 1.0;
    let queries: Vec<Vec<f32>> =
        (0..SAMPLES).map(|i| vec![((end(i) + end(i + 1)) / 2.0) as f32]).collect();
    let said: Vec<String> =
        output_of(&WITH_THRESHOLD).log_probs(&queries).iter().map(|row| says(row)).collect();
    let mut start = 0;
    let mut regions = vec![];
    for same in said.chunk_by(|a, b| a == b) {
        let (from, to) = (end(start), end(start + same.len()));
        regions.push(Region { from, to, says: same[0].clone() });
        start += same.len();
    }
    regions
}

fn ranking(row: &[f32]) -> String {
    let mut objects = [0, 1, 2];
    objects.sort_by(|a: &usize, b| row[*b].total_cmp(&row[*a]));
    written(objects)
}

fn label(row: &[f32]) -> String {
    signs([0, 1, 2].map(|object| row[object] > row[3]))
}

fn written(objects: [usize; 3]) -> String {
    objects.map(|object| (object + 1).to_string()).join(" ")
}

fn signs(is_above: [bool; 3]) -> String {
    is_above.map(|is_above| if is_above { "+" } else { "−" }).join(" ")
}

fn all_rankings() -> Vec<String> {
    let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    orders.map(written).to_vec()
}

fn all_labels() -> Vec<String> {
    (0..8).map(|bits| signs([4, 2, 1].map(|bit| bits & bit == 0))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_of_six_rankings_and_two_of_eight_labels_are_feasible() {
        // As in the paper's figure of the toy bottleneck.
        let said = |regions: Vec<Region>| regions.into_iter().map(|r| r.says).collect::<Vec<_>>();
        assert_eq!(said(regions(ranking)), ["3 2 1", "1 2 3"]);
        assert_eq!(said(regions(label)), ["− − +", "+ + −"]);
        assert_eq!(all_labels().len(), 8);
    }
}
