//! Output layers: how do scores become probabilities, and probabilities a loss?
//!
//! Every output layer turns a query vector h into components: vectors f_k(h), each scored against
//! all objects, and the weights π_k they are mixed with. Scores become probabilities by a softmax over
//! all objects or by a sigmoid for each; a plain softmax or sigmoid is a single component.
//! Some score in a way of their own: a function goes over all scores (sigsoftmax, monotone), they are
//! mixed before they are normalised (mixtape), or objects have vectors that are not learned (fourier).
//! Losses against negative samples are in `sampled`, those against all objects are operations.

mod fourier;
mod margin;
mod mixtape;
mod mixture;
mod mixture_of_contexts;
mod mixture_of_sigmoids;
mod monotone;
mod negatives;
mod offset;
mod projections;
mod sampled;
mod sigmoid;
mod sigsoftmax;
mod softmax;
mod sparse;
#[cfg(test)]
mod tests;

use burn::module::Module;
use burn::tensor::Tensor;
use toml::Value;

use crate::ops::PairScore;
use crate::part::{Build, Domain, Formula, Limit, Tables, kinds};
use crate::probability::ProbabilityKind;
use crate::random::{Noise, Weights};
use crate::settings::{Choice, Refusal, Settings, With, settings};
pub(crate) use negatives::{Draw, Negatives};
pub(crate) use sampled::{Sampled, SampledLoss};

/// What is scored against the objects, and how it is mixed.
#[derive(Debug)]
pub(crate) struct Components {
    /// f_k(h), `[B·K, D]`, the components of a query one after the other.
    pub(crate) context: Tensor<2>,
    /// log π, `[B, K]`.
    pub(crate) log_prior: Tensor<2>,
    /// log π of whatever is mixed, if it was made by a gate, `[B, K]`.
    pub(crate) log_gate: Option<Tensor<2>>,
}

impl Components {
    /// A single one.
    pub(crate) fn single(context: Tensor<2>) -> Self {
        let log_prior = Tensor::zeros([context.dims()[0], 1], &context.device());
        Self { context, log_prior, log_gate: None }
    }
}

/// What is known of an output layer without building one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutputFacts {
    /// What it computes of scores z, those of f_k(h) being z_k, as people write it.
    pub(crate) formula: Formula,
    /// What its probabilities say.
    pub(crate) probability: ProbabilityKind,
    /// Which scores it can be made of.
    pub(crate) made_of: MadeOf,
    /// Whether probabilities of several components are mixed.
    pub(crate) is_mixture: bool,
    /// Why it cannot learn from negative samples, where it cannot.
    pub(crate) needs_all_objects: &'static str,
    /// Whether its probabilities were trained for; those of others are made when it is asked.
    pub(crate) trains_probabilities: bool,
    /// Its tables with a row per entity or relation.
    pub(crate) tables: Tables,
}

/// Which scores an output layer can be made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MadeOf {
    AnyScore,
    /// Of vectors of length one, dot products are cosines.
    DotOrCosine,
    /// What the layer adds to vectors has no length of its own.
    Dot,
}

impl OutputFacts {
    /// Of a layer with nothing special about it.
    pub(crate) const fn new(formula: Formula, probability: ProbabilityKind) -> Self {
        Self {
            formula,
            probability,
            made_of: MadeOf::AnyScore,
            is_mixture: false,
            needs_all_objects: "its scores are made for all objects",
            trains_probabilities: true,
            tables: &[],
        }
    }
}

/// Terms of the loss over all objects that an output layer has settings for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct LossTerms {
    /// Fraction of an answer's weight spread over all objects.
    pub(crate) smoothing: f64,
    /// Below which size entries of the gradient are left to chance; nothing where none may be.
    pub(crate) sparse_below: Option<f64>,
    /// Reward for using all components.
    pub(crate) entropy_weight: f64,
}

