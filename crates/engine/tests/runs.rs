//! Runs of every format that a version of fullrank has written: can they be opened, and do they answer
//! as they did?
//!
//! A new format brings its folder: `runs/format-N`, trained on the same facts as the others; one with
//! another output layer, or that is not finished, says so in its name.

#![expect(clippy::unwrap_used, reason = "a test that cannot set itself up fails there and then")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use fullrank_engine::predictor::Ask;
use fullrank_engine::{
    Device, Error, Event, Predictor, RawConfig, Run, Signal, TrainingFolder, names,
};
use fullrank_graph::{Query, Split};

/// A copy, for opening a run may leave a note of which files were found whole.
fn copy_of(format: &str) -> tempfile::TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/runs").join(format);
    let to = tempfile::tempdir().unwrap();
    copy(&from, to.path());
    to
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Runs, and their answers to (ann, knows, ?), as the version that trained them printed these.
const RUNS: [(&str, [(&str, f64); 6]); 4] = [
    ("format-1", OF_MIXTURE),
    ("format-2", OF_MIXTURE),
    (
        "format-2-sigmoid",
        [
            ("gus", -0.6204211115837097),
            ("eva", -0.6225390434265137),
            ("ann", -0.6346971988677979),
            ("dan", -0.6787127256393433),
            ("cid", -0.7135116457939148),
            ("hal", -0.7549834847450256),
        ],
    ),
    (
        "format-3-sigmoid",
        [
            ("gus", -1.6637344360351562),
            ("eva", -1.6673859357833862),
            ("ann", -1.6886893510818481),
            ("dan", -1.7623817920684814),
            ("cid", -1.8251808881759644),
            ("hal", -1.89043390750885),
        ],
    ),
];

const OF_MIXTURE: [(&str, f64); 6] = [
    ("cid", -1.625710095751853),
    ("ann", -1.7813143390303565),
    ("hal", -1.8092500823622657),
    ("gus", -1.824514116633506),
    ("eva", -1.8449647086745216),
    ("dan", -1.8858000892287208),
];

#[test]
fn runs_of_every_format_answer_as_they_did() {
    for (format, expected) in RUNS {
        let folder = copy_of(format);
        let run = Run::open(folder.path(), Device::Cpu).unwrap();
        assert!(run.is_finished);
        assert_eq!((run.trained.epochs, run.trained.updates), (3, 24), "{format}");
        assert_eq!(fullrank_engine::epochs(folder.path()).unwrap().len(), 3, "{format}");
        let predictor = Predictor::new(run.model);
        let graph = predictor.model().graph();
        let query = Query {
            subject: names::find_entity(graph, "ann").unwrap(),
            relation: names::find_relation(graph, "knows").unwrap(),
        };
        let answered = predictor.answer(&[Ask::new(query)]).unwrap().remove(0);
        let found = answered
            .answers
            .iter()
            .map(|answer| (graph.entities().name(answer.object.0), answer.log_probability));
        for (found, expected) in found.zip(expected) {
            assert_eq!(found.0, expected.0, "{format}");
            // Processors may differ in the last bits.
            assert!((found.1 - expected.1).abs() < 1e-5, "{format}: {found:?} {expected:?}");
        }
        assert_eq!(answered.answers.len(), expected.len(), "{format}");
    }
}

/// Sigmoids of format 2 added nothing to their scores.
#[test]
fn a_training_without_an_offset_goes_on_with_one_of_zero() {
    let folder = copy_of("format-2-unfinished");
    let offset = |run: &Run| {
        let tables = run.model.tables();
        tables.iter().find(|table| table.name == "output.offset").unwrap().values.clone()
    };
    let run = Run::open(folder.path(), Device::Cpu).unwrap();
    assert_eq!((run.is_finished, run.trained.epochs, offset(&run)), (false, 7, vec![0.0]));
    let graph = Arc::clone(run.model.graph());
    let given = RawConfig::default();
    let (mut training, config) = TrainingFolder::resume(folder.path(), &graph, &given).unwrap();
    let mut updates = 0;
    let outcome = training.train(graph, config, Device::Cpu, &mut |event| {
        updates += u32::from(matches!(event, Event::Update { .. }));
        if updates == 2 { Signal::Stop } else { Signal::Continue }
    });
    assert!(matches!(outcome, Err(Error::Interrupted)));
    assert_eq!(training.progress(), (7, 58));
}

#[test]
fn what_the_newest_format_has_is_read_back() {
    let folder = copy_of("format-3-sigmoid");
    let run = Run::open(folder.path(), Device::Cpu).unwrap();
    let splits: Vec<&str> = run.splits.iter().map(|found| found.split.as_str()).collect();
    assert_eq!(splits, [Split::Valid.to_string(), Split::Test.to_string()]);
    for found in &run.splits {
        assert_eq!(found.model.n_ranks, found.popularity.n_ranks);
    }
}

#[test]
fn a_manifest_edited_by_hand_is_refused() {
    let folder = copy_of("format-2");
    let path = folder.path().join("run.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"updates\": 24", "\"updates\": 25")).unwrap();
    let error = Run::open(folder.path(), Device::Cpu).unwrap_err().to_string();
    assert!(error.ends_with("run.json: damaged: it is not what was written"), "{error}");
}
