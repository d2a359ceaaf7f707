//! `pario tree`: prints a tree.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::Args as ClapArgs;
use pario::Partition;
use pario::core::{DirEntry, FileKind, Size};
use pario::transfer::TreePath;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::human;
use crate::typed_path;

/// Arguments of `pario tree`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario tree pario://scratch/
  pario tree -L 2 pario://scratch/run1
  pario tree --json pario://scratch/")]
pub(crate) struct Args {
    /// Where to start; without it, the root of the partition that PARIO_PARTITION names
    #[arg(value_name = "PLACE")]
    place: Option<OsString>,
    /// Levels at most
    #[arg(short = 'L', long, value_name = "LEVELS", default_value_t = usize::MAX, hide_default_value = true)]
    level: usize,
    /// Names that start with a dot, too
    #[arg(short, long)]
    all: bool,
}

#[derive(Default)]
struct TreeCount {
    directories: usize,
    files: usize,
    bytes: u64,
}

struct TreeWalk<'a> {
    context: &'a Context,
    args: &'a Args,
    partition: Partition,
    seen: TreeCount,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let location = context.location(args.place.as_ref())?;
    let partition = context.mount(&location.partition)?;
    let place = typed_path::of(&partition, &location.path);
    let attr = partition.metadata(&place.path).map_err(|error| CliError::remote(&place, &error))?;
    if attr.kind != FileKind::Directory {
        return Err(CliError::failed(format!("{place}: not a directory")));
    }
    let mut walk = TreeWalk { context, args, partition, seen: TreeCount::default() };
    if context.speech.json {
        let tree = walk.facts(&place, 1)?;
        return context.json(&json!({ "place": place.to_string(), "kind": "directory", "entries": tree }));
    }
    context.line(crate::error::one_line(&place.to_string()))?;
    walk.print(&place, "", 1)?;
    let TreeCount { directories, files, bytes } = walk.seen;
    let directories =
        if directories == 1 { "1 directory".to_owned() } else { format!("{directories} directories") };
    context.line(format!("\n{directories}, {}, {}", human::count(files, "file"), Size(bytes).rounded()))
}

impl TreeWalk<'_> {
    fn entries(&mut self, dir: &TreePath) -> CliResult<Vec<DirEntry>> {
        let remote = |error: pario::Error| CliError::remote(dir, &error);
        let mut entries = Vec::new();
        for entry in self.partition.read_dir(&dir.path).map_err(remote)? {
            let entry = entry.map_err(remote)?;
            if !self.args.all && entry.name.starts_with(b".") {
                continue;
            }
            match entry.attr.kind {
                FileKind::Directory => self.seen.directories += 1,
                FileKind::File
                | FileKind::Symlink
                | FileKind::Fifo
                | FileKind::Socket
                | FileKind::CharDevice
                | FileKind::BlockDevice => self.seen.files += 1,
            }
            self.seen.bytes += if entry.attr.kind == FileKind::File { entry.attr.size } else { 0 };
            entries.push(entry);
        }
        Ok(entries)
    }

    fn print(&mut self, dir: &TreePath, indent: &str, level: usize) -> CliResult {
        let entries = self.entries(dir)?;
        for (at, entry) in entries.iter().enumerate() {
            let last = at + 1 == entries.len();
            let branch = if last { "└── " } else { "├── " };
            let place = dir.child(OsStr::from_bytes(&entry.name));
            let about = match entry.attr.kind {
                FileKind::File => format!("  [{}]", Size(entry.attr.size).rounded()),
                FileKind::Directory => "/".to_owned(),
                FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
                    String::new()
                }
                FileKind::Symlink => {
                    format!(" -> {}", crate::error::one_line(&place.read_link()?.display().to_string()))
                }
            };
            self.context.line(format!("{indent}{branch}{}{about}", human::shown(&entry.name)))?;
            if entry.attr.kind == FileKind::Directory && level < self.args.level {
                let deeper = format!("{indent}{}", if last { "    " } else { "│   " });
                self.print(&place, &deeper, level + 1)?;
            }
        }
        Ok(())
    }

    fn facts(&mut self, dir: &TreePath, level: usize) -> CliResult<Vec<Value>> {
        let mut facts = Vec::new();
        for entry in self.entries(dir)? {
            let place = dir.child(OsStr::from_bytes(&entry.name));
            let mut fact = json!({
                "name": String::from_utf8_lossy(&entry.name), "kind": entry.attr.kind, "size": entry.attr.size,
            });
            match entry.attr.kind {
                FileKind::Directory if level < self.args.level => {
                    fact["entries"] = json!(self.facts(&place, level + 1)?)
                }
                FileKind::Symlink => fact["target"] = json!(place.read_link()?.to_string_lossy()),
                FileKind::Directory
                | FileKind::File
                | FileKind::Fifo
                | FileKind::Socket
                | FileKind::CharDevice
                | FileKind::BlockDevice => {}
            }
            facts.push(fact);
        }
        Ok(facts)
    }
}
