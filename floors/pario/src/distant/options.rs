//! Options of [`super::Distant`] and of shared files.
//!
//! Always: an option without a value has a default that is stated here.

use std::path::{Path, PathBuf};

/// How a member takes part in Distant I/O.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DistantOptions {
    pub(super) role: MemberRole,
    pub(super) bytes_per_second: Option<u64>,
    pub(super) protects_all: bool,
}

/// A member is a home or only a client.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum MemberRole {
    /// It serves files that it registers or creates components for; it has no directory of its own.
    #[default]
    Serving,
    /// The same, and files below a directory can be opened.
    InDir(PathBuf),
    /// It serves nothing.
    Client,
}

impl DistantOptions {
    /// A home with files below a directory of its own.
    #[must_use]
    pub fn in_dir(dir: impl AsRef<Path>) -> DistantOptions {
        let role = MemberRole::InDir(dir.as_ref().to_owned());
        DistantOptions { role, ..DistantOptions::default() }
    }

    /// A home without a directory: it serves what it registers, and components of shared files that name their own directory.
    #[must_use]
    pub fn serving() -> DistantOptions {
        DistantOptions::default()
    }

    /// A member without files.
    #[must_use]
    pub fn client() -> DistantOptions {
        DistantOptions { role: MemberRole::Client, ..DistantOptions::default() }
    }

    /// Encrypts and authenticates every network connection, also on one host; equal on all members.
    #[must_use]
    pub fn protected(mut self) -> DistantOptions {
        self.protects_all = true;
        self
    }

    /// Limits the speed of this home's files, for measurements: every access then goes through the home.
    #[must_use]
    pub fn limited_to(mut self, bytes_per_second: u64) -> DistantOptions {
        self.bytes_per_second = Some(bytes_per_second);
        self
    }
}

/// Where the bytes of a shared file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilePlace {
    /// One plain file in a file system that all members share.
    Filesystem,
    /// Components on the homes.
    Distant,
}

impl std::str::FromStr for FilePlace {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<FilePlace, &'static str> {
        match word {
            "filesystem" => Ok(FilePlace::Filesystem),
            "distant" => Ok(FilePlace::Distant),
            _ => Err("must be filesystem or distant"),
        }
    }
}

/// Options of a shared file; equal on all members.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SharedFileOptions {
    pub(super) path: Option<PathBuf>,
    pub(super) request_bytes: Option<u64>,
    pub(super) hard_limit: Option<u64>,
    pub(super) soft_limit: Option<u64>,
    pub(super) suffix: Option<i64>,
    pub(super) homes: Option<Vec<usize>>,
    pub(super) place: Option<FilePlace>,
}

impl SharedFileOptions {
    /// A file for requests of this size; 0: unknown.
    #[must_use]
    pub fn for_requests(bytes: u64) -> SharedFileOptions {
        SharedFileOptions { request_bytes: (bytes != 0).then_some(bytes), ..SharedFileOptions::default() }
    }

    /// Directory and name of the file or of its components. Whether the file system is shared by all members is tried at creation.
    #[must_use]
    pub fn path(mut self, path: impl AsRef<Path>) -> SharedFileOptions {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// Expected largest and usual size in bytes: hints. A write beyond the hard limit is reported once.
    #[must_use]
    pub fn limits(mut self, hard: Option<u64>, soft: Option<u64>) -> SharedFileOptions {
        (self.hard_limit, self.soft_limit) = (hard, soft);
        self
    }

    /// Keeps names: `NAME.SUFFIX.RANK`. Such a file can be created again, with its bytes, by a run with the same homes.
    #[must_use]
    pub fn suffix(mut self, suffix: i64) -> SharedFileOptions {
        self.suffix = Some(suffix);
        self
    }

    /// Components on these ranks only, in this order.
    #[must_use]
    pub fn homes(mut self, ranks: &[usize]) -> SharedFileOptions {
        self.homes = Some(ranks.to_vec());
        self
    }

    /// Where its bytes are, without a trial; `PARIO_SF` takes precedence.
    #[must_use]
    pub fn place(mut self, place: FilePlace) -> SharedFileOptions {
        self.place = Some(place);
        self
    }
}
