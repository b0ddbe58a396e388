use fullrank_graph::{Names, RelationId};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::config::Config;
use crate::device::Device;
use crate::network::Network;
use crate::part::Domain;
use crate::progress::silent;
use crate::random::Weights;

/// A graph from lines such as `ann knows bob; bob knows cid`, one per split.
pub(crate) fn graph(splits: [&str; 3]) -> Graph {
    let (mut entities, mut relations) = (Names::default(), Names::default());
    let triples = splits.map(|text| {
        let lines = text.split(';').map(str::trim).filter(|line| !line.is_empty());
        lines
            .map(|line| {
                let parts: Vec<&str> = line.split_whitespace().collect();
                Triple {
                    subject: EntityId(entities.intern(parts[0]).unwrap()),
                    relation: RelationId(relations.intern(parts[1]).unwrap()),
                    object: EntityId(entities.intern(parts[2]).unwrap()),
                }
            })
            .collect()
    });
    Graph::from_triples(entities, relations, triples).unwrap()
}

/// Log-probabilities from a function of query and object.
pub(crate) struct Fixed<F: Fn(Query, u32) -> f32>(pub(crate) usize, pub(crate) F);

impl<F: Fn(Query, u32) -> f32> Scorer for Fixed<F> {
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let row = |query: &Query| -> Vec<f32> {
            (0..self.0 as u32).map(|object| (self.1)(*query, object)).collect()
        };
        queries.iter().map(row).enumerate().map(|(place, row)| map(place, &row)).collect()
    }

    fn probability(&self) -> ProbabilityKind {
        ProbabilityKind::Categorical
    }
}

fn ranks(graph: &Graph, split: Split, score: impl Fn(Query, u32) -> f32) -> Vec<AnswerRank> {
    let scorer = Fixed(graph.entities().len(), score);
    rank_answers(graph, split, &scorer, &mut silent()).unwrap()
}

#[test]
fn a_hand_worked_example() {
    // Entities in order: a, b, c, d, e. The probabilities of a, b, c, d, e for every query are
    // .4, .3, .1, .1, .1.
    let graph = graph(["a r b; a r c", "a r d", "a r e"]);
    let probs = [0.4_f32, 0.3, 0.1, 0.1, 0.1];
    let found = ranks(&graph, Split::Test, |_, object| probs[object as usize].ln());
    // Asking (a, r, ?): b, c, d are known; e competes with a, which is above it.
    let forward = found[0];
    assert_eq!((forward.above, forward.beside, forward.candidates), (1, 0, 2));
    assert_eq!(forward.realistic(), 2.0);
    // Training answers b and c leave .4 + .1 + .1: the filtered probability is .1 / .6.
    assert!((forward.nll_filtered.unwrap() - 6_f64.ln()).abs() < 1e-6);
    assert!((forward.nll.unwrap() - 10_f64.ln()).abs() < 1e-6);
    // Asking (e, r⁻¹, ?): nothing else is known; a is the most likely of all.
    let inverse = found[1];
    assert_eq!((inverse.above, inverse.beside, inverse.candidates), (0, 0, 5));
    let all = metrics(&found).unwrap();
    assert_eq!(all.n_ranks, 2);
    assert_eq!(all.realistic.mrr, 0.75);
    assert_eq!((all.realistic.hits_at_1, all.realistic.hits_at_3), (0.5, 1.0));
    // Mean rank 1.5 against (1.5 + 3) / 2 by chance: 1 − .5 / 1.25.
    assert!((all.realistic.amri - 0.6).abs() < 1e-12);
}

