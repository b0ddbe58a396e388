//! Operations of burn: how does a kernel become one, with a backward pass of its own?
//!
//! An [`Operation`] says how its output is made of the values of its inputs, and their gradients of
//! that of the output; [`apply`] does the rest: it takes tensors apart, tells autodiff which inputs
//! belong to the output, keeps inputs until the backward pass, and gives every gradient the shape of
//! its input. An input may be absent, as the bias of a score is, and may be known to autodiff or not.
//!
//! It works on the CPU in f32, which [`is_supported`] asks about; on other devices an operation is
//! written in plain tensor operations, beside its kernel, and autodiff finds the gradients itself:
//!
//! ```ignore
//! fn doubled(x: Tensor<2>) -> Tensor<2> {
//!     if !adaptor::is_supported(&x) {
//!         return x.mul_scalar(2.0);
//!     }
//!     adaptor::apply(Doubled, [x.into()])
//! }
//!
//! #[derive(Debug, Clone)]
//! struct Doubled;
//!
//! impl Operation<1> for Doubled {
//!     type Saved = ();
//!
//!     fn forward(&self, inputs: &Inputs<1>) -> (FlexTensor, ()) {
//!         let doubled = inputs.values(0).iter().map(|x| 2.0 * x).collect();
//!         (flex_tensor(doubled, inputs.dims::<2>(0)), ())
//!     }
//!
//!     fn backward(self, _: &Inputs<1>, (): (), grad: &[f32], grads: &mut InputGrads<1>) {
//!         grads.set(0, grad.iter().map(|grad| 2.0 * grad).collect());
//!     }
//! }
//! ```

use std::borrow::Cow;
use std::fmt::{self, Debug};
use std::marker::PhantomData;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::{base::Checkpointer, strategy::NoCheckpointing};
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, DispatchDevice, Flex, TensorMetadata};
use burn::tensor::{DType, Tensor, TensorData};

/// A kernel of `N` inputs and its backward pass; its fields are what it takes besides tensors.
pub(super) trait Operation<const N: usize>: Debug + Clone + Send + 'static {
    /// What the forward pass leaves to the backward pass, besides the inputs. It is dropped after the
    /// forward pass if no gradient is asked for.
    type Saved: Debug + Clone + Send + 'static;

    /// The input whose gradient the backward pass adds to where it stands, if there is one: see
    /// [`InputGrads::add_to`].
    const ADDS_TO: Option<usize> = None;

    /// The output.
    fn forward(&self, inputs: &Inputs<N>) -> (FlexTensor, Self::Saved);

    /// From the gradient of the output to those of the inputs, as far as [`InputGrads::wants`] them.
    fn backward(
        self,
        inputs: &Inputs<N>,
        saved: Self::Saved,
        grad: &[f32],
        grads: &mut InputGrads<N>,
    );
}

/// Whether operations can take this tensor: on the CPU, and in f32.
pub(super) fn is_supported<const D: usize>(tensor: &Tensor<D>) -> bool {
    let device = tensor.device().without_autodiff();
    matches!(device.as_dispatch(), DispatchDevice::Flex(_)) && tensor.dtype() == DType::F32
}

/// The output of an operation. Panics if an input is on another device or not in f32; `D` is its rank.
pub(super) fn apply<O: Operation<N>, const N: usize, const D: usize>(
    operation: O,
    inputs: [Input; N],
) -> Tensor<D> {
    let tracks = inputs.iter().any(|input| matches!(input, Input::Tracked(_)));
    let adds_to = O::ADDS_TO.and_then(|number| match &inputs[number] {
        Input::Tracked(tensor) => Some(tensor.clone()),
        Input::Plain(_) | Input::Absent => None,
    });
    let guards = if tracks { Some(inputs.each_ref().map(Input::guard)) } else { None };
    let inputs = Inputs(inputs.map(Input::into_primitive));
    let (output, saved) = operation.forward(&inputs);
    assert_eq!(output.shape().num_dims(), D, "rank of the output of {operation:?}");
    let Some(guards) = guards else { return Tensor::from_primitive::<Flex>(output) };
    let glue = Glue::<O, N>(PhantomData);
    let output = match glue.prepare::<NoCheckpointing>(guards).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(State { operation, inputs, saved, adds_to }, output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    };
    Tensor::from_primitive::<Autodiff<Flex>>(output)
}

/// An input of an operation: a tensor or, where that may be missing, none.
pub(super) enum Input {
    Absent,
    /// Autodiff knows nothing of it.
    Plain(FlexTensor),
    Tracked(FloatTensor<Autodiff<Flex>>),
}

