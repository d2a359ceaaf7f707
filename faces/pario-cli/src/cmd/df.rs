//! `pario df`: how much room there is.

use clap::{ArgAction, Args as ClapArgs};
use pario::core::{ServerIndex, Size, Space};
use pario::partition::State;
use serde_json::{Value, json};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::table::Table;
use crate::wire;

/// What can be said to `pario df`.
#[derive(ClapArgs, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  pario df                 every partition that runs
  pario df -v scratch      each of its servers
Servers that share a file system share its room: it counts once in the partition's line.")]
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

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let names = match args.names.is_empty() {
        true => running(context)?,
        false => args
            .names
            .iter()
            .map(|name| context.partition_name(Some(name)))
            .collect::<Outcome<Vec<String>>>()?,
    };
    let mut table = Table::with_head(&["<partition", "size", "used", "free", "use"]);
    let (mut facts, mut failures) = (Vec::new(), Vec::new());
    for name in &names {
        match Room::of(context, name) {
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

fn running(context: &Context) -> Outcome<Vec<String>> {
    let entries = context.registry()?.list()?;
    Ok(entries.into_iter().filter(|entry| entry.state == State::Running).map(|entry| entry.name).collect())
}

/// What a partition has.
struct Room {
    name: String,
    total: Space,
    servers: Vec<(ServerIndex, Space)>,
}

impl Room {
    fn of(context: &Context, name: &str) -> Outcome<Room> {
        let partition = context.mount(name)?;
        let mount = partition.mount_handle();
        let ask = |server| {
            Ok((server, mount.server_space(server).map_err(|error| CliError::remote(name, &error))?))
        };
        let servers = wire::servers(mount).map(ask).collect::<Outcome<Vec<_>>>()?;
        Ok(Room {
            name: name.to_owned(),
            total: Space::sum(servers.iter().map(|(_, space)| *space)),
            servers,
        })
    }

    /// Adds rows to the table; returns the same as facts.
    fn add(&self, context: &Context, args: &Args, table: &mut Table) -> Value {
        let mut row = |title: String, space: Space| {
            let used = space.total_bytes.saturating_sub(space.free_bytes);
            let size = |bytes: u64| if args.bytes { bytes.to_string() } else { Size(bytes).rounded() };
            let share = (u128::from(used) * 100).checked_div(u128::from(space.total_bytes)).unwrap_or(0);
            table.row(vec![
                title,
                size(space.total_bytes),
                size(used),
                size(space.free_bytes),
                format!("{share}%"),
            ]);
        };
        row(self.name.clone(), self.total);
        if 0 < context.speech.verbose {
            self.servers.iter().for_each(|(server, space)| row(format!("  server {server}"), *space));
        }
        let server = |(server, space): &(ServerIndex, Space)| json!({ "server": server, "space": space });
        json!({
            "name": self.name, "space": self.total, "servers": self.servers.iter().map(server).collect::<Vec<_>>(),
        })
    }
}
