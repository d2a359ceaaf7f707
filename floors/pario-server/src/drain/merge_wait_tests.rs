//! Tables for the decision how much a round drains.

use pario_core::{Generation, InodeId};

use super::super::pending::joined;
use super::*;

const MS: u64 = 1_000_000;
const ALL: DrainDecision = DrainDecision::Drain(Cutoff::ALL);

fn due(place: usize, committed_ms: u64, span: Range<u64>, bytes: u64) -> PendingRecord {
    let object = ObjectId { inode: InodeId(1), generation: Generation(0) };
    let committed = Nanos(committed_ms * MS);
    let (is_whole, is_joined) = (false, false);
    PendingRecord {
        outbox: place,
        committed,
        newest: committed,
        object,
        local_writers: 0,
        span,
        bytes,
        is_whole,
        is_joined,
    }
}

fn mood(now_ms: u64) -> Conditions {
    let now = Nanos(now_ms * MS);
    Conditions {
        now,
        urgent: false,
        waits: false,
        in_collective: false,
        full: false,
        half: true,
        slow: false,
    }
}

fn below(place: u64) -> DrainDecision {
    DrainDecision::Drain(Cutoff::Below(place))
}

fn wait(until_ms: u64) -> DrainDecision {
    DrainDecision::Wait { until: Nanos(until_ms * MS) }
}

#[test]
fn a_lone_writer_is_kept_waiting_once_and_not_for_long() {
    let mut patience = MergeWait::new(2);
    let lone = [due(0, 1, 0..4000, 1000)];
    assert_eq!(patience.choose(&lone, mood(2)), wait(5));
    assert_eq!(patience.choose(&lone, mood(6)), ALL);
    assert_eq!(patience.choose(&[due(0, 7, 4000..8000, 1000)], mood(8)), ALL);
    assert_eq!(patience.choose(&[due(0, 7, 0..1000, 1000)], mood(8)), ALL);
}

#[test]
fn the_first_of_a_group_is_not_taken_for_a_lone_writer() {
    let mut patience = MergeWait::new(2);
    let first = PendingRecord { local_writers: 2, ..due(0, 1, 0..4000, 2000) };
    assert_eq!(patience.choose(std::slice::from_ref(&first), mood(2)), wait(51));
    assert_eq!(patience.choose(std::slice::from_ref(&first), mood(20)), wait(51));
    assert_eq!(patience.choose(&[first.clone(), due(1, 30, 0..4000, 2000)], mood(31)), below(4000));
    // No second writer.
    let mut patience = MergeWait::new(2);
    patience.choose(std::slice::from_ref(&first), mood(2));
    assert_eq!(patience.choose(std::slice::from_ref(&first), mood(53)), ALL);
    assert_eq!(patience.choose(&[PendingRecord { committed: Nanos(54 * MS), ..first }], mood(55)), ALL);
}

#[test]
fn writers_that_need_all_processors_are_not_disturbed() {
    let busy = [due(0, 10, 0..1000, 1000), due(1, 11, 1000..2000, 1000)];
    let early = Conditions { half: false, ..mood(11) };
    let mut patience = MergeWait::new(2);
    assert_eq!(patience.choose(&busy, early), DrainDecision::Rest { until: Nanos(12 * MS) });
    assert_eq!(patience.choose(&busy, Conditions { half: true, ..early }), ALL);
    assert_eq!(patience.choose(&busy, Conditions { urgent: true, ..early }), ALL);
    assert_eq!(
        patience.choose(&busy, Conditions { slow: true, ..early }),
        ALL,
        "a slow store needs all the time there is"
    );
    assert_eq!(patience.choose(&busy, Conditions { now: Nanos(12 * MS), ..early }), ALL);
    assert_eq!(MergeWait::new(3).choose(&busy, early), ALL);
}

