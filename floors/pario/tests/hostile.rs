//! Unauthenticated peers at the TCP port of real servers: random bytes, cut greetings, huge lengths, silence, floods. They get no id and
//! no relay, cost little, and keep no client out. Also clients that know the secret and misuse it.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::stage::{NAME, Stage, until};
use common::{SeededRandom, difference, pattern};
use pario::core::{Code, PartitionId, ServerIndex, SessionId};
use pario_net::connection::Connection;
use pario_net::frame::{self, Assembler, DataCheck, FrameKind, GREETING_BODY_BYTES_MAX, PROTOCOL};
use pario_net::greeting::{ConnectionPurpose, Hello, Proof, Secret, nonce, random_number};
use pario_net::message::{Reply, Request};
use pario_net::stream::{Address, Stream};

const SERVERS: usize = 2;
/// Connections of a flood: more than the server allows unauthenticated peers in all, and far more than one address.
const FLOOD: usize = 1500;
/// Unauthenticated connections per address, as in `service/unproved.rs`, and some for the server's own work.
const DESCRIPTORS_MORE: u64 = 256 + 64;
/// Socket buffers belong to the kernel; the server itself holds less than this for unauthenticated peers.
const MEMORY_MORE_KIB: u64 = 24 << 10;
/// New clients need reader threads; unauthenticated peers need none.
const THREADS_MORE: u64 = 8;

/// Resources of a server process.
#[derive(Clone, Copy, Debug)]
struct Usage {
    threads: u64,
    memory_kib: u64,
    descriptors: u64,
}

struct HostileTarget {
    stage: Stage,
    id: PartitionId,
    secret: Secret,
    tcp: SocketAddr,
    pid: u32,
}

impl HostileTarget {
    fn start() -> Option<HostileTarget> {
        let stage = Stage::start(SERVERS, "stripe = \"64KiB\"\nlog = \"off\"")?;
        let entry = stage.registry().find(NAME).unwrap();
        let server = &entry.servers[0];
        let (tcp, pid) = (server.tcp.unwrap(), server.pid);
        Some(HostileTarget { id: entry.id, secret: Secret(entry.secret.0), tcp, pid, stage })
    }

    fn usage(&self) -> Usage {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().next().unwrap().parse().unwrap()
        };
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", self.pid)).unwrap().count() as u64;
        Usage { threads: field("Threads:"), memory_kib: field("RssAnon:"), descriptors }
    }

    #[track_caller]
    fn check_bounded(&self, before: Usage, what: &str) {
        let now = self.usage();
        assert!(now.threads <= before.threads + THREADS_MORE, "{what}: {before:?}, then {now:?}");
        assert!(now.memory_kib <= before.memory_kib + MEMORY_MORE_KIB, "{what}: {before:?}, then {now:?}");
        assert!(now.descriptors <= before.descriptors + DESCRIPTORS_MORE, "{what}: {before:?}, then {now:?}");
    }

    /// A new client connects over TCP, writes, and reads its data, in time.
    #[track_caller]
    fn check_client(&self, seed: u64) {
        let connection = self.connect(&self.hello()).unwrap();
        connection.call(&Request::Ping {}).unwrap();
        let partition = self.stage.mount();
        let file = partition.create(format!("file-{seed}")).unwrap();
        let data = pattern(200_000, seed);
        file.write_at(0, &data).unwrap();
        file.sync().unwrap();
        let mut found = vec![0; data.len()];
        file.read_exact_at(0, &mut found).unwrap();
        assert_eq!(difference(&data, &found), None);
    }

    fn hello(&self) -> Hello {
        Hello {
            protocol: PROTOCOL,
            partition: self.id,
            server: ServerIndex(0),
            session: SessionId(random_number()),
            purpose: ConnectionPurpose::Requests {},
            host: "here".into(),
            pid: std::process::id(),
            start_ticks: 5,
            program: "hostile".into(),
            application: "hostile".into(),
            weight: 1,
            relay: false,
            protect: false,
            nonce: nonce(),
        }
    }

    fn connect(&self, hello: &Hello) -> Result<Connection, pario::core::Fault> {
        Connection::open(&Address::Tcp(self.tcp), hello, &self.secret)
    }

    fn stranger(&self) -> TcpStream {
        let stream = TcpStream::connect(self.tcp).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream
    }

    /// The server's answer to these bytes until it closes or is silent.
    fn answer_to(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.stranger();
        // It may close before all is sent.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        match stream.read_to_end(&mut said) {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "it hangs up in time"),
        }
        said
    }
}

