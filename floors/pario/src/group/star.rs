//! A group with members on several hosts: each has one TCP connection, to rank 0, which collects and distributes the
//! contributions. Built from another group that can only exchange bytes, such as the ranks of an MPI library.
//!
//! Never: has a thread; hangs on a dead member. Always: after a member's death every collective fails, and names the member.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::fork_generation;

use super::call::CollectiveCall;
use super::collective_state::PART_BYTES_MAX;
use super::{Group, nodes};
use crate::collective::{RankConnection, connect_ranks};
use crate::error::Result;

/// Limit of bytes of one collective, all members together.
const COLLECTIVE_BYTES_MAX: usize = 64 << 20;
/// Limit of an error text.
const TEXT_BYTES_MAX: usize = 4096;
const PART: u8 = 0;
const FAULT: u8 = 1;

/// See the module head.
#[derive(Debug)]
pub struct Star {
    rank: usize,
    size: usize,
    nodes: Vec<usize>,
    links: Mutex<StarLinks>,
    made_in: u64,
}

#[derive(Debug)]
struct StarLinks {
    /// On rank 0: connections to all other ranks, in rank order. Elsewhere: one connection, to rank 0.
    streams: Vec<RankConnection>,
    /// Why the group cannot be used any more.
    broken: Option<Fault>,
}

/// A member's contribution: its bytes, or why it has none.
type PartOrFault = std::result::Result<Vec<u8>, Fault>;

impl Star {
    /// The same members as `group`, which is used until this returns; collective. `node` is the node label of this process, if
    /// any: see [`super::own_node`].
    pub fn over(group: &dyn Group, node: Option<&str>) -> Result<Arc<Star>> {
        let mut star = Star::connected(group)?;
        star.nodes = nodes::find(&star, node)?;
        Ok(Arc::new(star))
    }

    fn connected(group: &dyn Group) -> Result<Star> {
        let (rank, size) = (group.rank(), group.size());
        let partners: Vec<usize> = if rank == 0 { (1..size).collect() } else { vec![0] };
        let mut made = connect_ranks(group, &partners)?;
        made.sort_by_key(|(rank, _)| *rank);
        let streams = made.into_iter().map(|(_, stream)| stream).collect();
        let links = Mutex::new(StarLinks { streams, broken: None });
        Ok(Star { rank, size, nodes: (0..size).collect(), links, made_in: fork_generation() })
    }

    fn links(&self) -> MutexGuard<'_, StarLinks> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_usable(&self) -> std::result::Result<(), Fault> {
        match self.made_in == fork_generation() {
            true => Ok(()),
            false => Err(Fault::new(Code::Closed, "a group is used in a forked child, which is no member")),
        }
    }

    /// Rank 0 receives all contributions and sends them to all members.
    fn run_root(
        &self,
        links: &mut StarLinks,
        call: CollectiveCall,
        own: PartOrFault,
    ) -> std::result::Result<Vec<Vec<u8>>, Fault> {
        let mut parts = Vec::with_capacity(self.size);
        let mut refused = own.as_ref().err().map(|fault| fault.clone().at("rank 0"));
        parts.push(own.unwrap_or_default());
        for (at, stream) in links.streams.iter().enumerate() {
            let rank = at + 1;
            match receive_part(stream, call, rank) {
                Ok(Ok(part)) => parts.push(part),
                Ok(Err(fault)) => {
                    refused.get_or_insert(fault.at(format!("rank {rank}")));
                    parts.push(Vec::new());
                }
                Err(fault) => {
                    links.broken.get_or_insert(fault);
                    parts.push(Vec::new());
                }
            }
        }
        let total: usize = parts.iter().map(Vec::len).sum();
        if COLLECTIVE_BYTES_MAX < total {
            let text = format!(
                "{total} bytes in a collective of a group; the limit is {COLLECTIVE_BYTES_MAX} bytes"
            );
            refused.get_or_insert(Fault::new(Code::TooLarge, text));
        }
        let verdict = links.broken.clone().or(refused);
        let answer = match &verdict {
            Some(fault) => frame(call, &Err(fault.clone())),
            None => parts.iter().flat_map(|part| frame(call, &Ok(part.clone()))).collect(),
        };
        for (at, stream) in links.streams.iter().enumerate() {
            if let Err(error) = stream.write_without_limit(&answer) {
                links.broken.get_or_insert(connection_lost(at + 1, &error));
            }
        }
        verdict.map_or(Ok(parts), Err)
    }

    /// The other ranks send their contribution and receive those of all.
    fn run_leaf(
        &self,
        links: &mut StarLinks,
        call: CollectiveCall,
        own: PartOrFault,
    ) -> std::result::Result<Vec<Vec<u8>>, Fault> {
        let stream = &links.streams[0];
        let mut parts = Vec::with_capacity(self.size);
        let told = stream.write_without_limit(&frame(call, &own)).map_err(|error| connection_lost(0, &error));
        let heard = told.and_then(|()| {
            while parts.len() < self.size {
                match receive_part(stream, call, 0)? {
                    Ok(part) => parts.push(part),
                    Err(fault) => return Ok(Err(fault)),
                }
            }
            Ok(Ok(parts))
        });
        match heard {
            Ok(verdict) => verdict,
            Err(fault) => {
                links.broken = Some(fault.clone());
                Err(fault)
            }
        }
    }
}