/// What every output layer can do.
pub(crate) trait OutputLayer: Module {
    /// Its own settings.
    type Settings: Settings;
    /// What is known without building one.
    const FACTS: OutputFacts;
    /// What it is called in a sentence: `a softmax`.
    fn called(own: &Self::Settings) -> String;
    /// What it refuses, besides scores and negative samples that its facts rule out.
    fn refusals(_: &Self::Settings, _: &With) -> Vec<Refusal> {
        Vec::new()
    }
    /// What does not fit a graph with so many entities.
    fn misfit(_: &Self::Settings, _: &With, _entities: usize) -> Option<Refusal> {
        None
    }
    /// A setting that would fit, where the default does not.
    fn advice(_: &Self::Settings, _: &With, _entities: usize) -> Option<(&'static str, Value)> {
        None
    }
    /// The largest matrix rank of the log-probabilities, or log-odds, that it can give.
    fn limit(_: &Self::Settings, _: &With) -> Limit {
        Self::FACTS.formula.limit
    }
    /// Components that are scored against the objects.
    fn n_components(_: &Self::Settings) -> usize {
        1
    }
    /// How pairs are scored, given how the score does it.
    fn pair_score(_: &Self::Settings, _: &With, score: PairScore) -> PairScore {
        score
    }
    /// Width of contexts and of objects as they are scored, given that of the score.
    fn widths(_: &Self::Settings, _: &With, score: usize) -> [usize; 2] {
        [score, score]
    }
    /// What is added to every score.
    fn shift(_: &Self::Settings, _: &With) -> f64 {
        0.0
    }
    /// What the loss over all objects takes.
    fn loss_terms(_: &Self::Settings) -> LossTerms {
        LossTerms::default()
    }
    /// The loss against negative samples, if there is one.
    fn sampled_loss(_: &Self::Settings) -> Option<SampledLoss> {
        None
    }
    /// Learned numbers, for a forecast of memory.
    fn n_parameters(_: &Build<Self::Settings>) -> usize {
        0
    }
    /// Whether it normalises over a batch.
    fn normalises_batch(_: &Self::Settings) -> bool {
        false
    }
    /// Tensors of the size of the contexts that a batch keeps for the backward pass; measured.
    fn n_kept_contexts(_: &Self::Settings) -> usize {
        18
    }
    /// Whether the table of objects is made anew for every batch.
    const MAKES_OBJECTS: bool = false;
    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self;
    fn forward(&self, query: Tensor<2>, _: Option<&Noise>) -> Components {
        Components::single(query)
    }
    /// The table of objects as it is scored, `[E, …]`.
    fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
        vectors
    }
    /// What the function over all scores has learned, if there is one.
    fn weights(&self) -> Option<Tensor<1>> {
        None
    }
    /// What has been learned to be added to every score, `[1]`, if there is such a thing.
    fn offset(&self) -> Option<Tensor<1>> {
        None
    }
}

settings! {
    /// Settings of an output layer that has none.
    pub(crate) struct NoOutputSettings {}
}

