//! Files good and bad, in every format.

use std::error::Error as _;
use std::fs;
use std::io::Write;

use super::*;
use crate::graph::tests::show;

mod faults;

fn check(name: &str, bytes: impl AsRef<[u8]>) -> Result<Loaded, Error> {
    check_with(name, bytes, &LoadOptions::default())
}

fn check_with(name: &str, bytes: impl AsRef<[u8]>, options: &LoadOptions) -> Result<Loaded, Error> {
    load_bytes(Path::new(name), bytes.as_ref().to_vec(), options)
}

/// All triples of a graph, whatever their split.
fn triples(loaded: &Loaded) -> Vec<String> {
    let mut all: Vec<String> =
        Split::ALL.iter().flat_map(|&split| show(&loaded.graph, split)).collect();
    all.sort();
    all
}

fn read(name: &str, bytes: impl AsRef<[u8]>) -> Vec<String> {
    triples(&check(name, bytes).unwrap())
}

fn read_with(name: &str, text: &str, options: &LoadOptions) -> Vec<String> {
    triples(&check_with(name, text, options).unwrap())
}

/// The whole message of an error with its reason.
fn complaint(outcome: Result<Loaded, Error>) -> String {
    let error = outcome.unwrap_err();
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

fn columns(text: &str) -> LoadOptions {
    LoadOptions { columns: Some(text.parse().unwrap()), ..LoadOptions::default() }
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn load_folder(files: &[(&str, &str)]) -> (tempfile::TempDir, Result<Loaded, Error>) {
    let folder = folder(files);
    let loaded = load(folder.path(), &LoadOptions::default());
    (folder, loaded)
}

/// The message of an error about a folder, without the path to it.
fn folder_complaint(files: &[(&str, &str)]) -> String {
    let (folder, outcome) = load_folder(files);
    complaint(outcome)
        .replace(&format!("{}/", folder.path().display()), "")
        .replace(&folder.path().display().to_string(), "FOLDER")
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

#[test]
fn tabs_separate_names_that_may_hold_anything_else() {
    assert_eq!(read("g.tsv", "a b\tr, \"s\"\tc\n d\tr\té\n"), [" d r é", "a b r, \"s\" c"]);
    assert_eq!(read("g.txt", "a\tr\tb"), ["a r b"]);
}

#[test]
fn byte_order_marks_and_windows_line_ends_are_accepted() {
    assert_eq!(read("g.tsv", "\u{feff}a\tr\tb\r\nc\tr\td\r\n"), ["a r b", "c r d"]);
    assert_eq!(read("g.csv", "\u{feff}a,r,b\r\n\"c\",r,\"d\"\r\n"), ["a r b", "c r d"]);
    assert_eq!(read("g.csv", "\u{feff}\"a\",r,b\r\nc,r,d\r"), ["a r b", "c r d"]);
}

#[test]
fn empty_lines_at_the_end_are_no_triples() {
    assert_eq!(read("g.tsv", "a\tr\tb\n\n\r\n\n"), ["a r b"]);
}

#[test]
fn quoted_fields_may_hold_commas_quotes_and_line_ends() {
    assert_eq!(
        read("g.csv", "\"a, b\",r,\"say \"\"c\"\"\"\n\"two\nlines\",r,d\n"),
        ["a, b r say \"c\"", "two\nlines r d"]
    );
}

#[test]
fn usual_headers_are_recognised_and_reported() {
    let loaded = check("g.csv", "Tail,Relation,Head\nb,r,a\n").unwrap();
    assert_eq!(triples(&loaded), ["a r b"]);
    let names = ["Head", "Relation", "Tail"].map(str::to_owned);
    assert_eq!(loaded.files[0].header, Some(names));
    // More columns than three are no trouble when the header says which are meant.
    let text = "id\tsubject\tpredicate\tobject\tscore\n7\ta\tr\tb\t.5\n";
    assert_eq!(read("g.tsv", text), ["a r b"]);
}

#[test]
fn hetionet_is_read_as_it_is_published() {
    // Its first lines, with the names of the published file.
    let text = "source\tmetaedge\ttarget\nGene::9021\tGpBP\tBiological Process::GO:0071357\n";
    let loaded = check("hetionet-v1.0-edges.sif", text).unwrap();
    assert_eq!(triples(&loaded), ["Gene::9021 GpBP Biological Process::GO:0071357"]);
    let names = ["source", "metaedge", "target"].map(str::to_owned);
    assert_eq!(loaded.files[0].header, Some(names));
}

#[test]
fn headers_can_be_forced_and_forbidden() {
    let with = |header| LoadOptions { header, ..LoadOptions::default() };
    assert_eq!(read_with("g.csv", "x,y,z\na,r,b\n", &with(Header::Yes)), ["a r b"]);
    let text = "head,relation,tail\na,r,b\n";
    assert_eq!(read_with("g.csv", text, &with(Header::No)), ["a r b", "head relation tail"]);
}

#[test]
fn columns_are_chosen_by_number_or_name() {
    assert_eq!(read_with("g.tsv", "1\tb\tr\ta\tx\n", &columns("4,3,2")), ["a r b"]);
    assert_eq!(
        read_with("g.csv", "drug,effect,disease\na,r,b\n", &columns("drug,effect,disease")),
        ["a r b"]
    );
    // Mixed, and behind a header that is recognised.
    assert_eq!(
        read_with("g.csv", "head,relation,tail\nb,r,a\n", &columns("3,relation,1")),
        ["a r b"]
    );
    for text in ["1,2", "1,2,3,4", "0,1,2", "1,1,2", "a,,b", ""] {
        assert_eq!(text.parse::<Columns>(), Err(ColumnsError), "{text}");
    }
    assert_eq!(
        ColumnsError.to_string(),
        "expected three different columns by number or by name, such as `1,3,2` or `head,relation,tail`"
    );
}

const TURTLE: &str = r#"
@prefix : <http://x/> .
:ann :knows :bob , _:b1 ; :name "Ann" .
_:b1 :knows [ :knows :ann ] .
"#;

#[test]
fn rdf_names_are_iris_and_labels_and_literals_are_left_out() {
    let loaded = check("g.ttl", TURTLE).unwrap();
    assert_eq!(
        triples(&loaded),
        [
            "_:b1 http://x/knows _:g.ttl#1",
            "_:g.ttl#1 http://x/knows http://x/ann",
            "http://x/ann http://x/knows _:b1",
            "http://x/ann http://x/knows http://x/bob",
        ]
    );
    assert_eq!(loaded.files[0].literals_skipped, 1);
    assert_eq!(
        read("g.nt", "<http://x/a> <http://x/r> _:b . # so\n\n<http://x/a> <http://x/r> \"1\" .\n"),
        ["http://x/a http://x/r _:b"]
    );
}

#[test]
fn literals_become_entities_on_demand() {
    let options = LoadOptions { literals: Literals::Keep, ..LoadOptions::default() };
    let text = "<http://x/a> <http://x/r> \"say \\\"1\\\"\"@en .\n";
    assert_eq!(read_with("g.nt", text, &options), ["http://x/a http://x/r \"say \\\"1\\\"\"@en"]);
}

#[test]
fn loading_turtle_twice_gives_the_same_names() {
    assert_eq!(read("g.ttl", TURTLE), read("g.ttl", TURTLE));
}

#[test]
fn archives_are_read_by_their_content_in_memory_and_by_their_name_on_disk() {
    let text = "a\tr\tb\nc\tr\td\n";
    for bytes in [gzip(text), zstd(text), [gzip("a\tr\tb\n"), gzip("c\tr\td\n")].concat()] {
        assert_eq!(read("g.tsv", bytes), ["a r b", "c r d"]);
    }
    for (name, bytes) in [("g.tsv.gz", gzip(text)), ("g.tsv.zst", zstd(text))] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let loaded = load(&path, &LoadOptions::default()).unwrap();
        assert_eq!(triples(&loaded), ["a r b", "c r d"]);
    }
}

#[test]
fn the_format_can_be_given_where_the_name_does_not_say_it() {
    let options = LoadOptions { format: Some(Format::Csv), ..LoadOptions::default() };
    assert_eq!(read_with("graph", "a,r,b\n", &options), ["a r b"]);
    assert_eq!(
        complaint(check("graph.dat.gz", "a,r,b\n")),
        "graph.dat.gz: expected a name ending in .tsv, .txt, .sif, .csv, .nt or .ttl, optionally with \
         .gz or .zst, found `graph.dat.gz`"
    );
}

#[test]
fn folders_have_their_splits_in_files() {
    let (_folder, loaded) = load_folder(&[
        ("train.tsv", "a\tr\tb\nb\tr\tc\na\tr\tb\n"),
        ("dev.csv", "a,r,c\n"),
        ("test.nt", "<http://x/a> <http://x/r> <http://x/b> .\n"),
        ("train.del", "0\t0\t1\n"),
        ("readme.txt", "not a graph, but not a split either"),
    ]);
    let loaded = loaded.unwrap();
    assert_eq!(show(&loaded.graph, Split::Train), ["a r b", "b r c"]);
    assert_eq!(show(&loaded.graph, Split::Valid), ["a r c"]);
    assert_eq!(show(&loaded.graph, Split::Test), ["http://x/a http://x/r http://x/b"]);
    assert_eq!(loaded.graph.repeats().within, [1, 0, 0]);
    assert_eq!(loaded.files[0].triples, 3);
    assert!(loaded.cut.is_none());
}

#[test]
fn held_out_splits_may_be_missing_or_empty() {
    let (_folder, loaded) = load_folder(&[("train.tsv", "a\tr\tb\n"), ("valid.tsv", "")]);
    let graph = loaded.unwrap().graph;
    assert_eq!(Split::ALL.map(|split| graph.triples(split).len()), [1, 0, 0]);
}

#[test]
fn other_endings_count_where_the_format_is_given() {
    let folder = folder(&[("train.dat", "a\tr\tb\n"), ("test", "b\tr\ta\n")]);
    let options = LoadOptions { format: Some(Format::Tsv), ..LoadOptions::default() };
    let loaded = load(folder.path(), &options).unwrap();
    assert_eq!(triples(&loaded), ["a r b", "b r a"]);
    assert!(loaded.cut.is_none());
}

#[test]
fn a_folder_with_one_other_file_is_that_file() {
    let (_folder, loaded) = load_folder(&[("edges.tsv", "a\tr\tb\nb\tr\ta\n")]);
    let loaded = loaded.unwrap();
    assert_eq!(triples(&loaded), ["a r b", "b r a"]);
    assert!(loaded.cut.is_some());
}

#[test]
fn ids_do_not_depend_on_the_number_of_threads() {
    // More than one piece and more than one batch of pieces.
    let text: String = (0..2_000_000u64)
        .map(|i| format!("entity{}\tr{}\tentity{}\n", i * i % 49_999, i % 7, i * 31 % 50_021))
        .collect();
    assert!(text.len() > PIECE_BYTES * PIECES_AT_ONCE);
    let load_on = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| check("g.tsv", &text).unwrap().graph)
    };
    let (one, three) = (load_on(1), load_on(3));
    assert!(one.entities().iter().eq(three.entities().iter()));
    for split in Split::ALL {
        assert_eq!(one.triples(split), three.triples(split));
    }
    // Names are numbered as they come, here in the order of the first lines.
    let first: Vec<&str> = one.entities().iter().take(4).collect();
    assert_eq!(first, ["entity0", "entity1", "entity31", "entity4"]);
}

