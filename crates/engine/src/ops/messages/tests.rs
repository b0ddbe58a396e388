use burn::tensor::{Device, Tolerance};
use rand::RngExt;

use super::*;
use crate::random::{Purpose, Weights, generator};

const ALL: [Compose; 4] =
    [Compose::Product, Compose::Difference, Compose::Conjugate, Compose::Outer];

/// Random messages; the first relation and the first entity have a large share of them.
fn random(n: usize, entities: u32, relations: u32) -> Vec<Message> {
    let mut rng = generator(5, Purpose::Benchmark, (0, 0));
    let mut crowded = |n: u32| if rng.random() { 0 } else { rng.random_range(0..n) };
    (0..n)
        .map(|i| Message {
            sender: crowded(entities),
            relation: crowded(relations),
            receiver: crowded(entities),
            factor: 0.1 + (i % 7) as f32 * 0.05,
        })
        .collect()
}

/// Both tables: relations have three weights for the outer product, else as many values as senders.
fn tables(
    compose: Compose,
    entities: usize,
    relations: usize,
    device: &Device,
) -> (Tensor<2>, Tensor<2>) {
    let mut weights = Weights::new(3, device.clone());
    let relation_dim = if compose == Compose::Outer { 3 } else { 6 };
    (weights.uniform([entities, 6], 1.0), weights.uniform([relations, relation_dim], 1.0))
}

fn floats(tensor: Tensor<2>) -> Vec<f32> {
    tensor.into_data().try_into_vec().unwrap()
}

/// Sums, and the gradients of a fixed weighted sum of them.
fn run(
    compose: Compose,
    list: &[Message],
    (entities, relations): (usize, usize),
    sum: fn(Tensor<2>, Tensor<2>, &Arc<Messages>, Compose) -> Tensor<2>,
) -> [Vec<f32>; 3] {
    let (x, z) = tables(compose, entities, relations, &Device::flex().autodiff());
    let (x, z) = (x.require_grad(), z.require_grad());
    let messages = Arc::new(Messages::new(entities, relations, list.to_vec()));
    let sums = sum(x.clone(), z.clone(), &messages, compose);
    let [rows, columns] = sums.dims();
    let weights = Weights::new(8, Device::flex().autodiff()).uniform([rows, columns], 1.0);
    let grads = (sums.clone() * weights).sum().backward();
    [sums, Tensor::from_inner(x.grad(&grads).unwrap()), Tensor::from_inner(z.grad(&grads).unwrap())]
        .map(floats)
}

/// One message, by its definition.
fn message(compose: Compose, x: &[f64], z: &[f64]) -> Vec<f64> {
    match compose {
        Compose::Product => x.iter().zip(z).map(|(x, z)| x * z).collect(),
        Compose::Difference => x.iter().zip(z).map(|(x, z)| x - z).collect(),
        Compose::Conjugate => {
            let re = (0..3).map(|i| x[i] * z[i] + x[i + 3] * z[i + 3]);
            re.chain((0..3).map(|i| x[i] * z[i + 3] - x[i + 3] * z[i])).collect()
        }
        Compose::Outer => z.iter().flat_map(|z| x.iter().map(move |x| z * x)).collect(),
    }
}

/// The sums as a plain loop.
fn plain(compose: Compose, list: &[Message], x: &[f64], z: &[f64]) -> Vec<f64> {
    let (x, z): (Vec<&[f64]>, Vec<&[f64]>) = match compose {
        Compose::Outer => (x.chunks(6).collect(), z.chunks(3).collect()),
        _ => (x.chunks(6).collect(), z.chunks(6).collect()),
    };
    let dim = message(compose, x[0], z[0]).len();
    let mut sums = vec![0.0; x.len() * dim];
    for edge in list {
        let row = message(compose, x[edge.sender as usize], z[edge.relation as usize]);
        for (sum, value) in sums[edge.receiver as usize * dim..][..dim].iter_mut().zip(row) {
            *sum += f64::from(edge.factor) * value;
        }
    }
    sums
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

fn assert_close(found: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        let found = f64::from(*found);
        assert!(
            (found - expected).abs() <= tolerance * (1.0 + expected.abs()),
            "{found} {expected}"
        );
    }
}

