//! Status of an NFS procedure.
//!
//! Always: what POSIX says with an error number, NFS says with the status of the same name; what NFS has no word for is `IO`.

use rustix::io::Errno;

/// `nfsstat3` of RFC 1813, without success.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(super) enum NfsStatus {
    Perm = 1,
    NoEntry = 2,
    Io = 5,
    NoDevice = 6,
    Access = 13,
    Exists = 17,
    CrossDevice = 18,
    NotDirectory = 20,
    IsDirectory = 21,
    Invalid = 22,
    TooBig = 27,
    NoSpace = 28,
    ReadOnly = 30,
    TooManyLinks = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    Quota = 69,
    Stale = 70,
    BadHandle = 10_001,
    NotSync = 10_002,
    BadCookie = 10_003,
    NotSupported = 10_004,
    TooSmall = 10_005,
    BadType = 10_007,
}

/// Result of a procedure.
pub(super) type NfsResult<T> = Result<T, NfsStatus>;

/// The number of success.
pub(super) const NFS_OK: u32 = 0;

impl NfsStatus {
    /// Its number.
    pub(super) fn code(self) -> u32 {
        self as u32
    }
}

impl From<Errno> for NfsStatus {
    fn from(errno: Errno) -> NfsStatus {
        match errno {
            Errno::PERM => NfsStatus::Perm,
            Errno::NOENT => NfsStatus::NoEntry,
            Errno::NXIO => NfsStatus::NoDevice,
            Errno::ACCESS => NfsStatus::Access,
            Errno::EXIST => NfsStatus::Exists,
            Errno::XDEV => NfsStatus::CrossDevice,
            Errno::NOTDIR => NfsStatus::NotDirectory,
            Errno::ISDIR => NfsStatus::IsDirectory,
            Errno::INVAL | Errno::LOOP => NfsStatus::Invalid,
            Errno::FBIG | Errno::OVERFLOW => NfsStatus::TooBig,
            Errno::NOSPC => NfsStatus::NoSpace,
            Errno::ROFS => NfsStatus::ReadOnly,
            Errno::MLINK => NfsStatus::TooManyLinks,
            Errno::NAMETOOLONG => NfsStatus::NameTooLong,
            Errno::NOTEMPTY => NfsStatus::NotEmpty,
            Errno::DQUOT => NfsStatus::Quota,
            Errno::STALE => NfsStatus::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => NfsStatus::NotSupported,
            _ => NfsStatus::Io,
        }
    }
}
