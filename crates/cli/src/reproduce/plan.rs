//! Plans: how many hours would a table take on this machine?

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use fullrank_engine::Config;
use fullrank_engine::bench::GraphSize;
use indicatif::ProgressBar;
use serde::Serialize;

use super::Session;
use super::clock::Clock;
use super::column::Source;
use super::paper::{Dataset, Row, Table};
use super::places::Sizes;
use super::runs::{Stage, Training};
use crate::output::{count, table};

/// What is to be done for some tables.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) tables: Vec<TablePlan>,
    /// Of all tables together, each run counted once; of graphs that are here,
    pub(super) hours: f64,
    /// and of all graphs.
    hours_with_all_graphs: f64,
    /// Kinds of models whose updates were timed.
    timed: usize,
    threads: usize,
}

/// What is to be done for one table.
#[derive(Debug, Serialize)]
pub(super) struct TablePlan {
    table: &'static str,
    title: String,
    labels: Vec<String>,
    graphs: Vec<GraphPlan>,
}

#[derive(Debug, Serialize)]
struct GraphPlan {
    graph: String,
    /// Nothing if it is not here.
    path: Option<PathBuf>,
    /// What gets it, if it is not here.
    get: Option<String>,
    /// What tells it from the paper's graph.
    stand_in: Option<String>,
    models: Vec<ModelPlan>,
    hours: f64,
}

/// A row of the table.
#[derive(Debug, Serialize)]
struct ModelPlan {
    model: String,
    /// Every setting, as a config file.
    config: String,
    updates_per_epoch: usize,
    seconds_per_update: f64,
    /// Of one whole training, with validation.
    hours_per_run: f64,
    folders: Vec<PathBuf>,
    done: usize,
    begun: usize,
    /// Of what is left to do.
    hours: f64,
}

/// Makes plans, and remembers what was timed and looked at.
pub(super) struct Planner<'a> {
    session: &'a Session<'a>,
    /// Nothing until something has to be timed.
    clock: Option<Clock>,
    bar: ProgressBar,
    sizes: BTreeMap<String, Sizes>,
    /// Runs that were counted already.
    counted: BTreeSet<PathBuf>,
    detail: Detail,
}

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// To be shown: also what is done, and what cannot be made here.
    All,
    /// To say how long what comes next will take.
    Left,
}

impl<'a> Planner<'a> {
    pub(super) fn new(session: &'a Session<'a>, detail: Detail) -> Self {
        Self {
            session,
            clock: None,
            bar: ProgressBar::new_spinner(),
            sizes: BTreeMap::new(),
            counted: BTreeSet::new(),
            detail,
        }
    }

    pub(super) fn plan(mut self, tables: &[&Table]) -> anyhow::Result<Plan> {
        let (mut hours, mut hours_with_all_graphs) = (0.0, 0.0);
        let mut plans = Vec::new();
        for table in tables {
            let mut graphs = Vec::new();
            for dataset in self.session.datasets(table) {
                let (plan, new_hours) = self.of_graph(table, dataset)?;
                hours_with_all_graphs += new_hours;
                hours += if plan.path.is_some() { new_hours } else { 0.0 };
                graphs.push(plan);
            }
            plans.push(TablePlan {
                table: table.name,
                title: table.title.clone(),
                labels: table.labels.clone(),
                graphs,
            });
        }
        self.bar.finish_and_clear();
        let timed = self.clock.as_ref().map_or(0, Clock::n_measured);
        let threads = rayon::current_num_threads();
        Ok(Plan { tables: plans, hours, hours_with_all_graphs, timed, threads })
    }

    /// A graph of a table, and the hours of those runs that no table before has.
    fn of_graph(&mut self, table: &Table, dataset: &Dataset) -> anyhow::Result<(GraphPlan, f64)> {
        let sizes = self.sizes(dataset)?;
        let (mut models, mut new_hours) = (Vec::new(), 0.0);
        for row in self.session.rows(table, dataset) {
            let is_here = sizes.path.is_some() || self.detail == Detail::All;
            if row.model.is_none() || !is_here || !takes_updates(table) {
                continue;
            }
            let (model, new) = self.of_model(table, row, dataset, &sizes)?;
            models.push(model);
            new_hours += new;
        }
        let hours = models.iter().fold(0.0, |sum, model| sum + model.hours);
        let get = sizes.path.is_none().then(|| dataset.get.clone());
        let (graph, path, stand_in) = (dataset.name.clone(), sizes.path, sizes.stand_in);
        Ok((GraphPlan { graph, path, get, stand_in, models, hours }, new_hours))
    }