#[test]
fn sums_equal_a_plain_loop() {
    let list = random(300, 9, 4);
    for compose in ALL {
        let (x, z) = tables(compose, 9, 4, &Device::flex());
        let expected = plain(compose, &list, &wide(&floats(x)), &wide(&floats(z)));
        // Rounding of a few hundred terms in f32.
        assert_close(&run(compose, &list, (9, 4), sum_messages)[0], &expected, 1e-5);
    }
}

#[test]
fn gradients_equal_finite_differences() {
    // Entity 8 and relation 3 have no message: their gradients are zero.
    let list = random(40, 8, 3);
    for compose in ALL {
        let [sums, grad_x, grad_z] = run(compose, &list, (9, 4), sum_messages);
        let (x, z) = tables(compose, 9, 4, &Device::flex());
        let (x, z) = (wide(&floats(x)), wide(&floats(z)));
        let weights = Weights::new(8, Device::flex()).uniform([9, sums.len() / 9], 1.0);
        let weights = wide(&floats(weights));
        let loss = |x: &[f64], z: &[f64]| -> f64 {
            plain(compose, &list, x, z).iter().zip(&weights).map(|(sum, w)| sum * w).sum()
        };
        // Linear in each table, so a whole step gives the derivative exactly.
        let nudged = |values: &[f64], i: usize| {
            let mut values = values.to_vec();
            values[i] += 1.0;
            values
        };
        let start = loss(&x, &z);
        let by_x: Vec<f64> = (0..x.len()).map(|i| loss(&nudged(&x, i), &z) - start).collect();
        let by_z: Vec<f64> = (0..z.len()).map(|i| loss(&x, &nudged(&z, i)) - start).collect();
        assert_close(&grad_x, &by_x, 1e-5);
        assert_close(&grad_z, &by_z, 1e-5);
    }
}

#[test]
fn fused_equals_plain_tensor_operations() {
    let list = random(700, 9, 4);
    for compose in ALL {
        let fused = run(compose, &list, (9, 4), sum_messages);
        let plain = run(compose, &list, (9, 4), |x, z, messages, compose| {
            reference(x, z, messages, compose)
        });
        for (fused, plain) in fused.into_iter().zip(plain) {
            let n = fused.len();
            let [fused, plain] = [fused, plain].map(|values| TensorData::new(values, [n]));
            // Sums of about a hundred terms, some of which cancel.
            fused.assert_approx_eq::<f32>(&plain, Tolerance::rel_abs(1e-4, 1e-4));
        }
    }
}

#[test]
fn neither_threads_nor_the_order_of_facts_change_a_bit() {
    // Enough for several pieces of one relation and several tasks.
    let list = random(5000, 200, 4);
    let backwards: Vec<Message> = list.iter().rev().copied().collect();
    let bits = |threads: usize, list: &[Message], compose: Compose| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| run(compose, list, (200, 4), sum_messages))
            .map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<u32>>())
    };
    // A factor belongs to its edge: duplicates of an edge have the same.
    let same_factor = |list: Vec<Message>| -> Vec<Message> {
        list.into_iter().map(|message| Message { factor: 0.3, ..message }).collect()
    };
    let (list, backwards) = (same_factor(list), same_factor(backwards));
    for compose in ALL {
        let one = bits(1, &list, compose);
        for other in
            [bits(2, &list, compose), bits(5, &list, compose), bits(2, &backwards, compose)]
        {
            assert!(other == one, "{compose:?}");
        }
    }
}

#[test]
fn a_graph_without_edges_sends_nothing() {
    let sums = run(Compose::Product, &[], (3, 2), sum_messages);
    assert_eq!(sums, [vec![0.0; 18], vec![0.0; 18], vec![0.0; 12]]);
}
