//! Several applications on one throttled store, real servers and real processes: service is shared by weight, counted by the server; also
//! the output of `pario status` and the trace.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::SeededRandom;
use common::stage::{NAME, Program, Stage, job, mounted, until};
use pario_server::sched::{Trace, TraceEvent};
use rustix::process::Signal;
use serde_json::Value;

/// Requests are of one page, at offsets so far apart that none is merged with another.
const PAGE: usize = 4096;
const APART: u64 = 512 << 10;
const PLACES: u64 = 128;
/// Threads of each process, each with one request under way.
const THREADS: u64 = 16;
/// Requests over which shares are counted.
const COUNTED: u64 = 900;
const COUNTED_RECORDS: u64 = 3000;

/// Not a test of its own: reads or writes random pages until it is killed.
#[test]
fn child_asks() {
    let Some(job) = job() else { return };
    let (kind, file) = job.split_once(' ').unwrap();
    let partition = mounted();
    let file = partition.options().read(true).write(kind == "write").open(file).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let file = &file;
            scope.spawn(move || {
                let (mut chance, mut page) = (SeededRandom::new(thread), vec![1; PAGE]);
                loop {
                    let at = chance.below(PLACES) * APART;
                    match kind {
                        "write" => file.write_at(at, &page).unwrap(),
                        _ => file.read_exact_at(at, &mut page).unwrap(),
                    }
                }
            });
        }
    });
}

/// Not a test of its own: writes pages that are no neighbours, one after the other, until it is killed.
#[test]
fn child_writes_records() {
    let Some(file) = job() else { return };
    let partition = mounted();
    let (file, page) = (partition.create(&file).unwrap(), vec![1; PAGE]);
    for number in (0..1u64 << 16).cycle() {
        file.write_at(number * 2 * PAGE as u64, &page).unwrap();
    }
}

/// Not a test of its own: mounts, and prints why it cannot.
#[test]
fn child_mounts() {
    if job().is_some() {
        println!(
            "{}",
            pario::Partition::mount(NAME).map_or_else(|error| error.to_string(), |_| "mounted".into())
        );
    }
}

