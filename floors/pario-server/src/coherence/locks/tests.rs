//! The lock machine, input by input.

use std::ops::Range;

use pario_core::{InodeId, Nanos, SessionId};
use pario_net::message::{LockMode, LockSpace};

use super::*;

const FILE: InodeId = InodeId(7);
const SHARED: LockMode = LockMode::Shared {};
const ALONE: LockMode = LockMode::Exclusive {};

struct LockFixture {
    locks: Locks,
    out: Vec<LockAction>,
    tickets: u64,
    space: LockSpace,
}

fn owner(session: u64) -> TokenOwner {
    TokenOwner { session: SessionId(session), slot: 0, lock_group: 0 }
}

impl LockFixture {
    fn new() -> LockFixture {
        LockFixture { locks: Locks::new(100), out: Vec::new(), tickets: 0, space: LockSpace::Range {} }
    }

    fn wish(
        &mut self,
        owner: TokenOwner,
        mode: LockMode,
        bytes: Range<u64>,
        patience: WaitLimit,
    ) -> WaitTicket {
        self.tickets += 1;
        let ticket = WaitTicket(self.tickets);
        let (space, shape) = (self.space, LockedBytes::Bytes(bytes));
        let wish = LockRequest { owner, inode: FILE, space, mode, shape, wait_limit: patience, ticket };
        self.locks.lock(wish, Nanos(0), &mut self.out);
        ticket
    }

    fn wait(&mut self, session: u64, mode: LockMode, bytes: Range<u64>) -> WaitTicket {
        self.wish(owner(session), mode, bytes, WaitLimit::Wait)
    }

    /// The token that was just granted under a ticket, with its bytes.
    fn granted(&mut self, ticket: WaitTicket) -> (u64, Range<u64>) {
        let at = self
            .out
            .iter()
            .position(|action| matches!(action, LockAction::Grant { ticket: t, .. } if *t == ticket));
        match self.out.remove(at.unwrap_or_else(|| panic!("{ticket:?} in {:?}", self.out))) {
            LockAction::Grant { number, bytes, .. } => (number, bytes),
            other @ (LockAction::Recall { .. } | LockAction::Refuse { .. }) => panic!("{other:?}"),
        }
    }

    fn recalled(&mut self) -> Vec<(u64, u64, Range<u64>)> {
        let mut recalls = Vec::new();
        self.out.retain(|action| match action {
            LockAction::Recall { session, number, wanted, .. } => {
                recalls.push((session.0, *number, wanted.clone()));
                false
            }
            LockAction::Grant { .. } | LockAction::Refuse { .. } => true,
        });
        recalls
    }

    fn give_back(&mut self, session: u64, number: u64, keep: Option<Range<u64>>) {
        self.locks.returned((SessionId(session), FILE), number, keep, &mut self.out);
    }

    fn busy(&mut self, session: u64, number: u64) {
        self.locks.busy((SessionId(session), FILE), number, None, &mut self.out);
    }

    fn refused(&mut self) -> Vec<(WaitTicket, Refusal)> {
        let mut refused = Vec::new();
        self.out.retain(|action| match action {
            LockAction::Refuse { ticket, why } => {
                refused.push((*ticket, why.clone()));
                false
            }
            LockAction::Grant { .. } | LockAction::Recall { .. } => true,
        });
        refused
    }
}

#[test]
fn a_lone_owner_gets_the_whole_file() {
    let mut desk = LockFixture::new();
    let ticket = desk.wait(1, ALONE, 10..20);
    assert_eq!(desk.granted(ticket), (100, 0..u64::MAX));
    assert!(desk.out.is_empty());
}

#[test]
fn a_change_of_holder_is_one_recall_and_one_return() {
    let mut desk = LockFixture::new();
    let first = desk.wait(1, ALONE, 10..20);
    let (number, _) = desk.granted(first);
    let second = desk.wait(2, ALONE, 15..16);
    assert_eq!(desk.recalled(), [(1, number, 15..16)]);
    desk.give_back(1, number, None);
    assert_eq!(desk.granted(second).1, 0..u64::MAX);
    assert!(desk.out.is_empty());
}

#[test]
fn what_is_not_in_the_way_is_kept() {
    let mut desk = LockFixture::new();
    let first = desk.wait(1, ALONE, 0..10);
    let (number, _) = desk.granted(first);
    let second = desk.wait(2, ALONE, 100..200);
    assert_eq!(desk.recalled(), [(1, number, 100..200)]);
    desk.give_back(1, number, Some(0..100));
    assert_eq!(desk.granted(second).1, 100..200);
    // Both proceed side by side; the kept token can be requested again.
    let third = desk.wait(2, ALONE, 50..60);
    assert_eq!(desk.recalled(), [(1, number, 50..60)]);
    desk.give_back(1, number, Some(0..50));
    desk.granted(third);
}