#[test]
fn what_all_have_come_to_is_taken() {
    let mut patience = MergeWait::new(2);
    let dumps = [
        due(0, 1, 0..4000, 1000),
        due(1, 2, 0..4000, 1000),
        due(2, 3, 0..4000, 1000),
        due(3, 4, 0..4000, 1000),
        due(0, 5, 4000..8000, 1000),
    ];
    assert_eq!(patience.choose(&dumps, mood(6)), below(4000));
    // The fifth has lost its neighbours for now, and their writers are known.
    assert_eq!(patience.choose(&dumps[4..], mood(7)), wait(255));
    assert_eq!(patience.choose(&dumps[4..], mood(255)), below(8000));
}

#[test]
fn a_record_is_divided_where_a_neighbour_ends() {
    let mut patience = MergeWait::new(2);
    let ragged = [due(0, 1, 0..5000, 2500), due(1, 2, 0..3000, 1500)];
    assert_eq!(patience.choose(&ragged, mood(3)), below(3000));
    let rest = [due(0, 1, 3000..5000, 1000), due(1, 4, 3000..7000, 2000)];
    assert_eq!(patience.choose(&rest, mood(5)), below(5000));
}

#[test]
fn one_of_many_is_waited_for_and_holes_of_all_are_not() {
    let mut patience = MergeWait::new(2);
    let twenty: Vec<PendingRecord> = (0..20).map(|place| due(place, 1, 0..20_000, 1000)).collect();
    patience.choose(&twenty, mood(2));
    assert_eq!(patience.choose(&twenty[1..], mood(3)), wait(251));
    let holes: Vec<PendingRecord> = (0..20).map(|place| due(place, 1, 0..20_000, 950)).collect();
    assert_eq!(patience.choose(&holes, mood(3)), below(20_000));
}

#[test]
fn what_cannot_be_divided_is_cut_by_time() {
    let mut patience = MergeWait::new(2);
    let whole = |due: PendingRecord| PendingRecord { is_whole: true, ..due };
    let dumps = [
        whole(due(0, 1, 0..4000, 2000)),
        whole(due(1, 2, 0..4000, 2000)),
        whole(due(0, 3, 2000..8000, 1000)),
    ];
    assert_eq!(patience.choose(&dumps, mood(6)), DrainDecision::Drain(Cutoff::Committed(Nanos(3 * MS))));
}

#[test]
fn a_writer_that_runs_ahead_does_not_keep_the_others_back() {
    let mut patience = MergeWait::new(2);
    let dumps = [
        due(0, 1, 0..4000, 2000),
        due(0, 2, 4000..8000, 2000),
        due(0, 3, 8000..12000, 2000),
        due(1, 4, 0..4000, 2000),
        due(1, 5, 4000..8000, 2000),
    ];
    assert_eq!(patience.choose(&dumps[..4], mood(6)), below(4000));
    assert_eq!(patience.choose(&dumps, mood(6)), below(8000));
}

#[test]
fn variables_that_lie_apart_fit_each_for_itself() {
    let mut patience = MergeWait::new(2);
    let variables = [
        due(0, 1, 0..4000, 2000),
        due(1, 2, 0..4000, 2000),
        due(0, 3, 900_000..904_000, 2000),
        due(1, 4, 900_000..904_000, 2000),
    ];
    assert_eq!(patience.choose(&variables, mood(6)), below(904_000));
}

#[test]
fn records_of_several_objects_are_cut_by_time() {
    let mut patience = MergeWait::new(2);
    let other = ObjectId { inode: InodeId(2), generation: Generation(0) };
    let dumps = [
        due(0, 1, 0..4000, 2000),
        due(0, 2, 4000..8000, 2000),
        due(1, 3, 0..4000, 2000),
        PendingRecord { object: other, ..due(1, 4, 0..10, 10) },
    ];
    assert_eq!(patience.choose(&dumps, mood(4)), wait(251));
    let in_order = [dumps[0].clone(), dumps[2].clone(), dumps[3].clone(), dumps[1].clone()];
    let in_order = in_order
        .map(|due| PendingRecord { committed: Nanos(if due.span.end == 8000 { 9 } else { 3 } * MS), ..due });
    assert_eq!(patience.choose(&in_order, mood(10)), DrainDecision::Drain(Cutoff::Committed(Nanos(9 * MS))));
}

