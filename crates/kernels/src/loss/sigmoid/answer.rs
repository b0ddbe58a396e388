//! Answers under a sigmoid: what do they add to what they would be as wrong objects?

/// log P − log(1 − P) of an answer, and its gradients.
pub(super) struct LogOdds {
    pub(super) value: f64,
    /// Component by component.
    pub(super) grad_logits: Vec<f64>,
    /// By log π, which is normalised.
    pub(super) grad_log_prior: Vec<f64>,
}

impl LogOdds {
    pub(super) fn of(logits: &[f64], log_prior: &[f32]) -> Self {
        let parts = |sign: f64| {
            let part = |(z, log_prior): (&f64, &f32)| f64::from(*log_prior) + log_sigma(sign * z);
            logits.iter().zip(log_prior).map(part).collect::<Vec<f64>>()
        };
        let (yes, no) = (parts(1.0), parts(-1.0));
        let [log_yes, log_no] = [&yes, &no].map(|parts| log_sum(parts.iter().copied()));
        let gammas = yes.iter().zip(&no).map(|(y, n)| ((y - log_yes).exp(), (n - log_no).exp()));
        let (grad_logits, grad_log_prior) = gammas
            .zip(logits)
            .map(|((yes, no), z)| (yes * log_sigma(-z).exp() + no * log_sigma(*z).exp(), yes - no))
            .unzip();
        Self { value: log_yes - log_no, grad_logits, grad_log_prior }
    }
}

/// log σ(z).
fn log_sigma(z: f64) -> f64 {
    z.min(0.0) - (-z.abs()).exp().ln_1p()
}

/// log Σ exp x.
pub(super) fn log_sum(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let top = values.clone().fold(f64::NEG_INFINITY, f64::max);
    top + values.map(|x| (x - top).exp()).sum::<f64>().ln()
}
