use std::fs;

use fullrank_graph::EntityId;

use super::outcome::TestAnswers;
use super::*;
use crate::config::Config;
use crate::evaluate::tests::graph;
use crate::metrics::{AnswerRank, metrics};
use crate::progress::silent;
use crate::run::{Existing, TrainingFolder};

/// Two test triples, so four answers: two of r, and two of q.
fn four_answers() -> Graph {
    graph(["a r b; b r c; c q a; d q b", "a q c", "b r d; d q a"])
}

/// A run that is not there, with these places of the four answers, each with as much NLL as its rank.
fn outcome(settings: &str, seed: u64, places: [u32; 4]) -> Outcome {
    let graph = four_answers();
    let asked = crate::evaluate::held_out_queries(&graph, Split::Test);
    let rank = |(query, place): (&fullrank_graph::Query, u32)| AnswerRank {
        query: graph.answers().find(*query).unwrap() as u32,
        object: EntityId(0),
        above: place - 1,
        beside: 0,
        from_test: (0, 0),
        candidates: 4,
        candidates_from_test: 0,
        nll_candidates: None,
        nll_filtered: Some(f64::from(place)),
        nll: Some(f64::from(place)),
    };
    let ranks: Vec<AnswerRank> = asked.iter().zip(places).map(rank).collect();
    let config = Config::parse(&format!("{settings}\nseed = {seed}")).unwrap();
    Outcome {
        run: format!("{settings}, {seed}").into(),
        model: 0,
        seed,
        is_finished: true,
        parameters: 10,
        epochs: 2,
        best_epoch: 1,
        updates: 20,
        minutes: Some(0.5),
        valid: None,
        test: metrics(&ranks).unwrap(),
        calibration: Vec::new(),
        records: Vec::new(),
        sessions: Vec::new(),
        config,
        answers: TestAnswers::of(ranks),
    }
}

fn comparison(runs: Vec<Outcome>) -> Comparison {
    Comparison::of(&four_answers(), runs, 1000, &mut silent()).unwrap()
}

fn difference<'a>(comparison: &'a Comparison, a: &str, b: &str, metric: Metric) -> &'a Difference {
    let is_it = |found: &&Difference| (found.a.as_str(), found.b.as_str()) == (a, b);
    let mut found = comparison.differences.iter().filter(is_it);
    found.find(|found| found.metric == metric).unwrap()
}

const SOFTMAX: &str = "output = \"softmax\"\ndim = 8";
const MIXTURE: &str = "output = \"mixture\"\ncomponents = 4\ndim = 8";
const CONTROL: &str = "output = \"mixture\"\ncomponents = 1\ndim = 8";

#[test]
fn a_hand_worked_example() {
    let runs = vec![
        outcome(MIXTURE, 1, [1, 1, 1, 1]),
        outcome(SOFTMAX, 0, [1, 2, 4, 4]),
        outcome(SOFTMAX, 1, [1, 1, 4, 4]),
        outcome(MIXTURE, 0, [1, 2, 2, 4]),
    ];
    let found = comparison(runs);
    let names: Vec<&str> = found.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(names, ["distmult d = 8, softmax", "distmult d = 8, mixture K = 4"]);
    assert_eq!(found.models[1].seeds, [0, 1]);
    assert_eq!(found.runs.iter().map(|run| run.model).collect::<Vec<_>>(), [1, 0, 0, 1]);
    // MRR ½ and ⅝ with softmax, 9/16 and 1 with a mixture; a deviation of two is their distance over √2.
    let spread = found.models[0].test[&Metric::Mrr];
    assert_eq!(spread.mean, 0.5625);
    assert!((spread.deviation.unwrap() - 0.125 / 2_f64.sqrt()).abs() < 1e-12, "{spread:?}");

    let mrr = difference(&found, names[0], names[1], Metric::Mrr);
    // 1/16 and 3/8: half of their sum, and their distance over √2.
    assert!((mrr.mean - 0.21875).abs() < 1e-12, "{mrr:?}");
    assert!((mrr.deviation.unwrap() - 0.3125 / 2_f64.sqrt()).abs() < 1e-12, "{mrr:?}");
    // Over both seeds, the four answers gain 0, 0, ½ and ⅜ on average.
    assert!(mrr.low >= 0.0 && mrr.high <= 0.5 && mrr.low < mrr.mean && mrr.mean < mrr.high);
    // Two differences of one sign: two of four choices.
    assert_eq!((mrr.p, mrr.p_holm, mrr.n_pairs, mrr.too_few_pairs), (0.5, None, 2, true));
    assert_eq!(found.n_tests, 0);
    let nll = difference(&found, names[0], names[1], Metric::NllFiltered);
    assert!((nll.mean - -1.0).abs() < 1e-12, "(−½ − 1½)/2: {nll:?}");
    let metrics: Vec<Metric> = found.differences.iter().map(|one| one.metric).collect();
    let without_amri: Vec<Metric> =
        Metric::ALL.into_iter().filter(|metric| *metric != Metric::Amri).collect();
    assert_eq!(metrics, without_amri);

    let pair = &found.pairs[0];
    let components =
        SettingDifference { name: "entropy_weight".into(), a: None, b: Some("0.001".into()) };
    assert!(pair.settings.contains(&components), "{:?}", pair.settings);
    assert!(pair.settings.iter().all(|setting| setting.name != "components"));
    let gains: Vec<(&str, usize, f64)> = pair
        .by_relation
        .iter()
        .map(|gain| (gain.relation.as_str(), gain.answers, gain.mrr.mean))
        .collect();
    assert_eq!(gains.iter().map(|gain| gain.1).sum::<usize>(), 4);
    assert!(
        (gains.iter().map(|gain| gain.2 * gain.1 as f64 / 4.0).sum::<f64>() - 0.21875).abs()
            < 1e-12
    );
    let weight = |gain: &DegreeGain| gain.mrr.mean * gain.answers as f64 / 4.0;
    assert!((pair.by_degree.iter().map(weight).sum::<f64>() - 0.21875).abs() < 1e-12);
    assert_eq!(found.dataset.triples, [4, 1, 2]);
    assert_eq!((found.dataset.test_queries, found.dataset.test_relations), (4, 2));
    assert_eq!(found.dataset.largest_relation.1, 0.5);
}

