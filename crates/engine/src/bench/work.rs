//! Work: how much does an update compute, so that a small one tells how long a large one takes?

use super::FACTS_PER_ENTITY;
use crate::config::Config;
use crate::network::Network;
use crate::part::Domain;

/// The size of a graph, as far as an update depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphSize {
    /// E.
    pub entities: usize,
    /// R, inverse relations not counted.
    pub relations: usize,
    /// Training facts, which some encoders read for every batch.
    pub facts: usize,
}

impl GraphSize {
    /// Of a graph as [`StepBench::new`](super::StepBench::new) makes it up.
    pub fn of_bench(entities: usize, relations: usize) -> Self {
        Self { entities, relations, facts: FACTS_PER_ENTITY * entities }
    }
}

/// What an update of a model computes, whatever the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StepWork {
    /// Learned numbers, each of which Adam changes.
    pub parameters: usize,
    /// Floating-point operations of products, forward and backward, if every entry of the gradient is
    /// multiplied.
    pub flops: f64,
}

impl StepWork {
    /// Of a config for a graph of this size.
    ///
    /// Three products of two operations each: one forward, two backward. A query meets one row of every
    /// table and all other weights once, the weights that a model of one entity and one relation has;
    /// then each of its components meets all objects. Encoders that read the graph add a sum over all
    /// edges and three products with all entities.
    pub fn of(config: &Config, size: GraphSize) -> Self {
        const OPERATIONS: f64 = 6.0;
        let GraphSize { entities, relations, facts } = size;
        let n_parameters = |entities, relations| {
            Network::n_parameters(config, &Domain::without_edges(entities, relations))
        };
        let (batch, [_, width]) = (config.training.batch as f64, config.scored_dims());
        let components = config.output.n_components();
        let of_query = n_parameters(1, 1) as f64 + (components * width * entities) as f64;
        let initial_dim = config.value("initial_dim").and_then(|value| value.as_integer());
        let of_messages = initial_dim.map_or(0.0, |initial_dim| {
            let edges = 2 * facts + entities;
            initial_dim as f64 * (edges as f64 + (3 * entities * config.dim()) as f64)
        });
        Self {
            parameters: n_parameters(entities, 2 * relations),
            flops: OPERATIONS * (batch * of_query + of_messages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(settings: &str, size: (usize, usize, usize)) -> StepWork {
        let config = Config::parse(&format!("batch = 10\ndim = 24\n{settings}")).unwrap();
        let (entities, relations, facts) = size;
        StepWork::of(&config, GraphSize { entities, relations, facts })
    }

    #[test]
    fn a_query_meets_a_row_of_each_table_all_other_weights_and_all_objects() {
        // Subject and relation; a matrix of the relation; K = 2 gates, two layers and their batch
        // normalisation, and every object twice.
        let distmult = work("", (100, 3, 0));
        assert_eq!(distmult.parameters, 106 * 24);
        assert_eq!(distmult.flops, 60.0 * (48 + 2400) as f64);
        let rescal = work("encoder = \"rescal\"", (100, 3, 0));
        assert_eq!(rescal.parameters, 100 * 24 + 6 * 24 * 24);
        assert_eq!(rescal.flops, 60.0 * (24 + 24 * 24 + 2400) as f64);
        let mixture = work("output = \"mixture\"\ncomponents = 2", (100, 3, 0));
        let projections = 2 * 24 + 2 * 2 * (24 * 24 + 2 * 24);
        assert_eq!(mixture.flops, 60.0 * (48 + projections + 2 * 2400) as f64);
    }

    #[test]
    fn messages_go_along_every_fact_both_ways_whatever_the_batch() {
        let settings = "encoder = \"compgcn\"\ninitial_dim = 5";
        let (few, many) = (work(settings, (100, 3, 50)), work(settings, (100, 3, 90)));
        assert_eq!(many.flops - few.flops, 6.0 * (5 * 2 * 40) as f64);
        assert_eq!(many.parameters, few.parameters);
    }
}