#[test]
fn who_comes_late_is_not_waited_for_again() {
    let mut patience = MergeWait::new(2);
    let first = [due(0, 1, 0..4000, 2000), due(1, 1, 0..4000, 2000), due(0, 2, 4000..8000, 2000)];
    assert_eq!(patience.choose(&first, mood(4)), below(4000));
    // The second dump is drained without the other writer.
    assert_eq!(patience.choose(&first[2..], mood(253)), below(8000));
    let third = [due(0, 254, 8000..12000, 2000), due(1, 254, 4000..8000, 2000), due(1, 254, 8000..9000, 500)];
    assert_eq!(patience.choose(&third[..2], mood(255)), below(8000));
    assert_eq!(patience.choose(&third, mood(255)), below(9000));
    // From then on both progress together again.
    let both =
        [due(0, 254, 9000..12000, 1500), due(1, 256, 9000..12000, 1500), due(0, 257, 12000..16000, 2000)];
    assert_eq!(patience.choose(&both[..1], mood(256)), wait(504));
    assert_eq!(patience.choose(&both, mood(258)), below(12000));
    // A writer that went beyond is not late when it starts over.
    assert_eq!(patience.choose(&[due(1, 260, 0..4000, 2000)], mood(261)), wait(510));
}

#[test]
fn one_that_is_far_ahead_is_kept_while_the_others_come_on() {
    let mut patience = MergeWait::new(2);
    let ahead = [due(0, 3, 4000..8000, 2000), due(0, 4, 8000..12000, 2000)];
    let first = [due(0, 1, 0..4000, 2000), due(1, 2, 0..4000, 2000), ahead[0].clone(), ahead[1].clone()];
    assert_eq!(patience.choose(&first, mood(5)), below(4000));
    let second = [ahead[0].clone(), ahead[1].clone(), due(1, 200, 4000..6000, 1000)];
    assert_eq!(patience.choose(&second, mood(201)), below(6000));
    let rest = [due(0, 3, 6000..8000, 1000), ahead[1].clone()];
    assert_eq!(patience.choose(&rest, mood(300)), wait(450), "the other one came at 200");
    assert_eq!(patience.choose(&rest, mood(450)), below(12000), "and has not come since");
}

#[test]
fn nobody_is_kept_for_ever_for_others_that_come_on() {
    let mut patience = MergeWait::new(2);
    let ahead = |from: u64| due(0, 3, from..8000, (8000 - from) / 2);
    patience.choose(&[due(0, 1, 0..4000, 2000), due(1, 2, 0..4000, 2000), ahead(4000)], mood(5));
    let mut at = 4000;
    for now in (200..2000).step_by(200) {
        let step = [ahead(at), due(1, now, at..at + 100, 50)];
        at += 100;
        assert_eq!(patience.choose(&step, mood(now + 1)), below(at));
        assert_eq!(patience.choose(&[ahead(at)], mood(now + 100)), wait((now + 250).min(2003)));
    }
    assert_eq!(patience.choose(&[ahead(at)], mood(2003)), below(8000));
    // They write other data: such a record waits as if their writers were absent.
    let next = [due(0, 2100, 8000..12000, 2000), due(1, 2300, at..at + 100, 50)];
    patience.choose(&next, mood(2301));
    assert_eq!(patience.choose(&next[..1], mood(2302)), wait(2350));
}

#[test]
fn who_waits_for_its_group_in_any_case_is_kept_while_the_others_come_on() {
    let record = |place, now, at: u64| PendingRecord {
        local_writers: 2,
        ..due(place, now, at..at + 400_000, 200_000)
    };
    let closes = |now_ms| Conditions { waits: true, in_collective: true, ..mood(now_ms) };
    let came = |patience: &mut MergeWait| {
        let all = [record(0, 1, 0), record(0, 2, 400_000), record(1, 3, 0)];
        assert_eq!(patience.choose(&all, closes(4)), below(400_000));
    };
    let rest = [record(0, 2, 400_000)];
    let mut patience = MergeWait::new(2);
    patience.set_in_collective(vec![0]);
    came(&mut patience);
    assert_eq!(patience.choose(&rest, closes(100)), wait(253), "the other one came at 3");
    // It has nothing more to commit.
    patience.set_in_collective(vec![0, 1]);
    assert_eq!(patience.choose(&rest, closes(101)), ALL);
    // A caller that reads or syncs outside a collective call is not delayed.
    let mut patience = MergeWait::new(2);
    came(&mut patience);
    assert_eq!(patience.choose(&rest, Conditions { in_collective: false, ..closes(20) }), wait(36));
    assert_eq!(patience.choose(&rest, Conditions { in_collective: false, ..closes(36) }), ALL);
}

