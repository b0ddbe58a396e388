//! `fullrank predict`: answers queries with a trained model.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use clap::{ArgGroup, Args, ValueHint};
use fullrank_engine::answers::{Prediction, QueryNames, ScoredTriple};
use fullrank_engine::names::{find_entity, find_relation};
use fullrank_engine::predictor::{Ask, Known};
use fullrank_engine::{Error, Event, Model, Predictor, ProbabilityKind, Progress};
use fullrank_graph::load::{Row, is_header, load_rows};
use fullrank_graph::{Graph, Query, Split, Triple};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::evaluate::show_progress;
use crate::open::open_run;
use crate::output::{
    check_target, count, counted, delimited, existing, printable, probability, show, show_json,
    table, write_file,
};
use crate::stop::stop_flag;
use crate::train::say_untrained;

/// Answer queries with a trained model
///
/// Prints the most likely answers, the best first. Facts that the graph has, in any split, are left
/// out unless --known is given.
///
/// What a probability means: the share of this entity among the answers of the query, known facts
/// left out. Fifty true answers get about .02 each. With --known it is the share among all answers.
/// Of a model with sigmoids it is the probability that the triple holds, whatever else does.
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
A first line with the usual words for these, such as `subject` or `head`, is a header.
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
    #[arg(short, long = "top", value_name = "K", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
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

    /// Divide log-probabilities by this [default: what was fitted on validation, or 1]; not for sigmoids
    #[arg(long, value_name = "T", value_parser = temperature)]
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

