//! A file's records in the outbox: which are not taken yet.
//!
//! Always: `span` covers every byte of a record that some server may not have taken.

use std::ops::Range;
use std::sync::{Arc, PoisonError};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::outbox::{Concern, Gathering};

use super::open_file::OpenFile;
use crate::group::Group;

/// See the module.
pub(crate) struct Records {
    /// Per server, the position behind our last record that concerns it.
    ends: Vec<u64>,
    /// The same for records that were committed under managers before that of `epoch`.
    older_ends: Vec<u64>,
    /// The manager's life in which the last record was committed.
    epoch: u64,
    /// File bytes of records since everything was taken.
    span: Option<Range<u64>>,
    /// Servers written to since the last sync, by any path.
    unsynced: Vec<bool>,
    /// Per server, the volatile losses known when it was first written to since the last sync.
    losses: Vec<u64>,
    /// Per server, the cursor that was looked at and the errors it had counted: another life counts anew.
    errors: Vec<(usize, u64)>,
}

/// A server that has bytes of ours which are not synced.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsynced {
    pub(super) server: ServerIndex,
    /// Lives that it had lost when they were written.
    pub(super) losses: u64,
}

impl Records {
    pub(super) fn new(servers: usize) -> Records {
        Records {
            ends: vec![0; servers],
            older_ends: vec![0; servers],
            epoch: 0,
            span: None,
            unsynced: vec![false; servers],
            losses: vec![0; servers],
            errors: vec![(0, 0); servers],
        }
    }

    /// A record was committed in this life of the manager.
    fn begin(&mut self, epoch: u64) {
        if self.epoch != epoch {
            self.older_ends.clone_from(&self.ends);
            self.epoch = epoch;
        }
    }

    fn add_span(&mut self, range: &Range<u64>) {
        self.span = Some(match self.span.take() {
            Some(span) => span.start.min(range.start)..span.end.max(range.end),
            None => range.clone(),
        });
    }
}

impl OpenFile {
    /// Takes note of a record.
    pub(super) fn note_record(&self, range: Range<u64>, position: u64) {
        let mut records = self.records();
        records.begin(self.mount.epoch());
        for piece in self.layout.pieces(range.clone()) {
            // Of two threads' records the later one may be noted first.
            let end = &mut records.ends[piece.server.at()];
            *end = position.max(*end);
        }
        records.add_span(&range);
    }

    /// Takes note of a record of a stream, which lies inside `span` and concerns some servers.
    pub(super) fn note_stream(&self, span: &Range<u64>, concerns: &[Concern], position: u64) {
        let mut records = self.records();
        records.begin(self.mount.epoch());
        for concern in concerns {
            let end = &mut records.ends[concern.server.at()];
            *end = position.max(*end);
        }
        records.add_span(span);
    }

    /// Takes note that a server has bytes of ours that are not synced. Called before they are written.
    pub(super) fn note_unsynced(&self, server: ServerIndex) {
        let mut records = self.records();
        if !records.unsynced[server.at()] {
            records.unsynced[server.at()] = true;
            drop(records);
            let losses = self.mount.volatile_losses(server);
            self.records().losses[server.at()] = losses;
        }
    }

    pub(super) fn records_end(&self, server: ServerIndex) -> u64 {
        self.records().ends.get(server.at()).copied().unwrap_or(0)
    }

    /// The same behind a write, since a sync of another thread may have taken the note meanwhile.
    pub(super) fn note_written(&self, range: Range<u64>) {
        let missing: Vec<ServerIndex> = {
            let records = self.records();
            let pieces = self.layout.pieces(range).take(usize::from(self.layout.count()));
            pieces.map(|piece| piece.server).filter(|server| !records.unsynced[server.at()]).collect()
        };
        for server in missing {
            self.note_unsynced(server);
        }
    }

    /// Servers with bytes that are not synced.
    pub(super) fn unsynced(&self) -> Vec<Unsynced> {
        let records = self.records();
        let noted = |server: &ServerIndex| records.unsynced[server.at()];
        let with_losses = |server: ServerIndex| Unsynced { server, losses: records.losses[server.at()] };
        self.layout.servers().filter(noted).map(with_losses).collect()
    }

    /// The same, and the note is gone: who cannot sync them puts it back.
    pub(super) fn take_unsynced(&self) -> Vec<Unsynced> {
        let unsynced = self.unsynced();
        for Unsynced { server, .. } in &unsynced {
            self.note_synced(*server);
        }
        unsynced
    }

    pub(super) fn put_back_unsynced(&self, unsynced: &[Unsynced]) {
        let mut records = self.records();
        for Unsynced { server, losses } in unsynced {
            records.unsynced[server.at()] = true;
            records.losses[server.at()] = *losses;
        }
    }

    /// The file was told of what a server lost.
    pub(super) fn note_losses(&self, server: ServerIndex, losses: u64) {
        self.records().losses[server.at()] = losses;
    }

    pub(super) fn note_synced(&self, server: ServerIndex) {
        self.records().unsynced[server.at()] = false;
    }

