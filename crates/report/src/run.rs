//! The page of a training: how good is the model, where, and what does it answer?

use fullrank_bounds::Bounds;
use fullrank_engine::advice::advised_output;
use fullrank_engine::answers::QueryNames;
use fullrank_engine::evaluate::{Baselines, Breakdown, Calibration, break_down};
use fullrank_engine::metrics::Metrics;
use fullrank_engine::predictor::{Answer, Ask, Known};
use fullrank_engine::settings::Choice;
use fullrank_engine::{
    Config, EpochRecord, Error, Finished, Model, ProbabilityKind, SplitResult, silent,
};
use fullrank_graph::statistics::both_degrees;
use fullrank_graph::{Graph, Query, Split, Triple};

use crate::metrics_table::{CANDIDATES_REMARK, MetricsColumns, below_popularity};
use crate::numbers::{cell, count, probability};
use crate::page::{AnswerRow, Bar, Page, Plot, Series};

/// What a report of one training is made of.
#[derive(Debug)]
pub struct RunReport<'a> {
    /// What was trained.
    pub model: &'a Model,
    /// What the data are called.
    pub data: String,
    /// The command, or the call, that would train the same again.
    pub command: String,
    /// The version of the program.
    pub version: &'a str,
    /// What every epoch came to.
    pub epochs: Vec<EpochRecord>,
    /// What the training came to in the end.
    pub finished: Finished,
}

