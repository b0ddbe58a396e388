//! Every output layer and every score against its formula, written out in f64 for one query.

use std::collections::BTreeMap;
use std::f64::consts::TAU;

use burn::tensor::{Device, TensorData};
use fullrank_graph::{EntityId, Query, RelationId};

use super::*;
use crate::config::Config;
use crate::evaluate::Scorer;
use crate::network::Network;
use crate::output_demo::OutputDemo;
use crate::parameters::{Named, count, replace, tensors};
use crate::score::ScoreKind;

const ENTITIES: usize = 7;
const DIM: usize = 4;
const SUBJECT: usize = 5;
const RELATION: usize = 1;

fn config(settings: &str) -> Config {
    Config::parse(&format!("dim = {DIM}\n{settings}")).unwrap()
}

/// A network whose weights are all different and not small, whatever they start as.
fn network(config: &Config) -> Network {
    let domain = Domain::without_edges(ENTITIES, 3);
    let network = Network::new(config, &domain, Weights::new(1, Device::flex()));
    let varied = |(order, tensor): (usize, Named)| {
        let mut values = tensor.values.into_data().try_into_vec::<f32>().unwrap();
        for (i, x) in values.iter_mut().enumerate() {
            *x += 0.5 + ((5 * i + order) % 11) as f32 / 11.0;
        }
        (tensor.name, TensorData::new(values, tensor.shape))
    };
    let values = tensors(&network).into_iter().enumerate().map(varied).collect();
    replace(network, values)
}

/// The tensors of a network, and its query vector and objects, by hand.
struct Case {
    tables: BTreeMap<String, Vec<f64>>,
    query: Vec<f64>,
}

impl Case {
    fn of(network: &Network) -> Self {
        let values = |tensor: Named| {
            let floats = tensor.values.into_data().try_into_vec::<f32>().unwrap();
            (tensor.name, floats.into_iter().map(f64::from).collect())
        };
        let tables: BTreeMap<String, Vec<f64>> = tensors(network).into_iter().map(values).collect();
        let row = |name: &str, row: usize| &tables[name][row * DIM..][..DIM];
        let pairs = row("encoder.entity", SUBJECT).iter().zip(row("encoder.relation", RELATION));
        let query = pairs.map(|(s, r)| s * r).collect();
        Self { tables, query }
    }

    fn object(&self, o: usize) -> &[f64] {
        &self.tables["encoder.entity"][o * DIM..][..DIM]
    }

    fn dots(&self, context: &[f64]) -> Vec<f64> {
        (0..ENTITIES).map(|o| dot(context, self.object(o))).collect()
    }

    /// Logits with the offset of sigmoids.
    fn raised(&self, logits: Vec<f64>) -> Vec<f64> {
        logits.into_iter().map(|z| z + self.tables["output.offset"][0]).collect()
    }

    /// vector · matrix, of which columns `from..from + n` of all `width` are taken.
    fn times(&self, vector: &[f64], matrix: &str, [from, n, width]: [usize; 3]) -> Vec<f64> {
        let at = |row: usize, column: usize| self.tables[matrix][row * width + from + column];
        let value = |column| vector.iter().enumerate().map(|(row, x)| x * at(row, column)).sum();
        (0..n).map(value).collect()
    }

    /// π and f_k(h) of a mixture of two with one layer.
    fn mixture(&self) -> Vec<(f64, Vec<f64>)> {
        let gates = match self.tables.contains_key("output.gate") {
            true => softmax(&self.times(&self.query, "output.gate", [0, 2, 2])),
            false => vec![0.5; 2],
        };
        let norm = |name: &str| &self.tables[&format!("output.projections.0.norm.{name}")];
        let component = |(k, gate): (usize, f64)| {
            let value = |i: usize| {
                let weight = &self.tables["output.projections.0.weight"][k * DIM * DIM..];
                let linear: f64 = (0..DIM).map(|j| self.query[j] * weight[j * DIM + i]).sum();
                let at = k * DIM + i;
                let deviation = (norm("running_var")[at] + 1e-5).sqrt();
                let normal = (linear - norm("running_mean")[at]) / deviation;
                let shifted = normal * norm("gamma")[at] + norm("beta")[at];
                shifted.max(0.01 * shifted)
            };
            (gate, (0..DIM).map(value).collect())
        };
        gates.into_iter().enumerate().map(component).collect()
    }