fn sealed(hello: &Hello) -> Vec<u8> {
    frame::seal(FrameKind::Hello, 0, hello, &[], DataCheck::None)
}

fn frames(mut bytes: &[u8]) -> Vec<frame::Frame> {
    let mut assembler = Assembler::default();
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let target = assembler.target();
        let count = target.len().min(bytes.len());
        target[..count].copy_from_slice(&bytes[..count]);
        bytes = &bytes[count..];
        frames.extend(assembler.advance(count, GREETING_BODY_BYTES_MAX).unwrap());
    }
    frames
}

#[test]
fn a_stranger_gets_no_id_and_no_relay() {
    let Some(target) = HostileTarget::start() else { return };
    let before = target.usage();
    let id_text = target.id.to_string();
    let tells_id = |said: &[u8]| {
        said.windows(16).any(|window| window == target.id.0)
            || String::from_utf8_lossy(said).to_lowercase().contains(&id_text.to_lowercase())
    };
    // An unauthenticated peer does not know the id; asked for any other, the server does not reveal its own.
    for relay in [false, true] {
        let guess = Hello { partition: PartitionId([0; 16]), relay, ..target.hello() };
        let said = target.answer_to(&sealed(&guess));
        let reply = frames(&said).remove(0).message::<Reply>().unwrap();
        let Reply::Failed { fault } = reply else { panic!("{reply:?}") };
        assert_eq!(fault.code, Code::Stale, "{fault}");
        assert!(
            fault.text.contains("registry entry is stale"),
            "an owner of an old entry knows what to do: {fault}"
        );
        assert!(!tells_id(&said), "{fault}");
    }
    // Even with the id a relay needs proof, and many requests need no threads.
    let relay = Hello { server: ServerIndex(1), relay: true, ..target.hello() };
    let mut askers = Vec::new();
    for _ in 0..100 {
        let mut asker = target.stranger();
        asker.write_all(&sealed(&relay)).unwrap();
        let mut challenge = [0; 32 + 64];
        asker.read_exact(&mut challenge).unwrap();
        let kind = u16::from_le_bytes([challenge[4], challenge[5]]);
        assert_eq!(kind, FrameKind::Challenge as u16, "nothing but the challenge");
        askers.push(asker);
    }
    target.check_bounded(before, "100 that ask for a relay");
    let forged = frame::seal(FrameKind::Proof, 0, &Proof { proof: [1; 32] }, &[], DataCheck::None);
    let mut asker = askers.pop().unwrap();
    asker.write_all(&forged).unwrap();
    let mut said = Vec::new();
    asker.read_to_end(&mut said).unwrap();
    let reply = frames(&said).remove(0).message::<Reply>().unwrap();
    assert!(matches!(&reply, Reply::Failed { fault } if fault.code == Code::WrongSecret), "{reply:?}");
    assert!(!tells_id(&said));
    target.check_client(1);
}

