//! The program as tests run it.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the program in a folder.
pub(crate) fn run(folder: &Path, arguments: &str) -> Output {
    command(folder, arguments).output().unwrap()
}

pub(crate) fn command(folder: &Path, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fullrank"));
    command.args(arguments.split_whitespace()).current_dir(folder).env("NO_COLOR", "1");
    command
}

/// Standard output of a run that succeeds.
pub(crate) fn printed(folder: &Path, arguments: &str) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Standard error.
pub(crate) fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

pub(crate) fn json(folder: &Path, arguments: &str) -> serde_json::Value {
    serde_json::from_str(&printed(folder, arguments)).unwrap()
}

pub(crate) fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}
