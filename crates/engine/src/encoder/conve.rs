//! ConvE: score = f(vec(f([s; r] ∗ ω))·W)·o, with vectors as images (Dettmers et al. 2018, eq. 1).

use burn::module::Module;
use burn::nn::BatchNorm;
use burn::tensor::Tensor;

use super::{Encode, Encoded, EncoderFacts, EncoderSettings, Pass, Queries, Table, rows, table};
use crate::layers::{Channels, FilterConfig, Readout, batch_norm, drop, windows};
use crate::part::{Build, Formula};
use crate::random::{Noise, Weights};
use crate::settings::{Range, settings};

/// Rows of the image that a vector becomes.
const HEIGHT: usize = 8;
/// Height and width of a kernel.
const KERNEL: usize = 3;

settings! {
    /// Settings of ConvE.
    pub(crate) struct ConvEConfig {
        /// Convolutional layers of ConvE.
        convolutions: usize = 1, Range::Between(1, 7);
        + filters: FilterConfig;
    }
}

impl EncoderSettings for ConvEConfig {
    fn query_dropout(&self) -> f64 {
        0.0
    }
}

/// h = f(vec(f([s; r] ∗ ω))·W), where [s; r] is the image of s above that of r, ∗ a convolution
/// without padding and f batch normalisation and max(x, 0). Dropout is where the authors' code has
/// it: on the image, on whole channels, and between W and its normalisation.
#[derive(Module, Debug)]
pub(crate) struct ConvE {
    entity: Table,
    relation: Table,
    image_norm: BatchNorm,
    convolutions: Vec<Convolution>,
    readout: Readout,
    input_dropout: f64,
}

/// Has no bias: normalisation would take it away again.
#[derive(Module, Debug)]
struct Convolution {
    /// `[channels, 9·channels before]`, the channels before of each value of a kernel together.
    kernel: Table,
    channels: Channels,
}

impl ConvEConfig {
    /// Values that the last convolution makes of a query.
    fn n_features(&self, dim: usize) -> usize {
        self.filters.channels * pixels(dim, self.convolutions)
    }

    /// Channels before each convolution: the image has one.
    fn channels_before(&self) -> impl Iterator<Item = usize> + Clone + use<> {
        let (convolutions, channels) = (self.convolutions, self.filters.channels);
        (0..convolutions).map(move |layer| if layer == 0 { 1 } else { channels })
    }
}

/// Pixels of the image after some convolutions, each of which takes a margin away.
fn pixels(dim: usize, convolutions: usize) -> usize {
    let margins = convolutions * (KERNEL - 1);
    (2 * HEIGHT - margins) * (dim / HEIGHT - margins)
}

impl Encode for ConvE {
    type Settings = ConvEConfig;
    const FACTS: EncoderFacts = EncoderFacts {
        normalises_batch: true,
        ..EncoderFacts::new(Formula::linear(
            "f(vec(f([s; r] ∗ ω))·W)·o",
            "(E + 2R)·d + kernels + features·d",
        ))
    };

    fn refuse(own: &ConvEConfig, dim: usize) -> Option<String> {
        let least = HEIGHT * (own.convolutions * (KERNEL - 1) + 1);
        let fits = dim.is_multiple_of(HEIGHT) && dim >= least;
        (!fits).then(|| {
            format!(
                "conve makes it an image of {HEIGHT} rows; expected a multiple of {HEIGHT} from \
                 {least}, found {dim}"
            )
        })
    }

    fn n_parameters(build: &Build<Self::Settings>) -> usize {
        let (own, dim) = (build.own, build.dim());
        let channels = own.filters.channels;
        let convolution =
            |before| KERNEL * KERNEL * before * channels + Channels::n_parameters(channels);
        let image_norm = 2;
        (build.entities() + build.relations()) * dim
            + image_norm
            + own.channels_before().map(convolution).sum::<usize>()
            + Readout::n_parameters(own.n_features(dim), dim)
    }

    fn n_batch_values(build: &Build<Self::Settings>, batch: usize) -> usize {
        let own = build.own;
        let sizes = own.channels_before().zip(1..).map(|(before, layer)| {
            let pixels = pixels(build.dim(), layer);
            (KERNEL * KERNEL * before * pixels, own.filters.channels * pixels)
        });
        // Windows and channels, these before and after they are normalised; and of the largest
        // convolution their gradients.
        let kept = sizes.clone().map(|(windows, channels)| windows + 2 * channels).sum::<usize>();
        let grads = sizes.map(|(windows, channels)| windows + 2 * channels).max().unwrap_or(0);
        batch * (kept + grads)
    }

    fn new(build: &Build<Self::Settings>, weights: &mut Weights) -> Self {
        let (own, dim) = (build.own, build.dim());
        let entity = table(build.entities(), dim, weights);
        let relation = table(build.relations(), dim, weights);
        let channels = own.filters.channels;
        let convolutions = own.channels_before().map(|before| {
            let bound = (6.0 / (KERNEL * KERNEL * (before + channels)) as f64).sqrt();
            let kernel = weights.uniform([channels, KERNEL * KERNEL * before], bound);
            let channels = Channels::new(channels, 0.0, own.filters.feature_dropout, weights);
            Convolution { kernel: Table::from_tensor(kernel), channels }
        });
        let convolutions = convolutions.collect();
        Self {
            entity,
            relation,
            image_norm: batch_norm(1, weights),
            convolutions,
            readout: Readout::new(own.n_features(dim), dim, own.filters.hidden_dropout, weights),
            input_dropout: own.filters.input_dropout,
        }
    }

    fn forward(&self, queries: &Queries, pass: &Pass) -> Encoded {
        let subject = rows(&self.entity, &queries.subjects);
        let relation = rows(&self.relation, &queries.relations);
        let [n_queries, dim] = subject.dims();
        let image = Tensor::cat(vec![subject.clone(), relation.clone()], 1);
        let image = image.reshape([n_queries, 1, 2 * HEIGHT, dim / HEIGHT]);
        let mut image = drop(self.image_norm.forward(image), self.input_dropout, pass.noise);
        for convolution in &self.convolutions {
            image = convolution.forward(image, pass.noise);
        }
        let query = self.readout.forward(image.flatten::<3>(2, 3), pass.noise);
        Encoded { query, factors: vec![subject, relation] }
    }

    fn objects(&self, _: Option<&Noise>) -> Tensor<2> {
        self.entity.val()
    }
}

impl Convolution {
    /// `[B, C, H, W]` → `[B, C', H − 2, W − 2]`.
    fn forward(&self, image: Tensor<4>, noise: Option<&Noise>) -> Tensor<4> {
        let [queries, _, height, width] = image.dims();
        let kernel = self.kernel.val().unsqueeze::<3>();
        let channels = kernel.matmul(windows(image, [KERNEL, KERNEL]));
        let channels = self.channels.forward(channels, noise);
        let n_channels = channels.dims()[1];
        channels.reshape([queries, n_channels, height - KERNEL + 1, width - KERNEL + 1])
    }
}
