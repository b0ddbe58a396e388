//! Online softmax: how are normalisers made of logits that come a part at a time?
//!
//! A running maximum, and a sum that is scaled when the maximum grows (Milakov and Gimelshein 2018,
//! "Online normalizer calculation for softmax"). It does not matter how parts are grouped, so tiles,
//! chunks and ranges of objects each make their own.

/// Σ exp z over some logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogSum {
    /// The largest z.
    pub maximum: f32,
    /// Σ exp(z − maximum).
    pub sum: f64,
}

impl LogSum {
    /// Of no logits.
    pub const EMPTY: Self = Self { maximum: f32::NEG_INFINITY, sum: 0.0 };

    /// The sum over the logits of both.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        // A maximum that none has set would make NaN of the difference below. Logits that are NaN
        // have a sum that is, too, which is not zero and stays.
        if other.sum == 0.0 {
            return self;
        }
        if other.maximum > self.maximum {
            let factor = f64::from(self.maximum - other.maximum).exp();
            Self { maximum: other.maximum, sum: self.sum * factor + other.sum }
        } else {
            let factor = f64::from(other.maximum - self.maximum).exp();
            Self { sum: self.sum + other.sum * factor, ..self }
        }
    }

    /// log Σ exp z.
    pub fn log(self) -> f32 {
        (f64::from(self.maximum) + self.sum.ln()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(logits: &[f32]) -> LogSum {
        let one = |z: &f32| LogSum { maximum: *z, sum: 1.0 };
        logits.iter().map(one).fold(LogSum::EMPTY, LogSum::merge)
    }

    #[test]
    fn parts_in_any_grouping_have_the_same_sum() {
        let logits = [3.0, -80.0, 91.5, 0.25, 90.0, -7.0];
        let expected = logits.iter().map(|z| f64::from(*z).exp()).sum::<f64>().ln();
        for cut in 0..=logits.len() {
            let (left, right) = logits.split_at(cut);
            for merged in [of(left).merge(of(right)), of(right).merge(of(left))] {
                assert!((f64::from(merged.log()) - expected).abs() < 1e-5 * expected);
            }
        }
        assert_eq!(LogSum::EMPTY.merge(LogSum::EMPTY), LogSum::EMPTY);
    }

    #[test]
    fn what_is_not_a_number_stays() {
        let broken = LogSum { maximum: f32::NEG_INFINITY, sum: f64::NAN };
        assert!(of(&[1.0]).merge(broken).log().is_nan());
        assert!(broken.merge(of(&[1.0])).log().is_nan());
    }
}