fn temperature(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(number) if (0.001..=1000.0).contains(&number) => Ok(number),
        _ => Err("expected a number from 0.001 to 1000".to_owned()),
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

pub(crate) fn run(arguments: &PredictArguments) -> anyhow::Result<()> {
    if let Some(path) = &arguments.out {
        check_target(path, existing(arguments.force))?;
    }
    let run = open_run(&arguments.run)?;
    let is_finished = run.is_finished;
    let predictor = Predictor::new(run.model);
    let model = predictor.model();
    say_untrained(model.config());
    let foot = || foot(arguments, model, is_finished);
    if let Some(path) = &arguments.triples {
        let triples = read_triples(model.graph(), path)?;
        let scored = score(&predictor, &triples, arguments.temperature)?;
        let text = || triples_text(&scored) + &foot();
        return deliver(arguments, &scored, text, || triple_cells(&scored));
    }
    let queries = queries(arguments, model.graph())?;
    let predictions = answer(arguments, &predictor, &queries)?;
    let text = || predictions_text(&predictions) + &foot();
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
    write_file(path, existing(arguments.force), content.as_bytes())
}

/// The queries that are asked.
fn queries(arguments: &PredictArguments, graph: &Graph) -> anyhow::Result<Vec<Query>> {
    if let Some(path) = &arguments.queries {
        return read_queries(graph, path);
    }
    let PredictArguments { subject, object, relation, .. } = arguments;
    let given = subject.as_ref().or(object.as_ref()).expect("clap asks for one of them");
    let subject = find_entity(graph, given)?;
    let relation = find_relation(graph, relation.as_ref().expect("clap asks for it"))?;
    let asks_subjects = object.is_some();
    let relation = if asks_subjects { graph.inverse(relation) } else { relation };
    Ok(vec![Query { subject, relation }])
}

/// The query with a `?` in the place of what is asked for.
fn query(graph: &Graph, [subject, relation, object]: [&str; 3]) -> anyhow::Result<Query> {
    match (subject, object) {
        (subject, "?") if subject != "?" => Ok(Query {
            subject: find_entity(graph, subject)?,
            relation: find_relation(graph, relation)?,
        }),
        ("?", object) if object != "?" => Ok(Query {
            subject: find_entity(graph, object)?,
            relation: graph.inverse(find_relation(graph, relation)?),
        }),
        _ => bail!(
            "expected one `?`, as subject or as object, found `{}` and `{}`",
            printable(subject),
            printable(object)
        ),
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
    let is_header = rows.first().is_some_and(|row| is_header(&row.fields));
    let mut things = Vec::with_capacity(rows.len());
    let mut faults = Vec::new();
    for Row { place, fields } in rows.into_iter().skip(usize::from(is_header)) {
        match parse(&fields) {
            Some(Ok(thing)) => things.push(thing),
            Some(Err(fault)) => faults.push(format!("{place}: {fault}")),
            None => bail!("{place}: expected {expected}, found {}", counted(fields.len(), "field")),
        }
    }
    // All at once, as far as they fit on a screen.
    const MOST: usize = 10;
    if faults.len() > MOST {
        let more = counted(faults.len() - MOST, "more fault");
        faults.truncate(MOST);
        faults.push(format!("and {more}"));
    }
    if faults.is_empty() { Ok(things) } else { bail!("{}", faults.join("\n       ")) }
}

/// Which entities may be shown; nothing for all.
struct Candidates {
    objects: Option<Arc<[bool]>>,
    subjects: Option<Arc<[bool]>>,
}

impl Candidates {
    fn of(arguments: &PredictArguments, graph: &Graph) -> anyhow::Result<Self> {
        let none = || vec![false; graph.entities().len()];
        if let Some(path) = &arguments.among {
            let mut among = none();
            for entity in read_lines(path, "one name", |fields| match fields {
                [name] => Some(find_entity(graph, name).map_err(Into::into)),
                _ => None,
            })? {
                among[entity.0 as usize] = true;
            }
            let among: Arc<[bool]> = among.into();
            return Ok(Self { objects: Some(Arc::clone(&among)), subjects: Some(among) });
        }
        let Some(relation) = &arguments.answers_of else {
            return Ok(Self { objects: None, subjects: None });
        };
        let relation = find_relation(graph, relation)?;
        let (mut objects, mut subjects) = (none(), none());
        for triple in Split::ALL.iter().flat_map(|split| graph.triples(*split)) {
            if triple.relation == relation {
                objects[triple.object.0 as usize] = true;
                subjects[triple.subject.0 as usize] = true;
            }
        }
        Ok(Self { objects: Some(objects.into()), subjects: Some(subjects.into()) })
    }
}

fn answer(
    arguments: &PredictArguments,
    predictor: &Predictor,
    queries: &[Query],
) -> anyhow::Result<Vec<Prediction>> {
    let graph = predictor.model().graph();
    let known = if arguments.known { Known::Shown } else { Known::LeftOut };
    let Candidates { objects, subjects } = Candidates::of(arguments, graph)?;
    let ask = |query: &Query| Ask {
        query: *query,
        k: arguments.k as usize,
        known,
        candidates: if graph.is_inverse(query.relation) { &subjects } else { &objects }.clone(),
        temperature: arguments.temperature,
    };
    let asks: Vec<Ask> = queries.iter().map(ask).collect();
    let answered = with_bar(|progress| predictor.model().answer(&asks, progress))?;
    let pairs = queries.iter().zip(&answered);
    Ok(pairs.map(|(query, answered)| Prediction::new(predictor, *query, answered)).collect())
}

fn score(
    predictor: &Predictor,
    triples: &[Triple],
    temperature: Option<f64>,
) -> anyhow::Result<Vec<ScoredTriple>> {
    let scores = with_bar(|progress| predictor.score(triples, temperature, progress))?;
    let graph = predictor.model().graph();
    let pairs = triples.iter().zip(&scores);
    Ok(pairs.map(|(triple, score)| ScoredTriple::new(graph, triple, score)).collect())
}

/// Shows how far work is, and stops it if that was asked for.
fn with_bar<T>(work: impl FnOnce(&mut Progress) -> Result<T, Error>) -> anyhow::Result<T> {
    let stop = stop_flag()?;
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left")
        .expect("the template is well formed");
    let bar = ProgressBar::new(0).with_style(style);
    let found = work(&mut |event: Event| show_progress(&bar, &stop, &event));
    bar.finish_and_clear();
    match found {
        Err(Error::Interrupted) => Err(Interrupted.into()),
        found => Ok(found?),
    }
}

fn predictions_text(predictions: &[Prediction]) -> String {
    let mut text = String::new();
    for prediction in predictions {
        let _ = writeln!(text, "{}\n", prediction.query);
        if prediction.answers.is_empty() {
            text.push_str("  no entity is left to answer\n");
        } else {
            let rows = prediction.answers.iter().zip(1..).map(|(answer, place)| {
                let known = answer.known_in.as_deref().map_or(String::new(), |s| format!("in {s}"));
                vec![count(place), answer.name.clone(), probability(answer.probability), known]
            });
            text.push_str(&table(&["", "", "probability", ""], rows));
        }
        if prediction.known_left_out > 0 {
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

/// What the numbers mean.
fn foot(arguments: &PredictArguments, model: &Model, is_finished: bool) -> String {
    if model.config().probability() == ProbabilityKind::Bernoulli {
        let rank = match arguments.triples {
            Some(_) => " Rank is its place among all objects that are no other known answers.",
            None => "",
        };
        return format!(
            "A probability is that of the triple to hold, whatever else does; they need not sum to \
             one.{rank}\n"
        );
    }
    let share = if arguments.triples.is_some() {
        "A probability is the share of this object among the answers to (subject, relation, ?), other \
         known answers\nleft out; rank is its place there."
    } else if arguments.known {
        "A probability is the share of this entity among all answers of the query."
    } else {
        "A probability is the share of this entity among the answers that are not known yet."
    };
    let temperature = match (arguments.temperature, model.temperature()) {
        (Some(given), _) => format!("At temperature {given}."),
        (None, Some(fitted)) => format!("Temperature {fitted:.3}, fitted on validation."),
        (None, None) if !is_finished => {
            "No temperature yet: it is fitted when training is over.".to_owned()
        }
        (None, None) => {
            "No temperature was fitted, which takes 50 validation triples when training \
                         ends."
                .to_owned()
        }
    };
    format!("{share} Fifty true answers get about .02 each.\n{temperature}\n")
}

fn answer_cells(predictions: &[Prediction]) -> Vec<Vec<String>> {
    let header = ["subject", "relation", "object", "asked", "rank", "probability"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows[0].extend(["log_probability".to_owned(), "known_in".to_owned()]);
    for prediction in predictions {
        let QueryNames { subject, relation, object } = &prediction.query;
        for (place, answer) in (1_usize..).zip(&prediction.answers) {
            let asked = if subject.is_none() { "subject" } else { "object" };
            let name = |given: &Option<String>| given.clone().unwrap_or(answer.name.clone());
            rows.push(vec![
                name(subject),
                relation.clone(),
                name(object),
                asked.to_owned(),
                place.to_string(),
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
