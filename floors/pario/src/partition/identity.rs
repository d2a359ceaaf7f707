//! Identity file of each storage directory, and the lock that excludes a second server.
//!
//! Never: uses a directory with data of another partition, another server or another format. Always: the lock is acquired
//! before the identity is read or written, and held for the server's lifetime. Format: docs/formats/registry.md, section
//! "Identity".

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pario_core::{Clock, PartitionId, ServerIndex, Size};
use pario_sys::clock::MonotonicClock;
use pario_sys::dir::{Dir, Missing, OwnError, OwnedDir, open_own};
use pario_sys::process::start_ticks;
use serde::{Deserialize, Serialize};

use super::claim::unix_s;
use super::disk::{self, Attempt, FileLock};
use super::settings::Settings;

/// Version of a storage directory's layout.
pub const STORAGE_FORMAT: u32 = 1;
/// File with the identity.
pub const IDENTITY_FILE: &str = "identity";
/// File that the server of a directory holds locked.
pub const LOCK_FILE: &str = "lock";
/// File in which a server leaves to its successor the newer bytes that it wrote before late records of absent clients.
pub const RESTART_LOG_FILE: &str = "ahead";
/// Other files that a server puts into its directory.
pub const CONTENTS: [&str; 11] = [
    "objects",
    "sums",
    "names",
    "log",
    "log.1",
    "socket",
    RESTART_LOG_FILE,
    "ahead.new",
    REGISTERED_FILE,
    COPY_DIRECTORY,
    LOST_DIRECTORY,
];
/// File in which a server records the registry of its partition.
pub const REGISTERED_FILE: &str = "registered";
/// Directory with the second copy of names: on the second server, or beside the names of the only one.
pub const COPY_DIRECTORY: &str = "names.copy";
/// Directory with objects that no file claims, moved there by `pario doctor --repair`.
pub const LOST_DIRECTORY: &str = "lost+found";
/// Longest identity that is read.
const IDENTITY_BYTES_MAX: u64 = 64 << 10;

/// Purpose of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DirectoryRole {
    /// A server's storage directory.
    Store,
    /// The directory of names and inodes, where it is not within the first server's.
    Names,
}

impl fmt::Display for DirectoryRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DirectoryRole::Store => "store",
            DirectoryRole::Names => "names",
        })
    }
}

/// Identity of a storage directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Layout of the directory.
    pub format: u32,
    /// The partition.
    pub partition: PartitionId,
    /// Its name.
    pub name: String,
    /// Purpose of the directory.
    pub role: DirectoryRole,
    /// Index of its server.
    pub server: ServerIndex,
    /// Number of servers of the partition.
    pub servers: u16,
    /// Bytes of a block.
    pub stripe: Size,
    /// Storage backend of the server.
    pub store: String,
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// Directories made for it, itself first, then its parents; on removal they are removed if empty. Servers that start
    /// concurrently share parents: the starter counts before (see [`count_missing`]) and passes the number, so that the
    /// directory removed last removes them.
    pub made_directories: u32,
}

/// Whether a missing directory or identity is made, or is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartMode {
    /// The partition is being created.
    Fresh,
    /// The partition was complete before: a missing directory is lost or not mounted.
    Existing,
}

