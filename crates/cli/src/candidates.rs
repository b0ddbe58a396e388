//! Given candidates: what is in the folder that a command is told to rank answers among?

use std::path::Path;

use anyhow::bail;
use fullrank_engine::evaluate::GivenCandidates;
use fullrank_engine::kept_candidates;
use fullrank_graph::load::load_candidates;
use fullrank_graph::{Graph, Split};

/// The candidates of these splits, as far as they have triples: arrays beside each other, or those
/// that a run was trained with.
pub(crate) fn given_candidates(
    folder: &Path,
    graph: &Graph,
    splits: &[Split],
) -> anyhow::Result<GivenCandidates> {
    let mut splits = splits.iter().filter(|split| !graph.triples(**split).is_empty());
    if folder.join("run.json").exists() {
        let kept = kept_candidates(folder, graph)?.unwrap_or_default();
        if let Some(split) = splits.find(|split| kept.of(**split).is_none()) {
            bail!(
                "{}: expected a run that was trained with --candidates for {split}",
                folder.display()
            );
        }
        return Ok(kept);
    }
    let mut given = GivenCandidates::default();
    for split in splits {
        let Some(candidates) = load_candidates(folder, graph, *split)? else {
            bail!(
                "{}: expected {split}_negative_subjects.npy and {split}_negative_objects.npy\n\n\
                 Name the folder that has them; docs/data.md says what they hold.",
                folder.display()
            );
        };
        given.insert(*split, candidates);
    }
    Ok(given)
}
