//! Random groups on one file: all methods mixed, one or two groups at once, several nodes, every transport and store, against a byte array.
//!
//! Every rank owns every n-th cell of the file and writes only there, so that accesses are disjoint while their blocks are shared. No sync
//! and no barrier stands between them. Always: a rank reads what it wrote; after a barrier a group reads what its members wrote; in the end
//! the file is what all wrote. A scene (partition, clients, their tiers) serves many histories, each with a file of its own.
//! `PARIO_HISTORIES=100000 cargo test --release -p pario --test group_histories` runs as many as wanted; `PARIO_SEED` begins with one.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::{Arc, Mutex};

use common::{Chance, Trace, difference, pattern, scenes, small};
use pario::group::{self, Group};
use pario::{Datatype, EmbedOptions, GroupFile, Hints, Method, Partition};

/// In `./test`.
const HISTORIES: u64 = 2048;

/// Cells of one stream: where two-phase has holes to leave, each piece is a write of its own.
const PIECES_MAX: u64 = 200;

/// Bytes of every owner's stream that was written, by owner.
type Model = Arc<Mutex<Vec<Vec<u8>>>>;

/// What many histories have in common.
struct Scene {
    what: String,
    partition: Partition,
    /// Of each group: the node of each rank, and its client.
    groups: Vec<(Vec<usize>, Vec<Partition>)>,
    /// Looks at files in the end.
    stranger: Partition,
}

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
    scene: Arc<Scene>,
    /// Its group's place in the scene.
    place: usize,
    name: String,
    /// The owner that it is, of all ranks of all groups.
    owner: usize,
    first_owner: usize,
    model: Model,
    ground: Ground,
    trace: Trace,
}

#[test]
fn groups_agree_with_a_byte_array() {
    scenes(HISTORIES, set_up, history);
}

