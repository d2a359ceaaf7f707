//! A group of processes of this machine, connected through a hub: the group that `pario run -n N` starts.
//!
//! Never: sends from a thread of its own; hangs on a dead hub. Always: the thread that waits for a hub message reads the socket
//! itself, so that no message passes through another thread; a forked child is no member.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::fork_generation;
use pario_sys::socket::{Blocking, peer_credentials};
use std::os::fd::AsFd;

use super::call::CollectiveCall;
use super::collective_state::{CollectiveOutcome, CompletedCollective, FIRST_CHANNEL};
use super::hub_reader::HubReader;
use super::invitation::Invitation;
use super::threads::left_already;
use super::wire::{
    FrameBuffer, HubMessage, JOIN_BYTES_MAX, MemberMessage, ReadOutcome, contribution_header, send_all,
};
use super::{Agreed, Group, agreement, check_part, nodes};
use crate::error::{Error, Result};

/// A member of a group of local processes. It leaves in order when its last handle is dropped; a process that ends without
/// leaving is reported as dead to the other members.
#[derive(Debug)]
pub struct LocalGroup {
    member: Arc<LocalMember>,
    channel: u32,
    /// Serialises the collectives of one handle.
    call_lock: Mutex<()>,
}

/// State shared by all handles of this process.
#[derive(Debug)]
struct LocalMember {
    rank: usize,
    size: usize,
    /// Set when the members have exchanged their nodes.
    nodes: OnceLock<Vec<usize>>,
    sending: Mutex<()>,
    reader: HubReader,
    left: AtomicBool,
    made_in: u64,
}

impl LocalGroup {
    /// Joins a group; returns when all members have joined. `node` overrides the detection of shared memory: see
    /// [`super::own_node`].
    pub fn join(invitation: &Invitation, node: Option<&str>) -> Result<Arc<LocalGroup>> {
        let (rank, size) = (invitation.rank as usize, invitation.size as usize);
        let stream = connect(invitation).map_err(|fault| fault.at(format!("rank {rank}")))?;
        let member = LocalMember {
            rank,
            size,
            nodes: OnceLock::new(),
            sending: Mutex::new(()),
            reader: stream,
            left: AtomicBool::new(false),
            made_in: fork_generation(),
        };
        let group =
            LocalGroup { member: Arc::new(member), channel: FIRST_CHANNEL, call_lock: Mutex::new(()) };
        let found = nodes::find(&group, node)?;
        group.member.nodes.set(found).expect("nodes are found once");
        Ok(Arc::new(group))
    }

    /// Runs one collective.
    fn run_collective(&self, call: CollectiveCall, bytes: &[u8]) -> CollectiveOutcome {
        let _turn = self.call_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let member = &*self.member;
        member.check_usable()?;
        // A failed send gets no reply; the end of the socket reports the better reason.
        let _ = match check_part(bytes) {
            Ok(_) => member.send(&[&contribution_header(self.channel, call, bytes).to_bytes(), bytes]),
            Err(text) => {
                member
                    .send(&[&MemberMessage::Contribute { channel: self.channel, call, bytes: Err(text) }
                        .to_bytes()])
            }
        };
        member.reader.wait(self.channel)
    }
}

impl LocalGroup {
    /// The duplicate that a collective created.
    fn duplicate_of(&self, round: &CompletedCollective) -> Result<Arc<dyn Group>> {
        let made = || Fault::new(Code::Protocol, "the hub of the group makes no duplicate");
        let channel = round.created_channel.ok_or_else(made)?;
        let member = Arc::clone(&self.member);
        Ok(Arc::new(LocalGroup { member, channel, call_lock: Mutex::new(()) }))
    }
}

