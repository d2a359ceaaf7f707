//! Remembered overwrites and verdicts, checked against one commit time for each byte.

#![expect(clippy::single_range_in_vec_init, reason = "a list of ranges is meant, which may have one")]

use proptest::prelude::*;

use pario_core::{Generation, InodeId};

use super::*;

const BORN: Nanos = Nanos(100);
const ME: SessionId = SessionId(1);

fn object(inode: u64) -> ObjectId {
    ObjectId { inode: InodeId(inode), generation: Generation(1) }
}

fn put(ahead: &mut Overwrites, bytes: Range<u64>, committed: u64, now: u64) -> LogUpdate {
    let mut marks = ahead.new_ranges().expect("not blind");
    marks.add(object(1), bytes, Nanos(committed));
    marks.stored();
    ahead.note(marks, Nanos(now))
}

fn judged(ahead: &Overwrites, bytes: Range<u64>, committed: u64) -> LateVerdict {
    ahead.drainable((ME, Nanos(committed)), object(1), bytes)
}

#[test]
fn of_a_late_record_what_is_older_stays_out() {
    let mut ahead = Overwrites::new(BORN);
    put(&mut ahead, 10..20, 50, 110);
    put(&mut ahead, 30..40, 20, 110);
    let cases: [(u64, &[Range<u64>]); 4] = [
        (10, &[0..10, 20..30, 40..60]),
        (20, &[0..10, 20..60]),
        (49, &[0..10, 20..60]),
        // The record itself, drained already.
        (50, &[0..60]),
    ];
    for (committed, free) in cases {
        assert_eq!(
            judged(&ahead, 0..60, committed),
            LateVerdict::Drain(free.to_vec()),
            "committed at {committed}"
        );
    }
    assert_eq!(judged(&ahead, 12..18, 10), LateVerdict::Drain(Vec::new()));
    let elsewhere = ahead.drainable((ME, Nanos(10)), object(2), 0..60);
    assert_eq!(elsewhere, LateVerdict::Drain(vec![0..60]), "another object");
}

#[test]
fn only_what_got_into_the_store_counts() {
    let mut ahead = Overwrites::new(BORN);
    let mut marks = ahead.new_ranges().unwrap();
    marks.add(object(1), 0..10, Nanos(50));
    marks.stored();
    marks.add(object(1), 10..20, Nanos(50));
    marks.failed();
    marks.add(object(1), 20..30, Nanos(50));
    ahead.note(marks, Nanos(110));
    assert_eq!(judged(&ahead, 0..30, 10), LateVerdict::Drain(vec![10..30]));
}

#[test]
fn a_direct_write_is_told_of_only_if_older_bytes_came_after_it() {
    let mut ahead = Overwrites::new(BORN);
    put(&mut ahead, 0..10, 50, 110);
    for (committed, covered) in [(40, false), (50, false), (60, true), (110, true), (111, false)] {
        let may = ahead.may_have_covered((ME, Nanos(committed)), object(1), &(5..15));
        assert_eq!(may, covered, "made at {committed}");
    }
    assert!(!ahead.may_have_covered((ME, Nanos(60)), object(1), &(10..15)), "beside it");
}

#[test]
fn very_many_that_are_written_in_a_row_are_remembered_as_one() {
    let mut ahead = Overwrites::new(BORN);
    let mut marks = ahead.new_ranges().unwrap();
    let exact = MARKS_EXACT as u64;
    for number in 0..exact + 100 {
        marks.add(object(1), number * 10..number * 10 + 10, Nanos(200 + number));
    }
    marks.stored();
    assert!(matches!(ahead.note(marks, Nanos(9000)), LogUpdate::Marks(list) if list.len() == MARKS_EXACT));
    let end = (exact + 100) * 10;
    assert_eq!(
        judged(&ahead, 0..end + 100, 99),
        LateVerdict::Drain(vec![end..end + 100]),
        "from before this life"
    );
    assert_eq!(judged(&ahead, 0..30, 201), LateVerdict::Drain(vec![0..20]), "the first are known each");
    let joined = exact * 10..exact * 10 + 10;
    let (before, between) = (200 + exact - 5, 200 + exact + 50);
    assert_eq!(judged(&ahead, joined.clone(), before), LateVerdict::Drain(vec![]), "all of them are newer");
    assert_eq!(
        judged(&ahead, joined.clone(), 9000),
        LateVerdict::Drain(vec![joined.clone()]),
        "none of them is"
    );
    assert_eq!(judged(&ahead, joined, between), LateVerdict::Unknown, "in between the order is unknown");
}

#[test]
fn what_cannot_be_remembered_is_known_not_to_be() {
    let mut ahead = Overwrites::new(BORN);
    ahead.attached(SessionId(2), Nanos(105));
    // With holes between them nothing can be joined.
    let full = MARKS_MAX as u64;
    let last =
        (0..=full).map(|number| put(&mut ahead, number * 10..number * 10 + 5, 200 + number, 110)).last();
    assert_eq!(last, Some(LogUpdate::Dropped));
    assert!(ahead.new_ranges().is_none(), "and costs nothing from then on");
    assert_eq!(ahead.marks().count(), 0);
    assert_eq!(judged(&ahead, 0..10, 10), LateVerdict::Unknown);
    let of = |session, committed| ahead.drainable((session, committed), object(1), 0..10);
    assert_eq!(of(SessionId(2), Nanos(104)), LateVerdict::Unknown, "from before its outbox came");
    assert_eq!(
        of(SessionId(2), Nanos(106)),
        LateVerdict::Drain(vec![0..10]),
        "all older ones were seen then"
    );
}

#[test]
fn many_neighbours_become_few() {
    let mut ahead = Overwrites::new(BORN);
    for number in 0..=MARKS_MAX as u64 {
        assert!(matches!(put(&mut ahead, number..number + 1, number % 90, 110), LogUpdate::Marks(_)));
    }
    assert!(ahead.marks().count() < 10);
    assert_eq!(judged(&ahead, 0..10, 95), LateVerdict::Drain(vec![0..10]));
    assert_eq!(judged(&ahead, 0..10, 40), LateVerdict::Unknown);
}

const BYTES: u64 = 40;

proptest! {
    /// Against one commit time for each byte; for commits since the restart the verdict may be unknown, never wrong.
    #[test]
    fn verdicts_are_those_of_single_bytes(
        puts in prop::collection::vec((0..BYTES, 1..12u64, 1..160u64), 0..40),
        asked in prop::collection::vec((0..BYTES, 1..20u64, 1..160u64), 1..10),
    ) {
        let mut ahead = Overwrites::new(BORN);
        let mut model = vec![0u64; 64];
        for (start, length, committed) in puts {
            put(&mut ahead, start..start + length, committed, 300);
            for byte in start..start + length {
                let byte = &mut model[usize::try_from(byte).unwrap()];
                *byte = (*byte).max(committed);
            }
        }
        for (start, length, committed) in asked {
            let expected: Vec<u64> = (start..start + length)
                .filter(|byte| model[usize::try_from(*byte).unwrap()] <= committed)
                .collect();
            match judged(&ahead, start..start + length, committed) {
                LateVerdict::Drain(free) => prop_assert_eq!(free.into_iter().flatten().collect::<Vec<_>>(), expected),
                LateVerdict::Unknown => prop_assert!(false, "nothing was joined that has several stamps"),
            }
        }
    }
}
