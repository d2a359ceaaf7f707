//! The ledger's threads: one syncs the log, one applies memtables to redb; a third writes changes to the second copy, if there is one
//! (`copy`).
//!
//! Two or three, because applying a large memtable takes longer than a caller of `sync` should wait. Each sleeps while it has no work.
//! Never: holds the state's lock during disk work, except to reopen redb after a failure.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select};
use pario_core::limits::{CLIENTS_MAX, IN_FLIGHT_MAX};
use pario_core::{Code, Fault};
use pario_sys::kill_point::{Point, reach};

use super::base::Base;
use super::copy::{Copier, CopySpec, CopyWaker};
use super::ledger::{LedgerShared, LedgerState, SyncDone};
use super::log::{LedgerLog, OldLog};
use super::memtable::Memtable;

/// Waiting callers of `sync`.
const SYNCS_WAITING_MAX: usize = CLIENTS_MAX * 4;
const _: () = assert!(IN_FLIGHT_MAX <= SYNCS_WAITING_MAX, "one client alone must not fill the queue");
/// Waiting kicks of a kind: each makes the applier check everything, so a second one adds nothing.
const KICKS_WAITING_MAX: usize = 1;

/// Wake-up of the applier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// Rows are waiting: apply them within [`super::ledger::LedgerPace::apply_after`].
    Soon,
    /// Apply now.
    Now,
    /// The second copy has progressed: remove logs that it contains, or give it a view of the rows.
    Look,
}

/// The applier's ends of its kicks: one queue per kind, so that a queue full of deferrable kicks does not block an urgent one.
struct Kicked {
    soon: Receiver<()>,
    now: Receiver<()>,
    look: Receiver<()>,
}

/// The other ends.
#[derive(Clone, Debug)]
struct Kicker {
    soon: Sender<()>,
    now: Sender<()>,
    look: Sender<()>,
}

impl Kicker {
    fn new() -> (Kicker, Kicked) {
        let ((soon, soon_kicks), (now, now_kicks)) = (bounded(KICKS_WAITING_MAX), bounded(KICKS_WAITING_MAX));
        let (look, look_kicks) = bounded(KICKS_WAITING_MAX);
        (Kicker { soon, now, look }, Kicked { soon: soon_kicks, now: now_kicks, look: look_kicks })
    }

    fn kick(&self, kick: Kick) {
        let queue = match kick {
            Kick::Soon => &self.soon,
            Kick::Now => &self.now,
            Kick::Look => &self.look,
        };
        // A full queue already has one of this kind.
        let _ = queue.try_send(());
    }
}

enum SyncerMessage {
    /// Records are waiting: sync them within [`super::ledger::LedgerPace::sync_after`].
    Dirty,
    /// Sync now and report the result.
    Wait(SyncDone),
}

/// Handles of both threads. Dropping it ends them without applying the rest, as a crash would.
#[derive(Debug)]
pub struct LedgerThreads {
    syncer: Option<(Sender<SyncerMessage>, JoinHandle<()>)>,
    applier: Option<(Kicker, JoinHandle<Applier>)>,
    copier: Option<Copier>,
}

impl LedgerThreads {
    /// Starts them. `kept` are logs that are removed when the second copy has their changes.
    pub fn start(
        shared: &Arc<LedgerShared>,
        base: Base,
        kept: Vec<OldLog>,
        copy: Option<CopySpec>,
    ) -> Result<LedgerThreads, Fault> {
        let (sync_sender, sync_messages) = bounded(SYNCS_WAITING_MAX);
        let (kicker, kicks) = Kicker::new();
        let syncer = Syncer { shared: Arc::clone(shared), applier: kicker.clone() };
        let look = kicker.clone();
        let copier =
            copy.map(|copy| Copier::start(shared, copy, move || look.kick(Kick::Look))).transpose()?;
        let waker = copier.as_ref().map(Copier::waker);
        let applier = Applier { shared: Arc::clone(shared), base, leftover: kept, copier: waker };
        let fault = |error| Fault::from_io(&error, "starting a thread for names");
        let syncer = thread("names-sync").spawn(move || syncer.run(&sync_messages)).map_err(fault)?;
        let applier = thread("names-apply").spawn(move || applier.run(&kicks)).map_err(fault)?;
        Ok(LedgerThreads { syncer: Some((sync_sender, syncer)), applier: Some((kicker, applier)), copier })
    }

