//! Messages: how are those along all edges of a graph summed at their receivers?
//!
//! A message is made of its sender's row and its relation's row, and only the sums are wanted: rows
//! are read, composed and added in one pass, and there is never a row per edge.
//! Whatever matrix messages are multiplied by is left to the caller, who multiplies the sums.

mod edge_order;

use crate::product::Matrix;
use crate::simd;
use edge_order::Tables;
pub use edge_order::{Message, Messages};

/// How a message is made of its sender's row x and its relation's row z.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compose {
    /// x ∘ z.
    Product,
    /// x − z.
    Difference,
    /// conj(x) ∘ z, complex: the real parts of all numbers first, then the imaginary ones.
    Conjugate,
    /// z_1·x, z_2·x, … one after the other: as many copies of x as z has values.
    Outer,
}

impl Compose {
    /// Width of a message from rows of these widths.
    pub fn out_dim(self, dim: usize, relation_dim: usize) -> usize {
        if self == Self::Outer { dim * relation_dim } else { dim }
    }

    /// Adds a message.
    fn add_message(self, sum: &mut [f32], factor: f32, sender: &[f32], relation: &[f32]) {
        match self {
            Self::Product => simd::add_product(sum, factor, sender, relation),
            Self::Difference => {
                simd::add_scaled(sum, factor, sender);
                simd::add_scaled(sum, -factor, relation);
            }
            Self::Conjugate => simd::add_conjugate_product(sum, factor, sender, relation),
            Self::Outer => {
                for (sum, z) in sum.chunks_exact_mut(sender.len()).zip(relation) {
                    simd::add_scaled(sum, factor * z, sender);
                }
            }
        }
    }

    /// Adds the gradient of the sender's row.
    fn add_grad_sender(self, sum: &mut [f32], factor: f32, grad: &[f32], relation: &[f32]) {
        match self {
            Self::Product => simd::add_product(sum, factor, grad, relation),
            Self::Difference => simd::add_scaled(sum, factor, grad),
            Self::Conjugate => simd::add_conjugate_product(sum, factor, grad, relation),
            Self::Outer => {
                for (grad, z) in grad.chunks_exact(sum.len()).zip(relation) {
                    simd::add_scaled(sum, factor * z, grad);
                }
            }
        }
    }

    /// Adds the gradient of the relation's row.
    fn add_grad_relation(self, sum: &mut [f32], factor: f32, grad: &[f32], sender: &[f32]) {
        match self {
            Self::Product => simd::add_product(sum, factor, grad, sender),
            Self::Difference => simd::add_scaled(sum, -factor, grad),
            Self::Conjugate => simd::add_complex_product(sum, factor, grad, sender),
            Self::Outer => {
                for (sum, grad) in sum.iter_mut().zip(grad.chunks_exact(sender.len())) {
                    *sum += factor * simd::dot(grad, sender);
                }
            }
        }
    }
}

impl Messages {
    /// Σ factor · compose(x_sender, z_relation) over the messages to each entity, row after row.
    pub fn sums(&self, compose: Compose, senders: Matrix, relations: Matrix) -> Vec<f32> {
        let tables = Tables { left: senders, right: relations };
        let dim = compose.out_dim(senders.columns, relations.columns);
        self.by_receiver().sums(tables, dim, |sum, factor, sender, relation| {
            compose.add_message(sum, factor, sender, relation);
        })
    }

    /// From the gradient of the sums to that of senders, which are `dim` wide.
    pub fn grad_senders(
        &self,
        compose: Compose,
        grad: Matrix,
        relations: Matrix,
        dim: usize,
    ) -> Vec<f32> {
        let tables = Tables { left: grad, right: relations };
        self.by_sender().sums(tables, dim, |sum, factor, grad, relation| {
            compose.add_grad_sender(sum, factor, grad, relation);
        })
    }

