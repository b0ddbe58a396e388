//! Splits: which triples are held out?
//!
//! Cuts the triples of a graph into train, valid and test, so that every entity and relation keeps
//! a triple in training.
//! The same graph and seed give the same cut everywhere.

use std::fmt;
use std::str::FromStr;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_mt::Mt;
use rayon::prelude::*;

use crate::{Error, Names, Split, Triple};

/// How to cut.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct CutOptions {
    /// The way and its seed.
    pub splitter: Splitter,
    /// The shares of train, valid and test.
    pub ratios: Ratios,
}

/// A way to cut, with its seed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Splitter {
    /// Holds out triples in random order, as long as training keeps every entity and relation.
    Random {
        /// The cut is a function of the graph and this.
        seed: u64,
    },
    /// The cut that PyKEEN makes of the same triples with the same `random_state`.
    Pykeen {
        /// PyKEEN's `random_state`.
        seed: u64,
    },
}

impl Default for Splitter {
    fn default() -> Self {
        Splitter::Random { seed: 0 }
    }
}

impl fmt::Display for Splitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Splitter::Random { seed } => write!(f, "random:{seed}"),
            Splitter::Pykeen { seed } => write!(f, "pykeen:{seed}"),
        }
    }
}

/// A text that does not name a splitter.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("expected `random:SEED` or `pykeen:SEED`")]
pub struct SplitterError;

impl FromStr for Splitter {
    type Err = SplitterError;

    fn from_str(text: &str) -> Result<Self, SplitterError> {
        let (way, seed) = text.split_once(':').ok_or(SplitterError)?;
        let seed = seed.parse().map_err(|_| SplitterError)?;
        match way {
            "random" => Ok(Splitter::Random { seed }),
            "pykeen" => Ok(Splitter::Pykeen { seed }),
            _ => Err(SplitterError),
        }
    }
}

/// The shares of train, valid and test.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Ratios([f64; 3]);

impl Default for Ratios {
    fn default() -> Self {
        Ratios([0.8, 0.1, 0.1])
    }
}

impl fmt::Display for Ratios {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [train, valid, test] = self.0;
        write!(f, "{train},{valid},{test}")
    }
}

/// A text that does not give three shares.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("expected the shares of train, valid and test, which add up to 1, such as `0.8,0.1,0.1`")]
pub struct RatiosError;

impl FromStr for Ratios {
    type Err = RatiosError;

    fn from_str(text: &str) -> Result<Self, RatiosError> {
        let shares = text.split(',').map(str::parse).collect::<Result<Vec<f64>, _>>();
        let shares: [f64; 3] =
            shares.map_err(|_| RatiosError)?.try_into().map_err(|_| RatiosError)?;
        let in_range = shares[0] > 0.0 && shares.iter().all(|share| *share >= 0.0);
        // Decimal shares add up to one only up to their rounding.
        if in_range && (shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 {
            Ok(Ratios(shares))
        } else {
            Err(RatiosError)
        }
    }
}

/// How a graph was cut.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cut {
    /// The way and its seed.
    pub splitter: Splitter,
    /// Triples that should have been held out by the ratios, but that training cannot spare.
    pub short_by: usize,
}

/// The split of each triple; all triples are distinct.
pub(crate) fn assign(
    entities: &Names,
    relations: &Names,
    triples: &[Triple],
    options: &CutOptions,
) -> Result<(Vec<Split>, Cut), Error> {
    let CutOptions { splitter, ratios } = *options;
    let (split_of, short_by) = match splitter {
        Splitter::Random { seed } => random(entities.len(), relations.len(), triples, ratios, seed),
        Splitter::Pykeen { seed } => (pykeen(entities, relations, triples, ratios, seed)?, 0),
    };
    Ok((split_of, Cut { splitter, short_by }))
}

