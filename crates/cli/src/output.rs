//! Output: tables and JSON on standard output, everything else on standard error.
//!
//! Names come from files that anyone may have written, so nothing is shown with control
//! characters in it: they could move the cursor or change the terminal's title.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, bail};
use clap::CommandFactory;
use clap::error::ErrorKind;
use comfy_table::{Cell, CellAlignment, Row, Table, presets};
use fullrank_engine::Existing;
use fullrank_engine::names::csv_field;
pub(crate) use fullrank_engine::names::printable;
pub(crate) use fullrank_report::numbers::{cell, count, counted, mean_and_deviation, probability};
use serde::Serialize;

/// Prints a result for people.
pub(crate) fn show(text: &str) -> anyhow::Result<()> {
    io::stdout().lock().write_all(text.as_bytes()).context("standard output cannot be written")
}

/// Prints a result for machines.
pub(crate) fn show_json(result: &impl Serialize) -> anyhow::Result<()> {
    let mut text = serde_json::to_string_pretty(result)?;
    text.push('\n');
    show(&text)
}

/// Says something in passing, on standard error.
pub(crate) fn say(text: &str) {
    // There is nobody to tell when standard error is closed.
    let _ = writeln!(io::stderr().lock(), "{}", printable_lines(text));
}

/// Ends the program because of arguments that do not go together.
pub(crate) fn wrong_usage(message: impl std::fmt::Display) -> ! {
    crate::Arguments::command().error(ErrorKind::ValueValidation, message).exit()
}

/// Says why a command failed, with all its reasons in one line, and what to do about it.
pub(crate) fn report(error: &anyhow::Error) {
    say(&format!("error: {error:#}"));
    let hint = match error.downcast_ref::<fullrank_engine::Error>() {
        Some(fullrank_engine::Error::Graph(error)) => graph_hint(error),
        Some(error) => engine_hint(error),
        None => error.downcast_ref().and_then(graph_hint),
    };
    if let Some(hint) = hint {
        say(&format!("\n{hint}"));
    }
}

/// What usually helps when a graph cannot be read.
fn graph_hint(error: &fullrank_graph::Error) -> Option<String> {
    use fullrank_graph::Error;
    Some(match error {
        Error::UnknownFormat { .. } => {
            "Say what is in it with --format tsv, csv, ntriples or turtle.".to_owned()
        }
        Error::Fields { separator, found: 1, .. } => format!(
            "There is no {separator} in this line. --format says what the file holds: tsv, csv, \
             ntriples or turtle."
        ),
        Error::Fields { expected: fullrank_graph::FieldCount::Exactly(3), found: 4.., .. } => {
            "Choose three of several columns with --columns, such as --columns 1,2,3.".to_owned()
        }
        Error::NoTrain { .. } => {
            "A dataset is a folder with train, valid and test files, or a single file, which is \
             then split: name the file itself."
                .to_owned()
        }
        Error::NoColumn { .. } => {
            "Name columns as the first line does, or give their numbers, such as --columns 1,2,3."
                .to_owned()
        }
        Error::SmallTraining { .. } => {
            "Use a larger first share in --ratios, or --split random:SEED.".to_owned()
        }
        _ => return None,
    })
}

