//! Random groups on one plain file through file caches: one or two groups concurrently, several nodes, small pools and blocks, opened and
//! closed repeatedly, compared with a byte array.
//!
//! Every rank owns every n-th cell of the file and writes only there, so that accesses are disjoint while their blocks are shared, between
//! the groups too. There is no sync and no barrier between them. Always: a rank reads its own writes; a group reads the writes of its
//! members; in the end the plain file has all writes. `PARIO_HISTORIES` sets the number, `PARIO_SEED` runs one again.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use common::{SeededRandom, Trace, difference, histories, pattern};
use pario::group::{self, Group};
use pario::{CacheOptions, Datatype, GroupFile, Placement, open_cached};

/// In `./test`.
const HISTORIES: u64 = 60;

/// Written bytes of every owner's stream, by owner.
type CacheModel = Arc<Mutex<Vec<Vec<u8>>>>;

/// Constant for one history.
#[derive(Clone)]
struct CacheHistorySpec {
    path: PathBuf,
    cell: usize,
    owners: usize,
    stream_bytes: u64,
    options: CacheOptions,
}

/// One rank of one group.
struct CacheMember {
    group: Arc<dyn Group>,
    /// Its owner number, of all ranks of all groups.
    owner: usize,
    first_owner: usize,
    model: CacheModel,
    ground: CacheHistorySpec,
    trace: Trace,
}

#[test]
fn groups_on_a_plain_file_agree_with_a_byte_array() {
    histories(HISTORIES, history);
}

