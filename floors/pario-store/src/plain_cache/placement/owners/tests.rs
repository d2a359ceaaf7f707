//! One server's table of owners, step by step: claims, handovers, and messages that arrive late, twice or out of order.

use super::*;
use crate::peers::{Grant, NUMBERS_PER_GRANT};
use crate::placement::REMEMBERED_MAX;

const OWN: ServerIndex = ServerIndex(0);
const OTHER: ServerIndex = ServerIndex(1);

fn grants(owners: &[u16]) -> Vec<Grant> {
    let grant = |(number, owner): (usize, &u16)| Grant { owner: ServerIndex(*owner), number: number as u64 };
    owners.iter().enumerate().map(grant).collect()
}

/// Blocks 0 to 4: two owned here, two by another server, one unknown.
fn owners() -> Owners {
    let owners = Owners::default();
    let asked = owners.begin(0..4, |_| OWN);
    assert_eq!(asked, AccessStart::Claim(OWN, vec![0, 1, 2, 3]));
    owners.with(|table| table.answered(&[0, 1, 2, 3], Some(&grants(&[0, 0, 1, 1])), OWN));
    owners
}

#[test]
fn runs_end_where_the_owner_changes_and_homes_are_asked_apart() {
    let owners = owners();
    assert_eq!(owners.begin(0..5, |_| OWN), AccessStart::Owned(2));
    assert_eq!(owners.begin(2..5, |_| OWN), AccessStart::Remote(OTHER, 4));
    let home = |block: u64| ServerIndex(u16::from(6 <= block));
    assert_eq!(owners.begin(4..9, home), AccessStart::Claim(OWN, vec![4, 5]));
    owners.with(|table| table.answered(&[4, 5], None, OWN));
    assert_eq!(
        owners.begin(4..5, home),
        AccessStart::Claim(OWN, vec![4]),
        "an answer that failed leaves nothing"
    );
}

#[test]
fn what_is_worked_on_or_wanted_stays() {
    let owners = owners();
    assert_eq!(owners.begin(0..1, |_| OWN), AccessStart::Owned(1));
    assert_eq!(owners.with(|table| table.leave(0..4, |_| false)), [(1, 1)]);
    owners.with(|table| table.left(&[(1, 1)], true));
    owners.with(|table| table.end(0..1));
    assert_eq!(owners.with(|table| table.leave(0..4, |block| block == 0)), []);
    assert_eq!((owners.with(|table| table.owned()), owners.with(|table| table.count())), (vec![0], 1));
    assert_eq!(owners.with(|table| table.leave(0..4, |_| false)), [(0, 0)]);
    owners.with(|table| table.left(&[(0, 0)], true));
    assert_eq!((owners.with(|table| table.owned()), owners.with(|table| table.count())), (vec![], 0));
}

#[test]
fn what_left_unheard_is_claimed_as_over_until_the_home_answers() {
    let owners = owners();
    assert_eq!(owners.with(|table| table.leave([1], |_| false)), [(1, 1)]);
    owners.with(|table| table.left(&[(1, 1)], false));
    assert_eq!(
        (owners.with(|table| table.claimed(&[0, 1])), owners.with(|table| table.count())),
        (vec![(0, 0), (1, 1)], 2)
    );
    assert_eq!(owners.begin(1..2, |_| OTHER), AccessStart::Claim(OTHER, vec![1]));
    owners.with(|table| table.answered(&[1], None, OWN));
    assert_eq!(owners.with(|table| table.claimed(&[1])), [(1, 1)], "the second report was lost too");
    assert_eq!(owners.begin(1..2, |_| OTHER), AccessStart::Claim(OTHER, vec![1]));
    let older = Grant { owner: OTHER, number: 0 };
    owners.with(|table| table.answered(&[1], Some(&[older]), OWN));
    assert_eq!(
        owners.with(|table| table.claimed(&[1])),
        [(1, 1)],
        "a home without the handover report will get it"
    );
    owners.with(|table| table.forget(1..2, OTHER));
    assert_eq!(owners.begin(1..2, |_| OTHER), AccessStart::Claim(OTHER, vec![1]));
    owners.with(|table| table.answered(&[1], Some(&[Grant { number: 2, ..older }]), OWN));
    assert_eq!(
        (owners.with(|table| table.claimed(&[1])), owners.with(|table| table.count())),
        (vec![(1, 0)], 1)
    );
}

#[test]
fn visitors_wait_for_answers_and_are_told_what_is_gone() {
    let owners = owners();
    assert_eq!(owners.look_up_remote(0..2), RemoteLookup::Owned);
    assert_eq!(owners.look_up_remote(1..3), RemoteLookup::NotOwner);
    assert_eq!(owners.look_up_remote(9..10), RemoteLookup::Unknown);
    assert!(matches!(owners.begin(9..10, |_| OTHER), AccessStart::Claim(..)));
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| owners.look_up_remote(9..10));
        owners.with(|table| table.answered(&[9], Some(&grants(&[0])), OWN));
        assert_eq!(visitor.join().unwrap(), RemoteLookup::Owned);
    });
    owners.with(|table| table.end(9..10));
    assert_eq!(owners.with(|table| table.leave([9], |_| false)).len(), 1);
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| owners.look_up_remote(9..10));
        owners.with(|table| table.left(&[(9, 0)], true));
        assert_ne!(visitor.join().unwrap(), RemoteLookup::Owned);
    });
    owners.with(|table| table.forget(2..3, OTHER));
    owners.with(|table| table.forget(3..4, OWN));
    assert_eq!(owners.begin(3..4, |_| OWN), AccessStart::Remote(OTHER, 4), "only what that server denied");
    assert!(matches!(owners.begin(2..3, |_| OWN), AccessStart::Claim(..)));
}

