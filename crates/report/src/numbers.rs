//! Numbers as people read them: how many digits, which separators, which unit?

/// A number with commas between thousands.
pub fn count(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of things: `1 triple`, `2,000 triples`, `3 entities`.
pub fn counted(number: usize, thing: &str) -> String {
    let number_text = count(number);
    match thing.strip_suffix('y') {
        _ if number == 1 => format!("{number_text} {thing}"),
        Some(stem) => format!("{number_text} {stem}ies"),
        None => format!("{number_text} {thing}s"),
    }
}

/// A number with so many digits, or a dash where there is none.
pub fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

/// Four places, or a power of ten where they would say nothing.
pub fn probability(value: f64) -> String {
    if value >= 0.001 { format!("{value:.4}") } else { format!("{value:.1e}") }
}

/// Mean and standard deviation of at least two values.
pub fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(
            [0, 12, 999, 1000, 1_234_567].map(count),
            ["0", "12", "999", "1,000", "1,234,567"]
        );
    }

    #[test]
    fn standard_deviations_are_those_of_a_sample() {
        // Squares 1, 0 and 1 over n − 1.
        assert_eq!(mean_and_deviation(&[1.0, 2.0, 3.0]), (2.0, 1.0));
    }
}
