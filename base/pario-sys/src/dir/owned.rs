//! Directories that belong to the user: a path is walked name by name, and each directory on it is checked.
//!
//! Never: trusts a directory, or follows a symbolic link, of another user. Always: the checked directory is the opened one, since both
//! are done on one descriptor. Rules: docs/guide/security.md, section "Directories".

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::own_file::name_of;
use super::{Dir, PRIVATE_DIRECTORY, open_name};

/// Users and groups trusted with the directories above the user's own, as in `user:5000,group:5012`.
pub const TRUST_VARIABLE: &str = "PARIO_TRUST";

/// Symbolic links on one path: as many as the kernel follows.
const LINKS_MAX: u32 = 40;
/// Attempts to create a directory when its parent is removed concurrently by an ending partition.
const ATTEMPTS_MAX: u32 = 16;
const OWN_CURE: &str = "use a directory of your own";
const STICKY: u32 = 0o1000;
const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;

/// How missing directories are handled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Missing {
    /// They are made, mode 0700.
    Make,
    /// They are an error.
    Refuse,
}

/// Why a directory is not used; each prints as one line with its cure.
#[derive(Debug, thiserror::Error)]
pub enum OwnError {
    /// The directory, or one above it, belongs to another user.
    #[error("{}: belongs to user {uid} (mode {mode:04o}), not to user {me} of this process: {cure}", .path.display())]
    Owner {
        /// Which directory or link.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its permission bits.
        mode: u32,
        /// This process's user.
        me: u32,
        /// What helps.
        cure: String,
    },
    /// Other users can change its entries.
    #[error("{}: other users can write there (owner {uid}, group {gid}, mode {mode:04o}): {cure}", .path.display())]
    Writable {
        /// Which directory.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its permission bits.
        mode: u32,
        /// What helps.
        cure: String,
    },
    /// A symbolic link of another user on the path.
    #[error("{}: a symbolic link of user {uid}, not of user {me} of this process: name the directory without it", .path.display())]
    Link {
        /// The link.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// This process's user.
        me: u32,
    },
    /// The entry is a file of another user, or not a file.
    #[error("{}: {} of user {uid} (mode {mode:04o}), where a file of user {me} is expected: have it removed, or use a directory of your own", .path.display(), name_of(*.kind))]
    File {
        /// Which entry.
        path: PathBuf,
        /// What it is.
        kind: FileType,
        /// Its owner.
        uid: u32,
        /// Its permission bits.
        mode: u32,
        /// This process's user.
        me: u32,
    },
    /// The operating system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The directory on the path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

impl OwnError {
    /// The operating system's error, if it is one.
    #[must_use]
    pub fn io(&self) -> Option<&io::Error> {
        match self {
            OwnError::Io { source, .. } => Some(source),
            OwnError::Owner { .. }
            | OwnError::Writable { .. }
            | OwnError::Link { .. }
            | OwnError::File { .. } => None,
        }
    }