#[test]
fn in_validation_test_answers_compete_unless_they_are_filtered_too() {
    let graph = graph(["a r b; a r c", "a r d", "a r e"]);
    let probs = [0.4_f32, 0.3, 0.1, 0.1, 0.1];
    let found = ranks(&graph, Split::Valid, |_, object| probs[object as usize].ln());
    // Asking (a, r, ?): d competes with a, which is above it, and with e, a test answer beside it.
    assert_eq!((found[0].above, found[0].beside, found[0].from_test), (1, 1, (0, 1)));
    // Asking (d, r⁻¹, ?): a is the most likely of all.
    let all = metrics(&found).unwrap();
    assert!((all.realistic.mrr - (1.0 / 2.5 + 1.0) / 2.0).abs() < 1e-12);
    assert_eq!(all.mrr_filtered_with_test, Some((1.0 / 2.0 + 1.0) / 2.0));
}

#[test]
fn ties_count_half() {
    let graph = graph(["a r b", "", "c r d"]);
    let found = ranks(&graph, Split::Test, |_, object| if object == 0 { -1.0 } else { -2.0 });
    // (c, r, ?): d ties with b and c behind a.
    assert_eq!(found[0].optimistic(), 2.0);
    assert_eq!(found[0].realistic(), 3.0);
    assert_eq!(found[0].pessimistic(), 4.0);
}

#[test]
fn a_constant_model_gets_the_chance_value() {
    let graph = random_graph(30, 3, 200, 5);
    let found = ranks(&graph, Split::Test, |_, _| -(30_f32.ln()));
    for rank in &found {
        assert_eq!(rank.realistic(), (f64::from(rank.candidates) + 1.0) / 2.0);
    }
    let all = metrics(&found).unwrap();
    assert!(all.realistic.amri.abs() < 1e-12);
    assert!((all.nll.unwrap() - 30_f64.ln()).abs() < 1e-5);
}

pub(crate) fn random_graph(entities: u32, relations: u32, triples: usize, seed: u64) -> Graph {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let name = |prefix: &str, n: u32| {
        let mut names = Names::default();
        for i in 0..n {
            names.intern(&format!("{prefix}{i}")).unwrap();
        }
        names
    };
    let mut draw = |n: usize| {
        let triple = |_| Triple {
            subject: EntityId(rng.random_range(0..entities)),
            relation: RelationId(rng.random_range(0..relations)),
            object: EntityId(rng.random_range(0..entities)),
        };
        (0..n).map(triple).collect::<Vec<Triple>>()
    };
    let splits = [draw(triples), draw(triples / 5), draw(triples / 5)];
    Graph::from_triples(name("e", entities), name("r", relations), splits).unwrap()
}

/// The rank of one triple's object by the definition: sort nothing, skip what is known.
fn naive_rank(graph: &Graph, split: Split, query: Query, object: u32, row: &[f64]) -> (f64, f64) {
    let known: Vec<EntityId> = Split::ALL
        .into_iter()
        .filter(|other| *other <= split)
        .flat_map(|other| graph.triples(other))
        .filter_map(|t| {
            if t.subject == query.subject && t.relation == query.relation {
                Some(t.object)
            } else if t.object == query.subject && graph.inverse(t.relation) == query.relation {
                Some(t.subject)
            } else {
                None
            }
        })
        .collect();
    let score = row[object as usize];
    let (mut above, mut beside) = (0.0, 0.0);
    for (other, x) in row.iter().enumerate() {
        if other as u32 == object || known.contains(&EntityId(other as u32)) {
            continue;
        }
        above += f64::from(u8::from(*x > score));
        beside += f64::from(u8::from(*x == score));
    }
    (above + beside / 2.0 + 1.0, above + 1.0)
}

#[test]
fn ranks_equal_a_naive_oracle_in_f64_on_random_graphs() {
    for seed in 0..5 {
        let graph = random_graph(40, 4, 300, seed);
        // A few distinct values, so that ties are many and exact in both precisions.
        let score = |query: Query, object: u32| {
            let mixed = (query.subject.0 * 31 + query.relation.0 * 17 + object * 7) % 11;
            -1.0 - f64::from(mixed) / 8.0
        };
        for split in [Split::Valid, Split::Test] {
            for rank in ranks(&graph, split, |query, object| score(query, object) as f32) {
                let query = graph.answers().query(rank.query as usize);
                let row: Vec<f64> = (0..40).map(|object| score(query, object)).collect();
                let expected = naive_rank(&graph, split, query, rank.object.0, &row);
                assert_eq!((rank.realistic(), rank.optimistic()), expected);
            }
        }
    }
}

