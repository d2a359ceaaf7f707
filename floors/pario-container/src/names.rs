//! Link names as file names: escaping that no two names share.
//!
//! Never: an escaped name contains a bare `@`, `/` or control byte, begins with `.`, or exceeds [`FILE_NAME_MAX`] bytes.
//! Always: every reserved name of a tree contains a bare `@`, or is `.` and an escaped name.

use std::fmt::{self, Display};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::bytes::Hex;

/// Longest escaped name in bytes, without the suffixes of parts; file systems allow 255.
pub const FILE_NAME_MAX: usize = 200;
/// Bytes of a cut name that stay readable.
const CUT_AT: usize = 150;
/// Prefix in JSON of a name that is not UTF-8.
const NOT_UTF8: &str = "\u{0}hex:";

/// The name of a link or an attribute: bytes, usually UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkName(pub Vec<u8>);

impl LinkName {
    /// The name in messages.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl From<&str> for LinkName {
    fn from(text: &str) -> LinkName {
        LinkName(text.as_bytes().to_vec())
    }
}

impl Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for LinkName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.serialize_str(&format!("{NOT_UTF8}{}", Hex(self.0.clone()).text())),
        }
    }
}

impl<'de> Deserialize<'de> for LinkName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<LinkName, D::Error> {
        let text = String::deserialize(deserializer)?;
        // An HDF5 name never contains NUL, so that the prefix is unambiguous.
        match text.strip_prefix(NOT_UTF8) {
            Some(digits) => Hex::parse(digits)
                .map(|hex| LinkName(hex.0))
                .ok_or_else(|| D::Error::custom("hexadecimal digits expected")),
            None => Ok(LinkName(text.into_bytes())),
        }
    }
}

/// The file name of a link name.
pub fn file_name(name: &LinkName) -> String {
    let escaped = escape(&name.0);
    if escaped.len() <= FILE_NAME_MAX {
        return escaped;
    }
    let mut cut = CUT_AT;
    while !escaped.is_char_boundary(cut) {
        cut -= 1;
    }
    // `%~` is no result of escaping: a cut name never equals a whole one.
    format!("{}%~{:016x}{:016x}", &escaped[..cut], fnv(&name.0, FNV_BASIS), fnv(&name.0, FNV_SECOND))
}

fn escape(name: &[u8]) -> String {
    let mut escaped = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            let leading_dot = character == '.' && escaped.is_empty();
            if leading_dot || matches!(character, '%' | '@' | '/') || character.is_control() {
                let mut encoded = [0; 4];
                character.encode_utf8(&mut encoded).bytes().for_each(|byte| push(&mut escaped, byte));
            } else {
                escaped.push(character);
            }
        }
        chunk.invalid().iter().for_each(|byte| push(&mut escaped, *byte));
    }
    if escaped.is_empty() { "%".into() } else { escaped }
}

fn push(escaped: &mut String, byte: u8) {
    escaped.push('%');
    escaped.push_str(&Hex(vec![byte]).text());
}

const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_SECOND: u64 = 0x6c62_272e_07bb_0142;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// A hash that never changes between versions: file names depend on it.
fn fnv(bytes: &[u8], basis: u64) -> u64 {
    let mixed = bytes.iter().fold(basis, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME));
    // The last bytes must reach all bits.
    (mixed ^ (mixed >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (mixed >> 17)
}
