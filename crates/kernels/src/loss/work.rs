//! Work of a loss: how much was computed?

/// What was computed of logits and their gradients, counted in entries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Logits of all rows and objects.
    pub logits: u64,
    /// Those that were computed again in the backward pass.
    pub again: u64,
    /// Entries of their gradient that were multiplied, each with a context and with an object.
    pub multiplied: u64,
}

impl Work {
    /// That of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Self {
            logits: self.logits + other.logits,
            again: self.again + other.again,
            multiplied: self.multiplied + other.multiplied,
        }
    }

    /// The part of the gradient that was multiplied; nothing if there were no such losses.
    pub fn density(&self) -> Option<f64> {
        (self.logits > 0).then(|| self.multiplied as f64 / self.logits as f64)
    }

    /// Multiplications of entries with vectors.
    pub fn products(&self) -> u64 {
        self.logits + self.again + 2 * self.multiplied
    }
}