impl RunReport<'_> {
    /// The page.
    ///
    /// # Errors
    /// When the model gives scores that are not numbers.
    pub fn to_html(&self) -> Result<String, Error> {
        let mut page = Page::default();
        let (graph, config) = (self.model.graph(), self.model.config());
        if let Some(shown) = self.shown() {
            page.cards(&cards(shown, self.model.n_parameters()));
        }
        self.quality(&mut page);
        self.breakdowns(&mut page);
        self.curves(&mut page);
        self.reliability(&mut page);
        bounds(&mut page, graph, config.dim());
        page.heading("What does it answer?");
        page.paragraph(&format!(
            "The most likely answers to a few held-out queries, the held-out answers, and the most \
             likely ones that are not known, each with its place. Facts that it was trained on are \
             marked, and so are those that it had to find. {}",
            match config.probability() {
                ProbabilityKind::Categorical =>
                    "A probability is the share of this entity among the answers of the query, so fifty \
                     true answers get about .02 each.",
                ProbabilityKind::Bernoulli =>
                    "A probability is that of the triple to hold, whatever else does; they need not sum \
                     to one.",
            }
        ));
        examples(&mut page, self.model)?;
        self.repetition(&mut page);
        let trained = self.model.trained();
        let title = format!("{} on {}", config.description(), self.data);
        let [train, valid, test] = Split::ALL.map(|split| count(graph.triples(split).len()));
        let subtitle = format!(
            "{} entities, {} relations, {train} / {valid} / {test} triples (train / valid / test); \
             d = {}, {} parameters, {} updates, best epoch {}, seed {}",
            count(graph.entities().len()),
            count(graph.relations().len()),
            config.dim(),
            count(self.model.n_parameters()),
            count(trained.updates as usize),
            trained.best.epoch,
            config.training().seed,
        );
        Ok(page.finish(&title, &subtitle))
    }

    /// The split that the page is about: the last one that was ranked.
    fn shown(&self) -> Option<&SplitResult> {
        self.finished.splits.last()
    }

    fn quality(&self, page: &mut Page) {
        page.heading("How good is it?");
        let Some(shown) = self.shown() else {
            page.paragraph("There are no held-out triples to rank.");
            return;
        };
        let columns = MetricsColumns::of(&shown.baselines);
        let rows_of = |found: &SplitResult| {
            let name = found.split.to_string();
            let beside = columns.baseline_rows(&name, &found.baselines);
            [vec![columns.row(&name, &found.metrics)], beside.into()].concat()
        };
        let rows: Vec<Vec<String>> = self.finished.splits.iter().flat_map(rows_of).collect();
        page.table(&columns.header(), &rows);
        for SplitResult { split, metrics, baselines, .. } in &self.finished.splits {
            if let Some(told) = below_popularity(&split.to_string(), metrics, baselines) {
                page.paragraph(&format!("Note: {told}."));
            }
        }
        page.remark(&ranks_remark(columns, self.model.config()));
    }

    fn breakdowns(&self, page: &mut Page) {
        let Some(SplitResult { split, ranks, popularity_ranks, baselines, .. }) = self.shown()
        else {
            return;
        };
        let columns = MetricsColumns::of(baselines);
        page.heading("Where is it good?");
        page.paragraph(&format!(
            "The {split} answers by class of their relation (many: 1.5 or more objects per subject, \
             or subjects per object), and by the number of known answers of their query; in the last \
             columns, the MRR that is had without a model.",
        ));
        for (title, by) in [("class", Breakdown::Class), ("known answers", Breakdown::Degree)] {
            let graph = self.model.graph();
            let beside = Baselines::break_down(graph, popularity_ranks, by);
            let parts = break_down(graph, ranks, by).into_iter().zip(beside);
            let row = |((name, found), beside): ((String, _), _)| {
                columns.breakdown_row(&name, &found, &beside)
            };
            page.table(&columns.breakdown_header(title), &parts.map(row).collect::<Vec<_>>());
        }
    }

    fn curves(&self, page: &mut Page) {
        page.heading("How did it learn?");
        let of_valid = |value: fn(&Metrics) -> Option<f64>| -> Vec<[f64; 2]> {
            let point =
                |record: &EpochRecord| Some([record.epoch as f64, value(record.valid.as_ref()?)?]);
            self.epochs.iter().filter_map(point).collect()
        };
        let loss = self.epochs.iter().map(|record| [record.epoch as f64, record.loss]).collect();
        let charts = [
            ("training loss, nats per triple", loss),
            ("validation MRR", of_valid(|valid| Some(valid.realistic.mrr))),
            ("validation NLL, filtered", of_valid(|valid| valid.nll_filtered)),
        ];
        let charts = charts.into_iter().filter(|(_, points)| !points.is_empty());
        let charts = charts.map(|(name, points)| {
            let series = vec![Series { name: name.to_owned(), color: 0, points }];
            (name.to_owned(), Plot::Lines { x: "epoch", whole: true, series })
        });
        page.charts(charts.collect());
        let best = self.model.trained().best.epoch;
        page.remark(&format!("The weights of epoch {best} were kept."));
    }

    fn reliability(&self, page: &mut Page) {
        let calibration = &self.finished.calibration;
        let (Some(raw), Some(shown)) = (calibration.first(), self.shown()) else { return };
        let split = shown.split;
        page.heading("Can its probabilities be trusted?");
        let (left_out, counted) = match self.model.config().probability() {
            ProbabilityKind::Categorical => (
                "training answers",
                "triples. A query with several held-out answers counts once for each, and only one of \
                 them can be its top answer",
            ),
            ProbabilityKind::Bernoulli => ("answers of earlier splits", "queries"),
        };
        page.paragraph(&format!(
            "For the most likely answer to each {split} query, {left_out} left out: how \
             probable the model said it was, against how often it came true. On the dashed line the \
             two agree; the larger a dot, the more {counted}."
        ));
        let colors = calibration.iter().enumerate();
        let series = colors.map(|(color, calibration)| Series {
            name: temperature_name(calibration),
            color,
            points: calibration
                .top_answer
                .bins
                .iter()
                .map(|bin| [bin.predicted, bin.observed, bin.count])
                .collect(),
        });
        let plot =
            Plot::Reliability { x: "probability of the top answer", series: series.collect() };
        let names: Vec<String> = calibration.iter().map(temperature_name).collect();
        page.key(&names.iter().map(String::as_str).collect::<Vec<_>>());
        page.charts(vec![("share that came true".to_owned(), plot)]);
        let rows: Vec<Vec<String>> = calibration
            .iter()
            .map(|calibration| {
                vec![
                    temperature_name(calibration),
                    format!("{:.4}", calibration.top_answer.ece),
                    format!("{:.4}", calibration.pairs.ece),
                    cell(calibration.nll_filtered, 3),
                ]
            })
            .collect();
        page.table(&["", "error, top answer", "error, all pairs", "NLL filtered"], &rows);
        if let [_, fitted] = &calibration[..] {
            page.remark(&format!(
                "fullrank predict divides log-probabilities by {:.3}, which makes the validation answers \
                 most likely. The error of the top answer is {:.4} then, and {:.4} as trained; \
                 --temperature 1 predicts as trained. Errors of the top answer lie between 0 and 1, of \
                 all pairs between 0 and 2.",
                fitted.temperature, fitted.top_answer.ece, raw.top_answer.ece,
            ));
        }
    }

    fn repetition(&self, page: &mut Page) {
        page.heading("Do it again");
        page.code(&self.command);
        let version = self.version;
        page.remark(&format!(
            "fullrank {version}. The same command gives the same bits on the same kind of processor."
        ));
        page.details("all settings", &self.model.config().to_toml());
    }
}

/// What the figures are, in sentences.
fn ranks_remark(columns: MetricsColumns, config: &Config) -> String {
    let among = match columns {
        MetricsColumns::Entities => {
            "its place among all entities counted, other known answers left out; for validation, test \
             answers are not known yet, so its figures may be lower."
        }
        MetricsColumns::Candidates => "its place among the candidates given for it counted.",
    };
    let nll = match config.probability() {
        ProbabilityKind::Categorical if !config.trains_probabilities() => {
            "NLL is that of a softmax of the scores, for which nothing was trained: with a margin, they \
             learn ranks alone."
        }
        ProbabilityKind::Categorical => {
            "NLL is the mean of −log P of the answers; filtered, training answers are taken out of the \
             distribution first."
        }
        ProbabilityKind::Bernoulli => {
            "There is no NLL, for the probabilities of a query's objects are no distribution."
        }
    };
    let of_candidates = match columns {
        MetricsColumns::Entities => String::new(),
        MetricsColumns::Candidates => format!(" {CANDIDATES_REMARK}"),
    };
    format!(
        "Every held-out triple is asked in both directions, and {among} MRR is the mean of 1 / place, \
         Hits@k the share of places up to k, MR the mean place. By popularity, an entity scores the \
         number of training triples that it has with the relation, whatever the rest of the question: \
         a model that is no better has learned nothing of it. At random are the figures that are \
         expected if all orders are equally likely. {nll}{of_candidates}"
    )
}

