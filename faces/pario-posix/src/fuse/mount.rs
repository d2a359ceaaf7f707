//! Mounting and unmounting: by the system call as root, else through `fusermount3`.
//!
//! Always: what cannot work is refused before the mount, with the cure.

use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use pario::Partition;
use pario::core::InodeId;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use super::encode::DATA_BYTES_MAX;
use super::session::FuseSession;
use crate::semantics::FileSystem;

const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";
/// Type of the file system in `/proc/mounts`.
const TYPE: &str = "fuse.pario";
/// Attribute of the root with the process that serves the mount.
const PROCESS_XATTR: &str = "user.pario.process";

/// Options of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MountOptions {
    /// Users other than the one that mounts may use it.
    pub allow_other: bool,
    /// The directory may have entries; they are hidden while it is mounted.
    pub nonempty: bool,
}

/// When an unmount ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// Fails while files are open.
    Now,
    /// Detaches the directory immediately; the mount ends with its last open file.
    Lazy,
}

/// A mount that failed.
#[derive(Debug)]
#[expect(missing_docs, reason = "the texts are below")]
pub enum MountError {
    NoDevice,
    NotAllowed { error: io::Error },
    NoHelper,
    Helper { text: String },
    Missing { dir: PathBuf },
    NotDirectory { dir: PathBuf },
    NotEmpty { dir: PathBuf },
    Mounted { dir: PathBuf },
    Dead { dir: PathBuf },
    NotMounted { dir: PathBuf },
    Busy { dir: PathBuf },
    Partition { text: String },
    Io { doing: String, error: io::Error },
}

impl std::fmt::Display for MountError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MountError::NoDevice => {
                write!(f, "{DEVICE} is missing: the kernel has no FUSE (as root: `modprobe fuse`)")
            }
            MountError::NotAllowed { error } => {
                write!(f, "{DEVICE}: {error} (as root: `chmod 666 {DEVICE}`, or mount as root)")
            }
            MountError::NoHelper => {
                write!(
                    f,
                    "{HELPER} is missing, and only root mounts without it (package fuse3, or mount as root)"
                )
            }
            MountError::Helper { text } => write!(f, "{text}"),
            MountError::Missing { dir } => {
                write!(f, "{0}: no such directory (`mkdir {0}` makes it)", dir.display())
            }
            MountError::NotDirectory { dir } => write!(f, "{}: is not a directory", dir.display()),
            MountError::NotEmpty { dir } => {
                write!(
                    f,
                    "{}: is not empty (choose an empty directory, or hide what is in it by `pario mount --nonempty`)",
                    dir.display()
                )
            }
            MountError::Mounted { dir } => {
                write!(f, "{0}: is a mount already (`pario umount {0}` ends a mount of Pario)", dir.display())
            }
            MountError::Dead { dir } => {
                write!(
                    f,
                    "{0}: the process of this mount is gone (`pario umount {0}` clears it away)",
                    dir.display()
                )
            }
            MountError::NotMounted { dir } => write!(f, "{}: is not a mount of Pario", dir.display()),
            MountError::Busy { dir } => {
                write!(
                    f,
                    "{0}: files are open or processes are in it (end them, or `pario umount -l {0}` detaches it at once)",
                    dir.display()
                )
            }
            MountError::Partition { text } => write!(f, "{text}"),
            MountError::Io { doing, error } => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for MountError {}

/// A mounted partition; served until it is unmounted.
#[derive(Debug)]
pub struct Mount {
    dir: PathBuf,
    session: Arc<FuseSession>,
}

