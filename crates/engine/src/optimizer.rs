//! The optimizer: how does an update change the parameters?

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};

use crate::network::Network;
use crate::ops::{AdamStep, Moments, adam_rows, adam_step};
use crate::parameters::{Path, keeps_path};
use crate::sparse_update::FullTables;

/// Adam (Kingma and Ba 2015) over all tensors of a network.
#[derive(Debug, Default)]
pub(crate) struct Adam {
    /// Steps made.
    pub(crate) steps: u64,
    /// By name; a tensor has none before its first gradient.
    pub(crate) moments: BTreeMap<String, Moments>,
}

impl Adam {
    const BETA_1: f64 = 0.9;
    const BETA_2: f64 = 0.999;
    /// As in the paper and in PyTorch.
    const EPSILON: f64 = 1e-8;

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
        let steps = self.steps as f64;
        let step = AdamStep {
            beta_1: Self::BETA_1 as f32,
            beta_2: Self::BETA_2 as f32,
            rate: (learning_rate / (1.0 - Self::BETA_1.powf(steps))) as f32,
            second_factor: (1.0 / (1.0 - Self::BETA_2.powf(steps)).sqrt()) as f32,
            epsilon: Self::EPSILON as f32,
            grad_factor: grad_factor as f32,
        };
        let moments = &mut self.moments;
        let grads = &mut grads;
        network.map(&mut Stepper { path: Path::default(), grads, moments, full, step })
    }
}

struct Stepper<'a> {
    path: Path,
    grads: &'a mut GradientsParams,
    moments: &'a mut BTreeMap<String, Moments>,
    full: Option<FullTables>,
    step: AdamStep,
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
        let moments = moments.unwrap_or_else(|| zero_moments(len, &grad.device()));
        let (id, tensor, mapper) = param.consume();
        let (tensor, moments) = match full {
            Some((table, ids)) => {
                let mut shape: [usize; D] = tensor.dims();
                shape[0] = len / shape[1..].iter().product::<usize>();
                let (table, moments) = adam_rows(self.step, table, grad, ids, moments);
                (table.reshape(shape), moments)
            }
            None => adam_step(self.step, tensor.inner(), grad, moments),
        };
        self.moments.insert(name, moments);
        Param::from_mapped_value(id, Tensor::from_inner(tensor).require_grad(), mapper)
    }
}

fn zero_moments(len: usize, device: &Device) -> Moments {
    Moments { first: Tensor::zeros([len], device), second: Tensor::zeros([len], device) }
}
