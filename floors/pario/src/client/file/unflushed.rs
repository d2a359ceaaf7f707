//! A file's records in the outbox that are not drained yet.
//!
//! Never: holds its lock during a wait for a server. Always: `span` covers every byte of a record that a server may not have drained.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use pario_core::{Code, Fault, ServerIndex};
use pario_net::outbox::{CollectiveWait, Concern};
use pario_sys::mutex::lock;

use super::context::FileContext;
use super::faults::Faults;
use crate::group::Group;

/// Manager incarnations with separately noted records.
const OLDER_EPOCHS_MAX: usize = 4;

/// Positions of a file's records.
struct UnflushedRecords {
    /// Per server, the position after the last record that concerns it.
    ends: Vec<u64>,
    /// The same at the end of each manager incarnation in which records were committed, the oldest first; by epoch.
    older: Vec<(u64, Vec<u64>)>,
    /// The epoch in which the last record was committed.
    epoch: u64,
    /// File bytes of the records since the outbox was last drained.
    span: Option<Range<u64>>,
    /// Per server, the volatile losses known at the first write since the last sync.
    losses: Vec<u64>,
    /// Per server, the cursor that was read and its error count: a new incarnation counts from 0.
    errors: Vec<(usize, u64)>,
}

/// See the module.
pub(in crate::client) struct Unflushed {
    context: Arc<FileContext>,
    faults: Arc<Faults>,
    state: Mutex<UnflushedRecords>,
    /// Servers written to since the last sync, by any path.
    unsynced: Vec<AtomicBool>,
}

/// A server with unsynced bytes of this client.
#[derive(Clone, Copy, Debug)]
pub(in crate::client) struct UnsyncedServer {
    pub(in crate::client) server: ServerIndex,
    /// The server's volatile losses at the time of the writes.
    pub(in crate::client) losses: u64,
}

impl UnflushedRecords {
    fn new(servers: usize) -> UnflushedRecords {
        UnflushedRecords {
            ends: vec![0; servers],
            older: Vec::new(),
            epoch: 0,
            span: None,
            losses: vec![0; servers],
            errors: vec![(0, 0); servers],
        }
    }

    /// A record was committed in this epoch.
    fn begin(&mut self, epoch: u64) {
        if self.epoch == epoch {
            return;
        }
        let ended = (self.epoch, self.ends.clone());
        self.epoch = epoch;
        if self.older.len() == OLDER_EPOCHS_MAX {
            // The two oldest are merged under the older epoch: records of the other are then counted as older than they are.
            let (oldest, _) = self.older.remove(0);
            self.older[0].0 = oldest;
        }
        self.older.push(ended);
    }

    /// Whether records waiting for a server from `position` on were committed before `epoch`.
    fn are_older(&self, server: ServerIndex, position: u64, epoch: u64) -> bool {
        let lives = self.older.iter().map(|(epoch, ends)| (*epoch, ends)).chain([(self.epoch, &self.ends)]);
        let mut older = lives.filter(|(life, _)| *life < epoch);
        older.any(|(_, ends)| ends.get(server.at()).is_some_and(|end| position < *end))
    }

    fn add_span(&mut self, range: &Range<u64>) {
        self.span = Some(match self.span.take() {
            Some(span) => span.start.min(range.start)..span.end.max(range.end),
            None => range.clone(),
        });
    }
}

impl Unflushed {
    pub(super) fn new(context: &Arc<FileContext>, faults: &Arc<Faults>) -> Unflushed {
        let servers = usize::from(context.layout.total());
        Unflushed {
            context: Arc::clone(context),
            faults: Arc::clone(faults),
            state: Mutex::new(UnflushedRecords::new(servers)),
            unsynced: (0..servers).map(|_| AtomicBool::new(false)).collect(),
        }
    }

    /// Notes a record.
    pub(in crate::client) fn note_record(&self, range: Range<u64>, position: u64) {
        let mut records = self.state();
        records.begin(self.context.session.epoch());
        for piece in self.context.layout.pieces(range.clone()) {
            // Of two threads' records the later one may be noted first.
            let end = &mut records.ends[piece.server.at()];
            *end = position.max(*end);
        }
        records.add_span(&range);
    }

    /// Notes a stream record, which lies inside `span` and concerns some servers.
    pub(in crate::client) fn note_stream(&self, span: &Range<u64>, concerns: &[Concern], position: u64) {
        let mut records = self.state();
        records.begin(self.context.session.epoch());
        for concern in concerns {
            let end = &mut records.ends[concern.server.at()];
            *end = position.max(*end);
        }
        records.add_span(span);
    }

