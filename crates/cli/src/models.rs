//! `fullrank models`: lists what models are made of: encoders, scores and output layers.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use fullrank_engine::models::{Absent, Catalogue, Part, Sizes, catalogue};
use serde::Serialize;

use crate::input::InputArguments;
use crate::output::{count, counted, show, show_json, table};

/// List every encoder, score and output layer: formula, parameters, bottleneck
///
/// Most go together; `train` refuses what makes no sense, with the reason. The bottleneck is the
/// largest matrix rank that the table of all scores, or of all log-probabilities, can have: the fewer,
/// the less can be expressed. That of an output layer is for scores that are linear in the object.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank models
  fullrank models FB15k-237 --dim 200
  fullrank models --json")]
pub(crate) struct ModelsArguments {
    /// Show the numbers for this graph
    #[arg(requires = "dim", value_hint = ValueHint::AnyPath)]
    data: Option<PathBuf>,

    /// And this dimension
    #[arg(
        long, value_name = "D", requires = "data",
        value_parser = clap::value_parser!(u32).range(1..=100_000),
    )]
    dim: Option<u32>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    /// Nothing without a graph.
    sizes: Option<Sizes>,
    #[serde(flatten)]
    catalogue: Catalogue,
}

pub(crate) fn run(arguments: &ModelsArguments) -> anyhow::Result<()> {
    let sizes = match (&arguments.data, arguments.dim) {
        (Some(data), Some(dim)) => Some(sizes(data.clone(), dim as usize)?),
        _ => None,
    };
    let report = Report { sizes, catalogue: catalogue(sizes) };
    if arguments.json { show_json(&report) } else { show(&text(&report)) }
}

fn sizes(data: PathBuf, dim: usize) -> anyhow::Result<Sizes> {
    let input = InputArguments::of_path(data);
    let loaded = input.load()?;
    input.say_notes(&loaded);
    let graph = loaded.graph;
    Ok(Sizes { entities: graph.entities().len(), relations: graph.relations().len(), dim })
}

fn text(report: &Report) -> String {
    let Report { sizes, catalogue } = report;
    let Catalogue { encoders, scores, outputs, out_of_scope } = catalogue;
    let mut text = String::new();
    if let Some(Sizes { entities, relations, dim }) = sizes {
        text += &format!(
            "E = {}, R = {}, d = {}\n\n",
            counted(*entities, "entity"),
            counted(*relations, "relation"),
            count(*dim)
        );
    }
    for (title, what, parts) in [
        ("Encoders", "score of (s, r, o)", encoders),
        ("Scores", "of query vector h and object vector e_o", scores),
        ("Output layers", "probability of the objects, by their scores z", outputs),
    ] {
        text += &format!("{title}\n{}\n", part_table(what, parts, *sizes));
    }
    let absent = out_of_scope.iter();
    let absent = absent.map(|Absent { family, reason }| format!("  {family}: {reason}\n"));
    text + SYMBOLS + "\nNot here\n" + &absent.collect::<String>()
}

/// By the names of settings, where they are any.
const SYMBOLS: &str = "\
Symbols
  E entities, R relations, s, r, o vectors of subject, relation, object; f(x) max(x, 0) after normalisation; π weights that sum to 1
  d `dim`, d₀ `initial_dim`, d_r `relation_dim`, K `components`, f `frequencies`, g `gate_dim`, H₁, H₂ the first two of `hidden`
";

/// Formulas are text, so the names of the columns are a row like all others.
fn part_table(what: &str, parts: &[Part], sizes: Option<Sizes>) -> String {
    let names = ["", what, "parameters", "bottleneck"].map(str::to_owned);
    let rows = [names.to_vec()].into_iter().chain(parts.iter().map(|part| {
        let Part { name, formula, parameters, bottleneck, at } = part;
        let parameters = match (*parameters, at) {
            (text @ ("0" | "1"), Some(_)) => text.to_owned(),
            (text, Some(at)) => format!("{text} = {}", count(at.n_parameters)),
            (text, None) if sizes.is_some() => format!("{text} (not with this d)"),
            (text, None) => text.to_owned(),
        };
        let entities = sizes.map(|sizes| sizes.entities);
        let bottleneck = match at.map(|at| at.max_matrix_rank) {
            _ if *bottleneck == "none" => (*bottleneck).to_owned(),
            // No matrix has a larger rank than it has columns.
            Some(limit) if Some(limit) == entities => format!("E = {}", count(limit)),
            Some(limit) => format!("{bottleneck} = {}", count(limit)),
            None => (*bottleneck).to_owned(),
        };
        vec![(*name).to_owned(), (*formula).to_owned(), parameters, bottleneck]
    }));
    table(&[""; 4], rows).trim_start_matches('\n').to_owned()
}
