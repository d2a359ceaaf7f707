//! A member's receiving side of the hub connection: hub messages sorted by channel, read by the waiting thread itself.
//!
//! Never: two threads read concurrently; a thread waits while no thread reads. Always: a closed hub connection wakes every
//! waiting thread with an error.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::socket::Blocking;

use super::collective_state::{CollectiveOutcome, CompletedCollective};
use super::wire::{COLLECTIVE_BODY_BYTES_MAX, FrameBuffer, HubMessage, ReadOutcome};

/// See the module head.
#[derive(Debug)]
pub(super) struct HubReader {
    stream: UnixStream,
    size: usize,
    /// Error text for a closed socket.
    lost_text: String,
    state: Mutex<ReaderState>,
    news: Condvar,
}

#[derive(Debug)]
struct ReaderState {
    /// `None` while a thread reads.
    inbox: Option<FrameBuffer>,
    ended: HashMap<u32, CollectiveOutcome>,
    closed: HashMap<u32, Fault>,
    /// A member is dead.
    broken: Option<Fault>,
    /// The hub connection is closed: no more messages will arrive.
    disconnected: Option<Fault>,
}

impl HubReader {
    pub(super) fn new(stream: UnixStream, inbox: FrameBuffer, size: usize, gone: String) -> HubReader {
        let heard = ReaderState {
            inbox: Some(inbox),
            ended: HashMap::new(),
            closed: HashMap::new(),
            broken: None,
            disconnected: None,
        };
        HubReader { stream, size, lost_text: gone, state: Mutex::new(heard), news: Condvar::new() }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn state(&self) -> MutexGuard<'_, ReaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end of this member's current collective on `channel`.
    pub(super) fn wait(&self, channel: u32) -> CollectiveOutcome {
        let mut heard = self.state();
        loop {
            if let Some(ended) = heard.ended.remove(&channel) {
                return ended;
            }
            if let Some(fault) = &heard.disconnected {
                // A member's death explains more than the end of the hub connection that follows it.
                return Err(heard.broken.as_ref().unwrap_or(fault).clone());
            }
            heard = match heard.inbox.take() {
                Some(inbox) => self.read(heard, inbox, Blocking::Wait).0,
                None => self.news.wait(heard).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Processes the messages that have arrived, without waiting; returns the fault if the channel can run no more collectives.
    pub(super) fn check(&self, channel: u32) -> Result<(), Fault> {
        let mut heard = self.state();
        while let Some(inbox) = heard.inbox.take() {
            let fed;
            (heard, fed) = self.read(heard, inbox, Blocking::Never);
            if fed != ReadOutcome::Bytes {
                break;
            }
        }
        let fault = heard.broken.as_ref().or(heard.closed.get(&channel)).or(heard.disconnected.as_ref());
        fault.map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Drops the state of a channel that is not used any more.
    pub(super) fn forget(&self, channel: u32) {
        let mut heard = self.state();
        heard.closed.remove(&channel);
        heard.ended.remove(&channel);
    }

    /// Reads once, without the lock, and sorts the messages by channel.
    fn read<'a>(
        &'a self,
        heard: MutexGuard<'a, ReaderState>,
        mut inbox: FrameBuffer,
        blocking: Blocking,
    ) -> (MutexGuard<'a, ReaderState>, ReadOutcome) {
        drop(heard);
        // Messages that were read together with the welcome are processed first.
        let mut fed = ReadOutcome::Bytes;
        let mut answers = Vec::new();
        let mut sorted = self.sort(&mut inbox, &mut answers);
        if answers.is_empty() && sorted.is_ok() {
            fed = inbox.feed(&self.stream, blocking);
            sorted = self.sort(&mut inbox, &mut answers);
        }
        let mut heard = self.state();
        for answer in answers {
            heard.apply(answer);
        }
        if let Err(fault) = sorted {
            heard.disconnected = Some(fault);
            fed = ReadOutcome::End;
        } else if fed == ReadOutcome::End {
            heard.disconnected = Some(Fault::new(Code::Unreachable, self.lost_text.clone()));
        }
        heard.inbox = Some(inbox);
        self.news.notify_all();
        (heard, fed)
    }

    fn sort(&self, inbox: &mut FrameBuffer, answers: &mut Vec<HubMessage>) -> Result<(), Fault> {
        let read = |head, body: &[u8]| HubMessage::from_frame(head, body, self.size);
        while let Some(answer) = inbox.next(COLLECTIVE_BODY_BYTES_MAX, read)? {
            answers.push(answer);
        }
        Ok(())
    }
}

impl ReaderState {
    fn apply(&mut self, answer: HubMessage) {
        match answer {
            HubMessage::Full { channel, parts, made } => {
                self.ended
                    .insert(channel, Ok(Arc::new(CompletedCollective { parts, created_channel: made })));
            }
            HubMessage::Failed { channel, fault } => {
                self.ended.insert(channel, Err(fault));
            }
            HubMessage::Closed { channel, fault } => {
                self.closed.insert(channel, fault);
            }
            HubMessage::Broken(fault) => self.broken = Some(fault),
            HubMessage::Welcome | HubMessage::Refused(_) => {
                tracing::warn!("the hub of a group sent a second welcome to a member; it is ignored");
            }
        }
    }
}
