//! Given candidates of a run: what are answers ranked among when the files that had them are gone?

use std::collections::BTreeMap;
use std::path::Path;

use fullrank_graph::load::{Candidates, Rows};
use fullrank_graph::{EntityId, Graph, Split};

use super::files::{self, Stored, TensorFile, TensorReader, Values};
use crate::error::Error;
use crate::evaluate::GivenCandidates;

pub(super) const CANDIDATES: &str = "candidates.safetensors";

/// The two tables of a split.
const SIDES: [&str; 2] = ["subjects", "objects"];

pub(super) fn write(folder: &Path, given: &GivenCandidates) -> Result<TensorFile, Error> {
    let mut tensors = BTreeMap::new();
    for split in Split::ALL {
        let Some(Candidates { subjects, objects }) = given.of(split) else { continue };
        for (side, rows) in SIDES.into_iter().zip([subjects, objects]) {
            let ids: Vec<u32> = rows.entities.iter().map(|entity| entity.0).collect();
            let shape = vec![ids.len() / rows.width.max(1), rows.width];
            tensors.insert(format!("{split}.{side}"), Stored { shape, values: Values::Ids(ids) });
        }
    }
    files::write_tensors(&folder.join(CANDIDATES), &tensors)
}

/// The candidates as they were written, for the same graph.
pub(super) fn read(
    folder: &Path,
    file: &TensorFile,
    graph: &Graph,
) -> Result<GivenCandidates, Error> {
    let mut tensors = TensorReader::open(folder, file)?;
    let names = tensors.names();
    let mut given = GivenCandidates::default();
    for split in Split::ALL {
        let mut rows = |side: &str| -> Result<Rows, Error> {
            let name = format!("{split}.{side}");
            let entities: Vec<EntityId> = tensors.ids(&name)?.into_iter().map(EntityId).collect();
            let n_triples = graph.triples(split).len();
            let width = entities.len() / n_triples.max(1);
            let is_named = |entity: &EntityId| (entity.0 as usize) < graph.entities().len();
            if width * n_triples != entities.len() || !entities.iter().all(is_named) {
                return Err(tensors.damaged(format!("tensor `{name}` is not of this graph")));
            }
            Ok(Rows { width, entities })
        };
        if names.contains(&format!("{split}.{}", SIDES[0])) {
            let [subjects, objects] = SIDES.map(&mut rows);
            given.insert(split, Candidates { subjects: subjects?, objects: objects? });
        }
    }
    Ok(given)
}
