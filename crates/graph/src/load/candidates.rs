//! Against which wrong answers is a triple to be ranked?
//!
//! Benchmarks such as ogbl-biokg give a list of negatives for each held-out triple, as arrays with
//! a row per line of the split's file.
//! A number in the array is the part of a name behind its last slash: where the true subject is
//! `drug/17`, the number 4 stands for `drug/4`; where names have no slash, 4 stands for `4`.
//! Ranking against them is left to the engine.

use std::collections::HashMap;
use std::fs;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

use npyz::{DType, NpyFile, NpyHeader, Order, TypeChar};
use rayon::prelude::*;

use crate::{EntityId, Error, Graph, Split};

/// The wrong answers against which the triples of one split are ranked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// For each triple, in their order, the entities to put in the place of its subject.
    pub subjects: Rows,
    /// Likewise for its object.
    pub objects: Rows,
}

/// A table of entities with rows of equal length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    /// The length of a row.
    pub width: usize,
    /// All rows, one behind the other.
    pub entities: Vec<EntityId>,
}

/// Loads the negatives that lie beside the split's file in a folder, if there are any:
/// `test_negative_subjects.npy` and `test_negative_objects.npy` for test.
///
/// # Errors
/// When only one of the two is there, or when they do not fit the triples of the split.
pub fn load_candidates(
    folder: &Path,
    graph: &Graph,
    split: Split,
) -> Result<Option<Candidates>, Error> {
    let [subjects, objects] =
        ["subjects", "objects"].map(|slot| folder.join(format!("{split}_negative_{slot}.npy")));
    if !subjects.exists() && !objects.exists() {
        return Ok(None);
    }
    let entities = NumberedEntities::of(graph);
    let triples = graph.triples(split);
    let true_subjects: Vec<EntityId> = triples.iter().map(|triple| triple.subject).collect();
    let true_objects: Vec<EntityId> = triples.iter().map(|triple| triple.object).collect();
    let dropped = graph.repeats().within[split as usize];
    let rows = |path: &PathBuf, truth: &[EntityId]| {
        if dropped > 0 {
            let expected = format!("candidates for distinct triples in {split}");
            let found = format!("{dropped} repeated ones, so that rows do not match triples");
            return Err(Error::Array { path: path.clone(), expected, found });
        }
        let array = Array::read(path)?;
        array.check_rows(truth.len())?;
        entities.resolve(&array, truth)
    };
    Ok(Some(Candidates {
        subjects: rows(&subjects, &true_subjects)?,
        objects: rows(&objects, &true_objects)?,
    }))
}

/// Checks that bytes are an array such as [`load_candidates`] reads, and tells its shape.
///
/// # Errors
/// When they are not; `name` is what errors call the file.
pub fn check_array(name: &Path, bytes: &[u8]) -> Result<(usize, usize), Error> {
    let array = Array::parse(name, std::io::Cursor::new(bytes), bytes.len() as u64)?;
    Ok((array.n_rows, array.width))
}

/// Whole numbers in two dimensions, row by row.
struct Array {
    path: PathBuf,
    n_rows: usize,
    width: usize,
    values: Vec<u32>,
}

impl Array {
    fn read(path: &Path) -> Result<Self, Error> {
        let fail = |source| Error::Read { path: path.to_owned(), source };
        let file = fs::File::open(path).map_err(fail)?;
        let n_bytes = file.metadata().map_err(fail)?.len();
        Self::parse(path, BufReader::with_capacity(1 << 20, file), n_bytes)
    }

    fn parse(path: &Path, mut input: impl Read + Seek, n_bytes: u64) -> Result<Self, Error> {
        let wrong = |expected: &str, found: String| Error::Array {
            path: path.to_owned(),
            expected: expected.to_owned(),
            found,
        };
        let header = NpyHeader::from_reader(&mut input)
            .map_err(|error| wrong("an array in numpy's .npy format", error.to_string()))?;
        let n_header = input
            .stream_position()
            .map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let npy = NpyFile::with_header(header, input);
        let shape = npy.shape().to_vec();
        let [n_rows, width] = shape[..] else {
            return Err(wrong("an array of two dimensions", format!("the shape {shape:?}")));
        };
        if npy.order() != Order::C {
            return Err(wrong("an array in C order", "one in Fortran order".to_owned()));
        }
        let dtype = npy.dtype();
        let value_bytes = match &dtype {
            DType::Plain(kind) if matches!(kind.type_char(), TypeChar::Int | TypeChar::Uint) => {
                kind.size_field()
            }
            _ => return Err(wrong("an array of whole numbers", dtype.descr())),
        };
        // Before anything is allocated: a damaged header may claim any shape.
        let needed = n_rows.checked_mul(width).and_then(|n| n.checked_mul(value_bytes));
        let n_values = n_bytes.saturating_sub(n_header);
        if needed != Some(n_values) {
            let expected = format!("{n_rows} × {width} numbers of {value_bytes} bytes");
            return Err(wrong(&expected, format!("{n_values} bytes")));
        }
        let kind = dtype.descr();
        let values = read_values(npy).ok_or_else(|| {
            wrong("non-negative whole numbers below 2^32", format!("others ({kind})"))
        })?;
        Ok(Self { path: path.to_owned(), n_rows: n_rows as usize, width: width as usize, values })
    }