/// Goes through the triples in random order and holds out each whose entities and relation
/// have another one left, until there are enough.
fn random(
    n_entities: usize,
    n_relations: usize,
    triples: &[Triple],
    ratios: Ratios,
    seed: u64,
) -> (Vec<Split>, usize) {
    let (mut entity_uses, mut relation_uses) = (vec![0u32; n_entities], vec![0u32; n_relations]);
    for triple in triples {
        entity_uses[triple.subject.0 as usize] += 1;
        entity_uses[triple.object.0 as usize] += 1;
        relation_uses[triple.relation.0 as usize] += 1;
    }
    let share = |share: f64| (triples.len() as f64 * share).round() as usize;
    let (n_valid, n_test) = (share(ratios.0[1]), share(ratios.0[2]));

    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut order: Vec<u32> = (0..triples.len() as u32).collect();
    let mut held_out = vec![];
    for i in 0..order.len() {
        if held_out.len() == n_valid + n_test {
            break;
        }
        // Shuffled only as far as it is read.
        order.swap(i, rng.random_range(i..triples.len()));
        let Triple { subject, relation, object } = triples[order[i] as usize];
        let (subject, relation, object) =
            (subject.0 as usize, relation.0 as usize, object.0 as usize);
        entity_uses[subject] -= 1;
        entity_uses[object] -= 1;
        relation_uses[relation] -= 1;
        if entity_uses[subject] == 0 || entity_uses[object] == 0 || relation_uses[relation] == 0 {
            entity_uses[subject] += 1;
            entity_uses[object] += 1;
            relation_uses[relation] += 1;
        } else {
            held_out.push(order[i]);
        }
    }
    let short_by = n_valid + n_test - held_out.len();
    // Where triples are short, both get their part of what there is.
    let n_valid = (held_out.len() * n_valid).checked_div(n_valid + n_test).unwrap_or(0);
    let mut split_of = vec![Split::Train; triples.len()];
    for (i, position) in held_out.into_iter().enumerate() {
        split_of[position as usize] = if i < n_valid { Split::Valid } else { Split::Test };
    }
    (split_of, short_by)
}

/// PyKEEN's coverage splitter.
///
/// Triples are numbered in the order of their names. A cover of all relations, subjects and
/// objects goes to training, the others are permuted as PyTorch does, and the list of both is cut
/// at the ratios, in the order train, test, valid.
fn pykeen(
    entities: &Names,
    relations: &Names,
    triples: &[Triple],
    ratios: Ratios,
    seed: u64,
) -> Result<Vec<Split>, Error> {
    // From here on, PyTorch draws 64-bit numbers.
    let limit = u32::MAX as usize / 20 - 1;
    if triples.len() > limit {
        return Err(Error::TooMany { what: "triples for a PyKEEN split", limit });
    }
    let (entity_place, relation_place) = (places_by_name(entities), places_by_name(relations));
    let mut sorted: Vec<u32> = (0..triples.len() as u32).collect();
    sorted.par_sort_unstable_by_key(|&position| {
        let Triple { subject, relation, object } = triples[position as usize];
        let (subject, object) = (entity_place[subject.0 as usize], entity_place[object.0 as usize]);
        (subject, relation_place[relation.0 as usize], object)
    });
    let in_cover = cover(entities.len(), relations.len(), triples, &sorted);
    let (cover, rest): (Vec<u32>, Vec<u32>) =
        sorted.into_iter().partition(|&position| in_cover[position as usize]);

    let [train, _, test] = ratios.0;
    let n = triples.len() as f64;
    let (train_end, test_end) = ((n * train) as usize, (n * (train + test)) as usize);
    if train_end < cover.len() {
        return Err(Error::SmallTraining { cover: cover.len(), train: train_end });
    }
    let mut split_of = vec![Split::Train; triples.len()];
    for (i, number) in torch_permutation(rest.len(), seed).into_iter().enumerate() {
        split_of[rest[number as usize] as usize] = match cover.len() + i {
            place if place < train_end => Split::Train,
            place if place < test_end => Split::Test,
            _ => Split::Valid,
        };
    }
    Ok(split_of)
}

/// The place of each name among the sorted names.
fn places_by_name(names: &Names) -> Vec<u32> {
    let mut ids: Vec<u32> = (0..names.len() as u32).collect();
    ids.sort_unstable_by_key(|&id| names.name(id));
    let mut places = vec![0; ids.len()];
    for (place, id) in ids.into_iter().enumerate() {
        places[id as usize] = place as u32;
    }
    places
}

