//! TSV and CSV: what do lines of separated fields say?
//!
//! TSV has no quotes; CSV has them as RFC 4180 says, and a broken one is an error.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use super::intern::Interner;
use super::records::{PlainRecords, QuoteFault, QuotedRecords};
use super::source::{self, Format, Source};
use super::{LoadOptions, Part, Parts};
use crate::{Error, FieldCount, Listing, Place};

/// Whether the first line of a file names its columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Header {
    /// It does if it has a usual word for each of subject, relation and object.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It is a triple, unless columns are given by name.
    No,
}

/// Where subject, relation and object stand in a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns(pub [Column; 3]);

/// A column of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Column {
    /// Counted from one.
    Number(usize),
    /// As the header has it.
    Name(String),
}

/// A text that does not name three columns.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error(
    "expected three different columns by number or by name, such as `1,3,2` or `head,relation,tail`"
)]
pub struct ColumnsError;

impl Columns {
    /// Whether a column is given by its name, which only a header can have.
    pub fn by_name(&self) -> bool {
        self.0.iter().any(|column| matches!(column, Column::Name(_)))
    }

    /// The places of the columns, counted from zero, or the name that the header lacks or has twice.
    fn find(&self, header: &[String]) -> Result<[usize; 3], &str> {
        let mut places = [0; 3];
        for (place, column) in places.iter_mut().zip(&self.0) {
            *place = match column {
                Column::Number(number) => number - 1,
                Column::Name(name) => {
                    let mut matches = (0..header.len()).filter(|&i| header[i] == *name);
                    match (matches.next(), matches.next()) {
                        (Some(place), None) => place,
                        _ => return Err(name),
                    }
                }
            };
        }
        Ok(places)
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |column: &Column| match column {
            Column::Number(number) => number.to_string(),
            Column::Name(name) => name.clone(),
        };
        f.write_str(&self.0.each_ref().map(name).join(","))
    }
}

impl FromStr for Columns {
    type Err = ColumnsError;

    fn from_str(text: &str) -> Result<Self, ColumnsError> {
        let column = |text: &str| match text.parse() {
            Ok(0) => Err(ColumnsError),
            Ok(number) => Ok(Column::Number(number)),
            Err(_) if text.is_empty() => Err(ColumnsError),
            Err(_) => Ok(Column::Name(text.to_owned())),
        };
        let columns = text.split(',').map(column).collect::<Result<Vec<_>, _>>()?;
        let [subject, relation, object] = columns.try_into().map_err(|_| ColumnsError)?;
        if subject == relation || relation == object || object == subject {
            return Err(ColumnsError);
        }
        Ok(Columns([subject, relation, object]))
    }
}

/// A line of separated fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Where it stands.
    pub place: Place,
    /// Its fields, without their quotes.
    pub fields: Vec<String>,
}

/// Reads lines that are no triples, such as queries or lists of names: CSV if the name of the file
/// says so, else fields between tabs. Empty lines are left out.
///
/// # Errors
/// When the file cannot be read, is no text, or has a broken quote.
pub fn load_rows(path: &Path) -> Result<Vec<Row>, Error> {
    let source = source::read(path, None).or_else(|error| match error {
        Error::UnknownFormat { .. } => source::read(path, Some(Format::Tsv)),
        other => Err(other),
    })?;
    let body = source.body();
    let (text, fault) = text(&source, body.clone());
    let mut rows = Vec::new();
    let mut place = source.place(body.start);
    let mut push = |start: usize, end: usize, fields: Vec<String>| {
        if fields.iter().any(|field| !field.is_empty()) {
            rows.push(Row { place: place.clone(), fields });
        }
        place.line +=
            memchr::memchr_iter(b'\n', &text.as_bytes()[start..end.min(text.len())]).count();
    };
    if source.format == Format::Csv {
        let mut records = QuotedRecords::new(text, b',');
        loop {
            let start = records.at;
            match (records.next(), &fault) {
                (Ok(false), _) | (Err(QuoteFault::Unclosed(_)), Some(_)) => break,
                (Err(quote), _) => return Err(quote.locate(&source, body.start)),
                (Ok(true), _) => {}
            }
            let field = |range: &Range<usize>| records.unquoted[range.clone()].to_owned();
            push(start, records.at, records.fields.iter().map(field).collect());
        }
    } else {
        let mut records = PlainRecords::new(text, b'\t');
        loop {
            let start = records.at;
            if !records.next() {
                break;
            }
            let field = |range: &Range<usize>| text[range.clone()].to_owned();
            push(start, records.at, records.fields.iter().map(field).collect());
        }
    }
    fault.map_or(Ok(rows), Err)
}

