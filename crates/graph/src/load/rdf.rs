//! RDF: what do its statements say?
//!
//! An entity is named by its IRI, a blank node as `_:label`, a literal as in N-Triples.
//! The grammar is oxttl's business.

use std::collections::HashMap;
use std::ops::Range;

use hashbrown::HashSet;
use oxrdf::{NamedOrBlankNode, Term, Triple};
use oxttl::{NTriplesParser, TurtleParser, TurtleSyntaxError};

use super::intern::Interner;
use super::source::{Format, Source};
use super::{Literals, Part, Parts};
use crate::Error;

/// Parses a run of whole statements.
pub(super) fn parse(
    source: &Source,
    range: Range<usize>,
    literals: Literals,
    interner: &Interner,
) -> Result<Vec<Part>, Error> {
    let bytes = &source.bytes[range.clone()];
    if let Some(offset) = memchr::memchr(0, bytes) {
        return Err(Error::Encoding { place: source.place(range.start + offset), byte: 0 });
    }
    let mut blank_nodes = BlankNodes::new(source, bytes);
    let mut parts = Parts::new(interner);
    for statement in statements(source.format, bytes) {
        let statement = statement.map_err(|error| first_error(source, error))?;
        let subject = match &statement.subject {
            NamedOrBlankNode::NamedNode(node) => node.as_str().to_owned(),
            NamedOrBlankNode::BlankNode(node) => blank_nodes.name(node.as_str()),
        };
        let object = match &statement.object {
            Term::NamedNode(node) => node.as_str().to_owned(),
            Term::BlankNode(node) => blank_nodes.name(node.as_str()),
            Term::Literal(_) if literals == Literals::Skip => {
                parts.last().literals_skipped += 1;
                continue;
            }
            Term::Literal(literal) => literal.to_string(),
        };
        parts.push([&subject, statement.predicate.as_str(), &object])?;
    }
    Ok(parts.parts)
}

fn statements(
    format: Format,
    bytes: &[u8],
) -> Box<dyn Iterator<Item = Result<Triple, TurtleSyntaxError>> + '_> {
    match format {
        Format::Turtle => Box::new(TurtleParser::new().for_slice(bytes)),
        _ => Box::new(NTriplesParser::new().for_slice(bytes)),
    }
}

/// The first error of a file, with the lines of the file: a piece counts from its own start.
fn first_error(source: &Source, in_piece: TurtleSyntaxError) -> Error {
    let body = source.body();
    let mut statements = statements(source.format, &source.bytes[body.clone()]);
    let error = statements.find_map(Result::err).unwrap_or(in_piece);
    let place = source.place(body.start + error.location().start.offset as usize);
    let format = if source.format == Format::Turtle { "Turtle" } else { "N-Triples" };
    Error::Rdf { place, format, source: Box::new(error) }
}

/// Names of blank nodes.
///
/// A labelled one keeps its label, so that it is the same node in train and in test.
/// Turtle's `[]` and `()` have no label, and the parser gives them a random one;
/// they are named by file and order instead, so that loading twice gives the same graph.
struct BlankNodes<'a> {
    /// The labels in the text; not needed for N-Triples, where every blank node has one.
    labels: Option<HashSet<&'a [u8]>>,
    file: String,
    unlabelled: HashMap<String, String>,
}

impl<'a> BlankNodes<'a> {
    fn new(source: &Source, bytes: &'a [u8]) -> Self {
        let in_label =
            |byte: &u8| byte.is_ascii_alphanumeric() || !byte.is_ascii() || b"_-.".contains(byte);
        let label_after = |start: usize| {
            let label = &bytes[start + 2..];
            let end = label.iter().position(|byte| !in_label(byte)).unwrap_or(label.len());
            // A dot at the end of a label ends the statement.
            let dots = label[..end].iter().rev().take_while(|byte| **byte == b'.').count();
            &label[..end - dots]
        };
        let labels = (source.format == Format::Turtle)
            .then(|| memchr::memmem::find_iter(bytes, b"_:").map(label_after).collect());
        let file = source.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { labels, file, unlabelled: HashMap::new() }
    }

    fn name(&mut self, label: &str) -> String {
        if self.labels.as_ref().is_none_or(|labels| labels.contains(label.as_bytes())) {
            return format!("_:{label}");
        }
        // No label has a `#` in it.
        let number = self.unlabelled.len() + 1;
        let name = || format!("_:{}#{number}", self.file);
        self.unlabelled.entry(label.to_owned()).or_insert_with(name).clone()
    }
}
