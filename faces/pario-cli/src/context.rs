//! What every subcommand gets: the registry, how to print, what was interrupted.
//!
//! Never: prints past [`Context::out`], so that a reader that goes away ends the command quietly.

use std::cell::RefCell;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use pario::Partition;
use pario::partition::{Entry, Liveness, Location, Registry, State};
use serde::Serialize;

use crate::error::{CliError, Outcome};
use crate::signals::Stop;

/// Variable with the name of the partition that a command under `pario run` uses.
pub(crate) const PARTITION_VARIABLE: &str = "PARIO_PARTITION";

/// How the command was told to speak.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speech {
    /// Facts as JSON.
    pub(crate) json: bool,
    /// No reports of success, no progress.
    pub(crate) quiet: bool,
    /// How often `-v` was given.
    pub(crate) verbose: u8,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Context {
    registry: Option<PathBuf>,
    pub(crate) speech: Speech,
    pub(crate) stop: Stop,
    out: RefCell<BufWriter<io::Stdout>>,
}

impl Context {
    /// A context for one subcommand.
    pub(crate) fn new(registry: Option<PathBuf>, speech: Speech, stop: Stop) -> Context {
        Context {
            registry,
            speech,
            stop,
            out: RefCell::new(BufWriter::with_capacity(64 << 10, io::stdout())),
        }
    }

    /// The registry that was named, or the user's.
    pub(crate) fn registry(&self) -> Outcome<Registry> {
        let registry = match &self.registry {
            Some(path) => Registry::open(path),
            None => Registry::open_default()?,
        };
        if registry.path().is_dir() {
            let text = format!("registry {}: is a directory, and must be a file", registry.path().display());
            return Err(CliError::usage(text));
        }
        Ok(registry)
    }

    /// Prints one line of text.
    pub(crate) fn line(&self, text: impl std::fmt::Display) -> Outcome {
        Ok(writeln!(self.out.borrow_mut(), "{text}")?)
    }

    /// Prints with a function that takes a writer.
    pub(crate) fn print(&self, print: impl FnOnce(&mut BufWriter<io::Stdout>) -> io::Result<()>) -> Outcome {
        Ok(print(&mut self.out.borrow_mut())?)
    }

    /// Prints a report of success, unless told to be quiet.
    pub(crate) fn report(&self, text: impl std::fmt::Display) -> Outcome {
        if self.speech.quiet { Ok(()) } else { self.line(text) }
    }

    /// Prints facts as JSON.
    pub(crate) fn json(&self, facts: &impl Serialize) -> Outcome {
        self.print(|out| {
            serde_json::to_writer_pretty(&mut *out, facts)?;
            writeln!(out)
        })
    }

    /// Sends what is printed so far on its way.
    pub(crate) fn flush(&self) -> Outcome {
        Ok(self.out.borrow_mut().flush()?)
    }

    /// A problem that does not end the command.
    pub(crate) fn complain(&self, error: &CliError) {
        complain(error);
    }

    /// Whether a person looks at the output.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Mounts a partition by name; a dead one is refused at once, with the cure.
    pub(crate) fn mount(&self, name: &str) -> Outcome<Partition> {
        let registry = self.registry()?;
        let entry = registry.find(name)?;
        refuse_dead(&entry)?;
        Ok(Partition::mount_from(&registry, name)?)
    }

    /// A location that was typed, or the root of `PARIO_PARTITION`.
    pub(crate) fn location(&self, typed: Option<&std::ffi::OsString>) -> Outcome<Location> {
        match typed {
            Some(text) => match crate::place::meant(self, text)? {
                Some(hint) => Err(hint),
                None => Ok(Location::parse(text)?),
            },
            None => Ok(Location { partition: self.partition_name(None)?, path: b"/".to_vec() }),
        }
    }

    /// A partition's name that was typed, as `NAME` or `pario://NAME`, or `PARIO_PARTITION`.
    pub(crate) fn partition_name(&self, typed: Option<&str>) -> Outcome<String> {
        if let Some(text) = typed {
            return if Location::is_one(text) {
                Ok(Location::parse(text)?.partition)
            } else {
                Ok(text.to_owned())
            };
        }
        std::env::var(PARTITION_VARIABLE)
            .ok()
            .filter(|name| !name.is_empty())
            .ok_or_else(|| CliError::usage(format!("which partition? name it, or set {PARTITION_VARIABLE}")))
    }
}

/// An entry whose servers are all gone is stale: a connection to it could only fail.
fn refuse_dead(entry: &Entry) -> Outcome {
    let name = &entry.name;
    let cure = format!("`pario up {name}` brings its data back, `pario down {name}` forgets the servers");
    match entry.state {
        // Servers on other machines cannot be judged from here without asking; asking is what the command does next.
        State::Running if entry.liveness(|_| true) == Liveness::Dead => {
            Err(CliError::with_cure(format!("partition '{name}' is dead: its servers are gone"), cure))
        }
        State::Starting if !entry.starter_is_alive() => {
            Err(CliError::with_cure(format!("partition '{name}' is dead: its start was cut short"), cure))
        }
        State::Running | State::Starting | State::Down => Ok(()),
    }
}

/// Tells of a problem on standard error, as one line.
pub(crate) fn complain(error: &CliError) {
    let text = error.to_string();
    if !text.is_empty() {
        // Standard error gone is nothing that could be told to anybody.
        let _ = writeln!(io::stderr().lock(), "pario: {text}");
    }
}