#[test]
fn members_of_another_group_and_loners_are_not_waited_for_by_who_closes() {
    let record = |place, now, at: u64| PendingRecord {
        local_writers: 2,
        ..due(place, now, at..at + 400_000, 200_000)
    };
    let closes = |now_ms| Conditions { waits: true, in_collective: true, ..mood(now_ms) };
    // Both members of the first group have committed; the other group still writes.
    let mut patience = MergeWait::new(2);
    let all = [record(0, 1, 400_000), record(1, 2, 400_000), record(2, 3, 0), record(3, 4, 0)];
    patience.choose(&all, mood(5));
    patience.set_in_collective(vec![0, 1]);
    assert_eq!(patience.choose(&all[..2], closes(6)), ALL);
    // No group members are announced.
    let mut patience = MergeWait::new(2);
    let alone = all.map(|due| PendingRecord { local_writers: 0, ..due });
    patience.choose(&alone, mood(5));
    patience.set_in_collective(vec![0]);
    assert_eq!(patience.choose(&alone[..1], closes(6)), ALL);
}

#[test]
fn who_brings_the_same_place_over_and_over_does_not_come_on() {
    let mut patience = MergeWait::new(2);
    let header = |now| due(1, now, 0..4000, 2000);
    let ahead = due(0, 3, 4000..8000, 2000);
    patience.choose(&[due(0, 1, 0..4000, 2000), header(2), ahead.clone()], mood(5));
    patience.choose(&[ahead.clone(), header(200)], mood(201));
    assert_eq!(patience.choose(std::slice::from_ref(&ahead), mood(202)), wait(253));
}

#[test]
fn a_full_outbox_does_not_end_patience_with_those_who_come_on() {
    let mut patience = MergeWait::new(2);
    let ahead = |at: u64, now| due(0, now, at..at + 4000, 2000);
    patience.choose(&[ahead(0, 1), due(1, 2, 0..4000, 2000), ahead(4000, 3)], mood(5));
    let full = Conditions { full: true, ..mood(6) };
    assert_eq!(patience.choose(&[ahead(4000, 3)], full), wait(38));
    assert_eq!(patience.choose(&[ahead(4000, 3)], Conditions { now: Nanos(38 * MS), ..full }), below(8000));
    // Its record is late, and it progresses.
    patience.choose(&[due(1, 200, 4000..8000, 2000)], mood(201));
    assert_eq!(patience.choose(&[ahead(8000, 100)], mood(360)), wait(450));
}

#[test]
fn a_full_outbox_is_borne_for_as_long_as_it_was_worth_it() {
    let mut patience = MergeWait::new(2);
    let half = [due(0, 10, 0..4000, 2000)];
    let whole = [due(0, 10, 0..4000, 2000), due(1, 11, 0..4000, 2000), due(0, 12, 4000..8000, 2000)];
    let full = |now_ms| Conditions { full: true, ..mood(now_ms) };
    patience.choose(&whole, mood(12));
    assert_eq!(patience.choose(&half, full(13)), wait(45));
    assert_eq!(patience.choose(&half, full(45)), below(4000));
    let next = [due(0, 60, 4000..8000, 2000)];
    assert_eq!(patience.choose(&next, full(61)), wait(77));
    let both = [next[0].clone(), due(1, 62, 4000..8000, 2000), due(0, 63, 8000..12000, 2000)];
    assert_eq!(patience.choose(&both, full(65)), below(8000));
    assert_eq!(patience.choose(&both[2..], full(66)), wait(98));
}

