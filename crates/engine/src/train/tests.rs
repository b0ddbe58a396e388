use std::path::Path;

use super::*;
use crate::RawConfig;
use crate::evaluate::tests::graph;
use crate::output::Negatives;
use crate::parameters::tensors;

/// A small graph with something to learn: neighbours on two rings.
fn rings() -> Graph {
    let mut splits = [const { String::new() }; 3];
    for i in 0..20 {
        let near = format!("e{i} next e{}; e{i} over e{};", (i + 1) % 20, (i + 3) % 20);
        splits[if i % 5 == 4 { 1 } else { 0 }].push_str(&near);
        splits[0].push_str(&format!("e{i} under e{};", (i + 17) % 20));
    }
    splits[2].push_str("e0 over e4");
    graph(splits.each_ref().map(|text| text.as_str()))
}

fn config(text: &str) -> Config {
    let mut raw = RawConfig::default();
    raw.add_file(Path::new("test.toml"), text).unwrap();
    raw.check().unwrap()
}

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
    run_on(&rings(), folder, text, stop_at)
}

fn run_on(
    graph: &Graph,
    folder: &Path,
    text: &str,
    stop_at: Option<u64>,
) -> (Result<Trained, Error>, Vec<EpochRecord>) {
    let mut raw = RawConfig::default();
    raw.add_file(Path::new("test.toml"), text).unwrap();
    let (mut folder, config) = TrainingFolder::resume(folder, graph, &raw).unwrap();
    let (mut records, mut updates) = (Vec::new(), 0);
    let trained = train(graph, &config, &mut folder, &mut |event| {
        match event {
            Event::Update { .. } => updates += 1,
            Event::Epoch(record) => records.push(record.clone()),
            Event::Evaluating { .. } => {}
        }
        if stop_at == Some(updates) { Signal::Stop } else { Signal::Continue }
    });
    (trained, records)
}

fn weights(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("model.safetensors")).unwrap()
}

#[test]
fn every_query_is_visited_once_and_the_last_short_batch_is_kept() {
    let graph = rings();
    let items = ItemList::of(&graph, &Config::default()).unwrap();
    let n_training_queries = (0..graph.answers().n_queries())
        .filter(|number| !graph.answers().in_split(*number, Split::Train).is_empty())
        .count();
    assert_eq!(items.len(), n_training_queries);
    let order = shuffled((0..items.len() as u32).collect(), 3, 1);
    let batches: Vec<usize> =
        order.chunks(16).map(|chunk| items.batch(&graph, chunk).queries.subjects.len()).collect();
    assert_eq!(batches.iter().sum::<usize>(), n_training_queries);
    assert_eq!(batches.last(), Some(&(n_training_queries % 16)));
    let mut sorted = order;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..items.len() as u32));
}

#[test]
fn with_one_answer_an_item_is_a_triple_in_one_direction() {
    let graph = rings();
    let items = ItemList::of(&graph, &config("answers_per_item = 1")).unwrap();
    assert_eq!(items.len(), 2 * graph.triples(Split::Train).len());
    let all: Vec<u32> = (0..items.len() as u32).collect();
    let batch = items.batch(&graph, &all);
    assert_eq!(batch.answers.len(), items.len());
    assert!(batch.answers.weights.iter().all(|weight| *weight == 1.0));
}

#[test]
fn queries_with_many_answers_become_several_items() {
    let graph = graph(["a r b; a r c; a r d; a r e; a r f; b r a", "", ""]);
    let items = ItemList::of(&graph, &config("answers_per_item = 2")).unwrap();
    let sizes: Vec<usize> =
        (0..items.len() as u32).map(|item| items.batch(&graph, &[item]).answers.len()).collect();
    // Five answers in three items, (b, r, ?) in one, and the six inverse queries, of which
    // (a, r⁻¹, ?) and the others have one answer each.
    assert_eq!(sizes, [1, 2, 2, 1, 1, 1, 1, 1, 1, 1]);
    let all: Vec<u32> = (0..items.len() as u32).collect();
    let mut objects = items.batch(&graph, &all[..3]).answers.objects.clone();
    objects.sort_unstable();
    assert_eq!(objects, [1, 2, 3, 4, 5]);
}

#[test]
fn answers_weigh_one_each_or_share_one() {
    let graph = graph(["a r b; a r c; a r d", "", ""]);
    for (text, expected) in [("", 1.0), ("answer_weight = \"share\"", 1.0 / 3.0)] {
        let items = ItemList::of(&graph, &config(text)).unwrap();
        let batch = items.batch(&graph, &[0]);
        assert_eq!(batch.answers.weights, vec![expected; 3]);
    }
}

