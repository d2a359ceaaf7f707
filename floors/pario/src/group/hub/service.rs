//! The hub's thread: one epoll loop over all connections.
//!
//! Always: the messages that a member sent before its end are processed before its end.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use pario_core::{Code, Fault};
use pario_sys::socket::{Blocking, peer_credentials};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags};

use super::connection::HubConnection;
use super::{HubCommand, HubCommands, program_of};
use crate::group::collective_state::{CollectiveState, MemberNotice, PART_BYTES_MAX};
use crate::group::wire::{HubMessage, JOIN_BYTES_MAX, MemberMessage, ReadOutcome, TOKEN_BYTES, full_frame};

const TOKEN_LISTENER: u64 = 0;
const TOKEN_COMMANDS: u64 = 1;
/// Connections have even tokens from here; the odd token above each is its process.
const TOKEN_CONNECTIONS: u64 = 2;
/// Events per epoll call.
const EVENTS: usize = 64;
/// Limit of connections beyond the members: peers that have not joined yet.
const UNAUTHENTICATED_MAX: usize = 64;

/// See the module head.
pub(super) struct HubService {
    listener: UnixListener,
    epoll: OwnedFd,
    orders: Arc<HubCommands>,
    token: [u8; TOKEN_BYTES],
    collectives: CollectiveState,
    connections: BTreeMap<u64, HubConnection>,
    next: u64,
    /// State of each rank.
    slots: Vec<MemberSlot>,
    /// Whether the hub ends with its last member.
    retired: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemberSlot {
    Free,
    Joined(u64),
    /// The member has left or died.
    Departed,
}

impl HubService {
    pub(super) fn new(
        listener: UnixListener,
        token: [u8; TOKEN_BYTES],
        size: usize,
        orders: Arc<HubCommands>,
    ) -> io::Result<HubService> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(TOKEN_LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &orders.doorbell, EventData::new_u64(TOKEN_COMMANDS), EventFlags::IN)?;
        let meeting = CollectiveState::new(vec!["not joined yet".to_owned(); size]);
        let (guests, seats) = (BTreeMap::new(), vec![MemberSlot::Free; size]);
        Ok(HubService {
            listener,
            epoll,
            orders,
            token,
            collectives: meeting,
            connections: guests,
            next: TOKEN_CONNECTIONS,
            slots: seats,
            retired: false,
        })
    }