impl<const D: usize> From<Tensor<D>> for Input {
    fn from(tensor: Tensor<D>) -> Self {
        const SUPPORTED: &str =
            "operations are for the CPU; checkpointing of gradients is not used";
        if tensor.device().is_autodiff() {
            Self::Tracked(tensor.try_into_primitive::<Autodiff<Flex>>().expect(SUPPORTED))
        } else {
            Self::Plain(tensor.try_into_primitive::<Flex>().expect(SUPPORTED))
        }
    }
}

impl<const D: usize> From<Option<Tensor<D>>> for Input {
    fn from(tensor: Option<Tensor<D>>) -> Self {
        tensor.map_or(Self::Absent, Self::from)
    }
}

impl Input {
    /// What autodiff knows an input by; one without a gradient if it knows nothing of it.
    fn guard(&self) -> NodeGuard {
        let leaf = |values: FlexTensor| FloatTensor::<Autodiff<Flex>>::new(values).node();
        match self {
            Self::Absent => leaf(flex_tensor(vec![0.0], [1])),
            Self::Plain(tensor) => leaf(tensor.clone()),
            Self::Tracked(tensor) => tensor.node(),
        }
    }

    fn into_primitive(self) -> Option<FlexTensor> {
        match self {
            Self::Absent => None,
            Self::Plain(tensor) => Some(tensor),
            Self::Tracked(tensor) => Some(tensor.into_primitive()),
        }
    }
}

/// The inputs of an operation, by their place in its list.
#[derive(Debug, Clone)]
pub(super) struct Inputs<const N: usize>([Option<FlexTensor>; N]);

impl<const N: usize> Inputs<N> {
    /// The values of an input that is never absent, row after row.
    pub(super) fn values(&self, input: usize) -> Cow<'_, [f32]> {
        values(self.tensor(input))
    }

    /// The sizes of an input of rank `D` that is never absent.
    pub(super) fn dims<const D: usize>(&self, input: usize) -> [usize; D] {
        self.tensor(input).shape().dims()
    }

    /// The values of an input that may be absent.
    pub(super) fn optional(&self, input: usize) -> Option<Cow<'_, [f32]>> {
        self.0[input].as_ref().map(values)
    }

    fn tensor(&self, input: usize) -> &FlexTensor {
        self.0[input].as_ref().unwrap_or_else(|| panic!("input {input} of {N} is absent"))
    }
}

/// Where the backward pass of an operation puts the gradients of its inputs.
pub(super) struct InputGrads<'a, const N: usize> {
    /// Of the inputs whose gradients are wanted.
    nodes: [Option<NodeId>; N],
    inputs: &'a Inputs<N>,
    gradients: &'a mut Gradients,
    /// The input that [`Operation::ADDS_TO`] names, if autodiff knows it.
    adds_to: Option<FloatTensor<Autodiff<Flex>>>,
}

impl<const N: usize> InputGrads<'_, N> {
    /// Whether an input's gradient is asked for; an absent one's never is.
    pub(super) fn wants(&self, input: usize) -> bool {
        self.nodes[input].is_some()
    }

    /// Hands over an input's gradient, as many values as it has itself. One that nobody wants is
    /// dropped.
    pub(super) fn set(&mut self, input: usize, grad: Vec<f32>) {
        let Some(node) = self.nodes[input] else { return };
        let shape = self.inputs.tensor(input).shape();
        assert_eq!(grad.len(), shape.num_elements(), "gradient of input {input}, {shape:?}");
        let grad = FlexTensor::from_data(TensorData::new(grad, shape));
        self.gradients.register::<Flex>(node, grad);
    }

    /// Has something added to the gradient of the input that [`Operation::ADDS_TO`] names, in the
    /// place of what others have made of it so far. Does nothing if nobody wants it.
    pub(super) fn add_to(&mut self, input: usize, add: impl FnOnce(&mut [f32])) {
        let Some(node) = self.nodes[input] else { return };
        let so_far = self.adds_to.as_ref().and_then(|tensor| self.gradients.remove::<Flex>(tensor));
        let mut grad = match so_far {
            Some(grad) => grad.to_contiguous(),
            None => {
                let shape = self.inputs.tensor(input).shape();
                let zeros = vec![0.0_f32; shape.num_elements()];
                FlexTensor::from_data(TensorData::new(zeros, shape))
            }
        };
        add(grad.storage_mut::<f32>());
        self.gradients.register::<Flex>(node, grad);
    }
}

