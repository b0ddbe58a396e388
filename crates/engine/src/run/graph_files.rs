//! The graph of a run: what does it know of it, without the files it was loaded from?

use std::collections::BTreeMap;
use std::path::Path;

use fullrank_graph::{EntityId, Graph, Names, RelationId, Split, Triple};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::{self, Hashes, Stored, TensorFile, TensorReader, Values};
use crate::error::Error;

pub(super) const NAMES: &str = "names.json";
pub(super) const KNOWN: &str = "known.safetensors";

#[derive(Serialize, Deserialize)]
struct NameLists {
    entities: Vec<String>,
    relations: Vec<String>,
}

/// A hash of names and triples: the same dataset read from other files has the same one.
pub(super) fn dataset_hash(graph: &Graph) -> String {
    let mut hash = Sha256::new();
    for names in [graph.entities(), graph.relations()] {
        hash.update((names.len() as u64).to_le_bytes());
        for name in names.iter() {
            // With their lengths, so that `ab, c` is not `a, bc`.
            hash.update((name.len() as u64).to_le_bytes());
            hash.update(name);
        }
    }
    for split in Split::ALL {
        hash.update((graph.triples(split).len() as u64).to_le_bytes());
        for triple in ids(graph.triples(split)).chunks(3000) {
            let bytes: Vec<u8> = triple.iter().flat_map(|id| id.to_le_bytes()).collect();
            hash.update(bytes);
        }
    }
    files::hex(hash.finalize().as_slice())
}

/// Writes names and known facts.
pub(super) fn write(folder: &Path, graph: &Graph) -> Result<TensorFile, Error> {
    let list = |names: &Names| names.iter().map(str::to_owned).collect();
    let names = NameLists { entities: list(graph.entities()), relations: list(graph.relations()) };
    files::write_json(&folder.join(NAMES), &names)?;
    let tensors = Split::ALL.map(|split| {
        let triples = graph.triples(split);
        let stored = Stored { shape: vec![triples.len(), 3], values: Values::Ids(ids(triples)) };
        (split.to_string(), stored)
    });
    files::write_tensors(&folder.join(KNOWN), &BTreeMap::from(tensors))
}

/// The graph as it was written; its hash is not checked again if it was before.
pub(super) fn read(
    folder: &Path,
    known: &TensorFile,
    dataset: &str,
    hashes: Hashes,
) -> Result<Graph, Error> {
    let damaged =
        |file: &str, what: &str| Error::Damaged { path: folder.join(file), what: what.to_owned() };
    let lists: NameLists = files::read_json(&folder.join(NAMES))?;
    let mut tensors = TensorReader::map(folder, known, hashes)?;
    let names = |list: Vec<String>| {
        let mut names = Names::default();
        for name in &list {
            names.intern(name)?;
        }
        if names.len() < list.len() {
            return Err(damaged(NAMES, "a name occurs twice"));
        }
        Ok(names)
    };
    let (entities, relations) = (names(lists.entities)?, names(lists.relations)?);
    let mut triples = Split::ALL.map(|_| Vec::new());
    for (split, triples) in Split::ALL.iter().zip(&mut triples) {
        let ids = tensors.ids(&split.to_string())?;
        for triple in ids.chunks_exact(3) {
            let is_named = |id: u32, names: &Names| (id as usize) < names.len();
            if !is_named(triple[0], &entities)
                || !is_named(triple[1], &relations)
                || !is_named(triple[2], &entities)
            {
                return Err(damaged(KNOWN, "a triple has an id without a name"));
            }
            triples.push(Triple {
                subject: EntityId(triple[0]),
                relation: RelationId(triple[1]),
                object: EntityId(triple[2]),
            });
        }
    }
    let graph = Graph::from_triples(entities, relations, triples)?;
    if hashes == Hashes::Check && dataset_hash(&graph) != dataset {
        return Err(damaged(NAMES, "names and facts are not those of the training"));
    }
    Ok(graph)
}

fn ids(triples: &[Triple]) -> Vec<u32> {
    triples.iter().flat_map(|t| [t.subject.0, t.relation.0, t.object.0]).collect()
}
