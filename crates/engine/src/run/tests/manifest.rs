//! What `run.json` says of a training, and of itself.

use super::*;
use crate::evaluate::{Baselines, rank_by_popularity};
use crate::predictor::{Ask, Predictor};
use crate::rank_file::RankLine;
use fullrank_graph::load::{Candidates, Rows};
use fullrank_graph::{EntityId, Query, RelationId};
use serde_json::{Value, json};

fn manifest(temp: &tempfile::TempDir) -> Value {
    serde_json::from_slice(&fs::read(temp.path().join(RUN)).unwrap()).unwrap()
}

fn provenance(date: &str) -> Provenance {
    Provenance {
        command: ["fullrank", "train", "my data"].map(str::to_owned).into(),
        date: date.into(),
        machine: "a processor, a system".into(),
        threads: 2,
        version: "0.1.0".into(),
    }
}

#[test]
fn every_session_of_a_training_is_kept() {
    let temp = tempfile::tempdir().unwrap();
    let mut training = create(temp.path(), Existing::Keep).unwrap();
    let dates = ["2026-07-01T10:00:00Z", "2026-07-02T11:30:00Z"];
    training.0.note(provenance(dates[0])).unwrap();
    let stop = &mut |event: Event| match event {
        Event::Epoch(_) => Signal::Stop,
        _ => Signal::Continue,
    };
    train(&mut training, stop).unwrap_err();
    drop(training);
    let mut training = resume(&temp, "").unwrap();
    training.0.note(provenance(dates[1])).unwrap();
    train(&mut training, &mut silent()).unwrap();
    let session = |date: &str| {
        json!({
            "command": ["fullrank", "train", "my data"],
            "date": date,
            "machine": "a processor, a system",
            "threads": 2,
            "version": "0.1.0",
        })
    };
    assert_eq!(manifest(&temp)["sessions"], json!([session(dates[0]), session(dates[1])]));
    open(&temp).unwrap();
}

#[test]
fn what_a_training_came_to_is_kept_beside_popularity() {
    // A temperature takes fifty validation triples.
    let line =
        |i: usize, relation: &str, steps: usize| format!("e{i} {relation} e{};", (i + steps) % 30);
    let text = |lines: [(&str, usize); 2]| -> String {
        let line = |i| lines.map(|(relation, steps)| line(i, relation, steps)).concat();
        (0..30).map(line).collect()
    };
    let (train, valid) = (text([("near", 1), ("over", 4)]), text([("near", 2), ("over", 5)]));
    let graph = Arc::new(graph([&train, &valid, "e0 near e3"]));
    let temp = tempfile::tempdir().unwrap();
    let config = Config::parse("dim = 8\nepochs = 3\nbatch = 16").unwrap();
    let mut folder = TrainingFolder::create(temp.path(), &graph, &config, Existing::Keep).unwrap();
    folder.train(graph, config, Device::Cpu, &mut silent()).unwrap();
    assert!(open(&temp).unwrap().splits.is_empty());
    let mut model = Model::open(temp.path(), Device::Cpu).unwrap();
    let finished = model.finish(&mut silent()).unwrap();
    folder.keep(&model, &finished).unwrap();

    let run = open(&temp).unwrap();
    assert_eq!(run.model.temperature(), model.temperature());
    assert!(run.model.temperature().is_some());
    let splits: Vec<&str> = run.splits.iter().map(|split| split.split.as_str()).collect();
    assert_eq!(splits, ["valid", "test"]);
    for (found, split) in run.splits.iter().zip([Split::Valid, Split::Test]) {
        assert_eq!(Some(found.model), run.model.evaluate(split, &mut silent()).unwrap());
        let popular = rank_by_popularity(run.model.graph(), split, &mut silent());
        let beside = Baselines::of(run.model.graph(), &popular.unwrap()).unwrap();
        assert_eq!((found.popularity, found.random), (beside.popularity, Some(beside.random)));
    }
    // As trained, then at the temperature.
    let temperatures: Vec<Value> = (0..2)
        .map(|at| manifest(&temp)["result"]["calibration"][at]["temperature"].clone())
        .collect();
    assert_eq!(temperatures, [json!(1.0), json!(model.temperature())]);
    let bins = &manifest(&temp)["result"]["calibration"][0]["top_answer"]["bins"];
    assert!(!bins.as_array().unwrap().is_empty());
}

