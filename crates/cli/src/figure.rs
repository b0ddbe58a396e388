//! Draws the paper's pictures, with numbers from the engine's own modules.

mod mixtures;
mod one_dimension;
mod polynomial;
mod svg;

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use serde::Serialize;

use crate::output::{check_free, existing, say, show, show_json, table, write_file, wrong_usage};
use polynomial::QueryArguments;

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
        Figure::Rankings => one_dimension::rankings(),
        Figure::Distributions => one_dimension::distributions(),
        Figure::Mixtures => mixtures::distributions(),
        Figure::LogRatios => mixtures::log_ratios(),
        Figure::Polynomial => polynomial::draw(&arguments.query)?,
    };
    write_file(out, existing(arguments.force), picture.finish().as_bytes())?;
    match arguments.json {
        true => show_json(&Written { figure: figure.entry(), file: out.clone() }),
        false => {
            say(&format!("written: {}", out.display()));
            Ok(())
        }
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
