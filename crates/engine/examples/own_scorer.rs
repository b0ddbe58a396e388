//! A scorer of your own, ranked by our evaluation: whatever gives log-probabilities of all objects can be
//! compared with every model here, with the same filter, the same ties, the same metrics.

#![expect(clippy::print_stdout, reason = "an example shows what it found")]

use std::error::Error;

use fullrank_engine::evaluate::{Scorer, rank_answers};
use fullrank_engine::metrics::metrics;
use fullrank_engine::{ProbabilityKind, silent};
use fullrank_graph::generate::{GenerateConfig, generate};
use fullrank_graph::{Graph, Query, Split};

/// Says that those answer a query who share most neighbours with its subject.
struct SharedNeighbours<'a> {
    graph: &'a Graph,
    neighbours: Vec<Vec<u32>>,
}

impl<'a> SharedNeighbours<'a> {
    fn new(graph: &'a Graph) -> Self {
        let mut neighbours = vec![Vec::new(); graph.entities().len()];
        for fact in graph.triples(Split::Train) {
            neighbours[fact.subject.0 as usize].push(fact.object.0);
            neighbours[fact.object.0 as usize].push(fact.subject.0);
        }
        Self { graph, neighbours }
    }

    fn log_probs(&self, query: &Query) -> Vec<f32> {
        let mut paths = vec![1.0_f32; self.graph.entities().len()];
        for near in &self.neighbours[query.subject.0 as usize] {
            self.neighbours[*near as usize].iter().for_each(|far| paths[*far as usize] += 1.0);
        }
        let total: f32 = paths.iter().sum();
        paths.into_iter().map(|paths| (paths / total).ln()).collect()
    }
}

impl Scorer for SharedNeighbours<'_> {
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let rows = queries.iter().enumerate();
        rows.map(|(place, query)| map(place, &self.log_probs(query))).collect()
    }

    // Shares among the answers: those of all objects sum to one.
    fn probability(&self) -> ProbabilityKind {
        ProbabilityKind::Categorical
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let graph = generate(GenerateConfig { entities: 300, ..Default::default() })?;
    let ranks = rank_answers(&graph, Split::Test, &SharedNeighbours::new(&graph), &mut silent())?;
    let metrics = metrics(&ranks).ok_or("there are no test triples")?;
    println!("MRR {:.4}, Hits@10 {:.4}", metrics.realistic.mrr, metrics.realistic.hits_at_10);
    Ok(())
}
