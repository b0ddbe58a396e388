//! Errors: what can go wrong in the engine?

use std::path::PathBuf;

use fullrank_graph::Place;

use crate::names::UnknownName;
use crate::settings::Fault;

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
    /// The graph has no training triple.
    #[error("the graph has no training triples")]
    NothingToLearn,
    /// A training would not fit in memory.
    #[error(
        "training needs about {} MiB of memory, and {} MiB are free",
        needed >> 20,
        available >> 20
    )]
    Memory {
        /// Bytes at the peak, by forecast.
        needed: u64,
        /// Bytes to be had.
        available: u64,
    },
    /// A loss or a gradient that is not finite; the update was not made.
    #[error(
        "{quantity} became {value} at epoch {epoch}, batch {batch}; the trouble is in `{parameter}` \
         (gradient norm {grad_norm:.1e})"
    )]
    NotFinite {
        /// `loss`, or `the gradient's norm` where it is looked at, which is for clipping.
        quantity: &'static str,
        /// What was found.
        value: f64,
        /// From 1.
        epoch: usize,
        /// From 1.
        batch: usize,
        /// The first parameter that is not finite, or the one with the largest gradient.
        parameter: String,
        /// The largest norm of a gradient.
        grad_norm: f64,
        /// The learning rate of the config.
        learning_rate: f64,
    },
    /// A name that the graph does not have.
    #[error(transparent)]
    UnknownName(#[from] Box<UnknownName>),
    /// A model gives scores that are not numbers.
    #[error("the model gives scores that are not numbers")]
    BrokenModel,
    /// A temperature was asked for where log-probabilities are not of shares.
    #[error(
        "temperature {temperature} is for shares among answers; this model gives the probability that \
         a triple holds"
    )]
    NoTemperature {
        /// As asked for.
        temperature: f64,
    },
    /// A line of a rank file that is not as it should be.
    #[error("{place}: expected {expected}, found {found}")]
    RankLine {
        /// The line.
        place: Place,
        /// What should stand there, and in which column.
        expected: String,
        /// What does.
        found: String,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// Something is where a run folder is to be made.
    #[error(
        "{}: {}",
        path.display(),
        if *is_run { "there is a run already" } else { "expected an empty folder or none" }
    )]
    Exists {
        /// The folder.
        path: PathBuf,
        /// Whether it is a run folder.
        is_run: bool,
    },
    /// Another process trains in the folder.
    #[error("{}: another training is at work in this folder", path.display())]
    Locked {
        /// The folder.
        path: PathBuf,
    },
    /// A folder without `run.json`.
    #[error("{}: not a run folder; expected `run.json` in it", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// A run whose first epoch is not over.
    #[error("{}: no epoch is finished yet, so there are no weights", path.display())]
    NoWeights {
        /// The folder.
        path: PathBuf,
    },
    /// A run of another version of the program.
    #[error("{}: expected a run of format {expected}, found {found}", path.display())]
    OtherFormat {
        /// `run.json`.
        path: PathBuf,
        /// What this program reads.
        expected: u32,
        /// What is there.
        found: u32,
    },
    /// Resuming with other settings.
    #[error("{}: was trained with other settings: {}", path.display(), differences.join(", "))]
    OtherConfig {
        /// The folder.
        path: PathBuf,
        /// As `name is this, not that`.
        differences: Vec<String>,
    },
    /// Resuming with other data.
    #[error("{}: was trained on another dataset", path.display())]
    OtherDataset {
        /// The folder.
        path: PathBuf,
    },
    /// Comparing runs of different graphs, or of splits that differ.
    #[error(
        "{}: is not of the same graph and splits as the first run: {}",
        path.display(),
        differences.join("; ")
    )]
    OtherGraph {
        /// The folder.
        path: PathBuf,
        /// As `what: expected so many, found so many, so many in both`.
        differences: Vec<String>,
    },
    /// Comparing a training with itself.
    #[error("{}: has the settings and the seed of {}", path.display(), other.display())]
    SameTraining {
        /// The folder.
        path: PathBuf,
        /// The one that came before.
        other: PathBuf,
    },
    /// Comparing runs of a graph that nothing can be asked of.
    #[error("{}: there are no test triples to rank", path.display())]
    NoTestTriples {
        /// The folder.
        path: PathBuf,
    },
    /// Resuming with other given candidates.
    #[error("{}: was trained with other candidates, or with none", path.display())]
    OtherCandidates {
        /// The folder.
        path: PathBuf,
    },
    /// A file that is not what was written.
    #[error("{}: damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// A file that cannot be read.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A file that cannot be written.
    #[error("{}: cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// A graph that cannot be built.
    #[error(transparent)]
    Graph(#[from] fullrank_graph::Error),
}

fn listed(faults: &[Fault]) -> String {
    let lines: Vec<String> = faults.iter().map(Fault::to_string).collect();
    lines.join("\n")
}