/// What autodiff keeps of an operation until the backward pass.
#[derive(Debug, Clone)]
struct State<O, S, const N: usize> {
    operation: O,
    inputs: Inputs<N>,
    saved: S,
    adds_to: Option<FloatTensor<Autodiff<Flex>>>,
}

/// An operation as autodiff knows it.
struct Glue<O, const N: usize>(PhantomData<fn(O)>);

impl<O, const N: usize> Debug for Glue<O, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::any::type_name::<O>())
    }
}

impl<O: Operation<N>, const N: usize> Backward<Flex, N> for Glue<O, N> {
    type State = State<O, O::Saved, N>;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let grad = gradients.consume::<Flex>(&ops.node);
        let State { operation, inputs, saved, adds_to } = ops.state;
        let nodes = ops.parents.map(|node| node.map(|node| node.id));
        let mut grads = InputGrads { nodes, inputs: &inputs, gradients, adds_to };
        operation.backward(&inputs, saved, &values(&grad), &mut grads);
    }
}

/// The values of a tensor; copied only if they do not lie in order.
pub(super) fn values(tensor: &FlexTensor) -> Cow<'_, [f32]> {
    match tensor.as_slice::<f32>() {
        Some(values) => Cow::Borrowed(values),
        None => Cow::Owned(tensor.to_contiguous().storage::<f32>().to_vec()),
    }
}

/// A tensor that takes over these values, row after row.
pub(super) fn flex_tensor<const D: usize>(values: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape))
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    /// x·w, value by value, where a missing w is 1.
    #[derive(Debug, Clone)]
    struct Weighted;

    impl Operation<2> for Weighted {
        /// The weights that were used.
        type Saved = Vec<f32>;

        fn forward(&self, inputs: &Inputs<2>) -> (FlexTensor, Vec<f32>) {
            let x = inputs.values(0);
            let weights = match inputs.optional(1) {
                Some(weights) => weights.into_owned(),
                None => vec![1.0; x.len()],
            };
            let out = x.iter().zip(&weights).map(|(x, w)| x * w).collect();
            (flex_tensor(out, inputs.dims::<2>(0)), weights)
        }

        fn backward(
            self,
            inputs: &Inputs<2>,
            weights: Vec<f32>,
            grad: &[f32],
            grads: &mut InputGrads<2>,
        ) {
            let times = |factors: &[f32]| grad.iter().zip(factors).map(|(g, f)| g * f).collect();
            grads.set(0, times(&weights));
            if grads.wants(1) {
                grads.set(1, times(&inputs.values(0)));
            }
        }
    }

    fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
        tensor.into_data().try_into_vec().unwrap()
    }

    fn inputs(device: &Device) -> (Tensor<2>, Tensor<1>) {
        let x = Tensor::from_floats([[1.0, 2.0], [3.0, 4.0]], device);
        (x, Tensor::from_floats([5.0, 6.0, 7.0, 8.0], device))
    }

    #[test]
    fn gradients_have_the_shapes_of_their_inputs() {
        let (x, weights) = inputs(&Device::flex().autodiff());
        let (x, weights) = (x.require_grad(), weights.require_grad());
        let out: Tensor<2> = apply(Weighted, [x.clone().into(), weights.clone().into()]);
        let grads = out.mul_scalar(2.0).sum().backward();
        let (by_x, by_weights) = (x.grad(&grads).unwrap(), weights.grad(&grads).unwrap());
        assert_eq!((by_x.dims(), by_weights.dims()), ([2, 2], [4]));
        assert_eq!(floats(by_x), [10.0, 12.0, 14.0, 16.0]);
        assert_eq!(floats(by_weights), [2.0, 4.0, 6.0, 8.0]);
    }

    #[test]
    fn an_input_may_be_absent_or_unknown_to_autodiff() {
        let (x, _) = inputs(&Device::flex().autodiff());
        let (_, plain) = inputs(&Device::flex());
        let x = x.require_grad();
        for (weights, expected) in
            [(Some(plain), [5.0, 6.0, 7.0, 8.0]), (None::<Tensor<1>>, [1.0; 4])]
        {
            let out: Tensor<2> = apply(Weighted, [x.clone().into(), weights.into()]);
            assert_eq!(floats(x.grad(&out.sum().backward()).unwrap()), expected);
        }
    }

    #[test]
    fn without_autodiff_there_is_only_the_output() {
        let (x, weights) = inputs(&Device::flex());
        // Columns do not lie in order.
        let out: Tensor<2> = apply(Weighted, [x.transpose().into(), weights.into()]);
        assert!(!out.device().is_autodiff());
        assert_eq!(floats(out), [5.0, 18.0, 14.0, 32.0]);
    }
}