#[test]
fn ranks_are_kept_with_the_run_and_go_with_it() {
    let temp = trained(true);
    let finished = open(&temp).unwrap().model.finish(&mut silent()).unwrap();
    assert_eq!(kept_ranks(temp.path(), Split::Test).unwrap(), None);
    let (folder, _) = resume(&temp, "").unwrap();
    folder.keep_ranks(&small_graph(), &finished).unwrap();
    for split in [Split::Valid, Split::Test] {
        let ranks = &finished.of(split).unwrap().ranks;
        let line = |rank| RankLine::new(&small_graph(), split, rank);
        let expected: Vec<RankLine> = ranks.iter().map(line).collect();
        assert_eq!(expected.len(), 2);
        assert_eq!(kept_ranks(temp.path(), split).unwrap(), Some(expected));
    }
    drop(folder);
    let found = files(temp.path());
    assert!(found.contains(&"ranks-valid.csv".to_owned()), "{found:?}");
    // As if a replacement had been stopped before they were removed, and then without a stop.
    fs::remove_file(temp.path().join(RUN)).unwrap();
    assert!(is_free(temp.path()).unwrap());
    create(temp.path(), Existing::Keep).unwrap();
    assert!(!files(temp.path()).iter().any(|name| name.starts_with("ranks-")));
}

/// One candidate for each side of the held-out triples of the small graph.
fn given(entity: u32) -> Arc<GivenCandidates> {
    let rows = || Rows { width: 1, entities: vec![EntityId(entity)] };
    let mut given = GivenCandidates::default();
    for split in [Split::Valid, Split::Test] {
        given.insert(split, Candidates { subjects: rows(), objects: rows() });
    }
    Arc::new(given)
}

#[test]
fn a_run_goes_on_with_the_candidates_it_was_given() {
    let temp = tempfile::tempdir().unwrap();
    let mut training = create(temp.path(), Existing::Keep).unwrap();
    training.0.rank_among(given(1)).unwrap();
    let stopped = train(&mut training, &mut |event| match event {
        Event::Epoch(_) => Signal::Stop,
        _ => Signal::Continue,
    });
    assert!(matches!(stopped, Err(Error::Interrupted)));
    drop(training);

    let mut training = resume(&temp, "").unwrap();
    assert_eq!(*training.0.candidates(), given(1));
    training.0.rank_among(given(1)).unwrap();
    let other = training.0.rank_among(given(2)).unwrap_err();
    assert_eq!(told(&other, &temp), "RUN: was trained with other candidates, or with none");
    train(&mut training, &mut silent()).unwrap();
    let epochs = epochs(temp.path()).unwrap();
    assert_eq!(epochs.len(), 2);
    for epoch in epochs {
        let valid = epoch.valid.unwrap();
        // Two that compete.
        assert!(valid.realistic.mr <= 2.0 && valid.nll_candidates.is_some(), "{valid:?}");
    }
    let run = open(&temp).unwrap();
    assert!(run.has_candidates);
    let kept = kept_candidates(temp.path(), run.model.graph()).unwrap();
    assert_eq!(kept.as_ref(), Some(&*given(1)));
    // A model that is saved takes them along.
    let (copy, mut model) = (tempfile::tempdir().unwrap(), run.model);
    model.rank_among(given(1));
    model.save(copy.path(), Existing::Keep).unwrap();
    assert_eq!(kept_candidates(copy.path(), model.graph()).unwrap(), kept);
    let other = kept_candidates(temp.path(), &graph(["a r b", "", ""])).unwrap_err();
    assert_eq!(told(&other, &temp), "RUN: was trained on another dataset");
}

#[test]
fn candidates_are_refused_once_a_run_was_validated_without() {
    let temp = trained(false);
    let (mut folder, _) = resume(&temp, "").unwrap();
    let error = folder.rank_among(given(1)).unwrap_err();
    assert_eq!(told(&error, &temp), "RUN: was trained with other candidates, or with none");
    drop(folder);
    assert_eq!(kept_candidates(temp.path(), &small_graph()).unwrap(), None);
    // A new one has them, and a newer one has them no more.
    let (mut folder, _) = create(temp.path(), Existing::Replace).unwrap();
    folder.rank_among(given(1)).unwrap();
    drop(folder);
    assert!(kept_candidates(temp.path(), &small_graph()).unwrap().is_some());
    create(temp.path(), Existing::Replace).unwrap();
    assert!(!files(temp.path()).contains(&"candidates.safetensors".to_owned()));
}