const SLOTS: [&str; 3] = ["subject", "relation", "object"];

/// What headers usually call subject, relation and object.
const HEADER_WORDS: [&[&str]; 3] = [
    &["subject", "head", "source", "from"],
    &["relation", "relationship", "predicate", "property", "edge", "metaedge", "type"],
    &["object", "tail", "target", "to"],
];

/// A delimited file whose columns are known.
#[derive(Clone)]
pub(super) struct Table<'a> {
    source: &'a Source,
    /// The lines that hold triples.
    rows: Range<usize>,
    columns: [usize; 3],
    expected: FieldCount,
    quoted: bool,
    /// The names of the three columns, if the first line gave them.
    pub(super) header: Option<[String; 3]>,
}

impl<'a> Table<'a> {
    /// Reads the first line and finds the columns; nothing if there is no line.
    pub(super) fn open(source: &'a Source, options: &LoadOptions) -> Result<Option<Self>, Error> {
        let body = source.body();
        if body.is_empty() {
            return Ok(None);
        }
        let quoted = source.format == Format::Csv
            && memchr::memchr(b'"', &source.bytes[body.clone()]).is_some();
        let first = first_line(source, body.clone(), quoted)?;
        let n_fields = first.fields.len();
        let usual = usual_columns(&first.fields);
        let by_name = options.columns.as_ref().is_some_and(Columns::by_name);
        let has_header = match options.header {
            Header::Yes => true,
            Header::No => by_name,
            Header::Auto => by_name || usual.is_some(),
        };
        let chosen = match &options.columns {
            None => usual.filter(|_| has_header),
            Some(columns) => Some(columns.find(&first.fields).map_err(|name| Error::NoColumn {
                place: source.place(body.start),
                column: name.to_owned(),
                found: Listing(first.fields.clone()),
            })?),
        };
        let columns = chosen.unwrap_or([0, 1, 2]);
        let needed = columns.into_iter().max().unwrap_or_default() + 1;
        let expected = match chosen {
            None => FieldCount::Exactly(3),
            Some(_) if has_header => FieldCount::Exactly(n_fields.max(needed)),
            Some(_) => FieldCount::AtLeast(needed),
        };
        let rows = body.clone();
        let mut table = Self { source, rows, columns, expected, quoted, header: None };
        if has_header {
            if !expected.fits(n_fields) {
                return Err(table.wrong_fields(body.start, n_fields));
            }
            table.header = Some(columns.map(|column| first.fields[column].clone()));
            table.rows.start = first.end;
        }
        Ok(Some(table))
    }

    /// Runs of whole lines that can be parsed side by side.
    pub(super) fn pieces(&self) -> Vec<Range<usize>> {
        // A quoted field may hold a line end, so only reading from the start tells where lines are.
        if self.quoted { vec![self.rows.clone()] } else { self.source.lines(self.rows.clone()) }
    }

    /// Parses a run of whole lines.
    pub(super) fn parse(
        &self,
        range: Range<usize>,
        interner: &Interner,
    ) -> Result<Vec<Part>, Error> {
        let (text, fault) = text(self.source, range.clone());
        let mut parts = Parts::new(interner);
        let parsed = if self.quoted {
            self.parse_quoted(text, range.start, &mut parts)
        } else {
            self.parse_plain(text, range.start, &mut parts)
        };
        match (parsed, fault) {
            // The text stops at a fault, perhaps within quotes; then that is the reason.
            (Ok(()) | Err(Error::UnclosedQuote { .. }), Some(fault)) => Err(fault),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Ok(parts.parts),
        }
    }

    fn parse_plain(&self, text: &str, offset: usize, parts: &mut Parts) -> Result<(), Error> {
        let mut records = PlainRecords::new(text, self.separator());
        loop {
            let start = offset + records.at;
            if !records.next() {
                return Ok(());
            }
            parts.push(self.names(text, &records.fields, start)?)?;
        }
    }

