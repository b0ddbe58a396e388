//! Faults of files, each with its whole message.

use super::*;

#[test]
fn wrong_numbers_of_fields_are_named_with_their_line() {
    assert_eq!(
        complaint(check("g.tsv", "a\tr\tb\na\tr\n")),
        "g.tsv:2: expected 3 tab-separated fields, found 2"
    );
    assert_eq!(
        complaint(check("g.tsv", "a\tr\tb\tc\n")),
        "g.tsv:1: expected 3 tab-separated fields, found 4"
    );
    assert_eq!(
        complaint(check("g.csv", "a,r,b\n\"a\",r\n")),
        "g.csv:2: expected 3 comma-separated fields, found 2"
    );
    assert_eq!(
        complaint(check_with("g.tsv", "a\tr\n", &columns("1,2,5"))),
        "g.tsv:1: expected at least 5 tab-separated fields, found 2"
    );
    assert_eq!(
        complaint(check("g.csv", "head,relation,tail,score\na,r,b\n")),
        "g.csv:2: expected 4 comma-separated fields, found 3"
    );
}

#[test]
fn the_first_of_many_faults_is_reported_with_its_line() {
    let mut text = "entity\trelation\tentity\n".repeat(200_000);
    text.push_str("bad\n");
    text.push_str(&"entity\trelation\tentity\n".repeat(200_000));
    text.push_str("worse\n");
    assert_eq!(
        complaint(check("g.tsv", text)),
        "g.tsv:200001: expected 3 tab-separated fields, found 1"
    );
}

#[test]
fn empty_names_and_lines_are_errors() {
    assert_eq!(
        complaint(check("g.tsv", "a\tr\tb\na\t\tb\n")),
        "g.tsv:2: expected the name of the relation in field 2, found nothing"
    );
    assert_eq!(
        complaint(check_with("g.csv", "\"\",r,b\n", &columns("3,2,1"))),
        "g.csv:1: expected the name of the object in field 1, found nothing"
    );
    assert_eq!(
        complaint(check("g.tsv", "a\tr\tb\r\n\r\na\tr\tb\n")),
        "g.tsv:2: expected a triple, found an empty line"
    );
}

#[test]
fn bytes_that_are_no_text_are_errors() {
    assert_eq!(
        complaint(check("g.tsv", b"a\tr\tb\na\t\xff\tb\n")),
        "g.tsv:2: expected UTF-8 text, found the byte 0xff"
    );
    assert_eq!(
        complaint(check("g.tsv", b"a\tr\tb\n\na\tr\tb\0\n")),
        "g.tsv:2: expected a triple, found an empty line"
    );
    assert_eq!(
        complaint(check("g.tsv", b"a\tr\tb\0\na\tr\n")),
        "g.tsv:1: expected UTF-8 text, found the byte 0x00"
    );
    assert_eq!(
        complaint(check("g.csv", b"head,relation,\xfctail\na,r,b\n")),
        "g.csv:1: expected UTF-8 text, found the byte 0xfc"
    );
    assert_eq!(
        complaint(check("g.csv", b"\"a\",r,b\n\"a,r,\xe4\n")),
        "g.csv:2: expected UTF-8 text, found the byte 0xe4"
    );
}

#[test]
fn broken_quotes_are_errors() {
    assert_eq!(
        complaint(check("g.csv", "a,r,b\na,\"r,b\nc,r,d\n")),
        "g.csv:2: expected a closing quote, found the end of the file"
    );
    assert_eq!(
        complaint(check("g.csv", "\"a\"x,r,b\n")),
        "g.csv:1: expected a comma or the end of the line after a closing quote, found `x`"
    );
    assert_eq!(
        complaint(check("g.csv", "a,r,b\na,r\"s\",b\n")),
        "g.csv:2: expected quotes around the whole field, found one inside it"
    );
}

#[test]
fn columns_that_are_not_there_are_errors() {
    assert_eq!(
        complaint(check_with("g.csv", "drug,effect\na,r\n", &columns("drug,effect,disease"))),
        "g.csv:1: expected one column named `disease`, found `drug`, `effect`"
    );
    assert_eq!(
        complaint(check_with("g.csv", "a,a,r,b\n1,2,3,4\n", &columns("a,r,b"))),
        "g.csv:1: expected one column named `a`, found `a`, `a`, `r`, `b`"
    );
    let options = LoadOptions { header: Header::Yes, ..LoadOptions::default() };
    assert_eq!(
        complaint(check_with("g.csv", "drug,effect\na,r\n", &options)),
        "g.csv:1: expected 3 comma-separated fields, found 2"
    );
    assert_eq!(
        complaint(check_with("g.csv", "drug,effect,disease,score\na,r,b,1\n", &options)),
        "g.csv:1: expected 3 comma-separated fields, found 4"
    );
    assert_eq!(
        complaint(check_with("g.csv", "head,relation,tail\na,r,b\n", &columns("1,2,4"))),
        "g.csv:1: expected 4 comma-separated fields, found 3"
    );
}

