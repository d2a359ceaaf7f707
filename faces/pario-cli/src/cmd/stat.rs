//! `pario stat`: all attributes of a file.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::Args as ClapArgs;
use pario::Partition;
use pario::core::{FileAttr, FileKind, ObjectId, Size};
use pario::health::questions;
use pario::partition::Location;
use pario::transfer::TreePath;
use serde_json::{Value, json};

use super::ls::attr_facts;
use super::{container, end_of_many};
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::human::{self, UserNames};
use crate::table::{Align, Table};
use crate::typed_path;

/// Arguments of `pario stat`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario stat pario://scratch/field
  pario stat -v pario://scratch/field      with its object on each server
  pario stat --json pario://scratch/field")]
pub(crate) struct Args {
    /// Files, directories and links; containers on this machine, too
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// What a symbolic link leads to, instead of the link
    #[arg(short = 'L', long)]
    dereference: bool,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (mut failures, mut facts) = (Vec::new(), Vec::new());
    for text in &args.places {
        if let Some(path) = container::named(text) {
            match container::ContainerFacts::of(path) {
                Ok(seen) if context.speech.json => facts.push(seen.json()),
                Ok(seen) => {
                    seen.print(context)?;
                    facts.push(Value::Null);
                }
                Err(error) => failures.push(error),
            }
            continue;
        }
        match stat_file(context, args, text) {
            Ok(seen) if context.speech.json => facts.push(seen.facts()?),
            Ok(seen) => {
                seen.print(context)?;
                facts.push(Value::Null);
            }
            Err(error) => failures.push(error),
        }
    }
    let done = facts.len();
    if context.speech.json {
        context.json(&facts)?;
    }
    end_of_many(context, failures, done)
}

struct StatResult {
    place: TreePath,
    attr: FileAttr,
    target: Option<String>,
    /// Length of the object on each of the file's servers; `None`: no object, the whole part is a hole.
    objects: Vec<(u16, Option<u64>)>,
}

fn stat_file(context: &Context, args: &Args, text: &OsString) -> CliResult<StatResult> {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    let found = match args.dereference {
        true => partition.metadata(&place.path),
        false => partition.symlink_metadata(&place.path),
    };
    let attr = found.map_err(|error| CliError::remote(&place, &error))?;
    let target = match attr.kind {
        FileKind::Symlink => Some(place.read_link()?.display().to_string()),
        FileKind::File
        | FileKind::Directory
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => None,
    };
    let wanted = attr.kind == FileKind::File && 0 < context.speech.verbose;
    let objects = if wanted { objects(&partition, &attr)? } else { Vec::new() };
    Ok(StatResult { place, attr, target, objects })
}

fn objects(partition: &Partition, attr: &FileAttr) -> CliResult<Vec<(u16, Option<u64>)>> {
    let object = ObjectId { inode: attr.inode, generation: attr.generation };
    let measure = |server: pario::core::ServerIndex| {
        let bytes = questions::measure(partition, server, object)
            .map_err(|error| CliError::remote(partition.name(), &error))?;
        Ok((server.0, bytes))
    };
    attr.layout.servers().map(measure).collect()
}

impl StatResult {
    fn facts(&self) -> CliResult<Value> {
        let mut facts = attr_facts(&self.attr)?;
        let name = self.place.name().unwrap_or_default().as_bytes();
        facts = super::ls::with_names(facts, name, &self.place);
        facts["target"] = json!(self.target);
        if !self.objects.is_empty() {
            let object = |(server, bytes): &(u16, Option<u64>)| json!({ "server": server, "bytes": bytes });
            facts["objects"] = self.objects.iter().map(object).collect();
        }
        Ok(facts)
    }

    fn print(&self, context: &Context) -> CliResult {
        let (attr, names) = (&self.attr, UserNames::of_this_machine());
        let mut table = Table::new(&[Align::Right, Align::Left]);
        let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
        row("place", crate::error::one_line(&self.place.to_string()));
        row("kind", human::kind(attr.kind).to_owned());
        if let Some(target) = &self.target {
            row("target", crate::error::one_line(target));
        }
        row("size", format!("{} ({})", attr.size, Size(attr.size).rounded()));
        row("inode", format!("{}, generation {}", attr.inode, attr.generation));
        row("mode", format!("{} ({:04o})", human::mode(attr.kind, attr.mode), attr.mode));
        row("owner", format!("{} ({})", names.user(attr.uid), attr.uid));
        row("group", format!("{} ({})", names.group(attr.gid), attr.gid));
        row("links", attr.links.to_string());
        row("accessed", human::exact_time(attr.accessed_ns));
        row("modified", human::exact_time(attr.modified_ns));
        row("changed", human::exact_time(attr.changed_ns));
        if attr.kind == FileKind::File {
            let layout = attr.layout;
            let servers = human::count(usize::from(layout.count()), "server");
            let stripe = Size(layout.stripe_bytes());
            row(
                "striping",
                format!("blocks of {stripe} on {servers}, the first on server {}", layout.first()),
            );
        }
        for (server, bytes) in &self.objects {
            let length = bytes.map_or("no object".to_owned(), |bytes| format!("{bytes} bytes"));
            row(&format!("server {server}"), length);
        }
        context.print(|out| table.print(out))
    }
}
