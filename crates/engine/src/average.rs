//! Averages of weights: what does a network look like if its last updates are averaged out?
//!
//! The weights of a training jitter around what they come to; their running mean does not (Polyak and
//! Juditsky 1992), and answers better at no cost when it is asked. The network that learns never
//! sees it.

use std::collections::BTreeMap;

use burn::module::Module;
use burn::tensor::{Shape, Tensor, TensorData};

use crate::network::Network;
use crate::ops::follow;
use crate::parameters::{Named, replace, tensors};

/// The running mean of all tensors of a network, what normalisation has counted included.
#[derive(Debug, Clone)]
pub(crate) struct Average {
    /// The share of itself that the mean keeps with each update.
    decay: f64,
    /// Updates in it.
    pub(crate) updates: u64,
    /// By name, flattened.
    pub(crate) means: BTreeMap<String, Tensor<1>>,
}

impl Average {
    /// Of no updates so far.
    pub(crate) fn new(decay: f64) -> Self {
        Self { decay, updates: 0, means: BTreeMap::new() }
    }

    /// Takes the network after an update into account.
    ///
    /// The first 1 / (1 − decay) updates weigh alike, so that how weights started is forgotten.
    pub(crate) fn follow(&mut self, network: &Network) {
        self.updates += 1;
        let weight = (1.0 - self.decay).max(1.0 / self.updates as f64) as f32;
        for Named { name, values, .. } in tensors(network) {
            // Taken out and put back, so that it changes in place.
            let mean = self.means.remove(&name).unwrap_or_else(|| values.zeros_like());
            self.means.insert(name, follow(mean, values, weight));
        }
    }

    /// A network to be asked, with the means in the place of its weights; as it is before the first
    /// update.
    pub(crate) fn of(&self, network: &Network) -> Network {
        if self.means.is_empty() {
            return network.valid();
        }
        let means = tensors(network).into_iter().map(|Named { name, shape, .. }| {
            let mean = self.means[&name].to_data().try_into_vec::<f32>();
            (name, TensorData::new(mean.expect("models are made of f32"), Shape::from(shape)))
        });
        replace(network.valid(), means.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::device::Device;
    use crate::part::Domain;
    use crate::random::Weights;

    #[test]
    fn a_mean_is_that_of_its_formula() {
        let config = Config::parse("dim = 2\noutput = \"mixture\"\ncomponents = 1").unwrap();
        let device = Device::Cpu.burn().autodiff();
        let at = |seed| {
            let domain = Domain::without_edges(3, 2);
            Network::new(&config, &domain, Weights::new(seed, device.clone()))
        };
        let values = |network: &Network| -> Vec<f32> {
            let values = |tensor: Named| tensor.values.into_data().try_into_vec::<f32>().unwrap();
            tensors(network).into_iter().flat_map(values).collect()
        };
        let mut average = Average::new(0.75);
        let mut expected = values(&at(0));
        assert_eq!(values(&average.of(&at(0))), expected);
        for update in 1..=7_u64 {
            average.follow(&at(update));
            // Plain means of the first four, then a quarter of the way.
            let weight = (1.0 / update as f32).max(0.25);
            for (mean, value) in expected.iter_mut().zip(values(&at(update))) {
                *mean += weight * (value - *mean);
            }
            let found = values(&average.of(&at(0)));
            assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{update}");
        }
    }
}
