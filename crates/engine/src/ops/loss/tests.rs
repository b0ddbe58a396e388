//! The operations against the losses in plain tensor operations, through burn.

use burn::tensor::{Device, TensorData};
use fullrank_kernels::loss::samples::{Case, FiveGrads, distance};
use fullrank_kernels::pair_score::samples::ALL;

use super::*;

/// Bytes of saved tiles: none, some, and all.
const SAVED_BYTES: [usize; 3] = [0, 1 << 20, usize::MAX / 2];

/// Cases around every edge: one chunk, uneven tiles, more rows than a block, with and without bias;
/// and every score, with one component and with two.
fn cases() -> Vec<Case> {
    let dots = [
        ([5, 1, 3, 7], false),
        ([6, 3, 4, 40], true),
        ([9, 1, 8, 33], true),
        ([13, 4, 5, 2], false),
        ([150, 5, 6, 9000], true),
        ([700, 1, 6, 300], false),
    ];
    let dots = dots.map(|(size, has_bias)| Case::random(PairScore::Dot, size, has_bias, 1));
    let of_scores = ALL.into_iter().flat_map(|score| {
        [1, 2].map(|components| Case::random(score, [7, components, 6, 45], components == 2, 12))
    });
    dots.into_iter().chain(of_scores).collect()
}

/// Loss and gradients through burn, by the operation or by plain tensor operations.
fn by_tensors(case: &Case, loss: impl Fn(Logits) -> Tensor<1>) -> (f64, FiveGrads) {
    let device = Device::flex().autodiff();
    let table = |values: &[f32], rows: usize| {
        let columns = values.len() / rows;
        Tensor::<2>::from_data(TensorData::new(values.to_vec(), [rows, columns]), &device)
            .require_grad()
    };
    let vector =
        |values: &Vec<f32>| Tensor::<1>::from_floats(values.as_slice(), &device).require_grad();
    let input = Logits {
        context: table(&case.context, case.shape.rows()),
        log_prior: table(&case.log_prior, case.shape.queries),
        objects: table(&case.objects, case.shape.objects.len()),
        bias: case.bias.as_ref().map(vector),
        score: case.score,
        weights: (!case.weights.is_empty()).then(|| vector(&case.weights)),
    };
    let loss = loss(input.clone());
    let grads = loss.backward();
    let vec = |data: TensorData| data.try_to_vec::<f32>().unwrap();
    let table = |tensor: &Tensor<2>| vec(tensor.grad(&grads).unwrap().into_data());
    let vector = |tensor: &Option<Tensor<1>>| {
        tensor.as_ref().map_or_else(Vec::new, |t| vec(t.grad(&grads).unwrap().into_data()))
    };
    let Logits { context, log_prior, objects, bias, weights, .. } = &input;
    let tables = [context, log_prior, objects].map(table);
    let [context, log_prior, objects] = tables;
    let loss = f64::from(loss.into_scalar::<f32>());
    (loss, [context, log_prior, objects, vector(bias), vector(weights)])
}

fn assert_close(case: &Case, found: &(f64, FiveGrads), expected: &(f64, FiveGrads), most: f64) {
    let off = (found.0 - expected.0).abs();
    assert!(off <= 1e-5 * expected.0.abs(), "{} and {}", found.0, expected.0);
    for (which, (found, expected)) in found.1.iter().zip(&expected.1).enumerate() {
        let distance = distance(found, expected);
        let of = (case.score, &case.shape);
        assert!(distance <= most, "{of:?}, gradient {which}: {distance}");
    }
}

#[test]
fn softmaxes_equal_plain_tensor_operations() {
    for case in cases() {
        // Logits of several components are mixed with priors that sum to one.
        let case = case.with_normalised_prior();
        let is_plain = case.score == PairScore::Dot && case.shape.components == 1;
        let smoothings: &[f32] = if is_plain { &[0.0, 0.2] } else { &[0.0] };
        let answers = Arc::new(case.answers.clone());
        for smoothing in smoothings.iter().copied() {
            let expected =
                by_tensors(&case, |input| reference::softmax(input, &answers, smoothing));
            for saved_bytes in SAVED_BYTES {
                let workspace = Arc::new(Workspace::new(saved_bytes));
                let options = SoftmaxOptions { smoothing, ..SoftmaxOptions::default() };
                let found = by_tensors(&case, |input| {
                    cross_entropy(input, Arc::clone(&answers), options, &workspace)
                });
                assert_close(&case, &found, &expected, 1e-5);
            }
        }
    }
}

#[test]
fn sigmoids_equal_plain_tensor_operations() {
    let workspace = Arc::new(Workspace::new(0));
    for case in cases() {
        let answers = Arc::new(case.answers.clone());
        let expected = by_tensors(&case, |input| reference::sigmoid(input, &answers));
        let found = by_tensors(&case, |input| {
            binary_cross_entropy(input, Arc::clone(&answers), Shortcuts::default(), &workspace)
        });
        // Gradients of the prior cancel, and plain operations add them up in f32.
        assert_close(&case, &found, &expected, 1e-4);
    }
}

#[test]
fn operations_scale_their_gradients() {
    let case = Case::random(PairScore::Dot, [20, 3, 4, 100], true, 7).with_normalised_prior();
    let workspace = Arc::new(Workspace::new(1 << 20));
    let answers = Arc::new(case.answers.clone());
    let softmax =
        |input| cross_entropy(input, Arc::clone(&answers), SoftmaxOptions::default(), &workspace);
    let sigmoid =
        |input| binary_cross_entropy(input, Arc::clone(&answers), Shortcuts::default(), &workspace);
    let losses: [&dyn Fn(Logits) -> Tensor<1>; 2] = [&softmax, &sigmoid];
    for loss in losses {
        let (_, whole) = by_tensors(&case, loss);
        let (_, quarter) = by_tensors(&case, |input| loss(input).mul_scalar(0.25));
        for (quarter, whole) in quarter.iter().zip(&whole) {
            let expected: Vec<f32> = whole.iter().map(|x| 0.25 * x).collect();
            // A quarter of a sum is the sum of quarters, save for what is too small to be halved.
            assert!(distance(quarter, &expected) < 1e-7);
        }
    }
}

#[test]
fn a_loss_that_nobody_differentiates_is_the_same_and_does_not_hold_saved_tiles_back() {
    let case = Case::random(PairScore::Dot, [20, 1, 4, 100], false, 8).with_normalised_prior();
    let answers = Arc::new(case.answers.clone());
    let workspace = Arc::new(Workspace::new(1 << 20));
    let loss = |input: Logits| {
        cross_entropy(input, Arc::clone(&answers), SoftmaxOptions::default(), &workspace)
    };
    let alone = by_tensors(&case, |input| {
        let not_differentiated = Logits {
            context: input.context.clone().inner(),
            log_prior: input.log_prior.clone().inner(),
            objects: input.objects.clone().inner(),
            ..input.clone()
        };
        let value = loss(not_differentiated).into_scalar::<f32>();
        // Autodiff forgets a loss that is dropped at the end of some backward pass alone.
        drop(loss(input.clone()));
        let differentiated = loss(input);
        assert_eq!(value, differentiated.clone().into_scalar::<f32>());
        differentiated
    });
    assert_eq!(alone, by_tensors(&case, loss));
    // Nothing was computed again: tiles were there both times.
    assert_eq!(workspace.take_work().again, 0);
}
