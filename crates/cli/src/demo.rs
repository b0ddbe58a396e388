//! `fullrank demo`: three output layers of the same small dimension, side by side on a synthetic graph.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, anyhow};
use clap::{Args, ValueHint};
use fullrank_bounds::{Bounds, crowded_share};
use fullrank_engine::metrics::Metrics;
use fullrank_engine::predictor::Ask;
use fullrank_engine::{
    Device, Error, Event, Existing, RawConfig, Run, TrainingFolder, epochs, forecast, silent,
};
use fullrank_graph::generate::{GenerateConfig, generate};
use fullrank_graph::statistics::both_degrees;
use fullrank_graph::{Graph, Query, Split};
use fullrank_report::{DemoReport, Group, example_queries};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::Interrupted;
use crate::memory::check_memory;
use crate::output::{
    check_free, count, mean_and_deviation, probability, say, show, show_json, table, wrapped,
    write_file,
};
use crate::provenance::provenance;
use crate::stop::{signal, stop_flag};

/// See what the rank bottleneck costs, on a graph made for it
///
/// Makes a synthetic graph of 1,000 entities, trains DistMult with a softmax, with a mixture of one
/// (the control) and with a mixture of four, all of dimension 16, with three seeds each, and shows
/// the results as a table and as a page. Takes a minute or two. Stopped and started again, it goes
/// on; finished, it shows the results again.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank demo
  fullrank demo --out somewhere --force")]
pub(crate) struct DemoArguments {
    /// The folder for its runs and report.html
    #[arg(long, value_name = "FOLDER", default_value = "fullrank-demo", value_hint = ValueHint::DirPath)]
    out: PathBuf,

    /// Train anew what is there already
    #[arg(long)]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// An output layer and the learning rate that suits it.
struct Layer {
    name: &'static str,
    folder: &'static str,
    output: &'static str,
    components: Option<usize>,
    /// The best on validation of 0.002, 0.005, 0.01, 0.02, 0.05 and 0.1, with another seed:
    /// RESULTS.md has them all.
    learning_rate: f64,
}

const LAYERS: [Layer; 3] = [
    Layer {
        name: "softmax",
        folder: "softmax",
        output: "softmax",
        components: None,
        learning_rate: 0.05,
    },
    Layer {
        name: "mixture, K = 1",
        folder: "mixture-1",
        output: "mixture",
        components: Some(1),
        learning_rate: 0.05,
    },
    Layer {
        name: "mixture, K = 4",
        folder: "mixture-4",
        output: "mixture",
        components: Some(4),
        learning_rate: 0.02,
    },
];
const REPORT: &str = "report.html";
const SEEDS: u64 = 3;
const EPOCHS: usize = 60;
/// What all layers have in common. Patience is as long as the training: all make the same updates.
const SETTINGS: [(&str, &str); 5] = [
    ("dim", "16"),
    ("batch", "500"),
    ("schedule", "cosine"),
    ("answers_per_item", "16"),
    ("dropout", "0"),
];

#[derive(Serialize)]
struct Summary {
    report: PathBuf,
    dim: usize,
    entities: usize,
    triples: usize,
    worst_case_dimension: usize,
    crowded_share: f64,
    seconds: f64,
    layers: Vec<LayerSummary>,
}

#[derive(Serialize)]
struct LayerSummary {
    name: &'static str,
    learning_rate: f64,
    parameters: usize,
    updates: u64,
    test: Vec<Metrics>,
}

/// What one layer's seeds came to.
struct Outcome {
    layer: &'static Layer,
    folders: Vec<PathBuf>,
    runs: Vec<Run>,
    test: Vec<Metrics>,
}

impl Outcome {
    /// Mean and standard deviation over the seeds.
    fn spread(&self, value: fn(&Metrics) -> f64) -> (f64, f64) {
        mean_and_deviation(&self.test.iter().map(value).collect::<Vec<_>>())
    }

    /// The run that is best on validation.
    fn best(&self) -> &Run {
        let valid_mrr = |run: &&Run| run.trained.best.valid_mrr.unwrap_or(0.0);
        let best = self.runs.iter().max_by(|a, b| valid_mrr(a).total_cmp(&valid_mrr(b)));
        best.expect("there are several seeds")
    }
}

pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<()> {
    let start = Instant::now();
    let own = arguments.out.join(LAYERS[0].folder).join("seed-0").join("run.json");
    if !own.exists() && !arguments.force {
        // What is there is not of an earlier demo.
        check_free(&arguments.out.join(REPORT))?;
    }
    let graph = Arc::new(generate(GenerateConfig::default())?);
    let stop = stop_flag()?;
    let bar = progress_bar();
    let mut outcomes = Vec::new();
    for layer in &LAYERS {
        outcomes.push(train_layer(arguments, &graph, layer, &stop, &bar)?);
    }
    bar.finish_and_clear();
    let report = write_report(arguments, &graph, &outcomes)?;
    let summary = summary(&graph, &outcomes, report, start);
    if arguments.json { show_json(&summary) } else { show(&text(&graph, &outcomes, &summary)?) }
}

fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} epochs, {eta} left")
        .expect("the template is well formed");
    let epochs = LAYERS.len() as u64 * SEEDS * EPOCHS as u64;
    ProgressBar::new(epochs).with_style(style)
}

