//! The hub's thread: one epoll loop over all members.
//!
//! Always: what a member said before its end is heard before its end is noticed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use pario_core::{Code, Fault};
use pario_sys::socket::{Blocking, peer_credentials};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::process::{Pid, PidfdFlags};

use super::guest::Guest;
use super::{Order, Orders, program_of};
use crate::group::meeting::{Meeting, PART_BYTES_MAX, Told};
use crate::group::wire::{Answer, Fed, JOIN_BYTES_MAX, TOKEN_BYTES, Word, full_frame};

const TOKEN_LISTENER: u64 = 0;
const TOKEN_ORDERS: u64 = 1;
/// Guests have even numbers from here; the number above each is its process.
const TOKEN_GUESTS: u64 = 2;
/// Events taken at once.
const EVENTS: usize = 64;
/// Connections beyond the members': those who have not said yet who they are.
const STRANGERS_MAX: usize = 64;

/// See the module.
pub(super) struct Service {
    listener: UnixListener,
    epoll: OwnedFd,
    orders: Arc<Orders>,
    token: [u8; TOKEN_BYTES],
    meeting: Meeting,
    guests: BTreeMap<u64, Guest>,
    next: u64,
    /// Where each member is, once it has joined.
    seats: Vec<Seat>,
    /// Whether it ends with its last member.
    retired: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seat {
    Free,
    Taken(u64),
    /// Its member has left or is gone.
    Over,
}

impl Service {
    pub(super) fn new(
        listener: UnixListener,
        token: [u8; TOKEN_BYTES],
        size: usize,
        orders: Arc<Orders>,
    ) -> io::Result<Service> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &listener, EventData::new_u64(TOKEN_LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, &orders.doorbell, EventData::new_u64(TOKEN_ORDERS), EventFlags::IN)?;
        let meeting = Meeting::new(vec!["not joined yet".to_owned(); size]);
        let (guests, seats) = (BTreeMap::new(), vec![Seat::Free; size]);
        Ok(Service {
            listener,
            epoll,
            orders,
            token,
            meeting,
            guests,
            next: TOKEN_GUESTS,
            seats,
            retired: false,
        })
    }

