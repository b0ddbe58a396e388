//! Predicting, exporting, reports and the demo as a user meets them.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use program::{folder, json, printed, run, said};

/// Two entities whose names would do harm where they are not escaped.
const SCRIPT: &str = "<script>alert(1)</script>";
const ESCAPES: &str = "\u{1b}[2Jcleared";

/// A trained run, called `run`, of people on a ring who know the next, with hostile names among them.
fn with_run() -> tempfile::TempDir {
    let name = |i: usize| match i % 30 {
        3 => SCRIPT.to_owned(),
        4 => ESCAPES.to_owned(),
        5 => "a, \"b\"".to_owned(),
        i => format!("person {i}"),
    };
    let mut text = String::new();
    for i in 0..30 {
        text.push_str(&format!("{}\tknows\t{}\n", name(i), name(i + 1)));
        text.push_str(&format!("{}\tknows\t{}\n", name(i), name(i + 2)));
        text.push_str(&format!("{}\tlives in\tcity {}\n", name(i), i % 3));
    }
    let temp = folder(&[("people.tsv", &text)]);
    printed(
        temp.path(),
        "train people.tsv --dim 8 --epochs 20 --batch 32 --learning-rate 0.02 --out run",
    );
    temp
}

/// Runs the program with words that may have spaces in them.
fn words(folder: &Path, words: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_fullrank"))
        .args(words)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

/// Standard output of a run that succeeds.
fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = words(folder, arguments);
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn document(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(folder, arguments)).unwrap()
}