#[test]
fn a_model_ranks_as_the_oracle_does() {
    for (seed, text) in [(1, ""), (2, "output = \"mixture\"\ncomponents = 3\nbias = true")] {
        let graph = random_graph(60, 3, 400, seed);
        let config = Config::parse(&format!("dim = 8\n{text}")).unwrap();
        let weights = Weights::new(0, Device::Cpu.burn());
        let network = Network::new(&config, &Domain::without_edges(60, 6), weights);
        let found =
            rank_answers(&graph, Split::Test, &network.clone().scoring(), &mut silent()).unwrap();
        for rank in found {
            let query = graph.answers().query(rank.query as usize);
            let row = probabilities(&network, query);
            let score = row[rank.object.0 as usize];
            // Scores closer than single precision can tell apart may stand either way.
            let close = row.iter().filter(|x| (*x / score - 1.0).abs() < 1e-5).count() - 1;
            let (expected, _) = naive_rank(&graph, Split::Test, query, rank.object.0, &row);
            assert!((rank.realistic() - expected).abs() <= close as f64);
        }
    }
}

/// P of every object for one query, from the network's own vectors in f64.
fn probabilities(network: &Network, query: Query) -> Vec<f64> {
    let (context, log_prior, objects, bias) = network.vectors(query);
    let dim = objects.len() / bias.len();
    let mut mixed = vec![0.0; bias.len()];
    for (context, log_prior) in context.chunks_exact(dim).zip(log_prior) {
        let logits: Vec<f64> = objects
            .chunks_exact(dim)
            .zip(&bias)
            .map(|(object, bias)| {
                bias + context.iter().zip(object).map(|(a, b)| a * b).sum::<f64>()
            })
            .collect();
        let sum: f64 = logits.iter().map(|z| z.exp()).sum();
        mixed.iter_mut().zip(logits).for_each(|(p, z)| *p += (log_prior + z).exp() / sum);
    }
    mixed
}

#[test]
fn a_triple_that_is_in_training_too_is_ranked_as_any_other() {
    let graph = graph(["a r b; a r c", "", "a r b"]);
    let probs = [0.5_f32, 0.3, 0.2];
    let found = ranks(&graph, Split::Test, |_, object| probs[object as usize].ln());
    let forward = found.iter().find(|rank| rank.object == EntityId(1)).unwrap();
    assert_eq!((forward.above, forward.candidates), (1, 2));
    // c is removed, b itself is not: .3 of .8.
    assert!((forward.nll_filtered.unwrap() - (0.8_f64 / 0.3).ln()).abs() < 1e-6);
}

#[test]
fn breakdowns_cover_every_rank() {
    let graph = random_graph(40, 4, 300, 3);
    let found = ranks(&graph, Split::Test, |_, object| -(object as f32));
    for by in [Breakdown::Direction, Breakdown::Relation, Breakdown::Class, Breakdown::Degree] {
        let parts = break_down(&graph, &found, by);
        assert_eq!(parts.iter().map(|(_, part)| part.n_ranks).sum::<usize>(), found.len());
    }
    let parts = break_down(&graph, &found, Breakdown::Direction);
    assert_eq!(
        parts.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
        ["objects", "subjects"]
    );
}

#[test]
fn unseen_entities_can_be_left_out() {
    let graph = graph(["a r b; b r c", "", "a r c; a r new"]);
    let found = ranks(&graph, Split::Test, |_, object| -(object as f32));
    assert_eq!((found.len(), without_unseen(&graph, &found).len()), (4, 2));
}

