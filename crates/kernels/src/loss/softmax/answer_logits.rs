//! Answers under a softmax: what do they add to loss and gradients?
//!
//! They are few, so their logits are made pair by pair; the objects of all others are met in
//! tiles only.

use rayon::prelude::*;

use super::bound::Bound;
use crate::loss::inputs::Inputs;

/// Answers that one thread takes at least.
const AT_ONCE: usize = 64;

/// The logits of those answers that are among the objects at hand.
pub(super) struct AnswerLogits {
    /// Component by component of answer after answer; zero for all others.
    pub(super) logits: Vec<f32>,
    /// Which answers are here, by number.
    here: Vec<bool>,
}

impl AnswerLogits {
    pub(super) fn of(inputs: &Inputs) -> Self {
        let shape = &inputs.logits.shape;
        let (components, answers) = (shape.components, inputs.answers);
        let mut logits = vec![0.0; answers.len() * components];
        let of_answers = logits.par_chunks_exact_mut(components).enumerate();
        let here = of_answers.with_min_len(AT_ONCE).map(|(number, logits)| {
            let Some(object) = answers.place_in(shape, number) else { return false };
            let row = answers.query(number) * components;
            for (k, logit) in logits.iter_mut().enumerate() {
                *logit = inputs.logits.logit(row + k, object);
            }
            true
        });
        let here = here.collect();
        Self { logits, here }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.here.iter().filter(|is_here| **is_here).count()
    }

    /// What they say of each row's normaliser and responsibility.
    pub(super) fn bounds(&self, inputs: &Inputs) -> Vec<Bound> {
        let components = inputs.logits.shape.components;
        let none = Bound { weight: 0.0, normaliser: f32::NEG_INFINITY };
        let mut bounds = vec![none; inputs.logits.shape.rows()];
        for (number, logits) in self.logits.chunks_exact(components).enumerate() {
            let row = inputs.answers.query(number) * components;
            for (bound, logit) in bounds[row..row + components].iter_mut().zip(logits) {
                bound.weight += inputs.answers.weights[number];
                if self.here[number] {
                    // The largest is a bound as well; an object may be an answer twice.
                    bound.normaliser = bound.normaliser.max(*logit);
                }
            }
        }
        bounds
    }
}

/// What components make of the answers together.
pub(super) struct Mixed {
    /// −Σ y·log P.
    pub(super) loss: f64,
    /// Γ, by row.
    pub(super) responsibilities: Vec<f32>,
    /// y·γ, component by component of answer after answer.
    pub(super) answer_responsibilities: Vec<f32>,
}

/// Mixes the logits of all answers.
pub(super) fn mix(logits: Vec<f32>, inputs: &Inputs, normalisers: &[f32]) -> Mixed {
    let components = inputs.logits.shape.components;
    let answers = inputs.answers;
    let mut of_answers = logits;
    let log_probs: Vec<f64> = of_answers
        .par_chunks_exact_mut(components)
        .enumerate()
        .with_min_len(AT_ONCE)
        .map(|(number, terms)| {
            let row = answers.query(number) * components;
            for (k, term) in terms.iter_mut().enumerate() {
                *term = inputs.log_prior[row + k] + (*term - normalisers[row + k]);
            }
            let top = terms.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // One component may give an answer 1e-50: the sum is made in log space.
            let log_prob =
                f64::from(top) + terms.iter().map(|x| f64::from(x - top).exp()).sum::<f64>().ln();
            for term in terms.iter_mut() {
                *term = answers.weights[number] * (f64::from(*term) - log_prob).exp() as f32;
            }
            log_prob
        })
        .collect();
    let mut responsibilities = vec![0.0; inputs.logits.shape.rows()];
    let mut loss = 0.0;
    for number in 0..answers.len() {
        loss -= f64::from(answers.weights[number]) * log_probs[number];
        let row = answers.query(number) * components;
        for k in 0..components {
            responsibilities[row + k] += of_answers[number * components + k];
        }
    }
    Mixed { loss, responsibilities, answer_responsibilities: of_answers }
}
