//! Trainings in memory.

mod items;
mod loss;
mod schedule;

use super::*;
use crate::evaluate::tests::graph;
use crate::model::to_safetensors;
use crate::parameters::tensors;
use crate::progress::silent;

/// A small graph with something to learn: neighbours on two rings.
pub(crate) fn rings() -> Graph {
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
    Config::parse(text).unwrap()
}

fn network(config: &Config, graph: &Graph) -> Network {
    let weights = Weights::new(config.training.seed, Device::Cpu.burn().autodiff());
    Network::new(config, &config.domain(graph), weights)
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
    // Normalisation takes more.
    let mixture = "output = \"mixture\"\nlayers =";
    assert_eq!([0, 1].map(|n| batch(&format!("{mixture} {n}\ncomponents = 1"))), [4, 8]);
    assert_eq!(batch("encoder = \"conve\"\ndim = 24"), 8);
}

const SMALL: &str = "dim = 8\nbatch = 16\nepochs = 4\nlearning_rate = 0.02\n";

fn trainer(text: &str) -> Trainer {
    Trainer::new(Arc::new(rings()), config(text), Device::Cpu).unwrap()
}

/// A training that is over, and its epochs.
fn trained(text: &str) -> (Trainer, Vec<EpochRecord>) {
    let (mut trainer, mut records) = (trainer(text), Vec::new());
    let trained = trainer.train(&mut |event| {
        if let Event::Epoch(record) = event {
            records.push(record.clone());
        }
        Signal::Continue
    });
    trained.unwrap();
    (trainer, records)
}

/// The weights of the best epoch.
fn weights(text: &str) -> Vec<u8> {
    to_safetensors(&trained(text).0.into_model().tables())
}

/// The weights as they are now.
fn weights_now(trainer: &Trainer) -> Vec<Vec<f32>> {
    let values =
        |tensor: crate::parameters::Named| tensor.values.into_data().try_into_vec().unwrap();
    tensors(trainer.learner().network()).into_iter().map(values).collect()
}

/// An epoch without what a clock said of it.
fn without_times(record: EpochRecord) -> EpochRecord {
    EpochRecord { seconds: 0.0, valid_seconds: 0.0, items_per_second: 0.0, ..record }
}

#[test]
fn updates_by_hand_and_epochs_are_the_same_training_as_all_at_once() {
    let mixture = "output = \"mixture\"\ncomponents = 2\nschedule = \"plateau\"\nwarmup = 3";
    let sampled = "encoder = \"rotate\"\noutput = \"margin\"\nnegatives = 6";
    for text in ["", mixture, sampled] {
        let text = format!("{SMALL}{text}");
        let (whole, records) = trained(&text);
        let mut by_hand = trainer(&text);
        for (n_updates, record) in [0, 1, 5, 7].into_iter().zip(records) {
            for number in 1..=n_updates {
                let update = by_hand.update().unwrap();
                let Update { epoch, batch, batches, .. } = update;
                assert_eq!((epoch, batch, batches), (record.epoch - 1, number, 7));
            }
            let found = by_hand.epoch(&mut silent()).unwrap();
            // How dense gradients were is told of the whole epoch either way.
            assert_eq!(without_times(found), without_times(record));
        }
        assert!(by_hand.is_over());
        assert_eq!(by_hand.trained().unwrap().best, whole.trained().unwrap().best);
        assert!(weights_now(&by_hand) == weights_now(&whole), "{text}");
    }
}

#[test]
fn a_training_goes_on_where_it_was_stopped() {
    let mut stopped = trainer(SMALL);
    for stop_at in [3, 8, 20] {
        let mut updates = stopped.position().updates;
        let outcome = stopped.train(&mut |event| {
            updates += u64::from(matches!(event, Event::Update { .. }));
            if updates == stop_at { Signal::Stop } else { Signal::Continue }
        });
        assert!(matches!(outcome, Err(Error::Interrupted)));
        assert_eq!(stopped.trained(), None);
    }
    stopped.train(&mut silent()).unwrap();
    assert!(to_safetensors(&stopped.into_model().tables()) == weights(SMALL));
}

#[test]
fn a_model_is_that_of_the_best_epoch_or_as_it_is() {
    let text = "dim = 16\nbatch = 16\nepochs = 12\nlearning_rate = 0.05\npatience = 3\ndropout = 0";
    let (trainer, records) = trained(text);
    let best = trainer.trained().unwrap().best;
    assert!(best.epoch < records.len(), "validation got worse in the end");
    let now = trainer.validate(&mut silent()).unwrap();
    let model = trainer.into_model();
    assert_eq!(model.trained().best, best);
    let valid = model.evaluate(Split::Valid, &mut silent()).unwrap();
    assert_eq!(valid, records[best.epoch - 1].valid);
    assert_eq!(now, records.last().unwrap().valid);

    let mut by_hand = self::trainer(text);
    by_hand.update().unwrap();
    let now = by_hand.validate(&mut silent()).unwrap();
    let model = by_hand.into_model();
    assert_eq!((model.trained().end, model.trained().updates), (End::Stopped, 1));
    assert_eq!(model.evaluate(Split::Valid, &mut silent()).unwrap(), now);
}

