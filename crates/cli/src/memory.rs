//! Memory: how much is there, and how much is used?

use std::fs;

use fullrank_engine::Error;

/// Refuses what would not fit, before it starts.
pub(crate) fn check_memory(needed: u64) -> Result<(), Error> {
    let available = [system_memory(), container_memory()].into_iter().flatten().min();
    match available {
        Some(available) if available < needed => Err(Error::Memory { needed, available }),
        _ => Ok(()),
    }
}

/// A line of Linux's account of this process, in megabytes.
pub(crate) fn status_mb(line: &str) -> Option<f64> {
    let kilobytes = kilobytes("/proc/self/status", line)?;
    Some(kilobytes as f64 / 1024.0)
}

/// Bytes that can be had without swapping, where the system tells.
fn system_memory() -> Option<u64> {
    Some(kilobytes("/proc/meminfo", "MemAvailable")? << 10)
}

/// Bytes that the container has left, where there is one with a limit.
fn container_memory() -> Option<u64> {
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("/sys/fs/cgroup/memory.{name}")).ok()?;
        text.trim().parse().ok()
    };
    Some(read("max")?.saturating_sub(read("current")?))
}

fn kilobytes(file: &str, line: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let value = text.lines().find_map(|text| text.strip_prefix(line)?.strip_prefix(':'))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}
