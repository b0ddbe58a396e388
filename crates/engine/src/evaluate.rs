//! Filtered ranks: how well does a model answer held-out queries?
//!
//! Finds each answer's place among all objects, skipping other known answers, and averages.
//! Every distinct query is scored once, however many held-out answers it has.
//! It does not choose a checkpoint; that is the business of `trainer`.

mod baselines;
mod calibration;
mod candidates;
mod popularity;
mod score_part;
mod signs;
#[cfg(test)]
pub(crate) mod tests;
mod top_k;

use fullrank_graph::statistics::{Seen, relation_profiles};
use fullrank_graph::{EntityId, Graph, Query, Split, Triple};

pub use baselines::Baselines;
pub(crate) use calibration::check_temperature;
pub use calibration::{Bin, Calibration, Reliability, calibrate, fit_temperature};
pub use candidates::{GivenCandidates, rank_candidates};
pub use popularity::{rank_by_popularity, rank_candidates_by_popularity};
pub(crate) use score_part::ScorePart;
pub use signs::{Decided, Signs, classify, fit_threshold};
pub(crate) use top_k::TopK;

use crate::error::Error;
use crate::metrics::{AnswerRank, Metrics, metrics};
use crate::ops::count_above;
use crate::probability::ProbabilityKind;
use crate::progress::{Event, Progress, Signal};
use crate::random::sample;

/// Anything that can tell how likely every object is.
pub trait Scorer {
    /// What `map` makes of each query's place and its row, the log-probabilities of every object; in
    /// the order of the queries. Rows are mapped while they are in cache, by any thread.
    fn map_rows<T: Send>(
        &self,
        queries: &[Query],
        map: impl Fn(usize, &[f32]) -> T + Sync,
    ) -> Vec<T>;

    /// What its probabilities say.
    fn probability(&self) -> ProbabilityKind;
}

/// By what results are broken down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breakdown {
    /// Objects asked for, or subjects.
    Direction,
    /// By relation, both directions together.
    Relation,
    /// 1-1, 1-N, N-1, N-N.
    Class,
    /// By the number of known answers of the query, in powers of two.
    Degree,
}

/// Ranks every held-out answer of a split, in both directions.
///
/// # Errors
/// When a score is not a number, or when `progress` says stop.
pub fn rank_answers(
    graph: &Graph,
    split: Split,
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Vec<AnswerRank>, Error> {
    rank_asked(graph, split, &held_out(graph, split), scorer, progress)
}

/// Ranks the held-out answers of some of a split's queries: `n_queries` of them, always the same.
///
/// # Errors
/// As [`rank_answers`].
pub(crate) fn rank_sample(
    graph: &Graph,
    split: Split,
    n_queries: usize,
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Vec<AnswerRank>, Error> {
    let asked = held_out(graph, split);
    // Not of the training's seed: runs with other seeds are to be compared.
    let drawn = sample(asked.len(), n_queries, 0);
    let asked: Vec<Asked> = drawn.into_iter().map(|n| asked[n as usize].clone()).collect();
    rank_asked(graph, split, &asked, scorer, progress)
}

fn rank_asked(
    graph: &Graph,
    split: Split,
    asked: &[Asked],
    scorer: &impl Scorer,
    progress: &mut Progress,
) -> Result<Vec<AnswerRank>, Error> {
    let mut ranks = Vec::new();
    let probability = scorer.probability();
    let rank = |asked: &Asked, row: &[f32]| rank_query(graph, split, asked, row, probability);
    for_each_row(graph, asked, scorer, progress, rank, |found| ranks.extend(found))?;
    Ok(ranks)
}

/// Metrics of each part of a breakdown that has any answers.
pub fn break_down(graph: &Graph, ranks: &[AnswerRank], by: Breakdown) -> Vec<(String, Metrics)> {
    let parts = parts(graph, ranks, by).into_iter();
    parts.filter_map(|(name, ranks)| Some((name, metrics(ranks)?))).collect()
}

/// The answers of each part of a breakdown that has any, in the same order for all who rank the same.
fn parts<'a>(
    graph: &Graph,
    ranks: &'a [AnswerRank],
    by: Breakdown,
) -> Vec<(String, Vec<&'a AnswerRank>)> {
    let classes: Vec<String> = match by {
        Breakdown::Class => {
            relation_profiles(graph).iter().map(|profile| profile.class.to_string()).collect()
        }
        _ => Vec::new(),
    };
    let n_relations = graph.relations().len();
    // Parts are numbered, so that they come in their natural order and not in that of their names.
    let part = |rank: &AnswerRank| -> (usize, String) {
        let query = graph.answers().query(rank.query as usize);
        let relation = query.relation.0 as usize % n_relations;
        match by {
            Breakdown::Direction => match query.relation.0 as usize == relation {
                true => (0, "objects".into()),
                false => (1, "subjects".into()),
            },
            Breakdown::Relation => (relation, graph.relations().name(relation as u32).into()),
            Breakdown::Class => (0, classes[relation].clone()),
            Breakdown::Degree => {
                let known = graph.answers().up_to(rank.query as usize, Split::Test).len();
                let power = known.ilog2();
                let (least, most) = (1_usize << power, (1_usize << (power + 1)) - 1);
                (power as usize, if least == most { "1".into() } else { format!("{least}–{most}") })
            }
        }
    };
    let mut parts = std::collections::BTreeMap::<(usize, String), Vec<&AnswerRank>>::new();
    for rank in ranks {
        parts.entry(part(rank)).or_default().push(rank);
    }
    parts.into_iter().map(|((_, name), ranks)| (name, ranks)).collect()
}

/// Those answers whose triple has no entity or relation that training lacks: the triples that PyKEEN
/// ranks. LibKGE, and we, rank the others too; unseen entities compete all the same.
pub fn without_unseen<'a>(graph: &Graph, ranks: &'a [AnswerRank]) -> Vec<&'a AnswerRank> {
    let seen = Seen::of(graph);
    let is_seen = |rank: &&AnswerRank| {
        let Query { subject, relation } = graph.answers().query(rank.query as usize);
        seen.covers(&Triple { subject, relation, object: rank.object })
    };
    ranks.iter().filter(is_seen).collect()
}

