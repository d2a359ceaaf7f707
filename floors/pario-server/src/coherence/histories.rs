//! Random histories of a few sessions on a few files, each from one seed, checked by the [`Checker`].

use std::collections::BTreeMap;

use pario_core::{InodeId, Nanos, SeededRandom, SessionId};
use pario_net::message::Want;
use proptest::prelude::*;

use super::check::{CheckedWait, Checker, RuleResult};
use super::sabotage::{Bug, LeaseSabotage};
use super::*;

/// Histories of the test that must find nothing.
const HISTORIES: u64 = 6000;
/// A deliberate bug must be found within this many.
const HISTORIES_TO_FIND: u64 = 10_000;

/// The machine, its simulated clients and the checker.
struct LeaseFixture {
    dice: SeededRandom,
    leases: Leases,
    checker: Checker,
    now: Nanos,
    sessions: u64,
    files: u64,
    /// Longest pause between two inputs.
    pause_ms: u64,
    next_ticket: u64,
}

impl LeaseFixture {
    fn new(seed: u64, bug: Option<Bug>) -> LeaseFixture {
        let mut dice = SeededRandom::new(seed);
        let (sessions, files) = (2 + dice.below(4), 1 + dice.below(3));
        let pause_ms = [1, 20, 200, 2000][usize::try_from(dice.below(4)).unwrap()];
        let mut leases = Leases::new(dice.next_u64());
        leases.sabotage = LeaseSabotage::new(bug);
        // In every other history some of them are of one lease group.
        let parties = if dice.below(2) == 0 { 0 } else { 1 + dice.below(sessions) };
        let (mut checker, now) = (Checker::default(), Nanos(0));
        checker.group_sessions = parties;
        LeaseFixture { dice, leases, checker, now, sessions, files, pause_ms, next_ticket: 0 }
    }

    /// A whole history: leases held before a restart, random steps, then all sessions end.
    fn run(&mut self) -> RuleResult {
        for inode in 0..self.files {
            self.checker.file(InodeId(inode));
            while self.dice.below(4) == 0 {
                let session = self.session();
                self.leases.restore(session, InodeId(inode));
                self.checker.file(InodeId(inode)).absent.insert(session);
            }
        }
        for _ in 0..40 + self.dice.below(80) {
            let pause = self.dice.below(self.pause_ms + 1);
            self.now = self.now.plus_ms(pause);
            self.step()?;
        }
        self.end_all()
    }

    fn session(&mut self) -> SessionId {
        SessionId(self.dice.below(self.sessions))
    }

    fn inode(&mut self) -> InodeId {
        InodeId(self.dice.below(self.files))
    }

    fn ticket(&mut self) -> WaitTicket {
        self.next_ticket += 1;
        WaitTicket(self.next_ticket)
    }

    fn step(&mut self) -> RuleResult {
        match self.dice.below(100) {
            0..40 => self.acquire(),
            40..65 => self.answer_recall(),
            65..72 => self.give_back(),
            72..76 => self.die_or_reclaim(),
            76..84 => self.recover(),
            84..88 => self.look(),
            88..91 => self.stop(),
            91..97 => self.end_stop(),
            _ => self.cancel(),
        }
    }

    /// Passes one input to the machine and its actions to the checker.
    fn input(&mut self, act: impl FnOnce(&mut Leases, Nanos, &mut Vec<LeaseAction>)) -> RuleResult {
        let mut actions = Vec::new();
        act(&mut self.leases, self.now, &mut actions);
        self.checker.acted(&actions)?;
        // A deliberate bug must show in the machine's actions, not in its queries.
        if self.leases.sabotage.is_enabled() { Ok(()) } else { self.checker.agrees(&self.leases, self.now) }
    }
}

