//! The program as a user meets it: what it prints, what it writes, how it exits.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

mod program;

use program::{command, folder, json, printed, run, said};

/// A family in three splits, with a symmetric relation, an unseen entity and a repeated triple.
fn family() -> tempfile::TempDir {
    folder(&[
        (
            "family/train.tsv",
            "ann\tparent\tbob\nann\tparent\tcid\nbob\tsibling\tcid\nann\tparent\tbob\n",
        ),
        ("family/valid.tsv", "cid\tparent\tdot\n"),
        ("family/test.tsv", "cid\tsibling\tbob\n"),
    ])
}

#[test]
fn inspect_prints_tables() {
    let folder = family();
    let output = run(folder.path(), "inspect family --dim 2 --verify");
    assert_eq!(said(&output), "note: 1 repeated triple dropped from train\n");
    let text = String::from_utf8(output.stdout).unwrap();
    let (text, seconds) = text.trim_end().rsplit_once('\n').unwrap();
    assert!(seconds.ends_with(" s"), "{seconds}");
    let expected = "\
Graph
    entities  relations  triples  train  valid  test
           4          2        5      3      1     1

Answers per query
                            queries  mean  median  max
 without inverse relations        4  1.25       1    2
 with inverse relations           9  1.11       1    2

Queries by number of answers
    without inverse  with inverse
 1                3             8  ████████████████████████
 2                1             1  ███

Relations by class (many: 1.5 or more objects per subject, or subjects per object)
      relations  triples  test triples
 1-1          1        2             1
 1-N          1        3             0
 N-1          0        0             0
 N-N          0        0             0

Not in training
  1 entity and 0 relations; 1 triple of valid and 0 triples of test have one of them

Test leakage
  1 of 1 test triples (100.0 %) can be read off a training triple
 given away  of test triples  shared
          1                1   100 %  sibling is symmetric

Dimensions of a linear output layer (needed – enough)
                                                            without inverse  with inverse
 every ranking, any graph of this size                                    3             3
 every set of answers, any graph of this size                             4             4
 every distribution, any graph of this size                               3             3
 all sets of at most c = 2 or 2 answers: 2c + 1                         ≤ 5           ≤ 5
 this graph: sets of answers, by the paper's order: 2b + 1              ≤ 3           ≤ 3
 this graph: sets of answers                                              3             3
 this graph: answers before all others                                    2             2
 this graph: distributions                                                3             3
  With inverse relations:
  The answers of a query lie in at most 1 block, 1 in the paper's order; no order has fewer than 1.
  The sign rank of Y is at most 3 by the order of the objects, and at least 3 by a shattered set of rows in 3 by 4 of its entries.
  The matrix rank of Y is 4, modulo 2,832,803 and 3,471,311; the row of all ones is in its row space.
  9 rows (5 of them distinct), each a polynomial of degree 2 at most, have the right sign at all of 4 objects, by their roots and as a product H·Eᵀ of matrix rank 3 in whole numbers of up to 3 bits.

At d = 2
                           possible  of all
 rankings of all entities        12      24
 sets of answers                  8      16
                                                               dimensions of single models
 RESCAL and ComplEx, enough for this graph (Wang et al. 2017)                            8
 ComplEx, enough for any graph of this size                                              8
 TuckER, enough for any graph of this size                                               4
 models of distance, needed for any set of answers                                       3
  Of the 24 rankings of 4 entities, a linear output layer of d = 2 can give 12, and of their 16 sets 8.
  With inverse relations, the sets of answers of this graph need 3 dimensions, so 2 are too few; to give every answer its probability takes 3, 1.5 times as many.
  A softmax is advised: 0.8 training facts per entity; from 20 on a mixture is advised.
";
    assert_eq!(text, expected);
}

