//! Answers queries with a trained model.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{ArgGroup, Args, ValueHint};
use fullrank_engine::Run;
use fullrank_engine::predict::{
    Answer, Known, PredictOptions, TripleScore, predict, score_triples,
};
use fullrank_graph::load::{Row, load_rows};
use fullrank_graph::{Graph, Query, RelationId, Split, Triple};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::open::{find_entity, find_relation, open_run};
use crate::output::{count, counted, delimited, printable, show, show_json, table, write_file};
use crate::stop::{signal, stop_flag};

/// Answer queries with a trained model
///
/// Prints the most likely answers, the best first. Facts that the graph has, in any split, are left
/// out unless --known is given.
///
/// What a probability means: the share of this entity among the answers of the query, known facts
/// left out. Fifty true answers get about .02 each. With --known it is the share among all answers.
/// --among and --answers-of choose what is shown; they do not change the probabilities. If a
/// temperature was fitted on validation at the end of training, it is used.
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("asked").required(true).args(["subject", "object", "queries", "triples"]),
    after_help = "Examples:
  fullrank predict RUN --subject aspirin --relation treats
  fullrank predict RUN --relation treats --object headache -k 20 --known
  fullrank predict RUN --queries queries.tsv --out answers.csv
  fullrank predict RUN --triples candidates.csv --json
  fullrank predict RUN --subject aspirin --relation treats --among diseases.txt

A file of queries has a subject and a relation a line, or three fields of which the one that is
asked for is `?`: `? <tab> treats <tab> headache`. One of triples has subject, relation and object.
Fields are separated by tabs, or by commas in a .csv."
)]
pub(crate) struct PredictArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// Ask for the objects of this subject
    #[arg(long, value_name = "NAME", requires = "relation")]
    subject: Option<String>,

    /// Ask for the subjects of this object
    #[arg(long, value_name = "NAME", requires = "relation")]
    object: Option<String>,

    /// The relation of --subject or --object
    #[arg(long, value_name = "NAME", conflicts_with_all = ["queries", "triples"])]
    relation: Option<String>,

    /// A file with a query a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    queries: Option<PathBuf>,

    /// A file with triples: how likely is each, as an answer to (subject, relation, ?)
    #[arg(
        long, value_name = "FILE", value_hint = ValueHint::FilePath,
        conflicts_with_all = ["k", "known", "among", "answers_of"]
    )]
    triples: Option<PathBuf>,

    /// Answers per query, at most
    #[arg(short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    k: u32,

    /// Show known facts too, with the split they are from
    #[arg(long)]
    known: bool,

    /// Only answers named in this file, one a line
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    among: Option<PathBuf>,

    /// Only answers that this relation has in a known fact: its objects, or its subjects where
    /// subjects are asked for
    #[arg(long, value_name = "RELATION", conflicts_with = "among")]
    answers_of: Option<String>,

    /// Divide log-probabilities by this [default: what was fitted on validation, or 1]
    #[arg(long, value_name = "T", value_parser = positive)]
    temperature: Option<f64>,

    /// Write to this file instead: .csv, .tsv or .json
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, value_parser = out_file)]
    out: Option<PathBuf>,

    /// Replace the file that is there
    #[arg(long, requires = "out")]
    force: bool,

    /// Print one JSON document
    #[arg(long, conflicts_with = "out")]
    json: bool,
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if number > 0.0 && f64::is_finite(number) => Ok(number),
        _ => Err("expected a number above 0".to_owned()),
    }
}

fn out_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match ending(&path) {
        Some("csv" | "tsv" | "json") => Ok(path),
        _ => Err("expected a name that ends in .csv, .tsv or .json".to_owned()),
    }
}

fn ending(path: &Path) -> Option<&str> {
    path.extension()?.to_str()
}

/// A query and its answers, for machines.
#[derive(Serialize)]
struct Prediction {
    query: QueryNames,
    answers: Vec<AnswerNames>,
    known_left_out: usize,
    temperature: f64,
}

/// What is asked for is not there.
#[derive(Serialize)]
struct QueryNames {
    subject: Option<String>,
    relation: String,
    object: Option<String>,
}

#[derive(Serialize)]
struct AnswerNames {
    name: String,
    probability: f64,
    log_probability: f64,
    known_in: Option<String>,
}

#[derive(Serialize)]
struct ScoredTriple {
    subject: String,
    relation: String,
    object: String,
    probability: f64,
    log_probability: f64,
    /// Among all objects that are no other known answers.
    rank: f64,
    known_in: Option<String>,
}

