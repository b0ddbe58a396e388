//! Rank files: where does every held-out answer stand, for others to test what they like?
//!
//! CSV with a line per answer, by names, so that a file can be read without the run that it is of.
//! The one place in which such files are written and read; averages are the business of `metrics`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::str::FromStr;

use fullrank_graph::load::{Row, load_rows};
use fullrank_graph::{Direction, Graph, Place, Query, Split};

use crate::error::Error;
use crate::metrics::AnswerRank;
use crate::names::{csv_field, printable};

/// The columns of a rank file, in their order.
pub const COLUMNS: [&str; 11] = [
    "split",
    "direction",
    "subject",
    "relation",
    "object",
    "rank",
    "rank_optimistic",
    "rank_pessimistic",
    "candidates",
    "nll_filtered",
    "nll",
];

/// Where one held-out answer stands, by names.
#[derive(Debug, Clone, PartialEq)]
pub struct RankLine {
    /// The split of the triple.
    pub split: Split,
    /// Whether its object was asked for or, over the inverse relation, its subject.
    pub direction: Direction,
    /// Of the triple.
    pub subject: String,
    /// Of the triple, never an inverse.
    pub relation: String,
    /// Of the triple.
    pub object: String,
    /// Ties count half: the mean of the next two.
    pub rank: f64,
    /// As if it came first among those that score the same.
    pub rank_optimistic: u32,
    /// As if it came last among them.
    pub rank_pessimistic: u32,
    /// What it competes with, itself included.
    pub candidates: u32,
    /// −log P, with the query's training answers removed from the distribution.
    pub nll_filtered: Option<f64>,
    /// −log P.
    pub nll: Option<f64>,
}

impl RankLine {
    /// The line of an answer of this split.
    pub fn new(graph: &Graph, split: Split, rank: &AnswerRank) -> Self {
        let Query { subject: given, relation } = graph.answers().query(rank.query as usize);
        let (direction, subject, relation, object) = match graph.is_inverse(relation) {
            true => (Direction::Inverse, rank.object, graph.inverse(relation), given),
            false => (Direction::Forward, given, relation, rank.object),
        };
        Self {
            split,
            direction,
            subject: graph.entities().name(subject.0).to_owned(),
            relation: graph.relations().name(relation.0).to_owned(),
            object: graph.entities().name(object.0).to_owned(),
            rank: rank.realistic(),
            rank_optimistic: rank.above + 1,
            rank_pessimistic: rank.above + rank.beside + 1,
            candidates: rank.candidates,
            nll_filtered: rank.nll_filtered,
            nll: rank.nll,
        }
    }

    fn write(&self, text: &mut String) {
        let direction = match self.direction {
            Direction::Forward => OBJECT,
            Direction::Inverse => SUBJECT,
        };
        let names = [&self.subject, &self.relation, &self.object].map(|name| csv_field(name));
        let [subject, relation, object] = &names;
        let _ = write!(
            text,
            "{},{direction},{subject},{relation},{object},{},{},{},{}",
            self.split, self.rank, self.rank_optimistic, self.rank_pessimistic, self.candidates,
        );
        for nll in [self.nll_filtered, self.nll] {
            text.push(',');
            if let Some(nll) = nll {
                // The sum writes −0 as 0.
                let _ = write!(text, "{}", nll + 0.0);
            }
        }
        text.push('\n');
    }
}

/// What is asked for, as the column `direction` has it.
const OBJECT: &str = "object";
const SUBJECT: &str = "subject";

/// The text of a rank file, with a line for each of these answers of a split, in their order.
///
/// What has no NLL leaves its field empty.
pub fn to_csv(graph: &Graph, split: Split, ranks: &[AnswerRank]) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for rank in ranks {
        RankLine::new(graph, split, rank).write(&mut text);
    }
    text
}

/// Reads a rank file, whoever has written it: columns are found by their names, and others ignored.
///
/// # Errors
/// When it cannot be read or lacks a column, and at the first line that is not as it should be.
pub fn read(path: &Path) -> Result<Vec<RankLine>, Error> {
    let mut rows = load_rows(path)?.into_iter();
    let nothing = || Row { place: Place { path: path.into(), line: 1 }, fields: Vec::new() };
    let header = rows.next().unwrap_or_else(nothing);
    let places: BTreeMap<&str, usize> =
        header.fields.iter().enumerate().map(|(place, name)| (name.as_str(), place)).collect();
    for name in COLUMNS {
        if !places.contains_key(name) {
            let found = match &header.fields[..] {
                [] => "nothing".to_owned(),
                fields => quoted(&fields.join(",")),
            };
            return Err(fault(&header.place, format!("a header with the column `{name}`"), found));
        }
    }
    let mut lines = Vec::with_capacity(rows.len());
    for row in rows {
        if row.fields.len() != header.fields.len() {
            let expected = format!("{} fields, as in the header", header.fields.len());
            return Err(fault(&row.place, expected, row.fields.len().to_string()));
        }
        lines.push(parse(&Fields { row: &row, places: &places })?);
    }
    Ok(lines)
}