fn set_up(number: u64) -> Scene {
    let mut chance = Chance::new(number ^ 0x5ce2e << 40);
    let options = EmbedOptions {
        transport: chance.of(&common::TRANSPORTS),
        store: chance.of(&common::STORES),
        outbox_bytes: chance.of(&[256 << 10, 1 << 20]),
        ..small(1 + u16::try_from(chance.below(5)).unwrap(), chance.of(&[4096, 16 << 10, 64 << 10]))
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
    Scene { what, partition, groups, stranger }
}

fn history(scene: &Arc<Scene>, seed: u64, trace: &Trace) {
    let mut chance = Chance::new(seed ^ 0x6705);
    let cell = chance.of(&[1, 16, 700, 5000]);
    let stream_bytes = chance.of(&[300, 3000, 3000, 30_000]);
    let ground = Ground {
        cell,
        owners: scene.groups.iter().map(|(nodes, _)| nodes.len()).sum(),
        stream_bytes: stream_bytes.min(PIECES_MAX * cell as u64),
        steps: 3 + chance.below(4),
    };
    trace.step(&scene.what);
    trace.step(format!("cells of {} bytes, streams of {}", ground.cell, ground.stream_bytes));
    let name = format!("f{seed:x}");
    scene.partition.create(&name).unwrap().close().unwrap();
    let model: Model = Arc::new(Mutex::new(vec![Vec::new(); ground.owners]));
    let (mut threads, mut first_owner) = (Vec::new(), 0);
    for (place, (nodes, _)) in scene.groups.iter().enumerate() {
        let group_seed = chance.next();
        for (rank, group) in group::threads_on(nodes).into_iter().enumerate() {
            let member = Member {
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
    // The file's objects go with it, whoever keeps them at hand.
    scene.stranger.remove_file(&name).unwrap();
}

impl Member {
    /// Steps that all members of the group take together; what each does in them is its own affair.
    fn live(&self, group_seed: u64) {
        let mut together = Chance::new(group_seed);
        let mut mine = Chance::new(group_seed ^ (self.owner as u64 + 1) << 32);
        let mut file = self.open(&mut together);
        for _ in 0..self.ground.steps {
            match together.below(10) {
                0 | 1 => self.write(&file, &mut mine, Way::Collective),
                2 => self.write(&file, &mut mine, Way::Started),
                3 => self.write(&file, &mut mine, Way::Split),
                4 => self.write(&file, &mut mine, Way::Alone),
                5 => self.read(&file, self.owner, &mut mine, Way::Collective),
                6 => self.read_neighbour(&file, &mut mine),
                7 => file.sync().unwrap(),
                _ => {
                    file.close().unwrap();
                    file = self.open(&mut together);
                }
            }
            self.read(&file, self.owner, &mut mine, Way::Alone);
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
        let filetype = Datatype::contiguous(cell, &byte).unwrap().resized(0, cell * owners).unwrap();
        file.set_view(owner as i64 * cell, &byte, &filetype).unwrap();
    }

    fn write(&self, file: &GroupFile, mine: &mut Chance, way: Way) {
        let offset = mine.below(self.ground.stream_bytes);
        let bytes = usize::try_from(mine.below(self.ground.stream_bytes / 2)).unwrap();
        let data = pattern(bytes, mine.next());
        self.trace.step(format!("owner {} writes {bytes} at {offset}, {way:?}", self.owner));
        match way {
            Way::Alone => file.write_at(offset, &data).unwrap(),
            Way::Collective => file.write_at_all(offset, &data).unwrap(),
            Way::Started => {
                let pending = file.start_write_at_all(offset, data.clone()).unwrap();
                assert_eq!(pending.wait().unwrap().len(), bytes);
            }
            Way::Split => {
                file.begin_write_at_all(offset, data.clone()).unwrap();
                assert_eq!(file.end_write_all().unwrap().len(), bytes);
            }
        }
        let (mut model, at) = (self.model.lock().unwrap(), usize::try_from(offset).unwrap());
        let stream = &mut model[self.owner];
        if 0 < bytes {
            stream.resize(stream.len().max(at + bytes), 0);
            stream[at..at + bytes].copy_from_slice(&data);
        }
    }

    /// Reads from an owner's stream, which does not change meanwhile.
    fn read(&self, file: &GroupFile, owner: usize, mine: &mut Chance, way: Way) {
        let offset = mine.below(self.ground.stream_bytes);
        let mut found = vec![0xee; usize::try_from(mine.below(self.ground.stream_bytes)).unwrap()];
        let count = match way {
            Way::Alone => file.read_at(offset, &mut found).unwrap(),
            Way::Collective | Way::Started | Way::Split => file.read_at_all(offset, &mut found).unwrap(),
        };
        let at = usize::try_from(offset).unwrap();
        let known = self.model.lock().unwrap()[owner].clone();
        let written = known.len().saturating_sub(at).min(found.len());
        if count < written {
            // What it says a moment later tells a late length from a lost one.
            let (again, length) = (file.read_at(offset, &mut found), file.len());
            let who = format!("owner {} reads {count} of {owner}'s stream at {offset}, {way:?}", self.owner);
            panic!("{who}, at least {written} were written; again {again:?}, length {length:?}");
        }
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
        let way = if self.ground.steps.is_multiple_of(2) { Way::Collective } else { Way::Alone };
        self.read(file, neighbour, mine, way);
        self.see(file, self.owner);
        self.group.barrier().unwrap();
    }
}

const METHODS: [Method; 4] = [Method::Auto, Method::ServerDirected, Method::ClientDirected, Method::TwoPhase];

/// How an access is made.
#[derive(Clone, Copy, Debug)]
enum Way {
    Alone,
    Collective,
    Started,
    Split,
}

fn check_whole(stranger: &Partition, name: &str, streams: &[Vec<u8>], ground: Ground) {
    let mut expected: Vec<u8> = Vec::new();
    for (owner, stream) in streams.iter().enumerate() {
        for (number, cell) in stream.chunks(ground.cell).enumerate() {
            let at = (number * ground.owners + owner) * ground.cell;
            expected.resize(expected.len().max(at + cell.len()), 0);
            expected[at..at + cell.len()].copy_from_slice(cell);
        }
    }
    let file = stranger.open(name).unwrap();
    let mut found = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_exact_at(0, &mut found).unwrap();
    assert_eq!(difference(&expected, &found), None, "the whole file");
}
