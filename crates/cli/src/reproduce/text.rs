//! Results: our figures beside the paper's, as tables and as JSON.

use std::path::PathBuf;

use fullrank_report::numbers::mean_and_deviation;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};
use serde_json::{Value, json};

use super::cells::Ours;
use super::column::{Column, Source, deviation, numbers, shown};
use super::paper::{Dataset, Paper, Row, Table};
use super::places::Sizes;

use crate::output::{table as aligned, wrapped};

/// A table made again.
pub(super) struct TableResult<'a> {
    pub(super) table: &'a Table,
    pub(super) graphs: Vec<GraphResult<'a>>,
    /// Settings that are not the paper's.
    pub(super) changes: Vec<String>,
}

/// Its part on one graph.
pub(super) struct GraphResult<'a> {
    pub(super) dataset: &'a Dataset,
    pub(super) sizes: Sizes,
    pub(super) rows: Vec<RowResult<'a>>,
}

/// A row on one graph.
pub(super) struct RowResult<'a> {
    pub(super) row: &'a Row,
    pub(super) label: String,
    /// In the order of the columns.
    pub(super) ours: Vec<Ours>,
    /// Its runs.
    pub(super) folders: Vec<PathBuf>,
}

impl GraphResult<'_> {
    /// Adds what follows from other rows: ratios and mean gains.
    pub(super) fn add_comparisons(&mut self, columns: &[Column]) {
        let found = |row: &RowResult, column: usize| row.ours[column].mean();
        let figure = |value: Option<f64>| match value {
            Some(value) => Ours::Figures { values: vec![value], realistic: None },
            None => Ours::Absent(String::new()),
        };
        let mut added = Vec::new();
        for (place, RowResult { row, .. }) in self.rows.iter().enumerate() {
            for (number, column) in columns.iter().enumerate() {
                if let (Source::Table, Some(base)) = (column.source(), &row.base) {
                    let base = self.rows.iter().find(|other| {
                        other.row.model.as_ref() == Some(base) && other.row.dim == row.dim
                    });
                    // What is compared is the first column.
                    let own = found(&self.rows[place], 0);
                    let ratio = own.zip(base.and_then(|base| found(base, 0)));
                    added.push((place, number, figure(ratio.map(|(own, base)| own / base))));
                }
                if let (Source::Runs, Some(ending)) = (column.source(), &row.mean_gain) {
                    let gain = self.mean_gain(ending, row.dim, number);
                    added.push((place, number, figure(gain)));
                }
            }
        }
        for (place, number, cell) in added {
            self.rows[place].ours[number] = cell;
        }
    }

    /// By how much models with an ending are ahead of those without; nothing unless all are there.
    fn mean_gain(&self, ending: &str, dim: Option<usize>, column: usize) -> Option<f64> {
        let of_dim = || self.rows.iter().filter(|row| row.row.dim == dim);
        let pairs = of_dim().filter_map(|plain| {
            let name = format!("{}-{ending}", plain.row.model.as_ref()?);
            let with = of_dim().find(|other| other.row.model.as_ref() == Some(&name))?;
            Some((with, plain))
        });
        let gains =
            pairs.map(|(with, plain)| Some(with.ours[column].mean()? - plain.ours[column].mean()?));
        let gains: Vec<f64> = gains.collect::<Option<_>>()?;
        (!gains.is_empty()).then(|| gains.iter().sum::<f64>() / gains.len() as f64)
    }

    /// What is not as in the paper, or not here.
    fn remark(&self) -> Option<String> {
        let name = &self.dataset.name;
        match (&self.sizes.path, &self.sizes.stand_in) {
            (None, _) => Some(format!("{name} is not here: {}", self.dataset.get)),
            (Some(path), Some(differences)) => {
                Some(format!("{} is not the paper's {name}: {differences}", path.display()))
            }
            _ => None,
        }
    }
}

impl TableResult<'_> {
    pub(super) fn to_text(&self) -> String {
        let Table { name, title, columns, notes, .. } = self.table;
        let mut text = format!("{name}: {title}\n");
        if !self.changes.is_empty() {
            text += &format!("Not the paper's settings: {}\n", self.changes.join(", "));
        }
        let header: Vec<&str> =
            ["", ""].into_iter().chain(columns.iter().map(|column| column.name())).collect();
        for graph in &self.graphs {
            text += &format!("\n{}\n", graph.dataset.name);
            text += &aligned(&header, graph.rows.iter().flat_map(|row| row.lines(graph, columns)));
            for reason in graph.reasons() {
                text += &format!("  {reason}\n");
            }
        }
        text.push('\n');
        if columns.iter().any(|column| column.is_of_ranks()) {
            let ranks = "Ranks are optimistic, as the paper's; where realistic ones (ties count half) \
                         differ, they stand below.";
            text += &format!("{}\n", wrapped(ranks));
        }
        notes.iter().for_each(|note| text += &format!("{}\n", wrapped(note)));
        text
    }
}

impl GraphResult<'_> {
    /// Why figures are missing.
    fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<String> = self.remark().into_iter().collect();
        if self.sizes.path.is_some() {
            for row in &self.rows {
                let absent = row.ours.iter().find_map(|ours| match ours {
                    Ours::Absent(reason) if !reason.is_empty() => Some(reason),
                    _ => None,
                });
                reasons.extend(absent.map(|reason| format!("{}: {reason}", row.label)));
            }
        }
        reasons
    }
}