/// Why a directory cannot be used; each prints as one line with found and expected values.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It belongs to another partition.
    #[error("{} belongs to partition '{found_name}' ({found}), not to '{wanted_name}' ({wanted}): use another directory, or `pario down --destroy {found_name}` first", .dir.display())]
    Foreign {
        /// Which directory.
        dir: PathBuf,
        /// Its partition.
        found: PartitionId,
        /// Its partition's name.
        found_name: String,
        /// The expected partition.
        wanted: PartitionId,
        /// The expected partition's name.
        wanted_name: String,
    },
    /// It belongs to this partition, with other parameters.
    #[error("{} was made with {what} {found}, but is wanted with {what} {wanted}: put `servers` back in the order of creation, and settings as they were", .dir.display())]
    Other {
        /// Which directory.
        dir: PathBuf,
        /// Server, servers, stripe, store, role or name.
        what: &'static str,
        /// In the identity.
        found: String,
        /// As wanted.
        wanted: String,
    },
    /// Made by another version.
    #[error("{} has storage format {found}, this version of Pario knows {STORAGE_FORMAT}: use the version that made it", .dir.display())]
    Format {
        /// Which directory.
        dir: PathBuf,
        /// Its format.
        found: i64,
    },
    /// Its identity cannot be parsed.
    #[error("{}: its identity file is damaged ({reason}): restore it from another copy, or move the directory away", .dir.display())]
    Damaged {
        /// Which directory.
        dir: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It is missing.
    #[error("{} has lost partition '{name}' (server {server}): {what} is missing; is its disk mounted?", .dir.display())]
    Missing {
        /// Which directory.
        dir: PathBuf,
        /// Of which partition.
        name: String,
        /// Of which server.
        server: ServerIndex,
        /// The directory, or the identity in it.
        what: &'static str,
    },
    /// Data of a partition without an identity.
    #[error("{} has '{what}' in it but no identity: it may hold the data of a partition; move it away, or use another directory", .dir.display())]
    Remains {
        /// Which directory.
        dir: PathBuf,
        /// What was found.
        what: &'static str,
    },
    /// It is a file.
    #[error("{} is not a directory", .dir.display())]
    NotDirectory {
        /// Which path.
        dir: PathBuf,
    },
    /// Another user owns it, or could change it.
    #[error(transparent)]
    NotOwn(OwnError),
    /// It cannot be written.
    #[error("{} cannot be written: {source}", .dir.display())]
    NotWritable {
        /// Which directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another server uses it.
    #[error("{} is being served{}: take that partition down first", .dir.display(), by(.pid))]
    Served {
        /// Which directory.
        dir: PathBuf,
        /// The server's process.
        pid: Option<u32>,
    },
    /// A server of another registry's partition uses it.
    #[error("{} is being served by process {pid} for registry {} on {host}: use that registry (PARIO_REGISTRY), or take the partition down there", .dir.display(), .registry.display())]
    Elsewhere {
        /// Which directory.
        dir: PathBuf,
        /// The server's process.
        pid: u32,
        /// Host of that registry.
        host: String,
        /// That registry.
        registry: PathBuf,
    },
    /// The operating system failed otherwise.
    #[error("{}: {doing}: {source}", .dir.display())]
    Io {
        /// Which directory.
        dir: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
}

fn by(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl IdentityError {
    /// The identity found in the directory if the names agree: for [`super::claim::Birth::Found`].
    #[must_use]
    pub fn found(&self) -> Option<PartitionId> {
        let IdentityError::Foreign { found, found_name, wanted_name, .. } = self else { return None };
        (found_name == wanted_name).then_some(*found)
    }
}

/// A storage directory held by this process: identity checked, lock held until drop.
#[derive(Debug)]
pub struct HeldDirectory {
    /// Which directory.
    pub dir: PathBuf,
    /// What it is.
    pub identity: Identity,
    /// Whether the identity was just written.
    pub created: bool,
    /// The directory as checked: its files are opened through this descriptor.
    pub(crate) opened: Arc<Dir>,
    pub(super) lock: FileLock,
}

impl Identity {
    /// The expected identity of server `server` of a partition.
    ///
    /// # Panics
    /// If the partition has more than 1024 servers; [`Settings`] excludes that.
    #[must_use]
    pub fn wanted(
        settings: &Settings,
        partition: PartitionId,
        server: ServerIndex,
        role: DirectoryRole,
    ) -> Identity {
        Identity {
            format: STORAGE_FORMAT,
            partition,
            name: settings.name.clone(),
            role,
            server,
            servers: u16::try_from(settings.servers.len()).expect("at most 1024 servers"),
            stripe: settings.stripe,
            store: settings.store.to_string(),
            created_unix_s: unix_s(),
            made_directories: 0,
        }
    }

    /// The identity of a directory; `None` if it has none, or is missing.
    ///
    /// # Errors
    /// [`IdentityError`] if it cannot be read or parsed, or the directory does not belong to the user.
    pub fn read(dir: &Path) -> Result<Option<Identity>, IdentityError> {
        match open_own(dir, Missing::Refuse) {
            Ok(owned) => Identity::read_in(&owned.dir),
            Err(error) if error.io().is_some_and(|error| error.kind() == io::ErrorKind::NotFound) => Ok(None),
            Err(error) => Err(not_own(dir, error)),
        }
    }

    /// The same of a directory that is open.
    pub(super) fn read_in(opened: &Dir) -> Result<Option<Identity>, IdentityError> {
        let dir = opened.path();
        let text = disk::read(opened, OsStr::new(IDENTITY_FILE), IDENTITY_BYTES_MAX);
        let text = match text.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(IdentityError::Io {
                    dir: dir.to_owned(),
                    doing: "cannot read its identity",
                    source,
                });
            }
        };
        let damaged = |reason: String| IdentityError::Damaged { dir: dir.to_owned(), reason };
        let complaint = |error: toml::de::Error| damaged(error.message().trim().replace('\n', "; "));
        let table: toml::Table = text.parse().map_err(complaint)?;
        let format = table.get("format").and_then(toml::Value::as_integer);
        let found = format.ok_or_else(|| damaged("it has no format number".to_owned()))?;
        if found != i64::from(STORAGE_FORMAT) {
            return Err(IdentityError::Format { dir: dir.to_owned(), found });
        }
        toml::from_str(&text).map(Some).map_err(complaint)
    }

    /// Holds a directory: makes it if `mode` allows, locks it, writes or checks its identity.
    ///
    /// # Errors
    /// [`IdentityError`]; a directory that was made for it is removed again.
    pub fn hold(self, dir: &Path, mode: StartMode) -> Result<HeldDirectory, IdentityError> {
        let OwnedDir { dir: opened, made } = self.prepare(dir, mode)?;
        let made = made.max(self.made_directories);
        let held = self.hold_prepared(opened, mode, made);
        if held.is_err() {
            remove_made(dir, made);
        }
        held
    }

    /// Makes or checks the directory and its owner.
    fn prepare(&self, dir: &Path, mode: StartMode) -> Result<OwnedDir, IdentityError> {
        let missing = match mode {
            StartMode::Fresh => Missing::Make,
            StartMode::Existing => Missing::Refuse,
        };
        open_own(dir, missing).map_err(|error| match error.io().map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) if mode == StartMode::Existing => {
                self.missing(dir, "the directory")
            }
            Some(_) | None => not_own(dir, error),
        })
    }

    fn hold_prepared(self, opened: Dir, mode: StartMode, made: u32) -> Result<HeldDirectory, IdentityError> {
        let dir = opened.path().to_owned();
        let lock = lock(&opened)?;
        let (identity, created) = match Identity::read_in(&opened)? {
            Some(found) => {
                self.check(&found, &dir)?;
                (found, false)
            }
            None if mode == StartMode::Existing => {
                let _ = opened.remove_file(Path::new(LOCK_FILE));
                return Err(self.missing(&dir, "its identity"));
            }
            None => {
                let identity = Identity { made_directories: made, ..self };
                identity.write(&opened)?;
                (identity, true)
            }
        };
        Ok(HeldDirectory { dir, identity, created, opened: Arc::new(opened), lock })
    }

    fn missing(&self, dir: &Path, what: &'static str) -> IdentityError {
        IdentityError::Missing { dir: dir.to_owned(), name: self.name.clone(), server: self.server, what }
    }

    fn check(&self, found: &Identity, dir: &Path) -> Result<(), IdentityError> {
        if found.partition != self.partition {
            return Err(IdentityError::Foreign {
                dir: dir.to_owned(),
                found: found.partition,
                found_name: found.name.clone(),
                wanted: self.partition,
                wanted_name: self.name.clone(),
            });
        }
        let pairs = [
            ("role", found.role.to_string(), self.role.to_string()),
            ("server", found.server.to_string(), self.server.to_string()),
            ("number of servers", found.servers.to_string(), self.servers.to_string()),
            ("stripe", found.stripe.to_string(), self.stripe.to_string()),
            ("store", found.store.clone(), self.store.clone()),
            ("name", found.name.clone(), self.name.clone()),
        ];
        match pairs.into_iter().find(|(_, found, wanted)| found != wanted) {
            Some((what, found, wanted)) => {
                Err(IdentityError::Other { dir: dir.to_owned(), what, found, wanted })
            }
            None => Ok(()),
        }
    }

    fn write(&self, opened: &Dir) -> Result<(), IdentityError> {
        let dir = opened.path();
        let failed = |source| cannot_write(dir, source);
        for what in CONTENTS {
            if opened.stat(Path::new(what)).map_err(failed)?.is_some() {
                let _ = opened.remove_file(Path::new(LOCK_FILE));
                return Err(IdentityError::Remains { dir: dir.to_owned(), what });
            }
        }
        let text = toml::to_string(self).map_err(|error| failed(io::Error::other(error)))?;
        let text = format!("# This directory belongs to a Pario partition. Do not edit.\n{text}");
        disk::write_atomically(opened, OsStr::new(IDENTITY_FILE), text.as_bytes())
            .map_err(|error| not_own(dir, error))?;
        // The directories made for it must also survive a power failure.
        let above = dir.ancestors().take(self.made_directories as usize);
        above.map(disk::sync_directory_of).collect::<io::Result<Vec<()>>>().map(drop).map_err(failed)
    }
}

