//! A training as it goes: which epoch is at work, how good is the model, and how long will it take?

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use fullrank_engine::{Config, EpochRecord, Event, Signal};
use indicatif::{ProgressBar, ProgressStyle};

use crate::evaluate::show_progress;
use crate::output::say;
use crate::stop::signal;

/// Shows a training as it goes: a bar on a terminal, a line per epoch anyway.
pub(crate) struct Progress<'a> {
    pub(crate) bar: ProgressBar,
    stop: &'a AtomicBool,
    epochs: usize,
    /// When the last epoch ended, or the first one began.
    last: Instant,
    /// When the first update ended: what comes before it is done once.
    began: Instant,
    /// Updates seen.
    n_updates: usize,
}

/// Updates after which the time for all is forecast, once.
const FORECAST: usize = 20;

impl<'a> Progress<'a> {
    pub(crate) fn new(config: &Config, stop: &'a AtomicBool) -> Self {
        let style = ProgressStyle::with_template("{msg} {bar:20} {pos}/{len}, {eta} left")
            .expect("the template is well formed");
        let bar = ProgressBar::new(0).with_style(style);
        let now = Instant::now();
        Self { bar, stop, epochs: config.training().epochs, last: now, began: now, n_updates: 0 }
    }

    pub(crate) fn show(&mut self, event: Event) -> Signal {
        match event {
            Event::Update { epoch, batch, batches, loss } => {
                self.bar.set_length(batches as u64);
                self.bar.set_position(batch as u64);
                let message = format!("epoch {}/{} loss {loss:.3}", epoch + 1, self.epochs);
                self.bar.set_message(message);
                self.n_updates += 1;
                if self.n_updates == 1 {
                    self.began = Instant::now();
                }
                if self.n_updates == 1 + FORECAST && batches > 2 * FORECAST {
                    let of_epoch = self.began.elapsed() * (batches / FORECAST) as u32;
                    let all = of_epoch * (self.epochs - epoch) as u32;
                    if of_epoch > Duration::from_secs(30) {
                        let [of_epoch, all] = [of_epoch, all].map(indicatif::HumanDuration);
                        let line = format!("about {of_epoch} an epoch, at most {all} in all");
                        self.bar.suspend(|| say(&line));
                    }
                }
            }
            Event::Scoring { .. } => {
                self.bar.set_message("validating");
                return show_progress(&self.bar, self.stop, &event);
            }
            Event::Epoch(record) => {
                self.bar.reset();
                let line = self.epoch_line(record);
                self.bar.suspend(|| say(&line));
            }
            _ => {}
        }
        signal(self.stop)
    }

    fn epoch_line(&mut self, record: &EpochRecord) -> String {
        let left = self.last.elapsed() * (self.epochs - record.epoch) as u32;
        self.last = Instant::now();
        let valid = record.valid.as_ref().map_or(String::new(), |valid| {
            let nll =
                valid.nll_filtered.map_or(String::new(), |nll| format!("  NLL filtered {nll:.3}"));
            let mark = if record.best { " *" } else { "  " };
            format!("  valid MRR {:.4}{nll}{mark}", valid.realistic.mrr)
        });
        format!(
            "epoch {:>3}/{}  updates {:>6}  loss {:.4}{valid}  {:>6.0} items/s  at most {} left",
            record.epoch,
            self.epochs,
            record.updates,
            record.loss,
            record.items_per_second,
            indicatif::HumanDuration(left),
        )
    }
}
