//! Places: where are the paper's graphs, and are they the paper's?

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use fullrank_engine::bench::GraphSize;
use fullrank_engine::evaluate::GivenCandidates;
use fullrank_graph::load::load_candidates;
use fullrank_graph::{Graph, Split};

use super::paper::{Dataset, Paper};
use crate::input::InputArguments;
use crate::output::{count, say, wrong_usage};

/// Where graphs are, and which are asked for.
#[derive(Debug)]
pub(super) struct Places {
    /// Has them under their names.
    folder: PathBuf,
    /// Asked for by name, with a place or without; all if there are none.
    asked: BTreeMap<String, Option<PathBuf>>,
}

impl Places {
    /// From the words of a command line: `NAME` or `NAME=PATH`.
    pub(super) fn parse(paper: &Paper, folder: &Path, words: &[String]) -> Self {
        let known = |name: &str| {
            let found = paper.datasets.iter().find(|it| it.name.eq_ignore_ascii_case(name));
            let Some(found) = found else {
                let known: Vec<&str> = paper.datasets.iter().map(|it| &it.name[..]).collect();
                let known = known.join(", ");
                wrong_usage(format!("the paper has no graph `{name}`; it has {known}"))
            };
            found.name.clone()
        };
        let asked = words.iter().map(|word| match word.split_once('=') {
            Some((name, path)) => (known(name), Some(PathBuf::from(path))),
            None => (known(word), None),
        });
        Self { folder: folder.into(), asked: asked.collect() }
    }

    /// Whether the graph is asked for.
    pub(super) fn wants(&self, dataset: &Dataset) -> bool {
        self.asked.is_empty() || self.asked.contains_key(&dataset.name)
    }

    /// Where the graph is; nothing if it is not there.
    fn find(&self, dataset: &Dataset) -> Option<PathBuf> {
        if let Some(Some(path)) = self.asked.get(&dataset.name) {
            return Some(path.clone());
        }
        let under = dataset.files.iter().map(|file| self.folder.join(file));
        under.into_iter().find(|path| path.exists())
    }

    /// Loads the graph, if it is there.
    pub(super) fn load(&self, dataset: &Dataset) -> anyhow::Result<Option<Place>> {
        let Some(path) = self.find(dataset) else { return Ok(None) };
        let mut input = InputArguments::of_path(path.clone());
        if let Some(split) = &dataset.split {
            let splitter = split.parse().map_err(|error| anyhow!("`{split}`: {error}"))?;
            input = input.split_by(splitter);
        }
        let loaded = input.load()?;
        // A folder that has its own splits needs none from us.
        if loaded.cut.is_some() || dataset.split.is_none() {
            input.say_notes(&loaded);
        }
        let (graph, name) = (Arc::new(loaded.graph), input.name());
        let stand_in = differences(dataset, &graph);
        Ok(Some(Place { graph, path, name, stand_in, candidates: None }))
    }
}

/// A graph that is there.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) graph: Arc<Graph>,
    pub(super) path: PathBuf,
    name: String,
    /// What tells it from the paper's graph; nothing if it has all of its sizes.
    pub(super) stand_in: Option<String>,
    /// Among which answers are ranked; nothing where that is among all entities, and before they are
    /// loaded.
    pub(super) candidates: Option<Arc<GivenCandidates>>,
}

impl Place {
    /// Loads the negatives beside the graph, where the paper ranks among them.
    pub(super) fn load_candidates(&mut self, dataset: &Dataset) -> anyhow::Result<()> {
        if !dataset.candidates {
            return Ok(());
        }
        let mut given = GivenCandidates::default();
        for split in [Split::Valid, Split::Test] {
            let found = match self.path.is_dir() {
                true => load_candidates(&self.path, &self.graph, split)?,
                false => None,
            };
            let Some(found) = found else {
                say(&format!(
                    "note: {} has no negatives for {split}; ranks are among all entities, not among \
                     the paper's 500",
                    self.path.display()
                ));
                return Ok(());
            };
            given.insert(split, found);
        }
        self.candidates = Some(Arc::new(given));
        Ok(())
    }

    /// Its part of a run's folder.
    pub(super) fn folder_name(&self, dataset: &Dataset) -> String {
        match self.stand_in {
            None => dataset.name.clone(),
            Some(_) => format!("{}={}", dataset.name, self.name),
        }
    }
}

/// In which sizes a graph is not the paper's.
fn differences(dataset: &Dataset, graph: &Graph) -> Option<String> {
    let sizes = [
        ("entities", graph.entities().len(), dataset.entities),
        ("relations", graph.relations().len(), dataset.relations),
        ("triples", graph.n_triples(), dataset.triples),
    ];
    let differing = sizes.into_iter().filter(|(_, found, expected)| found != expected);
    let texts: Vec<String> = differing
        .map(|(what, found, expected)| {
            format!("{} {what} instead of {}", count(found), count(expected))
        })
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// The size of the graph that is there, or of the paper's.
pub(super) fn size(dataset: &Dataset, place: Option<&Place>) -> GraphSize {
    match place {
        Some(Place { graph, .. }) => GraphSize {
            entities: graph.entities().len(),
            relations: graph.relations().len(),
            facts: graph.triples(Split::Train).len(),
        },
        None => GraphSize {
            entities: dataset.entities,
            relations: dataset.relations,
            facts: dataset.splits[0],
        },
    }
}

/// What a plan needs to know of a graph, there or not.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    pub(super) graph: GraphSize,
    /// Distinct queries, both directions.
    pub(super) queries: usize,
    /// Validation triples.
    pub(super) valid: usize,
    /// The graph's part of a run's folder.
    pub(super) folder: String,
    /// Where it is; nothing if it is not there.
    pub(super) path: Option<PathBuf>,
    pub(super) stand_in: Option<String>,
}

impl Sizes {
    pub(super) fn of(dataset: &Dataset, place: Option<&Place>) -> Self {
        Self {
            graph: size(dataset, place),
            queries: place.map_or(dataset.queries, |place| place.graph.answers().n_queries()),
            valid: place.map_or(dataset.splits[1], |place| place.graph.triples(Split::Valid).len()),
            folder: place.map_or(dataset.name.clone(), |place| place.folder_name(dataset)),
            path: place.map(|place| place.path.clone()),
            stand_in: place.and_then(|place| place.stand_in.clone()),
        }
    }
}
