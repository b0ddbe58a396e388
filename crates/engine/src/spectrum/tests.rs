use fullrank_graph::{EntityId, RelationId};

use super::*;
use crate::config::Config;
use crate::output::OutputKind;
use crate::output_demo::OutputDemo;
use crate::progress::silent;
use crate::settings::Choice;

/// Values by row and column.
struct Fixed<F: Fn(usize, usize) -> f32>(usize, F);

impl<F: Fn(usize, usize) -> f32> Scorer for Fixed<F> {
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let row = |query: &Query| -> Vec<f32> {
            let row = query.subject.0 as usize;
            (0..self.0).map(|column| (self.1)(row, column)).collect()
        };
        queries.iter().map(row).enumerate().map(|(place, row)| map(place, &row)).collect()
    }

    fn probability(&self) -> ProbabilityKind {
        ProbabilityKind::Categorical
    }
}

const NARROW: Limits = Limits { side: 0, width: 24, ..LIMITS };

/// Queries whose subjects are 0, 1, 2, …, of two relations in turn.
fn queries(n: usize) -> Vec<Query> {
    let query =
        |i: usize| Query { subject: EntityId(i as u32), relation: RelationId(i as u32 % 2) };
    (0..n).map(query).collect()
}

fn of(n_queries: usize, n_entities: usize, scorer: &impl Scorer, limits: Limits) -> Spectrum {
    let queries = queries(n_queries);
    let rows = Rows { queries: &queries, n_entities, scorer };
    of_rows(&rows, limits, &mut silent()).unwrap()
}

fn matrix_rank(spectrum: &Spectrum) -> usize {
    spectrum.ranks[1].matrix_rank
}

/// The value at a row and a column of a matrix of rank 5: a sum of five products.
fn rank_five(row: usize, column: usize) -> f32 {
    let wave = |i: usize, k: usize| ((i * (2 * k + 3)) as f32 * 0.37).sin();
    (0..5).map(|k| wave(row, k) * wave(column + 100, k)).sum()
}

#[test]
fn a_matrix_of_rank_five_has_five_large_singular_values_whatever_its_shape() {
    for (m, n) in [(60, 40), (40, 60), (50, 50)] {
        let found = of(m, n, &Fixed(n, rank_five), LIMITS);
        assert_eq!(found.method, Method::Exact);
        assert_eq!(found.singular_values.len(), m.min(n));
        assert_eq!(matrix_rank(&found), 5, "{m} by {n}: {:?}", found.ranks);
        assert_eq!(found.largest_fall.unwrap().after, 5);
    }
}

#[test]
fn the_rank_is_that_of_numpy() {
    // numpy 2.4.6: a = np.array([[1 / (1 + i + j) for j in range(40)] for i in range(30)], "f4")
    // np.linalg.matrix_rank(a, tol=t * s.max() * 40 * np.finfo("f4").eps), s = svd(a.astype("f8")),
    // for t in (10, 1, 0.1), and s[:4].
    let hilbert = |row: usize, column: usize| 1.0 / (1 + row + column) as f32;
    let found = of(30, 40, &Fixed(40, hilbert), LIMITS);
    let ranks: Vec<usize> = found.ranks.iter().map(|at| at.matrix_rank).collect();
    assert_eq!(ranks, NUMPY_RANKS);
    for (found, expected) in found.singular_values.iter().zip(NUMPY_VALUES) {
        // Half of the digits of f64 are left.
        assert!((found - expected).abs() < 1e-7, "{found} {expected}");
    }
}

const NUMPY_RANKS: [usize; 3] = [6, 7, 8];
const NUMPY_VALUES: [f64; 4] = [2.0110042178, 0.6007272829, 0.1165282039, 0.0181382430];

/// An output layer of dimension 4 over 80 objects, far enough apart for its softmaxes to differ.
struct Spread(OutputDemo, ProbabilityKind);

impl Spread {
    fn of(output: OutputKind) -> Self {
        let text = format!("dim = 4\nseed = 3\noutput = \"{}\"", output.name());
        let config = Config::parse(&text).unwrap();
        let objects: Vec<Vec<f32>> = (0..80).map(|object| vector(object + 100)).collect();
        Self(OutputDemo::new(&config, &objects), output.probability())
    }
}

