//! A group of processes of this machine, which meet at a hub: what `pario run -n N` starts.
//!
//! Never: sends from a thread of its own; hangs on a hub that is dead. Always: whoever waits for an answer also reads the socket,
//! so that an answer passes through no other thread; a forked child is no member.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::fork_generation;
use pario_sys::socket::{Blocking, peer_credentials};
use std::os::fd::AsFd;

use super::call::Call;
use super::invitation::Invitation;
use super::listening::Listening;
use super::meeting::{Ended, FIRST_CHANNEL, Round};
use super::threads::left_already;
use super::wire::{Answer, Fed, Inbox, JOIN_BYTES_MAX, Word, bring_head, send_all};
use super::{Agreed, Group, check_part, nodes, said};
use crate::error::{Error, Result};

/// A member of a group of local processes. It leaves in order when its last handle is dropped; a process that ends without that
/// is gone for the others.
#[derive(Debug)]
pub struct LocalGroup {
    member: Arc<Member>,
    channel: u32,
    /// Collectives of one handle are one after the other.
    turn: Mutex<()>,
}

/// What all handles of this process share.
#[derive(Debug)]
struct Member {
    rank: usize,
    size: usize,
    /// Known once the members have found out.
    nodes: OnceLock<Vec<usize>>,
    sending: Mutex<()>,
    listening: Listening,
    left: AtomicBool,
    made_in: u64,
}

impl LocalGroup {
    /// Joins a group; returns when all members have. `node` overrides what shares memory: see [`super::own_node`].
    pub fn join(invitation: &Invitation, node: Option<&str>) -> Result<Arc<LocalGroup>> {
        let (rank, size) = (invitation.rank as usize, invitation.size as usize);
        let stream = connect(invitation).map_err(|fault| fault.at(format!("rank {rank}")))?;
        let member = Member {
            rank,
            size,
            nodes: OnceLock::new(),
            sending: Mutex::new(()),
            listening: stream,
            left: AtomicBool::new(false),
            made_in: fork_generation(),
        };
        let group = LocalGroup { member: Arc::new(member), channel: FIRST_CHANNEL, turn: Mutex::new(()) };
        let found = nodes::find(&group, node)?;
        group.member.nodes.set(found).expect("nodes are found once");
        Ok(Arc::new(group))
    }

    /// One round.
    fn meet(&self, call: Call, bytes: &[u8]) -> Ended {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let member = &*self.member;
        member.check_usable()?;
        // What cannot be sent will not be answered; why, the socket's end says better.
        let _ = match check_part(bytes) {
            Ok(_) => member.send(&[&bring_head(self.channel, call, bytes).to_bytes(), bytes]),
            Err(text) => {
                member.send(&[&Word::Bring { channel: self.channel, call, bytes: Err(text) }.to_bytes()])
            }
        };
        member.listening.wait(self.channel)
    }
}

impl LocalGroup {
    /// The duplicate that a round made.
    fn made_in(&self, round: &Round) -> Result<Arc<dyn Group>> {
        let made = || Fault::new(Code::Protocol, "the hub of the group makes no duplicate");
        let channel = round.made.ok_or_else(made)?;
        let member = Arc::clone(&self.member);
        Ok(Arc::new(LocalGroup { member, channel, turn: Mutex::new(()) }))
    }
}

/// A connection to the hub that has let this process in.
fn connect(invitation: &Invitation) -> std::result::Result<Listening, Fault> {
    let lost = |error: &std::io::Error| {
        let place = invitation.socket.display();
        let text = format!("the hub of the group at {place} cannot be reached, has it ended?");
        Fault::from_io(error, text)
    };
    let stream = UnixStream::connect(&invitation.socket).map_err(|error| lost(&error))?;
    let hub = peer_credentials(stream.as_fd()).map_err(|error| lost(&error))?;
    if hub.uid != rustix::process::getuid().as_raw() {
        let text = format!("the hub of the group is of user {}: it is not asked", hub.uid);
        return Err(Fault::new(Code::Denied, text));
    }
    let Invitation { rank, size, token, .. } = invitation;
    let join = Word::Join { rank: *rank, size: *size, token: *token, program: program() };
    // A hub that refuses may be gone before all was said; its answer is read all the same.
    let _ = send_all(stream.as_fd(), &[&join.to_bytes()]);
    let mut inbox = Inbox::new();
    let answer = loop {
        let size = *size as usize;
        let next = inbox.next(JOIN_BYTES_MAX, |head, body| Answer::from_frame(head, body, size))?;
        if let Some(answer) = next {
            break answer;
        }
        if inbox.feed(&stream, Blocking::Wait) == Fed::End {
            return Err(Fault::new(Code::Unreachable, hub_gone(hub.pid)));
        }
    };
    match answer {
        Answer::Welcome => Ok(Listening::new(stream, inbox, *size as usize, hub_gone(hub.pid))),
        Answer::Refused(fault) => Err(fault),
        Answer::Full { .. } | Answer::Failed { .. } | Answer::Closed { .. } | Answer::Broken(_) => {
            Err(Fault::new(Code::Protocol, "the hub of the group answers something else"))
        }
    }
}

