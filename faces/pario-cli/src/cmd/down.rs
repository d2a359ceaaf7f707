//! `pario down`: take a partition down.

use clap::Args as ClapArgs;
use pario::partition::StoreKind;
use pario::start::{Down, DownHow};
use serde_json::json;

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::human;

/// What can be said to `pario down`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario down scratch              flush and stop its servers; `pario up scratch` brings it back
  pario down scratch --destroy    remove the data, too: nothing is left
  pario down --all                every partition of the registry")]
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
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let registry = context.registry()?;
    let names = match args.all {
        true => registry.list()?.into_iter().map(|entry| entry.name).collect(),
        false => args
            .names
            .iter()
            .map(|name| context.partition_name(Some(name)))
            .collect::<Outcome<Vec<String>>>()?,
    };
    // All of them are known before the first goes.
    for name in &names {
        registry.find(name)?;
    }
    let how = if args.destroy { DownHow::Destroy } else { DownHow::Keep };
    let (mut failures, mut facts) = (Vec::new(), Vec::new());
    for name in &names {
        let in_memory = registry.get(name)?.is_some_and(|entry| entry.settings.store == StoreKind::Memory);
        match pario::start::down(&registry, name, how) {
            Ok(down) => {
                facts.push(facts_of(&down));
                if !context.speech.json {
                    context.report(line(&down, args.destroy || in_memory))?;
                }
                failures.extend(left_behind(&down));
            }
            Err(error) => failures.push(error.into()),
        }
    }
    if context.speech.json {
        context.json(&facts)?;
    }
    end_of_many(context, failures, facts.len())
}

fn facts_of(down: &Down) -> serde_json::Value {
    json!({
        "name": down.name, "stopped": down.stopped, "killed": down.killed, "gone": down.gone, "left": down.left,
    })
}

fn line(down: &Down, destroyed: bool) -> String {
    let mut parts = Vec::new();
    if 0 < down.stopped {
        parts.push(format!("{} stopped", human::count(down.stopped, "server")));
    }
    if !down.killed.is_empty() {
        parts.push(format!("{} killed because of no answer", human::count(down.killed.len(), "server")));
    }
    if !down.gone.is_empty() {
        parts.push(format!("{} gone already", human::count(down.gone.len(), "server")));
    }
    if parts.is_empty() {
        parts.push("no server ran".to_owned());
    }
    parts.push(if destroyed { "data removed" } else { "data kept" }.to_owned());
    format!("{}: {}", down.name, parts.join(", "))
}

fn left_behind(down: &Down) -> Option<CliError> {
    let text = || format!("{}: data stays at {}", down.name, down.left.join(", "));
    (!down.left.is_empty()).then(|| CliError::with_cure(text(), "remove it on those machines"))
}
