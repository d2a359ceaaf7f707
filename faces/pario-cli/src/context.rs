//! Context of a subcommand: registry, output options, signals.
//!
//! Never: prints except through [`Context::out`], so that a closed pipe ends the command quietly.

use std::cell::RefCell;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::PathBuf;

use pario::Partition;
use pario::partition::{
    Liveness, Location, PartitionState, Registry, RegistryEntry, RegistryError, StoreKind, private,
};
use serde::Serialize;

use crate::error::{CliError, CliResult};
use crate::signals::Stop;

/// Variable with the name of the partition that a command under `pario run` uses.
pub(crate) const PARTITION_VARIABLE: &str = "PARIO_PARTITION";

/// Output options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speech {
    /// Facts as JSON.
    pub(crate) json: bool,
    /// No reports of success, no progress.
    pub(crate) quiet: bool,
    /// Number of `-v`.
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

    /// The registry given by option, or the user's.
    pub(crate) fn registry(&self) -> CliResult<Registry> {
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

    /// The same, or one in a temporary directory if the user has no writable home. A registry given by option is used or is an error.
    pub(crate) fn registry_or_private(&self) -> CliResult<Registry> {
        let is_set = |variable: &str| std::env::var_os(variable).is_some_and(|value| !value.is_empty());
        if self.registry.is_some() || is_set("PARIO_REGISTRY") {
            return self.registry();
        }
        // A missing home directory is not created for a registry.
        let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
        if home.is_none() && !is_set("XDG_STATE_HOME") {
            return Ok(private::make()?);
        }
        match self.registry().map(|registry| registry.is_usable().map(|()| registry)) {
            Ok(Ok(registry)) => Ok(registry),
            Ok(Err(RegistryError::Io { .. })) | Err(_) => Ok(private::make()?),
            Ok(Err(error)) => Err(error.into()),
        }
    }

    /// Prints one line of text.
    pub(crate) fn line(&self, text: impl std::fmt::Display) -> CliResult {
        Ok(writeln!(self.out.borrow_mut(), "{text}")?)
    }

    /// Prints with a function that gets a writer.
    pub(crate) fn print(
        &self,
        print: impl FnOnce(&mut BufWriter<io::Stdout>) -> io::Result<()>,
    ) -> CliResult {
        Ok(print(&mut self.out.borrow_mut())?)
    }

    /// Prints a report of success, unless `--quiet`.
    pub(crate) fn report(&self, text: impl std::fmt::Display) -> CliResult {
        if self.speech.quiet { Ok(()) } else { self.line(text) }
    }

    /// Prints facts as JSON.
    pub(crate) fn json(&self, facts: &impl Serialize) -> CliResult {
        self.print(|out| {
            serde_json::to_writer_pretty(&mut *out, facts)?;
            writeln!(out)
        })
    }

    /// Flushes the output.
    pub(crate) fn flush(&self) -> CliResult {
        Ok(self.out.borrow_mut().flush()?)
    }

    /// Prints a problem that does not end the command.
    pub(crate) fn complain(&self, error: &CliError) {
        complain(error);
    }

    /// Prints a warning.
    pub(crate) fn warn(&self, text: &str) {
        complain(&CliError::failed(format!("note: {text}")));
    }

    /// Whether the output is a terminal.
    pub(crate) fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Mounts a partition by name; a dead one is refused immediately, with the cure.
    pub(crate) fn mount(&self, name: &str) -> CliResult<Partition> {
        let registry = self.registry()?;
        let entry = registry.find(name)?;
        refuse_dead(&entry)?;
        Ok(Partition::mount_from(&registry, name)?)
    }

    /// The given location, or the root of `PARIO_PARTITION`.
    pub(crate) fn location(&self, typed: Option<&std::ffi::OsString>) -> CliResult<Location> {
        match typed {
            Some(text) => match crate::typed_path::hint(self, text)? {
                Some(hint) => Err(hint),
                None => Ok(Location::parse(text)?),
            },
            None => Ok(Location { partition: self.partition_name(None)?, path: b"/".to_vec() }),
        }
    }

    /// The given partition name, `NAME` or `pario://NAME`, or `PARIO_PARTITION`.
    pub(crate) fn partition_name(&self, typed: Option<&str>) -> CliResult<String> {
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

/// An entry with no living server is stale: a connection would only fail.
fn refuse_dead(entry: &RegistryEntry) -> CliResult {
    let name = &entry.name;
    let cure = match entry.settings.store {
        StoreKind::Memory => {
            format!("its data was in memory and is lost: `pario down {name}` clears it away")
        }
        StoreKind::Files | StoreKind::Direct | StoreKind::Log => {
            format!("`pario up {name}` brings its data back, `pario down {name}` forgets the servers")
        }
    };
    match entry.state {
        // Servers on other machines count as alive: the command connects to them next.
        PartitionState::Running if entry.liveness(|_| true) == Liveness::Dead => {
            Err(CliError::with_cure(format!("partition '{name}' is dead: its servers are gone"), cure))
        }
        PartitionState::Starting if !entry.starter_is_alive() => {
            Err(CliError::with_cure(format!("partition '{name}' is dead: its start was cut short"), cure))
        }
        PartitionState::Running | PartitionState::Starting | PartitionState::Down => Ok(()),
    }
}

/// Prints a problem on standard error, as one line.
pub(crate) fn complain(error: &CliError) {
    let text = error.to_string();
    if !text.is_empty() {
        // If standard error is closed, the message is dropped.
        let _ = writeln!(io::stderr().lock(), "pario: {text}");
    }
}
