//! A power cut under a whole partition: stores and names are on a recording disk; from the record a legal state after a cut is made, the
//! partition is opened on it, and everything that `sync` had acknowledged by then must be present.

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{SeededRandom, Trace, histories, pattern};
use pario::Partition;
use pario::client::{Endpoint, MountSpec};
use pario::core::{Fault, Layout, PartitionId, ServerIndex};
use pario_net::greeting::Secret;
use pario_net::stream::Stream;
use pario_server::stores::OpenStore;
use pario_server::{Connect, NamesSpec, Server, ServerIdentity, ServerSpec};
use pario_store::recording::RecordingDisk;
use pario_store::{Disk, FilesStore, RealDisk};

const SERVERS: u16 = 2;
const STRIPE: u64 = 8 << 10;
const CUTS: u64 = 6;

/// Servers of this process on a given disk.
struct RecordedServers(Arc<Vec<Server>>);

impl Connect for RecordedServers {
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault> {
        self.0[server.at()].connect().map_err(|error| Fault::from_io(&error, "connecting"))
    }
}

fn start(disk: &Arc<dyn Disk>, base: &Path) -> (Arc<Vec<Server>>, Partition) {
    let (partition, secret) = (PartitionId([7; 16]), Secret([9; 32]));
    let defaults = Layout::new(STRIPE, SERVERS, 0, SERVERS).expect("a layout");
    let mut servers = Vec::new();
    for index in 0..SERVERS {
        let dir = base.join(format!("server-{index}"));
        let store = FilesStore::open_on(Arc::clone(disk), &dir).expect("a store");
        let names = NamesSpec { dir: base.join("names"), disk: Arc::clone(disk), defaults };
        let identity = ServerIdentity {
            partition,
            name: "cut".into(),
            index: ServerIndex(index),
            servers: usize::from(SERVERS),
            secret: secret.clone(),
        };
        // Writes through lent descriptors would bypass the recording.
        let store = OpenStore { store: Arc::new(store), volatile: false, lends: false, lends_writing: false };
        let spec = ServerSpec {
            names: (index == 0).then_some(names),
            outbox_bytes: 256 << 10,
            ..ServerSpec::new(identity, store)
        };
        servers.push(Server::start(spec).expect("a server"));
    }
    let servers = Arc::new(servers);
    let connect: Arc<dyn Connect> = Arc::new(RecordedServers(Arc::clone(&servers)));
    servers[0].set_peers(Arc::clone(&connect));
    let spec = MountSpec {
        name: "cut".into(),
        partition,
        endpoint: Endpoint { secret, connect, protect: pario_net::protect::Protect::default() },
        servers: usize::from(SERVERS),
        locate: None,
        outbox_bytes: 0,
        method: pario::Method::Auto,
        tied: None,
        application: pario::Application::new("cut", 1),
    };
    (servers, Partition::from_spec(spec))
}

/// The data acknowledged after this many disk events.
struct AcknowledgedData {
    events: usize,
    name: String,
    bytes: usize,
    seed: u64,
}

#[test]
fn what_sync_acknowledged_survives_a_power_cut() {
    histories(4, history);
}

fn history(seed: u64, trace: &Trace) {
    let mut chance = SeededRandom::new(seed);
    let home = tempfile::tempdir().expect("a directory");
    let base = home.path().join("disk");
    std::fs::create_dir(&base).expect("a directory");
    let recording = Arc::new(RecordingDisk::new(&base).expect("a recording disk"));
    let disk: Arc<dyn Disk> = Arc::clone(&recording) as Arc<dyn Disk>;
    for index in 0..SERVERS {
        disk.make_dir(&base.join(format!("server-{index}"))).expect("a directory");
    }
    disk.sync_dir(&base).expect("a durable directory");
    let (servers, partition) = start(&disk, &base);
    let promises = work(&mut chance, &partition, &recording);
    let end = recording.events();
    drop(partition);
    drop(servers);
    for number in 0..CUTS {
        let first = promises[chance.index(promises.len())].events;
        let cut = first + chance.index(end - first + 1);
        let target = home.path().join(format!("cut-{number}"));
        std::fs::create_dir(&target).expect("a directory");
        recording.power_cut(cut, chance.next_u64(), &target).expect("a state after a cut");
        trace.step(format!("cut at event {cut} of {end}"));
        check(&target, &promises, cut);
    }
}

/// Files that grow, are synced now and then, and are renamed.
fn work(chance: &mut SeededRandom, partition: &Partition, disk: &RecordingDisk) -> Vec<AcknowledgedData> {
    let mut promises = Vec::new();
    partition.create_dir("d").expect("a directory of the partition");
    for number in 0..6u64 {
        let seed = chance.next_u64();
        let content = pattern(100_000, seed);
        let name = format!("d/file-{number}");
        let file = partition.create(&name).expect("a file");
        let mut at = 0;
        while at < content.len() {
            let step = 1 + chance.index(20_000);
            let end = content.len().min(at + step);
            file.write_at(at as u64, &content[at..end]).expect("a write");
            at = end;
            if chance.once_in(3) {
                file.sync().expect("a sync");
                promises.push(AcknowledgedData {
                    events: disk.events(),
                    name: name.clone(),
                    bytes: at,
                    seed,
                });
            }
        }
        file.close().expect("a close");
        if chance.once_in(2) {
            // Unsynced changes beside acknowledged data.
            partition
                .create(format!("d/extra-{number}"))
                .expect("a file")
                .write_at(5, b"x")
                .expect("a write");
        }
    }
    let file = partition.create("last").expect("a file");
    file.write_at(0, b"last").expect("a write");
    file.sync().expect("a sync");
    promises.push(AcknowledgedData { events: disk.events(), name: "last".into(), bytes: 0, seed: 0 });
    promises
}

fn check(base: &Path, promises: &[AcknowledgedData], cut: usize) {
    for dir in ["server-0", "server-1"] {
        std::fs::create_dir_all(base.join(dir)).expect("a directory");
    }
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let (servers, partition) = start(&disk, base);
    let kept = promises.iter().filter(|promise| promise.events <= cut);
    for promise in kept {
        let file = partition.open(&promise.name).unwrap_or_else(|error| panic!("{}: {error}", promise.name));
        let mut back = vec![0; promise.bytes];
        file.read_exact_at(0, &mut back).unwrap_or_else(|error| panic!("{}: {error}", promise.name));
        assert!(back == pattern(100_000, promise.seed)[..promise.bytes], "{} differs", promise.name);
    }
    drop(partition);
    drop(servers);
}