    /// Seconds of an update of such a model.
    fn seconds(&mut self, config: &Config, size: GraphSize) -> anyhow::Result<f64> {
        self.session.check_stop()?;
        self.bar.set_message(format!("timing an update of {}", config.description()));
        self.bar.tick();
        let clock = match &mut self.clock {
            Some(clock) => clock,
            none => none.insert(Clock::new()?),
        };
        clock.seconds(config, size)
    }

    fn sizes(&mut self, dataset: &Dataset) -> anyhow::Result<Sizes> {
        if let Some(found) = self.sizes.get(&dataset.name) {
            return Ok(found.clone());
        }
        let place = self.session.places.load(dataset)?;
        let sizes = Sizes::of(dataset, place.as_ref());
        self.sizes.insert(dataset.name.clone(), sizes.clone());
        Ok(sizes)
    }

    fn of_model(
        &mut self,
        table: &Table,
        row: &Row,
        dataset: &Dataset,
        sizes: &Sizes,
    ) -> anyhow::Result<(ModelPlan, f64)> {
        let (config, trainings) = self.session.model(table, row, dataset, &sizes.folder)?;
        let trainings = if is_made_of(table, &TRAINED) { trainings } else { Vec::new() };
        let stages: Vec<Stage> = trainings.iter().map(Training::stage).collect();
        let is_done = !stages.is_empty() && stages.iter().all(|stage| *stage == Stage::Done);
        let seconds_per_update = match is_done && self.detail == Detail::Left {
            true => 0.0,
            false => self.seconds(&config, sizes.graph)?,
        };
        let updates_per_epoch = updates(&config, sizes);
        // Ranking makes one product of the three of an update.
        let batches_ranked = 2.0 * sizes.valid as f64 / 3.0 / config.training().batch as f64;
        let epoch = seconds_per_update * (updates_per_epoch as f64 + batches_ranked) / 3600.0;
        let (mut hours, mut new_hours) = (0.0, 0.0);
        for (training, stage) in trainings.iter().zip(&stages) {
            let left = match stage {
                Stage::Missing => config.training().epochs,
                Stage::Begun(epochs) => config.training().epochs.saturating_sub(*epochs),
                Stage::Done => 0,
            };
            hours += left as f64 * epoch;
            if self.counted.insert(training.folder.clone()) {
                new_hours += left as f64 * epoch;
            }
        }
        if is_made_of(table, &[Source::Step]) {
            // One to make room, three to time.
            hours += 4.0 * seconds_per_update / 3600.0;
            new_hours += 4.0 * seconds_per_update / 3600.0;
        }
        let is = |wanted: fn(&Stage) -> bool| stages.iter().filter(|stage| wanted(stage)).count();
        let plan = ModelPlan {
            model: row.label(&dataset.name),
            config: config.to_toml(),
            updates_per_epoch,
            seconds_per_update,
            hours_per_run: epoch * config.training().epochs as f64,
            done: is(|stage| *stage == Stage::Done),
            begun: is(|stage| matches!(stage, Stage::Begun(_))),
            folders: trainings.into_iter().map(|training| training.folder).collect(),
            hours,
        };
        Ok((plan, new_hours))
    }
}

/// Figures that are made from trained runs.
const TRAINED: [Source; 3] = [Source::Runs, Source::Spectrum, Source::Signs];

fn is_made_of(table: &Table, sources: &[Source]) -> bool {
    table.columns.iter().any(|column| sources.contains(&column.source()))
}

/// Whether a table needs anything that takes long.
fn takes_updates(table: &Table) -> bool {
    is_made_of(table, &TRAINED) || is_made_of(table, &[Source::Step])
}

/// Updates of an epoch. Queries that are cut into items are counted as if all were of full length but
/// one of each.
fn updates(config: &Config, sizes: &Sizes) -> usize {
    let answers = 2 * sizes.graph.facts;
    let setting = config.value("answers_per_item").and_then(|value| value.as_integer());
    let items = match setting {
        None => sizes.queries,
        Some(1) => answers,
        Some(most) => (answers / most.unsigned_abs() as usize).max(sizes.queries),
    };
    items.div_ceil(config.training().batch)
}

