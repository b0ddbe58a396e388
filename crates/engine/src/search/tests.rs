//! Spaces and plans.

use std::collections::BTreeMap;
use std::path::Path;

use toml::Value;

use super::*;
use crate::config::RawConfig;
use crate::encoder::EncoderKind;
use crate::trainer::tests::rings;

fn space(text: &str) -> Space {
    Space::parse(Path::new("my.toml"), text).unwrap()
}

fn faults(text: &str) -> String {
    Space::parse(Path::new("my.toml"), text).unwrap_err().to_string()
}

/// The values of a setting in so many trials; nothing where it is not set.
fn drawn(space: &Space, name: &str, trials: usize) -> Vec<Option<Value>> {
    let graph = rings();
    (1..=trials).map(|trial| space.draw(trial, &graph, &[]).unwrap().value(name)).collect()
}

fn floats(values: Vec<Option<Value>>) -> Vec<f64> {
    values.into_iter().map(|value| value.unwrap().as_float().unwrap()).collect()
}

#[test]
fn numbers_are_spread_evenly_on_their_scale() {
    let space =
        space("batch = 8\nlearning_rate = { log = [1e-4, 1e-2] }\ndropout = { linear = [0, 0.6] }");
    let below = |values: &[f64], limit: f64| values.iter().filter(|value| **value < limit).count();
    let rates = floats(drawn(&space, "learning_rate", 400));
    assert!(rates.iter().all(|rate| (1e-4..=1e-2).contains(rate)));
    // Half of 400 each, within four standard deviations of 10.
    assert!((160..=240).contains(&below(&rates, 1e-3)), "{}", below(&rates, 1e-3));
    let dropouts = floats(drawn(&space, "dropout", 400));
    assert!(dropouts.iter().all(|rate| (0.0..=0.6).contains(rate)));
    assert!((160..=240).contains(&below(&dropouts, 0.3)), "{}", below(&dropouts, 0.3));
    // Four digits.
    assert!(rates.iter().all(|rate| format!("{rate:.3e}").parse() == Ok(*rate)));
}

#[test]
fn whole_numbers_are_rounded_and_choices_are_met_alike() {
    let space = space(
        "batch = { linear = [4, 7] }\ndim = { log = [2, 64] }\nbias = { choice = [true, false] }",
    );
    let mut counts = BTreeMap::new();
    for batch in drawn(&space, "batch", 600) {
        *counts.entry(batch.unwrap().as_integer().unwrap()).or_insert(0) += 1;
    }
    // Of [4, 7], 4 and 7 are met by half a number each, 5 and 6 by a whole one; 400 / 2 in all.
    assert_eq!(counts.keys().copied().collect::<Vec<_>>(), [4, 5, 6, 7]);
    assert!([5, 6].iter().all(|it| (155..=245).contains(&counts[it])), "{counts:?}");
    assert!([4, 7].iter().all(|it| (65..=135).contains(&counts[it])), "{counts:?}");
    let dims = drawn(&space, "dim", 100);
    assert!(dims.iter().flatten().all(|dim| (2..=64).contains(&dim.as_integer().unwrap())));
    let biased = drawn(&space, "bias", 400).into_iter().flatten();
    let n_biased = biased.filter(|bias| *bias == Value::Boolean(true)).count();
    assert!((160..=240).contains(&n_biased), "{n_biased}");
}

#[test]
fn a_trial_depends_on_seed_and_number_alone() {
    let text = "batch = 8\nlearning_rate = { log = [1e-4, 1e-2] }";
    let rates = drawn(&space(text), "learning_rate", 5);
    assert_eq!(space(text).draw(4, &rings(), &[]).unwrap().value("learning_rate"), rates[3]);
    assert!(rates.windows(2).all(|pair| pair[0] != pair[1]));
    let with_seed = space(&format!("seed = 1\n{text}"));
    assert_eq!((space(text).seed(), with_seed.seed()), (0, 1));
    assert_ne!(drawn(&with_seed, "learning_rate", 1)[0], rates[0]);
    assert_eq!(drawn(&with_seed, "seed", 1)[0], Some(Value::Integer(1)));
}

