use std::fs::{self, File};
use std::io;

use super::training::{is_free, lock};
use super::*;
use crate::evaluate::tests::graph;
use crate::model::to_safetensors;
use crate::part::TableRows;
use crate::progress::{Event, Progress, Signal, silent};
use crate::trainer::Position;
use fullrank_graph::{Graph, Split};

mod manifest;
mod training;

const SETTINGS: &str = "dim = 4\nepochs = 2\nbatch = 2";

fn small_graph() -> Arc<Graph> {
    Arc::new(graph(["a r b; b r c; c q a", "a q c", "b q a"]))
}

fn raw(text: &str) -> RawConfig {
    let mut raw = RawConfig::default();
    raw.add_file(Path::new("test.toml"), text).unwrap();
    raw
}

/// Trains in a folder, whose graph this is.
fn train(
    (folder, config): &mut (TrainingFolder, Config),
    progress: &mut Progress,
) -> Result<Trained, Error> {
    folder.train(small_graph(), config.clone(), Device::Cpu, progress)
}

/// A new run folder of the small graph.
fn create(path: &Path, existing: Existing) -> Result<(TrainingFolder, Config), Error> {
    let config = Config::parse(SETTINGS).unwrap();
    TrainingFolder::create(path, &small_graph(), &config, existing).map(|folder| (folder, config))
}

/// A run folder with a training in it, stopped after its first epoch or finished.
fn trained(is_finished: bool) -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let mut training = create(temp.path(), Existing::Keep).unwrap();
    let outcome = train(&mut training, &mut |event| match event {
        Event::Epoch(_) if !is_finished => Signal::Stop,
        _ => Signal::Continue,
    });
    assert_eq!(outcome.is_ok(), is_finished);
    temp
}

fn resume(temp: &tempfile::TempDir, text: &str) -> Result<(TrainingFolder, Config), String> {
    TrainingFolder::resume(temp.path(), &small_graph(), &raw(text)).map_err(|e| told(&e, temp))
}

/// The message, with the folder called RUN.
fn told(error: &Error, temp: &tempfile::TempDir) -> String {
    error.to_string().replace(&temp.path().display().to_string(), "RUN")
}

