//! Recovery of a session after its manager was lost.
//!
//! Always: records are offered to their servers before the session announces itself, or their files report the loss.

use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};
use std::time::Duration;

use pario_core::{Clock, Code, Fault, InodeId, Nanos, ServerIndex};
use pario_net::connection::Connection;
use pario_net::message::Request;
use pario_net::outbox::Outbox;

use crate::client::session::state::{Session, pause};

/// After the manager is back, time to wait for a server that was lost together with it, before the records for that server are dropped.
const RETURN_WAIT_MS: u64 = 2000;

/// Interval between attempts to reach it.
const RETURN_POLL: Duration = Duration::from_millis(50);

impl Session {
    /// Recovery after the manager was lost: committed records are offered to the servers again before the session announces itself,
    /// because from then on the manager may grant the files to other clients. Records that cannot be offered are dropped, and their files
    /// report the loss.
    pub(in crate::client) fn recover(&self) -> Result<(), Fault> {
        let _one = self.recovery.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.recovering.load(Ordering::Acquire) {
            return Ok(());
        }
        let epoch = self.epoch();
        // Other servers may have failed unnoticed together with the manager.
        self.check_links();
        // While the manager is down no other client is granted these files, so no record needs to be dropped. The greeting changes nothing
        // there: the manager keeps its state of this session until the first request.
        self.connect(ServerIndex::MANAGER)?;
        let returning_until = self.clock.now().plus_ms(RETURN_WAIT_MS);
        // The manager last: it is itself a server that drains records.
        for server in self.server_indices().skip(1).chain([ServerIndex::MANAGER]) {
            let Some(outbox) = self.outbox.get() else { break };
            if outbox.stopped(server).is_none() {
                continue;
            }
            if let Err(fault) = self.offer_returning(outbox, server, returning_until) {
                if server == ServerIndex::MANAGER {
                    return Err(fault);
                }
                tracing::warn!(%fault, "records for a server that did not come back are lost; rewrite the data");
                self.drop_records(outbox, server);
            }
        }
        let connection = self.connect(ServerIndex::MANAGER)?;
        self.announced_epoch.store(epoch, Ordering::Release);
        self.announce_files(&connection)?;
        self.recovering.store(false, Ordering::Release);
        Ok(())
    }

    /// Offers the outbox to a server that was lost with undrained records. A server that is started together with the manager may need
    /// more time.
    fn offer_returning(&self, outbox: &Outbox, server: ServerIndex, until: Nanos) -> Result<(), Fault> {
        loop {
            let offered = self.connect(server).and_then(|connection| self.offer(outbox, server, &connection));
            match offered {
                Err(fault) if fault.code == Code::Unreachable && self.clock.now() < until => {
                    pause(RETURN_POLL);
                }
                Ok(_) => return Ok(()),
                Err(fault) => return Err(fault),
            }
        }
    }

    /// A restarted manager does not know which files this session has open; an unlinked file is kept only by this announcement.
    fn announce_files(&self, connection: &Connection) -> Result<(), Fault> {
        let open: Vec<InodeId> = {
            let files = self.files();
            let held =
                files.values().filter_map(Weak::upgrade).filter(|file| file.context.backing.has_leases());
            held.map(|file| file.context.inode).collect()
        };
        for inode in open {
            let ticket = connection.start_as(self.number(), &Request::Use { inode }, &[], &[])?;
            match connection.wait(ticket, None) {
                Ok(_) => {}
                // Removed during the outage: the next access reports it.
                Err(fault) if fault.code == Code::Stale => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(())
    }
}
