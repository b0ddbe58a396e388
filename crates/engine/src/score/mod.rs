//! Scores: what number does a pair of query vector and object vector get?
//!
//! | | score of h and e |
//! |---|---|
//! | `dot` | h·e |
//! | `cosine` | a · h·e / (‖h‖ ‖e‖), with a learned scale a |
//! | `l1` | −Σ \|h − e\| |
//! | `l2` | −√Σ (h − e)² |
//! | `mlp` | v·relu(… relu(W·[h; e] + b_1) …) + b, a multi-layer perceptron |
//! | `modulus` | −Σ \|h − e\| over complex numbers, real parts in the left half (Sun et al. 2019) |
//!
//! The cosine is a dot product of vectors made for it, here, and so is the first layer of an MLP; all
//! else is computed in tiles by `ops`. What is made of scores is the business of the output layer.

mod cosine;
mod dot;
mod l1;
mod l2;
mod mlp;
mod modulus;

use burn::module::Module;
use burn::tensor::Tensor;

use crate::ops::PairScore;
use crate::part::{Build, Domain, Formula, kinds};
use crate::random::Weights;
use crate::settings::{Refusal, ScoreFacts, Settings, With, settings};

/// What every score can do.
pub(crate) trait Score: Module {
    /// Its own settings.
    type Settings: Settings;
    /// What it computes, costs and limits.
    const FORMULA: Formula;
    /// Whether it is linear in the object vector, up to its length.
    const IS_LINEAR: bool = false;
    /// Whether it is a distance, which is never below zero.
    const IS_DISTANCE: bool = false;
    /// Whether `dim` is split in two halves.
    const HALVES: bool = false;
    /// What is computed of the vectors that [`Score::queries`] and [`Score::objects`] give.
    fn pair_score(own: &Self::Settings) -> PairScore;
    /// Width of these vectors.
    fn width(_: &Self::Settings, dim: usize) -> usize {
        dim
    }
    /// Learned numbers, for a forecast of memory.
    fn n_parameters(_: &Build<Self::Settings>) -> usize {
        0
    }
    /// Numbers that it makes of the objects and of a batch of queries, and their gradients.
    fn n_batch_values(_: &Build<Self::Settings>, _batch: usize) -> usize {
        0
    }
    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self;
    /// Query vectors as the tiles take them.
    fn queries(&self, vectors: Tensor<2>) -> Tensor<2> {
        vectors
    }
    /// Object vectors as the tiles take them.
    fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        vectors
    }
    /// What the tiles take besides, if there is anything.
    fn weights(&self) -> Option<Tensor<1>> {
        None
    }
}

settings! {
    /// Settings of a score that has none.
    pub(crate) struct NoScoreSettings {}
}

/// The list of scores: a line here and a file make a new one.
macro_rules! scores {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal in $file:ident;)*) => {
        kinds! {
            /// What a query vector and an object vector score.
            ScoreKind;
            /// The score that was chosen, with its settings.
            ScoreConfig by Score;
            $($(#[doc = $doc])* $name = $text in $file;)*
        }

        impl ScoreKind {
            /// What it computes, as people write it.
            pub(crate) fn formula(self) -> Formula {
                match self {
                    $(Self::$name => $file::$name::FORMULA,)*
                }
            }

            /// Whether `dim` is split in two halves and must be even.
            pub(crate) fn halves(self) -> bool {
                match self {
                    $(Self::$name => $file::$name::HALVES,)*
                }
            }

            /// What others may know of it.
            pub(crate) const fn facts(self) -> ScoreFacts {
                match self {
                    $(Self::$name => ScoreFacts {
                        name: $text,
                        is_linear: $file::$name::IS_LINEAR,
                        is_distance: $file::$name::IS_DISTANCE,
                    },)*
                }
            }
        }

        impl ScoreConfig {
            /// What is computed of the vectors that the score gives.
            pub(crate) fn pair_score(&self) -> PairScore {
                match self {
                    $(Self::$name(own) => $file::$name::pair_score(own),)*
                }
            }

            /// Width of these vectors.
            pub(crate) fn width(&self, dim: usize) -> usize {
                match self {
                    $(Self::$name(own) => $file::$name::width(own, dim),)*
                }
            }

            /// Learned numbers, without building one.
            pub(crate) fn n_parameters(&self, with: With, domain: &Domain) -> usize {
                match self {
                    $(Self::$name(own) => {
                        $file::$name::n_parameters(&Build { own, with, domain })
                    })*
                }
            }

            /// Numbers that it makes of the objects and of a batch of queries, and their gradients.
            pub(crate) fn n_batch_values(&self, with: With, domain: &Domain, batch: usize) -> usize {
                match self {
                    $(Self::$name(own) => {
                        $file::$name::n_batch_values(&Build { own, with, domain }, batch)
                    })*
                }
            }

            pub(crate) fn build(
                &self,
                with: With,
                domain: &Domain,
                weights: &mut Weights,
            ) -> AnyScore {
                match self {
                    $(Self::$name(own) => {
                        let build = Build { own, with, domain };
                        AnyScore::$name($file::$name::new(&build, weights))
                    })*
                }
            }
        }

        /// A score of any kind.
        #[expect(clippy::large_enum_variant, reason = "a model has one, and it is never in a list")]
        #[derive(Module, Debug)]
        pub(crate) enum AnyScore {
            $($name($file::$name),)*
        }

        impl AnyScore {
            /// Query vectors as the tiles take them.
            pub(crate) fn queries(&self, vectors: Tensor<2>) -> Tensor<2> {
                match self {
                    $(Self::$name(score) => score.queries(vectors),)*
                }
            }

            /// Object vectors as the tiles take them.
            pub(crate) fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
                match self {
                    $(Self::$name(score) => score.objects(vectors),)*
                }
            }

            /// What the tiles take besides, if there is anything.
            pub(crate) fn weights(&self) -> Option<Tensor<1>> {
                match self {
                    $(Self::$name(score) => score.weights(),)*
                }
            }
        }
    };
}

scores! {
    /// Their dot product.
    Dot = "dot" in dot;
    /// Their cosine, times a learned scale.
    Cosine = "cosine" in cosine;
    /// Minus their L1 distance.
    L1 = "l1" in l1;
    /// Minus their Euclidean distance.
    L2 = "l2" in l2;
    /// Minus the sum of the moduli of their differences as complex numbers.
    Modulus = "modulus" in modulus;
    /// What a multi-layer perceptron makes of both.
    Mlp = "mlp" in mlp;
}

impl ScoreConfig {
    /// What such a score refuses.
    pub(crate) fn refusals(&self, with: &With) -> Vec<Refusal> {
        let kind = self.kind();
        let is_uneven = kind.halves() && !with.model.dim.is_multiple_of(2);
        is_uneven.then(|| uneven(kind.facts().name, with.model.dim)).into_iter().collect()
    }
}

/// The refusal of a dimension by a part that splits it in two halves.
pub(crate) fn uneven(part: &str, dim: usize) -> Refusal {
    let what = format!("{part} splits it in two halves; expected an even one, found {dim}");
    Refusal::new("dim", what)
}
