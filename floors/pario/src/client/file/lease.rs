//! A file's lease on the client's side: acquired at the first access, or when a group opens a file read-only; kept until recalled.
//!
//! Never: used after the manager's connection was lost; returned while an access is under way or a record is undrained. Always: at least
//! one access runs under a lease before it is returned, so that two clients make progress.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use pario_core::{Fault, FileAttr, Generation};
use pario_net::message::{Lease, Phase, Reply, Request, Want};
use pario_sys::kill_point::{Point, reach};
use pario_sys::mutex::lock;

use super::context::FileContext;
use super::state::{FileData, OpenFile};

use crate::client::session::state::unexpected_reply;

/// Numbers and users of a lease.
#[derive(Default)]
struct LeaseState {
    held: Option<ClientLease>,
    /// Accesses under way.
    users: usize,
    /// Highest lease number recalled.
    recalled: u64,
    /// Highest lease number returned.
    returned: u64,
    acquiring: bool,
    returning: bool,
    /// The manager's incarnation that these numbers belong to: each incarnation counts from the start.
    epoch: u64,
    /// The generation of the last grant.
    generation: Option<Generation>,
    /// Threads that wait for a change; without any, a change costs no system call.
    waiting: usize,
    /// A worker thread will return the lease.
    return_queued: bool,
    /// The last handle is closed and the manager knows.
    is_closed: bool,
}

#[derive(Clone, Copy, Debug)]
struct ClientLease {
    number: u64,
    phase: Phase,
    epoch: u64,
    generation: Generation,
}

/// See the module.
pub(in crate::client) struct FileLease {
    context: Arc<FileContext>,
    data: Arc<FileData>,
    state: Mutex<LeaseState>,
    changed: Condvar,
    /// Notified before a lease is returned.
    observers: Mutex<Vec<Weak<dyn LeaseObserver>>>,
}

/// Whether the call may wait for other clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseWait {
    Wait,
    None,
}

/// An access under way; the lease stays until it is dropped.
pub(crate) struct LeasedAccess<'a> {
    of: &'a FileLease,
    pub(crate) phase: Phase,
    pub(crate) generation: Generation,
    pub(in crate::client) number: u64,
    /// The epoch of the manager's connection that the lease belongs to.
    pub(crate) epoch: u64,
    /// Whether the return of the lease waits for this access. An access of the lease observer during the return does not count.
    counted: bool,
}

/// A component that keeps data under a lease besides the records in the outbox, and must write it back before the lease is returned.
pub trait LeaseObserver: Send + Sync {
    /// The lease is about to be returned, and is still held until this returns.
    fn before_return(&self);

    /// The file's last name was removed. Data kept only for the next open occupies the servers' disks.
    fn unlinked(&self);
}

impl LeasedAccess<'_> {
    /// Fails once the manager that granted the lease is lost: other clients may be granted the file from then on.
    pub(in crate::client) fn check(&self) -> Result<(), Fault> {
        if self.epoch == self.of.context.session.epoch() {
            return Ok(());
        }
        let text = format!(
            "{}: the manager, server 0, was lost during a write; write the data again",
            self.of.context.describe()
        );
        Err(Fault::new(pario_core::Code::Unreachable, text))
    }
}

fn allows(phase: Phase, want: Want) -> bool {
    match (phase, want) {
        (Phase::Exclusive {} | Phase::Mixed {}, _) => true,
        (Phase::Write {}, Want::Write {} | Want::WriteInGroup {}) | (Phase::Read {}, Want::Read {}) => true,
        (Phase::Write {}, Want::Read {}) | (Phase::Read {}, Want::Write {} | Want::WriteInGroup {}) => false,
    }
}

impl FileLease {
    pub(super) fn new(context: &Arc<FileContext>, data: &Arc<FileData>) -> FileLease {
        FileLease {
            context: Arc::clone(context),
            data: Arc::clone(data),
            state: Mutex::default(),
            changed: Condvar::new(),
            observers: Mutex::default(),
        }
    }