/// Actions of clients and the shell.
impl LeaseFixture {
    fn acquire(&mut self) -> RuleResult {
        let (session, inode, ticket) = (self.session(), self.inode(), self.ticket());
        // A session that has not reconnected since the restart reclaims first.
        if self.checker.files.values().any(|file| file.absent.contains(&session)) {
            self.checker.reclaimed(session);
            self.input(|leases, now, out| leases.reclaimed(session, now, out))?;
        }
        let want = if self.dice.below(2) == 0 { Want::Read {} } else { Want::Write {} };
        self.checker.file(inode).waiting.push((ticket, CheckedWait::Lease { session, want }));
        let together = want == (Want::Write {}) && self.dice.below(4) == 0;
        let want = if together { Want::WriteInGroup {} } else { want };
        let party = self.checker.group_of(session);
        self.input(|leases, now, out| {
            leases.acquire(LeaseRequest { session, inode, want, group: party, ticket }, now, out)
        })
    }

    /// Leases held by clients, recalled or not.
    fn held(&self, recalled: bool) -> Vec<Return> {
        let all = self.checker.files.iter().flat_map(|(&inode, file)| {
            file.held.iter().map(move |(&session, lease)| Return { session, inode, number: lease.number })
        });
        all.filter(|back| self.checker.recalled.contains(&back.number) == recalled).collect()
    }

    fn give(&mut self, back: Return) -> RuleResult {
        self.checker.returned(back);
        self.input(|leases, now, out| leases.returned(back, now, out))
    }

    fn answer_recall(&mut self) -> RuleResult {
        let recalled = self.held(true);
        self.dice.try_pick(&recalled).map_or(Ok(()), |back| self.give(back))
    }

    /// Returns a lease unasked; sometimes one that it does not hold.
    fn give_back(&mut self) -> RuleResult {
        let kept = self.held(false);
        let Some(mut back) = self.dice.try_pick(&kept) else { return Ok(()) };
        match self.dice.below(4) {
            0 => back.number = back.number.wrapping_sub(1 + self.dice.below(3)),
            1 => back.session = self.session(),
            _ => {}
        }
        self.give(back)
    }

    fn die_or_reclaim(&mut self) -> RuleResult {
        let session = self.session();
        if self.dice.below(3) == 0 {
            self.checker.reclaimed(session);
            return self.input(|leases, now, out| leases.reclaimed(session, now, out));
        }
        self.die(session)
    }

    fn die(&mut self, session: SessionId) -> RuleResult {
        self.checker.gone(session);
        self.input(|leases, now, out| leases.session_died(session, now, out))
    }

    fn unrecovered(&self) -> Vec<(InodeId, SessionId)> {
        let all = self.checker.files.iter();
        all.flat_map(|(&inode, file)| file.unrecovered.keys().map(move |&session| (inode, session))).collect()
    }

    fn recover(&mut self) -> RuleResult {
        let unsettled = self.unrecovered();
        let Some((inode, session)) = self.dice.try_pick(&unsettled) else { return Ok(()) };
        self.recover_one(inode, session)
    }

    fn recover_one(&mut self, inode: InodeId, session: SessionId) -> RuleResult {
        self.checker.file(inode).unrecovered.remove(&session);
        self.input(|leases, now, out| leases.recovered(inode, session, now, out))
    }

    fn look(&mut self) -> RuleResult {
        let (inode, ticket) = (self.inode(), self.ticket());
        let asker = (self.dice.below(2) == 0).then(|| self.session());
        self.checker.file(inode).waiting.push((ticket, CheckedWait::Look { asker }));
        let ask = BarrierRequest { inode, ticket, kind: Barrier::Look, requester: asker };
        self.input(|leases, now, out| leases.barrier(ask, now, out))
    }

    fn stop(&mut self) -> RuleResult {
        let (inode, ticket) = (self.inode(), self.ticket());
        self.checker.file(inode).waiting.push((ticket, CheckedWait::Stop));
        let ask = BarrierRequest { inode, ticket, kind: Barrier::Stop, requester: None };
        self.input(|leases, now, out| leases.barrier(ask, now, out))
    }

    fn stops(&self) -> Vec<(InodeId, WaitTicket)> {
        self.checker.files.iter().filter_map(|(&inode, file)| Some((inode, file.stop?))).collect()
    }

