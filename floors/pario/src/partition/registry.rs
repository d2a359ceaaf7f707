//! The registry: one file with a user's partitions, shared by any number of processes without a server. Format and rules:
//! docs/formats/registry.md.
//!
//! Never: overwrites a file that it cannot read. Always: a change is a read-modify-write under an exclusive lock on a separate
//! file, and replaces the whole file; a reader needs no lock.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_sys::dir::{Dir, Missing, OwnError, open_trusted};
use rustix::fs::{FileType, OFlags};
use serde::{Deserialize, Serialize};

use super::config::ConfigError;
use super::disk::{self, Attempt};
use super::entry::RegistryEntry;

/// Format version of the registry.
pub const REGISTRY_FORMAT: u32 = 1;
/// Time limit for the lock.
pub const LOCK_LIMIT: Duration = Duration::from_secs(5);
/// Largest registry that is read.
pub const REGISTRY_BYTES_MAX: u64 = 64 << 20;
/// Partitions in one registry.
pub const ENTRIES_MAX: usize = 4096;

/// Why a registry operation failed; each prints as one line.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// Neither `PARIO_REGISTRY` nor a home directory is set.
    #[error("no place for the registry: set PARIO_REGISTRY to a file, or HOME to your home directory")]
    NoHome,
    /// The operating system refused.
    #[error("registry {}: {doing}: {source}", .path.display())]
    Io {
        /// Which registry.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// It cannot be parsed.
    #[error(
        "registry {} is damaged ({reason}): move it away; `pario up` with the partition file then finds the data \
         again in the storage directories", .path.display()
    )]
    Damaged {
        /// Which registry.
        path: PathBuf,
        /// The cause and its line.
        reason: String,
    },
    /// Written by another version.
    #[error("registry {} has format {found}, this version of Pario knows {REGISTRY_FORMAT}: use the version that wrote it, or set PARIO_REGISTRY to another file", .path.display())]
    Format {
        /// Which registry.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
    /// Other users can read its secrets.
    #[error("registry {} can be read by others (mode {mode:03o}) and holds secrets: chmod 600 it, and restart its partitions", .path.display())]
    Exposed {
        /// Which registry.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Another user made it.
    #[error("registry {} belongs to user {user}, this is user {own}: set PARIO_REGISTRY to a file of your own, or run as that user", .path.display())]
    Foreign {
        /// Which registry.
        path: PathBuf,
        /// Its owner.
        user: u32,
        /// User of this process.
        own: u32,
    },
    /// Another user owns it, or could replace it.
    #[error("registry {}: {reason}", .path.display())]
    NotOwn {
        /// Which registry.
        path: PathBuf,
        /// The cause, with the cure.
        reason: String,
    },
    /// Another process holds its lock.
    #[error("registry {} has been locked for {} s{}: end that process, or set PARIO_REGISTRY to another file", .path.display(), .limit.as_secs_f32(), holder(.pid))]
    Locked {
        /// Which registry.
        path: PathBuf,
        /// Time waited.
        limit: Duration,
        /// The holder, as written in the lock file.
        pid: Option<u32>,
    },
    /// No such partition.
    #[error("no partition '{name}' in registry {}; {}", .path.display(), known(.exist))]
    Unknown {
        /// The requested name.
        name: String,
        /// In which registry.
        path: PathBuf,
        /// The existing names.
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
    /// Another process starts it.
    #[error(
        "partition '{name}' is being started by process {pid} on {host}; wait for it, or end that process"
    )]
    BeingStarted {
        /// Which.
        name: String,
        /// That process.
        pid: u32,
        /// Where.
        host: String,
    },
    /// Another process claimed the entry in the meantime.
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
    /// Settings that conflict with the stored ones.
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

/// The stored file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegistryContents {
    format: u32,
    #[serde(default, rename = "partition")]
    partitions: Vec<RegistryEntry>,
}