#[test]
fn candidates_alone_compete() {
    use fullrank_graph::load::{Candidates, Rows};
    let graph = graph(["a r b; c r d; e r a", "", "a r e"]);
    let rows =
        |ids: &[u32]| Rows { width: 2, entities: ids.iter().map(|id| EntityId(*id)).collect() };
    // (a, r, ?) against b and c, (e, r⁻¹, ?) against c and d.
    let candidates = Candidates { objects: rows(&[1, 2]), subjects: rows(&[2, 3]) };
    let probs = [0.1_f32, 0.4, 0.2, 0.1, 0.2];
    let scorer = Fixed(5, |_, object| probs[object as usize].ln());
    let found = rank_candidates(&graph, Split::Test, &candidates, &scorer, &mut silent());
    let mut found = found.unwrap();
    found.sort_by_key(|rank| rank.object);
    // a (.1) is behind c (.2) and beside d (.1); e (.2) is behind b (.4) and beside c (.2).
    let places: Vec<(u32, f64)> =
        found.iter().map(|rank| (rank.object.0, rank.realistic())).collect();
    assert_eq!(places, [(0, 2.5), (4, 2.5)]);
    // Among candidates .1 of .4 and .2 of .8; of all entities, without b, which training has for
    // (a, r, ?), .1 and .2 of .6; and as they are.
    let check = |nll: fn(&AnswerRank) -> Option<f64>, of_a: f64, of_e: f64| {
        for (rank, expected) in found.iter().zip([of_a, of_e]) {
            assert!((nll(rank).unwrap() - expected.ln()).abs() < 1e-6, "{rank:?}");
        }
    };
    check(|rank| rank.nll_candidates, 4.0, 4.0);
    check(|rank| rank.nll_filtered, 10.0, 3.0);
    check(|rank| rank.nll, 10.0, 5.0);
}

#[test]
fn a_score_that_is_no_number_is_an_error() {
    let graph = graph(["a r b", "", "a r b"]);
    let scorer = Fixed(2, |_, object| if object == 0 { f32::NAN } else { 0.0 });
    let error = rank_answers(&graph, Split::Test, &scorer, &mut silent());
    assert_eq!(error.unwrap_err().to_string(), "the model gives scores that are not numbers");
}

#[test]
fn a_perfect_model_is_calibrated_and_a_cold_one_is_not() {
    // Every query (s, r, ?) draws b with .75 and c with .25; the other direction is certain.
    let mut test = String::new();
    for i in 0..80 {
        test.push_str(&format!("s{i} r {};", if i % 4 == 0 { "c" } else { "b" }));
    }
    let graph = graph(["b r c", &test, &test]);
    let [b, c] = ["b", "c"].map(|name| graph.entities().find(name).unwrap());
    let score = |power: f32| {
        move |query: Query, object: u32| {
            let p: f32 = if query.relation.0 == 1 {
                1.0 / 80.0
            } else if object == b {
                0.75
            } else if object == c {
                0.25
            } else {
                1e-9
            };
            p.ln() * power
        }
    };
    let n = graph.entities().len();
    let forward_only = |temperature: f64, power: f32| {
        calibrate(&graph, Split::Test, &Fixed(n, score(power)), temperature, &mut silent()).unwrap()
    };
    let right = forward_only(1.0, 1.0);
    let top = right.top_answer.bins.last().unwrap();
    assert!((top.predicted - 0.75).abs() < 1e-3 && (top.observed - 0.75).abs() < 1e-9, "{top:?}");
    // Squared probabilities are too sure of themselves; at temperature 2 they are right again.
    let cold = forward_only(1.0, 2.0);
    let mended = forward_only(2.0, 2.0);
    assert!(cold.top_answer.ece > right.top_answer.ece + 0.05);
    assert!((mended.top_answer.ece - right.top_answer.ece).abs() < 1e-3);
    let fitted = fit_temperature(&graph, Split::Valid, &Fixed(n, score(2.0)), &mut silent());
    assert!((fitted.unwrap().unwrap() - 2.0).abs() < 0.1);
    // Far from 1 as well.
    let fitted = fit_temperature(&graph, Split::Valid, &Fixed(n, score(40.0)), &mut silent());
    assert!((fitted.unwrap().unwrap() / 40.0 - 1.0).abs() < 0.05);
}