impl RowResult<'_> {
    /// The paper's figures, ours, and realistic ones where they differ.
    fn lines(&self, graph: &GraphResult, columns: &[Column]) -> Vec<Vec<String>> {
        let paper = self.paper(graph);
        let of_paper =
            columns.iter().enumerate().map(|(i, _)| shown(paper.get(i).map_or("", |it| it)));
        let mut lines = vec![line(&self.label, "paper", of_paper)];
        let written = |of: fn(&Ours) -> Option<&Vec<f64>>| -> Vec<String> {
            let cell = |(i, column): (usize, &Column)| {
                let paper = paper.get(i).map_or("", |it| it);
                of(&self.ours[i])
                    .map_or("–".to_owned(), |values| column.written_with(spread(values), paper))
            };
            columns.iter().enumerate().map(cell).collect()
        };
        let ours = written(|ours| match ours {
            Ours::Figures { values, .. } => Some(values),
            Ours::Absent(_) => None,
        });
        if ours.iter().all(|cell| cell == "–") {
            return lines;
        }
        let realistic = written(|ours| match ours {
            Ours::Figures { realistic, .. } => realistic.as_ref(),
            Ours::Absent(_) => None,
        });
        let differs = ours.iter().zip(&realistic).any(|(a, b)| b != "–" && a != b);
        lines.push(line("", "ours", ours.into_iter()));
        if differs {
            lines.push(line("", "realistic", realistic.into_iter()));
        }
        lines
    }

    fn paper<'b>(&'b self, graph: &GraphResult) -> &'b [String] {
        self.row.paper.get(&graph.dataset.name).map_or(&[], Vec::as_slice)
    }
}

fn line(name: &str, who: &str, cells: impl Iterator<Item = String>) -> Vec<String> {
    [name.to_owned(), who.to_owned()].into_iter().chain(cells).collect()
}

/// Mean and standard deviation; no deviation of a single figure.
fn spread(values: &[f64]) -> (f64, Option<f64>) {
    match values {
        [value] => (*value, None),
        several => {
            let (mean, deviation) = mean_and_deviation(several);
            (mean, Some(deviation))
        }
    }
}

impl Serialize for TableResult<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Table { name, title, labels, columns, notes, .. } = self.table;
        let mut document = serializer.serialize_struct("TableResult", 7)?;
        document.serialize_field("table", name)?;
        document.serialize_field("title", title)?;
        document.serialize_field("labels", labels)?;
        document.serialize_field("notes", notes)?;
        document.serialize_field("changes", &self.changes)?;
        document.serialize_field("ranks", "optimistic")?;
        let graphs: Vec<Value> = self.graphs.iter().map(|graph| graph.to_json(columns)).collect();
        document.serialize_field("graphs", &graphs)?;
        document.end()
    }
}

impl GraphResult<'_> {
    fn to_json(&self, columns: &[Column]) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(|row| row.to_json(self, columns)).collect();
        json!({
            "graph": self.dataset.name,
            "path": self.sizes.path,
            "stand_in": self.sizes.stand_in,
            "get": self.sizes.path.is_none().then_some(&self.dataset.get),
            "rows": rows,
        })
    }
}

impl RowResult<'_> {
    fn to_json(&self, graph: &GraphResult, columns: &[Column]) -> Value {
        let paper = self.paper(graph);
        let summary = |values: &Vec<f64>| {
            let (mean, deviation) = spread(values);
            json!({ "mean": mean, "deviation": deviation, "runs": values })
        };
        let cell = |(i, column): (usize, &Column)| {
            let paper = paper.get(i).map_or("", |it| it);
            let (ours, realistic, absent) = match &self.ours[i] {
                Ours::Figures { values, realistic } => {
                    (Some(summary(values)), realistic.as_ref().map(summary), None)
                }
                Ours::Absent(reason) => (None, None, Some(reason).filter(|it| !it.is_empty())),
            };
            json!({
                "column": column.name(),
                "paper": numbers(paper),
                "paper_deviation": deviation(paper),
                "ours": ours,
                "realistic": realistic,
                "absent": absent,
            })
        };
        let cells: Vec<Value> = columns.iter().enumerate().map(cell).collect();
        json!({ "row": self.label, "runs": self.folders, "cells": cells })
    }
}

/// A line of the list of tables.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    table: &'static str,
    title: String,
    labels: Vec<String>,
    graphs: Vec<String>,
    rows: usize,
    made_by: &'static str,
}

/// All tables.
pub(super) fn list(paper: &Paper) -> Vec<Listed> {
    let listed = |table: &Table| Listed {
        table: table.name,
        title: table.title.clone(),
        labels: table.labels.clone(),
        graphs: paper.datasets_of(table).map(|dataset| dataset.name.clone()).collect(),
        rows: table.rows.len(),
        made_by: made_by(table),
    };
    paper.tables.iter().map(listed).collect()
}

/// What else makes such a table, for other models and graphs.
fn made_by(table: &Table) -> &'static str {
    let sources = || table.columns.iter().map(|column| column.source());
    let has = |wanted| sources().any(|source| source == wanted);
    if has(Source::Spectrum) {
        "train, spectrum"
    } else if has(Source::Signs) {
        "train, evaluate --task signs"
    } else if has(Source::Runs) {
        "train, evaluate"
    } else if has(Source::Step) || has(Source::Forward) {
        "bench step"
    } else {
        "inspect"
    }
}

/// For people.
pub(super) fn list_text(list: &[Listed]) -> String {
    let row = |listed: &Listed| {
        let graphs = listed.graphs.join(", ");
        vec![listed.table.to_owned(), listed.title.clone(), graphs, listed.made_by.to_owned()]
    };
    let names = ["TABLE", "what it shows", "graphs", "as"].map(str::to_owned).to_vec();
    let rows = [names].into_iter().chain(list.iter().map(row));
    format!(
        "{}\n`fullrank reproduce TABLE` makes one, `fullrank reproduce --plan` says how long each takes.\n",
        aligned(&[""; 4], rows).trim_start_matches('\n')
    )
}
