//! Do the documents speak of what is there?

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn every_path_of_the_architecture_exists() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(text.lines().count() <= 200);
    let paths: Vec<&str> = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|name| ["crates/", "fuzz/", "benches/"].iter().any(|it| name.starts_with(it)))
        .collect();
    assert!(paths.len() > 20, "{paths:?}");
    for path in paths {
        assert!(root().join(path).exists(), "ARCHITECTURE.md names {path}");
    }
}

/// The map names folders; what a file is for stands in its first line.
#[test]
fn every_source_file_says_what_it_is() {
    let crates = fs::read_dir(root().join("crates")).unwrap();
    let mut folders: Vec<PathBuf> = crates.map(|entry| entry.unwrap().path()).collect();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let is_rust = path.extension().is_some_and(|ending| ending == "rs");
            if path.is_dir() {
                folders.push(path);
            } else if is_rust && !path.ends_with("tests.rs") {
                let text = fs::read_to_string(&path).unwrap();
                assert!(text.starts_with("//! "), "{} has no first line", path.display());
            }
        }
    }
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/comparing.md",
        "docs/data.md",
        "docs/dimension.md",
        "docs/figures.md",
        "docs/numbers.md",
        "docs/paper.md",
        "docs/search.md",
        "docs/training.md",
        "docs/tutorial.md",
        "BENCHMARKS.md",
        "RESULTS.md",
    ] {
        let path = root().join(name);
        let text = fs::read_to_string(&path).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        for link in links.filter(|link| !link.starts_with("http")) {
            let file = link.split('#').next().unwrap();
            assert!(path.parent().unwrap().join(file).exists(), "{name} links to {link}");
        }
    }
}
