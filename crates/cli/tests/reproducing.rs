//! The paper's tables, as a user makes them: cut down to a tiny graph and an epoch.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use program::{command, folder, json, printed, run, said};
use serde_json::Value;

/// A small graph with planted structure, called `graph`.
fn with_graph() -> tempfile::TempDir {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph --entities 200 --relations 4 --types 8 --mean-degree 15");
    temp
}

/// Runs the program with arguments that have spaces in them.
fn reproduce(folder: &Path, arguments: &[&str]) -> std::process::Output {
    command(folder, "reproduce").args(arguments).output().unwrap()
}

const QUICK: [&str; 6] = ["--set", "epochs=2", "--set", "dim=8", "--set", "batch=500"];

fn cell<'a>(result: &'a Value, row: usize, column: &str) -> &'a Value {
    let cells = result["graphs"][0]["rows"][row]["cells"].as_array().unwrap();
    cells.iter().find(|cell| cell["column"] == column).unwrap()
}

#[test]
fn a_cut_down_table_is_trained_once_and_set_beside_the_paper() {
    let temp = with_graph();
    let only = "DistMult d=200,DistMult-MoS d=200";
    let arguments = [
        &["fb15k-237", "--dataset", "FB15k-237=graph", "--only", only, "--seeds", "2"][..],
        &QUICK,
    ]
    .concat();
    let output = reproduce(temp.path(), &arguments);
    assert!(output.status.success(), "{}", said(&output));
    let lines = said(&output);
    assert_eq!(lines.lines().filter(|line| line.starts_with("epoch ")).count(), 8, "{lines}");
    assert!(lines.contains("to do here; --plan says for what"), "{lines}");
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in [
        "fb15k-237: All metrics on FB15k-237\nNot the paper's settings: epochs = 2, dim = 8, \
         batch = 500\n",
        "4.74 ± .08  .304 ± .004",
        "graph is not the paper's FB15k-237: 200 entities instead of 14,541, 4 relations instead of \
         237, ",
        "Ranks are optimistic, as the paper's",
    ] {
        assert!(text.contains(expected), "{text}");
    }
    let ours: Vec<&str> = text.lines().filter(|line| line.contains("  ours  ")).collect();
    assert_eq!(ours.len(), 2, "{text}");
    assert!(ours.iter().all(|line| line.contains(" ± ")), "{text}");

    // What was trained is an ordinary run, and not trained again.
    let run = "runs/reproduce/FB15k-237=graph/DistMult-d200-epochs=2-dim=8-batch=500/seed-1";
    assert!(temp.path().join(run).join("report.html").exists());
    let again = reproduce(temp.path(), &arguments);
    assert!(!said(&again).contains("epoch "), "{}", said(&again));
    assert_eq!(String::from_utf8(again.stdout).unwrap(), text);
    fs::remove_dir_all(temp.path().join(run)).unwrap();
    let output = reproduce(temp.path(), &[&arguments[..], &["--json"]].concat());
    assert_eq!(said(&output).matches("epoch ").count(), 2, "{}", said(&output));

    // Its figures are those of `evaluate`.
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let evaluated = json(temp.path(), &format!("evaluate {run} --json"));
    let mrr = cell(&result, 0, "MRR");
    assert_eq!(mrr["ours"]["runs"][1], evaluated["optimistic"]["mrr"]);
    assert_eq!(mrr["realistic"]["runs"][1], evaluated["mrr"]);
    assert_eq!((&mrr["paper"][0], &mrr["paper_deviation"]), (&0.304.into(), &0.004.into()));
    assert_eq!(cell(&result, 0, "NLL")["ours"]["runs"][1], evaluated["nll_filtered"]);
    assert_eq!(cell(&result, 0, "parameters")["ours"]["mean"], 208.0 * 8.0);
}

