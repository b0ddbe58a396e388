//! What is learned: encoders, output layers, training and evaluation.
//!
//! Data flows one way: an [`encoder`](EncoderKind), a [`score`](ScoreKind) and an output layer make a model, [`train()`]
//! fits it to a graph in a [run folder](TrainingFolder), [`evaluate`] ranks held-out answers, [`predict`] answers
//! queries.
//! Models run on burn; its tensors do not leave this crate.

pub mod bench;
pub mod config;
pub mod evaluate;
pub mod models;
pub mod predict;
pub mod spectrum;
pub mod toy;

mod encoder;
mod error;
mod model;
mod ops;
mod output;
mod parameters;
mod random;
mod rows;
mod run;
mod score;
mod train;

pub use config::{Config, RawConfig};
pub use encoder::EncoderKind;
pub use error::Error;
pub use output::Meaning;
pub use run::{
    Existing, Run, Table, TableRows, TrainingFolder, best_epoch, epochs, to_safetensors,
};
pub use score::ScoreKind;
pub use train::{
    Best, End, EpochRecord, Event, Signal, Trained, advised_batch, forecast, max_frequencies, train,
};