#[test]
fn inspect_gives_machines_one_document() {
    let folder = family();
    let report = json(folder.path(), "inspect family --effort low --json");
    assert_eq!(report["entities"], 4);
    assert_eq!(report["relations"], 2);
    assert_eq!(report["triples"], 5);
    assert_eq!(report["splits"]["train"], 3);
    assert_eq!(report["duplicates_dropped"]["train"], 1);
    assert_eq!(report["degree"]["forward"]["queries"], 4);
    assert_eq!(report["degree"]["both"]["max"], 2);
    assert_eq!(report["degree"]["both"]["median"], 1.0);
    assert_eq!(report["bounds"]["worst_case"], 5);
    assert_eq!(report["bounds"]["rcm"]["dimension"], 3);
    for what in ["best", "matrix_rank", "sign_rank"] {
        assert!(report["bounds"][what].is_null(), "{what} is not computed at low effort");
    }
    let report = json(folder.path(), "inspect family --json");
    let best = &report["bounds"]["best"];
    assert_eq!([&best["blocks_max"], &best["kappa"], &best["dimension"]], [1, 2, 3]);
    assert_eq!(report["bounds_forward"]["best"]["blocks_max_at_least"], 1);
    assert_eq!(report["bounds"]["matrix_rank"]["rank"], 4);
    assert_eq!(report["bounds"]["matrix_rank"]["exact"], true);
    let sign_rank = &report["bounds"]["sign_rank"];
    assert_eq!([&sign_rank["lower"], &sign_rank["upper"]], [3, 3]);
    assert_eq!([&sign_rank["lower_by"], &sign_rank["upper_by"]], ["shattered", "order"]);
    assert_eq!(report["bounds"]["sign_rank_witness"]["rows"][0]["subject"], "bob");
    assert!(report["bounds"]["decomposition"].is_null());
    assert_eq!(report["leakage"]["pairs"][0]["likeness"], "symmetric");
    assert_eq!(report["unseen"]["valid_triples"], 1);
    assert!(report["seconds"].is_f64());
}

#[test]
fn inspect_writes_a_page_and_replaces_none_unasked() {
    let folder = family();
    let page = folder.path().join("page.html");
    let inspect = |options: &str| run(folder.path(), &format!("inspect family {options}"));
    assert_eq!(inspect("--html page.html --dim 2").status.code(), Some(0));
    let html = fs::read_to_string(&page).unwrap();
    for text in ["this graph: distributions", "What is d = 2 good for?", "loglog", "matrix"] {
        assert!(html.contains(text), "{text}");
    }
    let refused = inspect("--html page.html");
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        said(&refused),
        "error: page.html: there is a file already\n\nReplace it by --force.\n"
    );
    assert_eq!(inspect("--html page.html --force --effort low").status.code(), Some(0));
    assert_ne!(fs::read_to_string(&page).unwrap(), html);
}

#[test]
fn standard_input_and_single_files_are_split() {
    let folder = folder(&[]);
    let mut child = command(folder.path(), "inspect - --format csv --split pykeen:1 --json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let rows: String = (0..10).map(|i| format!("a{i},r,b\n")).collect();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(format!("head,relation,tail\n{rows}").as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        said(&output),
        "error: expected at least 10 training triples, to have every entity and relation, found 8\n\n\
         Use a larger first share in --ratios, or --split random:SEED.\n"
    );
    // Only `a0 r b` can be spared: `a0` has another triple, all else would lose its last one.
    fs::write(folder.path().join("g.csv"), format!("{rows}a0,q,b\n")).unwrap();
    let output = run(folder.path(), "inspect g.csv --split random:7 --ratios 0.6,0.2,0.2 --json");
    assert_eq!(
        said(&output),
        "note: one file, split by `random:7` into 10 / 0 / 1 (train / valid / test)\n\
         note: 3 triples fewer held out than asked for: training needs them to have every entity and \
         relation\n"
    );
}

#[test]
fn what_may_be_a_mistake_is_pointed_out() {
    let rows: String = (0..10).map(|i| format!("a{i},r,b\n")).collect();
    let header = format!("Drug,Effect,Disease\n{rows}");
    let folder = folder(&[("g.csv", header.as_str()), ("d/train.csv", rows.as_str())]);
    assert!(said(&run(folder.path(), "inspect g.csv")).starts_with(
        "note: g.csv: the names in the first line occur nowhere else; if it is a header, use \
         --header yes\n"
    ));
    assert!(
        said(&run(folder.path(), "inspect g.csv --literals"))
            .ends_with("note: only RDF has literals; --literals is not used\n")
    );
    fs::write(folder.path().join("g.nt"), "<x:a> <x:r> <x:b> .\n").unwrap();
    assert!(
        said(&run(folder.path(), "inspect g.nt --columns 1,2,3"))
            .ends_with("note: RDF has no columns; --columns and --header are not used\n")
    );
    // RDF has no header that a first statement could be mistaken for.
    let statements: String = (0..10).map(|i| format!("<x:{i}> <x:r> <x:b> .\n")).collect();
    fs::write(folder.path().join("g.nt"), format!("<x:s> <x:p> <x:o> .\n{statements}")).unwrap();
    assert!(said(&run(folder.path(), "inspect g.nt")).starts_with("note: one file, split by "));
    assert_eq!(
        said(&run(folder.path(), "inspect d --split pykeen:1")),
        "note: there are no valid triples\nnote: there are no test triples\n\
         note: the folder has its own splits; --split and --ratios are not used\n"
    );
    assert_eq!(
        said(&run(
            folder.path(),
            "generate toy --entities 10 --types 1 --relations 2 --mean-degree 50"
        )),
        "note: there are fewer triples than the 500 asked for: with these types and relations, \
         subjects run out of objects\nnote: 1 of 2 relations occur\n"
    );
}

