//! Columns: what is a figure of the paper called, what is it made from, and how is it written?

use fullrank_engine::metrics::RankMetrics;
use serde::Deserialize;

use crate::output::count;

/// What a column of a table holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Column {
    Nll,
    Mrr,
    Mr,
    HitsAt1,
    HitsAt3,
    HitsAt10,
    Parameters,
    MatrixRank,
    Auroc,
    AveragePrecision,
    F1,
    StepMilliseconds,
    ForwardMilliseconds,
    Hours,
    TimesBase,
    Entities,
    Relations,
    Triples,
    MeanAnswers,
    MedianAnswers,
    MaxAnswers,
    WorstCase,
    MeanBlocks,
    MaxBlocks,
    BlocksDimension,
}

/// What a figure is made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A config and the size of its graph.
    Size,
    /// Trained runs: their ranks of test, or the seconds they took.
    Runs,
    /// And the spectrum of their log-probabilities.
    Spectrum,
    /// And their signs of test.
    Signs,
    /// A training step on random data.
    Step,
    /// A forward pass on random data.
    Forward,
    /// The graph itself.
    Graph,
    /// Another figure of the same table.
    Table,
}

const COLUMNS: [(&str, Column, Source); 25] = [
    ("NLL", Column::Nll, Source::Runs),
    ("MRR", Column::Mrr, Source::Runs),
    ("MR", Column::Mr, Source::Runs),
    ("Hits@1", Column::HitsAt1, Source::Runs),
    ("Hits@3", Column::HitsAt3, Source::Runs),
    ("Hits@10", Column::HitsAt10, Source::Runs),
    ("parameters", Column::Parameters, Source::Size),
    ("matrix rank", Column::MatrixRank, Source::Spectrum),
    ("AUROC", Column::Auroc, Source::Signs),
    ("AP", Column::AveragePrecision, Source::Signs),
    ("F1", Column::F1, Source::Signs),
    ("ms per step", Column::StepMilliseconds, Source::Step),
    ("ms forward", Column::ForwardMilliseconds, Source::Forward),
    ("hours", Column::Hours, Source::Runs),
    ("times base", Column::TimesBase, Source::Table),
    ("E", Column::Entities, Source::Graph),
    ("R", Column::Relations, Source::Graph),
    ("triples", Column::Triples, Source::Graph),
    ("mean answers", Column::MeanAnswers, Source::Graph),
    ("median answers", Column::MedianAnswers, Source::Graph),
    ("c", Column::MaxAnswers, Source::Graph),
    ("2c + 1", Column::WorstCase, Source::Graph),
    ("mean blocks", Column::MeanBlocks, Source::Graph),
    ("b", Column::MaxBlocks, Source::Graph),
    ("2b + 1", Column::BlocksDimension, Source::Graph),
];

impl TryFrom<String> for Column {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = COLUMNS.into_iter().find(|(known, ..)| *known == name);
        found.map(|(_, column, _)| column).ok_or_else(|| format!("no column `{name}`"))
    }
}

impl Column {
    fn entry(self) -> (&'static str, Self, Source) {
        let found = COLUMNS.into_iter().find(|(_, column, _)| *column == self);
        found.expect("every column is in the list, as a test of all tables shows")
    }

    /// As in tables.
    pub(super) fn name(self) -> &'static str {
        self.entry().0
    }

    /// What it is made from.
    pub(super) fn source(self) -> Source {
        self.entry().2
    }

    /// Its figure among averages over ranks, if it is one.
    pub(super) fn of_ranks(self, ranks: &RankMetrics) -> Option<f64> {
        Some(match self {
            Self::Mrr => ranks.mrr,
            Self::Mr => ranks.mr,
            Self::HitsAt1 => ranks.hits_at_1,
            Self::HitsAt3 => ranks.hits_at_3,
            Self::HitsAt10 => ranks.hits_at_10,
            _ => return None,
        })
    }

    /// Whether ties matter to it.
    pub(super) fn is_of_ranks(self) -> bool {
        matches!(self, Self::Mrr | Self::Mr | Self::HitsAt1 | Self::HitsAt3 | Self::HitsAt10)
    }

    /// Our figure with as many digits as the paper's has, which is as the paper writes it.
    pub(super) fn written(self, value: f64, paper: &str) -> String {
        let digits = digits_of(paper);
        match self {
            Self::Parameters => format!("{:.1}M", value / 1e6),
            Self::Hours => {
                let minutes = (60.0 * value).round() as usize;
                format!("{}h{:02}m", minutes / 60, minutes % 60)
            }
            Self::TimesBase => format!("{value:.*}×", digits.unwrap_or(2)),
            Self::StepMilliseconds | Self::ForwardMilliseconds => format!("{value:.1}"),
            Self::Mr => plain(value, digits.unwrap_or(0)),
            Self::Nll => plain(value, digits.unwrap_or(2)),
            Self::MeanAnswers => plain(value, digits.unwrap_or(2)),
            Self::MeanBlocks => plain(value, digits.unwrap_or(1)),
            Self::MedianAnswers => plain(value, 0),
            Self::Mrr | Self::HitsAt1 | Self::HitsAt3 | Self::HitsAt10 => {
                plain(value, digits.unwrap_or(3).max(3))
            }
            Self::Auroc | Self::AveragePrecision | Self::F1 => plain(value, 3),
            _ => count(value as usize),
        }
    }

    /// Mean and standard deviation, if there are several.
    pub(super) fn written_with(self, (mean, deviation): (f64, Option<f64>), paper: &str) -> String {
        let mean = self.written(mean, paper);
        match deviation {
            Some(deviation) if !matches!(self, Self::Parameters | Self::Entities) => {
                let spread = paper.split_once('±').map_or(paper, |(_, spread)| spread);
                format!("{mean} ± {}", self.written(deviation, spread))
            }
            _ => mean,
        }
    }
}

