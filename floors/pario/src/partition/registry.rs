//! The registry: one file that lists the partitions of a user, shared by any number of processes without a server.
//! Layout and rules: docs/formats/registry.md.
//!
//! Never: overwrites a file that it cannot read. Always: changes are read-modify-write under an exclusive lock on a file
//! beside it, and replace the file as a whole; a reader needs no lock.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::config::ConfigError;
use super::disk::{self, Attempt};
use super::entry::Entry;

/// Version of the registry's layout.
pub const REGISTRY_FORMAT: u32 = 1;
/// How long a change waits for others'.
pub const LOCK_LIMIT: Duration = Duration::from_secs(5);
/// Largest registry that is read.
pub const REGISTRY_BYTES_MAX: u64 = 64 << 20;
/// Partitions in one registry.
pub const ENTRIES_MAX: usize = 4096;

/// Why the registry could not do what was asked; each prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Neither `PARIO_REGISTRY` nor a home is known.
    #[error("no place for the registry: set PARIO_REGISTRY to a file, or HOME to your home directory")]
    NoHome,
    /// The operating system refused.
    #[error("registry {}: {doing}: {source}", .path.display())]
    Io {
        /// Which registry.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// It cannot be understood.
    #[error(
        "registry {} is damaged ({reason}): move it away; `pario up` with the partition file then finds the data \
         again in the storage directories", .path.display()
    )]
    Damaged {
        /// Which registry.
        path: PathBuf,
        /// What is wrong, and in which line.
        reason: String,
    },
    /// Another version wrote it.
    #[error("registry {} has format {found}, this version of Pario knows {REGISTRY_FORMAT}: use the version that wrote it, or set PARIO_REGISTRY to another file", .path.display())]
    Format {
        /// Which registry.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// Others can read the secrets in it.
    #[error("registry {} can be read by others (mode {mode:03o}) and holds secrets: chmod 600 it, and restart its partitions", .path.display())]
    Exposed {
        /// Which registry.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Somebody keeps it locked.
    #[error("registry {} has been locked for {} s{}: end that process, or set PARIO_REGISTRY to another file", .path.display(), .limit.as_secs_f32(), holder(.pid))]
    Locked {
        /// Which registry.
        path: PathBuf,
        /// How long was waited.
        limit: Duration,
        /// Who seems to hold it.
        pid: Option<u32>,
    },
    /// No such partition.
    #[error("no partition '{name}' in registry {}; {}", .path.display(), known(.exist))]
    Unknown {
        /// What was asked for.
        name: String,
        /// In which registry.
        path: PathBuf,
        /// What there is.
        exist: Vec<String>,
    },
    /// Its servers are up.
    #[error(
        "partition '{name}' is already running; use it as pario://{name}/, or take it down with `pario down {name}`"
    )]
    AlreadyRunning {
        /// Which.
        name: String,
    },
    /// Another process is at it.
    #[error(
        "partition '{name}' is being started by process {pid} on {host}; wait for it, or end that process"
    )]
    BeingStarted {
        /// Which.
        name: String,
        /// By whom.
        pid: u32,
        /// Where.
        host: String,
    },
    /// Somebody else took the entry while this process worked on it.
    #[error("partition '{name}' was taken over by another `pario` while this one worked on it")]
    ClaimLost {
        /// Which.
        name: String,
    },
    /// Too many partitions.
    #[error("registry {} is full: {ENTRIES_MAX} partitions; remove some with `pario down --destroy`", .path.display())]
    Full {
        /// Which registry.
        path: PathBuf,
    },
    /// Settings that do not fit what is stored.
    #[error(transparent)]
    Config(#[from] Box<ConfigError>),
}

fn holder(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(", it seems by process {pid}"))
}

fn known(exist: &[String]) -> String {
    if exist.is_empty() {
        "it has none; make one with `pario up`".to_owned()
    } else {
        format!("there is: {}", exist.join(", "))
    }
}

/// The file as it is stored.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    format: u32,
    #[serde(default, rename = "partition")]
    partitions: Vec<Entry>,
}

/// A registry, by its path. Holds nothing open.
#[derive(Clone, Debug)]
pub struct Registry {
    path: PathBuf,
    lock_limit: Duration,
}

impl Registry {
    /// The user's registry: `PARIO_REGISTRY`, else `$XDG_STATE_HOME/pario/registry`, else `~/.local/state/pario/registry`.
    ///
    /// # Errors
    /// [`RegistryError::NoHome`] if none of these is set.
    pub fn open_default() -> Result<Registry, RegistryError> {
        Ok(Registry::open(&default_path(|variable| std::env::var_os(variable))?))
    }

    /// The registry in a file, which need not exist yet.
    #[must_use]
    pub fn open(path: &Path) -> Registry {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // The file is replaced as a whole: behind a symbolic link it is the target that must be.
        let path = fs::canonicalize(&path).unwrap_or(path);
        Registry { path, lock_limit: LOCK_LIMIT }
    }

    /// The same registry with another limit on waiting for its lock.
    #[must_use]
    pub fn with_lock_limit(self, lock_limit: Duration) -> Registry {
        Registry { lock_limit, ..self }
    }

