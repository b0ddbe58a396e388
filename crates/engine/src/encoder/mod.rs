//! How does a query (subject, relation) become a vector, and an object another?
//!
//! One file per encoder. Every one gives a query vector h and a table of object vectors of width
//! `dim`, mostly that of h, too, and knows the scores they are made for; what these are is in `score`.
//! What is made of scores is the business of the output layer.

mod compgcn;
mod complex;
mod concatmlp;
mod conve;
mod cp;
mod distmult;
mod ensemble;
mod hyper;
mod layers;
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
use fullrank_graph::{Graph, Split};

use crate::config::{Choice, Config};
use crate::models::Formula;
use crate::ops::gather_rows;
use crate::random::{Noise, Weights};
use crate::score::ScoreKind;

pub(crate) use layers::{batch_norm, drop, linear, n_linear, normalise};

/// What a model is about.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    pub(crate) entities: usize,
    /// Inverse relations included.
    pub(crate) relations: usize,
    /// The training facts; none for encoders that do not look at them.
    pub(crate) edges: Edges,
}

/// The training facts, first as they are, then inverted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edges {
    pub(crate) subjects: Arc<[u32]>,
    pub(crate) relations: Arc<[u32]>,
    pub(crate) objects: Arc<[u32]>,
}

impl Edges {
    pub(crate) fn len(&self) -> usize {
        self.subjects.len()
    }
}

impl Domain {
    pub(crate) fn of(graph: &Graph, config: &Config) -> Self {
        let sizes = Self::without_edges(graph.entities().len(), 2 * graph.relations().len());
        if !config.encoder.reads_edges() {
            return sizes;
        }
        let facts = || graph.triples(Split::Train).iter();
        let subjects = || facts().map(|fact| fact.subject.0);
        let objects = || facts().map(|fact| fact.object.0);
        let relations = facts().map(|fact| fact.relation.0);
        let inverses = facts().map(|fact| graph.inverse(fact.relation).0);
        let edges = Edges {
            subjects: subjects().chain(objects()).collect(),
            relations: relations.chain(inverses).collect(),
            objects: objects().chain(subjects()).collect(),
        };
        Self { edges, ..sizes }
    }

    /// Sizes alone: for a forecast, or where there is no graph.
    pub(crate) fn without_edges(entities: usize, relations: usize) -> Self {
        Self { entities, relations, edges: Edges::default() }
    }
}

/// What an encoder is built from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EncoderConfig<'a> {
    pub(crate) domain: &'a Domain,
    pub(crate) settings: &'a Config,
}

impl EncoderConfig<'_> {
    pub(crate) fn entities(&self) -> usize {
        self.domain.entities
    }

    /// Inverse relations included.
    pub(crate) fn relations(&self) -> usize {
        self.domain.relations
    }

    pub(crate) fn dim(&self) -> usize {
        self.settings.dim
    }

    /// Width of relation vectors, where it is free to differ.
    pub(crate) fn relation_dim(&self) -> usize {
        self.settings.relation_dim.unwrap_or(self.settings.dim)
    }

    /// Width of entities before and after each layer of messages.
    pub(crate) fn layer_widths(&self) -> impl Iterator<Item = (usize, usize)> {
        let Config { initial_dim, dim, message_layers, .. } = *self.settings;
        (0..message_layers).map(move |depth| (if depth == 0 { initial_dim } else { dim }, dim))
    }
}

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
    /// h, `[B, C]`, where C is `query_dim`.
    pub(crate) query: Tensor<2>,
    /// What N3 and L2 keep small: magnitudes of the factors, `[B, …]` each.
    pub(crate) factors: Vec<Tensor<2>>,
}

