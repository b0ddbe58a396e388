//! The table of metrics: which numbers stand in it, and in which order?

use fullrank_engine::evaluate::Baselines;
use fullrank_engine::metrics::Metrics;

use crate::numbers::{cell, count};

/// Columns of [`metrics_row`].
pub const METRICS_HEADER: &[&str] =
    &["", "ranks", "MRR", "MR", "Hits@1", "Hits@3", "Hits@10", "NLL filtered", "NLL"];

/// A name, how many ranks there are, and the numbers made of them.
pub fn metrics_row(name: &str, metrics: &Metrics) -> Vec<String> {
    MetricsColumns::Entities.row(name, metrics)
}

/// The numbers of a row, as far as the model has them, and how many of their digits are shown.
pub fn metrics_cells(metrics: &Metrics) -> [(Option<f64>, usize); 7] {
    let ranks = &metrics.realistic;
    [
        (Some(ranks.mrr), 4),
        (Some(ranks.mr), 1),
        (Some(ranks.hits_at_1), 4),
        (Some(ranks.hits_at_3), 4),
        (Some(ranks.hits_at_10), 4),
        (metrics.nll_filtered, 3),
        (metrics.nll, 3),
    ]
}

/// Which columns a table of metrics has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsColumns {
    /// Those of ranks among all entities.
    Entities,
    /// Those of ranks among given candidates: one more, for the NLL among these.
    Candidates,
}

/// Where the NLL among candidates stands, counted from the first number: before the other two.
const CANDIDATES_AT: usize = 5;

/// What [`MetricsColumns::Candidates`] are about, in a sentence.
pub const CANDIDATES_REMARK: &str = "Ranks, and the NLL among candidates, are among an answer and the \
                                     candidates given for it; the other NLLs are over all entities.";

impl MetricsColumns {
    /// Those that these baselines fill, and a model of the same answers as far as it can.
    pub fn of(baselines: &Baselines) -> Self {
        match baselines.popularity.nll_candidates {
            Some(_) => Self::Candidates,
            None => Self::Entities,
        }
    }

    /// Their names; that of the first, which has no number, is empty.
    pub fn header(self) -> Vec<&'static str> {
        let mut header = METRICS_HEADER.to_vec();
        if self == Self::Candidates {
            // Names and counts stand before the numbers.
            header.insert(2 + CANDIDATES_AT, "NLL among candidates");
        }
        header
    }

    /// The numbers of a row, as far as the model has them, and how many of their digits are shown.
    pub fn cells(self, metrics: &Metrics) -> Vec<(Option<f64>, usize)> {
        let mut cells = metrics_cells(metrics).to_vec();
        if self == Self::Candidates {
            cells.insert(CANDIDATES_AT, (metrics.nll_candidates, 3));
        }
        cells
    }

    /// A name, how many ranks there are, and the numbers made of them.
    pub fn row(self, name: &str, metrics: &Metrics) -> Vec<String> {
        let cells = self.cells(metrics).into_iter().map(|(value, digits)| cell(value, digits));
        [name.to_owned(), count(metrics.n_ranks)].into_iter().chain(cells).collect()
    }

    /// The rows of the baselines, below that of what they are set beside.
    pub fn baseline_rows(self, name: &str, baselines: &Baselines) -> [Vec<String>; 2] {
        [
            self.row(&format!("{name}, by popularity"), &baselines.popularity),
            self.row(&format!("{name}, at random"), &baselines.random),
        ]
    }

    /// The header of a breakdown by something, in which baselines have columns.
    pub fn breakdown_header(self, by: &'static str) -> Vec<&'static str> {
        let mut header = self.header();
        header[0] = by;
        header.extend(["MRR by popularity", "MRR at random"]);
        header
    }

    /// The row of a part of a breakdown.
    pub fn breakdown_row(
        self,
        name: &str,
        metrics: &Metrics,
        baselines: &Baselines,
    ) -> Vec<String> {
        let Baselines { popularity, random } = baselines;
        let mut row = self.row(name, metrics);
        row.extend([popularity, random].map(|found| cell(Some(found.realistic.mrr), 4)));
        row
    }
}

/// That a model ranks worse than popularity alone, if it does.
pub fn below_popularity(split: &str, model: &Metrics, baselines: &Baselines) -> Option<String> {
    let [found, popularity] = [model, &baselines.popularity].map(|found| found.realistic.mrr);
    (found < popularity).then(|| {
        format!(
            "{split} MRR {found:.4} is below the {popularity:.4} of popularity alone: counting how \
             often each entity stands with the relation in training ranks better"
        )
    })
}

#[cfg(test)]
mod tests {
    use fullrank_engine::metrics::RankMetrics;

    use super::*;

    fn metrics(mrr: f64, nll_candidates: Option<f64>) -> Metrics {
        let ranks = RankMetrics {
            mrr,
            mr: 2.0,
            hits_at_1: 0.1,
            hits_at_3: 0.3,
            hits_at_10: 1.0,
            amri: 0.0,
        };
        Metrics {
            n_ranks: 1000,
            realistic: ranks,
            mrr_filtered_with_test: None,
            nll_candidates,
            nll_filtered: None,
            nll: Some(2.5),
            optimistic: ranks,
            pessimistic: ranks,
        }
    }

    fn baselines(mrr: f64, nll_candidates: Option<f64>) -> Baselines {
        Baselines {
            popularity: metrics(mrr, nll_candidates),
            random: metrics(0.125, nll_candidates),
        }
    }

    #[test]
    fn every_column_has_its_number() {
        let beside = baselines(0.25, None);
        let columns = MetricsColumns::of(&beside);
        let expected =
            ["a", "1,000", "0.5000", "2.0", "0.1000", "0.3000", "1.0000", "–", "2.500"].to_vec();
        assert_eq!(columns.row("a", &metrics(0.5, None)), expected);
        assert_eq!((columns.header(), expected.len()), (METRICS_HEADER.to_vec(), 9));
        let row = columns.breakdown_row("a", &metrics(0.5, None), &beside);
        assert_eq!(row, [expected, vec!["0.2500", "0.1250"]].concat());
        assert_eq!(columns.breakdown_header("part").len(), row.len());
    }

    #[test]
    fn candidates_have_a_column_even_if_the_model_has_no_nll() {
        let columns = MetricsColumns::of(&baselines(0.25, Some(1.5)));
        let header = columns.header();
        assert_eq!(header[6..9], ["Hits@10", "NLL among candidates", "NLL filtered"]);
        assert_eq!(columns.row("a", &metrics(0.5, None))[7], "–");
        let [popularity, random] = columns.baseline_rows("a", &baselines(0.25, Some(1.5)));
        assert_eq!((popularity[0].as_str(), popularity[7].as_str()), ("a, by popularity", "1.500"));
        assert_eq!((random[0].as_str(), random.len()), ("a, at random", header.len()));
    }

    #[test]
    fn a_model_below_popularity_is_told_so() {
        let told = below_popularity("test", &metrics(0.2, None), &baselines(0.25, None));
        assert_eq!(
            told.unwrap(),
            "test MRR 0.2000 is below the 0.2500 of popularity alone: counting how often each entity \
             stands with the relation in training ranks better"
        );
        assert_eq!(below_popularity("test", &metrics(0.25, None), &baselines(0.25, None)), None);
    }
}
