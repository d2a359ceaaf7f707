//! Options for opening a file by a team.

use std::time::Duration;

use rustix::fs::OFlags;

use super::error::{TeamCode, TeamError, TeamResult};
use super::settings::TeamSettings;

/// Options for opening a file by a team, like [`std::fs::OpenOptions`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TeamOptions {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) create: bool,
    pub(super) create_new: bool,
    pub(super) truncate: bool,
    pub(super) append: bool,
    pub(super) mode: u32,
    pub(super) settings: TeamSettings,
    pub(super) patience: Option<Duration>,
}

impl Default for TeamOptions {
    fn default() -> TeamOptions {
        TeamOptions {
            read: false,
            write: false,
            create: false,
            create_new: false,
            truncate: false,
            append: false,
            mode: 0o666,
            settings: TeamSettings::default(),
            patience: None,
        }
    }
}

impl TeamOptions {
    /// Options from the flags of `open`. Flags without meaning for a team, such as `O_CLOEXEC`, are accepted.
    ///
    /// # Errors
    /// An access mode that does not exist.
    pub fn from_flags(flags: i32) -> TeamResult<TeamOptions> {
        let flags = OFlags::from_bits_retain(flags.cast_unsigned());
        let access = flags & OFlags::RWMODE;
        let (read, write) = (access != OFlags::WRONLY, access != OFlags::RDONLY);
        if access == OFlags::RWMODE {
            return Err(TeamError::new(
                TeamCode::BadArgument,
                "flags: write O_RDONLY, O_WRONLY or O_RDWR, not two of them",
            ));
        }
        Ok(TeamOptions {
            read,
            write,
            create: flags.contains(OFlags::CREATE),
            create_new: flags.contains(OFlags::CREATE | OFlags::EXCL),
            truncate: flags.contains(OFlags::TRUNC) && write,
            append: flags.contains(OFlags::APPEND),
            ..TeamOptions::default()
        })
    }

    /// Allow reading.
    #[must_use]
    pub fn read(mut self, read: bool) -> Self {
        self.read = read;
        self
    }

    /// Allow writing.
    #[must_use]
    pub fn write(mut self, write: bool) -> Self {
        self.write = write;
        self
    }

    /// Create the file if it is missing.
    #[must_use]
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }

    /// Create the file and fail if it exists.
    #[must_use]
    pub fn create_new(mut self, create_new: bool) -> Self {
        self.create_new = create_new;
        self
    }

    /// Truncate the file to 0 bytes.
    #[must_use]
    pub fn truncate(mut self, truncate: bool) -> Self {
        self.truncate = truncate;
        self
    }

    /// The pointer begins at the end of the file.
    #[must_use]
    pub fn append(mut self, append: bool) -> Self {
        self.append = append;
        self
    }

    /// Permission bits of a new file, before the process's umask.
    #[must_use]
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Settings that win over `PARIO_TEAM` and `team.toml`.
    #[must_use]
    pub fn settings(mut self, settings: TeamSettings) -> Self {
        self.settings = settings;
        self
    }

    /// How long a member waits for others before the call fails on all members; wins over `PARIO_TEAM_PATIENCE`.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }
}