/// Which triples PyKEEN puts into training first: in their order by name, the first one of each
/// relation, then the first one with each subject that none of these has, then likewise for objects.
fn cover(n_entities: usize, n_relations: usize, triples: &[Triple], sorted: &[u32]) -> Vec<bool> {
    let mut in_cover = vec![false; triples.len()];
    let mut relation_seen = vec![false; n_relations];
    for &position in sorted {
        let relation = triples[position as usize].relation.0 as usize;
        if !std::mem::replace(&mut relation_seen[relation], true) {
            in_cover[position as usize] = true;
        }
    }
    for slot in [|triple: &Triple| triple.subject, |triple: &Triple| triple.object] {
        let mut seen = vec![false; n_entities];
        for (triple, _) in triples.iter().zip(&in_cover).filter(|(_, covered)| **covered) {
            seen[triple.subject.0 as usize] = true;
            seen[triple.object.0 as usize] = true;
        }
        for &position in sorted {
            let entity = slot(&triples[position as usize]).0 as usize;
            if !std::mem::replace(&mut seen[entity], true) {
                in_cover[position as usize] = true;
            }
        }
    }
    in_cover
}

/// The numbers below `n` as `torch.randperm` orders them on the CPU.
fn torch_permutation(n: usize, seed: u64) -> Vec<u32> {
    // PyTorch seeds its Mersenne Twister with the low half of the seed.
    let mut rng = Mt::new(seed as u32);
    let mut order: Vec<u32> = (0..n as u32).collect();
    for i in 0..n.saturating_sub(1) {
        let offset = rng.next_u32() as usize % (n - i);
        order.swap(i, i + offset);
    }
    order
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Graph;
    use crate::graph::tests::show;

    fn check(text: &str, splitter: &str, ratios: &str) -> Result<(Graph, Cut), Error> {
        let options =
            CutOptions { splitter: splitter.parse().unwrap(), ratios: ratios.parse().unwrap() };
        let graph = Graph::from_text(text);
        let (entities, relations) = (graph.entities().clone(), graph.relations().clone());
        let triples = graph.triples(Split::Train).to_vec();
        Graph::from_uncut_triples(entities, relations, triples, &options)
    }

    fn sizes(graph: &Graph) -> [usize; 3] {
        Split::ALL.map(|split| graph.triples(split).len())
    }

    /// The example that PyKEEN was given too, to be split there as here.
    fn example() -> String {
        let mut triples: Vec<String> = (0..64)
            .map(|i| format!("n{} r{} n{}", i * 7 % 12, i / 3 % 4, (i * 5 + 3 + i / 12) % 12))
            .collect();
        triples.extend(["é r9 n1".to_owned(), "n1 r0 Z".to_owned()]);
        triples.join("; ")
    }

    #[test]
    fn training_keeps_every_entity_and_relation() {
        for seed in 0..20 {
            let (graph, cut) = check(&example(), &format!("random:{seed}"), "0.8,0.1,0.1").unwrap();
            assert_eq!(sizes(&graph), [52, 7, 7]);
            assert_eq!(cut.short_by, 0);
            let unseen = crate::statistics::unseen(&graph);
            assert_eq!((unseen.entities, unseen.relations), (0, 0));
        }
    }

    #[test]
    fn the_seed_decides_the_cut() {
        let held_out = |splitter: &str| {
            let (graph, _) = check(&example(), splitter, "0.8,0.1,0.1").unwrap();
            show(&graph, Split::Test)
        };
        assert_eq!(held_out("random:1"), held_out("random:1"));
        assert_ne!(held_out("random:1"), held_out("random:2"));
    }

    #[test]
    fn triples_that_training_needs_are_not_held_out() {
        // A path: only the middle triples can go, and of two neighbours only one.
        let (graph, cut) = check("a r b; b r c; c r d; d r e", "random:0", "0.2,0.4,0.4").unwrap();
        let [train, valid, test] = sizes(&graph);
        assert_eq!(train + valid + test, 4);
        assert_eq!(cut.short_by, 4 - (valid + test));
        assert_eq!(crate::statistics::unseen(&graph).entities, 0);
        // Here nothing at all can go.
        let (graph, cut) = check("a r a; b q b", "random:0", "0.5,0.25,0.25").unwrap();
        assert_eq!((sizes(&graph), cut.short_by), ([2, 0, 0], 2));
    }

    #[test]
    fn permutations_are_those_of_torch() {
        // Printed by torch.randperm(10, generator=torch.Generator().manual_seed(SEED)), torch 2.13.
        assert_eq!(torch_permutation(10, 0), [4, 1, 7, 5, 3, 9, 0, 8, 6, 2]);
        assert_eq!(torch_permutation(10, 1), [5, 6, 1, 2, 0, 8, 9, 3, 7, 4]);
        assert_eq!(torch_permutation(10, 42), [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]);
        assert_eq!(torch_permutation(0, 0), [0; 0]);
    }

    #[test]
    fn pykeen_users_get_their_split() {
        // Printed by PyKEEN 1.11.1 for the same triples:
        // TriplesFactory.from_labeled_triples(…).split([.8, .1, .1], random_state=42).
        let train = "n0 r0 n3; n1 r0 Z; n1 r2 n2; n10 r3 n5; n11 r1 n4; n6 r2 n0; n7 r0 n0; \
            n8 r2 n10; n9 r1 n10; é r9 n1; n2 r0 n6; n1 r2 n6; n5 r3 n11; n6 r2 n10; n5 r3 n1; \
            n4 r1 n0; n3 r3 n3; n1 r2 n4; n4 r1 n11; n2 r0 n1; n9 r1 n8; n11 r1 n7; n1 r2 n5; \
            n5 r3 n0; n4 r1 n1; n7 r0 n1; n9 r1 n11; n2 r0 n2; n5 r3 n10; n4 r1 n2; n11 r1 n5; \
            n10 r3 n8; n3 r3 n4; n6 r2 n11; n10 r3 n6; n7 r0 n11; n5 r3 n2; n9 r1 n6; n11 r1 n8; \
            n0 r0 n5; n3 r3 n2; n0 r0 n6; n1 r2 n3; n9 r1 n9; n9 r1 n7; n2 r0 n5; n2 r0 n4; \
            n2 r0 n3; n8 r2 n7; n11 r1 n6; n8 r2 n9; n0 r0 n8";
        let valid = "n7 r0 n8; n3 r3 n0; n10 r3 n9; n7 r0 n9; n6 r2 n1; n0 r0 n4; n0 r0 n7";
        let test = "n8 r2 n11; n8 r2 n8; n3 r3 n1; n10 r3 n7; n7 r0 n10; n4 r1 n3; n6 r2 n9";
        let (graph, _) = check(&example(), "pykeen:42", "0.8,0.1,0.1").unwrap();
        for (split, expected) in Split::ALL.into_iter().zip([train, valid, test]) {
            let mut found = show(&graph, split);
            let mut expected: Vec<&str> = expected.split("; ").collect();
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected, "{split}");
        }
    }

    #[test]
    fn what_pykeen_refuses_is_refused() {
        let error = check("a r b; c r d; e r f", "pykeen:0", "0.4,0.3,0.3").unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected at least 3 training triples, to have every entity and relation, found 1"
        );
    }

    #[test]
    fn cutting_loses_no_triple() {
        let all: BTreeSet<String> =
            show(&Graph::from_text(&example()), Split::Train).into_iter().collect();
        for splitter in ["random:3", "pykeen:3"] {
            let (graph, _) = check(&example(), splitter, "0.7,0.2,0.1").unwrap();
            let parts: BTreeSet<String> =
                Split::ALL.iter().flat_map(|&split| show(&graph, split)).collect();
            assert_eq!(parts, all);
            assert_eq!(sizes(&graph).iter().sum::<usize>(), all.len());
        }
    }

    #[test]
    fn settings_are_read_and_refused() {
        assert_eq!("pykeen:42".parse(), Ok(Splitter::Pykeen { seed: 42 }));
        for text in ["pykeen", "pykeen:-1", "sorted:1", ""] {
            assert_eq!(text.parse::<Splitter>(), Err(SplitterError), "{text}");
        }
        assert_eq!(SplitterError.to_string(), "expected `random:SEED` or `pykeen:SEED`");
        assert_eq!("0.9,0.05,0.05".parse(), Ok(Ratios([0.9, 0.05, 0.05])));
        for text in ["0.8,0.2", "0.8,0.1,0.2", "0,0.5,0.5", "1.2,-0.1,-0.1", "NaN,0,0"] {
            assert_eq!(text.parse::<Ratios>(), Err(RatiosError), "{text}");
        }
        assert_eq!(
            RatiosError.to_string(),
            "expected the shares of train, valid and test, which add up to 1, such as `0.8,0.1,0.1`"
        );
    }
}
