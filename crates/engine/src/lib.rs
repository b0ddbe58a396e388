//! Link prediction on knowledge graphs without the rank bottleneck: load, train, evaluate, predict.
//!
//! ```
//! use std::sync::Arc;
//! use fullrank_engine::{Config, Device, Predictor, Trainer, names, predictor::Ask, silent};
//! use fullrank_graph::{Query, Split};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("friends.tsv");
//! # std::fs::write(&file, "ann\tknows\tbob\nbob\tknows\tcid\ncid\tknows\tann\nann\tlikes\tcid\n")?;
//! let graph = Arc::new(fullrank_graph::load(&file, &Default::default())?.graph);
//! let config = Config::parse("encoder = \"complex\"\noutput = \"mixture\"\ndim = 16\nepochs = 5")?;
//! let mut trainer = Trainer::new(Arc::clone(&graph), config, Device::Cpu)?;
//! trainer.train(&mut silent())?;
//! let model = trainer.into_model();
//! let metrics = model.evaluate(Split::Test, &mut silent())?;
//! let query = Query {
//!     subject: names::find_entity(&graph, "ann")?,
//!     relation: names::find_relation(&graph, "knows")?,
//! };
//! let answers = Predictor::new(model).answer(&[Ask::new(query)])?;
//! # assert!(metrics.is_none_or(|metrics| metrics.realistic.mrr > 0.0));
//! # assert!(!answers[0].answers.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! A [`Config`] says which encoder, score and output layer make a model; [`Trainer`] fits it to a graph in
//! memory, a [`TrainingFolder`] does so on disk, where nothing is lost; a [`Model`] is saved, opened and
//! evaluated, and a [`Predictor`] answers questions with it, from any number of threads.
//! Models run on burn; its tensors do not leave this crate.

pub mod advice;
pub mod answers;
pub mod bench;
pub mod compare;
pub mod config;
pub mod evaluate;
pub mod metrics;
pub mod models;
pub mod names;
pub mod output_demo;
pub mod predictor;
pub mod progress;
pub mod rank_file;
pub mod run;
pub mod search;
pub mod settings;
pub mod spectrum;

mod average;
mod batch;
mod device;
mod encoder;
mod error;
mod layers;
mod learner;
mod model;
mod network;
mod ops;
mod optimizer;
mod output;
mod parameters;
mod part;
mod penalty;
mod probability;
mod random;
mod score;
mod sparse_update;
mod trainer;

pub use config::{Config, RawConfig};
pub use device::Device;
pub use encoder::EncoderKind;
pub use error::Error;
pub use model::{Finished, Model, SplitResult, Table, to_safetensors};
pub use output::OutputKind;
pub use part::TableRows;
pub use predictor::Predictor;
pub use probability::ProbabilityKind;
pub use progress::{Best, End, EpochRecord, Event, Progress, Signal, Trained, silent};
pub use run::{
    Existing, LOCK, Run, TrainingFolder, best_epoch, epochs, kept_candidates, kept_ranks, lock,
};
pub use score::ScoreKind;
pub use trainer::{Trainer, Update, advised_batch, forecast};
