//! What the paper's files say, checked without training anything.

use std::collections::BTreeSet;

use fullrank_engine::bench::StepWork;

use super::cells::Ours;
use super::column::{Column, Source, numbers};
use super::paper::{Dataset, Paper, Row, Table, raw_config};
use super::places::{Sizes, size};
use super::text::{GraphResult, RowResult};

/// Every cell's row, with its table and its graph.
fn cells(paper: &Paper) -> Vec<(&Table, &Row, &Dataset)> {
    let of_table = |table| {
        paper.datasets_of(table).flat_map(move |dataset| {
            let is_there = |row: &&Row| row.paper.contains_key(&dataset.name);
            table.rows.iter().filter(is_there).map(move |row| (table, row, dataset))
        })
    };
    paper.tables.iter().flat_map(of_table).collect()
}

fn row<'a>(paper: &'a Paper, table: &str, label: &str, dataset: &str) -> &'a Row {
    let rows = &paper.table(table).unwrap().rows;
    rows.iter().find(|row| row.label(dataset) == label).unwrap()
}

#[test]
fn every_config_of_every_table_can_train() {
    let paper = Paper::load().unwrap();
    let mut n_models = 0;
    for (table, row, dataset) in cells(&paper) {
        if row.model.is_none() {
            continue;
        }
        let settings = paper.settings(row, &dataset.name).unwrap();
        let checked = raw_config(&settings).check();
        let label = row.label(&dataset.name);
        assert!(checked.is_ok(), "{}, {label}: {}", table.name, checked.unwrap_err());
        n_models += 1;
    }
    // Of the main table and those of the appendix: 4·18 + 5·18, 10, 18, 2, 4, 4, 4, 9, 4 and 6.
    assert_eq!(n_models, 72 + 90 + 10 + 18 + 2 + 4 + 4 + 4 + 9 + 4 + 6);
}

#[test]
fn every_figure_of_the_paper_is_read_and_has_a_column() {
    let paper = Paper::load().unwrap();
    for (table, row, dataset) in cells(&paper) {
        let (label, figures) = (row.label(&dataset.name), &row.paper[&dataset.name]);
        assert_eq!(figures.len(), table.columns.len(), "{}, {label}", table.name);
        for (figure, column) in figures.iter().zip(&table.columns) {
            let read = numbers(figure);
            let expected = figure.split('/').filter(|text| !text.trim().is_empty()).count();
            assert_eq!(read.len(), expected, "{}, {label}: {figure}", table.name);
            if column.is_of_ranks() && *column != Column::Mr && row.mean_gain.is_none() {
                assert!(read.iter().all(|share| (0.0..1.0).contains(share)), "{label}: {figure}");
            }
        }
    }
    for table in &paper.tables {
        let known: BTreeSet<&str> = paper.datasets.iter().map(|it| &it.name[..]).collect();
        let graphs = table.rows.iter().flat_map(|row| row.paper.keys());
        assert!(graphs.into_iter().all(|graph| known.contains(&graph[..])), "{}", table.name);
    }
}