/// Time limit for a killed server to exit: its threads may be in disk I/O.
const DYING_MS_MAX: u64 = 5000;

/// Locks a directory for this process. Waits for a holder that is killed but has not yet exited.
pub(super) fn lock(opened: &Dir) -> Result<FileLock, IdentityError> {
    let dir = opened.path();
    let began = MonotonicClock.now();
    loop {
        let pid = match disk::try_lock(opened, OsStr::new(LOCK_FILE)).map_err(|error| not_own(dir, error))? {
            Attempt::Locked(lock) => return Ok(lock),
            Attempt::Held(pid) => pid,
        };
        let dying = pid.is_some_and(|pid| start_ticks(pid).is_none());
        if !dying || began.plus_ms(DYING_MS_MAX) <= MonotonicClock.now() {
            return Err(IdentityError::Served { dir: dir.to_owned(), pid });
        }
        let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        // An empty `poll` sleeps.
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

fn cannot_write(dir: &Path, source: io::Error) -> IdentityError {
    if source.kind() == io::ErrorKind::NotADirectory {
        return IdentityError::NotDirectory { dir: dir.to_owned() };
    }
    IdentityError::NotWritable { dir: dir.to_owned(), source }
}

/// A directory that could not be opened as the user's.
pub(super) fn not_own(dir: &Path, error: OwnError) -> IdentityError {
    match error {
        OwnError::Io { source, .. } => cannot_write(dir, source),
        refused @ (OwnError::Owner { .. }
        | OwnError::Writable { .. }
        | OwnError::Link { .. }
        | OwnError::File { .. }) => IdentityError::NotOwn(refused),
    }
}

/// Removes made directories that are empty except for a lock file.
fn remove_made(dir: &Path, made: u32) {
    if made == 0 {
        return;
    }
    let _ = fs::remove_file(dir.join(LOCK_FILE));
    for dir in dir.ancestors().take(made as usize) {
        if fs::remove_dir(dir).is_err() {
            break;
        }
    }
}

/// Number of directories that making `dir` would create.
#[must_use]
pub fn count_missing(dir: &Path) -> u32 {
    let missing =
        dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && fs::symlink_metadata(dir).is_err());
    u32::try_from(missing.count()).unwrap_or(0)
}

/// The identity that a partition's directories on this machine already have under its name: its registry entry was lost.
///
/// # Errors
/// [`IdentityError`] if an identity cannot be read.
pub fn find_existing(settings: &Settings) -> Result<Option<PartitionId>, IdentityError> {
    for server in settings.servers.iter().filter(|server| server.is_local()) {
        if let Some(identity) = Identity::read(&server.dir)?.filter(|identity| identity.name == settings.name)
        {
            return Ok(Some(identity.partition));
        }
    }
    Ok(None)
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
