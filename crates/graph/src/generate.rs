//! Synthetic graphs: what would a graph with this structure look like?
//!
//! Makes synthetic graphs with planted structure, one subject at a time, so that a graph of any
//! size can be streamed to disk.
//!
//! Every entity has a type, and some have a second one. A relation leads from each type of
//! subject to a few types of object, drawn at random, so that the answers to a query are spread
//! over several groups that have nothing else in common. That is what a linear output layer
//! cannot express once there are many more such combinations than dimensions.
//! Within a type some entities are far more popular than others, some subjects have far more
//! answers than others, and a share of all triples is noise.
//! It writes no files; that is left to the caller.

use std::fmt;

use hashbrown::HashSet;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{EntityId, Error, Graph, Names, RelationId, Split, Triple};

/// What the graph should be like.
#[derive(Clone, PartialEq, Debug)]
pub struct GenerateConfig {
    /// The number of entities.
    pub entities: u32,
    /// The number of relations.
    pub relations: u32,
    /// Triples per entity, on average and as far as there are enough objects to choose from.
    pub mean_degree: f64,
    /// The number of types of entities.
    pub types: u32,
    /// The number of object types to which a relation leads from one type of subject.
    pub modes: u32,
    /// The share of triples whose object is drawn from all entities alike.
    pub noise: f64,
    /// The graph is a function of the numbers above and this.
    pub seed: u64,
}

/// A small graph that can be learned, but for which a linear output layer of dimension 16 is too
/// narrow.
impl Default for GenerateConfig {
    fn default() -> Self {
        Self {
            entities: 1000,
            relations: 6,
            mean_degree: 60.0,
            types: 64,
            modes: 3,
            noise: 0.05,
            seed: 0,
        }
    }
}

/// The whole graph, in memory.
///
/// # Errors
/// When there are more triples than a 32-bit index can address in both directions.
///
/// # Panics
/// As [`Generator::new`].
pub fn generate(config: GenerateConfig) -> Result<Graph, Error> {
    let n_relations = config.relations;
    let generator = Generator::new(config);
    let mut names = (Names::default(), Names::default());
    for entity in 0..generator.config.entities {
        names.0.intern(&generator.entity_name(EntityId(entity)).to_string())?;
    }
    for relation in 0..n_relations {
        names.1.intern(&generator.relation_name(RelationId(relation)).to_string())?;
    }
    let mut triples = Split::ALL.map(|_| Vec::new());
    for (split, triple) in generator {
        triples[split as usize].push(triple);
    }
    Graph::from_triples(names.0, names.1, triples)
}

/// The share of entities that have a second type.
const SECOND_TYPE: f64 = 0.2;

/// The share of relations in which the entities of a type take part as subjects.
const ACTIVE_RELATIONS: f64 = 0.5;

/// How uneven popularity is: the first tenth of a type's entities gets the share 0.1^(1/3), or 46 %.
const POPULARITY_EXPONENT: f64 = 3.0;

/// Out-degrees follow a Pareto law with this exponent: few subjects have most of the triples.
const DEGREE_EXPONENT: f64 = 2.0;

/// No subject has more triples than this share of all entities.
const MAX_DEGREE_SHARE: f64 = 0.25;

/// How often a triple is drawn that is not there yet before the subject makes do with fewer.
const MAX_DRAWS: usize = 8;

/// The share of triples that are held out for validation, and the same for test.
const HELD_OUT: f64 = 0.1;

/// The triples of a synthetic graph, subject by subject.
///
/// Every entity and every relation that occurs has its first triple in training.
#[derive(Debug)]
pub struct Generator {
    config: GenerateConfig,
    /// The types of each entity; the second may be the first again.
    types_of: Vec<[u32; 2]>,
    /// The entities of each type, the most popular first.
    members: Vec<Vec<EntityId>>,
    /// The relations in which a type takes part as subject. `[types][..]`
    relations_of: Vec<Vec<RelationId>>,
    /// The types of object to which a relation leads. `[types][relations][modes]`
    object_types: Vec<u32>,
    seen_entities: Vec<bool>,
    seen_relations: Vec<bool>,
    rng: ChaCha8Rng,
    next_subject: u32,
    /// The triples of the last subject that are still to be handed out, backwards.
    waiting: Vec<(Split, Triple)>,
    /// The triples of one subject; kept between subjects for its memory.
    drawn: HashSet<Triple>,
}

