//! Layers: does every module use only modules below it, in the order that ARCHITECTURE.md gives?

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Lines of the block that stands below this heading are layers, from the lowest.
const HEADING: &str = "## Layers of the engine";

/// The number of each module's layer, as the document has it.
fn layers() -> BTreeMap<String, usize> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ARCHITECTURE.md");
    let text = fs::read_to_string(path).unwrap();
    let (_, below) = text.split_once(HEADING).expect("the document has the heading");
    let (_, block) = below.split_once("```text\n").expect("and a block below it");
    let (block, _) = block.split_once("```").expect("which ends");
    let mut layers = BTreeMap::new();
    for (layer, line) in block.lines().enumerate() {
        layers.extend(line.split_whitespace().map(|module| (module.to_owned(), layer)));
    }
    layers
}

/// A source file, as a module.
struct Source {
    /// `run/files.rs` is `["run", "files"]`.
    path: Vec<String>,
    /// Without comments, and without the tests at its foot.
    code: String,
}

impl Source {
    fn read(root: &Path, file: &Path) -> Self {
        let relative: PathBuf = file.strip_prefix(root).unwrap().with_extension("");
        let mut path: Vec<String> =
            relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
        path.pop_if(|last| last == "mod");
        let text = fs::read_to_string(file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let code = code.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n");
        Self { path, code: code.collect() }
    }

    /// All of them but tests and the root.
    fn all() -> Vec<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let (mut folders, mut found) = (vec![root.clone()], Vec::new());
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            for path in entries.filter(|path| path.file_stem().unwrap() != "tests") {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push(Self::read(&root, &path));
                }
            }
        }
        found.retain(|source| source.path != ["lib"]);
        found
    }

    /// The modules at the root of the crate that it uses.
    fn used(&self) -> Vec<&str> {
        let up = "super::".repeat(self.path.len());
        let mut names = named_behind(&self.code, "crate::");
        names.extend(named_behind(&self.code, &up));
        names
    }
}

/// The first names of all paths behind a prefix: of `prefix::{a::b, c}` these are a and c.
fn named_behind<'a>(code: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    for (start, _) in code.match_indices(prefix) {
        // `xcrate::` and `super::super::` are other paths than `crate::` and `super::`.
        let before = code[..start].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
            continue;
        }
        let rest = &code[start + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group_members(group)),
            None => names.push(first_name(rest)),
        }
    }
    // A path that goes up further has its own prefix.
    names.retain(|name| !name.is_empty() && *name != "super");
    names
}

/// The first name of each member of a group, up to its closing brace.
fn group_members(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut members) = (0, 0, Vec::new());
    for (place, character) in group.char_indices() {
        match character {
            ',' | '}' if depth == 0 => {
                members.push(first_name(group[start..place].trim_start()));
                start = place + 1;
                if character == '}' {
                    break;
                }
            }
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    members
}

fn first_name(path: &str) -> &str {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    &path[..end]
}

#[test]
fn no_module_uses_one_of_its_own_layer_or_above() {
    let layers = layers();
    let mut faults = Vec::new();
    for source in Source::all() {
        let (module, file) = (&source.path[0], source.path.join("/"));
        let Some(own) = layers.get(module) else {
            faults.push(format!("{file}: `{module}` stands in no layer"));
            continue;
        };
        for name in source.used().into_iter().filter(|name| name != module) {
            match layers.get(name) {
                Some(other) if other < own => {}
                Some(_) => faults.push(format!("{file}: uses `{name}`")),
                None => faults.push(format!("{file}: uses `{name}`, which stands in no layer")),
            }
        }
    }
    faults.sort();
    faults.dedup();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_module_of_the_list_is_there() {
    let there = Source::all();
    for module in layers().keys() {
        let is_there = there.iter().any(|source| source.path[0] == *module);
        assert!(is_there, "ARCHITECTURE.md speaks of `{module}`");
    }
}

#[test]
fn grouped_nested_and_relative_paths_are_read() {
    let code = "use crate::{a::{b, c}, d,\n e::F};\nuse super::super::g::H; xcrate::no::X";
    let path = vec!["x".to_owned(), "y".to_owned()];
    let source = Source { path, code: code.to_owned() };
    assert_eq!(source.used(), ["a", "d", "e", "g"]);
}