fn settings(layer: &Layer, seed: u64) -> RawConfig {
    let mut settings = RawConfig::default();
    for (name, value) in SETTINGS {
        settings.add(name, &format!("--{name}"), value);
    }
    settings.add("epochs", "--epochs", &EPOCHS.to_string());
    settings.add("patience", "--patience", &EPOCHS.to_string());
    settings.add("output", "--output", layer.output);
    if let Some(components) = layer.components {
        settings.add("components", "--components", &components.to_string());
        settings.add("projection_dropout", "--projection-dropout", "0");
    }
    settings.add("learning_rate", "--learning-rate", &layer.learning_rate.to_string());
    settings.add("seed", "--seed", &seed.to_string());
    settings
}

fn train_layer(
    arguments: &DemoArguments,
    graph: &Arc<Graph>,
    layer: &'static Layer,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome { layer, folders: vec![], runs: vec![], test: vec![] };
    for seed in 0..SEEDS {
        let out = arguments.out.join(layer.folder).join(format!("seed-{seed}"));
        bar.set_message(format!("{}, seed {seed}", layer.name));
        let settings = settings(layer, seed);
        let (mut folder, config) = if arguments.force {
            let config = settings.check()?;
            (TrainingFolder::create(&out, graph, &config, Existing::Replace)?, config)
        } else {
            TrainingFolder::resume(&out, graph, &settings).map_err(other_demo)?
        };
        check_memory(forecast(&config, graph))?;
        let (before, _) = folder.progress();
        bar.inc(before as u64);
        if !folder.is_over() {
            folder.note(provenance())?;
        }
        let trained = folder.train(Arc::clone(graph), config, Device::default(), &mut |event| {
            if let Event::Epoch(_) = event {
                bar.inc(1);
            }
            signal(stop)
        });
        drop(folder);
        trained.map_err(|error| interrupted(error, arguments.force))?;
        let run = Run::open(&out, Device::default())?;
        let test = run.model.evaluate(Split::Test, &mut |_| signal(stop));
        let test = test.map_err(|error| interrupted(error, arguments.force))?;
        let test = test.context("the synthetic graph has test triples")?;
        let (name, mrr, nll) = (layer.name, test.realistic.mrr, nll(&test));
        bar.suspend(|| say(&format!("{name}, seed {seed}: test MRR {mrr:.4}, NLL {nll:.3}")));
        outcome.test.push(test);
        outcome.runs.push(run);
        outcome.folders.push(out);
    }
    Ok(outcome)
}

fn interrupted(error: Error, force: bool) -> anyhow::Error {
    match error {
        Error::Interrupted => {
            let without = if force { " without --force" } else { "" };
            say(&format!("saved; the same command{without} goes on"));
            Interrupted.into()
        }
        other => other.into(),
    }
}

/// Why a demo cannot go on in a folder that has another one.
fn other_demo(error: Error) -> anyhow::Error {
    match error {
        Error::OtherConfig { path, .. } | Error::OtherDataset { path } => anyhow!(
            "{}: is from the demo of another version\n\nTrain anew by --force, or choose another \
             folder by --out.",
            path.display()
        ),
        other => other.into(),
    }
}

fn mrr(metrics: &Metrics) -> f64 {
    metrics.realistic.mrr
}

/// Every layer of the demo gives a distribution over the objects.
fn nll(metrics: &Metrics) -> f64 {
    metrics.nll_filtered.expect("a softmax has it")
}

const HEADER: [&str; 6] = ["", "MRR", "Hits@10", "NLL filtered", "parameters", "learning rate"];

fn cells(outcome: &Outcome) -> Vec<String> {
    let cell = |value: fn(&Metrics) -> f64, digits: usize| {
        let (mean, deviation) = outcome.spread(value);
        format!("{mean:.digits$} ± {deviation:.digits$}")
    };
    vec![
        outcome.layer.name.to_owned(),
        cell(mrr, 4),
        cell(|metrics| metrics.realistic.hits_at_10, 4),
        cell(nll, 3),
        count(outcome.runs[0].model.n_parameters()),
        outcome.layer.learning_rate.to_string(),
    ]
}

/// What the comparison shows.
fn verdict(outcomes: &[Outcome]) -> String {
    let [softmax, control, mixture] = outcomes else { unreachable!("there are three layers") };
    let ahead = |other: &Outcome| mixture.spread(mrr).0 - other.spread(mrr).0;
    let largest = outcomes.iter().map(|outcome| outcome.spread(mrr).1).fold(0.0, f64::max);
    let (of_softmax, of_control) = (ahead(softmax), ahead(control));
    let is_clear = of_softmax.min(of_control) > largest;
    format!(
        "The mixture of four is {of_softmax:+.4} in MRR against the softmax and {of_control:+.4} \
         against the mixture of one; the largest deviation over seeds is {largest:.4}. {}",
        if is_clear {
            "So it is mixing that helps, not the projections alone: one softmax is too narrow for this \
             graph."
        } else {
            "That is no clear lead."
        }
    )
}

