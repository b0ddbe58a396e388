//! Graph convolutions: which settings do encoders share that send messages along the edges?

use super::EncoderSettings;
use super::{QueryDropout, Range, settings};

settings! {
    /// Settings of encoders that send messages along the edges.
    pub(crate) struct MessageConfig {
        /// Width of the entity vectors that messages along the edges start from.
        initial_dim: usize = 100, Range::Between(1, 100_000);
        /// How many edges a message can travel: layers of graph convolution.
        message_layers: usize = 1, Range::Between(1, 100);
        /// Fraction of the sums of messages, and of the object vectors made of them, set to zero in training.
        message_dropout: f64 = 0.1, Range::Fraction;
        + query: QueryDropout;
    }
}

impl EncoderSettings for MessageConfig {
    fn query_dropout(&self) -> f64 {
        self.query.dropout
    }
}

impl MessageConfig {
    /// Width of entities before and after each layer of messages.
    pub(super) fn layer_widths(&self, dim: usize) -> impl Iterator<Item = (usize, usize)> {
        let (initial_dim, message_layers) = (self.initial_dim, self.message_layers);
        (0..message_layers).map(move |depth| (if depth == 0 { initial_dim } else { dim }, dim))
    }
}
