//! How large must the dimension be? The bounds of a graph, and which output layer they advise.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;

use fullrank_bounds::{Bounds, advise};
use fullrank_engine::advice::advised_output;
use fullrank_engine::settings::Choice;
use fullrank_graph::generate::{GenerateConfig, generate};
use fullrank_graph::statistics::both_degrees;

fn main() -> Result<(), Box<dyn Error>> {
    let graph = match std::env::args().nth(1) {
        Some(path) => fullrank_graph::load(path.as_ref(), &Default::default())?.graph,
        None => generate(GenerateConfig { entities: 300, ..Default::default() })?,
    };

    // From the numbers of answers alone, in no time: 2c + 1 dimensions tell any c answers from all
    // other objects.
    let bounds = Bounds::from_counts(graph.entities().len(), &both_degrees(&graph));
    println!("no query has more than {} answers", bounds.max_answers);
    println!("{} dimensions are enough for all sets of answers", bounds.worst_case);
    println!("{} for any ranking of the entities", bounds.universality.rankings);

    for dim in [8, 64, 512] {
        let (output, reason) = advised_output(&graph, dim);
        println!("d = {dim}: {:?}, so a {}; {reason}", advise(&graph, dim), output.name());
    }
    Ok(())
}
