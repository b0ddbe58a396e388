//! `fullrank inspect`: what kind of graph is this, and how large must the dimension be for it?

mod text;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::{Args, ValueEnum, ValueHint};
use fullrank_graph::load::{self, Loaded};
use fullrank_graph::statistics::{
    self, Degrees, Leakage, Likeness, NEARLY, RelationClass, RelationProfile, Unseen,
};
use fullrank_graph::{Graph, Split};
use fullrank_report::InspectPage;
use fullrank_report::dimension::{AtDim, SideReport, both_sides, both_sides_steps};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::input::InputArguments;
use crate::output::{check_free, existing, show, show_json, write_file};

/// Show counts, degrees, relation classes, test leakage and dimension bounds of a graph
///
/// A query is a subject and a relation, its degree the number of its answers in all splits.
/// With inverse relations, every triple is also asked backwards.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank inspect FB15k-237 --dim 200
  fullrank inspect FB15k-237 --effort high --html bounds.html
  fullrank inspect UMLS --verify
  fullrank inspect hetionet.tsv.zst --split pykeen:42 --json
  fullrank inspect drugs.csv --columns drug,effect,disease
  zcat dump.nt.gz | fullrank inspect - --format ntriples")]
pub(crate) struct InspectArguments {
    #[command(flatten)]
    input: InputArguments,

    /// How much to compute
    #[arg(long, value_enum, default_value_t = Effort::Normal)]
    effort: Effort,

    /// Say what this dimension is good for
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    dim: Option<u32>,

    /// Decompose the signs of the graph by the best order found, and check the factors
    ///
    /// The polynomial of every query is checked at every object by its roots; on small graphs also
    /// as a product of two explicit matrices, in exact arithmetic.
    #[arg(long)]
    verify: bool,

    /// Write a page with the tables, and pictures of degrees, blocks and orders
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    html: Option<PathBuf>,

    /// Replace the page if there is one
    #[arg(long, requires = "html")]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Effort {
    /// Counts, degrees and the paper's order of the objects, in seconds
    Low,
    /// And a better order, the matrix rank and the sign rank, within a minute or two
    Normal,
    /// And a longer search for the order and the sign rank
    High,
}

impl Effort {
    fn of_bounds(self) -> Option<fullrank_bounds::Effort> {
        match self {
            Self::Low => None,
            Self::Normal => Some(fullrank_bounds::Effort::NORMAL),
            Self::High => Some(fullrank_bounds::Effort::HIGH),
        }
    }
}

pub(crate) fn run(arguments: &InspectArguments) -> anyhow::Result<()> {
    let start = Instant::now();
    if let Some(html) = arguments.html.as_ref().filter(|_| !arguments.force) {
        check_free(html)?;
    }
    let loaded = arguments.input.load()?;
    arguments.input.say_notes(&loaded);
    let candidates = candidates(arguments, &loaded.graph)?;
    let report = Report::of(&loaded, candidates, arguments, start)?;
    if let Some(html) = &arguments.html {
        let page = InspectPage {
            graph: &loaded.graph,
            data: &report.data,
            bounds: &report.bounds,
            bounds_forward: &report.bounds_forward,
            at_dim: report.at_dim.as_ref(),
        };
        write_file(html, existing(arguments.force), page.to_html().as_bytes())?;
    }
    if arguments.json { show_json(&report) } else { show(&report.to_text()) }
}

/// What is shown. The names are those of the JSON document.
#[derive(Serialize)]
struct Report {
    data: Vec<String>,
    entities: usize,
    relations: usize,
    triples: usize,
    splits: Splits,
    duplicates_dropped: Splits,
    in_two_splits: Overlaps,
    literals_skipped: usize,
    split_by: Option<String>,
    candidates: Candidates,
    degree: Directions,
    relation_classes: Vec<ClassRow>,
    unseen: Unseen,
    leakage: LeakageReport,
    bounds: SideReport,
    bounds_forward: SideReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_dim: Option<AtDim>,
    seconds: f64,
}

#[derive(Serialize)]
struct Splits {
    train: usize,
    valid: usize,
    test: usize,
}

impl From<[usize; 3]> for Splits {
    fn from([train, valid, test]: [usize; 3]) -> Self {
        Self { train, valid, test }
    }
}

#[derive(Serialize)]
struct Overlaps {
    train_valid: usize,
    train_test: usize,
    valid_test: usize,
}

/// How many negatives are given, where there are any.
#[derive(Serialize, Default)]
struct Candidates {
    valid: Option<PerTriple>,
    test: Option<PerTriple>,
}

#[derive(Serialize)]
struct PerTriple {
    subjects: usize,
    objects: usize,
}

#[derive(Serialize)]
struct Directions {
    forward: Degrees,
    both: Degrees,
}

#[derive(Serialize)]
struct ClassRow {
    class: RelationClass,
    relations: usize,
    triples: usize,
    test_triples: usize,
}

