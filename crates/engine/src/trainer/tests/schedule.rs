//! At which rate the next update learns, and which epoch is the best.

use burn::module::Module;

use super::*;
use crate::evaluate::rank_answers;
use crate::progress::Best;

#[test]
fn schedules_change_the_learning_rate_as_they_say() {
    let at = |text: &str, updates: u64| {
        let config = config(&format!("learning_rate = 1.0\nepochs = 10\n{text}"));
        let position = Position { updates, plateau_factor: 0.25, ..Position::default() };
        learning_rate_at(&config.training, &position, 5)
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
        let scorer = network(&config, &graph).valid().scoring();
        let ranks = rank_answers(&graph, Split::Valid, &scorer, &mut silent());
        let mut metrics = metrics(&ranks.unwrap()).unwrap();
        metrics.realistic.mrr = mrr;
        metrics
    };
    let best: Vec<bool> = [0.3, 0.4, 0.4, 0.2, 0.1, 0.5]
        .into_iter()
        .map(|mrr| end_epoch(&mut position, &config.training, Some(&valid(mrr))))
        .collect();
    assert_eq!(best, [true, true, false, false, false, true]);
    assert_eq!(position.plateau_factor, 0.5);
    assert_eq!(position.best, Some(Best { epoch: 6, valid_mrr: Some(0.5) }));
}