    /// Wakes the copier: changes wait.
    pub fn wake_copier(&self) {
        if let Some(copier) = &self.copier {
            copier.waker().wake();
        }
    }

    /// Wakes the syncer: a record waits to be synced.
    pub fn wake_syncer(&self) {
        if let Some((sender, _)) = &self.syncer {
            // A full queue means that a sync will happen in any case.
            let _ = sender.try_send(SyncerMessage::Dirty);
        }
    }

    /// Wakes the applier: rows wait to be applied.
    pub fn wake_applier(&self, kick: Kick) {
        if let Some((kicker, _)) = &self.applier {
            kicker.kick(kick);
        }
    }

    /// Queues a caller of `sync`.
    pub fn sync(&self, done: SyncDone) {
        let Some((sender, _)) = &self.syncer else { return done(Err(Code::ShuttingDown.into())) };
        match sender.try_send(SyncerMessage::Wait(done)) {
            Ok(()) => {}
            Err(TrySendError::Full(SyncerMessage::Wait(done))) => {
                let text = format!("more than {SYNCS_WAITING_MAX} syncs of names at once");
                done(Err(Fault::new(Code::TooMany, text)));
            }
            Err(TrySendError::Disconnected(SyncerMessage::Wait(done))) => {
                done(Err(Fault::new(Code::Io, "names: the syncing thread has ended; restart the server")));
            }
            Err(
                TrySendError::Full(SyncerMessage::Dirty) | TrySendError::Disconnected(SyncerMessage::Dirty),
            ) => {}
        }
    }

    /// Ends the threads, then applies the remaining rows and removes the log, if the second copy has it.
    pub fn finish(mut self, shared: &LedgerShared) -> Result<(), Fault> {
        if let Some(copier) = &self.copier {
            copier.flush();
        }
        let applier = self.stop();
        let Some(mut applier) = applier else {
            return Err(Fault::new(Code::Io, "names: the applying thread has ended"));
        };
        while applier.apply()? {}
        let log = {
            let state = shared.lock();
            state.log.retired(state.appended)
        };
        applier.leftover.push(log);
        applier.remove_leftover();
        Ok(())
    }

    fn stop(&mut self) -> Option<Applier> {
        if let Some((sender, handle)) = self.syncer.take() {
            drop(sender);
            // A panic was already reported by the thread, and `ended` prevents waiting for it.
            let _ = handle.join();
        }
        let (kicker, handle) = self.applier.take()?;
        drop(kicker);
        // Its kicks keep the applier alive.
        if let Some(copier) = self.copier.take() {
            copier.stop();
        }
        handle.join().ok()
    }
}

impl Drop for LedgerThreads {
    fn drop(&mut self) {
        self.stop();
    }
}

fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned())
}

/// Wakes waiting callers when a thread has ended.
struct EndGuard(Arc<LedgerShared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.attempt.notify_all();
    }
}

struct Syncer {
    shared: Arc<LedgerShared>,
    applier: Kicker,
}

impl Syncer {
    fn run(self, messages: &Receiver<SyncerMessage>) {
        let _guard = EndGuard(Arc::clone(&self.shared));
        let mut timer = never();
        let mut armed = false;
        loop {
            let mut waiting = Vec::new();
            select! {
                recv(messages) -> message => match message {
                    Ok(SyncerMessage::Wait(done)) => waiting.push(done),
                    Ok(SyncerMessage::Dirty) => {
                        if !armed {
                            timer = crossbeam_channel::after(self.shared.pace.sync_after);
                            armed = true;
                        }
                        continue;
                    }
                    Err(_) => return,
                },
                recv(timer) -> _ => {}
            }
            // All callers waiting by now share this sync.
            waiting.extend(messages.try_iter().filter_map(|message| match message {
                SyncerMessage::Wait(done) => Some(done),
                SyncerMessage::Dirty => None,
            }));
            self.sync_for(waiting);
            let dirty = self.is_dirty();
            timer = if dirty { crossbeam_channel::after(self.shared.pace.sync_after) } else { never() };
            armed = dirty;
        }
    }

