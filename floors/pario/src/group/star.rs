//! A group whose members are on several hosts: each has one TCP connection, to rank 0, which carries what they say to each other.
//! Made from another group that can only exchange bytes, such as the ranks of an MPI library.
//!
//! Never: has a thread; hangs on a member that is gone. Always: once a member is gone every collective fails, and names it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::fork_generation;

use super::call::Call;
use super::meeting::PART_BYTES_MAX;
use super::{Group, nodes};
use crate::collective::connect_ranks;
use crate::error::Result;

/// All parts of a collective together.
const ROUND_BYTES_MAX: usize = 64 << 20;
/// A sentence that goes with a failure.
const TEXT_BYTES_MAX: usize = 4096;
const PART: u8 = 0;
const FAULT: u8 = 1;

/// See the module.
#[derive(Debug)]
pub struct Star {
    rank: usize,
    size: usize,
    nodes: Vec<usize>,
    links: Mutex<Links>,
    made_in: u64,
}

#[derive(Debug)]
struct Links {
    /// Of rank 0 to all others in their order; of the others to rank 0.
    streams: Vec<TcpStream>,
    /// Why it cannot be used any more.
    broken: Option<Fault>,
}

/// What a member says in a round: its part, or why it has none.
type Said = std::result::Result<Vec<u8>, Fault>;

impl Star {
    /// The same members as `group`, which is used until this returns; collective. `node` is the label of the node that this
    /// process plays, if any: see [`super::own_node`].
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
        let mut streams = Vec::with_capacity(made.len());
        for (other, stream) in made {
            // Waits are for living members only: keep-alive ends the connection to a host that is gone.
            stream.set_nonblocking(false).map_err(|error| lost(other, &error))?;
            stream.set_nodelay(true).map_err(|error| lost(other, &error))?;
            streams.push(stream);
        }
        let links = Mutex::new(Links { streams, broken: None });
        Ok(Star { rank, size, nodes: (0..size).collect(), links, made_in: fork_generation() })
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> std::result::Result<(), Fault> {
        match self.made_in == fork_generation() {
            true => Ok(()),
            false => Err(Fault::new(Code::Closed, "a group is used in a forked child, which is no member")),
        }
    }

    /// Rank 0 hears everyone and tells everyone.
    fn lead(&self, links: &mut Links, call: Call, own: Said) -> std::result::Result<Vec<Vec<u8>>, Fault> {
        let mut parts = Vec::with_capacity(self.size);
        let mut refused = own.as_ref().err().map(|fault| fault.clone().at("rank 0"));
        parts.push(own.unwrap_or_default());
        for (at, stream) in links.streams.iter_mut().enumerate() {
            let rank = at + 1;
            match hear(stream, call, rank) {
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
        if ROUND_BYTES_MAX < total {
            let text = format!("{total} bytes in a collective of a group, at most {ROUND_BYTES_MAX} may be");
            refused.get_or_insert(Fault::new(Code::TooLarge, text));
        }
        let verdict = links.broken.clone().or(refused);
        let answer = match &verdict {
            Some(fault) => frame(call, &Err(fault.clone())),
            None => parts.iter().flat_map(|part| frame(call, &Ok(part.clone()))).collect(),
        };
        for (at, stream) in links.streams.iter_mut().enumerate() {
            if let Err(error) = stream.write_all(&answer) {
                links.broken.get_or_insert(lost(at + 1, &error));
            }
        }
        verdict.map_or(Ok(parts), Err)
    }

    /// The others say their part and hear everyone's.
    fn follow(&self, links: &mut Links, call: Call, own: Said) -> std::result::Result<Vec<Vec<u8>>, Fault> {
        let stream = &mut links.streams[0];
        let mut parts = Vec::with_capacity(self.size);
        let told = stream.write_all(&frame(call, &own)).map_err(|error| lost(0, &error));
        let heard = told.and_then(|()| {
            while parts.len() < self.size {
                match hear(stream, call, 0)? {
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
        self.collect(Call::Allgather, bytes)
    }

    fn collect(&self, call: Call, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.usable()?;
        let mut links = self.links();
        if let Some(fault) = &links.broken {
            return Err(fault.clone().into());
        }
        let own = super::check_part(bytes).map_err(|text| Fault::new(Code::TooLarge, text));
        let round = match self.rank {
            0 => self.lead(&mut links, call, own),
            _ => self.follow(&mut links, call, own),
        };
        Ok(round?)
    }

    fn check(&self) -> Result<()> {
        self.usable()?;
        // Whoever is in a round finds out by itself.
        let Ok(mut links) = self.links.try_lock() else { return Ok(()) };
        for at in 0..links.streams.len() {
            let rank = if self.rank == 0 { at + 1 } else { 0 };
            if links.broken.is_none() && ended(&links.streams[at]) {
                links.broken = Some(gone(rank));
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

/// A part, or why there is none: kind of call, which of the two, how long, the bytes.
fn frame(call: Call, said: &Said) -> Vec<u8> {
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

/// One frame of a member; an error means that the connection is of no more use.
fn hear(stream: &mut TcpStream, call: Call, rank: usize) -> std::result::Result<Said, Fault> {
    let mut head = [0; 10];
    stream.read_exact(&mut head).map_err(|error| lost(rank, &error))?;
    let [kind, which, a, b, c, d, e, f, g, h] = head;
    let (root, bytes) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]) as usize);
    if PART_BYTES_MAX.max(TEXT_BYTES_MAX + 2) < bytes {
        return Err(Fault::new(
            Code::Protocol,
            format!("rank {rank} announces {bytes} bytes in a collective"),
        ));
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body).map_err(|error| lost(rank, &error))?;
    if which == FAULT {
        let (code, text) = body.split_at(bytes.min(2));
        let code = code.try_into().ok().and_then(|code| Code::from_number(u16::from_le_bytes(code)));
        return Ok(Err(Fault::new(code.unwrap_or(Code::Invalid), String::from_utf8_lossy(text))));
    }
    match Call::from_numbers(kind, root) {
        Some(theirs) if theirs == call => Ok(Ok(body)),
        Some(theirs) => {
            let text = format!(
                "members of a group call different collectives: rank {rank} calls {theirs}, others {call}"
            );
            Ok(Err(Fault::new(Code::NotSame, text)))
        }
        None => Err(Fault::new(Code::Protocol, format!("rank {rank} calls no collective that is known"))),
    }
}

/// Whether a connection has ended; what was said on it and not heard yet stays.
fn ended(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let peeked = stream.peek(&mut [0]);
    let back = stream.set_nonblocking(false);
    match peeked {
        Ok(0) => true,
        Ok(_) => back.is_err(),
        Err(error) => back.is_err() || error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

fn gone(rank: usize) -> Fault {
    Fault::new(Code::Unreachable, format!("rank {rank} is gone"))
}

fn lost(rank: usize, error: &std::io::Error) -> Fault {
    if error.kind() == std::io::ErrorKind::UnexpectedEof {
        return gone(rank);
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
                    // Its connections are all that it has.
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
                assert_eq!(stream.read_timeout().unwrap(), None);
                assert_eq!(stream.write_timeout().unwrap(), None);
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
