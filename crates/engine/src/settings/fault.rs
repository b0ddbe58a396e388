//! Faults of a config: which setting is wrong, where was it given, and what was expected?

use std::fmt;
use std::path::PathBuf;

/// Where a setting came from, for messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A config file.
    File(PathBuf),
    /// An argument of a call or a command, as its user knows it.
    Argument(String),
}

/// One thing wrong with a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The setting, as given.
    pub name: String,
    /// Where it was given; nothing for a fault between several settings.
    pub origin: Option<Origin>,
    /// What was expected and what was found.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Some(Origin::File(path)) => {
                write!(f, "{}: `{}`: {}", path.display(), self.name, self.what)
            }
            Some(Origin::Argument(argument)) => write!(f, "{argument}: {}", self.what),
            None => write!(f, "`{}`: {}", self.name, self.what),
        }
    }
}
