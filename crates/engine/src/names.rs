//! Names of a graph: which entity or relation does somebody mean?

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use fullrank_graph::{EntityId, Graph, Names, RelationId};

/// A name that a graph does not have, and what may help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct UnknownName {
    /// As given.
    pub name: String,
    /// What was looked for.
    pub kind: NameKind,
    /// Whether it is the name of the other kind.
    pub is_of_other_kind: bool,
    /// The names that are most like it, best first.
    pub closest: Vec<String>,
}

/// What a name can be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameKind {
    /// An entity.
    Entity,
    /// A relation.
    Relation,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, other) = match self.kind {
            NameKind::Entity => ("entity", "a relation"),
            NameKind::Relation => ("relation", "an entity"),
        };
        write!(f, "there is no {kind} `{}`", printable(&self.name))?;
        if self.is_of_other_kind {
            return write!(f, "; it is {other}");
        }
        let near: Vec<String> =
            self.closest.iter().map(|name| format!("`{}`", printable(name))).collect();
        match near.is_empty() {
            true => Ok(()),
            false => write!(f, "; the closest: {}", near.join(", ")),
        }
    }
}

/// The entity of this name.
///
/// # Errors
/// When there is none, with the closest names.
pub fn find_entity(graph: &Graph, name: &str) -> Result<EntityId, Box<UnknownName>> {
    find(graph, NameKind::Entity, name).map(EntityId)
}

/// The relation of this name.
///
/// # Errors
/// When there is none, with the closest names.
pub fn find_relation(graph: &Graph, name: &str) -> Result<RelationId, Box<UnknownName>> {
    find(graph, NameKind::Relation, name).map(RelationId)
}

fn find(graph: &Graph, kind: NameKind, name: &str) -> Result<u32, Box<UnknownName>> {
    let (names, others) = match kind {
        NameKind::Entity => (graph.entities(), graph.relations()),
        NameKind::Relation => (graph.relations(), graph.entities()),
    };
    names.find(name).ok_or_else(|| {
        Box::new(UnknownName {
            name: name.to_owned(),
            kind,
            is_of_other_kind: others.find(name).is_some(),
            closest: closest(names, name).into_iter().map(str::to_owned).collect(),
        })
    })
}

/// The names that are most like a text, best first.
fn closest<'a>(names: &'a Names, text: &str) -> Vec<&'a str> {
    /// As many as fit in a line.
    const MOST: usize = 5;
    /// Less alike than this is no help.
    const LEAST: f64 = 0.75;
    let text = text.to_lowercase();
    let likeness = |name: &str| {
        let name = name.to_lowercase();
        let spelling = strsim::jaro_winkler(&name, &text);
        // People type a part of long names.
        let is_part = text.len() > 2 && name.contains(&text);
        if is_part { spelling.max(0.9) } else { spelling }
    };
    let mut near: Vec<(f64, &str)> = names
        .iter()
        .map(|name| (likeness(name), name))
        .filter(|(likeness, _)| *likeness >= LEAST)
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.into_iter().take(MOST).map(|(_, name)| name).collect()
}

/// A name with its control characters spelt out, so that it can steer no terminal.
pub fn printable(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if is_hostile(character) {
            let _ = write!(text, "{}", character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// A name as a field of a CSV file: with quotes where it needs them (RFC 4180).
pub fn csv_field(name: &str) -> Cow<'_, str> {
    match name.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")).into(),
        false => name.into(),
    }
}

/// Control characters, invisible ones, and those that reverse the direction of what follows.
fn is_hostile(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_misspellings_are_recognised() {
        let mut names = Names::default();
        for name in ["Aspirin", "Ibuprofen", "Aspirin overdose", "Headache"] {
            names.intern(name).unwrap();
        }
        assert_eq!(closest(&names, "aspirin"), ["Aspirin", "Aspirin overdose"]);
        assert_eq!(closest(&names, "Ibuprofin"), ["Ibuprofen"]);
        assert!(closest(&names, "Zürich").is_empty());
    }

    #[test]
    fn fields_are_quoted_where_they_need_it() {
        assert_eq!(csv_field("tab\there\\"), "tab\there\\");
        assert_eq!(csv_field("a,b"), "\"a,b\"");
        assert_eq!(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(csv_field("two\nlines"), "\"two\nlines\"");
    }

    #[test]
    fn names_cannot_steer_the_terminal() {
        assert_eq!(printable("a\u{1b}[2J\tb\u{202e}ü"), "a\\u{1b}[2J\\tb\\u{202e}ü");
    }
}
