//! Comparing runs as a user meets it.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::path::Path;

use program::{folder, json, printed, run, said};

const QUICK: &str = "--dim 8 --batch 200 --epochs 2 --learning-rate 0.01";

/// A small graph with planted structure, called `graph`.
fn with_graph() -> tempfile::TempDir {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph --entities 100 --relations 4 --types 8 --mean-degree 10");
    temp
}

fn train(folder: &Path, model: &str, out: &str) {
    printed(folder, &format!("train graph {QUICK} {model} --out {out}"));
}

/// Standard error of a command that fails with this exit code.
fn failure(folder: &Path, arguments: &str, code: i32) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    said(&output)
}

/// A softmax and a mixture of two encoders each, with three seeds.
fn with_runs() -> tempfile::TempDir {
    let temp = with_graph();
    for encoder in ["distmult", "cp"] {
        for (layer, name) in [("softmax", "softmax"), ("mixture --components 4", "mixture")] {
            let model = format!("--encoder {encoder} --output {layer} --seeds 3");
            train(temp.path(), &model, &format!("{encoder}-{name}"));
        }
    }
    temp
}

const RUNS: &str = "distmult-softmax distmult-mixture cp-softmax cp-mixture";

#[test]
fn folders_of_seeds_are_compared_pair_by_pair() {
    let temp = with_runs();
    let command = format!("compare {RUNS} --resamples 200 --json");
    let report = json(temp.path(), &command);
    assert_eq!((&report["data"], &report["dataset"]["entities"]), (&"graph".into(), &100.into()));
    let models = report["models"].as_array().unwrap();
    let names: Vec<&str> = models.iter().map(|model| model["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "distmult d = 8, softmax",
            "distmult d = 8, mixture K = 4",
            "cp d = 8, softmax",
            "cp d = 8, mixture K = 4"
        ]
    );
    assert_eq!(models[1]["components"], 4);
    for model in models {
        assert_eq!(model["seeds"], serde_json::json!([0, 1, 2]));
        assert_eq!(model["epochs"]["mean"], 2.0);
        for split in ["valid", "test"] {
            assert!(model[split]["mrr"]["deviation"].as_f64().unwrap() > 0.0, "{model}");
        }
    }
    // Each run as `evaluate` has it.
    let evaluated = json(temp.path(), "evaluate cp-softmax/seed-1 --json");
    let of_runs = report["runs"].as_array().unwrap();
    let own = of_runs.iter().find(|run| run["run"] == "cp-softmax/seed-1").unwrap();
    assert_eq!(own["test"]["mrr"], evaluated["mrr"]);

    let differences = report["differences"].as_array().unwrap();
    let find = |a: &str, b: &str, metric: &str| {
        let is_it = |one: &&serde_json::Value| one["a"] == a && one["b"] == b;
        differences.iter().filter(is_it).find(|one| one["metric"] == metric).unwrap()
    };
    let mean = |run: usize| models[run]["test"]["mrr"]["mean"].as_f64().unwrap();
    let one = find(names[0], names[1], "mrr");
    assert!((one["mean"].as_f64().unwrap() - (mean(1) - mean(0))).abs() < 1e-12, "{one}");
    assert!(one["low"].as_f64() < one["mean"].as_f64(), "{one}");
    assert!(one["mean"].as_f64() < one["high"].as_f64(), "{one}");
    assert_eq!((&one["n_pairs"], &one["too_few_pairs"]), (&3.into(), &true.into()));
    assert!(one["p"].as_f64().unwrap() >= 0.25 && one["p_holm"].is_null(), "{one}");
    let all = find("softmax", "mixture K = 4", "nll_filtered");
    assert_eq!((&all["n_pairs"], &all["too_few_pairs"]), (&6.into(), &false.into()));
    assert!(all["p_holm"].as_f64() >= all["p"].as_f64(), "{all}");
    assert_eq!(report["pairs"].as_array().unwrap().len(), 3);
}

