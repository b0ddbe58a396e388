//! Given negatives: against which wrong answers is a triple to be ranked?
//!
//! Benchmarks such as ogbl-biokg give a list of negatives for each held-out triple, as arrays with
//! a row per line of the split's file.
//! A number in the array is the part of a name behind its last slash: where the true subject is
//! `drug/17`, the number 4 stands for `drug/4`; where names have no slash, 4 stands for `4`.
//! Ranking against them is left to the engine.

use std::fs;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use hashbrown::HashMap;
use rayon::prelude::*;

use crate::{EntityId, Error, Graph, Split};

/// The wrong answers against which the triples of one split are ranked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidates {
    /// For each triple, in their order, the entities to put in the place of its subject.
    pub subjects: Rows,
    /// Those that its object is to be ranked against.
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
    let array = Array::parse(name, bytes, bytes.len() as u64)?;
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

    fn parse(path: &Path, mut input: impl Read, n_bytes: u64) -> Result<Self, Error> {
        let wrong = |expected: &str, found: String| Error::Array {
            path: path.to_owned(),
            expected: expected.to_owned(),
            found,
        };
        let header = Header::read(&mut input)
            .ok_or_else(|| wrong("an array in numpy's .npy format", "something else".to_owned()))?;
        let [n_rows, width] = header.shape[..] else {
            let found = format!("{} of them", header.shape.len());
            return Err(wrong("an array of two dimensions", found));
        };
        if header.fortran_order {
            return Err(wrong("an array in C order", "one in Fortran order".to_owned()));
        }
        let read = Number::from_descr(&header.descr).ok_or_else(|| {
            wrong("an array of whole numbers", format!("`{}`", header.descr.escape_debug()))
        })?;
        // Before anything is allocated: a damaged header may claim any shape.
        let n_values = n_rows.checked_mul(width).and_then(|n| n.checked_mul(read.width as u64));
        let found = n_bytes.saturating_sub(header.n_bytes);
        if n_values != Some(found) {
            let expected = format!("{n_rows} × {width} numbers of {} bytes", read.width);
            return Err(wrong(&expected, format!("{found} bytes")));
        }
        let mut values = Vec::with_capacity((n_rows * width) as usize);
        let mut bytes = [0; 8];
        for _ in 0..n_rows * width {
            input
                .read_exact(&mut bytes[..read.width])
                .map_err(|source| Error::Read { path: path.to_owned(), source })?;
            let value =
                read.value(&bytes[..read.width]).and_then(|value| u32::try_from(value).ok());
            values.push(value.ok_or_else(|| {
                wrong("whole numbers from 0 to 2^32 − 1", "one that is none".to_owned())
            })?);
        }
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

/// What stands before the values of a .npy file.
///
/// See `numpy.lib.format`: a magic string, a version, a length, and a dictionary as Python writes it.
struct Header {
    descr: String,
    fortran_order: bool,
    shape: Vec<u64>,
    /// The length of all that stands before the values.
    n_bytes: u64,
}

impl Header {
    fn read(input: &mut impl Read) -> Option<Self> {
        /// numpy itself refuses longer ones.
        const MOST: u64 = 10_000;
        let mut start = [0; 8];
        input.read_exact(&mut start).ok()?;
        let version = start.strip_prefix(b"\x93NUMPY")?[0];
        // The length has two bytes in the first version, four in later ones.
        let mut length = [0; 4];
        let width = if version == 1 { 2 } else { 4 };
        input.read_exact(&mut length[..width]).ok()?;
        let length = u64::from(u32::from_le_bytes(length));
        if length > MOST {
            return None;
        }
        let mut dictionary = String::new();
        input.take(length).read_to_string(&mut dictionary).ok()?;
        let n_bytes = 8 + width as u64 + length;

        let value = |key: &str| {
            let (_, rest) = dictionary.split_once(&format!("'{key}'"))?;
            Some(rest.trim_start().strip_prefix(':')?.trim_start())
        };
        let (descr, _) = value("descr")?.strip_prefix('\'')?.split_once('\'')?;
        let fortran_order = !value("fortran_order")?.starts_with("False");
        let (shape, _) = value("shape")?.strip_prefix('(')?.split_once(')')?;
        let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
        let shape = sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?;
        Some(Self { descr: descr.to_owned(), fortran_order, shape, n_bytes })
    }
}

/// How a whole number is written.
struct Number {
    width: usize,
    signed: bool,
    big_endian: bool,
}

impl Number {
    /// Reads descriptions such as `<i8`: byte order, kind, bytes.
    fn from_descr(descr: &str) -> Option<Self> {
        let mut characters = descr.chars();
        let big_endian = match characters.next()? {
            '<' | '|' => false,
            '>' => true,
            _ => return None,
        };
        let signed = match characters.next()? {
            'i' => true,
            'u' => false,
            _ => return None,
        };
        let width = characters.as_str().parse().ok()?;
        [1, 2, 4, 8].contains(&width).then_some(Self { width, signed, big_endian })
    }

    /// The number, if it is not negative.
    fn value(&self, bytes: &[u8]) -> Option<u64> {
        let shift = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let value = match self.big_endian {
            true => bytes.iter().fold(0, shift),
            false => bytes.iter().rev().fold(0, shift),
        };
        let sign = 1 << (8 * self.width - 1);
        (!self.signed || value & sign == 0).then_some(value)
    }
}

/// Entities by the number at the end of their name.
struct NumberedEntities<'a> {
    graph: &'a Graph,
    /// For the part of the name before the number, the entity of each number.
    by_prefix: HashMap<&'a str, HashMap<u32, EntityId>>,
}

