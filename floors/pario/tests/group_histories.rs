//! Random groups on one file: all methods mixed, one or two groups concurrently, several nodes, every transport and store, compared with a
//! byte array.
//!
//! Every rank owns every n-th cell of the file and writes only there, so that accesses are disjoint while their blocks are shared; in some
//! histories the file type repeats at less than its own length, and a stream alternates between a rank's cells. There is no sync and no
//! barrier between them. Always: a rank reads its own writes; after a barrier a group reads the writes of its members; in the end the file
//! has all writes. A fixture (partition, clients, their node caches) serves many histories, each with its own file.
//! `PARIO_HISTORIES=100000 cargo test --release -p pario --test group_histories` runs the given number; `PARIO_SEED` begins with one.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::{SeededRandom, Trace, difference, pattern, scenes, small};
use pario::group::{self, Group};
use pario::{Datatype, EmbedOptions, GroupFile, Hints, Method, Partition};

/// In `./test`.
const HISTORIES: u64 = 2048;

/// Cells of one stream: where two-phase must leave holes, each piece is a separate write.
const PIECES_MAX: u64 = 200;

/// The data of every owner.
type GroupModel = Arc<Mutex<Vec<WrittenStream>>>;

#[derive(Clone, Default)]
struct WrittenStream {
    /// Bytes of its stream.
    stream: Vec<u8>,
    /// After its last byte in the file.
    file_end: u64,
}

/// Shared by many histories.
struct GroupFixture {
    what: String,
    partition: Partition,
    /// Of each group: the node of each rank, and its client.
    groups: Vec<(Vec<usize>, Vec<Partition>)>,
    /// Checks files in the end.
    stranger: Partition,
}

/// Constant for one history.
#[derive(Clone, Copy)]
struct GroupHistorySpec {
    cell: usize,
    owners: usize,
    stream_bytes: u64,
    steps: u64,
    /// Repetitions of the file type interleave.
    woven: bool,
}

impl GroupHistorySpec {
    /// File offset of a byte of an owner's stream.
    fn place(&self, owner: usize, stream: u64) -> u64 {
        let (cell, owners) = (self.cell as u64, self.owners as u64);
        let number = stream / cell;
        // The second cell of a repetition lies after the first one of the next.
        let number = if self.woven && number % 2 == 1 { number + 2 } else { number };
        (number * owners + owner as u64) * cell + stream % cell
    }

    /// Number of bytes of an owner's stream from `at` on that a file of this length must show.
    fn shown(&self, (owner, at): (usize, u64), bytes: usize, file_end: u64) -> usize {
        let missing = (at..at + bytes as u64).position(|stream| file_end <= self.place(owner, stream));
        missing.unwrap_or(bytes)
    }
}

/// One rank of one group.
struct GroupMember {
    group: Arc<dyn Group>,
    scene: Arc<GroupFixture>,
    /// Index of its group in the fixture.
    place: usize,
    name: String,
    /// Its owner number, of all ranks of all groups.
    owner: usize,
    first_owner: usize,
    model: GroupModel,
    ground: GroupHistorySpec,
    trace: Trace,
}

#[test]
fn groups_agree_with_a_byte_array() {
    scenes(HISTORIES, set_up, history);
}

fn set_up(number: u64) -> GroupFixture {
    let mut chance = SeededRandom::new(number ^ 0x5ce2e << 40);
    let options = EmbedOptions {
        transport: chance.pick(&common::TRANSPORTS),
        store: chance.pick(&common::STORES),
        outbox_bytes: chance.pick(&[256 << 10, 1 << 20]),
        ..small(1 + u16::try_from(chance.below(5)).unwrap(), chance.pick(&[4096, 16 << 10, 64 << 10]))
    };
    let partition = Partition::embed(&options).unwrap();
    let sizes = [1 + chance.index(5), chance.index(5)];
    let groups = sizes.into_iter().filter(|size| 0 < *size).map(|size| {
        let nodes = 1 + chance.index(4);
        let clients = (0..size).map(|_| partition.another_client()).collect();
        ((0..size).map(|_| chance.index(nodes)).collect(), clients)
    });
    let groups: Vec<(Vec<usize>, Vec<Partition>)> = groups.collect();
    let nodes: Vec<&Vec<usize>> = groups.iter().map(|(nodes, _)| nodes).collect();
    let what = format!("scene {number:#x}: {options:?}, groups on nodes {nodes:?}");
    let stranger = partition.another_client();
    GroupFixture { what, partition, groups, stranger }
}

