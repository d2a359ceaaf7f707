//! What a floor tells the floor above when it could not do what was asked: a code to act on and a sentence to read.
//!
//! A [`Fault`] is what travels on the wire; floors with errors of their own translate them into it in one place.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $errno:literal, $text:literal;)*) => {
        /// What kind of fault: the part a caller acts on. Numbers are part of the wire format.
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

            /// The POSIX error number closest to it.
            #[must_use]
            pub fn errno(self) -> i32 {
                match self {
                    $(Code::$name => $errno,)*
                }
            }

            /// A few words for people.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Code::$name => $text,)*
                }
            }

            /// Every code there is.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];
        }
    };
}

codes! {
    /// No such file or directory.
    NotFound = 1, 2, "no such file or directory";
    /// The name is taken.
    Exists = 2, 17, "already exists";
    /// A directory was needed.
    NotDirectory = 3, 20, "not a directory";
    /// A file was needed.
    IsDirectory = 4, 21, "is a directory";
    /// The directory still has entries.
    NotEmpty = 5, 39, "directory not empty";
    /// A name or a path is too long.
    NameTooLong = 6, 36, "name too long";
    /// Too many symbolic links.
    LinkLoop = 7, 40, "too many levels of symbolic links";
    /// An argument that cannot be.
    Invalid = 8, 22, "invalid argument";
    /// Larger than a file can be.
    TooLarge = 9, 27, "file too large";
    /// The store is full.
    NoSpace = 10, 28, "no space left";
    /// The store refuses writing.
    ReadOnly = 11, 30, "read-only";
    /// The operating system refuses it.
    Denied = 12, 13, "permission denied";
    /// The file is gone, or was truncated or replaced under a handle.
    Stale = 13, 116, "stale file handle";
    /// Somebody else uses it.
    Busy = 14, 16, "busy";
    /// The device failed.
    Io = 15, 5, "input/output error";
    /// A server is dead, stopped or cut off.
    Unreachable = 16, 112, "server unreachable";
    /// Writes that were not synced were lost with a server.
    Lost = 17, 5, "unsynced writes were lost";
    /// The peer could not prove that it knows the secret.
    WrongSecret = 18, 1, "wrong secret";
    /// The peer speaks another protocol version, or breaks the one it claims.
    Protocol = 19, 71, "protocol error";
    /// Asked for something this build or store cannot do.
    Unsupported = 20, 95, "not supported";
    /// Too much at once: files, clients or requests.
    TooMany = 21, 24, "too many";
    /// The bytes do not match their checksum.
    Corrupt = 22, 117, "damaged data";
    /// The server is going down.
    ShuttingDown = 23, 108, "shutting down";
    /// A handle used after it was closed, or in a forked child.
    Closed = 24, 9, "closed";
    /// A move between two file systems.
    CrossDevice = 25, 18, "cross-device";
    /// A wait reached the limit that its caller set.
    TimedOut = 26, 110, "timed out";
}

/// A code and one sentence that names what and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Fault {
    /// What kind.
    pub code: Code,
    /// Names the file, the server, the range, and the cure if there is one.
    pub text: String,
}

impl Fault {
    /// A fault with its sentence.
    pub fn new(code: Code, text: impl Into<String>) -> Self {
        Fault { code, text: text.into() }
    }

    /// The same fault, its sentence led by where it happened, unless it says so already.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        let place = format!("{place}: ");
        if self.text.contains(&place) {
            return self;
        }
        Fault { text: place + &self.text, code: self.code }
    }

    /// A fault from the operating system, `doing` what.
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