#[test]
fn shared_locks_are_held_together_and_a_writer_is_not_starved() {
    let mut desk = LockFixture::new();
    let (one, two) = (desk.wait(1, SHARED, 0..10), desk.wait(2, SHARED, 0..10));
    let (first, second) = (desk.granted(one).0, desk.granted(two).0);
    let writer = desk.wait(3, ALONE, 5..6);
    let late = desk.wait(4, SHARED, 0..10);
    assert_eq!(desk.recalled().len(), 2);
    desk.give_back(1, first, None);
    desk.give_back(2, second, None);
    let (number, _) = desk.granted(writer);
    assert_eq!(desk.recalled(), [(3, number, 0..10)], "the late reader waits behind the writer");
    desk.give_back(3, number, None);
    desk.granted(late);
}

/// Readers with slightly larger ranges each time request once; a writer's bytes are excluded.
#[test]
fn a_reader_among_readers_gets_what_lies_around() {
    let mut desk = LockFixture { space: LockSpace::Access {}, ..LockFixture::new() };
    let first = desk.wait(1, SHARED, 0..10);
    let (number, _) = desk.granted(first);
    let second = desk.wait(2, SHARED, 5..13);
    assert_eq!(desk.granted(second).1, 0..65536);
    let far = desk.wait(3, SHARED, 70_000..140_000);
    assert_eq!(desk.granted(far).1, 65536..196_608);
    let writer = desk.wait(4, ALONE, 66_000..66_100);
    assert_eq!(desk.recalled(), [(1, number, 66_000..66_100), (3, 102, 66_000..66_100)]);
    desk.give_back(1, number, Some(0..66_000));
    desk.give_back(3, 102, Some(66_100..196_608));
    assert_eq!(desk.granted(writer).1, 66_000..66_100);
    let below = desk.wait(5, SHARED, 65_990..66_000);
    assert_eq!(desk.granted(below).1, 65_536..66_000);
    let above = desk.wait(6, SHARED, 66_100..66_101);
    assert_eq!(desk.granted(above).1, 66_100..131_072);
    let on_both_sides = desk.wait(7, SHARED, 0..70_000);
    assert_eq!(desk.recalled().len(), 1, "only the writer is in the way");
    desk.give_back(4, 103, None);
    assert_eq!(desk.granted(on_both_sides).1, 0..131_072);
}

#[test]
fn a_wish_elsewhere_goes_past_those_who_wait() {
    let mut desk = LockFixture::new();
    let first = desk.wait(1, ALONE, 0..10);
    let (number, _) = desk.granted(first);
    let second = desk.wait(2, ALONE, 0..10);
    desk.recalled();
    desk.busy(1, number);
    desk.give_back(1, number, Some(0..10));
    assert_eq!(desk.recalled(), [(1, number, 0..10)], "it kept what is wanted");
    let elsewhere = desk.wait(3, ALONE, 50..60);
    assert_eq!(desk.granted(elsewhere).1, 50..60);
    desk.give_back(1, number, None);
    desk.granted(second);
}

#[test]
fn who_only_tries_is_told_when_the_lock_is_in_use() {
    let mut desk = LockFixture::new();
    let first = desk.wait(1, ALONE, 0..10);
    let (number, _) = desk.granted(first);
    let second = desk.wish(owner(2), ALONE, 0..10, WaitLimit::Try);
    assert_eq!(desk.recalled().len(), 1);
    desk.busy(1, number);
    assert_eq!(desk.refused(), [(second, Refusal::InUse(vec![owner(1)]))]);
    // Now it is known to be in use, so the next request is refused immediately.
    let third = desk.wish(owner(3), SHARED, 0..10, WaitLimit::Try);
    assert_eq!(desk.refused(), [(third, Refusal::InUse(vec![owner(1)]))]);
    // An unresponsive holder is not waited for either.
    desk.give_back(1, number, None);
    let fourth = desk.wait(1, ALONE, 0..10);
    desk.granted(fourth);
    let fifth = desk.wish(owner(2), ALONE, 0..10, WaitLimit::Try);
    desk.recalled();
    assert_eq!(desk.locks.deadline(), Some(Nanos(1_000_000_000)));
    desk.locks.expire(Nanos(1_000_000_000), &mut desk.out);
    assert_eq!(desk.refused(), [(fifth, Refusal::InUse(vec![owner(1)]))]);
}

#[test]
fn a_wait_ends_at_its_limit_and_names_the_holder() {
    let mut desk = LockFixture::new();
    let first = desk.wait(1, ALONE, 0..10);
    desk.granted(first);
    let second = desk.wish(owner(2), ALONE, 0..10, WaitLimit::Until(Nanos(50)));
    desk.locks.expire(Nanos(49), &mut desk.out);
    assert!(desk.refused().is_empty());
    desk.locks.expire(Nanos(50), &mut desk.out);
    assert_eq!(desk.refused(), [(second, Refusal::TimedOut(vec![owner(1)]))]);
    assert_eq!(desk.locks.deadline(), None);
}

