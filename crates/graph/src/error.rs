//! Errors: what can be wrong with the input, in the user's terms?

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::Split;

/// A line of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file, as the user named it.
    pub path: PathBuf,
    /// Counted from one.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.path.display(), self.line)
    }
}

/// Why a graph could not be had.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The system refused to open or read something.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// What was to be read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },

    /// The name of a file does not say what is in it.
    #[error(
        "{}: expected a name ending in {known}, optionally with .gz or .zst, found `{}`",
        path.display(),
        path.file_name().unwrap_or_default().to_string_lossy()
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The endings that say it.
        known: &'static str,
    },

    /// A folder that is not a dataset.
    #[error("{}: expected a file named train (such as train.tsv), found {found}", folder.display())]
    NoTrain {
        /// The folder.
        folder: PathBuf,
        /// The graph files in it, or that there are none.
        found: Listing,
    },

    /// Two files claim to be the same split.
    #[error("{}: expected one file for {split}, found {found}", folder.display())]
    TwoFiles {
        /// The folder.
        folder: PathBuf,
        /// The split.
        split: Split,
        /// The files.
        found: Listing,
    },

    /// A file without a single triple.
    #[error("{place}: expected at least one triple, found {found}")]
    Empty {
        /// The first line.
        place: Place,
        /// What stands there instead.
        found: &'static str,
    },

    /// An archive that stops before its end, or is none.
    #[error("{place}: expected a complete {archive} stream, found {found}")]
    Archive {
        /// The line of text that was reached.
        place: Place,
        /// The kind of archive.
        archive: &'static str,
        /// What is wrong with it.
        found: &'static str,
    },

    /// Bytes that are not text.
    #[error("{place}: expected UTF-8 text, found the byte 0x{byte:02x}")]
    Encoding {
        /// The line of the byte.
        place: Place,
        /// The byte.
        byte: u8,
    },

    /// A line that does not have as many fields as it should.
    #[error("{place}: expected {expected} {separator}-separated fields, found {found}")]
    Fields {
        /// The line.
        place: Place,
        /// How many it should have.
        expected: FieldCount,
        /// `tab` or `comma`.
        separator: &'static str,
        /// How many it has.
        found: usize,
    },

    /// A line with nothing in it before the end of the file.
    #[error("{place}: expected a triple, found an empty line")]
    EmptyLine {
        /// The line.
        place: Place,
    },

    /// A name without a character.
    #[error("{place}: expected the name of the {slot} in field {field}, found nothing")]
    EmptyName {
        /// The line.
        place: Place,
        /// `subject`, `relation` or `object`.
        slot: &'static str,
        /// Counted from one.
        field: usize,
    },

    /// A quoted field that never ends.
    #[error("{place}: expected a closing quote, found the end of the file")]
    UnclosedQuote {
        /// The line of the opening quote.
        place: Place,
    },

    /// A quoted field that goes on behind its end.
    #[error(
        "{place}: expected a comma or the end of the line after a closing quote, found `{found}`"
    )]
    AfterQuote {
        /// The line.
        place: Place,
        /// The character.
        found: char,
    },

    /// A quote in the middle of a field.
    #[error("{place}: expected quotes around the whole field, found one inside it")]
    InnerQuote {
        /// The line.
        place: Place,
    },

    /// A column that the header does not have, or has twice.
    #[error("{place}: expected one column named `{column}`, found {found}")]
    NoColumn {
        /// The header.
        place: Place,
        /// The column asked for.
        column: String,
        /// The columns there are.
        found: Listing,
    },

    /// Text that breaks the grammar of its RDF format.
    #[error("{place}: expected {format}, found an error in it")]
    Rdf {
        /// The line.
        place: Place,
        /// The format.
        format: &'static str,
        /// What the parser said.
        source: Box<oxttl::TurtleSyntaxError>,
    },

    /// More than 32-bit ids can tell apart.
    #[error("expected at most {limit} {what}, found more")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },

    /// A training split that cannot have every entity and relation.
    #[error(
        "expected at least {cover} training triples, to have every entity and relation, found {train}"
    )]
    SmallTraining {
        /// How many triples cover everything.
        cover: usize,
        /// How many the ratios leave for training.
        train: usize,
    },

    /// An array that does not hold candidates for the triples of a split.
    #[error("{}: expected {expected}, found {found}", path.display())]
    Array {
        /// The file.
        path: PathBuf,
        /// The shape or type it should have.
        expected: String,
        /// What it has.
        found: String,
    },

    /// A candidate that is no entity of the graph.
    #[error("{}: row {row}: expected the number of an entity, but there is no `{}`", path.display(), name.escape_debug())]
    UnknownCandidate {
        /// The file.
        path: PathBuf,
        /// Counted from zero, as numpy does.
        row: usize,
        /// The name that the number stands for.
        name: String,
    },
}

/// How many fields a line should have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FieldCount {
    /// No more and no fewer.
    Exactly(usize),
    /// The rest is ignored.
    AtLeast(usize),
}

impl FieldCount {
    pub(crate) fn fits(self, found: usize) -> bool {
        match self {
            FieldCount::Exactly(n) => found == n,
            FieldCount::AtLeast(n) => found >= n,
        }
    }
}

impl fmt::Display for FieldCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FieldCount::Exactly(n) => write!(f, "{n}"),
            FieldCount::AtLeast(n) => write!(f, "at least {n}"),
        }
    }
}

/// Names in backticks, separated by commas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing(pub Vec<String>);

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no graph file");
        }
        for (i, name) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}`{}`", name.escape_debug())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_named() {
        let error = Error::TooMany { what: "triples", limit: 2_147_483_647 };
        assert_eq!(error.to_string(), "expected at most 2147483647 triples, found more");
    }
}