    fn parse_quoted(&self, text: &str, offset: usize, parts: &mut Parts) -> Result<(), Error> {
        let mut records = QuotedRecords::new(text, self.separator());
        loop {
            let start = offset + records.at;
            if !records.next().map_err(|fault| fault.locate(self.source, offset))? {
                return Ok(());
            }
            parts.push(self.names(&records.unquoted, &records.fields, start)?)?;
        }
    }

    /// The three names of a record, which starts at a byte of the file.
    fn names<'t>(
        &self,
        text: &'t str,
        fields: &[Range<usize>],
        start: usize,
    ) -> Result<[&'t str; 3], Error> {
        if !self.expected.fits(fields.len()) {
            return Err(match fields {
                [only] if only.is_empty() => Error::EmptyLine { place: self.source.place(start) },
                _ => self.wrong_fields(start, fields.len()),
            });
        }
        let names = self.columns.map(|column| &text[fields[column].clone()]);
        match names.iter().position(|name| name.is_empty()) {
            None => Ok(names),
            Some(slot) => Err(Error::EmptyName {
                place: self.source.place(start),
                slot: SLOTS[slot],
                field: self.columns[slot] + 1,
            }),
        }
    }

    fn separator(&self) -> u8 {
        separator(self.source)
    }

    fn wrong_fields(&self, offset: usize, found: usize) -> Error {
        let separator = if self.separator() == b'\t' { "tab" } else { "comma" };
        let place = self.source.place(offset);
        Error::Fields { place, expected: self.expected, separator, found }
    }
}

fn separator(source: &Source) -> u8 {
    if source.format == Format::Csv { b',' } else { b'\t' }
}

/// The text of a range, up to the line of the first byte that is none, and what is wrong with it.
fn text(source: &Source, range: Range<usize>) -> (&str, Option<Error>) {
    let bytes = &source.bytes[range.clone()];
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    };
    let bad = memchr::memchr(0, valid.as_bytes()).unwrap_or(valid.len());
    if bad == bytes.len() {
        return (valid, None);
    }
    let place = source.place(range.start + bad);
    let line_start = valid[..bad].rfind('\n').map_or(0, |newline| newline + 1);
    (&valid[..line_start], Some(Error::Encoding { place, byte: bytes[bad] }))
}

struct FirstLine {
    fields: Vec<String>,
    /// Where the next line starts.
    end: usize,
}

fn first_line(source: &Source, body: Range<usize>, quoted: bool) -> Result<FirstLine, Error> {
    let bytes = &source.bytes[body.clone()];
    let end = match memchr::memchr(b'\n', bytes) {
        Some(newline) if !quoted => body.start + newline + 1,
        _ => body.end,
    };
    let (text, fault) = text(source, body.start..end);
    if !quoted {
        let mut records = PlainRecords::new(text, separator(source));
        let found = records.next();
        let fields = records.fields.iter().map(|field| text[field.clone()].to_owned()).collect();
        return match fault {
            Some(fault) if !found => Err(fault),
            _ => Ok(FirstLine { fields, end }),
        };
    }
    let mut records = QuotedRecords::new(text, separator(source));
    match (records.next(), fault) {
        (Ok(false) | Err(QuoteFault::Unclosed(_)), Some(fault)) => return Err(fault),
        (Err(quote), _) => return Err(quote.locate(source, body.start)),
        (Ok(_), _) => {}
    }
    let field = |range: &Range<usize>| records.unquoted[range.clone()].to_owned();
    let fields = records.fields.iter().map(field).collect();
    Ok(FirstLine { fields, end: (body.start + records.at).min(body.end) })
}

/// Whether fields are usual words for subject, relation and object, or for the first two.
pub fn is_header(fields: &[String]) -> bool {
    let is_word =
        |(field, words): (&String, &[&str])| words.contains(&field.trim().to_lowercase().as_str());
    (2..=3).contains(&fields.len()) && fields.iter().zip(HEADER_WORDS).all(is_word)
}

/// The columns of a header that has one usual word for each slot.
fn usual_columns(fields: &[String]) -> Option<[usize; 3]> {
    let mut columns = [0; 3];
    for (column, words) in columns.iter_mut().zip(HEADER_WORDS) {
        let is_word = |field: &String| words.contains(&field.trim().to_lowercase().as_str());
        let mut places = fields.iter().enumerate().filter(|(_, field)| is_word(field));
        *column = places.next()?.0;
        if places.next().is_some() {
            return None;
        }
    }
    Some(columns)
}
