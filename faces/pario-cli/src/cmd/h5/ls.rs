//! `pario h5 ls`: the members of a group.

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use pario_container::{Header, Kind, LinkTarget, Tree};
use serde_json::{Value, json};

use super::object::{failed, open, target_words};
use crate::context::Context;
use crate::error::{CliResult, one_line};

/// Arguments of `pario h5 ls`.
#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// A tree, or a group of it
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// Also the members of groups
    #[arg(short, long)]
    recursive: bool,
}

/// One line: shape and type of a dataset, kind of others.
pub(super) fn words(header: &Header) -> String {
    match header.dataset() {
        Some(dataset) => {
            let extent: Vec<String> = dataset.space.extent().iter().map(u64::to_string).collect();
            format!("dataset {} ({})", dataset.element.description.label(), extent.join(" x "))
        }
        None => header.kind().word().to_owned(),
    }
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut object = open(&args.path)?;
    let mut facts = Vec::new();
    let header = object.tree.header(object.id).map_err(|error| failed(&error))?;
    if header.kind() == Kind::Group {
        let mut seen = HashSet::from([object.id]);
        list(context, args, (&mut object.tree, object.id, ""), (&mut seen, &mut facts))?;
    } else {
        print(context, &args.path.display().to_string(), &words(header), &mut facts)?;
    }
    if context.speech.json { context.json(&facts) } else { Ok(()) }
}

fn print(context: &Context, name: &str, what: &str, facts: &mut Vec<Value>) -> CliResult {
    if context.speech.json {
        facts.push(json!({ "name": name, "what": what }));
        return Ok(());
    }
    context.line(format!("{:<32} {}", one_line(name), one_line(what)))
}

fn list(
    context: &Context,
    args: &Args,
    (tree, group, prefix): (&mut Tree, u64, &str),
    (seen, facts): (&mut HashSet<u64>, &mut Vec<Value>),
) -> CliResult {
    for row in tree.links(group).map_err(|error| failed(&error))? {
        let name = format!("{prefix}{}", row.name);
        let LinkTarget::Hard { id, .. } = row.target else {
            print(context, &name, &target_words(&row.target).unwrap_or_default(), facts)?;
            continue;
        };
        tree.find(group, &row.name.0).map_err(|error| failed(&error))?;
        let header = tree.header(id).map_err(|error| failed(&error))?;
        let (kind, what) = (header.kind(), words(header));
        print(context, &name, &what, facts)?;
        if args.recursive && kind == Kind::Group && seen.insert(id) {
            list(context, args, (tree, id, &format!("{name}/")), (seen, facts))?;
        }
    }
    Ok(())
}
