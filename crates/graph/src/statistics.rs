//! Statistics: what kind of graph is this?
//!
//! Degrees, classes of relations, what training does not cover, and relations that give test
//! answers away. It judges nothing; dimensions are left to others.

use std::collections::HashMap;
use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use crate::{EntityId, Graph, Query, RelationId, Split, Triple};

/// How many answers queries have, over all splits. Queries without answers do not count.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Degrees {
    /// The number of queries.
    pub queries: usize,
    /// Answers per query.
    pub mean: f64,
    /// Half of the queries have no more answers than this.
    pub median: f64,
    /// The largest number of answers.
    pub max: usize,
    /// How many queries have how many answers.
    pub histogram: Vec<Bin>,
}

/// The queries whose number of answers lies in a range.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Bin {
    /// The smallest number of answers.
    pub from: usize,
    /// The largest number of answers.
    pub to: usize,
    /// The number of queries.
    pub queries: usize,
}

/// The degrees of queries over relations alone.
pub fn forward_degrees(graph: &Graph) -> Degrees {
    let answers = graph.answers();
    Degrees::of(answers.degrees().take(answers.n_forward_queries()).collect())
}

/// The degrees of all queries, those over inverse relations included.
pub fn both_degrees(graph: &Graph) -> Degrees {
    Degrees::of(graph.answers().degrees().collect())
}

impl Degrees {
    fn of(mut degrees: Vec<usize>) -> Self {
        degrees.par_sort_unstable();
        let queries = degrees.len();
        let total: usize = degrees.iter().sum();
        let median = match queries {
            0 => 0.0,
            n => (degrees[(n - 1) / 2] + degrees[n / 2]) as f64 / 2.0,
        };
        Self {
            queries,
            mean: if queries == 0 { 0.0 } else { total as f64 / queries as f64 },
            median,
            max: degrees.last().copied().unwrap_or(0),
            histogram: histogram(&degrees),
        }
    }
}

/// Bins that end at powers of two: 1, 2, 3–4, 5–8, …
fn histogram(sorted: &[usize]) -> Vec<Bin> {
    let mut bins = vec![];
    let (mut from, mut to, mut rest) = (1, 1, sorted);
    while !rest.is_empty() {
        let queries = rest.partition_point(|&degree| degree <= to);
        bins.push(Bin { from, to, queries });
        rest = &rest[queries..];
        (from, to) = (to + 1, to * 2);
    }
    bins
}

/// Whether a relation has one or many objects per subject, and subjects per object.
///
/// Bordes et al. 2013: "many" is 1.5 or more on average.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub enum RelationClass {
    /// One subject per object, one object per subject.
    #[serde(rename = "1-1")]
    OneToOne,
    /// Many objects per subject.
    #[serde(rename = "1-N")]
    OneToMany,
    /// Many subjects per object.
    #[serde(rename = "N-1")]
    ManyToOne,
    /// Many of both.
    #[serde(rename = "N-N")]
    ManyToMany,
}

impl RelationClass {
    /// All classes.
    pub const ALL: [RelationClass; 4] =
        [Self::OneToOne, Self::OneToMany, Self::ManyToOne, Self::ManyToMany];

    const MANY: f64 = 1.5;

    fn of(objects_per_subject: f64, subjects_per_object: f64) -> Self {
        match (subjects_per_object >= Self::MANY, objects_per_subject >= Self::MANY) {
            (false, false) => Self::OneToOne,
            (false, true) => Self::OneToMany,
            (true, false) => Self::ManyToOne,
            (true, true) => Self::ManyToMany,
        }
    }
}

impl fmt::Display for RelationClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneToOne => "1-1",
            Self::OneToMany => "1-N",
            Self::ManyToOne => "N-1",
            Self::ManyToMany => "N-N",
        })
    }
}

/// How a relation is used, over all splits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RelationProfile {
    /// Its distinct triples.
    pub triples: usize,
    /// Objects per subject that has any.
    pub objects_per_subject: f64,
    /// Subjects per object that has any.
    pub subjects_per_object: f64,
    /// What follows from the two.
    pub class: RelationClass,
}