impl Generator {
    /// Draws the structure of the graph; its triples are drawn while iterating.
    ///
    /// # Panics
    /// If a count is zero, if there are more types than entities, or if a share is not in [0, 1].
    pub fn new(config: GenerateConfig) -> Self {
        let GenerateConfig { entities, relations, types, modes, noise, .. } = config;
        assert!(entities > 0 && relations > 0 && modes > 0 && config.mean_degree > 0.0);
        assert!((1..=entities).contains(&types), "{types} types for {entities} entities");
        assert!((0.0..=1.0).contains(&noise), "a share of {noise}");
        let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
        let types_of: Vec<[u32; 2]> = (0..entities)
            .map(|entity| {
                let first = entity % types;
                let has_second = rng.random_bool(SECOND_TYPE);
                [first, if has_second { rng.random_range(0..types) } else { first }]
            })
            .collect();
        let mut members = vec![vec![]; types as usize];
        for (entity, [first, second]) in types_of.iter().enumerate() {
            members[*first as usize].push(EntityId(entity as u32));
            if second != first {
                members[*second as usize].push(EntityId(entity as u32));
            }
        }
        let relations_of = (0..types)
            .map(|_| {
                let mut active: Vec<RelationId> = (0..relations)
                    .filter(|_| rng.random_bool(ACTIVE_RELATIONS))
                    .map(RelationId)
                    .collect();
                if active.is_empty() {
                    active.push(RelationId(rng.random_range(0..relations)));
                }
                active
            })
            .collect();
        let n_object_types = types as usize * relations as usize * modes as usize;
        let object_types = (0..n_object_types).map(|_| rng.random_range(0..types)).collect();
        Self {
            types_of,
            members,
            relations_of,
            object_types,
            seen_entities: vec![false; entities as usize],
            seen_relations: vec![false; relations as usize],
            rng,
            next_subject: 0,
            waiting: vec![],
            drawn: HashSet::new(),
            config,
        }
    }

    /// The name of an entity: its first type and its number.
    pub fn entity_name(&self, entity: EntityId) -> impl fmt::Display + use<> {
        let (first_type, number) = (self.types_of[entity.0 as usize][0], entity.0);
        fmt::from_fn(move |f| write!(f, "t{first_type}/{number}"))
    }

    /// The name of a relation.
    pub fn relation_name(&self, relation: RelationId) -> impl fmt::Display + use<> {
        fmt::from_fn(move |f| write!(f, "r{}", relation.0))
    }

    /// How many relations have occurred so far.
    pub fn n_relations(&self) -> usize {
        self.seen_relations.iter().filter(|seen| **seen).count()
    }

    /// About how many triples there will be.
    pub fn expected_triples(&self) -> u64 {
        (f64::from(self.config.entities) * self.config.mean_degree) as u64
    }

    /// Draws all triples of the next subject.
    fn draw_subject(&mut self) {
        let subject = EntityId(self.next_subject);
        self.next_subject += 1;
        let mut drawn = std::mem::take(&mut self.drawn);
        for _ in 0..self.draw_degree() {
            // A popular object comes up again and again; give up where few others are left.
            for _ in 0..MAX_DRAWS {
                let triple = self.draw_triple(subject);
                if drawn.insert(triple) {
                    let split = self.draw_split(triple);
                    self.waiting.push((split, triple));
                    break;
                }
            }
        }
        self.waiting.reverse();
        drawn.clear();
        self.drawn = drawn;
    }

    fn draw_degree(&mut self) -> usize {
        let least = self.config.mean_degree * (DEGREE_EXPONENT - 1.0) / DEGREE_EXPONENT;
        let degree = least * (1.0 - self.rng.random::<f64>()).powf(-1.0 / DEGREE_EXPONENT);
        let most = f64::from(self.config.entities) * MAX_DEGREE_SHARE;
        // Rounded up or down at random, so that the mean stays what it is.
        (degree.min(most) + self.rng.random::<f64>()).max(1.0) as usize
    }

