//! The page of a graph's bounds: how large must the dimension be?

use fullrank_bounds::{AnswerMatrix, Side, blocks_of_rows};
use fullrank_graph::Graph;

use crate::dimension::{AtDim, BOUNDS_HEADER, SideReport, bounds_rows, degree_points, reasons};
use crate::numbers::count;
use crate::page::{Page, Plot, Series};

/// What the page is made of.
#[derive(Debug)]
pub struct InspectPage<'a> {
    /// The graph.
    pub graph: &'a Graph,
    /// The files it is from.
    pub data: &'a [String],
    /// With inverse relations.
    pub bounds: &'a SideReport,
    /// Without them.
    pub bounds_forward: &'a SideReport,
    /// What a dimension is good for, if one was named.
    pub at_dim: Option<&'a AtDim>,
}

impl InspectPage<'_> {
    /// The page.
    pub fn to_html(&self) -> String {
        page(self)
    }
}

fn page(report: &InspectPage) -> String {
    let mut page = Page::default();
    let InspectPage { graph, .. } = *report;
    let analysis = &report.bounds.analysis;
    let signs = analysis.signs();
    let needed = signs.needed.map_or(String::new(), |needed| format!("{} – ", count(needed)));
    page.cards(&[
        (count(graph.entities().len()), "entities".to_owned()),
        (count(graph.n_triples()), "triples".to_owned()),
        (format!("{needed}{}", count(signs.enough)), "dimensions for sets of answers".to_owned()),
        (count(analysis.distributions().enough), "dimensions for distributions".to_owned()),
    ]);
    dimensions(&mut page, report);
    if let Some(at_dim) = report.at_dim {
        page.heading(&format!("What is d = {} good for?", count(at_dim.dim)));
        page.paragraph(&at_dim.advice.join(" "));
        page.table(&["", "possible", "of all"], &at_dim.feasible_rows());
        page.table(&["", "dimensions of single models"], &at_dim.model_rows());
    }
    degrees(&mut page, graph);
    blocks(&mut page, report.bounds);
    matrices(&mut page, report.bounds);
    let subtitle = format!(
        "{} entities, {} relations, {} triples; {}",
        count(graph.entities().len()),
        count(graph.relations().len()),
        count(graph.n_triples()),
        report.data.join(", "),
    );
    page.finish("How large must the dimension be?", &subtitle)
}

fn dimensions(page: &mut Page, report: &InspectPage) {
    page.heading("Which dimensions are needed, and which are enough?");
    page.paragraph(
        "A linear output layer scores all entities with h·Eᵀ, whose matrix rank is at most d. With \
         fewer dimensions than needed, some query of the graph cannot have its answers first, above \
         a threshold, or with their probabilities, whatever the encoder; with enough, some vectors \
         do it. Whether a training finds them is another matter.",
    );
    page.table(&BOUNDS_HEADER, &bounds_rows(report.bounds, report.bounds_forward));
    page.remark("From needed to enough; one number where both are the same.");
    let reasons = reasons(report.bounds);
    if !reasons.is_empty() {
        page.paragraph(&format!("With inverse relations: {}", reasons.join(" ")));
    }
}

fn degrees(page: &mut Page, graph: &Graph) {
    page.heading("How many answers do queries have?");
    page.key(&["with inverse relations", "without"]);
    let series = |name: &str, color, side| Series {
        name: name.to_owned(),
        color,
        points: degree_points(graph, side),
    };
    let series = vec![series("with inverse", 0, Side::Both), series("without", 1, Side::Forward)];
    let plot = Plot::LogLog { x: "answers of a query", unit: "queries", series };
    page.charts(vec![("queries by number of answers, both on logarithmic scales".into(), plot)]);
}