/// The list of encoders: a line here and a file make a new one.
macro_rules! encoders {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal in $file:ident;)*) => {
        /// Which encoder.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum EncoderKind {
            $($(#[doc = $doc])* $name,)*
        }

        impl Choice for EncoderKind {
            const ALL: &'static [Self] = &[$(Self::$name),*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        impl EncoderKind {
            /// What it computes, as people write it.
            pub(crate) fn formula(self) -> Formula {
                match self {
                    $(Self::$name => $file::$name::FORMULA,)*
                }
            }

            /// Whether `dim` is split in two halves and must be even.
            pub fn halves(self) -> bool {
                match self {
                    $(Self::$name => $file::$name::HALVES,)*
                }
            }

            /// Whether `dropout` applies to the query vector.
            pub(crate) fn drops_query(self) -> bool {
                match self {
                    $(Self::$name => $file::$name::DROPOUT_ON_QUERY,)*
                }
            }

            /// Whether it normalises over a batch, which must then have several items.
            pub(crate) fn normalises_batch(self) -> bool {
                match self {
                    $(Self::$name => $file::$name::BATCH_NORM,)*
                }
            }

            /// Width of the query vector.
            pub(crate) fn query_dim(self, settings: &Config) -> usize {
                match self {
                    $(Self::$name => $file::$name::query_dim(settings),)*
                }
            }

            /// What such an encoder has against the `dim` of a config.
            pub(crate) fn fault(self, settings: &Config) -> Option<String> {
                match self {
                    $(Self::$name => $file::$name::fault(settings),)*
                }
            }

            /// Whether vectors are made of the training facts, too.
            pub(crate) fn reads_edges(self) -> bool {
                match self {
                    $(Self::$name => $file::$name::READS_EDGES,)*
                }
            }

            /// The scores it goes with, its own first.
            pub fn scores(self) -> &'static [ScoreKind] {
                match self {
                    $(Self::$name => $file::$name::SCORES,)*
                }
            }

            /// Why it goes with no other score.
            pub(crate) fn needs_its_score(self) -> &'static str {
                match self {
                    $(Self::$name => $file::$name::NEEDS_ITS_SCORE,)*
                }
            }

            /// Learned numbers, without building one.
            pub(crate) fn n_parameters(self, sizes: &EncoderConfig) -> usize {
                match self {
                    $(Self::$name => $file::$name::n_parameters(sizes),)*
                }
            }

            /// Numbers that a batch makes beyond rows of the tables, and their gradients.
            pub(crate) fn n_batch_values(self, sizes: &EncoderConfig, batch: usize) -> usize {
                match self {
                    $(Self::$name => $file::$name::n_batch_values(sizes, batch),)*
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
            pub(crate) fn new(
                kind: EncoderKind,
                config: &EncoderConfig,
                weights: &mut Weights,
            ) -> Self {
                match kind {
                    $(EncoderKind::$name => Self::$name($file::$name::new(config, weights)),)*
                }
            }

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

/// What every encoder can do.
pub(crate) trait Encode: Module {
    /// The score of one triple, and what it costs and limits.
    const FORMULA: Formula;
    /// Whether `dim` is split in two halves.
    const HALVES: bool = false;
    /// Whether `dropout` applies to the query vector; not for one with dropout of its own there.
    const DROPOUT_ON_QUERY: bool = true;
    /// Whether it normalises over a batch, which must then have several items.
    const BATCH_NORM: bool = false;
    /// Width of the query vector; other than `dim` only for scores that can do with it.
    fn query_dim(settings: &Config) -> usize {
        settings.dim
    }
    /// What it has against `dim`: what is expected, and what was found.
    fn fault(_: &Config) -> Option<String> {
        None
    }
    /// Whether vectors are made of the training facts, too.
    const READS_EDGES: bool = false;
    /// The scores it goes with, its own first.
    const SCORES: &'static [ScoreKind] = ScoreKind::ALL;
    /// Why it goes with no other score; to be said where some are left out.
    const NEEDS_ITS_SCORE: &'static str = "";
    /// Learned numbers, for a forecast of memory; those of [`tables`] unless there are others.
    fn n_parameters(config: &EncoderConfig) -> usize {
        (config.entities() + config.relations()) * config.dim()
    }
    /// Numbers that a batch makes beyond rows of the tables, and their gradients.
    fn n_batch_values(_: &EncoderConfig, _batch: usize) -> usize {
        0
    }
    fn new(config: &EncoderConfig, weights: &mut Weights) -> Self;
    /// The table of object vectors, `[E, D]`.
    fn objects(&self, noise: Option<&Noise>) -> Tensor<2>;
    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded;

    /// What a norm of these vectors is made of: absolute values, or moduli of complex numbers.
    fn magnitudes(vectors: Tensor<2>) -> Tensor<2> {
        vectors.abs()
    }
}

/// A learned table, one row per entity or relation.
pub(crate) type Table = Param<Tensor<2>>;

pub(crate) fn table(rows: usize, columns: usize, weights: &mut Weights) -> Table {
    Param::from_tensor(weights.xavier(rows, columns))
}

/// What many encoders learn and nothing else: vectors of entities and of relations, `dim` wide.
pub(crate) fn tables(config: &EncoderConfig, weights: &mut Weights) -> [Table; 2] {
    [config.entities(), config.relations()].map(|rows| table(rows, config.dim(), weights))
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
