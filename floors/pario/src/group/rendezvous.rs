//! Forms a group out of ranks that can exchange bytes, for example the ranks of an MPI communicator; afterwards the group needs them no more.
//!
//! ```text
//!  marks of all ranks ─► equal: a hub on rank 0, joined by its invitation   (one host and process table)
//!                     ─► different: a star over TCP                         (several hosts, or node labels)
//! ```
//! Always: every rank takes part in every exchange; an error of rank 0 reaches all ranks.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use pario_core::{Code, Fault};

use super::{Alone, Group, Hub, Invitation, LocalGroup, NODE_VARIABLE, Star, own_node};
use crate::error::Result;

/// Ranks that can exchange bytes; collective, on the thread of the caller.
pub trait ByteExchange: std::fmt::Debug + Send + Sync {
    /// Number of this rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// The bytes of all ranks, one after the other, in rank order; all pass the same number of bytes.
    fn exchange(&self, own: &[u8]) -> Result<Vec<u8>>;
}

/// A group that ranks have formed.
#[derive(Debug)]
pub struct FormedGroup {
    group: Arc<dyn Group>,
    /// On rank 0 of ranks on one host.
    hub: Mutex<Option<Hub>>,
}

impl FormedGroup {
    /// The group.
    pub fn group(&self) -> &Arc<dyn Group> {
        &self.group
    }
}

impl Drop for FormedGroup {
    fn drop(&mut self) {
        // Other ranks may still be leaving.
        if let Some(hub) = self.hub.lock().unwrap_or_else(PoisonError::into_inner).take() {
            hub.retire();
        }
    }
}

/// Forms a group; collective. An error may be returned on some ranks only.
pub fn form_group(ranks: Arc<dyn ByteExchange>) -> Result<FormedGroup> {
    if ranks.size() == 1 {
        return Ok(FormedGroup { group: Alone::group(), hub: Mutex::new(None) });
    }
    let node = own_node();
    let marks = ranks.exchange(&host_mark())?;
    let mut marks = marks.chunks_exact(MARK_BYTES);
    let first = marks.next();
    if marks.any(|mark| Some(mark) != first) {
        let group = Star::over(&ExchangedRanks(ranks), node?.as_deref())?;
        return Ok(FormedGroup { group, hub: Mutex::new(None) });
    }
    let hub = (ranks.rank() == 0).then(|| Hub::start(ranks.size()));
    let said = match &hub {
        Some(Ok(hub)) => [b"I".as_slice(), &hub.invitation(0).to_bytes()].concat(),
        Some(Err(error)) => format!("E{error}").into_bytes(),
        None => Vec::new(),
    };
    let all = exchange_parts(&*ranks, &said)?;
    let (hub, invitation) = (hub.transpose()?, read_invitation(&all[0], ranks.rank())?);
    let group = LocalGroup::join(&invitation, node?.as_deref()).map_err(|error| {
        Fault::new(error.code(), format!("joining the group of the other ranks failed: {error}"))
    })?;
    Ok(FormedGroup { group, hub: Mutex::new(hub) })
}

fn read_invitation(told: &[u8], rank: usize) -> Result<Invitation> {
    match told.split_first() {
        Some((b'I', body)) => Invitation::from_bytes(body, rank),
        Some((_, text)) => {
            Err(Fault::new(Code::Io, format!("rank 0: {}", String::from_utf8_lossy(text))).into())
        }
        None => Err(Fault::new(Code::Protocol, "rank 0 sent no invitation").into()),
    }
}

const MARK_BYTES: usize = 64;

/// Identifies a host and its process table: processes with equal marks can open each other's descriptors through `/proc`, if they belong to
/// one user.
fn host_mark() -> [u8; MARK_BYTES] {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let table = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    let user = rustix::process::getuid().as_raw();
    // Processes with different node labels are treated as on different hosts.
    let label = std::env::var_os(NODE_VARIABLE).unwrap_or_default();
    let text = format!("{} {} {user} {}", boot.trim(), table.display(), label.display());
    let mut mark = [0; MARK_BYTES];
    for (at, byte) in text.bytes().enumerate() {
        // The boot id alone has 36 characters; the rest is folded in.
        let place: &mut u8 = &mut mark[at % MARK_BYTES];
        *place = place.rotate_left(1) ^ byte;
    }
    mark
}

