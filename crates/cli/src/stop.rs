//! Signals: was the program asked to stop?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use fullrank_engine::Signal;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that Ctrl-C and a request to terminate set; a second one ends the program at once.
///
/// A hang-up does what the system or `nohup` has chosen.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the first signal finds the flag not yet set.
        flag::register_conditional_shutdown(signal, 130, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("signals cannot be caught")?;
    }
    Ok(stop)
}

/// What a callback answers, by the flag.
pub(crate) fn signal(stop: &AtomicBool) -> Signal {
    if stop.load(Ordering::Relaxed) { Signal::Stop } else { Signal::Continue }
}