fn history(scene: &Arc<GroupFixture>, seed: u64, trace: &Trace) {
    let mut chance = SeededRandom::new(seed ^ 0x6705);
    let cell = chance.pick(&[1, 16, 700, 5000]);
    let stream_bytes = chance.pick(&[300, 3000, 3000, 30_000]);
    let ground = GroupHistorySpec {
        cell,
        owners: scene.groups.iter().map(|(nodes, _)| nodes.len()).sum(),
        stream_bytes: stream_bytes.min(PIECES_MAX * cell as u64),
        steps: 3 + chance.below(4),
        woven: chance.once_in(3),
    };
    trace.step(&scene.what);
    trace.step(format!(
        "cells of {} bytes, streams of {}, woven: {}",
        ground.cell, ground.stream_bytes, ground.woven
    ));
    let name = format!("f{seed:x}");
    scene.partition.create(&name).unwrap().close().unwrap();
    let model: GroupModel = Arc::new(Mutex::new(vec![WrittenStream::default(); ground.owners]));
    let (mut threads, mut first_owner) = (Vec::new(), 0);
    for (place, (nodes, _)) in scene.groups.iter().enumerate() {
        let group_seed = chance.next_u64();
        for (rank, group) in group::threads_on(nodes).into_iter().enumerate() {
            let member = GroupMember {
                group,
                scene: Arc::clone(scene),
                place,
                name: name.clone(),
                owner: first_owner + rank,
                first_owner,
                model: Arc::clone(&model),
                ground,
                trace: trace.clone(),
            };
            threads.push(std::thread::spawn(move || member.live(group_seed)));
        }
        first_owner += nodes.len();
    }
    for thread in threads {
        thread.join().unwrap();
    }
    check_whole(&scene.stranger, &name, &model.lock().unwrap(), ground);
    // The file's objects are removed with it, even if a node cache holds them.
    scene.stranger.remove_file(&name).unwrap();
}

impl GroupMember {
    /// Steps that all members of the group take together; each member's accesses in them are independent.
    fn live(&self, group_seed: u64) {
        let mut together = SeededRandom::new(group_seed);
        let mut mine = SeededRandom::new(group_seed ^ (self.owner as u64 + 1) << 32);
        let mut file = self.open(&mut together);
        for _ in 0..self.ground.steps {
            match together.below(10) {
                0 | 1 => self.write(&file, &mut mine, AccessMethod::Collective),
                2 => self.write(&file, &mut mine, AccessMethod::Started),
                3 => self.write(&file, &mut mine, AccessMethod::Split),
                4 => self.write(&file, &mut mine, AccessMethod::Alone),
                5 => self.read(&file, self.owner, &mut mine, AccessMethod::Collective),
                6 => self.read_neighbour(&file, &mut mine),
                7 => file.sync().unwrap(),
                _ => {
                    file.close().unwrap();
                    file = self.open(&mut together);
                }
            }
            self.read(&file, self.owner, &mut mine, AccessMethod::Alone);
        }
        file.close().unwrap();
        self.group.leave();
    }

    fn open(&self, together: &mut SeededRandom) -> GroupFile {
        let method = together.pick(&METHODS);
        let aggregators = together.pick(&[None, Some(1), Some(2)]);
        let hints =
            Hints { method: Some(method), aggregators, buffer_bytes: Some(64 << 10), ..Hints::default() };
        if self.group.rank() == 0 {
            self.trace.step(format!("group of owner {}: opens, {method:?}", self.first_owner));
        }
        let client = &self.scene.groups[self.place].1[self.group.rank()];
        let options = client.options().read(true).write(true);
        let file = options.open_all(&self.group, &self.name, &hints).unwrap();
        self.see(&file, self.owner);
        file
    }

    /// Shows the cells of an owner; collective.
    fn see(&self, file: &GroupFile, owner: usize) {
        let byte = Datatype::elementary(1).unwrap();
        let (cell, owners) = (self.ground.cell as i64, self.ground.owners as i64);
        let filetype = if self.ground.woven {
            let cells = Datatype::hindexed(&[cell, cell], &[0, 3 * cell * owners], &byte).unwrap();
            cells.resized(0, 2 * cell * owners).unwrap()
        } else {
            Datatype::contiguous(cell, &byte).unwrap().resized(0, cell * owners).unwrap()
        };
        file.set_view(owner as i64 * cell, &byte, &filetype).unwrap();
    }