impl<'a> NumberedEntities<'a> {
    fn of(graph: &'a Graph) -> Self {
        let mut by_prefix: HashMap<&str, HashMap<u32, EntityId>> = HashMap::new();
        for (id, name) in graph.entities().iter().enumerate() {
            let (prefix, number) = split_name(name);
            // Only the usual way of writing a number: `007` is not entity 7.
            if let Ok(place) = number.parse::<u32>()
                && place.to_string() == number
            {
                by_prefix.entry(prefix).or_default().insert(place, EntityId(id as u32));
            }
        }
        Self { graph, by_prefix }
    }

    /// The entities that the numbers of an array stand for, given the true entity of each row.
    fn resolve(&self, array: &Array, truth: &[EntityId]) -> Result<Rows, Error> {
        let nobody = HashMap::new();
        // Collected in order, so that the first fault is the one reported.
        let rows: Vec<Result<Vec<EntityId>, Error>> = truth
            .par_iter()
            .enumerate()
            .map(|(row, &entity)| {
                let (prefix, _) = split_name(self.graph.entities().name(entity.0));
                let list = self.by_prefix.get(prefix).unwrap_or(&nobody);
                let find = |&number: &u32| {
                    list.get(&number).copied().ok_or_else(|| {
                        let name = format!("{prefix}{number}");
                        Error::UnknownCandidate { path: array.path.clone(), row, name }
                    })
                };
                array.values[row * array.width..][..array.width].iter().map(find).collect()
            })
            .collect();
        let mut entities = Vec::with_capacity(array.values.len());
        for row in rows {
            entities.extend(row?);
        }
        Ok(Rows { width: array.width, entities })
    }
}

/// A name as all up to its last slash, and the rest.
fn split_name(name: &str) -> (&str, &str) {
    name.split_at(name.rfind('/').map_or(0, |slash| slash + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LoadOptions, load};

    const TEST: &str = "drug/0\tr\tdisease/7\ndrug/2\tr\tdisease/0\n";

    /// What numpy.save writes.
    fn array(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", length.as_slice(), header.as_bytes(), values].concat()
    }

    fn of_i64(shape: &str, values: &[i64]) -> Vec<u8> {
        array(
            "<i8",
            shape,
            &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>(),
        )
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
        let subjects = of_i64("(2, 2)", &[1, 2, 0, 0]);
        let objects = array(">u2", "(2, 1)", &[0, 0, 0, 7]);
        let expected = [vec!["drug/1 drug/2", "drug/0 drug/0"], vec!["disease/0", "disease/7"]];
        assert_eq!(check(TEST, &subjects, &objects).unwrap(), expected);
    }

    #[test]
    fn arrays_that_do_not_fit_are_errors() {
        let good = of_i64("(2, 1)", &[1, 1]);
        let refused = |bytes: &[u8]| check(TEST, bytes, &good).unwrap_err();
        let name = "test_negative_subjects.npy";
        assert_eq!(
            refused(&of_i64("(3, 1)", &[1, 1, 1])),
            format!("{name}: expected 2 rows, one for each triple, found 3")
        );
        assert_eq!(
            refused(&of_i64("(2,)", &[1, 1])),
            format!("{name}: expected an array of two dimensions, found 1 of them")
        );
        assert_eq!(
            refused(&array("<f8", "(2, 1)", &[0; 16])),
            format!("{name}: expected an array of whole numbers, found `<f8`")
        );
        assert_eq!(
            refused(&of_i64("(2, 1)", &[1, -1])),
            format!("{name}: expected whole numbers from 0 to 2^32 − 1, found one that is none")
        );
        assert_eq!(
            refused(&of_i64("(2, 1)", &[1, 9])),
            format!("{name}: row 1: expected the number of an entity, but there is no `drug/9`")
        );
        assert_eq!(
            refused(&good[..good.len() - 1]),
            format!("{name}: expected 2 × 1 numbers of 8 bytes, found 15 bytes")
        );
        for bytes in [b"subjects".as_slice(), b"", &good[..20], &good[1..]] {
            assert_eq!(
                refused(bytes),
                format!("{name}: expected an array in numpy's .npy format, found something else")
            );
        }
        let fortran = String::from_utf8_lossy(&good[10..]).replace("False", "True ");
        assert_eq!(
            refused(&[&good[..10], fortran.as_bytes()].concat()),
            format!("{name}: expected an array in C order, found one in Fortran order")
        );
    }

    #[test]
    fn rows_cannot_be_matched_once_repeated_triples_are_dropped() {
        let rows = of_i64("(3, 1)", &[1, 1, 1]);
        assert_eq!(
            check(&format!("{TEST}drug/0\tr\tdisease/7\n"), &rows, &rows).unwrap_err(),
            "test_negative_subjects.npy: expected candidates for distinct triples in test, found 1 \
             repeated ones, so that rows do not match triples"
        );
    }
}
