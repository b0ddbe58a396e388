//! Which tensors does a model have, and what are they called?
//!
//! Names are paths of fields, such as `encoder.entity`: the same in checkpoints, in the optimiser
//! and in messages.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};

use crate::model::Model;
use crate::ops::{AdamStep, Moments, adam_rows, adam_step, norm};
use crate::rows::Whole;

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

/// A tensor by its name, flattened.
#[derive(Debug, Clone)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Tensor<1>,
    /// Learned by gradients; running statistics are not.
    pub(crate) is_learned: bool,
}

/// All tensors of a model, always in the same order.
pub(crate) fn tensors(model: &Model) -> Vec<Named> {
    struct Collector(Path, Vec<Named>);
    impl ModuleVisitor for Collector {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
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

/// Learned numbers of a model.
pub(crate) fn count(model: &Model) -> usize {
    let learned = tensors(model).into_iter().filter(|tensor| tensor.is_learned);
    learned.map(|tensor| tensor.shape.iter().product::<usize>()).sum()
}

/// Puts values in the place of a model's own; those of each tensor must be there and fit.
pub(crate) fn replace(model: Model, values: BTreeMap<String, TensorData>) -> Model {
    struct Replacer(Path, BTreeMap<String, TensorData>);
    impl ModuleMapper for Replacer {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
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

/// Adam (Kingma and Ba 2015) over all tensors of a model.
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

    /// One step down `grad_factor` times the gradients; of a model with some rows of `whole` tables,
    /// it gives the model with all of them.
    pub(crate) fn step(
        &mut self,
        model: Model,
        mut grads: GradientsParams,
        whole: Option<Whole>,
        learning_rate: f64,
        grad_factor: f64,
    ) -> Model {
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
        model.map(&mut Stepper { path: Path::default(), grads, moments, whole, step })
    }
}

struct Stepper<'a> {
    path: Path,
    grads: &'a mut GradientsParams,
    moments: &'a mut BTreeMap<String, Moments>,
    whole: Option<Whole>,
    step: AdamStep,
}

impl ModuleMapper for Stepper<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        let whole = self.whole.as_mut();
        let whole = whole.and_then(|whole| Some((whole.tables.remove(&name)?, &whole.ids[..])));
        let Some(grad) = self.grads.remove::<D>(param.id) else {
            assert!(whole.is_none(), "rows of `{name}` without a gradient");
            return param;
        };
        let len = match &whole {
            Some((table, _)) => table.dims()[0],
            None => grad.shape().num_elements(),
        };
        // Taken out and put back, so that nothing else holds the tensors and they change in place.
        let moments = self.moments.remove(&name);
        let moments = moments.unwrap_or_else(|| zero_moments(len, &grad.device()));
        let (id, tensor, mapper) = param.consume();
        let (tensor, moments) = match whole {
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

/// The gradient of every tensor, by name and flattened.
fn named_gradients(model: &Model, grads: &GradientsParams) -> Vec<(String, Tensor<1>)> {
    struct Collector<'a>(Path, &'a GradientsParams, Vec<(String, Tensor<1>)>);
    impl ModuleVisitor for Collector<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, _: &str) {
            self.0.exit();
        }
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
pub(crate) fn norms(model: &Model, grads: &GradientsParams) -> Vec<(String, f64)> {
    let grads = named_gradients(model, grads).into_iter();
    grads.map(|(name, grad)| (name, norm(grad))).collect()
}

/// The gradients of all tensors one after the other, always in the same order.
pub(crate) fn gradients(model: &Model, grads: &GradientsParams) -> Vec<f32> {
    let values = |(_, grad): (_, Tensor<1>)| {
        grad.into_data().try_into_vec::<f32>().expect("models are made of f32")
    };
    named_gradients(model, grads).into_iter().flat_map(values).collect()
}
