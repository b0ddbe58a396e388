//! Settings as options: which ones does the user want?
//!
//! Every setting of the engine is an option; names, meanings and defaults come from its table.

use std::fs;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use fullrank_engine::config::all_settings;
use fullrank_engine::{Error, RawConfig};

/// A config file and single settings over it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SettingsArguments {
    config: Option<PathBuf>,
    given: Vec<(&'static str, String)>,
}

impl SettingsArguments {
    /// Whether nothing is given.
    pub(crate) fn is_empty(&self) -> bool {
        self.config.is_none() && self.given.is_empty()
    }

    /// The settings as given, not yet checked.
    pub(crate) fn raw(&self) -> anyhow::Result<RawConfig> {
        let mut raw = RawConfig::default();
        if let Some(path) = &self.config {
            let text = fs::read_to_string(path)
                .map_err(|source| Error::Read { path: path.clone(), source })?;
            raw.add_file(path, &text)?;
        }
        for (name, value) in &self.given {
            raw.add(name, &format!("--{}", option(name)), value);
        }
        Ok(raw)
    }
}

fn option(name: &str) -> String {
    name.replace('_', "-")
}

impl Args for SettingsArguments {
    fn augment_args(mut command: Command) -> Command {
        command = command.arg(
            Arg::new("config")
                .long("config")
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .value_parser(clap::value_parser!(PathBuf))
                .help("Read settings from a TOML file; options go over it"),
        );
        for setting in all_settings() {
            let meaning = setting.meaning.trim().replace("\n ", " ").replace('\n', " ");
            let meaning = meaning.trim_end_matches('.');
            let (expected, default) = ((setting.expected)(), (setting.default)());
            // `train` looks at the graph before it takes the engine's default.
            let default = match setting.name {
                "output" => "what the graph's bounds advise".to_owned(),
                "batch" => format!("{default}, or fewer for 100 updates an epoch"),
                _ => default,
            };
            let mut argument = Arg::new(setting.name)
                .long(option(setting.name))
                .value_name("VALUE")
                .allow_negative_numbers(true)
                .help_heading("Settings")
                .help(format!("{meaning} [{expected}; default: {default}]"));
            if setting.is_switch {
                // `--exact`, or `--exact=false` over a config file that has it.
                argument =
                    argument.num_args(0..=1).require_equals(true).default_missing_value("true");
            }
            command = command.arg(argument);
        }
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SettingsArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = all_settings().iter().filter_map(|setting| {
            let value = matches.get_one::<String>(setting.name)?;
            Some((setting.name, value.clone()))
        });
        Ok(Self { config: matches.get_one::<PathBuf>("config").cloned(), given: given.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