    /// Notes that a server has unsynced bytes of this client. Called before they are written.
    pub(in crate::client) fn note_unsynced(&self, server: ServerIndex) {
        let unsynced = &self.unsynced[server.at()];
        if unsynced.load(Ordering::Acquire) || unsynced.swap(true, Ordering::AcqRel) {
            return;
        }
        let losses = self.context.session.volatile_losses(server);
        self.state().losses[server.at()] = losses;
    }

    pub(in crate::client) fn records_end(&self, server: ServerIndex) -> u64 {
        self.state().ends.get(server.at()).copied().unwrap_or(0)
    }

    /// The same after a write, since another thread's sync may have cleared the note meanwhile.
    pub(in crate::client) fn note_written(&self, range: Range<u64>) {
        for piece in self.context.layout.pieces(range).take(usize::from(self.context.layout.count())) {
            self.note_unsynced(piece.server);
        }
    }

    /// Servers with unsynced bytes.
    pub(in crate::client) fn unsynced(&self) -> Vec<UnsyncedServer> {
        let records = self.state();
        let noted = |server: &ServerIndex| self.unsynced[server.at()].load(Ordering::Acquire);
        let with_losses =
            |server: ServerIndex| UnsyncedServer { server, losses: records.losses[server.at()] };
        self.context.layout.servers().filter(noted).map(with_losses).collect()
    }

    /// The same, and clears the note; a caller that cannot sync them puts it back.
    pub(in crate::client) fn take_unsynced(&self) -> Vec<UnsyncedServer> {
        let unsynced = self.unsynced();
        for UnsyncedServer { server, .. } in &unsynced {
            self.note_synced(*server);
        }
        unsynced
    }

    pub(in crate::client) fn put_back_unsynced(&self, unsynced: &[UnsyncedServer]) {
        let mut records = self.state();
        for UnsyncedServer { server, losses } in unsynced {
            records.losses[server.at()] = *losses;
            self.unsynced[server.at()].store(true, Ordering::Release);
        }
    }

    /// The file has reported this loss of a server.
    pub(in crate::client) fn note_losses(&self, server: ServerIndex, losses: u64) {
        self.state().losses[server.at()] = losses;
    }

    pub(in crate::client) fn note_synced(&self, server: ServerIndex) {
        self.unsynced[server.at()].store(false, Ordering::Release);
    }

    /// Whether an access to `range` could overtake a record of this client.
    pub(in crate::client) fn is_pending(&self, range: &Range<u64>) -> bool {
        let mut records = self.state();
        let Some(span) = &records.span else { return false };
        if span.end <= range.start || range.end <= span.start {
            return false;
        }
        if self.all_drained(&records) {
            records.span = None;
            return false;
        }
        true
    }

    pub(in crate::client) fn nothing_pending(&self) -> bool {
        let records = self.state();
        records.span.is_none() || self.all_drained(&records)
    }

    fn all_drained(&self, records: &UnflushedRecords) -> bool {
        let Some(outbox) = self.context.session.outbox_if_made() else { return true };
        self.context.layout.servers().all(|server| outbox.is_drained(server, records.ends[server.at()]))
    }

    /// Waits until the servers have drained all records of this file.
    pub(in crate::client) fn drain(&self) -> Result<(), Fault> {
        self.drain_in(None)
    }

    /// The same as part of a collective call.
    pub(in crate::client) fn drain_in(&self, gathering: Option<&CollectiveWait>) -> Result<(), Fault> {
        let ends: Vec<(ServerIndex, u64)> = {
            let records = self.state();
            if records.span.is_none() {
                return Ok(());
            }
            self.context.layout.servers().map(|server| (server, records.ends[server.at()])).collect()
        };
        for (server, position) in ends {
            self.wait_drained_in(gathering, server, position)?;
        }
        // Another thread may have committed more records meanwhile.
        let mut records = self.state();
        if self.all_drained(&records) {
            records.span = None;
        }
        Ok(())
    }

    /// Signals to the servers, until the returned value is dropped, that this process is in a collective call; `None` if it wrote no
    /// record, or the group has no other member.
    pub(in crate::client) fn begin_collective_wait(&self, group: &dyn Group) -> Option<CollectiveWait> {
        let outbox = self
            .context
            .session
            .outbox_if_made()
            .filter(|_| self.context.session.is_own_process() && 1 < group.size())?;
        Some(outbox.begin_collective_wait())
    }