fn method(graph: &Graph, outcomes: &[Outcome]) -> String {
    let updates = count(outcomes[0].runs[0].trained.updates as usize);
    format!(
        "All have DistMult as their encoder, d = {}, {SEEDS} seeds and {updates} updates in {EPOCHS} \
         epochs over {} training triples; the learning rate is the best of six for each on \
         validation, and the epoch that is best on validation is kept.",
        outcomes[0].runs[0].model.config().dim(),
        count(graph.triples(Split::Train).len()),
    )
}

fn write_report(
    arguments: &DemoArguments,
    graph: &Graph,
    outcomes: &[Outcome],
) -> anyhow::Result<PathBuf> {
    let mut groups = Vec::new();
    for outcome in outcomes {
        groups.push(Group {
            name: outcome.layer.name.to_owned(),
            cells: cells(outcome),
            mrr: outcome.test.iter().map(mrr).collect(),
            nll: outcome.test.iter().map(nll).collect(),
            epochs: epochs(&outcome.folders[0])?,
        });
    }
    let report = DemoReport {
        header: HEADER.to_vec(),
        groups: &groups,
        verdict: verdict(outcomes),
        method: method(graph, outcomes),
        model: &outcomes[outcomes.len() - 1].best().model,
    };
    let path = arguments.out.join(REPORT);
    write_file(&path, Existing::Replace, report.to_html()?.as_bytes())?;
    Ok(path)
}

fn summary(graph: &Graph, outcomes: &[Outcome], report: PathBuf, start: Instant) -> Summary {
    let dim = outcomes[0].runs[0].model.config().dim();
    Summary {
        report,
        dim,
        entities: graph.entities().len(),
        triples: graph.n_triples(),
        worst_case_dimension: bounds(graph).worst_case,
        crowded_share: crowded_share(graph, dim),
        seconds: start.elapsed().as_secs_f64(),
        layers: outcomes
            .iter()
            .map(|outcome| LayerSummary {
                name: outcome.layer.name,
                learning_rate: outcome.layer.learning_rate,
                parameters: outcome.runs[0].model.n_parameters(),
                updates: outcome.runs[0].trained.updates,
                test: outcome.test.clone(),
            })
            .collect(),
    }
}

fn bounds(graph: &Graph) -> Bounds {
    Bounds::from_counts(graph.entities().len(), &both_degrees(graph))
}

fn text(graph: &Graph, outcomes: &[Outcome], summary: &Summary) -> anyhow::Result<String> {
    let bounds = bounds(graph);
    let mut text = format!(
        "\nGraph: {} entities, {} relations, {} triples with planted structure\n",
        count(summary.entities),
        count(graph.relations().len()),
        count(summary.triples),
    );
    let _ = writeln!(
        text,
        "Its queries have up to {} answers. {} dimensions are enough to tell any so many from all \
         other entities;\nwith d = {}, {:.0} % of its training facts belong to queries with too many \
         to be sure of (2n + 1 > d).\n",
        count(bounds.max_answers),
        count(bounds.worst_case),
        summary.dim,
        100.0 * summary.crowded_share,
    );
    text.push_str(&table(&HEADER, outcomes.iter().map(cells)));
    let _ = writeln!(
        text,
        "\nK = 1 has the mixture's projections but mixes nothing: it is the control.\n{}\n",
        wrapped(&verdict(outcomes))
    );
    text.push_str(&sample(outcomes[outcomes.len() - 1].best())?);
    let report = summary.report.display();
    let _ = writeln!(text, "\nThe same with pictures: {report}   ({:.0} s)", summary.seconds);
    Ok(text)
}

/// What the best mixture answers to two queries.
fn sample(run: &Run) -> anyhow::Result<String> {
    let graph = run.model.graph();
    let is_forward = |query: &Query| !graph.is_inverse(query.relation);
    let queries: Vec<Query> =
        example_queries(graph).into_iter().filter(is_forward).take(2).collect();
    let asks: Vec<Ask> = queries.iter().map(|query| Ask { k: 5, ..Ask::new(*query) }).collect();
    let answered = run.model.answer(&asks, &mut silent())?;
    let mut text =
        "New facts that the mixture of four holds most likely (a name begins with its type):\n"
            .to_owned();
    for (query, answered) in queries.iter().zip(answered) {
        let subject = graph.entities().name(query.subject.0);
        let relation = graph.relations().name(query.relation.0);
        let answers: Vec<String> = answered
            .answers
            .iter()
            .map(|answer| {
                let name = graph.entities().name(answer.object.0);
                format!("{name} {}", probability(answer.log_probability.exp()))
            })
            .collect();
        let _ = writeln!(text, "  ({subject}, {relation}, ?)  {}", answers.join("  "));
    }
    Ok(text)
}
