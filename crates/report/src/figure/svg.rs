//! SVG: how is a picture written?
//!
//! A few shapes with fixed styles. Text comes from anywhere and is made printable and escaped.

use std::fmt::Write as _;

use crate::page::escape;

/// In pixels, from the upper left corner.
pub(super) type Point = [f64; 2];

/// A picture in the making.
pub(super) struct Svg {
    width: f64,
    height: f64,
    title: String,
    body: String,
}

/// How a line looks.
#[derive(Clone, Copy)]
pub(super) struct Stroke<'a> {
    pub(super) color: &'a str,
    pub(super) width: f64,
}

/// Axes, frames and what is not important.
pub(super) const GREY: Stroke<'static> = Stroke { color: "#8a8a8a", width: 1.0 };

/// What text looks like.
#[derive(Clone, Copy)]
pub(super) enum Font {
    Plain,
    Small,
    Bold,
    /// What is not there.
    Pale,
}

/// Where text stands from its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Different in grey too: dark, medium, light.
pub(super) const COLORS: [&str; 3] = ["#12356b", "#c8501e", "#3f9e77"];

const CSS: &str = "text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;\
fill:#222;font-size:14px}.title{font-size:19px;font-weight:600}.small{font-size:12px;fill:#555}\
.bold{font-weight:600}.pale{fill:#b4b4b4}";

impl Svg {
    /// An empty picture with a title on top, which takes 40 pixels.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        Self { width, height, title: escape(title), body: String::new() }
    }

    pub(super) fn line(&mut self, from: Point, to: Point, stroke: Stroke) {
        self.polyline(&[from, to], stroke);
    }

    /// A line with a head at its end.
    pub(super) fn arrow(&mut self, from: Point, to: Point, stroke: Stroke) {
        const HEAD: f64 = 9.0;
        self.line(from, to, stroke);
        let [x, y] = [to[0] - from[0], to[1] - from[1]];
        let length = x.hypot(y);
        let [x, y] = [x / length * HEAD, y / length * HEAD];
        let side = |turn: f64| [to[0] - x + turn * y / 2.0, to[1] - y - turn * x / 2.0];
        self.polygon(&[to, side(1.0), side(-1.0)], stroke.color, 1.0);
    }

    pub(super) fn polyline(&mut self, points: &[Point], stroke: Stroke) {
        let Stroke { color, width } = stroke;
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{width}\" \
             stroke-linejoin=\"round\"/>",
            coordinates(points)
        );
    }

    /// A filled shape with a hair of white around it, so that neighbours can be told apart.
    pub(super) fn polygon(&mut self, points: &[Point], fill: &str, opacity: f64) {
        let _ = writeln!(
            self.body,
            "<polygon points=\"{}\" fill=\"{fill}\" fill-opacity=\"{opacity}\" stroke=\"#fff\" \
             stroke-width=\".2\"/>",
            coordinates(points)
        );
    }

    pub(super) fn dot(&mut self, [x, y]: Point, radius: f64, fill: &str) {
        let _ = writeln!(
            self.body,
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\"/>"
        );
    }

    pub(super) fn text(&mut self, [x, y]: Point, anchor: Anchor, font: Font, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let class = match font {
            Font::Plain => "plain",
            Font::Small => "small",
            Font::Bold => "bold",
            Font::Pale => "pale",
        };
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>",
            escape(text)
        );
    }

    /// The whole file.
    pub(super) fn finish(self) -> String {
        let Self { width, height, title, body } = self;
        let middle = width / 2.0;
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n\
             <title>{title}</title>\n<style>{CSS}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"{middle}\" y=\"28\" text-anchor=\"middle\" class=\"title\">{title}</text>\n\
             {body}</svg>\n"
        )
    }
}

/// A colour between dark and light, for a share from 0 to 1; also in grey.
pub(super) fn ramp(share: f64) -> String {
    const STOPS: [[f64; 3]; 4] =
        [[38.0, 24.0, 84.0], [44.0, 100.0, 150.0], [92.0, 170.0, 130.0], [238.0, 214.0, 90.0]];
    let place = share.clamp(0.0, 1.0) * (STOPS.len() - 1) as f64;
    let left = (place as usize).min(STOPS.len() - 2);
    let part = place - left as f64;
    let channel = |i: usize| STOPS[left][i] * (1.0 - part) + STOPS[left + 1][i] * part;
    let [red, green, blue] = [0, 1, 2].map(|i| channel(i).round() as u8);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn coordinates(points: &[Point]) -> String {
    let pairs: Vec<String> = points.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
    pairs.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_becomes_markup() {
        let hostile = "</svg><script>alert('x')</script>\u{1b}[2J";
        let mut svg = Svg::new(10.0, 10.0, hostile);
        svg.text([1.0, 1.0], Anchor::Start, Font::Plain, hostile);
        let text = svg.finish();
        assert!(!text.contains("<script") && !text.contains('\u{1b}'), "{text}");
        assert_eq!(text.matches("</svg>").count(), 1);
    }

    #[test]
    fn colours_go_from_dark_to_light() {
        assert_eq!([ramp(-1.0), ramp(0.0), ramp(1.0)], ["#261854", "#261854", "#eed65a"]);
    }
}