    /// From the gradient of the sums to that of relations, which are `dim` wide.
    pub fn grad_relations(
        &self,
        compose: Compose,
        grad: Matrix,
        senders: Matrix,
        dim: usize,
    ) -> Vec<f32> {
        let tables = Tables { left: grad, right: senders };
        self.by_relation().sums(tables, dim, |sum, factor, grad, sender| {
            compose.add_grad_relation(sum, factor, grad, sender);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair_score::samples::draw;

    const ALL: [Compose; 4] =
        [Compose::Product, Compose::Difference, Compose::Conjugate, Compose::Outer];

    /// Messages of which the first entity and the first relation have a large share.
    fn crowded(n: usize, entities: usize, relations: usize) -> Vec<Message> {
        let numbers = draw(3 * n, 5);
        // One half are zero.
        let number = |i: usize, of: usize| (numbers[i].max(0.0) * of as f32) as u32;
        let message = |i: usize| Message {
            sender: number(3 * i, entities),
            relation: number(3 * i + 1, relations),
            receiver: number(3 * i + 2, entities),
            factor: 0.3,
        };
        (0..n).map(message).collect()
    }

    /// One message, by its definition.
    fn message(compose: Compose, x: &[f32], z: &[f32]) -> Vec<f32> {
        let pairs = x.iter().zip(z);
        match compose {
            Compose::Product => pairs.map(|(x, z)| x * z).collect(),
            Compose::Difference => pairs.map(|(x, z)| x - z).collect(),
            Compose::Conjugate => {
                let half = x.len() / 2;
                let re = (0..half).map(|i| x[i] * z[i] + x[i + half] * z[i + half]);
                re.chain((0..half).map(|i| x[i] * z[i + half] - x[i + half] * z[i])).collect()
            }
            Compose::Outer => z.iter().flat_map(|z| x.iter().map(move |x| z * x)).collect(),
        }
    }

    #[test]
    fn sums_equal_a_plain_loop_and_gradients_are_their_transposes() {
        let (entities, relations, dim) = (9, 4, 6);
        let list = crowded(300, entities, relations);
        let messages = Messages::new(entities, relations, list.clone());
        for compose in ALL {
            let relation_dim = if compose == Compose::Outer { 3 } else { dim };
            let (x, z) = (draw(entities * dim, 1), draw(relations * relation_dim, 2));
            let [senders, table] = [Matrix::rows_of(&x, dim), Matrix::rows_of(&z, relation_dim)];
            let sums = messages.sums(compose, senders, table);
            let out_dim = compose.out_dim(dim, relation_dim);
            let mut expected = vec![0.0; entities * out_dim];
            for Message { sender, relation, receiver, factor } in &list {
                let (x, z) = (senders.row(*sender as usize), table.row(*relation as usize));
                let row = message(compose, x, z);
                let sum = &mut expected[*receiver as usize * out_dim..][..out_dim];
                sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += factor * value);
            }
            for (found, expected) in sums.iter().zip(&expected) {
                // A few hundred terms of about one.
                assert!((found - expected).abs() < 1e-4, "{compose:?}: {found}, {expected}");
            }

            // ⟨grad, sums⟩ is linear in each table, so it is ⟨gradient, table⟩; a difference is so
            // in both together.
            let grad = draw(sums.len(), 3);
            let grad = Matrix::rows_of(&grad, out_dim);
            let by_senders = messages.grad_senders(compose, grad, table, dim);
            let by_relations = messages.grad_relations(compose, grad, senders, relation_dim);
            let inner = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            let expected = inner(grad.values, &sums);
            let [senders, relations] = [inner(&by_senders, &x), inner(&by_relations, &z)];
            let found = match compose {
                Compose::Difference => [senders + relations; 2],
                _ => [senders, relations],
            };
            for found in found {
                assert!((found - expected).abs() < 1e-3, "{compose:?}: {found}, {expected}");
            }
        }
    }

    #[test]
    fn neither_threads_nor_the_order_of_facts_change_a_bit() {
        // Enough for several pieces of one relation and several tasks.
        let list = crowded(5000, 200, 4);
        let backwards: Vec<Message> = list.iter().rev().copied().collect();
        let (x, z, grad) = (draw(1200, 1), draw(24, 2), draw(1200, 3));
        let [x, z, grad] = [&x, &z, &grad].map(|values| Matrix::rows_of(values, 6));
        let run = |threads: usize, list: &[Message]| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let messages = Messages::new(200, 4, list.to_vec());
                [
                    messages.sums(Compose::Product, x, z),
                    messages.grad_senders(Compose::Product, grad, z, 6),
                    messages.grad_relations(Compose::Product, grad, x, 6),
                ]
            })
        };
        let one = run(1, &list);
        assert!(run(2, &list) == one && run(5, &list) == one && run(2, &backwards) == one);
    }
}