    /// As `io::Error`, for callers that know no other.
    #[must_use]
    pub fn into_io(self) -> io::Error {
        match self {
            OwnError::Io { source, .. } => source,
            refused @ (OwnError::Owner { .. }
            | OwnError::Writable { .. }
            | OwnError::Link { .. }
            | OwnError::File { .. }) => io::Error::new(io::ErrorKind::PermissionDenied, refused.to_string()),
        }
    }
}

/// A directory of the user.
#[derive(Debug)]
pub struct OwnedDir {
    /// The directory.
    pub dir: Dir,
    /// Directories made for it, itself included.
    pub made: u32,
}

/// Opens a directory that belongs to the user, that other users cannot write, on a path that other users cannot change.
///
/// # Errors
/// [`OwnError`].
pub fn open_own(path: &Path, missing: Missing) -> Result<OwnedDir, OwnError> {
    let user = User::own();
    let owned = open_trusted(path, missing)?;
    let found = stat(&owned.dir)?;
    let mode = found.st_mode & 0o7777;
    if found.st_uid != user.uid {
        let (uid, me, cure) = (found.st_uid, user.uid, OWN_CURE.to_owned());
        return Err(OwnError::Owner { path: path.to_owned(), uid, mode, me, cure });
    }
    if mode & (GROUP_WRITES | OTHERS_WRITE) != 0 {
        let cure = format!("chmod go-w {}, or use another directory", path.display());
        let (uid, gid) = (found.st_uid, found.st_gid);
        return Err(OwnError::Writable { path: path.to_owned(), uid, gid, mode, cure });
    }
    Ok(owned)
}

/// Opens a directory on a path that other users cannot change; the directory itself may be writable by others if it is sticky, as `/tmp`.
///
/// # Errors
/// [`OwnError`].
pub fn open_trusted(path: &Path, missing: Missing) -> Result<OwnedDir, OwnError> {
    for _ in 1..ATTEMPTS_MAX {
        match OwnedPathWalk::to_end(path, missing) {
            Err(OwnError::Io { source, .. })
                if missing == Missing::Make && source.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
    }
    OwnedPathWalk::to_end(path, missing)
}

fn stat(dir: &Dir) -> Result<Stat, OwnError> {
    rustix::fs::fstat(&dir.fd).map_err(|error| OwnError::Io { path: dir.path.clone(), source: error.into() })
}

/// The user of this process, and the users it trusts.
#[derive(Clone, Debug)]
struct User {
    uid: u32,
    gid: u32,
    /// Owner shown for root's files in a user namespace without root.
    root_seen_as: Option<u32>,
    /// Users listed in [`TRUST_VARIABLE`].
    trusted_users: Vec<u32>,
    trusted_groups: Vec<u32>,
}

impl User {
    fn own() -> User {
        let trusted = std::env::var(TRUST_VARIABLE).unwrap_or_default();
        let numbers = |kind: &str| {
            let words = trusted.split(',').filter_map(|word| word.trim().strip_prefix(kind)?.parse().ok());
            words.collect()
        };
        User {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            root_seen_as: root_seen_as(),
            trusted_users: numbers("user:"),
            trusted_groups: numbers("group:"),
        }
    }

    /// A group of the user alone has the user's own number; other groups must be listed.
    fn trusts_group(&self, found: &Stat) -> bool {
        let own = found.st_uid == self.uid && found.st_gid == self.gid && self.gid == self.uid;
        own || self.trusted_groups.contains(&found.st_gid)
    }

    /// Rejects a directory on the path that other users can write.
    fn check_writers(&self, path: &Path, found: &Stat) -> Result<(), OwnError> {
        let (uid, gid, mode) = (found.st_uid, found.st_gid, found.st_mode & 0o7777);
        let group = mode & GROUP_WRITES != 0 && !self.trusts_group(found);
        let others = mode & OTHERS_WRITE != 0;
        let cure = match (others, group) {
            (false, false) => return Ok(()),
            (true, _) => format!("chmod o-w or +t {}, or use another directory", path.display()),
            (false, true) => format!(
                "chmod g-w or +t {}, use another directory, or set {TRUST_VARIABLE}=group:{gid} if all members \
                 of that group are trusted",
                path.display()
            ),
        };
        Err(OwnError::Writable { path: path.to_owned(), uid, gid, mode, cure })
    }
}

/// In a user namespace, root's files may show the number for unmapped users.
fn root_seen_as() -> Option<u32> {
    let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
    let is_whole = map.split_whitespace().eq(["0", "0", "4294967295"]);
    let unknown = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
    if is_whole { None } else { unknown.trim().parse().ok() }
}

/// A walk from the root to a directory.
struct OwnedPathWalk {
    user: User,
    missing: Missing,
    /// Names left, the last first.
    names: Vec<OsString>,
    at: OwnedFd,
    /// Path of the current directory, without symbolic links.
    path: PathBuf,
    /// Whether the current directory is sticky: any user can create entries, only owners replace them.
    is_sticky: bool,
    links: u32,
    made: u32,
    /// A parent directory that other users can change; cleared at a sticky one, where no user can replace another user's entries.
    refusal: Option<OwnError>,
}

impl OwnedPathWalk {
    fn to_end(path: &Path, missing: Missing) -> Result<OwnedDir, OwnError> {
        let failed = |source: io::Error| OwnError::Io { path: path.to_owned(), source };
        let mut walk = OwnedPathWalk {
            user: User::own(),
            missing,
            names: Vec::new(),
            at: root().map_err(|error| failed(error.into()))?,
            path: PathBuf::from("/"),
            is_sticky: false,
            links: 0,
            made: 0,
            refusal: None,
        };
        walk.push_names(&std::path::absolute(path).map_err(failed)?);
        let walked = walk.check_here().and_then(|()| walk.walk());
        match (walk.refusal, walked) {
            // The refusal matters more than the operating system's error.
            (Some(refusal), Ok(()) | Err(OwnError::Io { .. })) => Err(refusal),
            (_, Err(error)) => Err(error),
            (None, Ok(())) => {
                let fd = readable(&walk.at).map_err(|error| failed_at(path, error))?;
                Ok(OwnedDir { dir: Dir { fd, path: path.to_owned() }, made: walk.made })
            }
        }
    }

    fn push_names(&mut self, path: &Path) {
        let names = path.components().rev().filter_map(|part| match part {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        });
        self.names.extend(names);
    }

    fn walk(&mut self) -> Result<(), OwnError> {
        while let Some(name) = self.names.pop() {
            if name == ".." {
                let above = self.path.parent().unwrap_or(Path::new("/")).to_owned();
                self.begin_again(&above)?;
            } else {
                self.step(&name)?;
            }
        }
        Ok(())
    }

    /// Returns to the root with this path before the names left: the full path is checked again.
    fn begin_again(&mut self, path: &Path) -> Result<(), OwnError> {
        self.push_names(path);
        self.at = root().map_err(|error| failed_at(path, error))?;
        self.path = PathBuf::from("/");
        self.is_sticky = false;
        self.refusal = None;
        self.check_here()
    }

    /// Checks the current directory.
    fn check_here(&mut self) -> Result<(), OwnError> {
        let found = rustix::fs::fstat(&self.at).map_err(|error| failed_at(&self.path, error))?;
        let in_sticky = std::mem::replace(&mut self.is_sticky, found.st_mode & STICKY != 0);
        if !self.trusts_owner(found.st_uid, in_sticky) {
            let (uid, me, mode) = (found.st_uid, self.user.uid, found.st_mode & 0o7777);
            // In a sticky directory, a foreign entry is more likely an attack than an administrator's.
            let cure = match in_sticky {
                true => OWN_CURE.to_owned(),
                false => format!("{OWN_CURE}, or set {TRUST_VARIABLE}=user:{uid} if that user is trusted"),
            };
            self.refusal.get_or_insert(OwnError::Owner { path: self.path.clone(), uid, mode, me, cure });
        } else if self.is_sticky {
            self.refusal = None;
        } else if let Err(refusal) = self.user.check_writers(&self.path, &found) {
            self.refusal.get_or_insert(refusal);
        }
        Ok(())
    }

    /// In a sticky directory, an entry of an unknown user is not treated as root's.
    fn trusts_owner(&self, uid: u32, in_sticky: bool) -> bool {
        let is_trusted = uid == self.user.uid || uid == 0 || self.user.trusted_users.contains(&uid);
        is_trusted || (!in_sticky && Some(uid) == self.user.root_seen_as)
    }

    fn step(&mut self, name: &OsStr) -> Result<(), OwnError> {
        let path = self.path.join(name);
        match rustix::fs::statat(&self.at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::Symlink => {
                return self.follow(name, &path, found.st_uid);
            }
            Err(Errno::NOENT) if self.missing == Missing::Make => self.make(name, &path)?,
            Ok(_) | Err(_) => {}
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = open_name(self.at.as_fd(), name, flags, Mode::empty());
        self.at = next.map_err(|error| failed_at(&path, error))?;
        self.path = path;
        self.check_here()
    }

    /// Creates a missing directory, unless other users could replace it.
    fn make(&mut self, name: &OsStr, path: &Path) -> Result<(), OwnError> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        match rustix::fs::mkdirat(&self.at, name, Mode::from_raw_mode(PRIVATE_DIRECTORY)) {
            // Servers that start concurrently create their common parent directories together.
            Ok(()) | Err(Errno::EXIST) => self.made += 1,
            Err(error) => return Err(failed_at(path, error)),
        }
        Ok(())
    }

    /// Follows a link of the user or root, in a directory that other users cannot change.
    fn follow(&mut self, name: &OsStr, path: &Path, uid: u32) -> Result<(), OwnError> {
        if let Some(refusal) = self.refusal.take() {
            return Err(refusal);
        }
        if !self.trusts_owner(uid, self.is_sticky) {
            return Err(OwnError::Link { path: path.to_owned(), uid, me: self.user.uid });
        }
        self.links += 1;
        if LINKS_MAX < self.links {
            return Err(failed_at(path, Errno::LOOP));
        }
        let target = rustix::fs::readlinkat(&self.at, name, Vec::new()).map_err(|e| failed_at(path, e))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        self.push_names(&target);
        if target.is_absolute() { self.begin_again(Path::new("/")) } else { Ok(()) }
    }
}

fn root() -> rustix::io::Result<OwnedFd> {
    rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The same directory, opened for listing and syncing.
fn readable(at: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(at, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

pub(super) fn failed_at(path: &Path, error: Errno) -> OwnError {
    OwnError::Io { path: path.to_owned(), source: error.into() }
}