    /// Begins an access with a lease that allows it. May wait for other clients to return theirs.
    pub(in crate::client) fn access(&self, want: Want) -> Result<LeasedAccess<'_>, Fault> {
        if let Some(unleased) = self.context.backing.unleased() {
            return Ok(self.access_unleased(unleased.generation, want));
        }
        let mut state = self.state();
        loop {
            if let Some(held) = self.usable_for(&state, want) {
                state.users += 1;
                return Ok(self.access_under(held));
            }
            if state.acquiring || state.returning || self.stale_in_use(&state) {
                state = self.wait_lease(state);
                continue;
            }
            if self.must_return(&state) {
                self.return_held(state);
                state = self.state();
                continue;
            }
            state.acquiring = true;
            drop(state);
            let granted = self.acquire(want, LeaseWait::Wait);
            // Prefetched data belongs to an older lease.
            self.data.read_ahead.discard();
            state = self.state();
            state.acquiring = false;
            self.notify_waiters(&state);
            let Some((lease, attr, epoch)) = granted? else { continue };
            // A grant that crossed with the return of the same lease is void.
            if lease.number <= state.returned || epoch != self.context.session.epoch() {
                continue;
            }
            let held = self.install(&mut state, lease, &attr, epoch);
            if allows(held.phase, want) {
                state.users += 1;
                return Ok(self.access_under(held));
            }
        }
    }

    /// Acquires a lease for the expected first access if no other client must return one for it. An error here is ignored: the access that
    /// needs the lease reports it.
    pub(in crate::client) fn acquire_early(&self, want: Want) {
        if !self.context.backing.has_leases() {
            return;
        }
        let mut state = self.state();
        if state.acquiring || state.returning || state.held.is_some() {
            return;
        }
        state.acquiring = true;
        drop(state);
        let granted = self.acquire(want, LeaseWait::None);
        self.data.read_ahead.discard();
        let mut state = self.state();
        state.acquiring = false;
        if let Ok(Some((lease, attr, epoch))) = granted
            && state.returned < lease.number
            && epoch == self.context.session.epoch()
        {
            self.install(&mut state, lease, &attr, epoch);
        }
        self.notify_waiters(&state);
        if self.must_return(&state) {
            // Recalled before the grant arrived.
            self.return_held(state);
        }
    }

    /// Begins an access if the required lease is held.
    pub(in crate::client) fn access_if_held(&self, want: Want) -> Option<LeasedAccess<'_>> {
        let mut state = self.state();
        let held = self.usable_for(&state, want)?;
        state.users += 1;
        Some(self.access_under(held))
    }

    fn access_under(&self, held: ClientLease) -> LeasedAccess<'_> {
        LeasedAccess {
            of: self,
            phase: held.phase,
            generation: held.generation,
            number: held.number,
            epoch: held.epoch,
            counted: true,
        }
    }

    /// For servers without leases: a write is complete when the servers have replied, and no read data is cached.
    fn access_unleased(&self, generation: Generation, want: Want) -> LeasedAccess<'_> {
        let phase = match want {
            Want::Write {} | Want::WriteInGroup {} => Phase::Write {},
            Want::Read {} => Phase::Mixed {},
        };
        let epoch = self.context.session.epoch();
        LeasedAccess { of: self, phase, generation, number: 0, epoch, counted: false }
    }

    /// An access under the held lease, recalled or not; `None` if the manager of `epoch` was lost. Only for a lease observer, which knows
    /// that the lease has been held since, and returns from `before_return` only when such accesses have ended.
    pub(in crate::client) fn access_held(&self, epoch: u64) -> Option<LeasedAccess<'_>> {
        let state = self.state();
        let held = self.usable(&state).filter(|held| held.epoch == epoch)?;
        drop(state);
        Some(LeasedAccess {
            of: self,
            phase: held.phase,
            generation: held.generation,
            number: held.number,
            epoch: held.epoch,
            counted: false,
        })
    }

    fn usable(&self, state: &LeaseState) -> Option<ClientLease> {
        state.held.filter(|held| held.epoch == self.context.session.epoch())
    }

    fn usable_for(&self, state: &LeaseState, want: Want) -> Option<ClientLease> {
        let held = self.usable(state).filter(|held| allows(held.phase, want))?;
        (state.recalled < held.number && !state.returning).then_some(held)
    }

    /// A lease of a lost manager, with accesses still under way.
    fn stale_in_use(&self, state: &LeaseState) -> bool {
        0 < state.users && state.held.is_some() && self.usable(state).is_none()
    }

    fn must_return(&self, state: &LeaseState) -> bool {
        state.users == 0 && self.usable(state).is_some_and(|held| held.number <= state.recalled)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn acquire(&self, want: Want, patience: LeaseWait) -> Result<Option<(Lease, FileAttr, u64)>, Fault> {
        self.context.session.check_process()?;
        // Before the request: a manager that is lost from here on makes the grant void.
        let epoch = self.context.session.epoch();
        self.context.session.listen()?;
        self.context.session.counters.leases.fetch_add(1, Ordering::Relaxed);
        let _time = self.context.session.timed(&self.context.session.counters.lease_ns);
        let together = want == (Want::Write {}) && self.context.is_in_group();
        let want = if together { Want::WriteInGroup {} } else { want };
        let (inode, party) = (self.context.inode, self.context.session.lease_group());
        let request = match patience {
            LeaseWait::Wait => Request::Acquire { inode, want, party },
            LeaseWait::None => Request::AcquireFree { inode, want, party },
        };
        let answer = self.context.session.call(pario_core::ServerIndex::MANAGER, &request);
        match answer.map_err(|fault| fault.at(self.context.describe()))?.reply {
            Reply::Granted { lease, attr } => {
                reach(Point::GrantReceived);
                Ok(Some((lease, attr, epoch)))
            }
            Reply::NotNow {} if patience == LeaseWait::None => Ok(None),
            other => Err(unexpected_reply(&other)),
        }
    }

    /// The end of this client's writes in that generation that the manager does not know; 0 if the file was truncated since.
    pub(in crate::client) fn unreported_end_in(&self, generation: Generation) -> u64 {
        let known = self.state().generation;
        if known.is_some_and(|known| known != generation) {
            return 0;
        }
        self.data.length.unreported_end()
    }

    fn install(&self, state: &mut LeaseState, lease: Lease, attr: &FileAttr, epoch: u64) -> ClientLease {
        let held =
            ClientLease { number: lease.number, phase: lease.phase, epoch, generation: attr.generation };
        let same = state.held.is_some_and(|old| old.epoch == epoch && old.generation == attr.generation);
        if !same {
            self.data.loans.drop_all();
        }
        if state.generation == Some(attr.generation) {
            // A file gets shorter only with a new generation, so the known length stays a lower bound. The granted length may be older
            // than that: the grant may have been sent before an earlier lease was returned with its new length, and arrive after it.
            self.data.length.grow(attr.size);
        } else {
            // Earlier writes do not determine the length of a file that was truncated since.
            if state.generation.is_some() {
                self.data.length.forget_writes();
            }
            // At the first lease there may be an end that an earlier manager did not receive.
            let own = self.data.length.unreported_end();
            self.data.length.set(attr.size.max(own));
        }
        state.generation = Some(attr.generation);
        state.held = Some(held);
        held
    }

    /// The manager of `epoch` recalls a lease. Called by the notice thread.
    pub(in crate::client) fn recalled(&self, file: &Arc<OpenFile>, number: u64, epoch: u64) {
        let mut state = self.state();
        // The manager may have been lost while the notice was under way, with higher numbers than its successor.
        if state.epoch != epoch {
            return;
        }
        state.recalled = state.recalled.max(number);
        if !self.must_return(&state) || state.returning {
            return;
        }
        let is_observed = !self.observers().is_empty();
        if self.data.unflushed.nothing_pending() && !is_observed {
            self.return_held(state);
            return;
        }
        if std::mem::replace(&mut state.return_queued, true) {
            return;
        }
        // Waiting until servers have drained the records must not delay recalls of other files.
        drop(state);
        let executor = &self.context.session.executor;
        let lane = if is_observed { &executor.observers } else { &executor.returns };
        let file = Arc::clone(file);
        if let Err(error) = lane.run(move || file.lease.return_recalled()) {
            self.state().return_queued = false;
            tracing::warn!(%error, "no thread could be started to return a lease; the next access returns it");
        }
    }

    /// Returns a recalled lease, unless an access under way will, or another thread did.
    fn return_recalled(&self) {
        let mut state = self.state();
        state.return_queued = false;
        if self.must_return(&state) && !state.returning {
            self.return_held(state);
        }
    }

    /// The file's last name was removed. Called by the notice thread.
    pub(in crate::client) fn unlinked(&self) {
        for observer in self.observers() {
            // Closing a file is a request to the manager, and recalls must not wait for it.
            if let Err(error) = self.context.session.executor.observers.run(move || observer.unlinked()) {
                tracing::warn!(%error, "no thread could be started to close a removed file; it stays until its cache evicts it");
            }
        }
    }

    /// Returns the lease after all data written under it is in the stores. A newer lease that was granted and recalled during the return
    /// is returned too: the thread that received that recall left it to this one.
    fn return_held<'a>(&'a self, mut state: MutexGuard<'a, LeaseState>) {
        while let Some(held) = state.held {
            state.returning = true;
            drop(state);
            self.context.session.counters.recalls.fetch_add(1, Ordering::Relaxed);
            self.return_lease(held.number);
            state = self.state();
            // Numbers of another incarnation cannot be compared.
            if held.epoch == state.epoch {
                state.returned = state.returned.max(held.number);
            }
            if state.held.is_some_and(|current| current.number == held.number) {
                state.held = None;
            }
            state.returning = false;
            self.notify_waiters(&state);
            if !self.must_return(&state) {
                return;
            }
        }
    }

    fn return_lease(&self, number: u64) {
        for observer in self.observers() {
            observer.before_return();
        }
        self.data.read_ahead.discard();
        if let Err(fault) = self.data.unflushed.drain() {
            self.data.unflushed.abandon_records();
            self.data.faults.keep(fault);
        }
        self.data.loans.drop_all();
        reach(Point::RecallDrained);
        let _report = self.data.length.begin_report();
        let end = self.data.length.end_to_report();
        let request = Request::Return { inode: self.context.inode, number, end };
        match self.context.session.call(pario_core::ServerIndex::MANAGER, &request) {
            Ok(_) => {
                reach(Point::RecallReturned);
                self.data.length.end_reported(end);
            }
            // The manager is lost, and the lease with it; the next access notices.
            Err(fault) => tracing::debug!(%fault, "a lease could not be returned"),
        }
    }

    /// Waits until no access is under way, then returns the lease, recalled or not.
    pub(in crate::client) fn release(&self) {
        let mut state = self.state();
        while 0 < state.users || state.acquiring || state.returning {
            state = self.wait_lease(state);
        }
        if self.usable(&state).is_some() {
            self.return_held(state);
        } else {
            state.held = None;
            drop(state);
            self.data.read_ahead.discard();
            if let Err(fault) = self.data.unflushed.drain() {
                self.data.faults.keep(fault);
            }
            self.data.loans.drop_all();
        }
    }

    /// Sets whether the close of the last handle has ended.
    pub(in crate::client) fn set_closed(&self, left: bool) {
        let mut state = self.state();
        state.is_closed = left;
        self.notify_waiters(&state);
    }

    /// Waits for the end of the last handle's close.
    pub(in crate::client) fn wait_closed(&self) {
        let mut state = self.state();
        while !state.is_closed {
            state = self.wait_lease(state);
        }
    }

    /// The phase that is certain. `None` while a lease is being returned: the manager may have granted the file to other clients before
    /// the returning thread receives the reply.
    pub(in crate::client) fn phase(&self) -> Option<Phase> {
        let state = self.state();
        self.usable(&state).filter(|_| !state.returning).map(|held| held.phase)
    }

    /// Whether there is a lease, also one being returned.
    pub(in crate::client) fn is_leased(&self) -> bool {
        let state = self.state();
        self.usable(&state).is_some()
    }

    /// Adds an observer that is notified before a lease is returned, as long as it exists.
    pub(in crate::client) fn add_observer(&self, observer: Weak<dyn LeaseObserver>) {
        let mut observers = lock(&self.observers);
        observers.retain(|known| 0 < known.strong_count());
        observers.push(observer);
    }

    /// The observers, in the order in which they were added.
    fn observers(&self) -> Vec<Arc<dyn LeaseObserver>> {
        lock(&self.observers).iter().filter_map(Weak::upgrade).collect()
    }

    fn state(&self) -> MutexGuard<'_, LeaseState> {
        let mut state = lock(&self.state);
        let epoch = self.context.session.epoch();
        if state.epoch != epoch {
            (state.epoch, state.recalled, state.returned) = (epoch, 0, 0);
        }
        state
    }

    fn end_access(&self) {
        let mut state = self.state();
        state.users -= 1;
        if state.users != 0 {
            return;
        }
        if self.must_return(&state) && !state.returning {
            self.return_held(state);
            return;
        }
        if self.usable(&state).is_none() {
            state.held = None;
        }
        self.notify_waiters(&state);
    }

    fn wait_lease<'a>(&self, mut state: MutexGuard<'a, LeaseState>) -> MutexGuard<'a, LeaseState> {
        state.waiting += 1;
        let mut state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    fn notify_waiters(&self, state: &LeaseState) {
        if 0 < state.waiting {
            self.changed.notify_all();
        }
    }
}

impl Drop for LeasedAccess<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.of.end_access();
        }
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
