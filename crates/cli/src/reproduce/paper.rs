//! The paper: its tables, the figures in them, and the settings behind each.
//!
//! They are data, the files of `configs/paper`, which are part of the program. This file reads them
//! and composes the settings of a cell; it knows no model, no graph and no figure by itself.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow};
use fullrank_engine::RawConfig;
use serde::Deserialize;
use toml::Value;

use super::column::Column;

const SETTINGS: &str = include_str!("../../../../configs/paper/settings.toml");
const DATASETS: &str = include_str!("../../../../configs/paper/datasets.toml");

/// Every table, in the order of the paper.
const TABLES: [(&str, &str); 18] = [
    ("requirements", include_str!("../../../../configs/paper/requirements.toml")),
    ("bounds", include_str!("../../../../configs/paper/bounds.toml")),
    ("main", include_str!("../../../../configs/paper/main.toml")),
    ("components", include_str!("../../../../configs/paper/components.toml")),
    ("graphs", include_str!("../../../../configs/paper/graphs.toml")),
    ("matrix-rank", include_str!("../../../../configs/paper/matrix-rank.toml")),
    ("step-time", include_str!("../../../../configs/paper/step-time.toml")),
    ("training-time", include_str!("../../../../configs/paper/training-time.toml")),
    ("dimension-5000", include_str!("../../../../configs/paper/dimension-5000.toml")),
    ("fb15k-237", include_str!("../../../../configs/paper/fb15k-237.toml")),
    ("hetionet", include_str!("../../../../configs/paper/hetionet.toml")),
    ("ogbl-biokg", include_str!("../../../../configs/paper/ogbl-biokg.toml")),
    ("openbiolink", include_str!("../../../../configs/paper/openbiolink.toml")),
    ("wn18rr", include_str!("../../../../configs/paper/wn18rr.toml")),
    ("projections", include_str!("../../../../configs/paper/projections.toml")),
    ("distances", include_str!("../../../../configs/paper/distances.toml")),
    ("concatmlp", include_str!("../../../../configs/paper/concatmlp.toml")),
    ("signs", include_str!("../../../../configs/paper/signs.toml")),
];

/// Settings by their names.
pub(super) type Settings = BTreeMap<String, Value>;

/// All that was read.
#[derive(Debug)]
pub(super) struct Paper {
    base: Base,
    pub(super) datasets: Vec<Dataset>,
    pub(super) tables: Vec<Table>,
}

/// What models are made of: `settings.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Base {
    all: Settings,
    part: BTreeMap<String, Settings>,
    model: BTreeMap<String, Model>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Model {
    #[serde(default)]
    with: Vec<String>,
    sets: Settings,
    #[serde(default)]
    on: BTreeMap<String, Settings>,
    #[serde(default)]
    without: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Datasets {
    dataset: Vec<Dataset>,
}

/// A graph of the paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Dataset {
    pub(super) name: String,
    pub(super) entities: usize,
    pub(super) relations: usize,
    pub(super) triples: usize,
    /// Triples of train, valid and test.
    pub(super) splits: [usize; 3],
    /// Distinct queries of all splits, both directions.
    pub(super) queries: usize,
    /// What the folder, or file, is called that has it.
    pub(super) files: Vec<String>,
    /// How a single file is split.
    pub(super) split: Option<String>,
    /// Whether ranks are among given negatives.
    #[serde(default)]
    pub(super) candidates: bool,
    /// What gets it.
    pub(super) get: String,
}

/// A table of the paper.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    /// As on the command line.
    #[serde(skip)]
    pub(super) name: &'static str,
    pub(super) title: String,
    /// What the paper's source calls it.
    pub(super) labels: Vec<String>,
    /// How many runs the paper says that it averages over.
    #[serde(default = "one")]
    pub(super) seeds: u64,
    pub(super) columns: Vec<Column>,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    #[serde(default, rename = "row")]
    pub(super) rows: Vec<Row>,
}

fn one() -> u64 {
    1
}

/// A row: of a model, of one side of a graph, or of a mean over others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) model: Option<String>,
    pub(super) dim: Option<usize>,
    /// Graphs for which it is another one.
    #[serde(default)]
    dim_on: BTreeMap<String, usize>,
    #[serde(default)]
    pub(super) sets: Settings,
    #[serde(default)]
    without: Vec<String>,
    /// The model that it is compared with, in the same table at the same `dim`.
    pub(super) base: Option<String>,
    pub(super) side: Option<Side>,
    /// The mean of what models with this ending are ahead of those without, at the same `dim`.
    pub(super) mean_gain: Option<String>,
    /// By graph, in the order of the columns.
    pub(super) paper: BTreeMap<String, Vec<String>>,
}

/// Whether inverse relations are asked for, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    Forward,
    Both,
}

