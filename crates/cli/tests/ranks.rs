//! Ranks, and what they are set beside, as a user meets them.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;
use std::path::Path;

use fullrank_engine::rank_file::{COLUMNS, RankLine, read};
use fullrank_graph::{Direction, Split};
use program::{folder, json, printed, run, said};

const QUICK: &str = "--output softmax --dim 8 --batch 32 --epochs 3 --learning-rate 0.02";

/// People on a ring who know the next two, one with a name that CSV has to quote; called `people`.
fn with_people() -> tempfile::TempDir {
    let name = |i: usize| match i % 30 {
        5 => "a, \"b\"".to_owned(),
        i => format!("person {i}"),
    };
    let lines = |step: usize, relation: &str| -> String {
        (0..30).map(|i| format!("{}\t{relation}\t{}\n", name(i), name(i + step))).collect()
    };
    let train = [lines(1, "knows"), lines(4, "likes, really")].concat();
    folder(&[
        ("people/train.tsv", &train),
        ("people/valid.tsv", &lines(2, "knows")),
        ("people/test.tsv", &lines(5, "likes, really")),
    ])
}

fn with_run() -> tempfile::TempDir {
    let temp = with_people();
    printed(temp.path(), &format!("train people {QUICK} --out run"));
    temp
}

fn mean(lines: &[RankLine], value: impl Fn(&RankLine) -> f64) -> f64 {
    lines.iter().map(value).sum::<f64>() / lines.len() as f64
}

fn is_near(found: f64, expected: &serde_json::Value) -> bool {
    (found - expected.as_f64().unwrap()).abs() < 1e-9
}

/// Standard error of a command that fails with this exit code.
fn failure(folder: &Path, arguments: &str, code: i32) -> String {
    let output = run(folder, arguments);
    assert_eq!(output.status.code(), Some(code), "{}", said(&output));
    said(&output)
}

