//! What does a training look like, on a page for people who would rather look than read?

mod demo;
mod inspect;
mod page;

use fullrank_engine::config::{Choice, OutputKind};
use fullrank_engine::evaluate::{AnswerRank, Breakdown, Calibration, Metrics, break_down, metrics};
use fullrank_engine::predict::{Answer, Known, PredictOptions, predict};
use fullrank_engine::{Config, EpochRecord, Meaning, Run};
use fullrank_graph::bounds::Bounds;
use fullrank_graph::statistics::both_degrees;
use fullrank_graph::{Graph, Query, Split, Triple};

use crate::advise::advised_output;
use crate::output::count;
use crate::predict::{probability, query_names};
use crate::train::{METRICS_HEADER, cell, metrics_row};
pub(crate) use demo::{DemoReport, Group};
pub(crate) use inspect::inspect_page;
pub(crate) use page::escape;
use page::{AnswerRow, Bar, Page, Plot, Series};

/// What a report of one training is made of.
pub(crate) struct RunReport<'a> {
    pub(crate) run: &'a Run,
    /// What the data are called.
    pub(crate) data: String,
    /// The command that would train the same again.
    pub(crate) command: String,
    pub(crate) epochs: Vec<EpochRecord>,
    pub(crate) valid: Vec<AnswerRank>,
    pub(crate) test: Vec<AnswerRank>,
    /// Before and after a temperature.
    pub(crate) calibration: Vec<Calibration>,
}

impl RunReport<'_> {
    /// The page.
    ///
    /// # Errors
    /// When the model gives scores that are not numbers.
    pub(crate) fn to_html(&self) -> Result<String, fullrank_engine::Error> {
        let mut page = Page::default();
        let (shown, ranks) = match self.test.is_empty() {
            true => ("valid", &self.valid),
            false => ("test", &self.test),
        };
        if let Some(metrics) = metrics(ranks) {
            page.cards(&cards(shown, &metrics, self.run.parameters));
        }
        self.quality(&mut page);
        self.breakdowns(&mut page, shown, ranks);
        self.curves(&mut page);
        self.reliability(&mut page, shown);
        bounds(&mut page, &self.run.graph, self.run.config.dim);
        page.heading("What does it answer?");
        page.paragraph(&format!(
            "The most likely answers to a few held-out queries, the held-out answers, and the most \
             likely ones that are not known, each with its place. Facts that it was trained on are \
             marked, and so are those that it had to find. {}",
            match self.meaning() {
                Meaning::Share =>
                    "A probability is the share of this entity among the answers of the query, so fifty \
                     true answers get about .02 each.",
                Meaning::Holds =>
                    "A probability is that of the triple to hold, whatever else does; they need not sum \
                     to one.",
            }
        ));
        examples(&mut page, self.run)?;
        self.repetition(&mut page);
        let config = &self.run.config;
        let title = format!("{} on {}", describe(config), self.data);
        let graph = &self.run.graph;
        let [train, valid, test] = Split::ALL.map(|split| count(graph.triples(split).len()));
        let subtitle = format!(
            "{} entities, {} relations, {train} / {valid} / {test} triples (train / valid / test); \
             d = {}, {} parameters, {} updates, best epoch {}, seed {}",
            count(graph.entities().len()),
            count(graph.relations().len()),
            config.dim,
            count(self.run.parameters),
            count(self.run.updates as usize),
            self.run.best.epoch,
            config.seed,
        );
        Ok(page.finish(&title, &subtitle))
    }

    fn meaning(&self) -> Meaning {
        self.run.config.output.meaning()
    }

    fn quality(&self, page: &mut Page) {
        page.heading("How good is it?");
        let splits = [("valid", &self.valid), ("test", &self.test)];
        let rows: Vec<Vec<String>> = splits
            .into_iter()
            .filter_map(|(name, ranks)| Some(metrics_row(name, &metrics(ranks)?)))
            .collect();
        if rows.is_empty() {
            page.paragraph("There are no held-out triples to rank.");
            return;
        }
        page.table(METRICS_HEADER, &rows);
        page.remark(&format!(
            "Every held-out triple is asked in both directions, and its place among all entities \
             counted, other known answers left out; for validation, test answers are not known yet, so \
             its figures may be lower. MRR is the mean of 1 / place, Hits@k the share \
             of places up to k, MR the mean place. {}",
            match self.meaning() {
                Meaning::Share if self.run.config.output == OutputKind::Margin =>
                    "NLL is that of a softmax of the scores, for which nothing was trained: with a \
                     margin, they learn ranks alone.",
                Meaning::Share =>
                    "NLL is the mean of −log P of the answers; filtered, training answers are taken out \
                     of the distribution first.",
                Meaning::Holds =>
                    "There is no NLL, for the probabilities of a query's objects are no distribution.",
            }
        ));
    }

    fn breakdowns(&self, page: &mut Page, split: &str, ranks: &[AnswerRank]) {
        if ranks.is_empty() {
            return;
        }
        page.heading("Where is it good?");
        page.paragraph(&format!(
            "The {split} answers by class of their relation (many: 1.5 or more objects per subject, \
             or subjects per object), and by the number of known answers of their query.",
        ));
        for (title, by) in [("class", Breakdown::Class), ("known answers", Breakdown::Degree)] {
            let parts = break_down(&self.run.graph, ranks, by);
            let rows: Vec<_> = parts.iter().map(|(name, found)| metrics_row(name, found)).collect();
            let mut header = METRICS_HEADER.to_vec();
            header[0] = title;
            page.table(&header, &rows);
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
        let best = self.run.best.epoch;
        page.remark(&format!("The weights of epoch {best} were kept."));
    }

    fn reliability(&self, page: &mut Page, split: &str) {
        let Some(raw) = self.calibration.first() else { return };
        page.heading("Can its probabilities be trusted?");
        let (left_out, counted) = match self.meaning() {
            Meaning::Share => (
                "training answers",
                "triples. A query with several held-out answers counts once for each, and only one of \
                 them can be its top answer",
            ),
            Meaning::Holds => ("answers of earlier splits", "queries"),
        };
        page.paragraph(&format!(
            "For the most likely answer to each {split} query, {left_out} left out: how \
             probable the model said it was, against how often it came true. On the dashed line the \
             two agree; the larger a dot, the more {counted}."
        ));
        let colors = self.calibration.iter().enumerate();
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
        let names: Vec<String> = self.calibration.iter().map(temperature_name).collect();
        page.key(&names.iter().map(String::as_str).collect::<Vec<_>>());
        page.charts(vec![("share that came true".to_owned(), plot)]);
        let rows: Vec<Vec<String>> = self
            .calibration
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
        if let [_, fitted] = &self.calibration[..] {
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
        let version = crate::VERSION;
        page.remark(&format!(
            "fullrank {version}. The same command gives the same bits on the same kind of processor."
        ));
        page.details("all settings", &self.run.config.to_toml());
    }
}

fn temperature_name(calibration: &Calibration) -> String {
    match calibration.temperature {
        1.0 => "as trained".to_owned(),
        fitted => format!("at temperature {fitted:.3}"),
    }
}

/// The score of a model, where it is not its encoder's own.
pub(crate) fn chosen_score(config: &Config) -> Option<&'static str> {
    let score = config.score();
    (score != config.encoder.scores()[0]).then(|| score.name())
}

