//! State that one server leaves to the next, through files of an in-memory disk.

#![expect(clippy::single_range_in_vec_init, reason = "a list of ranges is meant, which may have one")]

use pario_store::MemoryDisk;

use super::super::overwrites::LateVerdict;
use super::*;

const BOOT: &str = "0f0e0d0c-0b0a-0908-0706-050403020100";

fn spec() -> RestartLogSpec {
    RestartLogSpec {
        disk: Arc::new(MemoryDisk::new(Path::new("/"), 64 << 20)),
        path: PathBuf::from("/ahead"),
    }
}

fn object() -> ObjectId {
    ObjectId { inode: InodeId(0x0102), generation: Generation(3) }
}

fn begin(spec: &RestartLogSpec, now: u64) -> RestartLog {
    RestartLog::begin(spec, BOOT, Nanos(now)).unwrap()
}

fn put(lives: &mut RestartLog, bytes: std::ops::Range<u64>, committed: u64, now: u64) {
    let mut marks = lives.overwrites().and_then(Overwrites::new_ranges).expect("a successor that remembers");
    marks.add(object(), bytes, Nanos(committed));
    marks.stored();
    lives.note(marks, Nanos(now));
}

fn judged(lives: &RestartLog, session: u64, committed: u64) -> LateVerdict {
    let ahead = lives.overwrites().expect("a successor");
    ahead.drainable((SessionId(session), Nanos(committed)), object(), 0..30)
}

#[test]
fn the_first_life_remembers_nothing_and_the_next_ones_all() {
    let spec = spec();
    assert!(begin(&spec, 1).overwrites().is_none());
    let mut second = begin(&spec, 100);
    put(&mut second, 10..20, 50, 110);
    assert_eq!(judged(&second, 1, 40), LateVerdict::Drain(vec![0..10, 20..30]));
    drop(second);
    let mut third = begin(&spec, 200);
    put(&mut third, 0..5, 60, 210);
    drop(third);
    assert_eq!(judged(&begin(&spec, 300), 1, 40), LateVerdict::Drain(vec![5..10, 20..30]));
}

#[test]
fn a_first_life_that_ends_in_order_has_no_successor() {
    let spec = spec();
    begin(&spec, 1).end();
    assert!(begin(&spec, 100).overwrites().is_none());
    // A server that replaced another may end in order while clients are still disconnected.
    begin(&spec, 200).end();
    assert!(begin(&spec, 300).overwrites().is_some());
}

#[test]
fn nobody_outlives_the_machine() {
    let spec = spec();
    begin(&spec, 1);
    put(&mut begin(&spec, 100), 10..20, 50, 110);
    assert!(RestartLog::begin(&spec, "another boot", Nanos(5)).unwrap().overwrites().is_none());
}

#[test]
fn a_life_that_could_not_remember_says_so_to_all_that_follow() {
    let spec = spec();
    begin(&spec, 1);
    let mut second = begin(&spec, 100);
    second.attached(SessionId(1), Nanos(120));
    second.overwrites.as_mut().unwrap().drop_table();
    second.mark_incomplete();
    second.attached(SessionId(2), Nanos(140));
    drop(second);
    for now in [200, 300] {
        let life = begin(&spec, now);
        for (session, committed, known) in
            [(1, 119, false), (1, 121, true), (2, 139, false), (2, 141, true), (3, 199, false)]
        {
            let expected = if known { LateVerdict::Drain(vec![0..30]) } else { LateVerdict::Unknown };
            assert_eq!(
                judged(&life, session, committed),
                expected,
                "session {session} at {committed}, life of {now}"
            );
        }
    }
}

