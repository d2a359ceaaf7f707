//! A disk that fails on command, and the reaction of the names.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pario_core::{Code, Space};
use pario_store::RealDisk;
use pario_store::disk::{Disk, DiskFile, EntryKind, OpenMode};
use pario_sys::MemoryPiece;

use super::world::{LAZY, NamesFixture, code_of, eventually};
use crate::names::LedgerPace;

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
/// Short delays.
const QUICK: LedgerPace =
    LedgerPace { sync_after: Duration::from_millis(5), apply_after: Duration::from_millis(10), ..LAZY };

/// The enabled failures.
#[derive(Debug, Default)]
pub(super) struct DiskFaults {
    /// Half of a write to a log arrives, then the disk is full.
    pub(super) log_writes: AtomicBool,
    /// Syncs of logs.
    pub(super) log_syncs: AtomicBool,
    /// Writes to redb's file.
    pub(super) redb_writes: AtomicBool,
    /// The disk reports no free space.
    pub(super) no_space: AtomicBool,
    /// Writes to logs fail while the reserve is allocated, as on a disk that it fills.
    pub(super) full_but_for_the_reserve: AtomicBool,
    /// Syncs of logs so far.
    pub(super) log_syncs_seen: AtomicU64,
    /// Writes to logs so far.
    pub(super) log_writes_seen: AtomicU64,
}

#[derive(Debug)]
struct FaultyDisk(Arc<DiskFaults>);

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn DiskFile>,
    reserve: PathBuf,
    faults: Arc<DiskFaults>,
    is_log: bool,
}

pub(super) fn faulty() -> (Arc<dyn Disk>, Arc<DiskFaults>) {
    let faults = Arc::new(DiskFaults::default());
    (Arc::new(FaultyDisk(Arc::clone(&faults))), faults)
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::SeqCst)
}

impl Disk for FaultyDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        let (file, reserve) = (RealDisk.open(path, mode)?, path.with_file_name("names.reserve"));
        Ok(Arc::new(FaultyFile { file, reserve, faults: Arc::clone(&self.0), is_log }))
    }
    fn open_direct(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        RealDisk.open_direct(path, mode)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn make_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.make_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_dir(path)
    }
    fn list_dir(&self, path: &Path) -> io::Result<Vec<(OsString, EntryKind)>> {
        RealDisk.list_dir(path)
    }
    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        RealDisk.length(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }
    fn space(&self, path: &Path) -> io::Result<Space> {
        let space = RealDisk.space(path)?;
        Ok(if is_set(&self.0.no_space) { Space { free_bytes: 0, ..space } } else { space })
    }
    fn sync_all(&self, path: &Path) -> io::Result<()> {
        RealDisk.sync_all(path)
    }
}