#[test]
fn tables_without_ranks_are_made_by_what_the_other_commands_call() {
    let temp = with_graph();
    let made = |arguments: &[&str]| -> Value {
        let output = reproduce(temp.path(), &[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let found = made(&["bounds", "--dataset", "Hetionet=graph"]);
    let inspected = json(temp.path(), "inspect graph --effort low --json");
    let bounds = &inspected["bounds"];
    for (column, expected) in [
        ("E", &inspected["entities"]),
        ("mean answers", &inspected["degree"]["both"]["mean"]),
        ("2c + 1", &bounds["worst_case"]),
        ("b", &bounds["rcm"]["blocks_max"]),
        ("2b + 1", &bounds["rcm"]["dimension"]),
    ] {
        let (ours, expected) = (&cell(&found, 0, column)["ours"]["mean"], expected.as_f64());
        assert_eq!(ours.as_f64(), expected, "{column}");
    }

    let one = [&["matrix-rank", "--dataset", "FB15k-237=graph", "--only", "d=200 K=1"], &QUICK[..]];
    let found = made(&one.concat());
    let run = found["graphs"][0]["rows"][0]["runs"][0].as_str().unwrap();
    let measured = json(temp.path(), &format!("spectrum {run} --json"));
    let ours = &cell(&found, 0, "matrix rank")["ours"]["mean"];
    assert_eq!(ours.as_f64(), measured["ranks"][1]["matrix_rank"].as_f64());

    let sigmoid = &["signs", "--dataset", "ogbl-biokg=graph", "--only", "DistMult-sigmoid"];
    let found = made(&[sigmoid, &QUICK[..]].concat());
    let run = found["graphs"][0]["rows"][0]["runs"][0].as_str().unwrap();
    let told = json(temp.path(), &format!("evaluate {run} --task signs --json"));
    assert_eq!(cell(&found, 0, "AUROC")["ours"]["mean"], told["auroc"]);
    assert_eq!(cell(&found, 0, "F1")["ours"]["mean"], told["f1"]);

    let step = &["step-time", "--dataset", "openbiolink=graph", "--only", "DistMult"];
    let found = made(&[step, &QUICK[..]].concat());
    assert!(cell(&found, 0, "ms per step")["ours"]["mean"].as_f64().unwrap() > 0.0);

    let mlp = &["concatmlp", "--dataset", "FB15k-237=graph", "--only", "DistMult,[128]"];
    let found = made(&[mlp, &["--set", "dim=8"][..]].concat());
    let [base, own] = [0, 1].map(|row| cell(&found, row, "ms forward")["ours"]["mean"].clone());
    let ratio = cell(&found, 1, "times base")["ours"]["mean"].as_f64().unwrap();
    assert!((ratio - own.as_f64().unwrap() / base.as_f64().unwrap()).abs() < 1e-9);
}

/// An array of whole numbers as numpy writes it.
fn npy(rows: &[[i32; 3]]) -> Vec<u8> {
    let shape = format!("({}, 3)", rows.len());
    let header = format!("{{'descr': '<i4', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(rows.iter().flatten().flat_map(|number| number.to_le_bytes()));
    bytes
}

#[test]
fn ranks_of_ogbl_biokg_are_among_the_given_negatives() {
    let lines = |step: usize| -> String {
        (0..30).map(|i| format!("{i}\tr\t{}\n", (i + step) % 30)).collect()
    };
    let temp = folder(&[
        ("biokg/train.tsv", &(lines(1) + &lines(4))),
        ("biokg/valid.tsv", &lines(2)),
        ("biokg/test.tsv", &lines(5)),
    ]);
    for split in ["valid", "test"] {
        for side in ["subjects", "objects"] {
            let rows: Vec<[i32; 3]> = (0..30).map(|i| [7, 9, 11].map(|k| (i + k) % 30)).collect();
            let path = temp.path().join(format!("biokg/{split}_negative_{side}.npy"));
            fs::write(path, npy(&rows)).unwrap();
        }
    }
    let arguments = [
        &["ogbl-biokg", "--dataset", "ogbl-biokg=biokg", "--only", "DistMult d=200"][..],
        &["--seeds", "1", "--json"],
        &QUICK,
    ];
    let output = reproduce(temp.path(), &arguments.concat());
    assert!(output.status.success(), "{}", said(&output));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let run = result["graphs"][0]["rows"][0]["runs"][0].as_str().unwrap();
    let given = json(temp.path(), &format!("evaluate {run} --candidates biokg --json"));
    assert_eq!(cell(&result, 0, "MRR")["ours"]["mean"], given["optimistic"]["mrr"]);
    assert!(cell(&result, 0, "MR")["ours"]["mean"].as_f64().unwrap() <= 4.0);
    let all = json(temp.path(), &format!("evaluate {run} --json"));
    assert_eq!(cell(&result, 0, "NLL")["ours"]["mean"], all["nll_filtered"]);
}

#[test]
fn the_list_and_the_plan_have_every_table() {
    let temp = folder(&[]);
    let listed = json(temp.path(), "reproduce --json");
    let names: Vec<&str> =
        listed.as_array().unwrap().iter().map(|table| table["table"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 18);
    let text = printed(temp.path(), "reproduce");
    let plan = printed(temp.path(), "reproduce --plan --set dim=24");
    for name in names {
        assert!(text.lines().any(|line| line.trim_start().starts_with(name)), "{name}: {text}");
        assert!(plan.lines().any(|line| line.trim_start().starts_with(name)), "{name}: {plan}");
    }
    assert!(plan.contains("How this was estimated: "), "{plan}");
    assert!(plan.contains("Hetionet is not here: curl -LO https://github.com/hetio/"), "{plan}");
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0, "a plan writes nothing");
}

#[test]
fn a_plan_counts_what_is_left() {
    let temp = with_graph();
    let only = ["fb15k-237", "--dataset", "FB15k-237=graph", "--only", "DistMult d=200"];
    let plan = |more: &[&str]| -> Value {
        let arguments = [&only, &QUICK[..], &["--plan", "--json"], more].concat();
        let output = reproduce(temp.path(), &arguments);
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let model = |plan: &Value| plan["tables"][0]["graphs"][0]["models"][0].clone();
    let before = model(&plan(&[]));
    assert_eq!(before["folders"].as_array().unwrap().len(), 3, "as many as the paper says");
    let train = fs::read_to_string(temp.path().join("graph/train.tsv")).unwrap().lines().count();
    assert_eq!(before["updates_per_epoch"], (2 * train).div_ceil(500));
    assert!(before["config"].as_str().unwrap().contains("answers_per_item = 1\n"), "{before}");
    let hours = before["hours"].as_f64().unwrap();
    assert!((hours - 3.0 * before["hours_per_run"].as_f64().unwrap()).abs() < 1e-12);

    let output = reproduce(temp.path(), &[&only, &QUICK[..], &["--seeds", "1"]].concat());
    assert!(output.status.success(), "{}", said(&output));
    let after = model(&plan(&[]));
    assert_eq!((&after["done"], &after["begun"]), (&1.into(), &0.into()));
    let left = after["hours"].as_f64().unwrap();
    assert!((left - 2.0 * after["hours_per_run"].as_f64().unwrap()).abs() < 1e-12);
    assert_eq!(model(&plan(&["--seeds", "1"]))["hours"], 0.0);
}

#[test]
fn an_interrupted_table_goes_on() {
    let temp = with_graph();
    let arguments = [
        "fb15k-237",
        "--dataset",
        "FB15k-237=graph",
        "--only",
        "DistMult d=200",
        "--seeds",
        "1",
        "--set",
        "dim=8",
        "--set",
        "epochs=2000",
        "--set",
        "patience=2000",
        "--threads",
        "1",
    ];
    let mut child = command(temp.path(), "reproduce")
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("epoch ")));
    assert!(
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()
    );
    let rest: Vec<String> = lines.collect();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
    assert!(rest.iter().any(|line| line == "saved; the same command goes on"), "{rest:?}");
    let plan = [&arguments[..], &["--plan", "--json"]].concat();
    let plan: Value = serde_json::from_slice(&reproduce(temp.path(), &plan).stdout).unwrap();
    assert_eq!(plan["tables"][0]["graphs"][0]["models"][0]["begun"], 1);
}

#[test]
fn what_is_not_there_is_named() {
    let temp = folder(&[]);
    let failure = |arguments: &str, code: i32| -> String {
        let output = run(temp.path(), &format!("reproduce {arguments}"));
        assert_eq!(output.status.code(), Some(code), "{}", said(&output));
        said(&output)
    };
    assert_eq!(
        failure("table-3", 1),
        "error: there is no table `table-3`; known: requirements, bounds, main, components, graphs, \
         matrix-rank, step-time, training-time, dimension-5000, fb15k-237, hetionet, ogbl-biokg, \
         openbiolink, wn18rr, projections, distances, concatmlp, signs\n"
    );
    let text = failure("main --dataset FB15k", 2);
    let expected = "the paper has no graph `FB15k`; it has FB15k-237, WN18RR, Hetionet, ogbl-biokg, \
                    openbiolink";
    assert!(text.contains(expected), "{text}");
    assert_eq!(
        failure("signs --only TransE", 1),
        "error: no row is left by --dataset and --only\n\nThe rows are: ComplEx-MoS-sigmoid, d = 1000; \
         ComplEx-sigmoid, d = 1000; DistMult-MoS-sigmoid, d = 1000; DistMult-sigmoid, d = 1000.\n"
    );
    let text = failure("main --set epochs", 2);
    assert!(text.contains("expected --set NAME=VALUE, found `epochs`"), "{text}");
    let text = failure("fb15k-237 --plan --only DistMult --set epoch=3", 2);
    assert!(
        text.contains("--set epoch: there is no such setting; did you mean `epochs`?"),
        "{text}"
    );
    // A graph that is not here is no failure: what can be said of its table is said.
    let text = printed(temp.path(), "reproduce hetionet --only DistMult");
    assert!(text.contains("6.10 ± .00  .250 ± .001"), "{text}");
    assert!(text.contains("9.0M") && text.contains("Hetionet is not here: curl -LO"), "{text}");
}
