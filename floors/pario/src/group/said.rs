//! What members say in a round, as bytes, and what follows from what all said.
//!
//! Always: every member comes to the same answer, since all compare the same bytes in the same order.

use pario_core::{Code, Fault};

use crate::error::{Error, Result};

/// What a member has for the others: its bytes, or its error.
pub(super) fn said(mine: std::result::Result<&[u8], &Error>) -> Vec<u8> {
    match mine {
        Ok(bytes) => [&[FINE][..], bytes].concat(),
        Err(error) => [&[FAILED][..], &error_bytes(error)].concat(),
    }
}

/// What a member said.
pub(super) fn heard(rank: usize, bytes: &[u8]) -> Result<&[u8]> {
    match bytes.split_first() {
        Some((&FINE, rest)) => Ok(rest),
        Some((&FAILED, rest)) => Err(error_of(rank, rest)),
        Some(_) | None => Err(disagree("bytes or an error")),
    }
}

/// Things that all must have alike, each behind its length.
pub(super) fn things(list: &[(&str, &[u8])]) -> Vec<u8> {
    list.iter().flat_map(|(_, bytes)| thing(bytes)).collect()
}

fn thing(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

/// The name of the first thing that two members have not alike; they differ somewhere.
pub(super) fn differs<'a>(list: &[(&'a str, &[u8])], mut one: &[u8], mut other: &[u8]) -> &'a str {
    for (name, _) in list {
        let ((mine, rest), (theirs, behind)) = (first_thing(one), first_thing(other));
        if mine != theirs {
            return name;
        }
        (one, other) = (rest, behind);
    }
    // One of them has more things than we know of.
    list.last().map_or("what belongs to the call", |last| last.0)
}

/// The first of several things, and what is behind it.
fn first_thing(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return (bytes, &[]) };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    rest.split_at_checked(length).unwrap_or((rest, &[]))
}

const FINE: u8 = 0;
const FAILED: u8 = 1;

/// A member's error for the others: its code, then its sentence.
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

/// A member's part of [`super::Group::exchange`]: what all must have alike, then what it has itself.
pub(super) fn exchange(alike: &[(&str, &[u8])], mine: &Result<&[u8]>) -> Vec<u8> {
    let own = said(mine.as_deref());
    [thing(&things(alike)), own].concat()
}

/// What each member of [`super::Group::exchange`] has, if all agree.
pub(super) fn exchanged(
    all: &[Vec<u8>],
    alike: &[(&str, &[u8])],
    mine: Result<&[u8]>,
) -> Result<Vec<Vec<u8>>> {
    let parts: Vec<(&[u8], &[u8])> = all.iter().map(|bytes| first_thing(bytes)).collect();
    if let Some(rank) = parts.iter().position(|theirs| theirs.0 != parts[0].0) {
        return Err(not_same(0, rank, differs(alike, parts[0].0, parts[rank].0)));
    }
    // What a member is told of its own error needs no name.
    mine?;
    parts.iter().enumerate().map(|(rank, (_, own))| heard(rank, own).map(<[u8]>::to_vec)).collect()
}

pub(super) fn not_same(one: usize, other: usize, what: &str) -> Error {
    Fault::new(Code::NotSame, format!("ranks {one} and {other} do not agree on {what}, and all must")).into()
}

pub(super) fn disagree(what: &str) -> Error {
    let text = format!("members of a group call different collectives: {what} was expected");
    Fault::new(Code::NotSame, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 2] = ["a mode", "a name"];

    /// Two members with their words, and what the second has or why not; how it ends for the first and the second.
    fn both(words: [[&str; 2]; 2], second: Result<&[u8]>) -> [Result<Vec<Vec<u8>>>; 2] {
        let alike = words.map(|words| [0, 1].map(|at| (NAMES[at], words[at].as_bytes())));
        let mine = [Ok(&b"first"[..]), second];
        let all: Vec<Vec<u8>> = (0..2).map(|rank| exchange(&alike[rank], &mine[rank])).collect();
        let [first, second] = mine;
        [exchanged(&all, &alike[0], first), exchanged(&all, &alike[1], second)]
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
                        format!("ranks 0 and 1 do not agree on {what}, and all must")
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
