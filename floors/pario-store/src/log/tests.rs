//! Containers against a plain model, after power cuts, kills and damage.

use std::path::Path;
use std::sync::Arc;

use pario_sys::file_map::Scattered;

use super::entry::ENTRY_BYTES;
use super::*;
use crate::recording::RecordingDisk;
use pario_core::SeededRandom;

const REACH: usize = 6000;

fn contents(container: &LogContainer) -> Vec<u8> {
    let mut bytes = vec![0xEE; usize::try_from(container.len()).unwrap() + 7];
    let count = container.read_at(&mut bytes, 0).unwrap();
    assert_eq!(count as u64, container.len());
    bytes.truncate(count);
    bytes
}

fn write_model(model: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    model.resize(model.len().max(at + bytes.len()), 0);
    model[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn what_one_writes_another_reads_and_the_newest_wins() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let container = LogContainer::create(&path).unwrap();
    assert!(matches!(LogContainer::create(&path), Err(LogError::Exists { .. })));
    let (one, two) = (container.writer(), container.writer());
    one.write_at(b"aaaaaaaaaa", 0).unwrap();
    two.write_at(b"bbb", 3).unwrap();
    one.write_at(b"c", 4).unwrap();
    two.write_at(b"zz", 20).unwrap();
    let expected = b"aaabcbaaaa\0\0\0\0\0\0\0\0\0\0zz";
    assert_eq!(contents(&container), expected);
    container.close().unwrap();
    let again = LogContainer::open(&path).unwrap();
    assert_eq!(again.len(), 22);
    let writer = again.writer();
    writer.write_at(b"D", 0).unwrap();
    assert_eq!(contents(&again), b"Daabcbaaaa\0\0\0\0\0\0\0\0\0\0zz");
    again.set_len(5).unwrap();
    writer.write_at(b"e", 6).unwrap();
    assert_eq!(contents(&again), b"Daabc\0e");
    let mut target = [9; 4];
    assert_eq!(again.read_at(&mut target, 7).unwrap(), 0);
    assert_eq!(again.read_at(&mut target, u64::MAX).unwrap(), 0);
    assert!(matches!(writer.write_at(b"x", u64::MAX - 1), Err(LogError::TooLarge { .. })));
    assert!(matches!(again.set_len(u64::MAX), Err(LogError::TooLarge { .. })));
    again.close().unwrap();
    assert!(matches!(writer.write_at(b"x", 0), Err(LogError::Closed { .. })));
    assert_eq!(contents(&LogContainer::open(&path).unwrap()), b"Daabc\0e");
}

#[test]
fn pieces_at_equal_distances_are_one_entry_also_between_threads() {
    let dir = tempfile::tempdir().unwrap();
    let container = LogContainer::create(&dir.path().join("c")).unwrap();
    let writers: Vec<LogWriter> = (0..4).map(|_| container.writer()).collect();
    for row in 0..1000u64 {
        for (number, writer) in (0u8..).zip(&writers) {
            writer.write_at(&[number + 1; 40], row * 160 + u64::from(number) * 40).unwrap();
        }
    }
    let found = contents(&container);
    assert!((1u8..=4).cycle().zip(found.chunks(40)).all(|(value, piece)| piece == [value; 40]));
    container.close().unwrap();
    for number in 1..=4 {
        let index = std::fs::metadata(dir.path().join(format!("c/{number:08x}-index"))).unwrap().len();
        assert_eq!(index, 2 * ENTRY_BYTES as u64, "a head and one entry");
    }
    assert_eq!(contents(&LogContainer::open(&dir.path().join("c")).unwrap()), found);
}

#[test]
fn a_piece_that_would_hide_a_newer_one_is_an_entry_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let container = LogContainer::create(&dir.path().join("c")).unwrap();
    let (one, two) = (container.writer(), container.writer());
    one.write_at(b"11", 0).unwrap();
    two.write_at(b"22222222", 0).unwrap();
    one.write_at(b"11", 4).unwrap();
    two.write_at(b"2", 8).unwrap();
    container.set_len(7).unwrap();
    two.write_at(b"2", 9).unwrap();
    assert_eq!(contents(&container), b"2222112\0\x002");
    container.close().unwrap();
    assert_eq!(contents(&LogContainer::open(&dir.path().join("c")).unwrap()), b"2222112\0\x002");
}

