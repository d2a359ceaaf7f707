//! Finds the members that share memory by trying, not by comparing host names.
//!
//! Each member creates a small memory file with a random token, and tries to read the file of every other member through
//! `/proc`. Two members that can read each other's token are on one node. `PARIO_NODE` overrides it: members with different
//! labels are on different nodes, and do not try.
//!
//! Always: all members get the same result; all members of a node can read each other's memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use pario_core::{Code, Fault};
use pario_net::greeting::nonce;
use pario_sys::SharedMemory;
use rustix::fs::{Mode, OFlags};

use super::Group;
use super::call::CollectiveCall;
use super::threads::renumber;
use crate::error::{Error, Result};

/// The variable with the label of the node that a process pretends to run on.
pub const NODE_VARIABLE: &str = "PARIO_NODE";
/// Longest label.
const LABEL_BYTES_MAX: usize = 255;
const PROBE: &str = "pario-node";
const PROOF_BYTES: usize = 32;

/// The label of the node that this process pretends to run on, from `PARIO_NODE`: no memory is shared with processes and servers
/// of another label, or of none. `None`: shared memory is detected.
pub fn own_node() -> Result<Option<String>> {
    let Some(label) = std::env::var_os(NODE_VARIABLE).filter(|label| !label.is_empty()) else {
        return Ok(None);
    };
    let label =
        label.into_string().map_err(|_| Error::Setup(format!("{NODE_VARIABLE} is not valid UTF-8")))?;
    if LABEL_BYTES_MAX < label.len() || label.chars().any(char::is_control) {
        let text = format!(
            "{NODE_VARIABLE} is longer than {LABEL_BYTES_MAX} bytes, or has control characters in it"
        );
        return Err(Error::Setup(text));
    }
    Ok(Some(label))
}

/// A member's description of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Probe {
    descriptor: ProcessDescriptor,
    proof: [u8; PROOF_BYTES],
    label: Option<String>,
}

/// A file descriptor of a process, reachable through `/proc`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ProcessDescriptor {
    pid: u32,
    /// Negative: no descriptor.
    fd: i32,
}

impl ProcessDescriptor {
    pub(super) const BYTES: usize = 8;

    /// Address of a descriptor of this process.
    pub(super) fn of(fd: Option<BorrowedFd<'_>>) -> ProcessDescriptor {
        ProcessDescriptor { pid: std::process::id(), fd: fd.map_or(-1, |fd| fd.as_raw_fd()) }
    }

    pub(super) fn to_bytes(self) -> [u8; ProcessDescriptor::BYTES] {
        let mut bytes = [0; ProcessDescriptor::BYTES];
        bytes[..4].copy_from_slice(&self.pid.to_le_bytes());
        bytes[4..].copy_from_slice(&self.fd.to_le_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; ProcessDescriptor::BYTES]) -> ProcessDescriptor {
        let [a, b, c, d, e, f, g, h] = bytes;
        ProcessDescriptor { pid: u32::from_le_bytes([a, b, c, d]), fd: i32::from_le_bytes([e, f, g, h]) }
    }

    pub(super) fn is_empty(self) -> bool {
        self.fd < 0
    }

    /// Opens the descriptor if it is memory of that name. In another pid namespace the number may belong to any process, so only
    /// a descriptor with the right link text is opened at all.
    pub(super) fn open(self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let path = format!("/proc/{}/fd/{}", self.pid, self.fd);
        let link = std::fs::read_link(&path)?;
        if link.as_os_str() != format!("/memfd:{name} (deleted)").as_str() {
            return Err(io::Error::other(format!("{path} is {}", link.display())));
        }
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(rustix::fs::open(&path, flags, Mode::empty())?)
    }
}

/// Finds the node of each member; collective.
pub(super) fn find(group: &dyn Group, label: Option<&str>) -> Result<Vec<usize>> {
    // Without memory to share, a member is on a node of its own.
    let (proof, shown) = (nonce(), SharedMemory::create(PROBE, PROOF_BYTES).ok());
    if let Some((shared, _)) = &shown {
        shared.write(0, &proof);
    }
    let place = ProcessDescriptor::of(shown.as_ref().map(|(_, fd)| std::os::fd::AsFd::as_fd(fd)));
    let own = Probe { descriptor: place, proof, label: label.map(str::to_owned) };
    let all = group.collect(CollectiveCall::Probe, &own.to_bytes())?;
    let sees: Vec<u8> = all.iter().map(|other| u8::from(own.can_read(other))).collect();
    // The memory stays until every member has read it.
    let rows = group.collect(CollectiveCall::Probe, &sees)?;
    drop(shown);
    let size = group.size();
    if rows.iter().any(|row| row.len() != size) {
        return Err(Fault::new(
            Code::Protocol,
            "the members of a group disagree on its size while they probe for shared memory",
        )
        .into());
    }
    Ok(partition(&rows))
}

