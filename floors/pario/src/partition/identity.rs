//! The identity that each storage directory carries, and the lock that keeps a second server out of it.
//!
//! Never: takes a directory that holds something of another partition, another server or another format. Always: the
//! lock is taken before the identity is read or written, and held for the server's life. Layout: docs/formats/registry.md,
//! section "Identity".

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use pario_core::{Clock, PartitionId, ServerIndex, Size};
use pario_sys::clock::MonotonicClock;
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
/// File in which a server leaves to its successor what it put down ahead of clients that are not back.
pub const AHEAD_FILE: &str = "ahead";
/// What a server puts into its directory besides these.
pub const CONTENTS: [&str; 5] = ["objects", "names", "log", "socket", AHEAD_FILE];

/// What a directory is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// A server's storage directory.
    Store,
    /// The directory of names and inodes, where it is not within the first server's.
    Names,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Store => "store",
            Role::Names => "names",
        })
    }
}

/// What a directory says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// Layout of the directory.
    pub format: u32,
    /// The partition.
    pub partition: PartitionId,
    /// Its name.
    pub name: String,
    /// What the directory is for.
    pub role: Role,
    /// Which server's it is.
    pub server: ServerIndex,
    /// How many servers the partition has.
    pub servers: u16,
    /// Bytes of a block.
    pub stripe: Size,
    /// What the server stands on.
    pub store: String,
    /// When it was made, in seconds since 1970.
    pub created_unix_s: u64,
    /// How many directories were made for it, itself first, then those above it; so many go with it if they are empty.
    /// Servers that start at once share directories above; whoever starts them counts before (see [`count_missing`]) and
    /// puts the number into what is wanted, so that whoever is removed last takes them along.
    pub made_directories: u32,
}

/// Whether a missing directory or identity is made, or is an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StartMode {
    /// The partition is being created.
    Fresh,
    /// The partition was complete once: what is missing is lost or not mounted.
    Existing,
}