/// The profile of every relation, in the order of their ids.
pub fn relation_profiles(graph: &Graph) -> Vec<RelationProfile> {
    let answers = graph.answers();
    let n_relations = graph.relations().len();
    let (mut queries, mut triples) = (vec![0usize; 2 * n_relations], vec![0usize; 2 * n_relations]);
    for (number, degree) in answers.degrees().enumerate() {
        let relation = answers.relation(number).0 as usize;
        queries[relation] += 1;
        triples[relation] += degree;
    }
    // A relation that occurs in no triple has no queries either.
    let per_query = |relation: usize| triples[relation] as f64 / queries[relation].max(1) as f64;
    (0..n_relations)
        .map(|relation| {
            let objects_per_subject = per_query(relation);
            let subjects_per_object = per_query(n_relations + relation);
            let class = RelationClass::of(objects_per_subject, subjects_per_object);
            let triples = triples[relation];
            RelationProfile { triples, objects_per_subject, subjects_per_object, class }
        })
        .collect()
}

/// What held-out triples speak of that training does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Unseen {
    /// Entities that occur in no training triple.
    pub entities: usize,
    /// Relations that occur in no training triple.
    pub relations: usize,
    /// Validation triples with such an entity or relation.
    pub valid_triples: usize,
    /// Test triples with such an entity or relation.
    pub test_triples: usize,
}

/// What training speaks of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    entities: Vec<bool>,
    relations: Vec<bool>,
}

impl Seen {
    /// Finds the entities and relations of a graph's training triples.
    pub fn of(graph: &Graph) -> Self {
        let mut entities = vec![false; graph.entities().len()];
        let mut relations = vec![false; graph.relations().len()];
        for triple in graph.triples(Split::Train) {
            entities[triple.subject.0 as usize] = true;
            entities[triple.object.0 as usize] = true;
            relations[triple.relation.0 as usize] = true;
        }
        Self { entities, relations }
    }

    /// Whether training has both entities and the relation of a triple, or of its inverse.
    pub fn covers(&self, triple: &Triple) -> bool {
        self.entities[triple.subject.0 as usize]
            && self.entities[triple.object.0 as usize]
            && self.relations[triple.relation.0 as usize % self.relations.len()]
    }
}

/// Finds what training does not cover.
pub fn unseen(graph: &Graph) -> Unseen {
    let seen = Seen::of(graph);
    let count = |seen: &[bool]| seen.iter().filter(|seen| !**seen).count();
    let unseen_in =
        |split| graph.triples(split).iter().filter(|triple| !seen.covers(triple)).count();
    Unseen {
        entities: count(&seen.entities),
        relations: count(&seen.relations),
        valid_triples: unseen_in(Split::Valid),
        test_triples: unseen_in(Split::Test),
    }
}

/// Relations that say nearly the same thing, and what that gives away of test.
///
/// Where r' says what r says, a test triple of r can be read off a training triple of r', and its
/// rank says little about learning (Toutanova & Chen 2015; Akrami et al. 2020).
#[derive(Clone, PartialEq, Debug)]
pub struct Leakage {
    /// The pairs of relations, those that give most away first.
    pub pairs: Vec<Twins>,
    /// Test triples that at least one pair gives away.
    pub test_triples: usize,
}

/// How two relations say the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Likeness {
    /// (s, r, o) goes with (s, r', o).
    Duplicate,
    /// (s, r, o) goes with (o, r', s).
    Inverse,
    /// (s, r, o) goes with (o, r, s).
    Symmetric,
}

/// Two relations of which each nearly implies the other, or one that nearly implies its inverse.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Twins {
    /// How they say the same.
    pub likeness: Likeness,
    /// The relation whose test triples are counted.
    pub relation: RelationId,
    /// The one whose training triples give them away.
    pub other: RelationId,
    /// The share of `relation`'s triples that `other` says too, over all splits.
    pub share: f64,
    /// The share of `other`'s triples that `relation` says too.
    pub share_of_other: f64,
    /// Test triples of `relation`.
    pub test_triples: usize,
    /// Those of them whose counterpart is in training.
    pub given_away: usize,
}

/// Both shares must reach this for two relations to count as nearly the same, as Akrami et al. have it.
pub const NEARLY: f64 = 0.8;

