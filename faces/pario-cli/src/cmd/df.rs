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
  pario df -v scratch      each of its servers")]
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
        false => {
            args.names.iter().map(|name| context.partition_name(Some(name))).collect::<Outcome<Vec<String>>>()?
        }
    };
    let mut table = Table::with_head(&["<partition", "size", "used", "free", "use"]);
    let (mut facts, mut failures) = (Vec::new(), Vec::new());
    for name in &names {
        match spaces(context, name) {
            Ok(servers) => facts.push(add(context, args, name, &servers, &mut table)),
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

fn spaces(context: &Context, name: &str) -> Outcome<Vec<(ServerIndex, Space)>> {
    let partition = context.mount(name)?;
    let mount = partition.mount_handle();
    wire::servers(mount)
        .map(|server| Ok((server, mount.server_space(server).map_err(|error| CliError::remote(name, &error))?)))
        .collect()
}

fn add(context: &Context, args: &Args, name: &str, servers: &[(ServerIndex, Space)], table: &mut Table) -> Value {
    let total = servers.iter().fold(Space::default(), |sum, (_, space)| Space {
        total_bytes: sum.total_bytes + space.total_bytes,
        free_bytes: sum.free_bytes + space.free_bytes,
    });
    let mut row = |title: String, space: Space| {
        let used = space.total_bytes.saturating_sub(space.free_bytes);
        let size = |bytes: u64| if args.bytes { bytes.to_string() } else { Size(bytes).rounded() };
        let share = (used * 100).checked_div(space.total_bytes).unwrap_or(0);
        table.row(vec![title, size(space.total_bytes), size(used), size(space.free_bytes), format!("{share}%")]);
    };
    row(name.to_owned(), total);
    if 0 < context.speech.verbose {
        servers.iter().for_each(|(server, space)| row(format!("  server {server}"), *space));
    }
    let server = |(server, space): &(ServerIndex, Space)| json!({ "server": server, "space": space });
    json!({ "name": name, "space": total, "servers": servers.iter().map(server).collect::<Vec<_>>() })
}