impl Scorer for Spread {
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T> {
        let vectors: Vec<Vec<f32>> =
            queries.iter().map(|query| vector(query.subject.0 as usize)).collect();
        let rows = self.0.log_probs(&vectors);
        rows.iter().enumerate().map(|(place, row)| map(place, row)).collect()
    }

    fn probability(&self) -> ProbabilityKind {
        self.1
    }
}

fn vector(i: usize) -> Vec<f32> {
    (0..4).map(|k| 3.0 * ((i * (2 * k + 3)) as f32 * 0.37).sin()).collect()
}

#[test]
fn a_softmax_of_dimension_d_has_rank_d_plus_one_and_a_mixture_more() {
    let softmax = of(90, 80, &Spread::of(OutputKind::Softmax), LIMITS);
    assert_eq!(matrix_rank(&softmax), 4 + 1, "{:?}", softmax.ranks);
    // K = 4 is the default: more than four softmaxes side by side would have.
    let mixture = of(90, 80, &Spread::of(OutputKind::Mixture), LIMITS);
    assert!(matrix_rank(&mixture) > 4 * (4 + 1), "{:?}", mixture.ranks);
    assert_eq!(mixture.measured, Measured::LogProbabilities);
}

#[test]
fn log_odds_of_sigmoids_have_rank_d_where_their_log_probabilities_have_more() {
    let sigmoid = Spread::of(OutputKind::Sigmoid);
    let found = of(90, 80, &sigmoid, LIMITS);
    assert_eq!((matrix_rank(&found), found.measured), (4, Measured::LogOdds), "{:?}", found.ranks);
    let as_categorical = Spread(sigmoid.0, ProbabilityKind::Categorical);
    assert!(matrix_rank(&of(90, 80, &as_categorical, LIMITS)) > 20);
    // Its bias, which may add one, is zero before training.
    assert_eq!(matrix_rank(&of(90, 80, &Spread::of(OutputKind::Fourier), LIMITS)), 4);
    let mixture = of(90, 80, &Spread::of(OutputKind::MixtureOfSigmoids), LIMITS);
    assert!(matrix_rank(&mixture) > 4 * (4 + 1), "{:?}", mixture.ranks);
}

#[test]
fn log_odds_are_exact_at_both_ends() {
    for z in [-80.0_f64, -9.0, -1e-3, 0.0, 2.0, 17.0, 60.0] {
        // log σ(z), of which f32 keeps 24 bits however near zero it is.
        let log_prob = -(-z).exp().ln_1p();
        let found = f64::from(log_odds(log_prob as f32));
        assert!((found - z).abs() < 2e-7 * z.abs().max(1.0), "{z} {found}");
    }
    assert!(log_odds(0.0) > 80.0 && log_odds(0.0).is_finite());
}

#[test]
fn a_sketch_finds_a_small_rank_and_never_too_large_singular_values() {
    let scorer = Fixed(70, rank_five);
    let found = of(90, 70, &scorer, NARROW);
    assert_eq!(found.method, Method::Sketch { width: 24 });
    assert_eq!(matrix_rank(&found), 5);
    // Of full rank, as far as f32 can tell: the sketch is full.
    let scorer = Fixed(70, |row, column| if row == column { 1.0 } else { 0.0 });
    let (sketch, exact) = (of(90, 70, &scorer, NARROW), of(90, 70, &scorer, LIMITS));
    assert_eq!((matrix_rank(&sketch), matrix_rank(&exact)), (24, 70));
    for (sketch, exact) in sketch.singular_values.iter().zip(&exact.singular_values) {
        assert!(*sketch <= exact + 1e-9, "{sketch} {exact}");
    }
}

#[test]
fn what_is_no_finite_number_is_an_error() {
    for value in [f32::NAN, f32::NEG_INFINITY] {
        let scorer = Fixed(3, |row, _| if row == 1 { value } else { 0.5 });
        let queries = queries(2);
        let rows = Rows { queries: &queries, n_entities: 3, scorer: &scorer };
        let error = of_rows(&rows, LIMITS, &mut silent()).unwrap_err();
        assert_eq!(error.to_string(), "the model gives scores that are not numbers");
    }
}

#[test]
fn progress_can_stop_it() {
    let scorer = Fixed(3, rank_five);
    let queries = queries(2);
    let rows = Rows { queries: &queries, n_entities: 3, scorer: &scorer };
    let stopped = of_rows(&rows, LIMITS, &mut |_| Signal::Stop);
    assert!(matches!(stopped, Err(Error::Interrupted)));
}
