//! Completions and man pages: what do a shell and `man` need to know of the program?

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory, ValueHint};
use clap_complete::Shell;

use crate::output::{existing, show, write_file};

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

    /// Replace pages that are there
    #[arg(long)]
    force: bool,
}

pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<()> {
    let mut text = Vec::new();
    let mut command = crate::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "fullrank", &mut text);
    show(&String::from_utf8_lossy(&text))
}

pub(crate) fn man(arguments: &ManArguments) -> anyhow::Result<()> {
    let fail = || format!("{} cannot be written", arguments.out.display());
    std::fs::create_dir_all(&arguments.out).with_context(fail)?;
    let existing = existing(arguments.force);
    let mut program = crate::Arguments::command();
    program.build();
    let commands = program.get_subcommands().filter(|command| command.get_name() != "help");
    for command in std::iter::once(&program).chain(commands) {
        let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
        let page = clap_mangen::Man::new(command.clone().name(name.clone()));
        let mut text = Vec::new();
        page.render(&mut text).with_context(fail)?;
        write_file(&arguments.out.join(format!("{name}.1")), existing, &text)?;
    }
    Ok(())
}