#[test]
fn ranks_are_written_for_others_to_average() {
    let temp = with_run();
    let here = temp.path();
    for (split, relation) in [(Split::Valid, "knows"), (Split::Test, "likes, really")] {
        let output = run(here, &format!("evaluate run --split {split} --ranks {split}.csv --json"));
        assert!(said(&output).contains(&format!("60 ranks are in {split}.csv")));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let path = here.join(format!("{split}.csv"));
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().next().unwrap(), COLUMNS.join(","));
        let lines = read(&path).unwrap();
        assert_eq!(lines.len(), 60);
        assert!(is_near(mean(&lines, |line| 1.0 / line.rank), &report["mrr"]));
        let optimistic = mean(&lines, |line| 1.0 / f64::from(line.rank_optimistic));
        assert!(is_near(optimistic, &report["optimistic"]["mrr"]));
        assert!(is_near(mean(&lines, |line| line.nll.unwrap()), &report["nll"]));
        let filtered = mean(&lines, |line| line.nll_filtered.unwrap());
        assert!(is_near(filtered, &report["nll_filtered"]));
        assert!(lines.iter().all(|line| line.split == split && line.relation == relation));
        // Every triple in both directions, in the words of the data.
        let triples = fs::read_to_string(here.join(format!("people/{split}.tsv"))).unwrap();
        for direction in [Direction::Forward, Direction::Inverse] {
            let line = |line: &RankLine| {
                let names = [&*line.subject, &*line.relation, &*line.object];
                names.join("\t")
            };
            let found = lines.iter().filter(|line| line.direction == direction).map(line);
            let mut found: Vec<String> = found.collect();
            let mut expected: Vec<&str> = triples.lines().collect();
            found.sort();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn what_has_no_nll_leaves_it_empty() {
    let temp = with_people();
    let train = QUICK.replace("softmax", "sigmoid");
    printed(temp.path(), &format!("train people {train} --out run"));
    printed(temp.path(), "evaluate run --ranks ranks.csv");
    let text = fs::read_to_string(temp.path().join("ranks.csv")).unwrap();
    assert!(text.lines().skip(1).all(|line| line.ends_with(",,")), "{text}");
    let lines = read(&temp.path().join("ranks.csv")).unwrap();
    assert!(lines.iter().all(|line| line.nll.is_none() && line.nll_filtered.is_none()));
}

#[test]
fn ranks_are_replaced_only_by_force() {
    let temp = with_run();
    let here = temp.path();
    fs::write(here.join("ranks.csv"), "mine").unwrap();
    let told = |arguments: &str, code| failure(here, arguments, code);
    assert_eq!(
        told("evaluate run --ranks ranks.csv", 1),
        "error: ranks.csv: there is a file already\n\nReplace it by --force.\n"
    );
    assert_eq!(
        told("evaluate run --ranks none/ranks.csv", 1),
        "error: none: there is no such folder\n"
    );
    assert!(
        told("evaluate run --ranks ranks.txt", 2).contains("expected a name that ends in .csv")
    );
    assert!(
        told("evaluate run --task signs --ranks signs.csv", 2)
            .contains("--ranks is for ranks; expected it without --task signs")
    );
    assert_eq!(fs::read_to_string(here.join("ranks.csv")).unwrap(), "mine");
    printed(here, "evaluate run --ranks ranks.csv --force");
    assert_eq!(read(&here.join("ranks.csv")).unwrap().len(), 60);
    let report = json(here, "evaluate run --json");
    assert_eq!(report["n_ranks"], 60);
}

#[test]
fn ranks_can_be_kept_with_the_run() {
    let temp = with_people();
    let here = temp.path();
    printed(here, &format!("train people {QUICK} --out run --keep-ranks"));
    for split in ["valid", "test"] {
        printed(here, &format!("evaluate run --split {split} --ranks {split}.csv"));
        let kept = fs::read_to_string(here.join(format!("run/ranks-{split}.csv"))).unwrap();
        assert_eq!(kept, fs::read_to_string(here.join(format!("{split}.csv"))).unwrap());
    }
    let page = fs::read_to_string(here.join("run/report.html")).unwrap();
    assert!(page.contains("--keep-ranks --out run --force"), "{page}");
    printed(here, &format!("train people {QUICK} --out run --force"));
    assert!(!here.join("run/ranks-test.csv").exists());
}

#[test]
fn baselines_stand_beside_every_metric() {
    let temp = with_run();
    let here = temp.path();
    let report = json(here, "evaluate run --by relation --json");
    for baseline in ["popularity", "random"] {
        for key in ["mrr", "mr", "hits_at_1", "hits_at_3", "hits_at_10", "nll_filtered", "nll"] {
            assert!(report[baseline][key].is_number(), "{baseline} {key}");
        }
        let [part] = &report["by"].as_array().unwrap()[..] else { panic!("one relation") };
        assert_eq!(part[baseline], report[baseline]);
    }
    // Of 30 entities each, one answer of the query is known from training.
    let of_29: f64 = (1..=29).map(|rank| 1.0 / f64::from(rank)).sum::<f64>() / 29.0;
    assert!(is_near(of_29, &report["random"]["mrr"]), "{}", report["random"]);
    assert!(is_near(15.0, &report["random"]["mr"]));
    assert!(is_near(29_f64.ln(), &report["random"]["nll_filtered"]));
    assert!(is_near(30_f64.ln(), &report["random"]["nll"]));
    assert_eq!(report["random"]["amri"], 0.0);
    // All entities stand once in training, so popularity has nothing to go by.
    assert_eq!(report["popularity"]["mr"], 15.0);

    let text = printed(here, "evaluate run --by direction");
    assert!(text.contains("\n test, by popularity     60  "), "{text}");
    assert!(text.contains("\n test, at random         60  0.1366  15.0  "), "{text}");
    assert!(text.contains("  MRR by popularity  MRR at random\n"), "{text}");
    let about = fs::read_to_string(here.join("run/run.json")).unwrap();
    let about: serde_json::Value = serde_json::from_str(&about).unwrap();
    assert_eq!(about["result"]["splits"][1]["random"], report["random"]);
    let page = fs::read_to_string(here.join("run/report.html")).unwrap();
    for name in ["valid, at random", "test, by popularity", "<th>MRR at random</th>"] {
        assert!(page.contains(name), "{name}");
    }
}

#[test]
fn a_model_below_popularity_is_said_to_be() {
    // Everybody knows the hub, which is all there is to learn.
    let knows = |from: usize, to: usize| -> String {
        (from..to).map(|i| format!("p{i}\tknows\thub\n")).collect()
    };
    let likes: String = (0..60).map(|i| format!("p{i}\tlikes\tp{}\n", (i + 1) % 60)).collect();
    let temp = folder(&[
        ("hub/train.tsv", &(knows(0, 40) + &likes)),
        ("hub/valid.tsv", &knows(40, 50)),
        ("hub/test.tsv", &knows(50, 60)),
    ]);
    let here = temp.path();
    let settings = "--output softmax --dim 2 --batch 4 --epochs 1 --learning-rate 1e-9";
    let output = run(here, &format!("train hub {settings} --out run --json"));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let told = said(&output);
    for split in ["valid", "test"] {
        let mrr = summary[split]["mrr"].as_f64().unwrap();
        let popularity = &summary[&format!("{split}_baselines")]["popularity"]["mrr"];
        let note = format!(
            "note: {split} MRR {mrr:.4} is below the {:.4} of popularity alone: counting how often each \
             entity stands with the relation in training ranks better",
            popularity.as_f64().unwrap()
        );
        assert!(told.contains(&format!("{note}\n")), "{note} in {told}");
        let page = fs::read_to_string(here.join("run/report.html")).unwrap();
        assert!(page.contains(&note.replace("note: ", "<p>Note: ")), "{note}");
        let evaluated = said(&run(here, &format!("evaluate run --split {split}")));
        assert!(evaluated.contains(&note), "{evaluated}");
    }
}

#[test]
fn seeds_share_their_baselines() {
    let temp = with_people();
    let text = printed(temp.path(), &format!("train people {QUICK} --seeds 2 --out runs"));
    for (row, times) in [("test, mean", 1), ("test, by popularity", 1), ("test, at random", 1)] {
        assert_eq!(text.matches(row).count(), times, "{row} in {text}");
    }
}

/// What `numpy.save` writes of a table of whole numbers.
fn npy(rows: &[[i32; 3]]) -> Vec<u8> {
    let header =
        format!("{{'descr': '<i4', 'fortran_order': False, 'shape': ({}, 3), }}\n", rows.len());
    let length = (header.len() as u16).to_le_bytes();
    let values: Vec<u8> = rows.iter().flatten().flat_map(|value| value.to_le_bytes()).collect();
    [b"\x93NUMPY\x01\x00", length.as_slice(), header.as_bytes(), &values].concat()
}

/// A ring of numbered people, called `people`, with three candidates for each side of each held-out
/// triple in a folder of their own.
fn with_candidates() -> tempfile::TempDir {
    let lines = |step: usize| -> String {
        (0..30).map(|i| format!("p/{i}\tknows\tp/{}\n", (i + step) % 30)).collect()
    };
    let temp = folder(&[
        ("people/train.tsv", &(lines(1) + &lines(4))),
        ("people/valid.tsv", &lines(2)),
        ("people/test.tsv", &lines(5)),
        ("given/readme", ""),
    ]);
    // None of them is the answer: steps of 6, 7 and 8 from the subject, or back from the object.
    let rows = |steps: [i32; 3]| -> Vec<[i32; 3]> {
        (0..30).map(|i| steps.map(|step| (i + step).rem_euclid(30))).collect()
    };
    for (split, step) in [("valid", 2), ("test", 5)] {
        let arrays =
            [("objects", rows([6, 7, 8])), ("subjects", rows([6, 7, 8].map(|back| step - back)))];
        for (side, rows) in arrays {
            let path = temp.path().join(format!("given/{split}_negative_{side}.npy"));
            fs::write(path, npy(&rows)).unwrap();
        }
    }
    temp
}

#[test]
fn candidates_have_an_nll_of_their_own() {
    let temp = with_candidates();
    let here = temp.path();
    printed(here, &format!("train people {QUICK} --out run"));
    let all = json(here, "evaluate run --json");
    assert!(all["nll_candidates"].is_null());
    let among = json(here, "evaluate run --candidates given --by direction --ranks r.csv --json");
    for key in ["nll_filtered", "nll"] {
        assert!(is_near(among[key].as_f64().unwrap(), &all[key]), "{key}");
        assert!(is_near(among["random"][key].as_f64().unwrap(), &all["random"][key]), "{key}");
    }
    assert!(among["nll_candidates"].as_f64() < among["nll_filtered"].as_f64());
    // Four that compete: one over the rank is 25/48 on average.
    assert!(is_near(25.0 / 48.0, &among["random"]["mrr"]));
    assert!(is_near(4_f64.ln(), &among["random"]["nll_candidates"]));
    assert_eq!((&among["random"]["mr"], &among["popularity"]["mr"]), (&2.5.into(), &2.5.into()));
    assert!(among["mr"].as_f64().unwrap() <= 4.0);
    assert!(read(&here.join("r.csv")).unwrap().iter().all(|line| line.candidates == 4));
    let text = printed(here, "evaluate run --candidates given --split valid");
    assert!(!text.contains("if test answers are filtered too"), "{text}");
    assert!(text.contains("Hits@10  NLL among candidates  NLL filtered    NLL\n"), "{text}");
    assert!(
        text.contains(
            "\nRanks, and the NLL among candidates, are among an answer and the candidates given for \
             it; the other NLLs are over all entities.\n"
        ),
        "{text}"
    );
}

#[test]
fn candidates_serve_in_training_too() {
    let temp = with_candidates();
    let here = temp.path();
    let train = format!("train people {QUICK} --out run");
    let summary = json(here, &format!("{train} --candidates given --json"));
    let about_epochs = fs::read_to_string(here.join("run/metrics.jsonl")).unwrap();
    for line in about_epochs.lines() {
        let epoch: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(epoch["valid"]["mr"].as_f64().unwrap() <= 4.0, "{line}");
        assert!(epoch["valid"]["nll_candidates"].as_f64().unwrap() > 0.0, "{line}");
    }
    let page = fs::read_to_string(here.join("run/report.html")).unwrap();
    for part in ["<th>NLL among candidates</th>", "--candidates given --out run --force"] {
        assert!(page.contains(part), "{part}");
    }
    // From now on the run has to do without the files.
    fs::rename(here.join("given"), here.join("gone")).unwrap();
    let again = json(here, &format!("{train} --resume --json"));
    let kept = json(here, "evaluate run --candidates run --json");
    for found in [&again["test"], &kept] {
        for key in ["mrr", "nll_candidates", "nll_filtered"] {
            assert_eq!(found[key], summary["test"][key], "{key}");
        }
    }
    let told = said(&run(here, "evaluate run"));
    let note = "note: this run was trained with given candidates; --candidates with its folder ranks \
                among them\n";
    assert!(told.contains(note), "{told}");
    printed(here, &format!("train people {QUICK} --out plain"));
    assert_eq!(
        failure(here, &format!("train people {QUICK} --out plain --resume --candidates gone"), 1),
        "error: plain: was trained with other candidates, or with none\n\n\
         Leave --candidates out to go on with what it was trained with, or train anew in another folder \
         by --out.\n"
    );
    assert_eq!(
        failure(here, "evaluate run --candidates plain", 1),
        "error: plain: expected a run that was trained with --candidates for test\n"
    );
    assert_eq!(
        failure(here, "evaluate run --candidates run --split train", 1),
        "error: run: expected a run that was trained with --candidates for train\n"
    );
    let seeds = format!("train people {QUICK} --seeds 2 --candidates gone --out runs");
    let text = printed(here, &seeds);
    for part in
        ["  NLL among candidates  ", "test, mean", "\nRanks, and the NLL among candidates, are"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
}
