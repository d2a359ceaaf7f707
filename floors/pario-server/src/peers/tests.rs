//! Calls to real servers in this process, of which one can be kept from being reached.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pario_core::{Clock, Code, Generation, InodeId, Layout, ObjectId, PartitionId, SessionId};
use pario_net::greeting::{Purpose, nonce};
use pario_sys::clock::MonotonicClock;

use super::*;
use crate::stores::{StoreChoice, names_in};
use crate::{Server, ServerSpec};

const SERVERS: u16 = 3;
/// The one that is kept.
const KEPT: ServerIndex = ServerIndex(1);
/// Everything here is done by then.
const LIMIT: Duration = Duration::from_secs(30);
const SECRET: Secret = Secret([9; 32]);
const PARTITION: PartitionId = PartitionId([4; 16]);

/// Servers, and a gate in front of one of them.
struct Servers {
    servers: Vec<Server>,
    kept: Mutex<bool>,
    freed: Condvar,
    _dir: tempfile::TempDir,
}

impl Servers {
    fn start() -> Arc<Servers> {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(64 << 10, SERVERS, 0, SERVERS).unwrap();
        let servers = (0..SERVERS)
            .map(|index| {
                let store = StoreChoice::Memory { bytes: 1 << 20 }.open().unwrap();
                let spec = ServerSpec {
                    lives: None,
                    take_before_read: false,
                    scheduler: crate::SchedulerSpec::default(),
                    partition: PARTITION,
                    name: "test".into(),
                    index: ServerIndex(index),
                    servers: usize::from(SERVERS),
                    secret: SECRET,
                    store: store.store,
                    volatile: store.volatile,
                    lends: store.lends,
                    lends_writing: store.lends_writing,
                    names: (index == 0).then(|| names_in(&dir.path().join("names"), layout)),
                    outbox_bytes: 256 << 10,
                    transfer_bytes: 1 << 20,
                    unix: None,
                    tcp: None,
                };
                Server::start(spec).unwrap()
            })
            .collect();
        Arc::new(Servers { servers, kept: Mutex::new(true), freed: Condvar::new(), _dir: dir })
    }

    fn free(&self) {
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.freed.notify_all();
    }
}

impl Connect for Servers {
    fn connect(&self, server: ServerIndex) -> Result<Stream, Fault> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        while server == KEPT && *kept {
            kept = self.freed.wait(kept).unwrap_or_else(PoisonError::into_inner);
        }
        self.servers[server.at()].connect().map_err(|error| Fault::from_io(&error, "connecting"))
    }
}

fn peers(servers: &Arc<Servers>) -> Peers {
    let hello = Hello {
        protocol: pario_net::frame::PROTOCOL,
        partition: PARTITION,
        server: ServerIndex::MANAGER,
        session: SessionId(1),
        purpose: Purpose::Peer {},
        host: "here".into(),
        pid: std::process::id(),
        start_ticks: 5,
        program: "test".into(),
        application: "test".into(),
        weight: 1,
        relay: false,
        nonce: nonce(),
    };
    let connect: Arc<dyn Connect> = Arc::clone(servers) as _;
    Peers::new(connect, hello, SECRET, usize::from(SERVERS))
}

fn measure(servers: &[u16]) -> Round {
    let object = ObjectId { inode: InodeId(7), generation: Generation(0) };
    servers.iter().map(|server| (ServerIndex(*server), Request::Measure { object })).collect()
}

/// Calls whose outcomes are collected.
struct Calls {
    said: Sender<RoundsResult>,
    heard: Receiver<RoundsResult>,
}

impl Calls {
    fn new() -> Calls {
        let (said, heard) = channel();
        Calls { said, heard }
    }

    fn submit(&self, peers: &Peers, rounds: Rounds) {
        let said = self.said.clone();
        peers.submit(rounds, move |result| said.send(result).unwrap());
    }

    fn next(&self) -> RoundsResult {
        self.heard.recv_timeout(LIMIT).expect("a call ends")
    }
}

#[test]
fn a_peer_that_hangs_delays_only_calls_that_need_it() {
    let servers = Servers::start();
    let peers = peers(&servers);
    let (stuck, others) = (Calls::new(), Calls::new());
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
    assert!(stuck.heard.try_recv().is_err(), "nothing that needs the hanging server is over");
    servers.free();
    let mut replies = (0..200).map(|_| stuck.next().unwrap().len()).collect::<Vec<_>>();
    replies.sort_unstable();
    assert_eq!(replies, [[1; 100], [3; 100]].concat());
}

#[test]
fn calls_without_requests_are_over_at_once() {
    let servers = Servers::start();
    let (peers, calls) = (peers(&servers), Calls::new());
    calls.submit(&peers, Vec::new());
    calls.submit(&peers, vec![Round::new(), Round::new()]);
    assert_eq!(calls.next().unwrap(), []);
    assert_eq!(calls.next().unwrap(), []);
}

#[test]
fn a_full_queue_refuses_and_names_the_server() {
    let servers = Servers::start();
    let (peers, calls) = (peers(&servers), Calls::new());
    let under_way = TASKS_MAX + queue::WORKERS_MAX;
    for _ in 0..under_way + 10 {
        calls.submit(&peers, vec![measure(&[1, 2])]);
    }
    // How many wait besides those under way depends on how soon the workers come.
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
    let servers = Servers::start();
    let (peers, calls) = (peers(&servers), Calls::new());
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
        // Those under way: what the one that was connecting hears depends on who was first.
        let _ = calls.next();
    }
    let began = MonotonicClock.now();
    while kept.workers() != 0 {
        assert!(MonotonicClock.now().since(began) < LIMIT, "{} workers stay", kept.workers());
        std::thread::yield_now();
    }
}