#[test]
fn what_is_remembered_of_others_is_bounded() {
    let owners = Owners::default();
    let all: Vec<u64> = (0..REMEMBERED_MAX as u64 + 2).collect();
    owners.with(|table| table.answered(&all, Some(&grants(&vec![1; all.len()])), OWN));
    owners.with(|table| table.answered(&[u64::MAX], Some(&grants(&[1])), OWN));
    assert_eq!(lock(&owners.table).known(), 1);
    assert_eq!(owners.with(|table| table.count()), 0);
}

/// Blocks 2 and 3 belong to the other server, and a handover is requested.
fn taking() -> Owners {
    let owners = owners();
    assert_eq!(owners.with(|table| table.begin_handover(1..3, OTHER)), None, "not all are its own");
    assert_eq!(owners.with(|table| table.begin_handover(2..4, OTHER)), Some((0, 5)));
    assert_eq!(owners.with(|table| table.begin_handover(2..4, OTHER)), None, "once is enough");
    owners
}

#[test]
fn what_is_taken_is_nobodys_to_use_before_it_has_its_bytes() {
    let owners = taking();
    assert_eq!(
        owners.hand_over(2..4, 15),
        HandoverState::NotOwner,
        "a requester does not wait for another requester"
    );
    owners.with(|table| table.received(&[(2, 7), (3, 8)]));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| owners.begin(2..4, |_| OWN));
        let visitor = scope.spawn(|| owners.look_up_remote(2..4));
        assert!(!owners.with(|table| table.has(2..4)));
        owners.with(|table| table.filled(&[(2, 7), (3, 8)]));
        assert_eq!(reader.join().unwrap(), AccessStart::Owned(4));
        assert_eq!(visitor.join().unwrap(), RemoteLookup::Owned);
    });
    assert_eq!(owners.hand_over(2..4, 15), HandoverState::Busy, "two accesses are under way for long");
    owners.with(|table| table.end(2..4));
    owners.with(|table| table.end(2..4));
    assert_eq!(owners.hand_over(0..4, 15), HandoverState::NotOwner, "requested under other numbers");
    assert_eq!(owners.hand_over(0..4, 16), HandoverState::Leaving(vec![(0, 0), (1, 1), (2, 7), (3, 8)]));
    owners.with(|table| table.keep(&[(0, 0), (1, 1)]));
    owners.with(|table| table.handed_over(&[(2, 7)], OTHER, true));
    owners.with(|table| table.handed_over(&[(3, 8)], OTHER, false));
    assert_eq!(owners.begin(0..4, |_| OWN), AccessStart::Owned(2));
    assert_eq!(owners.begin(2..4, |_| OWN), AccessStart::Remote(OTHER, 3));
    assert_eq!(owners.look_up_remote(3..4), RemoteLookup::NotOwner);
    assert_eq!(owners.begin(3..4, |_| OWN), AccessStart::Report { number: 8, to: OTHER }, "its home first");
    owners.with(|table| table.handed_over(&[(3, 8)], OTHER, false));
    assert_eq!(owners.with(|table| table.unreported(0..4)), Some((3, 8, OTHER)));
    owners.with(|table| table.handed_over(&[(3, 8)], OTHER, true));
    assert_eq!(
        (owners.with(|table| table.unreported(0..4)), owners.with(|table| table.remote_runs(0..9, 8))),
        (None, vec![(OTHER, 2..4)])
    );
}

#[test]
fn what_did_not_come_is_asked_for_again_and_numbers_run_out() {
    let owners = taking();
    owners.with(|table| table.not_received(2..4));
    assert_eq!(owners.begin(2..4, |_| OTHER), AccessStart::Claim(OTHER, vec![2, 3]));
    let last = Grant { owner: OWN, number: 2 * NUMBERS_PER_GRANT - 1 };
    owners.with(|table| table.answered(&[2, 3], Some(&[last, Grant { owner: OTHER, number: 5 }]), OWN));
    assert_eq!(
        owners.hand_over(2..3, 2 * NUMBERS_PER_GRANT - 1),
        HandoverState::NotOwner,
        "the next number is another ownership's"
    );
    assert_eq!(owners.hand_over(9..10, 0), HandoverState::Unknown);
    assert_eq!(owners.with(|table| table.remote_runs(0..4, 0)), []);
}

#[test]
fn a_sync_waits_for_what_was_taken_before_it_and_for_nothing_else() {
    let owners = taking();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| owners.begin_sync());
        while owners.with(|table| table.syncs()) == 0 {
            std::thread::yield_now();
        }
        owners.with(|table| table.answered(&[6], Some(&[Grant { owner: OTHER, number: 5 }]), OWN));
        assert_eq!(
            owners.with(|table| table.begin_handover(6..7, OTHER)),
            Some((1, 5)),
            "a later handover is for the next sync"
        );
        assert_eq!(owners.with(|table| table.synced()), 0);
        owners.with(|table| table.filled(&[(2, 7), (3, 8)]));
        assert_eq!(sync.join().unwrap(), Some(1));
    });
    assert_eq!(owners.with(OwnershipTable::begin_sync), 2, "another one has begun before the first is over");
    owners.with(|table| table.end_sync(1));
    assert_eq!(owners.with(|table| table.synced()), 1);
}