#[test]
fn reading_what_was_just_written_reads_no_index_and_a_summary_saves_reading_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let container = LogContainer::create(&path).unwrap();
    container.writer().write_at(&[7; 5000], 0).unwrap();
    assert!(!std::fs::exists(path.join("summary")).unwrap());
    assert_eq!(std::fs::metadata(path.join("00000001-index")).unwrap().len(), 0, "not written yet");
    assert_eq!(contents(&container), [7; 5000]);
    container.close().unwrap();
    // Length and appending need no index; a damaged one is noticed by the first read.
    let index = std::fs::read(path.join("00000001-index")).unwrap();
    std::fs::write(path.join("00000001-index"), vec![0; index.len()]).unwrap();
    let again = LogContainer::open(&path).unwrap();
    assert_eq!((again.len(), again.findings().len()), (5000, 0));
    assert_eq!(contents(&again), [0; 5000]);
    drop(again);
    std::fs::remove_file(path.join("summary")).unwrap();
    let torn = LogContainer::open(&path).unwrap();
    assert_eq!(torn.len(), 0);
    let lines: Vec<String> = torn.findings().iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], "writer 00000001: 2 torn index entries were dropped");
}

#[test]
fn two_handles_see_each_other_at_sync_and_at_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let one = LogContainer::create(&path).unwrap();
    let two = LogContainer::open(&path).unwrap();
    let (first, second) = (one.writer(), two.writer());
    first.write_at(b"first", 0).unwrap();
    assert_eq!(two.len(), 0);
    one.sync().unwrap();
    two.sync().unwrap();
    assert_eq!(contents(&two), b"first");
    second.write_at(b"SEC", 1).unwrap();
    second.write_at(b"!", 7).unwrap();
    two.sync().unwrap();
    first.write_at(b"_", 2).unwrap();
    one.sync().unwrap();
    two.sync().unwrap();
    for container in [&one, &two, &LogContainer::open(&path).unwrap()] {
        assert_eq!(contents(container), b"fS_Ct\0\0!");
    }
    one.close().unwrap();
    two.close().unwrap();
    assert_eq!(contents(&LogContainer::open(&path).unwrap()), b"fS_Ct\0\0!");
}

/// Random writes by several writers, cuts, syncs and reopenings against a byte array. `PARIO_SEED` repeats one case.
#[test]
fn it_equals_a_byte_array() {
    let given: Option<u64> = std::env::var("PARIO_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in given.map_or(0..150, |seed| seed..seed + 1) {
        random_case(seed);
    }
}

fn random_case(seed: u64) {
    let mut random = SeededRandom::new(seed);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c");
    let flush = if random.coin() { IndexFlush::EachWrite } else { IndexFlush::PerMebibyte };
    let options = LogOptions { flush, ..LogOptions::default() };
    let mut container = LogContainer::create_with(&options, &path).unwrap();
    let mut writers: Vec<LogWriter> = (0..3).map(|_| container.writer()).collect();
    let mut model: Vec<u8> = Vec::new();
    for step in 0..80 {
        let (at, value) = (random.index(REACH), random.next_u64().to_le_bytes()[0]);
        let writer = &writers[random.index(3)];
        match random.below(12) {
            0..=4 => {
                let bytes = vec![value; 1 + random.index(800)];
                writer.write_at(&bytes, at as u64).unwrap();
                write_model(&mut model, at, &bytes);
            }
            5 | 6 => {
                let (bytes, stride, count) =
                    (vec![value; 1 + random.index(20)], 20 + random.index(30), random.index(30));
                let places: Vec<usize> = (0..count).map(|number| at + number * stride).collect();
                let pieces: Vec<Scattered<'_>> =
                    places.iter().map(|at| Scattered { at: *at as u64, bytes: &bytes }).collect();
                writer.write_scattered(&pieces).unwrap();
                places.iter().for_each(|at| write_model(&mut model, *at, &bytes));
            }
            7 => {
                container.set_len(at as u64).unwrap();
                model.resize(at, 0);
            }
            8 => container.sync().unwrap(),
            9 => {
                let mut target = vec![0xEE; random.index(3000)];
                let count = container.read_at(&mut target, at as u64).unwrap();
                let rest = model.get(at..).unwrap_or_default();
                let expected = &rest[..rest.len().min(target.len())];
                assert!(target[..count] == *expected, "PARIO_SEED={seed}, step {step}: read at {at}");
            }
            10 => {
                writers.clear();
                container.close().unwrap();
                if random.coin() {
                    let _ = std::fs::remove_file(path.join("summary"));
                }
                container = LogContainer::open_with(&options, &path).unwrap();
                assert_eq!(container.findings(), [], "PARIO_SEED={seed}, step {step}");
                writers.extend((0..3).map(|_| container.writer()));
            }
            _ => assert!(contents(&container) == model, "PARIO_SEED={seed}, step {step}"),
        }
    }
    assert!(contents(&container) == model, "PARIO_SEED={seed}, at the end");
}