impl DiskFile for FaultyFile {
    fn write_pieces_at(&self, pieces: &[MemoryPiece<'_>], offset: u64) -> io::Result<()> {
        self.file.write_pieces_at(pieces, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if self.is_log {
            self.faults.log_writes_seen.fetch_add(1, Ordering::SeqCst);
        }
        if self.is_log && is_set(&self.faults.log_writes) {
            self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        if self.is_log && is_set(&self.faults.full_but_for_the_reserve) && self.reserve.exists() {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        if !self.is_log && is_set(&self.faults.redb_writes) {
            return Err(io::Error::from_raw_os_error(EIO));
        }
        self.file.write_at(bytes, offset)
    }
    fn read_at(&self, target: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(target, offset)
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn length(&self) -> io::Result<u64> {
        self.file.length()
    }
    fn sync_data(&self) -> io::Result<()> {
        if self.is_log {
            self.faults.log_syncs_seen.fetch_add(1, Ordering::SeqCst);
            if is_set(&self.faults.log_syncs) {
                return Err(io::Error::from_raw_os_error(EIO));
            }
        }
        self.file.sync_data()
    }
    fn sync_all(&self) -> io::Result<()> {
        self.file.sync_all()
    }
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_log_that_is_full_refuses_the_change_and_leaves_no_trace() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(LAZY, disk);
    world.run("create before").unwrap();
    faults.log_writes.store(true, Ordering::SeqCst);
    let fault = world.run("create refused").unwrap_err();
    assert_eq!(fault.code, Code::NoSpace);
    assert!(fault.text.contains(".log"), "{fault}");
    assert_eq!(world.list("/").len(), 1);
    faults.log_writes.store(false, Ordering::SeqCst);
    world.run("create after").unwrap();
    world.reopen();
    let names: Vec<_> = world.list("/").into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, [&b"after"[..], b"before"]);
}

#[test]
fn a_kill_in_the_middle_of_a_write_loses_that_change_only() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(LAZY, disk);
    world.run("create before").unwrap();
    world.close();
    let log = std::fs::read_dir(world.dir.path().join("names")).unwrap().map(|entry| entry.unwrap().path());
    let log =
        log.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "log")).unwrap();
    let whole = std::fs::read(&log).unwrap();
    // Half of the record of "before" written again, as a torn write leaves it.
    std::fs::write(&log, [&whole[..], &whole[32..whole.len() - 100]].concat()).unwrap();
    world.reopen();
    assert_eq!(world.list("/").len(), 1);
    assert_eq!(faults.log_syncs_seen.load(Ordering::SeqCst), 2, "one head of each log");
}

#[test]
fn a_failure_of_redb_is_told_and_tried_again_while_reading_goes_on() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(QUICK, disk);
    world.run("create f").unwrap();
    eventually("the first rows are applied", || world.names().stats().ledger.memtable_bytes == 0);
    faults.redb_writes.store(true, Ordering::SeqCst);
    world.run("create g").unwrap();
    let mut told = None;
    eventually("the failure is told", || {
        told = world.run("create h").err();
        told.is_some()
    });
    assert_eq!(told.unwrap().code, Code::Io);
    faults.redb_writes.store(false, Ordering::SeqCst);
    eventually("everything is applied", || world.names().stats().ledger.memtable_bytes == 0);
    for name in ["f", "g"] {
        world.run(&format!("stat {name}")).unwrap();
    }
    world.run("create i").unwrap();
    world.sync().unwrap();
    world.reopen();
    world.run("stat i").unwrap();
}

#[test]
fn a_full_disk_is_told_and_redb_is_not_touched() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(QUICK, disk);
    faults.no_space.store(true, Ordering::SeqCst);
    faults.redb_writes.store(true, Ordering::SeqCst);
    let mut told = None;
    let mut number = 0;
    eventually("the failure is told", || {
        number += 1;
        told = world.run(&format!("create f{number}")).err();
        told.is_some()
    });
    assert_eq!(told.unwrap().code, Code::NoSpace);
    world.run("stat f1").unwrap();
    eventually("a sync tells it too", || world.sync().is_err_and(|fault| fault.code == Code::NoSpace));
    faults.no_space.store(false, Ordering::SeqCst);
    faults.redb_writes.store(false, Ordering::SeqCst);
    eventually("everything is applied", || world.names().stats().ledger.memtable_bytes == 0);
    world.run("stat f1").unwrap();
}

#[test]
fn a_full_disk_lets_files_be_removed_and_made_again_later() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(LedgerPace { reserve_bytes: 65536, ..QUICK }, disk);
    let reserve = world.dir.path().join("names/names.reserve");
    let inode = world.attr("create f").inode;
    eventually("the reserve is there", || {
        reserve.exists() && world.names().stats().ledger.memtable_bytes == 0
    });
    faults.no_space.store(true, Ordering::SeqCst);
    faults.full_but_for_the_reserve.store(true, Ordering::SeqCst);
    assert_eq!(code_of(world.run("create g")), Code::NoSpace);
    assert!(reserve.exists(), "making a file must not use up the reserve");
    world.run("remove f").unwrap();
    world.names().finish_remove(inode).unwrap();
    assert!(!reserve.exists());
    world.reopen();
    assert_eq!(world.list("/").len(), 0);
    faults.no_space.store(false, Ordering::SeqCst);
    faults.full_but_for_the_reserve.store(false, Ordering::SeqCst);
    eventually("files can be made again", || world.run("create g").is_ok());
    eventually("the reserve is there again", || reserve.exists());
}

