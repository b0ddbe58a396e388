//! Every encoder against its one-triple formula, written as a plain sum in f64.

mod messages;
mod neural;

use std::collections::BTreeMap;

use burn::tensor::{Device, TensorData};

use super::compgcn::Composition;
use super::*;
use crate::config::Config;
use crate::network::Network;
use crate::ops::pairwise_scores;
use crate::parameters::{count, replace, tensors};
use crate::settings::Choice;
use messages::domain;

const ENTITIES: usize = 5;

type Tables = BTreeMap<String, Vec<f64>>;

fn config(kind: EncoderKind) -> Config {
    let own = match kind {
        EncoderKind::ConvE => "dim = 40\nconvolutions = 2\nchannels = 2",
        EncoderKind::HypEr => "dim = 12\nrelation_dim = 3\nchannels = 2",
        EncoderKind::Tucker => "dim = 6\nrelation_dim = 3",
        EncoderKind::Transformer => "dim = 6\nheads = 2",
        EncoderKind::Ensemble => "dim = 6\nmembers = 3",
        EncoderKind::CompGcn | EncoderKind::Rgcn => "dim = 6\ninitial_dim = 3\nmessage_layers = 2",
        EncoderKind::ConcatMlp => "dim = 6\nhidden = [5, 4]",
        _ => "dim = 6",
    };
    Config::parse(&format!("encoder = \"{}\"\n{own}", kind.name())).unwrap()
}

/// A network whose tensors that start constant have other values: zeros and ones would hide mistakes.
fn network(kind: EncoderKind) -> Network {
    varied(Network::new(&config(kind), &domain(), Weights::new(1, Device::flex())))
}

fn varied(network: Network) -> Network {
    let varied = |(order, tensor): (usize, crate::parameters::Named)| {
        let mut values = tensor.values.into_data().try_into_vec::<f32>().unwrap();
        if values.iter().all(|x| *x == values[0]) {
            for (i, x) in values.iter_mut().enumerate() {
                *x = 0.3 + ((i + order) % 7) as f32 / 7.0;
            }
        }
        (tensor.name, TensorData::new(values, tensor.shape))
    };
    let values = tensors(&network).into_iter().enumerate().map(varied).collect();
    replace(network, values)
}

/// The tensors of a network, by name.
fn values_of(network: &Network) -> Tables {
    tensors(network)
        .into_iter()
        .map(|tensor| {
            let floats = tensor.values.into_data().try_into_vec::<f32>().unwrap();
            (tensor.name, floats.into_iter().map(f64::from).collect())
        })
        .collect()
}

fn values(kind: EncoderKind) -> Tables {
    values_of(&network(kind))
}

