//! HTML: how does a report become a page that needs nothing else?
//!
//! Text and tables are HTML; charts are described in JSON and drawn by a small script that the page
//! carries. Names come from files that anyone may have written: they are made printable and escaped.

use std::fmt::Write as _;

use fullrank_engine::names::printable;
use fullrank_graph::Split;
use serde::Serialize;

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Colours of marks; the first three are those of all other charts. As in `page.css`.
const N_COLORS: usize = 8;
/// Shapes of marks, which tell them apart where colours do not. As in `page.css` and `page.js`.
const N_SHAPES: usize = 5;

/// A page in the making.
#[derive(Default)]
pub(crate) struct Page {
    body: String,
    charts: Vec<Chart>,
}

/// A chart, as `page.js` wants it.
#[derive(Serialize)]
struct Chart {
    id: String,
    #[serde(flatten)]
    plot: Plot,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Plot {
    /// Series over a common axis; `whole` if only whole numbers mean something there.
    Lines { x: &'static str, whole: bool, series: Vec<Series<[f64; 2]>> },
    /// Predicted share, observed share, how often.
    Reliability { x: &'static str, series: Vec<Series<[f64; 3]>> },
    /// A row of dots each.
    Dots { x: &'static str, series: Vec<Values> },
    /// Points over several orders of magnitude both ways; `unit` is what they count upwards.
    LogLog { x: &'static str, unit: &'static str, series: Vec<Series<[f64; 2]>> },
    /// Rows of shades, a digit from 0 to f each.
    Matrix { rows: Vec<String> },
    /// Marks with both axes labelled, each perhaps with an interval of its height; one shape and colour a
    /// series.
    Marks {
        x: &'static str,
        y: &'static str,
        scale: Scale,
        guide: Guide,
        joined: bool,
        series: Vec<Series<Mark>>,
    },
    /// Means below each other, with an inner and an outer interval.
    Intervals { x: &'static str, rows: Vec<IntervalRow> },
    /// Whole numbers over several orders of magnitude.
    Bars { bars: Vec<Bar> },
}

#[derive(Serialize)]
pub(crate) struct Series<P> {
    pub(crate) name: String,
    /// Which of the page's three colours.
    pub(crate) color: usize,
    pub(crate) points: Vec<P>,
}

/// A place, and the ends of an interval of its height.
#[derive(Serialize)]
pub(crate) struct Mark(
    pub(crate) f64,
    pub(crate) f64,
    pub(crate) Option<f64>,
    pub(crate) Option<f64>,
);

/// How the horizontal axis of marks runs.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scale {
    Linear,
    Log,
}

/// A dashed line to hold marks against.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Guide {
    None,
    /// Where nothing is gained or lost.
    Zero,
    /// Where both axes, from 0 to 1, agree.
    Diagonal,
}

#[derive(Serialize)]
pub(crate) struct IntervalRow {
    pub(crate) name: String,
    pub(crate) mean: f64,
    pub(crate) inner: [f64; 2],
    pub(crate) outer: Option<[f64; 2]>,
}

#[derive(Serialize)]
pub(crate) struct Values {
    pub(crate) name: String,
    pub(crate) color: usize,
    pub(crate) values: Vec<f64>,
}

#[derive(Serialize)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) color: usize,
    pub(crate) value: usize,
}

/// An answer in a table of answers.
pub(crate) struct AnswerRow {
    pub(crate) place: usize,
    pub(crate) name: String,
    pub(crate) probability: String,
    pub(crate) known_in: Option<Split>,
}

/// A cell or a line, made safe.
pub(crate) fn escape(text: &str) -> String {
    let text = printable(text).replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

impl Page {
    pub(crate) fn heading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h2>{}</h2>", escape(text));
    }

    pub(crate) fn subheading(&mut self, text: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(text));
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p>{}</p>", escape(text));
    }

    /// Less important than a paragraph.
    pub(crate) fn remark(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"soft\">{}</p>", escape(text));
    }

    /// A few numbers that catch the eye, each with what it is.
    pub(crate) fn cards(&mut self, cards: &[(String, String)]) {
        self.body.push_str("<div class=\"cards\">");
        for (number, name) in cards {
            let (number, name) = (escape(number), escape(name));
            let _ =
                write!(self.body, "<div class=\"card\"><b>{number}</b><span>{name}</span></div>");
        }
        self.body.push_str("</div>\n");
    }

    pub(crate) fn table(&mut self, header: &[&str], rows: &[Vec<String>]) {
        self.body.push_str("<div class=\"scroll\"><table><thead><tr>");
        for name in header {
            let _ = write!(self.body, "<th>{}</th>", escape(name));
        }
        self.body.push_str("</tr></thead><tbody>");
        for row in rows {
            self.body.push_str("<tr>");
            for cell in row {
                let _ = write!(self.body, "<td>{}</td>", escape(cell));
            }
            self.body.push_str("</tr>");
        }
        self.body.push_str("</tbody></table></div>\n");
    }

