//! Invariants of the lease machine, checked from its inputs and actions alone.
//!
//! Never: reads the machine's own state, except in `agrees`, which compares the two. Always: a broken rule is reported as a sentence.

use std::collections::{BTreeMap, BTreeSet};

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{Lease, Phase, Want};

use super::*;

/// A waiting request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CheckedWait {
    Lease { session: SessionId, want: Want },
    Look { asker: Option<SessionId> },
    Stop,
}

/// One file as described by the actions so far.
#[derive(Clone, Default, Debug)]
pub(super) struct FileFacts {
    pub(super) held: BTreeMap<SessionId, Lease>,
    /// Restored, not reconnected yet.
    pub(super) absent: BTreeSet<SessionId>,
    /// To be recovered; true once the machine requested it.
    pub(super) unrecovered: BTreeMap<SessionId, bool>,
    pub(super) waiting: Vec<(WaitTicket, CheckedWait)>,
    pub(super) stop: Option<WaitTicket>,
}

/// See the module.
#[derive(Default, Debug)]
pub(super) struct Checker {
    pub(super) files: BTreeMap<InodeId, FileFacts>,
    pub(super) recalled: BTreeSet<u64>,
    granted: BTreeSet<u64>,
    answered: BTreeSet<WaitTicket>,
    /// The sessions below this number are of one lease group.
    pub(super) group_sessions: u64,
    /// Counts per event, so that a test can check its coverage.
    pub(super) seen: BTreeMap<&'static str, u64>,
}

/// A broken rule, or `Ok`.
pub(super) type RuleResult = Result<(), String>;

fn rule(holds: bool, broken: impl FnOnce() -> String) -> RuleResult {
    if holds { Ok(()) } else { Err(broken()) }
}

/// Inputs, passed before the machine gets them.
impl Checker {
    pub(super) fn file(&mut self, inode: InodeId) -> &mut FileFacts {
        self.files.entry(inode).or_default()
    }

    pub(super) fn group_of(&self, session: SessionId) -> LeaseGroup {
        LeaseGroup(u64::from(session.0 < self.group_sessions))
    }

    pub(super) fn returned(&mut self, back: Return) {
        let held = &mut self.file(back.inode).held;
        if held.get(&back.session).is_some_and(|lease| lease.number == back.number) {
            held.remove(&back.session);
        }
    }

    pub(super) fn gone(&mut self, session: SessionId) {
        for file in self.files.values_mut() {
            file.waiting.retain(
                |(_, wait)| !matches!(wait, CheckedWait::Lease { session: who, .. } if *who == session),
            );
        }
        self.reclaimed(session);
    }

    pub(super) fn reclaimed(&mut self, session: SessionId) {
        for file in self.files.values_mut() {
            let dirty = file.held.remove(&session).is_some_and(|lease| lease.phase != Phase::Read {});
            if dirty || file.absent.remove(&session) {
                file.unrecovered.insert(session, false);
            }
        }
    }

    pub(super) fn stop_ended(&mut self, inode: InodeId, ticket: WaitTicket) {
        let file = self.file(inode);
        if file.stop == Some(ticket) {
            file.stop = None;
        }
        file.waiting.retain(|(waiting, _)| *waiting != ticket);
    }

    pub(super) fn cancelled(&mut self, ticket: WaitTicket) {
        for file in self.files.values_mut() {
            file.waiting.retain(|(waiting, _)| *waiting != ticket);
        }
    }
}

