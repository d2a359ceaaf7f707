//! Paths in partitions: `pario://NAME/path`.
//!
//! Always: a printed [`Location`] parses back. A trailing slash is kept, since commands such as `cp` interpret it.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;

use pario_core::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};

use super::name::{NameError, check_name};

/// Prefix of every location.
pub const SCHEME: &str = "pario://";

/// A file, or directory, of a partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The partition's name.
    pub partition: String,
    /// The path from the partition's root, with its leading slash; `/` is the root.
    pub path: Vec<u8>,
}

/// Why a text is not a location.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocationError {
    /// Not a location.
    #[error("'{text}' is not in a partition: write {SCHEME}NAME/path")]
    Scheme {
        /// The text.
        text: String,
    },
    /// The partition's name is missing.
    #[error(
        "'{text}' names no partition: write {SCHEME}NAME/path, with the partition's name behind the two slashes"
    )]
    MissingName {
        /// The text.
        text: String,
    },
    /// The partition's name is invalid.
    #[error("'{text}': {source}")]
    Name {
        /// The text.
        text: String,
        /// Why.
        source: NameError,
    },
    /// The path is too long, or one name in it is.
    #[error("'{text}': {what} is too long, {got} bytes of at most {limit}")]
    TooLong {
        /// The start of the text.
        text: String,
        /// The path, or a name in it.
        what: &'static str,
        /// Its length.
        got: usize,
        /// The limit.
        limit: usize,
    },
    /// A zero byte.
    #[error("'{text}': a path must not have a zero byte")]
    ZeroByte {
        /// The text.
        text: String,
    },
}

impl Location {
    /// Parses a command-line argument.
    ///
    /// # Errors
    /// [`LocationError`] with the rule that it breaks.
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Location, LocationError> {
        let bytes = text.as_ref().as_bytes();
        let Some(rest) = bytes.strip_prefix(SCHEME.as_bytes()) else {
            return Err(LocationError::Scheme { text: shown(bytes) });
        };
        let name_end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
        let (name, path) = rest.split_at(name_end);
        if name.is_empty() {
            return Err(LocationError::MissingName { text: shown(bytes) });
        }
        let partition = String::from_utf8_lossy(name).into_owned();
        check_name(&partition).map_err(|source| LocationError::Name { text: shown(bytes), source })?;
        check_path(path, bytes)?;
        let path = if path.is_empty() { b"/".to_vec() } else { path.to_vec() };
        Ok(Location { partition, path })
    }

    /// Whether an argument claims to be a location, and must not be used as a plain path.
    pub fn is_one(text: impl AsRef<OsStr>) -> bool {
        text.as_ref().as_bytes().starts_with(SCHEME.as_bytes())
    }
}

fn check_path(path: &[u8], whole: &[u8]) -> Result<(), LocationError> {
    if path.contains(&0) {
        return Err(LocationError::ZeroByte { text: shown(whole) });
    }
    let longest_name = path.split(|&byte| byte == b'/').map(<[u8]>::len).max().unwrap_or(0);
    for (what, got, limit) in
        [("the path", path.len(), PATH_BYTES_MAX), ("a name in the path", longest_name, NAME_BYTES_MAX)]
    {
        if limit < got {
            return Err(LocationError::TooLong { text: shown(whole), what, got, limit });
        }
    }
    Ok(())
}

/// The start of the text, escaped for one line.
fn shown(bytes: &[u8]) -> String {
    const SHOWN_CHARACTERS: usize = 80;
    let text = String::from_utf8_lossy(bytes);
    let mut line: String =
        text.chars().take(SHOWN_CHARACTERS).map(|c| if c.is_control() { '?' } else { c }).collect();
    if SHOWN_CHARACTERS < text.chars().count() {
        line.push('…');
    }
    line
}

impl FromStr for Location {
    type Err = LocationError;

    fn from_str(text: &str) -> Result<Location, LocationError> {
        Location::parse(text)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}{}", self.partition, String::from_utf8_lossy(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, partition: &str, path: &str) {
        let location = Location::parse(text).unwrap();
        assert_eq!((location.partition.as_str(), location.path.as_slice()), (partition, path.as_bytes()));
        assert_eq!(location.to_string().parse(), Ok(location));
    }

    #[test]
    fn finds_partition_and_path() {
        check("pario://scratch", "scratch", "/");
        check("pario://scratch/", "scratch", "/");
        check("pario://scratch/run1/", "scratch", "/run1/");
        check("pario://s/a/../b c/é", "s", "/a/../b c/é");
    }

    #[test]
    fn paths_need_not_be_text() {
        let location = Location::parse(OsStr::from_bytes(b"pario://s/\xff")).unwrap();
        assert_eq!(location.path, b"/\xff");
    }

    #[test]
    fn says_what_is_wrong() {
        let long_name = format!("pario://s/{}", "n".repeat(256));
        let long_path = format!("pario://s{}", "/name".repeat(1000));
        let cases = [
            ("/plain", "'/plain' is not in a partition: write pario://NAME/path"),
            ("pario:/s/x", "is not in a partition"),
            ("pario:///x", "names no partition"),
            ("pario://", "names no partition"),
            ("pario://a b/x", "not ' '"),
            ("pario://.x/y", "must not start with '.'"),
            ("pario://s/a\0b", "zero byte"),
            (&long_name, "a name in the path is too long, 256 bytes of at most 255"),
            (&long_path, "the path is too long, 5000 bytes of at most 4095"),
        ];
        for (text, part) in cases {
            let message = Location::parse(text).unwrap_err().to_string();
            assert!(message.contains(part), "{text}: {message}");
            assert!(!message.contains('\n') && message.len() < 300, "{message}");
        }
    }

    #[test]
    fn knows_its_own() {
        assert!(Location::is_one("pario://x"));
        assert!(!Location::is_one("/pario://x"));
    }
}
