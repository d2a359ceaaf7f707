//! `pario find`: walks trees and prints matching entries, with the syntax of `find`.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use clap::Args as ClapArgs;
use pario::core::{FileKind, Size};
use pario::transfer::{FileStat, LinkPolicy, TransferResult, TreePath};
use serde_json::{Value, json};

use super::end_of_many;
use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::glob;
use crate::typed_path;

/// Arguments of `pario find`.
#[derive(ClapArgs, Debug)]
#[command(after_help = "\
Examples:
  pario find pario://scratch/ -name '*.h5' -size +1GiB
  pario find pario://scratch/run1 -type d -maxdepth 2
  pario find pario://scratch/ -mmin -10 -print0 | xargs -0 pario stat
Tests (all must hold): -name GLOB, -path GLOB, -type f|d|l, -size [+-]SIZE, -mmin [+-]MINUTES,
-mtime [+-]DAYS, -empty. Options: -maxdepth N, -mindepth N, -print0. A + means more than, a -
less than. Without a place: the partition that PARIO_PARTITION names.")]
pub(crate) struct Args {
    /// Places, then tests
    #[arg(value_name = "PLACE|TEST", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<OsString>,
}

/// A number and its comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NumberBound {
    More(u64),
    Less(u64),
    Just(u64),
}

impl NumberBound {
    fn holds(self, value: u64) -> bool {
        match self {
            NumberBound::More(than) => than < value,
            NumberBound::Less(than) => value < than,
            NumberBound::Just(than) => value == than,
        }
    }

    fn parse(text: &str, number: impl Fn(&str) -> Option<u64>) -> Option<NumberBound> {
        match text.split_at_checked(1)? {
            ("+", rest) => number(rest).map(NumberBound::More),
            ("-", rest) => number(rest).map(NumberBound::Less),
            _ => number(text).map(NumberBound::Just),
        }
    }
}

/// One condition of a query.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Test {
    Name(OsString),
    Path(OsString),
    Kind(FileKind),
    Size(NumberBound),
    /// Age of the last modification, in minutes.
    Minutes(NumberBound),
    Days(NumberBound),
    Empty,
}

/// A parsed command line.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Query {
    places: Vec<OsString>,
    tests: Vec<Test>,
    depths: std::ops::RangeInclusive<usize>,
    zero: bool,
}

impl Query {
    fn parse(words: &[OsString]) -> CliResult<Query> {
        let mut query = Query { places: Vec::new(), tests: Vec::new(), depths: 0..=usize::MAX, zero: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(option) = word.to_str().filter(|word| word.starts_with('-')) else {
                query.places.push(word.clone());
                continue;
            };
            match option {
                "-print0" => query.zero = true,
                "-print" => {}
                "-empty" => query.tests.push(Test::Empty),
                _ => {
                    let value = words.next().ok_or_else(|| wrong(option, "needs a value"))?;
                    query.take(option, value)?;
                }
            }
        }
        Ok(query)
    }

    fn take(&mut self, option: &str, value: &OsStr) -> CliResult {
        let text = value.to_str().unwrap_or_default();
        let number = |text: &str| text.parse::<u64>().ok();
        let depth = || text.parse::<usize>().map_err(|_| wrong(option, "needs a number"));
        let bound = |number: &dyn Fn(&str) -> Option<u64>| {
            NumberBound::parse(text, number).ok_or_else(|| wrong(option, &format!("'{text}' is no number")))
        };
        self.tests.push(match option {
            "-name" => Test::Name(value.to_owned()),
            "-path" => Test::Path(value.to_owned()),
            "-type" => Test::Kind(match text {
                "f" => FileKind::File,
                "d" => FileKind::Directory,
                "l" => FileKind::Symlink,
                _ => return Err(wrong(option, "is one of f (file), d (directory), l (symbolic link)")),
            }),
            "-size" => Test::Size(bound(&|text| text.parse::<Size>().ok().map(|size| size.0))?),
            "-mmin" => Test::Minutes(bound(&number)?),
            "-mtime" => Test::Days(bound(&number)?),
            "-maxdepth" => {
                self.depths = *self.depths.start()..=depth()?;
                return Ok(());
            }
            "-mindepth" => {
                self.depths = depth()?..=*self.depths.end();
                return Ok(());
            }
            _ => return Err(wrong(option, "is not known; see `pario find --help`")),
        });
        Ok(())
    }
}

fn wrong(option: &str, what: &str) -> CliError {
    CliError::usage(format!("find: {option} {what}"))
}

struct FindWalk<'a> {
    context: &'a Context,
    query: &'a Query,
    now_ns: u64,
    facts: Vec<Value>,
    failures: Vec<CliError>,
}