#[test]
fn a_full_disk_can_be_opened_with_the_reserve() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(LedgerPace { reserve_bytes: 65536, ..LAZY }, disk);
    let reserve = world.dir.path().join("names/names.reserve");
    world.run("create f").unwrap();
    eventually("the reserve is there", || reserve.exists());
    world.close();
    faults.no_space.store(true, Ordering::SeqCst);
    faults.full_but_for_the_reserve.store(true, Ordering::SeqCst);
    world.reopen();
    assert!(!reserve.exists());
    world.run("remove f").unwrap();
}

#[test]
fn a_failed_sync_is_made_good_through_redb_not_by_another_sync() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(LAZY, disk);
    world.run("create f").unwrap();
    faults.log_syncs.store(true, Ordering::SeqCst);
    assert_eq!(world.sync().unwrap_err().code, Code::Io);
    // The next log cannot be created either, so no change may be reported durable.
    assert_eq!(world.sync().unwrap_err().code, Code::Io);
    faults.log_syncs.store(false, Ordering::SeqCst);
    eventually("an append gets through", || world.run("create g").is_ok());
    world.pace = QUICK;
    world.reopen();
    world.run("stat f").unwrap();
    world.sync().unwrap();
}

/// The applier creates a new log now and then. If that fails, the next sync reports it although the log that it should sync is intact; so a
/// failed sync proves a bad log only if it synced the log.
#[test]
fn a_failed_sync_heals_itself() {
    let (disk, faults) = faulty();
    // Only callers sync, so that every sync of a log is one of theirs.
    let mut world = NamesFixture::with(LedgerPace { sync_after: LAZY.sync_after, ..QUICK }, disk);
    world.run("create f").unwrap();
    eventually("everything is applied", || world.names().stats().ledger.memtable_bytes == 0);
    let before = world.names().stats().ledger;
    faults.log_syncs.store(true, Ordering::SeqCst);
    world.run("create g").unwrap();
    eventually("a sync of the log fails", || {
        let failed = world.sync().is_err();
        failed && before.syncs < world.names().stats().ledger.syncs
    });
    // No new log can be created, so nothing may have been applied, nor reported durable.
    assert_eq!(world.sync().unwrap_err().code, Code::Io);
    let failed = world.names().stats().ledger;
    assert_eq!((failed.applied, failed.unsynced), (before.applied, 1));
    faults.log_syncs.store(false, Ordering::SeqCst);
    eventually("a sync succeeds", || world.sync().is_ok());
    // The log could not be trusted any more: its records had been applied to the base before a sync could succeed.
    let healed = world.names().stats().ledger;
    assert_eq!(healed.unsynced, 0);
    assert!(before.applied < healed.applied, "{before:?} {healed:?}");
}

#[test]
fn one_change_is_one_write_and_many_syncs_share_one() {
    let (disk, faults) = faulty();
    let mut world = NamesFixture::with(LAZY, disk);
    let writes = || faults.log_writes_seen.load(Ordering::SeqCst);
    world.run("mkdir d").unwrap();
    for line in ["create d/f", "rename d/f f", "mkdir e", "symlink f l", "remove f", "rmdir e"] {
        let before = writes();
        world.run(line).unwrap();
        assert_eq!(writes() - before, 1, "{line}");
    }
    let before = writes();
    for line in ["stat d", "list d", "open l", "readlink l"] {
        let _ = world.run(line);
    }
    assert_eq!(writes(), before);
    let syncs_before = faults.log_syncs_seen.load(Ordering::SeqCst);
    let (sender, receiver) = crossbeam_channel::unbounded();
    for _ in 0..100 {
        let sender = sender.clone();
        world.names().sync(Box::new(move |result| sender.send(result).unwrap()));
    }
    for _ in 0..100 {
        receiver.recv_timeout(super::world::LIMIT).unwrap().unwrap();
    }
    assert_eq!(faults.log_syncs_seen.load(Ordering::SeqCst) - syncs_before, 1);
}
