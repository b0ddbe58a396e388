//! The hash cache: which files of a run were found whole before, and have not changed since?
//!
//! Hashing a model of a gigabyte takes longer than answering a query with it, so each file is
//! hashed once, and its size and time of change are remembered in the run folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::files;

pub(super) const CHECKED: &str = "checked.json";

/// A file may change twice within the grain of its clock. So what is remembered counts only if it
/// was written this much later than the file.
const GRAIN: Duration = Duration::from_secs(1);

/// Size and time of change of a file, and where the system keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    bytes: u64,
    modified: SystemTime,
    /// Inode and time of its last change, which no copy keeps; zero where there are none.
    place: (u64, i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        #[cfg(unix)]
        let place = {
            use std::os::unix::fs::MetadataExt;
            (metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
        };
        #[cfg(not(unix))]
        let place = (0, 0, 0);
        Some(Self { bytes: metadata.len(), modified: metadata.modified().ok()?, place })
    }
}

/// The files of a folder that were found whole.
#[derive(Debug)]
pub(super) struct HashCache {
    folder: PathBuf,
    remembered: BTreeMap<String, Stamp>,
    /// When it was written down.
    written: Option<SystemTime>,
}

impl HashCache {
    /// What is remembered; nothing if it cannot be read, for then all is checked anew.
    pub(super) fn read(folder: &Path) -> Self {
        let path = folder.join(CHECKED);
        let text = fs::read(&path).unwrap_or_default();
        let remembered = serde_json::from_slice(&text).unwrap_or_default();
        let written = Stamp::of(&path).map(|stamp| stamp.modified);
        Self { folder: folder.into(), remembered, written }
    }

    /// Whether these files are as they were when they were found whole.
    pub(super) fn has(&self, files: &[&str]) -> bool {
        files.iter().all(|file| {
            let stamp = Stamp::of(&self.folder.join(file));
            let is_older = |stamp: Stamp| {
                let written = self.written?;
                Some(stamp.modified.checked_add(GRAIN)? <= written)
            };
            stamp.is_some()
                && stamp == self.remembered.get(*file).copied()
                && stamp.and_then(is_older) == Some(true)
        })
    }

    /// The stamps of files that are about to be read.
    pub(super) fn stamps(&self, files: &[&str]) -> BTreeMap<String, Stamp> {
        let stamp = |file: &&str| Some(((*file).to_owned(), Stamp::of(&self.folder.join(file))?));
        files.iter().filter_map(stamp).collect()
    }

    /// Remembers that files with these stamps were found whole.
    pub(super) fn remember(&self, stamps: &BTreeMap<String, Stamp>) {
        // A folder that cannot be written can still be read: then it is checked again next time.
        let _ = files::write_json(&self.folder.join(CHECKED), stamps);
    }
}
