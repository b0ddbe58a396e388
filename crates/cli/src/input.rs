//! Which graph does a command work on?
//!
//! The arguments that say how to read it are the same for every command.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use fullrank_graph::load::{self, Columns, Format, Header, Literals, LoadOptions, Loaded};
use fullrank_graph::split::{CutOptions, Ratios, Splitter};
use fullrank_graph::{Repeats, Split};

use crate::output::{count, say, wrong_usage};

/// A graph and how to read it.
#[derive(Args, Debug)]
pub(crate) struct InputArguments {
    /// A folder with train, valid and test, or one file; `-` reads standard input
    ///
    /// Files end in .tsv, .txt, .csv, .nt or .ttl, optionally with .gz or .zst.
    /// A single file is split into train, valid and test.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) data: PathBuf,

    /// What the file holds, where its name does not say it [default: tsv for `-`]
    #[arg(long, help_heading = "Reading")]
    format: Option<FormatArgument>,

    /// Where subject, relation and object stand, by number or by name: `1,3,2`, `head,rel,tail`
    #[arg(long, help_heading = "Reading", value_name = "S,R,O")]
    columns: Option<Columns>,

    /// Whether the first line names the columns; `auto` knows words such as head, relation, tail
    #[arg(long, help_heading = "Reading", default_value = "auto")]
    header: HeaderArgument,

    /// Keep RDF literals as entities instead of leaving them out
    #[arg(long, help_heading = "Reading")]
    literals: bool,

    /// How a single file is split: `random:SEED`, or `pykeen:SEED` for PyKEEN's own split
    #[arg(long, help_heading = "Reading", default_value_t, value_name = "WAY:SEED")]
    split: Splitter,

    /// The shares of train, valid and test in a single file
    #[arg(long, help_heading = "Reading", default_value_t, value_name = "TRAIN,VALID,TEST")]
    ratios: Ratios,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum FormatArgument {
    Tsv,
    Csv,
    Ntriples,
    Turtle,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum HeaderArgument {
    Auto,
    Yes,
    No,
}

impl InputArguments {
    /// Loads the graph.
    pub(crate) fn load(&self) -> anyhow::Result<Loaded> {
        let by_name = self.columns.as_ref().is_some_and(Columns::by_name);
        if by_name && matches!(self.header, HeaderArgument::No) {
            wrong_usage("expected --columns by number with --header no, found names");
        }
        let mut options = self.options();
        if self.data != Path::new("-") {
            return Ok(load::load(&self.data, &options)?);
        }
        options.format.get_or_insert(Format::Tsv);
        let mut bytes = vec![];
        io::stdin().lock().read_to_end(&mut bytes)?;
        Ok(load::load_bytes(Path::new("<standard input>"), &bytes, &options)?)
    }

    fn options(&self) -> LoadOptions {
        LoadOptions {
            format: self.format.map(|format| match format {
                FormatArgument::Tsv => Format::Tsv,
                FormatArgument::Csv => Format::Csv,
                FormatArgument::Ntriples => Format::NTriples,
                FormatArgument::Turtle => Format::Turtle,
            }),
            columns: self.columns.clone(),
            header: match self.header {
                HeaderArgument::Auto => Header::Auto,
                HeaderArgument::Yes => Header::Yes,
                HeaderArgument::No => Header::No,
            },
            literals: if self.literals { Literals::Keep } else { Literals::Skip },
            cut: CutOptions { splitter: self.split, ratios: self.ratios },
        }
    }
}

/// Says what a user should know about how the graph was read.
pub(crate) fn say_notes(loaded: &Loaded) {
    for note in notes(loaded) {
        say(&format!("note: {note}"));
    }
}

fn notes(loaded: &Loaded) -> Vec<String> {
    let mut notes = vec![];
    for file in &loaded.files {
        let path = file.path.display();
        if let Some([subject, relation, object]) = &file.header {
            notes.push(format!(
                "{path}: the first line is a header; subject, relation and object are `{subject}`, \
                 `{relation}` and `{object}`"
            ));
        }
        if file.literals_skipped > 0 {
            let skipped = count(file.literals_skipped);
            notes.push(format!("{path}: {skipped} literals left out; --literals keeps them"));
        }
    }
    let graph = &loaded.graph;
    let Repeats { within, train_valid, train_test, valid_test } = graph.repeats();
    match &loaded.cut {
        Some(cut) => {
            let [train, valid, test] = Split::ALL.map(|split| count(graph.triples(split).len()));
            notes.push(format!(
                "one file, split by `{}` into {train} / {valid} / {test} (train / valid / test)",
                cut.splitter
            ));
            if cut.short_by > 0 {
                let short_by = count(cut.short_by);
                notes.push(format!(
                    "{short_by} triples fewer are held out than asked for: training needs them to \
                     have every entity and relation"
                ));
            }
        }
        None => {
            for split in [Split::Valid, Split::Test] {
                if graph.triples(split).is_empty() {
                    notes.push(format!("there are no {split} triples"));
                }
            }
        }
    }
    for (split, dropped) in Split::ALL.into_iter().zip(within) {
        if dropped > 0 {
            notes.push(format!("{} repeated triples dropped from {split}", count(dropped)));
        }
    }
    for (shared, splits) in [
        (train_valid, "train and valid"),
        (train_test, "train and test"),
        (valid_test, "valid and test"),
    ] {
        if shared > 0 {
            notes.push(format!("{} triples stand in both {splits}", count(shared)));
        }
    }
    notes
}
