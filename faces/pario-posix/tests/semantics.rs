//! The semantics without a kernel: two file systems on one partition, random histories against a model, and tables.
//!
//! `PARIO_SEED` repeats a history, `PARIO_HISTORIES` says how many are run.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use pario::Partition;
use pario::core::{Clock, FileAttr, FileKind, InodeId};
use pario::message::{Creator, XattrHow};
use pario_posix::FileSystem;
use pario_posix::semantics::{
    AttributeChange, DirName, HandleMode, LockCall, LockRange, PosixLockKind, PosixLockWait, PosixResult,
    RenameMode, SpecialFile, WriteOrder,
};
use rustix::io::Errno;

const ROOT: InodeId = InodeId::ROOT;

fn by(mode: u32) -> Creator {
    Creator { mode, uid: 1000, gid: 100 }
}

fn named(name: &[u8]) -> DirName<'_> {
    DirName { dir: ROOT, name }
}

const WRITE: HandleMode =
    HandleMode { write: true, exclusive: false, truncate: false, drop_privileges: false };

fn two() -> (Partition, FileSystem, FileSystem) {
    let partition = Partition::in_process(2).unwrap();
    let systems = (FileSystem::new(&partition, "one"), FileSystem::new(&partition, "two"));
    (partition, systems.0, systems.1)
}

fn make(system: &FileSystem, name: &[u8], data: &[u8]) -> FileAttr {
    let (attr, handle) = system.create(named(name), WRITE, by(0o640)).unwrap();
    system.write(handle, WriteOrder::At(0), data, false).unwrap();
    system.release(handle).unwrap();
    attr
}

fn content(system: &FileSystem, inode: InodeId) -> PosixResult<Vec<u8>> {
    let handle = system.open(inode, HandleMode::default())?;
    let mut data = vec![0; 1 << 16];
    let count = system.read(handle, 0, &mut data)?;
    system.release(handle)?;
    data.truncate(count);
    Ok(data)
}

#[test]
fn owner_mode_and_group_are_the_callers() {
    let (_partition, one, two) = two();
    let attr = make(&one, b"f", b"abc");
    assert_eq!((attr.uid, attr.gid, attr.mode), (1000, 100, 0o640));
    let dir = one.make_dir(named(b"d"), by(0o2770)).unwrap();
    let inside = two
        .make_dir(DirName { dir: dir.inode, name: b"e" }, Creator { mode: 0o755, uid: 1, gid: 2 })
        .unwrap();
    assert_eq!((inside.uid, inside.gid, inside.mode), (1, 100, 0o2755));
    let special = SpecialFile { kind: FileKind::BlockDevice, device: 0x801 };
    let device = one.make_node(named(b"b"), special, by(0o600)).unwrap();
    assert_eq!((device.kind, device.size), (FileKind::BlockDevice, 0x801));
    assert_eq!(two.lookup(ROOT, b"b").unwrap(), device);
}

#[test]
fn a_writer_without_rights_drops_the_bits_that_give_rights() {
    let (_partition, one, _two) = two();
    let file = make(&one, b"f", b"abc").inode;
    let chmod = |mode| AttributeChange { mode: Some(mode), ..AttributeChange::default() };
    for (before, after) in [(0o6755, 0o755), (0o4644, 0o644), (0o2644, 0o2644), (0o2755, 0o755)] {
        let handle = one.open(file, WRITE).unwrap();
        // After the open: the handle has to look again.
        one.set_attributes(file, None, &chmod(before)).unwrap();
        one.write(handle, WriteOrder::At(0), b"x", false).unwrap();
        assert_eq!(one.attributes(file).unwrap().mode, before, "root keeps them");
        one.write(handle, WriteOrder::At(0), b"x", true).unwrap();
        assert_eq!(one.attributes(file).unwrap().mode, after);
        one.release(handle).unwrap();
        one.set_attributes(file, None, &chmod(before)).unwrap();
        let change = AttributeChange { size: Some(1), drop_privileges: true, ..AttributeChange::default() };
        assert_eq!(one.set_attributes(file, None, &change).unwrap().mode, after);
    }
}