impl Probe {
    fn to_bytes(&self) -> Vec<u8> {
        let label = self.label.as_deref().map_or_else(Vec::new, |label| [&[1], label.as_bytes()].concat());
        [self.descriptor.to_bytes().as_slice(), &self.proof, &label].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Probe> {
        let (place, rest) = bytes.split_first_chunk::<{ ProcessDescriptor::BYTES }>()?;
        let (proof, label) = rest.split_first_chunk::<PROOF_BYTES>()?;
        let label = match label.split_first() {
            None => None,
            Some((1, label)) => Some(String::from_utf8(label.to_vec()).ok()?),
            Some(_) => return None,
        };
        Some(Probe { descriptor: ProcessDescriptor::from_bytes(*place), proof: *proof, label })
    }

    /// Whether this member can read the token of another.
    fn can_read(&self, other: &[u8]) -> bool {
        let Some(other) = Probe::from_bytes(other) else { return false };
        if self.label != other.label || other.descriptor.is_empty() {
            return false;
        }
        let read = other.descriptor.open(PROBE, OFlags::RDONLY).and_then(|fd| {
            let mut found = [0; PROOF_BYTES];
            let count = rustix::io::pread(&fd, &mut found, 0)?;
            Ok((count, found))
        });
        matches!(read, Ok((PROOF_BYTES, found)) if found == other.proof)
    }
}

/// Nodes from the visibility matrix: connected components in which all members see each other; members of other components are
/// alone.
fn partition(rows: &[Vec<u8>]) -> Vec<usize> {
    let size = rows.len();
    let both = |a: usize, b: usize| a == b || (rows[a][b] == 1 && rows[b][a] == 1);
    let mut part: Vec<usize> = (0..size).collect();
    for a in 0..size {
        for b in 0..a {
            let (one, other) = (part[a], part[b]);
            if both(a, b) && one != other {
                part.iter_mut().filter(|number| **number == one).for_each(|number| *number = other);
            }
        }
    }
    let whole = |number: usize| {
        let members: Vec<usize> = (0..size).filter(|rank| part[*rank] == number).collect();
        members.iter().all(|a| members.iter().all(|b| both(*a, *b)))
    };
    let wholes: Vec<bool> = (0..size).map(|rank| whole(part[rank])).collect();
    let nodes: Vec<usize> =
        (0..size).map(|rank| if wholes[rank] { part[rank] } else { size + rank }).collect();
    renumber(&nodes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(rows: &[&[u8]]) -> Vec<usize> {
        partition(&rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn nodes_are_where_all_see_each_other() {
        assert_eq!(nodes(&[&[1]]), [0]);
        assert_eq!(nodes(&[&[0]]), [0]);
        assert_eq!(nodes(&[&[1, 1], &[1, 1]]), [0, 0]);
        assert_eq!(nodes(&[&[1, 1], &[0, 1]]), [0, 1], "visibility in one direction is not enough");
        assert_eq!(nodes(&[&[1, 0, 1], &[0, 1, 0], &[1, 0, 1]]), [0, 1, 0]);
        assert_eq!(nodes(&[&[1, 1, 0], &[1, 1, 1], &[0, 1, 1]]), [0, 1, 2], "a chain is no node");
        let mixed: [&[u8]; 5] =
            [&[1, 1, 0, 0, 0], &[1, 1, 1, 0, 0], &[0, 1, 1, 0, 0], &[0, 0, 0, 1, 1], &[0, 0, 0, 1, 1]];
        assert_eq!(nodes(&mixed), [0, 1, 2, 3, 3]);
    }

    #[test]
    fn what_is_shown_is_seen_and_labels_part() {
        let (shared, fd) = SharedMemory::create(PROBE, PROOF_BYTES).unwrap();
        let probe = |label: Option<&str>, proof| Probe {
            descriptor: ProcessDescriptor::of(Some(std::os::fd::AsFd::as_fd(&fd))),
            proof,
            label: label.map(str::to_owned),
        };
        let proof = nonce();
        shared.write(0, &proof);
        let shown = probe(None, proof);
        assert_eq!(Probe::from_bytes(&shown.to_bytes()), Some(shown.clone()));
        assert!(shown.can_read(&shown.to_bytes()));
        assert!(!shown.can_read(&probe(None, [1; 32]).to_bytes()), "another's token");
        assert!(!shown.can_read(&probe(Some("a"), proof).to_bytes()));
        assert!(!probe(Some("b"), proof).can_read(&probe(Some("a"), proof).to_bytes()));
        assert!(probe(Some("a"), proof).can_read(&probe(Some("a"), proof).to_bytes()));
        assert!(!shown.can_read(&[]) && !shown.can_read(&[0; 30]));
        let none = Probe { descriptor: ProcessDescriptor::of(None), proof, label: None };
        assert!(!shown.can_read(&none.to_bytes()));
    }

    #[test]
    fn what_is_not_the_memory_meant_is_not_opened() {
        let (reader, _writer) = std::io::pipe().unwrap();
        let place = ProcessDescriptor::of(Some(std::os::fd::AsFd::as_fd(&reader)));
        assert!(place.open(PROBE, OFlags::RDONLY).is_err(), "a pipe would block");
        let (_shared, fd) = SharedMemory::create("another", 10).unwrap();
        assert!(
            ProcessDescriptor::of(Some(std::os::fd::AsFd::as_fd(&fd))).open(PROBE, OFlags::RDONLY).is_err()
        );
    }
}