fn open(temp: &tempfile::TempDir) -> Result<Run, String> {
    Run::open(temp.path(), Device::Cpu).map_err(|error| told(&error, temp))
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_finished_run_has_everything_and_nothing_else() {
    let temp = trained(true);
    assert_eq!(
        files(temp.path()),
        [
            "config.toml",
            "known.safetensors",
            "lock",
            "metrics.jsonl",
            "model.safetensors",
            "names.json",
            "run.json"
        ]
    );
    let run = open(&temp).unwrap();
    assert!(run.is_finished);
    assert_eq!(*run.model.config(), raw(SETTINGS).check().unwrap());
    assert_eq!(run.model.graph().entities().iter().collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(run.model.graph().triples(Split::Test).len(), 1);
    assert_eq!(run.model.n_parameters(), (3 + 4) * 4);
}

#[test]
fn an_unfinished_run_has_its_best_weights_so_far() {
    let temp = trained(false);
    let run = open(&temp).unwrap();
    assert!(!run.is_finished);
    assert_eq!(run.trained.best.epoch, 1);
    let checkpoint = files(&temp.path().join(CHECKPOINT));
    assert_eq!(checkpoint, ["best-1.safetensors", "manifest.json", "state-1-3.safetensors"]);
}

#[test]
fn a_finished_run_that_is_resumed_stays_as_it_is() {
    let temp = trained(true);
    let before = fs::read(temp.path().join(MODEL)).unwrap();
    fs::create_dir(temp.path().join(CHECKPOINT)).unwrap();
    let mut training = resume(&temp, "").unwrap();
    assert!(!temp.path().join(CHECKPOINT).exists(), "what was left to do is done");
    let trained = train(&mut training, &mut |_| panic!("nothing to do"));
    assert_eq!(trained.unwrap().epochs, 2);
    assert_eq!(fs::read(temp.path().join(MODEL)).unwrap(), before);
}

#[test]
fn a_run_is_not_overwritten_unless_told_so() {
    let temp = trained(true);
    let error = create(temp.path(), Existing::Keep).unwrap_err();
    assert_eq!(told(&error, &temp), "RUN: there is a run already");
    let (folder, _) = create(temp.path(), Existing::Replace).unwrap();
    assert_eq!(folder.progress(), (0, 0));
    assert!(!temp.path().join(MODEL).exists());
}

#[test]
fn a_folder_with_other_things_in_it_is_left_alone() {
    let temp = tempfile::tempdir().unwrap();
    // A config of the user's own is no leftover either.
    fs::write(temp.path().join("config.toml"), "dim = 3").unwrap();
    for existing in [Existing::Keep, Existing::Replace] {
        let error = told(&create(temp.path(), existing).unwrap_err(), &temp);
        assert_eq!(error, "RUN: expected an empty folder or none");
    }
    assert_eq!(
        resume(&temp, SETTINGS).unwrap_err(),
        "RUN: not a run folder; expected `run.json` in it"
    );
    assert_eq!(open(&temp).unwrap_err(), "RUN: not a run folder; expected `run.json` in it");
    assert_eq!(files(temp.path()), ["config.toml"]);
}

#[test]
fn frequencies_that_the_graph_cannot_tell_apart_are_refused() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("new");
    // Three entities, so one frequency.
    let created = |text: &str| {
        let config = raw(&format!("output = \"fourier\"\n{text}")).check().unwrap();
        let made = TrainingFolder::create(&path, &small_graph(), &config, Existing::Replace);
        made.map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(
        created("dim = 2\nfrequencies = 2").unwrap_err(),
        "`frequencies`: above half of the objects, waves look like slower ones; expected at most 1 \
         for 3 entities, found 2"
    );
    assert!(created("dim = 6").unwrap_err().ends_with("found 3, which is half of `dim`"));
    assert!(!path.exists());
    created("dim = 2").unwrap();
    created("dim = 6\nfrequencies = 1").unwrap();
}

#[test]
fn two_trainings_cannot_be_in_one_folder() {
    let temp = trained(false);
    let first = resume(&temp, "").unwrap();
    assert_eq!(resume(&temp, "").unwrap_err(), "RUN: another training is at work in this folder");
    drop(first);
    resume(&temp, "").unwrap();
}

#[test]
fn another_config_is_refused() {
    let temp = trained(false);
    assert_eq!(
        resume(&temp, "dim = 8\nepochs = 2").unwrap_err(),
        "RUN: was trained with other settings: dim is `4`, not `8`"
    );
}

#[test]
fn another_dataset_is_refused() {
    let temp = trained(false);
    let other = graph(["a r b; b r c; c q a", "a q c", "b q c"]);
    let error = TrainingFolder::resume(temp.path(), &other, &raw("")).unwrap_err();
    assert_eq!(told(&error, &temp), "RUN: was trained on another dataset");
}

#[test]
fn a_run_without_a_finished_epoch_has_no_weights() {
    let temp = tempfile::tempdir().unwrap();
    drop(create(temp.path(), Existing::Keep).unwrap());
    assert_eq!(open(&temp).unwrap_err(), "RUN: no epoch is finished yet, so there are no weights");
    // It can be resumed from its beginning, and begun again.
    resume(&temp, "").unwrap();
}

#[test]
fn a_run_of_another_format_is_refused() {
    let temp = trained(true);
    let path = temp.path().join(RUN);
    let text = fs::read_to_string(&path).unwrap().replace("\"format\": 3", "\"format\": 7");
    fs::write(&path, text).unwrap();
    assert_eq!(open(&temp).unwrap_err(), "RUN/run.json: expected a run of format 3, found 7");
}

#[test]
fn a_missing_file_is_named() {
    let temp = trained(true);
    fs::remove_file(temp.path().join(MODEL)).unwrap();
    assert_eq!(open(&temp).unwrap_err(), "RUN/model.safetensors: cannot be read");
}

#[test]
fn damage_is_named_and_refused() {
    for (is_finished, file, expected) in [
        (true, "model.safetensors", "tensor `encoder.relation` is not what was written"),
        (true, "known.safetensors", "tensor `valid` is not what was written"),
        (false, "checkpoint/state-1-3.safetensors", "is not what was written"),
        (false, "checkpoint/best-1.safetensors", "is not what was written"),
    ] {
        let temp = trained(is_finished);
        let path = temp.path().join(file);
        let mut bytes = fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        let error = match is_finished {
            true => open(&temp).unwrap_err(),
            false => {
                let (mut folder, config) = resume(&temp, "").unwrap();
                told(&folder.start(small_graph(), config, Device::Cpu).unwrap_err(), &temp)
            }
        };
        assert!(error.starts_with(&format!("RUN/{file}: damaged: tensor `")), "{error}");
        assert!(error.ends_with(expected), "{error}");
    }
}

#[test]
fn a_file_cut_short_is_damaged() {
    let temp = trained(true);
    for (file, expected) in [
        (MODEL, "RUN/model.safetensors: damaged: "),
        (RUN, "RUN/run.json: damaged: EOF while parsing"),
    ] {
        let path = temp.path().join(file);
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let error = open(&temp).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_config_edited_by_hand_is_refused() {
    let temp = trained(false);
    let path = temp.path().join(CONFIG);
    let text = fs::read_to_string(&path).unwrap().replace("epochs = 2", "epochs = 3");
    fs::write(&path, text).unwrap();
    let expected = "RUN/config.toml: damaged: it is not what was written";
    assert_eq!(open(&temp).unwrap_err(), expected);
    assert_eq!(resume(&temp, "").unwrap_err(), expected);
}

#[test]
fn weights_of_another_shape_are_refused() {
    let temp = trained(true);
    let manifest = RunManifest::read(temp.path()).unwrap();
    let config = Config::parse("dim = 6").unwrap();
    let weights = Weights::zeros(Device::Cpu.burn());
    let network = Network::new(&config, &config.domain(&small_graph()), weights);
    let mut reader = TensorReader::open(temp.path(), &manifest.result.unwrap().model).unwrap();
    assert_eq!(
        told(&load_network(network, &mut reader, "").unwrap_err(), &temp),
        "RUN/model.safetensors: damaged: tensor `encoder.entity` is [3, 4], but the config asks \
         for [3, 6]"
    );
}

#[test]
fn what_a_killed_training_leaves_is_swept_up() {
    let temp = trained(false);
    let checkpoint = temp.path().join(CHECKPOINT);
    fs::write(checkpoint.join("state-9-9.safetensors.unfinished"), "half").unwrap();
    fs::write(checkpoint.join("state-2-8.safetensors"), "whole, but not in the manifest").unwrap();
    // A line of an epoch that the checkpoint does not know.
    let metrics = temp.path().join(METRICS);
    let lines = fs::read_to_string(&metrics).unwrap();
    fs::write(&metrics, format!("{lines}{{\"epoch\": 2")).unwrap();
    train(&mut resume(&temp, "").unwrap(), &mut silent()).unwrap();
    assert!(!checkpoint.exists());
    assert_eq!(fs::read_to_string(&metrics).unwrap().lines().count(), 2);
}

#[test]
fn metrics_that_are_missing_are_damage() {
    let temp = trained(false);
    fs::write(temp.path().join(METRICS), "").unwrap();
    let (mut folder, config) = resume(&temp, "").unwrap();
    let error = told(&folder.start(small_graph(), config, Device::Cpu).unwrap_err(), &temp);
    assert!(error.starts_with("RUN/metrics.jsonl: damaged: expected at least "), "{error}");
}

#[test]
fn a_replacement_that_was_killed_can_be_begun_again() {
    // As `begin` goes: first `run.json`, then the rest, one by one.
    let temp = trained(true);
    for file in [RUN, MODEL, METRICS] {
        fs::remove_file(temp.path().join(file)).unwrap();
        drop(lock(temp.path()).unwrap());
        assert!(is_free(temp.path()).unwrap(), "without {file}");
        if file == METRICS {
            create(temp.path(), Existing::Keep).unwrap();
        }
    }
}

#[test]
fn numbers_of_a_position_come_back_as_they_were() {
    // Without exact parsing, one in some hundred such numbers is off by a bit.
    for i in 0..10_000_u64 {
        let value = f64::from_bits(0x3fd0_0000_0000_0000 + i * 0x1_2345_6789);
        let position = Position {
            best: Some(Best { epoch: 1, valid_mrr: Some(value) }),
            ..Position::default()
        };
        let text = serde_json::to_string(&position).unwrap();
        assert_eq!(serde_json::from_str::<Position>(&text).unwrap(), position);
    }
}

#[test]
fn other_programs_can_read_the_weights() {
    let temp = trained(true);
    let bytes = fs::read(temp.path().join(MODEL)).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(file.tensor("encoder.entity").unwrap().shape(), [3, 4]);
}

#[test]
fn a_write_that_fails_leaves_the_old_file() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("file");
    fs::write(&path, "old").unwrap();
    let error = files::write_atomically(&path, |path| -> io::Result<()> {
        fs::write(path, "ne")?;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    });
    assert_eq!(told(&error.unwrap_err(), &temp), "RUN/file: cannot be written");
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(files(temp.path()), ["file"]);
}

#[test]
fn a_file_is_hashed_again_only_when_it_has_changed() {
    let temp = trained(true);
    let files = [RUN, MODEL, graph_files::NAMES, graph_files::KNOWN];
    let earlier = std::time::SystemTime::now() - std::time::Duration::from_secs(3600);
    // What was written just now is never trusted: as if it were an hour old.
    for file in files {
        let file = File::options().append(true).open(temp.path().join(file)).unwrap();
        file.set_modified(earlier).unwrap();
    }
    assert!(!HashCache::read(temp.path()).has(&files));
    open(&temp).unwrap();
    assert!(HashCache::read(temp.path()).has(&files));
    let model = temp.path().join(MODEL);
    let mut bytes = fs::read(&model).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&model, bytes).unwrap();
    // Not even if its time is set back.
    let file = File::options().append(true).open(&model).unwrap();
    file.set_modified(earlier).unwrap();
    let damaged =
        "RUN/model.safetensors: damaged: tensor `encoder.relation` is not what was written";
    assert_eq!(open(&temp).unwrap_err(), damaged);
}

#[test]
fn epochs_are_read_as_they_were_written() {
    let temp = trained(true);
    let records = epochs(temp.path()).unwrap();
    assert_eq!(records.iter().map(|record| record.epoch).collect::<Vec<_>>(), [1, 2]);
    let lines: String =
        records.iter().map(|record| serde_json::to_string(record).unwrap() + "\n").collect();
    assert_eq!(fs::read_to_string(temp.path().join(METRICS)).unwrap(), lines);
    let best = best_epoch(temp.path()).unwrap().unwrap();
    assert_eq!(best, open(&temp).unwrap().trained.best);
}

#[test]
fn tables_say_what_their_rows_are() {
    let run = open(&trained(true)).unwrap();
    let tables = run.model.tables();
    let shapes: Vec<(&str, &[usize], TableRows)> =
        tables.iter().map(|table| (table.name.as_str(), &table.shape[..], table.rows)).collect();
    assert_eq!(
        shapes,
        [
            ("encoder.entity", &[3, 4][..], TableRows::Entities),
            ("encoder.relation", &[4, 4], TableRows::Relations)
        ]
    );
    let bytes = to_safetensors(&tables);
    let read = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(read.tensor("encoder.entity").unwrap().shape(), [3, 4]);
}
