//! What must hold for any bytes at all; shared by the fuzz targets and the replay of their corpus.

use std::path::Path;

use fullrank_graph::load::{Columns, Header, Literals, LoadOptions, check_array, load_bytes};
use fullrank_graph::{Graph, Query, Split};

/// Loads bytes as a file of this name in every way that reads it differently.
///
/// # Panics
/// If loading panics, or gives a graph that breaks a promise.
pub(crate) fn load_anything(name: &str, bytes: &[u8]) {
    let columns: Columns = "3,1,2".parse().expect("three columns");
    for options in [
        LoadOptions::default(),
        LoadOptions { columns: Some(columns), ..LoadOptions::default() },
        LoadOptions { header: Header::Yes, literals: Literals::Keep, ..LoadOptions::default() },
    ] {
        match load_bytes(Path::new(name), bytes.to_vec(), &options) {
            Ok(loaded) => check_graph(&loaded.graph),
            Err(error) => assert!(error.to_string().starts_with(name), "{error}"),
        }
    }
}

/// Reads bytes as an array of candidates.
///
/// # Panics
/// If reading panics, or the array does not fit in the bytes.
pub(crate) fn read_any_array(bytes: &[u8]) {
    if let Ok((n_rows, width)) = check_array(Path::new("x.npy"), bytes) {
        assert!(n_rows * width <= bytes.len());
    }
}

fn check_graph(graph: &Graph) {
    assert!(graph.n_triples() > 0);
    assert!(graph.entities().iter().chain(graph.relations().iter()).all(|name| !name.is_empty()));
    for split in Split::ALL {
        for triple in graph.triples(split) {
            let forward = Query { subject: triple.subject, relation: triple.relation };
            let relation = graph.inverse(triple.relation);
            let inverse = Query { subject: triple.object, relation };
            for (query, object) in [(forward, triple.object), (inverse, triple.subject)] {
                let number = graph.answers().find(query).expect("a triple answers its queries");
                assert!(graph.answers().up_to(number, split).contains(&object));
            }
        }
    }
}
