//! What is learned: encoders, output layers, training and evaluation.

pub mod config;
mod encoder;
mod error;
mod model;
mod ops;
mod output;
mod random;

pub use encoder::EncoderKind;
pub use error::Error;
