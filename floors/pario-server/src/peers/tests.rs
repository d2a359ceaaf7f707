//! Calls to real servers in this process; one server can be made unreachable.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Code, Generation, InodeId, Layout, ObjectId, PartitionId, SessionId};
use pario_net::greeting::{ConnectionPurpose, nonce};
use pario_sys::clock::MonotonicClock;

use super::*;
use crate::stores::{StoreChoice, names_in};
use crate::{Server, ServerIdentity, ServerSpec};

const SERVERS: u16 = 3;
/// The unreachable server.
const KEPT: ServerIndex = ServerIndex(1);
/// Upper bound of every wait.
const LIMIT: Duration = Duration::from_secs(30);
const SECRET: Secret = Secret([9; 32]);
const PARTITION: PartitionId = PartitionId([4; 16]);

/// Servers, and a gate in front of one of them.
struct GatedServers {
    servers: Vec<Server>,
    kept: Mutex<bool>,
    freed: Condvar,
    _dir: tempfile::TempDir,
}

impl GatedServers {
    fn start() -> Arc<GatedServers> {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(64 << 10, SERVERS, 0, SERVERS).unwrap();
        let servers = (0..SERVERS)
            .map(|index| {
                let store = StoreChoice::Memory { bytes: 1 << 20 }.open().unwrap();
                let identity = ServerIdentity {
                    partition: PARTITION,
                    name: "test".into(),
                    index: ServerIndex(index),
                    servers: usize::from(SERVERS),
                    secret: SECRET,
                };
                let names = (index == 0).then(|| names_in(&dir.path().join("names"), layout));
                let spec = ServerSpec { names, ..ServerSpec::new(identity, store) };
                Server::start(spec).unwrap()
            })
            .collect();
        Arc::new(GatedServers { servers, kept: Mutex::new(true), freed: Condvar::new(), _dir: dir })
    }

    fn free(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.freed.notify_all();
    }
}

impl Connect for GatedServers {
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while server == KEPT && *kept {
            kept = self.freed.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
        self.servers[server.at()].connect().map_err(|error| Fault::from_io(&error, "connecting"))
    }
}

fn peers(servers: &Arc<GatedServers>) -> ManagerPeers {
    let hello = Hello {
        protocol: pario_net::frame::PROTOCOL,
        partition: PARTITION,
        server: ServerIndex::MANAGER,
        session: SessionId(1),
        purpose: ConnectionPurpose::Peer {},
        host: "here".into(),
        pid: std::process::id(),
        start_ticks: 5,
        program: "test".into(),
        application: "test".into(),
        weight: 1,
        relay: false,
        protect: false,
        nonce: nonce(),
    };
    let connect: Arc<dyn Connect> = Arc::clone(servers) as _;
    ManagerPeers::new(connect, hello, (SECRET, Protect::default()), usize::from(SERVERS))
}

fn measure(servers: &[u16]) -> CallRound {
    let object = ObjectId { inode: InodeId(7), generation: Generation(0) };
    servers.iter().map(|server| (ServerIndex(*server), Request::Measure { object })).collect()
}

/// Calls with collected outcomes.
struct CollectedCalls {
    sender: Sender<RoundsResult>,
    receiver: Receiver<RoundsResult>,
}

impl CollectedCalls {
    fn new() -> CollectedCalls {
        let (said, heard) = channel();
        CollectedCalls { sender: said, receiver: heard }
    }

    fn submit(&self, peers: &ManagerPeers, rounds: CallRounds) {
        let said = self.sender.clone();
        peers.submit(rounds, move |result| said.send(result).unwrap());
    }

    fn next(&self) -> RoundsResult {
        self.receiver.recv_timeout(LIMIT).expect("a call ends")
    }
}

#[test]
fn a_peer_that_hangs_delays_only_calls_that_need_it() {
    let servers = GatedServers::start();
    let peers = peers(&servers);
    let (stuck, others) = (CollectedCalls::new(), CollectedCalls::new());
    for _ in 0..100 {
        stuck.submit(&peers, vec![measure(&[1])]);
        // Its first round can be answered, its second cannot.
        stuck.submit(&peers, vec![measure(&[0, 2]), measure(&[0, 1, 2])]);
    }
    for _ in 0..100 {
        others.submit(&peers, vec![measure(&[0, 2]), measure(&[2, 0])]);
    }
    for _ in 0..100 {
        assert_eq!(others.next().unwrap(), [Reply::NoObject {}, Reply::NoObject {}]);
    }
    assert!(stuck.receiver.try_recv().is_err(), "nothing that needs the hanging server is over");
    servers.free();
    let mut replies = (0..200).map(|_| stuck.next().unwrap().len()).collect::<Vec<_>>();
    replies.sort_unstable();
    assert_eq!(replies, [[1; 100], [3; 100]].concat());
}

#[test]
fn calls_without_requests_are_over_at_once() {
    let servers = GatedServers::start();
    let (peers, calls) = (peers(&servers), CollectedCalls::new());
    calls.submit(&peers, Vec::new());
    calls.submit(&peers, vec![CallRound::new(), CallRound::new()]);
    assert_eq!(calls.next().unwrap(), []);
    assert_eq!(calls.next().unwrap(), []);
}

#[test]
fn a_full_queue_refuses_and_names_the_server() {
    let servers = GatedServers::start();
    let (peers, calls) = (peers(&servers), CollectedCalls::new());
    let under_way = TASKS_MAX + queue::WORKERS_MAX;
    for _ in 0..under_way + 10 {
        calls.submit(&peers, vec![measure(&[1, 2])]);
    }
    // The number of waiting calls besides those in progress depends on the workers' timing.
    let refused = calls.next().unwrap_err();
    assert_eq!(refused.code, Code::TooMany);
    assert!(refused.text.contains("server 1"), "{}", refused.text);
    servers.free();
    let outcomes = (1..under_way + 10).map(|_| calls.next()).collect::<Vec<_>>();
    let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
    assert!((9..=9 + queue::WORKERS_MAX).contains(&failed), "{failed} more were refused");
}

#[test]
fn what_waits_is_refused_when_the_server_ends() {
    let servers = GatedServers::start();
    let (peers, calls) = (peers(&servers), CollectedCalls::new());
    for _ in 0..50 {
        calls.submit(&peers, vec![measure(&[1])]);
    }
    let kept = Arc::clone(&peers.peers[KEPT.at()]);
    assert_eq!(kept.workers(), queue::WORKERS_MAX);
    drop(peers);
    for _ in 0..50 - queue::WORKERS_MAX {
        assert_eq!(calls.next().unwrap_err().code, Code::ShuttingDown);
    }
    servers.free();
    for _ in 0..queue::WORKERS_MAX {
        // Calls in progress: the error of the connecting one depends on timing.
        let _ = calls.next();
    }
    let began = MonotonicClock.now();
    while kept.workers() != 0 {
        assert!(MonotonicClock.now().since(began) < LIMIT, "{} workers stay", kept.workers());
        std::thread::yield_now();
    }
}
