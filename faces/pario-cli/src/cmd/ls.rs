//! `pario ls`: list a directory.

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::{ArgAction, Args as ClapArgs};
use pario::Partition;
use pario::core::{DirEntry, FileAttr, FileKind};
use pario::transfer::TreePath;
use serde_json::{Value, json};

use super::container::{self, ContainerFacts};
use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::human::{self, Units, UserNames};
use crate::table::{Align, Table, columns};
use crate::typed_path;

/// Arguments of `pario ls`.
#[derive(ClapArgs, Debug)]
#[command(disable_help_flag = true)]
#[command(after_help = "\
Examples:
  pario ls pario://scratch/
  pario ls -lh pario://scratch/run1/
  pario ls -R --json pario://scratch/
  pario ls -1t pario://scratch/           newest first, a name a line
  pario ls -0 pario://scratch/ | xargs -0 -n1 echo
Without a place: the root of the partition that PARIO_PARTITION names.")]
pub(crate) struct Args {
    /// Files and directories; containers on this machine, too
    #[arg(value_name = "PLACE")]
    places: Vec<OsString>,
    /// Mode, links, owner, group, size, time of last change
    #[arg(short)]
    long: bool,
    /// Names that start with a dot, too
    #[arg(short, long)]
    all: bool,
    /// Directories in directories, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// One name a line, also on a terminal
    #[arg(short = '1')]
    one: bool,
    /// Names end with a zero byte instead of a line feed, for `xargs -0`
    #[arg(short = '0', long = "zero", conflicts_with = "long")]
    zero: bool,
    /// Newest first
    #[arg(short = 't', conflicts_with = "by_size")]
    by_time: bool,
    /// Largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// Reverse the order
    #[arg(short, long)]
    reverse: bool,
    /// Directories themselves, not what is in them
    #[arg(short = 'd', long = "directory", conflicts_with = "recursive")]
    itself: bool,
    /// Sizes with units
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

struct Listing<'a> {
    context: &'a Context,
    args: &'a Args,
    names: UserNames,
    /// Whether directories are printed with a title, because there are several.
    titles: bool,
    printed: usize,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut typed: Vec<Option<&OsString>> = args.places.iter().map(Some).collect();
    if typed.is_empty() {
        typed.push(None);
    }
    let titles = args.recursive || 1 < typed.len();
    let mut listing = Listing { context, args, names: UserNames::of_this_machine(), titles, printed: 0 };
    let (mut failures, mut facts) = (Vec::new(), Vec::new());
    for place in typed {
        match listing.place(place, &mut facts) {
            Ok(()) => {}
            Err(error @ CliError::OutputClosed) => return Err(error),
            Err(error) => failures.push(error),
        }
    }
    if context.speech.json {
        context.json(&facts)?;
    }
    end_of_many(context, failures, listing.printed)
}