#[test]
fn a_page_and_tables_have_models_and_pairs() {
    let temp = with_runs();
    let text = printed(temp.path(), &format!("compare {RUNS} --resamples 100 --html page.html"));
    let page = fs::read_to_string(temp.path().join("page.html")).unwrap();
    for part in ["4 models on graph, 12 runs", "cp d = 8: softmax → mixture K = 4", "over 2 models"]
    {
        assert!(page.contains(part), "{part} in\n{page}");
    }
    let refused = failure(temp.path(), "compare cp-softmax --html page.html", 1);
    assert_eq!(refused, "error: page.html: there is a file already\n\nReplace it by --force.\n");

    assert!(text.starts_with("graph: 100 entities, 4 relations, "), "{text}");
    for part in [
        "distmult d = 8: softmax → mixture K = 4\n3 pairs of runs with the same seed; ",
        "over 2 models: softmax → mixture K = 4\n6 pairs of runs with the same seed; ",
        "Of n pairs the smallest p is 2/2ⁿ",
        "tests were made at once",
    ] {
        let text = text.replace('\n', " ");
        assert!(text.contains(&part.replace('\n', " ")), "{part} in\n{text}");
    }
}

#[test]
fn a_pair_of_single_runs_has_intervals_and_is_told_what_they_leave_out() {
    let temp = with_graph();
    train(temp.path(), "--output softmax", "a");
    train(temp.path(), "--output softmax --dropout 0.3", "b");
    let text = printed(temp.path(), "compare a b --resamples 100").replace('\n', " ");
    for part in [
        "distmult d = 8: softmax (dropout 0.1) → softmax (dropout 0.3) 1 pair of runs with the same seed; \
         besides, dropout 0.1 → 0.3.",
        "Where there is one pair of runs, nothing tells that: train with several seeds.",
        "with * there are too few",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // A sigmoid has no NLL, and nothing of it is compared or drawn.
    train(temp.path(), "--output sigmoid", "c");
    let report = json(temp.path(), "compare a c --resamples 100 --html page.html --json");
    let differences = report["differences"].as_array().unwrap();
    assert_eq!(differences.len(), 5, "{differences:?}");
    let page = fs::read_to_string(temp.path().join("page.html")).unwrap();
    assert!(page.contains("MRR, b − a") && !page.contains("NLL filtered, b − a"), "{page}");
    let text = printed(temp.path(), "compare a --resamples 100").replace('\n', " ");
    assert!(text.contains("no two of these have"), "{text}");
}

#[test]
fn runs_that_cannot_be_compared_are_refused_with_the_reason() {
    let temp = with_graph();
    train(temp.path(), "--output softmax", "a");
    printed(temp.path(), "generate other --entities 90 --relations 4 --types 8 --mean-degree 10");
    printed(temp.path(), &format!("train other {QUICK} --output softmax --out b"));
    let said = failure(temp.path(), "compare a b", 1);
    assert!(
        said.starts_with(
            "error: b: is not of the same graph and splits as the first run: entities: expected 100, \
             found 90, "
        ),
        "{said}"
    );
    assert!(
        said.contains("\n\nOnly runs on the same triples, split in the same way, can be"),
        "{said}"
    );
    assert_eq!(
        failure(temp.path(), "compare a a", 1),
        "error: a: has the settings and the seed of a\n\nName every training once; more of a model have \
         other seeds.\n"
    );
    assert_eq!(
        failure(temp.path(), "compare nowhere", 1),
        "error: nowhere: there is no such folder\n"
    );
    let said = failure(temp.path(), "compare graph", 1);
    assert!(
        said.starts_with("error: graph: not a run folder; expected `run.json` in it\n"),
        "{said}"
    );
    assert!(failure(temp.path(), "compare", 2).contains("<RUN>..."));
    assert!(failure(temp.path(), "compare a --resamples 10", 2).contains("100..=1000000"));
}
