//! Sums over parts of all objects, and the loss that is made of them.

use super::answer_logits::{Mixed, mix};
use crate::log_sum::LogSum;
use crate::loss::inputs::Inputs;
use crate::simd;

/// What a forward pass over some objects says of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Partial {
    /// Σ exp z of each row.
    pub rows: Vec<LogSum>,
    /// The logits of all answers, component by component of answer after answer; zero for those whose
    /// objects are in another part.
    pub answer_logits: Vec<f32>,
    /// Answers whose objects are in this part.
    pub n_answers: usize,
    /// Of the objects themselves.
    pub objects: ObjectSums,
}

/// Sums over objects, of which smoothing takes the mean.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectSums {
    /// How many there are.
    pub count: usize,
    /// Their vectors; empty without smoothing.
    pub vectors: Vec<f64>,
    /// Their biases.
    pub bias: f64,
}

impl Partial {
    /// What a pass over the objects of both parts would say.
    ///
    /// # Panics
    /// If they are not of the same batch.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        assert_eq!(self.rows.len(), other.rows.len(), "parts of another batch");
        assert_eq!(self.answer_logits.len(), other.answer_logits.len(), "parts of another batch");
        for (sum, other) in self.rows.iter_mut().zip(other.rows) {
            *sum = sum.merge(other);
        }
        // One of two is zero.
        simd::add(&mut self.answer_logits, &other.answer_logits);
        self.n_answers += other.n_answers;
        self.objects.count += other.objects.count;
        self.objects.bias += other.objects.bias;
        for (sum, other) in self.objects.vectors.iter_mut().zip(other.objects.vectors) {
            *sum += other;
        }
        self
    }
}

impl ObjectSums {
    /// Of all objects that are scored; of their vectors only if they are needed.
    pub(super) fn of(inputs: &Inputs, smoothing: f32) -> Self {
        let logits = &inputs.logits;
        let count = logits.shape.n_objects();
        if smoothing == 0.0 {
            return Self { count, vectors: Vec::new(), bias: 0.0 };
        }
        let dim = logits.shape.object_dim;
        let mut vectors = vec![0.0_f64; dim];
        for vector in logits.objects.chunks_exact(dim) {
            vectors.iter_mut().zip(vector).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        let bias = logits.bias.map_or(0.0, |bias| bias.iter().map(|x| f64::from(*x)).sum::<f64>());
        Self { count, vectors, bias }
    }

    fn mean(&self) -> (Vec<f32>, f64) {
        let count = self.count as f64;
        (self.vectors.iter().map(|sum| (sum / count) as f32).collect(), self.bias / count)
    }
}

/// The loss of a batch, and what the backward passes of all parts need.
#[derive(Debug)]
pub struct Finished {
    /// A sum over the batch's answers.
    pub loss: f64,
    /// L, `[B·K]`.
    pub(super) normalisers: Vec<f32>,
    /// Γ, `[B·K]`.
    pub(super) responsibilities: Vec<f32>,
    /// y·γ of each answer and component.
    pub(super) answer_responsibilities: Vec<f32>,
    /// The part of an answer's weight that smoothing gives to each object.
    pub(super) smoothing_each: f32,
}

impl Finished {
    /// The gradient of `scale` times the loss by log π, `[B, K]`.
    pub fn grad_log_prior(&self, scale: f32) -> Vec<f32> {
        self.responsibilities.iter().map(|responsibility| -scale * responsibility).collect()
    }
}

/// The loss of a batch, from the sums over all objects. Of `inputs`, the objects may be of any part.
///
/// # Panics
/// If an answer is in no part, or in two.
pub fn finish(partial: Partial, inputs: &Inputs, smoothing: f32) -> Finished {
    assert_eq!(partial.n_answers, inputs.answers.len(), "answers found in all parts together");
    let normalisers: Vec<f32> = partial.rows.iter().map(|sum| sum.log()).collect();
    let Mixed { mut loss, responsibilities, mut answer_responsibilities } =
        mix(partial.answer_logits, inputs, &normalisers);
    if smoothing > 0.0 {
        let unsmoothed =
            Unsmoothed { loss, normalisers: &normalisers, responsibilities: &responsibilities };
        loss += f64::from(smoothing) * unsmoothed.growth(inputs, &partial.objects);
        answer_responsibilities.iter_mut().for_each(|x| *x *= 1.0 - smoothing);
    }
    let smoothing_each = smoothing / partial.objects.count as f32;
    Finished { loss, normalisers, responsibilities, answer_responsibilities, smoothing_each }
}

/// The loss of a plain softmax without smoothing.
struct Unsmoothed<'a> {
    loss: f64,
    normalisers: &'a [f32],
    responsibilities: &'a [f32],
}

impl Unsmoothed<'_> {
    /// What the loss grows by if all weight is smoothed: Σ_o y_o z_o − W·mean(z), where W = Σ_o y_o.
    ///
    /// Smoothing moves weight from the answers to all objects alike, so their mean vector is enough:
    /// the mean of dot products is that with the mean. Of distances it is not.
    fn growth(&self, inputs: &Inputs, objects: &ObjectSums) -> f64 {
        let (mean, mean_bias) = objects.mean();
        let mut growth = -self.loss;
        for (row, weight) in self.responsibilities.iter().enumerate() {
            let mean_logit = f64::from(simd::dot(inputs.logits.context_of(row), &mean)) + mean_bias;
            growth += f64::from(*weight) * (f64::from(self.normalisers[row]) - mean_logit);
        }
        growth
    }
}
