//! Batch prediction from threads: one predictor, asked by many at once.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;
use std::sync::Arc;
use std::thread;

use fullrank_engine::answers::Prediction;
use fullrank_engine::predictor::Ask;
use fullrank_engine::{Config, Device, Predictor, Trainer, silent};
use fullrank_graph::Split;
use fullrank_graph::generate::{GenerateConfig, generate};

fn main() -> Result<(), Box<dyn Error>> {
    let graph = Arc::new(generate(GenerateConfig { entities: 300, ..Default::default() })?);
    let config = Config::parse("dim = 16\nbatch = 100\nlearning_rate = 0.02\nepochs = 5")?;
    let mut trainer = Trainer::new(Arc::clone(&graph), config, Device::Cpu)?;
    trainer.train(&mut silent())?;
    // A model from disk is `Model::open(folder, Device::Cpu)`.
    let predictor = Predictor::new(trainer.into_model());

    // Every question has its own number of answers, candidates and temperature; those of one call
    // are scored together.
    let queries: Vec<_> = graph.triples(Split::Test).iter().take(8).collect();
    let answered: Vec<Vec<Prediction>> = thread::scope(|scope| {
        let threads: Vec<_> = queries
            .chunks(4)
            .map(|facts| {
                let predictor = &predictor;
                scope.spawn(move || {
                    let ask = |fact: &&fullrank_graph::Triple| {
                        let (subject, relation) = (fact.subject, fact.relation);
                        Ask { k: 3, ..Ask::new(fullrank_graph::Query { subject, relation }) }
                    };
                    let asks: Vec<Ask> = facts.iter().map(ask).collect();
                    let answers = predictor.answer(&asks).expect("the model gives numbers");
                    asks.iter()
                        .zip(&answers)
                        .map(|(ask, answered)| Prediction::new(predictor, ask.query, answered))
                        .collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    for prediction in answered.iter().flatten() {
        let names: Vec<String> = prediction
            .answers
            .iter()
            .map(|answer| format!("{} {:.3}", answer.name, answer.probability))
            .collect();
        println!("{}  {}", prediction.query, names.join("  "));
    }
    Ok(())
}
