//! A group with one member far ahead of the others, as on oversubscribed processors: its records wait for those of its neighbours, and are
//! not written piece by piece because the first member closes.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::stage::pause;
use common::{difference, pattern};
use pario::core::ServerIndex;
use pario::group::{self, Group};
use pario::{Datatype, EmbedOptions, Hints, Method, Partition};

/// Bytes of a piece, and pieces of each member.
const PIECE: usize = 1000;
const PIECES: usize = 2000;
/// Number of writes of the second member.
const STEPS: usize = 20;
/// The first writes are made together with the first member.
const STEPS_TOGETHER: usize = 2;
/// Duration of a step: the first member waits much longer than its records are kept for a stalled member (250 ms), and in its close longer
/// than a single waiter is kept (16 ms).
const STEP: Duration = Duration::from_millis(20);
/// If the machine stalls for a quarter of a second, the server gives up on the second member: then the test repeats.
const TRIES: usize = 5;

/// Write calls of the server so far.
fn staged_writes(partition: &Partition) -> u64 {
    let text = partition.mount_handle().server_status(ServerIndex(0)).unwrap();
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    status["counters"]["staged_writes"].as_u64().unwrap()
}

/// The first member's action after it has written all of its part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstMemberEnd {
    Closes,
    WaitsForTheOther,
}

/// A member's data of one call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MemberCalls {
    /// Many pieces of its view.
    Steps,
    /// A piece.
    Pieces,
}

/// Channels of a member.
struct Cues {
    hears: Receiver<()>,
    says: Sender<()>,
}

fn run_member(
    client: &Partition,
    group: &Arc<dyn Group>,
    name: &str,
    all: &[u8],
    (cues, then, calls): &(Cues, FirstMemberEnd, MemberCalls),
) {
    let hints = Hints { method: Some(Method::ServerDirected), ..Hints::default() };
    let options = client.options().read(true).write(true).create(true);
    let file = options.open_all(group, name, &hints).unwrap();
    let bytes = i64::try_from(PIECE).unwrap();
    let piece = Datatype::contiguous(bytes, &Datatype::elementary(1).unwrap()).unwrap();
    let rank = i64::try_from(group.rank()).unwrap();
    let byte = Datatype::elementary(1).unwrap();
    file.set_view(rank * bytes, &byte, &piece.resized(0, 2 * bytes).unwrap()).unwrap();
    let mine: Vec<u8> = all.chunks(PIECE).skip(group.rank()).step_by(2).flatten().copied().collect();
    let mut steps = mine.chunks(mine.len() / STEPS).enumerate();
    let mut step = || {
        let (number, part) = steps.next()?;
        let call = if *calls == MemberCalls::Pieces { PIECE } else { part.len() };
        for (at, bytes) in part.chunks(call).enumerate() {
            file.write_at((number * part.len() + at * call) as u64, bytes).unwrap();
        }
        Some(())
    };
    // Both are seen, by known outboxes, before one of them runs ahead.
    for _ in 0..STEPS_TOGETHER {
        step().unwrap();
        group.barrier().unwrap();
    }
    if group.rank() == 0 {
        while step().is_some() {}
        cues.says.send(()).unwrap();
        if *then == FirstMemberEnd::WaitsForTheOther {
            cues.hears.recv().unwrap();
        }
    } else {
        cues.hears.recv().unwrap();
        while step().is_some() {
            pause(STEP);
        }
        cues.says.send(()).unwrap();
    }
    file.close().unwrap();
}

/// Write calls for a file with a second member much later than the first one.
fn writes_of(partition: &Partition, name: &str, (then, calls): (FirstMemberEnd, MemberCalls)) -> u64 {
    let all = pattern(2 * PIECE * PIECES, 7);
    let before = staged_writes(partition);
    let (first, second) = (channel(), channel());
    std::thread::scope(|scope| {
        let cues = [Cues { hears: second.1, says: first.0 }, Cues { hears: first.1, says: second.0 }];
        for (group, cues) in group::threads_on(&[0, 0]).into_iter().zip(cues) {
            let (client, all) = (partition.another_client(), &all);
            scope.spawn(move || {
                run_member(&client, &group, name, all, &(cues, then, calls));
                group.leave();
            });
        }
    });
    let writes = staged_writes(partition) - before;
    let mut found = vec![0; all.len()];
    partition.open(name).unwrap().read_exact_at(0, &mut found).unwrap();
    assert_eq!(difference(&all, &found), None);
    writes
}

fn costs_few_calls(how: (FirstMemberEnd, MemberCalls)) {
    let partition = Partition::embed(&EmbedOptions { servers: 1, ..EmbedOptions::default() }).unwrap();
    // With single pieces the server must first detect that they interleave.
    let alone = if how.1 == MemberCalls::Pieces { 2 * PIECES * STEPS_TOGETHER / STEPS } else { 0 };
    let few = (PIECES / 10 + alone) as u64;
    let mut seen = Vec::new();
    while seen.len() < TRIES && seen.iter().all(|writes| few <= *writes) {
        seen.push(writes_of(&partition, &format!("f{}", seen.len()), how));
    }
    assert!(seen.iter().any(|writes| *writes < few), "{seen:?} calls for {} pieces", 2 * PIECES);
}

#[test]
fn one_that_closes_long_before_the_others_costs_no_call_per_piece() {
    costs_few_calls((FirstMemberEnd::Closes, MemberCalls::Steps));
}

#[test]
fn one_that_is_far_ahead_of_the_others_costs_no_call_per_piece() {
    costs_few_calls((FirstMemberEnd::WaitsForTheOther, MemberCalls::Steps));
}

#[test]
fn pieces_that_are_written_one_by_one_are_put_together() {
    costs_few_calls((FirstMemberEnd::WaitsForTheOther, MemberCalls::Pieces));
}