#[test]
fn a_time_that_a_program_sets_stays() {
    let (_partition, one, two) = two();
    let (attr, handle) = one.create(named(b"f"), WRITE, by(0o644)).unwrap();
    one.write(handle, WriteOrder::At(0), b"abc", false).unwrap();
    let written = one.attributes(attr.inode).unwrap();
    assert!((attr.modified_ns..).contains(&written.modified_ns) && written.size == 3);
    assert_eq!(one.attributes(attr.inode).unwrap(), written, "nothing was written since");
    one.write(handle, WriteOrder::At(3), b"def", false).unwrap();
    let then = AttributeChange { modified_ns: Some(5), accessed_ns: Some(6), ..AttributeChange::default() };
    // Through the other one: the writer's lease is recalled first.
    let set = two.set_attributes(attr.inode, None, &then).unwrap();
    assert_eq!((set.modified_ns, set.accessed_ns, set.size), (5, 6, 6));
    one.flush(handle, 1).unwrap();
    one.release(handle).unwrap();
    let after = two.attributes(attr.inode).unwrap();
    assert_eq!((after.modified_ns, after.accessed_ns), (5, 6));
}

#[test]
fn an_open_file_without_a_name_lives_until_it_is_released() {
    let (_partition, one, two) = two();
    let file = make(&one, b"f", b"abc").inode;
    let handle = one.open(file, WRITE).unwrap();
    two.unlink(ROOT, b"f").unwrap();
    assert_eq!(one.lookup(ROOT, b"f"), Err(Errno::NOENT));
    one.write(handle, WriteOrder::At(3), b"def", false).unwrap();
    assert_eq!((one.attributes(file).unwrap().links, one.attributes(file).unwrap().size), (0, 6));
    let again = one.open(file, HandleMode::default()).unwrap();
    let mut data = [0; 8];
    assert_eq!((one.read(again, 0, &mut data), &data[..6]), (Ok(6), &b"abcdef"[..]));
    let cut = AttributeChange { size: Some(2), ..AttributeChange::default() };
    assert_eq!(one.set_attributes(file, Some(handle), &cut).unwrap().size, 2);
    one.release(again).unwrap();
    one.release(handle).unwrap();
    assert_eq!(one.open_files(), 0);
    // The manager receives the last close a little later.
    let limit = std::time::Duration::from_secs(10);
    let (clock, began) = (pario::MonotonicClock, pario::MonotonicClock.now());
    while let Ok(handle) = two.open(file, HandleMode::default()) {
        two.release(handle).unwrap();
        assert!(clock.now().since(began) < limit, "the file is not removed");
    }
}

#[test]
fn positions_in_a_directory_stay_valid() {
    let (_partition, one, two) = two();
    for number in 0..3000 {
        make(&one, format!("f{number:04}").as_bytes(), b"");
    }
    let handle = one.open_dir(ROOT);
    let (mut names, mut position) = (Vec::new(), 0);
    loop {
        let (before, mut left) = (names.len(), 7);
        one.read_dir(handle, position, |entry, next| {
            position = next;
            names.push(entry.name.clone());
            left -= 1;
            0 < left
        })
        .unwrap();
        if names.len() == before {
            break;
        }
        // Names come and go meanwhile, by another node, too.
        if names.len() < 2500 {
            two.unlink(ROOT, &names[names.len() - 1]).ok();
        }
    }
    assert_eq!((names.len(), &names[0][..], &names[1][..]), (3002, &b"."[..], &b".."[..]));
    assert!(names[2..].is_sorted(), "each name once");
    let mut first = Vec::new();
    one.read_dir(handle, 0, |entry, _| {
        first.push(entry.name.clone());
        true
    })
    .unwrap();
    assert!(first.len() < 3002, "from the start the directory is listed anew");
    let mut third = Vec::new();
    one.read_dir(handle, 2, |entry, _| {
        third = entry.name.clone();
        false
    })
    .unwrap();
    assert_eq!(third, first[2]);
    one.release_dir(handle).unwrap();
    assert_eq!(one.release_dir(handle), Err(Errno::BADF));
}

