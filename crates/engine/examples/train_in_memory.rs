//! Training in memory: no folder, no files, a look at every epoch.
//!
//! `cargo run --release --example train_in_memory -- DATA` trains on a graph of your own; without DATA
//! it makes one.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;
use std::sync::Arc;

use fullrank_engine::{Device, Event, RawConfig, Signal, Trainer};
use fullrank_graph::Split;
use fullrank_graph::generate::{GenerateConfig, generate};

fn main() -> Result<(), Box<dyn Error>> {
    // A graph is loaded from nearly anything, split if it is a single file, and immutable from then on.
    let graph = match std::env::args().nth(1) {
        Some(path) => fullrank_graph::load(path.as_ref(), &Default::default())?.graph,
        None => generate(GenerateConfig { entities: 300, ..Default::default() })?,
    };
    let graph = Arc::new(graph);

    // Settings are those of the command line. `advised` chooses what suits the graph where we have not
    // said, as `fullrank train` does; `Config::parse` takes defaults instead.
    let given = RawConfig::parse("dim = 16\nbatch = 100\nlearning_rate = 0.02\nepochs = 10")?;
    let advised = given.advised(&graph)?;
    for chosen in &advised.chosen {
        println!("{} = {}: {}", chosen.name, chosen.value, chosen.reason);
    }
    let config = advised.settings.check()?;
    println!("{}, d = {}", config.description(), config.dim());

    // One callback is told everything, and decides whether to go on.
    let mut trainer = Trainer::new(Arc::clone(&graph), config, Device::Cpu)?;
    trainer.train(&mut |event| {
        if let Event::Epoch(record) = event {
            let valid = record.valid.map_or(0.0, |valid| valid.realistic.mrr);
            println!("epoch {:>2}  loss {:.3}  valid MRR {valid:.4}", record.epoch, record.loss);
        }
        Signal::Continue
    })?;

    // The model has the weights of the epoch that was best on validation. `finish` ranks the held-out
    // answers, beside popularity alone, and fits a temperature.
    let mut model = trainer.into_model();
    let finished = model.finish(&mut fullrank_engine::silent())?;
    if let Some(test) = finished.of(Split::Test) {
        let [model, popularity] =
            [test.metrics, test.baselines.popularity].map(|m| m.realistic.mrr);
        println!("test MRR {model:.4}, by popularity {popularity:.4}");
    }
    Ok(())
}