/// The fields of a line by the names of their columns.
struct Fields<'a> {
    row: &'a Row,
    places: &'a BTreeMap<&'a str, usize>,
}

impl Fields<'_> {
    fn text(&self, column: &str) -> &str {
        &self.row.fields[self.places[column]]
    }

    fn fault(&self, column: &str, expected: &str) -> Error {
        let expected = format!("{expected} as `{column}`");
        fault(&self.row.place, expected, quoted(self.text(column)))
    }

    fn name(&self, column: &str) -> Result<String, Error> {
        match self.text(column) {
            "" => Err(self.fault(column, "a name")),
            name => Ok(name.to_owned()),
        }
    }

    fn number<T: FromStr>(&self, column: &str, expected: &str) -> Result<T, Error> {
        self.text(column).parse().map_err(|_| self.fault(column, expected))
    }

    /// A whole number between two others.
    fn count(&self, column: &str, least: u32) -> Result<u32, Error> {
        let expected = format!("a whole number from {least}");
        let number = self.number(column, &expected)?;
        if number < least { Err(self.fault(column, &expected)) } else { Ok(number) }
    }

    fn nll(&self, column: &str) -> Result<Option<f64>, Error> {
        const EXPECTED: &str = "a number or nothing";
        if self.text(column).is_empty() {
            return Ok(None);
        }
        let number: f64 = self.number(column, EXPECTED)?;
        if number.is_nan() { Err(self.fault(column, EXPECTED)) } else { Ok(Some(number)) }
    }
}

fn parse(fields: &Fields) -> Result<RankLine, Error> {
    let split = Split::ALL.into_iter().find(|split| split.to_string() == fields.text("split"));
    let direction = match fields.text("direction") {
        OBJECT => Direction::Forward,
        SUBJECT => Direction::Inverse,
        _ => return Err(fields.fault("direction", "`object` or `subject`")),
    };
    let rank_optimistic = fields.count("rank_optimistic", 1)?;
    let rank_pessimistic = fields.count("rank_pessimistic", rank_optimistic)?;
    let rank = fields.number("rank", "a number")?;
    let mean = (f64::from(rank_optimistic) + f64::from(rank_pessimistic)) / 2.0;
    if rank != mean {
        return Err(fields.fault("rank", &format!("{mean}, the mean of the next two ranks,")));
    }
    Ok(RankLine {
        split: split.ok_or_else(|| fields.fault("split", "`train`, `valid` or `test`"))?,
        direction,
        subject: fields.name("subject")?,
        relation: fields.name("relation")?,
        object: fields.name("object")?,
        rank,
        rank_optimistic,
        rank_pessimistic,
        candidates: fields.count("candidates", rank_pessimistic)?,
        nll_filtered: fields.nll("nll_filtered")?,
        nll: fields.nll("nll")?,
    })
}

fn fault(place: &Place, expected: String, found: String) -> Error {
    Error::RankLine { place: place.clone(), expected, found }
}

