//! What can go wrong in the engine?

use std::path::PathBuf;

use crate::config::Fault;

/// What went wrong, with the facts that tell where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A config file is not TOML.
    #[error("{}: not a config file", path.display())]
    ConfigSyntax {
        /// The file.
        path: PathBuf,
        /// Line, column and what was expected.
        source: Box<toml::de::Error>,
    },
    /// Settings that cannot train.
    #[error("{}", listed(faults))]
    Config {
        /// All of them.
        faults: Vec<Fault>,
    },
}

fn listed(faults: &[Fault]) -> String {
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}
