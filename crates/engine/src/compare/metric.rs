//! Metrics that are compared: what is each called, and what does a single answer add to it?

use serde::Serialize;

use crate::metrics::{AnswerRank, Metrics};

/// A metric of held-out answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Mean reciprocal rank.
    Mrr,
    /// Mean rank.
    Mr,
    /// Share of ranks that are 1.
    #[serde(rename = "hits_at_1")]
    HitsAt1,
    /// Share of ranks up to 3.
    #[serde(rename = "hits_at_3")]
    HitsAt3,
    /// Share of ranks up to 10.
    #[serde(rename = "hits_at_10")]
    HitsAt10,
    /// Adjusted mean rank index.
    Amri,
    /// Mean −log P, training answers removed.
    NllFiltered,
    /// Mean −log P.
    Nll,
}

impl Metric {
    /// In the order of tables.
    pub const ALL: [Self; 8] = [
        Self::Mrr,
        Self::Mr,
        Self::HitsAt1,
        Self::HitsAt3,
        Self::HitsAt10,
        Self::Amri,
        Self::NllFiltered,
        Self::Nll,
    ];

    /// Its value; nothing where the model has none.
    pub fn of(self, metrics: &Metrics) -> Option<f64> {
        let ranks = &metrics.realistic;
        match self {
            Self::Mrr => Some(ranks.mrr),
            Self::Mr => Some(ranks.mr),
            Self::HitsAt1 => Some(ranks.hits_at_1),
            Self::HitsAt3 => Some(ranks.hits_at_3),
            Self::HitsAt10 => Some(ranks.hits_at_10),
            Self::Amri => Some(ranks.amri),
            Self::NllFiltered => metrics.nll_filtered,
            Self::Nll => metrics.nll,
        }
    }

    /// What an answer adds to the mean; nothing where the model has none, and for the adjusted mean rank
    /// index, which is no mean over answers.
    pub(super) fn of_answer(self, answer: &AnswerRank) -> Option<f64> {
        let hits = |most: f64| Some(f64::from(u8::from(answer.realistic() <= most)));
        match self {
            Self::Mrr => Some(1.0 / answer.realistic()),
            Self::Mr => Some(answer.realistic()),
            Self::HitsAt1 => hits(1.0),
            Self::HitsAt3 => hits(3.0),
            Self::HitsAt10 => hits(10.0),
            Self::Amri => None,
            Self::NllFiltered => answer.nll_filtered,
            Self::Nll => answer.nll,
        }
    }
}