/// What usually helps when a model cannot be trained or read.
fn engine_hint(error: &fullrank_engine::Error) -> Option<String> {
    use fullrank_engine::Error;
    let text = match error {
        Error::ConfigSyntax { .. } => "A config file has a line such as `dim = 200` per setting.",
        Error::Config { .. } => "`fullrank train --help` lists every setting.",
        Error::NothingToLearn => "Give the file for training more triples, or another --ratios.",
        Error::Memory { .. } => {
            "A smaller --dim, --batch or --memory-budget needs less; so do fewer --components. A run \
             that is to be resumed keeps its settings: end other programs instead."
        }
        Error::NotFinite { learning_rate, .. } => {
            return Some(format!(
                "Train anew with a lower learning_rate (now {learning_rate:?}), or with clip."
            ));
        }
        Error::BrokenModel => "Its training went wrong: train anew with a lower learning_rate.",
        Error::Exists { is_run: true, .. } => {
            "Go on with it by --resume, replace it by --force, or choose another folder by --out."
        }
        Error::Exists { is_run: false, .. } => "Choose another folder by --out.",
        Error::Locked { .. } => "Wait until it is done, or choose another folder by --out.",
        Error::NotARun { .. } => "A run folder is what `fullrank train DATA --out RUN` makes.",
        Error::NoWeights { .. } => "Train on with `fullrank train DATA --out RUN --resume`.",
        Error::OtherFormat { .. } => "run.json says which version of fullrank made it: use that.",
        Error::OtherConfig { .. } => {
            "Leave these settings out to go on as before, or train anew in another folder by --out."
        }
        Error::OtherDataset { .. } => {
            "Name the data it was trained on, read with the same options, or train anew in another \
             folder by --out."
        }
        Error::OtherGraph { .. } => {
            "Only runs on the same triples, split in the same way, can be compared."
        }
        Error::SameTraining { .. } => "Name every training once; more of a model have other seeds.",
        Error::NoTestTriples { .. } => {
            "Models are compared on test triples: train with a test split."
        }
        Error::OtherCandidates { .. } => {
            "Leave --candidates out to go on with what it was trained with, or train anew in another \
             folder by --out."
        }
        Error::Damaged { .. } => {
            "Take the folder from a copy, or train anew by --force. Nothing was changed."
        }
        Error::Read { .. } => "See that it is there and may be read.",
        Error::Write { .. } => {
            "Make room, or mend what is wrong. What was saved before stands: go on by --resume."
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// An error if there is a file already.
pub(crate) fn check_free(path: &Path) -> anyhow::Result<()> {
    if path.exists() {
        bail!("{}: there is a file already\n\nReplace it by --force.", path.display());
    }
    Ok(())
}

/// An error if a file cannot be made here: before the work, not after.
pub(crate) fn check_target(path: &Path, existing: Existing) -> anyhow::Result<()> {
    if existing == Existing::Keep {
        check_free(path)?;
    }
    if !folder_of(path).is_dir() {
        bail!("{}: there is no such folder", folder_of(path).display());
    }
    Ok(())
}

/// Writes a file beside its target and moves it there, so that no reader meets half of it.
pub(crate) fn write_file(path: &Path, existing: Existing, content: &[u8]) -> anyhow::Result<()> {
    let fail = || format!("{} cannot be written", path.display());
    if existing == Existing::Keep {
        check_free(path)?;
    }
    let mut builder = tempfile::Builder::new();
    builder.suffix(".unfinished");
    // As the user's own files are: temporary ones are for their owner alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder_of(path)).with_context(fail)?;
    file.write_all(content).and_then(|()| file.as_file().sync_all()).with_context(fail)?;
    let moved = match existing {
        Existing::Keep => file.persist_noclobber(path),
        Existing::Replace => file.persist(path),
    };
    moved.map_err(|error| error.error).with_context(fail)?;
    Ok(())
}

/// What `--force` means for what is there already.
pub(crate) fn existing(force: bool) -> Existing {
    if force { Existing::Replace } else { Existing::Keep }
}

/// The folder that a file is in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// Rows as a file of separated fields: CSV with quotes where they are needed, or TSV.
pub(crate) fn delimited(separator: char, rows: &[Vec<String>]) -> String {
    let field = |text: &String| match separator {
        ',' => csv_field(text).into_owned(),
        _ => escaped_tsv(text),
    };
    let separator = separator.to_string();
    let line =
        |row: &Vec<String>| row.iter().map(field).collect::<Vec<_>>().join(&separator) + "\n";
    rows.iter().map(line).collect()
}

/// A name in a tab-separated file, which has no quotes: what would break a line is spelt out.
pub(crate) fn escaped_tsv(name: &str) -> String {
    let name = name.replace('\t', "\\t");
    name.replace('\n', "\\n").replace('\r', "\\r")
}

/// A word as a shell takes it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Lines of at most a hundred characters.
pub(crate) fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        if lines[last].chars().count() + word.chars().count() >= 100 {
            lines.push(word.to_owned());
        } else {
            if !lines[last].is_empty() {
                lines[last].push(' ');
            }
            lines[last].push_str(word);
        }
    }
    lines.join("\n")
}

/// Several lines, each printable.
fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// A table without lines: text to the left, numbers to the right.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(cells(header.iter().map(|name| (*name).to_owned())));
    table.add_rows(rows.into_iter().map(cells));
    for (column, name) in table.column_iter_mut().zip(header) {
        // A column without a name holds text, one with a name numbers.
        let side = if name.is_empty() { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(side);
    }
    let mut text = String::new();
    for line in table.to_string().lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn cells(texts: impl IntoIterator<Item = String>) -> Row {
    texts.into_iter().map(|text| Cell::new(printable(&text))).collect::<Vec<Cell>>().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_quoted_or_escaped() {
        let rows = [vec!["a,b".to_owned(), "say \"x\"".to_owned(), "tab\there\\".to_owned()]];
        assert_eq!(delimited(',', &rows), "\"a,b\",\"say \"\"x\"\"\",tab\there\\\n");
        assert_eq!(delimited('\t', &rows), "a,b\tsay \"x\"\ttab\\there\\\n");
    }
}
