//! Encoders: how does a query (subject, relation) become a vector, and an object another?
//!
//! One file per encoder. Every one gives a query vector h and a table of object vectors of width
//! `dim`, mostly that of h, too, and knows the scores they are made for; what these are is in `score`.
//! What is made of scores is the business of the output layer.

mod bilinear;
mod compgcn;
mod complex;
mod concatmlp;
mod conve;
mod cp;
mod distmult;
mod ensemble;
mod graph_convolution;
mod hyper;
mod rescal;
mod rgcn;
mod rotate;
mod simple;
#[cfg(test)]
mod tests;
mod transe;
mod transformer;
mod tucker;

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;

use crate::ops::gather_rows;
use crate::part::{Build, Domain, Formula, TableRows, Tables, kinds};
use crate::random::{Noise, Weights};
use crate::score::{ScoreKind, uneven};
use crate::settings::{Choice, Range, Refusal, Settings, With, settings};
pub(crate) use bilinear::{Bilinear, Pairs, RelationScores};

/// A batch of queries; relations include inverses.
#[derive(Debug, Clone)]
pub(crate) struct Queries {
    pub(crate) subjects: Arc<[u32]>,
    pub(crate) relations: Arc<[u32]>,
}

/// What all queries of a pass share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pass<'a> {
    /// The table of object vectors, `[E, D]`.
    pub(crate) objects: &'a Tensor<2>,
    /// Nothing when a model is evaluated.
    pub(crate) noise: Option<&'a Noise>,
}

/// Encoded queries.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// h, `[B, C]`, where C is the width of query vectors.
    pub(crate) query: Tensor<2>,
    /// What penalties keep small: the row of the subject and, where it is one, of the relation.
    pub(crate) factors: Vec<Tensor<2>>,
}

/// What is known of an encoder without building one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncoderFacts {
    /// The score of one triple, and what it costs and limits.
    pub(crate) formula: Formula,
    /// Whether `dim` is split in two halves and must be even.
    pub(crate) halves: bool,
    /// Whether it normalises over a batch, which must then have several items.
    pub(crate) normalises_batch: bool,
    /// Whether its score is linear in subject, relation and object, each by itself: for DURA and
    /// relation prediction.
    pub(crate) bilinear: Option<Bilinear>,
    /// Whether vectors are made of the training facts, too.
    pub(crate) reads_edges: bool,
    /// Width of query vectors, in units of `dim`; other than 1 only for scores that can do with it.
    pub(crate) query_width: usize,
    /// The scores it goes with, its own first.
    pub(crate) scores: &'static [ScoreKind],
    /// Why it goes with no other score; to be said where some are left out.
    pub(crate) needs_its_score: &'static str,
    /// Its tables with a row per entity or relation.
    pub(crate) tables: Tables,
}

impl EncoderFacts {
    /// Of an encoder with nothing special about it.
    pub(crate) const fn new(formula: Formula) -> Self {
        Self {
            formula,
            halves: false,
            normalises_batch: false,
            bilinear: None,
            reads_edges: false,
            query_width: 1,
            scores: ALL_SCORES,
            needs_its_score: "",
            tables: &[("entity", TableRows::Entities), ("relation", TableRows::Relations)],
        }
    }
}

const ALL_SCORES: &[ScoreKind] = <ScoreKind as Choice>::ALL;

/// What every encoder can do.
pub(crate) trait Encode: Module {
    /// Its own settings.
    type Settings: EncoderSettings;
    /// What is known without building one.
    const FACTS: EncoderFacts;
    /// What it has against `dim`: what is expected, and what was found.
    fn refuse(_: &Self::Settings, _dim: usize) -> Option<String> {
        None
    }
    /// Learned numbers, for a forecast of memory; those of [`tables`] unless there are others.
    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        (build.entities() + build.relations()) * build.dim()
    }
    /// Numbers that a batch makes beyond rows of the tables, and their gradients.
    fn n_batch_values(_: &Build<Self::Settings>, _batch: usize) -> usize {
        0
    }
    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self;
    /// The table of object vectors, `[E, D]`.
    fn objects(&self, noise: Option<&Noise>) -> Tensor<2>;
    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded;

    /// W_r·o of each pair, `[N, D]`, where the score is sᵀ·W_r·o.
    ///
    /// # Panics
    /// If the encoder is not bilinear, which its facts say.
    fn transposed(&self, _: Pairs) -> Tensor<2> {
        panic!("{self:?} is not bilinear")
    }

    /// The scores of each pair with all relations, as a product.
    ///
    /// # Panics
    /// If the encoder is not bilinear, which its facts say.
    fn relation_scores(&self, _: Pairs) -> RelationScores {
        panic!("{self:?} is not bilinear")
    }

    /// What a norm of these vectors is made of: absolute values, or moduli of complex numbers.
    fn magnitudes(vectors: Tensor<2>) -> Tensor<2> {
        vectors.abs()
    }
}