impl Listing<'_> {
    fn place(&mut self, typed: Option<&OsString>, facts: &mut Vec<Value>) -> CliResult {
        if let Some(path) = typed.and_then(|typed| container::named(typed)) {
            let found = ContainerFacts::of(path)?;
            let units = if self.args.human { Units::Rounded } else { Units::Bytes };
            match self.context.speech.json {
                true => facts.push(found.json()),
                false => found.list(self.context, self.args.long, units)?,
            }
            self.printed += 1;
            return Ok(());
        }
        let location = self.context.location(typed)?;
        let partition = self.context.mount(&location.partition)?;
        let place = typed_path::of(&partition, &location.path);
        let remote = |error: pario::Error| CliError::remote(&place, &error);
        let attr = if self.args.long && !place.has_slash() {
            partition.symlink_metadata(&place.path).map_err(remote)?
        } else {
            partition.metadata(&place.path).map_err(remote)?
        };
        if attr.kind == FileKind::Directory && !self.args.itself {
            return self.directory(&partition, &place, facts);
        }
        let name = place.path.file_name().unwrap_or_default().as_bytes().to_vec();
        let given = typed.map_or_else(|| location.path.clone(), |typed| typed.as_bytes().to_vec());
        let entry = DirEntry { name: given, attr };
        if self.context.speech.json {
            facts.push(entry_facts(&place, &DirEntry { name, attr })?);
        } else {
            self.print(&partition, &place, &[entry])?;
        }
        self.printed += 1;
        Ok(())
    }

    fn directory(&mut self, partition: &Partition, place: &TreePath, facts: &mut Vec<Value>) -> CliResult {
        let remote = |error: pario::Error| CliError::remote(place, &error);
        let mut entries = Vec::new();
        for entry in partition.read_dir(&place.path).map_err(remote)? {
            let entry = entry.map_err(remote)?;
            if self.args.all || !entry.name.starts_with(b".") {
                entries.push(entry);
            }
        }
        self.sort(&mut entries);
        if self.context.speech.json {
            for entry in &entries {
                facts.push(entry_facts(&place.child(std::ffi::OsStr::from_bytes(&entry.name)), entry)?);
            }
        } else {
            if self.titles {
                let gap = if self.printed == 0 { "" } else { "\n" };
                self.context.line(format!("{gap}{}:", crate::error::one_line(&place.to_string())))?;
            }
            self.print(partition, place, &entries)?;
        }
        self.printed += 1;
        if self.args.recursive {
            for entry in entries.iter().filter(|entry| entry.attr.kind == FileKind::Directory) {
                let inner = place.child(std::ffi::OsStr::from_bytes(&entry.name));
                self.directory(partition, &inner, facts)?;
            }
        }
        Ok(())
    }

    /// Entries arrive sorted by name; the sort is stable.
    fn sort(&self, entries: &mut [DirEntry]) {
        if self.args.by_time {
            entries.sort_by_key(|entry| std::cmp::Reverse(entry.attr.modified_ns));
        }
        if self.args.by_size {
            entries.sort_by_key(|entry| std::cmp::Reverse(entry.attr.size));
        }
        if self.args.reverse {
            entries.reverse();
        }
    }

    fn print(&self, partition: &Partition, dir: &TreePath, entries: &[DirEntry]) -> CliResult {
        if self.args.long {
            return self.print_long(partition, dir, entries);
        }
        let names: Vec<String> = entries.iter().map(|entry| human::shown(&entry.name)).collect();
        self.context.print(|out| {
            if self.context.is_terminal() && !self.args.one && !self.args.zero {
                return columns(&names, terminal_columns(), out);
            }
            for entry in entries {
                // Output to a program: raw bytes.
                out.write_all(&entry.name)?;
                out.write_all(if self.args.zero { b"\0" } else { b"\n" })?;
            }
            Ok(())
        })
    }

    fn print_long(&self, partition: &Partition, dir: &TreePath, entries: &[DirEntry]) -> CliResult {
        let right = Align::Right;
        let left = Align::Left;
        let mut table = Table::new(&[left, right, left, left, right, left, left]);
        for entry in entries {
            let DirEntry { name, attr } = entry;
            let units = if self.args.human { Units::Rounded } else { Units::Bytes };
            let mut shown = human::shown(name);
            if attr.kind == FileKind::Symlink {
                let link = dir.path.join(std::ffi::OsStr::from_bytes(name));
                if let Ok(target) = partition.read_link(link).or_else(|_| partition.read_link(&dir.path)) {
                    shown = format!("{shown} -> {}", human::shown(target.as_os_str().as_bytes()));
                }
            }
            table.row(vec![
                human::mode(attr.kind, attr.mode),
                attr.links.to_string(),
                self.names.user(attr.uid),
                self.names.group(attr.gid),
                human::size(attr.size, if attr.kind == FileKind::File { units } else { Units::Bytes }),
                human::minute(attr.modified_ns),
                shown,
            ]);
        }
        self.context.print(|out| table.print(out))
    }
}

fn entry_facts(place: &TreePath, entry: &DirEntry) -> CliResult<Value> {
    Ok(with_names(attr_facts(&entry.attr)?, &entry.name, place))
}

/// Facts with name and path; names that are not UTF-8 also as bytes.
pub(super) fn with_names(mut facts: Value, name: &[u8], place: &TreePath) -> Value {
    facts["name"] = json!(String::from_utf8_lossy(name));
    facts["place"] = json!(place.to_string());
    if std::str::from_utf8(&place.bytes()).is_err() {
        facts["name_bytes"] = json!(name);
        facts["place_bytes"] = json!(place.bytes());
    }
    facts
}

/// Attributes as JSON.
pub(super) fn attr_facts(attr: &FileAttr) -> CliResult<Value> {
    serde_json::to_value(attr).map_err(|error| CliError::failed(format!("attributes as JSON: {error}")))
}

/// Width of the terminal.
fn terminal_columns() -> usize {
    let asked = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if asked == 0 { 80 } else { asked }
}