/// Standard error of a run that fails with this exit code.
fn failure(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = words(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    said(&output)
}

#[test]
fn known_facts_are_left_out_unless_asked_for() {
    let temp = with_run();
    let ask = ["predict", "run", "--subject", "person 0", "--relation", "lives in", "-k", "40"];
    let all = document(temp.path(), &[&ask[..], &["--known", "--json"]].concat());
    let names = |document: &serde_json::Value| -> Vec<String> {
        let answers = document["answers"].as_array().unwrap();
        answers.iter().map(|answer| answer["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&all).len(), 33);
    let sum = |document: &serde_json::Value| -> f64 {
        let answers = document["answers"].as_array().unwrap();
        answers.iter().map(|answer| answer["probability"].as_f64().unwrap()).sum()
    };
    assert!((sum(&all) - 1.0).abs() < 1e-5);
    assert_eq!(all["query"]["subject"], "person 0");
    assert_eq!(all["query"]["object"], serde_json::Value::Null);

    let new = document(temp.path(), &[&ask[..], &["--json"]].concat());
    assert_eq!(new["known_left_out"], 1);
    assert_eq!(names(&new).len(), 32);
    assert!(!names(&new).contains(&"city 0".to_owned()));
    assert!((sum(&new) - 1.0).abs() < 1e-5);
    let log_probability = new["answers"][0]["log_probability"].as_f64().unwrap();
    let probability = new["answers"][0]["probability"].as_f64().unwrap();
    assert!((log_probability.exp() - probability).abs() < 1e-12);
}

#[test]
fn both_directions_and_restricted_candidates_are_answered() {
    let temp = with_run();
    fs::write(temp.path().join("cities.txt"), "city 1\ncity 2\n").unwrap();
    let shown = text(
        temp.path(),
        &[
            "predict",
            "run",
            "--subject",
            "person 0",
            "--relation",
            "lives in",
            "--among",
            "cities.txt",
        ],
    );
    assert!(shown.starts_with("(person 0, lives in, ?)\n"), "{shown}");
    assert!(shown.contains("city 1") && shown.contains("city 2"), "{shown}");
    assert!(!shown.contains("person 1"), "{shown}");
    // The city that is known is not among them, so none was left out.
    assert!(!shown.contains("left out;"), "{shown}");
    assert!(shown.contains("the share of this entity among the answers that are not known yet"));
    // Nine validation triples are too few for a temperature.
    assert!(
        shown.contains(
            "No temperature was fitted, which takes 50 validation triples when training ends."
        ),
        "{shown}"
    );

    let subjects = document(
        temp.path(),
        &[
            "predict",
            "run",
            "--object",
            "city 0",
            "--relation",
            "lives in",
            "--answers-of",
            "lives in",
            "--known",
            "-k",
            "50",
            "--json",
        ],
    );
    // All thirty people live somewhere; cities live nowhere.
    assert_eq!(subjects["answers"].as_array().unwrap().len(), 30);
    assert_eq!(subjects["query"]["object"], "city 0");
}

#[test]
fn a_file_of_queries_becomes_a_table_that_is_never_overwritten() {
    let temp = with_run();
    fs::write(
        temp.path().join("q.csv"),
        "person 0,knows\n?,lives in,city 1\n\"a, \"\"b\"\"\",knows\n",
    )
    .unwrap();
    let ask = ["predict", "run", "--queries", "q.csv", "-k", "2", "--out", "answers.csv"];
    assert_eq!(text(temp.path(), &ask), "");
    let written = fs::read_to_string(temp.path().join("answers.csv")).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines[0], "subject,relation,object,asked,rank,probability,log_probability,known_in");
    assert_eq!(lines.len(), 1 + 3 * 2);
    assert!(lines[1].starts_with("person 0,knows,"), "{written}");
    assert!(lines[3].contains(",lives in,city 1,subject,1,"), "{written}");
    assert!(lines[5].starts_with("\"a, \"\"b\"\"\",knows,"), "{written}");
    let told = failure(temp.path(), &ask, 1);
    assert_eq!(told, "error: answers.csv: there is a file already\n\nReplace it by --force.\n");
    text(temp.path(), &[&ask[..], &["--force"]].concat());

    let all = document(temp.path(), &["predict", "run", "--queries", "q.csv", "--json"]);
    assert_eq!(all.as_array().unwrap().len(), 3);
}

#[test]
fn given_triples_are_scored() {
    let temp = with_run();
    fs::write(
        temp.path().join("t.tsv"),
        "person 0\tlives in\tcity 0\nperson 0\tlives in\tcity 1\n",
    )
    .unwrap();
    let scored = document(temp.path(), &["predict", "run", "--triples", "t.tsv", "--json"]);
    assert_eq!(scored[0]["object"], "city 0");
    assert!(scored[0]["known_in"].is_string());
    assert!(scored[1]["known_in"].is_null());
    assert!(scored[1]["rank"].as_f64().unwrap() >= 1.0);
    let shown = text(temp.path(), &["predict", "run", "--triples", "t.tsv"]);
    assert!(shown.contains("city 0"), "{shown}");
}

#[test]
fn wrong_queries_are_told_with_place_and_remedy() {
    let temp = with_run();
    let ask = |subject| {
        failure(temp.path(), &["predict", "run", "--subject", subject, "--relation", "knows"], 1)
    };
    let told = ask("persn 7");
    assert!(
        told.starts_with("error: there is no entity `persn 7`; the closest: `person 7`"),
        "{told}"
    );
    assert_eq!(ask("\u{1b}[0m"), "error: there is no entity `\\u{1b}[0m`\n");
    assert_eq!(ask("lives in"), "error: there is no entity `lives in`; it is a relation\n");
    // All faults at once; a usual header is none.
    let text = "subject\trelation\nperson 0\tknows\n\nperson 0\tknew\n?\tlives in\tcity 7\n";
    fs::write(temp.path().join("q.tsv"), text).unwrap();
    let told = failure(temp.path(), &["predict", "run", "--queries", "q.tsv"], 1);
    assert_eq!(
        told,
        "error: q.tsv:4: there is no relation `knew`; the closest: `knows`\n       \
         q.tsv:5: there is no entity `city 7`; the closest: `city 0`, `city 1`, `city 2`\n"
    );
    let told = failure(temp.path(), &["predict", "runs", "--queries", "q.tsv"], 1);
    assert_eq!(told, "error: runs: there is no such folder\n");
    fs::write(temp.path().join("q.tsv"), "person 0\tknows\tperson 1\n").unwrap();
    let told = failure(temp.path(), &["predict", "run", "--queries", "q.tsv"], 1);
    assert_eq!(
        told,
        "error: q.tsv:1: expected one `?`, as subject or as object, found `person 0` and `person 1`\n"
    );
    fs::write(temp.path().join("q.tsv"), "person 0\n").unwrap();
    let told = failure(temp.path(), &["predict", "run", "--queries", "q.tsv"], 1);
    assert_eq!(
        told,
        "error: q.tsv:1: expected a subject and a relation, or three fields with one `?`, found 1 field\n"
    );
    fs::write(temp.path().join("q.tsv"), "").unwrap();
    let told = failure(temp.path(), &["predict", "run", "--triples", "q.tsv"], 1);
    assert_eq!(
        told,
        "error: q.tsv: expected subject, relation and object a line, found an empty file\n"
    );
    let told = failure(temp.path(), &["predict", "run", "--subject", "person 0"], 2);
    assert!(told.contains("--relation <NAME>"), "{told}");
    let told = failure(temp.path(), &["predict", "run"], 2);
    assert!(told.contains("--subject <NAME>|--object <NAME>|--queries <FILE>"), "{told}");
    let ask = ["predict", "run", "--subject", "person 0", "--relation", "knows"];
    let told = failure(temp.path(), &[&ask[..], &["--out", "x.xls"]].concat(), 2);
    assert!(told.contains("expected a name that ends in .csv, .tsv or .json"), "{told}");
    let told = failure(temp.path(), &[&ask[..], &["--temperature", "0"]].concat(), 2);
    assert!(told.contains("expected a number from 0.001 to 1000"), "{told}");
}

#[test]
fn hostile_names_do_no_harm_in_reports_terminals_and_tables() {
    let temp = with_run();
    let shown = text(
        temp.path(),
        &["predict", "run", "--subject", ESCAPES, "--relation", "knows", "--known", "-k", "40"],
    );
    assert!(!shown.contains('\u{1b}') && shown.contains("\\u{1b}[2Jcleared"), "{shown}");
    let report = fs::read_to_string(temp.path().join("run/report.html")).unwrap();
    assert!(!report.contains("<script>alert") && !report.contains('\u{1b}'));
    for part in ["How good is it?", "Where is it good?", "How did it learn?", "Do it again"] {
        assert!(report.contains(part), "{part}");
    }
    let command = "fullrank train people.tsv --dim 8 --epochs 20 --learning-rate 0.02 \
                   --output softmax --batch 32 --out run";
    assert!(report.contains(command), "{report}");
}

#[test]
fn tables_are_exported_with_their_names() {
    let temp = with_run();
    let shown = text(
        temp.path(),
        &["export", "run", "--format", "safetensors,npy,tsv", "--out", "vectors"],
    );
    assert!(shown.contains("33 × 8") && shown.contains("4 × 8"), "{shown}");
    let names = fs::read_to_string(temp.path().join("vectors/relations.tsv")).unwrap();
    assert_eq!(names, "knows\nlives in\nknows⁻¹\nlives in⁻¹\n");
    let table = fs::read_to_string(temp.path().join("vectors/encoder.entity.tsv")).unwrap();
    let first: Vec<&str> = table.lines().next().unwrap().split('\t').collect();
    assert_eq!((first[0], first.len()), ("person 0", 9));
    let array = fs::read(temp.path().join("vectors/encoder.entity.npy")).unwrap();
    assert_eq!(array.len(), 128 + 33 * 8 * 4);
    // The same numbers in both.
    let value = f32::from_le_bytes(array[128..132].try_into().unwrap());
    assert_eq!(first[1].parse::<f32>().unwrap(), value);
    let model = fs::read(temp.path().join("vectors/model.safetensors")).unwrap();
    assert!(String::from_utf8_lossy(&model[8..200]).contains("encoder.entity"));

    let told = failure(temp.path(), &["export", "run", "--out", "vectors"], 1);
    assert!(told.starts_with("error: vectors: there is something here already\n"), "{told}");
    text(temp.path(), &["export", "run", "--out", "vectors", "--force"]);
    // What was written by the export before is gone.
    assert!(!temp.path().join("vectors/encoder.entity.npy").exists());
    // Nor is it lost to a run that is not there.
    failure(temp.path(), &["export", "nothing", "--out", "vectors", "--force"], 1);
    assert!(temp.path().join("vectors/model.safetensors").exists());
    // A folder with other things in it is not an export.
    let told = failure(temp.path(), &["export", "run", "--out", "run", "--force"], 1);
    assert!(told.starts_with("error: run: there is something here already\n"), "{told}");
}

#[test]
fn a_table_as_large_as_that_of_entities_has_none_of_their_names() {
    // Eight entities and d = 8: the gate of a mixture has eight rows as well.
    let ring: String = (0..8).map(|i| format!("e{i}\tnext\te{}\n", (i + 1) % 8)).collect();
    let temp = folder(&[("ring/train.tsv", &ring)]);
    let train =
        "train ring --dim 8 --output mixture --components 8 --layers 1 --epochs 1 --out run";
    printed(temp.path(), train);
    printed(temp.path(), "export run --format npy,tsv --out vectors");
    let written: Vec<serde_json::Value> =
        serde_json::from_slice(&fs::read(temp.path().join("vectors/export.json")).unwrap())
            .unwrap();
    let shape = |file: &str| {
        written.iter().find(|entry| entry["file"] == file).map(|entry| entry["shape"].clone())
    };
    let square = Some(serde_json::json!([8, 8]));
    assert_eq!([shape("encoder.entity.npy"), shape("output.gate.npy")], [square.clone(), square]);
    let tables: Vec<&str> = written
        .iter()
        .map(|entry| entry["file"].as_str().unwrap())
        .filter(|file| file.ends_with(".tsv"))
        .collect();
    assert_eq!(
        tables,
        ["entities.tsv", "relations.tsv", "encoder.entity.tsv", "encoder.relation.tsv"]
    );
}

#[test]
fn the_output_layer_follows_the_graph_unless_it_is_given() {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph --entities 300 --relations 2 --types 4 --mean-degree 30");
    let quick = "--epochs 1 --batch 200";
    let output = run(temp.path(), &format!("train graph --dim 4 {quick} --out narrow"));
    let told = said(&output);
    assert!(told.contains("note: mixture chosen: "), "{told}");
    let config = fs::read_to_string(temp.path().join("narrow/config.toml")).unwrap();
    assert!(config.contains("output = \"mixture\""), "{config}");
    let told = said(&run(temp.path(), &format!("train graph --dim 299 {quick} --out wide")));
    assert!(told.contains("note: softmax chosen: "), "{told}");
    let output =
        run(temp.path(), &format!("train graph --dim 4 --output softmax {quick} --out own"));
    assert!(!said(&output).contains("chosen"), "{}", said(&output));
    // A run goes on as it began, whatever is advised.
    printed(temp.path(), "train graph --out own --resume");
    // What only one of them has decides.
    let output =
        run(temp.path(), &format!("train graph --dim 4 --smoothing 0.1 {quick} --out smooth"));
    let told = said(&output);
    assert!(told.contains("note: softmax chosen: mixture does not go with `smoothing`"), "{told}");
    let output =
        run(temp.path(), &format!("train graph --dim 299 --components 2 {quick} --out two"));
    let told = said(&output);
    assert!(told.contains("note: mixture chosen: softmax does not go with `components`"), "{told}");
    let mlp = format!("train graph --dim 4 --encoder concatmlp --hidden 4 {quick} --out mlp");
    let told = said(&run(temp.path(), &mlp));
    assert!(told.contains("note: softmax chosen: mixture does not go with `encoder`"), "{told}");
    let output = run(temp.path(), "train graph --dim 4 --smoothing 0.1 --components 2");
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
}

#[test]
fn a_report_that_is_not_of_the_demo_stays() {
    let temp = folder(&[("fullrank-demo/report.html", "mine")]);
    let told = failure(temp.path(), &["demo"], 1);
    assert_eq!(
        told,
        "error: fullrank-demo/report.html: there is a file already\n\nReplace it by --force.\n"
    );
    let folder = temp.path().join("fullrank-demo");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn predictions_take_the_best_seed() {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph --entities 60 --relations 2 --types 4 --mean-degree 8");
    printed(temp.path(), "train graph --dim 4 --epochs 2 --batch 50 --seeds 2 --out runs");
    let output = run(temp.path(), "predict runs --subject t0/0 --relation r0");
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).starts_with("note: runs/seed-"), "{}", said(&output));
    printed(temp.path(), "evaluate runs");
}

#[test]
fn shells_and_man_know_the_program() {
    let temp = folder(&[]);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = printed(temp.path(), &format!("completions {shell}"));
        assert!(script.contains("answers-per-item") || script.contains("fullrank"), "{shell}");
    }
    printed(temp.path(), "man --out man1");
    let told = failure(temp.path(), &["man", "--out", "man1"], 1);
    assert!(told.contains("Replace it by --force."), "{told}");
    for page in ["fullrank.1", "fullrank-train.1", "fullrank-predict.1"] {
        assert!(temp.path().join("man1").join(page).exists(), "{page}");
    }
    let version = printed(temp.path(), "--version");
    assert!(version.starts_with(concat!("fullrank ", env!("CARGO_PKG_VERSION"))), "{version}");
}

/// The main job of the program, as the README has it.
#[test]
fn in_the_demo_the_mixture_is_ahead_by_more_than_the_spread() {
    let temp = folder(&[]);
    let summary = json(temp.path(), "demo --json");
    let mrr = |layer: usize| -> Vec<f64> {
        let test = summary["layers"][layer]["test"].as_array().unwrap();
        test.iter().map(|metrics| metrics["mrr"].as_f64().unwrap()).collect()
    };
    let lowest = |layer| mrr(layer).into_iter().fold(f64::INFINITY, f64::min);
    let highest = |layer| mrr(layer).into_iter().fold(0.0, f64::max);
    // Of three seeds the worst of one is better than the best of the other.
    assert!(lowest(2) > highest(0) && lowest(2) > highest(1), "{summary}");
    let updates = [0, 1, 2].map(|layer| summary["layers"][layer]["updates"].as_u64().unwrap());
    assert!(updates[0] == updates[1] && updates[1] == updates[2], "{updates:?}");
    let report = fs::read_to_string(temp.path().join("fullrank-demo/report.html")).unwrap();
    assert!(report.contains("mixture, K = 4"));
    // Everything is there already, so it is shown again at once.
    let again = printed(temp.path(), "demo");
    assert!(again.contains("The mixture of four is +"), "{again}");
}

/// A line whose numbers, which may differ on other processors, and whose padding are left out.
fn masked(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let digits = &rest[start..];
        let is_part = |c: char| c.is_ascii_digit() || ".,e-+".contains(c);
        let end = digits.find(|c| !is_part(c)).unwrap_or(digits.len());
        // A full stop or a comma behind a number is not of it.
        let end = digits[..end].trim_end_matches(|c: char| !c.is_ascii_digit()).len();
        text.push_str(rest[..start].trim_end_matches('-'));
        text.push('#');
        rest = &digits[end..];
    }
    text.push_str(rest);
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace("# seconds", "# second")
}

