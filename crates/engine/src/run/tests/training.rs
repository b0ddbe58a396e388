//! Trainings in a folder, stopped and resumed, and those in memory.

use super::*;
use crate::evaluate::rank_answers;
use crate::metrics::metrics;
use crate::progress::End;
use crate::trainer::Trainer;
use crate::trainer::tests::rings;

const SMALL: &str = "dim = 8\nbatch = 16\nepochs = 4\nlearning_rate = 0.02\n";

/// An encoder with layers and dropout of its own, or with other weights, each.
const OTHERS: [&str; 7] = [
    "encoder = \"conve\"\ndim = 24\nchannels = 4\n",
    "encoder = \"hyper\"\ndim = 12\nchannels = 4\n",
    "encoder = \"transformer\"\ndim = 8\n",
    "encoder = \"ensemble\"\ndim = 8\n",
    "encoder = \"compgcn\"\ndim = 8\n",
    "encoder = \"rgcn\"\ndim = 8\n",
    "encoder = \"concatmlp\"\ndim = 8\nhidden = [12, 8]\n",
];
const BRIEF: &str = "batch = 16\nepochs = 2\nlearning_rate = 0.02\n";

/// Trains in a fresh folder, stopping at an update if asked to, and gives what was told.
fn run(
    folder: &Path,
    text: &str,
    stop_at: Option<u64>,
) -> (Result<Trained, Error>, Vec<EpochRecord>) {
    run_on(&Arc::new(rings()), folder, text, stop_at)
}

fn run_on(
    graph: &Arc<Graph>,
    folder: &Path,
    text: &str,
    stop_at: Option<u64>,
) -> (Result<Trained, Error>, Vec<EpochRecord>) {
    let (mut folder, config) = TrainingFolder::resume(folder, graph, &raw(text)).unwrap();
    let (mut records, mut updates) = (Vec::new(), 0);
    let trained = folder.train(Arc::clone(graph), config, Device::Cpu, &mut |event| {
        match event {
            Event::Update { .. } => updates += 1,
            Event::Epoch(record) => records.push(record.clone()),
            _ => {}
        }
        if stop_at == Some(updates) { Signal::Stop } else { Signal::Continue }
    });
    (trained, records)
}

fn weights(folder: &Path) -> Vec<u8> {
    fs::read(folder.join(MODEL)).unwrap()
}

/// The weights that a training ends with, on some threads.
fn weights_on(threads: usize, text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| run(folder.path(), text, None).0.unwrap());
    weights(folder.path())
}

#[test]
fn training_learns_and_keeps_the_best_epoch() {
    let text = "dim = 16\nbatch = 16\nepochs = 12\nlearning_rate = 0.05\npatience = 3\ndropout = 0";
    let choices = [
        "",
        "output = \"mixture\"\ncomponents = 2",
        "output = \"sigmoid\"",
        "output = \"mixture-of-sigmoids\"\ncomponents = 2",
        "encoder = \"compgcn\"\nmessage_dropout = 0",
        "encoder = \"rgcn\"\nmessage_dropout = 0",
    ];
    for choice in choices {
        let folder = tempfile::tempdir().unwrap();
        let (trained, records) = run(folder.path(), &format!("{text}\n{choice}"), None);
        let trained = trained.unwrap();
        assert!(records.last().unwrap().loss < 0.7 * records[0].loss);
        let mrr = |record: &EpochRecord| record.valid.unwrap().realistic.mrr;
        // Of several equal ones the first.
        let best = records.iter().rev().max_by(|a, b| mrr(a).total_cmp(&mrr(b))).unwrap();
        assert_eq!(trained.best.epoch, best.epoch);
        // What is read back ranks as the model did in training, to the last bit.
        let model = Model::open(folder.path(), Device::Cpu).unwrap();
        let ranks = rank_answers(model.graph(), Split::Valid, &model, &mut silent());
        assert_eq!(metrics(&ranks.unwrap()).unwrap(), best.valid.unwrap());
        if trained.end == End::Patience {
            assert_eq!(trained.epochs, best.epoch + 3);
        }
    }
}

