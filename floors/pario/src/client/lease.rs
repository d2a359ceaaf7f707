//! A file's lease on the client's side: asked for when first needed, or when a group opens a file only to read it; kept until recalled.
//!
//! Never: used after the manager's connection was lost; given back while an access is under way or a record is untaken.
//! Always: at least one access is made under a lease before it is given back, so that two clients make progress.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError, Weak};

use pario_core::{Fault, FileAttr, Generation};
use pario_net::message::{Lease, Phase, Reply, Request, Want};
use pario_sys::kill_point::{Point, reach};

use super::mount::odd;
use super::open_file::OpenFile;

/// See the module.
#[derive(Default)]
pub(crate) struct LeaseState {
    held: Option<Held>,
    /// Accesses under way.
    users: usize,
    /// Highest number that was recalled.
    recalled: u64,
    /// Highest number that was given back.
    returned: u64,
    acquiring: bool,
    returning: bool,
    /// The manager's life that these numbers belong to: another life counts anew.
    epoch: u64,
    /// The generation that was last granted.
    generation: Option<Generation>,
    /// Threads that wait for a change; without any, a change costs no system call.
    waiting: usize,
    /// The last handle is closed and the manager knows.
    left: bool,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    number: u64,
    phase: Phase,
    epoch: u64,
    generation: Generation,
}

/// Whether others may be waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Patience {
    Wait,
    None,
}

/// An access under way; the lease stays until it is dropped.
pub(crate) struct Access<'a> {
    file: &'a Arc<OpenFile>,
    pub(crate) phase: Phase,
    pub(crate) generation: Generation,
    pub(super) number: u64,
    /// The life of the manager's connection that its lease belongs to.
    pub(crate) epoch: u64,
    /// Whether the lease waits for it. One that its guardian makes while the lease is on its way back does not count.
    counted: bool,
}

/// Somebody who keeps more under a lease than records in the outbox, and must put it down before the lease goes back.
pub(crate) trait Guardian: Send + Sync {
    /// The lease is about to be given back. It is still held: [`OpenFile::access_held`] goes on working until this returns.
    fn give_up(&self);

    /// The file's last name is gone. What is kept of it only for the next open takes room on the servers' disks.
    fn unlinked(&self);
}

impl Access<'_> {
    /// Fails once the manager that granted the lease is lost: others may be given the file from then on.
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.epoch == self.file.mount.epoch() {
            return Ok(());
        }
        let text =
            format!("{}: the manager, server 0, was lost in the middle of a write", self.file.describe());
        Err(Fault::new(pario_core::Code::Unreachable, text))
    }
}

fn allows(phase: Phase, want: Want) -> bool {
    match (phase, want) {
        (Phase::Exclusive {} | Phase::Mixed {}, _) => true,
        (Phase::Write {}, Want::Write {} | Want::WriteTogether {}) | (Phase::Read {}, Want::Read {}) => true,
        (Phase::Write {}, Want::Read {}) | (Phase::Read {}, Want::Write {} | Want::WriteTogether {}) => false,
    }
}