/// The score of one triple by the published formula.
#[expect(clippy::too_many_lines, reason = "a list: one formula for each encoder")]
fn formula(kind: EncoderKind, s: usize, r: usize, o: usize) -> f64 {
    let tables = values(kind);
    let row = |name: &str, row: usize, width: usize| &tables[name][row * width..][..width];
    let dim = config(kind).dim();
    let entity = |e| row("encoder.entity", e, dim);
    let relation = |width| row("encoder.relation", r, width);
    let sum3 = |a: &[f64], b: &[f64], c: &[f64]| -> f64 {
        a.iter().zip(b).zip(c).map(|((a, b), c)| a * b * c).sum()
    };
    let dot = neural::dot;
    match kind {
        EncoderKind::DistMult => sum3(entity(s), relation(6), entity(o)),
        EncoderKind::ComplEx => {
            let (s, r, o) = (entity(s), relation(6), entity(o));
            // Re Σ (a + ib)(c + id)(e − if).
            (0..3)
                .map(|i| {
                    let ((a, b), (c, d), (e, f)) =
                        ((s[i], s[i + 3]), (r[i], r[i + 3]), (o[i], o[i + 3]));
                    (a * c - b * d) * e + (a * d + b * c) * f
                })
                .sum()
        }
        EncoderKind::Rescal => {
            let (s, w, o) = (entity(s), relation(36), entity(o));
            (0..6).map(|i| (0..6).map(|j| s[i] * w[i * 6 + j] * o[j]).sum::<f64>()).sum()
        }
        EncoderKind::Cp => {
            sum3(row("encoder.subject", s, 6), relation(6), row("encoder.object", o, 6))
        }
        EncoderKind::SimplE => {
            let (s, r, o) = (entity(s), relation(6), entity(o));
            0.5 * (sum3(&s[..3], &r[..3], &o[3..]) + sum3(&o[..3], &r[3..], &s[3..]))
        }
        EncoderKind::TransE => {
            let (s, r, o) = (entity(s), relation(6), entity(o));
            -(0..6).map(|i| (s[i] + r[i] - o[i]).abs()).sum::<f64>()
        }
        EncoderKind::RotatE => {
            let (s, phase, o) = (entity(s), relation(3), entity(o));
            // |(a + ib)(cos θ + i sin θ) − (e + if)|.
            let distance = |i: usize| {
                let ((a, b), (e, f)) = ((s[i], s[i + 3]), (o[i], o[i + 3]));
                let (sin, cos) = phase[i].sin_cos();
                (a * cos - b * sin - e).hypot(a * sin + b * cos - f)
            };
            -(0..3).map(distance).sum::<f64>()
        }
        EncoderKind::Tucker => {
            let (s, r, o) = (entity(s), relation(3), entity(o));
            let core = |j: usize, i: usize, k: usize| tables["encoder.core"][j * 36 + i * 6 + k];
            (0..6)
                .flat_map(|i| (0..3).flat_map(move |j| (0..6).map(move |k| (i, j, k))))
                .map(|(i, j, k)| core(j, i, k) * s[i] * r[j] * o[k])
                .sum()
        }
        EncoderKind::ConvE => dot(&neural::conve(&tables, entity(s), relation(dim)), entity(o)),
        EncoderKind::HypEr => dot(&neural::hyper(&tables, entity(s), relation(3)), entity(o)),
        EncoderKind::Transformer => {
            dot(&neural::transformer(&tables, entity(s), relation(dim), 2), entity(o))
        }
        EncoderKind::Ensemble => {
            let (s, r, o) = (entity(s), relation(6), entity(o));
            let weighted = |(k, weight): (usize, &f64)| {
                let [s, r, o] = [s, r, o].map(|vector| &vector[2 * k..2 * k + 2]);
                weight * sum3(s, r, o)
            };
            tables["encoder.weight"].iter().enumerate().map(weighted).sum()
        }
        EncoderKind::ConcatMlp => neural::mlp(&tables, entity(s), relation(dim), entity(o)),
        EncoderKind::CompGcn => messages::compgcn(&tables, Composition::DistMult, [s, r, o]),
        EncoderKind::Rgcn => messages::rgcn(&tables, [s, r, o]),
    }
}

/// The scores of all objects, query after query.
fn scores(network: &Network, queries: &Queries) -> Vec<f32> {
    let objects = network.encoder.objects(None);
    let pass = Pass { objects: &objects, noise: None };
    let query = network.encoder.forward(queries, &pass).query;
    let (context, objects) = (network.score.queries(query), network.score.objects(objects.clone()));
    let scores = pairwise_scores(network.of_pairs, network.score.weights(), context, objects);
    scores.into_data().try_into_vec().unwrap()
}

fn check_formula(network: &Network, formula: impl Fn(usize, usize, usize) -> f64) {
    // Relations repeat and are out of order, as in a batch.
    let (subjects, relations) = ([0, 4, 2, 4], [3, 0, 3, 1]);
    let queries = Queries { subjects: subjects.into(), relations: relations.into() };
    for (q, scores) in scores(network, &queries).chunks_exact(ENTITIES).enumerate() {
        for (o, score) in scores.iter().enumerate() {
            let expected = formula(subjects[q] as usize, relations[q] as usize, o);
            let found = f64::from(*score);
            // Rounding of f32, relative for scores of encoders that normalise.
            let tolerance = 1e-5 * expected.abs().max(1.0);
            assert!(
                (found - expected).abs() < tolerance,
                "{:?}: {found}, {expected}",
                network.encoder
            );
        }
    }
}

#[test]
fn every_encoder_equals_its_one_triple_formula() {
    for kind in EncoderKind::ALL {
        check_formula(&network(*kind), |s, r, o| formula(*kind, s, r, o));
    }
}

