//! What models are, what they come to, and how that looks: `models`, `spectrum` and `figure`.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

mod program;

use std::fs;

use program::{folder, json, printed, run, said};

fn family() -> tempfile::TempDir {
    folder(&[(
        "family/train.tsv",
        "ann\tparent\tbob\nann\tparent\tc<i>&d\nbob\tsibling\tc<i>&d\nann\tlikes\tdot\n",
    )])
}

/// Every tag that opens closes, in the right order, and nothing stands outside of the root.
fn assert_well_formed(xml: &str) {
    let mut open: Vec<&str> = vec![];
    for piece in xml.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').unwrap();
        assert!(!text.contains('>'), "{piece}");
        let name = tag.split_whitespace().next().unwrap();
        match name.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name), "{piece}"),
            None if tag.ends_with('/') || name.starts_with('?') => {}
            None => open.push(name),
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "{open:?}");
    assert!(xml.starts_with("<?xml") && xml.trim_end().ends_with("</svg>"));
}

#[test]
fn models_lists_every_part_with_numbers_for_a_graph() {
    let folder = family();
    let output = run(folder.path(), "models family --dim 24");
    assert!(output.status.success(), "{}", said(&output));
    // Columns are as wide as the longest formula, whichever that is.
    let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines().map(squeezed);
    for expected in [
        "E = 4 entities, R = 3 relations, d = 24",
        "Encoders",
        "score of (s, r, o) parameters bottleneck",
        "distmult Σ s·r·o (E + 2R)·d = 240 E = 4",
        "tucker W ×₁ s ×₂ r ×₃ o E·d + (2R + d²)·d_r = 14,064 E = 4",
        "conve f(vec(f([s; r] ∗ ω))·W)·o (E + 2R)·d + kernels + features·d = 11,394 E = 4",
        "transe −‖s + r − o‖ (E + 2R)·d = 240 none",
        "Scores",
        "of query vector h and object vector e_o parameters bottleneck",
        "dot h·e_o; with `bias`, + b_o for E parameters more 0 E = 4",
        "mlp MLP([h; e_o]) about (2d + H₂)·H₁ = 156,673 none",
        "Output layers",
        "probability of the objects, by their scores z parameters bottleneck",
        "softmax softmax(z) 0 E = 4",
        "mixture Σ_k π_k(h)·softmax(z_k) K·d + layers·K·(d² + 2d) = 5,088 none",
        "fourier σ(F_o·(V·h + b)), F sines and cosines (2f + 1)·(d + 1) = 625 E = 4",
        "Symbols",
        "Not here",
    ] {
        assert!(lines.any(|line| line == expected), "`{expected}`, in this place, in\n{text}");
    }
}

#[test]
fn models_without_a_graph_has_formulas_alone() {
    let folder = folder(&[]);
    let text = printed(folder.path(), "models");
    assert!(text.contains("(E + 2R)·d") && !text.contains(" = "), "{text}");
    let report = json(folder.path(), "models --json");
    assert!(report["sizes"].is_null());
    assert_eq!(report["encoders"][0]["name"], "distmult");
    assert_eq!(report["outputs"][0]["bottleneck"], "d + 1");
    let report = json(family().path(), "models family --dim 3 --json");
    let complex = &report["encoders"][1];
    assert_eq!(complex["name"], "complex");
    assert!(complex["n_parameters"].is_null(), "an odd dimension has no halves");
    // A dimension means nothing without a graph.
    assert_eq!(run(folder.path(), "models --dim 3").status.code(), Some(2));
}

