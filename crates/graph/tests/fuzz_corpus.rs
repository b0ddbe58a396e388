//! Inputs that fuzzing found interesting, loaded once more.

use std::fs;
use std::path::Path;

mod hostile;

/// Runs a check on every file of a fuzz target's corpus.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut n_files = 0;
    for entry in fs::read_dir(&folder).expect("every target has a corpus") {
        let path = entry.expect("the corpus can be listed").path();
        check(&fs::read(path).expect("the corpus can be read"));
        n_files += 1;
    }
    assert!(n_files > 0, "{} is empty", folder.display());
}

#[test]
fn tsv() {
    replay("tsv", |bytes| hostile::load_anything("x.tsv", bytes));
}

#[test]
fn csv() {
    replay("csv", |bytes| hostile::load_anything("x.csv", bytes));
}

#[test]
fn ntriples() {
    replay("ntriples", |bytes| hostile::load_anything("x.nt", bytes));
}

#[test]
fn turtle() {
    replay("turtle", |bytes| hostile::load_anything("x.ttl", bytes));
}

#[test]
fn npy() {
    replay("npy", hostile::read_any_array);
}
