//! Mixtures: which distributions over four entities can one of two dimensions give?
//!
//! A sheet of query vectors goes through output layers with K = 1, 2, 4 and 8 components. Seen among
//! all distributions, which fill a tetrahedron, it is a curved surface for every K; as log-ratios it
//! is flat for a single softmax, and for no mixture.

use fullrank_engine::Config;
use fullrank_engine::output_demo::OutputDemo;

use super::svg::{Anchor, Font, GREY, Point, Svg, ramp};

const COMPONENTS: [usize; 4] = [1, 2, 4, 8];
/// Four directions, not quite regular: nothing hides behind anything else.
const OBJECTS: [[f32; 2]; 4] = [[4.2, 0.5], [-0.8, 4.0], [-3.6, -1.6], [1.3, -3.4]];
/// Weights of projections and gates that spread well; any other seed shows the same.
const SEED: u64 = 6;
/// Patches of the sheet along each side.
const PATCHES: usize = 22;
/// Query vectors from minus to plus this, in both dimensions.
const REACH: f64 = 8.0;
const PANEL: f64 = 290.0;
const WIDTH: f64 = 4.0 * PANEL + 20.0;

type Space = [f64; 3];

/// A sheet of points in space, row after row, (PATCHES + 1)² of them.
struct Sheet(Vec<Space>);

/// From where space is looked at: two directions on the paper and one towards the eye.
#[derive(Clone, Copy)]
struct View {
    right: Space,
    up: Space,
    near: Space,
}

/// In the tetrahedron of all distributions.
pub fn distributions() -> String {
    let title = "Distributions over 4 entities that a mixture of K softmaxes can give (d = 2)";
    let mut svg = Svg::new(WIDTH, 400.0, title);
    let view = View::from_above(0.25, 0.32);
    for (panel, components) in COMPONENTS.into_iter().enumerate() {
        let middle = [10.0 + PANEL * (panel as f64 + 0.5), 225.0];
        let at = |point: Space| view.paper(point, middle, 148.0);
        frame(&at, &mut svg);
        Sheet::of(components, in_tetrahedron).draw(view, at, &mut svg);
        caption(components, middle, &mut svg);
    }
    note(
        "Corners: an entity that is certain. Colour: the first number of the query vector.",
        &mut svg,
    );
    svg.finish()
}

/// In the space of log-ratios to the last entity.
pub fn log_ratios() -> String {
    let title = "The same as log-ratios: one softmax is flat, a mixture is not (d = 2, E = 4)";
    let mut svg = Svg::new(WIDTH, 400.0, title);
    let sheets = COMPONENTS.map(|components| Sheet::of(components, to_last));
    let view = View::along(normal(), 0.30);
    let reach = sheets.iter().flat_map(|sheet| &sheet.0).map(|p| length(*p)).fold(0.0, f64::max);
    for (panel, (sheet, components)) in sheets.iter().zip(COMPONENTS).enumerate() {
        let middle = [10.0 + PANEL * (panel as f64 + 0.5), 205.0];
        let at = |point: Space| view.paper(point, middle, 0.48 * PANEL / reach);
        axes(reach, &at, &mut svg);
        sheet.draw(view, at, &mut svg);
        caption(components, middle, &mut svg);
    }
    note(
        "Looked at nearly along the plane of the single softmax. Axes: log P(1)/P(4) and so on.",
        &mut svg,
    );
    svg.finish()
}

impl Sheet {
    fn of(components: usize, place: fn(&[f64]) -> Space) -> Self {
        // tanh is bounded and smooth, so that all of the surface is in the picture.
        let settings = format!(
            "dim = 2\noutput = \"mixture\"\ncomponents = {components}\nactivation = \"tanh\"\nseed = {SEED}"
        );
        let config = Config::parse(&settings).expect("such a mixture can train");
        let layer = OutputDemo::new(&config, &OBJECTS.map(|object| object.to_vec()));
        let h = |i: usize| (REACH * (2.0 * i as f64 / PATCHES as f64 - 1.0)) as f32;
        let side = 0..=PATCHES;
        let queries: Vec<Vec<f32>> =
            side.clone().flat_map(|i| side.clone().map(move |j| vec![h(i), h(j)])).collect();
        let rows = layer.log_probs(&queries);
        let point =
            |row: &Vec<f32>| place(&row.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>());
        Self(rows.iter().map(point).collect())
    }

    /// Its patches, the farthest first.
    fn draw(&self, view: View, at: impl Fn(Space) -> Point, svg: &mut Svg) {
        let corner = |i: usize, j: usize| self.0[i * (PATCHES + 1) + j];
        let patches = (0..PATCHES).flat_map(|i| (0..PATCHES).map(move |j| (i, j)));
        let mut patches: Vec<(f64, usize, [Space; 4])> = patches
            .map(|(i, j)| {
                let corners = [(i, j), (i + 1, j), (i + 1, j + 1), (i, j + 1)];
                let corners = corners.map(|(i, j)| corner(i, j));
                let depth = corners.iter().map(|point| dot(*point, view.near)).sum();
                (depth, i, corners)
            })
            .collect();
        patches.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, i, corners) in patches {
            svg.polygon(&corners.map(&at), &ramp(i as f64 / (PATCHES - 1) as f64), 0.85);
        }
    }
}

