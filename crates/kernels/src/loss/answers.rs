//! Answers of a batch: which objects are true, and in which tiles do they stand?

use crate::tiles::{Shape, Tile};

/// The answers of a batch of queries: which objects are true, and how much each counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BatchAnswers {
    /// Number of the query in the batch, ascending.
    pub queries: Vec<u32>,
    /// Id of the answer.
    pub objects: Vec<u32>,
    /// Its weight.
    pub weights: Vec<f32>,
}

impl BatchAnswers {
    /// Number of answers of all queries together.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether no query has an answer.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The query of an answer.
    pub fn query(&self, number: usize) -> usize {
        self.queries[number] as usize
    }

    /// Where the object of an answer stands among those of a shape, if it is one of them.
    pub(super) fn place_in(&self, shape: &Shape, number: usize) -> Option<usize> {
        shape.place_of(self.objects[number] as usize)
    }
}

/// The answers of a batch that are among the objects of a shape, in the order in which tiles meet
/// them.
pub(super) struct AnswersByTile<'a> {
    shape: &'a Shape,
    answers: &'a BatchAnswers,
    /// Numbers of answers, by tile of objects, then by query.
    order: Vec<u32>,
    /// Where each tile's answers start in `order`.
    starts: Vec<u32>,
}

/// An answer in a tile.
pub(super) struct AnswerAt {
    /// Among all answers of the batch.
    pub(super) number: usize,
    /// The row of its query's first component.
    pub(super) row: usize,
    /// Its place among the objects that are scored.
    pub(super) object: usize,
    /// Where that row's logit of the answer stands in the tile.
    pub(super) place: usize,
}

impl<'a> AnswersByTile<'a> {
    pub(super) fn of(shape: &'a Shape, answers: &'a BatchAnswers) -> Self {
        let tile_of = |number: u32| {
            let object = answers.place_in(shape, number as usize)?;
            let (chunk, within) = (object / shape.chunk_len(), object % shape.chunk_len());
            Some((chunk * shape.tiles_per_chunk() + within / shape.tile_len(), number))
        };
        let mut by_tile: Vec<_> = (0..answers.len() as u32).filter_map(tile_of).collect();
        // Stable: within a tile answers stay in the order of their queries.
        by_tile.sort_by_key(|(tile, _)| *tile);
        let mut starts = vec![0; shape.n_chunks() * shape.tiles_per_chunk() + 1];
        for (tile, _) in &by_tile {
            starts[tile + 1] += 1;
        }
        for tile in 1..starts.len() {
            starts[tile] += starts[tile - 1];
        }
        let order = by_tile.into_iter().map(|(_, number)| number).collect();
        Self { shape, answers, order, starts }
    }

    /// The answers in a tile, by query.
    pub(super) fn within(&self, tile: &Tile) -> impl Iterator<Item = AnswerAt> {
        let at = tile.chunk * self.shape.tiles_per_chunk() + tile.number;
        let numbers = &self.order[self.starts[at] as usize..self.starts[at + 1] as usize];
        let (answers, components) = (self.answers, self.shape.components);
        let row_of = move |number: usize| answers.query(number) * components;
        let start = numbers.partition_point(|number| row_of(*number as usize) < tile.rows.start);
        let (first_id, rows) = (self.shape.objects.start, tile.rows.clone());
        let (first_object, width) = (tile.objects.start, tile.objects.len());
        let answer = move |number: &u32| {
            let (number, row) = (*number as usize, row_of(*number as usize));
            let object = answers.objects[number] as usize - first_id;
            let place = (row - rows.start) * width + object - first_object;
            AnswerAt { number, row, object, place }
        };
        let end = tile.rows.end;
        numbers[start..].iter().map(answer).take_while(move |answer| answer.row < end)
    }
}
