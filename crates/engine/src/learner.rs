//! The learner: what does one update do?
//!
//! A network, its optimizer, and the buffers that one update leaves to the next. Which batch comes
//! next, and at which rate, is the business of `trainer`.

use std::sync::Arc;

use burn::module::Module;
use burn::optim::GradientsParams;

use crate::average::Average;
use crate::batch::Batch;
use crate::config::Config;
use crate::network::{Loss, Network};
use crate::ops::{Work, Workspace};
use crate::optimizer::Optimizer;
use crate::parameters::{norms, tensors};
use crate::random::Noise;
use crate::sparse_update::{narrow, restore};

/// A network in training.
#[derive(Debug)]
pub(crate) struct Learner {
    /// Taken while an update changes it.
    network: Option<Network>,
    pub(crate) optimizer: Optimizer,
    /// The running mean of the weights, if there is one.
    pub(crate) average: Option<Average>,
    pub(crate) workspace: Arc<Workspace>,
    n_entities: usize,
}

/// When an update is made, which decides its random numbers, and how far it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UpdateAt {
    /// Updates made before it.
    pub(crate) number: u64,
    pub(crate) learning_rate: f64,
}

/// What a batch lost, before the update.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchLoss {
    /// What was minimised.
    pub(crate) total: f64,
    /// Cross-entropy, or what answers fell short of their margin, not divided by anything.
    pub(crate) cross_entropy: f64,
}

/// A loss or a gradient that is not finite; the update was not made.
#[derive(Debug)]
pub(crate) struct NotFinite {
    /// `loss`, or `the gradient's norm` where it is looked at, which is for clipping.
    pub(crate) quantity: &'static str,
    pub(crate) value: f64,
    /// The first parameter that is not finite, or the one with the largest gradient.
    pub(crate) parameter: String,
    pub(crate) grad_norm: f64,
}

impl Learner {
    /// Who has made no update.
    pub(crate) fn new(network: Network, config: &Config, n_entities: usize) -> Self {
        let optimizer = Optimizer::new(config.training.optimizer);
        let average = config.training.average.map(Average::new);
        Self::at(network, optimizer, average, config, n_entities)
    }

    /// Who goes on.
    pub(crate) fn at(
        network: Network,
        optimizer: Optimizer,
        average: Option<Average>,
        config: &Config,
        n_entities: usize,
    ) -> Self {
        let workspace = Arc::new(Workspace::new(config.training.memory_budget << 20));
        Self { network: Some(network), optimizer, average, workspace, n_entities }
    }

    pub(crate) fn network(&self) -> &Network {
        self.network.as_ref().expect("put back at the end of every update")
    }

    /// One update by one batch.
    pub(crate) fn update(
        &mut self,
        config: &Config,
        mut batch: Batch,
        at: UpdateAt,
    ) -> Result<BatchLoss, NotFinite> {
        let network = self.network.take().expect("put back at the end of every update");
        let (network, full) = narrow(network, &mut batch, config, self.n_entities);
        let noise = Noise::new(config.training.seed, at.number);
        let Loss { total, cross_entropy } = network.loss(&batch, config, &noise, &self.workspace);
        let loss = BatchLoss {
            total: f64::from(total.clone().into_scalar::<f32>()),
            cross_entropy: f64::from(cross_entropy.into_scalar::<f32>()),
        };
        let grads = GradientsParams::from_grads(total.backward(), &network);
        let factor = match loss.total.is_finite() {
            true => clip_factor(&network, &grads, config.training.clip),
            false => Err(not_finite("loss", loss.total, &network, &grads)),
        };
        let factor = match factor {
            Ok(factor) => factor,
            Err(error) => {
                self.network = Some(restore(network, full));
                return Err(error);
            }
        };
        let network = self.optimizer.step(network, grads, full, at.learning_rate, factor);
        if let Some(average) = &mut self.average {
            average.follow(&network);
        }
        self.network = Some(network);
        Ok(loss)
    }

