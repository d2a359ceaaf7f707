//! `pario down`: take a partition down.

use clap::Args as ClapArgs;
use pario::core::ServerIndex;
use pario::partition::{Registry, StoreKind, private};
use pario::start::{Down, DownMode};
use pario_posix::Unmount;
use pario_posix::fuse::unmount;
use serde_json::json;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::human;
use crate::mount_clients;
use crate::mount_process::{END_LIMIT, wait_gone};

/// Arguments of `pario down`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario down scratch              flush and stop its servers; `pario up scratch` brings it back
  pario down scratch --destroy    remove the data, too: nothing is left
  pario down --all                every partition of the registry
  pario down scratch --umount     end its mounts on this machine first
A server that does not answer within 5 s gets SIGTERM, on which it writes what it holds and ends;
15 s without work later it is killed, which is told, and the exit code is 3.")]
pub(crate) struct Args {
    /// The partitions
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// Remove the data and forget the partition
    #[arg(long)]
    destroy: bool,
    /// Every partition of the registry
    #[arg(long)]
    all: bool,
    /// Unmount it on this machine first
    #[arg(long)]
    umount: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let registry = context.registry()?;
    let names = match args.all {
        true => registry.list()?.into_iter().map(|entry| entry.name).collect(),
        false => args
            .names
            .iter()
            .map(|name| context.partition_name(Some(name)))
            .collect::<CliResult<Vec<String>>>()?,
    };
    // All names are checked before the first partition is taken down.
    for name in &names {
        registry.find(name)?;
    }
    let how = if args.destroy { DownMode::Destroy } else { DownMode::Keep };
    let (mut failures, mut facts) = (Vec::new(), Vec::new());
    for name in &names {
        if let Err(error) = end_mounts(&registry, name, args.umount) {
            failures.push(error);
            continue;
        }
        let in_memory = registry.get(name)?.is_some_and(|entry| entry.settings.store == StoreKind::Memory);
        match pario::start::down(&registry, name, how) {
            Ok(down) => {
                facts.push(facts_of(&down));
                if !context.speech.json {
                    context.report(line(&down, args.destroy || in_memory, in_memory))?;
                }
                down.terminated.iter().for_each(|(_, told)| context.warn(&format!("{}: {told}", down.name)));
                failures.extend(left_behind(&down));
                if how == DownMode::Keep {
                    failures.extend(killed(&down));
                    failures.extend(unwritten(&down));
                }
                private::remove_if_empty(&registry);
            }
            Err(error) => failures.push(error.into()),
        }
    }
    if context.speech.json {
        context.json(&facts)?;
    }
    end_of_many(context, failures, facts.len())
}

/// A mounted partition stays up, unless its mounts can be ended.
fn end_mounts(registry: &Registry, name: &str, umount: bool) -> CliResult {
    for mount in mount_clients::of_partition(registry, name) {
        let dir = mount.dir.display();
        if !mount.is_here {
            let cure = format!("`pario umount {dir}` there ends it");
            return Err(CliError::with_cure(format!("{name}: is mounted in {mount}"), cure));
        }
        if !umount {
            let cure = format!("`pario umount {dir}` ends it, or `pario down {name} --umount`");
            return Err(CliError::with_cure(format!("{name}: is mounted in {mount}"), cure));
        }
        unmount(&mount.dir, Unmount::Now).map_err(|error| CliError::failed(format!("{name}: {error}")))?;
        wait_gone(u32::try_from(mount.pid).unwrap_or(0), END_LIMIT);
    }
    Ok(())
}

fn facts_of(down: &Down) -> serde_json::Value {
    json!({
        "name": down.name, "stopped": down.stopped, "terminated": indices(&down.terminated),
        "killed": indices(&down.killed), "gone": down.already_dead, "left": down.left, "failed": down.failed,
    })
}

fn indices(told: &[(ServerIndex, String)]) -> Vec<ServerIndex> {
    told.iter().map(|(server, _)| *server).collect()
}

fn line(down: &Down, destroyed: bool, in_memory: bool) -> String {
    let mut parts = Vec::new();
    if 0 < down.stopped {
        parts.push(format!("{} stopped", human::count(down.stopped, "server")));
    }
    if !down.failed.is_empty() {
        parts.push(format!("{} stopped with a fault", human::count(down.failed.len(), "server")));
    }
    if !down.terminated.is_empty() {
        parts.push(format!("{} ended by SIGTERM", human::count(down.terminated.len(), "server")));
    }
    if !down.killed.is_empty() {
        parts.push(format!("{} killed because of no answer", human::count(down.killed.len(), "server")));
    }
    if !down.already_dead.is_empty() {
        let lost = if in_memory { " with what it held in memory" } else { "" };
        parts.push(format!("{} gone already{lost}", human::count(down.already_dead.len(), "server")));
    }
    if parts.is_empty() {
        parts.push("no server ran".to_owned());
    }
    parts.push(if destroyed { "data removed" } else { "data kept" }.to_owned());
    format!("{}: {}", down.name, parts.join(", "))
}

/// Servers that ended without writing all data to their stores.
fn unwritten(down: &Down) -> Vec<CliError> {
    let told = |(server, why): &(ServerIndex, String)| {
        CliError::failed(format!(
            "{}: server {server} could not write all its data to its store: {why}",
            down.name
        ))
    };
    down.failed.iter().map(told).collect()
}

/// Servers that were killed: their unwritten data is lost, unless the partition was destroyed.
fn killed(down: &Down) -> Vec<CliError> {
    down.killed.iter().map(|(_, told)| CliError::failed(format!("{}: {told}", down.name))).collect()
}

fn left_behind(down: &Down) -> Option<CliError> {
    let text = || format!("{}: data stays at {}", down.name, down.left.join(", "));
    (!down.left.is_empty()).then(|| CliError::with_cure(text(), "remove it on those machines"))
}
