//! Shared file pointers: one number per group that has a file open, in shared memory that the group's processes on this node add to;
//! processes on other nodes send a message.
//!
//! The memory has several writers, an exception (decision 0009): each change is one atomic addition or store, so a process that dies at any
//! instruction leaves a valid pointer.
//!
//! Never: keeps a pointer when no client has the file open any more, except for the newest [`LEFT_MAX`]. Always: a pointer of a later view
//! starts at 0.

use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};

use pario_core::{Code, Fault, InodeId, SessionId};
use pario_net::message::{PointerId, PointerMove, Reply};
use pario_net::pointer::PointerPage;

use super::{Manager, ManagerEffect, RequestCaller};

/// Concurrent pointers.
const POINTERS_MAX: usize = 1 << 14;

/// Concurrent pointers of one session.
const POINTERS_OF_SESSION_MAX: usize = 1024;

/// Unused pointers kept for members that arrive late.
const LEFT_MAX: usize = 256;

struct SharedPointer {
    epoch: u64,
    page: PointerPage,
    descriptor: OwnedFd,
    sessions: HashSet<SessionId>,
    /// Creation number: orders pointers by age.
    number: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct SharedPointers {
    of: HashMap<(InodeId, u64), SharedPointer>,
    made: u64,
}

impl SharedPointers {
    fn get(&mut self, session: SessionId, id: PointerId) -> Result<&SharedPointer, Fault> {
        let key = (id.inode, id.group);
        let fits = |pointer: &SharedPointer| pointer.epoch == id.epoch;
        if let Some(pointer) = self.of.get(&key)
            && id.epoch < pointer.epoch
        {
            let text =
                format!("inode {}: a shared pointer of a view that is not in force any more", id.inode);
            return Err(Fault::new(Code::Stale, text));
        }
        if !self.of.get(&key).is_some_and(fits) {
            let mine = self.of.values().filter(|pointer| pointer.sessions.contains(&session)).count();
            if POINTERS_OF_SESSION_MAX <= mine {
                let text =
                    format!("{mine} shared pointers are in use by one process; close files that need them");
                return Err(Fault::new(Code::TooMany, text));
            }
            if POINTERS_MAX <= self.of.len() {
                return Err(Fault::new(Code::TooMany, format!("{POINTERS_MAX} shared pointers are in use")));
            }
            let made = PointerPage::create();
            let (page, descriptor) =
                made.map_err(|error| Fault::from_io(&error, "making a shared pointer"))?;
            let sessions = self.of.remove(&key).map(|old| old.sessions).unwrap_or_default();
            self.made += 1;
            self.of.insert(
                key,
                SharedPointer { epoch: id.epoch, page, descriptor, sessions, number: self.made },
            );
        }
        let pointer = self.of.get_mut(&key).ok_or(Code::Stale)?;
        pointer.sessions.insert(session);
        Ok(pointer)
    }

    /// A session closed a file; `used`: other sessions have it open, and may be members of the group that have not moved its pointer yet.
    pub(super) fn leave(&mut self, session: SessionId, inode: InodeId, used: bool) {
        self.of.retain(|(file, _), pointer| {
            if *file == inode {
                pointer.sessions.remove(&session);
            }
            *file != inode || used || !pointer.sessions.is_empty()
        });
        self.bound();
    }

    /// A session ended, and with it the last use of files that are not in `used`.
    pub(super) fn leave_all(&mut self, session: SessionId, used: impl Fn(InodeId) -> bool) {
        self.of.retain(|(file, _), pointer| {
            pointer.sessions.remove(&session);
            !pointer.sessions.is_empty() || used(*file)
        });
        self.bound();
    }

    /// Keeps the newest unused pointers for members that arrive late.
    fn bound(&mut self) {
        let mut left: Vec<((InodeId, u64), u64)> =
            self.of.iter().filter(|(_, p)| p.sessions.is_empty()).map(|(key, p)| (*key, p.number)).collect();
        if left.len() <= LEFT_MAX {
            return;
        }
        left.sort_unstable_by_key(|(_, number)| *number);
        for (key, _) in &left[..left.len() - LEFT_MAX] {
            self.of.remove(key);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.of.len()
    }
}

impl Manager {
    /// The pointer as shared memory, for a process of this node.
    pub(super) fn share_pointer(&mut self, caller: RequestCaller, id: PointerId) -> Result<(), Fault> {
        self.names.attr(id.inode)?;
        let descriptor = self.pointers.get(caller.session, id)?.descriptor.as_fd().try_clone_to_owned();
        let descriptor = descriptor.map_err(|error| Fault::from_io(&error, "passing a shared pointer"))?;
        self.effects.push(ManagerEffect::Lend { caller, reply: Reply::Pointer {}, descriptor });
        Ok(())
    }

    /// Moves the pointer for a process of another node.
    pub(super) fn move_pointer(
        &mut self,
        caller: RequestCaller,
        id: PointerId,
        how: PointerMove,
    ) -> Result<(), Fault> {
        self.names.attr(id.inode)?;
        let page = &self.pointers.get(caller.session, id)?.page;
        let at = match how {
            PointerMove::Add { by } => page.add(by),
            PointerMove::Set { at } => {
                let before = page.get();
                page.set(at);
                before
            }
        };
        self.reply(caller, Reply::Position { at });
        Ok(())
    }
}