    /// Serves until commanded to stop.
    pub(super) fn run(mut self) {
        let mut ready = Vec::with_capacity(EVENTS);
        loop {
            ready.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the hub of a group stops: epoll failed");
                    return;
                }
            }
            for event in &ready {
                let flags = event.flags;
                match event.data.u64() {
                    TOKEN_LISTENER => self.accept(),
                    TOKEN_COMMANDS => {
                        if self.run_commands() {
                            return;
                        }
                    }
                    token if token % 2 == 0 => self.handle_event(token, flags),
                    token => self.process_ended(token - 1),
                }
            }
            if self.retired && self.slots.iter().all(|seat| *seat == MemberSlot::Departed) {
                return;
            }
        }
    }

    /// Executes the owner's commands; returns whether one is to stop.
    fn run_commands(&mut self) -> bool {
        let _ = self.orders.doorbell.take();
        let orders = std::mem::take(&mut *self.orders.list());
        for order in orders {
            match order {
                HubCommand::Stop => return true,
                HubCommand::Retire => self.retired = true,
                HubCommand::ProcessEnded(rank, how) if self.slots.get(rank) == Some(&MemberSlot::Free) => {
                    self.slots[rank] = MemberSlot::Departed;
                    self.collectives.set_name(rank, "its process".into());
                    self.member_lost(rank, &format!("{how} before it joined the group"));
                }
                HubCommand::ProcessEnded(..) => {}
            }
        }
        false
    }

    fn accept(&mut self) {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => {
                    // Out of descriptors: the waiting peer is accepted after another connection closes.
                    tracing::warn!(%error, "the hub of a group cannot accept a connection");
                    return;
                }
            };
            if let Err(error) = self.admit(stream) {
                tracing::warn!(%error, "the hub of a group refused a connection");
            }
        }
    }

    fn admit(&mut self, stream: UnixStream) -> io::Result<()> {
        let peer = peer_credentials(stream.as_fd())?;
        if peer.uid != rustix::process::getuid().as_raw() {
            return Err(io::Error::other(format!(
                "process {} belongs to another user ({})",
                peer.pid, peer.uid
            )));
        }
        let strangers = self.connections.iter().filter(|(_, guest)| guest.rank.is_none());
        if UNAUTHENTICATED_MAX <= strangers.count() {
            let oldest =
                self.connections.iter().find(|(_, guest)| guest.rank.is_none()).map(|(token, _)| *token);
            oldest.into_iter().for_each(|token| self.disconnect(token));
        }
        let token = self.next;
        self.next += 2;
        epoll::add(&self.epoll, &stream, EventData::new_u64(token), EventFlags::IN)?;
        self.connections.insert(token, HubConnection::new(stream, peer));
        Ok(())
    }

    /// Handles an event on a connection's socket.
    fn handle_event(&mut self, token: u64, flags: EventFlags) {
        let Some(guest) = self.connections.get_mut(&token) else { return };
        if flags.contains(EventFlags::OUT) {
            let flushed = guest.flush();
            self.after_sending(token, flushed);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        let Some(guest) = self.connections.get_mut(&token) else { return };
        let fed = guest.inbox.feed(&guest.stream, Blocking::Never);
        self.read_messages(token);
        if fed == ReadOutcome::End {
            self.connection_closed(token);
        }
    }

    /// Processes every message of a connection that has arrived.
    fn read_messages(&mut self, token: u64) {
        while let Some(guest) = self.connections.get_mut(&token) {
            let limit = if guest.rank.is_some() { PART_BYTES_MAX } else { JOIN_BYTES_MAX };
            match (guest.inbox.next(limit, MemberMessage::from_frame), guest.rank) {
                (Ok(None), _) => return,
                (Ok(Some(MemberMessage::Join { rank, size, token: proof, program })), None) => {
                    let joined = self.join(token, (rank, size), &proof, program);
                    if let Err(fault) = joined {
                        return self.refuse(token, fault);
                    }
                }
                (Ok(Some(word)), Some(rank)) => self.handle_message(token, rank, word),
                (Ok(Some(_)), None) => {
                    return self.refuse(
                        token,
                        Fault::new(Code::Protocol, "the first message of a connection must be a join"),
                    );
                }
                (Err(fault), Some(_)) => {
                    tracing::warn!(%fault, "a member of a group sent an invalid message and is disconnected");
                    return self.connection_closed(token);
                }
                (Err(fault), None) => return self.refuse(token, fault),
            }
        }
    }

    fn join(
        &mut self,
        token: u64,
        (rank, size): (u32, u32),
        proof: &[u8; TOKEN_BYTES],
        program: String,
    ) -> Result<(), Fault> {
        let denied = |text: &str| Err(Fault::new(Code::Denied, text));
        // Constant-time comparison, so that timing does not reveal how many bytes were right.
        let differences = proof.iter().zip(&self.token).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differences != 0 {
            return denied("the token is not the group's: this process was not invited");
        }
        let at = usize::try_from(rank).unwrap_or(usize::MAX);
        if usize::try_from(size) != Ok(self.slots.len()) || self.slots.len() <= at {
            let text = format!("the group has {} members; rank {rank} of {size} is none", self.slots.len());
            return denied(&text);
        }
        match self.slots[at] {
            MemberSlot::Free => {}
            MemberSlot::Joined(_) => {
                return denied(&format!("{} has joined already", self.collectives.name(at)));
            }
            MemberSlot::Departed => {
                return denied(&format!(
                    "rank {rank} has joined and left before: a group can be joined only once"
                ));
            }
        }
        let Some(guest) = self.connections.get_mut(&token) else { return Ok(()) };
        guest.rank = Some(at);
        let program = if program.is_empty() { program_of(guest.pid()) } else { program };
        self.collectives.set_name(at, format!("process {}, {program}", guest.pid()));
        self.slots[at] = MemberSlot::Joined(token);
        self.watch_process(token);
        self.send(token, HubMessage::Welcome.to_bytes().into());
        if let Some(fault) = self.collectives.fault(crate::group::collective_state::FIRST_CHANNEL).cloned() {
            self.send(token, HubMessage::Broken(fault).to_bytes().into());
        }
        Ok(())
    }

    /// Watches the process: its end is noticed also while a child of it holds the socket.
    fn watch_process(&mut self, token: u64) {
        let Some(guest) = self.connections.get_mut(&token) else { return };
        let pid = i32::try_from(guest.pid()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        let watched = rustix::process::pidfd_open(pid, PidfdFlags::empty()).and_then(|process| {
            epoll::add(&self.epoll, &process, EventData::new_u64(token + 1), EventFlags::IN)?;
            Ok(process)
        });
        match watched {
            Ok(process) => guest.process = Some(process),
            // The end of its socket is enough, unless it forks.
            Err(error) => tracing::debug!(%error, "a member's process cannot be watched"),
        }
    }

    fn handle_message(&mut self, token: u64, rank: usize, word: MemberMessage) {
        let told = match word {
            MemberMessage::Join { .. } => return self.connection_closed(token),
            MemberMessage::Contribute { channel, call, bytes } => {
                self.collectives.contribute(channel, rank, call, bytes)
            }
            MemberMessage::LeaveChannel { channel } => self.collectives.leave_channel(channel, rank),
            MemberMessage::Leave => {
                // Notified first: another thread of the member may wait in a collective.
                let told = self.collectives.leave(rank);
                self.notify(told);
                self.slots[rank] = MemberSlot::Departed;
                return;
            }
        };
        self.notify(told);
    }

    /// A process has ended: its last messages are still in its socket.
    fn process_ended(&mut self, token: u64) {
        while let Some(guest) = self.connections.get_mut(&token) {
            let fed = guest.inbox.feed(&guest.stream, Blocking::Never);
            self.read_messages(token);
            if fed != ReadOutcome::Bytes {
                return self.connection_closed(token);
            }
        }
    }

    /// A connection is closed.
    fn connection_closed(&mut self, token: u64) {
        let rank = self.connections.get(&token).and_then(|guest| guest.rank);
        self.disconnect(token);
        let Some(rank) = rank else { return };
        self.slots[rank] = MemberSlot::Departed;
        if !self.collectives.has_left(rank) {
            self.member_lost(rank, "is gone: it ended, or was killed, without leaving the group");
        }
    }

    fn member_lost(&mut self, rank: usize, how: &str) {
        let told = self.collectives.member_died(rank, how);
        if !told.is_empty() {
            // Recorded for the owner before any other member can end because of it.
            let _ = self.orders.lost.set(rank);
        }
        self.notify(told);
    }

    fn refuse(&mut self, token: u64, fault: Fault) {
        tracing::warn!(%fault, "the hub of a group refused a join");
        self.send(token, HubMessage::Refused(fault).to_bytes().into());
        self.disconnect(token);
    }

    fn disconnect(&mut self, token: u64) {
        // Closing the descriptors removes them from the epoll set, unless a child process still holds copies.
        let Some(guest) = self.connections.remove(&token) else { return };
        let _ = epoll::delete(&self.epoll, &guest.stream);
        if let Some(process) = &guest.process {
            let _ = epoll::delete(&self.epoll, process);
        }
    }

    fn notify(&mut self, told: Vec<MemberNotice>) {
        for news in told {
            let (frame, to): (Arc<[u8]>, Vec<usize>) = match news {
                MemberNotice::Ended { channel, to, ended: Ok(round) } => {
                    (full_frame(channel, &round).into(), to)
                }
                MemberNotice::Ended { channel, to, ended: Err(fault) } => {
                    (HubMessage::Failed { channel, fault }.to_bytes().into(), to)
                }
                MemberNotice::Closed { channel, to, fault } => {
                    (HubMessage::Closed { channel, fault }.to_bytes().into(), to)
                }
                MemberNotice::Broken { fault } => {
                    (HubMessage::Broken(fault).to_bytes().into(), (0..self.slots.len()).collect())
                }
            };
            for rank in to {
                if let MemberSlot::Joined(token) = self.slots[rank] {
                    self.send(token, Arc::clone(&frame));
                }
            }
        }
    }

    fn send(&mut self, token: u64, frame: Arc<[u8]>) {
        let Some(guest) = self.connections.get_mut(&token) else { return };
        let sent = guest.send_frame(frame);
        self.after_sending(token, sent);
    }

    /// Waits for space to send if there is none. A connection that cannot be sent to is closed by the loop.
    fn after_sending(&mut self, token: u64, sent: io::Result<bool>) {
        let Some(guest) = self.connections.get_mut(&token) else { return };
        let full = match sent {
            Ok(all) => !all,
            Err(error) => {
                tracing::debug!(%error, "the hub of a group cannot send to a member");
                // Its end is processed as that of other members: after its last messages.
                let _ = guest.stream.shutdown(std::net::Shutdown::Both);
                return;
            }
        };
        if guest.waits_for_space == full {
            return;
        }
        guest.waits_for_space = full;
        let flags = if full { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        if let Err(error) = epoll::modify(&self.epoll, &guest.stream, EventData::new_u64(token), flags) {
            tracing::warn!(%error, "a member of a group may wait for a message: epoll refused its socket");
        }
    }
}
