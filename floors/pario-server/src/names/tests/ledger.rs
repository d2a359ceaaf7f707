//! The ledger alone: random rows against a plain map, over restarts, with several limits.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pario_core::{Code, Fault};
use pario_store::RealDisk;
use proptest::prelude::*;

use super::world::{LAZY, LIMIT, eventually};
use crate::names::batch::Batch;
use crate::names::{Ledger, LedgerPace};

type RowMap = BTreeMap<Vec<u8>, Vec<u8>>;

/// Memtables of a few rows, so that applying and appending run side by side all the time.
const TINY: LedgerPace = LedgerPace { apply_bytes: 300, memtable_bytes_max: 900, ..LAZY };

#[derive(Clone, Debug)]
enum LedgerStep {
    Append(Vec<(u8, Option<u8>)>),
    Page { prefix: bool, after: Option<u8>, limit: usize },
    Sync,
    Reopen,
    ShutDown,
}

fn any_step() -> impl Strategy<Value = LedgerStep> {
    let row = (0u8..40, proptest::option::weighted(0.7, any::<u8>()));
    prop_oneof![
        8 => proptest::collection::vec(row, 1..6).prop_map(LedgerStep::Append),
        2 => (any::<bool>(), proptest::option::of(0u8..40), 1usize..20)
            .prop_map(|(prefix, after, limit)| LedgerStep::Page { prefix, after, limit }),
        1 => Just(LedgerStep::Sync),
        1 => Just(LedgerStep::Reopen),
        1 => Just(LedgerStep::ShutDown),
    ]
}

fn key(number: u8) -> Vec<u8> {
    vec![b'k', number / 10, number]
}

fn open(dir: &Path, pace: LedgerPace) -> Ledger {
    Ledger::open(RealDisk::shared(), dir, pace).unwrap()
}

fn append(ledger: &mut Ledger, model: &mut RowMap, rows: &[(u8, Option<u8>)]) {
    let mut batch = Batch::default();
    for (number, value) in rows {
        match value {
            Some(value) => {
                batch.put(&key(*number), &[*value; 20]);
                model.insert(key(*number), vec![*value; 20]);
            }
            None => {
                batch.delete(&key(*number));
                model.remove(&key(*number));
            }
        }
    }
    ledger.append(&batch).unwrap();
}

fn sync(ledger: &Ledger) -> Result<(), Fault> {
    let (sender, receiver) = std::sync::mpsc::channel();
    ledger.sync(Box::new(move |result| sender.send(result).unwrap()));
    receiver.recv_timeout(LIMIT).expect("a sync is answered")
}

fn check_page(ledger: &Ledger, model: &RowMap, (prefix, after, limit): (bool, Option<u8>, usize)) {
    let prefix = if prefix { vec![b'k', 2] } else { vec![b'k'] };
    let after = after.map(key).filter(|after| after.starts_with(&prefix));
    let page = ledger.page(&prefix, after.as_deref(), limit).unwrap();
    let behind = |key: &Vec<u8>| key.starts_with(&prefix) && after.as_ref().is_none_or(|after| after < key);
    let expected: Vec<_> =
        model.iter().filter(|(key, _)| behind(key)).map(|(k, v)| (k.clone(), v.clone())).collect();
    assert_eq!(page.rows, expected[..limit.min(expected.len())]);
    assert_eq!(page.more, limit < expected.len());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn holds_what_a_map_holds(steps in proptest::collection::vec(any_step(), 1..60), tiny in any::<bool>()) {
        let dir = tempfile::tempdir().unwrap();
        let pace = if tiny { TINY } else { LAZY };
        let mut ledger = open(dir.path(), pace);
        let mut model = RowMap::new();
        for step in steps {
            match step {
                LedgerStep::Append(rows) => append(&mut ledger, &mut model, &rows),
                LedgerStep::Page { prefix, after, limit } => check_page(&ledger, &model, (prefix, after, limit)),
                LedgerStep::Sync => sync(&ledger).unwrap(),
                LedgerStep::Reopen => {
                    drop(ledger);
                    ledger = open(dir.path(), pace);
                }
                LedgerStep::ShutDown => {
                    ledger.shut_down().unwrap();
                    let files = std::fs::read_dir(dir.path()).unwrap().count();
                    prop_assert_eq!(files, 1, "only redb is left");
                    ledger = open(dir.path(), pace);
                }
            }
            for number in 0..40 {
                prop_assert_eq!(ledger.get(&key(number)).unwrap(), model.get(&key(number)).cloned());
            }
        }
    }
}