/// A query and the held-out answers to be found.
#[derive(Debug, Clone, PartialEq)]
struct Asked {
    number: u32,
    answers: Vec<HeldOut>,
}

/// A held-out answer, and the place of its triple in its split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HeldOut {
    object: EntityId,
    triple: u32,
}

/// The distinct queries of a split's triples, both directions, with their answers.
fn held_out(graph: &Graph, split: Split) -> Vec<Asked> {
    let number = |query| graph.answers().find(query).expect("every triple is indexed") as u32;
    let mut pairs = Vec::with_capacity(2 * graph.triples(split).len());
    for (triple, &Triple { subject, relation, object }) in (0..).zip(graph.triples(split)) {
        pairs.push((number(Query { subject, relation }), HeldOut { object, triple }));
        let query = Query { subject: object, relation: graph.inverse(relation) };
        pairs.push((number(query), HeldOut { object: subject, triple }));
    }
    pairs.sort_unstable();
    pairs
        .chunk_by(|a, b| a.0 == b.0)
        .map(|pairs| Asked {
            number: pairs[0].0,
            answers: pairs.iter().map(|(_, answer)| *answer).collect(),
        })
        .collect()
}

/// The distinct queries of a split's triples, both directions.
pub(crate) fn held_out_queries(graph: &Graph, split: Split) -> Vec<Query> {
    let asked = held_out(graph, split).into_iter();
    asked.map(|asked| graph.answers().query(asked.number as usize)).collect()
}

