//! The formulas of encoders with layers, one query at a time, in plain loops.

use super::Tables;

/// Under the root of every normalisation.
const EPSILON: f64 = 1e-5;

fn relu(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|x| x.max(0.0)).collect()
}

fn plus(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// x·W, and + b if there is one.
fn linear(tables: &Tables, name: &str, x: &[f64]) -> Vec<f64> {
    let weight = &tables[&format!("{name}.weight")];
    let outputs = weight.len() / x.len();
    let product = |j: usize| x.iter().enumerate().map(|(i, x)| x * weight[i * outputs + j]).sum();
    let products: Vec<f64> = (0..outputs).map(product).collect();
    match tables.get(&format!("{name}.bias")) {
        Some(bias) => plus(&products, bias),
        None => products,
    }
}

/// One value of a channel, by running statistics.
fn batch_norm(tables: &Tables, name: &str, channel: usize, x: f64) -> f64 {
    let [mean, variance, gamma, beta] = ["running_mean", "running_var", "gamma", "beta"]
        .map(|part| tables[&format!("{name}.{part}")][channel]);
    (x - mean) / (variance + EPSILON).sqrt() * gamma + beta
}

fn layer_norm(tables: &Tables, name: &str, x: &[f64]) -> Vec<f64> {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64;
    let [gamma, beta] = ["gamma", "beta"].map(|part| &tables[&format!("{name}.{part}")]);
    (0..x.len()).map(|i| (x[i] - mean) / (variance + EPSILON).sqrt() * gamma[i] + beta[i]).collect()
}

/// The end of a convolutional encoder.
fn readout(tables: &Tables, features: &[f64]) -> Vec<f64> {
    let hidden = linear(tables, "encoder.readout.linear", features).into_iter().enumerate();
    relu(hidden.map(|(i, x)| batch_norm(tables, "encoder.readout.norm", i, x)).collect())
}

/// h of ConvE.
pub(super) fn conve(tables: &Tables, s: &[f64], r: &[f64]) -> Vec<f64> {
    let normalised = |x: &f64| batch_norm(tables, "encoder.image_norm", 0, *x);
    // Channel, row, column.
    let mut image = vec![s.iter().chain(r).map(normalised).collect::<Vec<f64>>()];
    let mut width = s.len() / 8;
    for layer in 0.. {
        let Some(kernel) = tables.get(&format!("encoder.convolutions.{layer}.kernel")) else {
            break;
        };
        let n_before = image.len();
        let height = image[0].len() / width;
        let norm = format!("encoder.convolutions.{layer}.channels.norm");
        let convolved = |channel: usize, y: usize, x: usize| {
            let mut sum = 0.0;
            for (before, pixels) in image.iter().enumerate() {
                for (dy, dx) in (0..9).map(|i| (i / 3, i % 3)) {
                    let weight = kernel[(channel * 9 + dy * 3 + dx) * n_before + before];
                    sum += weight * pixels[(y + dy) * width + x + dx];
                }
            }
            batch_norm(tables, &norm, channel, sum).max(0.0)
        };
        let pixels = || (0..height - 2).flat_map(|y| (0..width - 2).map(move |x| (y, x)));
        let channel = |c| pixels().map(|(y, x)| convolved(c, y, x)).collect();
        image = (0..kernel.len() / (9 * n_before)).map(channel).collect();
        width -= 2;
    }
    readout(tables, &image.concat())
}

/// h of HypER.
pub(super) fn hyper(tables: &Tables, s: &[f64], r: &[f64]) -> Vec<f64> {
    let s: Vec<f64> = s.iter().map(|x| batch_norm(tables, "encoder.subject_norm", 0, *x)).collect();
    let filters = linear(tables, "encoder.filters", r);
    let convolved = |(channel, filter): (usize, &[f64])| -> Vec<f64> {
        s.windows(9)
            .map(|seen| batch_norm(tables, "encoder.channels.norm", channel, dot(seen, filter)))
            .collect()
    };
    let channels: Vec<f64> = filters.chunks_exact(9).enumerate().flat_map(convolved).collect();
    readout(tables, &channels)
}

/// h of the transformer.
pub(super) fn transformer(tables: &Tables, s: &[f64], r: &[f64], heads: usize) -> Vec<f64> {
    let dim = s.len();
    let (first, second) = tables["encoder.positions"].split_at(dim);
    let mut tokens = vec![plus(s, first), plus(r, second)];
    for layer in 0.. {
        let name = |part: &str| format!("encoder.layers.{layer}.{part}");
        if !tables.contains_key(&name("widen.weight")) {
            break;
        }
        let attended = attend(tables, &name("attention"), &tokens, heads);
        let feed = |(token, attended): (&Vec<f64>, Vec<f64>)| {
            let token = layer_norm(tables, &name("attention_norm"), &plus(token, &attended));
            let wide = relu(linear(tables, &name("widen"), &token));
            let fed = linear(tables, &name("narrow"), &wide);
            layer_norm(tables, &name("feed_norm"), &plus(&token, &fed))
        };
        tokens = tokens.iter().zip(attended).map(feed).collect();
    }
    let mean: Vec<f64> = plus(&tokens[0], &tokens[1]).into_iter().map(|x| x / 2.0).collect();
    linear(tables, "encoder.readout", &mean)
}

/// The score of ConcatMLP.
pub(super) fn mlp(tables: &Tables, s: &[f64], r: &[f64], o: &[f64]) -> f64 {
    let of_query = linear(tables, "score.mlp.query", &[s, r].concat());
    let mut values = plus(&of_query, &linear(tables, "score.mlp.object", o));
    for layer in 0.. {
        let name = format!("score.mlp.layers.{layer}");
        if !tables.contains_key(&format!("{name}.weight")) {
            break;
        }
        values = linear(tables, &name, &relu(values));
    }
    assert_eq!(values.len(), 1);
    values[0]
}

/// What every token takes from all of them.
fn attend(tables: &Tables, name: &str, tokens: &[Vec<f64>], heads: usize) -> Vec<Vec<f64>> {
    let width = tokens[0].len() / heads;
    let [queries, keys, values] = ["query", "key", "value"].map(|part| -> Vec<Vec<f64>> {
        tokens.iter().map(|token| linear(tables, &format!("{name}.{part}"), token)).collect()
    });
    let taken = |query: &Vec<f64>| {
        let by_head = (0..heads).flat_map(|head| {
            let part = |vector: &[f64]| vector[head * width..][..width].to_vec();
            let likeness = |key: &Vec<f64>| dot(&part(query), &part(key)) / (width as f64).sqrt();
            let exps: Vec<f64> = keys.iter().map(|key| likeness(key).exp()).collect();
            let total: f64 = exps.iter().sum();
            let share = |i: usize| {
                values.iter().zip(&exps).map(|(value, exp)| part(value)[i] * exp / total).sum()
            };
            (0..width).map(share).collect::<Vec<f64>>()
        });
        linear(tables, &format!("{name}.output"), &by_head.collect::<Vec<f64>>())
    };
    queries.iter().map(taken).collect()
}