#[test]
fn output_layers_of_two_encoders_with_three_seeds_make_six_pairs() {
    let mut runs = Vec::new();
    for encoder in ["distmult", "complex"] {
        for seed in 0..3 {
            let with = |layer: &str| format!("encoder = \"{encoder}\"\n{layer}");
            runs.push(outcome(&with(SOFTMAX), seed, [4, 4, 4, 4]));
            runs.push(outcome(&with(CONTROL), seed, [4, 4, 4, 3]));
            runs.push(outcome(&with(MIXTURE), seed, [3, 3, 3, 3]));
        }
    }
    let found = comparison(runs);
    assert_eq!(found.models.len(), 6);
    let pairs: Vec<(&str, &str, usize)> =
        found.pairs.iter().map(|pair| (pair.a.as_str(), pair.b.as_str(), pair.n_pairs)).collect();
    let [softmax, control, mixture] = ["softmax", "mixture K = 1", "mixture K = 4"];
    assert_eq!(pairs[0], ("distmult d = 8, softmax", "distmult d = 8, mixture K = 1", 3));
    assert_eq!(pairs[1], ("distmult d = 8, softmax", "distmult d = 8, mixture K = 4", 3));
    assert_eq!(pairs[2], ("distmult d = 8, mixture K = 1", "distmult d = 8, mixture K = 4", 3));
    assert_eq!(
        pairs[6..],
        [(softmax, control, 6), (softmax, mixture, 6), (control, mixture, 6)],
        "{pairs:?}"
    );
    let three = difference(&found, pairs[1].0, pairs[1].1, Metric::Mrr);
    assert_eq!((three.p, three.too_few_pairs, three.p_holm), (0.25, true, None));
    let six = difference(&found, softmax, mixture, Metric::Mrr);
    assert_eq!((six.p, six.too_few_pairs), (0.03125, false));
    // Every answer gains the same, whichever are drawn.
    for bound in [six.mean, six.low, six.high, six.low_by_relation.unwrap()] {
        assert!((bound - 1.0 / 12.0).abs() < 1e-12, "{six:?}");
    }
    // Hits@1 do not change at all, which leaves no pair.
    let hits = difference(&found, softmax, mixture, Metric::HitsAt1);
    assert_eq!((hits.p, hits.too_few_pairs), (1.0, true));
    // MRR, MR, Hits@3 and both NLL of three pairs.
    assert_eq!(found.n_tests, 15);
    assert_eq!(six.p_holm, Some(15.0 * 0.03125));
}

#[test]
fn what_differs_in_encoder_dimension_or_seed_is_no_pair() {
    let found = comparison(vec![
        outcome(SOFTMAX, 0, [1, 1, 1, 1]),
        outcome(MIXTURE, 1, [1, 1, 1, 1]),
        outcome("dim = 16", 0, [1, 1, 1, 1]),
        outcome("dim = 16\nencoder = \"cp\"", 0, [1, 1, 1, 1]),
    ]);
    assert_eq!((found.models.len(), found.pairs.len()), (4, 1));
    assert_eq!((found.pairs[0].n_pairs, found.pairs[0].by_degree.len()), (0, 0));
    assert!(found.differences.is_empty());
}

