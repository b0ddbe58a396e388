//! Provenance: who trains where, and since when? What a run folder keeps of the program that made it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fullrank_engine::run::Provenance;

/// Of this program, on this machine, now.
pub(crate) fn provenance() -> Provenance {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    Provenance {
        command: command(),
        date: date(now),
        machine: machine(),
        threads: rayon::current_num_threads(),
        version: crate::VERSION.into(),
    }
}

/// The command line, without the folder that the program lies in.
fn command() -> Vec<String> {
    // Not all that a shell can pass is text.
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let mut words: Vec<String> = words.collect();
    if let Some(program) = words.first_mut()
        && let Some(name) = Path::new(program).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    words
}

/// Seconds since 1970 as in RFC 3339.
fn date(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of the year 0, so that a leap day is the last of its year
    // (Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hours, minutes, seconds) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}Z")
}

/// Processor, as far as the system tells, and system.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1));
    let (system, architecture) = (std::env::consts::OS, std::env::consts::ARCH);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match model {
        Some(model) => format!("{}, {cores} cores, {system} {architecture}", model.trim()),
        None => format!("{cores} cores, {system} {architecture}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        // By `date -u -d @N +%FT%TZ`.
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_600, "2025-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }
}
