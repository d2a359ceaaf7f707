//! Random histories of a few sessions on a few files, each from one seed, watched by the [`Checker`].

use std::collections::BTreeMap;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::Want;
use proptest::prelude::*;

use super::check::{Checker, Verdict, Wait};
use super::sabotage::Bug;
use super::*;

/// Histories of the test that must find nothing.
const HISTORIES: u64 = 6000;
/// A deliberate bug must be found within so many.
const HISTORIES_TO_FIND: u64 = 10_000;

/// Small, seeded, good enough to choose what happens next.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        let at = usize::try_from(self.roll()).ok()?.checked_rem(from.len())?;
        Some(from[at])
    }
}

/// The machine, its simulated clients and the checker.
struct World {
    dice: Dice,
    leases: Leases,
    checker: Checker,
    now: Nanos,
    sessions: u64,
    files: u64,
    /// Longest pause between two inputs.
    pause_ms: u64,
    next_ticket: u64,
}

impl World {
    fn new(seed: u64, bug: Option<Bug>) -> World {
        let mut dice = Dice(seed);
        let (sessions, files) = (2 + dice.below(4), 1 + dice.below(3));
        let pause_ms = [1, 20, 200, 2000][usize::try_from(dice.below(4)).unwrap()];
        let mut leases = Leases::new(dice.roll());
        leases.sabotage.bug = bug;
        // In every other history some of them are of one party.
        let parties = if dice.below(2) == 0 { 0 } else { 1 + dice.below(sessions) };
        let (mut checker, now) = (Checker::default(), Nanos(0));
        checker.parties = parties;
        World { dice, leases, checker, now, sessions, files, pause_ms, next_ticket: 0 }
    }

    /// A whole history: what sessions held before a restart, random steps, then everybody goes home.
    fn run(&mut self) -> Verdict {
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
        self.go_home()
    }

    fn session(&mut self) -> SessionId {
        SessionId(self.dice.below(self.sessions))
    }

    fn inode(&mut self) -> InodeId {
        InodeId(self.dice.below(self.files))
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    fn step(&mut self) -> Verdict {
        match self.dice.below(100) {
            0..40 => self.acquire(),
            40..65 => self.answer_recall(),
            65..72 => self.give_back(),
            72..76 => self.die_or_reclaim(),
            76..84 => self.settle(),
            84..88 => self.look(),
            88..91 => self.stop(),
            91..97 => self.end_stop(),
            _ => self.cancel(),
        }
    }

    /// Gives the machine one input and the checker what came of it.
    fn input(&mut self, act: impl FnOnce(&mut Leases, Nanos, &mut Vec<Action>)) -> Verdict {
        let mut actions = Vec::new();
        act(&mut self.leases, self.now, &mut actions);
        self.checker.acted(&actions)?;
        // A deliberate bug must show in what the machine does, not in what it says of itself.
        if self.leases.sabotage.bug.is_some() { Ok(()) } else { self.checker.agrees(&self.leases, self.now) }
    }
}

/// What clients and the shell do.
impl World {
    fn acquire(&mut self) -> Verdict {
        let (session, inode, ticket) = (self.session(), self.inode(), self.ticket());
        // A session that has not been heard of since the restart says first that it is back.
        if self.checker.files.values().any(|file| file.absent.contains(&session)) {
            self.checker.reclaimed(session);
            self.input(|leases, now, out| leases.reclaimed(session, now, out))?;
        }
        let want = if self.dice.below(2) == 0 { Want::Read {} } else { Want::Write {} };
        self.checker.file(inode).waiting.push((ticket, Wait::Lease { session, want }));
        let together = want == (Want::Write {}) && self.dice.below(4) == 0;
        let want = if together { Want::WriteTogether {} } else { want };
        let party = self.checker.party(session);
        self.input(|leases, now, out| leases.acquire(Ask { session, inode, want, party, ticket }, now, out))
    }

    /// Leases in the hands of clients, recalled or not.
    fn held(&self, recalled: bool) -> Vec<Return> {
        let all = self.checker.files.iter().flat_map(|(&inode, file)| {
            file.held.iter().map(move |(&session, lease)| Return { session, inode, number: lease.number })
        });
        all.filter(|back| self.checker.recalled.contains(&back.number) == recalled).collect()
    }

    fn give(&mut self, back: Return) -> Verdict {
        self.checker.returned(back);
        self.input(|leases, now, out| leases.returned(back, now, out))
    }

    fn answer_recall(&mut self) -> Verdict {
        let recalled = self.held(true);
        self.dice.pick(&recalled).map_or(Ok(()), |back| self.give(back))
    }