/// Finds relations that nearly duplicate or invert each other.
pub fn leakage(graph: &Graph) -> Leakage {
    let links = by_entities(graph);
    let sizes = RelationSizes::of(graph, &links);
    let mut pairs: Vec<Twins> = shared_triples(&links, &sizes)
        .into_iter()
        .filter_map(|((relation, other, likeness), shared)| {
            let share = shared as f64 / sizes.of_kind(relation, likeness) as f64;
            let share_of_other = shared as f64 / sizes.of_kind(other, likeness) as f64;
            let nearly = share >= NEARLY && share_of_other >= NEARLY;
            let (test_triples, given_away) = (0, 0);
            let twins = Twins {
                likeness,
                relation,
                other,
                share,
                share_of_other,
                test_triples,
                given_away,
            };
            nearly.then_some(twins)
        })
        .collect();
    pairs.sort_unstable_by_key(|twins| (twins.relation, twins.other, twins.likeness));
    let test_triples = count_given_away(graph, &mut pairs);
    pairs.sort_by_key(|twins| std::cmp::Reverse(twins.given_away));
    Leakage { pairs, test_triples }
}

/// The number of triples of each relation.
struct RelationSizes {
    all: Vec<usize>,
    /// Without those from an entity to itself, which are their own inverse and prove nothing.
    without_loops: Vec<usize>,
}

impl RelationSizes {
    fn of(graph: &Graph, links: &[Link]) -> Self {
        let all: Vec<usize> = relation_profiles(graph).iter().map(|p| p.triples).collect();
        let mut without_loops = all.clone();
        for link in links.iter().filter(|link| link.entities.0 == link.entities.1) {
            without_loops[link.relation.0 as usize] -= 1;
        }
        Self { all, without_loops }
    }

    fn of_kind(&self, relation: RelationId, likeness: Likeness) -> usize {
        match likeness {
            Likeness::Duplicate => self.all[relation.0 as usize],
            Likeness::Inverse | Likeness::Symmetric => self.without_loops[relation.0 as usize],
        }
    }
}

/// How many triples of one relation another says too.
fn shared_triples(
    links: &[Link],
    sizes: &RelationSizes,
) -> HashMap<(RelationId, RelationId, Likeness), usize> {
    /// Two entities related in more ways tell little about any two of them, and pairs are many.
    const MOST: usize = 1000;
    let mut shared = HashMap::new();
    for group in links.chunk_by(|a, b| a.entities == b.entities) {
        // A relation with a single triple is like any other that happens to hold there.
        let group: Vec<&Link> =
            group.iter().filter(|link| sizes.all[link.relation.0 as usize] > 1).collect();
        if group.len() > MOST {
            continue;
        }
        for (i, a) in group.iter().enumerate() {
            for (j, b) in group.iter().enumerate() {
                let likeness = match (a.flipped == b.flipped, a.relation == b.relation) {
                    _ if i == j => continue,
                    (true, _) => Likeness::Duplicate,
                    (false, false) => Likeness::Inverse,
                    (false, true) => Likeness::Symmetric,
                };
                *shared.entry((a.relation, b.relation, likeness)).or_default() += 1;
            }
        }
    }
    shared
}

/// A triple under its two entities, the lower id first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    entities: (EntityId, EntityId),
    relation: RelationId,
    /// Whether the subject is the higher id.
    flipped: bool,
}

/// All distinct triples, those between the same two entities side by side.
fn by_entities(graph: &Graph) -> Vec<Link> {
    let answers = graph.answers();
    let mut links: Vec<Link> = (0..answers.n_forward_queries())
        .into_par_iter()
        .flat_map_iter(|number| {
            let Query { subject, relation } = answers.query(number);
            answers.up_to(number, Split::Test).iter().map(move |&object| Link {
                entities: (subject.min(object), subject.max(object)),
                relation,
                flipped: subject > object,
            })
        })
        .collect();
    links.par_sort_unstable();
    links
}