fn quoted(text: &str) -> String {
    format!("`{}`", printable(text))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use fullrank_graph::{EntityId, Names, RelationId, Triple};

    use super::*;

    /// A triple of test between hostile names, over a relation with one.
    fn hostile() -> Graph {
        let mut names = [Names::default(), Names::default()];
        for name in ["a, \"b\"", "line\nend", "plain"] {
            names[0].intern(name).unwrap();
        }
        names[1].intern("says,\r\"so\"").unwrap();
        let triple = |subject, object| Triple {
            subject: EntityId(subject),
            relation: RelationId(0),
            object: EntityId(object),
        };
        let [entities, relations] = names;
        let splits = [vec![triple(2, 0)], vec![], vec![triple(0, 1)]];
        Graph::from_triples(entities, relations, splits).unwrap()
    }

    fn rank(query: usize, object: u32) -> AnswerRank {
        AnswerRank {
            query: query as u32,
            object: EntityId(object),
            above: 1,
            beside: 1,
            from_test: (0, 0),
            candidates: 3,
            candidates_from_test: 0,
            nll_candidates: None,
            nll_filtered: Some(1.5),
            nll: None,
        }
    }

    fn read_text(text: &str) -> Result<Vec<RankLine>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ranks.csv");
        fs::write(&path, text).unwrap();
        let shown = |error: Error| error.to_string().replace(path.to_str().unwrap(), "ranks.csv");
        read(&path).map_err(shown)
    }

    #[test]
    fn hostile_names_are_quoted_and_read_back() {
        let graph = hostile();
        let number = |subject, relation| {
            let query = Query { subject: EntityId(subject), relation };
            graph.answers().find(query).unwrap()
        };
        let r = RelationId(0);
        let ranks = [
            rank(number(0, r), 1),
            AnswerRank {
                nll_filtered: None,
                nll: Some(-0.0),
                beside: 0,
                ..rank(number(1, graph.inverse(r)), 0)
            },
        ];
        let text = to_csv(&graph, Split::Test, &ranks);
        let triple = "\"a, \"\"b\"\"\",\"says,\r\"\"so\"\"\",\"line\nend\"";
        assert_eq!(
            text,
            format!(
                "split,direction,subject,relation,object,rank,rank_optimistic,rank_pessimistic,\
                 candidates,nll_filtered,nll\n\
                 test,object,{triple},2.5,2,3,3,1.5,\n\
                 test,subject,{triple},2,2,2,3,,0\n"
            )
        );
        let lines = ranks.iter().map(|rank| RankLine::new(&graph, Split::Test, rank));
        assert_eq!(read_text(&text).unwrap(), lines.collect::<Vec<_>>());
    }

    #[test]
    fn columns_are_found_by_their_names() {
        let text = "nll,split,direction,object,relation,subject,rank,rank_pessimistic,seed,\
                    rank_optimistic,nll_filtered,candidates\n\
                    1e-3,valid,subject,o,r,s,1,1,7,1,inf,1\n";
        let [line] = &read_text(text).unwrap()[..] else { panic!("one line") };
        assert_eq!((line.split, line.direction), (Split::Valid, Direction::Inverse));
        assert_eq!((line.subject.as_str(), line.object.as_str()), ("s", "o"));
        assert_eq!((line.nll, line.nll_filtered), (Some(0.001), Some(f64::INFINITY)));
    }

    #[test]
    fn faults_name_file_and_line() {
        let header = COLUMNS.join(",");
        let check = |line: &str, expected: &str| {
            let good = "test,object,\"a\nb\",r,c,2.5,2,3,3,1.5,2";
            let found = read_text(&format!("{header}\n{good}\n{line}\n")).unwrap_err();
            assert_eq!(found, format!("ranks.csv:4: expected {expected}"));
        };
        check("test,object,a,r,c,1,1,1", "11 fields, as in the header, found 8");
        check(
            "tests,object,a,r,c,1,1,1,1,,",
            "`train`, `valid` or `test` as `split`, found `tests`",
        );
        check("test,tail,a,r,c,1,1,1,1,,", "`object` or `subject` as `direction`, found `tail`");
        check("test,object,,r,c,1,1,1,1,,", "a name as `subject`, found ``");
        check("test,object,a,r,c,x,1,1,1,,", "a number as `rank`, found `x`");
        check(
            "test,object,a,r,c,1,0,1,1,,",
            "a whole number from 1 as `rank_optimistic`, found `0`",
        );
        check(
            "test,object,a,r,c,1,3,2,3,,",
            "a whole number from 3 as `rank_pessimistic`, found `2`",
        );
        check(
            "test,object,a,r,c,2,2,3,3,,",
            "2.5, the mean of the next two ranks, as `rank`, found `2`",
        );
        check("test,object,a,r,c,2.5,2,3,2,,", "a whole number from 3 as `candidates`, found `2`");
        check(
            "test,object,a,r,c,1,1,1,1,NaN,",
            "a number or nothing as `nll_filtered`, found `NaN`",
        );
        let missing = |text: &str| read_text(text).unwrap_err();
        assert_eq!(
            missing("split,direction\n"),
            "ranks.csv:1: expected a header with the column `subject`, found `split,direction`"
        );
        assert_eq!(
            missing(""),
            "ranks.csv:1: expected a header with the column `split`, found nothing"
        );
    }
}