#[test]
fn a_triple_that_is_as_likely_as_it_happens_is_calibrated() {
    /// A tenth for every pair.
    struct Tenth;
    impl Scorer for Tenth {
        fn map_rows<T: Send>(
            &self,
            queries: &[Query],
            map: impl Fn(usize, &[f32]) -> T + Sync,
        ) -> Vec<T> {
            (0..queries.len()).map(|place| map(place, &[0.1_f32.ln(); 10])).collect()
        }
        fn probability(&self) -> ProbabilityKind {
            ProbabilityKind::Bernoulli
        }
    }
    // Every entity is followed by the next: one of ten objects holds for each of the 20 queries.
    let next: String = (0..10).map(|i| format!("e{i} r e{};", (i + 1) % 10)).collect();
    let graph = graph([&next.replace(" r ", " s "), "", &next]);
    let calibrate =
        |temperature| calibrate(&graph, Split::Test, &Tenth, temperature, &mut silent());
    let found = calibrate(1.0).unwrap();
    assert_eq!(found.nll_filtered, None);
    assert!(found.pairs.ece < 1e-6 && found.pairs.bins.len() == 1);
    let bin = found.pairs.bins[0];
    assert_eq!((bin.count, bin.observed), (200.0, 0.1));
    // The first object is taken for the top answer, which is right for e9 and for e1.
    assert_eq!((found.top_answer.bins[0].count, found.top_answer.bins[0].observed), (20.0, 0.1));
    assert!(matches!(calibrate(2.0), Err(Error::NoTemperature { .. })));
    let fitted = fit_temperature(&graph, Split::Test, &Tenth, &mut silent());
    assert_eq!(fitted.unwrap(), None);
}

#[test]
fn what_training_answers_leave_is_summed_to_its_last_digits() {
    // Two answers that take nothing to speak of, just less and more than half, and all but 1e-9.
    for taken in [1e-9_f64, 0.4999, 0.5001, 1.0 - 1e-9] {
        let rest = (1.0 - taken) / 50.0;
        let probability = |object: usize| if object < 2 { taken / 2.0 } else { rest };
        let row: Vec<f32> = (0..52).map(|object| probability(object).ln() as f32).collect();
        let without = [EntityId(0), EntityId(1)];
        let found = log_left(&row, &without);
        assert!((found - (1.0 - taken).ln()).abs() < 1e-6, "{taken}: {found}");
        assert!((found - log_sum_without(&row, &without)).abs() < 1e-5);
    }
    let all = [0.25_f32.ln(); 4];
    let objects: Vec<EntityId> = (0..4).map(EntityId).collect();
    assert_eq!(log_left(&all, &objects), f64::NEG_INFINITY);
    assert_eq!(log_left(&all, &[]), 0.0);
}

#[test]
fn a_temperature_is_fitted_to_queries_drawn_from_all() {
    let asked: Vec<Asked> = (0..100).map(|number| Asked { number, answers: Vec::new() }).collect();
    assert_eq!(calibration::drawn(asked.clone(), 100), asked);
    let drawn = calibration::drawn(asked.clone(), 99);
    assert!(drawn.len() == 99 && drawn.is_sorted_by_key(|asked| asked.number));
    // Of neighbours as of those far apart.
    let few = calibration::drawn(asked, 40);
    let steps = few.windows(2).map(|pair| pair[1].number - pair[0].number);
    assert!(steps.clone().any(|step| step == 1) && steps.clone().any(|step| step > 2));
}
