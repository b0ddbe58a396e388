//! P(o|s,r) = softmax(Σ_k π_k(h, o)·h_k·e_o): logits are mixed, with weights of each object's own
//! (Yang et al. 2019, "Mixtape: Breaking the Softmax Bottleneck Efficiently").
//!
//! h_k = tanh(h·H_k), and π is a tree of gates σ(tanh(h·G_j)·v_o + h·u_j + b_{o,j}). The paper lets
//! rare words share gates; here every entity has its own v and b. How pairs are scored is in `ops`.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};

use crate::ops::Mixtape as Sizes;
use crate::random::Weights;

#[derive(Module, Debug)]
pub(crate) struct Mixtape {
    /// H, `[D, K·D]`.
    contexts: Param<Tensor<2>>,
    /// G, `[D, (K − 1)·G]`.
    gates: Param<Tensor<2>>,
    /// u, `[D, K − 1]`.
    shifts: Param<Tensor<2>>,
    /// v, `[E, G]`.
    object_gates: Param<Tensor<2>>,
    /// b, `[E, K − 1]`.
    object_shifts: Param<Tensor<2>>,
}

impl Mixtape {
    pub(crate) fn new(sizes: Sizes, entities: usize, weights: &mut Weights) -> Self {
        let Sizes { components, dim, gate_dim } = sizes;
        let n_gates = components - 1;
        // Matrices side by side, each with the bound of its own fans.
        let mut beside = |columns: usize, n: usize| {
            let bound = (6.0 / (dim + columns) as f64).sqrt();
            Param::from_tensor(weights.uniform([dim, n * columns], bound))
        };
        let (contexts, gates) = (beside(dim, components), beside(gate_dim, n_gates));
        let shifts = beside(1, n_gates);
        let object_gates = Param::from_tensor(weights.xavier(entities, gate_dim));
        let zeros = Tensor::zeros([entities, n_gates], &weights.device);
        let object_shifts = Param::from_tensor(zeros);
        Self { contexts, gates, shifts, object_gates, object_shifts }
    }

    pub(crate) fn n_parameters(sizes: Sizes, entities: usize) -> usize {
        let Sizes { components, dim, gate_dim } = sizes;
        let n_gates = components - 1;
        let of_queries = components * dim * dim + n_gates * dim * (gate_dim + 1);
        of_queries + entities * (gate_dim + n_gates)
    }

    /// h_1 … h_K, gates and shifts of each query, side by side.
    pub(crate) fn queries(&self, query: Tensor<2>) -> Tensor<2> {
        let contexts = activation::tanh(query.clone().matmul(self.contexts.val()));
        let gates = activation::tanh(query.clone().matmul(self.gates.val()));
        Tensor::cat(vec![contexts, gates, query.matmul(self.shifts.val())], 1)
    }

    /// Vector, gate and shifts of each object, side by side.
    pub(crate) fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        Tensor::cat(vec![vectors, self.object_gates.val(), self.object_shifts.val()], 1)
    }
}
