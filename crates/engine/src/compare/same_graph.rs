//! The same graph: have two runs the same triples in the same splits, whatever their ids?

use std::collections::HashSet;

use fullrank_graph::{EntityId, Graph, Names, Query, RelationId, Split, Triple};

use crate::metrics::AnswerRank;

/// Ids of a graph in another one that has the same names and triples.
#[derive(Debug, PartialEq)]
pub(super) struct Renumbering {
    entities: Vec<u32>,
    relations: Vec<u32>,
}

impl Renumbering {
    /// From a graph to the same one with other ids; nothing if they are the same.
    ///
    /// # Errors
    /// With what differs, if they are not the same graph with the same splits.
    pub(super) fn between(from: &Graph, to: &Graph) -> Result<Option<Self>, Vec<String>> {
        let is_same = from.entities().iter().eq(to.entities().iter())
            && from.relations().iter().eq(to.relations().iter())
            && Split::ALL.iter().all(|split| from.triples(*split) == to.triples(*split));
        if is_same {
            return Ok(None);
        }
        let names = [
            ("entities", ids_in(from.entities(), to.entities()), to.entities().len()),
            ("relations", ids_in(from.relations(), to.relations()), to.relations().len()),
        ];
        let differences: Vec<String> = names
            .iter()
            .filter_map(|(what, ids, expected)| {
                let n_same = ids.iter().flatten().count();
                difference(what, *expected, ids.len(), n_same)
            })
            .collect();
        if !differences.is_empty() {
            return Err(differences);
        }
        let [entities, relations] =
            names.map(|(_, ids, _)| ids.into_iter().flatten().collect::<Vec<u32>>());
        let renumbering = Self { entities, relations };
        let differences: Vec<String> = Split::ALL
            .into_iter()
            .filter_map(|split| {
                let own: HashSet<Triple> = to.triples(split).iter().copied().collect();
                let others = from.triples(split);
                let is_same = |triple: &&Triple| own.contains(&renumbering.triple(triple));
                let n_same = others.iter().filter(is_same).count();
                difference(&format!("{split} triples"), own.len(), others.len(), n_same)
            })
            .collect();
        if differences.is_empty() { Ok(Some(renumbering)) } else { Err(differences) }
    }

    /// Ranks of the one graph as those of the other.
    pub(super) fn apply(&self, from: &Graph, to: &Graph, ranks: &mut [AnswerRank]) {
        for rank in ranks {
            let Query { subject, relation } = from.answers().query(rank.query as usize);
            let own = if from.is_inverse(relation) { from.inverse(relation) } else { relation };
            let forward = RelationId(self.relations[own.0 as usize]);
            let is_inverse = own != relation;
            let query = Query {
                subject: self.entity(subject),
                relation: if is_inverse { to.inverse(forward) } else { forward },
            };
            let number = to.answers().find(query).expect("both have the same triples");
            rank.query = number as u32;
            rank.object = self.entity(rank.object);
        }
    }

    fn entity(&self, id: EntityId) -> EntityId {
        EntityId(self.entities[id.0 as usize])
    }

    fn triple(&self, triple: &Triple) -> Triple {
        Triple {
            subject: self.entity(triple.subject),
            relation: RelationId(self.relations[triple.relation.0 as usize]),
            object: self.entity(triple.object),
        }
    }
}

/// Of each name its id among others, if it is there.
fn ids_in(names: &Names, others: &Names) -> Vec<Option<u32>> {
    names.iter().map(|name| others.find(name)).collect()
}

/// What was expected and found, unless all are the same.
fn difference(what: &str, expected: usize, found: usize, n_same: usize) -> Option<String> {
    let differs = expected != found || n_same < found;
    differs.then(|| format!("{what}: expected {expected}, found {found}, {n_same} in both"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::tests::graph;

    fn differences(from: [&str; 3], to: [&str; 3]) -> String {
        Renumbering::between(&graph(from), &graph(to)).unwrap_err().join("; ")
    }

    #[test]
    fn what_differs_is_counted() {
        let first = ["a r b; b r c", "a r c", "c r a"];
        assert_eq!(
            differences(["a r b; b q d", "a r c", "c r a"], first),
            "entities: expected 3, found 4, 3 in both; relations: expected 1, found 2, 1 in both"
        );
        assert_eq!(
            differences(["a r b; b r c", "c r a", "a r c; b r a"], first),
            "valid triples: expected 1, found 1, 0 in both; test triples: expected 1, found 2, 0 in both"
        );
    }

    #[test]
    fn the_same_graph_in_another_order_is_the_same() {
        let to = graph(["a r b; b q c", "", "c r a; a q c"]);
        assert_eq!(Renumbering::between(&to, &to), Ok(None));
        let from = graph(["b q c; a r b", "", "a q c; c r a"]);
        let renumbering = Renumbering::between(&from, &to).unwrap().unwrap();
        let rank = |graph: &Graph, query: (&str, &str, bool), object: &str| {
            let id = |name: &str| EntityId(graph.entities().find(name).unwrap());
            let relation = RelationId(graph.relations().find(query.1).unwrap());
            let relation = if query.2 { graph.inverse(relation) } else { relation };
            let query = Query { subject: id(query.0), relation };
            AnswerRank {
                query: graph.answers().find(query).unwrap() as u32,
                object: id(object),
                above: 0,
                beside: 0,
                from_test: (0, 0),
                candidates: 3,
                candidates_from_test: 0,
                nll_candidates: None,
                nll_filtered: None,
                nll: None,
            }
        };
        for (query, object) in [(("c", "r", false), "a"), (("c", "q", true), "a")] {
            let mut ranks = [rank(&from, query, object)];
            renumbering.apply(&from, &to, &mut ranks);
            assert_eq!(ranks, [rank(&to, query, object)]);
        }
    }
}
