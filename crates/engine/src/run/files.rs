//! Files of a run: how does a file reach the disk whole or not at all, and how is it known to be the same later?

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use burn::tensor::{AllocationProperty, DType, Tensor, TensorData};
use bytes::Bytes;
use memmap2::Mmap;
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
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

    fn dtype(&self) -> Dtype {
        match self.values {
            Values::Floats(_) => Dtype::F32,
            Values::Ids(_) => Dtype::U32,
        }
    }
}

/// Writes a file beside its target, syncs it, and moves it there.
///
/// Whatever happens, a reader finds the old file or the new one; a full disk costs nothing but
/// the unfinished one, which is removed.
pub(super) fn write_atomically<T>(
    path: &Path,
    write: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, Error> {
    let mut unfinished = path.to_owned().into_os_string();
    unfinished.push(format!(".{UNFINISHED}"));
    let unfinished = PathBuf::from(unfinished);
    let written = write(&unfinished).and_then(|written| {
        File::options().append(true).open(&unfinished)?.sync_all()?;
        fs::rename(&unfinished, path)?;
        sync_folder(path)?;
        Ok(written)
    });
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
    let text = json_text(value);
    write_atomically(path, |path| fs::write(path, text))
}

/// What [`write_json`] writes.
pub(super) fn json_text(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("our own types have string keys");
    text.push('\n');
    text
}

pub(super) fn read_json<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Error> {
    let text = read(path)?;
    serde_json::from_slice(&text)
        .map_err(|source| Error::Damaged { path: path.into(), what: source.to_string() })
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read { path: path.into(), source })
}

/// Writes tensors in the safetensors format, and tells what was written.
///
/// By our own hand, for the crate's writer makes a temporary file of its own beside ours, which a
/// kill would leave behind.
pub(super) fn write_tensors(
    path: &Path,
    tensors: &BTreeMap<String, Stored>,
) -> Result<TensorFile, Error> {
    let mut end = 0;
    let header: BTreeMap<&String, TensorInfo> = tensors
        .iter()
        .map(|(name, tensor)| {
            let start = end;
            end += tensor.shape.iter().product::<usize>() * 4;
            let (dtype, shape) = (tensor.dtype(), tensor.shape.clone());
            (name, TensorInfo { dtype, shape, data_offsets: (start, end) })
        })
        .collect();
    let mut header = serde_json::to_vec(&header).expect("names are strings");
    // The format wants data to start at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(8), b' ');

    let hashes = write_atomically(path, |path| {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(&header)?;
        let mut hashes = BTreeMap::new();
        for (name, tensor) in tensors {
            let bytes = tensor.bytes();
            file.write_all(&bytes)?;
            hashes.insert(name.clone(), sha256(&bytes));
        }
        file.flush()?;
        Ok(hashes)
    })?;
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(TensorFile { file, tensors: hashes })
}

/// A file of tensors, of which each is checked when it is read, one at a time.
pub(super) struct TensorReader {
    path: PathBuf,
    content: Content,
    infos: Metadata,
    data_start: u64,
    hashes: BTreeMap<String, String>,
    to_check: Hashes,
}

/// Whether hashes were found right before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hashes {
    Check,
    Known,
}

/// Where the bytes of a file are.
enum Content {
    /// On disk; a tensor is read into memory of its own.
    File(File),
    /// In the system's cache of the file; a tensor is a view of it.
    Map(Bytes),
}

impl TensorReader {
    pub(super) fn open(folder: &Path, expected: &TensorFile) -> Result<Self, Error> {
        let path = folder.join(&expected.file);
        let mut file = open(&path)?;
        let (infos, data_start) = read_header(&mut file, &path)?;
        let hashes = expected.tensors.clone();
        Ok(Self {
            path,
            content: Content::File(file),
            infos,
            data_start,
            hashes,
            to_check: Hashes::Check,
        })
    }