/// Why a directory cannot be used; each prints as one line that names both sides.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// It belongs to another partition.
    #[error("{} belongs to partition '{found_name}' ({found}), not to '{wanted_name}' ({wanted}): use another directory, or `pario down --destroy {found_name}` first", .dir.display())]
    Foreign {
        /// Which directory.
        dir: PathBuf,
        /// Whose it is.
        found: PartitionId,
        /// Whose it is, by name.
        found_name: String,
        /// For whom it was wanted.
        wanted: PartitionId,
        /// For whom, by name.
        wanted_name: String,
    },
    /// It is this partition's, but for something else.
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
    /// Another version made it.
    #[error("{} has storage format {found}, this version of Pario knows {STORAGE_FORMAT}: use the version that made it", .dir.display())]
    Format {
        /// Which directory.
        dir: PathBuf,
        /// Its format.
        found: i64,
    },
    /// Its identity cannot be understood.
    #[error("{}: its identity file is damaged ({reason}): restore it from another copy, or move the directory away", .dir.display())]
    Damaged {
        /// Which directory.
        dir: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// It should be there and is not.
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
    /// It cannot be written.
    #[error("{} cannot be written: {source}", .dir.display())]
    NotWritable {
        /// Which directory.
        dir: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another server has it.
    #[error("{} is being served{}: take that partition down first", .dir.display(), by(.pid))]
    Served {
        /// Which directory.
        dir: PathBuf,
        /// By whom.
        pid: Option<u32>,
    },
    /// The operating system failed otherwise.
    #[error("{}: {doing}: {source}", .dir.display())]
    Io {
        /// Which directory.
        dir: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why not.
        source: io::Error,
    },
}

fn by(pid: &Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

impl IdentityError {
    /// The identity that the directory has instead, where the names agree: what [`super::claim::Birth::Found`] takes.
    #[must_use]
    pub fn found(&self) -> Option<PartitionId> {
        let IdentityError::Foreign { found, found_name, wanted_name, .. } = self else { return None };
        (found_name == wanted_name).then_some(*found)
    }
}

/// A storage directory that is this process's: identity checked, lock held until this value is dropped.
#[derive(Debug)]
pub struct Hold {
    /// Which directory.
    pub dir: PathBuf,
    /// What it is.
    pub identity: Identity,
    /// Whether the identity was written just now.
    pub created: bool,
    pub(super) lock: FileLock,
}

impl Identity {
    /// What server `server` of a partition expects to find.
    ///
    /// # Panics
    /// If the partition has more servers than any can have; [`Settings`] cannot say so.
    #[must_use]
    pub fn wanted(settings: &Settings, partition: PartitionId, server: ServerIndex, role: Role) -> Identity {
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

    /// The identity of a directory; `None` if it has none, or is not there.
    ///
    /// # Errors
    /// [`IdentityError`] if it cannot be read or understood.
    pub fn read(dir: &Path) -> Result<Option<Identity>, IdentityError> {
        let text = match fs::read_to_string(dir.join(IDENTITY_FILE)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(IdentityError::NotDirectory { dir: dir.to_owned() });
            }
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

    /// Makes a directory this process's: makes it if `mode` allows, locks it, writes or checks its identity.
    ///
    /// # Errors
    /// [`IdentityError`]; a directory that was made for it is removed again.
    pub fn hold(self, dir: &Path, mode: StartMode) -> Result<Hold, IdentityError> {
        let made = self.prepare(dir, mode)?.max(self.made_directories);
        let held = self.hold_prepared(dir, mode, made);
        if held.is_err() {
            remove_made(dir, made);
        }
        held
    }

    /// Sees that there is a directory; returns how many were made.
    fn prepare(&self, dir: &Path, mode: StartMode) -> Result<u32, IdentityError> {
        match fs::metadata(dir) {
            Ok(metadata) if !metadata.is_dir() => Err(IdentityError::NotDirectory { dir: dir.to_owned() }),
            Ok(_) => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::NotFound && mode == StartMode::Existing => {
                Err(self.missing(dir, "the directory"))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                disk::make_directories(dir).map_err(|source| cannot_write(dir, source))
            }
            Err(error) => Err(cannot_write(dir, error)),
        }
    }

    fn hold_prepared(self, dir: &Path, mode: StartMode, made: u32) -> Result<Hold, IdentityError> {
        let lock = lock(dir)?;
        let held = match Identity::read(dir)? {
            Some(found) => {
                self.check(&found, dir)?;
                Hold { dir: dir.to_owned(), identity: found, created: false, lock }
            }
            None if mode == StartMode::Existing => {
                let _ = fs::remove_file(dir.join(LOCK_FILE));
                return Err(self.missing(dir, "its identity"));
            }
            None => {
                let identity = Identity { made_directories: made, ..self };
                identity.write(dir)?;
                Hold { dir: dir.to_owned(), identity, created: true, lock }
            }
        };
        Ok(held)
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

    fn write(&self, dir: &Path) -> Result<(), IdentityError> {
        if let Some(what) = CONTENTS.into_iter().find(|name| dir.join(name).symlink_metadata().is_ok()) {
            let _ = fs::remove_file(dir.join(LOCK_FILE));
            return Err(IdentityError::Remains { dir: dir.to_owned(), what });
        }
        let failed = |source| cannot_write(dir, source);
        let text = toml::to_string(self).map_err(|error| failed(io::Error::other(error)))?;
        let text = format!("# This directory belongs to a Pario partition. Do not edit.\n{text}");
        disk::write_atomically(&dir.join(IDENTITY_FILE), text.as_bytes()).map_err(failed)?;
        // The directories made for it must survive a power cut as well.
        let above = dir.ancestors().take(self.made_directories as usize);
        above.map(disk::sync_directory_of).collect::<io::Result<Vec<()>>>().map(drop).map_err(failed)
    }
}

/// How long a server that was killed may take to go: its threads may be inside the disk.
const DYING_MS_MAX: u64 = 5000;

/// Locks a directory for this process. A holder that is already dead, but not yet gone, is waited for.
pub(super) fn lock(dir: &Path) -> Result<FileLock, IdentityError> {
    let began = MonotonicClock.now();
    loop {
        let pid = match disk::try_lock(&dir.join(LOCK_FILE)).map_err(|source| cannot_write(dir, source))? {
            Attempt::Locked(lock) => return Ok(lock),
            Attempt::Held(pid) => pid,
        };
        let dying = pid.is_some_and(|pid| start_ticks(pid).is_none());
        if !dying || began.plus_ms(DYING_MS_MAX) <= MonotonicClock.now() {
            return Err(IdentityError::Served { dir: dir.to_owned(), pid });
        }
        let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
        // An empty poll is a pause.
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

fn cannot_write(dir: &Path, source: io::Error) -> IdentityError {
    if source.kind() == io::ErrorKind::NotADirectory {
        return IdentityError::NotDirectory { dir: dir.to_owned() };
    }
    IdentityError::NotWritable { dir: dir.to_owned(), source }
}

/// Removes directories that were made and hold nothing but a lock file.
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

/// How many directories making `dir` would make.
#[must_use]
pub fn count_missing(dir: &Path) -> u32 {
    let missing =
        dir.ancestors().take_while(|dir| !dir.as_os_str().is_empty() && fs::symlink_metadata(dir).is_err());
    u32::try_from(missing.count()).unwrap_or(0)
}

/// The identity that a partition's directories on this machine already carry under its name: its registry entry was lost.
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
