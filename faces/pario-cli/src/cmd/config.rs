//! `pario config`: settings, and where each came from.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use pario::partition::{Key, Origin, Row, default_file};
use serde_json::json;

use super::up::known_name;
use crate::context::Context;
use crate::error::Outcome;
use crate::settings_args::SettingsArgs;
use crate::table::Table;

/// What can be said to `pario config`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario config show scratch.toml     what `pario up scratch.toml` would use, and why
  pario config show scratch          the same for a partition that the registry knows
  pario config default > my.toml     a partition file with every key and its default")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand, Debug)]
enum What {
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
    },
    /// Print a partition file with every key, its default, and a line about it
    Default,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    match &args.what {
        What::Default => context.print(|out| std::io::Write::write_all(out, default_file().as_bytes())),
        What::Show { what, settings, toml } => show(context, what.as_ref(), settings, *toml),
    }
}

fn show(context: &Context, what: Option<&PathBuf>, settings: &SettingsArgs, toml: bool) -> Outcome {
    let registry = context.registry()?;
    let name = what.map(|what| known_name(what, &registry)).transpose()?.flatten();
    // A name that the registry knows is the registry's word, not an option's.
    let known = name.is_some() && settings.name.is_none();
    let settings = match name {
        Some(name) => settings.named(name).settings(None, &registry)?,
        None => settings.settings(what.map(PathBuf::as_path), &registry)?,
    };
    if toml {
        return context.print(|out| std::io::Write::write_all(out, settings.to_toml().as_bytes()));
    }
    let mut rows = settings.explain();
    if let Some(row) = rows.iter_mut().find(|row| known && row.key == Key::Name.info().path) {
        row.origin = Origin::Stored.to_string();
    }
    if context.speech.json {
        let facts = |(&key, row): (&Key, Row)| json!({ "key": row.key, "value": settings.value(key), "origin": row.origin, "kind": row.kind });
        return context.json(&Key::ALL.iter().zip(rows).map(facts).collect::<Vec<_>>());
    }
    let mut table = Table::with_head(&["<key", "<value", "<from", "<kind"]);
    for row in rows {
        table.row(vec![row.key.to_owned(), row.value, row.origin, row.kind]);
    }
    context.print(|out| table.print(out))
}