#[test]
fn noise_cuts_and_huge_lengths_cost_nothing() {
    let Some(target) = HostileTarget::start() else { return };
    target.check_client(1);
    let before = target.usage();
    let seed = std::env::var("PARIO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    eprintln!("PARIO_SEED={seed}");
    let mut chance = SeededRandom::new(seed);
    let hello = sealed(&target.hello());
    for round in 0..400 {
        let bytes = match round % 4 {
            0 => (0..1 + chance.index(5000)).map(|_| u8::try_from(chance.index(256)).unwrap()).collect(),
            1 => hello[..chance.index(hello.len())].to_vec(),
            2 => {
                let mut huge = hello.clone();
                let at = if chance.index(2) == 0 { 8 } else { 12 };
                huge[at..at + 4].copy_from_slice(&(u32::MAX >> chance.index(12)).to_le_bytes());
                [huge, vec![0; 100_000]].concat()
            }
            _ => {
                let mut flipped = hello.clone();
                let at = chance.index(flipped.len());
                flipped[at] ^= 1 << chance.index(8);
                [flipped, hello.clone()].concat()
            }
        };
        target.answer_to(&bytes);
    }
    target.check_bounded(before, "400 rounds of noise");
    target.check_client(2);
}

/// Silent connections, or with half a greeting, many more than allowed: clients connect meanwhile, and all resources are freed.
#[test]
fn a_flood_of_silence_keeps_no_client_out() {
    let Some(target) = HostileTarget::start() else { return };
    pario_sys::process::raise_descriptor_limit().unwrap();
    target.check_client(1);
    let before = target.usage();
    let hello = sealed(&target.hello());
    let mut flood = Vec::new();
    for round in 0..FLOOD {
        let mut stream = target.stranger();
        if round % 2 == 0 {
            let _ = stream.write_all(&hello[..round % hello.len()]);
        }
        flood.push(stream);
        if round % 300 == 299 {
            target.check_bounded(before, "in the flood");
            target.check_client(round as u64);
        }
    }
    target.check_bounded(before, "after the flood");
    target.check_client(2);
    // Its time limit ends, though its connections are held open on the other side.
    assert!(
        until(|| target.usage().descriptors <= before.descriptors + 16),
        "{before:?}, {:?}",
        target.usage()
    );
    target.check_client(3);
    drop(flood);
}

/// A client that knows the secret: its relays are counted, and its messages after proof are checked like those of others.
#[test]
fn a_client_that_misuses_the_secret_is_bounded_too() {
    let Some(target) = HostileTarget::start() else { return };
    target.check_client(1);
    let before = target.usage();
    let relay = Hello { server: ServerIndex(1), relay: true, ..target.hello() };
    // Relays of one session: requests of a session replace each other at the target server, so this stops before that.
    let mut relays = Vec::new();
    let mut refused = 0;
    for _ in 0..20 {
        let stream = Stream::connect(&Address::Tcp(target.tcp)).unwrap();
        match ask_for_relay(stream, &Hello { nonce: nonce(), ..relay.clone() }, &target.secret) {
            Ok(stream) => relays.push(stream),
            Err(fault) => {
                assert_eq!(fault.code, Code::Busy, "{fault}");
                refused += 1;
            }
        }
    }
    assert_eq!((relays.len(), refused), (4, 16));
    target.check_bounded(before, "relays of one session");
    drop(relays);
    let connection = Connection::open(&Address::Tcp(target.tcp), &relay, &target.secret);
    assert!(until(|| connection.is_ok() || target.connect(&relay).is_ok()), "places are given back");
    let mut chance = SeededRandom::new(7);
    for _ in 0..50 {
        let stream = Stream::connect(&Address::Tcp(target.tcp)).unwrap();
        let hello = target.hello();
        let stream = prove(stream, &hello, &target.secret).unwrap();
        let noise: Vec<u8> = (0..50_000).map(|_| u8::try_from(chance.index(256)).unwrap()).collect();
        let _ = stream.send_all(&mut [std::io::IoSlice::new(&noise)], &[]);
    }
    target.check_bounded(before, "noise after proof");
    target.check_client(2);
}

/// Proves the secret and returns the stream with the answer unread.
fn prove(stream: Stream, hello: &Hello, secret: &Secret) -> Result<Stream, pario::core::Fault> {
    let send = |bytes: Vec<u8>| stream.send_all(&mut [std::io::IoSlice::new(&bytes)], &[]).unwrap();
    send(sealed(hello));
    let challenge = next_frame(&stream).message().unwrap();
    let proof = pario_net::greeting::answer(secret, hello, &challenge)?;
    send(frame::seal(FrameKind::Proof, 0, &proof, &[], DataCheck::None));
    Ok(stream)
}

fn ask_for_relay(stream: Stream, hello: &Hello, secret: &Secret) -> Result<Stream, pario::core::Fault> {
    let stream = prove(stream, hello, secret)?;
    let answer = next_frame(&stream);
    if answer.head.kind == FrameKind::Relayed {
        return Ok(stream);
    }
    let reply = answer.message::<Reply>().unwrap();
    let Reply::Failed { fault } = reply else { panic!("{reply:?}") };
    Err(fault)
}

fn next_frame(stream: &Stream) -> frame::Frame {
    let mut assembler = Assembler::default();
    loop {
        assert!(stream.wait_readable(Duration::from_secs(10)).unwrap(), "the server answers");
        match stream.receive(assembler.target(), &mut Vec::new()) {
            Ok(0) => panic!("the server hung up"),
            Ok(count) => {
                if let Some(frame) = assembler.advance(count, GREETING_BODY_BYTES_MAX).unwrap() {
                    return frame;
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    }
}
