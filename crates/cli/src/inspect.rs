//! What kind of graph is this, and how large must the dimension be for it?

use std::fmt::Write as _;
use std::time::Instant;

use clap::{Args, ValueEnum};
use fullrank_engine::config::Choice;
use fullrank_graph::bounds::{
    self, AnswerMatrix, Blocks, Bounds, Side, count_blocks, crowded_share, reverse_cuthill_mckee,
    search,
};
use fullrank_graph::load::{self, Loaded};
use fullrank_graph::statistics::{
    self, Degrees, Leakage, Likeness, NEARLY, RelationClass, RelationProfile, Unseen,
};
use fullrank_graph::{Graph, Split};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::advise::advised_output;
use crate::input::InputArguments;
use crate::output::{count, counted, show, show_json, table};

/// Show counts, degrees, relation classes, test leakage and dimension bounds of a graph
///
/// A query is a subject and a relation, its degree the number of its answers in all splits.
/// With inverse relations, every triple is also asked backwards.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank inspect FB15k-237 --dim 200
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
    #[arg(long, value_name = "D", value_parser = clap::value_parser!(u32).range(1..))]
    dim: Option<u32>,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Effort {
    /// Counts, degrees and the paper's order of the objects, in seconds
    Low,
    /// And a better order, within a minute or so
    Normal,
    /// And a longer search for it
    High,
}

pub(crate) fn run(arguments: &InspectArguments) -> anyhow::Result<()> {
    let start = Instant::now();
    let loaded = arguments.input.load()?;
    arguments.input.say_notes(&loaded);
    let candidates = candidates(arguments, &loaded.graph)?;
    let report = Report::of(&loaded, candidates, arguments, start);
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
    bounds: BoundsReport,
    bounds_forward: BoundsReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_dim: Option<AtDim>,
    seconds: f64,
}

/// What a dimension is good for.
#[derive(Serialize)]
struct AtDim {
    dim: usize,
    /// Facts of queries with so many answers n that 2n + 1 > d.
    crowded_share: f64,
    advised_output: &'static str,
    reason: String,
}

impl AtDim {
    fn of(graph: &Graph, dim: usize) -> Self {
        let (output, reason) = advised_output(graph, dim);
        let crowded_share = crowded_share(graph, dim);
        Self { dim, crowded_share, advised_output: output.name(), reason }
    }
}

#[derive(Serialize)]
struct BoundsReport {
    #[serde(flatten)]
    counts: Bounds,
    rcm: Blocks,
    /// Nothing at low effort.
    best: Option<BestOrder>,
}

/// The best order of the objects that was found.
#[derive(Serialize)]
struct BestOrder {
    ordering: &'static str,
    #[serde(flatten)]
    blocks: Blocks,
    /// What no order can beat.
    blocks_max_at_least: usize,
}

impl BoundsReport {
    /// `bar` is told of every round of the search.
    fn of(graph: &Graph, degrees: &Degrees, side: Side, effort: Effort, bar: &ProgressBar) -> Self {
        let matrix = AnswerMatrix::of(graph, side);
        let rcm = count_blocks(&matrix, &reverse_cuthill_mckee(&matrix));
        let effort = match effort {
            Effort::Low => None,
            Effort::Normal => Some(bounds::Effort::NORMAL),
            Effort::High => Some(bounds::Effort::HIGH),
        };
        Self {
            counts: Bounds::from_counts(graph.entities().len(), degrees),
            rcm,
            best: effort.map(|effort| best_order(&matrix, rcm, effort, bar)),
        }
    }

    /// Enough for the sets of answers of this graph, as far as was computed.
    fn enough(&self) -> Option<usize> {
        self.best.as_ref().map(|best| best.blocks.kappa + 1)
    }
}