    fn sync_for(&self, waiting: Vec<SyncDone>) {
        let kept = if waiting.is_empty() { None } else { self.shared.lock().sync_fault.take() };
        let result = kept.map_or_else(|| self.sync(), Err);
        if let Err(fault) = &result {
            tracing::warn!(%fault, "names: sync failed");
            if waiting.is_empty() {
                self.shared.lock().sync_fault = Some(fault.clone());
            }
        }
        for done in waiting {
            done(result.clone());
        }
    }

    fn sync(&self) -> Result<(), Fault> {
        let (logs, target) = unsynced(&self.shared.lock())?;
        reach(Point::LogUnsynced);
        let synced = logs.iter().try_for_each(|log| {
            let doing = format!("syncing {}", log.path.display());
            log.file.sync_data().map_err(|error| Fault::from_io(&error, doing))
        });
        reach(Point::LogSynced);
        let mut state = self.shared.lock();
        state.stats.syncs += logs.len() as u64;
        match synced {
            Ok(()) => state.durable = state.durable.max(target),
            Err(fault) => {
                // The system may have dropped the bytes that it could not write, so another sync would prove nothing.
                state.suspect = target;
                state.append_fault = Some(fault.clone());
                self.applier.kick(Kick::Now);
                return Err(fault);
            }
        }
        Ok(())
    }

    fn is_dirty(&self) -> bool {
        let state = self.shared.lock();
        state.durable < state.appended
    }
}

/// The log files with records not on stable storage, and the last of these records.
fn unsynced(state: &LedgerState) -> Result<(Vec<OldLog>, u64), Fault> {
    if state.applied < state.suspect {
        return Err(Fault::new(
            Code::Io,
            "names: the log could not be synced and is being replaced; try again",
        ));
    }
    let current = state.log.retired(state.appended);
    let logs = state.old_logs.iter().chain([&current]);
    Ok((logs.filter(|log| state.durable < log.last_sequence).cloned().collect(), state.appended))
}

/// Applies memtables to redb.
#[derive(Debug)]
struct Applier {
    shared: Arc<LedgerShared>,
    base: Base,
    /// Log files that redb has applied: not in the second copy yet, or not removed yet.
    leftover: Vec<OldLog>,
    copier: Option<CopyWaker>,
}

impl Applier {
    fn run(mut self, kicks: &Kicked) -> Applier {
        let _guard = EndGuard(Arc::clone(&self.shared));
        self.shared.reserve.hold();
        let mut timer = never();
        let mut armed = false;
        loop {
            select! {
                recv(kicks.now) -> kick => if kick.is_err() {
                    return self;
                },
                recv(kicks.soon) -> kick => {
                    if kick.is_err() {
                        return self;
                    }
                    if !armed {
                        timer = crossbeam_channel::after(self.shared.pace.apply_after);
                        armed = true;
                    }
                    continue;
                },
                recv(kicks.look) -> kick => {
                    if kick.is_err() {
                        return self;
                    }
                    if !self.must_apply_for_copy() {
                        self.offer_view();
                        self.remove_leftover();
                        continue;
                    }
                },
                recv(timer) -> _ => {}
            }
            let waits = self.attempt();
            self.shared.reserve.hold();
            timer = if waits { crossbeam_channel::after(self.shared.pace.apply_after) } else { never() };
            armed = waits;
        }
    }

    /// Tries to apply waiting rows; keeps the fault for callers. Returns whether there is more to do.
    fn attempt(&mut self) -> bool {
        let result = self.apply();
        self.offer_view();
        self.remove_leftover();
        let mut state = self.shared.lock();
        if let Err(fault) = result {
            tracing::warn!(%fault, "names: kept in the log, will be tried again");
            state.append_fault = Some(fault.clone());
            state.sync_fault = Some(fault);
        }
        self.shared.attempt.notify_all();
        state.frozen.is_some() || !state.active.is_empty()
    }

