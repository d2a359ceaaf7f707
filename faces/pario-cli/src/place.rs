//! Places that files are copied from and to: this machine's own file system, or a partition. One set of verbs for both.
//!
//! Never: follows a symbolic link unless the verb says so. Always: an error names the place.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pario::Partition;
use pario::core::limits::LINKS_FOLLOWED_MAX;
use pario::core::{AttrChange, Code, FileAttr, FileKind};
use pario::message::{At, NameRequest};
use pario::partition::Location;
use rustix::fs::{AtFlags, Timestamps};
use rustix::time::Timespec;

use crate::context::Context;
use crate::error::{CliError, Outcome};

/// A file or directory somewhere.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// In which tree.
    pub(crate) tree: Tree,
    /// The path there.
    pub(crate) path: PathBuf,
}

/// A tree of files.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    /// This machine's.
    Local,
    /// A partition's.
    Partition(Partition),
}

/// What is known of a file, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Facts {
    /// What it is; `None`: neither file, directory nor symbolic link.
    pub(crate) kind: Option<FileKind>,
    /// Length.
    pub(crate) size: u64,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Owner and group.
    pub(crate) owner: (u32, u32),
    /// Last access and last change, in nanoseconds since 1970.
    pub(crate) times_ns: (u64, u64),
    /// Device (0 in a partition) and inode.
    pub(crate) identity: (u64, u64),
}

impl From<FileAttr> for Facts {
    fn from(attr: FileAttr) -> Facts {
        Facts {
            kind: Some(attr.kind),
            size: attr.size,
            mode: attr.mode,
            owner: (attr.uid, attr.gid),
            times_ns: (attr.accessed_ns, attr.modified_ns),
            identity: (0, attr.inode.0),
        }
    }
}

impl From<&fs::Metadata> for Facts {
    fn from(metadata: &fs::Metadata) -> Facts {
        let file_type = metadata.file_type();
        let kind = if file_type.is_file() {
            Some(FileKind::File)
        } else if file_type.is_dir() {
            Some(FileKind::Directory)
        } else if file_type.is_symlink() {
            Some(FileKind::Symlink)
        } else {
            None
        };
        let ns = |seconds: i64, nanos: i64| {
            let seconds = u64::try_from(seconds).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(nanos).unwrap_or(0))
        };
        Facts {
            kind,
            size: metadata.len(),
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            times_ns: (
                ns(metadata.atime(), metadata.atime_nsec()),
                ns(metadata.mtime(), metadata.mtime_nsec()),
            ),
            identity: (metadata.dev(), metadata.ino()),
        }
    }
}

/// Whether a symbolic link at the end is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Links {
    /// It is.
    Follow,
    /// The link itself is meant.
    Stay,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.tree {
            Tree::Local => write!(f, "{}", self.path.display()),
            Tree::Partition(partition) => {
                let slash = if self.path.is_absolute() { "" } else { "/" };
                write!(f, "pario://{}{slash}{}", partition.name(), self.path.display())
            }
        }
    }
}

impl Place {
    /// A place as it was typed: `pario://NAME/path`, or a path of this machine.
    pub(crate) fn parse(context: &Context, text: &OsStr) -> Outcome<Place> {
        if text.is_empty() {
            return Err(CliError::usage("an empty path names nothing"));
        }
        if !Location::is_one(text) {
            let path = Path::new(text);
            let there = |path: &Path| !path.as_os_str().is_empty() && path.symlink_metadata().is_ok();
            if !there(path)
                && !path.parent().is_some_and(there)
                && let Some(hint) = meant(context, text)?
            {
                return Err(hint);
            }
            return Ok(Place { tree: Tree::Local, path: text.into() });
        }
        let location = Location::parse(text)?;
        let tree = Tree::Partition(context.mount(&location.partition)?);
        Ok(Place { tree, path: OsString::from_vec(location.path).into() })
    }

    /// A place of a partition.
    pub(crate) fn in_partition(partition: &Partition, path: &[u8]) -> Place {
        Place { tree: Tree::Partition(partition.clone()), path: OsStr::from_bytes(path).into() }
    }

    /// The root of a partition.
    pub(crate) fn root(partition: &Partition) -> Place {
        Place::in_partition(partition, b"/")
    }

