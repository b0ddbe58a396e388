//! Budgets: how long may a search take?

use std::str::FromStr;

/// Seconds, more than none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Budget(pub(super) f64);

impl FromStr for Budget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected a time such as 90s, 20m, 1h or 1h30m, found `{text}`");
        let (mut seconds, mut digits) = (0.0, String::new());
        for character in text.chars() {
            let unit = match character {
                '0'..='9' | '.' => {
                    digits.push(character);
                    continue;
                }
                's' => 1.0,
                'm' => 60.0,
                'h' => 3600.0,
                'd' => 86_400.0,
                _ => return Err(wrong()),
            };
            seconds += unit * digits.parse::<f64>().map_err(|_| wrong())?;
            digits.clear();
        }
        let is_whole = digits.is_empty() && seconds > 0.0 && seconds.is_finite();
        is_whole.then_some(Self(seconds)).ok_or_else(wrong)
    }
}

/// Seconds as people read them: `12 s`, `5 min 20 s`, `1 h 5 min`.
pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_with_units() {
        for (text, seconds) in
            [("90s", 90.0), ("20m", 1200.0), ("1h30m", 5400.0), ("1.5h", 5400.0), ("2d", 172_800.0)]
        {
            assert_eq!(text.parse(), Ok(Budget(seconds)));
        }
        for text in ["", "90", "h", "0s", "1h30", "-1h", "1 h", "1..5h"] {
            let told = format!("expected a time such as 90s, 20m, 1h or 1h30m, found `{text}`");
            assert_eq!(text.parse::<Budget>(), Err(told));
        }
    }

    #[test]
    fn times_are_written_in_two_units() {
        let written = [0.4, 59.6, 320.0, 3900.0, 90_000.0].map(duration);
        assert_eq!(written, ["0 s", "1 min 0 s", "5 min 20 s", "1 h 5 min", "25 h 0 min"]);
    }
}
