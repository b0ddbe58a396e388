//! Loading: how does a file become a graph?
//!
//! Finds the files of a dataset, reads and decompresses them, parses them in parallel and joins
//! the parts. The result does not depend on the number of threads.
//! What a line means is the business of `delimited` and `rdf`, cutting one file into splits that
//! of [`crate::split`].

mod candidates;
mod delimited;
mod intern;
mod rdf;
mod records;
mod source;

use std::path::{Path, PathBuf};

use rayon::prelude::*;

pub use candidates::{Candidates, Rows, check_array, load_candidates};
pub use delimited::{Column, Columns, ColumnsError, Header, Row, is_header, load_rows};
pub use source::Format;

use crate::split::{Cut, CutOptions};
use crate::{EntityId, Error, Graph, Names, RelationId, Split, Triple, index};
use intern::{EarlyId, Interner, Mentions};
use source::Source;

/// How to read files that leave a choice. The defaults suit most.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The format of all files, whatever their names say.
    pub format: Option<Format>,
    /// Where subject, relation and object stand in a line; the first three fields by default.
    pub columns: Option<Columns>,
    /// Whether the first line names the columns.
    pub header: Header,
    /// What becomes of RDF literals.
    pub literals: Literals,
    /// How a single file is cut into train, valid and test.
    pub cut: CutOptions,
}

/// What becomes of triples whose object is an RDF literal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Literals {
    /// They are left out and counted.
    #[default]
    Skip,
    /// The literal becomes an entity, named as in N-Triples.
    Keep,
}

/// A graph and what there is to say about how it was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The graph.
    pub graph: Graph,
    /// What was found in each file.
    pub files: Vec<FileReport>,
    /// How it was cut, if it was one file.
    pub cut: Option<Cut>,
}

/// What was found in a file.
#[derive(Clone, Debug)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// How it was read.
    pub format: Format,
    /// Lines or statements that became triples, repeated ones included.
    pub triples: usize,
    /// Statements left out because their object is a literal.
    pub literals_skipped: usize,
    /// The names of the subject, relation and object columns, if the first line gave them.
    pub header: Option<[String; 3]>,
}

/// Loads a folder with train, valid and test, or a single file, which is then cut.
///
/// # Errors
/// When something cannot be read or does not hold what it should; see [`Error`].
pub fn load(data: &Path, options: &LoadOptions) -> Result<Loaded, Error> {
    let files = source::locate(data, options.format)?;
    // Collected in order, so that the first fault is the one reported.
    let sources: Vec<Result<Source, Error>> =
        files.par_iter().map(|(_, path)| source::read(path, options.format)).collect();
    let sources = sources.into_iter().collect::<Result<_, Error>>()?;
    let splits: Vec<Option<Split>> = files.into_iter().map(|(split, _)| split).collect();
    assemble(&splits, sources, options)
}

/// Loads a single file that is in memory already, compressed or not, and cuts it.
///
/// # Errors
/// As for [`load`]; `name` is what errors call the file, and its ending tells the format.
pub fn load_bytes(name: &Path, bytes: Vec<u8>, options: &LoadOptions) -> Result<Loaded, Error> {
    let source = source::decode(name, bytes, options.format)?;
    assemble(&[None], vec![source], options)
}

/// What one piece of a file holds.
struct Part {
    /// The subject and object of each triple, one after the other.
    entities: Mentions,
    relations: Names,
    relation_ids: Vec<RelationId>,
    literals_skipped: usize,
}

/// Bytes of text that are parsed at a time: enough to be worth a task, few enough for the cache.
const PIECE_BYTES: usize = 1 << 21;

/// Pieces that are parsed before their names get ids. Memory goes with it, waiting against it.
const PIECES_AT_ONCE: usize = 16;

/// Parts that grow one after the other.
struct Parts<'a> {
    parts: Vec<Part>,
    interner: &'a Interner,
}

impl<'a> Parts<'a> {
    fn new(interner: &'a Interner) -> Self {
        let mut parts = Self { parts: vec![], interner };
        parts.open();
        parts
    }

    fn open(&mut self) {
        self.parts.push(Part {
            entities: self.interner.mentions(),
            relations: Names::default(),
            relation_ids: vec![],
            literals_skipped: 0,
        });
    }

    fn push(&mut self, [subject, relation, object]: [&str; 3]) -> Result<(), Error> {
        // Places within a part are 32 bits wide.
        let limit = 1 << 30;
        if subject.len().max(object.len()) > limit {
            return Err(Error::TooMany { what: "bytes in a name", limit });
        }
        let part = self.last();
        part.entities.push(subject);
        part.entities.push(object);
        part.relation_ids.push(RelationId(part.relations.intern(relation)?));
        if part.entities.is_full() {
            self.open();
        }
        Ok(())
    }

    fn last(&mut self) -> &mut Part {
        self.parts.last_mut().expect("there is a part from the start")
    }
}