fn best_order(
    matrix: &AnswerMatrix,
    rcm: Blocks,
    effort: bounds::Effort,
    bar: &ProgressBar,
) -> BestOrder {
    bar.inc_length(effort.rounds as u64);
    let found = search(matrix, effort, &mut || bar.inc(1));
    // Counted anew, from the order alone.
    let searched = count_blocks(matrix, &found.order);
    let is_better = searched.kappa <= rcm.kappa;
    let (ordering, blocks) = if is_better { ("search", searched) } else { ("rcm", rcm) };
    BestOrder { ordering, blocks, blocks_max_at_least: found.lower_bound }
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("ordering objects {bar:30} {pos}/{len}, {eta} left")
        .expect("the template is well formed");
    ProgressBar::new(0).with_style(style)
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

impl TwinsRow {
    fn to_cells(&self) -> Vec<String> {
        let Self { relation, other, .. } = self;
        let likeness = match self.likeness {
            Likeness::Duplicate => format!("{relation} = {other}"),
            Likeness::Inverse => format!("{relation} = inverse of {other}"),
            Likeness::Symmetric => format!("{relation} is symmetric"),
        };
        let shared = format!("{:.0} %", 100.0 * self.share.min(self.share_of_other));
        vec![count(self.given_away), count(self.test_triples), shared, likeness]
    }
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

impl Report {
    fn of(
        loaded: &Loaded,
        candidates: Candidates,
        arguments: &InspectArguments,
        start: Instant,
    ) -> Self {
        let graph = &loaded.graph;
        let repeats = graph.repeats();
        let degree = Directions {
            forward: statistics::forward_degrees(graph),
            both: statistics::both_degrees(graph),
        };
        // A search has long stretches for one thread, so the two are made side by side.
        let bar = progress_bar();
        let of = |degrees, side| BoundsReport::of(graph, degrees, side, arguments.effort, &bar);
        let (bounds, bounds_forward) =
            rayon::join(|| of(&degree.both, Side::Both), || of(&degree.forward, Side::Forward));
        bar.finish_and_clear();
        let relation_classes = class_rows(graph, &statistics::relation_profiles(graph));
        Self {
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
            at_dim: arguments.dim.map(|dim| AtDim::of(graph, dim as usize)),
            seconds: start.elapsed().as_secs_f64(),
        }
    }

    fn to_text(&self) -> String {
        let mut text = String::new();
        let mut part = |title: &str, body: String| {
            let _ = writeln!(text, "{title}\n{body}");
        };
        part("Graph", self.counts_text());
        part("Answers per query", degrees_text(&self.degree));
        part("Queries by number of answers", histogram_text(&self.degree));
        part(
            "Relations by class (many: 1.5 or more objects per subject, or subjects per object)",
            classes_text(&self.relation_classes),
        );
        part("Not in training", self.unseen_text());
        part("Test leakage", self.leakage_text());
        part("Dimensions that are enough for a linear output layer", self.bounds_text());
        if let Some(at_dim) = &self.at_dim {
            let AtDim { dim, advised_output, reason, .. } = at_dim;
            let advice = format!("  a {advised_output} is advised: {reason}\n");
            part(&format!("At d = {}", count(*dim)), advice);
        }
        let _ = writeln!(text, "{:.2} s", self.seconds);
        text
    }

    fn counts_text(&self) -> String {
        let Splits { train, valid, test } = &self.splits;
        let header = ["", "entities", "relations", "triples", "train", "valid", "test"];
        let row = [self.entities, self.relations, self.triples, *train, *valid, *test].map(count);
        let mut text = table(&header, [[String::new()].into_iter().chain(row).collect()]);
        for (split, given) in [("valid", &self.candidates.valid), ("test", &self.candidates.test)] {
            if let Some(PerTriple { subjects, objects }) = given {
                let _ = writeln!(
                    text,
                    "  given negatives for each {split} triple: {subjects} subjects, {objects} objects"
                );
            }
        }
        text
    }

    fn unseen_text(&self) -> String {
        let Unseen { entities, relations, valid_triples, test_triples } = self.unseen;
        if entities + relations == 0 {
            return "  every entity and relation is in training\n".to_owned();
        }
        format!(
            "  {} and {}; {} of valid and {} of test have one of them\n",
            if entities == 1 {
                "1 entity".to_owned()
            } else {
                format!("{} entities", count(entities))
            },
            counted(relations, "relation"),
            counted(valid_triples, "triple"),
            counted(test_triples, "triple"),
        )
    }

    fn leakage_text(&self) -> String {
        /// A screen's worth; JSON has all.
        const MOST: usize = 12;
        let LeakageReport { test_triples, test_share, pairs, .. } = &self.leakage;
        if self.splits.test == 0 {
            return "  there are no test triples\n".to_owned();
        }
        if pairs.is_empty() {
            return format!(
                "  no two relations share {:.0} % of their triples, and none is symmetric\n",
                100.0 * NEARLY
            );
        }
        let mut text = format!(
            "  {} of {} test triples ({:.1} %) can be read off a training triple\n",
            count(*test_triples),
            count(self.splits.test),
            100.0 * test_share,
        );
        let telling = pairs.iter().filter(|pair| pair.given_away > 0);
        let rows: Vec<Vec<String>> = telling.take(MOST).map(TwinsRow::to_cells).collect();
        let n_more = pairs.len() - rows.len();
        if !rows.is_empty() {
            text.push_str(&table(&["given away", "of test triples", "shared", ""], rows));
        }
        if n_more > 0 {
            let more = if n_more == pairs.len() { "" } else { "further " };
            let _ = writeln!(
                text,
                "  {} share {:.0} % of their triples or more; --json has them",
                format_args!("{} {more}pairs of relations", count(n_more)),
                100.0 * NEARLY
            );
        }
        text
    }

    fn bounds_text(&self) -> String {
        let sides = [&self.bounds_forward, &self.bounds];
        let [forward, both] = sides.map(|side| count(side.counts.max_answers));
        type Dimension = fn(&BoundsReport) -> Option<usize>;
        let rows: [(String, Dimension); 6] = [
            ("every ranking, any graph of this size".into(), |side| {
                Some(side.counts.universality.rankings)
            }),
            ("every set of answers, any graph of this size".into(), |side| {
                Some(side.counts.universality.signs)
            }),
            ("every distribution, any graph of this size".into(), |side| {
                Some(side.counts.universality.distributions)
            }),
            (format!("all sets of at most c = {forward} or {both} answers: 2c + 1"), |side| {
                Some(side.counts.worst_case)
            }),
            ("the sets of this graph, objects in the paper's order".into(), |side| {
                Some(side.rcm.dimension)
            }),
            (
                "the sets of this graph, objects in the best order found".into(),
                BoundsReport::enough,
            ),
        ];
        let rows = rows.into_iter().filter_map(|(what, dimension)| {
            let dimensions = sides.map(dimension);
            let [forward, both] = [dimensions[0]?, dimensions[1]?].map(count);
            Some(vec![what, forward, both])
        });
        let mut text = table(&["", "without inverse", "with inverse"], rows);
        if let Some(best) = &self.bounds.best {
            let _ = writeln!(
                text,
                "  with inverse relations, the answers of a query lie in at most {}; no order has \
                 fewer than {}",
                counted(best.blocks.blocks_max, "block"),
                count(best.blocks_max_at_least),
            );
        }
        text
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

fn degrees_text(degree: &Directions) -> String {
    let row = |name: &str, degrees: &Degrees| {
        vec![
            name.to_owned(),
            count(degrees.queries),
            format!("{:.2}", degrees.mean),
            format!("{}", degrees.median),
            count(degrees.max),
        ]
    };
    table(
        &["", "queries", "mean", "median", "max"],
        [
            row("without inverse relations", &degree.forward),
            row("with inverse relations", &degree.both),
        ],
    )
}

fn histogram_text(degree: &Directions) -> String {
    /// The longest bar, in characters.
    const WIDTH: f64 = 24.0;
    let bins = &degree.both.histogram;
    let most = bins.iter().map(|bin| bin.queries).max().unwrap_or(1).max(1) as f64;
    let rows = bins.iter().enumerate().map(|(i, bin)| {
        let range = if bin.from == bin.to {
            count(bin.from)
        } else {
            format!("{} – {}", count(bin.from), count(bin.to))
        };
        let forward = degree.forward.histogram.get(i).map_or(0, |bin| bin.queries);
        // Anything at all gets a bar: the few largest queries are the ones that matter.
        let length = (bin.queries as f64 / most * WIDTH).ceil() as usize;
        let bar = format!("{:<1$}", "█".repeat(length), WIDTH as usize);
        vec![range, count(forward), count(bin.queries), bar]
    });
    table(&["", "without inverse", "with inverse", ""], rows)
}

fn classes_text(rows: &[ClassRow]) -> String {
    let rows = rows.iter().map(|row| {
        let counts = [row.relations, row.triples, row.test_triples].map(count);
        [row.class.to_string()].into_iter().chain(counts).collect()
    });
    table(&["", "relations", "triples", "test triples"], rows)
}