#[test]
fn a_bilinear_score_is_that_of_its_subject_and_of_its_relation() {
    let (subjects, relations, objects) = ([0, 4, 2, 4], [3, 0, 3, 1], [1, 1, 4, 0]);
    let is_bilinear = |kind: &&EncoderKind| kind.facts().bilinear.is_some();
    let kinds: Vec<_> = EncoderKind::ALL.iter().filter(is_bilinear).collect();
    assert_eq!(kinds.len(), 9);
    for kind in kinds {
        let encoder = network(*kind).encoder;
        let table = encoder.objects(None);
        let queries = Queries { subjects: subjects.into(), relations: relations.into() };
        let pass = Pass { objects: &table, noise: None };
        let subject_rows = encoder.forward(&queries, &pass).factors.swap_remove(0);
        let pairs = Pairs {
            subjects: subject_rows.clone(),
            relations: relations.into(),
            objects: gather_rows(table, objects.into()),
        };
        let by_subject = (subject_rows * encoder.transposed(pairs.clone())).sum_dim(1);
        let by_subject: Vec<f32> = by_subject.into_data().try_into_vec().unwrap();
        let RelationScores { contexts, relations: all } = encoder.relation_scores(pairs);
        let by_relation: Vec<f32> =
            contexts.matmul(all.transpose()).into_data().try_into_vec().unwrap();
        for i in 0..4 {
            let score = |relation: usize| {
                formula(*kind, subjects[i] as usize, relation, objects[i] as usize)
            };
            let own = score(relations[i] as usize);
            assert!((f64::from(by_subject[i]) - own).abs() < 1e-5 * own.abs().max(1.0), "{kind:?}");
            for r in 0..4 {
                let (found, expected) = (f64::from(by_relation[4 * i + r]), score(r));
                let tolerance = 1e-5 * expected.abs().max(1.0);
                assert!((found - expected).abs() < tolerance, "{kind:?} {found} {expected}");
            }
        }
    }
}

#[test]
fn parameters_are_counted_without_building_a_model() {
    for kind in EncoderKind::ALL {
        let mixture = "output = \"mixture\"\ncomponents = 3\nbias = true";
        let mlp = "score = \"mlp\"\nhidden = [7, 5]";
        for text in ["", mixture, "score = \"cosine\"", mlp] {
            let text = format!("encoder = \"{}\"\ndim = 24\n{text}", kind.name());
            let Ok(config) = Config::parse(&text) else {
                assert!(kind.facts().scores != ScoreKind::ALL, "{text}");
                continue;
            };
            let domain = Domain::without_edges(11, 6);
            let network =
                Network::new(&config, &domain, Weights::new(config.training.seed, Device::flex()));
            assert_eq!(count(&network), Network::n_parameters(&config, &domain), "{kind:?}");
        }
    }
}

#[test]
fn conve_has_as_many_parameters_as_the_paper_counts() {
    // (E + 2R)·d for the tables, 32·14·(d/8 − 2)·d for the linear layer, 9·32 for the kernels, and
    // two for each of the 1 + 32 + d normalised channels.
    let count = |dim: usize| {
        let config = Config::parse(&format!("encoder = \"conve\"\ndim = {dim}")).unwrap();
        Network::n_parameters(&config, &Domain::without_edges(14_541, 2 * 237))
    };
    let formula = |d: usize| (14_541 + 474 + 448 * (d / 8 - 2)) * d + 288 + 2 * (33 + d);
    for (dim, millions) in [(200, "5.1"), (1000, "70.1")] {
        assert_eq!(count(dim), formula(dim));
        // KGE-MoS, the table of parameters on FB15k-237.
        assert_eq!(format!("{:.1}", count(dim) as f64 / 1e6), millions);
    }
}

#[test]
fn dropout_inside_an_encoder_comes_from_the_noise_of_the_update() {
    let queries = Queries { subjects: [3, 1].into(), relations: [2, 0].into() };
    for kind in [EncoderKind::ConvE, EncoderKind::HypEr, EncoderKind::Transformer] {
        let encoder = network(kind).encoder;
        let objects = encoder.objects(None);
        let query = |noise: Option<&Noise>| {
            let query = encoder.forward(&queries, &Pass { objects: &objects, noise }).query;
            query.into_data().try_into_vec::<f32>().unwrap()
        };
        let at = |update| query(Some(&Noise::new(1, update)));
        assert!(at(5) == at(5), "{kind:?}");
        assert!(at(5) != at(6) && at(5) != query(None), "{kind:?}");
    }
}

#[test]
fn factors_are_the_rows_of_subject_and_relation() {
    let queries = Queries { subjects: [3].into(), relations: [2].into() };
    let tables = values(EncoderKind::ComplEx);
    let encoder = network(EncoderKind::ComplEx).encoder;
    let pass = Pass { objects: &encoder.objects(None), noise: None };
    let factors = encoder.forward(&queries, &pass).factors;
    let magnitudes = encoder.magnitudes(factors[0].clone());
    let moduli: Vec<f32> = (0..3)
        .map(|i| {
            let row = &tables["encoder.entity"][18..24];
            row[i].hypot(row[i + 3]) as f32
        })
        .collect();
    let found = magnitudes.to_data().try_to_vec::<f32>().unwrap();
    assert!(found.iter().zip(&moduli).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {moduli:?}");
}
