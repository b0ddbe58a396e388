//! How does a file become a graph?
//!
//! Finds the files of a dataset, reads and decompresses them, parses them in parallel and joins
//! the parts. The result does not depend on the number of threads.
//! What a line means is the business of `delimited` and `rdf`, cutting one file into splits that
//! of [`crate::split`].

mod candidates;
mod delimited;
mod rdf;
mod source;

use std::path::{Path, PathBuf};

use rayon::prelude::*;

pub use candidates::{Candidates, load_candidates};
pub use delimited::{Column, Columns, ColumnsError, Header};
pub use source::{Format, is_folder_of_splits};

use crate::split::{Cut, CutOptions};
use crate::{EntityId, Error, Graph, Names, RelationId, Split, Triple, split};
use source::Source;

/// How to read files that leave a choice. The defaults suit most.
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    /// The format, where the file's name does not say it.
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
    let files = source::locate(data)?;
    let sources: Vec<Source> = files
        .par_iter()
        .map(|(_, path)| source::read(path, options.format))
        .collect::<Result<_, Error>>()?;
    let splits: Vec<Option<Split>> = files.into_iter().map(|(split, _)| split).collect();
    assemble(&splits, sources, options)
}

/// Loads a single file that is in memory already, compressed or not, and cuts it.
///
/// # Errors
/// As for [`load`]; `name` is what errors call the file, and its ending tells the format.
pub fn load_bytes(name: &Path, bytes: &[u8], options: &LoadOptions) -> Result<Loaded, Error> {
    let source = source::decode(name, bytes, options.format)?;
    assemble(&[None], vec![source], options)
}

/// What one piece of a file holds, with ids of its own.
#[derive(Default)]
struct Part {
    entities: Names,
    relations: Names,
    triples: Vec<Triple>,
    literals_skipped: usize,
}

impl Part {
    fn push(&mut self, subject: &str, relation: &str, object: &str) -> Result<(), Error> {
        self.triples.push(Triple {
            subject: EntityId(self.entities.intern(subject)?),
            relation: RelationId(self.relations.intern(relation)?),
            object: EntityId(self.entities.intern(object)?),
        });
        Ok(())
    }

    /// Pushes many rows of subject, relation and object, which is quicker.
    fn push_all(&mut self, rows: &[[&str; 3]]) -> Result<(), Error> {
        let (mut entity_ids, mut relation_ids) = (vec![], vec![]);
        let entities = rows.iter().flat_map(|[subject, _, object]| [*subject, *object]);
        self.entities.intern_all(entities, |id| entity_ids.push(EntityId(id)))?;
        let relations = rows.iter().map(|[_, relation, _]| *relation);
        self.relations.intern_all(relations, |id| relation_ids.push(RelationId(id)))?;
        self.triples.extend(entity_ids.chunks_exact(2).zip(relation_ids).map(
            |(entities, relation)| Triple { subject: entities[0], relation, object: entities[1] },
        ));
        Ok(())
    }
}

/// Parses all sources and builds the graph. No split means: all that there is, to be cut.
fn assemble(
    splits: &[Option<Split>],
    sources: Vec<Source>,
    options: &LoadOptions,
) -> Result<Loaded, Error> {
    let jobs = plan(splits, &sources, options)?;
    let parts: Vec<Result<Part, Error>> =
        jobs.pieces.par_iter().map(|piece| piece.parse(options)).collect();
    let parts = parts.into_iter().collect::<Result<Vec<Part>, Error>>()?;
    let sources_of: Vec<usize> = jobs.pieces.iter().map(|piece| piece.source).collect();

    let mut files = jobs.reports;
    for (&source, part) in sources_of.iter().zip(&parts) {
        files[source].triples += part.triples.len();
        files[source].literals_skipped += part.literals_skipped;
    }
    for ((file, source), split) in files.iter().zip(&sources).zip(splits) {
        if file.triples == 0 && split.is_none_or(|split| split == Split::Train) {
            return Err(source.empty(file));
        }
    }
    drop(sources);

    let (entities, relations, parts) = join_names(parts)?;
    let mut triples = [vec![], vec![], vec![]];
    for (source, part) in sources_of.into_iter().zip(parts) {
        append(&mut triples[splits[source].unwrap_or(Split::Train) as usize], part);
    }
    let graph = Graph::from_triples(entities, relations, triples)?;
    if splits.contains(&None) {
        let (graph, cut) = split::cut(graph, &options.cut)?;
        return Ok(Loaded { graph, files, cut: Some(cut) });
    }
    Ok(Loaded { graph, files, cut: None })
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
    fn parse(&self, options: &LoadOptions) -> Result<Part, Error> {
        match &self.reader {
            Reader::Delimited(table) => table.parse(self.range.clone()),
            Reader::Rdf(source) => rdf::parse(source, self.range.clone(), options.literals),
        }
    }
}

/// Cuts every source into about as many pieces as there are threads.
fn plan<'a>(
    splits: &[Option<Split>],
    sources: &'a [Source],
    options: &LoadOptions,
) -> Result<Plan<'a>, Error> {
    debug_assert_eq!(splits.len(), sources.len());
    let mut plan = Plan { pieces: vec![], reports: vec![] };
    for (index, source) in sources.iter().enumerate() {
        let mut report =
            FileReport { path: source.path.clone(), triples: 0, literals_skipped: 0, header: None };
        let mut add = |range, reader| plan.pieces.push(Piece { source: index, range, reader });
        match source.format {
            Format::Tsv | Format::Csv => {
                if let Some((table, header)) = delimited::Table::open(source, options)? {
                    report.header = header;
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

/// Gives the parts common ids, in the order in which names first appear in the files.
fn join_names(mut parts: Vec<Part>) -> Result<(Names, Names, Vec<Vec<Triple>>), Error> {
    let (entities, relations) = rayon::join(
        || merge(parts.iter().map(|part| &part.entities)),
        || merge(parts.iter().map(|part| &part.relations)),
    );
    let ((entities, entity_ids), (relations, relation_ids)) = (entities?, relations?);
    let triples = parts
        .par_iter_mut()
        .zip(entity_ids.par_iter().zip(&relation_ids))
        .map(|(part, (entity_ids, relation_ids))| {
            let mut triples = std::mem::take(&mut part.triples);
            for triple in &mut triples {
                triple.subject.0 = entity_ids[triple.subject.0 as usize];
                triple.relation.0 = relation_ids[triple.relation.0 as usize];
                triple.object.0 = entity_ids[triple.object.0 as usize];
            }
            triples
        })
        .collect();
    Ok((entities, relations, triples))
}

/// One table of names for many, and the new id of each old one.
fn merge<'a>(tables: impl Iterator<Item = &'a Names>) -> Result<(Names, Vec<Vec<u32>>), Error> {
    let mut all = Names::default();
    let mut ids_of_tables = vec![];
    for names in tables {
        let mut ids = Vec::with_capacity(names.len());
        all.intern_all(names.iter(), |id| ids.push(id))?;
        ids_of_tables.push(ids);
    }
    Ok((all, ids_of_tables))
}

/// Appends without copying where there is nothing to append to.
fn append(all: &mut Vec<Triple>, mut more: Vec<Triple>) {
    if all.is_empty() {
        *all = more;
    } else {
        all.append(&mut more);
    }
}

#[cfg(test)]
mod tests;