#[test]
fn what_means_nothing_is_left_out_and_what_is_refused_is_drawn_anew() {
    let space = space(
        "batch = 8\nencoder = \"complex\"\ndim = { linear = [10, 21] }\ncomponents = { choice = [2, 4] }\n\
         output = { choice = [\"softmax\", \"mixture\"] }",
    );
    let graph = rings();
    let mut outputs = BTreeMap::new();
    for trial in 1..=40 {
        let config = space.draw(trial, &graph, &[]).unwrap();
        assert!(config.dim().is_multiple_of(2), "complex splits it in two halves");
        let output = config.output();
        assert_eq!(config.value("components").is_some(), output == crate::OutputKind::Mixture);
        *outputs.entry(format!("{output:?}")).or_insert(0) += 1;
    }
    assert_eq!(outputs.len(), 2, "{outputs:?}");
}

#[test]
fn recipes_take_turns_and_nothing_is_tried_twice() {
    let space = space(
        "batch = 8\n[[recipe]]\nencoder = \"cp\"\n[[recipe]]\nencoder = \"rescal\"\n\
         dim = { choice = [4, 8] }",
    );
    assert_eq!(space.varied(), ["encoder", "dim"]);
    let (graph, mut configs) = (rings(), Vec::new());
    while let Some(config) = space.draw(configs.len() + 1, &graph, &configs) {
        configs.push(config);
    }
    let mut found: Vec<_> = configs.iter().map(|config| (config.encoder(), config.dim())).collect();
    // Once the first has nothing left, its turn goes to the second.
    assert_eq!(
        [found[0].0, found[1].0, found[2].0],
        [EncoderKind::Cp, EncoderKind::Rescal, EncoderKind::Rescal]
    );
    found.sort_by_key(|(_, dim)| *dim);
    assert_eq!(found.iter().map(|(_, dim)| *dim).collect::<Vec<_>>(), [4, 8, 200]);
}

#[test]
fn the_space_is_silent_where_the_graph_decides() {
    let config = space("dim = 8").draw(1, &rings(), &[]).unwrap();
    assert_eq!(
        config,
        RawConfig::parse("dim = 8").unwrap().advised(&rings()).unwrap().settings.check().unwrap()
    );
}

#[test]
fn settings_that_are_given_are_fixed() {
    let mut space = space(
        "batch = 8\ndim = { choice = [4, 8] }\n[[recipe]]\nencoder = \"rescal\"\ndropout = 0.3\n\
         [[recipe]]\nencoder = \"cp\"\nn3 = { log = [0.01, 1] }",
    );
    let mut given = RawConfig::default();
    given.add("encoder", "--encoder", "distmult");
    given.add("dim", "--dim", "6");
    space.fix(&given).unwrap();
    assert_eq!(
        space.to_toml(),
        "batch = 8\ndim = 6\nencoder = \"distmult\"\n\n[[recipe]]\ndropout = 0.3\n\n[[recipe]]\n\
         n3 = { log = [0.01, 1.0] }\n"
    );
    assert!(Space::parse(Path::new("other"), &space.to_toml()).unwrap().is_same(&space));
    let told = |name: &str, value: &str| {
        let mut given = RawConfig::default();
        given.add(name, &format!("--{name}"), value);
        space.clone().fix(&given).unwrap_err().to_string()
    };
    assert_eq!(told("dim", "0"), "--dim: expected a whole number from 1 to 100000, found `0`");
    assert_eq!(
        told("heads", "2"),
        "--heads: means nothing with any of the settings that trials can have"
    );
}

