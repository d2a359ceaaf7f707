//! What one server knows of owners, step by step: claims, hand-overs, and messages that come late, twice or in another order.

use super::*;
use crate::ownership::REMEMBERED_MAX;
use crate::places::NUMBERS;

const OWN: ServerIndex = ServerIndex(0);
const OTHER: ServerIndex = ServerIndex(1);

fn grants(owners: &[u16]) -> Vec<Grant> {
    let grant = |(number, owner): (usize, &u16)| Grant { owner: ServerIndex(*owner), number: number as u64 };
    owners.iter().enumerate().map(grant).collect()
}

/// Blocks 0 to 4: two of this server's, two of another's, one that nobody asked for.
fn owners() -> Owners {
    let owners = Owners::default();
    let asked = owners.begin(0..4, |_| OWN);
    assert_eq!(asked, Begun::Ask(OWN, vec![0, 1, 2, 3]));
    owners.answered(&[0, 1, 2, 3], Some(&grants(&[0, 0, 1, 1])), OWN);
    owners
}

#[test]
fn runs_end_where_the_owner_changes_and_homes_are_asked_apart() {
    let owners = owners();
    assert_eq!(owners.begin(0..5, |_| OWN), Begun::Mine(2));
    assert_eq!(owners.begin(2..5, |_| OWN), Begun::Theirs(OTHER, 4));
    let home = |block: u64| ServerIndex(u16::from(6 <= block));
    assert_eq!(owners.begin(4..9, home), Begun::Ask(OWN, vec![4, 5]));
    owners.answered(&[4, 5], None, OWN);
    assert_eq!(owners.begin(4..5, home), Begun::Ask(OWN, vec![4]), "an answer that failed leaves nothing");
}

#[test]
fn what_is_worked_on_or_wanted_stays() {
    let owners = owners();
    assert_eq!(owners.begin(0..1, |_| OWN), Begun::Mine(1));
    assert_eq!(owners.leave(0..4, |_| false), [(1, 1)]);
    owners.left(&[(1, 1)], true);
    owners.end(0..1);
    assert_eq!(owners.leave(0..4, |block| block == 0), []);
    assert_eq!((owners.mine(), owners.count()), (vec![0], 1));
    assert_eq!(owners.leave(0..4, |_| false), [(0, 0)]);
    owners.left(&[(0, 0)], true);
    assert_eq!((owners.mine(), owners.count()), (vec![], 0));
}

#[test]
fn what_left_unheard_is_claimed_as_over_until_the_home_answers() {
    let owners = owners();
    assert_eq!(owners.leave([1], |_| false), [(1, 1)]);
    owners.left(&[(1, 1)], false);
    assert_eq!((owners.claimed(&[0, 1]), owners.count()), (vec![(0, 0), (1, 1)], 2));
    assert_eq!(owners.begin(1..2, |_| OTHER), Begun::Ask(OTHER, vec![1]));
    owners.answered(&[1], None, OWN);
    assert_eq!(owners.claimed(&[1]), [(1, 1)], "it was not heard either");
    assert_eq!(owners.begin(1..2, |_| OTHER), Begun::Ask(OTHER, vec![1]));
    let older = Grant { owner: OTHER, number: 0 };
    owners.answered(&[1], Some(&[older]), OWN);
    assert_eq!(owners.claimed(&[1]), [(1, 1)], "a home that has not heard how it came here will yet");
    owners.forget(1..2, OTHER);
    assert_eq!(owners.begin(1..2, |_| OTHER), Begun::Ask(OTHER, vec![1]));
    owners.answered(&[1], Some(&[Grant { number: 2, ..older }]), OWN);
    assert_eq!((owners.claimed(&[1]), owners.count()), (vec![(1, 0)], 1));
}

#[test]
fn visitors_wait_for_answers_and_are_told_what_is_gone() {
    let owners = owners();
    assert_eq!(owners.visited(0..2), Found::Mine);
    assert_eq!(owners.visited(1..3), Found::Gone);
    assert_eq!(owners.visited(9..10), Found::Unknown);
    assert!(matches!(owners.begin(9..10, |_| OTHER), Begun::Ask(..)));
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| owners.visited(9..10));
        owners.answered(&[9], Some(&grants(&[0])), OWN);
        assert_eq!(visitor.join().unwrap(), Found::Mine);
    });
    owners.end(9..10);
    assert_eq!(owners.leave([9], |_| false).len(), 1);
    std::thread::scope(|scope| {
        let visitor = scope.spawn(|| owners.visited(9..10));
        owners.left(&[(9, 0)], true);
        assert_ne!(visitor.join().unwrap(), Found::Mine);
    });
    owners.forget(2..3, OTHER);
    owners.forget(3..4, OWN);
    assert_eq!(owners.begin(3..4, |_| OWN), Begun::Theirs(OTHER, 4), "only what that server said");
    assert!(matches!(owners.begin(2..3, |_| OWN), Begun::Ask(..)));
}