impl Plan {
    /// For people: of several tables a line for each graph, of one a line for each model.
    pub(super) fn to_text(&self) -> String {
        let tables = match &self.tables[..] {
            [table] => table.models_text(),
            tables => graphs_text(tables),
        };
        let mut text = format!(
            "{tables}\nAt most {} on this machine with {} threads, each run once, for graphs that are here; {} \
             with all graphs.\n",
            hours_text(self.hours),
            self.threads,
            hours_text(self.hours_with_all_graphs),
        );
        text += &format!(
            "\nHow this was estimated: a small update was timed for each of {} kinds of models (4,096 entities,\n\
             256 queries, or 64 for mixtures) and scaled by the operations of a whole one, Adam by the number of\n\
             parameters; validation counts a third of an update for each of its queries. What else ran\n\
             meanwhile makes it longer; early stopping may end a run sooner. The paper's settings leave no\n\
             entry of a gradient to chance: --set exact=false may take much less time, and is not the paper's.\n",
            self.timed
        );
        let mut absent: Vec<(&str, &str)> = self
            .tables
            .iter()
            .flat_map(|table| &table.graphs)
            .filter_map(|graph| Some((&graph.graph[..], graph.get.as_deref()?)))
            .collect();
        absent.sort_unstable();
        absent.dedup();
        if !absent.is_empty() {
            text.push('\n');
        }
        for (graph, get) in absent {
            text += &format!("{graph} is not here: {get}\n");
        }
        text
    }
}

impl TablePlan {
    fn models_text(&self) -> String {
        let mut text = format!("{}: {}\n", self.table, self.title);
        if self.graphs.is_empty() {
            return text + "  nothing to train: `fullrank reproduce` shows it at once\n";
        }
        let header =
            ["", "updates", "s each", "hours a run", "runs", "done", "begun", "hours left"];
        for graph in &self.graphs {
            text += &format!("\n{}\n", graph.title());
            if graph.models.is_empty() {
                text += "  nothing to train\n";
                continue;
            }
            let row = |model: &ModelPlan| {
                vec![
                    model.model.clone(),
                    count(model.updates_per_epoch),
                    format!("{:.3}", model.seconds_per_update),
                    hours_cell(model.hours_per_run),
                    count(model.folders.len()),
                    count(model.done),
                    count(model.begun),
                    hours_cell(model.hours),
                ]
            };
            text += &table(&header, graph.models.iter().map(row));
        }
        text + "Updates are those of an epoch.\n"
    }
}

impl GraphPlan {
    fn title(&self) -> String {
        match (&self.path, &self.stand_in) {
            (None, _) => format!("{} (not here)", self.graph),
            (Some(path), None) => format!("{} ({})", self.graph, path.display()),
            (Some(path), Some(stand_in)) => {
                format!("{} ({}, not the paper's: {stand_in})", self.graph, path.display())
            }
        }
    }
}

fn graphs_text(tables: &[TablePlan]) -> String {
    let header = ["", "", "models", "runs", "done", "begun", "hours left", "graph is"];
    let mut rows = Vec::new();
    for plan in tables {
        if plan.graphs.is_empty() {
            rows.push(vec![plan.table.to_owned(), "no graph".to_owned()]);
        }
        for (place, graph) in plan.graphs.iter().enumerate() {
            let name = if place == 0 { plan.table } else { "" };
            let mut cells = vec![name.to_owned(), graph.graph.clone()];
            cells.extend(graph.counts());
            cells.push(graph.whereabouts().to_owned());
            rows.push(cells);
        }
    }
    table(&header, rows)
}

impl GraphPlan {
    /// Models, runs, those done, those begun, and hours.
    fn counts(&self) -> [String; 5] {
        if self.models.is_empty() {
            return ["", "", "", "", "at once"].map(str::to_owned);
        }
        let sum = |of: fn(&ModelPlan) -> usize| count(self.models.iter().map(of).sum());
        [
            count(self.models.len()),
            sum(|model| model.folders.len()),
            sum(|model| model.done),
            sum(|model| model.begun),
            hours_cell(self.hours),
        ]
    }

    fn whereabouts(&self) -> &'static str {
        match (&self.path, &self.stand_in) {
            (None, _) => "not here",
            (Some(_), None) => "here",
            (Some(_), Some(_)) => "not the paper's",
        }
    }
}

/// Hours in a table: two figures are enough where there are few.
fn hours_cell(hours: f64) -> String {
    match hours {
        hours if hours < 1.0 => format!("{hours:.2}"),
        hours if hours < 10.0 => format!("{hours:.1}"),
        hours => count(hours.round() as usize),
    }
}

/// Hours, and days where there are many.
pub(super) fn hours_text(hours: f64) -> String {
    match hours {
        hours if hours < 0.1 => format!("{:.1} minutes", 60.0 * hours),
        hours if hours < 72.0 => format!("{hours:.1} hours"),
        hours => format!("{} hours ({:.0} days)", count(hours as usize), hours / 24.0),
    }
}