#[test]
fn urgency_ends_patience_at_once_and_a_full_outbox_soon() {
    let mut patience = MergeWait::new(2);
    let two = [due(0, 10, 0..4000, 1000), due(1, 11, 0..4000, 1000)];
    assert_eq!(patience.choose(&two, mood(12)), wait(260));
    let full = |now_ms| Conditions { full: true, ..mood(now_ms) };
    assert_eq!(patience.choose(&two, full(13)), wait(45));
    assert_eq!(patience.choose(&two, full(45)), below(4000));
    assert_eq!(patience.choose(&two, Conditions { urgent: true, ..mood(46) }), ALL);
}

#[test]
fn who_waits_for_its_records_waits_for_its_group_but_not_for_long() {
    let mut patience = MergeWait::new(2);
    // Each time at higher offsets: late records for a range already drained are not kept.
    let one = |place, now_ms: u64| {
        let start = now_ms / 10 * 400_000;
        PendingRecord { local_writers: 2, ..due(place, now_ms, start..start + 400_000, 200_000) }
    };
    let waits = |now_ms| Conditions { waits: true, ..mood(now_ms) };
    assert_eq!(patience.choose(&[one(0, 1)], waits(2)), wait(18));
    assert_eq!(patience.choose(&[one(0, 1), one(1, 9)], waits(10)), below(400_000));
    // The other writer does not commit: soon no caller is delayed.
    let mut now = 20;
    for wait_ms in [16, 8, 4, 2] {
        assert_eq!(patience.choose(&[one(0, now)], waits(now)), wait(now + wait_ms));
        assert_eq!(patience.choose(&[one(0, now)], waits(now + wait_ms)), ALL);
        now += wait_ms + 10;
    }
    assert_eq!(patience.choose(&[one(0, now)], waits(now)), ALL);
    assert_eq!(patience.choose(&[due(0, now, 0..400_000, 200_000)], waits(now)), ALL);
}

/// A program that alternates small writes and syncs is not delayed at each sync.
#[test]
fn a_little_is_taken_at_once_when_somebody_waits_for_it() {
    let mut patience = MergeWait::new(2);
    let little =
        |place| PendingRecord { local_writers: 4, ..due(place, 1, 0..800_000, CALLER_BYTES_MIN / 2) };
    let waits = Conditions { waits: true, ..mood(2) };
    assert_eq!(patience.choose(&[PendingRecord { bytes: 100, ..little(0) }], waits), ALL);
    assert_eq!(patience.choose(&[little(0)], waits), ALL);
    let mut patience = MergeWait::new(2);
    assert_eq!(patience.choose(&[little(0), little(1)], waits), wait(18), "what is much is worth a wait");
}

#[test]
fn writers_that_went_away_are_not_waited_for() {
    let mut patience = MergeWait::new(2);
    patience.choose(&[due(0, 1, 0..4000, 1000), due(1, 2, 0..4000, 1000)], mood(3));
    patience.choose(&[due(0, 400, 0..4000, 1000)], mood(401));
    assert_eq!(patience.choose(&[due(0, 600, 0..4000, 1000)], mood(601)), ALL);
}

#[test]
fn spans_are_counted_once() {
    let mut spans = CoveredSpans::default();
    for span in [10..20, 30..40, 15..35, 0..5, 40..45, 100..100] {
        spans.add(span);
    }
    assert_eq!(spans.bytes, 5 + 35);
    let dues = [due(0, 1, 10..20, 1), due(0, 1, 15..35, 1), due(0, 1, 50..60, 1)];
    let all: Vec<&PendingRecord> = dues.iter().collect();
    assert_eq!([covered(&all, 5), covered(&all, 18), covered(&all, 55)], [0, 8, 30]);
}