fn hub_gone(pid: u32) -> String {
    format!("the hub of the group (process {pid}, `pario run` or whoever started the group) is gone")
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Member {
    fn check_usable(&self) -> std::result::Result<(), Fault> {
        if self.made_in != fork_generation() {
            return Err(Fault::new(Code::Closed, "a group is used in a forked child, which is no member"));
        }
        if self.left.load(Ordering::Relaxed) {
            return Err(left_already(self.rank));
        }
        Ok(())
    }

    fn send(&self, pieces: &[&[u8]]) -> std::io::Result<()> {
        let _sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        send_all(self.listening.socket(), pieces)
    }

    fn leave(&self) {
        if self.made_in == fork_generation() && !self.left.swap(true, Ordering::Relaxed) {
            // A hub that is gone needs no telling.
            let _ = self.send(&[&Word::Leave.to_bytes()]);
        }
    }
}

impl Group for LocalGroup {
    fn rank(&self) -> usize {
        self.member.rank
    }

    fn size(&self) -> usize {
        self.member.size
    }

    fn node_of(&self, rank: usize) -> usize {
        assert!(rank < self.member.size, "a group of {} has no rank {rank}", self.member.size);
        self.member.nodes.get().map_or(rank, |nodes| nodes[rank])
    }

    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect(Call::Allgather, bytes)
    }

    fn collect(&self, call: Call, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let round = self.meet(call, bytes)?;
        Ok(Arc::try_unwrap(round).map_or_else(|round| round.parts.clone(), |round| round.parts))
    }

    fn check(&self) -> Result<()> {
        self.member.check_usable()?;
        Ok(self.member.listening.check(self.channel)?)
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        let round = self.meet(Call::Duplicate, &[])?;
        self.made_in(&round)
    }

    fn duplicate_if(&self, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Agreed> {
        let round = self.meet(Call::Duplicate, &said::exchange(alike, &mine))?;
        // Left again where they do not agree.
        let own = self.made_in(&round)?;
        Ok((own, said::exchanged(&round.parts, alike, mine)?))
    }

    fn leave(&self) {
        self.member.leave();
    }
}

impl Drop for LocalGroup {
    fn drop(&mut self) {
        let member = &*self.member;
        if member.check_usable().is_err() {
            return;
        }
        member.listening.forget(self.channel);
        // The last handle takes the whole member with it.
        if 1 < Arc::strong_count(&self.member) {
            let _ = member.send(&[&Word::LeaveChannel { channel: self.channel }.to_bytes()]);
        }
    }
}

impl Drop for Member {
    /// In order, unless this is a panic: then the end of the socket says what happened.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.leave();
        }
    }
}

/// The group that this process has joined by its environment.
static JOINED: Mutex<Option<Joined>> = Mutex::new(None);

struct Joined {
    group: std::sync::Weak<LocalGroup>,
    made_in: u64,
}

/// The group that this process was started in, as `pario run -n N -- PROGRAM` does; `None` if in none. The first call joins and
/// returns when all members have called it; later ones return the same group, as long as somebody holds it.
pub fn from_env() -> Result<Option<Arc<dyn Group>>> {
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = joined.as_ref().filter(|joined| joined.made_in == fork_generation()) {
        let group = before.group.upgrade().ok_or_else(|| {
            Error::Fault(Fault::new(Code::Closed, "this process has left its group, which is joined once"))
        })?;
        return Ok(Some(group));
    }
    let Some(invitation) = Invitation::from_env()? else { return Ok(None) };
    let group = LocalGroup::join(&invitation, nodes::own_node()?.as_deref())?;
    *joined = Some(Joined { group: Arc::downgrade(&group), made_in: fork_generation() });
    Ok(Some(group))
}

/// The group that this process was started in, or this process alone.
pub fn current() -> Result<Arc<dyn Group>> {
    Ok(from_env()?.unwrap_or_else(super::Alone::group))
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