/// Runs the subcommand.
pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let query = Query::parse(&args.words)?;
    context.stop.catch()?;
    let mut typed: Vec<Option<&OsString>> = query.places.iter().map(Some).collect();
    if typed.is_empty() {
        typed.push(None);
    }
    let (facts, failures) = (Vec::new(), Vec::new());
    let mut walk = FindWalk { context, query: &query, now_ns: crate::clock::now_ns(), facts, failures };
    let mut done = 0;
    for place in typed {
        let found = context.location(place).and_then(|location| {
            let place = typed_path::of(&context.mount(&location.partition)?, &location.path);
            let facts = place.stat(LinkPolicy::Stay)?;
            walk.visit(&place, &facts, 0)
        });
        match found {
            Err(error @ (CliError::OutputClosed | CliError::Interrupted { .. })) => return Err(error),
            Err(error) => walk.failures.push(error),
            Ok(()) => done += 1,
        }
    }
    if context.speech.json {
        context.json(&walk.facts)?;
    }
    end_of_many(context, walk.failures, done)
}

impl FindWalk<'_> {
    fn visit(&mut self, place: &TreePath, facts: &FileStat, depth: usize) -> CliResult {
        self.context.stop.check()?;
        if self.query.depths.contains(&depth) && self.fits(place, facts)? {
            self.print(place, facts)?;
        }
        if facts.kind != Some(FileKind::Directory) || *self.query.depths.end() <= depth {
            return Ok(());
        }
        let mut entries = match place.read_dir() {
            Ok(entries) => entries.collect::<TransferResult<Vec<_>>>()?,
            Err(error) => {
                self.failures.push(error.into());
                return Ok(());
            }
        };
        entries.sort_by(|one, two| one.name.cmp(&two.name));
        entries.iter().try_for_each(|entry| self.visit(&place.child(&entry.name), &entry.stat, depth + 1))
    }

    fn fits(&self, place: &TreePath, facts: &FileStat) -> CliResult<bool> {
        for test in &self.query.tests {
            let age_s = self.now_ns.saturating_sub(facts.modified_ns) / 1_000_000_000;
            let holds = match test {
                Test::Name(glob) => glob::matches(glob.as_bytes(), name(place)),
                Test::Path(glob) => glob::matches(glob.as_bytes(), place.path.as_os_str().as_bytes()),
                Test::Kind(kind) => facts.kind == Some(*kind),
                Test::Size(bound) => bound.holds(facts.size),
                Test::Minutes(bound) => bound.holds(age_s / 60),
                Test::Days(bound) => bound.holds(age_s / 86_400),
                Test::Empty => match facts.kind {
                    Some(FileKind::Directory) => place.read_dir()?.next().is_none(),
                    Some(FileKind::File) => facts.size == 0,
                    Some(
                        FileKind::Symlink
                        | FileKind::Fifo
                        | FileKind::Socket
                        | FileKind::CharDevice
                        | FileKind::BlockDevice,
                    )
                    | None => false,
                },
            };
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn print(&mut self, place: &TreePath, facts: &FileStat) -> CliResult {
        if self.context.speech.json {
            let kind = facts.kind.map(crate::human::kind);
            let modified = facts.modified_ns;
            let fact =
                json!({ "kind": kind, "size": facts.size, "mode": facts.mode, "modified_ns": modified });
            self.facts.push(super::ls::with_names(fact, name(place), place));
            return Ok(());
        }
        let end: &[u8] = if self.query.zero { b"\0" } else { b"\n" };
        self.context.print(|out| {
            out.write_all(&place.bytes())?;
            out.write_all(end)
        })
    }
}

fn name(place: &TreePath) -> &[u8] {
    place.name().unwrap_or_default().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(words: &[&str]) -> CliResult<Query> {
        Query::parse(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn tests_are_read_in_the_words_of_find() {
        let asked =
            query(&["pario://s/", "-name", "*.h5", "-size", "+1MiB", "-maxdepth", "2", "-print0"]).unwrap();
        assert_eq!(asked.places, ["pario://s/"]);
        assert_eq!(asked.tests, [Test::Name("*.h5".into()), Test::Size(NumberBound::More(1 << 20))]);
        assert_eq!((asked.depths, asked.zero), (0..=2, true));
        for (words, why) in [
            (&["-size"][..], "needs a value"),
            (&["-type", "x"], "one of f"),
            (&["-size", "much"], "no number"),
            (&["-delete", "x"], "not known"),
        ] {
            assert!(query(words).unwrap_err().to_string().contains(why), "{words:?}");
        }
    }

    #[test]
    fn bounds_are_more_less_or_just() {
        let number = |text: &str| text.parse().ok();
        for (text, below, equal, above) in
            [("+5", false, false, true), ("-5", true, false, false), ("5", false, true, false)]
        {
            let bound = NumberBound::parse(text, number).unwrap();
            assert_eq!((bound.holds(4), bound.holds(5), bound.holds(6)), (below, equal, above), "{text}");
        }
    }
}