    /// Serves until told to stop.
    pub(super) fn run(mut self) {
        let mut ready = Vec::with_capacity(EVENTS);
        loop {
            ready.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the hub of a group cannot go on");
                    return;
                }
            }
            for event in &ready {
                let flags = event.flags;
                match event.data.u64() {
                    TOKEN_LISTENER => self.accept(),
                    TOKEN_ORDERS => {
                        if self.obey() {
                            return;
                        }
                    }
                    token if token % 2 == 0 => self.hear(token, flags),
                    token => self.process_ended(token - 1),
                }
            }
            if self.retired && self.seats.iter().all(|seat| *seat == Seat::Over) {
                return;
            }
        }
    }

    /// Carries out what the owner wants; whether that is to stop.
    fn obey(&mut self) -> bool {
        let _ = self.orders.doorbell.take();
        let orders = std::mem::take(&mut *self.orders.list());
        for order in orders {
            match order {
                Order::Stop => return true,
                Order::Retire => self.retired = true,
                Order::Ended(rank, how) if self.seats.get(rank) == Some(&Seat::Free) => {
                    self.seats[rank] = Seat::Over;
                    self.meeting.set_name(rank, "its process".into());
                    self.lose(rank, &format!("{how} before it joined the group"));
                }
                Order::Ended(..) => {}
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
                    // Out of descriptors: whoever waits is let in when somebody else has gone.
                    tracing::warn!(%error, "the hub of a group cannot let somebody in");
                    return;
                }
            };
            if let Err(error) = self.greet(stream) {
                tracing::warn!(%error, "somebody was not let into a group");
            }
        }
    }

    fn greet(&mut self, stream: UnixStream) -> io::Result<()> {
        let peer = peer_credentials(stream.as_fd())?;
        if peer.uid != rustix::process::getuid().as_raw() {
            return Err(io::Error::other(format!("process {} is of user {}", peer.pid, peer.uid)));
        }
        let strangers = self.guests.iter().filter(|(_, guest)| guest.rank.is_none());
        if STRANGERS_MAX <= strangers.count() {
            let oldest = self.guests.iter().find(|(_, guest)| guest.rank.is_none()).map(|(token, _)| *token);
            oldest.into_iter().for_each(|token| self.part(token));
        }
        let token = self.next;
        self.next += 2;
        epoll::add(&self.epoll, &stream, EventData::new_u64(token), EventFlags::IN)?;
        self.guests.insert(token, Guest::new(stream, peer));
        Ok(())
    }

    /// Something happened on a guest's socket.
    fn hear(&mut self, token: u64, flags: EventFlags) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        if flags.contains(EventFlags::OUT) {
            let flushed = guest.flush();
            self.after_sending(token, flushed);
        }
        if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            return;
        }
        let Some(guest) = self.guests.get_mut(&token) else { return };
        let fed = guest.inbox.feed(&guest.stream, Blocking::Never);
        self.listen(token);
        if fed == Fed::End {
            self.gone(token);
        }
    }

    /// Every word of a guest that has arrived.
    fn listen(&mut self, token: u64) {
        while let Some(guest) = self.guests.get_mut(&token) {
            let limit = if guest.rank.is_some() { PART_BYTES_MAX } else { JOIN_BYTES_MAX };
            match (guest.inbox.next(limit, Word::from_frame), guest.rank) {
                (Ok(None), _) => return,
                (Ok(Some(Word::Join { rank, size, token: proof, program })), None) => {
                    let joined = self.join(token, (rank, size), &proof, program);
                    if let Err(fault) = joined {
                        return self.refuse(token, fault);
                    }
                }
                (Ok(Some(word)), Some(rank)) => self.word(token, rank, word),
                (Ok(Some(_)), None) => {
                    return self.refuse(token, Fault::new(Code::Protocol, "a stranger does not greet"));
                }
                (Err(fault), Some(_)) => {
                    tracing::warn!(%fault, "a member of a group is not understood");
                    return self.gone(token);
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
        // Every byte is looked at, so that time tells nothing of how many were right.
        let differences = proof.iter().zip(&self.token).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differences != 0 {
            return denied("the token is not the group's: this process was not invited");
        }
        let at = usize::try_from(rank).unwrap_or(usize::MAX);
        if usize::try_from(size) != Ok(self.seats.len()) || self.seats.len() <= at {
            let text = format!("the group has {} members; rank {rank} of {size} is none", self.seats.len());
            return denied(&text);
        }
        match self.seats[at] {
            Seat::Free => {}
            Seat::Taken(_) => return denied(&format!("{} has joined already", self.meeting.name(at))),
            Seat::Over => {
                return denied(&format!("rank {rank} was there and is not any more: a group is joined once"));
            }
        }
        let Some(guest) = self.guests.get_mut(&token) else { return Ok(()) };
        guest.rank = Some(at);
        let program = if program.is_empty() { program_of(guest.pid()) } else { program };
        self.meeting.set_name(at, format!("process {}, {program}", guest.pid()));
        self.seats[at] = Seat::Taken(token);
        self.watch_process(token);
        self.send(token, Answer::Welcome.to_bytes().into());
        if let Some(fault) = self.meeting.fault(crate::group::meeting::FIRST_CHANNEL).cloned() {
            self.send(token, Answer::Broken(fault).to_bytes().into());
        }
        Ok(())
    }

    /// The end of the process is noticed also while a child of its holds the socket.
    fn watch_process(&mut self, token: u64) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        let pid = i32::try_from(guest.pid()).ok().and_then(Pid::from_raw);
        let Some(pid) = pid else { return };
        let watched = rustix::process::pidfd_open(pid, PidfdFlags::empty()).and_then(|process| {
            epoll::add(&self.epoll, &process, EventData::new_u64(token + 1), EventFlags::IN)?;
            Ok(process)
        });
        match watched {
            Ok(process) => guest.process = Some(process),
            // The end of its socket tells as well, unless it forks.
            Err(error) => tracing::debug!(%error, "a member's process cannot be watched"),
        }
    }

    fn word(&mut self, token: u64, rank: usize, word: Word) {
        let told = match word {
            Word::Join { .. } => return self.gone(token),
            Word::Bring { channel, call, bytes } => self.meeting.bring(channel, rank, call, bytes),
            Word::LeaveChannel { channel } => self.meeting.leave_channel(channel, rank),
            Word::Leave => {
                // Told first: a thread of its own may be in a round.
                let told = self.meeting.leave(rank);
                self.tell(told);
                self.seats[rank] = Seat::Over;
                return;
            }
        };
        self.tell(told);
    }

    /// A process has ended: whatever it said is in its socket.
    fn process_ended(&mut self, token: u64) {
        while let Some(guest) = self.guests.get_mut(&token) {
            let fed = guest.inbox.feed(&guest.stream, Blocking::Never);
            self.listen(token);
            if fed != Fed::Bytes {
                return self.gone(token);
            }
        }
    }

    /// A guest is not there any more.
    fn gone(&mut self, token: u64) {
        let rank = self.guests.get(&token).and_then(|guest| guest.rank);
        self.part(token);
        let Some(rank) = rank else { return };
        self.seats[rank] = Seat::Over;
        if !self.meeting.has_left(rank) {
            self.lose(rank, "is gone: it ended, or was killed, without leaving the group");
        }
    }

    fn lose(&mut self, rank: usize, how: &str) {
        let told = self.meeting.gone(rank, how);
        if !told.is_empty() {
            // Known to the owner before anybody can end because of it.
            let _ = self.orders.lost.set(rank);
        }
        self.tell(told);
    }

    fn refuse(&mut self, token: u64, fault: Fault) {
        tracing::warn!(%fault, "somebody was refused by the hub of a group");
        self.send(token, Answer::Refused(fault).to_bytes().into());
        self.part(token);
    }

    fn part(&mut self, token: u64) {
        // Closing the descriptors takes them out of the epoll set, unless a child of ours holds copies for a moment.
        let Some(guest) = self.guests.remove(&token) else { return };
        let _ = epoll::delete(&self.epoll, &guest.stream);
        if let Some(process) = &guest.process {
            let _ = epoll::delete(&self.epoll, process);
        }
    }

    fn tell(&mut self, told: Vec<Told>) {
        for news in told {
            let (frame, to): (Arc<[u8]>, Vec<usize>) = match news {
                Told::Round { channel, to, ended: Ok(round) } => (full_frame(channel, &round).into(), to),
                Told::Round { channel, to, ended: Err(fault) } => {
                    (Answer::Failed { channel, fault }.to_bytes().into(), to)
                }
                Told::Closed { channel, to, fault } => {
                    (Answer::Closed { channel, fault }.to_bytes().into(), to)
                }
                Told::Broken { fault } => {
                    (Answer::Broken(fault).to_bytes().into(), (0..self.seats.len()).collect())
                }
            };
            for rank in to {
                if let Seat::Taken(token) = self.seats[rank] {
                    self.send(token, Arc::clone(&frame));
                }
            }
        }
    }

    fn send(&mut self, token: u64, frame: Arc<[u8]>) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        let sent = guest.tell(frame);
        self.after_sending(token, sent);
    }

    /// Waits for room where there is none. One who cannot be told has an end that is noticed, or made, by the loop.
    fn after_sending(&mut self, token: u64, sent: io::Result<bool>) {
        let Some(guest) = self.guests.get_mut(&token) else { return };
        let full = match sent {
            Ok(all) => !all,
            Err(error) => {
                tracing::debug!(%error, "a member of a group cannot be told something");
                // Its end is heard as that of everyone else: after what it had to say.
                let _ = guest.stream.shutdown(std::net::Shutdown::Both);
                return;
            }
        };
        if guest.waits_for_room == full {
            return;
        }
        guest.waits_for_room = full;
        let flags = if full { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        if let Err(error) = epoll::modify(&self.epoll, &guest.stream, EventData::new_u64(token), flags) {
            tracing::warn!(%error, "a member of a group may wait for what it is told");
        }
    }
}