pub(crate) fn run(arguments: &PredictArguments) -> anyhow::Result<()> {
    let run = open_run(&arguments.run)?;
    let temperature = arguments.temperature.or(run.temperature).unwrap_or(1.0);
    if let Some(path) = &arguments.triples {
        let triples = read_triples(&run.graph, path)?;
        let scores = score_triples(&run.graph, &run, &triples, temperature)?;
        let scored: Vec<ScoredTriple> = triples
            .iter()
            .zip(&scores)
            .map(|(triple, score)| scored_triple(&run.graph, triple, score))
            .collect();
        let text = || triples_text(&scored) + &foot(arguments, &run, &[]);
        return deliver(arguments, &scored, text, || triple_cells(&scored));
    }
    let queries = queries(arguments, &run.graph)?;
    let predictions = answer(arguments, &run, &queries, temperature)?;
    let text = || predictions_text(arguments, &predictions) + &foot(arguments, &run, &predictions);
    let cells = || answer_cells(&predictions);
    match &predictions[..] {
        [only] if arguments.queries.is_none() => deliver(arguments, only, text, cells),
        all => deliver(arguments, &all, text, cells),
    }
}

/// Prints a result or writes it to a file, in the form that is asked for.
fn deliver(
    arguments: &PredictArguments,
    result: &impl Serialize,
    text: impl FnOnce() -> String,
    cells: impl FnOnce() -> Vec<Vec<String>>,
) -> anyhow::Result<()> {
    let Some(path) = &arguments.out else {
        return if arguments.json { show_json(result) } else { show(&text()) };
    };
    let content = match ending(path) {
        Some("json") => serde_json::to_string_pretty(result)? + "\n",
        Some("csv") => delimited(',', &cells()),
        _ => delimited('\t', &cells()),
    };
    write_file(path, arguments.force, content.as_bytes())
}

/// The queries that are asked.
fn queries(arguments: &PredictArguments, graph: &Graph) -> anyhow::Result<Vec<Query>> {
    if let Some(path) = &arguments.queries {
        return read_queries(graph, path);
    }
    let relation = arguments.relation.as_deref().unwrap_or_default();
    let subject = arguments.subject.as_deref().unwrap_or("?");
    let object = arguments.object.as_deref().unwrap_or("?");
    Ok(vec![query(graph, [subject, relation, object])?])
}

/// The query with a `?` in the place of what is asked for.
fn query(graph: &Graph, names: [&str; 3]) -> anyhow::Result<Query> {
    match names {
        [subject, relation, "?"] if subject != "?" => Ok(Query {
            subject: find_entity(graph, subject)?,
            relation: find_relation(graph, relation)?,
        }),
        ["?", relation, object] if object != "?" => Ok(Query {
            subject: find_entity(graph, object)?,
            relation: graph.inverse(find_relation(graph, relation)?),
        }),
        _ => bail!("expected one `?`, as subject or as object"),
    }
}

fn read_queries(graph: &Graph, path: &Path) -> anyhow::Result<Vec<Query>> {
    read_lines(path, "a subject and a relation, or three fields with one `?`", |fields| {
        Some(match fields {
            [subject, relation] => query(graph, [subject, relation, "?"]),
            [subject, relation, object] => query(graph, [subject, relation, object]),
            _ => return None,
        })
    })
}

fn read_triples(graph: &Graph, path: &Path) -> anyhow::Result<Vec<Triple>> {
    let triple = |subject: &str, relation: &str, object: &str| {
        anyhow::Ok(Triple {
            subject: find_entity(graph, subject)?,
            relation: find_relation(graph, relation)?,
            object: find_entity(graph, object)?,
        })
    };
    read_lines(path, "subject, relation and object", |fields| match fields {
        [subject, relation, object] => Some(triple(subject, relation, object)),
        _ => None,
    })
}

/// Reads a thing a line; `parse` gives nothing for a line with another number of fields.
fn read_lines<T>(
    path: &Path,
    expected: &str,
    parse: impl Fn(&[String]) -> Option<anyhow::Result<T>>,
) -> anyhow::Result<Vec<T>> {
    let rows = load_rows(path)?;
    if rows.is_empty() {
        bail!("{}: expected {expected} a line, found an empty file", path.display());
    }
    let mut things = Vec::with_capacity(rows.len());
    for Row { place, fields } in rows {
        let Some(thing) = parse(&fields) else {
            bail!("{place}: expected {expected}, found {}", counted(fields.len(), "field"));
        };
        things.push(thing.with_context(|| place.to_string())?);
    }
    Ok(things)
}