impl Mount {
    /// Mounts a partition in a directory and serves it with threads of this process.
    pub fn new(partition: &Partition, dir: &Path, options: MountOptions) -> Result<Mount, MountError> {
        check_directory(dir, options)?;
        let dir = fs::canonicalize(dir)
            .map_err(|error| MountError::Io { doing: dir.display().to_string(), error })?;
        let system = FileSystem::new(partition, &format!("mount {}", dir.display()));
        system.attributes(InodeId::ROOT).map_err(|error| MountError::Partition {
            text: format!(
                "partition '{0}' does not answer: {error} (`pario status {0}` shows its servers)",
                partition.name()
            ),
        })?;
        let device = if rustix::process::geteuid().is_root() {
            mount_directly(partition.name(), &dir, options)?
        } else {
            mount_by_helper(partition.name(), &dir, options)?
        };
        let session = FuseSession::start(device, system).map_err(|error| {
            // Without a thread that answers, nothing could be read from the directory.
            let _ = unmount(&dir, Unmount::Lazy);
            MountError::Io { doing: "starting a thread for the mount".to_owned(), error }
        })?;
        Ok(Mount { dir, session })
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts; [`Mount::wait`] then returns.
    pub fn unmount(&self, how: Unmount) -> Result<(), MountError> {
        unmount(&self.dir, how)
    }

    /// Waits until it is unmounted, and closes what is open. Returns the number of files that lost writes.
    #[must_use]
    pub fn wait(&self) -> usize {
        self.session.wait();
        self.session.system().shut_down()
    }
}

fn check_directory(dir: &Path, options: MountOptions) -> Result<(), MountError> {
    let owned = || dir.to_owned();
    let facts = match fs::metadata(dir) {
        Ok(facts) => facts,
        Err(error) => {
            return Err(match Errno::from_io_error(&error) {
                Some(Errno::NOENT) => MountError::Missing { dir: owned() },
                Some(Errno::NOTCONN) => MountError::Dead { dir: owned() },
                _ => MountError::Io { doing: dir.display().to_string(), error },
            });
        }
    };
    if !facts.is_dir() {
        return Err(MountError::NotDirectory { dir: owned() });
    }
    if mounted_at(dir).is_some() || fs::metadata(dir.join("..")).is_ok_and(|above| above.dev() != facts.dev())
    {
        return Err(MountError::Mounted { dir: owned() });
    }
    let mut entries =
        fs::read_dir(dir).map_err(|error| MountError::Io { doing: dir.display().to_string(), error })?;
    if !options.nonempty && entries.next().is_some() {
        return Err(MountError::NotEmpty { dir: owned() });
    }
    Ok(())
}

fn mount_directly(name: &str, dir: &Path, options: MountOptions) -> Result<File, MountError> {
    let device = File::options().read(true).write(true).open(DEVICE).map_err(|error| {
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => MountError::NoDevice,
            _ => MountError::NotAllowed { error },
        }
    })?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let allow = if options.allow_other { ",allow_other" } else { "" };
    let data = format!(
        "fd={},rootmode=40000,user_id={uid},group_id={gid},default_permissions,max_read={DATA_BYTES_MAX}{allow}",
        device.as_raw_fd()
    );
    let invalid =
        |error: std::ffi::NulError| MountError::Io { doing: "mounting".to_owned(), error: error.into() };
    let data = std::ffi::CString::new(data).map_err(invalid)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    rustix::mount::mount(format!("pario:{name}"), dir, TYPE, flags, Some(data.as_c_str())).map_err(
        |error| match error {
            Errno::PERM | Errno::ACCESS => MountError::NotAllowed { error: error.into() },
            _ => MountError::Io { doing: format!("mounting {}", dir.display()), error: error.into() },
        },
    )?;
    Ok(device)
}

/// The set-user-ID program `fusermount3` mounts and passes the device over a socket.
fn mount_by_helper(name: &str, dir: &Path, options: MountOptions) -> Result<File, MountError> {
    let io = |error: Errno| MountError::Io { doing: format!("mounting by {HELPER}"), error: error.into() };
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(io)?;
    // The helper inherits its end.
    rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).map_err(io)?;
    let allow = if options.allow_other { ",allow_other" } else { "" };
    let settings = format!(
        "fsname=pario:{name},subtype=pario,default_permissions,nosuid,nodev,noatime,max_read={DATA_BYTES_MAX}{allow}"
    );
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(settings).arg("--").arg(dir);
    command.env("_FUSE_COMMFD", theirs.as_raw_fd().to_string()).stdin(Stdio::null());
    let output = command.output().map_err(|error| {
        let is_missing = error.kind() == io::ErrorKind::NotFound;
        if is_missing { MountError::NoHelper } else { MountError::Io { doing: HELPER.to_owned(), error } }
    })?;
    drop(theirs);
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        let cure = if text.contains(DEVICE) { " (as root: `chmod 666 /dev/fuse`)" } else { "" };
        return Err(MountError::Helper { text: text + cure });
    }
    receive_descriptor(ours.as_fd()).map_err(io)?.map(File::from).ok_or_else(|| MountError::Helper {
        text: format!("{HELPER} passed no descriptor (package fuse3 of another version?)"),
    })
}

fn receive_descriptor(socket: BorrowedFd<'_>) -> Result<Option<OwnedFd>, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0; 1];
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut passed = control.drain().filter_map(|message| {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message { descriptors.next() } else { None }
    });
    Ok(passed.next())
}

