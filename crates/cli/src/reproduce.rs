//! `fullrank reproduce`: the paper's tables, made again and set beside its figures.

mod cells;
mod clock;
mod column;
mod paper;
mod places;
mod plan;
mod runs;
#[cfg(test)]
mod tests;
mod text;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use clap::{Args, ValueHint};
use fullrank_engine::{Config, Signal};

use crate::Interrupted;
use crate::output::{say, show, show_json, wrong_usage};
use crate::stop::{signal, stop_flag};
use cells::{Maker, Ours};
use column::Source;
use paper::{Dataset, Paper, Row, Table, raw_config};
use places::{Places, Sizes};
use plan::{Detail, Planner, hours_text};
use runs::Training;
use text::{GraphResult, RowResult, TableResult};

/// Make the paper's tables again and set ours beside its figures
///
/// Without TABLE, lists the tables. Trains what is missing of a table with the paper's own settings,
/// goes on with what is unfinished and leaves alone what is done; a model that stands in several
/// tables is trained once. --plan says how many hours it would take, and trains nothing.
/// Tables of times, of graphs and of bounds are made at once.
/// Ranks are optimistic, as the paper's; where realistic ones, in which ties count half, differ, they
/// have a line of their own.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank reproduce
  fullrank reproduce --plan
  fullrank reproduce fb15k-237 --plan
  fullrank reproduce fb15k-237 --only 'DistMult d=200' --seeds 1
  fullrank reproduce main --dataset FB15k-237 --data graphs
  fullrank reproduce hetionet --dataset Hetionet=hetionet-v1.0-edges.sif.gz
  fullrank reproduce wn18rr --only DistMult,DistMult-MoS --set exact=false

docs/data.md tells how to get the graphs, docs/paper.md what the paper does otherwise than we.")]
pub(crate) struct ReproduceArguments {
    /// Tables of the paper; without any, the list of them
    #[arg(value_name = "TABLE")]
    tables: Vec<String>,

    /// The folder that has the graphs, under their names
    #[arg(long, value_name = "FOLDER", default_value = ".", value_hint = ValueHint::DirPath)]
    data: PathBuf,

    /// These graphs alone; NAME=PATH says where one is
    #[arg(long, value_name = "NAME[=PATH]", value_delimiter = ',')]
    dataset: Vec<String>,

    /// These rows alone, by words that they have: `DistMult`, `d=200`, or `DistMult-MoS K=1`
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    only: Vec<String>,

    /// Say how many hours everything would take, and do nothing
    #[arg(long)]
    plan: bool,

    /// The folder for the runs
    #[arg(long, value_name = "FOLDER", default_value = "runs/reproduce", value_hint = ValueHint::DirPath)]
    out: PathBuf,

    /// Runs of each model [default: as many as the paper says, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: Option<u64>,

    /// A setting that is not the paper's, for all models; without VALUE, the paper's is left out
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What is asked for.
pub(super) struct Session<'a> {
    arguments: &'a ReproduceArguments,
    paper: &'a Paper,
    places: Places,
    /// Settings that are not the paper's.
    changes: Vec<(&'a str, &'a str)>,
    stop: Arc<AtomicBool>,
}

pub(crate) fn run(arguments: &ReproduceArguments) -> anyhow::Result<()> {
    let paper = Paper::load()?;
    let session = Session {
        arguments,
        paper: &paper,
        places: Places::parse(&paper, &arguments.data, &arguments.dataset),
        changes: arguments.set.iter().map(|text| change(text)).collect(),
        stop: stop_flag()?,
    };
    let asked = arguments.tables.iter().map(|name| paper.table(name));
    let asked: Vec<&Table> = asked.collect::<Result<_, _>>()?;
    if arguments.plan {
        let tables = if asked.is_empty() { paper.tables.iter().collect() } else { asked };
        session.check_rows(&tables)?;
        let plan = Planner::new(&session, Detail::All).plan(&tables)?;
        return if arguments.json { show_json(&plan) } else { show(&plan.to_text()) };
    }
    if asked.is_empty() {
        let list = text::list(&paper);
        return if arguments.json { show_json(&list) } else { show(&text::list_text(&list)) };
    }
    session.check_rows(&asked)?;
    let hours = Planner::new(&session, Detail::Left).plan(&asked)?.hours;
    if hours > 0.0 {
        say(&format!("at most {} to do here; --plan says for what", hours_text(hours)));
    }
    let mut results = Vec::new();
    for table in asked {
        let result = session.make(table)?;
        if !arguments.json {
            show(&result.to_text())?;
        }
        results.push(result);
    }
    match (arguments.json, &results[..]) {
        (true, [result]) => show_json(result),
        (true, several) => show_json(&several),
        (false, _) => Ok(()),
    }
}

/// A setting and its value.
fn change(text: &str) -> (&str, &str) {
    match text.split_once('=') {
        Some(("seed", _)) => wrong_usage("expected --seeds N for the seeds, found --set seed"),
        Some((name, value)) => (name, value),
        None => wrong_usage(format!("expected --set NAME=VALUE, found `{text}`")),
    }
}