    /// Mixed logits of a mixtape of three with gates of width two.
    fn mixtape(&self) -> Vec<f64> {
        let tanh = |values: Vec<f64>| values.into_iter().map(f64::tanh).collect::<Vec<f64>>();
        let contexts: Vec<Vec<f64>> = (0..3)
            .map(|k| tanh(self.times(&self.query, "output.contexts", [k * DIM, DIM, 3 * DIM])))
            .collect();
        let gate = |j: usize, o: usize| {
            let own = tanh(self.times(&self.query, "output.gates", [2 * j, 2, 4]));
            let shift = self.times(&self.query, "output.shifts", [j, 1, 2])[0];
            let of_object = &self.tables["output.object_gates"][2 * o..][..2];
            sigma(dot(&own, of_object) + shift + self.tables["output.object_shifts"][2 * o + j])
        };
        let logit = |o: usize| {
            let z = |k: usize| dot(&contexts[k], self.object(o));
            // The first gate's left child is the second gate, whose leaves come last.
            let (first, second) = (gate(0, o), gate(1, o));
            first * (second * z(1) + (1.0 - second) * z(2)) + (1.0 - first) * z(0)
        };
        (0..ENTITIES).map(logit).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn sigma(z: f64) -> f64 {
    1.0 / (1.0 + (-z).exp())
}

fn sigmas(logits: &[f64]) -> Vec<f64> {
    logits.iter().map(|z| sigma(*z)).collect()
}

fn softmax(logits: &[f64]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|z| z.exp()).sum();
    logits.iter().map(|z| z.exp() / sum).collect()
}

/// Settings of a small model with this output layer, and the probabilities of all objects.
fn expected(kind: OutputKind) -> (&'static str, fn(&Case) -> Vec<f64>) {
    match kind {
        OutputKind::Softmax => ("", |case| softmax(&case.dots(&case.query))),
        OutputKind::Margin => ("negatives = 2", |case| softmax(&case.dots(&case.query))),
        OutputKind::Mixture => ("components = 2\nlayers = 1", |case| mix(case, softmax)),
        OutputKind::MixtureOfContexts => ("components = 2\nlayers = 1", |case| {
            let mut mixed = vec![0.0; DIM];
            for (weight, context) in case.mixture() {
                mixed.iter_mut().zip(context).for_each(|(sum, x)| *sum += weight * x);
            }
            softmax(&case.dots(&mixed))
        }),
        OutputKind::Sigmoid => ("", |case| sigmas(&case.raised(case.dots(&case.query)))),
        OutputKind::MixtureOfSigmoids => ("components = 2\nlayers = 1", |case| {
            mix(case, |logits| sigmas(&case.raised(logits.to_vec())))
        }),
        OutputKind::Sigsoftmax => ("", |case| {
            let logits = case.dots(&case.query);
            softmax(&logits.iter().map(|z| z + sigma(*z).ln()).collect::<Vec<f64>>())
        }),
        OutputKind::Monotone => ("pieces = 2", |case| {
            let raw = &case.tables["output.raw_slopes"];
            let slopes: Vec<f64> = raw.iter().map(|x| x.exp().ln_1p()).collect();
            // Two pieces of width ten on each side; logits are below 20.
            let value = |z: f64| match z {
                10.0.. => 10.0 * slopes[2] + (z - 10.0) * slopes[3],
                0.0.. => z * slopes[2],
                -10.0.. => z * slopes[1],
                _ => -10.0 * slopes[1] + (z + 10.0) * slopes[0],
            };
            let logits = case.dots(&case.query);
            softmax(&logits.into_iter().map(value).collect::<Vec<f64>>())
        }),
        OutputKind::Mixtape => ("components = 3\ngate_dim = 2", |case| softmax(&case.mixtape())),
        OutputKind::Fourier => ("frequencies = 2", |case| {
            let waves = case.times(&case.query, "output.weight", [0, 5, 5]);
            let bias = &case.tables["output.bias"];
            let probability = |o: usize| {
                let x = TAU * o as f64 / ENTITIES as f64;
                let row = [1.0, x.cos(), x.sin(), (2.0 * x).cos(), (2.0 * x).sin()];
                sigma((0..5).map(|i| row[i] * (waves[i] + bias[i])).sum())
            };
            (0..ENTITIES).map(probability).collect()
        }),
    }
}

fn mix(case: &Case, part: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let mut sums = vec![0.0; ENTITIES];
    for (weight, context) in case.mixture() {
        let parts = part(&case.dots(&context));
        sums.iter_mut().zip(parts).for_each(|(sum, part)| *sum += weight * part);
    }
    sums
}

fn check(network: Network, expected: &[f64], what: &str) {
    let query = Query { subject: EntityId(SUBJECT as u32), relation: RelationId(RELATION as u32) };
    let found = network.scoring().map_rows(&[query], |_, row| row.to_vec()).remove(0);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let expected = expected.ln();
        let off = (f64::from(*found) - expected).abs();
        assert!(off < 2e-5 * expected.abs().max(1.0), "{what}: {found}, {expected}");
    }
}

#[test]
fn every_output_layer_equals_its_formula() {
    for kind in OutputKind::ALL {
        let (settings, expected) = expected(*kind);
        let config = config(&format!("output = \"{}\"\n{settings}", kind.name()));
        let network = network(&config);
        let expected = expected(&Case::of(&network));
        check(network, &expected, kind.name());
    }
}