/// Which entities may be shown, where objects are asked for and where subjects are.
fn candidates(
    arguments: &PredictArguments,
    graph: &Graph,
) -> anyhow::Result<[Option<Vec<bool>>; 2]> {
    let none = || vec![false; graph.entities().len()];
    if let Some(path) = &arguments.among {
        let mut among = none();
        for entity in read_lines(path, "one name", |fields| match fields {
            [name] => Some(find_entity(graph, name)),
            _ => None,
        })? {
            among[entity.0 as usize] = true;
        }
        return Ok([Some(among.clone()), Some(among)]);
    }
    let Some(relation) = &arguments.answers_of else { return Ok([None, None]) };
    let relation = find_relation(graph, relation)?;
    let (mut objects, mut subjects) = (none(), none());
    for triple in Split::ALL.iter().flat_map(|split| graph.triples(*split)) {
        if triple.relation == relation {
            objects[triple.object.0 as usize] = true;
            subjects[triple.subject.0 as usize] = true;
        }
    }
    Ok([Some(objects), Some(subjects)])
}

fn answer(
    arguments: &PredictArguments,
    run: &Run,
    queries: &[Query],
    temperature: f64,
) -> anyhow::Result<Vec<Prediction>> {
    /// Queries between two looks at Ctrl-C.
    const BLOCK: usize = 1024;
    let graph = &run.graph;
    let known = if arguments.known { Known::Shown } else { Known::LeftOut };
    let options = candidates(arguments, graph)?.map(|among| PredictOptions {
        k: arguments.k as usize,
        known,
        among,
        temperature,
    });
    let stop = stop_flag()?;
    let bar = progress_bar(queries.len());
    let mut predictions = Vec::with_capacity(queries.len());
    // Neighbours that ask in the same direction are answered together.
    let same_direction = |a: &Query, b: &Query| is_inverse(graph, *a) == is_inverse(graph, *b);
    for block in queries.chunk_by(same_direction).flat_map(|queries| queries.chunks(BLOCK)) {
        let options = &options[usize::from(is_inverse(graph, block[0]))];
        let answers = predict(graph, run, block, options)?;
        let found = block.iter().zip(answers);
        predictions.extend(found.map(|(query, a)| prediction(graph, *query, &a, options)));
        bar.set_position(predictions.len() as u64);
        if signal(&stop) == fullrank_engine::Signal::Stop {
            return Err(Interrupted.into());
        }
    }
    bar.finish_and_clear();
    Ok(predictions)
}

fn progress_bar(queries: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} queries, {eta} left")
        .expect("the template is well formed");
    ProgressBar::new(queries as u64).with_style(style)
}

/// Whether subjects are asked for.
fn is_inverse(graph: &Graph, query: Query) -> bool {
    query.relation.0 as usize >= graph.relations().len()
}

fn prediction(
    graph: &Graph,
    query: Query,
    answers: &[Answer],
    options: &PredictOptions,
) -> Prediction {
    let number = graph.answers().find(query);
    let known = number.map_or(0, |number| graph.answers().up_to(number, Split::Test).len());
    let answer = |answer: &Answer| AnswerNames {
        name: graph.entities().name(answer.object.0).to_owned(),
        probability: answer.log_probability.exp(),
        log_probability: answer.log_probability,
        known_in: answer.known_in.map(|split| split.to_string()),
    };
    Prediction {
        query: query_names(graph, query),
        answers: answers.iter().map(answer).collect(),
        known_left_out: if options.known == Known::LeftOut { known } else { 0 },
        temperature: options.temperature,
    }
}

fn query_names(graph: &Graph, query: Query) -> QueryNames {
    let given = Some(graph.entities().name(query.subject.0).to_owned());
    let is_inverse = is_inverse(graph, query);
    let relation = if is_inverse { graph.inverse(query.relation) } else { query.relation };
    let relation = graph.relations().name(relation.0).to_owned();
    match is_inverse {
        true => QueryNames { subject: None, relation, object: given },
        false => QueryNames { subject: given, relation, object: None },
    }
}

