//! The page of the demo: what do three output layers come to, side by side?

use fullrank_engine::{EpochRecord, Error, Model};

use crate::numbers::count;
use crate::page::{Page, Plot, Series, Values};
use crate::run::{bounds, examples};

/// One output layer, trained with several seeds.
#[derive(Debug)]
pub struct Group {
    /// What it is called.
    pub name: String,
    /// Its row of the table.
    pub cells: Vec<String>,
    /// Test MRR of each seed.
    pub mrr: Vec<f64>,
    /// Filtered test NLL of each seed.
    pub nll: Vec<f64>,
    /// Of the first seed.
    pub epochs: Vec<EpochRecord>,
}

/// What the report of a demo is made of.
#[derive(Debug)]
pub struct DemoReport<'a> {
    /// Columns of the table.
    pub header: Vec<&'static str>,
    /// Its rows.
    pub groups: &'a [Group],
    /// What the comparison shows, in a sentence.
    pub verdict: String,
    /// How it was made.
    pub method: String,
    /// The best model of the last group.
    pub model: &'a Model,
}

impl DemoReport<'_> {
    /// The page.
    ///
    /// # Errors
    /// When the model gives scores that are not numbers.
    pub fn to_html(&self) -> Result<String, Error> {
        let mut page = Page::default();
        let names: Vec<&str> = self.groups.iter().map(|group| group.name.as_str()).collect();
        page.paragraph(&self.verdict);
        let rows: Vec<Vec<String>> = self.groups.iter().map(|group| group.cells.clone()).collect();
        page.table(&self.header, &rows);
        page.remark(
            "MRR is the mean of 1 / place of the true answer among all entities, NLL the mean of \
             −log P of the answers, both on held-out triples and with known answers left out; ± is \
             the standard deviation over the seeds.",
        );
        page.key(&names);
        let dots = |values: fn(&Group) -> &Vec<f64>| -> Vec<Values> {
            let series = self.groups.iter().enumerate();
            series
                .map(|(color, group)| Values {
                    name: group.name.clone(),
                    color,
                    values: values(group).clone(),
                })
                .collect()
        };
        page.charts(vec![
            (
                "test MRR of every seed; more is better".to_owned(),
                Plot::Dots { x: "MRR", series: dots(|group| &group.mrr) },
            ),
            (
                "test NLL of every seed; less is better".to_owned(),
                Plot::Dots { x: "NLL filtered", series: dots(|group| &group.nll) },
            ),
        ]);
        page.paragraph(&self.method);
        let (graph, config) = (self.model.graph(), self.model.config());
        bounds(&mut page, graph, config.dim());
        self.curves(&mut page);
        page.heading("What does the mixture answer?");
        page.paragraph(
            "The most likely answers to a few held-out queries, the held-out answers, and the most \
             likely ones that are not known, each with its place. The first part of a name is the entity's type. A relation leads from each type of subject to \
             three types of object, and the answers should be of these.",
        );
        examples(&mut page, self.model)?;
        let entities = count(graph.entities().len());
        let title = format!("{} dimensions for {entities} entities", config.dim());
        let subtitle = format!(
            "The demo of fullrank: the same encoder with three output layers on a synthetic graph of \
             {} triples with planted structure. Predictions are those of {}, seed {}.",
            count(graph.n_triples()),
            config.description(),
            config.training().seed,
        );
        Ok(page.finish(&title, &subtitle))
    }

    fn curves(&self, page: &mut Page) {
        page.heading("How did they learn?");
        page.key(&self.groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>());
        let lines = |value: fn(&EpochRecord) -> Option<f64>| {
            let series = self.groups.iter().enumerate().map(|(color, group)| Series {
                name: group.name.clone(),
                color,
                points: group
                    .epochs
                    .iter()
                    .filter_map(|record| Some([record.epoch as f64, value(record)?]))
                    .collect(),
            });
            Plot::Lines { x: "epoch", whole: true, series: series.collect() }
        };
        page.charts(vec![
            (
                "validation MRR of the first seed".to_owned(),
                lines(|record| Some(record.valid.as_ref()?.realistic.mrr)),
            ),
            ("training loss of the first seed".to_owned(), lines(|record| Some(record.loss))),
        ]);
    }
}
