//! The order of transfers, from traces of messages: a client's requests are all under way before it waits for any, one to each server, and
//! no two clients begin with the same server, nor reach the same server as their second, third and so on.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use common::{difference, pattern, small};
use pario::group::{self, Group};
use pario::{Datatype, EmbedOptions, EmbedTransport, GroupFile, Hints, Method, Partition};
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber, span};

const RANKS: usize = 4;
const SERVERS: u16 = 4;
const PIECE: usize = 1000;
const PIECES: usize = 400;
const CALLS: usize = 3;

/// An event of a rank's thread.
#[derive(Clone, PartialEq, Eq, Debug)]
enum TransferEvent {
    Begin,
    Sent { server: u64, request: String },
    Answered,
}

thread_local! {
    /// The rank of this thread; other threads are ignored.
    static RANK: Cell<Option<usize>> = const { Cell::new(None) };
}

fn traces() -> MutexGuard<'static, Vec<Vec<TransferEvent>>> {
    static TRACES: OnceLock<Mutex<Vec<Vec<TransferEvent>>>> = OnceLock::new();
    TRACES.get_or_init(|| Mutex::new(vec![Vec::new(); RANKS])).lock().unwrap()
}

fn note(entry: TransferEvent) {
    if let Some(rank) = RANK.get() {
        traces()[rank].push(entry);
    }
}

/// Notes every message of the ranks' threads.
struct Recorder;

#[derive(Default)]
struct Fields {
    server: u64,
    request: Option<String>,
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        if field.name() == "server" {
            self.server = value;
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "request" {
            let text = format!("{value:?}");
            self.request = Some(text.split(' ').next().unwrap().to_owned());
        }
    }
}

