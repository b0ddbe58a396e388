//! Sources: which files make up a dataset, and what text is in them?

use std::fs;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::FileReport;
use crate::error::Listing;
use crate::{Error, Place, Split};

/// How triples are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Fields separated by tabs, nothing quoted.
    Tsv,
    /// Fields separated by commas, quoted where they hold commas, quotes or line ends.
    Csv,
    /// RDF, a statement a line.
    NTriples,
    /// RDF with prefixes.
    Turtle,
}

impl Format {
    /// Which ending of a file's name stands for which format.
    const ENDINGS: [(&str, Format); 6] = [
        ("tsv", Format::Tsv),
        ("txt", Format::Tsv),
        // Hetionet's: one edge a line, between tabs.
        ("sif", Format::Tsv),
        ("csv", Format::Csv),
        ("nt", Format::NTriples),
        ("ttl", Format::Turtle),
    ];
    const KNOWN: &str = ".tsv, .txt, .sif, .csv, .nt or .ttl";

    fn from_ending(ending: &str) -> Option<Format> {
        Self::ENDINGS.into_iter().find(|(known, _)| *known == ending).map(|(_, format)| format)
    }
}

/// How a file is compressed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Archive {
    Plain,
    Gzip,
    Zstd,
}

impl Archive {
    const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
    const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

    /// What the first bytes say; no text starts like this.
    fn from_magic(bytes: &[u8]) -> Archive {
        if bytes.starts_with(&Self::GZIP_MAGIC) {
            Archive::Gzip
        } else if bytes.starts_with(&Self::ZSTD_MAGIC) {
            Archive::Zstd
        } else {
            Archive::Plain
        }
    }

    fn name(self) -> &'static str {
        match self {
            Archive::Plain => "plain",
            Archive::Gzip => "gzip",
            Archive::Zstd => "zstd",
        }
    }
}

/// What the name of a file says: `train.tsv.gz` is (`train`, tab-separated, gzip).
struct FileName<'a> {
    stem: &'a str,
    format: Option<Format>,
    archive: Archive,
}

impl<'a> FileName<'a> {
    fn parse(path: &'a Path) -> Self {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let (name, archive) = match name.rsplit_once('.') {
            Some((rest, ending)) if ending.eq_ignore_ascii_case("gz") => (rest, Archive::Gzip),
            Some((rest, ending)) if ending.eq_ignore_ascii_case("zst") => (rest, Archive::Zstd),
            _ => (name, Archive::Plain),
        };
        let (stem, format) = match name.rsplit_once('.') {
            Some((stem, ending)) => (stem, Format::from_ending(&ending.to_lowercase())),
            None => (name, None),
        };
        Self { stem, format, archive }
    }

    fn split(&self) -> Option<Split> {
        match self.stem {
            "train" | "training" => Some(Split::Train),
            "valid" | "validation" | "val" | "dev" => Some(Split::Valid),
            "test" | "testing" => Some(Split::Test),
            _ => None,
        }
    }
}

/// The files of a dataset with their splits, in the order of the splits.
///
/// A single file has no split: it is all there is, and is to be cut.
pub(super) fn locate(
    data: &Path,
    format: Option<Format>,
) -> Result<Vec<(Option<Split>, PathBuf)>, Error> {
    if !data.is_dir() {
        return Ok(vec![(None, data.to_owned())]);
    }
    let fail = |source| Error::Read { path: data.to_owned(), source };
    let mut graphs: Vec<PathBuf> = fs::read_dir(data)
        .map_err(fail)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()
        .map_err(fail)?;
    graphs.retain(|path| path.is_file());
    graphs.sort();
    let is_train = |path: &&PathBuf| FileName::parse(path).split() == Some(Split::Train);
    let known_ending = |path: &PathBuf| FileName::parse(path).format.is_some();
    // Other endings count only where the user says what is in the files, and none is known.
    if format.is_none() || graphs.iter().filter(is_train).any(known_ending) {
        graphs.retain(known_ending);
    }

    let mut files = vec![];
    for split in Split::ALL {
        let of_split: Vec<&PathBuf> =
            graphs.iter().filter(|path| FileName::parse(path).split() == Some(split)).collect();
        match of_split[..] {
            [] => {}
            [file] => files.push((Some(split), file.clone())),
            _ => {
                let (folder, found) = (data.to_owned(), listing(of_split));
                return Err(Error::TwoFiles { folder, split, found });
            }
        }
    }
    if files.is_empty() && graphs.len() == 1 {
        return Ok(vec![(None, graphs.remove(0))]);
    }
    if files.first().is_none_or(|(split, _)| *split != Some(Split::Train)) {
        return Err(Error::NoTrain { folder: data.to_owned(), found: listing(&graphs) });
    }
    Ok(files)
}

