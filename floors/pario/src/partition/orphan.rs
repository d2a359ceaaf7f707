//! Servers missing from the registry: their entry was lost while they ran. The server started in their place ends them in order first.
//!
//! Never: ends a process of another user, one that does not hold the directory, or a server of another registry's partition.
//! Always: the process is held by a pidfd from the first check on, so that its number cannot be reused.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pario_sys::dir::{Dir, Missing, OwnError, PRIVATE_FILE, open_own};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::process::{Pid, PidfdFlags, Signal};

use super::disk::{self, Deadline};
use super::identity::{HeldDirectory, Identity, IdentityError, LOCK_FILE, REGISTERED_FILE, not_own};
use super::protocol::{RegistryRecord, ServeSpec};

/// Time limit for an orphan to flush and end; below the limit of a start.
const END_LIMIT: Duration = Duration::from_secs(15);
/// Largest note: a host and a path.
const REGISTERED_BYTES_MAX: u64 = 16 << 10;

/// As [`ServeSpec::hold_directories`], after ending an orphan that holds them. Then records the registry.
/// # Errors
/// [`IdentityError`], also [`IdentityError::Elsewhere`] for a server that is no orphan.
pub(crate) fn hold_directories(spec: &ServeSpec) -> Result<Vec<HeldDirectory>, IdentityError> {
    let holds = match spec.hold_directories() {
        Err(IdentityError::Served { dir, pid: Some(pid) }) if spec.registered.anew => {
            end(spec, &dir, pid)?;
            spec.hold_directories()?
        }
        other => other?,
    };
    if let Err(error) = note(&holds[0].opened, &spec.registered) {
        // For example on a full disk: the server must start anyway; only its own registry can end it then.
        tracing::warn!(%error, "cannot note the registry in {}", spec.dir.display());
    }
    Ok(holds)
}

/// Records the registry in a held directory. Valid for the server's lifetime only: not synced.
fn note(dir: &Dir, registered: &RegistryRecord) -> Result<(), OwnError> {
    let name = Path::new(REGISTERED_FILE);
    dir.remove_own_file(name)?;
    let text = format!("{}\n{}\n", registered.host, registered.path.display());
    let mut file = dir.open_own_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, PRIVATE_FILE)?;
    file.write_all(text.as_bytes()).map_err(|source| OwnError::Io { path: dir.path().join(name), source })
}

/// The registry recorded by the server of a directory: host and file.
fn noted(dir: &Dir) -> Option<(String, PathBuf)> {
    let bytes = disk::read(dir, OsStr::new(REGISTERED_FILE), REGISTERED_BYTES_MAX).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    Some((lines.next()?.to_owned(), lines.next()?.into()))
}

fn end(spec: &ServeSpec, dir: &Path, pid: u32) -> Result<(), IdentityError> {
    let served = || IdentityError::Served { dir: dir.to_owned(), pid: Some(pid) };
    let open_dir = |dir: &Path| open_own(dir, Missing::Refuse).map_err(|error| not_own(dir, error));
    let (store, locked) = (open_dir(&spec.dir)?.dir, open_dir(dir)?.dir);
    let noted = noted(&store).ok_or_else(served)?;
    if noted != (spec.registered.host.clone(), spec.registered.path.clone()) {
        return Err(IdentityError::Elsewhere { dir: dir.to_owned(), pid, host: noted.0, registry: noted.1 });
    }
    let same = Identity::read_in(&store)?.is_some_and(|identity| identity.partition == spec.id);
    let process = open(pid).filter(|_| same && is_own(pid) && has_open(pid, &locked, LOCK_FILE));
    let process = process.ok_or_else(served)?;
    tracing::warn!("process {pid} serves {} for a registry that lost it, and is ended", dir.display());
    let failed = |source: rustix::io::Errno| IdentityError::Io {
        dir: dir.to_owned(),
        doing: "cannot end the server that has it",
        source: source.into(),
    };
    rustix::process::pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
    if wait(&process) { Ok(()) } else { Err(served()) }
}

fn open(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn is_own(pid: u32) -> bool {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|metadata| metadata.uid());
    owner.is_ok_and(|owner| owner == rustix::process::geteuid().as_raw())
}

/// Whether a process has the lock file open, and so could hold the lock.
fn has_open(pid: u32, dir: &Dir, name: &str) -> bool {
    let Ok(Some(wanted)) = dir.stat(Path::new(name)) else { return false };
    let same = |path: PathBuf| {
        fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (wanted.st_dev, wanted.st_ino))
    };
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| same(entry.path()))
}

/// Waits until a process has ended; `false` on timeout.
fn wait(process: &OwnedFd) -> bool {
    let end = Deadline::after(END_LIMIT);
    while !end.has_passed() {
        let mut gone = [PollFd::new(process, PollFlags::IN)];
        if rustix::event::poll(&mut gone, Some(&end.left())).is_ok_and(|count| 0 < count) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_link_in_place_of_the_note_is_replaced_and_never_followed() {
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let (victim, planted) = (root.path().join("victim"), root.path().join(REGISTERED_FILE));
        fs::write(&victim, "here\n/registry\n").unwrap();
        symlink(&victim, &planted).unwrap();
        assert_eq!(noted(&dir), None, "what a link leads to is no note");
        let registered = RegistryRecord { host: "there".into(), path: "/tmp/registry".into(), anew: false };
        note(&dir, &registered).unwrap();
        assert_eq!(noted(&dir), Some(("there".into(), "/tmp/registry".into())));
        assert!(fs::symlink_metadata(&planted).unwrap().is_file());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "here\n/registry\n");
    }
}