#[test]
fn syncs_and_applies_on_its_own_and_then_rests() {
    let dir = tempfile::tempdir().unwrap();
    let pace =
        LedgerPace { sync_after: Duration::from_millis(20), apply_after: Duration::from_millis(100), ..LAZY };
    let mut ledger = open(dir.path(), pace);
    append(&mut ledger, &mut RowMap::new(), &[(1, Some(1))]);
    eventually("the batch is synced", || ledger.stats().unsynced == 0);
    eventually("the batch is applied", || ledger.stats().memtable_bytes == 0);
    let stats = ledger.stats();
    assert_eq!((stats.applied, stats.appends), (1, 1));
    eventually("the old log is removed", || std::fs::read_dir(dir.path()).unwrap().count() == 2);
}

#[test]
fn memory_is_bounded_while_appending_outruns_applying() {
    let dir = tempfile::tempdir().unwrap();
    let pace = LedgerPace { apply_bytes: 20_000, memtable_bytes_max: 40_000, ..LAZY };
    let mut ledger = open(dir.path(), pace);
    for number in 0..5_000u32 {
        let mut batch = Batch::default();
        batch.put(&number.to_be_bytes(), &[7; 100]);
        ledger.append(&batch).unwrap();
        assert!(ledger.stats().memtable_bytes <= 2 * 41_000, "{:?}", ledger.stats());
    }
    assert_eq!(ledger.page(b"", None, 10_000).unwrap().rows.len(), 5_000);
}

/// Each record is stored twice: one flipped bit costs nothing, a flipped bit in each of the two costs that change, and is reported.
#[test]
fn damage_to_what_was_synced_is_made_good_by_its_twin_or_counted() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = open(dir.path(), LAZY);
    append(&mut ledger, &mut RowMap::new(), &[(1, Some(1))]);
    sync(&ledger).unwrap();
    append(&mut ledger, &mut RowMap::new(), &[(2, Some(2))]);
    drop(ledger);
    let log = dir.path().join("names.000000000001.log");
    let good = std::fs::read(&log).unwrap();
    for (twins, lost) in [(vec![70], 0), (vec![70, 135], 1)] {
        let trial = tempfile::tempdir().unwrap();
        std::fs::copy(dir.path().join("names.redb"), trial.path().join("names.redb")).unwrap();
        let mut bytes = good.clone();
        twins.iter().for_each(|at| bytes[*at] ^= 1);
        std::fs::write(trial.path().join("names.000000000001.log"), &bytes).unwrap();
        let ledger = open(trial.path(), LAZY);
        assert_eq!(ledger.recovery().lost_changes, lost, "{:?}", ledger.recovery());
        assert_eq!(ledger.get(&key(1)).unwrap().is_some(), lost == 0);
        assert_eq!(ledger.get(&key(2)).unwrap(), Some(vec![2; 20]), "what follows counts");
        assert_eq!(ledger.recovery().notes.len(), 1);
    }
}

#[test]
fn a_change_that_is_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut ledger = open(dir.path(), LAZY);
    let mut batch = Batch::default();
    batch.put(b"k", &vec![0; 9 << 20]);
    assert_eq!(ledger.append(&batch).unwrap_err().code, Code::TooLarge);
    assert_eq!(ledger.get(b"k").unwrap(), None);
}
