//! Sparse updates: which rows of the entity tables does an update need, where its batch names few?
//!
//! With drawn objects, a batch meets its subjects, its answers and what was drawn. The model gets
//! tables of these rows alone, and Adam changes only them and their moments, in place (what PyTorch
//! calls SparseAdam): an update then costs the same whatever the number of entities.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use crate::batch::Batch;
use crate::config::Config;
use crate::encoder::Queries;
use crate::network::Network;
use crate::ops::{BatchAnswers, gather_rows};
use crate::parameters::{Path, keeps_path, like};
use crate::part::TableRows;

/// Tables as they are, while a model has some of their rows.
#[derive(Debug)]
pub(crate) struct FullTables {
    /// Which rows, ascending.
    pub(crate) ids: Vec<u32>,
    /// By name, flattened.
    pub(crate) tables: BTreeMap<String, Tensor<1>>,
}

/// Leaves a model the rows of its entity tables that a batch names, and numbers these anew in the
/// batch; everything stays as it is where whole tables are updated.
pub(crate) fn narrow(
    model: Network,
    batch: &mut Batch,
    config: &Config,
    entities: usize,
) -> (Network, Option<FullTables>) {
    if !config.updates_rows(entities) {
        return (model, None);
    }
    let (model, full) = with_rows(model, batch, entity_tables(config));
    (model, Some(full))
}

/// The names of tensors that have a row, or a value, for every entity.
fn entity_tables(config: &Config) -> BTreeSet<String> {
    let of_entities = |(name, rows)| (rows == TableRows::Entities).then_some(name);
    config.tables().filter_map(of_entities).collect()
}

fn with_rows(
    model: Network,
    batch: &mut Batch,
    of_entities: BTreeSet<String>,
) -> (Network, FullTables) {
    let ids = entities_of(batch);
    number_anew(batch, &ids);
    let full = FullTables { ids, tables: BTreeMap::new() };
    let mut narrower = Narrower { path: Path::default(), of_entities, full };
    let model = model.map(&mut narrower);
    (model, narrower.full)
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
    of_entities: BTreeSet<String>,
    full: FullTables,
}

impl ModuleMapper for Narrower {
    keeps_path!(path);
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let name = self.path.name();
        if !self.of_entities.contains(&name) {
            return param;
        }
        let (id, tensor, mapper) = param.consume();
        let mut shape: [usize; D] = tensor.dims();
        let columns = shape[1..].iter().product::<usize>();
        let rows: Arc<[u32]> = self.full.ids.as_slice().into();
        let table = tensor.clone().inner();
        let narrow = gather_rows(table.clone().reshape([shape[0], columns]), rows);
        shape[0] = self.full.ids.len();
        let narrow = like(&tensor, narrow.reshape(shape));
        self.full.tables.insert(name, table.reshape([-1]));
        Param::from_mapped_value(id, narrow, mapper)
    }
}

/// Gives a network its full tables back as they were, where no update is made of its rows.
pub(crate) fn restore(network: Network, full: Option<FullTables>) -> Network {
    match full {
        None => network,
        Some(full) => network.map(&mut Restorer { path: Path::default(), full }),
    }
}

struct Restorer {
    path: Path,
    full: FullTables,
}

impl ModuleMapper for Restorer {
    keeps_path!(path);
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(table) = self.full.tables.remove(&self.path.name()) else { return param };
        let (id, narrow, mapper) = param.consume();
        let mut shape: [usize; D] = narrow.dims();
        shape[0] = table.dims()[0] / shape[1..].iter().product::<usize>();
        Param::from_mapped_value(id, like(&narrow, table.reshape(shape)), mapper)
    }
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::device::Device;
    use crate::encoder::EncoderKind;
    use crate::ops::Workspace;
    use crate::optimizer::Optimizer;
    use crate::output::{Draw, Negatives};
    use crate::parameters::tensors;
    use crate::part::Domain;
    use crate::random::{Noise, Weights};
    use crate::settings::Choice;
    use burn::optim::GradientsParams;

    const ENTITIES: usize = 60;

    fn batch() -> Batch {
        let answers =
            BatchAnswers { queries: vec![0, 1, 1], objects: vec![7, 3, 50], weights: vec![1.0; 3] };
        let known = [vec![7], vec![3, 50]].into_iter();
        let draw = Draw { entities: ENTITIES, seed: 0, update: 0 };
        Batch {
            queries: Queries { subjects: [3, 40].into(), relations: [1, 4].into() },
            answers: Arc::new(answers),
            negatives: Some(Negatives::draw(9, draw, known)),
        }
    }

    fn values(model: &Network) -> BTreeMap<String, Vec<f32>> {
        let values = |tensor: Tensor<1>| tensor.into_data().try_into_vec::<f32>().unwrap();
        tensors(model).into_iter().map(|tensor| (tensor.name, values(tensor.values))).collect()
    }

    /// Every encoder that is not made of the facts, where the batch is all that ever moved.
    #[test]
    fn steps_over_rows_are_those_over_whole_tables() {
        for encoder in EncoderKind::ALL.iter().copied().filter(|kind| !kind.facts().reads_edges) {
            let hidden = if encoder == EncoderKind::ConcatMlp { "hidden = [8]" } else { "" };
            let text = format!(
                "encoder = \"{}\"\ndim = 24\nnegatives = 9\nbias = true\n{hidden}",
                encoder.name()
            );
            let config = Config::parse(&text).unwrap();
            let domain = Domain::without_edges(ENTITIES, 6);
            let whole_batch = batch();
            let steps = |narrows: bool| {
                let mut model =
                    Network::new(&config, &domain, Weights::new(1, Device::Cpu.burn().autodiff()));
                let mut optimizer = Optimizer::new(config.training.optimizer);
                // The second finds the moments of the first.
                for update in 0..2 {
                    let mut batch = whole_batch.clone();
                    let mut full = None;
                    if narrows {
                        let (narrow, tables) = with_rows(model, &mut batch, entity_tables(&config));
                        let left = |shape: &[usize]| shape[0] != ENTITIES;
                        assert!(tensors(&narrow).iter().all(|t| left(&t.shape)), "{encoder:?}");
                        (model, full) = (narrow, Some(tables));
                    }
                    let workspace = Arc::new(Workspace::new(0));
                    let noise = Noise::new(1, update);
                    let loss = model.loss(&batch, &config, &noise, &workspace).total;
                    let grads = GradientsParams::from_grads(loss.backward(), &model);
                    model = optimizer.step(model, grads, full, 0.01, 1.0);
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
