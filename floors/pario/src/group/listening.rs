//! A member's ear: answers of the hub, sorted by channel, read by whichever thread waits.
//!
//! Never: two threads read at once; a thread waits while nobody reads. Always: when the hub is gone everyone is told.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault};
use pario_sys::socket::Blocking;

use super::meeting::{Ended, Round};
use super::wire::{Answer, Fed, Inbox, ROUND_BODY_BYTES_MAX};

/// See the module.
#[derive(Debug)]
pub(super) struct Listening {
    stream: UnixStream,
    size: usize,
    /// Told when the socket ends.
    gone: String,
    heard: Mutex<Heard>,
    news: Condvar,
}

#[derive(Debug)]
struct Heard {
    /// Missing while a thread reads.
    inbox: Option<Inbox>,
    ended: HashMap<u32, Ended>,
    closed: HashMap<u32, Fault>,
    /// A member is gone.
    broken: Option<Fault>,
    /// The hub is gone: nothing more will be heard.
    deaf: Option<Fault>,
}

impl Listening {
    pub(super) fn new(stream: UnixStream, inbox: Inbox, size: usize, gone: String) -> Listening {
        let heard = Heard {
            inbox: Some(inbox),
            ended: HashMap::new(),
            closed: HashMap::new(),
            broken: None,
            deaf: None,
        };
        Listening { stream, size, gone, heard: Mutex::new(heard), news: Condvar::new() }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The end of the round that this member is in.
    pub(super) fn wait(&self, channel: u32) -> Ended {
        let mut heard = self.heard();
        loop {
            if let Some(ended) = heard.ended.remove(&channel) {
                return ended;
            }
            if let Some(fault) = &heard.deaf {
                // A member's death explains more than the hub's end that follows it.
                return Err(heard.broken.as_ref().unwrap_or(fault).clone());
            }
            heard = match heard.inbox.take() {
                Some(inbox) => self.read(heard, inbox, Blocking::Wait).0,
                None => self.news.wait(heard).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Hears what has arrived, without waiting, and says why there are no more rounds.
    pub(super) fn check(&self, channel: u32) -> Result<(), Fault> {
        let mut heard = self.heard();
        while let Some(inbox) = heard.inbox.take() {
            let fed;
            (heard, fed) = self.read(heard, inbox, Blocking::Never);
            if fed != Fed::Bytes {
                break;
            }
        }
        let fault = heard.broken.as_ref().or(heard.closed.get(&channel)).or(heard.deaf.as_ref());
        fault.map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// A channel is not used any more.
    pub(super) fn forget(&self, channel: u32) {
        let mut heard = self.heard();
        heard.closed.remove(&channel);
        heard.ended.remove(&channel);
    }

    /// Reads once, without the lock, and sorts what came.
    fn read<'a>(
        &'a self,
        heard: MutexGuard<'a, Heard>,
        mut inbox: Inbox,
        blocking: Blocking,
    ) -> (MutexGuard<'a, Heard>, Fed) {
        drop(heard);
        // What was read together with the welcome comes first.
        let mut fed = Fed::Bytes;
        let mut answers = Vec::new();
        let mut sorted = self.sort(&mut inbox, &mut answers);
        if answers.is_empty() && sorted.is_ok() {
            fed = inbox.feed(&self.stream, blocking);
            sorted = self.sort(&mut inbox, &mut answers);
        }
        let mut heard = self.heard();
        for answer in answers {
            heard.take(answer);
        }
        if let Err(fault) = sorted {
            heard.deaf = Some(fault);
            fed = Fed::End;
        } else if fed == Fed::End {
            heard.deaf = Some(Fault::new(Code::Unreachable, self.gone.clone()));
        }
        heard.inbox = Some(inbox);
        self.news.notify_all();
        (heard, fed)
    }

    fn sort(&self, inbox: &mut Inbox, answers: &mut Vec<Answer>) -> Result<(), Fault> {
        let read = |head, body: &[u8]| Answer::from_frame(head, body, self.size);
        while let Some(answer) = inbox.next(ROUND_BODY_BYTES_MAX, read)? {
            answers.push(answer);
        }
        Ok(())
    }
}

impl Heard {
    fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Full { channel, parts, made } => {
                self.ended.insert(channel, Ok(Arc::new(Round { parts, made })));
            }
            Answer::Failed { channel, fault } => {
                self.ended.insert(channel, Err(fault));
            }
            Answer::Closed { channel, fault } => {
                self.closed.insert(channel, fault);
            }
            Answer::Broken(fault) => self.broken = Some(fault),
            Answer::Welcome | Answer::Refused(_) => {
                tracing::warn!("the hub of a group greets a member again");
            }
        }
    }
}
