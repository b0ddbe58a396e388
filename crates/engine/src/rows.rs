//! Which rows of the entity tables does an update need, where its batch names few entities?
//!
//! With drawn objects, a batch meets its subjects, its answers and what was drawn. The model gets
//! tables of these rows alone, and Adam changes only them and their moments, in place (what PyTorch
//! calls SparseAdam): an update then costs the same whatever the number of entities.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use crate::config::Config;
use crate::encoder::Queries;
use crate::model::{Batch, Model};
use crate::ops::{BatchAnswers, gather_rows};
use crate::parameters::{Path, like};

/// Tensors that have a row, or a value, for every entity.
const OF_ENTITIES: [&str; 4] = ["encoder.entity", "encoder.subject", "encoder.object", "bias"];

/// Over fewer entities, a pass over the tables is a small part of an update.
const LEAST_ENTITIES: usize = 8192;

/// Tables as they are, while a model has some of their rows.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Which rows, ascending.
    pub(crate) ids: Vec<u32>,
    /// By name, flattened.
    pub(crate) tables: BTreeMap<String, Tensor<1>>,
}

impl Config {
    /// Whether an update reads and changes only the rows of entities that its batch names.
    pub(crate) fn updates_rows(&self, entities: usize) -> bool {
        // Messages reach every entity.
        self.negatives.is_some() && !self.encoder.reads_edges() && entities >= LEAST_ENTITIES
    }
}

/// Leaves a model the rows of its entity tables that a batch names, and numbers these anew in the
/// batch; everything stays as it is where whole tables are updated.
pub(crate) fn narrow(
    model: Model,
    batch: &mut Batch,
    config: &Config,
    entities: usize,
) -> (Model, Option<Whole>) {
    if !config.updates_rows(entities) {
        return (model, None);
    }
    let (model, whole) = with_rows(model, batch);
    (model, Some(whole))
}

fn with_rows(model: Model, batch: &mut Batch) -> (Model, Whole) {
    let ids = entities_of(batch);
    number_anew(batch, &ids);
    let mut narrower =
        Narrower { path: Path::default(), whole: Whole { ids, tables: BTreeMap::new() } };
    let model = model.map(&mut narrower);
    (model, narrower.whole)
}

fn entities_of(batch: &Batch) -> Vec<u32> {
    let drawn = batch.negatives.iter().flat_map(|negatives| negatives.objects.iter());
    let mut ids: Vec<u32> =
        batch.queries.subjects.iter().chain(&batch.answers.objects).chain(drawn).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn number_anew(batch: &mut Batch, ids: &[u32]) {
    let place = |id: &u32| ids.binary_search(id).expect("an entity of the batch") as u32;
    let Queries { subjects, relations } = &batch.queries;
    let subjects = subjects.iter().map(place).collect();
    batch.queries = Queries { subjects, relations: Arc::clone(relations) };
    let BatchAnswers { queries, objects, weights } = &*batch.answers;
    let objects = objects.iter().map(place).collect();
    batch.answers =
        Arc::new(BatchAnswers { queries: queries.clone(), objects, weights: weights.clone() });
    if let Some(negatives) = &mut batch.negatives {
        negatives.objects = negatives.objects.iter().map(place).collect();
    }
}

struct Narrower {
    path: Path,
    whole: Whole,
}

impl ModuleMapper for Narrower {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }
    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        if !OF_ENTITIES.contains(&name.as_str()) {
            return param;
        }
        let (id, tensor, mapper) = param.consume();
        let mut shape: [usize; D] = tensor.dims();
        let columns = shape[1..].iter().product::<usize>();
        let rows: Arc<[u32]> = self.whole.ids.as_slice().into();
        let table = tensor.clone().inner();
        let narrow = gather_rows(table.clone().reshape([shape[0], columns]), rows);
        shape[0] = self.whole.ids.len();
        let narrow = like(&tensor, narrow.reshape(shape));
        self.whole.tables.insert(name, table.reshape([-1]));
        Param::from_mapped_value(id, narrow, mapper)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::config::{Choice, OutputKind};
    use crate::encoder::{Domain, EncoderKind};
    use crate::ops::Workspace;
    use crate::output::Negatives;
    use crate::parameters::{Adam, tensors};
    use crate::random::{Noise, Weights};
    use crate::train::device;
    use burn::optim::GradientsParams;

    const ENTITIES: usize = 60;

    fn batch(config: &Config) -> Batch {
        let answers =
            BatchAnswers { queries: vec![0, 1, 1], objects: vec![7, 3, 50], weights: vec![1.0; 3] };
        let known = [vec![7], vec![3, 50]].into_iter();
        Batch {
            queries: Queries { subjects: [3, 40].into(), relations: [1, 4].into() },
            answers: Arc::new(answers),
            negatives: Negatives::draw(config, ENTITIES, 0, known),
        }
    }

    fn values(model: &Model) -> BTreeMap<String, Vec<f32>> {
        let values = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
        tensors(model).into_iter().map(|tensor| (tensor.name, values(tensor.values))).collect()
    }

    /// Every encoder that is not made of the facts, where the batch is all that ever moved.
    #[test]
    fn steps_over_rows_are_those_over_whole_tables() {
        for encoder in EncoderKind::ALL.iter().copied().filter(|kind| !kind.reads_edges()) {
            let config = Config {
                encoder,
                output: OutputKind::Softmax,
                dim: 24,
                hidden: vec![8],
                negatives: Some(9),
                bias: true,
                ..Config::default()
            };
            let domain = Domain::without_edges(ENTITIES, 6);
            let whole_batch = batch(&config);
            let steps = |narrows: bool| {
                let mut model = Model::new(&config, &domain, Weights::new(1, device().autodiff()));
                let mut adam = Adam::default();
                // The second finds the moments of the first.
                for update in 0..2 {
                    let mut batch = whole_batch.clone();
                    let mut whole = None;
                    if narrows {
                        let (narrow, tables) = with_rows(model, &mut batch);
                        let left = |shape: &[usize]| shape[0] != ENTITIES;
                        assert!(tensors(&narrow).iter().all(|t| left(&t.shape)), "{encoder:?}");
                        (model, whole) = (narrow, Some(tables));
                    }
                    let workspace = Arc::new(Mutex::new(Workspace::new(0)));
                    let noise = Noise::new(1, update);
                    let loss = model.loss(&batch, &config, &noise, &workspace).total;
                    let grads = GradientsParams::from_grads(loss.backward(), &model);
                    model = adam.step(model, grads, whole, 0.01, 1.0);
                }
                values(&model)
            };
            let (found, expected) = (steps(true), steps(false));
            assert_eq!(found.len(), expected.len());
            for (name, expected) in expected {
                let found = &found[&name];
                assert_eq!(found.len(), expected.len(), "{encoder:?} {name}");
                // The first step of Adam is the rate, whatever the size of a gradient: where that
                // is nothing but rounding, signs may differ.
                let off = found.iter().zip(&expected).filter(|(a, b)| (*a - *b).abs() > 1e-5);
                assert!(off.count() * 100 <= expected.len(), "{encoder:?} {name}");
            }
        }
    }
}