impl Group for Star {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn node_of(&self, rank: usize) -> usize {
        self.nodes[rank]
    }

    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect(CollectiveCall::Allgather, bytes)
    }

    fn collect(&self, call: CollectiveCall, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.check_usable()?;
        let mut links = self.links();
        if let Some(fault) = &links.broken {
            return Err(fault.clone().into());
        }
        let own = super::check_part(bytes).map_err(|text| Fault::new(Code::TooLarge, text));
        let round = match self.rank {
            0 => self.run_root(&mut links, call, own),
            _ => self.run_leaf(&mut links, call, own),
        };
        Ok(round?)
    }

    fn check(&self) -> Result<()> {
        self.check_usable()?;
        // A thread inside a collective detects a failure itself.
        let Ok(mut links) = self.links.try_lock() else { return Ok(()) };
        for at in 0..links.streams.len() {
            let rank = if self.rank == 0 { at + 1 } else { 0 };
            if links.broken.is_none() && links.streams[at].has_ended() {
                links.broken = Some(member_died(rank));
            }
        }
        links.broken.clone().map_or(Ok(()), |fault| Err(fault.into()))
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        let mut star = Star::connected(self)?;
        star.nodes.clone_from(&self.nodes);
        Ok(Arc::new(star))
    }
}

/// Frame of a contribution or an error: call, kind, length, bytes.
fn frame(call: CollectiveCall, said: &PartOrFault) -> Vec<u8> {
    let (kind, root) = call.to_numbers();
    let (which, body) = match said {
        Ok(part) => (PART, part.clone()),
        Err(fault) => {
            let text = &fault.text.as_bytes()[..fault.text.len().min(TEXT_BYTES_MAX)];
            (FAULT, [&(fault.code as u16).to_le_bytes()[..], text].concat())
        }
    };
    let bytes = u32::try_from(body.len()).expect("checked against a limit");
    [&[kind, which][..], &root.to_le_bytes(), &bytes.to_le_bytes(), &body].concat()
}