/// The list of output layers: a line here and a file make a new one.
macro_rules! outputs {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal in $file:ident;)*) => {
        kinds! {
            /// What turns scores into probabilities.
            OutputKind;
            /// The output layer that was chosen, with its settings.
            OutputConfig by OutputLayer;
            $($(#[doc = $doc])* $name = $text in $file;)*
        }

        impl OutputKind {
            /// What is known of it without building one.
            pub(crate) const fn facts(self) -> OutputFacts {
                match self {
                    $(Self::$name => $file::$name::FACTS,)*
                }
            }
        }

        impl OutputConfig {
            /// What it is called in a sentence: `a softmax`.
            pub(crate) fn called(&self) -> String {
                match self {
                    $(Self::$name(own) => $file::$name::called(own),)*
                }
            }

            /// What it refuses, besides scores and negative samples that its facts rule out.
            pub(crate) fn own_refusals(&self, with: &With) -> Vec<Refusal> {
                match self {
                    $(Self::$name(own) => $file::$name::refusals(own, with),)*
                }
            }

            /// What does not fit a graph with so many entities.
            pub(crate) fn misfit(&self, with: &With, entities: usize) -> Option<Refusal> {
                match self {
                    $(Self::$name(own) => $file::$name::misfit(own, with, entities),)*
                }
            }

            /// A setting that would fit, where the default does not.
            pub(crate) fn advice(&self, with: &With, entities: usize) -> Option<(&'static str, Value)> {
                match self {
                    $(Self::$name(own) => $file::$name::advice(own, with, entities),)*
                }
            }

            /// The largest matrix rank of what it can give.
            pub(crate) fn limit(&self, with: &With) -> Limit {
                match self {
                    $(Self::$name(own) => $file::$name::limit(own, with),)*
                }
            }

            /// Components that are scored against the objects.
            pub(crate) fn n_components(&self) -> usize {
                match self {
                    $(Self::$name(own) => $file::$name::n_components(own),)*
                }
            }

            /// How pairs are scored, given how the score does it.
            pub(crate) fn pair_score(&self, with: &With, score: PairScore) -> PairScore {
                match self {
                    $(Self::$name(own) => $file::$name::pair_score(own, with, score),)*
                }
            }

            /// Width of contexts and of objects as they are scored, given that of the score.
            pub(crate) fn widths(&self, with: &With, score: usize) -> [usize; 2] {
                match self {
                    $(Self::$name(own) => $file::$name::widths(own, with, score),)*
                }
            }

            /// What is added to every score.
            pub(crate) fn shift(&self, with: &With) -> f64 {
                match self {
                    $(Self::$name(own) => $file::$name::shift(own, with),)*
                }
            }

            /// What the loss over all objects takes.
            pub(crate) fn loss_terms(&self) -> LossTerms {
                match self {
                    $(Self::$name(own) => $file::$name::loss_terms(own),)*
                }
            }

            /// The loss against negative samples, if there is one.
            pub(crate) fn sampled_loss(&self) -> Option<SampledLoss> {
                match self {
                    $(Self::$name(own) => $file::$name::sampled_loss(own),)*
                }
            }

            /// Whether it normalises over a batch.
            pub(crate) fn normalises_batch(&self) -> bool {
                match self {
                    $(Self::$name(own) => $file::$name::normalises_batch(own),)*
                }
            }

            /// Tensors of the size of the contexts that a batch keeps for the backward pass.
            pub(crate) fn n_kept_contexts(&self) -> usize {
                match self {
                    $(Self::$name(own) => $file::$name::n_kept_contexts(own),)*
                }
            }

            /// Whether the table of objects is made anew for every batch.
            pub(crate) fn makes_objects(&self) -> bool {
                match self {
                    $(Self::$name(_) => $file::$name::MAKES_OBJECTS,)*
                }
            }

            /// Learned numbers, without building one.
            pub(crate) fn n_parameters(&self, with: With, domain: &Domain) -> usize {
                match self {
                    $(Self::$name(own) => {
                        $file::$name::n_parameters(&Build { own, with, domain })
                    })*
                }
            }

            pub(crate) fn build(
                &self,
                with: With,
                domain: &Domain,
                weights: &mut Weights,
            ) -> Output {
                match self {
                    $(Self::$name(own) => {
                        let build = Build { own, with, domain };
                        Output::$name($file::$name::new(&build, weights))
                    })*
                }
            }
        }

        /// An output layer of any kind.
        #[derive(Module, Debug)]
        pub(crate) enum Output {
            $($name($file::$name),)*
        }

        impl Output {
            pub(crate) fn forward(&self, query: Tensor<2>, noise: Option<&Noise>) -> Components {
                match self {
                    $(Self::$name(output) => output.forward(query, noise),)*
                }
            }

            /// The table of objects as it is scored, `[E, …]`.
            pub(crate) fn objects(&self, vectors: Tensor<2>) -> Tensor<2> {
                match self {
                    $(Self::$name(output) => output.objects(vectors),)*
                }
            }

            /// What the function over all scores has learned, if there is one.
            pub(crate) fn weights(&self) -> Option<Tensor<1>> {
                match self {
                    $(Self::$name(output) => output.weights(),)*
                }
            }

            /// What has been learned to be added to every score, `[1]`, if there is such a thing.
            pub(crate) fn offset(&self) -> Option<Tensor<1>> {
                match self {
                    $(Self::$name(output) => output.offset(),)*
                }
            }
        }
    };
}

outputs! {
    /// One softmax over all objects.
    Softmax = "softmax" in softmax;
    /// A mixture of softmaxes with shared object vectors.
    Mixture = "mixture" in mixture;
    /// One softmax over contexts that are mixed: the control of a mixture (Yang 2018).
    MixtureOfContexts = "mixture-of-contexts" in mixture_of_contexts;
    /// Raw scores: answers are to score better than negative samples, by a margin.
    Margin = "margin" in margin;
    /// A sigmoid for each object.
    Sigmoid = "sigmoid" in sigmoid;
    /// A mixture of sigmoids for each object.
    MixtureOfSigmoids = "mixture-of-sigmoids" in mixture_of_sigmoids;
    /// One softmax over z + log σ(z) of all scores (Kanai 2018).
    Sigsoftmax = "sigsoftmax" in sigsoftmax;
    /// One softmax over a learned increasing function of all scores (Ganea 2019).
    Monotone = "monotone" in monotone;
    /// One softmax over scores that are mixed, with weights of each object's own (Yang 2019).
    Mixtape = "mixtape" in mixtape;
    /// A sigmoid for each object, whose vector is made of sines and cosines (Grivas 2023).
    Fourier = "fourier" in fourier;
}

impl OutputKind {
    /// What its probabilities say.
    pub fn probability(self) -> ProbabilityKind {
        self.facts().probability
    }

    /// Whether probabilities of several components are mixed.
    pub fn is_mixture(self) -> bool {
        self.facts().is_mixture
    }
}

impl OutputConfig {
    /// What is known of the layer without building it.
    pub(crate) fn facts(&self) -> OutputFacts {
        self.kind().facts()
    }

    /// What such an output layer refuses.
    pub(crate) fn refusals(&self, with: &With) -> Vec<Refusal> {
        let mut refusals = self.refuse_answers(with);
        refusals.extend(self.own_refusals(with));
        refusals.extend(self.refuse_score(with));
        refusals.extend(self.refuse_negatives(with));
        refusals
    }

    /// Of a layer that asks for every object whether it is an answer. Known answers are never drawn,
    /// so with negative samples an item may have some of them alone.
    fn refuse_answers(&self, with: &With) -> Vec<Refusal> {
        let training = with.training;
        let asks_all =
            self.facts().probability == ProbabilityKind::Bernoulli && training.negatives.is_none();
        if !asks_all {
            return Vec::new();
        }
        let name = self.kind().name();
        let of_some = training.answers_per_item.map(|most| {
            let what = format!(
                "a {name} learns that whatever is no answer of its item is wrong, so an item needs all \
                 answers of its query; expected none, found {most}"
            );
            Refusal::new("answers_per_item", what)
        });
        let of_parts = (training.answer_weight != crate::settings::AnswerWeight::One).then(|| {
            let what = format!(
                "a {name} learns whether each triple holds, and a part of a weight would say that it \
                 holds in part; expected `one`, found `share`"
            );
            Refusal::new("answer_weight", what)
        });
        of_some.into_iter().chain(of_parts).collect()
    }

    fn refuse_score(&self, with: &With) -> Option<Refusal> {
        let (output, score) = (self.kind().name(), with.score);
        let (is_right, expected) = match self.facts().made_of {
            MadeOf::AnyScore => return None,
            MadeOf::DotOrCosine => (score.is_linear, "dot or cosine"),
            MadeOf::Dot => (score.name == "dot", "dot"),
        };
        let found = score.name;
        let what = || {
            format!(
                "output = \"{output}\" is made of dot products; expected {expected}, found {found}"
            )
        };
        (!is_right).then(|| Refusal::new("score", what()))
    }

    fn refuse_negatives(&self, with: &With) -> Option<Refusal> {
        let found = with.training.negatives.filter(|_| self.sampled_loss().is_none())?;
        let (output, reason) = (self.kind().name(), self.facts().needs_all_objects);
        let what = format!("{reason}; expected none with output = \"{output}\", found {found}");
        Some(Refusal::new("negatives", what))
    }
}

/// Mean entropy of the prior over a batch, `[1]`: log K if all components are used alike.
pub(crate) fn mean_entropy(log_prior: Tensor<2>) -> Tensor<1> {
    let queries = log_prior.dims()[0] as f64;
    (log_prior.clone().exp() * log_prior).sum().mul_scalar(-1.0 / queries)
}
