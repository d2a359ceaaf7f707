//! The error type of all floors: a code for programs and a sentence for people.
//!
//! A [`Fault`] is sent on the wire; floors with their own error types convert them to it in one function.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $errno:literal, $text:literal, $mpi:literal;)*) => {
        /// Kind of a fault: callers decide by it. Numbers are part of the wire format.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
        #[repr(u16)]
        pub enum Code {
            $($(#[$doc])* $name = $number,)*
        }

        impl Code {
            /// The code of a number from the wire.
            #[must_use]
            pub fn from_number(number: u16) -> Option<Code> {
                match number {
                    $($number => Some(Code::$name),)*
                    _ => None,
                }
            }

            /// The closest POSIX error number.
            #[must_use]
            pub fn errno(self) -> i32 {
                match self {
                    $(Code::$name => $errno,)*
                }
            }

            /// Short description for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Code::$name => $text,)*
                }
            }

            /// Name of the matching MPI error class; its number depends on the MPI library.
            #[must_use]
            pub fn mpi_class(self) -> &'static str {
                match self {
                    $(Code::$name => $mpi,)*
                }
            }

            /// All codes.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];
        }
    };
}

codes! {
    /// No such file or directory.
    NotFound = 1, 2, "no such file or directory", "MPI_ERR_NO_SUCH_FILE";
    /// The name exists already.
    Exists = 2, 17, "already exists", "MPI_ERR_FILE_EXISTS";
    /// A directory was needed.
    NotDirectory = 3, 20, "not a directory", "MPI_ERR_BAD_FILE";
    /// A file was needed.
    IsDirectory = 4, 21, "is a directory", "MPI_ERR_BAD_FILE";
    /// The directory still has entries.
    NotEmpty = 5, 39, "directory not empty", "MPI_ERR_IO";
    /// A name or a path is too long.
    NameTooLong = 6, 36, "name too long", "MPI_ERR_BAD_FILE";
    /// Too many symbolic links.
    LinkLoop = 7, 40, "too many levels of symbolic links", "MPI_ERR_BAD_FILE";
    /// An invalid argument.
    Invalid = 8, 22, "invalid argument", "MPI_ERR_ARG";
    /// Larger than a file can be.
    TooLarge = 9, 27, "file too large", "MPI_ERR_VALUE_TOO_LARGE";
    /// The store is full.
    NoSpace = 10, 28, "no space left", "MPI_ERR_NO_SPACE";
    /// The store refuses writing.
    ReadOnly = 11, 30, "read-only", "MPI_ERR_READ_ONLY";
    /// The operating system refuses it.
    Denied = 12, 13, "permission denied", "MPI_ERR_ACCESS";
    /// The file was removed, truncated or replaced while a handle was open.
    Stale = 13, 116, "stale file handle", "MPI_ERR_FILE";
    /// In use by another process.
    Busy = 14, 16, "busy", "MPI_ERR_FILE_IN_USE";
    /// The device failed.
    Io = 15, 5, "input/output error", "MPI_ERR_IO";
    /// A server is dead, stopped or cut off.
    Unreachable = 16, 112, "server unreachable", "MPI_ERR_IO";
    /// Writes that were not synced were lost with a server.
    Lost = 17, 5, "unsynced writes were lost", "MPI_ERR_IO";
    /// The peer could not prove knowledge of the secret.
    WrongSecret = 18, 1, "wrong secret", "MPI_ERR_ACCESS";
    /// The peer speaks another protocol version, or breaks the one it claims.
    Protocol = 19, 71, "protocol error", "MPI_ERR_IO";
    /// An operation that this build or store does not support.
    Unsupported = 20, 95, "not supported", "MPI_ERR_UNSUPPORTED_OPERATION";
    /// Too many files, clients or requests.
    TooMany = 21, 24, "too many", "MPI_ERR_OTHER";
    /// The bytes do not match their checksum.
    Corrupt = 22, 117, "damaged data", "MPI_ERR_IO";
    /// The server is going down.
    ShuttingDown = 23, 108, "shutting down", "MPI_ERR_IO";
    /// A handle used after it was closed, or in a forked child.
    Closed = 24, 9, "closed", "MPI_ERR_FILE";
    /// A move between two file systems.
    CrossDevice = 25, 18, "cross-device", "MPI_ERR_IO";
    /// A wait reached the limit that its caller set.
    TimedOut = 26, 110, "timed out", "MPI_ERR_OTHER";
    /// A datatype that cannot be used so: a view that is illegal for its file.
    Datatype = 27, 22, "invalid datatype", "MPI_ERR_TYPE";
    /// Processes that must agree do not: on an argument, or on which collective they call.
    NotSame = 28, 22, "not the same on all processes", "MPI_ERR_NOT_SAME";
    /// A handle that was not opened for writing.
    NotWritable = 29, 9, "not open for writing", "MPI_ERR_READ_ONLY";
    /// A handle that was not opened for reading.
    NotReadable = 30, 9, "not open for reading", "MPI_ERR_ACCESS";
    /// A lock request that would close a cycle of waiting holders.
    Deadlock = 31, 35, "would wait for itself", "MPI_ERR_OTHER";
    /// A lock in use, requested without waiting.
    WouldBlock = 32, 11, "in use", "MPI_ERR_OTHER";
    /// The inode has no such extended attribute.
    NoAttribute = 33, 61, "no such attribute", "MPI_ERR_OTHER";
    /// The inode has as many names as are possible.
    TooManyLinks = 34, 31, "too many links", "MPI_ERR_OTHER";
}