/// Scores queries block by block, maps each with its row of log-probabilities, and hands over what
/// comes of it in the order of the queries.
fn for_each_row<T: Send>(
    graph: &Graph,
    asked: &[Asked],
    scorer: &impl Scorer,
    progress: &mut Progress,
    map: impl Fn(&Asked, &[f32]) -> T + Sync,
    mut take: impl FnMut(T),
) -> Result<(), Error> {
    let entities = graph.entities().len();
    let mut done = 0;
    for block in asked.chunks(queries_at_once(entities)) {
        let queries: Vec<Query> =
            block.iter().map(|asked| graph.answers().query(asked.number as usize)).collect();
        let found = map_block(scorer, &queries, |place, row| map(&block[place], row))?;
        found.into_iter().for_each(&mut take);
        done += block.len();
        if progress(Event::Scoring { done, total: asked.len() }) == Signal::Stop {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// Queries that are scored between two reports of progress: the work of a second or so, and enough
/// for many threads.
pub(crate) fn queries_at_once(n_entities: usize) -> usize {
    const SCORES: usize = 256 * 1024 * 1024;
    /// What encoders make of queries is in memory for all of them.
    const MOST: usize = 2048;
    (SCORES / n_entities).clamp(16, MOST)
}

/// Scores a block of queries, and maps the place of each in it with its row of log-probabilities.
pub(crate) fn map_block<T: Send>(
    scorer: &impl Scorer,
    queries: &[Query],
    map: impl Fn(usize, &[f32]) -> T + Sync,
) -> Result<Vec<T>, Error> {
    let found = scorer.map_rows(queries, |place, row| {
        // No way out halfway: that would look at one value at a time.
        let is_broken = row.iter().fold(false, |broken, x| broken | x.is_nan());
        (!is_broken).then(|| map(place, row))
    });
    found.into_iter().collect::<Option<_>>().ok_or(Error::BrokenModel)
}

/// How many objects score higher than one, and how many the same.
///
/// Counts of parts of the objects are merged into that of all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rivals {
    pub(crate) above: u32,
    pub(crate) beside: u32,
}

impl Rivals {
    /// Among all objects but the one itself and other known answers.
    pub(crate) fn among(row: &[f32], object: EntityId, known: &[EntityId]) -> Self {
        let score = row[object.0 as usize];
        let parts = ScorePart::all(row).map(|part| Self::in_part(part, object, score, known));
        parts.fold(Self::default(), Self::merge)
    }

    /// Those of an object with a score that are in a part, which the object need not be in.
    pub(crate) fn in_part(
        part: ScorePart,
        object: EntityId,
        score: f32,
        known: &[EntityId],
    ) -> Self {
        let (above, beside) = count_above(part.scores, score);
        let mut found = Self { above, beside };
        // It stands beside itself, which does not count.
        found.beside -= u32::from(part.score(object).is_some());
        let others = known.iter().filter(|other| **other != object);
        for other in others.filter_map(|other| part.score(*other)) {
            found.above -= u32::from(other > score);
            found.beside -= u32::from(other == score);
        }
        found
    }

    /// Those of both parts.
    pub(crate) fn merge(self, other: Self) -> Self {
        Self { above: self.above + other.above, beside: self.beside + other.beside }
    }

    /// What is left without some others, which the object may be among.
    pub(crate) fn without<T: PartialOrd>(
        self,
        scores: &[T],
        object: EntityId,
        others: &[EntityId],
    ) -> Self {
        let score = &scores[object.0 as usize];
        let mut left = self;
        for other in others.iter().filter(|other| **other != object) {
            let other = &scores[other.0 as usize];
            left.above -= u32::from(other > score);
            left.beside -= u32::from(other == score);
        }
        left
    }

    /// How many less `other` has, above and beside.
    fn minus(self, other: Self) -> (u32, u32) {
        (self.above - other.above, self.beside - other.beside)
    }
}

fn rank_query(
    graph: &Graph,
    split: Split,
    asked: &Asked,
    row: &[f32],
    probability: ProbabilityKind,
) -> Vec<AnswerRank> {
    let number = asked.number as usize;
    let known = graph.answers().up_to(number, split);
    let train = graph.answers().in_split(number, Split::Train);
    let all = graph.answers().up_to(number, Split::Test);
    let left = (probability == ProbabilityKind::Categorical).then(|| log_left(row, train));
    let rank = |object: EntityId| {
        let score = row[object.0 as usize];
        let filtered = Rivals::among(row, object, known);
        let unknown = filtered.without(row, object, &all[known.len()..]);
        let others = known.len() - usize::from(known.contains(&object));
        AnswerRank {
            query: asked.number,
            object,
            above: filtered.above,
            beside: filtered.beside,
            from_test: filtered.minus(unknown),
            candidates: (row.len() - others) as u32,
            candidates_from_test: (all.len() - known.len()) as u32,
            nll_candidates: None,
            nll_filtered: left.map(|left| filtered_nll(left, train, object, score)),
            nll: left.map(|_| -f64::from(score)),
        }
    };
    asked.answers.iter().map(|answer| rank(answer.object)).collect()
}

/// −log P of an answer when training answers are taken out of the distribution, where `left` is
/// log Σ P of what remains. One that is in training too competes with what remains and itself.
fn filtered_nll(left: f64, train: &[EntityId], object: EntityId, log_prob: f32) -> f64 {
    let log_prob = f64::from(log_prob);
    let left = if train.contains(&object) { log_add(left, log_prob) } else { left };
    left - log_prob
}

/// log Σ P over all objects but those `without`, of log-probabilities that sum to one.
fn log_left(row: &[f32], without: &[EntityId]) -> f64 {
    let taken: f64 = without.iter().map(|object| f64::from(row[object.0 as usize]).exp()).sum();
    // What is taken may be all but 1e-9: then only what is left can tell.
    if taken < 0.5 { (-taken).ln_1p() } else { log_sum_without(row, without) }
}

/// log Σ P over all objects but those `without`.
pub(crate) fn log_sum_without(row: &[f32], without: &[EntityId]) -> f64 {
    let mut row = row.to_vec();
    for object in without {
        row[object.0 as usize] = f32::NEG_INFINITY;
    }
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if top == f32::NEG_INFINITY {
        return f64::NEG_INFINITY;
    }
    f64::from(top) + f64::from(crate::ops::sum_of_exp(&row, top)).ln()
}

/// log(exp a + exp b).
pub(crate) fn log_add(a: f64, b: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    large + (small - large).exp().ln_1p()
}