#[test]
fn the_same_seed_gives_the_same_run_at_any_number_of_threads() {
    let weights_on = |threads: usize, text: &str| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| weights(text))
    };
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
fn a_sigmoid_learns_to_rank_and_a_mixture_of_one_without_layers_is_the_same_model() {
    let text = "dim = 16\nbatch = 16\nepochs = 20\nlearning_rate = 0.05\ndropout = 0";
    let mixture = "output = \"mixture-of-sigmoids\"\ncomponents = 1\nlayers = 0";
    let [plain, mixed] = ["output = \"sigmoid\"", mixture].map(|output| {
        let records = trained(&format!("{text}\n{output}")).1;
        records.iter().map(|record| (record.loss, record.valid.unwrap())).collect::<Vec<_>>()
    });
    assert_eq!(plain, mixed);
    let mrr = |valid: &Metrics| valid.realistic.mrr;
    let (first, best) = (mrr(&plain[0].1), plain.iter().map(|x| mrr(&x.1)).fold(0.0, f64::max));
    assert!(best > 1.5 * first, "from {first} to {best}");
    // Such probabilities are no distribution, which alone has a likelihood of answers.
    assert_eq!((plain[0].1.nll, plain[0].1.nll_filtered), (None, None));
}

#[test]
fn sigmoids_start_at_the_density_of_the_training_facts() {
    // Queries of training: (a, r), (b, r), (c, r⁻¹), (d, r⁻¹); e is an answer of validation alone. Six
    // answers in four queries of five entities: odds of 6 to 14.
    let graph = graph(["a r c; a r d; b r c", "b r e", ""]);
    let offset = |text: &str| {
        let found = tensors(&network(&config(&format!("dim = 4\n{text}")), &graph));
        let found =
            found.into_iter().find(|t| ["output.offset", "output.bias"].contains(&&*t.name));
        found.map(|tensor| tensor.values.into_data().try_into_vec::<f32>().unwrap())
    };
    let expected = (6.0_f32 / 14.0).ln();
    for output in ["sigmoid", "mixture-of-sigmoids"] {
        assert_eq!(offset(&format!("output = \"{output}\"")), Some(vec![expected]), "{output}");
    }
    // The first of the waves is constant.
    let waves = offset("output = \"fourier\"\nfrequencies = 1");
    assert_eq!(waves, Some(vec![expected, 0.0, 0.0]));
    // Distances have a margin, and drawn entities weigh as much as answers.
    for other in ["score = \"l1\"", "negatives = 3"] {
        assert_eq!(offset(&format!("output = \"sigmoid\"\n{other}")), None, "{other}");
    }
    assert_eq!(offset("output = \"softmax\""), None);
}

#[test]
fn another_seed_gives_another_run() {
    let [a, b] = ["seed = 1", "seed = 2"].map(|seed| weights(&format!("{SMALL}{seed}")));
    assert!(a != b);
}

#[test]
fn without_validation_the_last_epoch_is_kept() {
    let graph = Arc::new(graph(["a r b; b r c", "", ""]));
    let config = config("dim = 4\nepochs = 3\npatience = 1");
    let mut trainer = Trainer::new(graph, config, Device::Cpu).unwrap();
    let trained = trainer.train(&mut silent()).unwrap();
    assert_eq!(trained.best, Best { epoch: 3, valid_mrr: None });
}

#[test]
fn a_loss_that_is_not_finite_stops_before_the_update() {
    let text = "dim = 4\nbatch = 16\nepochs = 40\nlearning_rate = 1e30\ndropout = 0";
    let mut trainer = trainer(text);
    trainer.update().unwrap();
    let before = weights_now(&trainer);
    let outcome = trainer.train(&mut silent());
    let Err(error @ Error::NotFinite { .. }) = outcome else { panic!("{outcome:?}") };
    let text = error.to_string();
    assert!(text.starts_with("loss became "), "{text}");
    assert!(text.contains(" at epoch 1, batch 2; the trouble is in `encoder."), "{text}");
    assert_eq!(trainer.position().updates, 1);
    assert!(weights_now(&trainer) == before);
}

#[test]
fn a_gradient_that_is_not_finite_is_told_with_where_it_was() {
    let error = NotFinite {
        quantity: "the gradient's norm",
        value: f64::INFINITY,
        parameter: "encoder.entity".into(),
        grad_norm: 4.1e8,
    };
    assert_eq!(
        trainer(SMALL).not_finite(error).to_string(),
        "the gradient's norm became inf at epoch 1, batch 1; the trouble is in `encoder.entity` \
         (gradient norm 4.1e8)"
    );
}