#[test]
fn everything_that_is_wrong_with_a_space_is_said_at_once() {
    assert_eq!(
        faults(
            "epoch = 3\ndim = { choice = [100, 0] }\nlearning_rate = { log = [0, 1] }\nn3 = { log = [1, 0.1] }\n\
             dropout = { linear = [0, 1] }\nbatch = { between = [1, 2] }\nencoder = { choice = [] }\n\
             schedule = { linear = [1, 2] }\nbias = { choice = [true], log = [1, 2] }\nl2 = -1\n\
             [[recipe]]\nepochs = { linear = [0.5, 3] }"
        ),
        "my.toml: `batch`: expected a value, { log = [low, high] }, { linear = [low, high] } or \
         { choice = [value, …] }, found `{ between = [1, 2] }`\n\
         my.toml: `bias`: expected a value, { log = [low, high] }, { linear = [low, high] } or \
         { choice = [value, …] }, found `{ choice = [true], log = [1, 2] }`\n\
         my.toml: `dim`: expected a whole number from 1 to 100000, found `0`\n\
         my.toml: `dropout`: expected a number from 0 to below 1, found `1`\n\
         my.toml: `encoder`: expected a value, { log = [low, high] }, { linear = [low, high] } or \
         { choice = [value, …] }, found `{ choice = [] }`\n\
         my.toml: `epoch`: there is no such setting; did you mean `epochs`?\n\
         my.toml: `l2`: expected a number from 0 to 1e30, found `-1`\n\
         my.toml: `learning_rate`: expected two numbers above 0, the lower one first, found `[0, 1]`\n\
         my.toml: `n3`: expected two numbers above 0, the lower one first, found `[1, 0.1]`\n\
         my.toml: `epochs`: in recipe 1, expected a whole number from 1 to 1000000, found `0.5`\n\
         my.toml: `schedule`: expected one of constant, plateau, cosine, found `1`"
    );
    assert_eq!(
        faults("recipe = 3"),
        "my.toml: `recipe`: expected tables that begin with [[recipe]], found `3`"
    );
    assert_eq!(
        faults("components = 2\noutput = { choice = [\"softmax\", \"sigmoid\"] }"),
        "my.toml: `components`: means nothing with any of the settings that trials can have"
    );
    assert_eq!(faults("dim = "), "my.toml: not a config file");
}

#[test]
fn recipes_that_cannot_be_drawn_are_named() {
    let odd = "batch = 8\n[[recipe]]\nencoder = \"complex\"\ndim = { choice = [3, 5] }\n";
    let told = "`dim`: complex splits it in two halves; expected an even one, found ";
    let alone = space(odd).impossible(&rings()).unwrap_err().to_string();
    assert!(alone.starts_with(told), "{alone}");
    let both = space(&format!("{odd}[[recipe]]\ndim = 3"));
    let impossible = both.impossible(&rings()).unwrap();
    assert_eq!(impossible.len(), 1);
    assert!(impossible[0].0 == 1 && impossible[0].1.to_string().starts_with(told));
    assert_eq!(both.draw(1, &rings(), &[]).unwrap().encoder(), EncoderKind::DistMult);
}

#[test]
fn built_in_spaces_can_be_searched() {
    let graph = rings();
    for (name, text) in BUILT_IN {
        let space = Space::parse(Path::new(name), text).unwrap();
        assert!(space.impossible(&graph).unwrap().is_empty(), "{name}");
        for trial in 1..=6 {
            assert!(space.draw(trial, &graph, &[]).is_some(), "{name}");
        }
    }
    assert_eq!(built_in_for(&graph), "small");
}

const PLAN: Plan = Plan { metric: Metric::Mrr, rungs: 3, trials: None, seconds: None };

/// Which trials are trained to which rungs, and the steps of that: trials of nine epochs, of a second
/// each, with these values.
fn search(plan: Plan, value: impl Fn(usize) -> f64) -> (Vec<(usize, usize)>, Vec<Step>) {
    let (mut tasks, mut steps) = (Vec::new(), Vec::<Step>::new());
    while let Some(Task { trial, rung, .. }) = plan.next(&steps) {
        tasks.push((trial, rung));
        let before = steps.iter().rfind(|step| step.trial == trial).map_or(0, |step| step.epochs);
        let epochs = plan.epochs_at(rung, 9);
        steps.push(Step {
            trial,
            rung,
            epochs,
            of_epochs: 9,
            value: Some(value(trial)),
            seconds: (epochs - before) as f64,
            outcome: if epochs == 9 { Outcome::Over } else { Outcome::Stopped },
        });
    }
    (tasks, steps)
}

#[test]
fn rungs_are_three_times_as_long_as_those_below() {
    let at = |epochs| [0, 1, 2].map(|rung| PLAN.epochs_at(rung, epochs));
    assert_eq!((at(9), at(30), at(5)), ([1, 3, 9], [4, 10, 30], [1, 2, 5]));
}