/// After every event of a recorded history and a power cut there, what was synced last is read, with or without later writes.
#[test]
fn what_was_synced_survives_a_power_cut() {
    for seed in 0..25 {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(RecordingDisk::new(dir.path()).unwrap());
        let path = dir.path().join("c");
        let options = LogOptions { disk: Arc::<RecordingDisk>::clone(&disk), ..LogOptions::default() };
        let container = LogContainer::create_with(&options, &path).unwrap();
        let writers = [container.writer(), container.writer()];
        let mut random = SeededRandom::new(seed);
        let mut states = vec![Vec::new()];
        let mut synced: Vec<(usize, usize)> = Vec::new();
        for step in 0..30 {
            if random.below(3) == 0 {
                container.sync().unwrap();
                synced.push((disk.events(), states.len() - 1));
                continue;
            }
            let mut next: Vec<u8> = states[states.len() - 1].clone();
            let (at, bytes) = (random.index(3000), vec![step + 1; 1 + random.index(3000)]);
            writers[random.index(2)].write_at(&bytes, at as u64).unwrap();
            write_model(&mut next, at, &bytes);
            states.push(next);
        }
        container.close().unwrap();
        for _ in 0..12 {
            let (events, luck) = (random.index(disk.events() + 1), random.next_u64());
            let target = tempfile::tempdir().unwrap();
            disk.power_cut(events, luck, target.path()).unwrap();
            let last = synced.iter().rev().find(|(since, _)| *since <= events).map(|(_, state)| *state);
            let Some(last) = last else { continue };
            let again = LogContainer::open(&target.path().join("c")).unwrap();
            check_whole_or_not(
                &contents(&again),
                &states[last..],
                &format!("seed {seed}, {events} events, {luck}"),
            );
        }
    }
}

/// Every byte is of the synced state, or of a later write; and a write is there whole or not at all, as far as later ones do not hide it.
fn check_whole_or_not(found: &[u8], states: &[Vec<u8>], case: &str) {
    let synced = &states[0];
    assert!(synced.len() <= found.len(), "{case}: shorter than what was synced");
    for (at, byte) in found.iter().enumerate() {
        let possible = |state: &Vec<u8>| state.get(at).copied().unwrap_or(0) == *byte;
        assert!(states.iter().any(possible), "{case}: byte {at} is {byte}");
    }
    for pair in states.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let old = |at: usize| before.get(at).copied().unwrap_or(0);
        let written: Vec<usize> = (0..after.len()).filter(|at| after[*at] != old(*at)).collect();
        let Some(value) = written.first().map(|at| after[*at]) else { continue };
        let is_last = |at: &usize| states[states.len() - 1][*at] == value;
        let shown: Vec<usize> = written.into_iter().filter(is_last).collect();
        let present = shown.iter().filter(|at| found.get(**at) == Some(&value)).count();
        assert!(
            present == 0 || present == shown.len(),
            "{case}: {present} of {} bytes of write {value}",
            shown.len()
        );
    }
}

/// Copies the files of a container.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A small container without a summary, and its states after each write.
fn small(path: &Path) -> Vec<Vec<u8>> {
    let options = LogOptions { flush: IndexFlush::EachWrite, ..LogOptions::default() };
    let container = LogContainer::create_with(&options, path).unwrap();
    let writer = container.writer();
    let mut states = vec![Vec::new()];
    for step in 0..6u8 {
        let mut next = states[states.len() - 1].clone();
        let at = usize::from(step) * 10;
        writer.write_at(&[step + 1; 25], at as u64).unwrap();
        write_model(&mut next, at, &[step + 1; 25]);
        states.push(next);
    }
    drop((writer, container));
    std::fs::remove_file(path.join("summary")).unwrap();
    states
}