/// A code and one sentence that names object and location.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Fault {
    /// Kind of the fault.
    pub code: Code,
    /// Names the file, the server, the range, and the cure if there is one.
    pub text: String,
}

impl Fault {
    /// A fault with its sentence.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Fault { code, text: text.into() }
    }

    /// The same fault, prefixed with its location, unless the text begins with it already.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        let place = format!("{place}: ");
        if self.text.contains(&place) {
            return self;
        }
        Fault { text: place + &self.text, code: self.code }
    }

    /// A fault from an operating-system error; `doing` names the operation.
    #[must_use]
    pub fn from_io(error: &std::io::Error, doing: impl fmt::Display) -> Self {
        let code = match error.raw_os_error() {
            Some(number) => {
                Code::ALL.iter().copied().find(|code| code.errno() == number && *code != Code::Lost)
            }
            None => None,
        };
        let code = match error.raw_os_error() {
            Some(122) => Code::NoSpace, // EDQUOT
            Some(23) => Code::TooMany,  // ENFILE
            _ => code.unwrap_or(Code::Io),
        };
        Fault::new(code, format!("{doing}: {error}"))
    }
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Fault::new(code, code.text())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back() {
        for code in Code::ALL {
            assert_eq!(Code::from_number(*code as u16), Some(*code));
        }
        assert_eq!(Code::from_number(0), None);
    }

    #[test]
    fn errors_of_views_and_groups_have_the_classes_that_mpi_names() {
        let classes = [
            (Code::Datatype, "MPI_ERR_TYPE"),
            (Code::NotSame, "MPI_ERR_NOT_SAME"),
            (Code::Invalid, "MPI_ERR_ARG"),
            (Code::TooLarge, "MPI_ERR_VALUE_TOO_LARGE"),
            (Code::NotWritable, "MPI_ERR_READ_ONLY"),
            (Code::NotFound, "MPI_ERR_NO_SUCH_FILE"),
            (Code::NoSpace, "MPI_ERR_NO_SPACE"),
        ];
        for (code, class) in classes {
            assert_eq!(code.mpi_class(), class);
        }
        // A number of the operating system leads to the general one of several.
        for (number, code) in [(22, Code::Invalid), (9, Code::Closed)] {
            assert_eq!(Fault::from_io(&std::io::Error::from_raw_os_error(number), "doing").code, code);
        }
    }

    #[test]
    fn a_place_is_named_once() {
        let fault = Fault::new(Code::Io, "broken").at("server 1").at("server 1").at("r");
        assert_eq!(fault.text, "r: server 1: broken");
    }

    #[test]
    fn errno_of_full_disk_and_quota_is_no_space() {
        for number in [28, 122] {
            let error = std::io::Error::from_raw_os_error(number);
            assert_eq!(Fault::from_io(&error, "writing").code, Code::NoSpace);
        }
        let error = std::io::Error::from_raw_os_error(5);
        assert_eq!(Fault::from_io(&error, "writing").code, Code::Io);
    }
}
