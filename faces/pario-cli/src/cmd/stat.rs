//! `pario stat`: everything known of a file.

use std::ffi::OsString;

use clap::Args as ClapArgs;
use pario::Partition;
use pario::core::{FileAttr, FileKind, ObjectId, Size};
use pario::partition::Location;
use serde_json::{Value, json};

use super::end_of_many;
use super::ls::attr_facts;
use crate::context::Context;
use crate::error::{CliError, Outcome};
use crate::human::{self, Names};
use crate::place::Place;
use crate::table::{Align, Table};
use crate::wire;

/// What can be said to `pario stat`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario stat pario://scratch/field
  pario stat -v pario://scratch/field      with its object on each server
  pario stat --json pario://scratch/field")]
pub(crate) struct Args {
    /// Files, directories and links
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<OsString>,
    /// What a symbolic link leads to, instead of the link
    #[arg(short = 'L', long)]
    dereference: bool,
}

/// Carries it out.
pub(crate) fn run(context: &Context, args: &Args) -> Outcome {
    let (mut failures, mut facts) = (Vec::new(), Vec::new());
    for text in &args.places {
        match look(context, args, text) {
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

struct Seen {
    place: Place,
    attr: FileAttr,
    target: Option<String>,
    /// Length of the object on each of the file's servers; `None`: there is none, all of it is a hole.
    objects: Vec<(u16, Option<u64>)>,
}

fn look(context: &Context, args: &Args, text: &OsString) -> Outcome<Seen> {
    let location = Location::parse(text)?;
    let partition = context.mount(&location.partition)?;
    let place = Place::in_partition(&partition, &location.path);
    let found = match args.dereference {
        true => partition.metadata(&place.path),
        false => partition.symlink_metadata(&place.path),
    };
    let attr = found.map_err(|error| CliError::remote(&place, &error))?;
    let target = match attr.kind {
        FileKind::Symlink => Some(place.read_link()?.display().to_string()),
        FileKind::File | FileKind::Directory => None,
    };
    let wanted = attr.kind == FileKind::File && 0 < context.speech.verbose;
    let objects = if wanted { objects(&partition, &attr)? } else { Vec::new() };
    Ok(Seen { place, attr, target, objects })
}

fn objects(partition: &Partition, attr: &FileAttr) -> Outcome<Vec<(u16, Option<u64>)>> {
    let object = ObjectId { inode: attr.inode, generation: attr.generation };
    let measure = |server: pario::core::ServerIndex| {
        let bytes = wire::measure(partition.mount_handle(), server, object)
            .map_err(|fault| wire::told(partition, fault))?;
        Ok((server.0, bytes))
    };
    attr.layout.servers().map(measure).collect()
}

impl Seen {
    fn facts(&self) -> Outcome<Value> {
        let mut facts = attr_facts(&self.attr)?;
        facts["place"] = json!(self.place.to_string());
        facts["target"] = json!(self.target);
        if !self.objects.is_empty() {
            let object = |(server, bytes): &(u16, Option<u64>)| json!({ "server": server, "bytes": bytes });
            facts["objects"] = self.objects.iter().map(object).collect();
        }
        Ok(facts)
    }

    fn print(&self, context: &Context) -> Outcome {
        let (attr, names) = (&self.attr, Names::of_this_machine());
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
        row("accessed", human::moment(attr.accessed_ns));
        row("modified", human::moment(attr.modified_ns));
        row("changed", human::moment(attr.changed_ns));
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