    /// Answers with their places and probabilities; known facts are marked.
    pub(crate) fn answers(&mut self, rows: &[AnswerRow]) {
        self.body.push_str("<div class=\"scroll\"><table><tbody>");
        for AnswerRow { place, name, probability, known_in } in rows {
            let (class, known) = match known_in {
                None => ("new", ""),
                Some(Split::Train) => ("trained", "known, in train"),
                Some(Split::Valid) => ("found", "held out, in valid"),
                Some(Split::Test) => ("found", "held out, in test"),
            };
            let _ = write!(
                self.body,
                "<tr class=\"{class}\"><td>{place}</td><td class=\"name\">{}</td><td>{}</td>\
                 <td>{known}</td></tr>",
                escape(name),
                escape(probability),
            );
        }
        self.body.push_str("</tbody></table></div>\n");
    }

    /// What the colours of the next charts stand for.
    pub(crate) fn key(&mut self, names: &[&str]) {
        self.body.push_str("<p>");
        for (color, name) in names.iter().enumerate() {
            let name = escape(name);
            let _ = write!(self.body, "<span class=\"key s{color}\"></span>{name}");
        }
        self.body.push_str("</p>\n");
    }

    /// What the shapes and colours of the next marks stand for.
    pub(crate) fn marks(&mut self, names: &[&str]) {
        self.body.push_str("<p class=\"marks\">");
        for (mark, name) in names.iter().enumerate() {
            let (color, shape, name) = (mark % N_COLORS, mark % N_SHAPES, escape(name));
            let _ = write!(
                self.body,
                "<span><span class=\"key s{color} m{shape}\"></span>{name}</span> "
            );
        }
        self.body.push_str("</p>\n");
    }

    /// Charts side by side, each with its caption.
    pub(crate) fn charts(&mut self, charts: Vec<(String, Plot)>) {
        self.body.push_str("<div class=\"charts\">");
        for (caption, plot) in charts {
            let id = format!("chart-{}", self.charts.len());
            let caption = escape(&caption);
            let _ = write!(
                self.body,
                "<figure id=\"{id}\"><figcaption>{caption}</figcaption></figure>"
            );
            self.charts.push(Chart { id, plot });
        }
        self.body.push_str("</div>\n");
    }

    pub(crate) fn code(&mut self, text: &str) {
        let lines: Vec<String> = text.lines().map(escape).collect();
        let _ = writeln!(self.body, "<pre>{}</pre>", lines.join("\n"));
    }

    /// Code that most readers pass over.
    pub(crate) fn details(&mut self, summary: &str, text: &str) {
        let _ = writeln!(self.body, "<details><summary>{}</summary>", escape(summary));
        self.code(text);
        self.body.push_str("</details>\n");
    }

    /// The whole page.
    pub(crate) fn finish(self, title: &str, subtitle: &str) -> String {
        let charts = serde_json::to_string(&self.charts).expect("our own types have string keys");
        // Within a script only `<` could end it or start a comment.
        let charts = charts.replace('<', "\\u003c");
        let (title, subtitle, body) = (escape(title), escape(subtitle), self.body);
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{CSS}</style>\n</head>\n<body>\n\
             <h1>{title}</h1>\n<p class=\"soft\">{subtitle}</p>\n{body}\
             <noscript><p>The charts need JavaScript; all else is there without it.</p></noscript>\n\
             <script type=\"application/json\" id=\"charts\">{charts}</script>\n\
             <script>\n{SCRIPT}</script>\n</body>\n</html>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_becomes_markup() {
        let hostile = "</script><script>alert('x')</script>\u{1b}[2J";
        let mut page = Page::default();
        page.heading(hostile);
        page.marks(&[hostile]);
        page.table(&["a"], &[vec![hostile.to_owned()]]);
        page.answers(&[AnswerRow {
            place: 1,
            name: hostile.to_owned(),
            probability: hostile.to_owned(),
            known_in: None,
        }]);
        let series = vec![Values { name: hostile.to_owned(), color: 0, values: vec![1.0] }];
        page.charts(vec![(hostile.to_owned(), Plot::Dots { x: "x", series })]);
        page.code(hostile);
        let html = page.finish(hostile, hostile);
        // Our own two scripts, and no other.
        assert_eq!(html.matches("<script").count(), 2);
        assert_eq!(html.matches("</script>").count(), 2);
        assert!(!html.contains('\u{1b}'));
    }
}