fn temperature_name(calibration: &Calibration) -> String {
    match calibration.temperature {
        1.0 => "as trained".to_owned(),
        fitted => format!("at temperature {fitted:.3}"),
    }
}

fn cards(shown: &SplitResult, parameters: usize) -> Vec<(String, String)> {
    let SplitResult { split, metrics, .. } = shown;
    let ranks = &metrics.realistic;
    let mut cards = vec![
        (format!("{:.3}", ranks.mrr), format!("{split} MRR")),
        (format!("{:.1} %", 100.0 * ranks.hits_at_1), "Hits@1".to_owned()),
        (format!("{:.1} %", 100.0 * ranks.hits_at_10), "Hits@10".to_owned()),
    ];
    cards.extend(metrics.nll_filtered.map(|nll| (format!("{nll:.3}"), "NLL filtered".to_owned())));
    cards.push((count(parameters), "parameters".to_owned()));
    cards
}

/// The dimension beside what the graph asks for.
pub(crate) fn bounds(page: &mut Page, graph: &Graph, dim: usize) {
    page.heading("Is the dimension large enough?");
    let degrees = both_degrees(graph);
    let bounds = Bounds::from_counts(graph.entities().len(), &degrees);
    let bar = |name: String, color, value| Bar { name, color, value };
    let bars = vec![
        bar("d, the dimension of this model".to_owned(), 0, dim),
        bar(
            format!(
                "2c + 1: enough to tell apart all sets of at most c = {} answers",
                count(bounds.max_answers)
            ),
            1,
            bounds.worst_case,
        ),
        bar("enough for every ranking of the entities".to_owned(), 2, bounds.universality.rankings),
    ];
    page.charts(vec![("dimensions, on a logarithmic scale".to_owned(), Plot::Bars { bars })]);
    let (output, reason) = advised_output(graph, dim);
    page.paragraph(&format!(
        "A linear output layer has at most d independent columns, which limits what it can express. \
         Here a {} is advised: {reason}.",
        output.name()
    ));
}

/// A few held-out queries and what the model answers.
pub(crate) fn examples(page: &mut Page, model: &Model) -> Result<(), Error> {
    let graph = model.graph();
    let queries = example_queries(graph);
    let k = graph.entities().len();
    let ask = |query: &Query| Ask { k, known: Known::Shown, ..Ask::new(*query) };
    let asks: Vec<Ask> = queries.iter().map(ask).collect();
    let answered = model.answer(&asks, &mut silent())?;
    for (query, answered) in queries.iter().zip(answered) {
        page.subheading(&QueryNames::of(graph, *query).to_string());
        let rows: Vec<AnswerRow> = telling(&answered.answers)
            .into_iter()
            .map(|(place, answer)| AnswerRow {
                place: place + 1,
                name: graph.entities().name(answer.object.0).to_owned(),
                probability: probability(answer.log_probability.exp()),
                known_in: answer.known_in,
            })
            .collect();
        page.answers(&rows);
    }
    Ok(())
}

/// The first answers, the first held-out ones and the first that are not known, with their places.
fn telling(answers: &[Answer]) -> Vec<(usize, &Answer)> {
    /// Of each kind.
    const MOST: usize = 3;
    let (mut n_new, mut n_held_out) = (0, 0);
    let is_telling = |(place, answer): &(usize, &Answer)| {
        let count = match answer.known_in {
            None => &mut n_new,
            Some(Split::Valid | Split::Test) => &mut n_held_out,
            Some(Split::Train) => return *place < MOST,
        };
        *count += 1;
        *place < MOST || *count <= MOST
    };
    answers.iter().enumerate().filter(is_telling).collect()
}

/// Queries spread evenly over the held-out triples, in turn for objects and for subjects.
pub fn example_queries(graph: &Graph) -> Vec<Query> {
    const MOST: usize = 6;
    let splits = [Split::Test, Split::Valid, Split::Train];
    let triples = splits.into_iter().map(|split| graph.triples(split)).find(|t| !t.is_empty());
    let triples = triples.unwrap_or_default();
    let step = triples.len().div_ceil(MOST).max(1);
    let query = |(place, triple): (usize, &Triple)| match place % 2 {
        0 => Query { subject: triple.subject, relation: triple.relation },
        _ => Query { subject: triple.object, relation: graph.inverse(triple.relation) },
    };
    triples.iter().step_by(step).enumerate().map(query).collect()
}
