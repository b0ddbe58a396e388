//! What is known: a knowledge graph, loaded from anything, indexed and measured.
//!
//! Data flows one way: [`load()`] reads files into a [`Graph`], which is immutable once built;
//! [`Answers`] is its one index, query → known objects; [`statistics`] reads it;
//! [`generate`] makes synthetic graphs. Nothing here learns: that is the business of the engine.

pub mod generate;
pub mod load;
pub mod split;
pub mod statistics;

mod answers;
mod error;
mod graph;
mod index;
mod names;

pub use answers::Answers;
pub use error::{Error, FieldCount, Listing, Place};
pub use graph::{Direction, EntityId, Graph, Query, RelationId, Repeats, Split, Triple};
pub use load::{LoadOptions, Loaded, load};
pub use names::Names;