/// A model in a few words.
pub(crate) fn describe(config: &Config) -> String {
    let mut encoder = config.encoder.name().to_owned();
    if let Some(score) = chosen_score(config) {
        encoder += &format!(" scored by {score}");
    }
    match config.output {
        OutputKind::Softmax => format!("{encoder} with a softmax"),
        OutputKind::Sigmoid => format!("{encoder} with sigmoids"),
        OutputKind::Mixture => {
            format!("{encoder} with a mixture of {} softmaxes", config.components)
        }
        OutputKind::Margin => format!("{encoder} with a margin"),
        OutputKind::Sigsoftmax => format!("{encoder} with a sigsoftmax"),
        OutputKind::Monotone => format!("{encoder} with a softmax of a learned function"),
        OutputKind::Mixtape => format!("{encoder} with a mixtape of {}", config.components),
        OutputKind::Fourier => format!("{encoder} with a Fourier layer"),
        OutputKind::MixtureOfSigmoids => {
            format!("{encoder} with a mixture of {} sigmoids", config.components)
        }
    }
}

fn cards(split: &str, metrics: &Metrics, parameters: usize) -> Vec<(String, String)> {
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
fn bounds(page: &mut Page, graph: &Graph, dim: usize) {
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
fn examples(page: &mut Page, run: &Run) -> Result<(), fullrank_engine::Error> {
    let graph = &run.graph;
    let queries = example_queries(graph);
    let options = PredictOptions {
        k: graph.entities().len(),
        known: Known::Shown,
        temperature: run.temperature.unwrap_or(1.0),
        ..PredictOptions::default()
    };
    let answers = predict(graph, run, &queries, &options)?;
    for (query, answers) in queries.iter().zip(answers) {
        page.subheading(&query_names(graph, *query).to_string());
        let rows: Vec<AnswerRow> = telling(&answers)
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
pub(crate) fn example_queries(graph: &Graph) -> Vec<Query> {
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