/// The orders that are shown, each with what it is called.
fn orders(report: &SideReport) -> Vec<(&'static str, Vec<u32>)> {
    let analysis = &report.analysis;
    let mut orders = vec![("the paper's order", analysis.rcm_order.clone())];
    if let Some(best) = analysis.best.as_ref().filter(|best| best.ordering != "rcm") {
        orders.push(("the best order found", best.order.clone()));
    }
    orders
}

fn blocks(page: &mut Page, report: &SideReport) {
    /// Rows that are drawn, at most: a power of a little more than one each.
    const STEP: f64 = 1.03;
    page.heading("In how many blocks do the answers lie?");
    page.paragraph(
        "The objects stand on a line. Where the answers of a query form b blocks, a polynomial of \
         degree 2b tells them from all others; the row with the most blocks decides.",
    );
    let matrix = &report.analysis.matrix;
    let orders = orders(report);
    page.key(&orders.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let series = orders.iter().enumerate().map(|(color, (name, order))| {
        let mut blocks: Vec<usize> =
            blocks_of_rows(matrix, order).into_iter().map(|(blocks, _)| blocks).collect();
        blocks.sort_unstable_by(|a, b| b.cmp(a));
        let mut next = 1.0;
        let mut points = vec![];
        for (place, blocks) in (1..).zip(blocks) {
            if f64::from(place) >= next {
                points.push([f64::from(place), blocks as f64]);
                next = (next * STEP).max(next + 1.0);
            }
        }
        Series { name: (*name).to_owned(), color, points }
    });
    let plot = Plot::LogLog {
        x: "distinct rows, most blocks first",
        unit: "blocks",
        series: series.collect(),
    };
    page.charts(vec![("blocks of every row, with inverse relations".to_owned(), plot)]);
}

fn matrices(page: &mut Page, report: &SideReport) {
    /// Rows that are drawn.
    const ROWS: usize = 64;
    let matrix = &report.analysis.matrix;
    let n_rows = matrix.n_rows().min(ROWS);
    page.heading("What does reordering do?");
    page.paragraph(&format!(
        "The {n_rows} queries with the most answers, a row each; the objects from left to right, the \
         darker the more of them are answers."
    ));
    let as_loaded: Vec<u32> = (0..matrix.n_columns() as u32).collect();
    let all = [("as they come in the files", as_loaded)].into_iter().chain(orders(report));
    for (name, order) in all {
        let plot = Plot::Matrix { rows: picture(matrix, n_rows, &order) };
        page.charts(vec![(name.to_owned(), plot)]);
    }
}

/// How full each part of a row is, as digits from 0 to f.
fn picture(matrix: &AnswerMatrix, n_rows: usize, order: &[u32]) -> Vec<String> {
    /// Parts of a row, at most.
    const PARTS: usize = 600;
    let n_parts = PARTS.min(order.len());
    let part_of = |place: usize| place * n_parts / order.len();
    let mut sizes = vec![0_usize; n_parts];
    let mut parts = vec![0; order.len()];
    for (place, object) in order.iter().enumerate() {
        sizes[part_of(place)] += 1;
        parts[*object as usize] = part_of(place);
    }
    let digits = |row: usize| {
        let mut answers = vec![0_usize; n_parts];
        matrix.row(row).iter().for_each(|object| answers[parts[*object as usize]] += 1);
        // Anything at all is seen.
        let shade = |(n, size): (&usize, &usize)| (15 * n).div_ceil(*size) as u32;
        let shades = answers.iter().zip(&sizes).map(shade);
        shades.map(|shade| char::from_digit(shade, 16).expect("at most 15")).collect()
    };
    (0..n_rows).map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_shows_how_full_each_part_is() {
        let matrix = AnswerMatrix::from_rows(1200, vec![vec![0, 1, 2, 3], vec![1199]]);
        let digits = picture(&matrix, 2, &(0..1200).collect::<Vec<_>>());
        // Two objects a part.
        assert_eq!(&digits[0][..4], "ff00");
        assert_eq!(&digits[1][596..], "0008");
    }
}