impl View {
    /// Turned by an angle around the upright axis, and looked down upon by another.
    fn from_above(turn: f64, down: f64) -> Self {
        let near = [turn.sin() * down.cos(), turn.cos() * down.cos(), down.sin()];
        Self::towards(near, [0.0, 0.0, 1.0])
    }

    /// Along a plane, but for a small angle, so that it looks like a thin sheet.
    fn along(normal: Space, angle: f64) -> Self {
        // Any direction within the plane will do.
        let within = cross(normal, [0.3, -0.5, 0.8]);
        let within = scaled(within, 1.0 / length(within));
        let near: Space =
            std::array::from_fn(|i| within[i] * angle.cos() + normal[i] * angle.sin());
        Self::towards(near, normal)
    }

    fn towards(near: Space, upright: Space) -> Self {
        let right = cross(upright, near);
        let right = scaled(right, 1.0 / length(right));
        Self { right, up: cross(near, right), near }
    }

    fn paper(&self, point: Space, middle: Point, scale: f64) -> Point {
        [middle[0] + scale * dot(point, self.right), middle[1] - scale * dot(point, self.up)]
    }
}

/// The corners of the tetrahedron, one for each entity.
fn corners() -> [Space; 4] {
    let (third, height) = (1.0 / 3.0, 8_f64.sqrt() / 3.0);
    let around = |turn: f64| {
        let angle = turn * std::f64::consts::TAU / 3.0;
        [height * angle.cos(), height * angle.sin(), -third]
    };
    [around(0.0), around(1.0), around(2.0), [0.0, 0.0, 1.0]]
}

fn in_tetrahedron(log_probs: &[f64]) -> Space {
    let corners = corners();
    std::array::from_fn(|axis| {
        log_probs.iter().zip(corners).map(|(x, corner)| x.exp() * corner[axis]).sum()
    })
}

fn to_last(log_probs: &[f64]) -> Space {
    [0, 1, 2].map(|object| log_probs[object] - log_probs[3])
}

/// The direction in which the log-ratios of a single softmax do not reach.
fn normal() -> Space {
    let column =
        |axis: usize| [0, 1, 2].map(|object| f64::from(OBJECTS[object][axis] - OBJECTS[3][axis]));
    let normal = cross(column(0), column(1));
    scaled(normal, 1.0 / length(normal))
}

/// The edges of the tetrahedron, and a number at each corner.
fn frame(at: &impl Fn(Space) -> Point, svg: &mut Svg) {
    let corners = corners();
    for (i, a) in corners.into_iter().enumerate() {
        for b in &corners[i + 1..] {
            svg.line(at(a), at(*b), GREY);
        }
        let [x, y] = at(scaled(a, 1.1));
        svg.text([x, y + 5.0], Anchor::Middle, Font::Plain, &(i + 1).to_string());
    }
}

fn axes(reach: f64, at: &impl Fn(Space) -> Point, svg: &mut Svg) {
    for axis in 0..3 {
        let mut end = [0.0; 3];
        end[axis] = 0.8 * reach;
        svg.line(at(scaled(end, -1.0)), at(end), GREY);
        let [x, y] = at(scaled(end, 1.12));
        let name = format!("log P({})/P(4)", axis + 1);
        svg.text([x, y + 4.0], Anchor::Middle, Font::Small, &name);
    }
}

fn caption(components: usize, middle: Point, svg: &mut Svg) {
    let place = [middle[0], 358.0];
    svg.text(place, Anchor::Middle, Font::Bold, &format!("K = {components}"));
}

fn note(text: &str, svg: &mut Svg) {
    svg.text([WIDTH / 2.0, 386.0], Anchor::Middle, Font::Small, text);
}

fn dot(a: Space, b: Space) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn length(a: Space) -> f64 {
    dot(a, a).sqrt()
}

fn scaled(a: Space, factor: f64) -> Space {
    a.map(|value| value * factor)
}

fn cross(a: Space, b: Space) -> Space {
    [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_ratios_leave_the_plane_only_with_several_components() {
        let off_the_plane = COMPONENTS.map(|components| {
            let sheet = Sheet::of(components, to_last);
            sheet.0.iter().map(|point| dot(*point, normal()).abs()).fold(0.0, f64::max)
        });
        assert!(off_the_plane[0] < 1e-5, "{off_the_plane:?}");
        assert!(off_the_plane[1..].iter().all(|far| *far > 0.1), "{off_the_plane:?}");
    }

    #[test]
    fn equal_probabilities_are_the_middle_of_the_tetrahedron() {
        assert!(length(in_tetrahedron(&[0.25_f64.ln(); 4])) < 1e-12);
    }
}