/// Receives one frame of a member; an error means that the connection is unusable.
fn receive_part(
    stream: &RankConnection,
    call: CollectiveCall,
    rank: usize,
) -> std::result::Result<PartOrFault, Fault> {
    let mut head = [0; 10];
    stream.read_exact(&mut head).map_err(|error| connection_lost(rank, &error))?;
    let [kind, which, a, b, c, d, e, f, g, h] = head;
    let (root, bytes) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
    if PART_BYTES_MAX.max(TEXT_BYTES_MAX + 2) < bytes {
        return Err(Fault::new(
            Code::Protocol,
            format!("rank {rank} announces {bytes} bytes in a collective"),
        ));
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).map_err(|error| connection_lost(rank, &error))?;
    if which == FAULT {
        let (code, text) = body.split_at(bytes.min(2));
        let code = code.try_into().ok().and_then(|code| Code::from_number(u16::from_le_bytes(code)));
        return Ok(Err(Fault::new(code.unwrap_or(Code::Invalid), String::from_utf8_lossy(text))));
    }
    match CollectiveCall::from_numbers(kind, root) {
        Some(theirs) if theirs == call => Ok(Ok(body)),
        Some(theirs) => {
            let text = format!(
                "members of a group call different collectives: rank {rank} calls {theirs}, others {call}"
            );
            Ok(Err(Fault::new(Code::NotSame, text)))
        }
        None => Err(Fault::new(
            Code::Protocol,
            format!("rank {rank} calls an unknown collective: another version of Pario?"),
        )),
    }
}

fn member_died(rank: usize) -> Fault {
    Fault::new(Code::Unreachable, format!("rank {rank} is gone"))
}

fn connection_lost(rank: usize, error: &std::io::Error) -> Fault {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return member_died(rank);
    }
    Fault::new(Code::Unreachable, format!("rank {rank} is gone: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{Reduce, threads};

    fn each(size: usize, body: impl Fn(Arc<Star>) + Sync) {
        let body = &body;
        std::thread::scope(|scope| {
            for group in threads(size) {
                scope.spawn(move || {
                    let star = Star::over(&*group, None).unwrap();
                    // Dropping its connections ends the member.
                    group.leave();
                    body(star);
                });
            }
        });
    }

    #[test]
    fn members_agree_as_in_any_group() {
        each(4, |star| {
            let rank = star.rank();
            let all = star.allgather(&vec![u8::try_from(rank).unwrap(); 100_000 * rank]).unwrap();
            assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [0, 100_000, 200_000, 300_000]);
            assert_eq!(star.reduce(rank as u64, Reduce::Sum).unwrap(), 6);
            let other = star.duplicate().unwrap();
            assert_eq!(other.broadcast(3, &[u8::try_from(rank).unwrap()]).unwrap(), [3]);
            assert_eq!((0..4).map(|rank| other.node_of(rank)).collect::<Vec<_>>(), vec![0; 4]);
            star.barrier().unwrap();
        });
    }

    #[test]
    fn a_member_that_is_late_is_waited_for_without_limit() {
        each(3, |star| {
            for stream in &star.links().streams {
                use rustix::net::sockopt::{Timeout, socket_timeout};
                assert_eq!(socket_timeout(stream.socket(), Timeout::Recv).unwrap(), None);
                assert_eq!(socket_timeout(stream.socket(), Timeout::Send).unwrap(), None);
            }
            let other = star.duplicate().unwrap();
            other.barrier().unwrap();
        });
    }

    #[test]
    fn mismatch_and_too_much_are_told_to_all_and_it_goes_on() {
        each(3, |star| {
            let error = match star.rank() {
                1 => star.barrier().unwrap_err(),
                _ => star.reduce(1, Reduce::Sum).unwrap_err(),
            };
            assert_eq!(error.code(), Code::NotSame, "{error}");
            let much = vec![0; if star.rank() == 2 { PART_BYTES_MAX + 1 } else { 1 }];
            assert_eq!(star.allgather(&much).unwrap_err().code(), Code::TooLarge);
            star.barrier().unwrap();
        });
    }

    #[test]
    fn a_member_that_is_gone_ends_all_waits() {
        each(3, |star| {
            if star.rank() == 1 {
                return;
            }
            let error = star.barrier().unwrap_err();
            assert!(error.to_string().contains("rank 1 is gone"), "{error}");
            assert!(star.barrier().is_err());
        });
    }
}
