//! The optimizer: how does an update change the parameters?

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

use crate::network::Network;
use crate::ops::{AdagradStep, AdamStep, Moments, OptimizerStep, step_all, step_rows};
use crate::parameters::{Path, keeps_path};
use crate::settings::OptimizerKind;
use crate::sparse_update::FullTables;

/// An optimizer of all tensors of a network, and what it remembers of them.
#[derive(Debug, Clone)]
pub(crate) struct Optimizer {
    pub(crate) kind: OptimizerKind,
    /// Steps made.
    pub(crate) steps: u64,
    /// By name; a tensor has none before its first gradient.
    pub(crate) moments: BTreeMap<String, Moments>,
}

impl OptimizerKind {
    /// What is remembered of a parameter, in the order of its [`Moments`]; the names of tensors in
    /// checkpoints begin with these.
    pub(crate) const fn moment_names(self) -> &'static [&'static str] {
        match self {
            Self::Adam => &["adam.first", "adam.second"],
            Self::Adagrad => &["adagrad.sum"],
        }
    }

    /// A step after which so many were made. Adam is that of Kingma and Ba (2015), Adagrad that of
    /// Duchi et al. (2011), with the constants of the papers and of PyTorch.
    fn step(self, steps: u64, learning_rate: f64, grad_factor: f64) -> OptimizerStep {
        const BETA_1: f64 = 0.9;
        const BETA_2: f64 = 0.999;
        let grad_factor = grad_factor as f32;
        match self {
            Self::Adam => OptimizerStep::Adam(AdamStep {
                beta_1: BETA_1 as f32,
                beta_2: BETA_2 as f32,
                rate: (learning_rate / (1.0 - BETA_1.powf(steps as f64))) as f32,
                second_factor: (1.0 / (1.0 - BETA_2.powf(steps as f64)).sqrt()) as f32,
                epsilon: 1e-8,
                grad_factor,
            }),
            Self::Adagrad => OptimizerStep::Adagrad(AdagradStep {
                rate: learning_rate as f32,
                epsilon: 1e-10,
                grad_factor,
            }),
        }
    }
}

impl Optimizer {
    pub(crate) fn new(kind: OptimizerKind) -> Self {
        Self { kind, steps: 0, moments: BTreeMap::new() }
    }

    /// One step down `grad_factor` times the gradients; of a network with some rows of `full` tables,
    /// it gives the network with all of them.
    pub(crate) fn step(
        &mut self,
        network: Network,
        mut grads: GradientsParams,
        full: Option<FullTables>,
        learning_rate: f64,
        grad_factor: f64,
    ) -> Network {
        self.steps += 1;
        let step = self.kind.step(self.steps, learning_rate, grad_factor);
        let n_moments = self.kind.moment_names().len();
        let moments = &mut self.moments;
        let grads = &mut grads;
        network.map(&mut Stepper { path: Path::default(), grads, n_moments, moments, full, step })
    }
}

struct Stepper<'a> {
    path: Path,
    grads: &'a mut GradientsParams,
    n_moments: usize,
    moments: &'a mut BTreeMap<String, Moments>,
    full: Option<FullTables>,
    step: OptimizerStep,
}

impl ModuleMapper for Stepper<'_> {
    keeps_path!(path);
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        let full = self.full.as_mut();
        let full = full.and_then(|full| Some((full.tables.remove(&name)?, &full.ids[..])));
        let Some(grad) = self.grads.remove::<D>(param.id) else {
            assert!(full.is_none(), "rows of `{name}` without a gradient");
            return param;
        };
        let len = match &full {
            Some((table, _)) => table.dims()[0],
            None => grad.shape().num_elements(),
        };
        // Taken out and put back, so that nothing else holds the tensors and they change in place.
        let moments = self.moments.remove(&name);
        let moments = moments.unwrap_or_else(|| zeros(self.n_moments, len, &grad.device()));
        let (id, tensor, mapper) = param.consume();
        let (tensor, moments) = match full {
            Some((table, ids)) => {
                let mut shape: [usize; D] = tensor.dims();
                shape[0] = len / shape[1..].iter().product::<usize>();
                let (table, moments) = step_rows(self.step, table, grad, ids, moments);
                (table.reshape(shape), moments)
            }
            None => step_all(self.step, tensor.inner(), grad, moments),
        };
        self.moments.insert(name, moments);
        Param::from_mapped_value(id, Tensor::from_inner(tensor).require_grad(), mapper)
    }
}

fn zeros(n_moments: usize, len: usize, device: &Device) -> Moments {
    // Each its own: clones of one would share their values and be copied when they change.
    (0..n_moments).map(|_| Tensor::zeros([len], device)).collect()
}
