//! Encoders that send messages along the edges, as plain loops over them.

use burn::tensor::TensorData;

use super::*;
use crate::parameters::replace;
use crate::part::Edges;

type Rows = Vec<Vec<f64>>;

/// One entity is reached twice by one relation, one not at all, and one has no edge but its loop.
const FACTS: [[usize; 3]; 6] = [[0, 0, 1], [0, 1, 1], [2, 0, 1], [3, 1, 0], [1, 1, 0], [2, 0, 3]];

/// Facts, then inverses, as encoders get them; entities are called something else.
fn edges(rename: impl Fn(usize) -> usize) -> Edges {
    let both = || FACTS.iter().copied().chain(inverses());
    let end = |slot: usize| both().map(|edge| rename(edge[slot]) as u32).collect();
    Edges {
        subjects: end(0),
        relations: both().map(|[_, relation, _]| relation as u32).collect(),
        objects: end(2),
    }
}

fn inverses() -> impl Iterator<Item = [usize; 3]> {
    FACTS.iter().map(|[subject, relation, object]| [*object, relation + 2, *subject])
}

/// A small domain with edges.
pub(super) fn domain() -> Domain {
    Domain { edges: edges(|entity| entity), ..Domain::without_edges(ENTITIES, 4) }
}

fn tables(tables: &Tables, name: &str, width: usize) -> Rows {
    tables[name].chunks_exact(width).map(<[f64]>::to_vec).collect()
}

fn times(row: &[f64], matrix: &Rows) -> Vec<f64> {
    let column = |j: usize| row.iter().zip(matrix).map(|(x, row)| x * row[j]).sum();
    (0..matrix[0].len()).map(column).collect()
}

fn add(sum: &mut [f64], factor: f64, row: &[f64]) {
    for (sum, x) in sum.iter_mut().zip(row) {
        *sum += factor * x;
    }
}

fn compose(composition: Composition, x: &[f64], z: &[f64]) -> Vec<f64> {
    let n = x.len();
    let value = |k: usize| match composition {
        Composition::DistMult => x[k] * z[k],
        Composition::Subtraction => x[k] - z[k],
        Composition::Correlation => (0..n).map(|i| x[i] * z[(i + k) % n]).sum(),
    };
    (0..n).map(value).collect()
}

fn triple_product(s: &[f64], r: &[f64], o: &[f64]) -> f64 {
    (0..s.len()).map(|i| s[i] * r[i] * o[i]).sum()
}

/// CompGCN's score of one triple.
pub(super) fn compgcn(values: &Tables, composition: Composition, [s, r, o]: [usize; 3]) -> f64 {
    let (mut x, mut z) =
        (tables(values, "encoder.entity", 3), tables(values, "encoder.relation", 3));
    for depth in 0..2 {
        let name = |part: &str| format!("encoder.layers.{depth}.{part}");
        let matrix = |part: &str| tables(values, &name(part), 6);
        let own = &values[&name("loop_relation")];
        let mut sums = vec![vec![0.0; 6]; ENTITIES];
        for (v, sum) in sums.iter_mut().enumerate() {
            add(sum, 1.0 / 3.0, &times(&compose(composition, &x[v], own), &matrix("loops")));
        }
        for (part, edges) in
            [("facts", FACTS.to_vec()), ("inverses", inverses().collect::<Vec<_>>())]
        {
            for [u, relation, v] in &edges {
                let sent = edges.iter().filter(|edge| edge[0] == *u).count();
                let received = edges.iter().filter(|edge| edge[2] == *v).count();
                let message = compose(composition, &x[*u], &z[*relation]);
                let factor = 1.0 / (3.0 * ((sent * received) as f64).sqrt());
                add(&mut sums[*v], factor, &times(&message, &matrix(part)));
            }
        }
        let norm = |part: &str| &values[&name(&format!("norm.{part}"))];
        for (row, i) in sums.iter_mut().flat_map(|row| row.iter_mut().zip(0..)) {
            let deviation = (norm("running_var")[i] + 1e-5).sqrt();
            let normal = (*row - norm("running_mean")[i]) / deviation;
            *row = (normal * norm("gamma")[i] + norm("beta")[i]).tanh();
        }
        x = sums;
        z = z.iter().map(|row| times(row, &matrix("relation"))).collect();
    }
    triple_product(&x[s], &z[r], &x[o])
}