#[test]
fn a_batch_loss_is_divided_by_its_number_of_queries() {
    let graph = rings();
    let config = config("dim = 8\ndropout = 0");
    let items = ItemList::of(&graph, &config).unwrap();
    let model = new_model(&config, &graph, Weights::new(config.seed, device().autodiff()));
    let workspace = Arc::new(Mutex::new(Workspace::new(0)));
    for n in [3, 7] {
        let batch = items.batch(&graph, &(0..n).collect::<Vec<u32>>());
        let Loss { total, cross_entropy } =
            model.loss(&batch, &config, &Noise::new(0, 0), &workspace);
        let (total, sum) = (total.into_scalar::<f32>(), cross_entropy.into_scalar::<f32>());
        assert!((total - sum / n as f32).abs() < 1e-6);
    }
}

#[test]
fn penalties_equal_their_formulas() {
    let graph = graph(["a r b; a r c", "", ""]);
    let config = config("dim = 4\ndropout = 0\nn3 = 0.5\nl2 = 0.25");
    let model = new_model(&config, &graph, Weights::new(config.seed, device().autodiff()));
    let batch = ItemList::of(&graph, &config).unwrap().batch(&graph, &[0]);
    let workspace = Arc::new(Mutex::new(Workspace::new(0)));
    let Loss { total, cross_entropy } = model.loss(&batch, &config, &Noise::new(0, 0), &workspace);
    let found = total.into_scalar::<f32>() - cross_entropy.into_scalar::<f32>();
    let all = tensors(&model);
    let table = |name: &str| {
        let tensor = all.iter().find(|tensor| tensor.name == name).unwrap();
        tensor.values.to_data().try_to_vec::<f32>().unwrap()
    };
    let (entity, relation) = (table("encoder.entity"), table("encoder.relation"));
    let norm =
        |row: &[f32]| -> f32 { row.iter().map(|x| 0.5 * x.abs().powi(3) + 0.25 * x * x).sum() };
    // Both triples have subject a and relation r; b and c are their objects.
    let expected = 2.0 * norm(&entity[..4]) + 2.0 * norm(&relation[..4]) + norm(&entity[4..12]);
    assert!((found - expected).abs() < 1e-5, "{found} {expected}");
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
        let model = crate::Run::open(folder.path()).unwrap();
        let ranks = rank_answers(&model.graph, Split::Valid, &model, &mut |_, _| Signal::Continue);
        assert_eq!(metrics(&ranks.unwrap()).unwrap(), best.valid.unwrap());
        if trained.end == End::Patience {
            assert_eq!(trained.epochs, best.epoch + 3);
        }
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
    for text in [&mixture, &other, &compgcn, &rgcn, &sampled] {
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
            let lines = std::fs::read_to_string(parts.path().join("metrics.jsonl")).unwrap();
            assert_eq!(lines.lines().count(), records.len());
        }
    }
}

#[test]
fn a_training_of_rows_stopped_and_resumed_ends_with_the_same_bits() {
    // As many entities as it takes for updates to change only the rows that a batch names.
    let n = 8192;
    let train: String = (0..n).map(|i| format!("e{i} next e{};", (i + 1) % n)).collect();
    let graph = graph([&train, "e0 next e2", "e0 next e3"]);
    let text = "dim = 4\nbatch = 2000\nepochs = 2\noutput = \"softmax\"\nnegatives = 50\n";
    assert!(config(text).updates_rows(graph.entities().len()));
    let [whole, parts] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    run_on(&graph, whole.path(), text, None).0.unwrap();
    for stop_at in [Some(3), Some(8), None] {
        let stopped = run_on(&graph, parts.path(), text, stop_at).0;
        assert_eq!(stopped.is_err(), stop_at.is_some());
    }
    assert!(weights(parts.path()) == weights(whole.path()));
}

/// The weights that a training ends with, on some threads.
fn weights_on(threads: usize, text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| run(folder.path(), text, None).0.unwrap());
    weights(folder.path())
}