/// Unmounts a directory that a partition is mounted in.
pub fn unmount(dir: &Path, how: Unmount) -> Result<(), MountError> {
    // The directory of a dead mount cannot be resolved; its path is taken as it is.
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    if mounted_at(&dir).is_none_or(|found| found != TYPE) {
        return Err(MountError::NotMounted { dir });
    }
    if !rustix::process::geteuid().is_root() {
        return unmount_by_helper(dir, how);
    }
    let flags = match how {
        Unmount::Now => UnmountFlags::NOFOLLOW,
        Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(&dir, flags) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(MountError::Busy { dir }),
        Err(Errno::INVAL) => Err(MountError::NotMounted { dir }),
        Err(error) => {
            Err(MountError::Io { doing: format!("unmounting {}", dir.display()), error: error.into() })
        }
    }
}

fn unmount_by_helper(dir: PathBuf, how: Unmount) -> Result<(), MountError> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args((how == Unmount::Lazy).then_some("-z")).arg("--").arg(&dir).stdin(Stdio::null());
    let output = command.output().map_err(|_| MountError::NoHelper)?;
    match String::from_utf8_lossy(&output.stderr).trim() {
        _ if output.status.success() => Ok(()),
        text if text.contains("busy") => Err(MountError::Busy { dir }),
        text => Err(MountError::Helper { text: text.replace('\n', "; ") }),
    }
}

/// The process that serves the mount in a directory, if it answers.
#[must_use]
pub fn process_of(dir: &Path) -> Option<u32> {
    let mut value = [0; 32];
    let count = rustix::fs::getxattr(dir, PROCESS_XATTR, &mut value).ok()?;
    std::str::from_utf8(value.get(..count)?).ok()?.parse().ok()
}

/// Type of the file system that is mounted in a directory, if it is a mount.
fn mounted_at(dir: &Path) -> Option<String> {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let table = fs::read("/proc/self/mountinfo").ok()?;
    let lines = table.split(|byte| *byte == b'\n');
    // The last one covers those before.
    lines.filter_map(|line| mount_of(line, &dir)).next_back()
}

/// Directories of this machine in which partitions are mounted.
#[must_use]
pub fn mounted_dirs() -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let dir = |line: &[u8]| {
        let place = unescape(line.split(|byte| *byte == b' ').nth(4)?);
        let place = PathBuf::from(std::ffi::OsString::from_vec(place));
        mount_of(line, &place).filter(|kind| kind == TYPE).map(|_| place)
    };
    table.split(|byte| *byte == b'\n').filter_map(dir).collect()
}

/// Type of the file system of a line of `mountinfo`, if it is mounted in the directory.
fn mount_of(line: &[u8], dir: &Path) -> Option<String> {
    let mut words = line.split(|byte| *byte == b' ');
    let place = unescape(words.nth(4)?);
    if Path::new(&std::ffi::OsString::from_vec(place)) != dir {
        return None;
    }
    let kind = words.skip_while(|word| *word != b"-").nth(1)?;
    Some(String::from_utf8_lossy(kind).into_owned())
}

/// Octal escapes of spaces and other characters in `mountinfo`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((byte, behind)) = rest.split_first() {
        let octal = behind
            .get(..3)
            .filter(|_| *byte == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        plain.push(octal.unwrap_or(*byte));
        rest = if octal.is_some() { behind.get(3..).unwrap_or_default() } else { behind };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_mount_table_are_read() {
        let line = br"36 35 0:39 / /tmp/a\040b rw,nosuid shared:1 - fuse.pario pario:x rw,user_id=0";
        assert_eq!(mount_of(line, Path::new("/tmp/a b")).as_deref(), Some(TYPE));
        assert_eq!(mount_of(line, Path::new("/tmp/a")), None);
        assert_eq!(mount_of(b"", Path::new("/")), None);
        assert_eq!(unescape(br"a\040b\134c\9"), b"a b\\c\\9");
        assert!(mounted_at(Path::new("/proc")).is_some_and(|kind| kind == "proc"));
    }

    #[test]
    fn directories_that_cannot_be_mounted_are_refused_with_the_cure() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |dir: &Path| check_directory(dir, MountOptions::default()).unwrap_err().to_string();
        assert!(refused(&dir.path().join("x")).contains("mkdir"));
        fs::write(dir.path().join("f"), "").unwrap();
        assert!(refused(&dir.path().join("f")).contains("not a directory"));
        assert!(refused(dir.path()).contains("--nonempty"));
        assert!(refused(Path::new("/proc")).contains("already"));
        assert!(unmount(dir.path(), Unmount::Now).unwrap_err().to_string().contains("not a mount of Pario"));
    }
}