#[test]
fn extended_attributes_of_programs_and_of_pario() {
    let (_partition, one, two) = two();
    let file = make(&one, b"f", b"abc").inode;
    one.set_xattr(file, b"user.a", b"value", XattrHow::Create {}).unwrap();
    assert_eq!(two.xattr(file, b"user.a"), Ok(b"value".to_vec()));
    assert_eq!(two.xattr_names(file), Ok(b"user.a\0".to_vec()));
    assert_eq!(one.set_xattr(file, b"user.a", b"", XattrHow::Create {}), Err(Errno::EXIST));
    assert_eq!(one.remove_xattr(file, b"user.b"), Err(Errno::NODATA));
    assert_eq!(one.xattr(file, b"user.pario.inode"), Ok(file.to_string().into_bytes()));
    assert_eq!(one.set_xattr(file, b"user.pario.inode", b"", XattrHow::Any {}), Err(Errno::PERM));
    assert_eq!(one.xattr(file, b"system.posix_acl_access"), Err(Errno::OPNOTSUPP));
}

fn lock(owner: u64, start: u64, end: u64, kind: PosixLockKind) -> LockCall {
    LockCall { owner, pid: u32::try_from(owner).unwrap(), range: LockRange::Record(start..end), kind }
}

#[test]
fn locks_end_with_their_owner_or_their_handle() {
    let (_partition, one, two) = two();
    let file = make(&one, b"f", b"abc").inode;
    let (a, b) = (one.open(file, WRITE).unwrap(), one.open(file, WRITE).unwrap());
    let far = two.open(file, WRITE).unwrap();
    let set = |handle, call: &LockCall| one.set_lock(handle, call, PosixLockWait::No);
    // Owner 1 is a process, owner 7 an open file description.
    set(a, &lock(1, 0, 10, PosixLockKind::Exclusive)).unwrap();
    set(a, &lock(7, 20, 30, PosixLockKind::Exclusive)).unwrap();
    assert_eq!(set(b, &lock(2, 5, 6, PosixLockKind::Shared)), Err(Errno::AGAIN));
    assert_eq!(
        two.set_lock(far, &lock(1, 5, 6, PosixLockKind::Shared), PosixLockWait::No),
        Err(Errno::AGAIN)
    );
    let found = one.find_lock(b, &lock(2, 0, u64::MAX, PosixLockKind::Exclusive)).unwrap().unwrap();
    assert!(
        found.pid == 1 && found.range == (0..10) || found.pid == 7 && found.range == (20..30),
        "{found:?}"
    );
    assert!(two.find_lock(far, &lock(2, 25, 26, PosixLockKind::Shared)).unwrap().is_some());
    assert_eq!(two.find_lock(far, &lock(2, 10, 20, PosixLockKind::Exclusive)), Ok(None));
    // The process closes another descriptor of the file: its locks end, those of the description stay.
    one.flush(b, 1).unwrap();
    two.set_lock(far, &lock(1, 5, 6, PosixLockKind::Shared), PosixLockWait::No).unwrap();
    assert_eq!(
        two.set_lock(far, &lock(1, 20, 21, PosixLockKind::Shared), PosixLockWait::No),
        Err(Errno::AGAIN)
    );
    // A part is unlocked, the rest stays.
    set(a, &lock(7, 20, 25, PosixLockKind::Unlock)).unwrap();
    two.set_lock(far, &lock(1, 20, 25, PosixLockKind::Exclusive), PosixLockWait::No).unwrap();
    one.release(a).unwrap();
    two.set_lock(far, &lock(1, 20, 30, PosixLockKind::Exclusive), PosixLockWait::No).unwrap();
    one.release(b).unwrap();
}

#[test]
fn whole_file_locks_are_apart_from_ranges() {
    let (_partition, one, two) = two();
    let file = make(&one, b"f", b"abc").inode;
    let (near, far) = (one.open(file, WRITE).unwrap(), two.open(file, WRITE).unwrap());
    let whole = |owner, kind| LockCall { owner, pid: 1, range: LockRange::Whole, kind };
    one.set_lock(near, &whole(1, PosixLockKind::Exclusive), PosixLockWait::No).unwrap();
    two.set_lock(far, &lock(1, 0, 1, PosixLockKind::Exclusive), PosixLockWait::No).unwrap();
    assert_eq!(two.set_lock(far, &whole(1, PosixLockKind::Shared), PosixLockWait::No), Err(Errno::AGAIN));
    one.set_lock(near, &whole(1, PosixLockKind::Shared), PosixLockWait::No).unwrap();
    two.set_lock(far, &whole(1, PosixLockKind::Shared), PosixLockWait::No).unwrap();
    assert_eq!(one.set_lock(near, &whole(1, PosixLockKind::Exclusive), PosixLockWait::No), Err(Errno::AGAIN));
    one.set_lock(near, &whole(1, PosixLockKind::Unlock), PosixLockWait::No).unwrap();
    two.set_lock(far, &whole(1, PosixLockKind::Exclusive), PosixLockWait::No).unwrap();
}

