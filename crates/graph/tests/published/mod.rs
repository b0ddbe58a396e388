//! Where are the published benchmark graphs?
//!
//! They are not part of the project: tests look for them in `../shared/data` beside it, or where
//! `FULLRANK_DATA` says, and skip what needs one that is not there. libtest swallows what a passing
//! test prints, so skipped tests are also listed in the file that `FULLRANK_SKIPPED` names, for
//! `./check` to count them.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder of a benchmark; nothing, and a reason said and listed, if it is not there.
#[expect(clippy::print_stderr, reason = "a skipped test has to say so")]
pub(crate) fn folder(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FULLRANK_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let folder = root.join(name);
    if !folder.is_dir() {
        eprintln!("skipped: there is no {}", folder.display());
        if let Some(list) = std::env::var_os("FULLRANK_SKIPPED") {
            let test = std::thread::current().name().unwrap_or("a test").to_owned();
            // In one piece, for tests run side by side.
            let line = format!("{test}: there is no {name}\n");
            let list = File::options().create(true).append(true).open(list);
            let said = list.and_then(|mut list| list.write_all(line.as_bytes()));
            said.expect("the list of skipped tests can be written");
        }
        return None;
    }
    Some(folder)
}