/// Digits behind the point of the first figure in a text; nothing if it has no figure.
fn digits_of(paper: &str) -> Option<usize> {
    let figure = paper.trim_start_matches(['-', '+']);
    let end = figure.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(figure.len());
    let figure = &figure[..end];
    let digits = figure.split_once('.').map_or(0, |(_, digits)| digits.len());
    (!figure.is_empty()).then_some(digits)
}

/// As the paper writes numbers: without a zero before the point.
fn plain(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    match text
        .strip_prefix("-0.")
        .map(|rest| ("-", rest))
        .or(text.strip_prefix("0.").map(|rest| ("", rest)))
    {
        Some((sign, rest)) => format!("{sign}.{rest}"),
        None => text,
    }
}

/// The paper's figures as they are shown: a spread stands apart from its mean.
pub(super) fn shown(paper: &str) -> String {
    match paper {
        "" => "–".to_owned(),
        _ => paper.replace('±', " ± "),
    }
}

/// The numbers in a text of the paper, each mean without its spread: two where the paper has two.
pub(super) fn numbers(paper: &str) -> Vec<f64> {
    let number = |text: &str| -> Option<f64> {
        let text = text.split('±').next()?.trim().trim_end_matches('*').replace(',', "");
        if let Some((hours, minutes)) = text.split_once('h') {
            let minutes: f64 = minutes.trim_end_matches('m').parse().ok()?;
            return Some(hours.parse::<f64>().ok()? + minutes / 60.0);
        }
        match text.strip_suffix('M') {
            Some(millions) => Some(millions.parse::<f64>().ok()? * 1e6),
            None => text.trim_end_matches('×').parse().ok(),
        }
    };
    paper.split('/').filter_map(number).collect()
}

/// The standard deviation of the first figure in a text of the paper.
pub(super) fn deviation(paper: &str) -> Option<f64> {
    let first = paper.split('/').next()?;
    first.split_once('±')?.1.trim().trim_end_matches('*').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_written_as_the_paper_writes_them() {
        for (column, value, paper, expected) in [
            (Column::Mrr, 0.30449, ".304", ".304"),
            (Column::Nll, 4.738, "4.74", "4.74"),
            (Column::Mr, 228.4, "228", "228"),
            (Column::Mr, 5.604, "5.60", "5.60"),
            (Column::Parameters, 3_003_000.0, "3.0M", "3.0M"),
            (Column::MatrixRank, 14_541.0, "14,541", "14,541"),
            (Column::Hours, 21.3667, "21h22m", "21h22m"),
            (Column::TimesBase, 2.016, "2.02×", "2.02×"),
            (Column::Nll, -0.0243, "-.02", "-.02"),
        ] {
            assert_eq!(column.written(value, paper), expected);
        }
        let both = Column::Mr.written_with((7219.6, Some(3.04)), "7220±2.5");
        assert_eq!(both, "7220 ± 3.0");
        assert_eq!(Column::Mrr.written_with((0.3, Some(0.0012)), ".304"), ".300 ± .001");
    }

    #[test]
    fn numbers_of_the_paper_are_read_in_all_their_forms() {
        for (text, expected) in [
            (".258 / .285±.001", vec![0.258, 0.285]),
            ("-.19*", vec![-0.19]),
            ("3,651 / 14,501", vec![3651.0, 14_501.0]),
            ("3.0M", vec![3e6]),
            ("21h30m", vec![21.5]),
            ("931×", vec![931.0]),
            ("", vec![]),
        ] {
            assert_eq!(numbers(text), expected, "{text}");
        }
        assert_eq!(deviation("7220±2.5"), Some(2.5));
        assert_eq!(deviation(".258 / .285±.001"), None);
    }
}