/// The bytes of all ranks, in rank order; lengths may differ.
fn exchange_parts(ranks: &dyn ByteExchange, own: &[u8]) -> Result<Vec<Vec<u8>>> {
    let lengths = ranks.exchange(&(own.len() as u64).to_le_bytes())?;
    let length = |bytes: &[u8]| {
        bytes.try_into().ok().and_then(|bytes| usize::try_from(u64::from_le_bytes(bytes)).ok())
    };
    let lengths: Vec<usize> = lengths.chunks_exact(8).map(|bytes| length(bytes).unwrap_or(0)).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if longest == 0 {
        return Ok(vec![Vec::new(); ranks.size()]);
    }
    let mut padded = own.to_vec();
    padded.resize(longest, 0);
    let all = ranks.exchange(&padded)?;
    let part = |(rank, bytes): (usize, &usize)| all[rank * longest..rank * longest + bytes].to_vec();
    Ok(lengths.iter().enumerate().map(part).collect())
}

/// Ranks as a group that can only exchange bytes, for the time in which they connect.
#[derive(Debug)]
struct ExchangedRanks(Arc<dyn ByteExchange>);

impl Group for ExchangedRanks {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn node_of(&self, rank: usize) -> usize {
        rank
    }

    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        exchange_parts(&*self.0, bytes)
    }

    /// The library that carries the exchange ends the program when a rank dies.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        Ok(Arc::new(ExchangedRanks(Arc::clone(&self.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::threads;

    /// Threads that exchange bytes of equal length, as MPI's allgather does.
    #[derive(Debug)]
    struct ThreadExchange(Arc<dyn Group>);

    impl ByteExchange for ThreadExchange {
        fn rank(&self) -> usize {
            self.0.rank()
        }

        fn size(&self) -> usize {
            self.0.size()
        }

        fn exchange(&self, own: &[u8]) -> Result<Vec<u8>> {
            let all = self.0.allgather(own)?;
            assert!(all.iter().all(|part| part.len() == own.len()), "parts of different lengths");
            Ok(all.concat())
        }
    }

    fn on_ranks<T: Send>(size: usize, body: impl Fn(Arc<dyn ByteExchange>) -> T + Sync) -> Vec<T> {
        std::thread::scope(|scope| {
            let spawn = |group| scope.spawn(|| body(Arc::new(ThreadExchange(group))));
            let members: Vec<_> = threads(size).into_iter().map(spawn).collect();
            members.into_iter().map(|member| member.join().unwrap()).collect()
        })
    }

    #[test]
    fn parts_of_any_length_are_exchanged() {
        let parts = on_ranks(3, |ranks| exchange_parts(&*ranks, &vec![7; 5 * ranks.rank()]).unwrap());
        assert!(parts.iter().all(|all| *all == [vec![], vec![7; 5], vec![7; 10]]), "{parts:?}");
        let none = on_ranks(2, |ranks| exchange_parts(&*ranks, &[]).unwrap());
        assert!(none.iter().all(|all| *all == vec![Vec::<u8>::new(); 2]), "{none:?}");
    }

    #[test]
    fn ranks_of_one_host_form_a_group() {
        let seen = on_ranks(3, |ranks| {
            let rank = ranks.rank();
            let formed = form_group(ranks).unwrap();
            let all = formed.group().allgather(&[u8::try_from(rank).unwrap()]).unwrap();
            (formed.group().rank() == rank, all)
        });
        assert!(seen.iter().all(|(same, all)| *same && *all == [[0], [1], [2]]), "{seen:?}");
    }

    #[test]
    fn an_error_of_rank_0_is_told() {
        let error = read_invitation(b"Eno socket", 1).unwrap_err().to_string();
        assert!(error.contains("rank 0: no socket"), "{error}");
        assert!(read_invitation(b"", 1).is_err());
    }
}