/// Connects to the hub and waits for its welcome.
fn connect(invitation: &Invitation) -> std::result::Result<HubReader, Fault> {
    let lost = |error: &std::io::Error| {
        let place = invitation.socket.display();
        let text = format!("the hub of the group at {place} cannot be reached, has it ended?");
        Fault::from_io(error, text)
    };
    let stream = UnixStream::connect(&invitation.socket).map_err(|error| lost(&error))?;
    let hub = peer_credentials(stream.as_fd()).map_err(|error| lost(&error))?;
    if hub.uid != rustix::process::getuid().as_raw() {
        let text = format!("the hub of the group belongs to user {}, not to this user: not joined", hub.uid);
        return Err(Fault::new(Code::Denied, text));
    }
    let Invitation { rank, size, token, .. } = invitation;
    let join = MemberMessage::Join { rank: *rank, size: *size, token: *token, program: program() };
    // A hub that refuses may close the socket before all was sent; its reply is read all the same.
    let _ = send_all(stream.as_fd(), &[&join.to_bytes()]);
    let mut inbox = FrameBuffer::new();
    let answer = loop {
        let size = *size as usize;
        let next = inbox.next(JOIN_BYTES_MAX, |head, body| HubMessage::from_frame(head, body, size))?;
        if let Some(answer) = next {
            break answer;
        }
        if inbox.feed(&stream, Blocking::Wait) == ReadOutcome::End {
            return Err(Fault::new(Code::Unreachable, hub_ended_text(hub.pid)));
        }
    };
    match answer {
        HubMessage::Welcome => Ok(HubReader::new(stream, inbox, *size as usize, hub_ended_text(hub.pid))),
        HubMessage::Refused(fault) => Err(fault),
        HubMessage::Full { .. }
        | HubMessage::Failed { .. }
        | HubMessage::Closed { .. }
        | HubMessage::Broken(_) => {
            Err(Fault::new(Code::Protocol, "the hub of the group sent an unexpected reply to a join"))
        }
    }
}

fn hub_ended_text(pid: u32) -> String {
    format!("the hub of the group (process {pid}, `pario run` or another launcher) has ended")
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl LocalMember {
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
        send_all(self.reader.socket(), pieces)
    }

    fn leave(&self) {
        if self.made_in == fork_generation() && !self.left.swap(true, Ordering::Relaxed) {
            // A closed hub needs no message.
            let _ = self.send(&[&MemberMessage::Leave.to_bytes()]);
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
        self.collect(CollectiveCall::Allgather, bytes)
    }

    fn collect(&self, call: CollectiveCall, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let round = self.run_collective(call, bytes)?;
        Ok(Arc::try_unwrap(round).map_or_else(|round| round.parts.clone(), |round| round.parts))
    }

    fn check(&self) -> Result<()> {
        self.member.check_usable()?;
        Ok(self.member.reader.check(self.channel)?)
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        let round = self.run_collective(CollectiveCall::Duplicate, &[])?;
        self.duplicate_of(&round)
    }

    fn duplicate_if(&self, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Agreed> {
        let round =
            self.run_collective(CollectiveCall::Duplicate, &agreement::encode_exchange(alike, &mine))?;
        // The duplicate is left again if the members do not agree.
        let own = self.duplicate_of(&round)?;
        Ok((own, agreement::decode_exchange(&round.parts, alike, mine)?))
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
        member.reader.forget(self.channel);
        // The last handle ends the membership.
        if 1 < Arc::strong_count(&self.member) {
            let _ = member.send(&[&MemberMessage::LeaveChannel { channel: self.channel }.to_bytes()]);
        }
    }
}

impl Drop for LocalMember {
    /// Leaves in order, unless the thread panics: then the end of the socket reports it.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.leave();
        }
    }
}

/// The group that this process joined from its environment.
static JOINED: Mutex<Option<JoinedGroup>> = Mutex::new(None);

struct JoinedGroup {
    group: std::sync::Weak<LocalGroup>,
    made_in: u64,
}

/// The group that this process was started in, as by `pario run -n N -- PROGRAM`; `None` if in none. The first call joins and
/// returns when all members have called it; later calls return the same group while a handle of it exists.
pub fn from_env() -> Result<Option<Arc<dyn Group>>> {
    let mut joined = JOINED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(before) = joined.as_ref().filter(|joined| joined.made_in == fork_generation()) {
        let group = before.group.upgrade().ok_or_else(|| {
            Error::Fault(Fault::new(
                Code::Closed,
                "this process has left its group; a group can be joined only once",
            ))
        })?;
        return Ok(Some(group));
    }
    let Some(invitation) = Invitation::from_env()? else { return Ok(None) };
    let group = LocalGroup::join(&invitation, nodes::own_node()?.as_deref())?;
    *joined = Some(JoinedGroup { group: Arc::downgrade(&group), made_in: fork_generation() });
    Ok(Some(group))
}

/// The group that this process was started in, or this process alone.
pub fn current() -> Result<Arc<dyn Group>> {
    Ok(from_env()?.unwrap_or_else(super::Alone::group))
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
