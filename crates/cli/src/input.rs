//! Input: which graph does a command work on?
//!
//! The arguments that say how to read it are the same for every command.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum, ValueHint};
use fullrank_graph::load::{
    self, Columns, FileReport, Format, Header, Literals, LoadOptions, Loaded,
};
use fullrank_graph::split::{CutOptions, Ratios, Splitter};
use fullrank_graph::statistics::relation_profiles;
use fullrank_graph::{Direction, EntityId, Graph, Repeats, Split};

use crate::output::{count, counted, printable, say, wrong_usage};

/// A graph and how to read it.
#[derive(Args, Debug, Clone)]
pub(crate) struct InputArguments {
    /// A folder with train, valid and test, or one file; `-` reads standard input
    ///
    /// Files end in .tsv, .txt, .sif, .csv, .nt or .ttl, optionally with .gz or .zst.
    /// A single file is split into train, valid and test.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub(crate) data: PathBuf,

    /// What the files hold [default: what their names say, and tsv for `-`]
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

    /// How a single file is split: `random:SEED`, or `pykeen:SEED` for PyKEEN's own split [default:
    /// random:0]
    #[arg(long, help_heading = "Reading", value_name = "WAY:SEED")]
    split: Option<Splitter>,

    /// The shares of train, valid and test in a single file [default: 0.8,0.1,0.1]
    #[arg(long, help_heading = "Reading", value_name = "TRAIN,VALID,TEST")]
    ratios: Option<Ratios>,
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
    /// A graph that is read as its names say.
    pub(crate) fn of_path(data: PathBuf) -> Self {
        Self {
            data,
            format: None,
            columns: None,
            header: HeaderArgument::Auto,
            literals: false,
            split: None,
            ratios: None,
        }
    }

    /// The same, split so if it is a single file.
    pub(crate) fn split_by(self, splitter: Splitter) -> Self {
        Self { split: Some(splitter), ..self }
    }

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
        let name = "<standard input>";
        let read = io::stdin().lock().read_to_end(&mut bytes);
        read.with_context(|| format!("{name}: cannot be read"))?;
        Ok(load::load_bytes(Path::new(name), bytes, &options)?)
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
            cut: CutOptions {
                splitter: self.split.unwrap_or_default(),
                ratios: self.ratios.unwrap_or_default(),
            },
        }
    }

    /// The words of a command line that read the same graph.
    pub(crate) fn to_words(&self) -> Vec<String> {
        let name = |value: &dyn Fn() -> Option<clap::builder::PossibleValue>| {
            value().map(|value| value.get_name().to_owned())
        };
        let header = match self.header {
            HeaderArgument::Auto => None,
            other => name(&|| other.to_possible_value()),
        };
        let options = [
            ("--format", self.format.and_then(|format| name(&|| format.to_possible_value()))),
            ("--columns", self.columns.as_ref().map(Columns::to_string)),
            ("--header", header),
            ("--split", self.split.map(|split| split.to_string())),
            ("--ratios", self.ratios.map(|ratios| ratios.to_string())),
        ];
        let mut words = vec![self.data.display().to_string()];
        for (option, value) in options {
            words.extend(value.into_iter().flat_map(|value| [option.to_owned(), value]));
        }
        words.extend(self.literals.then(|| "--literals".to_owned()));
        words
    }

    /// What to call the graph: the name of its folder or file, without endings.
    pub(crate) fn name(&self) -> String {
        match self.data.file_name().map(|name| name.to_string_lossy()) {
            Some(name) if name != "-" => name.split('.').next().unwrap_or_default().to_owned(),
            _ => "graph".to_owned(),
        }
    }

    /// Says what a user should know about how the graph was read.
    pub(crate) fn say_notes(&self, loaded: &Loaded) {
        let mut notes = file_notes(loaded);
        notes.extend(split_notes(loaded));
        if loaded.cut.is_none() && (self.split.is_some() || self.ratios.is_some()) {
            notes.push(
                "the folder has its own splits; --split and --ratios are not used".to_owned(),
            );
        }
        let n_rdf = loaded.files.iter().filter(|file| is_rdf(file)).count();
        let header = !matches!(self.header, HeaderArgument::Auto);
        if n_rdf == loaded.files.len() && (self.columns.is_some() || header) {
            notes.push("RDF has no columns; --columns and --header are not used".to_owned());
        }
        if n_rdf == 0 && self.literals {
            notes.push("only RDF has literals; --literals is not used".to_owned());
        }
        notes.extend(repeat_notes(loaded));
        for note in notes {
            say(&format!("note: {note}"));
        }
    }
}