#[test]
fn a_slow_store_gets_a_step_at_a_time_unless_somebody_waits() {
    let mut patience = MergeWait::new(2);
    let slow = |now_ms| Conditions { slow: true, ..mood(now_ms) };
    let end = STEP_BYTES * 3;
    let both = [due(0, 1, 100..end, end / 2), due(1, 2, 0..end, end / 2 + 100)];
    assert_eq!(patience.choose(&both, mood(3)), below(end), "a fast one gets all");
    assert_eq!(patience.choose(&both, slow(3)), below(STEP_BYTES));
    let dense = [due(0, 1, 50..end, end - 50)];
    assert_eq!(patience.choose(&dense, slow(3)), below(50 + STEP_BYTES));
    assert_eq!(patience.choose(&[due(0, 1, 0..1000, 1000)], slow(3)), ALL, "less than a step");
    assert_eq!(patience.choose(&both, Conditions { urgent: true, ..slow(3) }), ALL);
    let whole = [PendingRecord { is_whole: true, ..due(0, 1, 0..end, end) }];
    assert_eq!(patience.choose(&whole, slow(3)), ALL, "what cannot be divided");
}

#[test]
fn small_records_of_a_group_wait_for_each_other() {
    let piece = |place: usize, number: u64| {
        let start = 4000 * number + 1000 * place as u64;
        PendingRecord { local_writers: 2, ..due(place, number + 1, start..start + 1000, 1000) }
    };
    let of = |place: usize, count: u64| (0..count).map(move |number| piece(place, number));
    let twins = |due: PendingRecord| {
        [due.clone(), PendingRecord { span: due.span.start + 2000..due.span.end + 2000, ..due }]
    };
    // Rank 0 writes 0..1000 and 2000..3000 of each 4000, rank 1 the rest.
    let mut all: Vec<PendingRecord> = of(0, 5).chain(of(1, 5)).flat_map(twins).collect();
    all.sort_by_key(|due| due.committed);
    let first: Vec<PendingRecord> = all.iter().filter(|due| due.outbox == 0).cloned().collect();
    let mut patience = MergeWait::new(1);
    assert_eq!(patience.choose(&joined(first.clone().into_iter()), mood(6)), ALL, "no second writer");
    let mut patience = MergeWait::new(1);
    assert_eq!(patience.choose(&joined(all.clone().into_iter()), mood(7)), below(20_000));
    // Known to be interleaved from now on.
    let DrainDecision::Wait { .. } = patience.choose(&joined(first.into_iter()), mood(8)) else {
        panic!("taken")
    };
    // One writer is faster: the bytes that both have committed are drained.
    all.retain(|due| due.outbox == 0 || due.span.end <= 12_000);
    assert_eq!(patience.choose(&joined(all.into_iter()), mood(9)), below(12_000));
}

#[test]
fn a_single_record_says_where_a_known_writer_is() {
    let mut patience = MergeWait::new(2);
    let pair = |end: u64| PendingRecord { local_writers: 2, ..due(0, 1, 0..end, end / 2) };
    let other = PendingRecord { local_writers: 2, ..due(1, 1, 1000..4000, 1500) };
    patience.choose(&[pair(4000), other], mood(2));
    let single = PendingRecord { local_writers: 2, ..due(1, 200, 5000..6000, 1000) };
    patience.choose(&[pair(40_000), single], mood(201));
    // It was seen at 200 ms, and is awaited until it has committed nothing for 250 ms.
    assert_eq!(patience.choose(&[pair(40_000)], mood(300)), wait(450));
}

#[test]
fn members_that_write_segments_of_their_own_are_not_kept() {
    let piece = |place: usize, number: u64| {
        let start = 1_000_000 * place as u64 + 4000 * number;
        PendingRecord { local_writers: 2, ..due(place, number + 1, start..start + 3000, 3000) }
    };
    let mut patience = MergeWait::new(1);
    let mut all: Vec<PendingRecord> =
        (0..2).flat_map(|place| (0..5).map(move |number| piece(place, number))).collect();
    all.sort_by_key(|due| due.committed);
    let first: Vec<PendingRecord> = all.iter().filter(|due| due.outbox == 0).cloned().collect();
    assert_eq!(
        patience.choose(&joined(first.into_iter()), mood(6)),
        ALL,
        "no writer was seen to fill its holes"
    );
    assert!(joined(all.clone().into_iter()).iter().all(PendingRecord::leaves_holes));
    assert_eq!(patience.choose(&joined(all.into_iter()), mood(7)), ALL);
}
