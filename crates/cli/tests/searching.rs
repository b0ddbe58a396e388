//! Searching settings as a user does it, killed and not.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use program::{command, folder, json, printed, run, said};
use serde_json::Value;

const SPACE: &str = "dim = 8\nepochs = 9\nlearning_rate = { log = [1e-3, 1e-1] }\n\
                     [[recipe]]\noutput = \"softmax\"\nbatch = { choice = [50, 100] }\n\
                     [[recipe]]\noutput = \"mixture\"\ncomponents = { choice = [2, 4] }\n\
                     batch = { linear = [100, 200] }\n";

/// A small graph with planted structure, called `graph`, and a space.
fn with_graph() -> tempfile::TempDir {
    let temp = folder(&[("my.toml", SPACE)]);
    printed(temp.path(), "generate graph --entities 200 --relations 4 --types 8 --mean-degree 15");
    temp
}

/// What is said by a command that fails with this exit code.
fn failure(folder: &Path, arguments: &str, code: i32) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    said(&output)
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn the_best_of_some_trials_is_a_run_like_any_other() {
    let temp = with_graph();
    let output = run(temp.path(), "search graph --space my.toml --trials 6 --out found");
    let (told, text) = (said(&output), String::from_utf8(output.stdout).unwrap());
    assert!(output.status.success(), "{told}");
    assert!(told.contains("trial 1: output softmax, batch "), "{told}");
    assert!(told.contains("trial 2: output mixture, components "), "{told}");
    assert!(told.contains("trial 1: epoch 1/9  valid MRR 0."), "{told}");
    assert!(told.contains(" goes on to epoch 3 of 9\n"), "{told}");
    assert!(text.starts_with(" trial  epochs  valid MRR  seconds\n"), "{text}");
    assert!(text.contains(" of 6 is the best on validation, found in "), "{text}");
    assert!(text.contains("next: fullrank predict found --subject NAME"), "{text}");
    assert!(text.contains("\nits settings: found/best.toml\n"), "{text}");

    let best = read(temp.path(), "found/best");
    let winner = format!("found/{}", best.trim_end());
    assert_eq!(
        read(temp.path(), "found/best.toml"),
        read(temp.path(), &format!("{winner}/config.toml"))
    );
    assert!(temp.path().join(&winner).join("report.html").exists());
    // By the folder of the search, and by that of any trial.
    let output = run(temp.path(), "evaluate found --json");
    let note = format!("note: {winner} is the best of its trials on validation\n");
    assert!(said(&output).starts_with(&note), "{}", said(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["mrr"], json(temp.path(), &format!("evaluate {winner} --json"))["mrr"]);
    for trial in 1..=6 {
        let (name, train) = (format!("found/trials/{trial:04}"), "train graph --resume --out");
        printed(temp.path(), &format!("evaluate {name}"));
        printed(temp.path(), &format!("{train} {name}"));
    }
    printed(temp.path(), "train graph --config found/best.toml --epochs 1 --out again");
}

#[test]
fn a_search_is_one_document_and_its_winner_has_several_seeds() {
    let temp = with_graph();
    let search = "search graph --space my.toml --metric nll --trials 5 --rungs 2 --dim 6 --seed 7";
    let found = json(temp.path(), &format!("{search} --seeds 3 --out found --json"));
    assert_eq!((&found["metric"], &found["rungs"]), (&"nll".into(), &2.into()));
    let trials = found["trials"].as_array().unwrap();
    assert_eq!(trials.len(), 5);
    let value = |trial: &Value| trial["value"].as_f64().unwrap();
    let least = trials.iter().map(value).fold(f64::INFINITY, f64::min);
    let best = &trials[found["best"].as_u64().unwrap() as usize - 1];
    assert_eq!((value(best), &best["outcome"]), (least, &"over".into()));
    assert!(trials.iter().any(|trial| trial["outcome"] == "stopped" && trial["epochs"] == 3));
    assert!(best["settings"]["learning_rate"].as_f64().unwrap() >= 1e-3);
    assert!(best["settings"].get("dim").is_none(), "it is the same in all trials");
    let results = found["results"].as_array().unwrap();
    let seeds: Vec<u64> = results.iter().map(|run| run["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [7, 8, 9]);
    assert_eq!(results[0]["run"], best["run"]);
    assert_eq!(results[2]["run"], "found/seeds/seed-9");
    assert!(results.iter().all(|run| run["test"]["mrr"].as_f64().unwrap() > 0.0));
    assert!(read(temp.path(), "found/best.toml").starts_with("encoder = \"distmult\"\n"));
    assert!(read(temp.path(), "found/space.toml").starts_with("dim = 6\nepochs = 9\n"));
}

/// What a search has come to, times left out.
fn outcome(folder: &Path) -> (Value, String, Vec<u8>) {
    let mut log: Value = serde_json::from_str(&read(folder, "search.json")).unwrap();
    for step in log["steps"].as_array_mut().unwrap() {
        step["seconds"] = Value::Null;
    }
    let best = read(folder, "best");
    let weights = fs::read(folder.join(best.trim_end()).join("model.safetensors")).unwrap();
    (log, read(folder, "best.toml"), weights)
}

#[test]
fn killed_again_and_again_a_search_comes_to_the_same() {
    let temp = with_graph();
    let search = "search graph --space my.toml --epochs 45 --trials 7 --resume --out";
    for out in ["whole", "killed"] {
        fs::create_dir(temp.path().join(out)).unwrap();
    }
    printed(temp.path(), &format!("{search} whole"));
    let mut alive = 0;
    for milliseconds in [100, 150, 200, 250, 300, 350, 200, 150, 300, 250] {
        let mut killed = command(temp.path(), &format!("{search} killed"));
        let mut child = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        alive += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(alive >= 2, "the kills hardly ever meet a search");
    printed(temp.path(), &format!("{search} killed"));
    let [whole, killed] = ["whole", "killed"].map(|out| outcome(&temp.path().join(out)));
    assert_eq!(whole.0, killed.0);
    assert!(whole == killed);
}

#[test]
fn a_search_goes_on_for_longer_but_not_otherwise() {
    let temp = with_graph();
    let search = "search graph --space my.toml --out found --trials";
    printed(temp.path(), &format!("{search} 2"));
    let told = |arguments: &str| failure(temp.path(), arguments, 1);
    assert_eq!(
        told(&format!("{search} 4")),
        "error: found: there is a search already\n\n\
         Go on with it by --resume, replace it by --force, or choose another folder by --out.\n"
    );
    assert_eq!(
        told(&format!("{search} 4 --resume --metric nll --rungs 2 --dim 9")),
        "error: found: was searched otherwise: metric is `mrr`, not `nll`, rungs is `3`, not `2`, its \
         space is that of space.toml\n\n\
         Leave these options out to go on as before, or search anew in another folder by --out.\n"
    );
    let n_trials = |arguments: &str| {
        let found = json(temp.path(), &format!("{arguments} --json"));
        found["trials"].as_array().unwrap().len()
    };
    assert_eq!(n_trials(&format!("{search} 4 --resume")), 4);
    assert_eq!(
        n_trials("search graph --out found --resume"),
        4,
        "as before, where nothing is said"
    );
    assert_eq!(n_trials(&format!("{search} 1 --force")), 1);
    assert!(!temp.path().join("found/trials/0002").exists());
}

#[test]
fn a_search_that_cannot_be_says_why() {
    let temp = with_graph();
    let told = |arguments: &str| failure(temp.path(), arguments, 1);
    assert_eq!(
        told("search graph --out none --resume"),
        "error: none: there is no such folder, and nothing to resume\n\n\
         Name the folder of a search that was begun, or leave --resume out to begin one.\n"
    );
    assert_eq!(
        told("search graph --out graph"),
        "error: graph: expected an empty folder or none\n\nChoose another folder by --out.\n"
    );
    assert_eq!(
        told("search graph --space none.toml"),
        "error: none.toml: cannot be read: No such file or directory (os error 2)\n\n\
         See that it is there and may be read.\n"
    );
    let wrong = |arguments: &str| failure(temp.path(), arguments, 2);
    fs::write(temp.path().join("wrong.toml"), "dim = { choice = [0] }\nepoch = 3").unwrap();
    assert_eq!(
        wrong("search graph --space wrong.toml"),
        "error: wrong.toml: `dim`: expected a whole number from 1 to 100000, found `0`\n\
         wrong.toml: `epoch`: there is no such setting; did you mean `epochs`?\n\n\
         `fullrank train --help` lists every setting.\n"
    );
    let told = wrong("search graph --budget 1x");
    let expected = "error: invalid value '1x' for '--budget <TIME>': expected a time such as 90s, 20m, 1h \
                    or 1h30m, found `1x`";
    assert!(told.starts_with(expected), "{told}");
}

#[test]
fn a_budget_that_is_too_short_is_said_to_be() {
    let temp = with_graph();
    let search = "search graph --space my.toml --out found";
    let told = failure(temp.path(), &format!("{search} --budget 0.001s"), 1);
    let reason = "error: none of 1 trial came to anything\n  trial 1: 9 epochs would take about ";
    assert!(told.contains(reason), "{told}");
    // As long as the time was enough for some, and of those there is a best.
    let found = json(temp.path(), &format!("{search} --budget 20s --trials 3 --force --json"));
    assert_eq!(found["trials"].as_array().unwrap().len(), 3);
}