    /// Of its own accord; and sometimes what it does not have.
    fn give_back(&mut self) -> Verdict {
        let kept = self.held(false);
        let Some(mut back) = self.dice.pick(&kept) else { return Ok(()) };
        match self.dice.below(4) {
            0 => back.number = back.number.wrapping_sub(1 + self.dice.below(3)),
            1 => back.session = self.session(),
            _ => {}
        }
        self.give(back)
    }

    fn die_or_reclaim(&mut self) -> Verdict {
        let session = self.session();
        if self.dice.below(3) == 0 {
            self.checker.reclaimed(session);
            return self.input(|leases, now, out| leases.reclaimed(session, now, out));
        }
        self.die(session)
    }

    fn die(&mut self, session: SessionId) -> Verdict {
        self.checker.gone(session);
        self.input(|leases, now, out| leases.gone(session, now, out))
    }

    fn unsettled(&self) -> Vec<(InodeId, SessionId)> {
        let all = self.checker.files.iter();
        all.flat_map(|(&inode, file)| file.unsettled.keys().map(move |&session| (inode, session))).collect()
    }

    fn settle(&mut self) -> Verdict {
        let unsettled = self.unsettled();
        let Some((inode, session)) = self.dice.pick(&unsettled) else { return Ok(()) };
        self.settle_one(inode, session)
    }

    fn settle_one(&mut self, inode: InodeId, session: SessionId) -> Verdict {
        self.checker.file(inode).unsettled.remove(&session);
        self.input(|leases, now, out| leases.settled(inode, session, now, out))
    }

    fn look(&mut self) -> Verdict {
        let (inode, ticket) = (self.inode(), self.ticket());
        let asker = (self.dice.below(2) == 0).then(|| self.session());
        self.checker.file(inode).waiting.push((ticket, Wait::Look { asker }));
        let ask = BarrierAsk { inode, ticket, kind: Barrier::Look, asker };
        self.input(|leases, now, out| leases.barrier(ask, now, out))
    }

    fn stop(&mut self) -> Verdict {
        let (inode, ticket) = (self.inode(), self.ticket());
        self.checker.file(inode).waiting.push((ticket, Wait::Stop));
        let ask = BarrierAsk { inode, ticket, kind: Barrier::Stop, asker: None };
        self.input(|leases, now, out| leases.barrier(ask, now, out))
    }

    fn stops(&self) -> Vec<(InodeId, Ticket)> {
        self.checker.files.iter().filter_map(|(&inode, file)| Some((inode, file.stop?))).collect()
    }

    fn end_stop(&mut self) -> Verdict {
        let stops = self.stops();
        let Some((inode, ticket)) = self.dice.pick(&stops) else { return Ok(()) };
        self.end(inode, ticket)
    }

    fn end(&mut self, inode: InodeId, ticket: Ticket) -> Verdict {
        self.checker.stop_ended(inode, ticket);
        self.input(|leases, now, out| leases.barrier_end(inode, ticket, now, out))
    }

    /// Any ticket so far, also one that was answered long ago.
    fn cancel(&mut self) -> Verdict {
        let ticket = Ticket(1 + self.dice.below(self.next_ticket + 1));
        self.checker.cancelled(ticket);
        self.input(|leases, now, out| leases.cancel(ticket, now, out))
    }

    /// Clients do no more than answer recalls, the shell does its part: then nobody may be left waiting. Then all
    /// leases come back: then nothing may be left at all.
    fn go_home(&mut self) -> Verdict {
        for session in (0..self.sessions).map(SessionId) {
            if self.checker.files.values().any(|file| file.absent.contains(&session)) {
                self.die(session)?;
            }
        }
        loop {
            let (recalled, unsettled, stops) = (self.held(true), self.unsettled(), self.stops());
            if recalled.is_empty() && unsettled.is_empty() && stops.is_empty() {
                break;
            }
            recalled.into_iter().try_for_each(|back| self.give(back))?;
            unsettled.into_iter().try_for_each(|(inode, session)| self.settle_one(inode, session))?;
            stops.into_iter().try_for_each(|(inode, ticket)| self.end(inode, ticket))?;
        }
        let forgotten: Vec<WaitLine> = self.leases.waiting(self.now).collect();
        if !forgotten.is_empty() {
            return Err(format!("nobody was asked to make way for {forgotten:?}"));
        }
        while let Some(&back) = self.held(false).first().or(self.held(true).first()) {
            self.give(back)?;
        }
        if self.leases.is_idle() { Ok(()) } else { Err(format!("something is left: {:?}", self.leases)) }
    }
}

fn history(seed: u64, bug: Option<Bug>) -> (Verdict, Checker) {
    let mut world = World::new(seed, bug);
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
        (Bug::ForgetRecall, "nobody was asked"),
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