#[test]
fn every_cut_of_an_index_or_a_log_leaves_whole_writes() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    let states = small(&good);
    for (name, per_write, before) in [("00000001-index", ENTRY_BYTES, ENTRY_BYTES), ("00000001-data", 25, 0)]
    {
        let whole = std::fs::metadata(good.join(name)).unwrap().len();
        for length in 0..whole {
            let path = dir.path().join(format!("{name}-{length}"));
            copy(&good, &path);
            std::fs::File::options().write(true).open(path.join(name)).unwrap().set_len(length).unwrap();
            let container = LogContainer::open(&path).unwrap();
            let kept = usize::try_from(length).unwrap().saturating_sub(before) / per_write;
            assert_eq!(contents(&container), states[kept], "{name} cut at {length}");
            assert!(
                !container.findings().is_empty() || length.is_multiple_of(64),
                "{name} cut at {length} is told"
            );
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn a_changed_byte_of_an_index_costs_one_entry() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    small(&good);
    let index = std::fs::read(good.join("00000001-index")).unwrap();
    for at in (0..index.len()).step_by(7) {
        let path = dir.path().join(format!("{at}"));
        copy(&good, &path);
        let mut index = index.clone();
        index[at] ^= 0x40;
        std::fs::write(path.join("00000001-index"), index).unwrap();
        let container = LogContainer::open(&path).unwrap();
        let found = contents(&container);
        assert_eq!(container.findings()[0].kind, FindingKind::Torn { entries: 1 });
        let lost = u8::try_from(at / ENTRY_BYTES).unwrap();
        assert!(!found.contains(&lost) || lost == 0, "entry {lost} does not count");
        for value in (1..=6).filter(|value| *value != lost) {
            assert!(found.contains(&value), "write {value} is there without entry {lost}");
        }
        std::fs::remove_dir_all(path).unwrap();
    }
}

#[test]
fn two_writers_of_one_number_are_told_and_wrong_bytes_are_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    small(&one);
    let container = LogContainer::create(&two).unwrap();
    container.writer().write_at(&[99; 25], 500).unwrap();
    container.close().unwrap();
    // The second writer overwrote the first bytes of the log, and its entry came behind those of the first.
    let mut index = std::fs::read(one.join("00000001-index")).unwrap();
    index.extend(std::fs::read(two.join("00000001-index")).unwrap());
    std::fs::write(one.join("00000001-index"), index).unwrap();
    let mut data = std::fs::read(one.join("00000001-data")).unwrap();
    data[..25].fill(99);
    std::fs::write(one.join("00000001-data"), data).unwrap();
    let container = LogContainer::open(&one).unwrap();
    let kinds: Vec<FindingKind> = container.findings().iter().map(|finding| finding.kind).collect();
    assert_eq!(kinds, [FindingKind::Lost { entries: 1 }, FindingKind::TwoWriters { entries: 2 }]);
    let found = contents(&container);
    assert_eq!(
        (found[0], found[10], found[500]),
        (0, 2, 99),
        "the overwritten piece is absent, the others are whole"
    );
}

/// Writes until it is killed; run by the test below in a process of its own.
#[test]
fn kill_helper() {
    let Some(path) = std::env::var_os("PARIO_TEST_LOG_VICTIM") else { return };
    let container = LogContainer::create(Path::new(&path)).unwrap();
    let writer = container.writer();
    for round in 0..u64::MAX {
        let value = (round % 250 + 1).to_le_bytes()[0];
        writer.write_at(&[value; 3000], round * 3000).unwrap();
        if round.is_multiple_of(50) {
            container.sync().unwrap();
            std::fs::write(Path::new(&path).with_extension("synced"), (round * 3000 + 3000).to_string())
                .unwrap();
        }
    }
}

#[test]
fn a_killed_process_leaves_what_it_synced_and_whole_writes() {
    use std::process::{Command, Stdio};
    for round in 0..4 {
        let dir = tempfile::tempdir().unwrap();
        let (path, note) = (dir.path().join("c"), dir.path().join("c.synced"));
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "log::tests::kill_helper", "--nocapture"])
            .env("PARIO_TEST_LOG_VICTIM", &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let synced =
            || std::fs::read_to_string(&note).ok().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        while synced() < 150_000 * (round + 1) {
            assert!(victim.try_wait().unwrap().is_none(), "the victim ended by itself");
            std::thread::park_timeout(std::time::Duration::from_millis(2));
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        let promised = synced();
        let container = LogContainer::open(&path).unwrap();
        assert!(
            promised <= container.len() && container.len().is_multiple_of(3000),
            "{} of {promised}",
            container.len()
        );
        let found = contents(&container);
        let right =
            |(number, piece): (usize, &[u8])| piece.iter().all(|byte| usize::from(*byte) == number % 250 + 1);
        assert!(found.chunks(3000).enumerate().all(right));
    }
}

#[test]
fn threads_write_beside_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let container = LogContainer::create(&dir.path().join("c")).unwrap();
    std::thread::scope(|scope| {
        for number in 0..4u64 {
            let (writer, container) = (container.writer(), &container);
            scope.spawn(move || {
                for row in 0..300 {
                    let at = (row * 4 + number) * 1000;
                    let value = (number + 1).to_le_bytes()[0];
                    writer.write_at(&[value; 1000], at).unwrap();
                    let mut back = [0; 1000];
                    container.read_at(&mut back, at).unwrap();
                    assert_eq!(back, [value; 1000]);
                    if row % 50 == 0 {
                        container.sync().unwrap();
                    }
                }
            });
        }
    });
    let found = contents(&container);
    assert!(found.chunks(1000).enumerate().all(|(number, piece)| usize::from(piece[0]) == number % 4 + 1));
    assert_eq!(found.len(), 1_200_000);
}
