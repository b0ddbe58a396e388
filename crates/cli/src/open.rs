//! Which run does a command work on, and which of its names does the user mean?

use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use fullrank_engine::{Error, Run, best_epoch};
use fullrank_graph::{EntityId, Graph, Names, RelationId};

use crate::output::{printable, say};

/// Opens a run folder, or the run with the best validation of a folder with several seeds.
pub(crate) fn open_run(path: &Path) -> anyhow::Result<Run> {
    if !path.exists() {
        bail!("{}: there is no such folder", path.display());
    }
    let folder = if path.join("run.json").exists() { None } else { best_seed(path)? };
    if let Some(folder) = &folder {
        say(&format!("note: {} is the best of its seeds on validation", folder.display()));
    }
    let run = Run::open(folder.as_deref().unwrap_or(path))?;
    if !run.is_finished {
        let epoch = run.best.epoch;
        say(&format!("note: the training is not over; these are the weights of epoch {epoch}"));
    }
    Ok(run)
}

/// The run of a folder with several seeds that is best on validation; nothing without any.
fn best_seed(path: &Path) -> Result<Option<PathBuf>, Error> {
    let mut best: Option<(f64, PathBuf)> = None;
    for entry in path.read_dir().into_iter().flatten().flatten() {
        let (name, folder) = (entry.file_name(), entry.path());
        if !name.to_string_lossy().starts_with("seed-") || !folder.join("run.json").exists() {
            continue;
        }
        let Some(valid_mrr) = best_epoch(&folder)?.and_then(|best| best.valid_mrr) else {
            continue;
        };
        // Of equal ones the first by name, whatever the order of the folder.
        let is_better = |(mrr, other): &(f64, PathBuf)| {
            valid_mrr > *mrr || (valid_mrr == *mrr && folder < *other)
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some((valid_mrr, folder));
        }
    }
    Ok(best.map(|(_, folder)| folder))
}

/// The entity of this name, or an error that names the closest ones.
pub(crate) fn find_entity(graph: &Graph, name: &str) -> anyhow::Result<EntityId> {
    find(graph.entities(), "entity", name, (graph.relations(), "a relation")).map(EntityId)
}

/// The relation of this name, or an error that names the closest ones.
pub(crate) fn find_relation(graph: &Graph, name: &str) -> anyhow::Result<RelationId> {
    find(graph.relations(), "relation", name, (graph.entities(), "an entity")).map(RelationId)
}

fn find(names: &Names, kind: &str, name: &str, others: (&Names, &str)) -> anyhow::Result<u32> {
    names.find(name).ok_or_else(|| {
        if others.0.find(name).is_some() {
            return anyhow!("there is no {kind} `{}`; it is {}", printable(name), others.1);
        }
        let near: Vec<String> =
            closest(names, name).into_iter().map(|name| format!("`{}`", printable(name))).collect();
        let near = match near.is_empty() {
            true => String::new(),
            false => format!("; the closest: {}", near.join(", ")),
        };
        anyhow!("there is no {kind} `{}`{near}", printable(name))
    })
}

/// The names that are most like a text, best first.
fn closest<'a>(names: &'a Names, text: &str) -> Vec<&'a str> {
    /// As many as fit in a line.
    const MOST: usize = 5;
    /// Less alike than this is no help.
    const LEAST: f64 = 0.75;
    let text = text.to_lowercase();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        let spelling = strsim::jaro_winkler(&name, &text);
        // People type a part of long names.
        let is_part = text.len() > 2 && name.contains(&text);
        if is_part { spelling.max(0.9) } else { spelling }
    };
    let mut near: Vec<(f64, &str)> = names
        .iter()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness >= LEAST)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_misspellings_are_recognised() {
        let mut names = Names::default();
        for name in ["Aspirin", "Ibuprofen", "Aspirin overdose", "Headache"] {
            names.intern(name).unwrap();
        }
        assert_eq!(closest(&names, "aspirin"), ["Aspirin", "Aspirin overdose"]);
        assert_eq!(closest(&names, "Ibuprofin"), ["Ibuprofen"]);
        assert!(closest(&names, "Zürich").is_empty());
    }
}
