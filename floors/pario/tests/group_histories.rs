//! Random groups on one file: all methods mixed, one or two groups at once, several nodes, every transport and store, against a byte array.
//!
//! Every rank owns every n-th cell of the file and writes only there, so that accesses are disjoint while their blocks are shared. No sync
//! and no barrier stands between them. Always: a rank reads what it wrote; after a barrier a group reads what its members wrote; in the end
//! the file is what all wrote. `PARIO_HISTORIES=100000 cargo test -p pario --test group_histories` runs as many as wanted.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Chance, Trace, difference, histories, pattern, small};
use pario::group::{self, Group};
use pario::{Datatype, EmbedOptions, GroupFile, Hints, Method, Partition};

/// Bytes of every owner's stream that was written, by owner.
type Model = Arc<Mutex<Vec<Vec<u8>>>>;

/// What is fixed for one history.
#[derive(Clone, Copy)]
struct Ground {
    cell: usize,
    owners: usize,
    stream_bytes: u64,
    steps: u64,
}

/// One rank of one group.
struct Member {
    group: Arc<dyn Group>,
    partition: Partition,
    /// The owner that it is, of all ranks of all groups.
    owner: usize,
    first_owner: usize,
    model: Model,
    ground: Ground,
    trace: Trace,
}

#[test]
fn groups_agree_with_a_byte_array() {
    histories(40, history);
}

fn history(seed: u64, trace: &Trace) {
    let mut chance = Chance::new(seed ^ 0x6705);
    let options = EmbedOptions {
        transport: chance.of(&common::TRANSPORTS),
        store: chance.of(&common::STORES),
        outbox_bytes: chance.of(&[256 << 10, 1 << 20]),
        ..small(1 + u16::try_from(chance.below(5)).unwrap(), chance.of(&[4096, 16 << 10, 64 << 10]))
    };
    let first = 1 + chance.index(5);
    let second = chance.index(5);
    let ground = Ground {
        cell: chance.of(&[1, 16, 700, 5000]),
        owners: first + second,
        stream_bytes: chance.of(&[3000, 60_000]),
        steps: 4 + chance.below(5),
    };
    trace.step(format!("{options:?}, groups of {first} and {second}, cells of {} bytes", ground.cell));
    let partition = Partition::embed(&options).unwrap();
    partition.create("f").unwrap().close().unwrap();
    let model: Model = Arc::new(Mutex::new(vec![Vec::new(); ground.owners]));
    let mut threads = Vec::new();
    for (first_owner, size) in [(0, first), (first, second)] {
        if size == 0 {
            continue;
        }
        let nodes: Vec<usize> = (0..size).map(|rank| rank * (1 + chance.index(4)) / size).collect();
        let group_seed = chance.next();
        for (rank, group) in group::threads_on(&nodes).into_iter().enumerate() {
            let member = Member {
                group,
                partition: partition.another_client(),
                owner: first_owner + rank,
                first_owner,
                model: Arc::clone(&model),
                ground,
                trace: trace.clone(),
            };
            threads.push(std::thread::spawn(move || member.live(group_seed)));
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
    check_whole(&partition, &model.lock().unwrap(), ground, seed);
}

impl Member {
    /// Steps that all members of the group take together; what each does in them is its own affair.
    fn live(&self, group_seed: u64) {
        let mut together = Chance::new(group_seed);
        let mut mine = Chance::new(group_seed ^ (self.owner as u64 + 1) << 32);
        let mut file = self.open(&mut together);
        for _ in 0..self.ground.steps {
            match together.below(6) {
                0 | 1 => self.write(&file, &mut mine, true),
                2 => self.write(&file, &mut mine, false),
                3 => self.read(&file, self.owner, &mut mine),
                4 => self.read_neighbour(&file, &mut mine),
                _ => {
                    file.close().unwrap();
                    file = self.open(&mut together);
                }
            }
            self.read(&file, self.owner, &mut mine);
        }
        file.close().unwrap();
        self.group.leave();
    }

    fn open(&self, together: &mut Chance) -> GroupFile {
        let method = together.of(&METHODS);
        let aggregators = together.of(&[None, Some(1), Some(2)]);
        let hints =
            Hints { method: Some(method), aggregators, buffer_bytes: Some(64 << 10), ..Hints::default() };
        if self.group.rank() == 0 {
            self.trace.step(format!("group of owner {}: opens, {method:?}", self.first_owner));
        }
        let options = self.partition.options().read(true).write(true);
        let file = options.open_all(&self.group, "f", &hints).unwrap();
        self.see(&file, self.owner);
        file
    }

    /// Shows the cells of an owner; collective.
    fn see(&self, file: &GroupFile, owner: usize) {
        let byte = Datatype::elementary(1).unwrap();
        let (cell, owners) = (self.ground.cell as i64, self.ground.owners as i64);
        let filetype = Datatype::contiguous(cell, &byte).unwrap().resized(0, cell * owners).unwrap();
        file.set_view(owner as i64 * cell, &byte, &filetype).unwrap();
    }

    fn write(&self, file: &GroupFile, mine: &mut Chance, collective: bool) {
        let offset = mine.below(self.ground.stream_bytes);
        let bytes = usize::try_from(mine.below(self.ground.stream_bytes / 2)).unwrap();
        let data = pattern(bytes, mine.next());
        self.trace.step(format!("owner {} writes {bytes} at {offset}, collective {collective}", self.owner));
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
    fn read(&self, file: &GroupFile, owner: usize, mine: &mut Chance) {
        let offset = mine.below(self.ground.stream_bytes);
        let mut found = vec![0xee; usize::try_from(mine.below(self.ground.stream_bytes)).unwrap()];
        let count = file.read_at(offset, &mut found).unwrap();
        let at = usize::try_from(offset).unwrap();
        let known = self.model.lock().unwrap()[owner].clone();
        let written = known.len().saturating_sub(at).min(found.len());
        assert!(written <= count, "owner {} reads {count} of at least {written} of {owner}'s", self.owner);
        let mut expected = known.get(at..at + written).unwrap_or(&[]).to_vec();
        expected.resize(count, 0);
        let what = difference(&expected, &found[..count]);
        assert_eq!(what, None, "owner {} reads {} at {offset} of {owner}'s stream", self.owner, found.len());
    }

    /// What any member wrote is seen by all once it has returned, without sync.
    fn read_neighbour(&self, file: &GroupFile, mine: &mut Chance) {
        let size = self.group.size();
        let neighbour = self.first_owner + (self.group.rank() + 1) % size;
        self.see(file, neighbour);
        self.read(file, neighbour, mine);
        self.see(file, self.owner);
        self.group.barrier().unwrap();
    }
}

const METHODS: [Method; 4] = [Method::Auto, Method::ServerDirected, Method::ClientDirected, Method::TwoPhase];

fn check_whole(partition: &Partition, streams: &[Vec<u8>], ground: Ground, seed: u64) {
    let mut expected: Vec<u8> = Vec::new();
    for (owner, stream) in streams.iter().enumerate() {
        for (number, cell) in stream.chunks(ground.cell).enumerate() {
            let at = (number * ground.owners + owner) * ground.cell;
            expected.resize(expected.len().max(at + cell.len()), 0);
            expected[at..at + cell.len()].copy_from_slice(cell);
        }
    }
    let file = partition.another_client().open("f").unwrap();
    let mut found = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut found).unwrap();
    assert_eq!(difference(&expected, &found), None, "the whole file, seed {seed:#x}");
}