#[test]
fn a_weight_that_is_none_is_an_error_at_mount() {
    let Some(stage) = Stage::start(1, "") else { return };
    let mount = |weight: &str| {
        let variables = [("PARIO_WEIGHT", OsStr::new(weight))];
        Program::start_with(&stage, "child_mounts", "mount", &variables).lines()
    };
    assert!(mount("7").contains(&"mounted".to_owned()));
    let told = "environment PARIO_WEIGHT = \"abc\": must be a whole number from 1 to 1000".to_owned();
    let lines = mount("abc");
    assert!(lines.contains(&told), "{lines:?}");
    // An administrator's commands are not delayed.
    let output = stage.command(&["status", NAME]).env("PARIO_WEIGHT", "abc").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// The server's status. On a busy machine an answer may be late: then it is requested again.
fn status(stage: &Stage) -> Value {
    let (mut all, mut of_server) = (Value::Null, None);
    let answered = until(|| {
        let output = stage.command(&["--json", "status", NAME]).output().unwrap();
        all = serde_json::from_slice(&output.stdout).unwrap();
        of_server = all.pointer("/0/servers/0/status").filter(|status| status.is_object()).cloned();
        of_server.is_some()
    });
    assert!(answered, "the server says nothing: {all:#}");
    of_server.unwrap()
}

/// A figure of each application.
fn by_application(status: &Value, figure: &str) -> BTreeMap<String, u64> {
    let applications = status.pointer("/scheduler/applications").unwrap();
    let one = |of: &Value| (of["name"].as_str().unwrap().to_owned(), of[figure].as_u64().unwrap());
    applications.as_array().unwrap().iter().map(one).collect()
}

/// The service of each application so far.
fn served(stage: &Stage) -> BTreeMap<String, u64> {
    by_application(&status(stage), "done")
}

/// Shares are counted on one partition at a time: programs that wait for a processor send no requests.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two applications of two processes each request as much as they can get; returns the first's share relative to the second's.
fn share(settings: &str, kind: &str, hints: [&str; 2]) -> Option<f64> {
    let _alone = alone();
    let stage = Stage::start(1, settings)?;
    let partition = stage.mount();
    for name in ["heavy", "light"] {
        let file = partition.create(name).unwrap();
        for place in 0..PLACES {
            file.write_at(place * APART, &[0; PAGE]).unwrap();
        }
        file.close().unwrap();
    }
    let start = |(name, hint): (&'static str, &str)| {
        let variables = [("PARIO_APPLICATION", OsStr::new(name)), ("PARIO_WEIGHT", OsStr::new(hint))];
        (0..2)
            .map(|_| Program::start_with(&stage, "child_asks", &format!("{kind} {name}"), &variables))
            .collect::<Vec<_>>()
    };
    let programs: Vec<_> = ["heavy", "light"].into_iter().zip(hints).map(start).collect();
    let of = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
    let mut before = BTreeMap::new();
    let both_ask = until(|| {
        before = served(&stage);
        ["heavy", "light"].iter().all(|name| 50 < of(&before, name))
    });
    assert!(both_ask, "{before:?}");
    let mut after = BTreeMap::new();
    let gained = |after: &BTreeMap<String, u64>, name: &str| of(after, name) - of(&before, name);
    let counted = until(|| {
        after = served(&stage);
        COUNTED < gained(&after, "heavy") + gained(&after, "light")
    });
    assert!(counted, "{before:?}, then {after:?}");
    drop(programs);
    #[expect(clippy::cast_precision_loss, reason = "some hundreds")]
    Some(gained(&after, "heavy") as f64 / gained(&after, "light") as f64)
}

#[track_caller]
fn check_two_to_one(share: Option<f64>) {
    if let Some(share) = share {
        assert!((1.8..=2.2).contains(&share), "{share:.2} to one");
    }
}

#[test]
fn weights_of_the_partition_file_share_reads_two_to_one() {
    let settings = "scheduler = \"wfq\"\n[weights]\nheavy = 2\n[limits]\noperations = 500";
    // The weight requested by an application does not count then.
    check_two_to_one(share(settings, "read", ["1", "1"]));
}

#[test]
fn weights_that_applications_ask_for_share_reads_two_to_one() {
    let settings = "scheduler = \"mlf\"\n[limits]\noperations = 500";
    check_two_to_one(share(settings, "read", ["2", "1"]));
}

#[test]
fn weights_share_writes_by_message_two_to_one() {
    let settings = "scheduler = \"wfq\"\ntransport = \"tcp\"\n[weights]\nheavy = 2\nlight = 1\n[limits]\noperations = 500";
    check_two_to_one(share(settings, "write", ["1", "9"]));
}

/// Figures of two applications of two processes each that write records as fast as they are drained, at two times: when both are active,
/// and after a given number of further records.
fn records_taken(settings: &str, hints: [&str; 2]) -> Option<[Value; 2]> {
    let _alone = alone();
    let stage = Stage::start(1, settings)?;
    let start = |(name, hint): (&'static str, &str)| {
        let variables = [("PARIO_APPLICATION", OsStr::new(name)), ("PARIO_WEIGHT", OsStr::new(hint))];
        let start = |number: u32| {
            Program::start_with(&stage, "child_writes_records", &format!("{name}-{number}"), &variables)
        };
        [start(0), start(1)]
    };
    let programs: Vec<_> = ["heavy", "light"].into_iter().zip(hints).map(start).collect();
    let taken = |status: &Value| by_application(status, "taken_records");
    let of = |status: &Value, name: &str| taken(status).get(name).copied().unwrap_or(0);
    let mut before = Value::Null;
    // The first application had the server for itself at the beginning.
    let both_write = until(|| {
        before = status(&stage);
        ["heavy", "light"].iter().all(|name| 500 < of(&before, name))
    });
    assert!(both_write, "{:?}", taken(&before));
    let mut after = Value::Null;
    let counted = until(|| {
        after = status(&stage);
        let gained = ["heavy", "light"].map(|name| of(&after, name) - of(&before, name));
        COUNTED_RECORDS < gained.iter().sum::<u64>()
    });
    assert!(counted, "{:?}, then {:?}", taken(&before), taken(&after));
    drop(programs);
    Some([before, after])
}

#[track_caller]
fn check_records_two_to_one(figures: Option<[Value; 2]>) {
    let Some([before, after]) = figures else { return };
    let gained = |figure: &str, name: &str| {
        by_application(&after, figure)[name] - by_application(&before, figure)[name]
    };
    #[expect(clippy::cast_precision_loss, reason = "some thousands of pages")]
    let share = gained("taken_bytes", "heavy") as f64 / gained("taken_bytes", "light") as f64;
    assert!((1.8..=2.2).contains(&share), "{share:.2} to one");
    for name in ["heavy", "light"] {
        assert_eq!(gained("taken_bytes", name), gained("taken_records", name) * PAGE as u64, "{name}");
    }
    let by_message =
        |status: &Value| status.pointer("/counters/received_bytes").and_then(Value::as_u64).unwrap();
    assert!(by_message(&after) - by_message(&before) < PAGE as u64, "no page came as a message");
}

#[test]
fn weights_of_the_partition_file_share_records_two_to_one() {
    let settings = "scheduler = \"wfq\"\n[weights]\nheavy = 2\nlight = 1\n[limits]\noperations = 1000";
    check_records_two_to_one(records_taken(settings, ["1", "9"]));
}

#[test]
fn weights_that_applications_ask_for_share_records_two_to_one() {
    let settings = "scheduler = \"mlf\"\n[limits]\nstore = \"8MB\"";
    check_records_two_to_one(records_taken(settings, ["2", "1"]));
}

/// A partition with a traced server, which got requests for pages from several threads until it merged some.
fn traced(dir: &std::path::Path) -> Option<Stage> {
    let settings = format!("scheduler = \"mlf\"\ntrace = {dir:?}\n[limits]\noperations = 1000");
    let stage = Stage::start(1, &settings)?;
    let partition = stage.mount();
    let file = partition.create("f").unwrap();
    file.write_at(0, &vec![7; 1 << 20]).unwrap();
    file.close().unwrap();
    let joined = until(|| {
        let file = partition.open("f").unwrap();
        std::thread::scope(|scope| {
            (0..8).for_each(|thread| {
                scope.spawn({
                    let file = &file;
                    move || read_every_eighth(file, thread)
                });
            });
        });
        file.close().unwrap();
        let status = status(&stage);
        let total = |figure: &str| status["scheduler"]["total"][figure].as_u64().unwrap();
        total("operations") < total("served")
    });
    assert!(joined, "neighbours that wait become one call");
    Some(stage)
}

fn read_every_eighth(file: &pario::File, first: u64) {
    let mut page = vec![0; PAGE];
    for number in 0..16 {
        file.read_exact_at((number * 8 + first) * PAGE as u64, &mut page).unwrap();
        assert!(page.iter().all(|byte| *byte == 7));
    }
}

/// The operation of each request that was started.
fn runs(dir: &std::path::Path) -> Vec<u64> {
    let text = std::fs::read_to_string(dir.join(format!("{NAME}-0.trace"))).unwrap();
    let trace: Trace = text.parse().unwrap();
    let picked = |event| match event {
        TraceEvent::Pick { run } => Some(run),
        TraceEvent::Post { .. } | TraceEvent::Complete { .. } | TraceEvent::Withdraw => None,
    };
    trace.records().filter_map(|record| picked(record.event)).collect()
}

/// Whether fewer calls than requests were made.
fn are_joined(runs: &[u64]) -> bool {
    let calls = runs.iter().max().map_or(0, |last| last + 1);
    calls < runs.len() as u64
}

#[test]
fn an_ended_server_leaves_a_trace_that_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let Some(stage) = traced(dir.path()) else { return };
    stage.down();
    let runs = runs(dir.path());
    assert!(are_joined(&runs), "{runs:?}");
}

#[test]
fn a_killed_server_leaves_a_trace_that_its_successor_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let Some(stage) = traced(dir.path()) else { return };
    let mut before = Vec::new();
    assert!(until(|| {
        before = runs(dir.path());
        are_joined(&before)
    }));
    stage.signal(0, Signal::KILL);
    let left = runs(dir.path());
    assert!(before.len() <= left.len() && are_joined(&left), "{before:?}, {left:?}");
    stage.up();
    let kept = std::fs::read_to_string(dir.path().join(format!("{NAME}-0.trace.before"))).unwrap();
    assert!(kept.parse::<Trace>().unwrap().records().count() >= left.len());
    assert!(runs(dir.path()).is_empty(), "a trace of its own");
}