    /// Whether it was typed with a slash at its end.
    pub(crate) fn has_slash(&self) -> bool {
        self.path.as_os_str().as_bytes().ends_with(b"/")
    }

    /// What is called `name` in this directory.
    pub(crate) fn child(&self, name: &OsStr) -> Place {
        Place { tree: self.tree.clone(), path: self.path.join(name) }
    }

    /// The same place under another name of the same directory.
    pub(crate) fn sibling(&self, name: &OsStr) -> Place {
        Place { tree: self.tree.clone(), path: self.path.with_file_name(name) }
    }

    /// Its last name; a root, `.` and `..` have none.
    pub(crate) fn name(&self) -> Option<&OsStr> {
        self.path.file_name()
    }

    /// Facts; `None` if there is nothing.
    pub(crate) fn look(&self, links: Links) -> Outcome<Option<Facts>> {
        match &self.tree {
            Tree::Local => {
                let found = match links {
                    Links::Follow => fs::metadata(&self.path),
                    Links::Stay => fs::symlink_metadata(&self.path),
                };
                match found {
                    Ok(metadata) => Ok(Some(Facts::from(&metadata))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(CliError::local(&self.path, &error)),
                }
            }
            Tree::Partition(partition) => {
                let found = match links {
                    Links::Follow => partition.metadata(&self.path),
                    Links::Stay => partition.symlink_metadata(&self.path),
                };
                match found {
                    Ok(attr) => Ok(Some(attr.into())),
                    Err(error) if error.code() == Code::NotFound => Ok(None),
                    Err(error) => Err(CliError::remote(self, &error)),
                }
            }
        }
    }

    /// Facts of what must be there.
    pub(crate) fn facts(&self, links: Links) -> Outcome<Facts> {
        self.look(links)?.ok_or_else(|| CliError::failed(format!("{self}: no such file or directory")))
    }

    /// Whether a directory is there, a link to one included.
    pub(crate) fn is_directory(&self) -> Outcome<bool> {
        Ok(self.look(Links::Follow)?.is_some_and(|facts| facts.kind == Some(FileKind::Directory)))
    }

    /// Names in a directory with what they lead to, links not followed.
    pub(crate) fn list(&self) -> Outcome<Entries> {
        match &self.tree {
            Tree::Local => {
                let entries =
                    fs::read_dir(&self.path).map_err(|error| CliError::local(&self.path, &error))?;
                Ok(Entries::Local { entries, dir: self.clone() })
            }
            Tree::Partition(partition) => {
                let entries =
                    partition.read_dir(&self.path).map_err(|error| CliError::remote(self, &error))?;
                Ok(Entries::Partition { entries, dir: self.clone() })
            }
        }
    }

    /// Makes a directory; one that is there is as good.
    pub(crate) fn make_directory(&self) -> Outcome {
        match self.look(Links::Follow)?.map(|facts| facts.kind) {
            Some(Some(FileKind::Directory)) => return Ok(()),
            Some(_) => return Err(CliError::failed(format!("{self}: not a directory"))),
            None => {}
        }
        let made = match &self.tree {
            Tree::Local => fs::create_dir(&self.path).map_err(|error| CliError::local(&self.path, &error)),
            Tree::Partition(partition) => {
                partition.create_dir(&self.path).map_err(|error| CliError::remote(self, &error))
            }
        };
        made.map_err(|error| self.blame_parent(error))
    }

    /// An error of making something here: if a directory above is missing, it is named.
    pub(crate) fn blame_parent(&self, error: CliError) -> CliError {
        let above = self.path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
        let above = above.map(|path| Place { tree: self.tree.clone(), path: path.to_owned() });
        let missing = above.take_while(|place| matches!(place.look(Links::Follow), Ok(None))).last();
        match missing {
            Some(dir) => CliError::with_cure(
                format!("{self}: no such file or directory"),
                format!("there is no directory {dir}: make it first"),
            ),
            None => error,
        }
    }

    /// Makes a directory and those above it.
    pub(crate) fn make_directories(&self) -> Outcome {
        match &self.tree {
            Tree::Local => {
                fs::create_dir_all(&self.path).map_err(|error| CliError::local(&self.path, &error))
            }
            Tree::Partition(partition) => {
                partition.create_dir_all(&self.path).map_err(|error| CliError::remote(self, &error))
            }
        }
    }

    /// What a symbolic link says.
    pub(crate) fn read_link(&self) -> Outcome<PathBuf> {
        match &self.tree {
            Tree::Local => fs::read_link(&self.path).map_err(|error| CliError::local(&self.path, &error)),
            Tree::Partition(partition) => {
                partition.read_link(&self.path).map_err(|error| CliError::remote(self, &error))
            }
        }
    }

    /// Makes a symbolic link here.
    pub(crate) fn make_link(&self, target: &Path) -> Outcome {
        match &self.tree {
            Tree::Local => std::os::unix::fs::symlink(target, &self.path)
                .map_err(|error| CliError::local(&self.path, &error)),
            Tree::Partition(partition) => {
                partition.symlink(target, &self.path).map_err(|error| CliError::remote(self, &error))
            }
        }
    }

    /// Gives it another name in its tree, replacing what is there.
    pub(crate) fn rename(&self, to: &Place) -> Outcome {
        match &self.tree {
            Tree::Local => {
                fs::rename(&self.path, &to.path).map_err(|error| CliError::local(&to.path, &error))
            }
            Tree::Partition(partition) => {
                partition.rename(&self.path, &to.path).map_err(|error| CliError::remote(to, &error))
            }
        }
    }

    /// Removes a file or symbolic link.
    pub(crate) fn remove_file(&self) -> Outcome {
        match &self.tree {
            Tree::Local => fs::remove_file(&self.path).map_err(|error| CliError::local(&self.path, &error)),
            Tree::Partition(partition) => {
                partition.remove_file(&self.path).map_err(|error| CliError::remote(self, &error))
            }
        }
    }

    /// Sets permission bits.
    pub(crate) fn set_mode(&self, mode: u32) -> Outcome {
        match &self.tree {
            Tree::Local => fs::set_permissions(&self.path, fs::Permissions::from_mode(mode))
                .map_err(|error| CliError::local(&self.path, &error)),
            Tree::Partition(partition) => {
                let change = AttrChange { mode: Some(mode), ..AttrChange::default() };
                partition
                    .set_attr(&self.path, change)
                    .map(drop)
                    .map_err(|error| CliError::remote(self, &error))
            }
        }
    }

    /// Sets owner (as far as this user may), permission bits and times as `facts` has them.
    pub(crate) fn set_like(&self, facts: &Facts) -> Outcome {
        match &self.tree {
            Tree::Local => self.set_like_locally(facts).map_err(|error| CliError::local(&self.path, &error)),
            Tree::Partition(partition) => {
                let change = AttrChange {
                    mode: Some(facts.mode),
                    uid: Some(facts.owner.0),
                    gid: Some(facts.owner.1),
                    accessed_ns: Some(facts.times_ns.0),
                    modified_ns: Some(facts.times_ns.1),
                };
                partition
                    .set_attr(&self.path, change)
                    .map(drop)
                    .map_err(|error| CliError::remote(self, &error))
            }
        }
    }

    /// Sets owner (as far as this user may) and times of a symbolic link itself.
    pub(crate) fn set_link_like(&self, facts: &Facts) -> Outcome {
        match &self.tree {
            Tree::Local => {
                self.set_link_like_locally(facts).map_err(|error| CliError::local(&self.path, &error))
            }
            Tree::Partition(partition) => {
                let change = AttrChange {
                    mode: None,
                    uid: Some(facts.owner.0),
                    gid: Some(facts.owner.1),
                    accessed_ns: Some(facts.times_ns.0),
                    modified_ns: Some(facts.times_ns.1),
                };
                let at = At::root(self.path.as_os_str().as_bytes());
                let request = NameRequest::SetAttr { at, follow: false, change };
                let set = partition.mount_handle().name_call(request);
                set.map(drop).map_err(|fault| CliError::remote(self, &fault.into()))
            }
        }
    }

    fn set_link_like_locally(&self, facts: &Facts) -> io::Result<()> {
        match std::os::unix::fs::lchown(&self.path, Some(facts.owner.0), Some(facts.owner.1)) {
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
        let time = |ns: u64| Timespec {
            tv_sec: i64::try_from(ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ns % 1_000_000_000).unwrap_or(0),
        };
        let times =
            Timestamps { last_access: time(facts.times_ns.0), last_modification: time(facts.times_ns.1) };
        Ok(rustix::fs::utimensat(rustix::fs::CWD, &self.path, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    fn set_like_locally(&self, facts: &Facts) -> io::Result<()> {
        match std::os::unix::fs::chown(&self.path, Some(facts.owner.0), Some(facts.owner.1)) {
            // Only root may give files away.
            Err(error) if error.kind() != io::ErrorKind::PermissionDenied => return Err(error),
            _ => {}
        }
        let time = |ns| SystemTime::UNIX_EPOCH + Duration::from_nanos(ns);
        let times =
            fs::FileTimes::new().set_accessed(time(facts.times_ns.0)).set_modified(time(facts.times_ns.1));
        fs::File::open(&self.path)?.set_times(times)?;
        // Last: the new bits may forbid opening it.
        fs::set_permissions(&self.path, fs::Permissions::from_mode(facts.mode))
    }

    /// The file that a chain of symbolic links ends at, whether it exists or not.
    pub(crate) fn behind_links(&self) -> Outcome<Place> {
        let mut place = self.clone();
        for _ in 0..LINKS_FOLLOWED_MAX {
            if place.look(Links::Stay)?.is_none_or(|facts| facts.kind != Some(FileKind::Symlink)) {
                return Ok(place);
            }
            let target = place.read_link()?;
            // An absolute target replaces the whole path when joined.
            let dir = place.path.parent().map(Path::to_owned).unwrap_or_default();
            place = Place { tree: place.tree, path: dir.join(target) };
        }
        Err(CliError::failed(format!("{self}: too many levels of symbolic links")))
    }

    /// Whether both are in the same tree.
    pub(crate) fn shares_tree(&self, other: &Place) -> bool {
        match (&self.tree, &other.tree) {
            (Tree::Local, Tree::Local) => true,
            (Tree::Partition(one), Tree::Partition(two)) => one.name() == two.name(),
            (Tree::Local, Tree::Partition(_)) | (Tree::Partition(_), Tree::Local) => false,
        }
    }
}

/// A hint for a word that looks like a place of a partition but is none: `pario:/NAME/path`, `NAME:/path`.
pub(crate) fn meant(context: &Context, text: &OsStr) -> Outcome<Option<CliError>> {
    let Some(word) = text.to_str().filter(|word| !Location::is_one(word)) else { return Ok(None) };
    let meant = match word.split_once(':') {
        Some(("pario", rest)) => rest.trim_start_matches('/').to_owned(),
        Some((name, rest)) if !name.is_empty() && context.registry()?.get(name)?.is_some() => {
            format!("{name}/{}", rest.trim_start_matches('/'))
        }
        Some(_) | None => return Ok(None),
    };
    Ok((!meant.is_empty())
        .then(|| CliError::usage(format!("'{word}' is not in a partition: did you mean pario://{meant}?"))))
}

/// The entries of a directory.
#[derive(Debug)]
pub(crate) enum Entries {
    /// Of this machine.
    Local {
        /// What is left.
        entries: fs::ReadDir,
        /// Of which directory.
        dir: Place,
    },
    /// Of a partition.
    Partition {
        /// What is left.
        entries: pario::ReadDir,
        /// Of which directory.
        dir: Place,
    },
}

impl Iterator for Entries {
    type Item = Outcome<(OsString, Facts)>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Entries::Local { entries, dir } => {
                let entry = entries.next()?;
                let read = entry.and_then(|entry| Ok((entry.file_name(), Facts::from(&entry.metadata()?))));
                Some(read.map_err(|error| CliError::local(&dir.path, &error)))
            }
            Entries::Partition { entries, dir } => {
                let entry = entries.next()?;
                let read = entry.map(|entry| (OsString::from_vec(entry.name), Facts::from(entry.attr)));
                Some(read.map_err(|error| CliError::remote(&*dir, &error)))
            }
        }
    }
}