    /// Whether an access to `range` could overtake one of our own records.
    pub(super) fn is_pending(&self, range: &Range<u64>) -> bool {
        let mut records = self.records();
        let Some(span) = &records.span else { return false };
        if span.end <= range.start || range.end <= span.start {
            return false;
        }
        if self.all_taken(&records) {
            records.span = None;
            return false;
        }
        true
    }

    pub(super) fn nothing_pending(&self) -> bool {
        let records = self.records();
        records.span.is_none() || self.all_taken(&records)
    }

    fn all_taken(&self, records: &Records) -> bool {
        let Some(outbox) = self.mount.outbox_if_made() else { return true };
        self.layout.servers().all(|server| outbox.is_taken(server, records.ends[server.at()]))
    }

    /// Waits until the servers have taken all our records of this file.
    pub(super) fn drain(&self) -> Result<(), Fault> {
        self.drain_in(None)
    }

    /// The same as part of a call that all members of a group make.
    pub(super) fn drain_in(&self, gathering: Option<&Gathering>) -> Result<(), Fault> {
        let ends: Vec<(ServerIndex, u64)> = {
            let records = self.records();
            if records.span.is_none() {
                return Ok(());
            }
            self.layout.servers().map(|server| (server, records.ends[server.at()])).collect()
        };
        for (server, position) in ends {
            self.wait_taken_in(gathering, server, position)?;
        }
        // Another thread may have committed more meanwhile.
        let mut records = self.records();
        if self.all_taken(&records) {
            records.span = None;
        }
        Ok(())
    }

    /// Tells servers, until what it returns is dropped, that this process is in a call that all members of its group make; `None` where it has
    /// brought nothing, or nobody else has to come.
    pub(super) fn gather(&self, group: &dyn Group) -> Option<Gathering> {
        let outbox =
            self.mount.outbox_if_made().filter(|_| self.mount.is_own_process() && 1 < group.size())?;
        Some(outbox.gather())
    }

    /// Waits until one server has come so far. One that was restarted meanwhile takes up where it stopped.
    pub(super) fn wait_taken(&self, server: ServerIndex, position: u64) -> Result<(), Fault> {
        self.wait_taken_in(None, server, position)
    }

    fn wait_taken_in(
        &self,
        gathering: Option<&Gathering>,
        server: ServerIndex,
        position: u64,
    ) -> Result<(), Fault> {
        let Some(outbox) = self.mount.outbox_if_made() else { return Ok(()) };
        if outbox.is_taken(server, position) {
            return Ok(());
        }
        let wait = || {
            self.mount.cursor(server)?;
            match gathering {
                Some(gathering) => gathering.wait_taken(server, position, &self.mount.minded()),
                None => outbox.wait_taken(server, position, &self.mount.minded()),
            }
        };
        self.mount.twice_if_quick(wait).map_err(|fault| fault.at(self.describe()))
    }

    /// What a gone server has not taken must never be applied over what comes later. It goes with what other files have there, which say so.
    pub(super) fn abandon_records(&self) {
        if let Some(outbox) = self.mount.outbox_if_made() {
            for server in self.layout.servers() {
                self.mount.give_up_records(outbox, server);
            }
        }
        self.records().span = None;
    }

    /// Whether some of the records that wait for a server from `position` on were committed under a manager that was lost, and for which
    /// its successor waits no more: it has heard of us in epoch `heard`.
    pub(super) fn has_stale_records(&self, server: ServerIndex, position: u64, heard: u64) -> bool {
        let records = self.records();
        let ends = if records.epoch < heard { &records.ends } else { &records.older_ends };
        // Where nobody gives leases, nobody can have given the file to others.
        self.homeless.is_none() && ends.get(server.at()).is_some_and(|end| position < *end)
    }

    /// A server that is gone had counted so many errors in the life of one cursor. If we have not asked for them, some may be ours.
    pub(super) fn note_unheard(&self, server: ServerIndex, counted: (usize, u64)) {
        let mut records = self.records();
        let known = &mut records.errors[server.at()];
        let heard = counted.1 == 0 || *known == counted;
        *known = counted;
        if heard || records.ends[server.at()] == 0 {
            return;
        }
        drop(records);
        let text = format!("server {server} went down before it told which writes it could not make");
        self.keep_fault(Fault::new(Code::Lost, text));
    }

    /// Errors that servers met behind our back since we last looked; asks only those that counted some.
    pub(super) fn collect_errors(&self) {
        let Some(outbox) = self.mount.outbox_if_made() else { return };
        for server in self.layout.servers() {
            let Some(cursor) = outbox.cursor(server) else { continue };
            let (life, counted) = (Arc::as_ptr(&cursor).addr(), cursor.errors());
            let known = std::mem::replace(&mut self.records().errors[server.at()], (life, counted));
            if counted != 0 && known != (life, counted) {
                self.fetch_errors(server);
            }
        }
    }

    fn records(&self) -> std::sync::MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
