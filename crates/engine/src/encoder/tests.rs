//! Every encoder against its one-triple formula, written as a plain sum in f64.

use std::collections::BTreeMap;

use burn::tensor::Device;

use super::*;
use crate::config::Config;
use crate::model::Model;
use crate::ops::pairwise_scores;
use crate::parameters::{count, tensors};

const ENTITIES: usize = 5;

fn domain() -> Domain {
    Domain::without_edges(ENTITIES, 4)
}

fn model(kind: EncoderKind) -> Model {
    let config = Config { encoder: kind, dim: 6, relation_dim: Some(3), ..Config::default() };
    Model::new(&config, &domain(), Weights::new(1, Device::flex()))
}

/// The tensors of an encoder, by name.
fn values(kind: EncoderKind) -> BTreeMap<String, Vec<f64>> {
    tensors(&model(kind))
        .into_iter()
        .map(|tensor| {
            let floats = tensor.values.into_data().try_into_vec::<f32>().unwrap();
            (tensor.name, floats.into_iter().map(f64::from).collect())
        })
        .collect()
}

/// The score of one triple by the published formula.
fn formula(kind: EncoderKind, s: usize, r: usize, o: usize) -> f64 {
    let tables = values(kind);
    let row = |name: &str, row: usize, width: usize| &tables[name][row * width..][..width];
    let entity = |e| row("encoder.entity", e, 6);
    let relation = |width| row("encoder.relation", r, width);
    let sum3 = |a: &[f64], b: &[f64], c: &[f64]| -> f64 {
        a.iter().zip(b).zip(c).map(|((a, b), c)| a * b * c).sum()
    };
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
    }
}

#[test]
fn every_encoder_equals_its_one_triple_formula() {
    for kind in EncoderKind::ALL {
        let encoder = model(*kind).encoder;
        let objects = encoder.objects(None);
        // Relations repeat and are out of order, as in a batch.
        let (subjects, relations) = ([0, 4, 2, 4], [3, 0, 3, 1]);
        let queries = Queries { subjects: subjects.into(), relations: relations.into() };
        let pass = Pass { objects: &objects, noise: None };
        let query = encoder.forward(&queries, &pass).query;
        let score = kind.scores()[0].of_pairs();
        let scores = pairwise_scores(score, query, objects.clone());
        let scores = scores.into_data().try_into_vec::<f32>().unwrap();
        for (q, scores) in scores.chunks_exact(ENTITIES).enumerate() {
            for (o, score) in scores.iter().enumerate() {
                let expected = formula(*kind, subjects[q] as usize, relations[q] as usize, o);
                let found = f64::from(*score);
                assert!((found - expected).abs() < 1e-5, "{kind:?}: {found}, {expected}");
            }
        }
    }
}

#[test]
fn parameters_are_counted_without_building_a_model() {
    for kind in EncoderKind::ALL {
        for text in ["", "output = \"mixture\"\ncomponents = 3\nbias = true", "score = \"cosine\""]
        {
            let mut raw = crate::RawConfig::default();
            raw.add_file(std::path::Path::new("test.toml"), text).unwrap();
            raw.add_option("encoder", kind.name());
            raw.add_option("dim", "8");
            let Ok(config) = raw.check() else {
                assert!(!kind.scores().contains(&ScoreKind::Cosine), "{kind:?}");
                continue;
            };
            let domain = Domain::without_edges(11, 6);
            let model = Model::new(&config, &domain, Weights::new(config.seed, Device::flex()));
            assert_eq!(count(&model), Model::n_parameters(&config, &domain), "{kind:?}");
        }
    }
}

#[test]
fn factors_are_the_rows_of_subject_and_relation() {
    let queries = Queries { subjects: [3].into(), relations: [2].into() };
    let tables = values(EncoderKind::ComplEx);
    let encoder = model(EncoderKind::ComplEx).encoder;
    let pass = Pass { objects: &encoder.objects(None), noise: None };
    let factors = encoder.forward(&queries, &pass).factors;
    let moduli: Vec<f32> = (0..3)
        .map(|i| {
            let row = &tables["encoder.entity"][18..24];
            row[i].hypot(row[i + 3]) as f32
        })
        .collect();
    let found = factors[0].to_data().try_to_vec::<f32>().unwrap();
    assert!(found.iter().zip(&moduli).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {moduli:?}");
}