    fn check_rows(&self, n_triples: usize) -> Result<(), Error> {
        if self.n_rows == n_triples {
            return Ok(());
        }
        Err(Error::Array {
            path: self.path.clone(),
            expected: format!("{n_triples} rows, one for each triple"),
            found: format!("{}", self.n_rows),
        })
    }
}

/// The values as 32-bit numbers, whatever their width in the file; nothing if one does not fit.
fn read_values<R: Read>(npy: NpyFile<R>) -> Option<Vec<u32>> {
    fn narrow<T: npyz::Deserialize, R: Read>(npy: NpyFile<R>) -> Option<Vec<u32>>
    where
        u32: TryFrom<T>,
    {
        npy.data::<T>().ok()?.map(|value| u32::try_from(value.ok()?).ok()).collect()
    }
    let DType::Plain(kind) = npy.dtype() else { return None };
    match (kind.type_char(), kind.size_field()) {
        (TypeChar::Int, 8) => narrow::<i64, R>(npy),
        (TypeChar::Int, 4) => narrow::<i32, R>(npy),
        (TypeChar::Int, 2) => narrow::<i16, R>(npy),
        (TypeChar::Uint, 8) => narrow::<u64, R>(npy),
        (TypeChar::Uint, 4) => narrow::<u32, R>(npy),
        (TypeChar::Uint, 2) => narrow::<u16, R>(npy),
        _ => None,
    }
}

/// Entities by the number at the end of their name.
struct NumberedEntities<'a> {
    graph: &'a Graph,
    /// For the part of the name before the number, the entity of each number.
    by_prefix: HashMap<&'a str, Vec<Option<EntityId>>>,
}

impl<'a> NumberedEntities<'a> {
    fn of(graph: &'a Graph) -> Self {
        /// Above this, a number is some code and not a place in a list.
        const MAX_NUMBER: usize = 1 << 28;
        let mut by_prefix: HashMap<&str, Vec<Option<EntityId>>> = HashMap::new();
        for (id, name) in graph.entities().iter().enumerate() {
            let (prefix, number) = split_name(name);
            // Only the usual way of writing a number: `007` is not entity 7.
            let Ok(place) = number.parse::<usize>() else { continue };
            if place > MAX_NUMBER || place.to_string() != number {
                continue;
            }
            let list = by_prefix.entry(prefix).or_default();
            if list.len() <= place {
                list.resize(place + 1, None);
            }
            list[place] = Some(EntityId(id as u32));
        }
        Self { graph, by_prefix }
    }

    /// The entities that the numbers of an array stand for, given the true entity of each row.
    fn resolve(&self, array: &Array, truth: &[EntityId]) -> Result<Rows, Error> {
        let nobody = vec![];
        let rows: Vec<Vec<EntityId>> = truth
            .par_iter()
            .enumerate()
            .map(|(row, &entity)| {
                let (prefix, _) = split_name(self.graph.entities().name(entity.0));
                let list = self.by_prefix.get(prefix).unwrap_or(&nobody);
                let find = |&number: &u32| {
                    list.get(number as usize).copied().flatten().ok_or_else(|| {
                        let name = format!("{prefix}{number}");
                        Error::UnknownCandidate { path: array.path.clone(), row, name }
                    })
                };
                array.values[row * array.width..][..array.width].iter().map(find).collect()
            })
            .collect::<Result<_, Error>>()?;
        Ok(Rows { width: array.width, entities: rows.concat() })
    }
}

