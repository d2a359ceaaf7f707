//! A file of the user in a directory where other users may create entries, such as `/tmp`.
//!
//! Never: waits at a FIFO; follows a symbolic link; uses a file of another user. Always: the check and the open use one
//! descriptor. Rules: docs/guide/security.md, section "Directories".

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::owned::{OwnError, failed_at};
use super::{Dir, open_name};

impl Dir {
    /// Opens a regular file that belongs to the user or to root; a new one gets `mode`.
    ///
    /// # Errors
    /// [`OwnError::File`] for anything else of that name, else [`OwnError::Io`].
    pub fn open_own_file(&self, name: &Path, flags: OFlags, mode: u32) -> Result<File, OwnError> {
        // A FIFO opens immediately and is then refused.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = open_name(self.as_fd(), name.as_os_str(), flags, Mode::from_raw_mode(mode));
        let path = self.path.join(name);
        let opened = opened.map_err(|error| self.refused(name).unwrap_or_else(|| failed_at(&path, error)))?;
        let found = rustix::fs::fstat(&opened).map_err(|error| failed_at(&path, error))?;
        check(&path, &found, AccessCheck::Given)?;
        Ok(opened.into())
    }

    /// Removes a file of the user; a missing file is no error.
    ///
    /// # Errors
    /// [`OwnError::File`] for an entry of another user that the directory keeps, else [`OwnError::Io`].
    pub fn remove_own_file(&self, name: &Path) -> Result<(), OwnError> {
        match rustix::fs::unlinkat(&self.fd, name, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(self.refused(name).unwrap_or_else(|| failed_at(&self.path.join(name), error))),
        }
    }

    /// Why an entry refused by the operating system is not a file of the user; `None`: it is one, or is missing.
    fn refused(&self, name: &Path) -> Option<OwnError> {
        let found = self.stat(name).ok().flatten()?;
        check(&self.path.join(name), &found, AccessCheck::Denied).err()
    }
}

/// Result of the system call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AccessCheck {
    Given,
    Denied,
}

fn check(path: &Path, found: &Stat, access: AccessCheck) -> Result<(), OwnError> {
    let (uid, me) = (found.st_uid, rustix::process::geteuid().as_raw());
    let kind = FileType::from_raw_mode(found.st_mode);
    let is_trusted = uid == me || (uid == 0 && access == AccessCheck::Given);
    if kind == FileType::RegularFile && is_trusted {
        return Ok(());
    }
    Err(OwnError::File { path: path.to_owned(), kind, uid, mode: found.st_mode & 0o7777, me })
}

/// Kind of an entry, for messages.
pub(super) fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "an entry of unknown kind",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    const WAYS: [OFlags; 3] = [OFlags::RDONLY, OFlags::RDWR.union(OFlags::CREATE), OFlags::WRONLY];

    #[track_caller]
    fn check_refused(dir: &Dir, name: &str, parts: &[&str]) {
        for flags in WAYS {
            let text = dir.open_own_file(Path::new(name), flags, 0o600).unwrap_err().to_string();
            assert!(
                parts.iter().all(|part| text.contains(part)) && !text.contains('\n'),
                "{flags:?}: {text}"
            );
        }
    }

    #[test]
    fn only_regular_files_are_opened_and_nothing_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        let me = format!("of user {}", rustix::process::geteuid().as_raw());
        let missing = dir.open_own_file(Path::new("none"), OFlags::RDONLY, 0).unwrap_err();
        assert!(missing.io().is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound));
        rustix::fs::mkfifoat(&dir, "fifo", Mode::from_raw_mode(0o600)).unwrap();
        check_refused(&dir, "fifo", &["fifo: a FIFO", &me, "have it removed"]);
        std::fs::write(root.path().join("victim"), "precious").unwrap();
        symlink("victim", root.path().join("link")).unwrap();
        check_refused(&dir, "link", &["link: a symbolic link", &me]);
        std::fs::create_dir(root.path().join("sub")).unwrap();
        check_refused(&dir, "sub", &["sub: a directory", &me]);
        let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
        check_refused(&dir, "socket", &["socket: a socket", &me]);
        let file = dir.open_own_file(Path::new("new"), OFlags::RDWR | OFlags::CREATE, 0o600).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
        dir.remove_own_file(Path::new("new")).unwrap();
        dir.remove_own_file(Path::new("new")).unwrap();
        assert_eq!(std::fs::read(root.path().join("victim")).unwrap(), b"precious");
    }

    #[test]
    fn needs_root_a_file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: needs root to make what belongs to another user");
            return;
        }
        let root = tempfile::tempdir().unwrap();
        let dir = Dir::open(root.path()).unwrap();
        std::fs::write(root.path().join("file"), "theirs").unwrap();
        std::os::unix::fs::lchown(root.path().join("file"), Some(65534), Some(65534)).unwrap();
        check_refused(&dir, "file", &["file: a file of user 65534 (mode 0", "of user 0 is expected"]);
        assert_eq!(std::fs::read(root.path().join("file")).unwrap(), b"theirs");
    }
}
