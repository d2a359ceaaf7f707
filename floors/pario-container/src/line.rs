//! One line of a log: a JSON object with the checksum of the rest as first member. Layout: docs/formats/hdf5-tree.md.
//!
//! Always: a line that was cut anywhere, or changed in one byte, is recognised.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// `{"crc":"xxxxxxxx",` in front of the members.
const HEAD: usize = 18;

/// A line with its newline. `value` serialises as a JSON object with at least one member.
pub(crate) fn encode<T: Serialize>(value: &T) -> String {
    let body = serde_json::to_string(value).expect("the records of a tree have string keys");
    let members = body.strip_prefix('{').expect("a record is a JSON object");
    format!("{{\"crc\":\"{:08x}\",{members}\n", crc32c::crc32c(members.as_bytes()))
}

/// Why a line cannot be read.
pub(crate) type LineFault = String;

/// The record of a line without its newline.
pub(crate) fn decode<T: DeserializeOwned>(line: &[u8]) -> Result<T, LineFault> {
    let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
    let head = text.get(..HEAD).ok_or("shorter than a checksum")?;
    let sum =
        head.strip_prefix("{\"crc\":\"").and_then(|rest| rest.strip_suffix("\",")).ok_or("no checksum")?;
    let sum = u32::from_str_radix(sum, 16).map_err(|_| "no checksum".to_owned())?;
    let members = &text[HEAD..];
    if crc32c::crc32c(members.as_bytes()) != sum {
        return Err("the checksum does not match".into());
    }
    serde_json::from_str(&format!("{{{members}")).map_err(|error| format!("unknown record: {error}"))
}