fn listing<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> Listing {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Listing(paths.into_iter().map(name).collect())
}

/// The text of a file.
pub(super) struct Source {
    /// As the user named it.
    pub(super) path: PathBuf,
    pub(super) format: Format,
    /// Decompressed, but not yet known to be text.
    pub(super) bytes: Vec<u8>,
}

/// Reads and decompresses a file.
pub(super) fn read(path: &Path, format: Option<Format>) -> Result<Source, Error> {
    let file = fs::File::open(path)
        .and_then(|file| match file.metadata()?.is_dir() {
            true => Err(io::ErrorKind::IsADirectory.into()),
            false => Ok(file),
        })
        .map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let mut source = Source::new(path, format)?;
    source.fill(file, FileName::parse(path).archive)?;
    Ok(source)
}

/// Takes the bytes of a file, compressed or not.
pub(super) fn decode(path: &Path, bytes: Vec<u8>, format: Option<Format>) -> Result<Source, Error> {
    let mut source = Source::new(path, format)?;
    match Archive::from_magic(&bytes) {
        Archive::Plain => source.bytes = bytes,
        archive => source.fill(bytes.as_slice(), archive)?,
    }
    Ok(source)
}

fn decompress(mut input: impl Read, archive: Archive, bytes: &mut Vec<u8>) -> io::Result<()> {
    match archive {
        Archive::Plain => input.read_to_end(bytes),
        Archive::Gzip => flate2::read::MultiGzDecoder::new(input).read_to_end(bytes),
        Archive::Zstd => zstd::Decoder::new(input)?.read_to_end(bytes),
    }?;
    Ok(())
}

impl Source {
    /// A file without its text; `format` is what the user says, where the name does not count.
    fn new(path: &Path, format: Option<Format>) -> Result<Self, Error> {
        let unknown = || Error::UnknownFormat { path: path.to_owned(), known: Format::KNOWN };
        let format = format.or(FileName::parse(path).format).ok_or_else(unknown)?;
        Ok(Self { path: path.to_owned(), format, bytes: vec![] })
    }

    /// Reads and decompresses its text.
    fn fill(&mut self, input: impl Read, archive: Archive) -> Result<(), Error> {
        decompress(input, archive, &mut self.bytes).map_err(|error| self.unreadable(archive, error))
    }

    /// Where in the file a byte stands.
    pub(super) fn place(&self, offset: usize) -> Place {
        let before = &self.bytes[..offset.min(self.bytes.len())];
        let line = 1 + memchr::memchr_iter(b'\n', before).count();
        Place { path: self.path.clone(), line }
    }

    /// Everything but a byte-order mark and line ends at the end.
    pub(super) fn body(&self) -> Range<usize> {
        const BYTE_ORDER_MARK: &[u8] = &[0xef, 0xbb, 0xbf];
        let start = if self.bytes.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
        let line_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
        let blank = self.bytes[start..].iter().rev().take_while(|byte| line_end(byte)).count();
        start..self.bytes.len() - blank
    }

    /// Cuts a range into runs of whole lines.
    pub(super) fn lines(&self, range: Range<usize>) -> Vec<Range<usize>> {
        let mut pieces = vec![];
        let mut start = range.start;
        while start < range.end {
            let aim = (start + super::PIECE_BYTES).min(range.end);
            let end = memchr::memchr(b'\n', &self.bytes[aim..range.end])
                .map_or(range.end, |newline| aim + newline + 1);
            pieces.push(start..end);
            start = end;
        }
        pieces
    }

    /// Why there is no triple in this file.
    pub(super) fn empty(&self, report: &FileReport) -> Error {
        let found = match self.body().is_empty() {
            _ if self.bytes.is_empty() => "an empty file",
            true => "only empty lines",
            false if report.header.is_some() => "only a header",
            false if report.literals_skipped > 0 => "only literals",
            false => "none",
        };
        Error::Empty { place: self.place(0), found }
    }

    fn unreadable(&self, archive: Archive, error: io::Error) -> Error {
        let found = match error.kind() {
            io::ErrorKind::UnexpectedEof => "its end in the middle",
            // What the decoders call data that is not theirs.
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Other => {
                "other data"
            }
            _ => return Error::Read { path: self.path.clone(), source: error },
        };
        let place = self.place(self.bytes.len());
        Error::Archive { place, archive: archive.name(), found }
    }
}