    /// Its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All partitions, by name.
    ///
    /// # Errors
    /// [`RegistryError`] if the file cannot be read or understood. A missing one is an empty one.
    pub fn list(&self) -> Result<Vec<Entry>, RegistryError> {
        let Some(text) = self.read()? else { return Ok(Vec::new()) };
        self.parse(&text)
    }

    /// One partition.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] names those that there are.
    pub fn find(&self, name: &str) -> Result<Entry, RegistryError> {
        let entries = self.list()?;
        let exist = entries.iter().map(|entry| entry.name.clone()).collect();
        let unknown = || RegistryError::Unknown { name: name.to_owned(), path: self.path.clone(), exist };
        entries.into_iter().find(|entry| entry.name == name).ok_or_else(unknown)
    }

    /// One partition, or `None`.
    ///
    /// # Errors
    /// As [`Registry::list`].
    pub fn get(&self, name: &str) -> Result<Option<Entry>, RegistryError> {
        Ok(self.list()?.into_iter().find(|entry| entry.name == name))
    }

    /// Changes the list under the lock; nothing is written if `change` fails or changes nothing.
    ///
    /// # Errors
    /// What `change` returns, or [`RegistryError`] if the file cannot be locked, read or replaced.
    pub fn update<T, E: From<RegistryError>>(
        &self,
        change: impl FnOnce(&mut Vec<Entry>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.make_place()?;
        let _lock = self.lock()?;
        let before = self.list()?;
        let mut entries = before.clone();
        let result = change(&mut entries)?;
        if entries != before {
            self.write(entries)?;
        }
        Ok(result)
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> RegistryError + '_ {
        move |source| RegistryError::Io { path: self.path.clone(), doing, source }
    }

    fn make_place(&self) -> Result<(), RegistryError> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        disk::make_directories(parent).map(drop).map_err(self.failed("cannot make its directory"))
    }

    fn lock(&self) -> Result<disk::FileLock, RegistryError> {
        let path = disk::beside(&self.path, ".lock");
        match disk::lock_within(&path, self.lock_limit).map_err(self.failed("cannot lock it"))? {
            Attempt::Locked(lock) => Ok(lock),
            Attempt::Held(pid) => {
                Err(RegistryError::Locked { path: self.path.clone(), limit: self.lock_limit, pid })
            }
        }
    }

    /// The file's text; `None` if there is no file, or an empty one, which holds nothing that could be lost.
    fn read(&self) -> Result<Option<String>, RegistryError> {
        let failed = self.failed("cannot read it");
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(&failed)?;
        if metadata.is_file() && metadata.len() == 0 {
            return Ok(None);
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(RegistryError::Exposed { path: self.path.clone(), mode });
        }
        if REGISTRY_BYTES_MAX < metadata.len() {
            return Err(self.damaged(format!("{} bytes are too many", metadata.len())));
        }
        let mut bytes = Vec::new();
        file.take(REGISTRY_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        String::from_utf8(bytes).map(Some).map_err(|_| self.damaged("it is not text".to_owned()))
    }

    fn parse(&self, text: &str) -> Result<Vec<Entry>, RegistryError> {
        let complaint = |error: toml::de::Error| {
            let line = error
                .span()
                .map_or(1, |span| 1 + text.bytes().take(span.start).filter(|&b| b == b'\n').count());
            self.damaged(format!("line {line}: {}", error.message().trim().replace('\n', "; ")))
        };
        let table: toml::Table = text.parse().map_err(complaint)?;
        match table.get("format").and_then(toml::Value::as_integer) {
            Some(format) if format == i64::from(REGISTRY_FORMAT) => {}
            Some(format) => {
                let found = u64::try_from(format).unwrap_or(0);
                return Err(RegistryError::Format { path: self.path.clone(), found });
            }
            None => return Err(self.damaged("it has no format number".to_owned())),
        }
        let contents: Contents = toml::from_str(text).map_err(complaint)?;
        let mut entries = contents.partitions;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].name == pair[1].name) {
            return Err(self.damaged(format!("partition '{}' is there twice", pair[0].name)));
        }
        Ok(entries)
    }

    fn damaged(&self, reason: String) -> RegistryError {
        RegistryError::Damaged { path: self.path.clone(), reason }
    }

    fn write(&self, partitions: Vec<Entry>) -> Result<(), RegistryError> {
        if ENTRIES_MAX < partitions.len() {
            return Err(RegistryError::Full { path: self.path.clone() });
        }
        let contents = Contents { format: REGISTRY_FORMAT, partitions };
        let text = toml::to_string(&contents)
            .map_err(|error| self.failed("cannot write it")(io::Error::other(error)))?;
        let text = format!("# Partitions that Pario knows. Written by `pario`; holds secrets.\n{text}");
        disk::write_atomically(&self.path, text.as_bytes()).map_err(self.failed("cannot write it"))
    }
}

fn default_path(look_up: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, RegistryError> {
    let set = |variable: &str| look_up(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("PARIO_REGISTRY") {
        return Ok(path);
    }
    // A relative XDG directory counts as not set, as its specification has it.
    let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| set("HOME").map(|home| home.join(".local/state")));
    Ok(state.ok_or(RegistryError::NoHome)?.join("pario/registry"))
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