impl Subscriber for Recorder {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "pario::messages"
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        note(match fields.request {
            Some(request) => TransferEvent::Sent { server: fields.server, request },
            None => TransferEvent::Answered,
        });
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

fn see(file: &GroupFile, rank: usize) {
    let number = |n: usize| i64::try_from(n).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    let piece = Datatype::contiguous(number(PIECE), &byte).unwrap();
    let filetype = piece.resized(0, number(PIECE * RANKS)).unwrap();
    file.set_view(number(PIECE * rank), &byte, &filetype).unwrap();
}

fn live(group: &Arc<dyn Group>, client: &Partition, method: Method) {
    let rank = group.rank();
    let hints = Hints { method: Some(method), ..Hints::default() };
    let name = format!("{method:?}");
    let options = client.options().read(true).write(true).create(true);
    let file = options.open_all(group, &name, &hints).unwrap();
    let data = |rank: usize, call: usize| pattern(PIECE * PIECES, (rank * 10 + call) as u64);
    let offset = |call: usize| (call * PIECE * PIECES) as u64;
    see(&file, rank);
    for call in 0..CALLS {
        note(TransferEvent::Begin);
        file.write_at_all(offset(call), &data(rank, call)).unwrap();
    }
    group.barrier().unwrap();
    let next = (rank + 1) % RANKS;
    see(&file, next);
    for call in (0..CALLS).rev() {
        // Backwards from the end, so that there is no read-ahead.
        let mut found = vec![0; PIECE * PIECES];
        note(TransferEvent::Begin);
        assert_eq!(file.read_at_all(offset(call), &mut found).unwrap(), found.len());
        assert_eq!(difference(&data(next, call), &found), None);
    }
    note(TransferEvent::Begin);
    file.close().unwrap();
}

/// The servers that each rank contacted in one call, in its order; asserts that it waited for none before it had contacted all.
fn transfers(call: &[TransferEvent], request: &str) -> Vec<u64> {
    sent_together(&without_views(call), request)
}

fn sent_together(call: &[TransferEvent], request: &str) -> Vec<u64> {
    let is_transfer =
        |entry: &TransferEvent| matches!(entry, TransferEvent::Sent { request: sent, .. } if sent == request);
    let first = call.iter().position(is_transfer).expect("a transfer");
    let last = call.iter().rposition(is_transfer).expect("a transfer");
    assert!(
        !call[first..last].contains(&TransferEvent::Answered),
        "it waits before all servers are busy: {call:?}"
    );
    let server = |entry: &TransferEvent| match entry {
        TransferEvent::Sent { server, .. } => *server,
        TransferEvent::Begin | TransferEvent::Answered => unreachable!("filtered"),
    };
    call.iter().filter(|entry| is_transfer(entry)).map(server).collect()
}

/// A view that a server does not know yet is sent first, with a wait, once per view.
fn without_views(call: &[TransferEvent]) -> Vec<TransferEvent> {
    let mut kept: Vec<TransferEvent> = Vec::new();
    for entry in call {
        let told =
            matches!(kept.last(), Some(TransferEvent::Sent { request, .. }) if request == "DefineView");
        if told && *entry == TransferEvent::Answered {
            kept.pop();
        } else {
            kept.push(entry.clone());
        }
    }
    kept
}

/// The events of all ranks, each on its node.
fn trace(method: Method, transport: EmbedTransport, nodes: &[usize]) -> Vec<Vec<TransferEvent>> {
    let options = EmbedOptions { transport, ..small(SERVERS, 4096) };
    let partition = Partition::embed(&options).unwrap();
    let clients: Vec<Partition> = (0..RANKS).map(|_| partition.another_client()).collect();
    traces().iter_mut().for_each(Vec::clear);
    std::thread::scope(|scope| {
        for (group, client) in group::threads_on(nodes).into_iter().zip(&clients) {
            scope.spawn(move || {
                RANK.set(Some(group.rank()));
                live(&group, client, method);
                RANK.set(None);
                group.leave();
            });
        }
    });
    traces().clone()
}

/// The events of a rank in each of its calls.
fn calls(trace: &[TransferEvent]) -> Vec<&[TransferEvent]> {
    trace.split(|entry| *entry == TransferEvent::Begin).skip(1).collect()
}

/// Each rank reaches this many servers by message when it writes; it reads from all.
fn check(method: Method, written: usize) {
    let traces = trace(method, EmbedTransport::Tcp, &[0, 1, 2, 3]);
    for call in 0..2 * CALLS {
        let (request, per_rank) =
            if call < CALLS { ("WriteStream", written) } else { ("ReadStream", usize::from(SERVERS)) };
        let of_rank = |trace: &Vec<TransferEvent>| transfers(calls(trace)[call], request);
        let turns: Vec<Vec<u64>> = traces.iter().map(of_rank).collect();
        for turn in 0..per_rank {
            let hit: BTreeSet<u64> = turns.iter().map(|servers| servers[turn]).collect();
            assert_eq!(hit.len(), RANKS, "{method:?}, {request} {call}, turn {turn}: {turns:?}");
        }
        for servers in &turns {
            let all: BTreeSet<u64> = servers.iter().copied().collect();
            assert_eq!((servers.len(), all.len()), (per_rank, per_rank), "each server once: {turns:?}");
        }
    }
}

/// On one node the first write sends all servers the view in one exchange, and the others send nothing; objects are lent, and read without
/// a message from then on.
fn check_one_node() {
    for trace in trace(Method::ServerDirected, EmbedTransport::default(), &[0; RANKS]) {
        let calls = calls(&trace);
        let told: BTreeSet<u64> = sent_together(calls[0], "DefineView").into_iter().collect();
        assert_eq!(told.len(), usize::from(SERVERS), "{trace:?}");
        for later in &calls[1..CALLS] {
            assert_eq!(*later, [], "a write by message: {trace:?}");
        }
        let lent: BTreeSet<u64> = transfers(calls[CALLS], "Lend").into_iter().collect();
        assert_eq!(lent.len(), usize::from(SERVERS), "{trace:?}");
        for later in &calls[CALLS + 1..2 * CALLS] {
            assert_eq!(*later, [], "a read by message: {trace:?}");
        }
    }
}

#[test]
fn all_servers_are_busy_and_none_is_hit_first_by_all() {
    tracing::subscriber::set_global_default(Recorder).unwrap();
    check(Method::ServerDirected, usize::from(SERVERS));
    // Each rank shares memory with itself as an aggregator, and leaves records for it.
    check(Method::ClientDirected, RANKS - 1);
    check_one_node();
}
