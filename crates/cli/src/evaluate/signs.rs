//! `fullrank evaluate --task signs`: which triples hold?

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use anyhow::bail;
use fullrank_engine::evaluate::{Signs, classify, fit_threshold};
use fullrank_engine::{Event, ProbabilityKind, Run};
use fullrank_graph::Split;
use serde::Serialize;

use super::{EvaluateArguments, progress_bar, show_progress};
use crate::output::{count, probability, table};

/// The result, for machines.
#[derive(Serialize)]
pub(super) struct SignsReport {
    run: PathBuf,
    task: &'static str,
    split: String,
    meaning: ProbabilityKind,
    #[serde(flatten)]
    signs: Signs,
}

pub(super) fn signs(
    arguments: &EvaluateArguments,
    run: &Run,
    stop: &AtomicBool,
) -> anyhow::Result<SignsReport> {
    let split = Split::from(arguments.split);
    let bar = progress_bar("telling signs");
    let mut progress = |event: Event| show_progress(&bar, stop, &event);
    let threshold = fit_threshold(run.model.graph(), &run.model, &mut progress)?;
    let signs = classify(run.model.graph(), split, &run.model, threshold, &mut progress)?;
    bar.finish_and_clear();
    let Some(signs) = signs else {
        bail!(
            "{}: there are no {split} triples to tell from others\n\nChoose another split by --split.",
            arguments.run.display()
        );
    };
    Ok(SignsReport {
        run: arguments.run.clone(),
        task: "signs",
        split: split.to_string(),
        meaning: run.model.config().probability(),
        signs,
    })
}

pub(super) fn signs_text(report: &SignsReport) -> String {
    let Signs { n_queries, n_positives, n_negatives, auroc, average_precision, decided } =
        report.signs;
    let header = ["", "AUROC", "AP", "F1", "precision", "recall"];
    let decisions = decided.map(|decided| [decided.f1, decided.precision, decided.recall]);
    let decisions = match decisions {
        Some(decisions) => decisions.map(|share| format!("{share:.4}")),
        None => ["–"; 3].map(str::to_owned),
    };
    let figures = [auroc, average_precision].map(|share| format!("{share:.4}"));
    let row = [report.split.clone()].into_iter().chain(figures).chain(decisions).collect();
    let decided = match decided {
        Some(decided) => format!(
            "called true from probability {} on, where F1 is largest on validation",
            probability(decided.threshold)
        ),
        None => "without validation triples there is no threshold, and no F1".to_owned(),
    };
    let caution = match report.meaning {
        ProbabilityKind::Categorical => {
            "probabilities are shares among the answers of a query, smaller where there are many; a \
             sigmoid (--output) learns what is asked here\n"
        }
        ProbabilityKind::Bernoulli => "",
    };
    format!(
        "{}\n{} pairs of {} queries and all objects: {} hold, {} do not; what earlier splits have is \
         left out\n{decided}\n{caution}",
        table(&header, [row]),
        count((n_positives + n_negatives) as usize),
        count(n_queries),
        count(n_positives as usize),
        count(n_negatives as usize),
    )
}