    /// The network to be asked: that of the averaged weights, where they are averaged.
    pub(crate) fn asked(&self) -> Network {
        match &self.average {
            Some(average) => average.of(self.network()),
            None => self.network().valid(),
        }
    }

    /// What the loss has computed since it was last asked for.
    pub(crate) fn take_work(&self) -> Work {
        self.workspace.take_work()
    }
}

/// What gradients are multiplied by so that all together are no longer than `clip`.
fn clip_factor(
    network: &Network,
    grads: &GradientsParams,
    clip: Option<f64>,
) -> Result<f64, NotFinite> {
    let Some(clip) = clip else { return Ok(1.0) };
    let squares = norms(network, grads).into_iter().map(|(_, norm)| norm * norm);
    let norm = squares.sum::<f64>().sqrt();
    if !norm.is_finite() {
        return Err(not_finite("the gradient's norm", norm, network, grads));
    }
    Ok(if norm > clip { clip / norm } else { 1.0 })
}

/// Where a quantity that is not finite came from: a parameter that is broken, or the one with the
/// largest gradient.
fn not_finite(
    quantity: &'static str,
    value: f64,
    network: &Network,
    grads: &GradientsParams,
) -> NotFinite {
    let is_broken = |values: Vec<f32>| values.iter().any(|x| !x.is_finite());
    let broken = tensors(network)
        .into_iter()
        .find(|tensor| is_broken(tensor.values.to_data().try_to_vec::<f32>().unwrap_or_default()));
    let worst = norms(network, grads).into_iter().max_by(|a, b| {
        // A norm that is no number is worse than any that is.
        let key = |norm: f64| if norm.is_nan() { f64::INFINITY } else { norm };
        key(a.1).total_cmp(&key(b.1))
    });
    let (parameter, grad_norm) = worst.unwrap_or_default();
    let parameter = broken.map_or(parameter, |tensor| tensor.name);
    NotFinite { quantity, value, parameter, grad_norm }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Device;
    use crate::encoder::Queries;
    use crate::ops::BatchAnswers;
    use crate::part::Domain;
    use crate::random::Weights;

    #[test]
    fn clipping_shortens_a_gradient_to_its_limit_and_refuses_one_without_length() {
        let config = Config::parse("dim = 8").unwrap();
        let domain = Domain::without_edges(20, 6);
        let weights = Weights::new(0, Device::Cpu.burn().autodiff());
        let network = Network::new(&config, &domain, weights);
        let answers =
            BatchAnswers { queries: vec![0, 1, 2], objects: vec![1, 4, 19], weights: vec![1.0; 3] };
        let batch = Batch {
            queries: Queries { subjects: [0, 1, 2].into(), relations: [0, 1, 5].into() },
            answers: Arc::new(answers),
            negatives: None,
        };
        // The gradients of the batch, each times a factor.
        let gradients = |factor: f32| {
            let workspace = Arc::new(Workspace::new(1 << 20));
            let loss = network.loss(&batch, &config, &Noise::new(0, 0), &workspace);
            GradientsParams::from_grads(loss.total.mul_scalar(factor).backward(), &network)
        };
        let grads = gradients(1.0);
        let squares = norms(&network, &grads).into_iter().map(|(_, norm)| norm * norm);
        let norm = squares.sum::<f64>().sqrt();
        let factor = |clip| clip_factor(&network, &grads, Some(clip)).unwrap();
        assert_eq!([factor(norm / 4.0), factor(norm), factor(2.0 * norm)], [0.25, 1.0, 1.0]);
        assert_eq!(clip_factor(&network, &grads, None).unwrap(), 1.0);

        let error = clip_factor(&network, &gradients(f32::INFINITY), Some(1.0)).unwrap_err();
        assert_eq!(error.quantity, "the gradient's norm");
        assert!(!error.value.is_finite());
    }
}