#[test]
fn broken_rdf_is_named_with_its_line() {
    assert_eq!(
        complaint(check("g.nt", "<http://x/a> <http://x/r> <http://x/b> .\n<http://x/a> <r> .\n")),
        "g.nt:2: expected N-Triples, found an error in it: Parser error at line 2 between columns \
         14 and 17: No scheme found in an absolute IRI"
    );
    // In a later piece too, both of them count lines from the start of the file.
    let mut text = "<http://x/a> <http://x/r> <http://x/b> .\n".repeat(100_000);
    assert!(text.len() > PIECE_BYTES);
    text.push_str("<http://x/a> <r> .\n");
    assert_eq!(
        complaint(check("g.nt", text)),
        "g.nt:100001: expected N-Triples, found an error in it: Parser error at line 100001 between \
         columns 14 and 17: No scheme found in an absolute IRI"
    );
    assert!(
        complaint(check("g.ttl", "@prefix : <http://x/> .\n\n:a :r foo:b .\n"))
            .starts_with("g.ttl:3: expected Turtle, found an error in it: ")
    );
    assert_eq!(
        complaint(check("g.nt", b"<http://x/a> <http://x/r> \"\0\" .\n")),
        "g.nt:1: expected UTF-8 text, found the byte 0x00"
    );
    assert!(
        complaint(check("g.nt", b"<http://x/a> <http://x/r> \"\xff\" .\n")).starts_with("g.nt:1: ")
    );
}

#[test]
fn truncated_and_false_archives_are_errors() {
    let text = "a\tr\tb\n".repeat(1000);
    let (gz, zst) = (gzip(&text), zstd(&text));
    let cut = |bytes: &[u8]| bytes[..bytes.len() - 5].to_vec();
    let found = complaint(check("g.tsv", cut(&gz)));
    assert!(
        found.ends_with(": expected a complete gzip stream, found its end in the middle"),
        "{found}"
    );
    let found = complaint(check("g.tsv", cut(&zst)));
    assert!(
        found.ends_with(": expected a complete zstd stream, found its end in the middle"),
        "{found}"
    );
    for name in ["train.tsv.gz", "train.tsv.zst"] {
        let archive = if name.ends_with("gz") { "gzip" } else { "zstd" };
        assert_eq!(
            folder_complaint(&[(name, "plain text, longer than any header of an archive")]),
            format!("{name}:1: expected a complete {archive} stream, found other data")
        );
    }
}

#[test]
fn files_without_triples_are_errors() {
    for (name, text, found) in [
        ("g.tsv", "", "an empty file"),
        ("g.csv", "\n\r\n", "only empty lines"),
        ("g.csv", "head,relation,tail\n", "only a header"),
        ("g.nt", "<http://x/a> <http://x/r> \"1\" .\n", "only literals"),
        ("g.ttl", "# a comment\n", "none"),
    ] {
        let expected = format!("{name}:1: expected at least one triple, found {found}");
        assert_eq!(complaint(check(name, text)), expected);
    }
    assert_eq!(
        folder_complaint(&[("train.tsv", ""), ("test.tsv", "a\tr\tb\n")]),
        "train.tsv:1: expected at least one triple, found an empty file"
    );
}

#[test]
fn folders_that_are_no_dataset_are_errors() {
    assert_eq!(
        folder_complaint(&[("valid.tsv", "a\tr\tb\n"), ("test.tsv.gz", "")]),
        "FOLDER: expected a file named train (such as train.tsv), found `test.tsv.gz`, `valid.tsv`"
    );
    assert_eq!(
        folder_complaint(&[("a.png", "")]),
        "FOLDER: expected a file named train (such as train.tsv), found no graph file"
    );
    assert_eq!(
        folder_complaint(&[("train.tsv", ""), ("valid.txt", ""), ("dev.csv", "")]),
        "FOLDER: expected one file for valid, found `dev.csv`, `valid.txt`"
    );
    let missing = complaint(load(Path::new("no/such.tsv"), &LoadOptions::default()));
    assert_eq!(missing, "no/such.tsv: cannot be read: No such file or directory (os error 2)");
}
