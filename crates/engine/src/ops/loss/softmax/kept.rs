//! What does the backward pass find of the tiles of the forward pass?
//!
//! Whole tiles, or the few of their entries that it may need, as far as there is room; the logits of
//! all others are computed again. Tiles are kept as exp(z − the row's maximum in the tile), which
//! saves one of four products and half of the exponentials.

use super::super::sparse::{Entries, FEW};
use super::super::tiles::{Lines, Shape, Tile};

/// What a chunk keeps of its tiles.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Tile after tile.
    pub(super) places: Vec<Place>,
    /// Whole tiles.
    pub(super) values: Lines,
    /// Entries, of other tiles; a row of each tile, empty where there are none.
    pub(super) entries: Entries,
    /// The largest logit of every row of every tile, as in `entries`.
    pub(super) maxima: Vec<f32>,
    /// Whether entries are few enough, as the first tile has it.
    pub(super) are_few: bool,
    /// Values of whole tiles in use.
    pub(super) n_whole: usize,
}

/// What is kept of a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// All of it, from here on.
    Whole(usize),
    /// Some of its entries.
    Entries,
    /// Nothing.
    Nowhere,
}

impl Kept {
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.entries.clear();
        self.maxima.clear();
        (self.are_few, self.n_whole) = (false, 0);
    }

    /// Finds a place for the next tile, if `bytes` have room for it.
    pub(super) fn place(&mut self, tile: &Tile, bytes: usize) -> Place {
        let used = self.n_whole * size_of::<f32>() + self.entries.n_bytes();
        let most = tile.size() as f64 * f64::from(FEW) * Entries::BYTES as f64;
        let whole = tile.size() * size_of::<f32>();
        let place = if self.are_few && used + most as usize <= bytes {
            Place::Entries
        } else if !self.are_few && used + whole <= bytes {
            let start = self.n_whole;
            self.n_whole += tile.size();
            Place::Whole(start)
        } else {
            Place::Nowhere
        };
        self.places.push(place);
        place
    }

    /// Where a tile's rows stand in `entries` and `maxima`.
    pub(super) fn first_row(shape: Shape, tile: &Tile) -> usize {
        tile.number * shape.rows() + tile.rows.start
    }
}