#[test]
fn failures_are_explained_and_exit_with_one() {
    let folder = folder(&[
        ("bad.tsv", "a\tr\tb\na\tr\n"),
        ("four.csv", "a,r,b,0.5\n"),
        ("commas.tsv", "a,r,b\n"),
        ("no/valid.tsv", "a\tr\tb\n"),
        ("escape.csv", "\u{1b}[31mhead,relation\na,b\n"),
    ]);
    for (arguments, expected) in [
        ("inspect bad.tsv", "error: bad.tsv:2: expected 3 tab-separated fields, found 2\n"),
        (
            "inspect four.csv",
            "error: four.csv:1: expected 3 comma-separated fields, found 4\n\n\
             Choose three of several columns with --columns, such as --columns 1,2,3.\n",
        ),
        (
            "inspect commas.tsv",
            "error: commas.tsv:1: expected 3 tab-separated fields, found 1\n\n\
             There is no tab in this line. --format says what the file holds: tsv, csv, ntriples or \
             turtle.\n",
        ),
        (
            "inspect no",
            "error: no: expected a file named train (such as train.tsv), found `valid.tsv`\n\n\
             A dataset is a folder with train, valid and test files, or a single file, which is \
             then split: name the file itself.\n",
        ),
        (
            "inspect escape.csv --columns head,relation,tail",
            "error: escape.csv:1: expected one column named `head`, found `\\u{1b}[31mhead`, `relation`\n\n\
             Name columns as the first line does, or give their numbers, such as --columns 1,2,3.\n",
        ),
        (
            "inspect missing.tsv",
            "error: missing.tsv: cannot be read: No such file or directory (os error 2)\n",
        ),
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!(said(&output), expected);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn wrong_usage_exits_with_two() {
    let folder = folder(&[]);
    for arguments in [
        "inspect",
        "inspect x.tsv --columns 1,2",
        "inspect x.tsv --split pykeen",
        "inspect x.tsv --ratios 0.5,0.5,0.5",
        "inspect x.csv --columns head,relation,tail --header no",
        "inspect x.tsv --threads 0",
        "inspect x.tsv --threads 1025",
        "generate out --noise 2",
        "generate out --noise -0.1",
        "generate out --mean-degree 0.5",
        "generate out --types 1000 --relations 1000 --modes 1000",
        "generate out --entities 0",
        "generate out --entities 5 --types 6",
        "bench load x.tsv --repeats 0",
        "bench load - --repeats 2",
        "dance",
        "",
    ] {
        let output = run(folder.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {}", said(&output));
    }
}

#[test]
fn generated_graphs_can_be_inspected_and_are_never_overwritten_unasked() {
    let folder = folder(&[]);
    let options = "generate toy --entities 200 --relations 3 --types 10 --mean-degree 6";
    let written = json(folder.path(), &format!("{options} --json"));
    let report = json(folder.path(), "inspect toy --json");
    for count in ["entities", "relations", "triples"] {
        assert_eq!(written[count], report[count], "{count}");
    }
    assert_eq!(written["test"], report["splits"]["test"]);
    assert_eq!(report["unseen"]["entities"], 0);

    let train = || fs::read(folder.path().join("toy/train.tsv")).unwrap();
    let before = train();
    let refused = run(folder.path(), &format!("{options} --seed 1"));
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        said(&refused),
        "error: toy: expected an empty folder or none; --force replaces train.tsv, valid.tsv and \
         test.tsv in it\n"
    );
    assert_eq!(train(), before);
    printed(folder.path(), &format!("{options} --force"));
    assert_eq!(train(), before);
    printed(folder.path(), &format!("{options} --force --seed 1"));
    assert_ne!(train(), before);
    let names: Vec<_> = fs::read_dir(folder.path().join("toy")).unwrap().collect();
    assert_eq!(names.len(), 3);

    // A second file for a split would make the folder unreadable.
    fs::write(folder.path().join("toy/valid.tsv.gz"), "").unwrap();
    assert_eq!(
        said(&run(folder.path(), &format!("{options} --force"))),
        "error: toy: expected no other file for valid, found `valid.tsv.gz`\n"
    );
}

#[cfg(unix)]
#[test]
fn an_interrupted_generation_leaves_nothing_and_exits_with_130() {
    let folder = folder(&[]);
    let mut child = command(folder.path(), "generate big --entities 4000000 --types 1000")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let big = folder.path().join("big");
    while !big.exists() {
        // A program that ended before it began would be waited for without end.
        assert_eq!(child.try_wait().unwrap(), None, "it ended before it was interrupted");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!big.exists());
}

#[test]
fn bench_load_reports_what_it_measured() {
    let folder = family();
    let timing = json(folder.path(), "bench load family --repeats 2 --json");
    assert_eq!((&timing["triples"], &timing["entities"]), (&6.into(), &4.into()));
    assert!(timing["seconds"].as_f64().unwrap() > 0.0);
    assert!(timing["triples_per_second"].as_f64().unwrap() > 0.0);
    if cfg!(target_os = "linux") {
        assert!(timing["peak_mb"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn bench_kernels_sets_every_kernel_beside_the_peak() {
    let temp = folder(&[]);
    let sizes = "--entities 300 --dim 8 --batch 20 --components 2 --answers 2 --repeats 1";
    let roofline = json(temp.path(), &format!("bench kernels {sizes} --json"));
    let kernels = roofline["kernels"].as_array().unwrap();
    assert!(matches!(kernels.len(), 9 | 11), "two more where there is AMX");
    assert!(kernels.iter().all(|kernel| kernel["share_of_peak"].as_f64().unwrap() > 0.0));
    let text = printed(temp.path(), &format!("bench kernels {sizes}"));
    assert!(text.contains(" softmax, tiles saved ") && text.contains(" GFLOP/s"), "{text}");
}

#[test]
fn bench_step_reports_what_it_measured() {
    let temp = folder(&[]);
    for components in [0, 2] {
        let timing = json(
            temp.path(),
            &format!(
                "bench step --encoder distmult --entities 300 --dim 8 --batch 20 \
                 --components {components} --layers 1 --answers 2 --steps 3 --json"
            ),
        );
        let keys: Vec<&String> = timing.as_object().unwrap().keys().collect();
        assert_eq!(
            keys,
            [
                "density",
                "forecast_mb",
                "peak_gflops",
                "peak_mb",
                "products_share",
                "quartiles",
                "resident_mb",
                "seconds",
                "system",
                "threads"
            ]
        );
        assert_eq!(timing["density"], 1.0, "few entities: all entries are multiplied");
        for key in ["seconds", "forecast_mb", "peak_gflops", "products_share"] {
            assert!(timing[key].as_f64().unwrap() > 0.0, "{key}");
        }
    }
    // Over many, with weights as random as they are at first, hardly any entry is above the limit:
    // few enough also where AMX multiplies all of them from a twentieth on.
    let many = "bench step --entities 40000 --dim 8 --batch 20 --components 0 --steps 1 --json";
    assert!(json(temp.path(), many)["density"].as_f64().unwrap() < 0.25);
    assert_eq!(json(temp.path(), &format!("{many} --exact"))["density"], 1.0);
    // Drawn ones: only rows of the batch are read and changed.
    let drawn = json(temp.path(), &format!("{many} --negatives 50"));
    assert!(drawn["density"].is_null() && drawn["seconds"].as_f64().unwrap() > 0.0);
    let output = run(temp.path(), "bench step --entities 4000000000 --dim 100000");
    let told = said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.starts_with("error: training needs about "), "{told}");
    for model in ["", "--encoder concatmlp --hidden 6,5", "--score mlp --hidden 6 --sigmoids"] {
        let step = format!("bench step --entities 50 --dim 4 --batch 20 --steps 1 {model}");
        assert!(printed(temp.path(), &step).contains(" s a step"), "{model}");
    }
}

#[test]
fn a_reader_that_has_had_enough_is_no_failure() {
    let folder = family();
    let mut child = command(folder.path(), "inspect family")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn help_has_examples() {
    let folder = folder(&[]);
    for command in ["inspect", "generate", "bench load"] {
        assert!(
            printed(folder.path(), &format!("{command} --help")).contains("Example"),
            "{command}"
        );
    }
}