fn rows(name: &str, text: &str) -> Result<Vec<(usize, Vec<String>)>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, text).unwrap();
    let rows = load_rows(&path).map_err(|error| {
        error.to_string().replace(&folder.path().display().to_string(), "FOLDER")
    })?;
    Ok(rows.into_iter().map(|row| (row.place.line, row.fields)).collect())
}

#[test]
fn lines_that_are_no_triples_are_read_with_their_places() {
    let row = |line, fields: &[&str]| (line, fields.iter().map(|s| (*s).to_owned()).collect());
    assert_eq!(
        rows("list.txt", "a b\tc\r\n\n\u{fc}\n").unwrap(),
        [row(1, &["a b", "c"]), row(3, &["\u{fc}"])]
    );
    // Only .csv stands for commas.
    assert_eq!(rows("names", "a,b\n").unwrap(), [row(1, &["a,b"])]);
    assert_eq!(
        rows("q.csv", "\"two\nlines\",x\n\n\"a \"\"b\"\"\",y").unwrap(),
        [row(1, &["two\nlines", "x"]), row(4, &["a \"b\"", "y"])]
    );
    assert_eq!(rows("empty.tsv", "\n").unwrap(), []);
    assert_eq!(
        rows("q.csv", "a,\"b\nc").unwrap_err(),
        "FOLDER/q.csv:1: expected a closing quote, found the end of the file"
    );
}