#[test]
fn a_training_in_memory_and_one_in_a_folder_are_the_same() {
    let other = "encoder = \"transe\"\noutput = \"margin\"\nnegatives = 7\ncheckpoint_every = 3";
    for text in ["output = \"mixture\"\ncomponents = 2", "encoder = \"conve\"\ndim = 24", other] {
        let text = format!("batch = 16\nepochs = 4\nlearning_rate = 0.02\npatience = 1\n{text}\n");
        let temp = tempfile::tempdir().unwrap();
        let on_disk = run(temp.path(), &text, None).0.unwrap();
        let config = Config::parse(&text).unwrap();
        let mut trainer = Trainer::new(Arc::new(rings()), config, Device::Cpu).unwrap();
        let in_memory = trainer.train(&mut silent()).unwrap();
        assert_eq!(
            (in_memory.best, in_memory.updates, in_memory.epochs, in_memory.end),
            (on_disk.best, on_disk.updates, on_disk.epochs, on_disk.end)
        );
        let (own, read) = (trainer.into_model(), Model::open(temp.path(), Device::Cpu).unwrap());
        assert!(to_safetensors(&own.tables()) == to_safetensors(&read.tables()), "{text}");
    }
}

#[test]
fn a_training_stopped_anywhere_and_resumed_ends_with_the_same_bits() {
    let mixture =
        format!("{SMALL}output = \"mixture\"\ncomponents = 2\nschedule = \"cosine\"\nwarmup = 3\n");
    let other = format!(
        "{SMALL}encoder = \"tucker\"\nschedule = \"plateau\"\nclip = 0.5\nn3 = 0.01\ncheckpoint_every = 3\n"
    );
    let compgcn = format!("{SMALL}encoder = \"compgcn\"\nmessage_layers = 2\n");
    let rgcn = format!("{SMALL}encoder = \"rgcn\"\n");
    let sampled = format!(
        "{SMALL}encoder = \"rotate\"\noutput = \"margin\"\nnegatives = 6\nadversarial = 1\nbias = true\n"
    );
    let recipe = format!(
        "{SMALL}encoder = \"complex\"\noptimizer = \"adagrad\"\ninit = \"normal\"\ninit_scale = 0.1\n\
         n3 = 0.01\ndura = 0.01\nrelation_weight = 0.5\naverage = 0.9\nvalid_sample = 3\n\
         checkpoint_every = 3\n"
    );
    let averaged = format!("{mixture}average = 0.8\n");
    for text in [&mixture, &other, &compgcn, &rgcn, &sampled, &recipe, &averaged] {
        let whole = tempfile::tempdir().unwrap();
        run(whole.path(), text, None).0.unwrap();
        for stop_at in [1, 5, 8, 13] {
            let parts = tempfile::tempdir().unwrap();
            let (stopped, mut records) = run(parts.path(), text, Some(stop_at));
            assert!(matches!(stopped, Err(Error::Interrupted)));
            let (trained, more) = run(parts.path(), text, None);
            trained.unwrap();
            records.extend(more);
            assert!(weights(parts.path()) == weights(whole.path()), "stopped at {stop_at}");
            let lines = fs::read_to_string(parts.path().join(METRICS)).unwrap();
            assert_eq!(lines.lines().count(), records.len());
        }
    }
}

#[test]
fn a_training_of_rows_stopped_and_resumed_ends_with_the_same_bits() {
    // As many entities as it takes for updates to change only the rows that a batch names.
    let n = 8192;
    let train: String = (0..n).map(|i| format!("e{i} next e{};", (i + 1) % n)).collect();
    let graph = Arc::new(graph([&train, "e0 next e2", "e0 next e3"]));
    let text = "dim = 4\nbatch = 2000\nepochs = 2\noutput = \"softmax\"\nnegatives = 50\n";
    assert!(Config::parse(text).unwrap().updates_rows(graph.entities().len()));
    for own in ["", "optimizer = \"adagrad\"\nrelation_weight = 0.5\naverage = 0.9\n"] {
        let text = format!("{text}{own}");
        let [whole, parts] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        run_on(&graph, whole.path(), &text, None).0.unwrap();
        for stop_at in [Some(3), Some(8), None] {
            let stopped = run_on(&graph, parts.path(), &text, stop_at).0;
            assert_eq!(stopped.is_err(), stop_at.is_some());
        }
        assert!(weights(parts.path()) == weights(whole.path()), "{own}");
    }
}

#[test]
fn every_encoder_repeats_at_any_number_of_threads_and_after_a_stop() {
    for encoder in OTHERS {
        let text = format!("{BRIEF}{encoder}");
        let whole = weights_on(1, &text);
        assert!(weights_on(2, &text) == whole, "{encoder}");
        let parts = tempfile::tempdir().unwrap();
        assert!(matches!(run(parts.path(), &text, Some(5)).0, Err(Error::Interrupted)));
        run(parts.path(), &text, None).0.unwrap();
        assert!(weights(parts.path()) == whole, "{encoder}");
    }
}
