//! What do lines of separated fields say?
//!
//! TSV has no quotes; CSV has them as RFC 4180 says, and a broken one is an error.

use std::ops::Range;
use std::str::FromStr;

use memchr::Memchr2;

use super::intern::Interner;
use super::source::{Format, Source};
use super::{LoadOptions, Part, Parts};
use crate::{Error, FieldCount, Listing};

/// Whether the first line of a file names its columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Header {
    /// It does if it has a usual word for each of subject, relation and object.
    #[default]
    Auto,
    /// It does.
    Yes,
    /// It is a triple.
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
#[error("expected three columns by number or by name, such as `1,3,2` or `head,relation,tail`")]
pub struct ColumnsError;

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
        Ok(Columns(columns.try_into().map_err(|_| ColumnsError)?))
    }
}

const SLOTS: [&str; 3] = ["subject", "relation", "object"];

/// What headers usually call subject, relation and object.
const HEADER_WORDS: [&[&str]; 3] = [
    &["subject", "head", "source", "from"],
    &["relation", "predicate", "property", "edge"],
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
}

impl<'a> Table<'a> {
    /// Reads the first line and finds the columns; nothing if there is no line.
    pub(super) fn open(
        source: &'a Source,
        options: &LoadOptions,
    ) -> Result<Option<(Self, Option<[String; 3]>)>, Error> {
        let body = source.body();
        if body.is_empty() {
            return Ok(None);
        }
        let quoted = source.format == Format::Csv
            && memchr::memchr(b'"', &source.bytes[body.clone()]).is_some();
        let first = first_line(source, body.clone(), quoted)?;
        let place = || source.place(body.start);
        let named = |name: &String| {
            first.fields.iter().position(|field| field == name).ok_or_else(|| Error::NoColumn {
                place: place(),
                column: name.clone(),
                found: Listing(first.fields.clone()),
            })
        };
        let usual = usual_columns(&first.fields);
        let by_name =
            |columns: &Columns| columns.0.iter().any(|column| matches!(column, Column::Name(_)));
        let has_header = match options.header {
            Header::Yes => true,
            Header::No => false,
            Header::Auto => usual.is_some() || options.columns.as_ref().is_some_and(by_name),
        };
        let columns = match (&options.columns, usual) {
            (Some(Columns(columns)), _) => {
                let mut found = [0; 3];
                for (found, column) in found.iter_mut().zip(columns) {
                    *found = match column {
                        Column::Number(number) => number - 1,
                        Column::Name(name) => named(name)?,
                    };
                }
                found
            }
            (None, Some(usual)) if has_header => usual,
            (None, _) => [0, 1, 2],
        };
        let last = columns.into_iter().max().unwrap_or_default();
        let expected = match (has_header, &options.columns) {
            (true, _) if last < first.fields.len() => FieldCount::Exactly(first.fields.len()),
            (_, Some(_)) => FieldCount::AtLeast(last + 1),
            (_, None) => FieldCount::Exactly(3),
        };
        let rows = if has_header { first.end..body.end } else { body };
        let table = Self { source, rows, columns, expected, quoted };
        let header = has_header.then(|| columns.map(|column| first.fields.get(column).cloned()));
        let header = match header {
            // A header that lacks a column is caught here, not at the first triple.
            Some(names) if names.contains(&None) => {
                return Err(table.wrong_fields(0, first.fields.len()));
            }
            header => header.map(|names| names.map(Option::unwrap_or_default)),
        };
        Ok(Some((table, header)))
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
        let fits = match self.expected {
            FieldCount::Exactly(n) => fields.len() == n,
            FieldCount::AtLeast(n) => fields.len() >= n,
        };
        if !fits {
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

/// Reads text without quotes record by record.
struct PlainRecords<'a> {
    bytes: &'a [u8],
    /// Where the next record starts.
    at: usize,
    /// The separators and line ends to come.
    marks: Memchr2<'a>,
    /// The fields of the last record.
    fields: Vec<Range<usize>>,
}

impl<'a> PlainRecords<'a> {
    fn new(text: &'a str, separator: u8) -> Self {
        let bytes = text.as_bytes();
        let marks = memchr::memchr2_iter(separator, b'\n', bytes);
        Self { bytes, at: 0, marks, fields: vec![] }
    }

    /// Moves to the next record, if there is one.
    fn next(&mut self) -> bool {
        if self.at >= self.bytes.len() {
            return false;
        }
        self.fields.clear();
        loop {
            let mark = self.marks.next().unwrap_or(self.bytes.len());
            let line_ends = self.bytes.get(mark).is_none_or(|&byte| byte == b'\n');
            let carriage_return = line_ends && mark > self.at && self.bytes[mark - 1] == b'\r';
            self.fields.push(self.at..if carriage_return { mark - 1 } else { mark });
            self.at = mark + 1;
            if line_ends {
                return true;
            }
        }
    }
}

/// Reads text with quotes record by record.
struct QuotedRecords<'a> {
    text: &'a str,
    separator: u8,
    /// Where the next record starts.
    at: usize,
    /// The fields of the last record, in `unquoted`.
    fields: Vec<Range<usize>>,
    /// The text of the last record, without its quotes.
    unquoted: String,
}

/// What is wrong with the quotes of a record, and at which byte.
enum QuoteFault {
    Unclosed(usize),
    Inner(usize),
    After(usize, char),
}

impl QuoteFault {
    fn locate(self, source: &Source, start: usize) -> Error {
        match self {
            QuoteFault::Unclosed(at) => Error::UnclosedQuote { place: source.place(start + at) },
            QuoteFault::Inner(at) => Error::InnerQuote { place: source.place(start + at) },
            QuoteFault::After(at, found) => {
                Error::AfterQuote { place: source.place(start + at), found }
            }
        }
    }
}

impl<'a> QuotedRecords<'a> {
    fn new(text: &'a str, separator: u8) -> Self {
        Self { text, separator, at: 0, fields: vec![], unquoted: String::new() }
    }