/// R-GCN's score of one triple.
pub(super) fn rgcn(values: &Tables, [s, r, o]: [usize; 3]) -> f64 {
    let mut x = tables(values, "encoder.entity", 3);
    let edges: Vec<[usize; 3]> = FACTS.iter().copied().chain(inverses()).collect();
    for depth in 0..2 {
        let part = |part: &str, width: usize| {
            tables(values, &format!("encoder.layers.{depth}.{part}"), width)
        };
        let (bases, coefficients) = (part("bases", 6), part("coefficients", 2));
        let width = x[0].len();
        let mut sums: Rows = x.iter().map(|row| times(row, &part("own", 6))).collect();
        for [u, relation, v] in &edges {
            let alike = edges.iter().filter(|edge| edge[1..] == [*relation, *v]).count();
            for (basis, a) in bases.chunks_exact(width).zip(&coefficients[*relation]) {
                add(&mut sums[*v], a / alike as f64, &times(&x[*u], &basis.to_vec()));
            }
        }
        if depth == 0 {
            sums.iter_mut().flatten().for_each(|value| *value = value.max(0.0));
        }
        x = sums;
    }
    triple_product(&x[s], &tables(values, "encoder.relation", 6)[r], &x[o])
}

#[test]
fn every_composition_equals_its_formula() {
    // Widths 3 and 6: a transform has a frequency that is its own conjugate at even widths only.
    for composition in Composition::ALL {
        let config =
            config(EncoderKind::CompGcn).with_setting("composition", composition.name()).unwrap();
        let network = varied(Network::new(&config, &domain(), Weights::new(1, Device::flex())));
        let values = values_of(&network);
        check_formula(&network, |s, r, o| compgcn(&values, *composition, [s, r, o]));
    }
}

#[test]
fn renaming_entities_permutes_scores() {
    let rename = |entity: usize| (2 * entity + 3) % ENTITIES;
    let correlating =
        config(EncoderKind::CompGcn).with_setting("composition", "correlation").unwrap();
    for config in [correlating, config(EncoderKind::Rgcn)] {
        let new = |domain: &Domain| {
            varied(Network::new(&config, domain, Weights::new(1, Device::flex())))
        };
        let network = new(&domain());
        let renamed = new(&Domain { edges: edges(rename), ..domain() });
        let move_rows = |name: &str, data: Vec<f32>| match name {
            "encoder.entity" => {
                let mut moved = data.clone();
                for (entity, row) in data.chunks_exact(3).enumerate() {
                    moved[3 * rename(entity)..][..3].copy_from_slice(row);
                }
                moved
            }
            _ => data,
        };
        let renamed = changed(renamed, move_rows);
        let scores = |network: &Network, subject: usize| {
            let subjects = [subject as u32; 4].into();
            scores(network, &Queries { subjects, relations: [0, 1, 2, 3].into() })
        };
        for subject in 0..ENTITIES {
            let (old, new) = (scores(&network, subject), scores(&renamed, rename(subject)));
            for (query, old) in old.chunks_exact(ENTITIES).enumerate() {
                for (object, old) in old.iter().enumerate() {
                    let new = new[query * ENTITIES + rename(object)];
                    // Only the order of a few sums differs.
                    assert!(
                        (old - new).abs() < 1e-6 * (1.0 + old.abs()),
                        "{config:?}: {old} {new}"
                    );
                }
            }
        }
    }
}

#[test]
fn compgcn_has_the_papers_number_of_parameters() {
    // 1.6 M for FB15k-237 at d = 200: two tables of width 100, three directions and the relations'
    // matrix, the loops' relation, normalisation. The paper's other 14,541, if it counts the bias
    // per object that the authors' decoder has, are `bias` here; 1.6 M with and without.
    let domain = Domain::without_edges(14_541, 2 * 237);
    let config = Config::parse("encoder = \"compgcn\"").unwrap();
    let expected = (14_541 + 474) * 100 + 4 * 100 * 200 + 100 + 2 * 200;
    assert_eq!(Network::n_parameters(&config, &domain), expected);
    assert_eq!(expected, 1_582_000);
}

/// A network with some values changed, tensor by tensor.
pub(super) fn changed(network: Network, change: impl Fn(&str, Vec<f32>) -> Vec<f32>) -> Network {
    let changed = tensors(&network).into_iter().map(|tensor| {
        let values = tensor.values.into_data().try_into_vec::<f32>().unwrap();
        let data = TensorData::new(change(&tensor.name, values), tensor.shape);
        (tensor.name, data)
    });
    let changed = changed.collect();
    replace(network, changed)
}
