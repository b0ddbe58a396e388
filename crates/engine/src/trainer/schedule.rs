//! Schedules: at which rate does the next update learn, and when is it enough?

use super::Position;
use crate::metrics::Metrics;
use crate::progress::{Best, End};
use crate::settings::{Schedule, TrainingConfig};

/// Takes an epoch into account, and tells whether it was the best.
pub(super) fn end_epoch(
    position: &mut Position,
    config: &TrainingConfig,
    valid: Option<&Metrics>,
) -> bool {
    position.epoch += 1;
    position.batch = 0;
    let valid_mrr = valid.map(|valid| valid.realistic.mrr);
    let best_mrr = position.best.and_then(|best| best.valid_mrr);
    // Without validation every epoch counts as better than the one before.
    let is_best = valid_mrr.is_none_or(|mrr| best_mrr.is_none_or(|best| mrr > best));
    if is_best {
        position.best = Some(Best { epoch: position.epoch, valid_mrr });
        position.stale_epochs = 0;
    } else {
        position.stale_epochs += 1;
        if position.stale_epochs.is_multiple_of(PLATEAU_EPOCHS) {
            position.plateau_factor *= 0.5;
        }
    }
    position.end = if position.epoch >= config.epochs {
        Some(End::Epochs)
    } else if position.stale_epochs >= config.patience {
        Some(End::Patience)
    } else {
        None
    };
    is_best
}

/// Epochs without improvement after which the plateau schedule halves the learning rate.
const PLATEAU_EPOCHS: usize = 3;

/// The learning rate of the next update.
pub(super) fn learning_rate_at(
    config: &TrainingConfig,
    position: &Position,
    batches: usize,
) -> f64 {
    let updates = position.updates as f64;
    let warmup = match config.warmup {
        0 => 1.0,
        warmup => ((updates + 1.0) / warmup as f64).min(1.0),
    };
    let schedule = match config.schedule {
        Schedule::Constant => 1.0,
        Schedule::Plateau => position.plateau_factor,
        Schedule::Cosine => {
            // Who goes on after the last epoch goes on at zero.
            let progress = (updates / (config.epochs * batches) as f64).min(1.0);
            0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
        }
    };
    config.learning_rate * warmup * schedule
}
