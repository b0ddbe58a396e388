//! Training and evaluating as a user meets them.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::path::Path;

use program::{folder, json, printed, run, said};

/// A small graph with planted structure, called `graph`.
fn with_graph() -> tempfile::TempDir {
    let temp = folder(&[]);
    printed(temp.path(), "generate graph --entities 200 --relations 4 --types 8 --mean-degree 15");
    temp
}

const QUICK: &str = "--dim 8 --batch 200 --epochs 3 --learning-rate 0.01";
const SOFTMAX: &str = "--output softmax";

/// Standard error of a command that fails with this exit code.
fn failure(folder: &Path, arguments: &str, code: i32) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    said(&output)
}

#[test]
fn a_trained_run_can_be_evaluated_without_its_data() {
    let temp = with_graph();
    let output = run(temp.path(), &format!("train graph {QUICK} {SOFTMAX} --out run"));
    assert!(output.status.success(), "{}", said(&output));
    let lines = said(&output);
    let epochs: Vec<&str> = lines.lines().filter(|line| line.starts_with("epoch ")).collect();
    assert_eq!(epochs.len(), 3, "{lines}");
    assert!(epochs[0].contains("1/3") && epochs[0].contains("valid MRR"), "{lines}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("distmult with a softmax, d = 8\nbest epoch "), "{text}");
    assert!(text.contains("a page to look at: run/report.html"), "{text}");
    assert!(text.contains("next: fullrank predict run --subject NAME"), "{text}");

    fs::remove_dir_all(temp.path().join("graph")).unwrap();
    fs::rename(temp.path().join("run"), temp.path().join("elsewhere")).unwrap();
    let report = json(temp.path(), "evaluate elsewhere --by direction --json");
    assert_eq!(report["split"], "test");
    assert_eq!(report["parameters"], (200 + 8) * 8);
    for key in ["mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10", "nll_filtered", "nll"] {
        assert!(report[key].as_f64().unwrap() > 0.0, "{key}");
    }
    let parts = report["by"].as_array().unwrap();
    assert_eq!(
        parts.iter().map(|part| part["n_ranks"].as_u64().unwrap()).sum::<u64>(),
        report["n_ranks"].as_u64().unwrap()
    );
    let text = printed(temp.path(), "evaluate elsewhere --split valid --by class --calibration");
    assert!(text.starts_with("distmult with a softmax, d = 8\n\n"), "{text}");
    assert!(text.contains("adjusted mean rank index"), "{text}");
    assert!(text.contains("calibration at temperature 1.000"), "{text}");
    let timing = json(temp.path(), "bench predict elsewhere --queries 7 --json");
    assert_eq!(timing["queries"], 7);
    assert!(timing["p50_seconds"].as_f64() <= timing["p99_seconds"].as_f64());
    let step = json(temp.path(), "bench step --run elsewhere --batch 20 --steps 1 --json");
    assert!(step["seconds"].as_f64().unwrap() > 0.0);
    let noise = json(temp.path(), "bench gradient elsewhere --batches 3 --below 0.01,0.1 --json");
    assert_eq!(noise["sparse"].as_array().unwrap().len(), 2);
    for sparse in noise["sparse"].as_array().unwrap() {
        assert_eq!((&sparse["added"], &sparse["density"]), (&0.0.into(), &1.0.into()), "few");
    }
    assert!(noise["variance_between_batches"].as_f64().unwrap() > 0.0);
    // Eight dimensions, or fewer objects.
    let passed = |what: &str| noise["passed"][what].as_f64().unwrap();
    assert!(passed("by_chance") < 1.0 && passed("gradients") > 0.0);
    assert!(passed("share_of_square") > 0.0 && passed("share_of_norm") <= 1.0 + 1e-9);
    let timing = json(temp.path(), "bench evaluate elsewhere --repeats 1 --json");
    assert_eq!(timing["n_ranks"], report["n_ranks"]);
}

#[test]
fn a_run_says_who_trained_it_and_what_popularity_comes_to() {
    let temp = with_graph();
    let train = format!("train graph {QUICK} {SOFTMAX} --seed 3 --out run");
    printed(temp.path(), &train);
    let read = || -> serde_json::Value {
        serde_json::from_slice(&fs::read(temp.path().join("run/run.json")).unwrap()).unwrap()
    };
    let about = read();
    let session = &about["sessions"][0];
    let command: Vec<&str> =
        session["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(command[1..], train.split(' ').collect::<Vec<_>>());
    let date = session["date"].as_str().unwrap();
    assert!(date.len() == "2026-01-01T00:00:00Z".len() && date.ends_with('Z'), "{date}");
    assert!(!session["machine"].as_str().unwrap().is_empty());
    assert!(session["threads"].as_u64().unwrap() >= 1);
    assert!(session["version"].as_str().unwrap().starts_with(env!("CARGO_PKG_VERSION")));

    let splits = about["result"]["splits"].as_array().unwrap();
    for (found, name) in splits.iter().zip(["valid", "test"]) {
        assert_eq!(found["split"], name);
        let evaluated = json(temp.path(), &format!("evaluate run --split {name} --json"));
        assert_eq!(found["model"]["mrr"], evaluated["mrr"]);
        assert_eq!(found["popularity"]["n_ranks"], evaluated["n_ranks"]);
        assert!(found["popularity"]["mrr"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(splits.len(), 2);
    let calibration = about["result"]["calibration"].as_array().unwrap();
    let temperatures: Vec<&serde_json::Value> =
        calibration.iter().map(|found| &found["temperature"]).collect();
    assert_eq!(temperatures, [&1.0.into(), &about["result"]["temperature"]]);
    let page = fs::read_to_string(temp.path().join("run/report.html")).unwrap();
    assert!(page.contains("test, by popularity"), "{page}");

    // Nothing was left to do, so that it was taken up again is not worth a note.
    printed(temp.path(), &format!("{train} --resume"));
    assert_eq!(read()["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn metrics_have_a_line_per_epoch() {
    let temp = with_graph();
    printed(temp.path(), &format!("train graph {QUICK} --out run --encoder complex --json"));
    let lines = fs::read_to_string(temp.path().join("run/metrics.jsonl")).unwrap();
    let records: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 3);
    assert_eq!(records[2]["epoch"], 3);
    assert!(records[2]["valid"]["mrr"].as_f64().unwrap() > 0.0);
}

#[test]
fn every_output_layer_trains_and_predicts() {
    let temp = with_graph();
    for output in json(temp.path(), "models --json")["outputs"].as_array().unwrap() {
        let output = output["name"].as_str().unwrap();
        let negatives = if output == "margin" { "--negatives 5" } else { "" };
        let arguments = format!("train graph {QUICK} --output {output} {negatives} --out {output}");
        let summary = json(temp.path(), &format!("{arguments} --json"));
        assert!(summary["test"]["mrr"].as_f64().unwrap() > 0.0, "{output}");
        let scored = json(temp.path(), &format!("evaluate {output} --json"));
        assert_eq!(scored["mrr"], summary["test"]["mrr"], "{output}");
    }
}

#[test]
fn every_encoder_trains_with_softmax_and_mixture() {
    let temp = with_graph();
    // As wide as the images of ConvE must be.
    let quick = QUICK.replace("--dim 8", "--dim 24");
    for encoder in json(temp.path(), "models --json")["encoders"].as_array().unwrap() {
        let encoder = encoder["name"].as_str().unwrap();
        // An MLP goes with no mixture, and by default is too wide for a quick test.
        let (outputs, narrow) = match encoder {
            "concatmlp" => (&["softmax", "sigmoid"], "--hidden 16,8"),
            _ => (&["softmax", "mixture"], ""),
        };
        for output in outputs {
            let arguments = format!("{quick} --encoder {encoder} --output {output} {narrow}");
            let summary = json(temp.path(), &format!("train graph {arguments} --json"));
            assert_eq!(summary["run"], format!("runs/graph-{encoder}-{output}"));
            assert!(summary["test"]["mrr"].as_f64().unwrap() > 0.0);
        }
    }
}

#[test]
fn a_run_folder_is_called_by_a_score_that_is_not_the_encoders_own() {
    let temp = with_graph();
    for (model, folder) in [
        ("--encoder transe", "transe-softmax"),
        ("--encoder transe --score l1", "transe-softmax"),
        ("--encoder transe --score l2", "transe-l2-softmax"),
        ("--score cosine", "distmult-cosine-softmax"),
    ] {
        let train = format!("train graph {QUICK} {SOFTMAX} {model} --force");
        let text = printed(temp.path(), &train);
        assert!(text.contains(&format!("predict runs/graph-{folder} ")), "{text}");
    }
    let text = printed(temp.path(), "evaluate runs/graph-transe-l2-softmax");
    assert!(text.starts_with("transe scored by l2 with a softmax, d = 8\n"), "{text}");
}

#[test]
fn signs_are_told_by_any_output_layer() {
    let temp = with_graph();
    for output in ["sigmoid", "mixture-of-sigmoids", "softmax"] {
        let learning = "--dim 16 --batch 50 --epochs 15 --learning-rate 0.02";
        let arguments = format!("train graph {learning} --output {output} --out {output} --json");
        let summary = json(temp.path(), &arguments);
        let has_nll = output == "softmax";
        for key in ["nll", "nll_filtered"] {
            assert_eq!(summary["test"][key].is_null(), !has_nll, "{output}");
        }
        let report = json(temp.path(), &format!("evaluate {output} --task signs --json"));
        assert_eq!((&report["task"], &report["split"]), (&"signs".into(), &"test".into()));
        for key in ["auroc", "average_precision", "f1", "precision", "recall", "threshold"] {
            let share = report[key].as_f64().unwrap();
            assert!(share > 0.0 && share < 1.0, "{output}, {key}: {share}");
        }
        // Better than chance, which is ½ however rare positives are.
        assert!(report["auroc"].as_f64().unwrap() > 0.55, "{report}");
        // 200 objects of each query, but for those that train and valid have.
        let number = |key: &str| report[key].as_u64().unwrap();
        assert!(number("n_positives") + number("n_negatives") < 200 * number("n_queries"));
    }
    let text = printed(temp.path(), "evaluate sigmoid --task signs");
    assert!(text.starts_with("distmult with sigmoids, d = 16\n\n"), "{text}");
    assert!(text.contains("AUROC") && text.contains("where F1 is largest on validation"), "{text}");
    assert!(!text.contains("shares"), "{text}");
    let text = printed(temp.path(), "evaluate softmax --task signs --split valid");
    assert!(text.contains("probabilities are shares"), "{text}");
    let said = failure(temp.path(), "evaluate softmax --task signs --by class", 2);
    assert!(said.contains("--by is for ranks; expected it without --task signs"), "{said}");
}

#[test]
fn a_sigmoid_says_that_its_probabilities_are_those_of_triples() {
    let temp = with_graph();
    let output = run(temp.path(), &format!("train graph {QUICK} --output sigmoid --out run"));
    assert!(output.status.success() && !said(&output).contains("NLL"), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.contains('–'), "{table}");
    let page = fs::read_to_string(temp.path().join("run/report.html")).unwrap();
    assert!(page.contains("distmult with sigmoids") && page.contains("that of the triple to hold"));
    let text = printed(temp.path(), "evaluate run --calibration");
    assert!(
        text.contains("calibration at temperature 1.000") && text.contains("queries"),
        "{text}"
    );
    assert!(!text.contains("NLL filtered 0"), "{text}");

    let names = fs::read_to_string(temp.path().join("graph/test.tsv")).unwrap();
    let fields: Vec<&str> = names.lines().next().unwrap().split('\t').collect();
    let query = format!("predict run --subject {} --relation {}", fields[0], fields[1]);
    let text = printed(temp.path(), &query);
    assert!(text.contains("that of the triple to hold"), "{text}");
    assert!(!text.contains("Temperature"), "{text}");
    let answers = json(temp.path(), &format!("{query} --json"));
    assert_eq!((&answers["meaning"], &answers["temperature"]), (&"holds".into(), &1.0.into()));
    let said = failure(temp.path(), &format!("{query} --temperature 2"), 1);
    assert!(said.contains("temperature 2 is for shares among answers"), "{said}");
}

#[test]
fn a_margin_says_that_no_probability_was_trained() {
    let temp = with_graph();
    let note = "note: with a margin, scores are trained for ranks alone; NLL and probabilities are of \
                their softmax, for which nothing was trained\n";
    let names = fs::read_to_string(temp.path().join("graph/test.tsv")).unwrap();
    let fields: Vec<&str> = names.lines().next().unwrap().split('\t').collect();
    let predict = format!("predict run --subject {} --relation {}", fields[0], fields[1]);
    for output in ["margin", "softmax"] {
        let train =
            format!("train graph {QUICK} --output {output} --negatives 5 --out run --force");
        for arguments in [&train, "evaluate run", "evaluate run --json", &predict] {
            let told = said(&run(temp.path(), arguments));
            let expected = usize::from(output == "margin");
            assert_eq!(told.matches(note).count(), expected, "{arguments}: {told}");
        }
    }
}

#[test]
fn a_config_file_holds_settings_and_options_go_over_it() {
    let temp = with_graph();
    fs::write(
        temp.path().join("my.toml"),
        "encoder = \"rescal\"\ndim = 4\nepochs = 1\noutput = \"mixture\"\ncomponents = 2\n",
    )
    .unwrap();
    printed(temp.path(), "train graph --config my.toml --dim 6 --out run");
    let config = fs::read_to_string(temp.path().join("run/config.toml")).unwrap();
    for line in ["encoder = \"rescal\"", "dim = 6", "components = 2", "layers = 2", "seed = 0"] {
        assert!(config.lines().any(|own| own == line), "{line} in\n{config}");
    }
    // What a run wrote can be given to another.
    printed(temp.path(), "train graph --config run/config.toml --out again");
    assert_eq!(
        fs::read(temp.path().join("run/model.safetensors")).unwrap(),
        fs::read(temp.path().join("again/model.safetensors")).unwrap()
    );
}

#[test]
fn several_seeds_are_trained_side_by_side() {
    let temp = with_graph();
    let arguments = format!("train graph {QUICK} --seed 5 --seeds 2 --out runs");
    let text = printed(temp.path(), &arguments);
    assert!(text.starts_with("distmult with a "), "{text}");
    assert!(text.contains("seed 5 test") && text.contains("seed 6 test"), "{text}");
    assert!(text.contains("test, mean") && text.contains("test, deviation"), "{text}");
    assert!(temp.path().join("runs/seed-6/model.safetensors").exists());
    // As if it had been stopped before the second began.
    fs::remove_dir_all(temp.path().join("runs/seed-6")).unwrap();
    let summaries = json(temp.path(), &format!("{arguments} --resume --json"));
    assert_eq!(summaries[1]["seed"], 6);
}

#[test]
fn all_faults_of_the_settings_are_reported_at_once() {
    let temp = with_graph();
    fs::write(temp.path().join("my.toml"), "epoch = 3\n").unwrap();
    assert_eq!(
        failure(temp.path(), "train graph --config my.toml --dim 0 --gate-dim 3 --out run", 2),
        "error: my.toml: `epoch`: there is no such setting; did you mean `epochs`?\n\
         --dim: expected a whole number from 1 to 100000, found `0`\n\
         --gate-dim: only means something with output = \"mixtape\"; found output = \"softmax\"\n\
         \n\
         `fullrank train --help` lists every setting.\n"
    );
    assert!(!temp.path().join("run").exists());
    fs::write(temp.path().join("bad.toml"), "dim 3\n").unwrap();
    let told = failure(temp.path(), "train graph --config bad.toml", 2);
    assert!(
        told.starts_with("error: bad.toml: not a config file: TOML parse error at line 1"),
        "{told}"
    );
    let told = failure(temp.path(), "train graph --config none.toml", 1);
    assert!(told.starts_with("error: none.toml: cannot be read: "), "{told}");
}

#[test]
fn frequencies_are_at_most_half_of_the_entities() {
    let temp = with_graph();
    let train = "train graph --output fourier --dim 240 --epochs 1 --out run";
    assert_eq!(
        failure(temp.path(), &format!("{train} --batch 100 --frequencies 101"), 2),
        "error: `frequencies`: above half of the objects, waves look like slower ones; expected at \
         most 100 for 200 entities, found 101\n\n\
         `fullrank train --help` lists every setting.\n"
    );
    let told = said(&run(temp.path(), train));
    assert!(
        told.contains("note: frequencies 100 chosen: half of the entities (--frequencies)"),
        "{told}"
    );
    let config = fs::read_to_string(temp.path().join("run/config.toml")).unwrap();
    assert!(config.contains("frequencies = 100\n"), "{config}");
}

#[test]
fn what_cannot_go_on_says_what_to_do() {
    let temp = with_graph();
    let train = format!("train graph {QUICK} {SOFTMAX} --out run");
    printed(temp.path(), &train);
    let told = |arguments: &str| failure(temp.path(), arguments, 1);
    assert_eq!(
        told(&train),
        "error: run: there is a run already\n\n\
         Go on with it by --resume, replace it by --force, or choose another folder by --out.\n"
    );
    assert_eq!(
        told("train graph --out run --dim 9 --resume"),
        "error: run: was trained with other settings: dim is `8`, not `9`\n\n\
         Leave these settings out to go on as before, or train anew in another folder by --out.\n"
    );
    assert_eq!(
        told("train graph --out rum --resume"),
        "error: rum: there is no such folder, and nothing to resume\n\n\
         Name the folder of a training that was begun, or leave --resume out to begin one.\n"
    );
    assert!(!temp.path().join("rum").exists());
    let default = told(&format!("train graph {SOFTMAX} --resume"));
    assert!(default.contains("error: runs/graph-distmult-softmax: there is no such"), "{default}");
    // Nothing else is blamed for another output.
    printed(temp.path(), &format!("train graph {QUICK} --output mixture --out mixture"));
    assert!(told("train graph --out mixture --output sigmoid --resume").starts_with(
        "error: mixture: was trained with other settings: output is `mixture`, not `sigmoid`\n\n"
    ));
    assert_eq!(
        told("evaluate graph"),
        "error: graph: not a run folder; expected `run.json` in it\n\n\
         A run folder is what `fullrank train DATA --out RUN` makes.\n"
    );
    assert_eq!(
        told("evaluate run --candidates graph"),
        "error: graph: expected test_negative_subjects.npy and test_negative_objects.npy\n\n\
         Name the folder that has them; docs/data.md says what they hold.\n"
    );
    assert_eq!(
        told(&format!("train graph {QUICK} {SOFTMAX} --out graph")),
        "error: graph: expected an empty folder or none\n\nChoose another folder by --out.\n"
    );
    printed(temp.path(), "generate other --entities 100 --relations 4 --types 8 --mean-degree 15");
    assert_eq!(
        told("train other --out run --resume"),
        "error: run: was trained on another dataset\n\n\
         Name the data it was trained on, read with the same options, or train anew in another \
         folder by --out.\n"
    );
    let told = told("train graph --dim 8 --batch 50 --learning-rate 1e30 --out broken");
    assert!(told.contains("error: loss became "), "{told}");
    assert!(
        told.contains("Train anew with a lower learning_rate (now 1e30), or with clip."),
        "{told}"
    );
    printed(temp.path(), &format!("{train} --force"));
}

#[test]
fn a_training_too_large_for_memory_is_refused_before_it_starts() {
    let temp = with_graph();
    let told = failure(
        temp.path(),
        "train graph --encoder rescal --output softmax --batch 9 --dim 100000 --out run",
        1,
    );
    assert!(told.starts_with("error: training needs about "), "{told}");
    assert!(told.contains("A smaller --dim, --batch or --memory-budget needs less"), "{told}");
    assert!(!temp.path().join("run").exists());
}

#[test]
fn damage_is_found_and_nothing_is_changed() {
    let temp = with_graph();
    printed(temp.path(), &format!("train graph {QUICK} {SOFTMAX} --out run"));
    let path = temp.path().join("run/model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(
        failure(temp.path(), "evaluate run", 1),
        "error: run/model.safetensors: damaged: tensor `encoder.relation` is not what was written\n\n\
         Take the folder from a copy, or train anew by --force. Nothing was changed.\n"
    );
    assert_eq!(fs::read(&path).unwrap(), bytes);
}