/// Parses all sources and builds the graph. No split means: all that there is, to be cut.
fn assemble(
    splits: &[Option<Split>],
    sources: Vec<Source>,
    options: &LoadOptions,
) -> Result<Loaded, Error> {
    let Plan { pieces, reports: mut files } = plan(&sources, options)?;
    let mut join = Join::new();
    for batch in pieces.chunks(PIECES_AT_ONCE) {
        // Collected in order, so that the first fault of a file is the one reported.
        let parsed: Vec<Result<Vec<Part>, Error>> =
            batch.par_iter().map(|piece| piece.parse(options, &join.interner)).collect();
        let mut parts = vec![];
        for (piece, parsed) in batch.iter().zip(parsed) {
            let split = splits[piece.source].unwrap_or(Split::Train);
            for part in parsed? {
                files[piece.source].triples += part.relation_ids.len();
                files[piece.source].literals_skipped += part.literals_skipped;
                parts.push((split, part));
            }
        }
        join.add(parts)?;
    }
    for ((file, source), split) in files.iter().zip(&sources).zip(splits) {
        if file.triples == 0 && split.is_none_or(|split| split == Split::Train) {
            return Err(source.empty(file));
        }
    }
    // Large, and no longer needed: all names have been copied.
    drop(pieces);
    drop(sources);
    let (entities, relations, triples) = join.finish()?;
    if splits.contains(&None) {
        let [triples, ..] = triples;
        let (graph, cut) = Graph::from_uncut_triples(entities, relations, triples, &options.cut)?;
        return Ok(Loaded { graph, files, cut: Some(cut) });
    }
    Ok(Loaded { graph: Graph::from_triples(entities, relations, triples)?, files, cut: None })
}

/// Gives the parts common ids, in the order in which names first appear in the files.
struct Join {
    interner: Interner,
    relations: Names,
    /// With early ids in the place of entities until the end.
    triples: [Vec<Triple>; 3],
}

impl Join {
    fn new() -> Self {
        Self { interner: Interner::new(), relations: Names::default(), triples: Default::default() }
    }

    fn add(&mut self, parts: Vec<(Split, Part)>) -> Result<(), Error> {
        let first = self.triples.each_ref().map(Vec::len);
        let (mut entities, mut lengths) = (vec![], vec![]);
        for (split, part) in parts {
            let ids = part.relations.iter().map(|name| self.relations.intern(name));
            let ids = ids.collect::<Result<Vec<u32>, Error>>()?;
            let unknown = EntityId(u32::MAX);
            self.triples[split as usize].extend(part.relation_ids.iter().map(|relation| Triple {
                subject: unknown,
                relation: RelationId(ids[relation.0 as usize]),
                object: unknown,
            }));
            lengths.push((split, part.relation_ids.len()));
            entities.push(part.entities);
        }
        self.interner.intern(&mut entities)?;

        // Files, and so parts, come in the order of their splits.
        let mut runs = vec![];
        for ((triples, first), split) in self.triples.iter_mut().zip(first).zip(Split::ALL) {
            let of_split = lengths.iter().filter(|(other, _)| *other == split);
            runs.extend(index::cut(&mut triples[first..], of_split.map(|(_, length)| *length)));
        }
        entities.par_iter().zip(runs).for_each(|(entities, run)| {
            entities.each_id(|place, id| {
                let triple = &mut run[place / 2];
                let slot = if place % 2 == 0 { &mut triple.subject } else { &mut triple.object };
                slot.0 = id.bits();
            });
        });
        self.interner.recycle(entities);
        Ok(())
    }

    fn finish(self) -> Result<(Names, Names, [Vec<Triple>; 3]), Error> {
        let (entities, ids) = self.interner.finish()?;
        let mut triples = self.triples;
        for split in &mut triples {
            split.par_iter_mut().for_each(|triple| {
                for entity in [&mut triple.subject, &mut triple.object] {
                    entity.0 = ids.of(EarlyId::from_bits(entity.0));
                }
            });
        }
        Ok((entities, self.relations, triples))
    }
}

struct Plan<'a> {
    pieces: Vec<Piece<'a>>,
    reports: Vec<FileReport>,
}

/// A run of whole lines of a file, or all of it.
struct Piece<'a> {
    source: usize,
    range: std::ops::Range<usize>,
    reader: Reader<'a>,
}

enum Reader<'a> {
    Delimited(delimited::Table<'a>),
    Rdf(&'a Source),
}

impl Piece<'_> {
    fn parse(&self, options: &LoadOptions, interner: &Interner) -> Result<Vec<Part>, Error> {
        let range = self.range.clone();
        match &self.reader {
            Reader::Delimited(table) => table.parse(range, interner),
            Reader::Rdf(source) => rdf::parse(source, range, options.literals, interner),
        }
    }
}

/// Cuts every source into pieces that can be parsed side by side.
fn plan<'a>(sources: &'a [Source], options: &LoadOptions) -> Result<Plan<'a>, Error> {
    let mut plan = Plan { pieces: vec![], reports: vec![] };
    for (index, source) in sources.iter().enumerate() {
        let mut report = FileReport {
            path: source.path.clone(),
            format: source.format,
            triples: 0,
            literals_skipped: 0,
            header: None,
        };
        let mut add = |range, reader| plan.pieces.push(Piece { source: index, range, reader });
        match source.format {
            Format::Tsv | Format::Csv => {
                if let Some(table) = delimited::Table::open(source, options)? {
                    report.header = table.header.clone();
                    for range in table.pieces() {
                        add(range, Reader::Delimited(table.clone()));
                    }
                }
            }
            // A newline always ends a statement in N-Triples, but not in Turtle.
            Format::NTriples => {
                source.lines(source.body()).into_iter().for_each(|r| add(r, Reader::Rdf(source)));
            }
            Format::Turtle => add(source.body(), Reader::Rdf(source)),
        }
        plan.reports.push(report);
    }
    Ok(plan)
}

#[cfg(test)]
mod tests;
