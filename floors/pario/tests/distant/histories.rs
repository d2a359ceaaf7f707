//! Random histories: members of several nodes, subsets of homes, both kinds of file, blocking calls and requests by several threads, against
//! an array of bytes.

use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use pario::distant::{Distant, DistantFiles, DistantOptions, FilePlace, SharedFile, SharedFileOptions};
use pario::group::{Group, threads_on};
use pario::{Error, Result};

use crate::common::{SeededRandom, Trace, difference, pattern, scenes};

/// Bytes of the files of most histories.
const FILE: u64 = 300_000;
/// Longest access of most histories.
const ACCESS: u64 = 40_000;
/// One history in so many has large accesses.
const LARGE: u64 = 50;

/// A group that serves many histories.
struct DistantScene {
    groups: Vec<Arc<dyn Group>>,
    members: Vec<Distant>,
    homes: Vec<usize>,
    dir: tempfile::TempDir,
}

/// Runs `body` for each member at the same time; results in rank order.
fn together<T: Send>(count: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let body = &body;
        let threads: Vec<_> = (0..count).map(|rank| scope.spawn(move || body(rank))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

fn set_up(number: u64) -> DistantScene {
    let mut chance = SeededRandom::new(number ^ 0xd157);
    let size = chance.between(1, 10) as usize;
    let node_count = chance.between(1, 5);
    let nodes: Vec<usize> = (0..size).map(|_| chance.below(node_count) as usize).collect();
    let mut homes: Vec<usize> = (0..size).filter(|_| !chance.once_in(3)).collect();
    if homes.is_empty() {
        homes.push(chance.index(size));
    }
    let protects = chance.once_in(3);
    let dir = tempfile::tempdir().unwrap();
    let groups = threads_on(&nodes);
    let members = together(size, |rank| {
        let options = if homes.contains(&rank) {
            let own = dir.path().join(rank.to_string());
            std::fs::create_dir(&own).unwrap();
            DistantOptions::in_dir(own)
        } else {
            DistantOptions::client()
        };
        let options = if protects { options.protected() } else { options };
        Distant::join(&groups[rank], &options).unwrap()
    });
    DistantScene { groups, members, homes, dir }
}

impl Drop for DistantScene {
    fn drop(&mut self) {
        let members: Vec<Mutex<Option<Distant>>> =
            self.members.drain(..).map(|member| Mutex::new(Some(member))).collect();
        together(members.len(), |rank| {
            let member = members[rank].lock().unwrap().take();
            let left = member.map(Distant::leave);
            self.groups[rank].leave();
            assert!(std::thread::panicking() || left.is_none_or(|left| left.is_ok()));
        });
    }
}

/// The file of a history, as all members have it.
enum HistoryFile {
    Shared(Vec<SharedFile>),
    Registered(Vec<DistantFiles>, usize),
}

impl HistoryFile {
    /// Reads as much as there is: the bytes and their number.
    fn read(&self, member: usize, at: u64, mut buffer: Vec<u8>, starts: bool) -> (Vec<u8>, usize) {
        match self {
            HistoryFile::Shared(files) if starts => {
                let (result, buffer) = files[member].start_read_at(at, buffer).unwrap().wait_with_buffer();
                (buffer.unwrap(), count_of(result))
            }
            HistoryFile::Shared(files) => {
                let bytes = buffer.len();
                let result = files[member].read_at(at, &mut buffer).map(|()| bytes);
                (buffer, count_of(result))
            }
            HistoryFile::Registered(files, home) if starts => {
                files[member].start_read_at(*home, at, buffer).unwrap().wait().unwrap()
            }
            HistoryFile::Registered(files, home) => {
                let count = files[member].read_at(*home, at, &mut buffer).unwrap();
                (buffer, count)
            }
        }
    }

    fn write(&self, member: usize, at: u64, data: Vec<u8>, starts: bool) {
        match self {
            HistoryFile::Shared(files) if starts => {
                files[member].start_write_at(at, data).unwrap().wait().unwrap();
            }
            HistoryFile::Shared(files) => files[member].write_at(at, &data).unwrap(),
            HistoryFile::Registered(files, home) if starts => {
                files[member].start_write_at(*home, at, data).unwrap().wait().unwrap();
            }
            HistoryFile::Registered(files, home) => files[member].write_at(*home, at, &data).unwrap(),
        }
    }

    fn length(&self, member: usize) -> u64 {
        match self {
            HistoryFile::Shared(files) => files[member].length().unwrap(),
            HistoryFile::Registered(files, home) => files[member].length(*home).unwrap(),
        }
    }
}

fn count_of(result: Result<usize>) -> usize {
    match result {
        Ok(count) => count,
        Err(Error::PastEnd { read, .. }) => read,
        Err(other) => panic!("{other}"),
    }
}

/// One access of a batch.
struct Access {
    member: usize,
    range: Range<u64>,
    /// Data of a write, or the bytes that a read must find.
    bytes: Vec<u8>,
    writes: bool,
    starts: bool,
}

fn open(scene: &DistantScene, chance: &mut SeededRandom, trace: &Trace) -> HistoryFile {
    let size = scene.members.len();
    if chance.once_in(4) {
        let home = chance.pick(&scene.homes);
        trace.step(format!("{size} members register, a file of rank {home}"));
        let register = |rank: usize| {
            let file = (rank == home).then(|| {
                let own = scene.dir.path().join(rank.to_string()).join("own");
                let file = File::options().read(true).write(true).create_new(true).open(&own).unwrap();
                std::fs::remove_file(own).unwrap();
                file
            });
            scene.members[rank].register(file).unwrap()
        };
        return HistoryFile::Registered(together(size, register), home);
    }
    let request = chance.pick(&[0, 1, 4096, 10_000, 30 << 10, 3 << 20]);
    let mut options = SharedFileOptions::for_requests(request);
    if chance.once_in(3) {
        let first = chance.index(scene.homes.len());
        let some: Vec<usize> = scene.homes.iter().copied().cycle().skip(first).take(1 + first).collect();
        options = options.homes(&some);
    }
    if chance.once_in(4) {
        options = options.path(scene.dir.path().join("plain")).place(FilePlace::Filesystem);
    }
    trace.step(format!("{size} members create {options:?}"));
    HistoryFile::Shared(together(size, |rank| scene.members[rank].create(&options).unwrap()))
}

/// Accesses of disjoint ranges, or of reads.
fn batch(
    scene: &DistantScene,
    chance: &mut SeededRandom,
    model: &mut Vec<u8>,
    sizes: (u64, u64),
) -> Vec<Access> {
    let mut list: Vec<Access> = Vec::new();
    for _ in 0..chance.between(1, 5) {
        let start = chance.below(sizes.0);
        let range = start..start + chance.below(sizes.1);
        let writes = chance.coin();
        let conflicts = |other: &Access| {
            (writes || other.writes) && other.range.start < range.end && range.start < other.range.end
        };
        if list.iter().any(conflicts) {
            continue;
        }
        let bytes =
            if writes { pattern((range.end - range.start) as usize, chance.next_u64()) } else { Vec::new() };
        let member = chance.index(scene.members.len());
        list.push(Access { member, range, bytes, writes, starts: chance.coin() });
    }
    // A read beside a write that lengthens the file could end before or after it.
    let lengthens = list.iter().any(|access| access.writes && (model.len() as u64) < access.range.end);
    list.retain(|access| access.writes || !lengthens);
    for access in &mut list {
        let (start, end) = (access.range.start as usize, access.range.end as usize);
        if !access.writes {
            access.bytes = model[start.min(model.len())..end.min(model.len())].to_vec();
        } else if start < end {
            model.resize(model.len().max(end), 0);
            model[start..end].copy_from_slice(&access.bytes);
        }
    }
    list
}

fn run(file: &HistoryFile, access: &Access) {
    let Access { member, range, bytes, writes, starts } = access;
    if *writes {
        file.write(*member, range.start, bytes.clone(), *starts);
        return;
    }
    let wanted = (range.end - range.start) as usize;
    let (found, count) = file.read(*member, range.start, vec![0xee; wanted], *starts);
    assert_eq!(count, bytes.len(), "bytes read by member {member} at {range:?}");
    if let Some(where_) = difference(bytes, &found[..count]) {
        panic!("member {member} at {range:?}: {where_}");
    }
}

fn history(scene: &Arc<DistantScene>, seed: u64, trace: &Trace) {
    let mut chance = SeededRandom::new(seed);
    let file = open(scene, &mut chance, trace);
    let sizes = if chance.once_in(LARGE) { (9 << 20, 4 << 20) } else { (FILE, ACCESS) };
    let mut model = Vec::new();
    for _ in 0..chance.between(1, 12) {
        let accesses = batch(scene, &mut chance, &mut model, sizes);
        for access in &accesses {
            let (member, range) = (access.member, &access.range);
            let (writes, starts) = (access.writes, access.starts);
            trace.step(format!("member {member}: {range:?} writes {writes} starts {starts}"));
        }
        match chance.coin() {
            true => together(accesses.len(), |number| run(&file, &accesses[number])).into_iter().collect(),
            false => under_way(&file, &mut chance, &accesses),
        }
        if chance.once_in(4) {
            let member = chance.index(scene.members.len());
            assert_eq!(file.length(member), model.len() as u64, "length seen by member {member}");
        }
    }
    let end = trace.clone();
    let reader = chance.index(scene.members.len());
    end.step(format!("member {reader} reads all"));
    let (found, count) = file.read(reader, 0, vec![0xee; model.len() + 10], chance.coin());
    assert_eq!(count, model.len());
    assert_eq!(difference(&model, &found[..count]), None);
    finish(scene, file);
    let left = std::fs::read_dir(scene.dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let left: Vec<PathBuf> = left.filter(|path| path.is_file()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// All accesses are started by one thread, and completed in another order.
fn under_way(file: &HistoryFile, chance: &mut SeededRandom, accesses: &[Access]) {
    let HistoryFile::Shared(files) = file else {
        return accesses.iter().for_each(|access| run(file, access));
    };
    let mut pending: VecDeque<(usize, _)> = VecDeque::new();
    for (number, access) in accesses.iter().enumerate() {
        let (at, bytes) = (access.range.start, (access.range.end - access.range.start) as usize);
        let shared = &files[access.member];
        let request = match access.writes {
            true => shared.start_write_at(at, access.bytes.clone()).unwrap(),
            false => shared.start_read_at(at, vec![0xee; bytes]).unwrap(),
        };
        pending.push_back((number, request));
        pending.rotate_left(chance.index(pending.len()));
    }
    for (number, request) in pending {
        let _ = request.test();
        let (result, buffer) = request.wait_with_buffer();
        let count = count_of(result);
        let access = &accesses[number];
        if !access.writes {
            assert_eq!(count, access.bytes.len(), "read {:?}", access.range);
            assert_eq!(difference(&access.bytes, &buffer.unwrap()[..count]), None);
        }
    }
}

fn finish(scene: &DistantScene, file: HistoryFile) {
    fn each<T: Send>(scene: &DistantScene, files: Vec<T>, end: impl Fn(T, &Distant) + Sync) {
        let files: Vec<Mutex<Option<T>>> = files.into_iter().map(|file| Mutex::new(Some(file))).collect();
        together(files.len(), |rank| {
            let file = files[rank].lock().unwrap().take().unwrap();
            end(file, &scene.members[rank]);
        });
    }
    match file {
        HistoryFile::Shared(files) => each(scene, files, |file, member| file.destroy(member).unwrap()),
        HistoryFile::Registered(files, _) => {
            each(scene, files, |file, member| file.unregister(member).unwrap());
        }
    }
}

#[test]
fn histories_agree_with_an_array_of_bytes() {
    scenes(2000, set_up, history);
}
