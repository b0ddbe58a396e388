//! How long does each part take? `cargo bench` needs no data: graphs are generated.
//!
//! A training step over encoder, E, d, B, K and answers; loading and inspecting a graph; ranking a
//! split and answering a query with a trained model. `benches/suite.py` has others beside it.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;

use divan::Bencher;
use fullrank_bounds::{Analysis, Side};
use fullrank_engine::bench::StepBench;
use fullrank_engine::evaluate::rank_answers;
use fullrank_engine::predictor::Ask;
use fullrank_engine::settings::Choice;
use fullrank_engine::{Config, Device, EncoderKind, Model, OutputKind, Predictor, Trainer, silent};
use fullrank_graph::generate::{GenerateConfig, generate};
use fullrank_graph::load::{LoadOptions, load_bytes};
use fullrank_graph::{Graph, Query, Split};

fn main() {
    divan::main();
}

/// Sizes of a training step.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    encoder: EncoderKind,
    entities: usize,
    dim: usize,
    batch: usize,
    /// 0 is a softmax.
    components: usize,
    answers: usize,
}

/// FB15k-237's, with a mixture.
const USUAL: Sizes = Sizes {
    encoder: EncoderKind::DistMult,
    entities: 14_541,
    dim: 200,
    batch: 1000,
    components: 4,
    answers: 4,
};

/// One size at a time is another.
const SIZES: [Sizes; 8] = [
    USUAL,
    Sizes { components: 0, ..USUAL },
    Sizes { components: 1, ..USUAL },
    Sizes { encoder: EncoderKind::ConvE, components: 0, ..USUAL },
    Sizes { entities: 40_943, ..USUAL },
    Sizes { dim: 64, ..USUAL },
    Sizes { batch: 250, ..USUAL },
    Sizes { answers: 32, ..USUAL },
];

#[divan::bench(args = SIZES, sample_count = 7, sample_size = 1)]
fn step(bencher: Bencher, sizes: Sizes) {
    let Sizes { encoder, entities, dim, batch, components, answers } = sizes;
    let output = match components {
        0 => "output = \"softmax\"".to_owned(),
        _ => format!("output = \"mixture\"\ncomponents = {components}"),
    };
    let encoder = encoder.name();
    let settings =
        format!("encoder = \"{encoder}\"\ndim = {dim}\nbatch = {batch}\nexact = true\n{output}");
    let config = Config::parse(&settings).expect("settings that can train");
    let mut bench = StepBench::new(&config, entities, 474, answers);
    // The first one makes room.
    bench.step();
    bencher.bench_local(|| bench.step());
}

#[divan::bench(sample_count = 7, sample_size = 1)]
fn load(bencher: Bencher) {
    let graph = some_graph(21.0);
    let lines = Split::ALL.into_iter().flat_map(|split| graph.triples(split)).map(|triple| {
        let entity = |id| graph.entities().name(id);
        let relation = graph.relations().name(triple.relation.0);
        format!("{}\t{relation}\t{}\n", entity(triple.subject.0), entity(triple.object.0))
    });
    let text: String = lines.collect();
    let options = LoadOptions::default();
    bencher.with_inputs(|| text.clone().into_bytes()).bench_values(|bytes| {
        load_bytes(Path::new("graph.tsv"), bytes, &options).expect("it was written as it is read")
    });
}

/// Counts, degrees and the paper's order.
#[divan::bench(sample_count = 7, sample_size = 1)]
fn inspect(bencher: Bencher) {
    let graph = some_graph(21.0);
    bencher.bench(|| Analysis::of(&graph, Side::Both, None, &mut || ()));
}

#[divan::bench(args = [OutputKind::Softmax, OutputKind::Mixture], sample_count = 7, sample_size = 1)]
fn rank(bencher: Bencher, output: OutputKind) {
    let model = some_model(output);
    bencher.bench(|| {
        rank_answers(model.graph(), Split::Test, &model, &mut silent())
            .expect("a model whose loss was finite")
    });
}

/// The ten best answers to one query.
#[divan::bench(args = [OutputKind::Softmax, OutputKind::Mixture], sample_count = 200, sample_size = 1)]
fn query(bencher: Bencher, output: OutputKind) {
    let predictor = Predictor::new(some_model(output));
    let answers = predictor.model().graph().answers();
    let queries: Vec<Query> = (0..answers.n_queries()).map(|i| answers.query(i)).collect();
    let mut next = queries.iter().cycle();
    bencher.bench_local(|| {
        let query = next.next().expect("a cycle has no end");
        black_box(&predictor).answer(&[Ask::new(*query)]).expect("a model whose loss was finite")
    });
}

/// With as many entities and relations as FB15k-237, and with a `mean_degree` of 21 as many triples.
fn some_graph(mean_degree: f64) -> Graph {
    let config = GenerateConfig {
        entities: 14_541,
        relations: 237,
        mean_degree,
        ..GenerateConfig::default()
    };
    generate(config).expect("few enough triples")
}

/// A model that has learned next to nothing, of few facts, so that it is soon there: one that is
/// sure of known answers takes a little longer, because what it leaves to all others must be summed
/// up.
fn some_model(output: OutputKind) -> Model {
    let graph = Arc::new(some_graph(1.0));
    let settings = format!("output = \"{}\"\nepochs = 1", output.name());
    let config = Config::parse(&settings).expect("settings that can train");
    let mut trainer = Trainer::new(graph, config, Device::Cpu).expect("a config that fits");
    trainer.train(&mut silent()).expect("a finite loss");
    trainer.into_model()
}
