//! How does a file reach the disk whole or not at all, and how is it known to be the same later?

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use burn::tensor::Tensor;
use safetensors::tensor::{Dtype, View};
use safetensors::{SafeTensorError, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;

/// What an unfinished file is called besides its own name.
pub(super) const UNFINISHED: &str = "unfinished";

/// A file of tensors and what is in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TensorFile {
    /// Its name in its folder.
    pub(super) file: String,
    /// SHA-256 of every tensor's bytes, by name.
    pub(super) tensors: BTreeMap<String, String>,
}

/// A tensor on its way to disk.
pub(super) struct Stored {
    pub(super) shape: Vec<usize>,
    pub(super) values: Values,
}

/// Its numbers, turned into bytes only when they are written: tables may be large.
pub(super) enum Values {
    Floats(Box<Tensor<1>>),
    Ids(Vec<u32>),
}

impl View for &Stored {
    fn dtype(&self) -> Dtype {
        match self.values {
            Values::Floats(_) => Dtype::F32,
            Values::Ids(_) => Dtype::U32,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.bytes().into()
    }

    fn data_len(&self) -> usize {
        self.shape.iter().product::<usize>() * 4
    }
}

impl Stored {
    fn bytes(&self) -> Vec<u8> {
        match &self.values {
            Values::Floats(tensor) => {
                let data = tensor.to_data();
                let floats = data.as_slice::<f32>().expect("models are f32");
                floats.iter().flat_map(|x| x.to_le_bytes()).collect()
            }
            Values::Ids(ids) => ids.iter().flat_map(|id| id.to_le_bytes()).collect(),
        }
    }
}

/// Tensors as they were read.
pub(super) struct Read {
    pub(super) floats: BTreeMap<String, Vec<f32>>,
    pub(super) ids: BTreeMap<String, Vec<u32>>,
    pub(super) shapes: BTreeMap<String, Vec<usize>>,
}

/// Writes a file beside its target, syncs it, and moves it there.
///
/// Whatever happens, a reader finds the old file or the new one; a full disk costs nothing but
/// the unfinished one, which is removed.
pub(super) fn write_whole(
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<(), Error> {
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(format!(".{UNFINISHED}"));
    let unfinished = PathBuf::from(unfinished);
    let written = write(&unfinished)
        .and_then(|()| File::options().append(true).open(&unfinished)?.sync_all())
        .and_then(|()| fs::rename(&unfinished, path))
        .and_then(|()| sync_folder(path));
    written.map_err(|source| {
        // The first error is the one to tell.
        let _ = fs::remove_file(&unfinished);
        Error::Write { path: path.into(), source }
    })
}

/// Makes a rename in the folder of a file last.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        #[cfg(unix)]
        Some(folder) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let mut text = serde_json::to_string_pretty(value).expect("our own types have string keys");
    text.push('\n');
    write_whole(path, |path| fs::write(path, text))
}

pub(super) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Error> {
    let text = read(path)?;
    serde_json::from_slice(&text)
        .map_err(|source| Error::Damaged { path: path.into(), what: source.to_string() })
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read { path: path.into(), source })
}

/// Writes tensors, and tells what was written.
pub(super) fn write_tensors(
    path: &Path,
    tensors: &BTreeMap<String, Stored>,
) -> Result<TensorFile, Error> {
    write_whole(path, |path| {
        safetensors::serialize_to_file(tensors, None, path).map_err(|error| match error {
            SafeTensorError::IoError(error) => error,
            other => io::Error::other(other),
        })
    })?;
    let hash = |(name, tensor): (&String, &Stored)| (name.clone(), sha256(&tensor.bytes()));
    Ok(TensorFile {
        file: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        tensors: tensors.iter().map(hash).collect(),
    })
}

/// Reads a file of tensors from a folder and checks every one of them.
pub(super) fn read_tensors(folder: &Path, expected: &TensorFile) -> Result<Read, Error> {
    let path = folder.join(&expected.file);
    let damaged = |what: String| Error::Damaged { path: path.clone(), what };
    let bytes = read(&path)?;
    let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(error.to_string()))?;
    let mut read = Read { floats: BTreeMap::new(), ids: BTreeMap::new(), shapes: BTreeMap::new() };
    for (name, hash) in &expected.tensors {
        let tensor =
            file.tensor(name).map_err(|_| damaged(format!("tensor `{name}` is missing")))?;
        if sha256(tensor.data()) != *hash {
            return Err(damaged(format!("tensor `{name}` is not what was written")));
        }
        let words = tensor.data().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
        match tensor.dtype() {
            Dtype::F32 => {
                read.floats.insert(name.clone(), words.map(f32::from_le_bytes).collect());
            }
            Dtype::U32 => {
                read.ids.insert(name.clone(), words.map(u32::from_le_bytes).collect());
            }
            other => return Err(damaged(format!("tensor `{name}` is of type {other:?}"))),
        }
        read.shapes.insert(name.clone(), tensor.shape().to_vec());
    }
    Ok(read)
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