/// By the paper's appendix "Experimental setting".
#[test]
fn settings_are_those_of_the_paper() {
    let paper = Paper::load().unwrap();
    let shown = |table: &str, label: &str, dataset: &str| -> String {
        let settings = paper.settings(row(&paper, table, label, dataset), dataset).unwrap();
        let shown = settings.iter().map(|(name, value)| format!("{name} = {value}"));
        shown.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(
        shown("fb15k-237", "DistMult, d = 200", "FB15k-237"),
        "answer_weight = \"one\"; answers_per_item = 1; batch = 1000; dim = 200; dropout = 0.1; \
         encoder = \"distmult\"; epochs = 30; exact = true; init = \"xavier-torch\"; \
         learning_rate = 0.001; optimizer = \"adam\"; output = \"softmax\"; patience = 8; schedule = \"constant\""
    );
    assert_eq!(
        shown("ogbl-biokg", "RESCAL-MoS, d = 1000", "ogbl-biokg"),
        "activation = \"leaky_relu\"; answer_weight = \"one\"; answers_per_item = 1; batch = 500; \
         components = 4; dim = 1000; dropout = 0.1; encoder = \"rescal\"; entropy_weight = 0.001; \
         epochs = 30; exact = true; init = \"xavier-torch\"; layers = 2; learning_rate = 0.0001; \
         optimizer = \"adam\"; output = \"mixture\"; \
         patience = 8; projection_dropout = 0.1; schedule = \"constant\""
    );
    assert_eq!(
        shown("main", "ConvE, d = 200", "Hetionet"),
        "answer_weight = \"one\"; answers_per_item = 1; batch = 1000; channels = 32; \
         convolutions = 1; dim = 200; encoder = \"conve\"; epochs = 30; exact = true; \
         feature_dropout = 0.3; hidden_dropout = 0.3; init = \"xavier-torch\"; input_dropout = 0.2; \
         learning_rate = 0.0001; optimizer = \"adam\"; output = \"softmax\"; patience = 8; schedule = \"constant\""
    );
    let narrow = shown("main", "CompGCN, d = 50", "openbiolink");
    assert!(narrow.contains("batch = 500; ") && narrow.contains("dim = 50; "), "{narrow}");
    assert!(narrow.contains("initial_dim = 100; "), "{narrow}");
    let wide = shown("dimension-5000", "DistMult-MoS, d = 5000, K = 1", "ogbl-biokg");
    assert!(wide.contains("batch = 200; components = 1; dim = 5000; "), "{wide}");
}

/// docs/paper.md says what the others seem to count.
#[test]
fn our_models_have_the_papers_numbers_of_parameters() {
    let paper = Paper::load().unwrap();
    let (mut n_cells, mut differing) = (0, BTreeSet::new());
    for (table, row, dataset) in cells(&paper) {
        let column = table.columns.iter().position(|it| *it == Column::Parameters);
        let (Some(column), Some(_)) = (column, &row.model) else { continue };
        let config = raw_config(&paper.settings(row, &dataset.name).unwrap()).check().unwrap();
        let parameters = StepWork::of(&config, size(dataset, None)).parameters as f64;
        let (figure, label) = (&row.paper[&dataset.name][column], row.label(&dataset.name));
        n_cells += 1;
        if Column::Parameters.written(parameters, figure) != *figure {
            differing.insert(format!("{}, {label}", dataset.name));
        }
        let apart = (parameters - numbers(figure)[0]).abs();
        assert!(apart < 0.25e6, "{}, {label}: {figure} and {parameters}", table.name);
    }
    assert_eq!((n_cells, differing.len()), (72 + 90 + 2, 24));
}

#[test]
fn where_the_paper_contradicts_itself_both_figures_stand() {
    let paper = Paper::load().unwrap();
    for (table, label, dataset, column, expected) in [
        ("main", "RESCAL, d = 200", "FB15k-237", 1, [0.258, 0.285]),
        ("fb15k-237", "RESCAL, d = 200", "FB15k-237", 1, [0.285, 0.258]),
        ("main", "CompGCN-MoS, d = 50", "openbiolink", 0, [5.43, 5.35]),
        ("main", "CompGCN-MoS, d = 50", "openbiolink", 1, [0.274, 0.278]),
        ("openbiolink", "RESCAL-MoS, d = 1000", "openbiolink", 1, [0.330, 0.328]),
        ("matrix-rank", "DistMult-MoS, d = 200, K = 4", "FB15k-237", 0, [3651.0, 14_501.0]),
    ] {
        let figures = &row(&paper, table, label, dataset).paper[dataset];
        assert_eq!(numbers(&figures[column]), expected, "{table}, {label}");
    }
    // All else that the main table shares with the appendix is the same there.
    let all = |table: &str| {
        let of = |(table, row, dataset): (&Table, &Row, &Dataset)| {
            let shared = table.columns.iter().zip(&row.paper[&dataset.name]);
            let shared = shared.filter(|(column, _)| {
                [Column::Nll, Column::Mrr, Column::Parameters].contains(column)
            });
            let means: Vec<f64> =
                shared.filter_map(|(_, figure)| numbers(figure).first().copied()).collect();
            (dataset.name.clone(), row.label(&dataset.name), means)
        };
        let of_table = |cell: &(&Table, &Row, &Dataset)| cell.0.name == table;
        let of_models = |cell: &(&Table, &Row, &Dataset)| cell.1.model.is_some();
        cells(&paper).into_iter().filter(of_table).filter(of_models).map(of).collect::<Vec<_>>()
    };
    let mut differing = 0;
    for appendix in ["fb15k-237", "hetionet", "ogbl-biokg", "openbiolink"].map(all) {
        for (dataset, label, means) in appendix {
            // Where d is not that of the label, the main table's row has the same one.
            let main = all("main");
            let found = main.iter().find(|it| it.0 == dataset && it.1 == label).unwrap();
            differing += usize::from(found.2 != means);
        }
    }
    assert_eq!(differing, 3);
}

#[test]
fn sizes_of_graphs_are_those_of_the_papers_table() {
    let paper = Paper::load().unwrap();
    let table = paper.table("graphs").unwrap();
    for dataset in &paper.datasets {
        let figures = &table.rows[1].paper[&dataset.name];
        let sizes = [dataset.entities, dataset.relations, dataset.triples].map(|it| it as f64);
        let expected: Vec<f64> = figures.iter().take(3).flat_map(|it| numbers(it)).collect();
        assert_eq!(sizes[..], expected[..], "{}", dataset.name);
        let mean = 2.0 * dataset.triples as f64 / dataset.queries as f64;
        assert!((mean - numbers(&figures[3])[0]).abs() < 0.005, "{}: {mean}", dataset.name);
        // The archive of openbiolink has triples that the paper leaves out.
        let all: usize = dataset.splits.iter().sum();
        let left_out = if dataset.name == "openbiolink" { 4140 } else { 0 };
        assert_eq!(all, dataset.triples + left_out, "{}", dataset.name);
    }
}

#[test]
fn rows_are_chosen_by_words_of_their_labels() {
    let paper = Paper::load().unwrap();
    let chosen = |table: &str, wanted: &[&str]| -> Vec<String> {
        let wanted: Vec<String> = wanted.iter().map(|it| (*it).to_owned()).collect();
        let (table, dataset) = (paper.table(table).unwrap(), "ogbl-biokg");
        let rows = table.rows.iter().filter(|row| row.is_named_by(&wanted, dataset));
        rows.map(|row| row.label(dataset)).collect()
    };
    assert_eq!(chosen("ogbl-biokg", &["distmult"]), ["DistMult, d = 200", "DistMult, d = 1000"]);
    assert_eq!(
        chosen("components", &["ComplEx-MoS K=8", "distmult"]),
        ["DistMult, d = 1000", "ComplEx-MoS, d = 1000, K = 8"]
    );
    assert_eq!(chosen("components", &[]).len(), 10);
    assert_eq!(chosen("components", &["d=200"]), [""; 0]);
}

/// What one table trains, another that has the same model need not.
#[test]
fn the_same_model_has_the_same_folder_in_every_table() {
    let paper = Paper::load().unwrap();
    let folder = |table: &str, label: &str| {
        let row = row(&paper, table, label, "ogbl-biokg");
        paper.folder_name(row, "ogbl-biokg").unwrap()
    };
    assert_eq!(folder("main", "DistMult-MoS, d = 1000"), "DistMult-MoS-d1000");
    assert_eq!(folder("components", "DistMult-MoS, d = 1000, K = 4"), "DistMult-MoS-d1000");
    let two = "DistMult-MoS-d1000-components=2";
    assert_eq!(folder("components", "DistMult-MoS, d = 1000, K = 2"), two);
    assert_eq!(folder("projections", "DistMult-MoS, d = 1000, K = 2, layers 2"), two);
    // And different ones never.
    let mut by_folder = std::collections::BTreeMap::new();
    for (_, row, dataset) in cells(&paper) {
        if row.model.is_some() {
            let folder = (dataset.name.clone(), paper.folder_name(row, &dataset.name).unwrap());
            let settings = paper.settings(row, &dataset.name).unwrap();
            let other = by_folder.insert(folder.clone(), settings.clone());
            assert!(other.is_none_or(|other| other == settings), "{folder:?}");
        }
    }
}

#[test]
fn ratios_and_mean_gains_are_made_of_other_rows() {
    let paper = Paper::load().unwrap();
    let result = |table: &str, dataset: &str, ours: &dyn Fn(&Row, Column) -> Option<f64>| {
        let table = paper.table(table).unwrap();
        let dataset = paper.datasets.iter().find(|it| it.name == dataset).unwrap();
        let figure = |value: Option<f64>| match value {
            Some(value) => Ours::Figures { values: vec![value], realistic: None },
            None => Ours::Absent(String::new()),
        };
        let rows = table.rows.iter().map(|row| RowResult {
            row,
            label: row.label(&dataset.name),
            ours: table.columns.iter().map(|column| figure(ours(row, *column))).collect(),
            folders: Vec::new(),
        });
        let (rows, sizes) = (rows.collect(), Sizes::of(dataset, None));
        let mut result = GraphResult { dataset, sizes, rows };
        result.add_comparisons(&table.columns);
        let of = |row: &RowResult| row.ours.iter().map(Ours::mean).collect();
        result.rows.iter().map(|row| (row.label.clone(), of(row))).collect::<Vec<(_, Vec<_>)>>()
    };
    // The paper's own hours give the paper's own ratios.
    let hours = |row: &Row, column: Column| match column.source() {
        Source::Table => None,
        _ => numbers(&row.paper["openbiolink"][0]).first().copied(),
    };
    let times = result("training-time", "openbiolink", &hours);
    let ratios: Vec<Option<f64>> = times.iter().map(|(_, cells)| cells[1]).collect();
    let near = |ratio: Option<f64>, expected: f64| (ratio.unwrap() - expected).abs() < 0.006;
    assert!(near(ratios[1], 2.02) && near(ratios[3], 1.86), "{ratios:?}");
    assert_eq!((ratios[0], ratios[2]), (None, None));
    // And the appendix's figures the main table's mean gains.
    let last = |row: &Row, column: Column| {
        let place = [Column::Nll, Column::Mrr].iter().position(|it| *it == column)?;
        let figures = &row.paper["FB15k-237"];
        row.model.as_ref().and_then(|_| numbers(&figures[place]).last().copied())
    };
    let gains = result("main", "FB15k-237", &last);
    let gain = &gains.iter().find(|it| it.0 == "mean gain of MoS, d = 200").unwrap().1;
    // (.002 − .002 + .033 − .010 + .010) / 5, which the paper has as .006.
    assert!((gain[1].unwrap() - 0.0066).abs() < 1e-9, "{gain:?}");
    let missing = |row: &Row, column: Column| {
        last(row, column).filter(|_| row.model.as_deref() != Some("RESCAL"))
    };
    let gains = result("main", "FB15k-237", &missing);
    let gain = &gains.iter().find(|it| it.0 == "mean gain of MoS, d = 200").unwrap().1;
    assert_eq!(gain[1], None, "a mean over some would not be the paper's");
}