fn history(seed: u64, trace: &Trace) {
    let mut chance = SeededRandom::new(seed ^ 0x5a4e);
    let dir = tempfile::tempdir().unwrap();
    let sizes = [1 + chance.index(5), chance.index(4)];
    let block = chance.pick(&[4096, 8192]);
    let options = CacheOptions {
        create: true,
        cache_bytes: chance.pick(&[0, 3, 16, 500]) * block,
        block_bytes: Some(block),
        stripe_bytes: Some(block * chance.pick(&[1, 4])),
        noncoherent: chance.once_in(4).then_some(true),
        direct: chance.pick(&[None, Some(false), Some(true)]),
        placement: chance.pick(&[Placement::Home, Placement::FirstTouch, Placement::LastWriter]),
        ..CacheOptions::default()
    };
    let ground = CacheHistorySpec {
        path: dir.path().join("plain"),
        cell: chance.pick(&[1, 16, 700, 5000]),
        owners: sizes.iter().sum(),
        stream_bytes: chance.pick(&[300, 3000, 30_000]),
        options,
    };
    let nodes = |chance: &mut SeededRandom, size: usize| -> Vec<usize> {
        let nodes = 1 + chance.index(4);
        (0..size).map(|_| chance.index(nodes)).collect()
    };
    let groups = sizes.map(|size| nodes(&mut chance, size));
    trace.step(format!("groups on nodes {groups:?}, cells of {}, {:?}", ground.cell, ground.options));
    let model: CacheModel = Arc::new(Mutex::new(vec![Vec::new(); ground.owners]));
    let (mut threads, mut first_owner) = (Vec::new(), 0);
    for nodes in groups.iter().filter(|nodes| !nodes.is_empty()) {
        let group_seed = chance.next_u64();
        for (rank, group) in group::threads_on(nodes).into_iter().enumerate() {
            let owner = first_owner + rank;
            let (model, ground, trace) = (Arc::clone(&model), ground.clone(), trace.clone());
            let member = CacheMember { group, owner, first_owner, model, ground, trace };
            threads.push(std::thread::spawn(move || member.live(group_seed)));
        }
        first_owner += nodes.len();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    check_whole(&ground.path, &model.lock().unwrap(), &ground);
}

impl CacheMember {
    /// Steps that all members of the group take together; each member's accesses in them are independent.
    fn live(&self, group_seed: u64) {
        let mut together = SeededRandom::new(group_seed);
        let mut mine = SeededRandom::new(group_seed ^ (self.owner as u64 + 1) << 32);
        let mut file = self.open(&mut together);
        for _ in 0..8 {
            match together.below(8) {
                0 | 1 => self.write(&file, &mut mine, true),
                2..=4 => self.write(&file, &mut mine, false),
                5 => self.read_neighbour(&file, &mut mine),
                6 => file.sync().unwrap(),
                _ => {
                    self.trace.step(format!("owner {} opens again", self.owner));
                    file.close().unwrap();
                    file = self.open(&mut together);
                }
            }
            self.read(&file, self.owner, &mut mine);
        }
        file.close().unwrap();
        self.group.leave();
    }

    fn open(&self, together: &mut SeededRandom) -> GroupFile {
        let file = open_cached(&self.group, &self.ground.path, &self.ground.options).unwrap();
        file.set_atomicity(together.once_in(3)).unwrap();
        self.see(&file, self.owner);
        file
    }

    /// Shows the cells of an owner; collective.
    fn see(&self, file: &GroupFile, owner: usize) {
        let byte = Datatype::elementary(1).unwrap();
        let number = |count: usize| i64::try_from(count).unwrap();
        let (cell, owners) = (number(self.ground.cell), number(self.ground.owners));
        let filetype = Datatype::contiguous(cell, &byte).unwrap().resized(0, cell * owners).unwrap();
        file.set_view(number(owner) * cell, &byte, &filetype).unwrap();
    }

    fn write(&self, file: &GroupFile, mine: &mut SeededRandom, collective: bool) {
        let offset = mine.below(self.ground.stream_bytes);
        let bytes = usize::try_from(mine.below(self.ground.stream_bytes / 2)).unwrap();
        let data = pattern(bytes, mine.next_u64());
        self.trace.step(format!("owner {} writes {bytes} at {offset}, collective: {collective}", self.owner));
        if collective {
            file.write_at_all(offset, &data).unwrap();
        } else {
            file.write_at(offset, &data).unwrap();
        }
        let (mut model, at) = (self.model.lock().unwrap(), usize::try_from(offset).unwrap());
        let stream = &mut model[self.owner];
        if 0 < bytes {
            stream.resize(stream.len().max(at + bytes), 0);
            stream[at..at + bytes].copy_from_slice(&data);
        }
    }

    /// Reads from an owner's stream, which does not change meanwhile.
    fn read(&self, file: &GroupFile, owner: usize, mine: &mut SeededRandom) {
        let offset = mine.below(self.ground.stream_bytes);
        let mut found = vec![0xee; usize::try_from(mine.below(self.ground.stream_bytes)).unwrap()];
        let count = file.read_at(offset, &mut found).unwrap();
        let at = usize::try_from(offset).unwrap();
        let known = self.model.lock().unwrap()[owner].clone();
        let written = known.len().saturating_sub(at).min(found.len());
        assert!(
            written <= count,
            "owner {} reads {count} of {owner}'s stream, {written} written",
            self.owner
        );
        let mut expected = known.get(at..at + written).unwrap_or(&[]).to_vec();
        expected.resize(count, 0);
        let what = difference(&expected, &found[..count]);
        assert_eq!(what, None, "owner {} reads {} at {offset} of {owner}'s stream", self.owner, found.len());
    }

    /// A member's write is seen by all once it has returned, without sync.
    fn read_neighbour(&self, file: &GroupFile, mine: &mut SeededRandom) {
        let neighbour = self.first_owner + (self.group.rank() + 1) % self.group.size();
        self.see(file, neighbour);
        self.read(file, neighbour, mine);
        self.see(file, self.owner);
        self.group.barrier().unwrap();
    }
}

fn check_whole(path: &Path, streams: &[Vec<u8>], ground: &CacheHistorySpec) {
    let mut expected: Vec<u8> = Vec::new();
    for (owner, stream) in streams.iter().enumerate() {
        for (number, cell) in stream.chunks(ground.cell).enumerate() {
            let at = (number * ground.owners + owner) * ground.cell;
            expected.resize(expected.len().max(at + cell.len()), 0);
            expected[at..at + cell.len()].copy_from_slice(cell);
        }
    }
    assert_eq!(difference(&expected, &std::fs::read(path).unwrap()), None, "the whole file");
}