    fn draw_triple(&mut self, subject: EntityId) -> Triple {
        let GenerateConfig { entities, relations, modes, noise, .. } = self.config;
        let rng = &mut self.rng;
        let subject_type = self.types_of[subject.0 as usize][usize::from(rng.random::<bool>())];
        let active = &self.relations_of[subject_type as usize];
        let relation = active[rng.random_range(0..active.len())];
        let object = if rng.random_bool(noise) {
            EntityId(rng.random_range(0..entities))
        } else {
            let row = subject_type as usize * relations as usize + relation.0 as usize;
            let mode = rng.random_range(0..modes) as usize;
            let members = &self.members[self.object_types[row * modes as usize + mode] as usize];
            let place = rng.random::<f64>().powf(POPULARITY_EXPONENT) * members.len() as f64;
            members[place as usize]
        };
        Triple { subject, relation, object }
    }

    fn draw_split(&mut self, triple: Triple) -> Split {
        let draw: f64 = self.rng.random();
        let known = self.seen_entities[triple.subject.0 as usize]
            && self.seen_entities[triple.object.0 as usize]
            && self.seen_relations[triple.relation.0 as usize];
        match draw {
            draw if known && draw < HELD_OUT => Split::Valid,
            draw if known && draw < 2.0 * HELD_OUT => Split::Test,
            _ => {
                self.seen_entities[triple.subject.0 as usize] = true;
                self.seen_entities[triple.object.0 as usize] = true;
                self.seen_relations[triple.relation.0 as usize] = true;
                Split::Train
            }
        }
    }
}

impl Iterator for Generator {
    type Item = (Split, Triple);

    fn next(&mut self) -> Option<(Split, Triple)> {
        while self.waiting.is_empty() && self.next_subject < self.config.entities {
            self.draw_subject();
        }
        self.waiting.pop()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn check(entities: u32, mean_degree: f64, seed: u64) -> Vec<(Split, Triple)> {
        Generator::new(GenerateConfig { entities, mean_degree, seed, ..Default::default() })
            .collect()
    }

    #[test]
    fn the_seed_decides_the_graph() {
        assert_eq!(check(300, 5.0, 1), check(300, 5.0, 1));
        assert_ne!(check(300, 5.0, 1), check(300, 5.0, 2));
    }

    #[test]
    fn no_triple_is_repeated_and_the_mean_degree_is_as_asked() {
        let triples = check(5000, 8.0, 0);
        let distinct: BTreeSet<Triple> = triples.iter().map(|(_, triple)| *triple).collect();
        assert_eq!(distinct.len(), triples.len());
        let mean = triples.len() as f64 / 5000.0;
        // The law of out-degrees has no finite variance, so the mean strays: with these settings by
        // up to 3.7 % over the seeds 0 to 9.
        assert!((mean - 8.0).abs() < 0.4, "{mean}");
    }

    #[test]
    fn every_entity_is_in_training_and_a_tenth_is_held_out_twice() {
        let triples = check(5000, 8.0, 3);
        let mut seen = BTreeSet::new();
        let mut sizes = BTreeMap::new();
        for (split, triple) in &triples {
            *sizes.entry(*split).or_insert(0) += 1;
            if *split == Split::Train {
                seen.extend([triple.subject, triple.object]);
            }
        }
        assert_eq!(seen.len(), 5000);
        for split in [Split::Valid, Split::Test] {
            let share = f64::from(sizes[&split]) / triples.len() as f64;
            assert!((0.08..0.105).contains(&share), "{share}");
        }
    }

    #[test]
    fn degrees_are_uneven_on_both_sides() {
        let triples = check(5000, 10.0, 0);
        let most = |slot: fn(&Triple) -> EntityId| {
            let mut uses = BTreeMap::new();
            for (_, triple) in &triples {
                *uses.entry(slot(triple)).or_insert(0) += 1;
            }
            uses.into_values().max().unwrap()
        };
        assert!(most(|triple| triple.subject) > 100);
        assert!(most(|triple| triple.object) > 100);
    }
}