#[test]
fn a_uniform_gate_weighs_all_components_alike() {
    for kind in [OutputKind::Mixture, OutputKind::MixtureOfContexts, OutputKind::MixtureOfSigmoids]
    {
        let (settings, expected) = expected(kind);
        let name = kind.name();
        let config = config(&format!("output = \"{name}\"\n{settings}\ngate = \"uniform\""));
        let network = network(&config);
        let expected = expected(&Case::of(&network));
        let domain = Domain::without_edges(ENTITIES, 3);
        assert_eq!(count(&network), Network::n_parameters(&config, &domain));
        check(network, &expected, name);
    }
}

#[test]
fn a_mixture_of_contexts_is_as_limited_as_a_softmax_and_a_mixture_is_not() {
    // In one dimension, log-ratios of three objects lie on a line; 0 is how far they leave it.
    let leaves_line = |output: &str| {
        let text = format!("dim = 1\noutput = \"{output}\"\nactivation = \"tanh\"\nseed = 6");
        let layer =
            OutputDemo::new(&Config::parse(&text).unwrap(), &[vec![1.0], vec![0.5], vec![-0.8]]);
        let rows = layer.log_probs(&[vec![-2.0], vec![0.5], vec![3.0]]);
        let [a, b, c] = [0, 1, 2].map(|i: usize| [0, 1].map(|o| rows[i][o] - rows[i][2]));
        ((b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])).abs()
    };
    assert!(leaves_line("mixture-of-contexts") < 1e-5);
    assert!(leaves_line("mixture") > 1e-3);
    let limit = |output: &str| {
        Config::parse(&format!("dim = 8\noutput = \"{output}\"")).unwrap().max_matrix_rank()
    };
    assert_eq!((limit("mixture-of-contexts"), limit("mixture")), (Some(9), None));
}

#[test]
fn every_score_equals_its_formula() {
    for kind in ScoreKind::ALL {
        let hidden = if *kind == ScoreKind::Mlp { "hidden = [3, 2]" } else { "" };
        let settings = format!("score = \"{}\"\nbias = true\n{hidden}", kind.name());
        let network = network(&config(&settings));
        let case = Case::of(&network);
        let score = |o: usize| {
            let (h, e) = (case.query.as_slice(), case.object(o));
            let differences: Vec<f64> = h.iter().zip(e).map(|(h, e)| h - e).collect();
            let score = match kind {
                ScoreKind::Dot => dot(h, e),
                ScoreKind::Cosine => {
                    let scale = case.tables["score.log_scale"][0].exp();
                    scale * dot(h, e) / (dot(h, h) * dot(e, e)).sqrt()
                }
                ScoreKind::L1 => -differences.iter().map(|x| x.abs()).sum::<f64>(),
                ScoreKind::L2 => -dot(&differences, &differences).sqrt(),
                ScoreKind::Modulus => {
                    let (re, im) = differences.split_at(DIM / 2);
                    -re.iter().zip(im).map(|(re, im)| re.hypot(*im)).sum::<f64>()
                }
                ScoreKind::Mlp => {
                    let layer = |values: &[f64], name: &str, width: usize| {
                        case.times(values, &format!("score.mlp.{name}.weight"), [0, width, width])
                    };
                    let add = |values: Vec<f64>, name: &str| -> Vec<f64> {
                        let bias = &case.tables[&format!("score.mlp.{name}.bias")];
                        values.iter().zip(bias).map(|(x, bias)| x + bias).collect()
                    };
                    let relu = |values: Vec<f64>| -> Vec<f64> {
                        values.into_iter().map(|x| x.max(0.0)).collect()
                    };
                    let both = layer(h, "query", 3).into_iter().zip(layer(e, "object", 3));
                    let first = add(both.map(|(of_h, of_e)| of_h + of_e).collect(), "query");
                    let second = add(layer(&relu(first), "layers.0", 2), "layers.0");
                    add(layer(&relu(second), "layers.1", 1), "layers.1")[0]
                }
            };
            score + case.tables["bias"][o]
        };
        let scores: Vec<f64> = (0..ENTITIES).map(score).collect();
        check(network, &softmax(&scores), kind.name());
    }
}

#[test]
fn sigmoids_of_distances_are_even_at_the_margin() {
    let network = network(&config("output = \"sigmoid\"\nscore = \"l1\"\nmargin = 3.5"));
    let case = Case::of(&network);
    let probability = |o: usize| {
        let pairs = case.query.iter().zip(case.object(o));
        sigma(3.5 - pairs.map(|(h, e)| (h - e).abs()).sum::<f64>())
    };
    let expected: Vec<f64> = (0..ENTITIES).map(probability).collect();
    check(network, &expected, "sigmoid of l1");
}