/// Fills in the figures about test and counts the triples that any pair gives away.
fn count_given_away(graph: &Graph, pairs: &mut [Twins]) -> usize {
    let answers = graph.answers();
    let in_training = |subject, relation, object: EntityId| {
        let number = answers.find(Query { subject, relation });
        number.is_some_and(|n| answers.in_split(n, Split::Train).binary_search(&object).is_ok())
    };
    let mut n_given_away = 0;
    for triple in graph.triples(Split::Test) {
        let Triple { subject, relation, object } = *triple;
        let start = pairs.partition_point(|twins| twins.relation < relation);
        let mut given_away = false;
        for twins in pairs[start..].iter_mut().take_while(|twins| twins.relation == relation) {
            twins.test_triples += 1;
            let found = match twins.likeness {
                Likeness::Duplicate => in_training(subject, twins.other, object),
                Likeness::Inverse | Likeness::Symmetric => {
                    subject != object && in_training(object, twins.other, subject)
                }
            };
            twins.given_away += usize::from(found);
            given_away |= found;
        }
        n_given_away += usize::from(given_away);
    }
    n_given_away
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn degrees_of_a_small_graph() {
        // (a, r) has 3 answers, (a, q) and (b, r) have 1; backwards (d, r⁻¹) has 2, the others 1.
        let graph = Graph::from_text("a r b; a r c; a q d | a r d | b r d");
        let forward = forward_degrees(&graph);
        assert_eq!((forward.queries, forward.median, forward.max), (3, 1.0, 3));
        assert!((forward.mean - 5.0 / 3.0).abs() < 1e-12);
        let bins = [(1, 1, 2), (2, 2, 0), (3, 4, 1)];
        assert_eq!(forward.histogram, bins.map(|(from, to, queries)| Bin { from, to, queries }));
        let both = both_degrees(&graph);
        assert_eq!((both.queries, both.median, both.max), (7, 1.0, 3));
        assert!((both.mean - 10.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert!((Degrees::of(vec![5, 1, 2, 1]).median - 1.5).abs() < 1e-12);
    }

    #[test]
    fn relations_are_classed_at_one_and_a_half() {
        // one: 1/1; fan: 3 objects per subject; join: 3 subjects per object; mesh: 1.5 and 1.5.
        let graph = Graph::from_text(
            "a one b; c one d; a fan b; a fan c; a fan d; a join d; b join d; c join d;
             a mesh c; a mesh d; b mesh c",
        );
        let profiles = relation_profiles(&graph);
        let classes: Vec<String> = profiles.iter().map(|p| p.class.to_string()).collect();
        assert_eq!(classes, ["1-1", "1-N", "N-1", "N-N"]);
        assert_eq!(profiles[3].triples, 3);
    }

    #[test]
    fn what_training_lacks_is_counted() {
        let graph = Graph::from_text("a r b | a r c; a r b | c q a; a r b; d r a");
        let expected = Unseen { entities: 2, relations: 1, valid_triples: 1, test_triples: 2 };
        assert_eq!(unseen(&graph), expected);
    }

    #[test]
    fn triples_from_an_entity_to_itself_neither_prove_nor_disprove_symmetry() {
        let graph = Graph::from_text("a r a; b r b; a r b; c r c; c r d; d r d | | b r a; d r c");
        let leakage = leakage(&graph);
        assert_eq!((leakage.pairs.len(), leakage.test_triples), (1, 2));
        assert_eq!(leakage.pairs[0].likeness, Likeness::Symmetric);
        assert!((leakage.pairs[0].share - 1.0).abs() < 1e-12);
    }

    #[test]
    fn triples_from_an_entity_to_itself_are_duplicated_like_others() {
        let graph = Graph::from_text("a r a; b r b; c r c; a q a | | b q b; c q c");
        let leakage = leakage(&graph);
        assert_eq!((leakage.pairs.len(), leakage.test_triples), (2, 2));
        assert_eq!(leakage.pairs[0].likeness, Likeness::Duplicate);
    }

    #[test]
    fn twins_give_test_answers_away() {
        // `parent` and `child` invert each other but for one triple of each;
        // `sibling` is symmetric; `likes` duplicates nothing.
        let graph = Graph::from_text(
            "a parent b; b child a; c parent d; d child c; e parent f; f child e; g parent h;
             i parent j; a sibling c; c sibling a; b sibling d; a likes c
             | b likes c
             | h child g; j child i; d sibling b; k child l",
        );
        let leakage = leakage(&graph);
        let found: Vec<_> = leakage
            .pairs
            .iter()
            .map(|twins| {
                let [relation, other] =
                    [twins.relation, twins.other].map(|r| graph.relations().name(r.0));
                (relation, other, twins.likeness, twins.test_triples, twins.given_away)
            })
            .collect();
        assert_eq!(
            found,
            [
                ("child", "parent", Likeness::Inverse, 3, 2),
                ("sibling", "sibling", Likeness::Symmetric, 1, 1),
                ("parent", "child", Likeness::Inverse, 0, 0),
            ]
        );
        assert_eq!(leakage.test_triples, 3);
        // Of 6 `child` triples 5 are inverted by the 5 of `parent`.
        assert!((leakage.pairs[0].share - 5.0 / 6.0).abs() < 1e-12);
        assert!((leakage.pairs[0].share_of_other - 1.0).abs() < 1e-12);
    }
}