fn file_notes(loaded: &Loaded) -> Vec<String> {
    let mut notes = vec![];
    for file in &loaded.files {
        let path = file.path.display();
        if let Some(header) = &file.header {
            let [subject, relation, object] = header.each_ref().map(|name| printable(name));
            notes.push(format!(
                "{path}: the first line is a header; subject, relation and object are `{subject}`, \
                 `{relation}` and `{object}`"
            ));
        }
        if file.literals_skipped > 0 {
            let skipped = counted(file.literals_skipped, "literal");
            notes.push(format!("{path}: {skipped} left out; --literals keeps them"));
        }
    }
    if let [first, ..] = &loaded.files[..]
        && first.header.is_none()
        && !is_rdf(first)
        && first_line_stands_apart(&loaded.graph)
    {
        let path = first.path.display();
        notes.push(format!(
            "{path}: the names in the first line occur nowhere else; if it is a header, use \
             --header yes"
        ));
    }
    notes
}

fn is_rdf(file: &FileReport) -> bool {
    matches!(file.format, Format::NTriples | Format::Turtle)
}

/// Whether the first triple shares no name with any other, as a header would.
fn first_line_stands_apart(graph: &Graph) -> bool {
    /// In a smaller graph, names that occur once are nothing strange.
    const LEAST_TRIPLES: usize = 10;
    let answers = graph.answers();
    // Names are numbered as they come.
    let is_used_once = |entity| {
        let queries = [Direction::Forward, Direction::Inverse]
            .into_iter()
            .flat_map(|direction| answers.queries_of(entity, direction));
        queries.map(|query| answers.up_to(query, Split::Test).len()).sum::<usize>() == 1
    };
    graph.n_triples() >= LEAST_TRIPLES
        && is_used_once(EntityId(0))
        && is_used_once(EntityId(1))
        && relation_profiles(graph)[0].triples == 1
}

fn split_notes(loaded: &Loaded) -> Vec<String> {
    let graph = &loaded.graph;
    let Some(cut) = &loaded.cut else {
        let empty =
            [Split::Valid, Split::Test].into_iter().filter(|s| graph.triples(*s).is_empty());
        return empty.map(|split| format!("there are no {split} triples")).collect();
    };
    let [train, valid, test] = Split::ALL.map(|split| count(graph.triples(split).len()));
    let mut notes = vec![format!(
        "one file, split by `{}` into {train} / {valid} / {test} (train / valid / test)",
        cut.splitter
    )];
    if cut.short_by > 0 {
        notes.push(format!(
            "{} fewer held out than asked for: training needs them to have every entity and relation",
            counted(cut.short_by, "triple")
        ));
    }
    notes
}

fn repeat_notes(loaded: &Loaded) -> Vec<String> {
    let Repeats { within, train_valid, train_test, valid_test } = loaded.graph.repeats();
    let mut notes = vec![];
    for (split, dropped) in Split::ALL.into_iter().zip(within) {
        let of_split = if loaded.cut.is_some() { String::new() } else { format!(" from {split}") };
        if dropped > 0 {
            notes.push(format!("{} dropped{of_split}", counted(dropped, "repeated triple")));
        }
    }
    for (shared, splits) in [
        (train_valid, "train and valid"),
        (train_test, "train and test"),
        (valid_test, "valid and test"),
    ] {
        if shared > 0 {
            notes.push(format!("in both {splits}: {}", counted(shared, "triple")));
        }
    }
    notes
}