/// A registry, by its path. Keeps no file open.
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
        // The file is replaced as a whole: through a symbolic link, its target is. A link of another user is not followed;
        // opening the file refuses it.
        let is_link = |found: fs::Metadata| found.is_symlink() && is_own_or_roots(found.uid());
        let path = match fs::symlink_metadata(&path).is_ok_and(is_link) {
            true => fs::canonicalize(&path).unwrap_or(path),
            false => path,
        };
        Registry { path, lock_limit: LOCK_LIMIT }
    }

    /// The same registry with another time limit for its lock.
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
    /// [`RegistryError`] if the file cannot be read or parsed. A missing file is empty.
    pub fn list(&self) -> Result<Vec<RegistryEntry>, RegistryError> {
        let Some(text) = self.read()? else { return Ok(Vec::new()) };
        self.parse(&text)
    }

    /// One partition.
    ///
    /// # Errors
    /// [`RegistryError::Unknown`] lists the existing partitions.
    pub fn find(&self, name: &str) -> Result<RegistryEntry, RegistryError> {
        let entries = self.list()?;
        let exist = entries.iter().map(|entry| entry.name.clone()).collect();
        let unknown = || RegistryError::Unknown { name: name.to_owned(), path: self.path.clone(), exist };
        entries.into_iter().find(|entry| entry.name == name).ok_or_else(unknown)
    }

    /// One partition, or `None`.
    ///
    /// # Errors
    /// As [`Registry::list`].
    pub fn get(&self, name: &str) -> Result<Option<RegistryEntry>, RegistryError> {
        Ok(self.list()?.into_iter().find(|entry| entry.name == name))
    }

    /// Changes the list under the lock; nothing is written if `change` fails or changes nothing.
    ///
    /// # Errors
    /// What `change` returns, or [`RegistryError`] if the file cannot be locked, read or replaced.
    pub fn update<T, E: From<RegistryError>>(
        &self,
        change: impl FnOnce(&mut Vec<RegistryEntry>) -> Result<T, E>,
    ) -> Result<T, E> {
        let place = self.make_directory()?;
        let _lock = self.lock(&place)?;
        let before = self.list()?;
        let mut entries = before.clone();
        let result = change(&mut entries)?;
        if entries != before {
            self.write(&place, entries)?;
        }
        Ok(result)
    }

    /// Whether it can be changed: its directory exists or can be made, and is writable.
    ///
    /// # Errors
    /// [`RegistryError`], of kind `Io` if there is no location for it.
    pub fn is_usable(&self) -> Result<(), RegistryError> {
        let place = self.make_directory()?;
        let _lock = self.lock(&place)?;
        let probe = disk::beside(Path::new(self.name()), ".probe");
        disk::write_atomically(&place, probe.as_os_str(), b"")
            .and_then(|()| place.remove_own_file(&probe))
            .map_err(|error| self.not_own("cannot write beside it", error))?;
        self.list().map(drop)
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> RegistryError + '_ {
        move |source| RegistryError::Io { path: self.path.clone(), doing, source }
    }

    /// The error for a registry of another user.
    fn foreign(&self, user: Option<u32>) -> Option<RegistryError> {
        let own = rustix::process::geteuid().as_raw();
        let user = user.filter(|user| *user != own)?;
        Some(RegistryError::Foreign { path: self.path.clone(), user, own })
    }

    /// Its directory, on a path that other users cannot change.
    fn open_directory(&self, missing: Missing) -> Result<Dir, OwnError> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        open_trusted(parent, missing).map(|owned| owned.dir)
    }

    fn make_directory(&self) -> Result<Dir, RegistryError> {
        self.open_directory(Missing::Make).map_err(|error| self.not_own("cannot make its directory", error))
    }

    pub(super) fn not_own(&self, doing: &'static str, error: OwnError) -> RegistryError {
        match error {
            OwnError::Io { source, .. } => RegistryError::Io { path: self.path.clone(), doing, source },
            refused @ OwnError::File { .. } => {
                let reason = format!("{refused}, named by PARIO_REGISTRY");
                RegistryError::NotOwn { path: self.path.clone(), reason }
            }
            refused @ (OwnError::Owner { .. } | OwnError::Writable { .. } | OwnError::Link { .. }) => {
                RegistryError::NotOwn { path: self.path.clone(), reason: refused.to_string() }
            }
        }
    }

    fn name(&self) -> &OsStr {
        self.path.file_name().unwrap_or(OsStr::new("registry"))
    }

    fn lock(&self, place: &Dir) -> Result<disk::FileLock, RegistryError> {
        let name = disk::beside(Path::new(self.name()), ".lock");
        let locked = disk::lock_within(place, name.as_os_str(), self.lock_limit);
        match locked.map_err(|error| self.not_own("cannot lock it", error))? {
            Attempt::Locked(lock) => Ok(lock),
            Attempt::Held(pid) => {
                Err(RegistryError::Locked { path: self.path.clone(), limit: self.lock_limit, pid })
            }
        }
    }

    /// The file's text; `None` if it is missing or empty.
    fn read(&self) -> Result<Option<String>, RegistryError> {
        let failed = self.failed("cannot read it");
        let opened = self
            .open_directory(Missing::Refuse)
            .and_then(|place| place.open_own_file(Path::new(self.name()), OFlags::RDONLY, 0));
        let file = match opened {
            Ok(file) => file,
            Err(error) => return self.unread(error),
        };
        let metadata = file.metadata().map_err(&failed)?;
        if metadata.len() == 0 {
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

    /// The result of a failed open: a missing file is an empty registry.
    fn unread(&self, error: OwnError) -> Result<Option<String>, RegistryError> {
        let owner = match &error {
            OwnError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => return Ok(None),
            OwnError::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                pario_net::stream::owner_of(&self.path)
            }
            OwnError::File { kind: FileType::RegularFile, uid, .. } => Some(*uid),
            OwnError::Owner { .. }
            | OwnError::Writable { .. }
            | OwnError::Link { .. }
            | OwnError::File { .. }
            | OwnError::Io { .. } => None,
        };
        Err(self.foreign(owner).unwrap_or_else(|| self.not_own("cannot read it", error)))
    }

    fn parse(&self, text: &str) -> Result<Vec<RegistryEntry>, RegistryError> {
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
        let contents: RegistryContents = toml::from_str(text).map_err(complaint)?;
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

    fn write(&self, place: &Dir, partitions: Vec<RegistryEntry>) -> Result<(), RegistryError> {
        if ENTRIES_MAX < partitions.len() {
            return Err(RegistryError::Full { path: self.path.clone() });
        }
        let contents = RegistryContents { format: REGISTRY_FORMAT, partitions };
        let text = toml::to_string(&contents)
            .map_err(|error| self.failed("cannot write it")(io::Error::other(error)))?;
        let text = format!("# Partitions that Pario knows. Written by `pario`; holds secrets.\n{text}");
        disk::write_atomically(place, self.name(), text.as_bytes())
            .map_err(|error| self.not_own("cannot write it", error))
    }
}

fn is_own_or_roots(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

fn default_path(look_up: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, RegistryError> {
    let set = |variable: &str| look_up(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("PARIO_REGISTRY") {
        return Ok(path);
    }
    // A relative XDG directory counts as unset, by its specification.
    let state = set("XDG_STATE_HOME").filter(|path| path.is_absolute());
    let state = state.or_else(|| set("HOME").map(|home| home.join(".local/state")));
    Ok(state.ok_or(RegistryError::NoHome)?.join("pario/registry"))
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "registry_planted_tests.rs"]
mod planted_tests;
