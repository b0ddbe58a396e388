//! What trainings have come to: one of them for machines, and all of them for people.

use std::path::PathBuf;

use fullrank_engine::evaluate::Baselines;
use fullrank_engine::metrics::Metrics;
use fullrank_engine::{Config, End};
use fullrank_report::{CANDIDATES_REMARK, MetricsColumns, below_popularity};
use serde::Serialize;

use super::model_line;
use crate::output::{cell, count, mean_and_deviation, quoted, say, table};

/// One finished training, for machines.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(super) run: PathBuf,
    pub(super) seed: u64,
    pub(super) epochs: usize,
    pub(super) updates: u64,
    pub(super) best_epoch: usize,
    pub(super) ended_by: End,
    pub(super) parameters: usize,
    pub(super) seconds: f64,
    pub(super) valid: Option<Metrics>,
    pub(super) test: Option<Metrics>,
    pub(super) valid_baselines: Option<Baselines>,
    pub(super) test_baselines: Option<Baselines>,
    /// What log-probabilities are divided by in predictions, if anything.
    pub(super) temperature: Option<f64>,
    pub(crate) report: PathBuf,
    #[serde(skip)]
    pub(super) config: Config,
}

impl Summary {
    /// What it came to on each held-out split.
    fn splits(&self) -> impl Iterator<Item = (&'static str, &Metrics, &Baselines)> {
        let found = [
            ("valid", &self.valid, &self.valid_baselines),
            ("test", &self.test, &self.test_baselines),
        ];
        found.into_iter().filter_map(|(split, metrics, baselines)| {
            Some((split, metrics.as_ref()?, baselines.as_ref()?))
        })
    }

    /// What its rows are called where there are several of it.
    fn name(&self, summaries: &[Self]) -> String {
        if summaries.len() > 1 { format!("seed {} ", self.seed) } else { String::new() }
    }
}

/// Says which models have learned less than what is popular.
pub(super) fn say_below_popularity(summaries: &[Summary]) {
    for summary in summaries {
        let name = summary.name(summaries);
        for (split, found, baselines) in summary.splits() {
            if let Some(told) = below_popularity(&format!("{name}{split}"), found, baselines) {
                say(&format!("note: {told}"));
            }
        }
    }
}

/// The table of all trainings; baselines, which are the same for all seeds, come last.
fn results_table(summaries: &[Summary]) -> Option<String> {
    let first = &summaries[0];
    let (_, _, baselines) = first.splits().last()?;
    let columns = MetricsColumns::of(baselines);
    let mut rows = Vec::new();
    for summary in summaries {
        let name = summary.name(summaries);
        rows.extend(
            summary.splits().map(|(split, found, _)| columns.row(&format!("{name}{split}"), found)),
        );
    }
    rows.extend(spread_rows(summaries, columns));
    rows.extend(
        first.splits().flat_map(|(split, _, baselines)| columns.baseline_rows(split, baselines)),
    );
    let mut text = table(&columns.header(), rows);
    if columns == MetricsColumns::Candidates {
        text.push_str(&format!("\n{CANDIDATES_REMARK}\n"));
    }
    Some(text)
}

pub(crate) fn results(summaries: &[Summary]) -> String {
    let first = &summaries[0];
    let mut text = model_line(&first.config);
    let how = match first.ended_by {
        End::Epochs => "all epochs made",
        End::Patience => "validation stopped improving",
        End::Stopped => "stopped before the end",
    };
    if let [_] = summaries {
        text.push_str(&format!(
            "best epoch {} of {} ({} updates, {how}); {} parameters\n",
            first.best_epoch,
            first.epochs,
            count(first.updates as usize),
            count(first.parameters)
        ));
    }
    text.push('\n');
    match results_table(summaries) {
        Some(table) => text.push_str(&table),
        None => text.push_str("there are no held-out triples to rank\n"),
    }
    if summaries.iter().any(|run| run.ended_by == End::Epochs && run.best_epoch == run.epochs) {
        text.push_str(
            "\nvalidation was still improving at the last epoch: more --epochs may help\n",
        );
    }
    text
}

/// Mean and standard deviation over the seeds.
fn spread_rows(summaries: &[Summary], columns: MetricsColumns) -> Vec<Vec<String>> {
    let found: Vec<&Metrics> = summaries.iter().filter_map(|s| s.test.as_ref()).collect();
    if found.len() < 2 {
        return Vec::new();
    }
    let spread = columns.cells(found[0]).into_iter().enumerate().map(|(column, (_, digits))| {
        let values: Option<Vec<f64>> =
            found.iter().map(|metrics| columns.cells(metrics)[column].0).collect();
        let (mean, deviation) = values.map(|values| mean_and_deviation(&values)).unzip();
        (cell(mean, digits), cell(deviation, digits))
    });
    let (means, deviations): (Vec<String>, Vec<String>) = spread.unzip();
    let row = |name: &str, cells| [vec![name.to_owned(), count(found[0].n_ranks)], cells].concat();
    vec![row("test, mean", means), row("test, deviation", deviations)]
}

pub(super) fn next_steps(summaries: &[Summary]) -> String {
    let mut text = "\n".to_owned();
    for summary in summaries {
        text.push_str(&format!("a page to look at: {}\n", summary.report.display()));
    }
    let first = &summaries[0].run;
    // Of several seeds the best is found by the folder that has them.
    let run = if summaries.len() > 1 { first.parent().unwrap_or(first) } else { first };
    let run = quoted(&run.display().to_string());
    text.push_str(&format!(
        "next: fullrank predict {run} --subject NAME --relation NAME\n      fullrank evaluate {run} \
         --by relation\n"
    ));
    text
}
