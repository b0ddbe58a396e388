//! Parameters: which tensors does a network have, and what are they called?
//!
//! Names are paths of fields, such as `encoder.entity`: the same in checkpoints, in the optimiser
//! and in messages.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Tensor, TensorData};

use crate::network::Network;
use crate::ops::norm;

/// The path from the root of a model to where a visitor is.
#[derive(Debug, Default)]
pub(crate) struct Path(Vec<Option<String>>);

impl Path {
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        // The variant of an enum is a choice of the config, not a part of the model.
        let is_variant = container.starts_with("Enum:");
        self.0.push((!is_variant).then(|| name.to_owned()));
    }

    pub(crate) fn exit(&mut self) {
        self.0.pop();
    }

    pub(crate) fn name(&self) -> String {
        let parts: Vec<&str> = self.0.iter().flatten().map(String::as_str).collect();
        parts.join(".")
    }
}

/// The two functions by which a visitor or mapper keeps its path, in a field of its own.
macro_rules! keeps_path {
    ($field:tt) => {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.$field.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.$field.exit();
        }
    };
}
pub(crate) use keeps_path;

/// A tensor by its name, flattened.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Tensor<1>,
    /// Learned by gradients; running statistics are not.
    pub(crate) is_learned: bool,
}

/// All tensors of a network, always in the same order.
pub(crate) fn tensors(model: &Network) -> Vec<Named> {
    struct Collector(Path, Vec<Named>);
    impl ModuleVisitor for Collector {
        keeps_path!(0);
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let name = self.0.name();
            let tensor = param.val();
            self.1.push(Named {
                // Only normalisation has values that are not learned, and these are their names.
                is_learned: !name.ends_with("running_mean") && !name.ends_with("running_var"),
                name,
                shape: tensor.shape().to_vec(),
                values: tensor.reshape([-1]),
            });
        }
    }
    let mut collector = Collector(Path::default(), Vec::new());
    // Only the evaluation copy has the last update of running statistics.
    model.valid().visit(&mut collector);
    collector.1
}

/// Learned numbers of a network.
pub(crate) fn count(model: &Network) -> usize {
    let learned = tensors(model).into_iter().filter(|tensor| tensor.is_learned);
    learned.map(|tensor| tensor.shape.iter().product::<usize>()).sum()
}

/// Puts values in the place of a model's own; those of each tensor must be there and fit.
pub(crate) fn replace(model: Network, values: BTreeMap<String, TensorData>) -> Network {
    struct Replacer(Path, BTreeMap<String, TensorData>);
    impl ModuleMapper for Replacer {
        keeps_path!(0);
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let name = self.0.name();
            let values = self.1.remove(&name).unwrap_or_else(|| panic!("no values for `{name}`"));
            param.map(|old| {
                let device = old.device().without_autodiff();
                let new = Tensor::from_data(values, &device);
                like(&old, new)
            })
        }
    }
    model.map(&mut Replacer(Path::default(), values))
}

/// The new value of a parameter, differentiable if the old one was.
pub(crate) fn like<const D: usize>(old: &Tensor<D>, new: Tensor<D>) -> Tensor<D> {
    match old.device().is_autodiff() {
        true => Tensor::from_inner(new).set_require_grad(old.is_require_grad()),
        false => new,
    }
}

/// The gradient of every tensor, by name and flattened.
fn named_gradients(model: &Network, grads: &GradientsParams) -> Vec<(String, Tensor<1>)> {
    struct Collector<'a>(Path, &'a GradientsParams, Vec<(String, Tensor<1>)>);
    impl ModuleVisitor for Collector<'_> {
        keeps_path!(0);
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if let Some(grad) = self.1.get::<D>(param.id) {
                self.2.push((self.0.name(), grad.reshape([-1])));
            }
        }
    }
    let mut collector = Collector(Path::default(), grads, Vec::new());
    model.visit(&mut collector);
    collector.2
}

/// The Euclidean norm of each tensor's gradient, by name.
pub(crate) fn norms(model: &Network, grads: &GradientsParams) -> Vec<(String, f64)> {
    let grads = named_gradients(model, grads).into_iter();
    grads.map(|(name, grad)| (name, norm(grad))).collect()
}

/// The gradients of all tensors one after the other, always in the same order.
pub(crate) fn gradients(model: &Network, grads: &GradientsParams) -> Vec<f32> {
    let values = |(_, grad): (_, Tensor<1>)| {
        grad.into_data().try_into_vec::<f32>().expect("models are made of f32")
    };
    named_gradients(model, grads).into_iter().flat_map(values).collect()
}