#[test]
fn the_same_seed_gives_the_same_run_at_any_number_of_threads() {
    for text in [
        "output = \"mixture\"\ncomponents = 2",
        "output = \"mixture-of-sigmoids\"\ncomponents = 2",
        "score = \"cosine\"\nnegatives = 7",
        "encoder = \"transe\"\noutput = \"margin\"\nnegatives = 7",
    ] {
        let text = format!("{SMALL}{text}\n");
        let one = weights_on(1, &text);
        assert!(weights_on(2, &text) == one && weights_on(5, &text) == one, "{text}");
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

/// A loss of one batch, with the negatives that its config asks for.
fn loss_of(text: &str, numbers: &[u32]) -> f32 {
    let (graph, config) = (rings(), config(&format!("dim = 8\ndropout = 0\n{text}")));
    let model = new_model(&config, &graph, Weights::new(config.seed, device().autodiff()));
    let mut batch = ItemList::of(&graph, &config).unwrap().batch(&graph, numbers);
    batch.negatives = draw_negatives(&graph, &batch.queries, &config, 0);
    let workspace = Arc::new(Mutex::new(Workspace::new(0)));
    model.loss(&batch, &config, &Noise::new(0, 0), &workspace).total.into_scalar()
}

#[test]
fn a_sampled_softmax_with_all_entities_is_the_full_one() {
    let numbers: Vec<u32> = (0..30).collect();
    for score in ["dot", "cosine", "l1", "l2", "modulus", "mlp"] {
        let text = format!("score = \"{score}\"\nbias = true");
        let full = loss_of(&text, &numbers);
        // More than the twenty there are.
        let sampled = loss_of(&format!("{text}\nnegatives = 25"), &numbers);
        assert!((full - sampled).abs() < 2e-6 * full, "{score}: {full} {sampled}");
        let few = loss_of(&format!("{text}\nnegatives = 10"), &numbers);
        // An estimate: at the start all scores are much the same.
        assert!(few != full && (few - full).abs() < 0.1 * full, "{score}: {full} {few}");
    }
}

#[test]
fn other_training_answers_of_a_query_are_no_negatives() {
    let graph = graph(["a r b; a r c; d r d", "a r d", ""]);
    let config = config("answers_per_item = 1\nnegatives = 4");
    let items = ItemList::of(&graph, &config).unwrap();
    let batch = items.batch(&graph, &[0]);
    let negatives = draw_negatives(&graph, &batch.queries, &config, 0).unwrap();
    let expected = Negatives::draw(&config, 4, 0, [vec![1, 2]].into_iter()).unwrap();
    // d is an answer too, but of validation, which training must not know.
    assert_eq!(negatives, expected);
}

#[test]
fn a_sigmoid_learns_to_rank_and_a_mixture_of_one_without_layers_is_the_same_model() {
    let text = "dim = 16\nbatch = 16\nepochs = 20\nlearning_rate = 0.05\ndropout = 0";
    let mixture = "output = \"mixture-of-sigmoids\"\ncomponents = 1\nlayers = 0";
    let [plain, mixed] = ["output = \"sigmoid\"", mixture].map(|output| {
        let folder = tempfile::tempdir().unwrap();
        let (trained, records) = run(folder.path(), &format!("{text}\n{output}"), None);
        trained.unwrap();
        records.iter().map(|record| (record.loss, record.valid.unwrap())).collect::<Vec<_>>()
    });
    assert_eq!(plain, mixed);
    let mrr = |valid: &Metrics| valid.realistic.mrr;
    let (first, best) = (mrr(&plain[0].1), plain.iter().map(|x| mrr(&x.1)).fold(0.0, f64::max));
    assert!(best > 2.0 * first, "from {first} to {best}");
    // Such probabilities are no distribution, which alone has a likelihood of answers.
    assert_eq!((plain[0].1.nll, plain[0].1.nll_filtered), (None, None));
}

#[test]
fn another_seed_gives_another_run() {
    let [a, b] = ["seed = 1", "seed = 2"].map(|seed| {
        let folder = tempfile::tempdir().unwrap();
        run(folder.path(), &format!("{SMALL}{seed}"), None).0.unwrap();
        weights(folder.path())
    });
    assert!(a != b);
}

#[test]
fn without_validation_the_last_epoch_is_kept() {
    let graph = graph(["a r b; b r c", "", ""]);
    let folder = tempfile::tempdir().unwrap();
    let config = config("dim = 4\nepochs = 3\npatience = 1");
    let mut training =
        TrainingFolder::create(folder.path(), &graph, &config, crate::Existing::Keep).unwrap();
    let trained = train(&graph, &config, &mut training, &mut |_| Signal::Continue).unwrap();
    assert_eq!(trained.best, Best { epoch: 3, valid_mrr: None });
}

#[test]
fn a_graph_without_training_triples_is_an_error() {
    let graph = graph(["", "a r b", ""]);
    let error = ItemList::of(&graph, &Config::default()).unwrap_err();
    assert_eq!(error.to_string(), "the graph has no training triples");
}

#[test]
fn a_loss_that_is_not_finite_stops_before_the_update() {
    let folder = tempfile::tempdir().unwrap();
    let text = "dim = 4\nbatch = 16\nepochs = 40\nlearning_rate = 1e30\ndropout = 0";
    let (trained, _) = run(folder.path(), text, None);
    let Err(error @ Error::NotFinite { .. }) = trained else { panic!("{trained:?}") };
    let text = error.to_string();
    assert!(text.starts_with("loss became "), "{text}");
    assert!(text.contains(" at epoch 1, batch 2; the trouble is in `encoder."), "{text}");
}

/// The gradients of a first batch, each times `factor`.
fn gradients(state: &State, graph: &Graph, config: &Config, factor: f32) -> GradientsParams {
    let batch = ItemList::of(graph, config).unwrap().batch(graph, &[0, 1, 2]);
    let workspace = Arc::new(Mutex::new(Workspace::new(1 << 20)));
    let loss = state.model.loss(&batch, config, &Noise::new(0, 0), &workspace);
    GradientsParams::from_grads(loss.total.mul_scalar(factor).backward(), &state.model)
}

#[test]
fn clipping_shortens_a_gradient_to_its_limit_and_refuses_one_without_length() {
    let (graph, config) = (rings(), config(SMALL));
    let state = State::new(&config, &graph);
    let grads = gradients(&state, &graph, &config, 1.0);
    let norm = norms(&state.model, &grads).iter().map(|(_, norm)| norm * norm).sum::<f64>().sqrt();
    let factor = |clip| clip_factor(&state, &grads, clip, &config).unwrap();
    assert_eq!([factor(norm / 4.0), factor(norm), factor(2.0 * norm)], [0.25, 1.0, 1.0]);

    let grads = gradients(&state, &graph, &config, f32::INFINITY);
    let error = clip_factor(&state, &grads, 1.0, &config).unwrap_err().to_string();
    assert!(error.starts_with("the gradient's norm became "), "{error}");
}

#[test]
fn schedules_change_the_learning_rate_as_they_say() {
    let at = |text: &str, updates: u64| {
        let config = config(&format!("learning_rate = 1.0\nepochs = 10\n{text}"));
        let position = Position { updates, plateau_factor: 0.25, ..Position::default() };
        learning_rate_at(&config, &position, 5)
    };
    assert_eq!([at("", 0), at("", 40)], [1.0, 1.0]);
    assert_eq!([at("warmup = 4", 0), at("warmup = 4", 1), at("warmup = 4", 9)], [0.25, 0.5, 1.0]);
    assert_eq!(at("schedule = \"plateau\"", 9), 0.25);
    let cosine = |updates| at("schedule = \"cosine\"", updates);
    assert_eq!(cosine(0), 1.0);
    assert!((cosine(25) - 0.5).abs() < 1e-12 && cosine(49) < 0.01);
}

#[test]
fn the_plateau_schedule_halves_after_three_epochs_without_improvement() {
    let config = config("epochs = 100\npatience = 100");
    let mut position = Position { plateau_factor: 1.0, ..Position::default() };
    let graph = graph(["a r b", "a r a", ""]);
    let valid = |mrr: f64| {
        let scorer = new_model(&config, &graph, Weights::new(config.seed, device())).scoring();
        let ranks = rank_answers(&graph, Split::Valid, &scorer, &mut |_, _| Signal::Continue);
        let mut metrics = metrics(&ranks.unwrap()).unwrap();
        metrics.realistic.mrr = mrr;
        metrics
    };
    let best: Vec<bool> = [0.3, 0.4, 0.4, 0.2, 0.1, 0.5]
        .into_iter()
        .map(|mrr| end_epoch(&mut position, &config, Some(&valid(mrr))))
        .collect();
    assert_eq!(best, [true, true, false, false, false, true]);
    assert_eq!(position.plateau_factor, 0.5);
    assert_eq!(position.best, Some(Best { epoch: 6, valid_mrr: Some(0.5) }));
}

#[test]
fn memory_is_forecast_from_the_sizes() {
    let graph = rings();
    let small = forecast(&config("dim = 8"), &graph);
    assert!(small >= 16 * (20 + 6) * 8);
    let large = forecast(&config("dim = 8\noutput = \"mixture\"\ncomponents = 64"), &graph);
    assert!(large > 10 * small);
    // Beside its tables, an encoder that reads edges keeps each in three orders, of three words.
    let reading = "dim = 8\ninitial_dim = 8\nencoder = \"rgcn\"";
    let edges = 2 * graph.triples(Split::Train).len() as u64;
    assert!(forecast(&config(reading), &graph) > small + 36 * edges);
    // Layers of 512 and 256 after the first, like all that is learned, and their gradient once more
    // for each of the chunks, which are of two objects.
    let layers = 513 * 256 + 257;
    let mlp = forecast(&config("dim = 8\nscore = \"mlp\""), &graph);
    assert!(mlp > small + (16 + 4 * 20 / 2) * layers);
}

#[test]
fn small_graphs_get_small_batches() {
    // The rings have 120 items: too few for a hundred updates of at least four.
    let batch = |text: &str| advised_batch(&rings(), &config(text)).unwrap();
    assert_eq!(batch(""), 4);
    assert_eq!(batch("batch = 3"), 3);
}