/// Actions.
impl Checker {
    /// Checks the actions of one input in order.
    pub(super) fn acted(&mut self, actions: &[LeaseAction]) -> RuleResult {
        for action in actions {
            match *action {
                LeaseAction::Grant { ticket, session, lease } => self.grant(ticket, session, lease)?,
                LeaseAction::Recall { session, inode, number } => self.recall(session, inode, number)?,
                LeaseAction::Recover { inode, session } => self.recover(inode, session)?,
                LeaseAction::Quiet { ticket } => self.quiet(ticket)?,
            }
        }
        let forgotten = self.files.values().any(|file| file.unrecovered.values().any(|asked| !asked));
        rule(!forgotten, || "a writer died and no recovery was requested".into())
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Removes a ticket from its file's queue and returns the requests that waited longer.
    fn answer(&mut self, ticket: WaitTicket) -> Result<(InodeId, CheckedWait, Vec<CheckedWait>), String> {
        rule(self.answered.insert(ticket), || format!("{ticket:?} answered twice"))?;
        let found = self.files.iter_mut().find_map(|(&inode, file)| {
            let at = file.waiting.iter().position(|(waiting, _)| *waiting == ticket)?;
            let older = file.waiting[..at].iter().map(|(_, wait)| *wait).collect();
            Some((inode, file.waiting.remove(at).1, older))
        });
        found.ok_or_else(|| format!("{ticket:?} answered, which does not wait"))
    }

    fn grant(&mut self, ticket: WaitTicket, session: SessionId, lease: Lease) -> RuleResult {
        let (inode, wait, older) = self.answer(ticket)?;
        let CheckedWait::Lease { session: asker, want } = wait else {
            return Err(format!("{wait:?} got {lease:?}"));
        };
        rule(inode == lease.inode && asker == session, || {
            format!("{asker} asked for {inode}, {session} got {lease:?}")
        })?;
        let file = self.file(inode);
        rule(file.stop.is_none(), || format!("{lease:?} granted during a stop"))?;
        let allowed = match lease.phase {
            Phase::Exclusive {} | Phase::Mixed {} => true,
            Phase::Write {} => want == Want::Write {},
            Phase::Read {} => want == Want::Read {},
        };
        rule(allowed, || format!("{lease:?} granted for {want:?}"))?;
        let held = file.held.get(&session).copied();
        if held.is_some_and(|held| held.number == lease.number) {
            return self.granted_again(held, lease);
        }
        let queue_jumped = older.iter().any(|wait| !matches!(wait, CheckedWait::Look { .. }));
        rule(!queue_jumped, || format!("{lease:?} granted to {session} past {older:?}"))?;
        self.granted_new(session, held, lease)
    }

    fn granted_again(&mut self, held: Option<Lease>, lease: Lease) -> RuleResult {
        self.saw("again");
        rule(held == Some(lease), || format!("{held:?} became {lease:?}"))?;
        rule(!self.recalled.contains(&lease.number), || format!("{lease:?} granted while it is recalled"))
    }

    fn granted_new(&mut self, session: SessionId, held: Option<Lease>, lease: Lease) -> RuleResult {
        rule(self.granted.insert(lease.number), || format!("{lease:?} uses its number again"))?;
        if let Some(held) = held {
            self.saw("replaced");
            let kept = !self.recalled.contains(&held.number) && lease.phase == Phase::Exclusive {};
            rule(kept, || format!("{held:?} replaced by {lease:?}"))?;
        }
        self.saw(match lease.phase {
            Phase::Exclusive {} => "exclusive",
            Phase::Write {} => "write",
            Phase::Read {} => "read",
            Phase::Mixed {} => "mixed",
        });
        let parties = self.group_sessions;
        let file = self.file(lease.inode);
        let dead = file.unrecovered.len() + file.absent.len();
        rule(dead == 0, || format!("{lease:?} granted before the dead are settled: {file:?}"))?;
        file.held.insert(session, lease);
        let one_party = file.held.keys().all(|other| other.0 < parties) && session.0 < parties;
        if one_party && lease.phase == (Phase::Exclusive {}) {
            // A phase granted to one session of a lease group applies to all of them.
            file.held.values_mut().for_each(|other| other.phase = lease.phase);
        }
        let one_phase = file.held.values().all(|other| other.phase == lease.phase);
        rule(one_phase, || format!("two phases at once: {:?}", file.held))?;
        let alone = lease.phase != Phase::Exclusive {} || file.held.len() == 1 || one_party;
        rule(alone, || format!("exclusive, yet shared: {:?}", file.held))
    }

    fn recall(&mut self, session: SessionId, inode: InodeId, number: u64) -> RuleResult {
        self.saw("recall");
        rule(self.recalled.insert(number), || format!("lease {number} recalled twice"))?;
        let file = self.file(inode);
        let held = file.held.get(&session).copied();
        rule(held.is_some_and(|held| held.number == number), || {
            format!("{number} recalled from {session}: {held:?}")
        })?;
        let wanted = !file.waiting.is_empty() || held.is_some_and(|held| held.phase == Phase::Mixed {});
        rule(wanted, || format!("{number} recalled without a waiter"))
    }

    fn recover(&mut self, inode: InodeId, session: SessionId) -> RuleResult {
        self.saw("settle");
        let before = self.file(inode).unrecovered.insert(session, true);
        rule(before == Some(false), || format!("{session} to be settled on {inode}, {before:?}"))
    }

    fn quiet(&mut self, ticket: WaitTicket) -> RuleResult {
        let (inode, wait, older) = self.answer(ticket)?;
        let file = self.file(inode);
        let dead = file.unrecovered.len() + file.absent.len();
        rule(dead == 0 && file.stop.is_none(), || format!("{wait:?} quiet, but {file:?}"))?;
        match wait {
            CheckedWait::Lease { .. } => Err(format!("{wait:?} is no barrier")),
            CheckedWait::Look { asker } => {
                let behind = file.held.iter().find(|(session, lease)| match lease.phase {
                    Phase::Exclusive {} => asker != Some(**session),
                    Phase::Write {} => true,
                    Phase::Read {} | Phase::Mixed {} => false,
                });
                rule(behind.is_none(), || format!("looked while {behind:?} may be writing behind"))?;
                self.saw("look");
                Ok(())
            }
            CheckedWait::Stop => {
                rule(file.held.is_empty(), || format!("stopped while {:?} are held", file.held))?;
                let queue_jumped = older.iter().any(|wait| !matches!(wait, CheckedWait::Look { .. }));
                rule(!queue_jumped, || format!("stopped before {older:?}"))?;
                file.stop = Some(ticket);
                self.saw("stop");
                Ok(())
            }
        }
    }
}

/// Comparison.
impl Checker {
    /// The machine's own answers agree.
    pub(super) fn agrees(&self, leases: &Leases, now: Nanos) -> RuleResult {
        for (&inode, file) in &self.files {
            let mut holders: BTreeSet<SessionId> = file.held.keys().copied().collect();
            holders.extend(&file.absent);
            holders.extend(file.unrecovered.keys());
            let told: BTreeSet<SessionId> = leases.holders(inode).into_iter().collect();
            rule(told == holders, || format!("{inode} is held by {holders:?}, the machine says {told:?}"))?;
            for &session in &holders {
                let writes = file.held.get(&session).is_none_or(|lease| lease.phase != Phase::Read {});
                let told = leases.holds_write(session, inode);
                rule(told == writes, || {
                    format!("{session} may write {inode}: {writes}, the machine says {told}")
                })?;
            }
        }
        let waiting: Vec<WaitTicket> =
            self.files.values().flat_map(|file| &file.waiting).map(|wait| wait.0).collect();
        let told: Vec<WaitTicket> = leases.waiting(now).map(|line| line.ticket).collect();
        rule(told == waiting, || format!("{waiting:?} wait, the machine says {told:?}"))
    }
}