impl OpenFile {
    /// Begins an access, with a lease that allows it. May wait for other clients to give theirs back.
    pub(super) fn access(self: &Arc<Self>, want: Want) -> Result<Access<'_>, Fault> {
        if let Some(generation) = self.homeless {
            return Ok(self.access_freely(generation, want));
        }
        let mut state = self.lease_state();
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
                self.give_back(state);
                state = self.lease_state();
                continue;
            }
            state.acquiring = true;
            drop(state);
            let granted = self.acquire(want, Patience::Wait);
            // What was asked for ahead belongs to an older lease.
            self.discard_ahead();
            state = self.lease_state();
            state.acquiring = false;
            self.tell(&state);
            let Some((lease, attr, epoch)) = granted? else { continue };
            // One that crossed with our giving it back is void.
            if lease.number <= state.returned || epoch != self.mount.epoch() {
                continue;
            }
            let held = self.install(&mut state, lease, &attr, epoch);
            if allows(held.phase, want) {
                state.users += 1;
                return Ok(self.access_under(held));
            }
        }
    }

    /// Gets a lease for the access that is likely to come first, if nobody must give one back for it, so that it need not be asked for then.
    /// What fails here fails, and is told, where the lease is needed.
    pub(super) fn get_ready(self: &Arc<Self>, want: Want) {
        if self.homeless.is_some() {
            return;
        }
        let mut state = self.lease_state();
        if state.acquiring || state.returning || state.held.is_some() {
            return;
        }
        state.acquiring = true;
        drop(state);
        let granted = self.acquire(want, Patience::None);
        self.discard_ahead();
        let mut state = self.lease_state();
        state.acquiring = false;
        if let Ok(Some((lease, attr, epoch))) = granted
            && state.returned < lease.number
            && epoch == self.mount.epoch()
        {
            self.install(&mut state, lease, &attr, epoch);
        }
        self.tell(&state);
        if self.must_return(&state) {
            // Recalled before it was here.
            self.give_back(state);
        }
    }

    /// Begins an access if the lease for it is here.
    pub(super) fn access_if_held(self: &Arc<Self>, want: Want) -> Option<Access<'_>> {
        let mut state = self.lease_state();
        let held = self.usable_for(&state, want)?;
        state.users += 1;
        Some(self.access_under(held))
    }

    fn access_under(self: &Arc<Self>, held: Held) -> Access<'_> {
        Access {
            file: self,
            phase: held.phase,
            generation: held.generation,
            number: held.number,
            epoch: held.epoch,
            counted: true,
        }
    }

    /// Where nobody gives leases: what is written counts when the servers say so, and nothing that was read is kept.
    fn access_freely(self: &Arc<Self>, generation: Generation, want: Want) -> Access<'_> {
        let phase = match want {
            Want::Write {} | Want::WriteTogether {} => Phase::Write {},
            Want::Read {} => Phase::Mixed {},
        };
        let epoch = self.mount.epoch();
        Access { file: self, phase, generation, number: 0, epoch, counted: false }
    }

    /// An access under the lease that is held, recalled or not; `None` if its manager is not that of `epoch` any more. Only for a
    /// guardian, which knows that the lease has been held since, and lets it go only when such accesses have ended.
    pub(super) fn access_held(self: &Arc<Self>, epoch: u64) -> Option<Access<'_>> {
        let state = self.lease_state();
        let held = self.usable(&state).filter(|held| held.epoch == epoch)?;
        drop(state);
        Some(Access {
            file: self,
            phase: held.phase,
            generation: held.generation,
            number: held.number,
            epoch: held.epoch,
            counted: false,
        })
    }

    fn usable(&self, state: &LeaseState) -> Option<Held> {
        state.held.filter(|held| held.epoch == self.mount.epoch())
    }

    fn usable_for(&self, state: &LeaseState, want: Want) -> Option<Held> {
        let held = self.usable(state).filter(|held| allows(held.phase, want))?;
        (state.recalled < held.number && !state.returning).then_some(held)
    }

    /// A lease of a manager that is gone, with accesses still under way.
    fn stale_in_use(&self, state: &LeaseState) -> bool {
        0 < state.users && state.held.is_some() && self.usable(state).is_none()
    }

    fn must_return(&self, state: &LeaseState) -> bool {
        state.users == 0 && self.usable(state).is_some_and(|held| held.number <= state.recalled)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "every other answer is as wrong")]
    fn acquire(
        self: &Arc<Self>,
        want: Want,
        patience: Patience,
    ) -> Result<Option<(Lease, FileAttr, u64)>, Fault> {
        self.mount.check_process()?;
        // First: a manager that is lost from here on makes the grant void.
        let epoch = self.mount.epoch();
        self.mount.listen()?;
        self.mount.counters.leases.fetch_add(1, Ordering::Relaxed);
        let _time = self.mount.timed(&self.mount.counters.lease_ns);
        let together = want == (Want::Write {}) && self.together.load(Ordering::Relaxed);
        let want = if together { Want::WriteTogether {} } else { want };
        let (inode, party) = (self.inode, self.mount.party());
        let request = match patience {
            Patience::Wait => Request::Acquire { inode, want, party },
            Patience::None => Request::AcquireFree { inode, want, party },
        };
        let answer = self.mount.call(pario_core::ServerIndex::MANAGER, &request);
        match answer.map_err(|fault| fault.at(self.describe()))?.reply {
            Reply::Granted { lease, attr } => {
                reach(Point::GrantReceived);
                Ok(Some((lease, attr, epoch)))
            }
            Reply::NotNow {} if patience == Patience::None => Ok(None),
            other => Err(odd(&other)),
        }
    }

    fn install(&self, state: &mut LeaseState, lease: Lease, attr: &FileAttr, epoch: u64) -> Held {
        let held = Held { number: lease.number, phase: lease.phase, epoch, generation: attr.generation };
        let same = state.held.is_some_and(|old| old.epoch == epoch && old.generation == attr.generation);
        if !same {
            self.drop_loans();
        }
        if state.generation == Some(attr.generation) {
            // A file gets shorter only with a new generation, so what we knew still holds. The manager's word may be older than ours: it
            // was given before an older lease of ours went back, with the length of what was written under it, and is heard after.
            self.size.fetch_max(attr.size, Ordering::AcqRel);
        } else {
            // What we wrote to a file that was cut since says nothing about its length.
            if state.generation.is_some() {
                self.unreported_end.store(0, Ordering::Release);
            }
            // At the first lease there may be what an earlier life of the manager did not hear.
            let own = self.unreported_end.load(Ordering::Acquire);
            self.size.store(attr.size.max(own), Ordering::Release);
        }
        state.generation = Some(attr.generation);
        state.held = Some(held);
        held
    }

    /// The manager of `epoch` wants a lease back. Called by the listening thread.
    pub(super) fn recalled(self: &Arc<Self>, number: u64, epoch: u64) {
        let mut state = self.lease_state();
        // It may have been lost while its notice was on the way, and its numbers may be higher than those of the next.
        if state.epoch != epoch {
            return;
        }
        state.recalled = state.recalled.max(number);
        if !self.must_return(&state) || state.returning {
            return;
        }
        if self.nothing_pending() && self.guardian().is_none() {
            self.give_back(state);
            return;
        }
        // Waiting for servers to take records must not hold up the recall of other files.
        drop(state);
        let file = Arc::clone(self);
        let spawned = std::thread::Builder::new().name("pario-return".into()).spawn(move || {
            let state = file.lease_state();
            if file.must_return(&state) && !state.returning {
                file.give_back(state);
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to give back a lease; the next access does it");
        }
    }

    /// The file's last name is gone. Called by the listening thread.
    pub(super) fn unlinked(&self) {
        let Some(guardian) = self.guardian() else { return };
        // Closing a file asks the manager, and recalls must not wait for that.
        let spawned =
            std::thread::Builder::new().name("pario-unlinked".into()).spawn(move || guardian.unlinked());
        if let Err(error) = spawned {
            tracing::warn!(%error, "no thread to let go of a removed file; it stays until the tier forgets it");
        }
    }

    /// Gives the lease back: everything written under it is in the stores first. A newer one that was granted and recalled
    /// while this one was on its way goes back too: whoever heard of that recall left it to us.
    fn give_back<'a>(&'a self, mut state: MutexGuard<'a, LeaseState>) {
        while let Some(held) = state.held {
            state.returning = true;
            drop(state);
            self.mount.counters.recalls.fetch_add(1, Ordering::Relaxed);
            self.return_lease(held.number);
            state = self.lease_state();
            // Numbers of another life say nothing about those of this one.
            if held.epoch == state.epoch {
                state.returned = state.returned.max(held.number);
            }
            if state.held.is_some_and(|current| current.number == held.number) {
                state.held = None;
            }
            state.returning = false;
            self.tell(&state);
            if !self.must_return(&state) {
                return;
            }
        }
    }

    fn return_lease(&self, number: u64) {
        if let Some(guardian) = self.guardian() {
            guardian.give_up();
        }
        self.discard_ahead();
        if let Err(fault) = self.drain() {
            self.abandon_records();
            self.keep_fault(fault);
        }
        self.drop_loans();
        reach(Point::RecallDrained);
        let end = self.end_to_report();
        let request = Request::Return { inode: self.inode, number, end };
        match self.mount.call(pario_core::ServerIndex::MANAGER, &request) {
            Ok(_) => {
                reach(Point::RecallReturned);
                self.end_reported(end);
            }
            // The manager is gone, and our lease with it; the next access finds out.
            Err(fault) => tracing::debug!(%fault, "a lease could not be given back"),
        }
    }

    /// Waits until no access is under way, then gives back what is held, asked or not.
    pub(super) fn release(&self) {
        let mut state = self.lease_state();
        while 0 < state.users || state.acquiring || state.returning {
            state = self.wait_lease(state);
        }
        if self.usable(&state).is_some() {
            self.give_back(state);
        } else {
            state.held = None;
            drop(state);
            self.discard_ahead();
            if let Err(fault) = self.drain() {
                self.keep_fault(fault);
            }
            self.drop_loans();
        }
    }

    /// The last handle's close is over.
    pub(super) fn set_left(&self) {
        let mut state = self.lease_state();
        state.left = true;
        self.tell(&state);
    }

    /// Waits for the end of the last handle's close.
    pub(super) fn wait_left(&self) {
        let mut state = self.lease_state();
        while !state.left {
            state = self.wait_lease(state);
        }
    }

    /// The phase that we are in for certain. From one that is on its way back the manager may have given the file to others already,
    /// long before our thread that returns it hears so.
    pub(super) fn phase(&self) -> Option<Phase> {
        let state = self.lease_state();
        self.usable(&state).filter(|_| !state.returning).map(|held| held.phase)
    }

    /// Whether there is a lease, be it on its way back.
    pub(super) fn is_leased(&self) -> bool {
        let state = self.lease_state();
        self.usable(&state).is_some()
    }

    /// Sets who is told before a lease goes back.
    pub(super) fn set_guardian(&self, guardian: Weak<dyn Guardian>) {
        *self.guardian.lock().unwrap_or_else(PoisonError::into_inner) = Some(guardian);
    }

    fn guardian(&self) -> Option<Arc<dyn Guardian>> {
        let guardian = self.guardian.lock().unwrap_or_else(PoisonError::into_inner);
        guardian.as_ref().and_then(Weak::upgrade)
    }

    fn lease_state(&self) -> MutexGuard<'_, LeaseState> {
        let mut state = self.lease.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.mount.epoch();
        if state.epoch != epoch {
            (state.epoch, state.recalled, state.returned) = (epoch, 0, 0);
        }
        state
    }

    fn end_access(&self) {
        let mut state = self.lease_state();
        state.users -= 1;
        if state.users != 0 {
            return;
        }
        if self.must_return(&state) && !state.returning {
            self.give_back(state);
            return;
        }
        if self.usable(&state).is_none() {
            state.held = None;
        }
        self.tell(&state);
    }

    fn wait_lease<'a>(&self, mut state: MutexGuard<'a, LeaseState>) -> MutexGuard<'a, LeaseState> {
        state.waiting += 1;
        let mut state = self.lease_changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        state.waiting -= 1;
        state
    }

    fn tell(&self, state: &LeaseState) {
        if 0 < state.waiting {
            self.lease_changed.notify_all();
        }
    }
}

impl Drop for Access<'_> {
    fn drop(&mut self) {
        if self.counted {
            self.file.end_access();
        }
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