impl Session<'_> {
    /// An error if Ctrl-C was pressed.
    fn check_stop(&self) -> anyhow::Result<()> {
        match signal(&self.stop) {
            Signal::Stop => Err(Interrupted.into()),
            Signal::Continue => Ok(()),
        }
    }

    /// The graphs of a table that are asked for.
    fn datasets<'b>(&'b self, table: &'b Table) -> impl Iterator<Item = &'b Dataset> {
        self.paper.datasets_of(table).filter(|dataset| self.places.wants(dataset))
    }

    /// The rows of a table on a graph that are asked for.
    fn rows<'b>(&'b self, table: &'b Table, dataset: &Dataset) -> impl Iterator<Item = &'b Row> {
        let name = dataset.name.clone();
        table.rows.iter().filter(move |row| {
            row.paper.contains_key(&name) && row.is_named_by(&self.arguments.only, &name)
        })
    }

    /// An error if --dataset and --only leave nothing of some tables.
    fn check_rows(&self, tables: &[&Table]) -> anyhow::Result<()> {
        let is_left = |table: &&&Table| {
            self.datasets(table).any(|dataset| self.rows(table, dataset).next().is_some())
        };
        if tables.iter().any(|table| table.rows.is_empty() || is_left(&table)) {
            return Ok(());
        }
        let mut rows: Vec<String> = tables
            .iter()
            .flat_map(|table| {
                self.paper.datasets_of(table).flat_map(|dataset| {
                    table.rows.iter().map(|row| row.label(&dataset.name)).collect::<Vec<_>>()
                })
            })
            .collect();
        rows.sort();
        rows.dedup();
        bail!("no row is left by --dataset and --only\n\nThe rows are: {}.", rows.join("; "))
    }

    /// The config of a row's model on a graph, and its trainings, one for each seed.
    fn model(
        &self,
        table: &Table,
        row: &Row,
        dataset: &Dataset,
        graph_folder: &str,
    ) -> anyhow::Result<(Config, Vec<Training>)> {
        let mut settings = self.paper.settings(row, &dataset.name)?;
        let mut folder = self.paper.folder_name(row, &dataset.name)?;
        for (name, value) in &self.changes {
            settings.remove(*name);
            folder += &format!("-{name}={value}");
        }
        let mut raw = raw_config(&settings);
        for (name, value) in self.changes.iter().filter(|(_, value)| !value.is_empty()) {
            raw.add(name, &format!("--set {name}"), value);
        }
        let folder = self.arguments.out.join(graph_folder).join(folder);
        let training = |seed: u64| {
            let mut settings = raw.clone();
            settings.set("seed", seed as i64);
            Training { settings, folder: folder.join(format!("seed-{seed}")) }
        };
        let seeds = self.arguments.seeds.unwrap_or(table.seeds);
        Ok((raw.check()?, (0..seeds).map(training).collect()))
    }

    /// Makes a table, training what is missing.
    fn make<'b>(&'b self, table: &'b Table) -> anyhow::Result<TableResult<'b>> {
        let mut graphs = Vec::new();
        for dataset in self.datasets(table) {
            if self.rows(table, dataset).next().is_some() {
                graphs.push(self.make_graph(table, dataset)?);
            }
        }
        let changes = self.changes.iter().map(|(name, value)| match *value {
            "" => format!("without {name}"),
            value => format!("{name} = {value}"),
        });
        Ok(TableResult { table, graphs, changes: changes.collect() })
    }

    fn make_graph<'b>(
        &'b self,
        table: &'b Table,
        dataset: &'b Dataset,
    ) -> anyhow::Result<GraphResult<'b>> {
        let mut place = self.places.load(dataset)?;
        let is_trained = table.columns.iter().any(|column| column.source() == Source::Runs);
        if let Some(place) = place.as_mut().filter(|_| is_trained) {
            place.load_candidates(dataset)?;
        }
        let sizes = Sizes::of(dataset, place.as_ref());
        let maker = Maker { dataset, place: place.as_ref(), stop: &self.stop };
        let mut rows = Vec::new();
        for row in self.rows(table, dataset) {
            self.check_stop()?;
            let (mut ours, mut folders) = (Vec::new(), Vec::new());
            if row.model.is_some() {
                let (config, trainings) = self.model(table, row, dataset, &sizes.folder)?;
                ours = maker.of_model(&table.columns, &config, &trainings)?;
                folders.extend(trainings.into_iter().map(|training| training.folder));
            } else if let Some(side) = row.side {
                ours = maker.of_graph(&table.columns, side);
            }
            ours.resize(table.columns.len(), Ours::Absent(String::new()));
            rows.push(RowResult { row, label: row.label(&dataset.name), ours, folders });
        }
        let mut result = GraphResult { dataset, sizes, rows };
        result.add_comparisons(&table.columns);
        Ok(result)
    }
}