/// A name as all up to its last slash, and the rest.
fn split_name(name: &str) -> (&str, &str) {
    name.split_at(name.rfind('/').map_or(0, |slash| slash + 1))
}

#[cfg(test)]
mod tests {
    use npyz::WriterBuilder;

    use super::*;
    use crate::{LoadOptions, load};

    const TEST: &str = "drug/0\tr\tdisease/7\ndrug/2\tr\tdisease/0\n";

    fn array<T: npyz::AutoSerialize>(shape: &[u64], values: &[T]) -> Vec<u8> {
        let mut bytes = vec![];
        let mut writer = npyz::WriteOptions::new()
            .default_dtype()
            .shape(shape)
            .writer(&mut bytes)
            .begin_nd()
            .unwrap();
        writer.extend(values).unwrap();
        writer.finish().unwrap();
        bytes
    }

    /// Loads a folder with these arrays for test.
    fn check(test: &str, subjects: &[u8], objects: &[u8]) -> Result<Vec<Vec<String>>, String> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
        write("train.tsv", b"drug/0\tr\tdisease/0\ndrug/1\tr\tdisease/7\ndrug/2\tr\tdisease/7\n");
        write("test.tsv", test.as_bytes());
        write("test_negative_subjects.npy", subjects);
        write("test_negative_objects.npy", objects);
        let graph = load(folder.path(), &LoadOptions::default()).unwrap().graph;
        assert_eq!(load_candidates(folder.path(), &graph, Split::Valid).unwrap(), None);
        let candidates = load_candidates(folder.path(), &graph, Split::Test).map_err(|error| {
            error.to_string().replace(&format!("{}/", folder.path().display()), "")
        })?;
        let Candidates { subjects, objects } = candidates.unwrap();
        let names = |rows: &Rows| -> Vec<String> {
            let name = |id: &EntityId| graph.entities().name(id.0);
            rows.entities
                .chunks(rows.width)
                .map(|row| row.iter().map(name).collect::<Vec<_>>().join(" "))
                .collect()
        };
        Ok(vec![names(&subjects), names(&objects)])
    }

    #[test]
    fn numbers_stand_for_entities_of_the_same_type() {
        let subjects = array::<i64>(&[2, 2], &[1, 2, 0, 0]);
        let objects = array::<u16>(&[2, 1], &[0, 7]);
        let expected = [vec!["drug/1 drug/2", "drug/0 drug/0"], vec!["disease/0", "disease/7"]];
        assert_eq!(check(TEST, &subjects, &objects).unwrap(), expected);
    }

    #[test]
    fn arrays_that_do_not_fit_are_errors() {
        let good = array::<i64>(&[2, 1], &[1, 1]);
        let refused = |bytes: &[u8]| check(TEST, bytes, &good).unwrap_err();
        let name = "test_negative_subjects.npy";
        assert_eq!(
            refused(&array::<i64>(&[3, 1], &[1, 1, 1])),
            format!("{name}: expected 2 rows, one for each triple, found 3")
        );
        assert_eq!(
            refused(&array::<i64>(&[2], &[1, 1])),
            format!("{name}: expected an array of two dimensions, found the shape [2]")
        );
        assert_eq!(
            refused(&array::<f64>(&[2, 1], &[1.0, 1.0])),
            format!("{name}: expected an array of whole numbers, found '<f8'")
        );
        assert_eq!(
            refused(&array::<i64>(&[2, 1], &[1, -1])),
            format!("{name}: expected non-negative whole numbers below 2^32, found others ('<i8')")
        );
        assert_eq!(
            refused(&array::<i64>(&[2, 1], &[1, 9])),
            format!("{name}: row 1: expected the number of an entity, but there is no `drug/9`")
        );
        assert_eq!(
            refused(&good[..good.len() - 1]),
            format!("{name}: expected 2 × 1 numbers of 8 bytes, found 15 bytes")
        );
        let no_array = refused(b"subjects");
        assert!(
            no_array
                .starts_with(&format!("{name}: expected an array in numpy's .npy format, found "))
        );
    }

    #[test]
    fn rows_cannot_be_matched_once_repeated_triples_are_dropped() {
        let rows = array::<i64>(&[3, 1], &[1, 1, 1]);
        assert_eq!(
            check(&format!("{TEST}drug/0\tr\tdisease/7\n"), &rows, &rows).unwrap_err(),
            "test_negative_subjects.npy: expected candidates for distinct triples in test, found 1 \
             repeated ones, so that rows do not match triples"
        );
    }
}
