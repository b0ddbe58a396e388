//! Built-in spaces: where does a search begin if nobody has said?

use fullrank_graph::{Graph, Split};

/// Spaces by their names, as TOML.
pub const BUILT_IN: [(&str, &str); 4] = [
    ("small", include_str!("../../../../configs/spaces/small.toml")),
    ("medium", include_str!("../../../../configs/spaces/medium.toml")),
    ("large", include_str!("../../../../configs/spaces/large.toml")),
    ("paper", include_str!("../../../../configs/spaces/paper.toml")),
];

/// The name of the space that suits a graph of this size.
pub fn built_in_for(graph: &Graph) -> &'static str {
    match (graph.entities().len(), graph.triples(Split::Train).len()) {
        (..5_000, ..100_000) => "small",
        (..60_000, ..500_000) => "medium",
        _ => "large",
    }
}