    /// Maps a file, whose hashes are not checked again if they were before.
    ///
    /// For a model that is only read: opening it takes no time, and its memory is shared.
    #[expect(unsafe_code, reason = "a file can only be mapped so")]
    pub(super) fn map(
        folder: &Path,
        expected: &TensorFile,
        to_check: Hashes,
    ) -> Result<Self, Error> {
        let path = folder.join(&expected.file);
        let mut file = open(&path)?;
        let (infos, data_start) = read_header(&mut file, &path)?;
        // SAFETY: whoever changes the file in place breaks this; we never do, but write another
        // one and rename it, after which the map still shows the old one.
        let map = unsafe { Mmap::map(&file) };
        let map = map.map_err(|source| Error::Read { path: path.clone(), source })?;
        let content = Content::Map(Bytes::from_owner(map));
        Ok(Self { path, content, infos, data_start, hashes: expected.tensors.clone(), to_check })
    }

    /// Names of all tensors that should be there.
    pub(super) fn names(&self) -> Vec<String> {
        self.hashes.keys().cloned().collect()
    }

    pub(super) fn floats(&mut self, name: &str) -> Result<(Vec<usize>, Vec<f32>), Error> {
        let (shape, bytes) = self.bytes(name, Dtype::F32)?;
        let (words, _) = bytes.as_chunks::<4>();
        Ok((shape, words.iter().map(|word| f32::from_le_bytes(*word)).collect()))
    }

    /// A tensor's shape and numbers, without a copy if the file is mapped.
    pub(super) fn data(&mut self, name: &str) -> Result<TensorData, Error> {
        if let Content::File(_) = self.content {
            let (shape, floats) = self.floats(name)?;
            return Ok(TensorData::new(floats, shape));
        }
        let (shape, bytes) = self.bytes(name, Dtype::F32)?;
        let bytes = burn::tensor::Bytes::from_shared(bytes, AllocationProperty::File);
        Ok(TensorData::from_bytes(bytes, shape, DType::F32))
    }

    pub(super) fn ids(&mut self, name: &str) -> Result<Vec<u32>, Error> {
        let (_, bytes) = self.bytes(name, Dtype::U32)?;
        let (words, _) = bytes.as_chunks::<4>();
        Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    /// Reads every tensor and forgets it: whether the file is what was written.
    pub(super) fn check(mut self) -> Result<(), Error> {
        for name in self.names() {
            self.floats(&name)?;
        }
        Ok(())
    }

    pub(super) fn damaged(&self, what: String) -> Error {
        Error::Damaged { path: self.path.clone(), what }
    }

    fn bytes(&mut self, name: &str, dtype: Dtype) -> Result<(Vec<usize>, Bytes), Error> {
        let (Some(info), Some(hash)) = (self.infos.info(name), self.hashes.get(name)) else {
            return Err(self.damaged(format!("tensor `{name}` is missing")));
        };
        let (start, end) = info.data_offsets;
        let bytes = match &mut self.content {
            Content::Map(map) => {
                // What lies beyond the end of the file is missing, as it is when it is read.
                let place = |offset: usize| (self.data_start as usize + offset).min(map.len());
                map.slice(place(start)..place(end))
            }
            Content::File(file) => {
                let mut bytes = Vec::new();
                file.seek(SeekFrom::Start(self.data_start + start as u64))
                    .and_then(|_| file.take((end - start) as u64).read_to_end(&mut bytes))
                    .map_err(|source| Error::Read { path: self.path.clone(), source })?;
                bytes.into()
            }
        };
        let is_whole = bytes.len() == info.shape.iter().product::<usize>() * size_of::<f32>();
        if info.dtype != dtype
            || !is_whole
            || (self.to_check == Hashes::Check && sha256(&bytes) != *hash)
        {
            return Err(self.damaged(format!("tensor `{name}` is not what was written")));
        }
        Ok((info.shape.clone(), bytes))
    }
}

fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|source| Error::Read { path: path.into(), source })
}

/// What tensors a file has, and at which byte their data start.
fn read_header(file: &mut File, path: &Path) -> Result<(Metadata, u64), Error> {
    let mut read = || -> io::Result<(Metadata, u64)> {
        let mut len = [0; 8];
        file.read_exact(&mut len)?;
        let len = u64::from_le_bytes(len);
        let mut header = Vec::new();
        Read::by_ref(file).take(len).read_to_end(&mut header)?;
        Ok((serde_json::from_slice(&header)?, 8 + len))
    };
    read().map_err(|error| Error::Damaged { path: path.into(), what: error.to_string() })
}

pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes).as_slice())
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
