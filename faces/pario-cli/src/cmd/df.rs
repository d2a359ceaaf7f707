//! `pario df`: free and used space of partitions.

use clap::{ArgAction, Args as ClapArgs};
use pario::core::{ServerIndex, Size, Space};
use pario::health::questions;
use pario::partition::PartitionState;
use serde_json::{Value, json};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::table::Table;

/// Arguments of `pario df`.
#[derive(ClapArgs, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  pario df                 every partition that runs
  pario df -v scratch      each of its servers
`data` is what the partition's own files take, holes left out; size, used and free are those of the file
systems below it. Servers that share a file system share its room: it counts once in the partition's line.")]
pub(crate) struct Args {
    /// Partitions; without any, all that run
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Sizes with units, as they are anyway
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Sizes in bytes
    #[arg(short, long, conflicts_with = "human")]
    bytes: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let names = match args.names.is_empty() {
        true => running(context)?,
        false => args
            .names
            .iter()
            .map(|name| context.partition_name(Some(name)))
            .collect::<CliResult<Vec<String>>>()?,
    };
    let mut table = Table::with_head(&["<partition", "data", "size", "used", "free", "use"]);
    let (mut facts, mut failures) = (Vec::new(), Vec::new());
    for name in &names {
        match PartitionSpace::of(context, name) {
            Ok(room) => facts.push(room.add(context, args, &mut table)),
            Err(error) => failures.push(error),
        }
    }
    if context.speech.json {
        context.json(&facts)?;
    } else if !facts.is_empty() {
        context.print(|out| table.print(out))?;
    }
    end_of_many(context, failures, facts.len())
}

fn running(context: &Context) -> CliResult<Vec<String>> {
    let entries = context.registry()?.list()?;
    Ok(entries
        .into_iter()
        .filter(|entry| entry.state == PartitionState::Running)
        .map(|entry| entry.name)
        .collect())
}

/// Space of one partition.
struct PartitionSpace {
    name: String,
    total: Space,
    servers: Vec<(ServerIndex, Space, u64)>,
}

impl PartitionSpace {
    fn of(context: &Context, name: &str) -> CliResult<PartitionSpace> {
        let partition = context.mount(name)?;
        let mount = partition.mount_handle();
        let ask = |server| {
            let space = mount.server_space(server).map_err(|error| CliError::remote(name, &error))?;
            let stored = questions::stored_bytes(&partition, server)
                .map_err(|error| CliError::remote(name, &error))?;
            Ok((server, space, stored))
        };
        let servers = questions::servers(&partition).map(ask).collect::<CliResult<Vec<_>>>()?;
        Ok(PartitionSpace {
            name: name.to_owned(),
            total: Space::sum(servers.iter().map(|(_, space, _)| *space)),
            servers,
        })
    }

    /// Adds rows to the table; returns the same as JSON.
    fn add(&self, context: &Context, args: &Args, table: &mut Table) -> Value {
        let mut row = |title: String, space: Space, stored: u64| {
            let used = space.total_bytes.saturating_sub(space.free_bytes);
            let size = |bytes: u64| if args.bytes { bytes.to_string() } else { Size(bytes).rounded() };
            let share = (u128::from(used) * 100).checked_div(u128::from(space.total_bytes)).unwrap_or(0);
            table.row(vec![
                title,
                size(stored),
                size(space.total_bytes),
                size(used),
                size(space.free_bytes),
                format!("{share}%"),
            ]);
        };
        let stored = self.servers.iter().map(|(_, _, stored)| stored).sum();
        row(self.name.clone(), self.total, stored);
        if 0 < context.speech.verbose {
            let servers = self.servers.iter();
            servers.for_each(|(server, space, stored)| row(format!("  server {server}"), *space, *stored));
        }
        let server = |(server, space, stored): &(ServerIndex, Space, u64)| json!({ "server": server, "space": space, "stored_bytes": stored });
        json!({
            "name": self.name, "space": self.total, "stored_bytes": stored, "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
        })
    }
}
