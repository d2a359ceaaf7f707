//! `pario up`: bring a partition up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args as ClapArgs;
use pario::core::{Size, Space};
use pario::partition::{Registry, Settings, launch};
use pario::start::{Up, UpOptions};
use serde_json::json;

use crate::context::Context;
use crate::error::{CliError, CliResult, EXIT_PARTLY};
use crate::human;
use crate::settings_args::SettingsArgs;

/// Arguments of `pario up`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario up --name scratch --servers 4 --dir /data   in /data/scratch/server-0 … server-3
  pario up scratch.toml                             as the partition file says
  pario up scratch                                  again, after `pario down` or a crash; only what died is started
  pario up --name fast --servers 2 --store memory --memory 1GiB
  pario up --name wide --servers node1:/data,node2:/data")]
pub(crate) struct Args {
    /// A partition file, or the name of a partition that the registry knows
    #[arg(value_name = "FILE|NAME")]
    what: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Give up if servers have not answered after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = launch::START_LIMIT.as_secs())]
    timeout: u64,
    /// Start although names, or a storage directory, are lost: the missing ones start empty
    #[arg(long)]
    accept_loss: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let registry = context.registry()?;
    let settings = settings(args, &registry)?;
    let how = UpOptions { accept_loss: args.accept_loss, ..UpOptions::default() };
    let up = pario::start::up_as(&registry, &settings, &how, Duration::from_secs(args.timeout))?;
    for untold in &up.not_notified {
        context.complain(&CliError::failed(format!("{}: {untold}", up.entry.name)));
    }
    if up.not_notified.is_empty() {
        return report(context, &up, pario::orders::space(&up.entry)?);
    }
    // A server may be unable to reach its peers; that is already reported.
    if let Ok(space) = pario::orders::space(&up.entry) {
        report(context, &up, space)?;
    }
    Err(CliError::Reported { code: EXIT_PARTLY })
}

fn report(context: &Context, up: &Up, space: Space) -> CliResult {
    if context.speech.json {
        return context.json(&json!({
            "name": up.entry.name,
            "servers": up.entry.servers.len(),
            "fresh": up.fresh,
            "restarted": up.restarted,
            "seconds": up.took.as_secs_f64(),
            "space": space,
            "notes": up.notes,
            "untold": up.not_notified,
        }));
    }
    for note in &up.notes {
        context.warn(&format!("{}: {note}", up.entry.name));
    }
    context.report(line(up, space.free_bytes))?;
    if 0 < context.speech.verbose {
        for server in &up.entry.servers {
            context.report(format!(
                "  server {} (process {}): {}",
                server.index,
                server.pid,
                server.dir.display()
            ))?;
        }
    }
    Ok(())
}

/// `scratch: 4 servers ready in 0.12 s, 312 GiB free`, or `scratch: 1 of 4 servers restarted in …`.
fn line(up: &Up, free_bytes: u64) -> String {
    if !up.restarted.is_empty() {
        return format!(
            "{}: {} of {} restarted in {}, {} free",
            up.entry.name,
            up.restarted.len(),
            human::count(up.entry.servers.len(), "server"),
            human::duration(up.took),
            Size(free_bytes).rounded()
        );
    }
    format!(
        "{}: {} ready in {}, {} free",
        up.entry.name,
        human::count(up.entry.servers.len(), "server"),
        human::duration(up.took),
        Size(free_bytes).rounded()
    )
}

fn settings(args: &Args, registry: &Registry) -> CliResult<Settings> {
    let Some(what) = &args.what else { return args.settings.settings(None, registry) };
    let Some(name) = known_name(what, registry)? else {
        return args.settings.settings(Some(what), registry);
    };
    if let Some(other) = args.settings.name.as_ref().filter(|other| **other != name) {
        return Err(CliError::usage(format!("two names were given, '{name}' and '{other}'")));
    }
    args.settings.named(name).settings(None, registry)
}

/// An argument that is the name of a known partition, and not a file.
pub(super) fn known_name(what: &Path, registry: &Registry) -> CliResult<Option<String>> {
    let Some(word) = what.to_str().filter(|word| !word.contains('/') && !what.is_file()) else {
        return Ok(None);
    };
    if registry.get(word)?.is_some() {
        return Ok(Some(word.to_owned()));
    }
    if Path::new(word).extension().is_none() && !what.exists() {
        // Not a file either: the registry's error lists the partitions.
        registry.find(word)?;
    }
    Ok(None)
}