    /// Applies one memtable; returns whether there was one.
    fn apply(&mut self) -> Result<bool, Fault> {
        let Some(frozen) = self.freeze()? else { return Ok(false) };
        let last = frozen.last_sequence();
        let applied = self.base.apply(&frozen, last);
        reach(Point::NamesApplied);
        let view = if applied.is_ok() { self.base.view() } else { Err(Code::Io.into()) };
        let mut state = self.shared.lock();
        if let (Ok(()), Ok(view)) = (&applied, view) {
            state.view = Some(view);
            state.frozen = None;
            state.applied = last;
            state.durable = state.durable.max(last);
            state.stats.applied += 1;
            if state.suspect <= last {
                // Earlier failures are repaired, and need not be reported any more.
                (state.append_fault, state.sync_fault) = (None, None);
            }
            let retired;
            (retired, state.old_logs) = state.old_logs.drain(..).partition(|log| log.last_sequence <= last);
            drop(state);
            self.leftover.extend(retired);
            self.remove_leftover();
            return Ok(true);
        }
        if self.base.is_lost() {
            // Reads must not use a view of a database that refuses all calls.
            state.view = None;
            state.view = self.base.view().ok();
        }
        drop(state);
        applied.and_then(|()| Err(Fault::new(Code::Io, "names: redb cannot be read after applying")))
    }

    /// The memtable to apply: that of a failed attempt, or the active one, which then continues in a new log.
    fn freeze(&self) -> Result<Option<Arc<Memtable>>, Fault> {
        let next_number = {
            let state = self.shared.lock();
            if let Some(frozen) = &state.frozen {
                return Ok(Some(Arc::clone(frozen)));
            }
            if state.active.is_empty() {
                return Ok(None);
            }
            state.log.number() + 1
        };
        let place = &self.shared.location;
        let log = LedgerLog::create(&*place.disk, &place.dir, next_number)?;
        reach(Point::NamesFrozen);
        let mut state = self.shared.lock();
        let old = std::mem::replace(&mut state.log, log).retired(state.appended);
        state.old_logs.push(old);
        let frozen = Arc::new(std::mem::take(&mut state.active));
        state.frozen = Some(Arc::clone(&frozen));
        Ok(Some(frozen))
    }

    /// Whether the copier waits for rows that are not in redb yet.
    fn must_apply_for_copy(&self) -> bool {
        let state = self.shared.lock();
        let wanted = state.feed.as_ref().and_then(|feed| feed.wants_view);
        wanted.is_some_and(|wanted| state.applied < wanted)
    }

    /// Gives a view of the rows to a copier that waits for it.
    fn offer_view(&mut self) {
        let Some(copier) = &self.copier else { return };
        let (mut state, base) = (self.shared.lock(), &mut self.base);
        let applied = state.applied;
        let offered = state.feed.as_mut().is_some_and(|feed| feed.offer(applied, || base.view().ok()));
        drop(state);
        if offered {
            copier.wake();
        }
    }

    fn remove_leftover(&mut self) {
        let disk = &self.shared.location.disk;
        let releases = |log: &OldLog| {
            self.shared.lock().feed.as_ref().is_none_or(|feed| feed.releases(log.last_sequence))
        };
        self.leftover.retain(|log| !releases(log) || match disk.remove(&log.path) {
            Ok(()) => false,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => {
                tracing::warn!(%error, path = %log.path.display(), "names: a log that is not needed stays for now");
                true
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A former bug: there was one queue for both kinds; full of deferrable kicks, it lost an urgent one until the next timer.
    #[test]
    fn a_kick_that_cannot_wait_is_not_lost_behind_those_that_can() {
        let (kicker, kicked) = Kicker::new();
        for _ in 0..10 {
            kicker.kick(Kick::Soon);
        }
        kicker.kick(Kick::Now);
        kicker.kick(Kick::Now);
        assert_eq!((kicked.soon.try_iter().count(), kicked.now.try_iter().count()), (1, 1));
    }
}
