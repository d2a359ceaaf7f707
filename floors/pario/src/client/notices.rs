//! The listening thread: takes recalls from the manager while leases are held.
//!
//! Never: does file I/O for the application. Always: asleep unless there is a notice; ends with its mount.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use pario_core::{Fault, ServerIndex};
use pario_net::connection::Connection;
use pario_net::greeting::{Purpose, session_sign};
use pario_net::message::{At, NameRequest, Notice, Request};
use pario_sys::kill_point::{Point, reach};
use pario_sys::process::{Sign, fork_generation};

use super::mount::Mount;

/// How often the thread looks whether its mount is still there.
const LOOK: Duration = Duration::from_secs(1);

/// How often a lost manager is looked for.
const REJOIN: Duration = Duration::from_millis(500);

/// The connection of a listening thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct Notices {
    connection: Arc<Connection>,
    fork: u64,
}

impl Drop for Notices {
    fn drop(&mut self) {
        // A forked child shares the parent's socket, and must not end it.
        if self.fork == fork_generation() {
            self.connection.close();
        }
    }
}

impl Mount {
    /// Starts listening, unless we do already. Must come before a lease is asked for.
    pub(super) fn listen(self: &Arc<Self>) -> Result<(), Fault> {
        if self.sign.get().is_none() {
            let shown = Sign::show(&session_sign(self.session()))
                .map_err(|error| Fault::from_io(&error, "showing that the session lives"))?;
            self.sign.get_or_init(|| shown);
        }
        // The requests' connection first: the manager takes the two for one session.
        self.connection(ServerIndex::MANAGER)?;
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.as_ref().is_some_and(|notices| !notices.connection.is_dead()) {
            return Ok(());
        }
        // First: a manager that is lost from here on says nothing about leases of a later one.
        let epoch = self.epoch();
        let connection = Arc::new(self.open(ServerIndex::MANAGER, Purpose::Notices {})?);
        let (mount, listening) = (Arc::downgrade(self), Arc::clone(&connection));
        std::thread::Builder::new()
            .name("pario-notices".into())
            .spawn(move || listen(&mount, &listening, epoch))
            .map_err(|error| Fault::from_io(&error, "starting the listening thread"))?;
        *notices = Some(Notices { connection, fork: fork_generation() });
        Ok(())
    }
}

fn listen(listener: &Weak<Mount>, connection: &Arc<Connection>, epoch: u64) {
    loop {
        let notice = connection.notice(LOOK);
        let Some(mount) = listener.upgrade() else { return };
        match notice {
            Ok(None) => {}
            Ok(Some(Notice::Recall { inode, number })) => {
                reach(Point::RecallHeard);
                let file = mount.files().get(&inode).and_then(Weak::upgrade);
                if let Some(file) = file {
                    file.recalled(number, epoch);
                }
            }
            Ok(Some(Notice::RecallLock { inode, number, start, end })) => {
                let file = mount.files().get(&inode).and_then(Weak::upgrade);
                match file {
                    Some(file) => file.lock_recalled(number, start..end, epoch),
                    // A lock of a file that nobody here has open any more.
                    None => {
                        let _ =
                            mount.tell(ServerIndex::MANAGER, &Request::Unlock { inode, number, keep: None });
                    }
                }
            }
            Ok(Some(Notice::Unlinked { inode })) => {
                let file = mount.files().get(&inode).and_then(Weak::upgrade);
                if let Some(file) = file {
                    file.unlinked();
                }
            }
            Ok(Some(Notice::Waiting { .. } | Notice::Goodbye { .. })) => {}
            Err(_) => {
                let mut notices = mount.notices.lock().unwrap_or_else(PoisonError::into_inner);
                let current =
                    notices.as_ref().is_some_and(|notices| Arc::ptr_eq(&notices.connection, connection));
                if notices.is_some() && !current {
                    // Another thread listens already.
                    return;
                }
                notices.take();
                drop(notices);
                // A call may have found out before us, and seen to everything but this: its caller may not call again for hours.
                if current {
                    mount.lost_home();
                }
                drop(mount);
                return rejoin(listener);
            }
        }
    }
}

/// The manager went away, and when it is back it keeps our files from others until it hears of us: a program that computes for
/// hours must not keep them waiting. Without open files nothing is kept for us.
fn rejoin(listener: &Weak<Mount>) {
    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(REJOIN.subsec_nanos()) };
    loop {
        // An empty poll is a pause.
        let _ = rustix::event::poll(&mut [], Some(&pause));
        let Some(mount) = listener.upgrade() else { return };
        let used = mount.files().values().any(|file| 0 < file.strong_count());
        if !used || !mount.is_own_process() {
            return;
        }
        // A request, whichever: with it the manager knows that we have offered our outbox again and hold no lease any more.
        let any = NameRequest::Stat { at: At::root(""), follow: false };
        if mount.listen().and_then(|()| mount.name_call(any)).is_ok() {
            return;
        }
    }
}
