//! Records: where does one end, and where its fields?
//!
//! With quotes and without, because text without them is read without copying.
//! What the fields mean is left to `delimited`.

use std::ops::Range;

use memchr::Memchr2;

use super::source::Source;
use crate::Error;

/// Reads text without quotes record by record.
pub(super) struct PlainRecords<'a> {
    bytes: &'a [u8],
    /// Where the next record starts.
    pub(super) at: usize,
    /// The separators and line ends to come.
    marks: Memchr2<'a>,
    /// The fields of the last record.
    pub(super) fields: Vec<Range<usize>>,
}

impl<'a> PlainRecords<'a> {
    pub(super) fn new(text: &'a str, separator: u8) -> Self {
        let bytes = text.as_bytes();
        let marks = memchr::memchr2_iter(separator, b'\n', bytes);
        Self { bytes, at: 0, marks, fields: vec![] }
    }

    /// Moves to the next record, if there is one.
    pub(super) fn next(&mut self) -> bool {
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
pub(super) struct QuotedRecords<'a> {
    text: &'a str,
    separator: u8,
    /// Where the next record starts.
    pub(super) at: usize,
    /// The fields of the last record, in `unquoted`.
    pub(super) fields: Vec<Range<usize>>,
    /// The text of the last record, without its quotes.
    pub(super) unquoted: String,
}

/// What is wrong with the quotes of a record, and at which byte.
pub(super) enum QuoteFault {
    Unclosed(usize),
    Inner(usize),
    After(usize, char),
}

impl QuoteFault {
    pub(super) fn locate(self, source: &Source, start: usize) -> Error {
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
    pub(super) fn new(text: &'a str, separator: u8) -> Self {
        Self { text, separator, at: 0, fields: vec![], unquoted: String::new() }
    }

    /// Moves to the next record, if there is one.
    pub(super) fn next(&mut self) -> Result<bool, QuoteFault> {
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