#[test]
fn a_circle_ends_with_an_error_for_the_youngest() {
    let mut desk = LockFixture::new();
    let one = desk.wait(1, ALONE, 0..10);
    let (first, _) = desk.granted(one);
    let two = desk.wait(2, ALONE, 50..60);
    desk.recalled();
    desk.give_back(1, first, Some(0..50));
    let (second, _) = desk.granted(two);
    // Each requests the other's lock; the cycle is known only when both reply busy.
    let crossing = desk.wait(1, ALONE, 50..60);
    let closing = desk.wait(2, ALONE, 0..10);
    assert_eq!(desk.recalled().len(), 2);
    desk.busy(2, second);
    assert!(desk.refused().is_empty());
    desk.busy(1, first);
    assert_eq!(desk.refused(), [(closing, Refusal::Deadlock(vec![owner(2), owner(1)]))]);
    desk.give_back(2, second, None);
    desk.granted(crossing);
}

#[test]
fn two_shared_holders_that_both_want_more_are_a_circle() {
    let mut desk = LockFixture::new();
    let (one, two) = (desk.wait(1, SHARED, 0..10), desk.wait(2, SHARED, 0..10));
    let (first, second) = (desk.granted(one).0, desk.granted(two).0);
    let up = desk.wait(1, ALONE, 0..10);
    let also = desk.wait(2, ALONE, 0..10);
    desk.busy(2, second);
    desk.busy(1, first);
    let refused = desk.refused();
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].0, also);
    desk.give_back(2, second, None);
    desk.granted(up);
}

#[test]
fn the_dead_hold_nothing_but_what_they_may_have_written_under() {
    let mut desk = LockFixture::new();
    let one = desk.wait(1, ALONE, 0..10);
    desk.granted(one);
    let two = desk.wait(2, ALONE, 0..10);
    desk.locks.session_died(SessionId(1), &mut desk.out);
    desk.granted(two);
    desk.recalled();
    // The same for a lock around an access.
    let mut access = |session: u64, ticket: u64, out: &mut Vec<LockAction>| {
        let wish = LockRequest {
            owner: owner(session),
            inode: FILE,
            space: LockSpace::Access {},
            mode: ALONE,
            shape: LockedBytes::Bytes(0..10),
            wait_limit: WaitLimit::Wait,
            ticket: WaitTicket(ticket),
        };
        desk.locks.lock(wish, Nanos(0), out);
    };
    let mut out = Vec::new();
    access(3, 50, &mut out);
    access(4, 51, &mut out);
    out.clear();
    desk.locks.session_died(SessionId(3), &mut out);
    assert!(out.is_empty(), "{out:?}");
    desk.locks.recovered(FILE, SessionId(3), &mut out);
    assert!(matches!(out[..], [LockAction::Grant { ticket: WaitTicket(51), .. }]), "{out:?}");
}

#[test]
fn members_of_a_club_do_not_exclude_each_other() {
    let mut desk = LockFixture::new();
    let of_club = |session| TokenOwner { session: SessionId(session), slot: 0, lock_group: 9 };
    let one = desk.wish(of_club(1), ALONE, 0..10, WaitLimit::Wait);
    desk.granted(one);
    let two = desk.wish(of_club(2), ALONE, 0..10, WaitLimit::Wait);
    desk.granted(two);
    desk.wait(3, ALONE, 0..10);
    assert_eq!(desk.recalled().len(), 2);
}

#[test]
fn an_owner_that_goes_forward_gets_more_and_more_ahead() {
    let mut desk = LockFixture::new();
    let other = desk.wait(2, ALONE, 1_000_000..1_000_001);
    let (number, _) = desk.granted(other);
    let mut at = 0;
    let mut asked = 0;
    let first = desk.wait(1, ALONE, 0..10);
    desk.recalled();
    desk.give_back(2, number, Some(1_000_000..1_000_001));
    let mut end = desk.granted(first).1.end;
    while at < 990_000 {
        if end < at + 10 {
            let ticket = desk.wait(1, ALONE, at..at + 10);
            end = desk.granted(ticket).1.end;
            asked += 1;
        }
        at += 10;
    }
    assert!(asked < 30, "{asked} messages for 99,000 locks");
    assert!(end <= 1_000_000, "never into another's");
}

#[test]
fn everything_is_forgotten_in_the_end() {
    let mut desk = LockFixture::new();
    for session in 1..=4 {
        desk.wish(owner(session), ALONE, 0..10, WaitLimit::Until(Nanos(9)));
    }
    for session in 1..=4 {
        desk.locks.session_died(SessionId(session), &mut desk.out);
    }
    assert!(desk.locks.is_idle(), "{:?}", desk.locks);
}