fn scored_triple(graph: &Graph, triple: &Triple, score: &TripleScore) -> ScoredTriple {
    let RelationId(relation) = triple.relation;
    ScoredTriple {
        subject: graph.entities().name(triple.subject.0).to_owned(),
        relation: graph.relations().name(relation).to_owned(),
        object: graph.entities().name(triple.object.0).to_owned(),
        probability: score.log_probability.exp(),
        log_probability: score.log_probability,
        rank: score.answer_rank,
        known_in: score.known_in.map(|split| split.to_string()),
    }
}

fn predictions_text(arguments: &PredictArguments, predictions: &[Prediction]) -> String {
    let mut text = String::new();
    for prediction in predictions {
        let QueryNames { subject, relation, object } = &prediction.query;
        let place = |name: &Option<String>| printable(name.as_deref().unwrap_or("?"));
        let _ =
            writeln!(text, "({}, {}, {})\n", place(subject), printable(relation), place(object));
        if prediction.answers.is_empty() {
            text.push_str("  no entity is left to answer\n\n");
            continue;
        }
        let rows = prediction.answers.iter().zip(1..).map(|(answer, place)| {
            let known = answer.known_in.as_deref().map_or(String::new(), |s| format!("in {s}"));
            vec![count(place), answer.name.clone(), probability(answer.probability), known]
        });
        text.push_str(&table(&["", "", "probability", ""], rows));
        if prediction.known_left_out > 0 && !arguments.known {
            let known = counted(prediction.known_left_out, "known answer");
            let _ = writeln!(text, "  {known} left out; --known shows them");
        }
        text.push('\n');
    }
    text
}

fn triples_text(scored: &[ScoredTriple]) -> String {
    let rows = scored.iter().map(|triple| {
        let known = triple.known_in.as_deref().map_or(String::new(), |split| format!("in {split}"));
        let names = [&triple.subject, &triple.relation, &triple.object];
        let numbers = [probability(triple.probability), triple.rank.to_string(), known];
        names.into_iter().cloned().chain(numbers).collect()
    });
    table(&["", "", "", "probability", "rank", ""], rows) + "\n"
}

/// What the numbers mean, in the words of this command line.
fn foot(arguments: &PredictArguments, run: &Run, predictions: &[Prediction]) -> String {
    let share = if arguments.triples.is_some() {
        "A probability is the share of this object among the answers to (subject, relation, ?), other \
         known answers\nleft out; rank is its place there."
    } else if arguments.known {
        "A probability is the share of this entity among all answers of the query."
    } else {
        "A probability is the share of this entity among the answers that are not known yet."
    };
    let temperature = match (arguments.temperature, run.temperature) {
        (Some(given), _) => format!("At temperature {given}."),
        (None, Some(fitted)) => format!("Temperature {fitted:.3}, fitted on validation."),
        (None, None) => "No temperature was fitted.".to_owned(),
    };
    let spread =
        if predictions.is_empty() { "" } else { " Fifty true answers get about .02 each." };
    format!("{share}{spread}\n{temperature}\n")
}

/// Four digits, of the number itself or behind its zeros.
pub(crate) fn probability(value: f64) -> String {
    if value >= 0.001 { format!("{value:.4}") } else { format!("{value:.1e}") }
}

fn answer_cells(predictions: &[Prediction]) -> Vec<Vec<String>> {
    let header = ["subject", "relation", "object", "asked", "place", "probability"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows[0].extend(["log_probability".to_owned(), "known_in".to_owned()]);
    for prediction in predictions {
        let QueryNames { subject, relation, object } = &prediction.query;
        for (place, answer) in (1..).zip(&prediction.answers) {
            let asked = if subject.is_none() { "subject" } else { "object" };
            let name = |given: &Option<String>| given.clone().unwrap_or(answer.name.clone());
            rows.push(vec![
                name(subject),
                relation.clone(),
                name(object),
                asked.to_owned(),
                i32::to_string(&place),
                answer.probability.to_string(),
                answer.log_probability.to_string(),
                answer.known_in.clone().unwrap_or_default(),
            ]);
        }
    }
    rows
}

fn triple_cells(scored: &[ScoredTriple]) -> Vec<Vec<String>> {
    let header = ["subject", "relation", "object", "rank", "probability", "log_probability"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows[0].push("known_in".to_owned());
    rows.extend(scored.iter().map(|triple| {
        vec![
            triple.subject.clone(),
            triple.relation.clone(),
            triple.object.clone(),
            triple.rank.to_string(),
            triple.probability.to_string(),
            triple.log_probability.to_string(),
            triple.known_in.clone().unwrap_or_default(),
        ]
    }));
    rows
}