    /// Moves to the next record, if there is one.
    fn next(&mut self) -> Result<bool, QuoteFault> {
        if self.at >= self.text.len() {
            return Ok(false);
        }
        self.fields.clear();
        self.unquoted.clear();
        loop {
            let start = self.unquoted.len();
            if self.text[self.at..].starts_with('"') {
                self.take_quoted()?;
            } else {
                self.take_unquoted()?;
            }
            self.fields.push(start..self.unquoted.len());
            // A CR is part of the line end only where the line ends.
            if self.text[self.at..].starts_with("\r\n") || &self.text[self.at..] == "\r" {
                self.at += 1;
            }
            let next = self.text[self.at..].chars().next();
            self.at += next.map_or(1, char::len_utf8);
            match next {
                None | Some('\n') => return Ok(true),
                Some(other) if other as u32 == u32::from(self.separator) => {}
                Some(other) => {
                    return Err(QuoteFault::After(self.at - other.len_utf8(), other));
                }
            }
        }
    }

    /// Takes a field that starts with a quote, up to its closing one.
    fn take_quoted(&mut self) -> Result<(), QuoteFault> {
        let opening = self.at;
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let quote = rest.find('"').ok_or(QuoteFault::Unclosed(opening))?;
            self.unquoted.push_str(&rest[..quote]);
            self.at += quote + 1;
            if !rest[quote + 1..].starts_with('"') {
                return Ok(());
            }
            self.unquoted.push('"');
            self.at += 1;
        }
    }

    /// Takes a field without quotes, up to its separator or line end.
    fn take_unquoted(&mut self) -> Result<(), QuoteFault> {
        let rest = &self.text[self.at..];
        let end = memchr::memchr2(self.separator, b'\n', rest.as_bytes()).unwrap_or(rest.len());
        let mut field = &rest[..end];
        if rest.as_bytes().get(end) != Some(&self.separator) {
            field = field.strip_suffix('\r').unwrap_or(field);
        }
        if let Some(quote) = field.find('"') {
            return Err(QuoteFault::Inner(self.at + quote));
        }
        self.unquoted.push_str(field);
        self.at += field.len();
        Ok(())
    }
}
