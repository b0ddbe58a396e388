//! Parts of a model: what do encoders, scores and output layers have in common?
//!
//! A part owns its settings, its formula, its sizes, its tables and what it refuses. The lists of
//! parts are in `encoder`, `score` and `output`, one line for each; what parts make together is the
//! business of `network`.

use std::sync::Arc;

use fullrank_graph::{Graph, Split};

use crate::ops::Precision;
use crate::settings::With;

/// What a part of a model computes, costs and limits, as people write it.
///
/// E, R and d are entities, relations and `dim`; inverse relations make 2R.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Formula {
    /// For an encoder the score of a triple, for an output layer the probability of an object.
    pub(crate) formula: &'static str,
    pub(crate) parameters: &'static str,
    pub(crate) limit: Limit,
}

/// The largest matrix rank of what a part of a model gives, over all queries and objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Scores h·Eᵀ.
    Dim,
    /// Log-probabilities: scores, and the normaliser of each query.
    DimPlusOne,
    /// Of scores that are not those of the object vectors: so many, and at most d + 1.
    Width(usize),
    /// None but the number of objects.
    Entities,
}

impl Formula {
    pub(crate) const fn new(formula: &'static str, parameters: &'static str, limit: Limit) -> Self {
        Self { formula, parameters, limit }
    }

    /// Of an encoder whose score is linear in the object vector.
    pub(crate) const fn linear(formula: &'static str, parameters: &'static str) -> Self {
        Self::new(formula, parameters, Limit::Dim)
    }
}

impl Limit {
    /// The limit in symbols.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Dim => "d",
            Self::DimPlusOne | Self::Width(_) => "d + 1",
            Self::Entities => "none",
        }
    }

    /// The limit at a dimension; nothing if there is none.
    pub(crate) fn at(self, dim: usize) -> Option<usize> {
        match self {
            Self::Dim => Some(dim),
            Self::DimPlusOne => Some(dim + 1),
            Self::Width(width) => Some(width.min(dim + 1)),
            Self::Entities => None,
        }
    }
}

/// What the rows of a table belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableRows {
    /// A row per entity.
    Entities,
    /// A row per relation, then a row per inverse of a relation.
    Relations,
    /// Neither.
    Other,
}

/// The tables of a part that have a row per entity or per relation, by the names of their fields.
pub(crate) type Tables = &'static [(&'static str, TableRows)];

/// What a model is about.
#[derive(Debug, Clone)]
pub(crate) struct Domain {
    pub(crate) entities: usize,
    /// Inverse relations included.
    pub(crate) relations: usize,
    /// Fraction of the pairs of a training query and an entity that are answers; a half where there
    /// is no graph.
    pub(crate) density: f64,
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
    pub(crate) fn of(graph: &Graph) -> Self {
        let facts = || graph.triples(Split::Train).iter();
        let subjects = || facts().map(|fact| fact.subject.0);
        let objects = || facts().map(|fact| fact.object.0);
        let relations = facts().map(|fact| fact.relation.0);
        let inverses = facts().map(|fact| graph.inverse(fact.relation).0);
        Self {
            subjects: subjects().chain(objects()).collect(),
            relations: relations.chain(inverses).collect(),
            objects: objects().chain(subjects()).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.subjects.len()
    }
}

impl Domain {
    /// Sizes alone: for a forecast, or where there is no graph.
    pub(crate) fn without_edges(entities: usize, relations: usize) -> Self {
        Self { entities, relations, density: 0.5, edges: Edges::default() }
    }

    /// That of a graph, without its edges.
    pub(crate) fn of(graph: &Graph) -> Self {
        let sizes = Self::without_edges(graph.entities().len(), 2 * graph.relations().len());
        let answers = graph.answers();
        let counts =
            (0..answers.n_queries()).map(|query| answers.in_split(query, Split::Train).len());
        let (queries, facts) = counts
            .filter(|answers| *answers > 0)
            .fold((0, 0), |(queries, facts), answers| (queries + 1, facts + answers));
        match queries {
            0 => sizes,
            _ => Self { density: facts as f64 / (queries * sizes.entities) as f64, ..sizes },
        }
    }

    /// log p / (1 − p) of the density p.
    pub(crate) fn log_odds(&self) -> f64 {
        /// As near to 0 and 1 as a density counts, so that its odds are finite.
        const MARGIN: f64 = 1e-9;
        let density = self.density.clamp(MARGIN, 1.0 - MARGIN);
        (density / (1.0 - density)).ln()
    }
}

/// What a part is built from: its own settings, those that all parts share, and sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build<'a, S> {
    pub(crate) own: &'a S,
    pub(crate) with: With<'a>,
    pub(crate) domain: &'a Domain,
}

impl<S> Build<'_, S> {
    pub(crate) fn entities(&self) -> usize {
        self.domain.entities
    }

    /// Inverse relations included.
    pub(crate) fn relations(&self) -> usize {
        self.domain.relations
    }

    pub(crate) fn dim(&self) -> usize {
        self.with.model.dim
    }
}

/// From so many entities on products take most of a step, and approximations pay.
pub(crate) const MANY_ENTITIES: usize = 8192;

/// How training multiplies, in updates and in validation.
pub(crate) fn training_precision(is_exact: bool, entities: usize) -> Precision {
    if !is_exact && entities >= MANY_ENTITIES { Precision::fastest() } else { Precision::F32 }
}

/// Makes the kinds of a part and their settings from the list of parts.
///
/// `Kind` is the choice in configs, `Config` the settings of the part that was chosen; `Trait` tells
/// which type holds the settings of a part.
macro_rules! kinds {
    (
        $(#[$kind_doc:meta])* $kind:ident;
        $(#[$config_doc:meta])* $config:ident by $trait:ident;
        $($(#[doc = $doc:literal])* $name:ident = $text:literal in $file:ident;)*
    ) => {
        $crate::settings::choices! {
            $(#[$kind_doc])*
            pub $kind { $($(#[doc = $doc])* $name = $text,)* }
        }

        $(#[$config_doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) enum $config {
            $($name(<$file::$name as $trait>::Settings),)*
        }

        impl $kind {
            /// The settings of such a part.
            pub(crate) fn infos(self) -> Vec<$crate::settings::SettingInfo> {
                match self {
                    $(Self::$name => {
                        <<$file::$name as $trait>::Settings as $crate::settings::Settings>::infos()
                    })*
                }
            }
        }

        impl $config {
            /// All settings at their defaults.
            pub(crate) fn of(kind: $kind) -> Self {
                match kind {
                    $($kind::$name => Self::$name(Default::default()),)*
                }
            }

            /// Which part it is that has these settings.
            pub(crate) fn kind(&self) -> $kind {
                match self {
                    $(Self::$name(_) => $kind::$name,)*
                }
            }

            /// The settings of the part.
            pub(crate) fn group(&self) -> &dyn $crate::settings::Group {
                match self {
                    $(Self::$name(own) => own,)*
                }
            }

            /// The settings of the part, to be set.
            pub(crate) fn group_mut(&mut self) -> &mut dyn $crate::settings::Group {
                match self {
                    $(Self::$name(own) => own,)*
                }
            }
        }
    };
}
pub(crate) use kinds;