#[test]
fn what_was_cut_off_or_damaged_is_not_believed() {
    let spec = spec();
    begin(&spec, 1);
    put(&mut begin(&spec, 100), 10..20, 50, 110);
    let file = spec.disk.open(&spec.path, OpenMode::Write).unwrap();
    let length = file.length().unwrap();
    file.write_at(&[1, 0, 0, 0, 7], length).unwrap();
    assert_eq!(judged(&begin(&spec, 200), 1, 40), LateVerdict::Drain(vec![0..10, 20..30]), "half an entry");
    let file = spec.disk.open(&spec.path, OpenMode::Write).unwrap();
    file.write_at(&[9; ENTRY_BYTES], HEAD_BYTES as u64).unwrap();
    assert_eq!(judged(&begin(&spec, 300), 1, 40), LateVerdict::Unknown, "an entry that is none");
    let file = spec.disk.open(&spec.path, OpenMode::Write).unwrap();
    file.write_at(b"another string", 0).unwrap();
    assert_eq!(judged(&begin(&spec, 400), 1, 40), LateVerdict::Unknown, "another file");
}

#[test]
fn it_does_not_grow_without_end() {
    let spec = spec();
    begin(&spec, 1);
    let mut life = begin(&spec, 100);
    for round in 0..=ENTRIES_MAX {
        put(&mut life, 10..20, 200 + round, 200 + round);
    }
    let length = spec.disk.length(&spec.path).unwrap().unwrap();
    assert!(length < 10 * ENTRY_BYTES as u64, "{length} bytes for one stretch");
    drop(life);
    assert_eq!(judged(&begin(&spec, 1 << 20), 1, 199), LateVerdict::Drain(vec![0..10, 20..30]));
}

/// A full disk: entries that cannot be written must not be lost silently.
#[test]
fn where_it_cannot_be_written_late_records_are_refused() {
    let spec = RestartLogSpec {
        disk: Arc::new(MemoryDisk::new(Path::new("/"), 300)),
        path: PathBuf::from("/ahead"),
    };
    begin(&spec, 1);
    let mut life = begin(&spec, 100);
    for round in 0..10 {
        if life.overwrites().and_then(Overwrites::new_ranges).is_some() {
            put(&mut life, round * 20..round * 20 + 10, 200, 210);
        }
    }
    assert_eq!(judged(&life, 1, 40), LateVerdict::Unknown);
    drop(life);
    assert_eq!(
        judged(&begin(&spec, 300), 1, 40),
        LateVerdict::Unknown,
        "and by the next life, for which there is no room either"
    );
}

#[test]
fn a_direct_write_is_in_doubt_if_a_life_went_by_that_did_not_know_of_it() {
    let spec = spec();
    begin(&spec, 1);
    let covered = |lives: &RestartLog, session: u64, committed: u64| {
        lives.overwrites().unwrap().may_have_covered(
            (SessionId(session), Nanos(committed)),
            object(),
            &(0..10),
        )
    };
    let mut second = begin(&spec, 100);
    second.attached(SessionId(1), Nanos(120));
    assert!(!covered(&second, 2, 50), "the first life knew of all");
    drop(second);
    let third = begin(&spec, 200);
    assert!(!covered(&third, 1, 50), "the second life knew of it");
    assert!(covered(&third, 2, 50), "and not of this one");
    assert!(!covered(&third, 2, 250), "which is newer than anything that it put down");
}

#[test]
fn bytes_on_disk_are_pinned() {
    let written = CommitSpan { oldest: Nanos(5), newest: Nanos(6), stored_at: Nanos(7) };
    let lines = [
        RestartEntry::Mark(WrittenRange { object: object(), bytes: 8..9, written }),
        RestartEntry::Attached(SessionId(10), Nanos(11)),
        RestartEntry::Since(SessionId(12), Nanos(13)),
    ];
    let bytes = encode(&lines);
    let words: Vec<u64> = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let mark = [1 | 3 << 32, 0x0102, 8, 9, 5, 6, 7, 0];
    assert_eq!(words, [mark, [2, 10, 0, 0, 0, 0, 11, 0], [3, 12, 0, 0, 0, 0, 13, 0]].concat());
    let back: Option<Vec<RestartEntry>> = bytes.chunks(ENTRY_BYTES).map(decode).collect();
    assert_eq!(back.unwrap(), lines);
}
