//! `fullrank figure`: writes the paper's pictures.

use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, ValueEnum, ValueHint};
use fullrank_engine::answers::QueryNames;
use fullrank_engine::names::{find_entity, find_relation};
use fullrank_graph::{Graph, Query};
use fullrank_report::figure;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::input::InputArguments;
use crate::output::{check_free, existing, say, show, show_json, table, write_file, wrong_usage};

/// Draw one of the paper's pictures as SVG
///
/// Probabilities come out of the same output layers as those of a trained model, with object vectors
/// set by hand and other weights drawn from a seed.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank figure --list
  fullrank figure mixtures --out mixtures.svg
  fullrank figure polynomial --data UMLS --subject virus --relation causes --out polynomial.svg")]
pub(crate) struct FigureArguments {
    /// Which picture
    #[arg(value_enum, required_unless_present = "list")]
    name: Option<Figure>,

    /// Say which pictures there are
    #[arg(long, conflicts_with_all = ["name", "out"])]
    list: bool,

    /// The file to write
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    #[arg(value_hint = ValueHint::FilePath)]
    out: Option<PathBuf>,

    #[command(flatten)]
    query: QueryArguments,

    /// Replace the file if there is one
    #[arg(long)]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// A query of a graph.
#[derive(Args, Debug)]
struct QueryArguments {
    /// For `polynomial`: a folder with train, valid and test, or one file
    #[arg(long, value_name = "DATA", value_hint = ValueHint::AnyPath)]
    data: Option<PathBuf>,

    /// For `polynomial`: ask for the objects of this subject
    #[arg(long, value_name = "NAME", conflicts_with = "object")]
    subject: Option<String>,

    /// For `polynomial`: the relation
    #[arg(long, value_name = "NAME")]
    relation: Option<String>,

    /// For `polynomial`: ask for the subjects of this object
    #[arg(long, value_name = "NAME")]
    object: Option<String>,
}

impl QueryArguments {
    fn is_empty(&self) -> bool {
        let names = [&self.subject, &self.relation, &self.object];
        self.data.is_none() && names.iter().all(|name| name.is_none())
    }
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    /// The rankings and labels that one dimension can give three entities
    Rankings,
    /// The distributions over three entities that a softmax of one dimension can give
    Distributions,
    /// The distributions over four entities that mixtures of 1, 2, 4 and 8 softmaxes can give
    Mixtures,
    /// The same as log-ratios, where a single softmax is flat and a mixture is not
    LogRatios,
    /// The polynomial that tells the answers of a query from all other entities
    Polynomial,
}

#[derive(Serialize)]
struct Entry {
    name: String,
    shows: String,
}

impl Figure {
    fn entry(self) -> Entry {
        let value = self.to_possible_value().expect("no picture is hidden");
        let shows = value.get_help().map(ToString::to_string).unwrap_or_default();
        Entry { name: value.get_name().to_owned(), shows }
    }
}

#[derive(Serialize)]
struct Written {
    #[serde(flatten)]
    figure: Entry,
    file: PathBuf,
}

pub(crate) fn run(arguments: &FigureArguments) -> anyhow::Result<()> {
    let (Some(figure), Some(out)) = (arguments.name, &arguments.out) else {
        return list(arguments.json);
    };
    if !arguments.force {
        check_free(out)?;
    }
    let has_query = !arguments.query.is_empty();
    if has_query && figure != Figure::Polynomial {
        wrong_usage("only `figure polynomial` is about a graph; expected no --data");
    }
    let picture = match figure {
        Figure::Rankings => figure::rankings(),
        Figure::Distributions => figure::distributions(),
        Figure::Mixtures => figure::mixture_distributions(),
        Figure::LogRatios => figure::log_ratios(),
        Figure::Polynomial => polynomial(&arguments.query)?,
    };
    write_file(out, existing(arguments.force), picture.as_bytes())?;
    match arguments.json {
        true => show_json(&Written { figure: figure.entry(), file: out.clone() }),
        false => {
            say(&format!("written: {}", out.display()));
            Ok(())
        }
    }
}

fn polynomial(arguments: &QueryArguments) -> anyhow::Result<String> {
    let (Some(data), Some(relation)) = (&arguments.data, &arguments.relation) else {
        wrong_usage("`figure polynomial` needs --data, --relation, and --subject or --object");
    };
    let input = InputArguments::of_path(data.clone());
    let loaded = input.load()?;
    input.say_notes(&loaded);
    let query = find_query(&loaded.graph, arguments, relation)?;
    let style = ProgressStyle::with_template("order {bar:30} {pos}/{len}, {eta} left")
        .expect("the template is well formed");
    let bar = ProgressBar::new(figure::POLYNOMIAL_STEPS as u64).with_style(style);
    let picture = figure::polynomial(&loaded.graph, query, &mut || bar.inc(1));
    bar.finish_and_clear();
    let Some(picture) = picture else {
        let names = QueryNames::of(&loaded.graph, query);
        bail!("{names}: the graph has no answer to this query");
    };
    Ok(picture)
}

fn find_query(graph: &Graph, arguments: &QueryArguments, relation: &str) -> anyhow::Result<Query> {
    let relation = find_relation(graph, relation)?;
    match (&arguments.subject, &arguments.object) {
        (Some(subject), _) => Ok(Query { subject: find_entity(graph, subject)?, relation }),
        (_, Some(object)) => {
            Ok(Query { subject: find_entity(graph, object)?, relation: graph.inverse(relation) })
        }
        _ => wrong_usage("`figure polynomial` needs --subject or --object"),
    }
}

fn list(json: bool) -> anyhow::Result<()> {
    let entries: Vec<Entry> = Figure::value_variants().iter().map(|it| it.entry()).collect();
    if json {
        return show_json(&entries);
    }
    let rows = entries.into_iter().map(|Entry { name, shows }| vec![name, shows]);
    show(table(&["", ""], rows).trim_start_matches('\n'))
}