    fn end_stop(&mut self) -> RuleResult {
        let stops = self.stops();
        let Some((inode, ticket)) = self.dice.try_pick(&stops) else { return Ok(()) };
        self.end(inode, ticket)
    }

    fn end(&mut self, inode: InodeId, ticket: WaitTicket) -> RuleResult {
        self.checker.stop_ended(inode, ticket);
        self.input(|leases, now, out| leases.barrier_end(inode, ticket, now, out))
    }

    /// Any ticket so far, also an answered one.
    fn cancel(&mut self) -> RuleResult {
        let ticket = WaitTicket(1 + self.dice.below(self.next_ticket + 1));
        self.checker.cancelled(ticket);
        self.input(|leases, now, out| leases.cancel(ticket, now, out))
    }

    /// Clients only answer recalls, the shell does its part: then no request may be left waiting. Then all leases are returned: then
    /// nothing may be left at all.
    fn end_all(&mut self) -> RuleResult {
        for session in (0..self.sessions).map(SessionId) {
            if self.checker.files.values().any(|file| file.absent.contains(&session)) {
                self.die(session)?;
            }
        }
        loop {
            let (recalled, unsettled, stops) = (self.held(true), self.unrecovered(), self.stops());
            if recalled.is_empty() && unsettled.is_empty() && stops.is_empty() {
                break;
            }
            recalled.into_iter().try_for_each(|back| self.give(back))?;
            unsettled.into_iter().try_for_each(|(inode, session)| self.recover_one(inode, session))?;
            stops.into_iter().try_for_each(|(inode, ticket)| self.end(inode, ticket))?;
        }
        let forgotten: Vec<WaitLine> = self.leases.waiting(self.now).collect();
        if !forgotten.is_empty() {
            return Err(format!("no lease was recalled for {forgotten:?}"));
        }
        while let Some(&back) = self.held(false).first().or(self.held(true).first()) {
            self.give(back)?;
        }
        if self.leases.is_idle() { Ok(()) } else { Err(format!("state is left: {:?}", self.leases)) }
    }
}

fn history(seed: u64, bug: Option<Bug>) -> (RuleResult, Checker) {
    let mut world = LeaseFixture::new(seed, bug);
    (world.run(), world.checker)
}

#[test]
fn random_histories_break_no_rule_and_visit_everything() {
    let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..HISTORIES {
        let (verdict, checker) = history(seed, None);
        assert_eq!(verdict, Ok(()), "seed {seed}");
        for (what, times) in checker.seen {
            *seen.entry(what).or_default() += times;
        }
    }
    let all =
        ["again", "exclusive", "look", "mixed", "read", "recall", "replaced", "settle", "stop", "write"];
    assert!(
        seen.keys().eq(all.iter()) && seen.values().all(|&times| times > 500),
        "hardly visited: {seen:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn histories_of_fresh_seeds_break_no_rule(seed: u64) {
        prop_assert_eq!(history(seed, None).0, Ok(()));
    }
}

#[test]
fn every_deliberate_bug_is_found() {
    let bugs = [
        (Bug::Overtake, "past"),
        (Bug::ForgetRecall, "no lease was recalled"),
        (Bug::ReleaseUnsettled, "before the dead are settled"),
        (Bug::RegrantRecalled, "while it is recalled"),
        (Bug::GrantInStop, "granted during a stop"),
        (Bug::RecallTwice, "recalled twice"),
        (Bug::LookPastDead, "quiet, but"),
        (Bug::ShareExclusive, "exclusive, yet shared"),
    ];
    for (bug, complaint) in bugs {
        let found = (0..HISTORIES_TO_FIND).find_map(|seed| {
            let broken = history(seed, Some(bug)).0.err()?;
            broken.contains(complaint).then_some((seed, broken))
        });
        let (seed, broken) = found.unwrap_or_else(|| panic!("{bug:?} was not found by its own rule"));
        println!("{bug:?}: seed {seed}: {broken:.100}");
    }
}
