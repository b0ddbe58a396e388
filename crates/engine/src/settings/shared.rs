//! Shared settings: what do all parts of a model have in common, and how is it trained?

use super::{Needs, Range, choices, settings};

choices! {
    /// How much an answer of a query counts.
    pub AnswerWeight {
        /// Every answer counts 1, so every triple counts the same.
        One = "one",
        /// Answers share the weight 1 of their query, so every query counts the same.
        Share = "share",
    }
    /// How the gradient changes the parameters.
    pub OptimizerKind {
        /// Kingma and Ba 2015.
        Adam = "adam",
        /// Duchi et al. 2011.
        Adagrad = "adagrad",
    }
    /// How the vectors of entities and relations start.
    pub Init {
        /// Xavier uniform (Glorot and Bengio 2010), with what the authors of an encoder start from
        /// where that differs: RESCAL's matrices one by one, TuckER's core in ±1, RotatE's phases in ±π.
        Xavier = "xavier",
        /// Normal around zero, with a standard deviation of `init_scale`; TuckER's core in ±1.
        Normal = "normal",
        /// Xavier uniform over whole tensors, as PyTorch counts their fans: `[R, d²]` for RESCAL's
        /// matrices, `[d_r, d, d]` for TuckER's core, `[R, d/2]` for RotatE's phases.
        XavierTorch = "xavier-torch",
    }
    /// How the learning rate changes over a training.
    pub Schedule {
        /// Not at all.
        Constant = "constant",
        /// Halved after every 3 epochs in which validation MRR did not improve.
        Plateau = "plateau",
        /// Along half a cosine from its full value to zero at the last epoch.
        Cosine = "cosine",
    }
}

settings! {
    /// Settings of a model as a whole.
    pub struct ModelConfig {
        /// Width of the object vectors: the bottleneck.
        dim: usize = 200, Range::Between(1, 100_000);
        /// Whether every object has a learned bias added to its score.
        bias: bool = false, Range::Any;
    }
}

settings! {
    /// How a model is trained.
    pub struct TrainingConfig {
        /// Entities drawn for each batch, which the answers of all its queries are compared with; all
        /// entities if not given.
        negatives: Option<usize> = None, Range::Between(1, 1_000_000_000);
        /// Answers in one training item, at most; 1 is an item per triple (1-vs-All), and without it an
        /// item is a query with all its answers.
        answers_per_item: Option<usize> = None, Range::Between(1, 1_000_000_000);
        /// How much an answer of a query counts.
        answer_weight: AnswerWeight = AnswerWeight::One, Range::Any;
        /// Items per update, at most; the batches of an epoch are of one size, to one item.
        batch: usize = 1000, Range::Between(1, 1_000_000);
        /// Passes over the training items, at most.
        epochs: usize = 30, Range::Between(1, 1_000_000);
        /// Epochs without a better validation MRR after which training stops.
        patience: usize = 8, Range::Between(1, 1_000_000);
        /// How the gradient changes the parameters.
        optimizer: OptimizerKind = OptimizerKind::Adam, Range::Any;
        /// Step size of the optimizer; 0.1 for Adagrad if it is not given.
        learning_rate: f64 = 1e-3, Range::Positive;
        /// How the learning rate changes.
        schedule: Schedule = Schedule::Constant, Range::Any;
        /// Updates over which the learning rate grows from zero to its full value.
        warmup: usize = 0, Range::Between(0, 1_000_000_000);
        /// Largest norm of the gradient of all parameters together; longer ones are scaled down.
        clip: Option<f64> = None, Range::Positive;
        /// Weight of the cubes of the factors of each answer (N3, Lacroix 2018).
        n3: f64 = 0.0, Range::NotNegative;
        /// Weight of the squares of the factors of each answer.
        l2: f64 = 0.0, Range::NotNegative;
        /// Weight of the squares of subject and object of each answer, before and after they meet the
        /// relation (DURA, Zhang 2020); for bilinear encoders.
        dura: f64 = 0.0, Range::NotNegative;
        /// Weight of the cross-entropy of each answer's relation among all relations and inverses, given
        /// subject and object (Chen 2021); for bilinear encoders.
        relation_weight: f64 = 0.0, Range::NotNegative;
        /// How the vectors of entities and relations start.
        init: Init = Init::Xavier, Range::Any;
        /// Standard deviation of initial values.
        init_scale: f64 = 1e-3, Range::Positive, needs NORMAL;
        /// Share of itself that a running mean of the weights keeps with each update, which validation,
        /// evaluation and predictions then use: 0.999 is about the last thousand updates.
        average: Option<f64> = None, Range::Fraction;
        /// Queries of the validation split, drawn once, that are ranked after each epoch; all of them if
        /// not given.
        valid_sample: Option<usize> = None, Range::Between(1, 1_000_000_000);
        /// Whether no entry of a gradient is left to chance, and all products are made in f32.
        exact: bool = false, Range::Any;
        /// Updates between two checkpoints, besides one after every epoch.
        checkpoint_every: Option<usize> = None, Range::Between(1, 1_000_000_000);
        /// MiB of logits kept from the forward to the backward pass; the rest is computed twice.
        memory_budget: usize = 512, Range::Between(0, 1_000_000_000);
        /// Of all random numbers: initial weights, order of items, dropout.
        seed: u64 = 0, Range::AtLeast(0);
    }
}

const NORMAL: Needs<TrainingConfig> = Needs {
    text: "init = \"normal\"",
    deciding: &["init"],
    are_met: |own, _| own.init == Init::Normal,
};

/// What is known of a score without building one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScoreFacts {
    /// As in configs.
    pub(crate) name: &'static str,
    /// Whether it is linear in the object vector, up to its length.
    pub(crate) is_linear: bool,
    /// Whether it is a distance, which is never below zero.
    pub(crate) is_distance: bool,
}

/// What a part may know of the rest of a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct With<'a> {
    /// What all parts have in common.
    pub(crate) model: &'a ModelConfig,
    /// How the model is trained.
    pub(crate) training: &'a TrainingConfig,
    /// What pairs of vectors are scored with.
    pub(crate) score: ScoreFacts,
    /// Width of query vectors.
    pub(crate) query_dim: usize,
}