    fn write(&self, file: &GroupFile, mine: &mut SeededRandom, way: AccessMethod) {
        let offset = mine.below(self.ground.stream_bytes);
        let bytes = usize::try_from(mine.below(self.ground.stream_bytes / 2)).unwrap();
        let data = pattern(bytes, mine.next_u64());
        self.trace.step(format!("owner {} writes {bytes} at {offset}, {way:?}", self.owner));
        match way {
            AccessMethod::Alone => file.write_at(offset, &data).unwrap(),
            AccessMethod::Collective => file.write_at_all(offset, &data).unwrap(),
            AccessMethod::Started => {
                let pending = file.start_write_at_all(offset, data.clone()).unwrap();
                assert_eq!(pending.wait().unwrap().len(), bytes);
            }
            AccessMethod::Split => {
                file.begin_write_at_all(offset, data.clone()).unwrap();
                assert_eq!(file.end_write_all().unwrap().len(), bytes);
            }
        }
        let (mut model, at) = (self.model.lock().unwrap(), usize::try_from(offset).unwrap());
        let WrittenStream { stream, file_end } = &mut model[self.owner];
        if 0 < bytes {
            let places = (offset..offset + bytes as u64).map(|stream| self.ground.place(self.owner, stream));
            *file_end = places.max().map_or(0, |last| last + 1).max(*file_end);
            stream.resize(stream.len().max(at + bytes), 0);
            stream[at..at + bytes].copy_from_slice(&data);
        }
    }

    /// Reads from an owner's stream, which does not change meanwhile.
    fn read(&self, file: &GroupFile, owner: usize, mine: &mut SeededRandom, way: AccessMethod) {
        let offset = mine.below(self.ground.stream_bytes);
        let mut found = vec![0xee; usize::try_from(mine.below(self.ground.stream_bytes)).unwrap()];
        let count = match way {
            AccessMethod::Alone => file.read_at(offset, &mut found).unwrap(),
            AccessMethod::Collective | AccessMethod::Started | AccessMethod::Split => {
                file.read_at_all(offset, &mut found).unwrap()
            }
        };
        let at = usize::try_from(offset).unwrap();
        let WrittenStream { stream: known, file_end } = self.model.lock().unwrap()[owner].clone();
        let written = self.ground.shown((owner, offset), found.len(), file_end);
        if count < written {
            // A second read shortly after distinguishes a late length from a lost one.
            let (again, length) = (file.read_at(offset, &mut found), file.len());
            let access =
                format!("owner {} reads {count} of {owner}'s stream at {offset}, {way:?}", self.owner);
            panic!("{access}, at least {written} were written; again {again:?}, length {length:?}");
        }
        let mut expected =
            known.get(at.min(known.len())..known.len().min(at + count)).unwrap_or(&[]).to_vec();
        expected.resize(count, 0);
        let what = difference(&expected, &found[..count]);
        assert_eq!(what, None, "owner {} reads {} at {offset} of {owner}'s stream", self.owner, found.len());
    }

    /// A member's write is seen by all once it has returned, without sync.
    fn read_neighbour(&self, file: &GroupFile, mine: &mut SeededRandom) {
        let size = self.group.size();
        let neighbour = self.first_owner + (self.group.rank() + 1) % size;
        self.see(file, neighbour);
        let way =
            if self.ground.steps.is_multiple_of(2) { AccessMethod::Collective } else { AccessMethod::Alone };
        self.read(file, neighbour, mine, way);
        self.see(file, self.owner);
        self.group.barrier().unwrap();
    }
}

const METHODS: [Method; 4] = [Method::Auto, Method::ServerDirected, Method::ClientDirected, Method::TwoPhase];

/// The kind of access.
#[derive(Clone, Copy, Debug)]
enum AccessMethod {
    Alone,
    Collective,
    Started,
    Split,
}

fn check_whole(stranger: &Partition, name: &str, streams: &[WrittenStream], ground: GroupHistorySpec) {
    let mut expected: Vec<u8> = Vec::new();
    let file_end = streams.iter().map(|written| written.file_end).max().unwrap_or(0);
    expected.resize(usize::try_from(file_end).unwrap(), 0);
    for (owner, WrittenStream { stream, .. }) in streams.iter().enumerate() {
        for (number, byte) in stream.iter().enumerate() {
            // Bytes skipped in the stream may lie after all written bytes.
            if let Some(there) =
                expected.get_mut(usize::try_from(ground.place(owner, number as u64)).unwrap())
            {
                *there = *byte;
            }
        }
    }
    let file = stranger.open(name).unwrap();
    let mut found = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut found).unwrap();
    assert_eq!(difference(&expected, &found), None, "the whole file");
}
