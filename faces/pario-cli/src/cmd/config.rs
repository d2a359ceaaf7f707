//! `pario config`: settings and their origins.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use pario::partition::{Key, SettingOrigin, SettingRow, default_file};
use serde_json::json;

use super::up::known_name;
use crate::context::Context;
use crate::error::CliResult;
use crate::settings_args::SettingsArgs;
use crate::table::Table;

/// Arguments of `pario config`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario config show scratch.toml     what `pario up scratch.toml` would use, and why
  pario config show scratch          the same for a partition that the registry knows
  pario config default > my.toml     a partition file with every key and its default")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: ConfigCommand,
}

#[derive(Subcommand, Debug)]
enum ConfigCommand {
    /// Print the effective settings and where each came from
    Show {
        /// A partition file, or the name of a partition that the registry knows
        #[arg(value_name = "FILE|NAME")]
        what: Option<PathBuf>,
        #[command(flatten)]
        settings: Box<SettingsArgs>,
        /// As a partition file
        #[arg(long)]
        toml: bool,
        /// A line for each key, also beyond 80 characters
        #[arg(long)]
        wide: bool,
    },
    /// Print a partition file with every key, its default, and a line about it
    Default,
}

/// Output format of settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SettingsFormat {
    File,
    Narrow,
    Wide,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    match &args.what {
        ConfigCommand::Default => {
            context.print(|out| std::io::Write::write_all(out, default_file().as_bytes()))
        }
        ConfigCommand::Show { what, settings, toml, wide } => {
            let form = match (toml, wide) {
                (true, _) => SettingsFormat::File,
                (false, true) => SettingsFormat::Wide,
                (false, false) => SettingsFormat::Narrow,
            };
            show(context, what.as_ref(), settings, form)
        }
    }
}

fn show(
    context: &Context,
    what: Option<&PathBuf>,
    settings: &SettingsArgs,
    form: SettingsFormat,
) -> CliResult {
    let registry = context.registry()?;
    let name = what.map(|what| known_name(what, &registry)).transpose()?.flatten();
    // A name found in the registry is shown as stored, not as an option.
    let known = name.is_some() && settings.name.is_none();
    let settings = match name {
        Some(name) => settings.named(name).settings(None, &registry)?,
        None => settings.settings(what.map(PathBuf::as_path), &registry)?,
    };
    if form == SettingsFormat::File {
        return context.print(|out| std::io::Write::write_all(out, settings.to_toml().as_bytes()));
    }
    let mut rows = settings.explain();
    if let Some(row) = rows.iter_mut().find(|row| known && row.key == Key::Name.info().path) {
        row.origin = SettingOrigin::Stored.to_string();
    }
    if context.speech.json {
        let facts = |(&key, row): (&Key, SettingRow)| json!({ "key": row.key, "value": settings.value(key), "origin": row.origin, "kind": row.kind });
        return context.json(&Key::ALL.iter().zip(rows).map(facts).collect::<Vec<_>>());
    }
    let mut table = Table::with_head(&["<key", "<value", "<from", "<kind"]);
    for row in rows {
        table.row(vec![row.key.to_owned(), row.value, row.origin, row.kind]);
    }
    let table = if form == SettingsFormat::Wide { table } else { table.within(80) };
    context.print(|out| table.print(out))
}
