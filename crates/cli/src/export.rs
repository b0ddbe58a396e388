//! `fullrank export`: writes embeddings and names for other programs.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, ValueHint};
use fullrank_engine::{Existing, Table, TableRows};
use fullrank_graph::Graph;
use serde::{Deserialize, Serialize};

use crate::open::open_run;
use crate::output::{count, escaped_tsv, show, show_json, write_file};

/// Write embeddings and names for other programs
///
/// Makes a folder with the tables of the model, in the formats asked for, and entities.tsv and
/// relations.tsv with a name a line, in the order of the rows. Inverse relations have rows after
/// all relations; their names end in ⁻¹. export.json lists the files.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank export RUN --out vectors
  fullrank export RUN --format npy,tsv --out vectors

In TSV files a tab or line end in a name is written \\t, \\n or \\r. Each line of a table is a name and
its numbers. safetensors holds all tables in one file, model.safetensors.")]
pub(crate) struct ExportArguments {
    /// A run folder
    #[arg(value_hint = ValueHint::DirPath)]
    run: PathBuf,

    /// The folder to make
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    out: PathBuf,

    /// Which files to write
    #[arg(long, value_delimiter = ',', default_value = "safetensors")]
    format: Vec<Format>,

    /// Replace an earlier export
    #[arg(long)]
    force: bool,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// All tables in one file
    Safetensors,
    /// A NumPy array per table
    Npy,
    /// A text file per table of entities or relations, with names
    Tsv,
}

/// A file and its size: that of its table, or how many names or tables it has.
#[derive(Serialize, Deserialize)]
struct Written {
    file: String,
    shape: Vec<usize>,
}

pub(crate) fn run(arguments: &ExportArguments) -> anyhow::Result<()> {
    // First what can fail, so that an earlier export is not lost to a misspelt run.
    let run = open_run(&arguments.run)?;
    make_room(arguments)?;
    let (entities, relations) =
        (entity_names(run.model.graph()), relation_names(run.model.graph()));
    let mut folder = Folder { path: &arguments.out, written: Vec::new() };
    folder.write("entities.tsv", &[entities.len()], list(&entities).as_bytes())?;
    folder.write("relations.tsv", &[relations.len()], list(&relations).as_bytes())?;
    let tables = run.model.tables();
    for table in &tables {
        let names = match table.rows {
            TableRows::Entities => Some(&entities),
            TableRows::Relations => Some(&relations),
            TableRows::Other => None,
        };
        if arguments.format.contains(&Format::Npy) {
            folder.write(&format!("{}.npy", table.name), &table.shape, &npy(table))?;
        }
        if let Some(names) = names
            && arguments.format.contains(&Format::Tsv)
        {
            folder.write(&format!("{}.tsv", table.name), &table.shape, &tsv(table, names))?;
        }
    }
    if arguments.format.contains(&Format::Safetensors) {
        let bytes = fullrank_engine::to_safetensors(&tables);
        folder.write("model.safetensors", &[tables.len()], &bytes)?;
    }
    let list = serde_json::to_string_pretty(&folder.written)?;
    write_file(&arguments.out.join(LIST), Existing::Replace, list.as_bytes())?;
    if arguments.json {
        return show_json(&folder.written);
    }
    let mut text = String::new();
    for Written { file, shape } in &folder.written {
        let shape: Vec<String> = shape.iter().map(|size| count(*size)).collect();
        let _ = writeln!(text, "{}  {}", arguments.out.join(file).display(), shape.join(" × "));
    }
    show(&text)
}

/// What an export wrote, so that the next one can take it away.
const LIST: &str = "export.json";

/// A folder that is empty, or was until an earlier export that is to be replaced.
fn make_room(arguments: &ExportArguments) -> anyhow::Result<()> {
    let out = &arguments.out;
    let fail = || format!("{} cannot be written", out.display());
    fs::create_dir_all(out).with_context(fail)?;
    if fs::read_dir(out).with_context(fail)?.next().is_none() {
        return Ok(());
    }
    let earlier = fs::read(out.join(LIST)).ok();
    let Some(earlier) = earlier.filter(|_| arguments.force) else {
        bail!(
            "{}: there is something here already\n\nReplace an earlier export by --force, or choose \
             another folder by --out.",
            out.display()
        );
    };
    let earlier: Vec<Written> = serde_json::from_slice(&earlier).with_context(fail)?;
    for Written { file, .. } in earlier {
        // Names without a folder: nothing outside of this one.
        if let Some(name) = Path::new(&file).file_name() {
            let _ = fs::remove_file(out.join(name));
        }
    }
    Ok(())
}

/// Where files go, and which went there.
struct Folder<'a> {
    path: &'a Path,
    written: Vec<Written>,
}

impl Folder<'_> {
    fn write(&mut self, name: &str, shape: &[usize], content: &[u8]) -> anyhow::Result<()> {
        write_file(&self.path.join(name), Existing::Keep, content)?;
        self.written.push(Written { file: name.to_owned(), shape: shape.to_vec() });
        Ok(())
    }
}

fn list(names: &[String]) -> String {
    names.iter().map(|name| name.clone() + "\n").collect()
}

fn entity_names(graph: &Graph) -> Vec<String> {
    graph.entities().iter().map(escaped_tsv).collect()
}

fn relation_names(graph: &Graph) -> Vec<String> {
    let names = || graph.relations().iter().map(escaped_tsv);
    names().chain(names().map(|name| name + "⁻¹")).collect()
}

fn tsv(table: &Table, names: &[String]) -> Vec<u8> {
    let width = table.values.len() / names.len();
    let mut text = String::new();
    for (name, row) in names.iter().zip(table.values.chunks(width)) {
        text.push_str(name);
        for value in row {
            let _ = write!(text, "\t{value}");
        }
        text.push('\n');
    }
    text.into_bytes()
}

/// NumPy's format 1.0: a header of 64-byte multiples, then the numbers.
fn npy(table: &Table) -> Vec<u8> {
    const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";
    let shape = match &table.shape[..] {
        // A tuple of one has a comma.
        [only] => format!("{only},"),
        several => several.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    };
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}");
    let length = (MAGIC.len() + 2 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 2;
    header.push_str(&" ".repeat(length - header.len() - 1));
    header.push('\n');
    let mut bytes = MAGIC.to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(table.values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_as_numpy_writes_it() {
        let table = Table {
            name: "x".to_owned(),
            shape: vec![2, 1],
            values: vec![1.0, -0.5],
            rows: TableRows::Other,
        };
        let bytes = npy(&table);
        // numpy.save of the same array, NumPy 2.
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
        assert_eq!(&bytes[..10], b"\x93NUMPY\x01\x00\x76\x00");
        assert_eq!(String::from_utf8_lossy(&bytes[10..128]).trim_end(), header);
        assert_eq!(bytes[127], b'\n');
        assert_eq!(bytes[128..], [0, 0, 128, 63, 0, 0, 0, 191]);
    }
}