/// Settings of an encoder.
pub(crate) trait EncoderSettings: Settings {
    /// Fraction of the query vector's values that the model sets to zero in training; none where the
    /// encoder has dropout of its own.
    fn query_dropout(&self) -> f64;
}

settings! {
    /// Settings of encoders without dropout of their own.
    pub(crate) struct QueryDropout {
        /// Fraction of the query vector's values set to zero in training.
        dropout: f64 = 0.1, Range::Fraction;
    }
}

impl EncoderSettings for QueryDropout {
    fn query_dropout(&self) -> f64 {
        self.dropout
    }
}

settings! {
    /// Width of relation vectors where it is free to differ.
    pub(crate) struct RelationDim {
        /// Width of the relation vectors of TuckER and HypER; `dim` if not given.
        relation_dim: Option<usize> = None, Range::Between(1, 100_000);
    }
}

impl RelationDim {
    /// The width, given or not.
    pub(crate) fn relation_dim(&self, dim: usize) -> usize {
        self.relation_dim.unwrap_or(dim)
    }
}

/// The list of encoders: a line here and a file make a new one.
macro_rules! encoders {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal in $file:ident;)*) => {
        kinds! {
            /// Which encoder.
            EncoderKind;
            /// The encoder that was chosen, with its settings.
            EncoderConfig by Encode;
            $($(#[doc = $doc])* $name = $text in $file;)*
        }

        impl EncoderKind {
            /// What is known of it without building one.
            pub(crate) const fn facts(self) -> EncoderFacts {
                match self {
                    $(Self::$name => $file::$name::FACTS,)*
                }
            }
        }

        impl EncoderConfig {
            /// Fraction of the query vector's values that the model sets to zero in training.
            pub(crate) fn query_dropout(&self) -> f64 {
                match self {
                    $(Self::$name(own) => own.query_dropout(),)*
                }
            }

            /// What such an encoder has against a `dim`.
            pub(crate) fn refuse_dim(&self, dim: usize) -> Option<String> {
                match self {
                    $(Self::$name(own) => $file::$name::refuse(own, dim),)*
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

            /// Numbers that a batch makes beyond rows of the tables, and their gradients.
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
            ) -> Encoder {
                match self {
                    $(Self::$name(own) => {
                        let build = Build { own, with, domain };
                        Encoder::$name($file::$name::new(&build, weights))
                    })*
                }
            }
        }

        /// An encoder of any kind.
        #[expect(clippy::large_enum_variant, reason = "a model has one, and it is never in a list")]
        #[derive(Module, Debug)]
        pub(crate) enum Encoder {
            $($name($file::$name),)*
        }

        impl Encoder {
            /// The table of object vectors, `[E, D]`; made once for all queries of a pass.
            pub(crate) fn objects(&self, noise: Option<&Noise>) -> Tensor<2> {
                match self {
                    $(Self::$name(encoder) => encoder.objects(noise),)*
                }
            }

            pub(crate) fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
                match self {
                    $(Self::$name(encoder) => encoder.forward(queries, pass),)*
                }
            }

            /// W_r·o of each pair, `[N, D]`.
            pub(crate) fn transposed(&self, pairs: Pairs) -> Tensor<2> {
                match self {
                    $(Self::$name(encoder) => encoder.transposed(pairs),)*
                }
            }

            /// The scores of each pair with all relations, as a product.
            pub(crate) fn relation_scores(&self, pairs: Pairs) -> RelationScores {
                match self {
                    $(Self::$name(encoder) => encoder.relation_scores(pairs),)*
                }
            }

            /// What a norm of these vectors is made of.
            pub(crate) fn magnitudes(&self, vectors: Tensor<2>) -> Tensor<2> {
                match self {
                    $(Self::$name(_) => $file::$name::magnitudes(vectors),)*
                }
            }
        }
    };
}

encoders! {
    /// Yang et al. 2015.
    DistMult = "distmult" in distmult;
    /// Trouillon et al. 2016.
    ComplEx = "complex" in complex;
    /// Nickel et al. 2011.
    Rescal = "rescal" in rescal;
    /// Hitchcock 1927; Lacroix et al. 2018.
    Cp = "cp" in cp;
    /// Kazemi and Poole 2018.
    SimplE = "simple" in simple;
    /// Balažević et al. 2019.
    Tucker = "tucker" in tucker;
    /// Dettmers et al. 2018.
    ConvE = "conve" in conve;
    /// Balažević et al. 2019.
    HypEr = "hyper" in hyper;
    /// Galkin et al. 2020, without qualifiers.
    Transformer = "transformer" in transformer;
    /// Wang et al. 2018.
    Ensemble = "ensemble" in ensemble;
    /// Vashishth et al. 2020.
    CompGcn = "compgcn" in compgcn;
    /// Schlichtkrull et al. 2018.
    Rgcn = "rgcn" in rgcn;
    /// Bordes et al. 2013.
    TransE = "transe" in transe;
    /// Sun et al. 2019.
    RotatE = "rotate" in rotate;
    /// "On the Theoretical Limitations of Embedding-based Link Prediction", ICML 2026.
    ConcatMlp = "concatmlp" in concatmlp;
}

impl EncoderConfig {
    /// What is known of the encoder without building it.
    pub(crate) fn facts(&self) -> EncoderFacts {
        self.kind().facts()
    }

    /// What such an encoder refuses.
    pub(crate) fn refusals(&self, with: &With) -> Vec<Refusal> {
        let (facts, name) = (self.facts(), self.kind().name());
        let dim = with.model.dim;
        let is_uneven = facts.halves && !dim.is_multiple_of(2);
        let is_single = facts.normalises_batch && with.training.batch == 1;
        [
            is_uneven.then(|| uneven(name, dim)),
            self.refuse_dim(dim).map(|what| Refusal::new("dim", what)),
            is_single.then(|| crate::layers::single_items(name)),
            refuse_score(name, &facts, with),
        ]
        .into_iter()
        .flatten()
        .chain(bilinear::refusals(name, &facts, with))
        .collect()
    }
}

fn refuse_score(encoder: &str, facts: &EncoderFacts, with: &With) -> Option<Refusal> {
    let names: Vec<&str> = facts.scores.iter().map(|score| score.facts().name).collect();
    let found = with.score.name;
    let what = || {
        format!(
            "{encoder} needs its own: {}; expected {}, found {found}",
            facts.needs_its_score,
            names.join(" or ")
        )
    };
    (!names.contains(&found)).then(|| Refusal::new("score", what()))
}

/// A learned table, one row per entity or relation.
pub(crate) type Table = Param<Tensor<2>>;

pub(crate) fn table(rows: usize, columns: usize, weights: &mut Weights) -> Table {
    Param::from_tensor(weights.vectors(rows, columns))
}

/// A learned matrix that is no table of vectors.
pub(crate) fn matrix(rows: usize, columns: usize, weights: &mut Weights) -> Table {
    Param::from_tensor(weights.xavier(rows, columns))
}

/// What many encoders learn and nothing else: vectors of entities and of relations, `dim` wide.
pub(crate) fn tables<S>(build: &Build<S>, weights: &mut Weights) -> [Table; 2] {
    [build.entities(), build.relations()].map(|rows| table(rows, build.dim(), weights))
}

/// The rows of a table that `ids` name.
pub(crate) fn rows(table: &Table, ids: &Arc<[u32]>) -> Tensor<2> {
    gather_rows(table.val(), Arc::clone(ids))
}

/// The moduli of complex numbers, real parts in the left half of every row.
pub(crate) fn moduli(rows: Tensor<2>) -> Tensor<2> {
    /// Under the root, whose slope at zero is infinite.
    const FLOOR: f64 = 1e-30;
    let (re, im) = halves(rows);
    (re.square() + im.square()).add_scalar(FLOOR).sqrt()
}

/// The left and right half of every row.
pub(crate) fn halves(rows: Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let [n, dim] = rows.dims();
    (rows.clone().slice([0..n, 0..dim / 2]), rows.slice([0..n, dim / 2..dim]))
}