/// Whether every line shown was printed, one after the other but where `…` stands for others.
fn assert_shows(shown: &str, printed: &str) {
    let lines: Vec<String> = printed.lines().map(masked).collect();
    let shown: Vec<String> = shown.lines().map(masked).collect();
    let mut next = 0;
    for part in shown.split(|line| line == "…").filter(|part| !part.is_empty()) {
        let mut places = lines[next..].windows(part.len());
        let place = places.position(|found| found == part);
        let place = place.unwrap_or_else(|| panic!("expected {part:#?}\nin {printed}"));
        next += place + part.len();
    }
}

#[test]
fn numbers_are_left_out_of_what_the_tutorial_is_compared_by() {
    assert_eq!(masked(" 1  Czechia         0.3002  in train"), "# Czechia # in train");
    assert_eq!(masked("  \"log_probability\": -0.83e-5,"), "\"log_probability\": #,");
    assert_eq!(masked("of 23 (2,208 updates)."), "of # (# updates).");
    assert_shows("b 2\n…\nd 4\n", "a 1\nb 3\nc 4\nd 5\n");
    let is_told = |shown: &'static str| {
        std::panic::catch_unwind(|| assert_shows(shown, "a 1\nb 2\nc 3\n")).is_err()
    };
    assert!(is_told("a 1\nc 3\n") && is_told("b 2\n…\na 1\n"));
}

/// Runs every command of the tutorial as it is written, in a folder that has its data.
#[test]
fn the_tutorial_works_as_written() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let tutorial = fs::read_to_string(docs.join("tutorial.md")).unwrap();
    let temp = folder(&[]);
    fs::copy(docs.join("tutorial/europe.csv"), temp.path().join("europe.csv")).unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_fullrank"));
    let path =
        format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut n_commands = 0;
    for block in tutorial.split("```sh\n").skip(1) {
        let (commands, rest) = block.split_once("```").unwrap();
        let output = Command::new("sh")
            .args(["-ec", commands])
            .current_dir(temp.path())
            .env("PATH", &path)
            .env("NO_COLOR", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{commands}{}", said(&output));
        n_commands += 1;
        let Some((_, rest)) = rest.split_once("```text\n") else { continue };
        let shown = rest.split_once("```").unwrap().0;
        let printed = said(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_shows(shown, &printed);
    }
    assert!(n_commands >= 10, "{n_commands}");
}