#[test]
fn a_temperature_is_kept_with_the_run() {
    let temp = trained(true);
    let mut model = open(&temp).unwrap().model;
    assert_eq!(model.temperature(), None);
    model.temperature = Some(1.5);
    let finished = model.finish(&mut silent()).unwrap();
    let (mut folder, _) = resume(&temp, SETTINGS).unwrap();
    folder.keep(&model, &finished).unwrap();
    assert_eq!(open(&temp).unwrap().model.temperature(), Some(1.5));
}

#[test]
fn a_manifest_that_was_changed_is_refused() {
    let temp = trained(true);
    let path = temp.path().join(RUN);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"updates\": 6", "\"updates\": 7")).unwrap();
    let expected = "RUN/run.json: damaged: it is not what was written";
    assert_eq!(open(&temp).unwrap_err(), expected);
    assert_eq!(resume(&temp, "").unwrap_err(), expected);
    // Without its hash, too.
    let hash = manifest(&temp)["hash"].as_str().unwrap().to_owned();
    fs::write(&path, text.replace(&hash, "")).unwrap();
    assert_eq!(open(&temp).unwrap_err(), expected);
    fs::write(&path, text).unwrap();
    open(&temp).unwrap();
}

#[test]
fn a_run_of_the_first_format_is_opened_and_taken_up_again() {
    // It had no sessions, no metrics of splits, and no hash of itself; at first no time either.
    for is_finished in [true, false] {
        let temp = trained(is_finished);
        let mut manifest = manifest(&temp);
        let fields = manifest.as_object_mut().unwrap();
        fields.insert("format".into(), json!(1));
        fields.remove("sessions");
        fields.remove("hash");
        if let Some(result) = fields["result"].as_object_mut() {
            for name in ["seconds", "temperature", "splits", "calibration"] {
                result.remove(name);
            }
        }
        fs::write(temp.path().join(RUN), manifest.to_string()).unwrap();
        assert_eq!(open(&temp).unwrap().is_finished, is_finished);
        let mut training = resume(&temp, "").unwrap();
        training.0.note(provenance("2026-07-01T10:00:00Z")).unwrap();
        train(&mut training, &mut silent()).unwrap();
        assert!(open(&temp).unwrap().is_finished);
        assert_eq!(self::manifest(&temp)["format"], json!(3));
    }
}

#[test]
fn a_saved_model_gives_the_same_answers_when_it_is_opened() {
    let temp = tempfile::tempdir().unwrap();
    let text = format!("{SETTINGS}\noutput = \"mixture\"\ncomponents = 2");
    let config = Config::parse(&text).unwrap();
    let mut trainer = crate::Trainer::new(small_graph(), config, Device::Cpu).unwrap();
    trainer.train(&mut silent()).unwrap();
    let mut model = trainer.into_model();
    model.finish(&mut silent()).unwrap();
    let path = temp.path().join("saved");
    model.save(&path, Existing::Keep).unwrap();
    let error = model.save(&path, Existing::Keep).unwrap_err();
    assert_eq!(told(&error, &temp), "RUN/saved: there is a run already");

    let opened = Model::open(&path, Device::Cpu).unwrap();
    assert_eq!(opened.config(), model.config());
    assert_eq!(opened.trained(), model.trained());
    assert_eq!(opened.n_parameters(), model.n_parameters());
    assert_eq!(opened.temperature(), model.temperature());
    assert!(to_safetensors(&opened.tables()) == to_safetensors(&model.tables()));
    let queries = (0..3).flat_map(|subject| {
        let subject = EntityId(subject);
        (0..4).map(move |relation| Query { subject, relation: RelationId(relation) })
    });
    let asks: Vec<Ask> = queries.map(Ask::new).collect();
    let answers = |model: Model| Predictor::new(model).answer(&asks).unwrap();
    assert_eq!(answers(opened), answers(model));
}