#[test]
fn models_with_the_same_layer_are_called_by_what_they_differ_in() {
    let fast = format!("{SOFTMAX}\nlearning_rate = 0.05");
    let clipped = format!("{SOFTMAX}\nclip = 2.0");
    let found = comparison(vec![
        outcome(SOFTMAX, 0, [1, 1, 1, 1]),
        outcome(&fast, 0, [1, 1, 1, 2]),
        outcome(&clipped, 0, [1, 1, 1, 2]),
    ]);
    let names: Vec<&str> = found.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "distmult d = 8, softmax (no clip, learning_rate 0.001)",
            "distmult d = 8, softmax (no clip, learning_rate 0.05)",
            "distmult d = 8, softmax (clip 2.0, learning_rate 0.001)",
        ]
    );
    let rate = |a: &str, b: &str| SettingDifference {
        name: "learning_rate".into(),
        a: Some(a.into()),
        b: Some(b.into()),
    };
    assert_eq!(found.pairs[0].settings, [rate("0.001", "0.05")]);
    assert_eq!(found.pairs.len(), 3, "nothing is compared over a single encoder and dimension");
}

/// A finished run in a folder of its own.
fn trained(folder: &Path, graph: Graph, settings: &str) -> PathBuf {
    let (graph, config) = (Arc::new(graph), Config::parse(settings).unwrap());
    let mut run = TrainingFolder::create(folder, &graph, &config, Existing::Keep).unwrap();
    run.train(graph, config, Device::Cpu, &mut silent()).unwrap();
    folder.to_owned()
}

#[test]
fn runs_are_compared_by_their_folders_one_after_the_other() {
    let temp = tempfile::tempdir().unwrap();
    let quick = "dim = 4\nepochs = 1\nbatch = 4";
    let a = trained(&temp.path().join("a"), four_answers(), &format!("{quick}\nseed = 1"));
    let mixture = format!("{quick}\nseed = 1\noutput = \"mixture\"");
    // The same facts in another order.
    let other_order = graph(["d q b; c q a; b r c; a r b", "a q c", "d q a; b r d"]);
    let b = trained(&temp.path().join("b"), other_order, &mixture);
    let mut told = Vec::new();
    let found = compare(&[a.clone(), b.clone()], 100, Device::Cpu, &mut |event| {
        if let Event::Run { folder, done, total } = event {
            told.push((folder.to_owned(), done, total));
        }
        Signal::Continue
    });
    let found = found.unwrap();
    assert_eq!(told, [(a.clone(), 0, 2), (b.clone(), 1, 2)]);
    assert_eq!((found.runs.len(), found.models.len(), found.pairs[0].n_pairs), (2, 2, 1));
    assert_eq!(found.n_resamples, 100);
    for (run, folder) in found.runs.iter().zip([a, b]) {
        let model = Run::open(&folder, Device::Cpu).unwrap().model;
        let test = model.evaluate(Split::Test, &mut silent()).unwrap();
        assert_eq!((Some(run.test), &run.run, run.epochs), (test, &folder, 1));
        assert!(run.valid.is_some() && run.calibration.len() == 1 && run.records.len() == 1);
    }
    let mrr = &found.differences[0];
    let expected = found.runs[1].test.realistic.mrr - found.runs[0].test.realistic.mrr;
    assert!((mrr.mean - expected).abs() < 1e-12);
}

#[test]
fn what_cannot_be_compared_is_refused_before_anything_is_ranked() {
    let temp = tempfile::tempdir().unwrap();
    let quick = "dim = 4\nepochs = 1\nbatch = 4";
    let path = |name: &str| temp.path().join(name);
    let a = trained(&path("a"), four_answers(), quick);
    let other = graph(["a r b; b r c; c q a; b r d", "a q c", "d q b; d q a"]);
    let split = trained(&path("split"), other, quick);
    let untested = trained(&path("untested"), graph(["a r b; b q a", "", ""]), quick);
    let copy = path("copy");
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&a).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    let refusal = |folders: &[&PathBuf]| {
        let folders: Vec<PathBuf> = folders.iter().map(|folder| (*folder).clone()).collect();
        let found = compare(&folders, 10, Device::Cpu, &mut |event| panic!("{event:?}"));
        found.unwrap_err().to_string().replace(&format!("{}/", temp.path().display()), "")
    };
    assert_eq!(
        refusal(&[&a, &split]),
        "split: is not of the same graph and splits as the first run: train triples: expected 4, found \
         4, 3 in both; test triples: expected 2, found 2, 1 in both"
    );
    assert_eq!(refusal(&[&a, &copy]), "copy: has the settings and the seed of a");
    assert_eq!(refusal(&[&untested]), "untested: there are no test triples to rank");
    let stopped = compare(&[a], 10, Device::Cpu, &mut |_| Signal::Stop);
    assert!(matches!(stopped, Err(Error::Interrupted)));
}