#[test]
fn a_softmax_has_at_most_rank_d_plus_one_sigmoids_d_and_a_mixture_more() {
    let temp = folder(&[]);
    let here = temp.path();
    printed(here, "generate graph --entities 200 --relations 4 --types 8 --mean-degree 15");
    for (output, name) in [
        ("softmax", "softmax"),
        ("mixture --components 4", "mixture"),
        ("sigmoid --bias", "sigmoid"),
    ] {
        let quick = "--dim 4 --batch 200 --epochs 2 --learning-rate 0.05";
        printed(here, &format!("train graph {quick} --output {output} --out {name}"));
    }
    let report = json(here, "spectrum softmax --json");
    assert_eq!(report["method"], "exact");
    assert_eq!(report["n_entities"], 200);
    assert_eq!(report["ranks"][1]["matrix_rank"], 5);
    assert_eq!(
        (&report["measured"], &report["max_matrix_rank"]),
        (&"log_probabilities".into(), &5.into())
    );
    let report = json(here, "spectrum sigmoid --json");
    assert_eq!((&report["measured"], &report["max_matrix_rank"]), (&"log_odds".into(), &5.into()));
    assert_eq!(report["ranks"][1]["matrix_rank"], 5);
    let text = printed(here, "spectrum sigmoid");
    assert!(text.starts_with("Log-odds of ") && text.contains("d = 4 limits the matrix rank to 5"));
    let report = json(here, "spectrum mixture --json --out values.csv");
    assert!(report["max_matrix_rank"].is_null(), "{report}");
    assert!(report["ranks"][1]["matrix_rank"].as_u64().unwrap() > 5, "{}", report["ranks"]);

    let csv = fs::read_to_string(here.join("values.csv")).unwrap();
    assert_eq!(csv.lines().next(), Some("place,singular_value,share_of_largest"));
    assert!(csv.lines().nth(1).unwrap().ends_with(",1e0"), "{csv}");
    let n_values = report["singular_values"].as_array().unwrap().len();
    assert_eq!(csv.lines().count(), n_values + 1);
    let refused = run(here, "spectrum mixture --out values.csv");
    assert_eq!(
        said(&refused),
        "error: values.csv: there is a file already\n\nReplace it by --force.\n"
    );
    let text = printed(here, "spectrum softmax --split valid --out values.csv --force");
    for part in ["(valid) by 200 entities: all singular values; d = 4 limits the matrix rank", "█"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn every_figure_is_well_formed_and_replaced_only_by_force() {
    let folder = family();
    let here = folder.path();
    let list = json(here, "figure --list --json");
    let names: Vec<&str> =
        list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["rankings", "distributions", "mixtures", "log-ratios", "polynomial"]);
    for name in names {
        let query = match name {
            "polynomial" => "--data family --subject ann --relation parent",
            _ => "",
        };
        let draw = format!("figure {name} {query} --out {name}.svg");
        let drawn = json(here, &format!("{draw} --json"));
        assert_eq!(drawn["file"], format!("{name}.svg"));
        let svg = fs::read_to_string(here.join(format!("{name}.svg"))).unwrap();
        assert_well_formed(&svg);
        assert_eq!(
            said(&run(here, &draw)).lines().next().unwrap(),
            format!("error: {name}.svg: there is a file already")
        );
        assert!(run(here, &format!("{draw} --force")).status.success());
    }
    let svg = fs::read_to_string(here.join("polynomial.svg")).unwrap();
    assert!(svg.contains("c&lt;i&gt;&amp;d") && svg.contains("(ann, parent, ?)"), "{svg}");
}

#[test]
fn a_polynomial_needs_a_query_with_answers() {
    let folder = family();
    let fails = |arguments: &str| {
        let output = run(folder.path(), &format!("figure {arguments} --out x.svg"));
        (output.status.code(), said(&output).lines().next().unwrap().to_owned())
    };
    let missing = "error: `figure polynomial` needs --data, --relation, and --subject or --object";
    assert_eq!(fails("polynomial"), (Some(2), missing.to_owned()));
    let (code, why) = fails("rankings --data family");
    assert_eq!(code, Some(2), "{why}");
    let output = run(
        folder.path(),
        "figure polynomial --data family --subject bob --relation likes --out x.svg",
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).ends_with("error: (bob, likes, ?): the graph has no answer to this query\n")
    );
    assert!(!folder.path().join("x.svg").exists());
}
