//! What a shell and `man` need to know of the program.

use std::io;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory, ValueHint};
use clap_complete::Shell;

use crate::output::show;

/// Print completions for a shell
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank completions bash > ~/.local/share/bash-completion/completions/fullrank
  fullrank completions zsh > ~/.zfunc/_fullrank
  fullrank completions fish > ~/.config/fish/completions/fullrank.fish")]
pub(crate) struct CompletionsArguments {
    /// Which shell
    shell: Shell,
}

/// Write man pages, one per command
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fullrank man --out ~/.local/share/man/man1")]
pub(crate) struct ManArguments {
    /// The folder for them
    #[arg(long, value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    out: PathBuf,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let mut command = crate::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "fullrank", &mut text);
    show(&String::from_utf8_lossy(&text))
}

pub(crate) fn man(arguments: &ManArguments) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        std::fs::create_dir_all(&arguments.out)?;
        clap_mangen::generate_to(crate::Arguments::command(), &arguments.out)
    };
    write().with_context(|| format!("{} cannot be written", arguments.out.display()))
}