#[derive(Serialize)]
struct LeakageReport {
    /// Both shares of a pair reach this.
    threshold: f64,
    /// Test triples that at least one pair gives away.
    test_triples: usize,
    test_share: f64,
    pairs: Vec<TwinsRow>,
}

#[derive(Serialize)]
struct TwinsRow {
    likeness: Likeness,
    relation: String,
    other: String,
    share: f64,
    share_of_other: f64,
    test_triples: usize,
    given_away: usize,
}

/// Negatives that lie beside the splits of a folder.
fn candidates(arguments: &InspectArguments, graph: &Graph) -> anyhow::Result<Candidates> {
    let folder = &arguments.input.data;
    if !folder.is_dir() {
        return Ok(Candidates::default());
    }
    let width = |split| -> anyhow::Result<Option<PerTriple>> {
        let candidates = load::load_candidates(folder, graph, split)?;
        Ok(candidates.map(|load::Candidates { subjects, objects }| PerTriple {
            subjects: subjects.width,
            objects: objects.width,
        }))
    };
    Ok(Candidates { valid: width(Split::Valid)?, test: width(Split::Test)? })
}

/// The bounds with inverse relations, and without.
fn bounds(
    graph: &Graph,
    effort: Option<fullrank_bounds::Effort>,
    verifies: bool,
) -> anyhow::Result<[SideReport; 2]> {
    let style = ProgressStyle::with_template("bounds {bar:30} {pos}/{len}, {eta} left")
        .expect("the template is well formed");
    let bar = ProgressBar::new(both_sides_steps(effort) as u64).with_style(style);
    let sides = both_sides(graph, effort, verifies, &|| bar.inc(1));
    bar.finish_and_clear();
    sides.context("the decomposition does not give the signs of the graph")
}

impl Report {
    fn of(
        loaded: &Loaded,
        candidates: Candidates,
        arguments: &InspectArguments,
        start: Instant,
    ) -> anyhow::Result<Self> {
        let graph = &loaded.graph;
        let repeats = graph.repeats();
        let degree = Directions {
            forward: statistics::forward_degrees(graph),
            both: statistics::both_degrees(graph),
        };
        let effort = arguments.effort.of_bounds();
        let [bounds, bounds_forward] = bounds(graph, effort, arguments.verify)?;
        let at_dim = arguments.dim.map(|dim| AtDim::of(graph, &bounds.analysis, dim as usize));
        let relation_classes = class_rows(graph, &statistics::relation_profiles(graph));
        Ok(Self {
            data: loaded.files.iter().map(|file| file.path.display().to_string()).collect(),
            entities: graph.entities().len(),
            relations: graph.relations().len(),
            triples: graph.n_triples(),
            splits: Split::ALL.map(|split| graph.triples(split).len()).into(),
            duplicates_dropped: repeats.within.into(),
            in_two_splits: Overlaps {
                train_valid: repeats.train_valid,
                train_test: repeats.train_test,
                valid_test: repeats.valid_test,
            },
            literals_skipped: loaded.files.iter().map(|file| file.literals_skipped).sum(),
            split_by: loaded.cut.map(|cut| cut.splitter.to_string()),
            candidates,
            relation_classes,
            unseen: statistics::unseen(graph),
            leakage: LeakageReport::of(graph, statistics::leakage(graph)),
            bounds,
            bounds_forward,
            degree,
            at_dim,
            seconds: start.elapsed().as_secs_f64(),
        })
    }
}

impl LeakageReport {
    fn of(graph: &Graph, leakage: Leakage) -> Self {
        let name =
            |relation: fullrank_graph::RelationId| graph.relations().name(relation.0).to_owned();
        let n_test = graph.triples(Split::Test).len();
        Self {
            threshold: NEARLY,
            test_triples: leakage.test_triples,
            test_share: leakage.test_triples as f64 / n_test.max(1) as f64,
            pairs: leakage
                .pairs
                .iter()
                .map(|twins| TwinsRow {
                    likeness: twins.likeness,
                    relation: name(twins.relation),
                    other: name(twins.other),
                    share: twins.share,
                    share_of_other: twins.share_of_other,
                    test_triples: twins.test_triples,
                    given_away: twins.given_away,
                })
                .collect(),
        }
    }
}

fn class_rows(graph: &Graph, profiles: &[RelationProfile]) -> Vec<ClassRow> {
    let class_of = |relation: usize| profiles[relation].class;
    RelationClass::ALL
        .into_iter()
        .map(|class| {
            let of_class = profiles.iter().filter(|profile| profile.class == class);
            let test = graph.triples(Split::Test).iter();
            ClassRow {
                class,
                relations: of_class.clone().count(),
                triples: of_class.map(|profile| profile.triples).sum(),
                test_triples: test.filter(|t| class_of(t.relation.0 as usize) == class).count(),
            }
        })
        .collect()
}
