//! The report of `inspect` in a terminal.

use std::fmt::Write as _;

use fullrank_graph::statistics::{Degrees, Likeness, NEARLY, Unseen};
use fullrank_report::dimension::{AtDim, BOUNDS_HEADER, bounds_rows, reasons};

use super::{ClassRow, Directions, LeakageReport, PerTriple, Report, Splits, TwinsRow};
use crate::output::{count, counted, table};

impl Report {
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        let mut part = |title: &str, body: String| {
            let _ = writeln!(text, "{title}\n{body}");
        };
        part("Graph", self.counts_text());
        part("Answers per query", degrees_text(&self.degree));
        part("Queries by number of answers", histogram_text(&self.degree));
        part(
            "Relations by class (many: 1.5 or more objects per subject, or subjects per object)",
            classes_text(&self.relation_classes),
        );
        part("Not in training", self.unseen_text());
        part("Test leakage", self.leakage_text());
        part("Dimensions of a linear output layer (needed – enough)", self.bounds_text());
        if let Some(at_dim) = &self.at_dim {
            part(&format!("At d = {}", count(at_dim.dim)), at_dim_text(at_dim));
        }
        let _ = writeln!(text, "{:.2} s", self.seconds);
        text
    }

    fn counts_text(&self) -> String {
        let Splits { train, valid, test } = &self.splits;
        let header = ["", "entities", "relations", "triples", "train", "valid", "test"];
        let row = [self.entities, self.relations, self.triples, *train, *valid, *test].map(count);
        let mut text = table(&header, [[String::new()].into_iter().chain(row).collect()]);
        for (split, given) in [("valid", &self.candidates.valid), ("test", &self.candidates.test)] {
            if let Some(PerTriple { subjects, objects }) = given {
                let _ = writeln!(
                    text,
                    "  given negatives for each {split} triple: {subjects} subjects, {objects} objects"
                );
            }
        }
        text
    }

    fn unseen_text(&self) -> String {
        let Unseen { entities, relations, valid_triples, test_triples } = self.unseen;
        if entities + relations == 0 {
            return "  every entity and relation is in training\n".to_owned();
        }
        format!(
            "  {} and {}; {} of valid and {} of test have one of them\n",
            counted(entities, "entity"),
            counted(relations, "relation"),
            counted(valid_triples, "triple"),
            counted(test_triples, "triple"),
        )
    }

    fn leakage_text(&self) -> String {
        /// A screen's worth; JSON has all.
        const MOST: usize = 12;
        let LeakageReport { test_triples, test_share, pairs, .. } = &self.leakage;
        if self.splits.test == 0 {
            return "  there are no test triples\n".to_owned();
        }
        if pairs.is_empty() {
            return format!(
                "  no two relations share {:.0} % of their triples, and none is symmetric\n",
                100.0 * NEARLY
            );
        }
        let mut text = format!(
            "  {} of {} test triples ({:.1} %) can be read off a training triple\n",
            count(*test_triples),
            count(self.splits.test),
            100.0 * test_share,
        );
        let telling = pairs.iter().filter(|pair| pair.given_away > 0);
        let rows: Vec<Vec<String>> = telling.take(MOST).map(TwinsRow::to_cells).collect();
        let n_more = pairs.len() - rows.len();
        if !rows.is_empty() {
            text.push_str(&table(&["given away", "of test triples", "shared", ""], rows));
        }
        if n_more > 0 {
            let more = if n_more == pairs.len() { "" } else { "further " };
            let _ = writeln!(
                text,
                "  {} share {:.0} % of their triples or more; --json has them",
                format_args!("{} {more}pairs of relations", count(n_more)),
                100.0 * NEARLY
            );
        }
        text
    }

    fn bounds_text(&self) -> String {
        let mut text = table(&BOUNDS_HEADER, bounds_rows(&self.bounds, &self.bounds_forward));
        let reasons = reasons(&self.bounds);
        if !reasons.is_empty() {
            let _ = writeln!(text, "  With inverse relations:");
        }
        for reason in reasons {
            let _ = writeln!(text, "  {reason}");
        }
        text
    }
}

impl TwinsRow {
    fn to_cells(&self) -> Vec<String> {
        let Self { relation, other, .. } = self;
        let likeness = match self.likeness {
            Likeness::Duplicate => format!("{relation} = {other}"),
            Likeness::Inverse => format!("{relation} = inverse of {other}"),
            Likeness::Symmetric => format!("{relation} is symmetric"),
        };
        let shared = format!("{:.0} %", 100.0 * self.share.min(self.share_of_other));
        vec![count(self.given_away), count(self.test_triples), shared, likeness]
    }
}

fn at_dim_text(at_dim: &AtDim) -> String {
    let mut text = table(&["", "possible", "of all"], at_dim.feasible_rows());
    text.push_str(&table(&["", "dimensions of single models"], at_dim.model_rows()));
    for sentence in &at_dim.advice {
        let _ = writeln!(text, "  {sentence}");
    }
    text
}

fn degrees_text(degree: &Directions) -> String {
    let row = |name: &str, degrees: &Degrees| {
        vec![
            name.to_owned(),
            count(degrees.queries),
            format!("{:.2}", degrees.mean),
            format!("{}", degrees.median),
            count(degrees.max),
        ]
    };
    table(
        &["", "queries", "mean", "median", "max"],
        [
            row("without inverse relations", &degree.forward),
            row("with inverse relations", &degree.both),
        ],
    )
}

fn histogram_text(degree: &Directions) -> String {
    /// The longest bar, in characters.
    const WIDTH: f64 = 24.0;
    let bins = &degree.both.histogram;
    let most = bins.iter().map(|bin| bin.queries).max().unwrap_or(1).max(1) as f64;
    let rows = bins.iter().enumerate().map(|(i, bin)| {
        let range = if bin.from == bin.to {
            count(bin.from)
        } else {
            format!("{} – {}", count(bin.from), count(bin.to))
        };
        let forward = degree.forward.histogram.get(i).map_or(0, |bin| bin.queries);
        // Anything at all gets a bar: the few largest queries are the ones that matter.
        let length = (bin.queries as f64 / most * WIDTH).ceil() as usize;
        let bar = format!("{:<1$}", "█".repeat(length), WIDTH as usize);
        vec![range, count(forward), count(bin.queries), bar]
    });
    table(&["", "without inverse", "with inverse", ""], rows)
}

fn classes_text(rows: &[ClassRow]) -> String {
    let rows = rows.iter().map(|row| {
        let counts = [row.relations, row.triples, row.test_triples].map(count);
        [row.class.to_string()].into_iter().chain(counts).collect()
    });
    table(&["", "relations", "triples", "test triples"], rows)
}