#[test]
fn a_wait_for_a_lock_is_cancelled_or_ends_with_the_lock() {
    let (_partition, one, two) = two();
    let file = make(&one, b"f", b"abc").inode;
    let (near, far) = (one.open(file, WRITE).unwrap(), two.open(file, WRITE).unwrap());
    one.set_lock(near, &lock(1, 0, 10, PosixLockKind::Exclusive), PosixLockWait::No).unwrap();
    let cancel = pario::LockCancel::default();
    std::thread::scope(|scope| {
        let (call, cancel, two) = (lock(1, 0, 10, PosixLockKind::Exclusive), &cancel, &two);
        let waiting = scope.spawn(move || two.set_lock(far, &call, PosixLockWait::Until(cancel)));
        cancel.cancel();
        assert_eq!(waiting.join().unwrap(), Err(Errno::INTR));
    });
    let cancel = pario::LockCancel::default();
    std::thread::scope(|scope| {
        let (call, cancel, two) = (lock(1, 0, 10, PosixLockKind::Exclusive), &cancel, &two);
        let waiting = scope.spawn(move || two.set_lock(far, &call, PosixLockWait::Until(cancel)));
        one.set_lock(near, &lock(1, 0, 10, PosixLockKind::Unlock), PosixLockWait::No).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
    assert_eq!(
        one.set_lock(near, &lock(1, 3, 4, PosixLockKind::Shared), PosixLockWait::No),
        Err(Errno::AGAIN)
    );
}

/// Random numbers of a history.
struct HistoryRandom(u64);

impl HistoryRandom {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What POSIX says of files with names in one directory: names lead to files, files have bytes.
#[derive(Clone, Default)]
struct FilesModel {
    names: BTreeMap<Vec<u8>, InodeId>,
    bytes: BTreeMap<InodeId, Vec<u8>>,
}

impl FilesModel {
    fn write(&mut self, inode: InodeId, at: usize, data: &[u8]) {
        let bytes = self.bytes.get_mut(&inode).unwrap();
        bytes.resize(bytes.len().max(at + data.len()), 0);
        bytes[at..at + data.len()].copy_from_slice(data);
    }

    fn links(&self, inode: InodeId) -> u32 {
        u32::try_from(self.names.values().filter(|other| **other == inode).count()).unwrap()
    }
}

/// Files that are open in a history, by the system that has them.
type OpenFiles = Vec<(usize, u64, InodeId)>;

#[expect(clippy::too_many_lines, reason = "one table of calls")]
fn step(
    random: &mut HistoryRandom,
    systems: [&FileSystem; 2],
    (model, open): (&mut FilesModel, &mut OpenFiles),
) {
    let which = usize::try_from(random.below(2)).unwrap();
    let system = systems[which];
    let name = |random: &mut HistoryRandom| format!("n{}", random.below(5)).into_bytes();
    let (from, to) = (name(random), name(random));
    let known = model.names.get(&from).copied();
    let data: Vec<u8> = (0..random.below(300)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
    match random.below(10) {
        0 | 1 => {
            let exclusive = random.below(2) == 0;
            let created = system.create(named(&from), HandleMode { exclusive, ..WRITE }, by(0o600));
            match (created, known) {
                (Err(Errno::EXIST), Some(_)) if exclusive => {}
                (Ok((attr, handle)), known) if known.is_none() || !exclusive => {
                    assert!(known.is_none_or(|known| known == attr.inode));
                    model.names.insert(from, attr.inode);
                    model.bytes.entry(attr.inode).or_default();
                    open.push((which, handle, attr.inode));
                }
                (other, known) => panic!("{other:?}, expected {known:?}"),
            }
        }
        2 => match (system.unlink(ROOT, &from), known) {
            (Ok(()), Some(_)) => drop(model.names.remove(&from)),
            (result, known) => assert_eq!((result, known), (Err(Errno::NOENT), None)),
        },
        3 => {
            let mode = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange]
                [usize::try_from(random.below(3)).unwrap()];
            let result = system.rename(named(&from), named(&to), mode);
            let target = model.names.get(&to).copied();
            match (mode, known, target) {
                (_, None, _) | (RenameMode::Exchange, _, None) => assert_eq!(result, Err(Errno::NOENT)),
                (RenameMode::NoReplace, _, Some(_)) => assert_eq!(result, Err(Errno::EXIST)),
                (RenameMode::Exchange, Some(one), Some(two)) => {
                    result.unwrap();
                    model.names.extend([(from, two), (to, one)]);
                }
                (_, Some(inode), target) => {
                    result.unwrap();
                    if target != Some(inode) {
                        model.names.remove(&from);
                        model.names.insert(to, inode);
                    }
                }
            }
        }
        4 => {
            let inode = known.unwrap_or(InodeId(1 << 40));
            let result = system.link(inode, named(&to)).map(|attr| attr.links);
            match (known, model.names.contains_key(&to)) {
                (None, _) => assert!(result.is_err()),
                (Some(_), true) => assert_eq!(result, Err(Errno::EXIST)),
                (Some(inode), false) => {
                    model.names.insert(to, inode);
                    assert_eq!(result, Ok(model.links(inode)));
                }
            }
        }
        5 if !open.is_empty() => {
            let index = usize::try_from(random.below(open.len() as u64)).unwrap();
            let (which, handle, _) = open.swap_remove(index);
            systems[which].flush(handle, 1).unwrap();
            systems[which].release(handle).unwrap();
        }
        6 if !open.is_empty() => {
            let (which, handle, inode) = open[usize::try_from(random.below(open.len() as u64)).unwrap()];
            let bytes = random.below(500);
            let change = AttributeChange { size: Some(bytes), ..AttributeChange::default() };
            assert_eq!(systems[which].set_attributes(inode, Some(handle), &change).unwrap().size, bytes);
            model.bytes.get_mut(&inode).unwrap().resize(usize::try_from(bytes).unwrap(), 0);
        }
        _ if !open.is_empty() => {
            let (which, handle, inode) = open[usize::try_from(random.below(open.len() as u64)).unwrap()];
            let offset = random.below(400);
            let append = random.below(2) == 0;
            let order = if append { WriteOrder::Append } else { WriteOrder::At(offset) };
            systems[which].write(handle, order, &data, false).unwrap();
            let at = if append { model.bytes[&inode].len() } else { usize::try_from(offset).unwrap() };
            if !data.is_empty() {
                model.write(inode, at, &data);
            }
        }
        _ => {}
    }
}

/// Every name and every byte, seen by both.
fn same(systems: [&FileSystem; 2], model: &FilesModel) {
    for system in systems {
        let (handle, mut names) = (system.open_dir(ROOT), Vec::new());
        system
            .read_dir(handle, 0, |entry, _| {
                names.push((entry.name.clone(), entry.inode));
                true
            })
            .unwrap();
        system.release_dir(handle).unwrap();
        let expected: Vec<_> = model.names.iter().map(|(name, inode)| (name.clone(), *inode)).collect();
        assert_eq!(names[2..], expected);
        for inode in model.names.values() {
            let attr = system.attributes(*inode).unwrap();
            assert_eq!((attr.size, attr.links), (model.bytes[inode].len() as u64, model.links(*inode)));
            assert_eq!(content(system, *inode).unwrap(), model.bytes[inode]);
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

#[test]
fn random_histories_of_two_nodes() {
    let first = number("PARIO_SEED");
    let count = if first.is_some() { 1 } else { number("PARIO_HISTORIES").unwrap_or(12) };
    for history in 0..count {
        let seed = first.unwrap_or(0x706f_7369_7800 + history);
        eprintln!("PARIO_SEED={seed:#x}");
        let (_partition, one, two) = two();
        let systems = [&one, &two];
        let (mut random, mut model, mut open) =
            (HistoryRandom(seed), FilesModel::default(), OpenFiles::new());
        for number in 0..120 {
            step(&mut random, systems, (&mut model, &mut open));
            if number % 4 == 0 {
                same(systems, &model);
            }
        }
        same(systems, &model);
    }
}
