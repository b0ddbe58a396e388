//! Mixtape: P(o|s,r) = softmax(Σ_k π_k(h, o)·h_k·e_o): logits are mixed, with weights of each object's
//! own (Yang et al. 2019, "Mixtape: Breaking the Softmax Bottleneck Efficiently").
//!
//! h_k = tanh(h·H_k), and π is a tree of gates σ(tanh(h·G_j)·v_o + h·u_j + b_{o,j}). The paper lets
//! rare words share gates; here every entity has its own v and b. How pairs are scored is in `ops`.

use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};

use super::{Components, MadeOf, OutputFacts, OutputLayer};
use crate::ops::{Mixtape as Sizes, PairScore};
use crate::part::{Build, Formula, Limit, TableRows};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Weights};
use crate::settings::{Range, Refusal, With, settings};

settings! {
    /// Settings of a mixtape.
    pub(crate) struct MixtapeConfig {
        /// How many are mixed: softmaxes, sigmoids, contexts, or the scores of a mixtape.
        components: usize = 4, Range::Between(1, 1000);
        /// Width of the vectors that a mixtape's gates are made of.
        gate_dim: usize = 64, Range::Between(1, 100_000);
    }
}

impl MixtapeConfig {
    fn sizes(&self, with: &With) -> Sizes {
        Sizes { components: self.components, dim: with.model.dim, gate_dim: self.gate_dim }
    }
}

/// H, G and u make contexts and gates of a query; v and b are the objects' part.
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

impl OutputLayer for Mixtape {
    type Settings = MixtapeConfig;
    const FACTS: OutputFacts = OutputFacts {
        made_of: MadeOf::Dot,
        tables: &[("object_gates", TableRows::Entities), ("object_shifts", TableRows::Entities)],
        ..OutputFacts::new(
            Formula::new(
                "softmax(Σ_k π_k(h, o)·z_k)",
                "K·d² + (K − 1)·(d·(g + 1) + E) + g·E",
                Limit::Entities,
            ),
            ProbabilityKind::Categorical,
        )
    };
    const MAKES_OBJECTS: bool = true;

    fn called(own: &MixtapeConfig) -> String {
        format!("a mixtape of {}", own.components)
    }

    fn refusals(own: &MixtapeConfig, _: &With) -> Vec<Refusal> {
        let what = "one score has nothing to be mixed with; expected at least 2 with a mixtape, \
                    found 1";
        let is_one = own.components == 1;
        is_one.then(|| Refusal::new("components", what)).into_iter().collect()
    }

    fn pair_score(own: &MixtapeConfig, with: &With, _: PairScore) -> PairScore {
        PairScore::Mixed(own.sizes(with))
    }

    fn widths(own: &MixtapeConfig, with: &With, _: usize) -> [usize; 2] {
        let sizes = own.sizes(with);
        [sizes.context_dim(), sizes.object_dim()]
    }

    fn n_parameters(build: &Build<MixtapeConfig>) -> usize {
        let Sizes { components, dim, gate_dim } = build.own.sizes(&build.with);
        let n_gates = components - 1;
        let of_queries = components * dim * dim + n_gates * dim * (gate_dim + 1);
        of_queries + build.entities() * (gate_dim + n_gates)
    }

    fn new(build: &Build<MixtapeConfig>, weights: &mut Weights) -> Self {
        let Sizes { components, dim, gate_dim } = build.own.sizes(&build.with);
        let (n_gates, entities) = (components - 1, build.entities());
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

    /// h_1 … h_K, gates and shifts of each query, side by side.
    fn forward(&self, query: Tensor<2>, _: Option<&Noise>) -> Components {
        let contexts = activation::tanh(query.clone().matmul(self.contexts.val()));
        let gates = activation::tanh(query.clone().matmul(self.gates.val()));
        let shifts = query.matmul(self.shifts.val());
        Components::single(Tensor::cat(vec![contexts, gates, shifts], 1))
    }

    /// Vector, gate and shifts of each object, side by side.
    fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        Tensor::cat(vec![vectors, self.object_gates.val(), self.object_shifts.val()], 1)
    }
}