#[test]
fn the_best_third_of_a_rung_goes_on_as_soon_as_it_is_known() {
    let plan = Plan { trials: Some(9), ..PLAN };
    // The earlier, the better: by hand.
    let (tasks, steps) = search(plan, |trial| 1.0 / trial as f64);
    assert_eq!(
        tasks,
        [
            (1, 0),
            (2, 0),
            (3, 0),
            (1, 1),
            (4, 0),
            (5, 0),
            (6, 0),
            (2, 1),
            (7, 0),
            (8, 0),
            (9, 0),
            (3, 1),
            (1, 2)
        ]
    );
    // Whatever was interrupted, what comes next follows from the steps.
    for (done, task) in tasks.iter().enumerate() {
        let next = plan.next(&steps[..done]).unwrap();
        assert_eq!((next.trial, next.rung), *task);
    }
    // With NLL, less is better: the later, the better, and each third one leads at once.
    let (tasks, _) =
        search(Plan { trials: Some(4), metric: Metric::Nll, ..PLAN }, |trial| 1.0 / trial as f64);
    assert_eq!(tasks, [(1, 0), (2, 0), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2)]);
}

#[test]
fn with_one_rung_it_is_random_search() {
    let plan = Plan { rungs: 1, trials: Some(3), ..PLAN };
    assert_eq!(search(plan, |trial| trial as f64).0, [(1, 0), (2, 0), (3, 0)]);
}

#[test]
fn what_begins_can_end_in_time() {
    // By hand, with a twentieth more for what is still to be made: before trial 8 nine seconds are
    // left, and a training takes 9.45.
    let plan = Plan { seconds: Some(20.0), ..PLAN };
    let (tasks, steps) = search(plan, |trial| 1.0 / trial as f64);
    assert_eq!(
        tasks,
        [(1, 0), (2, 0), (3, 0), (1, 1), (4, 0), (5, 0), (6, 0), (2, 1), (7, 0), (1, 2)]
    );
    assert_eq!(steps.iter().map(|step| step.seconds).sum::<f64>(), 17.0);
    // What is left when there are no more trials goes to the one that is likeliest to be best.
    let (tasks, _) = search(Plan { trials: Some(3), ..plan }, |trial| 1.0 / trial as f64);
    assert_eq!(tasks, [(1, 0), (2, 0), (3, 0), (1, 1), (1, 2), (2, 2)]);
}

#[test]
fn a_trial_may_take_half_of_the_time_and_what_is_left() {
    let plan = Plan { seconds: Some(21.0), ..PLAN };
    // 21 / 2, and a twentieth less.
    let task = plan.next(&[]).unwrap();
    assert_eq!(task.within, Some(10.0));
    let too_long = |seconds, epochs| plan.too_long(&task, seconds, epochs, 9);
    // At its rung, after one epoch, each second counts.
    assert_eq!((too_long(1.5, 1.0), too_long(1.0, 1.0)), (Some(13.5), None));
    // Before, a twentieth of 21 seconds has to foretell twice as much, a hundredth six times.
    assert!(too_long(1.05, 0.5).is_none() && too_long(1.05, 0.45).is_some());
    assert!(too_long(0.21, 0.033).is_none() && too_long(0.21, 0.03).is_some());
    // What takes no time foretells nothing, and a trial whose time is known may go on.
    assert_eq!(too_long(0.2, 0.001), None);
    assert_eq!(plan.too_long(&Task { within: None, ..task }, 9.0, 1.0, 9), None);
}

#[test]
fn a_search_of_nothing_but_failures_ends() {
    let refused = |trial| Step {
        trial,
        rung: 0,
        epochs: 0,
        of_epochs: 9,
        value: None,
        seconds: 1.0,
        outcome: Outcome::Refused("too slow".into()),
    };
    let steps: Vec<Step> = (1..=20).map(refused).collect();
    assert_eq!(PLAN.next(&steps[..19]).unwrap().trial, 20);
    assert_eq!(PLAN.next(&steps), None);
    assert!(leaderboard(&trials(&steps), Metric::Mrr).is_empty());
}