#[test]
fn what_is_remembered_of_others_is_bounded() {
    let owners = Owners::default();
    let all: Vec<u64> = (0..REMEMBERED_MAX as u64 + 2).collect();
    owners.answered(&all, Some(&grants(&vec![1; all.len()])), OWN);
    owners.answered(&[u64::MAX], Some(&grants(&[1])), OWN);
    assert_eq!(lock(&owners.table).known(), 1);
    assert_eq!(owners.count(), 0);
}

/// Blocks 2 and 3 are the other server's, and are being taken from it.
fn taking() -> Owners {
    let owners = owners();
    assert_eq!(owners.reach_for(1..3, OTHER), None, "not all are its own");
    assert_eq!(owners.reach_for(2..4, OTHER), Some((0, 5)));
    assert_eq!(owners.reach_for(2..4, OTHER), None, "once is enough");
    owners
}

#[test]
fn what_is_taken_is_nobodys_to_use_before_it_has_its_bytes() {
    let owners = taking();
    assert_eq!(owners.part(2..4, 15), Parted::Gone, "who takes it waits for nobody who takes it too");
    owners.got(&[(2, 7), (3, 8)]);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| owners.begin(2..4, |_| OWN));
        let visitor = scope.spawn(|| owners.visited(2..4));
        assert!(!owners.has(2..4));
        owners.filled(&[(2, 7), (3, 8)]);
        assert_eq!(reader.join().unwrap(), Begun::Mine(4));
        assert_eq!(visitor.join().unwrap(), Found::Mine);
    });
    assert_eq!(owners.part(2..4, 15), Parted::Used, "two accesses are under way for long");
    owners.end(2..4);
    owners.end(2..4);
    assert_eq!(owners.part(0..4, 15), Parted::Gone, "they were asked for under other numbers");
    assert_eq!(owners.part(0..4, 16), Parted::Leaving(vec![(0, 0), (1, 1), (2, 7), (3, 8)]));
    owners.stay(&[(0, 0), (1, 1)]);
    owners.passed(&[(2, 7)], OTHER, true);
    owners.passed(&[(3, 8)], OTHER, false);
    assert_eq!(owners.begin(0..4, |_| OWN), Begun::Mine(2));
    assert_eq!(owners.begin(2..4, |_| OWN), Begun::Theirs(OTHER, 3));
    assert_eq!(owners.visited(3..4), Found::Gone);
    assert_eq!(owners.begin(3..4, |_| OWN), Begun::Tell { number: 8, to: OTHER }, "its home first");
    owners.passed(&[(3, 8)], OTHER, false);
    assert_eq!(owners.owed(0..4), Some((3, 8, OTHER)));
    owners.passed(&[(3, 8)], OTHER, true);
    assert_eq!((owners.owed(0..4), owners.theirs(0..9, 8)), (None, vec![(OTHER, 2..4)]));
}

#[test]
fn what_did_not_come_is_asked_for_again_and_numbers_run_out() {
    let owners = taking();
    owners.missed(2..4);
    assert_eq!(owners.begin(2..4, |_| OTHER), Begun::Ask(OTHER, vec![2, 3]));
    let last = Grant { owner: OWN, number: 2 * NUMBERS - 1 };
    owners.answered(&[2, 3], Some(&[last, Grant { owner: OTHER, number: 5 }]), OWN);
    assert_eq!(owners.part(2..3, 2 * NUMBERS - 1), Parted::Gone, "the next number is another ownership's");
    assert_eq!(owners.part(9..10, 0), Parted::Unknown);
    assert_eq!(owners.theirs(0..4, 0), []);
}

#[test]
fn a_sync_waits_for_what_was_taken_before_it_and_for_nothing_else() {
    let owners = taking();
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| owners.sync_begins());
        while owners.with(|table| table.syncs()) == 0 {
            std::thread::yield_now();
        }
        owners.answered(&[6], Some(&[Grant { owner: OTHER, number: 5 }]), OWN);
        assert_eq!(owners.reach_for(6..7, OTHER), Some((1, 5)), "what is taken now is for the next");
        assert_eq!(owners.synced(), 0);
        owners.filled(&[(2, 7), (3, 8)]);
        assert_eq!(sync.join().unwrap(), Some(1));
    });
    assert_eq!(owners.with(Table::sync_begins), 2, "another one has begun before the first is over");
    owners.sync_ends(1);
    assert_eq!(owners.synced(), 1);
}
