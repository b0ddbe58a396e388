//! `fullrank bench kernels`: how close to the machine's peak are the kernels?

use clap::Args;
use fullrank_engine::bench::{KernelSizes, KernelTiming, time_kernels};
use serde::Serialize;

use super::quartiles;
use crate::output::{show, show_json, table};

/// Every kernel of training and evaluation beside the machine's own matrix products.
///
/// Each runs on random values, those of training forward and backward. Its share of the peak is the
/// time that its matrix products would take at the speed which products of tiles reached just before,
/// on all threads and with nothing else, over the time it takes.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  fullrank bench kernels --entities 14541 --dim 200 --json")]
pub(crate) struct KernelArguments {
    /// Number of entities
    #[arg(long, default_value_t = 14_541, value_parser = clap::value_parser!(u32).range(1..))]
    entities: u32,

    /// Width of the vectors
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    dim: u32,

    /// Queries
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..))]
    batch: u32,

    /// Components of mixtures
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    components: u32,

    /// Answers per query
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    answers: u32,

    /// Run each this often, after once to warm up
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Roofline {
    system: String,
    threads: usize,
    kernels: Vec<Timing>,
}

#[derive(Serialize)]
struct Timing {
    name: String,
    /// Matrix products that it makes.
    products: usize,
    /// Median over the repetitions.
    seconds: f64,
    quartiles: [f64; 2],
    /// What its products would take at the peak just before, of what it takes: a median.
    share_of_peak: f64,
    /// 10⁹ operations a second of products of tiles, made as it makes them; median.
    peak_gflops: f64,
}

pub(super) fn run(arguments: &KernelArguments) -> anyhow::Result<()> {
    let sizes = KernelSizes {
        entities: arguments.entities as usize,
        dim: arguments.dim as usize,
        batch: arguments.batch as usize,
        components: arguments.components as usize,
        answers: arguments.answers as usize,
    };
    let timings = time_kernels(sizes, arguments.repeats as usize);
    let timing = |timing: KernelTiming| {
        let [_, share_of_peak, _] = quartiles(timing.shares_of_peak());
        let KernelTiming { name, products, seconds, peaks, .. } = timing;
        let ([lower, median, upper], [_, peak, _]) = (quartiles(seconds), quartiles(peaks));
        Timing {
            name,
            products,
            seconds: median,
            quartiles: [lower, upper],
            share_of_peak,
            peak_gflops: peak / 1e9,
        }
    };
    let roofline = Roofline {
        system: format!("fullrank {}", env!("CARGO_PKG_VERSION")),
        threads: rayon::current_num_threads(),
        kernels: timings.into_iter().map(timing).collect(),
    };
    if arguments.json {
        return show_json(&roofline);
    }
    let rows = roofline.kernels.iter().map(|kernel| {
        let share = format!("{:.0} %", 100.0 * kernel.share_of_peak);
        let seconds = format!("{:.4}", kernel.seconds);
        let peak = format!("{:.0}", kernel.peak_gflops);
        vec![kernel.name.clone(), kernel.products.to_string(), seconds, share, peak]
    });
    let table = table(&["", "products", "seconds", "of the peak", "peak, GFLOP/s"], rows);
    show(&format!(
        "{table}\nThe peak is that of products of tiles on {} threads; medians of {}.\n",
        roofline.threads, arguments.repeats,
    ))
}