    /// Waits until one server has drained up to `position`. A restarted server continues where it stopped.
    pub(in crate::client) fn wait_drained(&self, server: ServerIndex, position: u64) -> Result<(), Fault> {
        self.wait_drained_in(None, server, position)
    }

    fn wait_drained_in(
        &self,
        gathering: Option<&CollectiveWait>,
        server: ServerIndex,
        position: u64,
    ) -> Result<(), Fault> {
        let Some(outbox) = self.context.session.outbox_if_made() else { return Ok(()) };
        if outbox.is_drained(server, position) {
            return Ok(());
        }
        let wait = || {
            self.context.session.cursor(server)?;
            match gathering {
                Some(gathering) => {
                    gathering.wait_drained(server, position, &self.context.session.alive_check())
                }
                None => outbox.wait_drained(server, position, &self.context.session.alive_check()),
            }
        };
        self.context.session.retry_once(wait).map_err(|fault| fault.at(self.context.describe()))
    }

    /// Records that a dead server has not drained must never be applied over later data. They are dropped together with those of other
    /// files, which report the loss.
    pub(in crate::client) fn abandon_records(&self) {
        if let Some(outbox) = self.context.session.outbox_if_made() {
            for server in self.context.layout.servers() {
                self.context.session.drop_records(outbox, server);
            }
        }
        self.state().span = None;
    }

    /// Whether some records waiting for a server from `position` on were committed under a lost manager and its successor no longer waits
    /// for them: this session announced itself to it in epoch `heard`.
    pub(in crate::client) fn has_stale_records(
        &self,
        server: ServerIndex,
        position: u64,
        heard: u64,
    ) -> bool {
        // Without leases, no other client can have been granted the file.
        self.context.backing.has_leases() && self.state().are_older(server, position, heard)
    }

    /// A lost server had counted this many errors on one cursor. Errors not yet collected may belong to this file.
    pub(in crate::client) fn note_uncollected(&self, server: ServerIndex, counted: (usize, u64)) {
        let mut records = self.state();
        let known = &mut records.errors[server.at()];
        let heard = counted.1 == 0 || *known == counted;
        *known = counted;
        if heard || records.ends[server.at()] == 0 {
            return;
        }
        drop(records);
        let text = format!("server {server} went down before it reported which writes had failed");
        self.faults.keep(Fault::new(Code::Lost, text));
    }

    /// Collects write errors of the servers since the last call; sends a request only to servers that counted some.
    pub(in crate::client) fn collect_errors(&self) {
        let Some(outbox) = self.context.session.outbox_if_made() else { return };
        for server in self.context.layout.servers() {
            let Some(cursor) = outbox.cursor(server) else { continue };
            let (life, counted) = (Arc::as_ptr(&cursor).addr(), cursor.errors());
            let known = std::mem::replace(&mut self.state().errors[server.at()], (life, counted));
            if counted != 0 && known != (life, counted) {
                self.faults.fetch(server);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, UnflushedRecords> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: ServerIndex = ServerIndex(0);

    /// The manager is lost in the middle of a write: the record was committed in one epoch and is noted in the next.
    #[test]
    fn records_of_the_life_that_heard_of_us_come_in_time() {
        let mut records = UnflushedRecords::new(1);
        records.begin(1);
        records.ends[0] = 100;
        records.begin(2);
        records.ends[0] = 200;
        assert!(!records.are_older(SERVER, 0, 1), "the session has not announced itself to the next manager");
        assert!(records.are_older(SERVER, 0, 2), "it has, and the file may have been granted to others");
        assert!(!records.are_older(SERVER, 100, 2), "the records of the first epoch were drained");
        assert!(records.are_older(SERVER, 100, 3));
    }

    #[test]
    fn many_lives_are_told_apart_as_far_as_they_are_kept() {
        let mut records = UnflushedRecords::new(1);
        for life in 1..=20 {
            records.begin(life);
            records.ends[0] = life * 10;
            assert!(records.older.len() <= OLDER_EPOCHS_MAX);
            assert!(!records.are_older(SERVER, (life - 1) * 10, life), "its own records are not older");
            assert!(life == 1 || records.are_older(SERVER, (life - 1) * 10 - 1, life));
        }
    }
}
