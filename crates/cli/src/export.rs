//! Writes embeddings and names for other programs.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum, ValueHint};
use fullrank_engine::{Table, TableRows};
use fullrank_graph::Graph;
use serde::Serialize;

use crate::open::open_run;
use crate::output::{count, escaped_tsv, show, show_json};

/// Write embeddings and names for other programs
///
/// A folder with one file per table of the model, in the formats asked for, and entities.tsv and
/// relations.tsv with a name a line, in the order of the rows. Inverse relations have rows after
/// all relations; their names end in ⁻¹.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank export RUN --out vectors
  fullrank export RUN --format npy,tsv --out vectors

In TSV files a tab, line end or backslash in a name is written \\t, \\n or \\\\. Each line of a table
is a name and its numbers. safetensors holds all tables in one file, model.safetensors.")]
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

    /// Replace files that are there
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

#[derive(Serialize)]
struct Written {
    file: PathBuf,
    shape: Vec<usize>,
}

pub(crate) fn run(arguments: &ExportArguments) -> anyhow::Result<()> {
    let run = open_run(&arguments.run)?;
    let out = &arguments.out;
    let is_taken = out.read_dir().is_ok_and(|mut entries| entries.next().is_some());
    if is_taken && !arguments.force {
        bail!(
            "{}: there is something here already\n\nReplace it by --force, or choose another \
             folder by --out.",
            out.display()
        );
    }
    let tables = run.tables();
    let files = files(&run.graph, &tables, &arguments.format);
    let fail = || format!("{} cannot be written", out.display());
    fs::create_dir_all(out).with_context(fail)?;
    let mut written = Vec::new();
    for File { name, shape, content } in files {
        let file = out.join(name);
        crate::output::write_file(&file, arguments.force, &content)?;
        written.push(Written { file, shape });
    }
    if arguments.json {
        return show_json(&written);
    }
    let mut text = String::new();
    for Written { file, shape } in &written {
        let shape: Vec<String> = shape.iter().map(|size| count(*size)).collect();
        let _ = writeln!(text, "{}  {}", file.display(), shape.join(" × "));
    }
    show(&text)
}

/// A file to be written.
struct File {
    name: String,
    shape: Vec<usize>,
    content: Vec<u8>,
}

fn files(graph: &Graph, tables: &[Table], formats: &[Format]) -> Vec<File> {
    let (entities, relations) = (entity_names(graph), relation_names(graph));
    let list = |name: &str, names: &[String]| File {
        name: name.to_owned(),
        shape: vec![names.len()],
        content: names.iter().map(|name| name.clone() + "\n").collect::<String>().into_bytes(),
    };
    let mut files = vec![list("entities.tsv", &entities), list("relations.tsv", &relations)];
    if formats.contains(&Format::Safetensors) {
        files.push(File {
            name: "model.safetensors".to_owned(),
            shape: vec![tables.len()],
            content: fullrank_engine::to_safetensors(tables),
        });
    }
    for table in tables {
        let file = |ending: &str, content| File {
            name: format!("{}.{ending}", table.name),
            shape: table.shape.clone(),
            content,
        };
        if formats.contains(&Format::Npy) {
            files.push(file("npy", npy(table)));
        }
        let names = match table.rows {
            TableRows::Entities => &entities,
            TableRows::Relations => &relations,
            TableRows::Other => continue,
        };
        if formats.contains(&Format::Tsv) {
            files.push(file("tsv", tsv(table, names)));
        }
    }
    files
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
