//! Byte encoding of the values that members exchange to agree, and the comparison of all members' values.
//!
//! Always: every member gets the same result, since all compare the same bytes in the same order.

use pario_core::{Code, Fault};

use crate::error::{Error, Result};

/// Encodes a member's bytes or its error.
pub(super) fn encode_result(mine: std::result::Result<&[u8], &Error>) -> Vec<u8> {
    match mine {
        Ok(bytes) => [&[SUCCEEDED][..], bytes].concat(),
        Err(error) => [&[FAILED][..], &error_bytes(error)].concat(),
    }
}

/// Decodes the bytes or the error of `rank`.
pub(super) fn decode_result(rank: usize, bytes: &[u8]) -> Result<&[u8]> {
    match bytes.split_first() {
        Some((&SUCCEEDED, rest)) => Ok(rest),
        Some((&FAILED, rest)) => Err(error_of(rank, rest)),
        Some(_) | None => Err(disagree("bytes or an error")),
    }
}

/// Encodes values that must be equal on all members, each with its length.
pub(super) fn encode_values(list: &[(&str, &[u8])]) -> Vec<u8> {
    list.iter().flat_map(|(_, bytes)| encode_value(bytes)).collect()
}

fn encode_value(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

/// The name of the first value that differs between two members; the encodings are known to differ.
pub(super) fn first_difference<'a>(list: &[(&'a str, &[u8])], mut one: &[u8], mut other: &[u8]) -> &'a str {
    for (name, _) in list {
        let ((mine, rest), (theirs, behind)) = (first_value(one), first_value(other));
        if mine != theirs {
            return name;
        }
        (one, other) = (rest, behind);
    }
    // One member has more values than this version knows.
    list.last().map_or("the arguments of the call", |last| last.0)
}

/// The first value, and the rest.
fn first_value(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return (bytes, &[]) };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    rest.split_at_checked(length).unwrap_or((rest, &[]))
}

const SUCCEEDED: u8 = 0;
const FAILED: u8 = 1;

/// A member's error for the others: its code, then its text.
pub(super) fn error_bytes(error: &Error) -> Vec<u8> {
    let code = error.code() as u16;
    [&code.to_le_bytes()[..], error.to_string().as_bytes()].concat()
}

/// The error of another member.
pub(super) fn error_of(rank: usize, bytes: &[u8]) -> Error {
    let (code, text) = bytes.split_at(bytes.len().min(2));
    let code = code.try_into().ok().and_then(|code| Code::from_number(u16::from_le_bytes(code)));
    let text = String::from_utf8_lossy(text);
    Fault::new(code.unwrap_or(Code::Invalid), format!("rank {rank}: {text}")).into()
}

/// A member's contribution to [`super::Group::encode_exchange`]: the values that must be equal, then its own bytes.
pub(super) fn encode_exchange(alike: &[(&str, &[u8])], mine: &Result<&[u8]>) -> Vec<u8> {
    let own = encode_result(mine.as_deref());
    [encode_value(&encode_values(alike)), own].concat()
}

/// The bytes of each member of [`super::Group::encode_exchange`], if all agree.
pub(super) fn decode_exchange(
    all: &[Vec<u8>],
    alike: &[(&str, &[u8])],
    mine: Result<&[u8]>,
) -> Result<Vec<Vec<u8>>> {
    let parts: Vec<(&[u8], &[u8])> = all.iter().map(|bytes| first_value(bytes)).collect();
    if let Some(rank) = parts.iter().position(|theirs| theirs.0 != parts[0].0) {
        return Err(not_same(0, rank, first_difference(alike, parts[0].0, parts[rank].0)));
    }
    // A member's own error is returned without its rank.
    mine?;
    parts.iter().enumerate().map(|(rank, (_, own))| decode_result(rank, own).map(<[u8]>::to_vec)).collect()
}

pub(super) fn not_same(one: usize, other: usize, what: &str) -> Error {
    Fault::new(
        Code::NotSame,
        format!("ranks {one} and {other} do not agree on {what}, which must be equal on all members"),
    )
    .into()
}

pub(super) fn disagree(what: &str) -> Error {
    let text = format!("members of a group call different collectives: expected {what}");
    Fault::new(Code::NotSame, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["a mode", "a name"];

    /// Runs an exchange of two members with their values; the second has bytes or an error. Returns both results.
    fn both(words: [[&str; 2]; 2], second: Result<&[u8]>) -> [Result<Vec<Vec<u8>>>; 2] {
        let alike = words.map(|words| [0, 1].map(|at| (NAMES[at], words[at].as_bytes())));
        let mine = [Ok(&b"first"[..]), second];
        let all: Vec<Vec<u8>> = (0..2).map(|rank| encode_exchange(&alike[rank], &mine[rank])).collect();
        let [first, second] = mine;
        [decode_exchange(&all, &alike[0], first), decode_exchange(&all, &alike[1], second)]
    }

    fn none() -> Result<&'static [u8]> {
        Err(Fault::new(Code::NoSpace, "no room").into())
    }

    #[test]
    fn who_agrees_hears_everybody() {
        for ended in both([["r", "f"]; 2], Ok(b"")) {
            assert_eq!(ended.unwrap(), [&b"first"[..], b""]);
        }
    }

    #[test]
    fn what_is_not_alike_is_named_and_goes_before_errors() {
        for (theirs, what) in [(["w", "f"], "a mode"), (["r", "g"], "a name"), (["w", "g"], "a mode")] {
            for second in [Ok(&b"x"[..]), none()] {
                for ended in both([["r", "f"], theirs], second) {
                    let error = ended.unwrap_err();
                    assert_eq!(error.code(), Code::NotSame);
                    assert_eq!(
                        error.to_string(),
                        format!("ranks 0 and 1 do not agree on {what}, which must be equal on all members")
                    );
                }
            }
        }
    }

    #[test]
    fn an_error_is_everybodys_with_the_name_of_whom_it_met() {
        let [first, second] = both([["r", "f"]; 2], none()).map(|ended| ended.unwrap_err());
        assert_eq!((first.code(), first.to_string().as_str()), (Code::NoSpace, "rank 1: no room"));
        assert_eq!((second.code(), second.to_string().as_str()), (Code::NoSpace, "no room"));
    }
}
