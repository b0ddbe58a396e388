//! Benchmarks of kernels: how close to the machine's peak are those that training spends time in?
//!
//! Each is run as a model runs it, on random values, those of training forward and backward, and set
//! beside the time that its matrix products alone would take at the speed that products of tiles
//! reached just before: a shared machine is faster in one second than in the next.

use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Tensor;

use crate::device::Device;
use crate::ops::{
    BatchAnswers, Logits, PairScore, Precision, Shortcuts, SoftmaxOptions, Workspace,
    batched_matmul, binary_cross_entropy, cross_entropy, map_log_probs, peak,
};
use crate::probability::ProbabilityKind;
use crate::random::Weights;

use super::take_work;

/// Sizes of what the kernels are run on.
#[derive(Debug, Clone, Copy)]
pub struct KernelSizes {
    /// Objects.
    pub entities: usize,
    /// Width of vectors.
    pub dim: usize,
    /// Queries.
    pub batch: usize,
    /// Components of a mixture.
    pub components: usize,
    /// Answers of each query.
    pub answers: usize,
}

/// How long a kernel takes.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelTiming {
    /// What it computes.
    pub name: String,
    /// Matrix products of its size that it makes.
    pub products: usize,
    /// Of each repetition.
    pub seconds: Vec<f64>,
    /// Floating-point operations a second of products of tiles, just before each.
    pub peaks: Vec<f64>,
    /// Floating-point operations of its products.
    pub flops: f64,
}

impl KernelTiming {
    /// Of each repetition, the part that its products would take at the peak.
    pub fn shares_of_peak(&self) -> Vec<f64> {
        let of_one = |(seconds, peak)| self.flops / peak / seconds;
        self.seconds.iter().zip(&self.peaks).map(of_one).collect()
    }
}

/// Times every kernel.
pub fn time_kernels(sizes: KernelSizes, repeats: usize) -> Vec<KernelTiming> {
    /// Enough for all tiles of any size one would time.
    const ALL: usize = usize::MAX;
    let KernelSizes { components, .. } = sizes;
    let mixture = |what: &str| format!("mixture of {components} softmaxes, {what}");
    let saves = |saved_bytes| Training { saved_bytes, precision: Precision::F32 };
    let mut timings = vec![
        sizes.softmax("softmax, tiles saved".into(), 1, saves(ALL), repeats),
        sizes.softmax("softmax, tiles made twice".into(), 1, saves(0), repeats),
        sizes.softmax(mixture("tiles saved"), components, saves(ALL), repeats),
        sizes.softmax(mixture("tiles made twice"), components, saves(0), repeats),
        sizes.sigmoid("sigmoid".into(), 1, repeats),
        sizes.sigmoid(format!("mixture of {components} sigmoids"), components, repeats),
        sizes.log_probs("log-probabilities, softmax".into(), 1, repeats),
        sizes.log_probs("log-probabilities, mixture".into(), components, repeats),
        sizes.projections(repeats),
    ];
    if Precision::fastest() == Precision::SplitBf16 {
        let split = Training { saved_bytes: ALL, precision: Precision::SplitBf16 };
        timings.extend([
            sizes.softmax("softmax, split bf16".into(), 1, split, repeats),
            sizes.softmax(mixture("split bf16"), components, split, repeats),
        ]);
    }
    timings
}

/// What a step of training may use.
#[derive(Debug, Clone, Copy)]
struct Training {
    saved_bytes: usize,
    precision: Precision,
}

impl KernelSizes {
    fn softmax(
        self,
        name: String,
        components: usize,
        training: Training,
        repeats: usize,
    ) -> KernelTiming {
        let (input, answers) =
            (self.logits(components, &Device::default().burn().autodiff()), self.some_answers());
        let shortcuts = Shortcuts { precision: training.precision, ..Shortcuts::default() };
        let options = SoftmaxOptions { shortcuts, ..SoftmaxOptions::default() };
        self.loss(name, training, repeats, |workspace| {
            cross_entropy(input.clone(), Arc::clone(&answers), options, workspace)
        })
    }

    fn sigmoid(self, name: String, components: usize, repeats: usize) -> KernelTiming {
        let (input, answers) =
            (self.logits(components, &Device::default().burn().autodiff()), self.some_answers());
        let training = Training { saved_bytes: 0, precision: Precision::F32 };
        self.loss(name, training, repeats, |workspace| {
            binary_cross_entropy(
                input.clone(),
                Arc::clone(&answers),
                Shortcuts::default(),
                workspace,
            )
        })
    }