impl Paper {
    /// Reads the files that the program was built with.
    pub(super) fn load() -> anyhow::Result<Self> {
        let Datasets { dataset: datasets } =
            toml::from_str(DATASETS).context("configs/paper/datasets.toml")?;
        let table = |(name, text): (&'static str, &str)| -> anyhow::Result<Table> {
            let table: Table =
                toml::from_str(text).with_context(|| format!("configs/paper/{name}.toml"))?;
            Ok(Table { name, ..table })
        };
        Ok(Self {
            base: toml::from_str(SETTINGS).context("configs/paper/settings.toml")?,
            datasets,
            tables: TABLES.into_iter().map(table).collect::<Result<_, _>>()?,
        })
    }

    /// The table of a name.
    pub(super) fn table(&self, name: &str) -> anyhow::Result<&Table> {
        let found = self.tables.iter().find(|table| table.name.eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let known: Vec<&str> = self.tables.iter().map(|table| table.name).collect();
            anyhow!("there is no table `{name}`; known: {}", known.join(", "))
        })
    }

    /// The graphs of a table that are asked for, in the order of their list.
    pub(super) fn datasets_of(&self, table: &Table) -> impl Iterator<Item = &Dataset> {
        self.datasets
            .iter()
            .filter(|dataset| table.rows.iter().any(|row| row.paper.contains_key(&dataset.name)))
    }

    /// The settings of a row's model on a graph, without what the row itself sets.
    fn model_settings(&self, row: &Row, dataset: &str) -> anyhow::Result<Settings> {
        let name = row.model.as_deref().context("the row has no model")?;
        let model = self.base.model.get(name).with_context(|| format!("no model `{name}`"))?;
        let mut settings = self.base.all.clone();
        for part in &model.with {
            let part = self.base.part.get(part).with_context(|| format!("no part `{part}`"))?;
            settings.extend(part.clone());
        }
        settings.extend(model.sets.clone());
        settings.extend(model.on.get(dataset).cloned().unwrap_or_default());
        model.without.iter().for_each(|name| drop(settings.remove(name)));
        Ok(settings)
    }

    /// The settings of a cell, but for its seed.
    pub(super) fn settings(&self, row: &Row, dataset: &str) -> anyhow::Result<Settings> {
        let mut settings = self.model_settings(row, dataset)?;
        settings.extend(row.sets.clone());
        row.without.iter().for_each(|name| drop(settings.remove(name)));
        let dim = row.dim_on(dataset).context("the row has no dim")?;
        settings.insert("dim".to_owned(), Value::Integer(dim as i64));
        Ok(settings)
    }

    /// What a cell's model is called in the name of a folder: two cells with the same settings share
    /// their runs, whatever their tables.
    pub(super) fn folder_name(&self, row: &Row, dataset: &str) -> anyhow::Result<String> {
        let usual = self.model_settings(row, dataset)?;
        let dim = row.dim_on(dataset).context("the row has no dim")?;
        let model = row.model.as_deref().unwrap_or_default();
        let other = row.sets.iter().filter(|(name, value)| usual.get(*name) != Some(value));
        let other: String = other.map(|(name, value)| format!("-{name}={value}")).collect();
        Ok(format!("{model}-d{dim}{}", other.replace([' ', '[', ']'], "")))
    }
}

impl Row {
    /// `dim` on a graph.
    pub(super) fn dim_on(&self, dataset: &str) -> Option<usize> {
        self.dim_on.get(dataset).copied().or(self.dim)
    }

    /// What it is called on a graph.
    pub(super) fn label(&self, dataset: &str) -> String {
        let dim = self.dim_on(dataset).map_or(String::new(), |dim| format!(", d = {dim}"));
        if let Some(ending) = &self.mean_gain {
            return format!("mean gain of {ending}{dim}");
        }
        match (&self.model, self.side) {
            (Some(model), _) => {
                let of = |(name, value): (&String, &Value)| match &name[..] {
                    "components" => format!(", K = {value}"),
                    _ => format!(", {name} {value}"),
                };
                // A batch is how it was trained, not what it is.
                let sets = self.sets.iter().filter(|(name, _)| *name != "batch").map(of);
                format!("{model}{dim}{}", sets.collect::<String>())
            }
            (None, Some(Side::Forward)) => "without inverse".to_owned(),
            (None, _) => "with inverse".to_owned(),
        }
    }

    /// Whether one of these words names it: each is a list of words that its label must have.
    pub(super) fn is_named_by(&self, wanted: &[String], dataset: &str) -> bool {
        let words = |text: &str| -> Vec<String> {
            let text = text.replace(" = ", "=").replace(',', " ").to_lowercase();
            text.split_whitespace().map(str::to_owned).collect()
        };
        let own = words(&self.label(dataset));
        let has_all = |text: &String| words(text).iter().all(|word| own.contains(word));
        wanted.is_empty() || wanted.iter().any(has_all)
    }
}

/// Settings as the engine takes them.
pub(super) fn raw_config(settings: &Settings) -> RawConfig {
    let mut raw = RawConfig::default();
    for (name, value) in settings {
        raw.set(name, value.clone());
    }
    raw
}
