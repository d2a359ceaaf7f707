//! The notice thread: receives recalls from the manager while leases are held.
//!
//! Never: does file I/O for the application. Always: sleeps unless there is a notice; ends with its session.

use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use pario_core::{Fault, ServerIndex};
use pario_net::connection::Connection;
use pario_net::greeting::{ConnectionPurpose, session_sign};
use pario_net::message::{At, NameRequest, Notice, Request};
use pario_sys::kill_point::{Point, reach};
use pario_sys::process::{Sign, fork_generation};

use crate::client::session::state::{Session, pause};

/// Interval of the check that the session still exists.
const SESSION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval of attempts to reach a lost manager.
const REJOIN_INTERVAL: Duration = Duration::from_millis(500);

/// The connection of a notice thread; dropping it ends the thread.
#[derive(Debug)]
pub(crate) struct NoticeConnection {
    connection: Arc<Connection>,
    fork: u64,
}

impl Drop for NoticeConnection {
    fn drop(&mut self) {
        // A forked child shares the parent's socket, and must not shut it down.
        if self.fork == fork_generation() {
            self.connection.close();
        }
    }
}

impl Session {
    /// Starts the notice thread if it is not running. Must precede the first lease request.
    pub(in crate::client) fn listen(self: &Arc<Self>) -> Result<(), Fault> {
        if self.sign.get().is_none() {
            let shown = Sign::show(&session_sign(self.session()))
                .map_err(|error| Fault::from_io(&error, "creating the sign of life of the session"))?;
            self.sign.get_or_init(|| shown);
        }
        // The request connection first: the manager treats the two as one session.
        self.connection(ServerIndex::MANAGER)?;
        let mut notices = self.notices.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.as_ref().is_some_and(|notices| !notices.connection.is_dead()) {
            return Ok(());
        }
        // Before the connection: a manager that is lost from here on cannot recall leases of its successor.
        let epoch = self.epoch();
        let connection = Arc::new(self.open(ServerIndex::MANAGER, ConnectionPurpose::Notices {})?);
        let (mount, listening) = (Arc::downgrade(self), Arc::clone(&connection));
        std::thread::Builder::new()
            .name("pario-notices".into())
            .spawn(move || listen(&mount, &listening, epoch))
            .map_err(|error| Fault::from_io(&error, "starting the notice thread"))?;
        *notices = Some(NoticeConnection { connection, fork: fork_generation() });
        Ok(())
    }
}

fn listen(listener: &Weak<Session>, connection: &Arc<Connection>, epoch: u64) {
    loop {
        let notice = connection.notice(SESSION_CHECK_INTERVAL);
        let Some(mount) = listener.upgrade() else { return };
        match notice {
            Ok(None) => {}
            Ok(Some(Notice::Recall { inode, number })) => {
                reach(Point::RecallHeard);
                let file = mount.files().get(&inode).and_then(Weak::upgrade);
                if let Some(file) = file {
                    file.lease.recalled(&file, number, epoch);
                }
            }
            Ok(Some(Notice::RecallLock { inode, number, start, end })) => {
                let file = mount.files().get(&inode).and_then(Weak::upgrade);
                match file {
                    Some(file) => file.locks.lock_recalled(number, start..end, epoch),
                    // A lock of a file that this process has closed.
                    None => {
                        let _ = mount.send_unawaited(
                            ServerIndex::MANAGER,
                            &Request::Unlock { inode, number, keep: None },
                        );
                    }
                }
            }
            Ok(Some(Notice::Unlinked { inode })) => {
                let file = mount.files().get(&inode).and_then(Weak::upgrade);
                if let Some(file) = file {
                    file.lease.unlinked();
                }
            }
            Ok(Some(Notice::Waiting { .. } | Notice::Goodbye { .. })) => {}
            Err(_) => {
                let mut notices = mount.notices.lock().unwrap_or_else(PoisonError::into_inner);
                let current =
                    notices.as_ref().is_some_and(|notices| Arc::ptr_eq(&notices.connection, connection));
                if notices.is_some() && !current {
                    // Another thread is listening already.
                    return;
                }
                notices.take();
                drop(notices);
                // A call may have handled the loss before, except for this: its caller may not call again for hours.
                if current {
                    mount.manager_lost();
                }
                drop(mount);
                return rejoin(listener);
            }
        }
    }
}

/// The manager was lost. After its restart it withholds this session's files from other clients until the session announces itself: a
/// program that computes for hours must not delay them. Without open files there is nothing to announce.
fn rejoin(listener: &Weak<Session>) {
    loop {
        pause(REJOIN_INTERVAL);
        let Some(mount) = listener.upgrade() else { return };
        let used = mount.files().values().any(|file| 0 < file.strong_count());
        if !used || !mount.is_own_process() {
            return;
        }
        // Any request announces the session: the outbox has been offered again and no lease is held any more.
        let any = NameRequest::Stat { at: At::root(""), follow: false };
        if mount.listen().and_then(|()| mount.request_names(any)).is_ok() {
            return;
        }
    }
}