    /// Of a loss and its gradients, which count their products themselves.
    fn loss(
        self,
        name: String,
        training: Training,
        repeats: usize,
        loss: impl Fn(&Arc<Workspace>) -> Tensor<1>,
    ) -> KernelTiming {
        let Training { saved_bytes, precision } = training;
        let workspace = Arc::new(Workspace::new(saved_bytes));
        let (seconds, peaks) = self.time(repeats, precision, || drop(loss(&workspace).backward()));
        let work = take_work(&workspace);
        let runs = (repeats + WARM_UP) as f64;
        KernelTiming {
            name,
            products: (work.products() / work.logits) as usize,
            seconds,
            peaks,
            flops: 2.0 * (self.dim as u64 * work.products()) as f64 / runs,
        }
    }

    fn log_probs(self, name: String, components: usize, repeats: usize) -> KernelTiming {
        let input = self.logits(components, &Device::default().burn());
        // Something small of each row, as ranks are.
        let run = || {
            drop(map_log_probs(
                input.clone(),
                ProbabilityKind::Categorical,
                Precision::F32,
                |_, row| row[0],
            ))
        };
        let (seconds, peaks) = self.time(repeats, Precision::F32, run);
        let flops = 2.0 * (self.batch * components * self.dim * self.entities) as f64;
        KernelTiming { name, products: 1, seconds, peaks, flops }
    }

    /// One layer of all components' projections.
    fn projections(self, repeats: usize) -> KernelTiming {
        let Self { dim, batch, components, .. } = self;
        let mut weights = Weights::new(1, Device::default().burn().autodiff());
        let values = weights.uniform([batch, components * dim], 1.0).require_grad();
        let matrices = weights.uniform([components, dim, dim], 0.1).require_grad();
        let run = || {
            drop(batched_matmul(values.clone(), matrices.clone(), Precision::F32).sum().backward())
        };
        let flops = 3.0 * 2.0 * (batch * components * dim * dim) as f64;
        let name = format!("a layer of {components} projections");
        let (seconds, peaks) = self.time(repeats, Precision::F32, run);
        KernelTiming { name, products: 3, seconds, peaks, flops }
    }

    /// Seconds of each run, and the peak of such products before it.
    fn time(
        self,
        repeats: usize,
        precision: Precision,
        mut run: impl FnMut(),
    ) -> (Vec<f64>, Vec<f64>) {
        (0..WARM_UP).for_each(|_| run());
        let one = |_| {
            let peak = peak(self.dim, precision);
            let start = Instant::now();
            run();
            (start.elapsed().as_secs_f64(), peak)
        };
        (0..repeats).map(one).unzip()
    }

    /// As they are in training: objects and contexts have gradients, and scores are of some size.
    fn logits(self, components: usize, device: &burn::tensor::Device) -> Logits {
        let Self { entities, dim, batch, .. } = self;
        let mut weights = Weights::new(1, device.clone());
        let mut learned = |rows: usize, columns: usize| -> Tensor<2> {
            let values = weights.uniform([rows, columns], 1.0);
            if device.is_autodiff() { values.require_grad() } else { values }
        };
        Logits {
            context: learned(batch * components, dim),
            log_prior: learned(batch, components),
            objects: learned(entities, dim),
            bias: None,
            score: PairScore::Dot,
            weights: None,
        }
    }

    fn some_answers(self) -> Arc<BatchAnswers> {
        let Self { entities, batch, answers, .. } = self;
        let n = batch * answers;
        Arc::new(BatchAnswers {
            queries: (0..n).map(|i| (i / answers) as u32).collect(),
            // Far apart, as if drawn.
            objects: (0..n).map(|i| (i * 7919 % entities) as u32).collect(),
            weights: vec![1.0 / answers as f32; n],
        })
    }
}

/// Runs before those that are timed: the first makes room.
const WARM_UP: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_timed_as_often_as_asked_and_counts_its_operations() {
        let sizes = KernelSizes { entities: 50, dim: 8, batch: 6, components: 2, answers: 3 };
        let timings = time_kernels(sizes, 2);
        assert!(timings.iter().all(|timing| timing.shares_of_peak().len() == 2));
        assert!(timings.iter().all(|timing| timing.shares_of_peak().iter().all(|x| *x > 0.0)));
        // Two components of six queries by fifty objects, eight multiplications and additions each.
        let product = f64::from(2 * 6 * 50 * 8 * 2);
        let mixed: Vec<f64> = timings.iter().map(|timing| timing.flops / product).collect();
        let layer = f64::from(3 * 2 * 6 * 2 * 8 * 8) / product;
        let in_f32 = [1.5, 2.0, 3.0, 4.0, 1.5, 3.0, 0.5, 1.0, layer];
        assert_eq!(mixed[..9], in_f32);
        let on_unit: &[f64] =
            if Precision::fastest() == Precision::SplitBf16 { &[1.5, 3.0] } else { &[] };
        assert_eq!(&mixed[9..], on_unit);
    }
}
