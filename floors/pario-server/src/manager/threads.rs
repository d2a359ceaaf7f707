//! The ledger's two threads: one syncs the log, one applies memtables to redb.
//!
//! Two, because applying a large memtable takes longer than a caller of `sync` should wait. Each sleeps while there is
//! nothing to do. Never: holds the state's lock during disk work, except to open redb again after a failure.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, never, select};
use pario_core::limits::{CLIENTS_MAX, IN_FLIGHT_MAX};
use pario_core::{Code, Fault};
use pario_sys::kill_point::{Point, reach};

use super::base::Base;
use super::ledger::{Done, Shared, State};
use super::log::{Log, OldLog};
use super::memtable::Memtable;

/// Callers of `sync` that may wait at a time.
const SYNCS_WAITING_MAX: usize = CLIENTS_MAX * 4;
const _: () = assert!(IN_FLIGHT_MAX <= SYNCS_WAITING_MAX, "one client alone must not fill the queue");
/// Kicks of a kind that may wait: each makes the applier look at everything, so a second one adds nothing.
const KICKS_WAITING_MAX: usize = 1;

/// What makes the applier look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// Rows are waiting: apply them within [`super::ledger::Pace::apply_after`].
    Soon,
    /// Apply now.
    Now,
}

/// The applier's ends of its kicks: a queue for each kind, so that one that is full of those that can wait keeps none out that cannot.
struct Kicked {
    soon: Receiver<()>,
    now: Receiver<()>,
}

/// The other ends.
#[derive(Clone, Debug)]
struct Kicker {
    soon: Sender<()>,
    now: Sender<()>,
}

impl Kicker {
    fn new() -> (Kicker, Kicked) {
        let ((soon, soon_kicks), (now, now_kicks)) = (bounded(KICKS_WAITING_MAX), bounded(KICKS_WAITING_MAX));
        (Kicker { soon, now }, Kicked { soon: soon_kicks, now: now_kicks })
    }

    fn kick(&self, kick: Kick) {
        let queue = match kick {
            Kick::Soon => &self.soon,
            Kick::Now => &self.now,
        };
        // A full queue has one of this kind.
        let _ = queue.try_send(());
    }
}

enum SyncerMessage {
    /// Records are waiting: sync them within [`super::ledger::Pace::sync_after`].
    Dirty,
    /// Sync now and say so.
    Wait(Done),
}

/// Handles of both threads. Dropping it ends them without applying what is left, as a crash would.
#[derive(Debug)]
pub struct Threads {
    syncer: Option<(Sender<SyncerMessage>, JoinHandle<()>)>,
    applier: Option<(Kicker, JoinHandle<Applier>)>,
}

impl Threads {
    /// Starts both.
    pub fn start(shared: &Arc<Shared>, base: Base) -> Result<Threads, Fault> {
        let (sync_sender, sync_messages) = bounded(SYNCS_WAITING_MAX);
        let (kicker, kicks) = Kicker::new();
        let syncer = Syncer { shared: Arc::clone(shared), applier: kicker.clone() };
        let applier = Applier { shared: Arc::clone(shared), base, leftover: Vec::new() };
        let fault = |error| Fault::from_io(&error, "starting a thread for names");
        let syncer = thread("names-sync").spawn(move || syncer.run(&sync_messages)).map_err(fault)?;
        let applier = thread("names-apply").spawn(move || applier.run(&kicks)).map_err(fault)?;
        Ok(Threads { syncer: Some((sync_sender, syncer)), applier: Some((kicker, applier)) })
    }

    /// Says that a record is waiting to be synced.
    pub fn wake_syncer(&self) {
        if let Some((sender, _)) = &self.syncer {
            // A full queue means that a sync is about to happen anyway.
            let _ = sender.try_send(SyncerMessage::Dirty);
        }
    }

    /// Says that rows are waiting to be applied.
    pub fn wake_applier(&self, kick: Kick) {
        if let Some((kicker, _)) = &self.applier {
            kicker.kick(kick);
        }
    }

    /// Queues a caller of `sync`.
    pub fn sync(&self, done: Done) {
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

    /// Ends both threads, then applies what is left and removes the log.
    pub fn finish(mut self, shared: &Shared) -> Result<(), Fault> {
        let applier = self.stop();
        let Some(mut applier) = applier else {
            return Err(Fault::new(Code::Io, "names: the applying thread has ended"));
        };
        while applier.apply()? {}
        let log = shared.lock().log.retired(0);
        applier.leftover.push(log);
        applier.remove_leftover();
        Ok(())
    }

    fn stop(&mut self) -> Option<Applier> {
        if let Some((sender, handle)) = self.syncer.take() {
            drop(sender);
            // A thread that panicked has said so itself, and `ended` keeps it from being waited for.
            let _ = handle.join();
        }
        let (kicker, handle) = self.applier.take()?;
        drop(kicker);
        handle.join().ok()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.stop();
    }
}

fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned())
}

/// Tells those who would wait that nobody will answer any more.
struct EndGuard(Arc<Shared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.attempt.notify_all();
    }
}

struct Syncer {
    shared: Arc<Shared>,
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
            // Everybody who waits by now shares this sync.
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

    fn sync_for(&self, waiting: Vec<Done>) {
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

/// The log files that have records not on stable storage, and the last of these.
fn unsynced(state: &State) -> Result<(Vec<OldLog>, u64), Fault> {
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

/// Carries memtables into redb.
#[derive(Debug)]
struct Applier {
    shared: Arc<Shared>,
    base: Base,
    /// Log files that are not needed and could not be removed yet.
    leftover: Vec<OldLog>,
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
                recv(timer) -> _ => {}
            }
            let waits = self.attempt();
            self.shared.reserve.hold();
            timer = if waits { crossbeam_channel::after(self.shared.pace.apply_after) } else { never() };
            armed = waits;
        }
    }

    /// Tries to apply what waits; keeps the fault for others to see. Returns whether there is more to do.
    fn attempt(&mut self) -> bool {
        let result = self.apply();
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
                // What went wrong before is made good, and nobody needs to hear of it any more.
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
            // Reads must not go on with a view of a database that refuses everything.
            state.view = None;
            state.view = self.base.view().ok();
        }
        drop(state);
        applied.and_then(|()| Err(Fault::new(Code::Io, "names: redb cannot be read after applying")))
    }

    /// The memtable to apply: the one of an attempt that failed, or the active one, which then goes on in a new log.
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
        let place = &self.shared.place;
        let log = Log::create(&*place.disk, &place.dir, next_number)?;
        reach(Point::NamesFrozen);
        let mut state = self.shared.lock();
        let old = std::mem::replace(&mut state.log, log).retired(state.appended);
        state.old_logs.push(old);
        let frozen = Arc::new(std::mem::take(&mut state.active));
        state.frozen = Some(Arc::clone(&frozen));
        Ok(Some(frozen))
    }

    fn remove_leftover(&mut self) {
        let disk = &self.shared.place.disk;
        self.leftover.retain(|log| match disk.remove(&log.path) {
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

    /// The queue was one for both kinds: full of those that can wait, it lost the one that somebody waited for, until the next timer.
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
